"""Keeping keys out of texts: servers quote what they were sent, and what quotes them may cut the quotation short."""

from __future__ import annotations

HIDDEN = "[redacted]"
# What is shorter is no secret but a word such as "none", and hiding it would spoil the text.
_SHORTEST = 6
# The beginning of a key is hidden too where this much of it stands at the end of what was cut.
_SHORTEST_PREFIX = 8


def hidden(text: str, secret: str | None) -> str:
    """The text without the secret, and without the beginning of it that a cut may have left."""
    if secret is None or len(secret) < _SHORTEST:
        return text
    text = text.replace(secret, HIDDEN)
    if secret[:_SHORTEST_PREFIX] not in text:
        return text
    for length in range(len(secret) - 1, _SHORTEST_PREFIX - 1, -1):
        text = text.replace(secret[:length], HIDDEN)
    return text
