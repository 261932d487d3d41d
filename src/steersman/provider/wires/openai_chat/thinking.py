"""Thinking in the forms of compatible servers: tags in the text, parts of the content, and OpenRouter's details."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from steersman.provider.wires.protocol import check_block_count
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

    __slots__ = ("_entries", "_last", "_open", "_texts")

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        # The pieces of each text of an entry, joined once at the end.
        self._texts: list[dict[str, list[str]]] = []
        # The last entry of each type and index, and the entries that were begun with a text, the last one at the end.
        self._last: dict[str, int] = {}
        self._open: list[int] = []

    def add(self, pieces: Iterable[dict[str, Any]]) -> str:
        """Add the pieces and return their text; a piece with only a signature belongs to the text before it."""
        words: list[str] = []
        for piece in pieces:
            texts = {key: piece[key] for key in _TEXTS if isinstance(piece.get(key), str)}
            words += texts.values()
            rest = {key: value for key, value in piece.items() if key not in texts and value is not None}
            if rest.get("signature") == "":
                del rest["signature"]
            at = self._find_continued(rest, signed=is_signature(piece)) if texts or "signature" in rest else None
            if at is None:
                at = len(self._entries)
                self._entries.append({})
                self._texts.append({})
                check_block_count(len(self._entries))
                if texts:
                    self._open.append(at)
            self._entries[at].update(rest)
            place = _encode_place(self._entries[at])
            self._last[place] = max(at, self._last.get(place, at))
            for key, text in texts.items():
                self._texts[at].setdefault(key, []).append(text)
        return "".join(words)

    @property
    def is_unsigned(self) -> bool:
        """Whether there is a text that has no signature yet."""
        return self._find_open() is not None

    def encode(self, words: str) -> str:
        """Return all entries as JSON, "" when there are none; `words` are the thinking, if it came in another field."""
        whole = [
            {**entry, **{key: "".join(parts) for key, parts in texts.items()}}
            for entry, texts in zip(self._entries, self._texts, strict=True)
        ]
        if words and not any(self._texts):
            for entry in whole:
                if "signature" in entry:
                    entry.setdefault("text", words)
        return _encode_entries(whole) if whole else ""

    def _find_continued(self, piece: dict[str, Any], *, signed: bool) -> int | None:
        """Return the entry that a piece continues: of its type and index, else for a signature the last open text."""
        last = self._last.get(_encode_place(piece))
        if last is not None and self._is_open(last):
            return last
        return self._find_open() if signed else None

    def _find_open(self) -> int | None:
        """Return the last text without a signature; one that has got it is not looked at again."""
        while self._open and not self._is_open(self._open[-1]):
            self._open.pop()
        return self._open[-1] if self._open else None

    def _is_open(self, at: int) -> bool:
        return bool(self._texts[at]) and "signature" not in self._entries[at]


def _encode_place(piece: dict[str, Any]) -> str:
    """Return the type and index of a piece as a key; they may be anything."""
    return repr((piece.get("type"), piece.get("index")))


def is_signature(piece: dict[str, Any]) -> bool:
    """Whether a piece holds a signature and no text."""
    return bool(piece.get("signature")) and not any(piece.get(key) for key in _TEXTS)


_TEXTS = ("text", "summary")


def _encode_entries(entries: list[dict[str, Any]]) -> str:
    try:
        return msgspec.json.encode(entries).decode()
    except UnicodeEncodeError:  # lone surrogates
        from json import dumps

        return replace_lone_surrogates(dumps(entries, ensure_ascii=False, separators=(",", ":")))
