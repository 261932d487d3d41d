"""What the client of a tool call sees of a run: progress while it goes on, and its result. Pure functions of events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LONGEST_WORDS: Final = 2_000
"""The most characters of one progress notification."""

_FAILED = ("error", "aborted", "rejected")
_CUT = "The server stopped in the middle of the run, which can be continued there."


class CallView:
    """Follows the events of one run."""

    def __init__(self) -> None:
        self._answer: Mapping[str, Any] = {}
        self._end: Mapping[str, Any] = {"end_reason": "error", "detail": "The run could not start; the log says why."}

    def read(self, event: Mapping[str, Any]) -> str | None:
        """The words of the progress that an event is, empty for some without words; `None` if it is none."""
        match event["type"]:
            case "message_update" if event["delta"]["type"] == "text_delta":
                return event["delta"]["delta"][:LONGEST_WORDS]
            case "message_update" if event["delta"]["type"] == "thinking_delta":
                return ""
            case "message_end" if event["message"]["role"] == "assistant":
                self._answer = event["message"]
            case "tool_execution_start":
                return f"[{event['tool_name']}]"
            case "tool_execution_update":
                return ""
            case "agent_start":
                self._end = {"end_reason": "error", "detail": _CUT}
            case "agent_end":
                self._end = event
            case _:
                pass
        return None

    def make_result(self, session_id: str) -> dict[str, Any]:
        """The result of the call: the last answer, or why there is none."""
        reason = self._end["end_reason"]
        failed = reason in _FAILED or self._answer.get("stop_reason") == "refusal"
        text = "".join([block["text"] for block in self._answer.get("content", ()) if block["type"] == "text"])
        if failed:
            why = self._answer.get("error_message") or self._end.get("detail") or f"The run ended: {reason}."
            text = f"{text}\n\n{why}".strip()
        return {
            "content": [{"type": "text", "text": text}],
            "isError": failed,
            "_meta": {"steersman/session": session_id, "steersman/end_reason": reason},
        }


def make_error(text: str) -> dict[str, Any]:
    """The result of a call that could not be made; the model that called reads it."""
    return {"content": [{"type": "text", "text": text}], "isError": True}
