"""Redacts provider keys in error messages and answers, because both end up in logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steersman.provider.models.registry import find_known_keys
from steersman.types.secrets import REDACTED, redact

_LONG_KEY = 12


def redact_keys(text: str) -> str:
    """Redacts every key that the environment holds for a provider."""
    return redact(text, *find_known_keys())


def make_key_redactor() -> Callable[[str], str]:
    """Returns a function that redacts long keys in an answer.

    Short keys stay: local servers often get a word such as "ollama" as their key, and an answer may use that word.
    """
    return _without(_find_long_keys())


class StreamRedactor:
    """Redacts keys in an answer that arrives in pieces; holds back what may be the start of a key."""

    def __init__(self) -> None:
        self._keys = _find_long_keys()
        self._without = _without(self._keys)
        self._held = ""

    def feed(self, piece: str) -> str:
        """Adds a piece and returns the text that can be shown now."""
        text = self._held + piece
        for key in self._keys:
            text = text.replace(key, REDACTED)
        held = max((_measure_partial_key(text, key) for key in self._keys), default=0)
        self._held = text[len(text) - held :]
        return self._without(text[: len(text) - held])

    def flush(self) -> str:
        """Returns the text held back, when no more will follow."""
        held, self._held = self._held, ""
        return self._without(held)


def _find_long_keys() -> list[str]:
    """Returns the keys to redact, the longest first, because one key may be a prefix of another."""
    return sorted((key for key in find_known_keys() if len(key) >= _LONG_KEY), key=len, reverse=True)


def _without(keys: Sequence[str]) -> Callable[[str], str]:
    def without(text: str) -> str:
        return redact(text, *keys)

    return without


def _measure_partial_key(text: str, key: str) -> int:
    """Returns how many characters at the end of a text are the start of a key."""
    most = min(len(text), len(key) - 1)
    return next((length for length in range(most, 0, -1) if text.endswith(key[:length])), 0)
