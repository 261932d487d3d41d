"""Finds the fenced code blocks of a Markdown text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*([^`\n]*)")


class Part(NamedTuple):
    """A part of a text: code with the language of its fence, or other text, whose language is `None`."""

    text: str
    language: str | None = None


def split_code(text: str) -> Iterator[Part]:
    """Splits a text at its fences, which are left out; a block that is not closed goes to the end."""
    lines: list[str] = []
    fence, language = "", ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        opens = found is not None and not fence
        closes = found is not None and fence and found[1].startswith(fence) and not found[2].strip()
        if not opens and not closes:
            lines.append(line)
            continue
        assert found is not None
        if lines:
            yield Part("\n".join(lines), language if closes else None)
        lines, fence, language = [], "" if closes else found[1], found[2].strip().partition(" ")[0]
    if lines and (fence or any(lines)):
        yield Part("\n".join(lines), language if fence else None)


def list_code_blocks(text: str) -> list[str]:
    """Lists the code blocks of a text."""
    return [part.text for part in split_code(text) if part.language is not None]
