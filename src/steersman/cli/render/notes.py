"""What happens in a run besides answers and tools, in a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from steersman.cli.render.lines import DIM, RED, YELLOW, count, duration
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    CompactionEnded,
    CustomEvent,
    InputRejected,
    LoopDetected,
    ModelFallback,
    PrunApplied,
    RetryScheduled,
)

_AGAIN = "\u21bb "
_STOP = "\u2298 "


class Note(NamedTuple):
    """A remark: its words, untrusted, and how it looks."""

    text: str
    style: str = DIM
    sign: str = ""


def retry_words(event: RetryScheduled) -> str:
    """That the model is asked again, when and why."""
    return f"trying again in {duration(event.delay).replace('.0 s', ' s')}: {event.error.kind.replace('_', ' ')}"


def note_of(event: AgentEvent, *, verbose: bool) -> Note | None:
    """What to say about an event, if anything."""
    words = _NOTES.get(type(event))
    return None if words is None else words(event, verbose)


def end_note(event: AgentEnd, *, verbose: bool) -> Note | None:
    """How a run ended, where that is not simply its end."""
    if event.end_reason not in _ENDS:
        return None
    words, style, sign = _ENDS[event.end_reason]
    detail = event.detail if event.end_reason != "aborted" or verbose else ""
    return Note(f"{words}: {detail}" if detail else words, style, sign)


def _retry(event: RetryScheduled, verbose: bool) -> Note:
    words = retry_words(event)
    return Note(f"{words} ({event.error.message})" if verbose else words, YELLOW, _AGAIN)


def _fallback(event: ModelFallback, _verbose: bool) -> Note:
    words = f"{event.from_model} failed ({event.error.kind.replace('_', ' ')}); asking {event.to_model} instead"
    return Note(words, YELLOW, _AGAIN)


def _compaction(event: CompactionEnded, _verbose: bool) -> Note | None:
    if event.error is not None:
        return Note(f"The conversation could not be made shorter: {event.error}", YELLOW)
    if not event.reduced:
        return None
    return Note(f"The conversation is shorter now: {event.tokens_before:,} to {event.tokens_after:,} tokens")


def _prun(event: PrunApplied, _verbose: bool) -> Note:
    return Note(f"The model put {count(len(event.entry_ids), 'step')} of its own work out of its sight")


def _rejected(event: InputRejected, _verbose: bool) -> Note:
    return Note(f"Not let in: {event.reason}", YELLOW, _STOP)


def _repeats(event: LoopDetected, _verbose: bool) -> Note:
    doing = "it is stopped" if event.action == "stop" else "it is told so"
    return Note(f"The model repeats itself ({', '.join(event.tool_names)}): {doing}", YELLOW)


def _custom(event: CustomEvent, verbose: bool) -> Note | None:
    if event.name == "session_degraded":
        data: object = event.data
        reason = cast("Mapping[str, Any]", data).get("reason", "") if isinstance(data, Mapping) else ""
        return Note(f"The session cannot be kept at the moment: {reason}", YELLOW)
    if event.name == "session_kept":
        return Note("The session is kept again")
    return Note(event.name) if verbose else None


_NOTES: Mapping[type[Any], Callable[[Any, bool], Note | None]] = {
    RetryScheduled: _retry,
    ModelFallback: _fallback,
    CompactionEnded: _compaction,
    PrunApplied: _prun,
    InputRejected: _rejected,
    LoopDetected: _repeats,
    CustomEvent: _custom,
}
_ENDS: Mapping[str, tuple[str, str, str]] = {
    "error": ("Failed", RED, "\u2717 "),
    "limit": ("Stopped at a limit", YELLOW, _STOP),
    "vetoed": ("Refused", YELLOW, _STOP),
    "stopped": ("Stopped", YELLOW, _STOP),
    "rejected": ("Refused", YELLOW, _STOP),
    "aborted": ("Interrupted", YELLOW, _STOP),
}
