"""How a Claude model is asked: limits, thinking, temperature, and the form of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import hypothesis
import hypothesis.strategies as st
import pytest
from tests.provider.wires.anthropic.kit import body_of
from tests.rows import each_row

from steersman.context.log import MessageView
from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.provider.wires.anthropic.schema import convert_output_schema, parse_version
from steersman.provider.wires.anthropic.wire import WIRE
from steersman.provider.wires.sampling import warn_of_temperature
from steersman.testing.servers.anthropic.messages import Fault
from steersman.testing.servers.anthropic.request import check_request
from steersman.tools.tool import tool
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.frozen import MemoList
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage, user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.usage import Usage

LEVELS: list[Any] = ["off", "minimal", "low", "medium", "high"]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def claude(id: str = "claude-sonnet-4-5", **fields: Any) -> Model:
    return Model("anthropic", id, **fields)


@each_row(
    ("id", "version"),
    [
        ("claude-sonnet-4-5", (4, 5)),
        ("claude-sonnet-4-5-20250929", (4, 5)),
        ("claude-opus-4-20250514", (4, 0)),
        ("claude-4-opus-20250514", (4, 0)),
        ("claude-3-7-sonnet-20250219", (3, 7)),
        ("claude-3-5-haiku-latest", (3, 5)),
        ("claude-3-opus-20240229", (3, 0)),
        ("claude-opus-4-6", (4, 6)),
        ("claude-sonnet-5", (5, 0)),
        ("claude-haiku-5-5", (5, 5)),
        ("claude-mythos-preview", (4, 6)),
        ("anthropic/claude-opus-4.7", (4, 7)),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", (4, 1)),
        ("kimi-k2", None),
        ("local", None),
        ("qwen3-4-5", None),
    ],
)
def test_a_models_id_tells_its_version(id: str, version: tuple[int, int] | None) -> None:
    assert parse_version(id) == version


@pytest.mark.parametrize(
    ("level", "thinking"),
    [
        ("off", None),
        ("minimal", {"type": "enabled", "budget_tokens": 1024}),
        ("low", {"type": "enabled", "budget_tokens": 4096}),
        ("medium", {"type": "enabled", "budget_tokens": 10_240}),
        ("high", {"type": "enabled", "budget_tokens": 20_480}),
    ],
)
def test_a_thinking_level_is_a_budget(level: Any, thinking: object) -> None:
    body = body_of("Hi", model=claude(), options=StreamOptions(thinking_level=level))
    assert (body.get("thinking"), body["max_tokens"]) == (thinking, 32_000)


@pytest.mark.parametrize(("limit", "budget"), [(8192, 7168), (2048, 1024), (1025, 1024), (1024, None), (10, None)])
def test_a_budget_stays_below_the_limit(limit: int, budget: int | None) -> None:
    body = body_of("Hi", model=claude(), options=StreamOptions(thinking_level="high", max_tokens=limit))
    assert body["max_tokens"] == limit
    assert body.get("thinking", {}).get("budget_tokens") == budget


@pytest.mark.parametrize(
    ("level", "effort"), [("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high")]
)
def test_a_newer_model_is_told_an_effort(level: Any, effort: str) -> None:
    body = body_of("Hi", model=claude("claude-opus-4-7"), options=StreamOptions(thinking_level=level))
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": effort}


def test_a_model_that_must_call_a_tool_does_not_think_first() -> None:
    options = StreamOptions(thinking_level="high", tool_choice="required")
    assert "thinking" not in body_of("Hi", tools=[add], model=claude(), options=options)


def test_thinking_may_be_spelled_out() -> None:
    model = claude(settings={"thinking": {"type": "adaptive", "display": "omitted"}})
    assert body_of("Hi", model=model)["thinking"] == {"type": "adaptive", "display": "omitted"}


@pytest.mark.parametrize(
    ("id", "level", "sent"),
    [
        ("claude-sonnet-4-5", "off", 0.5),
        ("claude-sonnet-4-5", "low", None),
        ("claude-opus-4-7", "off", None),
        ("x", "off", 0.5),
    ],
)
def test_a_temperature_is_left_out_where_the_api_takes_none(id: str, level: Any, sent: float | None) -> None:
    body = body_of("Hi", model=claude(id), options=StreamOptions(thinking_level=level, temperature=0.5))
    assert body.get("temperature") == sent


@pytest.mark.parametrize(
    ("id", "level", "words"),
    [
        ("claude-sonnet-4-5", "low", "takes no temperature while it thinks: it is left out"),
        ("claude-opus-4-7", "off", "takes no temperature from Claude 4.7 on: it is left out"),
    ],
)
def test_a_temperature_that_is_left_out_is_logged_once(id: str, level: Any, words: str, caplog: Any) -> None:
    """api.md: nothing a caller gave is dropped silently."""
    warn_of_temperature.cache_clear()
    for temperature in (0.5, 0.25):
        body_of("Hi", model=claude(id), options=StreamOptions(thinking_level=level, temperature=temperature))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"anthropic:{id} {words}" in caplog.text


@pytest.mark.parametrize("temperature", [None, 1, 1.0])
def test_a_temperature_that_is_the_models_own_is_not_logged(temperature: float | None, caplog: Any) -> None:
    """As above: nothing is lost, because Claude's own is 1."""
    warn_of_temperature.cache_clear()
    body_of("Hi", model=claude(), options=StreamOptions(thinking_level="low", temperature=temperature))
    assert caplog.records == []


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        (claude(), None, 32_000),
        (claude(), 100, 100),
        (claude(max_output_tokens=64_000), None, 64_000),
        (claude(max_output_tokens=8192), 100_000, 8192),
        (claude("claude-3-5-haiku-latest"), None, 8192),
        (claude("claude-3-haiku-20240307"), None, 4096),
        (claude("local"), None, 32_000),
    ],
)
def test_how_much_the_model_may_write(model: Model, asked: int | None, sent: int) -> None:
    assert body_of("Hi", model=model, options=StreamOptions(max_tokens=asked))["max_tokens"] == sent


def test_what_is_sent_and_what_is_answered_share_the_window() -> None:
    """failures.md E10."""
    model = claude(context_window=200_000)
    before = AssistantMessage([TextContent("Yes.")], usage=Usage(input=180_000, output=10_000))
    more = UserMessage([TextContent("x" * 3000), ImageContent("aGk=")])
    assert body_of("Hi", before, more, model=model)["max_tokens"] == 200_000 - 190_000 - 1000 - 1600 - 50
    full = AssistantMessage([TextContent("Yes.")], usage=Usage(input=199_900, output=50))
    assert body_of("Hi", full, "Go on.", model=model)["max_tokens"] == 32_000


IDS = ["claude-3-5-haiku-latest", "claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-7", "claude-sonnet-5", "local"]


@hypothesis.given(
    st.sampled_from(IDS),
    st.sampled_from(LEVELS),
    st.none() | st.integers(1, 40_000),
    st.none() | st.floats(0, 1),
    st.sampled_from(["auto", "none", "required"]),
    st.booleans(),
)
def test_whatever_is_asked_the_api_takes_it(
    id: str, level: Any, limit: int | None, temperature: float | None, choice: Any, tools: bool
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    options = StreamOptions(
        thinking_level=level, max_tokens=limit, temperature=temperature, tool_choice=choice, output_schema=schema
    )
    body = body_of("Hi", model=claude(id), tools=[add] if tools else [], options=options)
    check_request(body, issued=lambda thinking, signature: False, prefill=False)
    assert body["max_tokens"] == limit or limit is None


SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Ticket",
    "properties": {
        "title": {"type": "string", "minLength": 1, "description": "In a few words."},
        "hours": {"type": "integer", "minimum": 1, "default": 2},
        "due": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}},
    },
    "required": ["title"],
    "$defs": {"Tag": {"type": "string", "enum": ["a", "b"]}},
}


def test_the_form_of_an_answer_keeps_its_meaning() -> None:
    """failures.md C15: what has no keyword is told in words."""
    assert convert_output_schema(SCHEMA) == {
        "type": "json_schema",
        "schema": {
            "type": "object",
            "title": "Ticket",
            "properties": {
                "title": {"type": "string", "description": 'In a few words.\n\n{"minLength":1}'},
                "hours": {"type": "integer", "description": '{"minimum":1}'},
                "due": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
                "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}},
            },
            "required": ["title"],
            "$defs": {"Tag": {"type": "string", "enum": ["a", "b"]}},
            "additionalProperties": False,
        },
    }


@each_row(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "array"},
        {"type": "array", "items": {}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}}},
        {"$ref": "#/$defs/A", "$defs": {}},
        {"$ref": "#/$defs/A", "minimum": 1, "$defs": {"A": {"type": "integer"}}},
    ],
)
def test_a_form_that_the_api_cannot_be_told_is_left_to_the_prompt(schema: dict[str, Any]) -> None:
    assert convert_output_schema(schema) is None
    assert "output_config" not in body_of("Hi", model=claude(), options=StreamOptions(output_schema=schema))


@pytest.mark.parametrize(
    ("id", "settings", "sent"),
    [
        ("claude-sonnet-4-5", {}, True),
        ("claude-opus-4-20250514", {}, False),
        ("local", {}, False),
        ("local", {"structured_output": True}, True),
        ("claude-sonnet-4-5", {"structured_output": False}, False),
    ],
)
def test_the_form_is_sent_to_models_that_take_it(id: str, settings: dict[str, Any], sent: bool) -> None:
    body = body_of("Hi", model=claude(id, settings=settings), options=StreamOptions(output_schema=SCHEMA))
    assert ("output_config" in body) is sent


def test_form_and_effort_stand_side_by_side() -> None:
    options = StreamOptions(output_schema=SCHEMA, thinking_level="low")
    body = body_of("Hi", model=claude("claude-opus-4-6"), options=options)
    assert sorted(body["output_config"]) == ["effort", "format"]
    check_request(body, issued=lambda thinking, signature: False, prefill=False)


def test_the_judge_of_options_does_judge() -> None:
    body = body_of("Hi", model=claude(), options=StreamOptions(thinking_level="high"))
    with pytest.raises(Fault, match=r"`max_tokens` must be greater than `thinking\.budget_tokens`"):
        check_request({**body, "max_tokens": 100}, issued=lambda thinking, signature: False, prefill=False)


def test_a_budget_for_thinking_waits_for_calls_that_were_begun_without_it() -> None:
    """failures.md D7: the API wants what follows the last prompt to begin with thinking that it signed."""
    begun = AssistantMessage([ToolCall("call_1", "add", {"a": 1, "b": 2})], stop_reason="tool_use")
    thought = AssistantMessage([ThinkingContent("Hm.", signature="s"), *begun.content], stop_reason="tool_use")
    result = ToolResultMessage([TextContent("3")], tool_call_id="call_1", tool_name="add")
    later = ToolResultMessage([TextContent("3")], tool_call_id="call_2", tool_name="add")
    more = AssistantMessage([ToolCall("call_2", "add", {"a": 1, "b": 2})], stop_reason="tool_use")
    options = StreamOptions(thinking_level="low")
    told = user_message("Add.")

    def thinks(*messages: Any, model: Model | None = None) -> bool:
        return "thinking" in body_of(*messages, tools=[add], model=model or claude(), options=options)

    assert not thinks(told, begun, result)
    assert not thinks(told, begun, result, user_message("Hurry."))
    assert not thinks(told, begun, result, more, later)
    unsigned = AssistantMessage([ThinkingContent("Hm."), *begun.content], stop_reason="tool_use")
    assert not thinks(told, unsigned, result)
    # A call of the server's own tools is kept as thinking, and is none.
    searched = ThinkingContent(
        "", '{"type":"server_tool_use","id":"srv_1","name":"x","input":{}}', redacted=True, field=OPAQUE
    )
    assert not thinks(told, AssistantMessage([searched, *begun.content], stop_reason="tool_use"), result)
    assert thinks(told, thought, result)
    assert thinks(told, thought, result, more, later)
    assert thinks(told, begun, result, AssistantMessage([TextContent("It is 3.")]), user_message("Again."))
    assert thinks(told, begun, result, model=claude("claude-opus-4-7"))


class Counted(MemoList[Message]):
    """A conversation that counts how many of its messages are looked at."""

    __slots__ = ("looks",)

    def __init__(self, *items: Any) -> None:
        super().__init__(*items)
        self.looks = 0

    def __getitem__(self, at: Any) -> Any:
        got = cast(Any, list.__getitem__)(self, at)
        self.looks += len(got) if isinstance(at, slice) else 1
        return got

    def __iter__(self) -> Iterator[Message]:
        for message in super().__iter__():
            self.looks += 1
            yield message


@pytest.mark.parametrize("thinks", [True, False])
def test_a_request_with_a_budget_looks_at_as_many_messages_however_long_the_calls_go_on(thinks: bool) -> None:
    """Every round is one more answer of calls and its results; no prompt comes between."""
    log = Counted([user_message("Add.")])
    begins = [ThinkingContent("Hm.", signature="s")] if thinks else []
    looks: list[int] = []
    for number in range(300):
        id = f"call_{number}"
        content = [*(begins if not number else []), ToolCall(id, "add", {"a": 1, "b": 2})]
        log.append(AssistantMessage(content, stop_reason="tool_use"))
        log.append(ToolResultMessage([TextContent("3")], tool_call_id=id, tool_name="add"))
        log.looks = 0
        view: Any = MessageView(log)  # pyright: ignore[reportArgumentType]  # a list of messages that only grows
        body = WIRE.request(claude(), Request("", view, [add]), StreamOptions(thinking_level="low"), None).body
        looks.append(log.looks)
        assert (b'"budget_tokens"' in body) == thinks
    assert len(set(looks[1:])) == 1
