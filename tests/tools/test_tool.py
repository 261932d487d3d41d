from __future__ import annotations

import asyncio
import enum
import functools
import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from tests.rows import each_row

from steersman.tools.output import ToolContext
from steersman.tools.schema.validation import InvalidArguments
from steersman.tools.table import build_tool_table, describe_unknown_tool
from steersman.tools.tool import Tool, tool
from steersman.types.cancel import CancelToken
from steersman.types.content import parse_tool_call
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

if TYPE_CHECKING:
    from collections.abc import Sequence as OnlyForTheTypeChecker

OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


class Unit(enum.Enum):
    CELSIUS = "c"
    KELVIN = "k"


@dataclass
class Place:
    """Where."""

    city: str
    country: str = "DE"


class Filter(pydantic.BaseModel):
    limit: int = pydantic.Field(default=3, ge=1, description="At most this many.")


def context(**settings: Any) -> ToolContext:
    return ToolContext("call_1", "t", CancelToken(), **settings)


async def outcome(made: Tool, arguments: dict[str, Any], ctx: ToolContext | None = None) -> Any:
    return (await made.call(made.check(arguments), ctx or context())).content


@tool
def weather(
    place: Place,
    unit: Unit,
    day: Annotated[str, "Which day."] = "today",
    detail: Literal["low", "high"] = "low",
    filters: Filter | None = None,
    *,
    ctx: ToolContext,
) -> OnlyForTheTypeChecker[str]:
    """Tell the weather.

    Args:
        unit: Of the temperature.
        detail: How much to tell.
    """
    return [place.city, place.country, unit.name, day, detail, str(filters), ctx.tool_call_id]


def test_the_schema_comes_from_the_signature_and_its_words_from_the_docstring() -> None:
    """loop.md D3: the schema that arguments are checked against."""
    assert (weather.name, weather.description) == ("weather", "Tell the weather.")
    assert weather.parameters == {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "description": "Where.",
                "properties": {"city": {"type": "string"}, "country": {"type": "string", "default": "DE"}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "unit": {"type": "string", "enum": ["c", "k"], "description": "Of the temperature."},
            "day": {"type": "string", "description": "Which day.", "default": "today"},
            "detail": {"type": "string", "enum": ["low", "high"], "description": "How much to tell.", "default": "low"},
            "filters": {
                "anyOf": [
                    {
                        "type": "object",
                        "title": "Filter",
                        "properties": {
                            "limit": {
                                "type": "integer",
                                "title": "Limit",
                                "default": 3,
                                "minimum": 1,
                                "description": "At most this many.",
                            }
                        },
                    },
                    {"type": "null"},
                ],
                "default": None,
            },
        },
        "required": ["place", "unit"],
        "additionalProperties": False,
    }


async def test_the_function_gets_what_its_signature_promises() -> None:
    arguments = {"place": {"city": "Ulm"}, "unit": "k", "filters": {"limit": "2"}}
    assert weather.check(arguments) == {"place": {"city": "Ulm"}, "unit": "k", "filters": {"limit": 2}}
    assert await outcome(weather, arguments) == '["Ulm","DE","KELVIN","today","low","limit=2","call_1"]'


def test_a_decorated_function_is_still_a_function() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert (add(1), add(1, b=2), str(inspect.signature(add)), add.__name__, repr(add)) == (
        2,
        3,
        "(a: 'int', b: 'int' = 1) -> 'int'",
        "add",
        "Tool('add')",
    )


def test_settings_are_kept() -> None:
    def keys(arguments: dict[str, Any]) -> list[str]:
        return [arguments["path"]]

    @tool(name="w", description="Write.", timeout=3, sequential=True, keys=keys, uninterruptible=True, idempotent=True)
    async def write(path: str) -> str:
        return path

    settings = (write.timeout, write.sequential, write.keys, write.uninterruptible, write.idempotent)
    assert (write.name, write.description, *settings, write.needs_approval) == (
        "w",
        "Write.",
        *(3, True, keys, True, True),
        False,
    )
    assert (write.threaded, weather.threaded) == (False, True)


def test_classes_defined_beside_the_tool_are_found() -> None:
    @dataclass
    class Local:
        n: int

    @dataclass
    class Outer:
        inner: list[Local]

    @tool
    def take(local: Local, outer: Outer | None = None) -> int:
        return local.n

    assert take.parameters["properties"]["outer"]["anyOf"][0]["properties"]["inner"]["items"]["required"] == ["n"]
    assert take.check({"local": {"n": "1"}}) == {"local": {"n": 1}}


def test_a_class_that_cannot_be_found_is_a_mistake_that_says_so() -> None:
    def take(x: OnlyForTheTypeChecker[int]) -> None: ...

    with pytest.raises(TypeError, match=r"^Tool 'take' is annotated with 'OnlyForTheTypeChecker'.*TYPE_CHECKING"):
        tool(take)


def untyped(a, b=1):  # pyright: ignore  # as users write it
    return a  # pyright: ignore


NO_TOOLS: list[tuple[Any, ...]] = [
    (untyped, "Parameter 'a' of tool 'untyped' has no type. Annotate it"),
    (lambda: None, "A lambda has no name"),
    (3, "A tool is a typed function"),
    (int, "A tool is a typed function"),
    (None, "got None"),
]


@pytest.mark.parametrize(("function", "expected"), NO_TOOLS)
def test_what_cannot_be_a_tool_is_refused_where_it_is_made(function: Any, expected: str) -> None:
    with pytest.raises((TypeError, ValueError), match=expected):
        build_tool_table([function])


def test_a_tool_is_decorated_once() -> None:
    with pytest.raises(TypeError, match=r"^Tool\('weather'\) is a tool already; use @tool once\.$"):
        tool(weather)


def test_star_args_and_types_without_json_are_refused() -> None:
    def many(*values: int) -> None: ...
    def strange(value: complex) -> None: ...

    with pytest.raises(TypeError, match=r"takes '\*values'.*Take a list"):
        tool(many)
    with pytest.raises(TypeError, match="Parameter 'value' of tool 'strange': 'complex' has no JSON form"):
        tool(strange)


async def test_odd_signatures_work() -> None:
    @tool
    def positional(a: int, b: int = 2, /, *, c: int = 3) -> list[int]:
        return [a, b, c]

    @tool
    def rest(a: int, **others: Any) -> dict[str, Any]:
        return {"a": a, **others}

    @tool
    def guessed(count=3, flag=False) -> str:  # pyright: ignore[reportMissingParameterType]  # the defaults say the types
        return f"{count} {flag}"

    @tool
    def nullable(limit: int = None) -> str:  # noqa: RUF013  # pyright: ignore[reportArgumentType]  # seen in the wild
        return str(limit)

    assert await outcome(positional, {"a": 1, "c": 5}) == "[1,2,5]"
    assert await outcome(positional, {"a": 1, "b": "7"}) == "[1,7,3]"
    assert await outcome(rest, {"a": 1, "z": [2]}) == '{"a":1,"z":[2]}'
    assert (rest.parameters.get("additionalProperties"), await outcome(guessed, {"count": "4"})) == (None, "4 False")
    assert (await outcome(nullable, {"limit": None}), nullable.check({"limit": None})) == ("None", {"limit": None})


async def test_a_parameter_named_ctx_with_a_type_of_its_own_is_the_models() -> None:
    @tool
    async def about(ctx: str, context: ToolContext | None = None) -> str:
        return f"{ctx} {context and context.tool_name}"

    assert list(about.parameters["properties"]) == ["ctx"]
    assert await outcome(about, {"ctx": "sea"}) == "sea t"


async def test_methods_partials_and_callable_objects_become_tools() -> None:
    class Counter:
        def __init__(self, start: int) -> None:
            self.start = start

        @tool
        def count(self, by: int) -> int:
            """Count on."""
            return self.start + by

        async def plain(self, by: int) -> int:
            return self.start + by

        async def __call__(self, by: int) -> int:
            return self.start - by

    def power(base: int, exponent: int) -> int:
        return base**exponent

    counter = Counter(5)
    square = tool(name="square")(functools.partial(power, exponent=2))
    table = build_tool_table([counter.count, counter.plain, counter])
    assert list(table) == ["count", "plain", "Counter"]
    assert [await outcome(made, {"by": 2}) for made in table.values()] == ["7", "7", "3"]
    assert list(table["count"].parameters["properties"]) == ["by"]
    assert (await outcome(square, {"base": 3}), Counter.count.name) == ("9", "count")


def by_name(a: int) -> str:
    return f"name {a}"


def by_name_with_context(a: int, ctx: ToolContext) -> str:
    return f"name {a} {ctx.tool_call_id}"


def by_dict(arguments: dict[str, Any]) -> str:
    return f"dict {arguments}"


def by_dict_and_context(arguments: dict[str, Any], something: Any) -> str:
    return f"dict {arguments} {something.tool_call_id}"


def by_dict_and_ctx(params: dict[str, Any], ctx: Any) -> str:
    return f"dict {params} {ctx.tool_call_id}"


def by_context_first(context: ToolContext, params: dict[str, Any]) -> str:
    return f"dict {params} {context.tool_call_id}"


def by_keyword_context(params: dict[str, Any], *, ctx: ToolContext) -> str:
    return f"dict {params} {ctx.tool_call_id}"


def by_everything(**arguments: Any) -> str:
    return f"name {arguments['a']}"


def with_own_default(a: int, retries: int = 3) -> str:
    return f"name {a} {retries}"


async def asynchronous(a: int) -> str:
    return f"name {a}"


def gives_coroutine(arguments: dict[str, Any]) -> Any:
    return asynchronous(**arguments)


WAYS: list[tuple[Any, ...]] = [
    (by_name, "name 1"),
    (by_name_with_context, "name 1 call_1"),
    (by_dict, "dict {'a': 1}"),
    (by_dict_and_context, "dict {'a': 1} call_1"),
    (by_dict_and_ctx, "dict {'a': 1} call_1"),
    (by_context_first, "dict {'a': 1} call_1"),
    (by_keyword_context, "dict {'a': 1} call_1"),
    (by_everything, "name 1"),
    (with_own_default, "name 1 3"),
    (asynchronous, "name 1"),
    (gives_coroutine, "name 1"),
]


@each_row(("execute", "expected"), WAYS)
async def test_a_hand_made_tool_is_called_the_way_its_function_asks(execute: Callable[..., Any], expected: str) -> None:
    assert await outcome(Tool("t", "", OBJECT, execute), {"a": "1"}) == expected


async def test_a_tool_without_arguments_needs_none() -> None:
    made = Tool("t", "", {"type": "object", "properties": {}}, lambda: "done")
    assert await outcome(made, {}) == "done"


def test_what_the_function_of_a_hand_made_tool_cannot_take_is_refused_early() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "integer"}}}
    with pytest.raises(InvalidArguments, match=r"arguments\.b: there is no such parameter"):
        Tool("t", "", loose, by_name).check({"a": 1, "b": 2})
    with pytest.raises(InvalidArguments, match=r"arguments\.a: missing, an integer is required"):
        Tool("t", "", loose, by_name).check({})
    assert Tool("t", "", loose, by_dict).check({"b": 2}) == {"b": 2}


def needs_more(a: int, b: int, c: int, d: int) -> None: ...


WRONG: list[tuple[Any, ...]] = [
    (("", "", OBJECT, by_dict), ValueError, "A tool needs a name, got ''"),
    ((" ", "", OBJECT, by_dict), ValueError, "A tool needs a name, got ' '"),
    ((3, "", OBJECT, by_dict), TypeError, "A tool's name is a string, got 3"),
    (("t", "", None, by_dict), TypeError, "are a JSON Schema such as .* got None"),
    (("t", "", {}, by_dict), ValueError, "are an object schema such as .* got {}"),
    (("t", "", {"type": "string"}, by_dict), ValueError, "are an object schema"),
    (
        ("t", "", {"type": "object", "properties": {"a": {"type": "int"}}}, by_dict),
        ValueError,
        "Unknown type 'int'",
    ),
    (("t", "", {"type": "object", "x": object()}, by_dict), TypeError, "are not JSON"),
    (("t", "", OBJECT, None), TypeError, "needs a function to execute, got None"),
    (("t", "", OBJECT, needs_more), TypeError, "needs 'b', 'c', 'd', which its schema does not have"),
    (("t", "", OBJECT, lambda: None), TypeError, "has 'a', which its function does not take"),
]


@each_row(("arguments", "error", "expected"), WRONG)
def test_a_wrong_tool_raises_where_it_is_made(arguments: Any, error: type[Exception], expected: str) -> None:
    with pytest.raises(error, match=expected):
        Tool(*arguments)


@pytest.mark.parametrize("timeout", [-1, 0, float("nan"), True, "3"])
def test_a_timeout_is_a_positive_number(timeout: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="The timeout of tool 't' is "):
        Tool("t", "", OBJECT, by_dict, timeout=timeout)


def test_keys_are_a_function() -> None:
    with pytest.raises(TypeError, match="'keys' of tool 't' is a function of the arguments, got 'path'"):
        Tool("t", "", OBJECT, by_dict, keys="path")  # pyright: ignore[reportArgumentType]


def test_a_schema_without_a_type_but_with_properties_is_an_object_and_cannot_be_changed() -> None:
    given = {"properties": {"a": {"type": "integer"}}}
    made = Tool("t", "", given, by_dict)
    given["properties"]["a"]["type"] = "string"
    assert made.parameters == {"type": "object", "properties": {"a": {"type": "integer"}}}
    with pytest.raises(TypeError):
        made.parameters["properties"]["b"] = {}


@pytest.mark.parametrize("arguments", [None, "", "  ", "null", "{}"])
def test_no_arguments_in_any_form_mean_an_empty_object(arguments: Any) -> None:
    """failures.md C6; loop.md D8"""
    made = Tool("t", "", {"type": "object", "properties": {"a": {"type": "integer"}}}, by_dict)
    call = parse_tool_call("1", "t", arguments)
    assert (call.raw_arguments, made.check(call.arguments), made.check(None)) == (None, {}, {})


@pytest.mark.parametrize("arguments", [[], "x", 1, True, '{"a": 1}'])
def test_arguments_that_are_no_object_are_an_error_the_model_can_act_on(arguments: Any) -> None:
    """failures.md C7; loop.md D8"""
    with pytest.raises(InvalidArguments) as caught:
        Tool("t", "", OBJECT, by_dict).check(arguments)
    assert str(caught.value) == f"Invalid arguments for tool 't':\narguments: expected an object, got {arguments!r}"


@pytest.mark.parametrize(
    "text",
    ['{"a": NaN}', '{"a": Infinity}', '{"a": ' + "9" * 5000 + "}", '{"a": ' + "[" * 100_000, '{"a": "\\ud800"}'],
    ids=["nan", "infinity", "digits", "nesting", "surrogate"],
)
def test_hostile_arguments_end_as_text_or_as_a_refusal(text: str) -> None:
    """failures.md C12"""
    call = parse_tool_call("1", "t", text)
    assert call.raw_arguments == text
    with pytest.raises(InvalidArguments, match=r"arguments\.a: missing, an integer is required"):
        Tool("t", "", OBJECT, by_dict).check(call.arguments)


def test_of_two_equal_names_in_an_object_the_last_counts() -> None:
    """failures.md C12"""
    call = parse_tool_call("1", "t", '{"a": 1, "a": 2}')
    assert Tool("t", "", OBJECT, by_dict).check(call.arguments) == {"a": 2}


def test_a_class_that_will_not_take_the_value_makes_the_arguments_invalid() -> None:
    @dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("n must be even")

    @tool
    def halve(even: Even) -> int:
        return even.n // 2

    assert halve.check({"even": {"n": 4}}) == {"even": {"n": 4}}
    with pytest.raises(InvalidArguments) as caught:
        halve.check({"even": {"n": 3}})
    assert str(caught.value) == "Invalid arguments for tool 'halve':\narguments.even: n must be even"


async def test_what_a_tool_raises_goes_through() -> None:
    """loop.md D4: the exception is there to be named."""

    @tool
    def threaded() -> None:
        raise KeyError("gone")

    @tool
    async def awaited() -> None:
        raise KeyError("gone")

    for made in (threaded, awaited):
        with pytest.raises(KeyError, match="gone"):
            await made.call({}, context())


async def test_a_tool_that_exits_the_program_only_fails() -> None:
    """loop.md D4: never the end of the run."""

    @tool
    async def leave() -> None:
        sys.exit(3)

    @tool
    def leave_thread() -> None:
        sys.exit(3)

    with pytest.raises(ToolError, match=r"tried to exit the program \(SystemExit\(3\)\)"):
        await leave.call({}, context())
    with pytest.raises(RuntimeError, match=r"raised SystemExit\(3\)"):
        await leave_thread.call({}, context())


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_does_not() -> None:
    """loop.md D5"""

    @tool
    def threaded() -> int:
        return threading.get_ident()

    @tool
    async def awaited() -> int:
        return threading.get_ident()

    here = str(threading.get_ident())
    assert (await outcome(awaited, {}), await outcome(threaded, {}) != here) == (here, True)


async def test_a_tool_that_returns_something_without_a_json_form_says_so() -> None:
    @tool
    async def strange() -> object:
        return object

    with pytest.raises(TypeError, match="A tool returns text, JSON-able data, content blocks or a ToolOutput"):
        await strange.call({}, context())


async def test_the_context_shows_updates_and_the_wish_to_stop() -> None:
    seen: list[Any] = []
    token = CancelToken()
    ctx = ToolContext("id", "name", token, idempotency_key="key", on_update=seen.append, scope="s")

    @tool
    def work(ctx: ToolContext) -> str:
        ctx.update({"part": 1})
        ctx.progress("half")
        before = ctx.cancelled
        token.cancel()
        return f"{before} {ctx.cancelled} {ctx.idempotency_key} {ctx.scope} {ctx!r}"

    assert (await work.call({}, ctx)).content == "False True key s ToolContext('id', 'name')"
    assert seen == [{"part": 1}, {"type": "progress", "text": "half"}]


async def test_a_watcher_is_optional() -> None:
    ctx = context()
    ctx.progress("half")
    assert (ctx.cancelled, ctx.idempotency_key, ctx.scope) == (False, "", None)


@pytest.mark.parametrize("fails", [False, True])
async def test_the_late_outcome_of_an_abandoned_tool_is_told(fails: bool) -> None:
    """loop.md D5: its late result is an event."""
    begun, release = threading.Event(), threading.Event()
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @tool
    def slow() -> dict[str, int]:
        begun.set()
        release.wait()
        if fails:
            raise OSError("late")
        return {"a": 1}

    task = asyncio.create_task(slow.call({}, context(on_late=told.set_result)))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    late = await told
    assert repr(late) == (repr(OSError("late")) if fails else repr(ToolOutput('{"a":1}')))


def test_a_table_holds_tools_by_name_and_makes_them_of_functions() -> None:
    """failures.md C13"""
    table = build_tool_table([weather, by_name])
    assert (list(table), table["weather"] is weather) == (["weather", "by_name"], True)
    assert build_tool_table(iter([by_name]))["by_name"].parameters["required"] == ["a"]


def test_two_tools_of_one_name_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="Two tools are named 'by_name'"):
        build_tool_table([by_name, by_name])


@pytest.mark.parametrize("tools", [weather, "read", 3, {"read": by_name}, None])
def test_tools_come_as_a_list(tools: Any) -> None:
    with pytest.raises(TypeError, match="Tools come as a list"):
        build_tool_table(tools)


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("x", ["read", "write"], "No tool named 'x'. Available tools: read, write."),
        ("raed", ["read", "write"], "No tool named 'raed'. Available tools: read, write. Did you mean 'read'?"),
        ("x", [], "No tool named 'x'. Available tools: none."),
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones(name: str, names: list[str], expected: str) -> None:
    """failures.md C13; loop.md D3"""
    assert describe_unknown_tool(name, names) == expected


def test_bounds_from_annotations_are_checked() -> None:
    @tool
    def take(count: Annotated[int, msgspec.Meta(ge=1, description="How many.")]) -> int:
        return count

    assert take.parameters["properties"] == {"count": {"type": "integer", "minimum": 1, "description": "How many."}}
    with pytest.raises(InvalidArguments, match=r"arguments\.count: expected at least 1, got 0"):
        take.check({"count": "0"})


async def test_a_tool_with_another_function_keeps_its_schema_and_its_checks() -> None:
    """A stand-in for the function gets all arguments, checked, and the context; also those named like its own."""

    @tool(idempotent=True, sequential=True)
    def send(arguments: str, ctx_name: int = 1) -> str:
        """Send."""
        raise AssertionError("not called")

    async def stand_in(given: dict[str, Any], ctx: ToolContext) -> str:
        return f"{given} {ctx.tool_call_id}"

    other = send.with_function(stand_in)
    checked = other.check({"arguments": "x", "ctx_name": "2"})

    output = await other.call(checked, ToolContext("c", "send", CancelToken()))
    assert output.content == "{'arguments': 'x', 'ctx_name': 2} c"
    assert (other.parameters, other.idempotent, other.sequential) == (send.parameters, True, True)
    assert (other.threaded, other.takes_context, send.threaded) == (False, True, True)
