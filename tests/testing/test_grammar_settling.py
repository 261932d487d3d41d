"""The turn that settles the calls of an earlier program: what the grammar takes, and what it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.rows import each_row

from steersman import AssistantMessage, TextContent, ToolCall, ToolResultMessage, Usage
from steersman.testing import GrammarError, Witness, check_events
from steersman.types.continuation import Default
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from steersman.types.messages import user_message

OLD = AssistantMessage([ToolCall("a", "work"), ToolCall("b", "work"), ToolCall("c", "work")], stop_reason="tool_use")
NEW = AssistantMessage([TextContent("Done.")])


def result(call_id: str, text: str = "worked", name: str = "work") -> ToolResultMessage:
    return ToolResultMessage([TextContent(text)], tool_call_id=call_id, tool_name=name)


def span(call_id: str, name: str = "work") -> list[tuple[Any, dict[str, Any]]]:
    about = {"tool_call_id": call_id, "tool_name": name}
    return [(ToolExecutionStart, about), (ToolExecutionEnd, {**about, "result": result(call_id, name=name)})]


def said(message: Any) -> list[tuple[Any, dict[str, Any]]]:
    return [(MessageStart, {"message": message}), (MessageEnd, {"message": message})]


def run(
    parts: Sequence[Sequence[tuple[Any, dict[str, Any]]]],
    *,
    message: AssistantMessage | None = OLD,
    results: Sequence[ToolResultMessage] | None = None,
    before: Sequence[tuple[Any, dict[str, Any]]] = (),
) -> list[AgentEvent]:
    """The events of a run that settles old calls in this way and then answers."""
    middle = [item for part in parts for item in part]
    told = [fields["message"] for kind, fields in middle if kind is MessageEnd]
    given = [item for item in told if isinstance(item, ToolResultMessage)] if results is None else list(results)
    empty = AssistantMessage(())
    index = sum(kind is TurnStart for kind, _ in before)
    all_events: list[tuple[Any, dict[str, Any]]] = [
        (AgentStart, {"agent_id": "agent", "session_id": "session", "continuation_kind": Default()}),
        *before,
        (TurnStart, {"turn_index": index, "triggered_by": "continuation"}),
        *middle,
        (TurnEnd, {"turn_index": index, "message": message, "tool_results": given, "reason": "tool_use"}),
        (TurnStart, {"turn_index": index + 1, "triggered_by": "continuation"}),
        (MessageStart, {"message": empty}),
        (MessageEnd, {"message": NEW}),
        (TurnEnd, {"turn_index": index + 1, "message": NEW, "tool_results": [], "reason": "stop"}),
    ]
    heard = [fields["message"] for kind, fields in all_events if kind is MessageEnd]
    all_events.append((AgentEnd, {"messages": heard, "usage": Usage(), "end_reason": "done"}))
    return [kind("loop", seq, 0.0, **fields) for seq, (kind, fields) in enumerate(all_events)]


FIRST: list[tuple[Any, dict[str, Any]]] = [
    (TurnStart, {"turn_index": 0, "triggered_by": "user"}),
    *said(user_message("Hello.")),
    (MessageStart, {"message": AssistantMessage(())}),
    (MessageEnd, {"message": NEW}),
    (TurnEnd, {"turn_index": 0, "message": NEW, "tool_results": [], "reason": "stop"}),
]
TAKEN: dict[str, list[list[tuple[Any, dict[str, Any]]]]] = {
    "all run": [span("a"), span("b"), span("c"), said(result("a")), said(result("b")), said(result("c"))],
    "all kept": [said(result("a")), said(result("b")), said(result("c"))],
    "one kept": [span("c"), said(result("b")), said(result("c"))],
    "the last one only": [span("c"), said(result("c"))],
    "at once": [span("b")[:1], span("a"), span("b")[1:], said(result("a")), said(result("b"))],
    "at a limit": [said(result("c")), said(user_message("[Agent stopped: Max turns reached (1/1)]", synthetic=True))],
}


@pytest.mark.parametrize("name", TAKEN)
def test_old_calls_are_settled_first(name: str) -> None:
    """docs/loop.md section 10"""
    events = run(TAKEN[name])
    check_events(events)
    witness = Witness()
    for event in events:
        witness(event)
    witness.check()


REFUSED: dict[str, tuple[list[AgentEvent], str]] = {
    "not in the first turn": (run(TAKEN["all kept"], before=FIRST), "expected no more results"),
    "a span without its end": (run([span("a")[:1], said(result("a"))]), "expected tool_execution_end of 'a'"),
    "a span without its result": (run([span("a"), said(result("b"))]), "the result message of 'a'"),
    "two spans of one call": (run([span("a"), span("a"), said(result("a"))]), "got a second"),
    "an update after the end": (
        run([span("a"), [(ToolExecutionUpdate, {"tool_call_id": "a", "tool_name": "work"})], said(result("a"))]),
        "expected nothing of 'a'",
    ),
    "an end without its start": (
        run([span("b"), span("a")[1:], said(result("a"))]),
        "expected tool_execution_start of 'a' first",
    ),
    "two results of one call": (run([said(result("a")), said(result("a"))]), "got a second"),
    "results in another order": (run([said(result("b")), said(result("a"))]), "in the order of the calls"),
    "another result than was told": (run([span("a"), said(result("a", "other"))]), "told of"),
    "a call of another answer": (run([said(result("x"))]), "expected a call of the answer in turn_end"),
    "another tool": (run([span("a", "play"), said(result("a", name="play"))]), "expected a call of the answer"),
    "an answer as well": (
        run([said(result("a")), [(MessageStart, {"message": AssistantMessage(())})]]),
        "asks no model",
    ),
    "a prompt as well": (run([said(result("a")), said(user_message("Hello."))]), "expected turn_end after the answer"),
    "no answer at the end": (run([said(result("a"))], message=None), "the answer whose calls were settled"),
    "other results at the end": (run([said(result("a"))], results=[]), "expected turn_end to carry the 1 results"),
}


@each_row("name", REFUSED)
def test_what_is_no_settling_is_refused(name: str) -> None:
    events, words = REFUSED[name]
    with pytest.raises(GrammarError) as refused:
        check_events(events)
    assert words in str(refused.value)
