"""What a request that was too long for the model is known by, and what is said where nothing helps."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from steersman.types.errors import ErrorInfo
from steersman.types.messages import AssistantMessage

_SHORTEN = "shorten the conversation."
_FEWER_IMAGES = "send fewer or smaller images, or shorten the conversation."

STUCK = " Compaction could free nothing more: " + _SHORTEN
STUCK_HEAVY = " Compaction could free nothing more: " + _FEWER_IMAGES
STILL_HEAVY = " It is still too large after compaction: " + _FEWER_IMAGES
STILL_FULL = " There is no room for an answer, also after compaction: " + _SHORTEN
"""What is added to the words of a provider."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """Why an answer is asked for again: `heavy` where it is bytes that were too many, `empty` where it says nothing.

    `sent` is what the bill says was sent, and `window` that of the model that answered, where these are known.
    """

    heavy: bool = False
    empty: bool = False
    sent: int = 0
    window: int | None = None

    def leaves(self, message: AssistantMessage) -> bool:
        """Whether there is an answer, if perhaps to less than all of the request."""
        return not (message.failed or self.empty)

    def hopeless(self, message: AssistantMessage, *, freed: bool) -> AssistantMessage:
        """The answer as the failure it is, with what can be done about it."""
        words = message.error_message or "The request is longer than the model's context window."
        if not freed:
            words += STUCK_HEAVY if self.heavy else STUCK
        elif self.heavy:
            words += STILL_HEAVY
        elif self.empty:
            words += STILL_FULL
        return msgspec.structs.replace(message, stop_reason="error", error_message=words, error_kind="context_overflow")


def overflow_of(message: AssistantMessage, error: ErrorInfo | None, window: int | None) -> Overflow | None:
    """Whether the provider said that the request was too long, or silently cut it, or had no room left to answer."""
    if message.error_kind == "context_overflow":
        from steersman.provider.wires.overflow import is_too_heavy  # only a failure pays for it

        status = None if error is None else error.status
        return Overflow(heavy=is_too_heavy(message.error_message or "", status=status), window=window)
    if window is None or message.failed:
        return None
    usage = message.usage
    sent = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    # Some gateways fill the window with what fits of the request, and call the answer cut.
    full = message.stop_reason == "length" and sent * 100 >= window * 99
    if not full and sent <= window:
        return None
    empty = not message.tool_calls and not message.text.strip()
    return Overflow(empty=empty, sent=sent, window=window) if empty or sent > window else None
