"""A watcher's place in the events of a session: never a gap, never an event twice, and bounded memory.

A watcher that is behind gets neighbouring deltas joined. One that has fallen out of the ring of recent events gets the
records it missed from the store, and the answer that is arriving as one `snapshot`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from steersman.server.hub import Hub, Item
from steersman.server.log_events import read_line
from steersman.server.position import Position
from steersman.types.stream import TextDelta, ThinkingDelta, ToolCallDelta
from steersman.types.wire import encode

JOIN_FROM: Final = 64
"""From so many events at once on, deltas are joined."""
READ_BYTES: Final = 256 << 10
"""About the most bytes that one read returns."""

_JOINABLE = (TextDelta, ThinkingDelta, ToolCallDelta)


class Watch:
    """Follows the events after a position, from the first one by default. `position` is that of the last event read.

    Raises `ValueError` for a position past the end of the log.
    """

    def __init__(self, hub: Hub, after: Position | None = None) -> None:
        if after is not None and after.record > hub.last_record:
            raise ValueError(
                f"The position {str(after)!r} is past the end of this session, which is at {str(hub.position)!r}."
            )
        self.position = Position(0) if after is None else after
        self._hub = hub
        # The number of the next event in the ring, if the watcher has got there.
        self._next: int | None = None
        # Whether it has read records from the store, and nothing of what came between them.
        self._has_gap = False
        # What the watcher has seen at another server of the same session, which was ahead of this one.
        self._ahead = self.position if self.position > hub.position else None

    def __enter__(self) -> Watch:
        self._hub.join()
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.leave()

    async def read(self) -> Sequence[Item]:
        """The next events; waits for them if there are none. Empty at a sign of life, and once the hub is closed."""
        hub, waited = self._hub, False
        while not hub.closed:
            if self._next is not None and self._next >= hub.first:
                items = self._read_ring(self._next)
            else:
                items = await self._find_place()
            if items and self._ahead is not None:
                self._skip_seen(self._ahead)
            elif items:
                self.position = items[-1].position
                return items
            if self._next == hub.end:
                if waited:
                    break
                await hub.wait()
                waited = True
        return ()

    def _read_ring(self, start: int) -> Sequence[Item]:
        hub = self._hub
        if start == hub.end:
            return ()
        found: list[Item] = []
        size = 0
        for item in islice(hub.ring, start - hub.first, None):
            found.append(item)
            size += len(item.frame)
            if size > READ_BYTES:
                break
        self._next = start + len(found)
        return found if len(found) < JOIN_FROM else join_updates(found)

    async def _find_place(self) -> Sequence[Item]:
        """Get into the ring: at once, through records of the store, or with a snapshot."""
        hub = self._hub
        if (place := hub.find_place(self.position, has_gap=self._has_gap)) is not None:
            self._next, self._has_gap = place, False
            return ()
        if self.position.record < hub.floor.record:
            return await self._read_store(hub.floor.record)
        await hub.wait_for_held()
        if self.position.record < hub.floor.record:
            return ()  # more events came and went meanwhile
        self._has_gap = False
        if (snapshot := hub.make_snapshot()) is None:
            self._next = hub.find_place_outside(self.position)
            return ()
        items = [item for item in hub.ring if item.is_record and item.position > self.position]
        self._next, self.position = hub.end, hub.position
        return [*items, snapshot]

    def _skip_seen(self, ahead: Position) -> None:
        """Leave out what was seen elsewhere; once there is more, the place after it is looked for."""
        if self._hub.position <= ahead:
            self._next = self._hub.end
        else:
            self._ahead = self._next = None
            self.position = ahead

    async def _read_store(self, last: int) -> Sequence[Item]:
        self._has_gap = True
        lines = await asyncio.to_thread(self._hub.read_lines, self.position.record)
        spans = self._hub.spans
        items = [Item(Position(seq), read_line(line, spans)) for seq, line in lines if seq <= last]
        if not items:
            self.position = Position(last)  # records that cannot be read are left out
        return items


def join_updates(items: Sequence[Item]) -> Sequence[Item]:
    """The same events with neighbouring deltas of one block joined; a joined one has the position of its last."""
    joined: list[Item] = []
    group: list[Item] = []
    for item in items:
        if group and not _belong_together(group[-1], item):
            joined.append(_join_group(group))
            group = []
        group.append(item)
    joined.append(_join_group(group))
    return joined


def _belong_together(left: Item, right: Item) -> bool:
    if left.update is None or right.update is None or left.position.record != right.position.record:
        return False
    a, b = left.update.delta, right.update.delta
    if not isinstance(a, _JOINABLE) or not isinstance(b, _JOINABLE):
        return False
    return a.type == b.type and a.content_index == b.content_index


def _join_group(group: Sequence[Item]) -> Item:
    last = group[-1]
    if len(group) == 1 or last.update is None:
        return last
    deltas = [item.update.delta for item in group if item.update is not None]
    text = "".join(delta.delta for delta in deltas if isinstance(delta, _JOINABLE))
    delta = msgspec.structs.replace(deltas[-1], delta=text)
    return Item(last.position, encode(msgspec.structs.replace(last.update, delta=delta, seq=last.position.record)))
