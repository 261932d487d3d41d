"""How arguments become a request: the server gets exactly the value that was given, and a path stays the path it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tools.openapi.kit import Api, Seen, called, described, one, parameter

from steersman.types.errors import ToolError

pytestmark = pytest.mark.real_time

# A request each: fewer of them, and the server stays the same.
few = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = texts | st.integers(-(2**53), 2**53) | st.booleans() | st.integers(-999, 999).map(lambda number: number / 8)
values = st.recursive(
    plain | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
tricky = st.sampled_from(
    [*"/?#%&=+;,. \t\r\n|[]{}~:@!$'()*\"\\", "..", "%2f", "%2e%2e", "../", "ä", "\U0001f600", "\x00", "a", "b"]
)
hostile = st.lists(tricky, max_size=6).map("".join)


@pytest.fixture(scope="module", name="api")
def _api() -> Iterator[Api]:
    with Api() as api:
        yield api


async def sent(api: Api, spec: Any, **arguments: Any) -> Seen:
    await called(one(spec, api.url), **arguments)
    return api.last


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


ARRAY, OBJECT = ["blue", "black", "brown"], {"R": 100, "G": 200, "B": 150}


@pytest.mark.parametrize(
    ("style", "explode", "value", "path"),
    [
        ("simple", False, "blue", "blue"),
        ("simple", False, ARRAY, "blue,black,brown"),
        ("simple", False, OBJECT, "R,100,G,200,B,150"),
        ("simple", True, ARRAY, "blue,black,brown"),
        ("simple", True, OBJECT, "R=100,G=200,B=150"),
        ("label", False, "blue", ".blue"),
        ("label", False, ARRAY, ".blue,black,brown"),
        ("label", False, OBJECT, ".R,100,G,200,B,150"),
        ("label", True, ARRAY, ".blue.black.brown"),
        ("label", True, OBJECT, ".R=100.G=200.B=150"),
        ("matrix", False, "blue", ";color=blue"),
        ("matrix", False, "", ";color="),
        ("matrix", False, ARRAY, ";color=blue,black,brown"),
        ("matrix", False, OBJECT, ";color=R,100,G,200,B,150"),
        ("matrix", True, ARRAY, ";color=blue;color=black;color=brown"),
        ("matrix", True, OBJECT, ";R=100;G=200;B=150"),
        (None, None, True, "true"),
        (None, None, 1.5, "1.5"),
        (None, None, [1, [2, "x"], {"a": None}], "1,%5B2%2C%22x%22%5D,%7B%22a%22%3Anull%7D"),
    ],
)
async def test_a_value_in_a_path_has_its_style(api: Api, style: Any, explode: Any, value: Any, path: str) -> None:
    """The values and forms are those of the OpenAPI specification's own table."""
    given = parameter("color", "path", **_styled(style, explode))
    assert (await sent(api, described("/c/{color}/x", parameters=[given]), color=value)).path == f"/c/{path}/x"


@pytest.mark.parametrize(
    ("style", "explode", "value", "query"),
    [
        (None, None, "blue", "color=blue"),
        (None, None, "", "color="),
        (None, None, ARRAY, "color=blue&color=black&color=brown"),
        (None, None, OBJECT, "R=100&G=200&B=150"),
        (None, None, [], ""),
        (None, None, None, ""),
        (None, None, [1, None, False], "color=1&color=false"),
        ("form", False, ARRAY, "color=blue,black,brown"),
        ("form", False, ["a,b", "c"], "color=a%2Cb,c"),
        ("form", False, OBJECT, "color=R,100,G,200,B,150"),
        ("spaceDelimited", None, ARRAY, "color=blue%20black%20brown"),
        ("spaceDelimited", False, OBJECT, "color=R%20100%20G%20200%20B%20150"),
        ("pipeDelimited", None, ARRAY, "color=blue%7Cblack%7Cbrown"),
        ("pipeDelimited", True, ARRAY, "color=blue&color=black&color=brown"),
        ("pipeDelimited", None, "a|b", "color=a%7Cb"),
        ("deepObject", None, OBJECT, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
        ("deepObject", True, {"a": {"b": [1, 2]}, "c": None}, "color%5Ba%5D%5Bb%5D=1&color%5Ba%5D%5Bb%5D=2"),
        ("deepObject", True, "flat", "color=flat"),
    ],
)
async def test_a_value_in_a_query_has_its_style(api: Api, style: Any, explode: Any, value: Any, query: str) -> None:
    given = parameter("color", schema={}, **_styled(style, explode))
    assert (await sent(api, described("/c", parameters=[given]), color=value)).query_text == query


@pytest.mark.parametrize(
    ("explode", "value", "header"),
    [
        (False, "a b;c=d", "a b;c=d"),
        (False, ARRAY, "blue,black,brown"),
        (False, OBJECT, "R,100,G,200,B,150"),
        (True, OBJECT, "R=100,G=200,B=150"),
        (False, 5, "5"),
    ],
)
async def test_a_value_in_a_header_has_its_style(api: Api, explode: bool, value: Any, header: str) -> None:
    given = parameter("X-Color", "header", explode=explode)
    seen = await sent(api, described("/c", parameters=[given]), **{"X-Color": value})
    assert seen.headers["x-color"] == header


async def test_a_value_with_a_media_type_is_json(api: Api) -> None:
    content = {"application/json": {"schema": {"type": "object"}}}
    for location in ("path", "query", "header"):
        given = {"name": "where", "in": location, "content": content}
        seen = await sent(
            api, described("/c/{where}" if location == "path" else "/c", parameters=[given]), where={"a": [1]}
        )
        found = {
            "path": unquote(seen.path[3:]),
            "query": dict(seen.query).get("where"),
            "header": seen.headers.get("where"),
        }
        assert found[location] == '{"a":[1]}'


def _styled(style: str | None, explode: bool | None) -> dict[str, Any]:
    return {name: value for name, value in (("style", style), ("explode", explode)) if value is not None}


ESCAPES = [
    "..",
    ".",
    "../admin",
    "..\\admin",
    "a/../b",
    "a/./b",
    "/..",
    "../",
    "%2e%2e",
    "%2E.",
    "%252e%252e",
    "..%2fadmin",
    "a%2f..%2fb",
    "%25252e%25252e",
    "%5c..%5c",
]
WITHIN = [
    "a/b",
    "/admin",
    "//evil.example",
    "?a=b",
    "#a",
    "a?b#c",
    "%2f",
    "%2fadmin",
    "a%b",
    "...",
    "..a",
    ".hidden",
    "a..b",
    "\\x",
    "http://evil.example",
    "@evil.example",
    "; rm",
    "%00",
    "\x00",
    "\r\nX: y",
    " ",
    "ä€😀",
    "+",
    "{other}",
    ":8080",
]


@pytest.mark.parametrize("value", ESCAPES)
@pytest.mark.parametrize("style", ["simple", "label", "matrix"])
async def test_a_value_cannot_leave_its_place_in_a_path(api: Api, value: str, style: str) -> None:
    """Not even where a server, or a proxy before it, decodes the path before it looks at it."""
    before = len(api.seen)
    spec = described("/users/{id}/posts", parameters=[parameter("id", "path", style=style)])
    for each in (value, ["a", value], {"a": value}, {value: "a"}):
        with pytest.raises(ToolError, match="is part of the path and cannot be or hold"):
            await sent(api, spec, id=each)
    assert len(api.seen) == before


@pytest.mark.parametrize("value", WITHIN)
async def test_a_value_that_looks_like_more_is_still_one_step_of_a_path(api: Api, value: str) -> None:
    seen = await sent(api, described("/users/{id}/posts"), id=value)
    assert [unquote(step) for step in seen.path.split("/")] == ["", "users", value, "posts"]
    assert (seen.query_text, seen.headers["host"]) == ("", f"127.0.0.1:{api.port}")


@pytest.mark.parametrize("value", ["", None, [], {}])
async def test_nothing_is_no_step_of_a_path(api: Api, value: Any) -> None:
    spec = described("/users/{id}", parameters=[parameter("id", "path")])
    with pytest.raises(ToolError, match=r"^The argument 'id' is part of the path and cannot be empty"):
        await sent(api, spec, id=value)


async def test_a_path_that_would_be_another_is_refused_however_it_came_to_be(api: Api) -> None:
    for path, arguments in (("/x/{a}{b}", {"a": "", "b": "."}), ("/x/{a}{b}", {"a": ".", "b": ""})):
        with pytest.raises(ToolError):
            await sent(api, described(path), **arguments)
    spec = described("/x/{a}", parameters=[parameter("a", "path", style="label")])
    with pytest.raises(ToolError, match=r"^With these arguments the path would be '/x/\.'"):
        await sent(api, spec, a="")


async def test_the_rest_of_a_path_is_as_it_was_described(api: Api) -> None:
    seen = await sent(api, described("/a b/{x}.json/ü?q#f/%20:@;/{x}"), x="1")
    assert seen.path == "/a%20b/1.json/%C3%BC%3Fq%23f/%20:@;/1"


@few
@given(value=hostile | texts)
async def test_any_text_in_a_path_is_refused_or_arrives_as_it_is(api: Api, value: str) -> None:
    try:
        seen = await sent(api, described("/users/{id}/posts"), id=value)
    except ToolError:
        assert not value or "." in unquote(unquote(unquote(value)))
        return
    assert [unquote(step) for step in seen.path.split("/")] == ["", "users", value, "posts"]


@few
@given(name=hostile.filter(bool), value=hostile | texts)
async def test_any_text_in_a_query_arrives_as_it_is(api: Api, name: str, value: str) -> None:
    spec = described("/q", parameters=[parameter(name), parameter("after")])
    tool = one(spec, api.url)
    argument = next(iter(tool.parameters["properties"]))
    await called(tool, **{argument: value, "after": "z"})
    assert api.last.query == [(name, value), ("after", "z")]
    assert api.last.path == "/q"


@few
@given(
    items=st.lists(hostile, min_size=1, max_size=4),
    separator=st.sampled_from([("form", ","), ("spaceDelimited", "%20"), ("pipeDelimited", "%7C")]),
)
async def test_any_list_in_a_query_arrives_as_it_is_or_not_at_all(
    api: Api, items: list[str], separator: tuple[str, str]
) -> None:
    style, between = separator
    spec = described("/q", parameters=[parameter("a", style=style, explode=False), parameter("b", explode=True)])
    try:
        seen = await sent(api, spec, a=items, b=items)
    except ToolError:
        assert {"spaceDelimited": " ", "pipeDelimited": "|"}[style] in "".join(items)
        return
    first, *rest = seen.query_text.split("&")
    joined = first.removeprefix("a=")
    assert [unquote(item) for item in (joined.split(between) if len(items) > 1 else [joined])] == items
    assert parse_qsl("&".join(rest), keep_blank_values=True) == [("b", item) for item in items]


@few
@given(value=st.dictionaries(hostile.filter(bool), plain, min_size=1, max_size=4))
async def test_any_object_in_a_query_arrives_as_it_is(api: Api, value: dict[str, Any]) -> None:
    spec = described("/q", parameters=[parameter("a", style="deepObject"), parameter("b", explode=True)])
    seen = await sent(api, spec, a=value, b=value)
    pairs = [(name, text(item)) for name, item in value.items()]
    found = [(name, item) for name, item in seen.query]
    assert found == [(f"a[{name}]", item) for name, item in pairs] + pairs


@few
@given(value=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20).map(str.strip))
async def test_any_text_in_a_header_or_a_cookie_arrives_as_it_is(api: Api, value: str) -> None:
    spec = described("/h", parameters=[parameter("X-It", "header"), parameter("it", "cookie")])
    seen = await sent(api, spec, **{"X-It": value, "it": value})
    assert seen.headers["x-it"].encode("utf-8", "surrogateescape").decode() == value
    assert unquote(seen.cookies["it"]) == value


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00b", "\x7f"])
async def test_a_header_cannot_become_two(api: Api, value: str) -> None:
    before = len(api.seen)
    with pytest.raises(ToolError, match=r"^The argument 'X-It' is sent as a header and cannot hold line breaks"):
        await sent(api, described("/h", parameters=[parameter("X-It", "header")]), **{"X-It": value})
    assert len(api.seen) == before


async def test_a_cookie_cannot_become_two(api: Api) -> None:
    spec = described("/h", parameters=[parameter("it", "cookie"), parameter("also", "cookie", explode=True)])
    seen = await sent(api, spec, it="a; admin=1", also=["x", "y"])
    assert seen.headers["cookie"] == "it=a%3B%20admin%3D1; also=x; also=y"


def body(kind: str, schema: Any = True, **details: Any) -> Any:
    return described("/b", "post", requestBody={"content": {kind: {"schema": schema}}, **details})


@few
@given(value=values)
async def test_any_json_arrives_as_it_is(api: Api, value: Any) -> None:
    seen = await sent(api, body("application/json"), body=value)
    assert (json.loads(seen.body), seen.headers["content-type"]) == (value, "application/json")


@few
@given(value=st.dictionaries(hostile.filter(bool), plain | st.lists(plain, max_size=3), max_size=4))
async def test_any_form_arrives_as_it_is(api: Api, value: dict[str, Any]) -> None:
    wanted: list[tuple[str, str]] = []
    for name, item in value.items():
        wanted += (
            [(name, text(each)) for each in cast(list[Any], item)] if isinstance(item, list) else [(name, text(item))]
        )
    seen = await sent(api, body("application/x-www-form-urlencoded"), body=value)
    assert parse_qsl(seen.body.decode(), keep_blank_values=True) == wanted


@few
@given(
    value=st.dictionaries(
        st.text("abc-_ .", min_size=1, max_size=5), hostile | texts | st.integers(), min_size=1, max_size=4
    )
)
async def test_any_multipart_form_arrives_as_it_is(api: Api, value: dict[str, Any]) -> None:
    seen = await sent(api, body("multipart/form-data"), body=value)
    assert seen.fields == [(name, text(item)) for name, item in value.items()]


async def test_a_field_of_a_multipart_form_cannot_become_two(api: Api) -> None:
    name = 'a"; filename="x\r\n\r\nevil'
    seen = await sent(api, body("multipart/form-data"), body={name: "v", "list": [1, {"x": None}], "none": None})
    head = seen.body.split(b"\r\n\r\n")[0]
    assert head.split(b"\r\n")[1] == b'Content-Disposition: form-data; name="a%22; filename=%22x%0D%0A%0D%0Aevil"'
    assert seen.body.count(b"Content-Disposition") == 3
    assert b'application/json\r\n\r\n{"x":null}\r\n' in seen.body


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        ("text/csv", "a,b\n", b"a,b\n"),
        ("text/plain; charset=utf-8", "ü", "ü".encode()),
        ("application/vnd.api+json", {"a": 1}, b'{"a":1}'),
        ("application/xml", "<a/>", b"<a/>"),
        ("application/octet-stream", [1], b"[1]"),
        ("*/*", {"a": 1}, b'{"a":1}'),
    ],
)
async def test_a_body_of_another_kind_is_sent_as_it_is(api: Api, kind: str, value: Any, data: bytes) -> None:
    seen = await sent(api, body(kind), body=value)
    sent_as = "application/json" if kind == "*/*" else kind.partition(";")[0]
    assert (seen.body, seen.headers["content-type"]) == (data, sent_as)


async def test_a_large_body_arrives_whole(api: Api) -> None:
    """Nor does it warn, which would be an error here."""
    value = "x" * 3_000_000
    assert (await sent(api, body("text/plain"), body=value)).body == value.encode()


async def test_a_form_that_is_no_object_is_an_error_result(api: Api) -> None:
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        with pytest.raises(ToolError, match=r"^The argument 'body' is sent as a form and has to be an object\.$"):
            await sent(api, body(kind), body="x")


async def test_a_body_that_is_not_needed_may_be_left_out(api: Api) -> None:
    seen = await sent(api, body("application/json"))
    assert (seen.body, "content-type" in seen.headers) == (b"", False)
    assert one(body("application/json", required=True), api.url).parameters["required"] == ["body"]


async def test_an_operation_that_takes_nothing_is_called_with_nothing(api: Api) -> None:
    spec = described("/b", "post", requestBody={"content": {}}, parameters=[parameter("unused", "path")])
    assert one(spec, api.url).parameters["properties"] == {}
    assert (await sent(api, spec)).method == "POST"
