"""Values as short text for error messages."""

from __future__ import annotations

from typing import Any

from steersman.types.content import replace_lone_surrogates


def show(value: Any, limit: int = 80) -> str:
    """Format a value for an error message: truncated, with `null`, `true` and `false` as JSON writes them."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    try:
        # Sliced first, so that a huge text is not escaped as a whole only to be truncated.
        text = repr(value[: limit + 1] if isinstance(value, str) else value)
    except (RecursionError, ValueError):
        # A value nested too deeply, or an integer with more digits than Python prints.
        return f"a {type(value).__name__} too large to show"
    text = replace_lone_surrogates(text)
    return text if len(text) <= limit else f"{text[:limit]}…"
