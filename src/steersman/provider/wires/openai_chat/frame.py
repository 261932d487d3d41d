"""The chunks of a stream of text differ in their words alone: what stands around those is read once and recognised.

A chunk is a few words in some two hundred characters that never change; to find them is less work than to parse it all.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steersman.provider.wires.openai_chat.chunks import Chunk, read

_PROBE = "?"


class Frame:
    """What stands before and after the words."""

    __slots__ = ("_after", "_before", "_end", "_start")

    def __init__(self, before: str, after: str) -> None:
        self._before = before
        self._after = after
        self._start = len(before)
        self._end = -len(after)

    def words(self, events: Sequence[tuple[str, str]], start: int) -> list[str]:
        """The words of the events from `start` on, up to one that is not in this frame or writes them otherwise."""
        before, after, first, last = self._before, self._after, self._start, self._end
        found: list[str] = []
        for at in range(start, len(events)):
            event, data = events[at]
            if event or not (data.startswith(before) and data.endswith(after)):
                break
            words = data[first:last]
            if not words or not words.isprintable() or '"' in words or "\\" in words:
                break
            found.append(words)
        return found


def frame_of(data: str, words: str) -> Frame | None:
    """The frame of a chunk with these words; `None` where they are not found, or are not what they seem.

    Other words are put in their place: where those are then the content, any text in that place is.
    """
    quoted = f'"{words}"'
    at = data.find(quoted)
    while at >= 0:
        head, tail = data[:at], data[at + len(quoted) :]
        if _says(f'{head}"{words}{_PROBE}"{tail}', words + _PROBE):
            return Frame(f'{head}"', f'"{tail}')
        # A comma or a colon stands between quotes elsewhere too.
        at = data.find(quoted, at + 1)
    return None


def _says(data: str, words: str) -> bool:
    try:
        chunk: Chunk = read(data)
    except msgspec.DecodeError:
        return False
    delta = chunk.choices[0].delta if chunk.choices else None
    return delta is not None and delta.content == words
