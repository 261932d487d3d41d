"""Thinking in the forms of compatible servers: tags in the text, parts of the content, and OpenRouter's details."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from steersman.types.content import replace_lone_surrogates

OPEN, CLOSE = "<think>", "</think>"


class TagSplitter:
    """Splits thinking from text if the text starts with `<think>`; a tag may come in pieces.

    Only a tag at the very start counts: a later one is part of the text.
    """

    __slots__ = ("_held", "_state")

    def __init__(self) -> None:
        self._held = ""
        self._state = "start"

    def split(self, text: str) -> Iterable[tuple[str, bool]]:
        """Return the pieces of the text that are certain, each with whether it is thinking."""
        if self._state == "text":
            return ((text, False),)
        held = self._held + text
        if self._state == "start":
            return self._split_start(held)
        if self._state == "thinking":
            return self._split_thinking(held)
        return self._split_after(held)

    def flush(self) -> tuple[str, bool]:
        """Return the text that was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held, self._state == "thinking"

    def _split_start(self, held: str) -> Iterable[tuple[str, bool]]:
        words = held.lstrip()
        if words.startswith(OPEN):
            self._state = "thinking"
            return self._split_thinking(words[len(OPEN) :])
        if OPEN.startswith(words):
            self._held = held
            return ()
        self._state, self._held = "text", ""
        return ((held, False),)

    def _split_thinking(self, held: str) -> Iterable[tuple[str, bool]]:
        thought, tag, text = held.partition(CLOSE)
        if tag:
            self._state, self._held = "after", ""
            return ((thought, True), *self._split_after(text))
        keep = _measure_overlap(held)
        self._held = held[len(held) - keep :]
        return ((held[: len(held) - keep], True),)

    def _split_after(self, held: str) -> Iterable[tuple[str, bool]]:
        """Drop the whitespace between the closing tag and the text."""
        text = held.lstrip()
        if not text:
            return ()
        self._state, self._held = "text", ""
        return ((text, False),)


def _measure_overlap(text: str) -> int:
    """Return how many characters at the end of the text may be the start of the closing tag."""
    for length in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if CLOSE.startswith(text[-length:]):
            return length
    return 0


def split_parts(content: Iterable[Any]) -> Iterable[tuple[str, bool]]:
    """Yield the texts of a list of content parts, each with whether it is thinking."""
    for part in content:
        if isinstance(part, str):
            yield part, False
        elif isinstance(part, dict):
            fields = cast(dict[str, Any], part)
            thought = fields.get("thinking")
            if isinstance(thought, list):
                yield from ((words, True) for words, _ in split_parts(cast(list[Any], thought)))
            else:
                words = thought if isinstance(thought, str) else fields.get("text")
                yield (words if isinstance(words, str) else ""), isinstance(thought, str)


class Details:
    """Collects OpenRouter's `reasoning_details`: joins the pieces of a text and keeps everything else unchanged."""

    __slots__ = ("_entries", "_texts")

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        # The pieces of each text of an entry, joined once at the end.
        self._texts: list[dict[str, list[str]]] = []

    def add(self, pieces: Iterable[dict[str, Any]]) -> str:
        """Add the pieces and return their text."""
        words: list[str] = []
        for piece in pieces:
            texts = {key: piece[key] for key in _TEXTS if isinstance(piece.get(key), str)}
            words += texts.values()
            rest = {key: value for key, value in piece.items() if key not in texts and value is not None}
            if texts and self._entries and self._is_continued_by(rest):
                self._entries[-1].update(rest)
            else:
                self._entries.append(rest)
                self._texts.append({})
            for key, text in texts.items():
                self._texts[-1].setdefault(key, []).append(text)
        return "".join(words)

    @property
    def encoded(self) -> str:
        """All entries as JSON, "" when there are none."""
        whole = [
            {**entry, **{key: "".join(parts) for key, parts in texts.items()}}
            for entry, texts in zip(self._entries, self._texts, strict=True)
        ]
        return _encode_entries(whole) if whole else ""

    def _is_continued_by(self, piece: dict[str, Any]) -> bool:
        last = self._entries[-1]
        same = all(last.get(key) == piece.get(key) for key in ("type", "index"))
        return same and bool(self._texts[-1]) and "signature" not in last


_TEXTS = ("text", "summary")


def _encode_entries(entries: list[dict[str, Any]]) -> str:
    try:
        return msgspec.json.encode(entries).decode()
    except UnicodeEncodeError:  # lone surrogates
        from json import dumps

        return replace_lone_surrogates(dumps(entries, ensure_ascii=False, separators=(",", ":")))
