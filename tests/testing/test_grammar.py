"""The event-grammar checker: what a run may say, and what it must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.rows import each_row

from steersman.testing import GrammarError, check_events
from steersman.types.content import TextContent, ToolCall
from steersman.types.continuation import Initial
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
    TurnStart,
    UnknownEvent,
)
from steersman.types.messages import AgentMessage, AssistantMessage, EndReason, ToolResultMessage, user_message
from steersman.types.stream import Reset, TextDelta, TextStart
from steersman.types.usage import Usage

Piece = Callable[[int], AgentEvent]
INFO = ErrorInfo("overloaded", "busy")
ASK = user_message("Go")
LIMIT = user_message("[Agent stopped: Max turns reached (1/1)]", synthetic=True)
SAYS = AssistantMessage([TextContent("Done")])
CALLS = AssistantMessage([ToolCall("a", "look"), ToolCall("b", "look")], stop_reason="tool_use")
FAILED = AssistantMessage([ToolCall("a", "look")], stop_reason="error")
A = ToolResultMessage([TextContent("1")], tool_call_id="a", tool_name="look")
B = ToolResultMessage([TextContent("2")], tool_call_id="b", tool_name="look", is_error=True)


def piece(kind: Callable[..., Any], **fields: Any) -> Piece:
    return lambda seq: kind(loop_id="loop_1", seq=seq, timestamp=0.0, **fields)


def run(*pieces: Piece, first: int = 0) -> list[AgentEvent]:
    return [make(first + number) for number, make in enumerate(pieces)]


START = piece(AgentStart, agent_id="agent_1", session_id="session_1", continuation_kind=Initial())


def end(*messages: AgentMessage, reason: EndReason = "done") -> Piece:
    return piece(AgentEnd, messages=messages, usage=Usage(), end_reason=reason)


def turn(index: int = 0) -> Piece:
    return piece(TurnStart, turn_index=index, triggered_by="user")


def turn_end(message: AssistantMessage | None, *results: ToolResultMessage, index: int = 0) -> Piece:
    return piece(TurnEnd, turn_index=index, message=message, tool_results=results, reason="stop")


def said(message: AgentMessage) -> list[Piece]:
    return [piece(MessageStart, message=message), piece(MessageEnd, message=message)]


def update(delta: Any) -> Piece:
    return piece(MessageUpdate, delta=delta)


def answered(message: AssistantMessage, *middle: Piece) -> list[Piece]:
    return [piece(MessageStart, message=AssistantMessage()), *middle, piece(MessageEnd, message=message)]


def started(id: str, name: str = "look") -> Piece:
    return piece(ToolExecutionStart, tool_call_id=id, tool_name=name)


def ended(result: ToolResultMessage) -> Piece:
    return piece(
        ToolExecutionEnd,
        tool_call_id=result.tool_call_id,
        tool_name="look",
        result=result,
        is_error=result.is_error,
    )


def custom(name: str = "mine") -> Piece:
    return piece(CustomEvent, name=name)


RETRY = piece(RetryScheduled, attempt=1, delay=1.0, error=INFO)
FALLBACK = piece(ModelFallback, from_model="a", to_model="b", error=INFO)
COMPACTION = [
    piece(CompactionStarted, estimated_tokens=9, message_count=2),
    piece(CompactionEnded, messages_before=2, messages_after=1, tokens_before=9, tokens_after=4, reduced=True),
]


def asked(approval_id: str, call_id: str, *, parent: str | None = None, name: str = "look") -> Piece:
    fields = {"approval_id": approval_id, "tool_call_id": call_id, "tool_name": name, "parent_tool_call_id": parent}
    return piece(ApprovalRequested, **fields, args={}, preview="", reason="", deadline=None)


def resolved(approval_id: str) -> Piece:
    return piece(ApprovalResolved, approval_id=approval_id, decision="denied", by="loop", reason="")


PROGRESS = piece(ToolExecutionUpdate, tool_call_id="b", tool_name="look", update="half")
SPANS = [started("a"), started("b"), PROGRESS, ended(B), ended(A)]
TOOLS = [*SPANS, *said(A), *said(B)]
REJECTED = piece(InputRejected, reason="no", source="prompt")
STEER_REJECTED = piece(InputRejected, reason="no", source="steering")
DETECTED = piece(LoopDetected, tool_names=["look"], repetitions=8, action="nudge")
PRUNED = piece(PrunApplied, entry_ids=["e"], tokens_removed=7)
HEAR = [START, turn(), *said(ASK)]

GOOD: dict[str, list[AgentEvent]] = {
    "a veto": run(end(reason="vetoed")),
    "a rejected prompt": run(START, REJECTED, end(reason="rejected")),
    "an abort before the first turn": run(START, end(reason="aborted")),
    "an answer": run(
        *HEAR, *answered(SAYS, update(TextStart()), update(TextDelta("Done"))), turn_end(SAYS), end(ASK, SAYS)
    ),
    "tools, then an answer": run(
        *HEAR,
        *answered(CALLS),
        *TOOLS,
        PRUNED,
        DETECTED,
        turn_end(CALLS, A, B),
        STEER_REJECTED,
        turn(1),
        *answered(SAYS),
        turn_end(SAYS, index=1),
        end(ASK, CALLS, A, B, SAYS),
    ),
    "questions about calls, and about the call of a sub-agent": run(
        *HEAR,
        *answered(CALLS),
        *[asked("1", "a"), asked("2", "b"), resolved("2"), started("b"), asked("3", "x", parent="b", name="other")],
        *[asked("4", "x", parent="b", name="other"), resolved("3"), resolved("1"), started("a"), ended(A)],
        *[resolved("4"), ended(B), *said(A), *said(B)],
        turn_end(CALLS, A, B),
        end(ASK, CALLS, A, B, reason="stopped"),
    ),
    "a retry after shown text": run(
        *HEAR,
        *answered(SAYS, update(TextDelta("Do")), RETRY, update(Reset()), FALLBACK, update(TextDelta("Done"))),
        turn_end(SAYS),
        end(ASK, SAYS),
    ),
    "an abort between a retry and its reset": run(
        *HEAR, *answered(FAILED, update(TextDelta("Do")), RETRY), turn_end(FAILED), end(ASK, FAILED, reason="error")
    ),
    "compaction twice, and something injected after it": run(
        *HEAR,
        STEER_REJECTED,
        *COMPACTION,
        *said(ASK),
        *COMPACTION,
        *answered(SAYS),
        turn_end(SAYS),
        end(ASK, ASK, SAYS),
    ),
    "a limit before the answer": run(*HEAR, *said(LIMIT), turn_end(None), end(ASK, LIMIT, reason="limit")),
    "a limit and a wrap-up": run(
        *HEAR, *said(LIMIT), *answered(SAYS), turn_end(SAYS), end(ASK, LIMIT, SAYS, reason="limit")
    ),
    "a deadline after the work, and a wrap-up": run(
        *HEAR,
        *answered(CALLS),
        *TOOLS,
        *said(LIMIT),
        *answered(SAYS),
        turn_end(SAYS, A, B),
        end(ASK, CALLS, A, B, LIMIT, SAYS, reason="limit"),
    ),
    "a veto of a turn": run(*HEAR, turn_end(None), end(ASK, reason="vetoed")),
    "a failed answer whose call is not run": run(
        *HEAR, *answered(FAILED), turn_end(FAILED), end(ASK, FAILED, reason="error")
    ),
    "a transcript as prompts": run(
        START,
        turn(),
        *said(ASK),
        *said(CALLS),
        *said(A),
        *said(B),
        *answered(SAYS),
        turn_end(SAYS),
        end(ASK, CALLS, A, B, SAYS),
    ),
    "custom and unknown events anywhere": run(
        START,
        custom(),
        turn(),
        piece(MessageStart, message=ASK),
        piece(UnknownEvent, fields={"type": "new"}),
        piece(MessageEnd, message=ASK),
        *answered(CALLS, custom()),
        started("a"),
        custom(),
        *SPANS[1:],
        *said(A),
        custom(),
        *said(B),
        turn_end(CALLS, A, B),
        custom(),
        end(ASK, CALLS, A, B, reason="stopped"),
    ),
}

OTHER_LOOP: list[AgentEvent] = [*run(*HEAR), TurnEnd("loop_2", 4, 0.0, 0, None, (), "stop")]
BAD: dict[str, tuple[list[AgentEvent], str]] = {
    "no start": (run(turn()), r"event 0 \(turn_start, seq 0\): expected agent_start first"),
    "two starts": (run(START, START), "agent_start comes once"),
    "events that start at seq 1": (run(START, first=1), "expected a loop_id and seq 0"),
    "a gap in seq": ([*run(START), *run(turn(), first=2)], "expected seq 1, got 2"),
    "another run's event": (OTHER_LOOP, "expected loop_id 'loop_1', got 'loop_2'"),
    "something after the end": (run(end(reason="vetoed"), custom()), "nothing follows agent_end"),
    "done without a turn": (run(START, end()), r"expected a turn before agent_end\(done\)"),
    "a turn after a rejected prompt": (
        run(START, REJECTED, turn()),
        "expected agent_end after the prompt",
    ),
    "a prompt rejected inside a turn": (run(*HEAR, REJECTED), "a prompt is rejected before the first turn"),
    "two turn starts": (run(START, turn(), turn()), "expected turn_end of turn 0 first"),
    "a turn number left out": (run(START, turn(1)), "expected turn_index 0, got 1"),
    "a turn that never ends": (run(*HEAR, end(ASK)), "expected turn_end of the open turn before agent_end"),
    "a message outside a turn": (run(START, *said(ASK)), "expected turn_start first"),
    "a message that never ends": (run(*HEAR[:-1], turn_end(None)), "expected message_end of the open user message"),
    "an end without a start": (run(START, turn(), said(ASK)[1]), "expected message_start first"),
    "another message ends": (run(START, turn(), said(ASK)[0], said(LIMIT)[1]), "expected the message that started"),
    "a delta outside an answer": (run(*HEAR, update(TextDelta("x"))), "expected message_start of an answer before"),
    "a retry outside an answer": (run(*HEAR, RETRY), "expected message_start of an answer before retry_scheduled"),
    "compaction inside a prompt": (run(START, turn(), said(ASK)[0], *COMPACTION), "expected message_end of the open"),
    "compaction that never ends": (run(*HEAR, COMPACTION[0], *answered(SAYS)), "expected compaction_ended before"),
    "compaction after the answer": (run(*HEAR, *answered(SAYS), *COMPACTION), "compacted before the answer"),
    "no reset after a retry": (
        run(*HEAR, *answered(SAYS, update(TextDelta("Do")), RETRY, update(TextDelta("Done")))),
        "expected a reset first",
    ),
    "no reset before the end": (
        run(*HEAR, *answered(SAYS, update(TextDelta("Done")), RETRY)),
        "expected a reset between the retry and the end",
    ),
    "a reset of nothing": (run(*HEAR, *answered(SAYS, update(Reset()))), "nothing was"),
    "doubled text": (
        run(*HEAR, *answered(SAYS, update(TextDelta("Do")), update(TextDelta("Done")))),
        "expected the answer to be what was shown, 'DoDone', got 'Done'",
    ),
    "two answers": (run(*HEAR, *answered(SAYS), *answered(SAYS)), "a turn has one answer"),
    "a message after the answer": (run(*HEAR, *answered(SAYS), *said(ASK)), "expected turn_end after the answer"),
    "two limit notices": (run(*HEAR, *said(LIMIT), *said(LIMIT)), "one limit notice"),
    "a prompt after a limit notice": (run(*HEAR, *said(LIMIT), *said(ASK)), "expected a last answer or turn_end"),
    "a call that is not run": (run(*HEAR, *answered(CALLS), turn_end(CALLS)), "expected tool_execution_start of 'a'"),
    "a span of no call": (run(*HEAR, *answered(SAYS), started("a")), "expected a call of this turn's answer, got 'a'"),
    "a span of a failed answer": (run(*HEAR, *answered(FAILED), started("a")), "expected a call of this turn's answer"),
    "a span of the wrong name": (run(*HEAR, *answered(CALLS), started("a", "see")), "expected the tool 'look' for 'a'"),
    "a span started twice": (run(*HEAR, *answered(CALLS), started("a"), started("a")), "got a second"),
    "a span ended twice": (
        run(*HEAR, *answered(CALLS), started("a"), ended(A), ended(A)),
        "expected nothing of 'a' after its tool_execution_end",
    ),
    "an update before the start": (
        run(*HEAR, *answered(CALLS), PROGRESS),
        "expected tool_execution_start of 'b'",
    ),
    "a result before all spans ended": (
        run(*HEAR, *answered(CALLS), started("a"), ended(A), *said(A)),
        "expected tool_execution_end of 'b' before the first result message",
    ),
    "results out of order": (
        run(*HEAR, *answered(CALLS), *SPANS, *said(B)),
        "expected the result of 'a', got that",
    ),
    "another result than told": (
        run(*HEAR, *answered(CALLS), *SPANS, *said(ToolResultMessage([TextContent("9")], tool_call_id="a"))),
        "expected the result its tool_execution_end told of",
    ),
    "a question before its turn": (run(START, asked("1", "a")), "expected turn_start first"),
    "a question about no call": (run(*HEAR, *answered(SAYS), asked("1", "a")), "expected a call of this turn's answer"),
    "a question about a started call": (
        run(*HEAR, *answered(CALLS), started("a"), asked("1", "a")),
        "expected approval_requested about 'a' before its tool_execution_start",
    ),
    "a question of a sub-agent of no running call": (
        run(*HEAR, *answered(CALLS), asked("1", "x", parent="a")),
        "expected tool_execution_start of 'a' first",
    ),
    "a question asked twice": (run(*HEAR, *answered(CALLS), asked("1", "a"), asked("1", "b")), "got a second"),
    "two questions about a call": (run(*HEAR, *answered(CALLS), asked("1", "a"), asked("2", "a")), "got a second"),
    "a call that starts before its answer": (
        run(*HEAR, *answered(CALLS), asked("1", "a"), started("a")),
        "expected approval_resolved of '1' before tool_execution_start",
    ),
    "a call that ends before the question of its sub-agent": (
        run(*HEAR, *answered(CALLS), started("a"), asked("1", "x", parent="a"), ended(A)),
        "expected approval_resolved of '1' before tool_execution_end",
    ),
    "an answer to no question": (run(*HEAR, *answered(CALLS), resolved("1")), "expected approval_requested of '1'"),
    "a second answer": (
        run(*HEAR, *answered(CALLS), asked("1", "a"), resolved("1"), resolved("1")),
        "expected approval_requested of '1' first, and one approval_resolved",
    ),
    "a result too many": (run(*HEAR, *answered(CALLS), *TOOLS, *said(B)), "expected no more results"),
    "a result too few": (
        run(*HEAR, *answered(CALLS), *TOOLS[:-2], turn_end(CALLS, A)),
        "expected the result message",
    ),
    "detection without tools": (run(*HEAR, *answered(SAYS), DETECTED), "expected tool results first"),
    "a turn_end without its answer": (run(*HEAR, *answered(SAYS), turn_end(None)), "got None"),
    "a turn_end with another answer": (run(*HEAR, *answered(SAYS), turn_end(FAILED)), "got another message"),
    "a turn_end without results": (
        run(*HEAR, *answered(CALLS), *TOOLS, turn_end(CALLS, A)),
        "the 2 results of its",
    ),
    "an agent_end without a message": (
        run(*HEAR, *answered(SAYS), turn_end(SAYS), end(SAYS)),
        "expected agent_end to carry the 2 messages of this run in order, got 1",
    ),
}


@each_row("events", GOOD.values(), ids=GOOD.keys())
def test_a_run_in_the_grammar_passes(events: list[AgentEvent]) -> None:
    """The whole grammar of failures.md, with vetoes, limits, retries, compaction and tools."""
    check_events(events)
    assert events[-1].type == "agent_end"


@each_row(("events", "words"), BAD.values(), ids=BAD.keys())
def test_an_event_that_does_not_fit_is_named(events: list[AgentEvent], words: str) -> None:
    """Covers failures.md S3, S4 and S16: doubled starts, missing ends, the veto form."""
    with pytest.raises(GrammarError, match=words):
        check_events(events)


@each_row("events", GOOD.values(), ids=GOOD.keys())
def test_a_run_cut_anywhere_is_unfinished(events: list[AgentEvent]) -> None:
    for length in range(len(events)):
        with pytest.raises(GrammarError, match=r"ended inside a turn|ended without its agent_end"):
            check_events(events[:length])


@each_row("events", GOOD.values(), ids=GOOD.keys())
def test_no_event_may_be_said_twice(events: list[AgentEvent]) -> None:
    for index in range(len(events)):
        with pytest.raises(GrammarError, match=r"expected seq|nothing follows"):
            check_events([*events[: index + 1], *events[index:]])
