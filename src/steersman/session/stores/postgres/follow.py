"""What the writer of a session says to those that follow it, as notifications of PostgreSQL.

A payload has less than 8,000 bytes in the encoding of the database: what is said is packed as ASCII and split. Each
part has the epoch of its writer, and a new writer says its own in the same transaction that makes it the owner: from
then on what an earlier one says is not heard.
"""

from __future__ import annotations

import itertools
import secrets
import time
import zlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import Final

from steersman.session.stores.postgres.connection import ServerAddress
from steersman.session.stores.postgres.listen import (
    JOIN,
    STAY,
    STAY_SECONDS,
    Notice,
    Place,
    follow_channel,
    may_be_asked,
    send_notices,
    watch_payload,
)
from steersman.session.stores.postgres.tables import CHANNEL, WATCH_CHANNEL

PART: Final = 7_800
"""The most characters of one part, without its head."""
MOST_PARTS: Final = 64
"""What needs more parts is not said: those that follow read the records instead."""
_MOST_BYTES: Final = 64 << 20


def make_channel(place: Place) -> str:
    """The channel of those that follow a session."""
    return f"{WATCH_CHANNEL}_{place.replace(' ', '_')}"


def pack_parts(epoch: int, id: str, data: bytes) -> Sequence[str]:
    """The payloads for some data; none if it is too long."""
    text = b64encode(zlib.compress(data, 1)).decode()
    parts = [text[at : at + PART] for at in range(0, len(text), PART)]
    if len(parts) > MOST_PARTS:
        return ()
    return [f"{epoch} {id} {at} {len(parts)} {part}" for at, part in enumerate(parts)]


class PartReader:
    """Puts parts together; whatever is of an earlier epoch, out of order or damaged is left out."""

    def __init__(self) -> None:
        self.epoch = 0
        self._id = ""
        self._parts: list[str] = []

    def add(self, payload: str) -> bytes | None:
        """Take a payload; returns the data that it completes. Empty for a new writer, `None` if there is none."""
        try:
            epoch, *rest = payload.split(" ")
            if int(epoch) < self.epoch:
                return None
            self.epoch = int(epoch)
            if not rest:
                return b""
            id, at, count, part = rest
            return self._add_part(id, int(at), int(count), part)
        except (ValueError, Base64Error, zlib.error):
            return None  # another program has sent it

    def _add_part(self, id: str, at: int, count: int, part: str) -> bytes | None:
        if at == 0:
            self._id, self._parts = id, []
        if id != self._id or at != len(self._parts):
            return None
        self._parts.append(part)
        if len(self._parts) < count:
            return None
        parts, self._parts, self._id = self._parts, [], ""
        return zlib.decompressobj().decompress(b64decode("".join(parts), validate=True), _MOST_BYTES)


class Followers:
    """The processes that follow a session, for its writer. A process that says nothing for 25 s is forgotten.

    `since` is a time before this writer owned the session.
    """

    def __init__(
        self, address: ServerAddress, place: Place, epoch: int, came: Callable[[], None], since: float
    ) -> None:
        self._address = address
        self._place, self._since = place, since
        self._channel = make_channel(place)
        self._epoch = epoch
        self._came = came
        self._until = 0.0
        self._ids = itertools.count()
        self._sender = secrets.token_hex(4)
        self._stops = (
            watch_payload(address, f"{place} {JOIN}", self._join),
            watch_payload(address, f"{place} {STAY}", self._stay),
        )
        # Those that follow have heard of the new owner, and ask; perhaps before it watched.
        if may_be_asked(address, place, since):
            self._greet()

    def _greet(self) -> None:
        """Say that there is a writer that listens now: those that follow answer."""
        send_notices(self._address, [self._greeting])

    @property
    def _greeting(self) -> Notice:
        return self._channel, f"{self._epoch}"

    def make_farewell(self) -> Notice | None:
        """What tells those that follow to look again, once this writer is gone; `None` if there surely are none."""
        # One that was told of this writer may not have answered yet.
        is_followed = time.monotonic() <= self._until or may_be_asked(self._address, self._place, self._since)
        return self._greeting if is_followed else None

    def send(self, data: bytes) -> bool:
        """Send data to them; returns whether there may be any."""
        if time.monotonic() > self._until:
            return False
        parts = pack_parts(self._epoch, f"{self._sender}-{next(self._ids)}", data)
        send_notices(self._address, [(self._channel, part) for part in parts])
        return True

    def stop(self) -> None:
        """Forget them."""
        self._until = 0.0
        for stop in self._stops:
            stop()

    def _stay(self, notice: str | None) -> None:
        if notice is None:
            return  # the connection is a new one
        now = time.monotonic()
        is_new, self._until = now > self._until, now + STAY_SECONDS
        if is_new:
            self._came()

    def _join(self, notice: str | None) -> None:
        if notice is None:
            self._greet()
        else:
            self._until = time.monotonic() + STAY_SECONDS
            self._came()


class PostgresFollowing:
    """Follows a session that another process writes."""

    def __init__(self, address: ServerAddress, place: Place, hear: Callable[[bytes | None], None]) -> None:
        self._address = address
        self._place = place
        self._hear = hear
        self._reader = PartReader()
        self._stop = follow_channel(address, make_channel(place), place, self._take)

    def ask(self) -> None:
        """Ask the writer where it is."""
        send_notices(self._address, [(CHANNEL, f"{self._place} {JOIN}")])

    def close(self) -> None:
        """Hear nothing more."""
        self._stop()

    def _take(self, payload: str | None) -> None:
        if payload is None:
            self._hear(None)
        elif (data := self._reader.add(payload)) is not None:
            if not data:
                self.ask()  # another writer, which does not know yet that it is followed
            self._hear(data or None)
