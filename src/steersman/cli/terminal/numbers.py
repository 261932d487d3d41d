"""Formats numbers for people: durations, counts, sizes, token usage, prices and progress."""

from __future__ import annotations

from steersman.cli.terminal.sanitize import sanitize_line
from steersman.types.usage import Usage

SEPARATOR = " \u00b7 "


_BAR = 16
_STEPS = 100


def format_duration(seconds: float) -> str:
    """Formats a duration in the unit that fits it."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_elapsed(seconds: float) -> str:
    """Formats a running time in whole seconds; tenths would only flicker."""
    return f"{int(seconds)} s" if seconds < 60 else format_duration(int(seconds))


def format_count(number: int, noun: str) -> str:
    """Formats a number of things: `1 message`, `2 messages`."""
    if number == 1:
        return f"1 {noun}"
    return (
        f"{number:,} {noun[:-1]}ies"
        if noun.endswith("y")
        else f"{number:,} {noun}{'es' if noun.endswith('ch') else 's'}"
    )


def format_money(cost: float) -> str:
    """Formats US dollars with as many decimals as are meaningful."""
    if cost >= 0.995 or cost == 0:
        return f"${cost:,.2f}"
    return f"${cost:.3f}" if cost >= 0.0095 else f"${cost:.5f}".rstrip("0")


def count_input_tokens(usage: Usage) -> int:
    """The tokens that went in, also those that came from the prompt cache or were written to it."""
    return (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)


def describe_usage(usage: Usage) -> list[str]:
    """Describes the known parts of a usage: tokens in, tokens out, cost."""
    words: list[str] = []
    if usage.input is not None:
        cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
        words.append(f"{count_input_tokens(usage):,} in{cached}")
    if usage.output is not None:
        words.append(f"{usage.output:,} out")
    if usage.cost is not None:
        words.append(f"{'at least ' if usage.partial else ''}{format_money(usage.cost)}")
    return words


def describe_cost(usage: Usage, *, seconds: float | None = None, model: str | None = None) -> str:
    """Describes what a run took on one line: tokens, cost if known, time and model."""
    words = describe_usage(usage)
    if seconds is not None:
        words.append(format_duration(seconds))
    if model:
        words.append(sanitize_line(model))
    return SEPARATOR.join(words)


def format_price(amount: float | None) -> str:
    """Formats US dollars per million tokens; an unknown price is `?`, not 0."""
    if amount is None:
        return "?"
    return f"${amount:.2f}" if amount >= 0.1 or amount == 0 else f"${amount:.4g}"


def format_window(tokens: int | None) -> str:
    """Formats the size of a context window in tokens; `?` if unknown."""
    if tokens is None:
        return "?"
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.3g}M"
    return f"{tokens / 1000:.3g}k" if tokens >= 1000 else str(tokens)


def format_size(count: int) -> str:
    """Formats a number of bytes."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def format_progress(done: int, total: int | None) -> str:
    """Formats progress in bytes or in a few steps, with a bar if the total is known."""
    if not total:
        return f"{done / 1e6:.0f} MB"
    if total <= _STEPS:
        return f"{done} of {total}" if total > 1 else ""
    full = min(_BAR, done * _BAR // total)
    return f"{'█' * full}{'░' * (_BAR - full)} {done * 100 // total}% of {total / 1e6:.0f} MB"
