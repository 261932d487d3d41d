"""Numbers for people: durations, tokens, money."""

from __future__ import annotations

from steersman.cli.terminal.sanitize import one_line
from steersman.types.usage import Usage

SEPARATOR = " \u00b7 "


def duration(seconds: float) -> str:
    """A time span in the unit that fits it."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def elapsed(seconds: float) -> str:
    """A time that goes on, in whole seconds: tenths would only flicker."""
    return f"{int(seconds)} s" if seconds < 60 else duration(int(seconds))


def count(number: int, noun: str) -> str:
    """A number of things."""
    if number == 1:
        return f"1 {noun}"
    return (
        f"{number:,} {noun[:-1]}ies"
        if noun.endswith("y")
        else f"{number:,} {noun}{'es' if noun.endswith('ch') else 's'}"
    )


def money(cost: float) -> str:
    """US dollars, with as many places as say something."""
    if cost >= 0.995 or cost == 0:
        return f"${cost:,.2f}"
    return f"${cost:.3f}" if cost >= 0.0095 else f"${cost:.5f}".rstrip("0")


def usage_words(usage: Usage) -> list[str]:
    """What is known of a usage, in words."""
    words: list[str] = []
    read = usage.cache_read or 0
    if usage.input is not None:
        cached = f" ({read:,} cached)" if read else ""
        words.append(f"{usage.input + read + (usage.cache_write or 0):,} in{cached}")
    if usage.output is not None:
        words.append(f"{usage.output:,} out")
    if usage.cost is not None:
        words.append(f"{'at least ' if usage.partial else ''}{money(usage.cost)}")
    return words


def cost_line(usage: Usage, *, seconds: float | None = None, model: str | None = None) -> str:
    """What a run took, in one line: tokens, money where it is known, time, model."""
    words = usage_words(usage)
    if seconds is not None:
        words.append(duration(seconds))
    if model:
        words.append(one_line(model))
    return SEPARATOR.join(words)
