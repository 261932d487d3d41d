"""Reads JSON that is still being written: the arguments of a tool call as far as they have arrived.

Each piece is read once, so a long text costs the same per character as a short one. Nothing is repaired: reading stops
at the first mistake, and what was read before it stays.
"""

from __future__ import annotations

import json.decoder
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import msgspec

from steersman.types.content import replace_lone_surrogates, split_trailing_surrogate
from steersman.types.frozen import FrozenDict, FrozenList

# Decodes the escapes of a string; it takes control characters and lone surrogates, which a server may send.
_scan_string: Callable[[str, int, bool], tuple[str, int]] = getattr(json.decoder, "scanstring")  # noqa: B009  # not in the stubs
_MAX_DEPTH = 100
_MAX_SCALAR = 1000
_SPACE = re.compile(r"[ \t\n\r]*")
_BODY = re.compile(r'(?:[^"\\]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_SCALAR = re.compile(r"[^ \t\n\r,\]}]*")

_Container = FrozenDict | FrozenList[Any]

# The values are read-only for everyone else.
_set_key = dict[str, Any].__setitem__
_set_index = list[Any].__setitem__
_append = list[Any].append


class GrowingText:
    """Cleans the pieces of a text: a surrogate pair may come in two of them, and a lone surrogate is replaced."""

    __slots__ = ("high",)

    def __init__(self) -> None:
        # A high surrogate at the end of the last piece.
        self.high = ""

    def clean(self, piece: str) -> str:
        """The piece, without a high surrogate at its end, which waits for the next one."""
        if not self.high and piece.isascii():
            return piece
        piece, self.high = split_trailing_surrogate(self.high + piece)
        return replace_lone_surrogates(piece)

    def end(self) -> str:
        """What is left at the end of the text: a replacement for a high surrogate that still waits."""
        return replace_lone_surrogates(self.high) if self.high else ""


class JsonPrefix:
    """An object that grows as its JSON text is fed in; `value` is always the same dict.

    A text shows as far as it has come, a number or a literal once it is complete, a key once its value begins.
    """

    __slots__ = ("_key", "_key_parts", "_pending", "_read", "_scalar", "_stack", "_text", "value")

    def __init__(self) -> None:
        self.value = FrozenDict()
        # The containers that are open, from the outermost on.
        self._stack: list[_Container] = []
        self._key = ""
        self._key_parts: list[str] = []
        self._scalar = ""
        self._text = GrowingText()
        # The beginning of an escape sequence at the end of the last piece.
        self._pending = ""
        # Reads on from an index, and returns the index it came to; `None` after the end or a mistake.
        self._read: Callable[[str, int], int] | None = self._begin

    def feed(self, piece: str) -> None:
        """Read the next piece of the text."""
        if self._pending:
            piece, self._pending = self._pending + piece, ""
        at = 0
        while self._read is not None and at < len(piece):
            at = self._read(piece, at)

    # One method for each place in the grammar

    def _begin(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at < len(text):
            if text[at] == "{":
                self._open(self.value)
            else:
                self._read = None
        return at + 1

    def _read_key_or_end(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return self._close(at)
        return self._read_key_start(text, at)

    def _read_key_start(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at < len(text):
            self._key_parts.clear()
            self._read = self._read_key if text[at] == '"' else None
        return at + 1

    def _read_key(self, text: str, at: int) -> int:
        body, end = self._read_body(text, at)
        self._key_parts.append(body)
        if end <= len(text):
            self._key = replace_lone_surrogates("".join(self._key_parts))
            self._read = self._read_colon
        return end

    def _read_colon(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at < len(text):
            self._read = self._read_value if text[at] == ":" else None
        return at + 1

    def _read_value_or_end(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            return self._close(at)
        return self._read_value(text, at)

    def _read_value(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at == len(text):
            return at
        match text[at]:
            case '"':
                self._text = GrowingText()
                self._put("")
                self._read = self._read_text
            case "{" | "[" as opening:
                inner: _Container = FrozenDict() if opening == "{" else FrozenList()
                self._put(inner)
                self._open(inner)
            case "}" | "]" | "," | ":":
                self._read = None
            case _:
                self._scalar = ""
                self._read = self._read_scalar
                return at
        return at + 1

    def _read_text(self, text: str, at: int) -> int:
        body, end = self._read_body(text, at)
        if not body.isascii() or self._text.high:
            body = self._text.clean(body)
        if end <= len(text):
            body += self._text.end()
            self._read = self._read_separator
        self._grow(body)
        return end

    def _read_scalar(self, text: str, at: int) -> int:
        end = _SCALAR.match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess]  # it matches everywhere
        self._scalar += text[at:end]
        if len(self._scalar) > _MAX_SCALAR:
            self._read = None
        elif end < len(text):
            try:
                self._put(msgspec.json.decode(self._scalar))
                self._read = self._read_separator
            except (msgspec.DecodeError, UnicodeEncodeError):
                self._read = None
        return end

    def _read_separator(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at == len(text):
            return at
        in_object = type(self._stack[-1]) is FrozenDict
        if text[at] == ("}" if in_object else "]"):
            return self._close(at)
        if text[at] != ",":
            self._read = None
        else:
            self._read = self._read_key_start if in_object else self._read_value
        return at + 1

    # What these need

    def _read_body(self, text: str, at: int) -> tuple[str, int]:
        """Text inside quotation marks, and the index after it, which is beyond the piece if its end is not there."""
        if text.find('"', at) >= 0:
            # Nearly always its end. Only a text without one is read in a copy of the piece: there may be many texts.
            with suppress(ValueError):
                return _scan_string(text, at, False)
        try:
            return _scan_string(text + '"', at, False)
        except ValueError:  # an escape that is not complete, or none that JSON has
            end = _BODY.match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess]  # it matches everywhere
            if _HALF_ESCAPE.match(text, end) is None:
                self._read = None
            else:
                self._pending = text[end:]
            return _scan_string(text[at:end] + '"', 0, False)[0], len(text) + 1

    def _open(self, container: _Container) -> None:
        self._stack.append(container)
        if len(self._stack) > _MAX_DEPTH:
            self._read = None
        else:
            self._read = self._read_key_or_end if type(container) is FrozenDict else self._read_value_or_end

    def _close(self, at: int) -> int:
        self._stack.pop()
        self._read = self._read_separator if self._stack else None
        return at + 1

    def _put(self, value: Any) -> None:
        """Add a value to the container that is open."""
        container = self._stack[-1]
        if isinstance(container, FrozenDict):
            _set_key(container, self._key, value)
        else:
            _append(container, value)

    def _grow(self, more: str) -> None:
        """Add to the text that was put last. It is taken out meanwhile: Python then extends it without a copy."""
        container = self._stack[-1]
        if isinstance(container, FrozenDict):
            whole = cast(str, container[self._key])
            _set_key(container, self._key, "")
            whole += more
            _set_key(container, self._key, whole)
        else:
            whole = cast(str, container[-1])
            _set_index(container, -1, "")
            whole += more
            _set_index(container, -1, whole)


def _skip(text: str, at: int) -> int:
    """The index of the next character that is no white space."""
    return _SPACE.match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess]  # it matches everywhere
