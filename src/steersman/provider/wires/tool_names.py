"""Maps tool names to names that a provider accepts, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steersman.types.model import ToolSpec

_TAG = 8


class ToolNames:
    """The names of one set of tools, in both directions.

    `allowed` is a regular expression that a whole legal name matches, such as `[a-zA-Z0-9_-]+`. A legal name stays as
    it is. In any other name `_` replaces each illegal character, and a hash of the name is appended, so the result does
    not depend on the other tools. Names that are not among the tools, such as those of calls in an older transcript,
    follow the same rule.
    """

    __slots__ = ("_allowed", "_back", "_max_length", "_wire")

    def __init__(
        self, tools: Iterable[ToolSpec | str], allowed: str | re.Pattern[str] = r"[a-zA-Z0-9_-]+", max_length: int = 64
    ) -> None:
        self._allowed = re.compile(allowed)
        self._max_length = max_length
        self._wire: dict[str, str] = {}
        self._back: dict[str, str] = {}
        names = [tool if isinstance(tool, str) else tool.name for tool in tools]
        # Legal names first: they stay, even if another name would be changed to the same one.
        for name in names:
            if self._is_legal(name):
                self._wire[name] = self._back[name] = name
        for name in names:
            self.to_wire(name)

    def to_wire(self, name: str) -> str:
        """Return the name that the provider accepts."""
        known = self._wire.get(name)
        if known is not None:
            return known
        legal = name
        if not self._is_legal(name) or name in self._back:
            legal = self._make_legal(name, 0)
            number = 0
            while legal in self._back:
                number += 1
                legal = self._make_legal(name, number)
        self._wire[name] = legal
        self._back[legal] = name
        return legal

    def from_wire(self, name: str) -> str:
        """Return the tool's own name; an unknown name is returned as it is."""
        return self._back.get(name, name)

    def _is_legal(self, name: str) -> bool:
        return 0 < len(name) <= self._max_length and self._allowed.fullmatch(name) is not None

    def _make_legal(self, name: str, number: int) -> str:
        tag = blake2b(f"{number}:{name}".encode("utf-8", "surrogatepass"), digest_size=_TAG // 2).hexdigest()
        cleaned = "".join([letter if self._allowed.fullmatch(f"a{letter}") else "_" for letter in name])
        if not cleaned or self._allowed.fullmatch(cleaned[0]) is None:
            cleaned = f"t_{cleaned}"
        return f"{cleaned[: self._max_length - _TAG - 1]}_{tag}"
