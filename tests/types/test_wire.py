"""Messages and events as JSON and back."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from steersman.types import wire
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.continuation import Branch, Compaction, Default, Initial, Rerun
from steersman.types.errors import ErrorInfo
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    ApprovalRequested,
    ApprovalResolved,
    CompactionEnded,
    CompactionStarted,
    CustomEvent,
    InputRejected,
    LoopConfigSnapshot,
    LoopDetected,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    PrunApplied,
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnRequest,
    TurnStart,
    UnknownEvent,
)
from steersman.types.messages import AssistantMessage, ExtensionMessage, ToolResultMessage, UserMessage, user_message
from steersman.types.stream import (
    STREAM_UPDATE_EVENTS,
    Delta,
    Done,
    Failed,
    FallbackNotice,
    Reset,
    RetryNotice,
    StreamEvent,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from steersman.types.usage import Usage

USER = UserMessage([TextContent("Hello"), ImageContent("aGk=", "image/jpeg")], timestamp=1.5)
CALL = ToolCall("call_1", "read", {"path": "a", "lines": [1, {"to": None}]})
ANSWER = AssistantMessage(
    [ThinkingContent("Hm.", "sig", redacted=True, field="reasoning"), TextContent("Well.", "mark"), CALL],
    timestamp=2.5,
    stop_reason="tool_use",
    raw_stop_reason="tool_calls",
    usage=Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=1, cost=0.5),
    model="one",
    provider="some",
    response_id="r",
)
RESULT = ToolResultMessage(
    [TextContent("It says hi.")],
    timestamp=3.5,
    tool_call_id="call_1",
    tool_name="read",
    details={"status": "completed"},
)
EXTENSION = ExtensionMessage((), timestamp=4.5, kind="note", data={"to": ["self"]})
ERROR = ErrorInfo("rate_limit", "slow down", "some", 429, "req_1", 2.5, retryable=True, body="{}")
HEAD: tuple[str, int, float] = ("loop_1", 7, 8.5)

MESSAGES = [USER, ANSWER, RESULT, EXTENSION]
STREAM: list[StreamEvent] = [
    StreamStart(),
    TextStart(1),
    TextDelta("a", 1),
    TextEnd(1),
    ThinkingStart(2),
    ThinkingDelta("b", 2),
    ThinkingEnd(2),
    ToolCallStart(3, "call_1", "read"),
    ToolCallDelta('{"a', 3),
    ToolCallEnd(3, CALL),
    Reset(),
    RetryNotice(1, 0.5, ERROR, Usage(input=1)),
    FallbackNotice("a:b", "c:d", ERROR),
    Done(ANSWER),
    Failed(ANSWER, ERROR),
]
EVENTS: list[AgentEvent] = [
    *(
        AgentStart(*HEAD, "agent_1", "session_1", kind, "loop_0", "call_0", LoopConfigSnapshot("a:b", tools=["read"]))
        for kind in (Initial(), Default(), Rerun("again"), Branch(), Compaction())
    ),
    AgentEnd(*HEAD, MESSAGES, Usage(input=1), "limit", "Max turns reached (1/1)"),
    TurnStart(*HEAD, 0, "user"),
    TurnEnd(*HEAD, 0, ANSWER, [RESULT], "tool_use"),
    TurnRequest(*HEAD, 0, "a:b", "Be brief.", [USER, ANSWER, RESULT], [{"name": "read"}], {"max_tokens": 9}),
    MessageStart(*HEAD, USER),
    MessageUpdate(*HEAD, TextDelta("a")),
    MessageEnd(*HEAD, EXTENSION),
    ToolExecutionStart(*HEAD, "call_1", "read", {"path": "a"}),
    ToolExecutionUpdate(*HEAD, "call_1", "read", {"path": "a"}, {"text": ["so far"]}),
    ToolExecutionEnd(*HEAD, "call_1", "read", {"path": "a"}, result=RESULT, is_error=True, duration=1.5),
    CompactionStarted(*HEAD, 100, 10),
    CompactionEnded(*HEAD, 10, 5, 100, 50, reduced=True),
    PrunApplied(*HEAD, ["entry_1"], 10, "memo"),
    InputRejected(*HEAD, "no", "steering"),
    RetryScheduled(*HEAD, 1, 0.5, ERROR),
    ModelFallback(*HEAD, "a:b", "c:d", ERROR),
    LoopDetected(*HEAD, ["read"], 8, "nudge"),
    ApprovalRequested(*HEAD, "approval_1", "call_1", "bash", {"command": "ls"}, "ls", "no rule allows 'ls'", None),
    ApprovalRequested(*HEAD, "approval_2", "call_1", "act", {}, "", "tool 'act' needs approval", 9.5, "call_0"),
    ApprovalResolved(*HEAD, "approval_1", "denied", "application", ""),
    CustomEvent(*HEAD, "mine", {"a": 1}),
]


@each_row("value", [*MESSAGES, *STREAM, *EVENTS], ids=lambda value: type(value).__name__)
def test_decoding_what_was_encoded_gives_it_back(value: Any) -> None:
    """loop.md section 9: one form, one line, and nothing lost on the way."""
    line = wire.encode(value)
    assert b"\n" not in line
    assert wire.decode(line) == value
    assert type(wire.decode(line)) is type(value)


def test_every_type_of_event_has_been_tried() -> None:
    """loop.md section 9: the names on the wire."""
    assert {type(event) for event in EVENTS} == set(get_args(AgentEvent))
    assert {type(event) for event in STREAM} == set(get_args(StreamEvent))
    assert {json.loads(wire.encode(event))["type"] for event in EVENTS} == {
        "agent_start", "agent_end", "turn_start", "turn_end", "message_start", "message_update", "message_end",
        "tool_execution_start", "tool_execution_update", "tool_execution_end", "compaction_started",
        "compaction_ended", "prun_applied", "input_rejected", "retry_scheduled", "model_fallback", "loop_detected",
        "approval_requested", "approval_resolved", "turn_request", "custom",
    }  # fmt: skip


def test_updates_are_the_nine_of_the_seeds_and_the_reset() -> None:
    """loop.md section 9: `message_update.delta` is one of `STREAM_UPDATE_EVENTS`, or a reset."""
    assert {delta.type for delta in get_args(Delta)} == STREAM_UPDATE_EVENTS | {"reset"}
    assert len(STREAM_UPDATE_EVENTS) == 9


@each_row("value", [*MESSAGES, *EVENTS], ids=lambda value: type(value).__name__)
def test_every_value_says_what_it_is(value: Any) -> None:
    """Users read `event.type` and `message.role`."""
    plain = json.loads(wire.encode(value))
    assert plain.get("type", plain.get("role")) == getattr(value, "role", None) or value.type == plain["type"]


def test_an_unknown_type_of_event_is_kept_as_it_came() -> None:
    """loop.md section 9; failures.md D16: a newer version's event passes through."""
    line = b'{"type":"weather","loop_id":"l","seq":3,"timestamp":4,"sky":["blue"]}'
    event = wire.decode(line)
    assert event == UnknownEvent(
        "l", 3, 4.0, {"type": "weather", "loop_id": "l", "seq": 3, "timestamp": 4, "sky": ["blue"]}
    )
    assert isinstance(event, UnknownEvent)
    assert (event.type, wire.encode(event)) == ("weather", line)


def test_an_unknown_event_may_have_a_role_of_its_own() -> None:
    """loop.md section 9: what has a type is an event, whatever else it has."""
    line = b'{"type":"note","role":"user","content":[],"seq":1}'
    event = wire.decode(line)
    assert isinstance(event, UnknownEvent)
    assert (event.type, wire.encode(event)) == ("note", line)


def test_unknown_fields_are_passed_over() -> None:
    """A newer version's field does not break an older reader."""
    assert wire.decode(
        b'{"type":"turn_start","loop_id":"l","seq":0,"timestamp":0,"turn_index":1,"triggered_by":"user","x":1}'
    ) == (TurnStart("l", 0, 0.0, 1, "user"))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"nonsense", b'{"type":7}', b'{"role":"nobody"}', b'{"type":"turn_start"}']
)
def test_what_is_neither_is_refused_with_a_value_error(data: bytes) -> None:
    """Bad input gets a clear error."""
    with pytest.raises(ValueError, match="Not a message"):
        wire.decode(data)


def test_a_message_may_be_written_the_short_way() -> None:
    """Content that is a string, as in the seeds' dicts."""
    assert wire.decode('{"role":"user","content":"Hello"}') == user_message("Hello")


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_can_be_encoded(text: str) -> None:
    """failures.md C18: halves of surrogate pairs are joined or replaced, never an error."""
    for value in (user_message(text), MessageUpdate(*HEAD, TextDelta(text))):
        again = wire.decode(wire.encode(value))
        assert wire.encode(again) == wire.encode(value)


def test_the_halves_of_an_emoji_join_and_a_lone_half_is_replaced() -> None:
    """failures.md C18"""
    assert user_message("\ud83d\ude42").text == "\N{SLIGHTLY SMILING FACE}"
    assert user_message("a\ud83db").text == "a\N{REPLACEMENT CHARACTER}b"


NAMED = {
    "message_start": "message",
    "message_update": "delta",
    "message_end": "message",
    "tool_execution_start": "tool_call_id tool_name args",
    "tool_execution_update": "tool_call_id tool_name args update",
    "tool_execution_end": "tool_call_id tool_name args result is_error duration",
    "turn_start": "turn_index triggered_by",
    "turn_end": "message tool_results reason",
    "agent_start": "agent_id session_id continuation_kind parent_loop_id parent_tool_call_id config_snapshot",
    "agent_end": "messages usage end_reason detail",
}
COMMON = {"type", "loop_id", "seq", "timestamp"}
MESSAGE = {"role", "content", "timestamp", "synthetic"}
ROLES: dict[str, set[str]] = {
    "user": MESSAGE,
    "assistant": MESSAGE | {"stop_reason", "raw_stop_reason", "usage", "model", "provider", "error_message"},
    "tool_result": MESSAGE | {"tool_call_id", "tool_name", "is_error", "details"},
    "extension": MESSAGE | {"kind", "data"},
}
EMPTY: list[AgentEvent] = [
    AgentStart(*HEAD, "a", "s", Initial()),
    TurnStart(*HEAD, 0, "user"),
    MessageStart(*HEAD, UserMessage()),
    MessageUpdate(*HEAD, TextStart()),
    MessageEnd(*HEAD, AssistantMessage([ToolCall("c1", "look")])),
    ToolExecutionStart(*HEAD, "c1", "look"),
    ToolExecutionUpdate(*HEAD, "c1", "look"),
    ToolExecutionEnd(*HEAD, tool_call_id="c1", tool_name="look", result=ToolResultMessage()),
    TurnEnd(*HEAD, 0, None, (), ""),
    MessageEnd(*HEAD, ExtensionMessage()),
    AgentEnd(*HEAD, (), Usage(), "done"),
]


@each_row("event", EMPTY, ids=lambda event: event.type)
def test_the_named_fields_are_in_the_json_also_when_they_are_false_or_empty(event: AgentEvent) -> None:
    """api.md, details that outside tests rely on: the fields of events and messages."""
    fields = msgspec.json.decode(wire.encode(event))
    assert COMMON | set(NAMED[event.type].split()) <= fields.keys()
    for part in (fields.get("message"), fields.get("result")):
        if part is not None:
            assert ROLES[part["role"]] <= part.keys()
    message: dict[str, Any] = fields.get("message") or {}
    for usage in (fields.get("usage"), message.get("usage")):
        if usage is not None:
            assert {"input", "output", "cache_read", "cache_write", "reasoning", "total"} <= usage.keys()
    for block in message.get("content", ()):
        assert {"type", "id", "name", "arguments"} <= block.keys()
    assert wire.decode(wire.encode(event)) == event


@each_row("event", EMPTY, ids=lambda event: event.type)
def test_json_without_the_fields_that_have_defaults_is_decoded_as_before(event: AgentEvent) -> None:
    fields = msgspec.json.decode(wire.encode(event))
    required = {field.name for field in msgspec.structs.fields(type(event)) if field.required}
    short = {name: value for name, value in fields.items() if name in required | {"type"}}
    for name in ("message", "result"):
        if short.get(name) is not None:
            kept = ("role", "content") if short[name]["content"] else ("role",)
            short[name] = {key: short[name][key] for key in kept}
    assert wire.decode(msgspec.json.encode(short)) == event
