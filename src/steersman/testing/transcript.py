"""Is this transcript one a provider takes?"""

from __future__ import annotations

from collections.abc import Sequence

from steersman.provider.scripted.strict import request_fault, transcript_fault
from steersman.types.messages import AgentMessage
from steersman.types.model import Model, Request


def check_transcript(messages: Sequence[AgentMessage], *, complete: bool = True) -> None:
    """Fail unless each tool call has its one result, in order, directly after, under an id of its own.

    Failed answers stay in a log and their calls are not answered; `complete=False` lets the last calls wait.
    """
    fault = transcript_fault(messages, complete=complete)
    if fault is not None:
        raise AssertionError(f"{fault}\nThe transcript:\n{_outline(messages)}")


def check_request(request: Request, model: Model | None = None) -> None:
    """Fail unless a strict server takes the request: a valid transcript without empties that ends with a question."""
    fault = request_fault(request, model)
    if fault is not None:
        raise AssertionError(f"{fault}\nThe request:\n{_outline(request.messages)}")


def _outline(messages: Sequence[AgentMessage]) -> str:
    return "\n".join(f"  {index} {_line(message)}" for index, message in enumerate(messages))


def _line(message: AgentMessage) -> str:
    words = message.text
    parts = [message.role, repr(words if len(words) <= 60 else words[:60] + "...")]
    if message.role == "assistant":
        parts.append(message.stop_reason)
        parts.extend(f"call {call.id} {call.name}" for call in message.tool_calls)
    if message.role == "tool_result":
        parts.append(f"of {message.tool_call_id}")
    return " ".join(parts)
