"""Describes events beside answers and tool calls, one line each: retries, fallbacks, compaction, how a run ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from steersman.cli.render.lines import DIM, RED, YELLOW
from steersman.cli.terminal.numbers import format_count, format_duration
from steersman.types.errors import ErrorInfo
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    ApprovalResolved,
    CompactionEnded,
    CustomEvent,
    InputRejected,
    LoopDetected,
    ModelFallback,
    PrunApplied,
    RetryScheduled,
)
from steersman.types.messages import AssistantMessage

_AGAIN = "\u21bb "
_STOP = "\u2298 "
# Too many requests, service unavailable, and the one that Anthropic uses.
_OVERLOADED = (429, 503, 529)
_SAYS_OVERLOADED = re.compile(
    r"overload|capacity|unavailable|busy|too many|slow.?down|high (?:demand|load)", re.IGNORECASE
)


_ENDS: Mapping[str, tuple[str, str, str]] = {
    "error": ("Failed", RED, "\u2717 "),
    "limit": ("Stopped at a limit", YELLOW, _STOP),
    "vetoed": ("Refused", YELLOW, _STOP),
    "stopped": ("Stopped", YELLOW, _STOP),
    "rejected": ("Refused", YELLOW, _STOP),
    "aborted": ("Interrupted", YELLOW, _STOP),
}


class Note(NamedTuple):
    """A note: its text, not sanitized yet, and its style."""

    text: str
    style: str = DIM
    sign: str = ""


def describe_failure(error: ErrorInfo) -> str:
    """Describes a failure of a provider in a few words; a server that failed is not one that is overloaded."""
    if error.kind == "overloaded" and error.status is not None and error.status not in _OVERLOADED:
        return f"server error (HTTP {error.status})"
    # Inside a stream there is no status, and many failures have this kind, because all are worth a retry.
    if error.kind == "overloaded" and error.status is None:
        return "overloaded" if _SAYS_OVERLOADED.search(f"{error.message} {error.body or ''}") else "server error"
    return error.kind.replace("_", " ")


def describe_retry(event: RetryScheduled) -> str:
    """Describes a retry: when and why."""
    return f"retrying in {format_duration(event.delay).replace('.0 s', ' s')}: {describe_failure(event.error)}"


def describe_event(event: AgentEvent, *, verbose: bool) -> Note | None:
    """Returns the note for an event, if it has one."""
    words = _NOTES.get(type(event))
    return None if words is None else words(event, verbose)


def describe_end(event: AgentEnd, *, verbose: bool) -> Note | None:
    """Returns the note for the end of a run, unless it just finished with an answer."""
    if event.end_reason not in _ENDS:
        last = event.messages[-1] if event.messages else None
        is_empty = isinstance(last, AssistantMessage) and not last.text.strip() and not last.tool_calls
        return Note("The answer of the model is empty.", YELLOW) if is_empty else None
    words, style, sign = _ENDS[event.end_reason]
    detail = event.detail if event.end_reason != "aborted" or verbose else ""
    return Note(f"{words}: {detail}" if detail else words, style, sign)


def _describe_retry_event(event: RetryScheduled, verbose: bool) -> Note:
    words = describe_retry(event)
    return Note(f"{words} ({event.error.message})" if verbose else words, YELLOW, _AGAIN)


def _describe_fallback(event: ModelFallback, _verbose: bool) -> Note:
    words = f"{event.from_model} failed ({describe_failure(event.error)}); asking {event.to_model} instead"
    return Note(words, YELLOW, _AGAIN)


def _describe_approval(event: ApprovalResolved, _verbose: bool) -> Note | None:
    """The answers that the user of this terminal did not give."""
    if event.decision == "expired":
        return Note(f"Denied: {event.reason}", YELLOW, _STOP)
    if event.by in ("function", "loop"):
        return None
    words = f"{event.decision.capitalize()} by {event.by}"
    return Note(f"{words}: {event.reason}" if event.reason else words)


def _describe_compaction(event: CompactionEnded, _verbose: bool) -> Note | None:
    if event.error is not None:
        return Note(f"The conversation could not be compacted: {event.error}", YELLOW)
    if not event.reduced:
        return None
    return Note(f"The conversation was compacted: {event.tokens_before:,} to {event.tokens_after:,} tokens")


def _describe_prun(event: PrunApplied, _verbose: bool) -> Note:
    return Note(f"The model removed {format_count(len(event.entry_ids), 'step')} of its own work from its context")


def _describe_rejected(event: InputRejected, _verbose: bool) -> Note | None:
    if event.source == "prompt":  # its run ends with the same reason
        return None
    return Note(f"Input rejected: {event.reason}", YELLOW, _STOP)


def _describe_repetition(event: LoopDetected, _verbose: bool) -> Note:
    doing = "the run is stopped" if event.action == "stop" else "it gets a warning"
    return Note(f"The model repeats itself ({', '.join(event.tool_names)}): {doing}", YELLOW)


def _describe_custom(event: CustomEvent, verbose: bool) -> Note | None:
    if event.name == "session_degraded":
        data: object = event.data
        reason = cast("Mapping[str, Any]", data).get("reason", "") if isinstance(data, Mapping) else ""
        return Note(f"The session cannot be saved at the moment: {reason}", YELLOW)
    if event.name == "session_kept":
        return Note("The session is saved again")
    return Note(event.name) if verbose else None


_NOTES: Mapping[type[Any], Callable[[Any, bool], Note | None]] = {
    RetryScheduled: _describe_retry_event,
    ModelFallback: _describe_fallback,
    ApprovalResolved: _describe_approval,
    CompactionEnded: _describe_compaction,
    PrunApplied: _describe_prun,
    InputRejected: _describe_rejected,
    LoopDetected: _describe_repetition,
    CustomEvent: _describe_custom,
}
