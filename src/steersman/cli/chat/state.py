"""The lines around the input that say how things stand: what waits to be heard, the model, tokens and cost."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.cli.chat.conversation import Conversation
from steersman.cli.terminal.columns import cut
from steersman.cli.terminal.sanitize import one_line

_MOST_WAITING = 4


def waiting_lines(waiting: Sequence[tuple[str, str]], width: int) -> list[str]:
    """What waits to be heard, a line each, the first few of it."""
    lines = [cut(f"{name}: {one_line(' '.join(text.split()))}", width) for name, text in waiting[:_MOST_WAITING]]
    more = len(waiting) - _MOST_WAITING
    return [*lines, cut(f"and {more} more", width)] if more > 0 else lines


def state_line(conversation: Conversation, hint: str, width: int) -> str:
    """The line at the bottom: a hint where there is one, else the model and what it has used."""
    if hint:
        return cut(one_line(hint), width)
    usage = conversation.usage
    parts = [one_line(conversation.agent.config.model.name)]
    if conversation.running:
        parts.append("Esc interrupts")
    if usage.known:
        parts.append(f"{_short(usage.input)} in {_short(usage.output)} out")
    if usage.cost is not None:
        parts.append(f"${usage.cost:.4f}" if usage.cost < 1 else f"${usage.cost:.2f}")
    if conversation.waiting:
        parts.append(f"{len(conversation.waiting)} queued")
    if not conversation.running:
        parts.append("/help")
    return cut(" · ".join(parts), width)


def _short(tokens: int | None) -> str:
    count = tokens or 0
    return f"{count}" if count < 1000 else f"{count / 1000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.2f}M"
