"""The user's keys: the server they are for gets them, and no other, whatever goes wrong."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from tests.tools.openapi.kit import Api, Seen, called, described, one, parameter

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.openapi.build import openapi_tools
from steersman.types import wire
from steersman.types.errors import ToolError

pytestmark = pytest.mark.real_time

CANARY = "canary-91c2/7f+aa=="
HEADERS = {"Authorization": f"Bearer {CANARY}", "Accept-Language": "german", "X-Api-Version": "2024-01-01"}


def gossip(seen: Seen) -> web.StreamResponse:
    """A server that repeats everything it was sent."""
    return web.json_response(
        {"headers": dict(seen.headers), "query": seen.query_text, "decoded": seen.query}, status=401
    )


async def test_keys_are_sent_and_not_repeated() -> None:
    """failures.md L13: a server that quotes a key does not make it public."""
    with Api(gossip) as api:
        output = await called(one(described("/x"), api.url, headers=HEADERS, query={"key": CANARY, "v": "2"}))
        assert api.last.headers["authorization"] == f"Bearer {CANARY}"
        assert api.last.query == [("key", CANARY), ("v", "2")]
        assert output.is_error
        text = str(output.content)
        assert "canary" not in text
        assert "7f" not in text
        # What is no key stays readable.
        assert "german" in text
        assert "2024-01-01" in text
        assert "[redacted]" in text


async def test_a_key_in_the_encoding_of_an_answer_is_not_repeated() -> None:
    """failures.md L13: an encoding that is not known is named in the error."""
    key = "CANARY-Key-4711"

    def echo(seen: Seen) -> web.Response:
        return web.Response(body=b"x", headers={"Content-Encoding": seen.headers["x-key"]})

    with Api(echo) as api:
        with pytest.raises(ToolError, match=r"the content-encoding '\[redacted\]'") as caught:
            await called(one(described("/x"), api.url, headers={"X-Key": key}))
        assert "canary" not in str(caught.value).lower()


async def test_a_key_in_the_type_of_an_answer_is_not_repeated() -> None:
    """failures.md L13: the type is shown in lower case, in the text and in the details."""
    key = "CANARY-Key-4711"

    def echo(seen: Seen) -> web.StreamResponse:
        return web.Response(body=b"\0", headers={"Content-Type": f"application/{seen.headers['x-key']}"})

    with Api(echo) as api:
        output = await called(one(described("/x"), api.url, headers={"X-Key": key}))
        assert api.last.headers["x-key"] == key
        assert "canary" not in f"{output.content} {output.details}".lower()
        assert output.details["media_type"] == "[redacted]"


PASSWORD = b64encode(f"me:{CANARY}".encode()).decode()


@pytest.mark.parametrize(
    ("header", "quoted"),
    [
        (f"Bearer {CANARY}", CANARY),
        (f"Bearer {CANARY}", CANARY.replace("/", "\\/")),
        (f"token {CANARY}", quote(CANARY, safe="")),
        (CANARY, CANARY),
        (f"Basic {PASSWORD}", PASSWORD),
        (f"Basic {PASSWORD}", CANARY),
        ("Basic not-base64-at-all", "not-base64-at-all"),
        (f"session={CANARY}; lang=de", CANARY),
        (f'Signature id="me", sig="{CANARY}"', CANARY),
        ('a"quoted\\key/7f', 'a\\"quoted\\\\key/7f'),
        ('a"quoted\\key/7f', 'a\\"quoted\\\\key\\/7f'),
    ],
)
async def test_a_key_is_known_in_every_form_it_may_be_quoted_in(header: str, quoted: str) -> None:
    def quoting(_: Seen) -> web.StreamResponse:
        return web.Response(status=403, text=f"The Bearer '{quoted}' is not valid here.")

    with Api(quoting) as api:
        output = await called(one(described("/x"), api.url, headers={"Authorization": header}))
        assert output.content == "HTTP 403 Forbidden\n\nThe Bearer '[redacted]' is not valid here."


async def a_key_later() -> dict[str, str]:
    await asyncio.sleep(0)
    return {"X-Key": CANARY}


@pytest.mark.parametrize("given", ["x-key", "X_KEY"])
@pytest.mark.parametrize("give", [lambda: {"X-Key": CANARY}, a_key_later], ids=["def", "async def"])
async def test_keys_may_come_from_a_function_that_is_asked_for_each_call(give: Callable[[], Any], given: str) -> None:
    with Api(gossip) as api:
        tool = one(described("/x", parameters=[parameter(given, "header")]), api.url, headers=give)
        output = await called(tool, **{given: "the model's own"})
        assert "the model's own" not in api.last.headers.values()
        assert api.last.headers["x-key"] == CANARY
        assert "canary" not in str(output.content)


def broken() -> dict[str, str]:
    raise RuntimeError(f"cannot refresh {CANARY}")


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (broken, r"^The headers for the request could not be made \(RuntimeError\)\.$"),
        (lambda: None, r"could not be made: the function returned no mapping\.$"),
        (lambda: {"X": 5}, r"^'headers' maps names to texts; 'X' does not\.$"),
        (lambda: {"X": f"{CANARY}\r\nY: z"}, r"^The header 'X' has an invalid name or value\.$"),
    ],
)
async def test_a_function_that_fails_is_told_without_what_it_said(give: Any, words: str) -> None:
    with Api() as api:
        with pytest.raises(ToolError, match=words) as caught:
            await called(one(described("/x"), api.url, headers=give))
        assert "canary" not in str(caught.value)
        assert api.seen == []


async def test_a_function_that_hangs_is_left_at_the_deadline() -> None:
    async def never() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    with pytest.raises(ToolError, match=r"^GET /x was not answered in full within 0\.05s\.$"):
        await called(one(described("/x"), "http://127.0.0.1:9/", headers=never, timeout=0.05))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"headers": {"X": 5}}, "'headers' maps names to texts; 'X' does not"),
        ({"query": {5: "x"}}, "'query' maps names to texts; 5 does not"),
        ({"headers": {"a b": CANARY}}, "The header 'a b' has an invalid name or value"),
        ({"headers": {"X": f"{CANARY}\n"}}, "The header 'X' has an invalid name or value"),
    ],
)
def test_a_wrong_header_is_a_mistake_told_without_its_value(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        openapi_tools(described("/x"), "https://api.example.org", **settings)
    assert "canary" not in str(caught.value)


def test_headers_that_are_no_mapping_are_a_mistake() -> None:
    with pytest.raises(TypeError, match=r"^'headers' is a mapping of names to texts, or a function that gives one"):
        openapi_tools(described("/x"), "https://api.example.org", headers="Bearer x")  # pyright: ignore[reportArgumentType]  # the mistake


def test_the_model_is_not_asked_for_what_the_user_gives() -> None:
    spec = described("/x", parameters=[parameter("X-Key", "header", required=True), parameter("key"), parameter("q")])
    tool = one(spec, "https://api.example.org", headers={"x-key": CANARY}, query={"Key": CANARY})
    assert (list(tool.parameters["properties"]), tool.parameters["required"]) == (["q"], [])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_keys_do_not_follow_a_redirect_to_another_server(status: int) -> None:
    """failures.md L26. Another port is another server."""
    with Api() as other:
        target = f"{other.url}/{CANARY}"

        def away(_: Seen) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": target})

        with Api(away) as api:
            for method in ("get", "post"):
                with pytest.raises(ToolError, match=r"was redirected to 'http://127.* which is not followed") as caught:
                    await called(one(described("/x", method), api.url, headers=HEADERS, query={"key": CANARY}))
                assert "canary" not in str(caught.value)
        assert other.seen == []


async def test_cookies_of_the_user_and_of_the_model_are_sent_together_and_none_is_kept() -> None:
    def baker(_: Seen) -> web.StreamResponse:
        response = web.Response(text="fine")
        response.set_cookie("id", "from the server")
        return response

    with Api(baker) as api:
        tool = one(
            described("/x", parameters=[parameter("page", "cookie")]), api.url, headers={"Cookie": f"s={CANARY}"}
        )
        await called(tool, page="1")
        await called(tool)
        assert [seen.headers["cookie"] for seen in api.seen] == [f"s={CANARY}; page=1", f"s={CANARY}"]


@pytest.mark.parametrize("as_function", [False, True])
async def test_the_model_cannot_send_a_key_of_its_own_beside_the_users(as_function: bool) -> None:
    """failures.md L13: an object without a form of its own is spread over the request, whatever its names are."""
    free = {"type": "object", "additionalProperties": True}
    spec = described(
        "/x", parameters=[parameter("filter", schema=free), parameter("jar", "cookie", schema=free), parameter("Key")]
    )
    query, headers = {"key": CANARY}, {"Cookie": f"session={CANARY}; lang=de"}
    given: dict[str, Any] = {"query": query, "headers": headers}
    if as_function:
        given = {"query": lambda: query, "headers": lambda: headers}
    names = {
        "key": "mine",
        "KEY": "mine",
        "key[]": "mine",
        " key": "mine",
        "key.x": "mine",
        "%6bey": "mine",
        "page": "2",
    }
    with Api() as api:
        tool = one(spec, api.url, **given)
        beside = {"Key": "mine"} if as_function else {}
        await called(tool, filter=names, jar={"session": "mine", "Session": "mine", "theme": "dark"}, **beside)
        assert api.last.query == [("key.x", "mine"), ("page", "2"), ("key", CANARY)]
        assert api.last.headers["cookie"] == f"session={CANARY}; lang=de; theme=dark"


def test_the_model_is_not_asked_for_a_cookie_that_the_user_gives() -> None:
    spec = described("/x", parameters=[parameter("session", "cookie"), parameter("theme", "cookie")])
    tool = one(spec, "https://api.example.org", headers={"cookie": f"Session={CANARY}"})
    assert list(tool.parameters["properties"]) == ["theme"]


async def test_what_the_user_says_of_a_body_does_not_change_what_it_is() -> None:
    spec = described("/x", "post", requestBody={"content": {"multipart/form-data": {"schema": {}}}})
    with Api() as api:
        await called(
            one(spec, api.url, headers={"content-type": "application/json", "accept": "text/csv"}), body={"a": "b"}
        )
        assert (api.last.fields, api.last.headers["accept"]) == ([("a", "b")], "text/csv")


async def test_no_proxy_of_the_environment_sees_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with Api() as proxy, Api() as api:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        await called(one(described("/x"), api.url, headers=HEADERS))
        assert (len(api.seen), proxy.seen) == (1, [])


async def test_no_event_and_no_message_of_a_run_holds_a_key() -> None:
    """failures.md L13: a sweep over everything a run says, with a server that repeats its keys and one that breaks."""

    def rude(seen: Seen) -> web.StreamResponse:
        if seen.path == "/break":
            return web.Response(status=302, headers={"Location": f"http://[{CANARY}/"})
        return gossip(seen)

    spec: Any = {"openapi": "3.1.0", "paths": {"/gossip": {"get": {}}, "/break": {"get": {}}}}
    with Api(rude) as api:
        tools = openapi_tools(spec, api.url, headers=HEADERS, query={"key": CANARY})
        script = ScriptedModel(answer(call("get_gossip"), call("get_break")), "Done.")
        agent, said = Agent(script.model, tools=tools), list[bytes]()
        agent.subscribe(lambda event: said.append(wire.encode(event)))
        result = await agent.run("Go.")
        assert len(api.seen) == 2
        everything = [*said, *map(wire.encode, result.messages), repr(tools).encode(), repr(result).encode()]
        assert [text for text in everything if b"canary" in text] == []
