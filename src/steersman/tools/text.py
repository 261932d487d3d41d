"""Values shown short."""

from __future__ import annotations

from typing import Any

from steersman.types.content import replace_lone_surrogates


def show(value: Any, limit: int = 80) -> str:
    """A value as an error text quotes it: short, and JSON's words for what JSON has words for."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    try:
        # Slicing first keeps a huge text from being escaped as a whole only to be cut.
        text = repr(value[: limit + 1] if isinstance(value, str) else value)
    except (RecursionError, ValueError):
        # A value nested too deeply, or an integer with more digits than Python prints.
        return f"a {type(value).__name__} too large to show"
    text = replace_lone_surrogates(text)
    return text if len(text) <= limit else f"{text[:limit]}…"
