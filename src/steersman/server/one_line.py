"""JSON that is one line for every reader of server-sent events."""

from __future__ import annotations

# Unicode has more ends of lines than server-sent events, and some clients split at those as well.
_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def escape_separators(data: bytes) -> bytes:
    """The same JSON, with the line separators of Unicode escaped; they can only be inside of texts."""
    for separator, escaped in _SEPARATORS:
        data = data.replace(separator, escaped)
    return data
