"""Words of a server made fit to be shown: no control characters, nothing invisible, of bounded length."""

from __future__ import annotations

from unicodedata import category

# Controls, what is invisible or reorders text, halves of characters, private use.
_UNSEEN = frozenset(("Cc", "Cf", "Co", "Cs"))


def plain(text: str, limit: int, *, lines: bool = True) -> str:
    """The text without what a reader would not see, at most `limit` characters of it; in one line where asked."""
    # Looked at only as far as it can matter: a text may have millions of characters.
    looked_at = text[: limit * 2]
    if not lines:
        looked_at = " ".join(looked_at.split())
    shown = "".join([letter for letter in looked_at if letter in "\n\t" or category(letter) not in _UNSEEN])
    return shown if len(shown) <= limit and len(text) <= limit * 2 else f"{shown[: limit - 1]}…"
