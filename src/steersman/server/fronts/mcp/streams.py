"""The streams of a client over HTTP: each request has one, which a client that lost its connection can read again.

An event's id names its stream and its place, and counts only in the session that it was sent in.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Final

from steersman.server.fronts.json_rpc import Params, encode_line
from steersman.server.fronts.mcp.front import McpFront
from steersman.server.one_line import escape_separators
from steersman.server.sessions import Sessions

BEAT_SECONDS: Final = 10.0
"""A stream is silent for so long at most."""
KEPT_MESSAGES: Final = 1_000
"""The most messages of a stream that can be read again."""
KEPT_STREAMS: Final = 50
"""The most streams of a session, without those that still go on."""
KEPT_SESSIONS: Final = 1_000
"""The most sessions without a call; the one that was not used for the longest time is forgotten first."""

current_stream: ContextVar[Stream] = ContextVar("current_stream")


class Stream:
    """The messages that belong to one request, the response last."""

    def __init__(self, number: int, request_id: object) -> None:
        self.number = number
        self.ended = False
        self._request_id = request_id
        self._messages: deque[tuple[int, bytes]] = deque(maxlen=KEPT_MESSAGES)
        self._count = 0
        self._news = asyncio.Event()

    def add(self, message: Params) -> None:
        """Take a message; the response ends the stream."""
        self._count += 1
        self._messages.append((self._count, escape_separators(encode_line(message).rstrip(b"\n"))))
        if "method" not in message and message.get("id") == self._request_id:
            self.ended = True
        self.wake()

    def end(self) -> None:
        """End the stream without a response."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """Wake the readers."""
        self._news.set()
        self._news = asyncio.Event()

    async def read(self, after: int = 0) -> AsyncGenerator[tuple[str, bytes]]:
        """The ids and messages after a place, up to the end of the stream; empty ones are signs of life."""
        while True:
            news = self._news
            for place, data in [one for one in self._messages if one[0] > after]:
                after = place
                yield f"{self.number}-{place}", data
            if self.ended and after >= self._count:
                return
            if after >= self._count:
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        await news.wait()
                except TimeoutError:
                    yield "", b""


class HttpSession:
    """One client over HTTP."""

    def __init__(self, sessions: Sessions, user: str | None) -> None:
        self.id = secrets.token_urlsafe(24)
        self.user = user
        self.front = McpFront(sessions, self._send, user=user)
        self.closed = asyncio.Event()
        self._streams: OrderedDict[int, Stream] = OrderedDict()
        self._count = 0

    def open_stream(self, request_id: object) -> Stream:
        """A stream for a request."""
        self._count += 1
        stream = self._streams[self._count] = Stream(self._count, request_id)
        for number, other in list(self._streams.items()):
            if len(self._streams) <= KEPT_STREAMS:
                break
            if other.ended:
                del self._streams[number]
        return stream

    def find_stream(self, event_id: str) -> tuple[Stream, int] | None:
        """The stream and the place of an event of this session; `None` if there is none."""
        number, _, place = event_id.partition("-")
        if not (number.isascii() and number.isdigit() and place.isascii() and place.isdigit() and len(event_id) < 40):
            return None
        stream = self._streams.get(int(number))
        return None if stream is None else (stream, int(place))

    def _send(self, message: Params) -> None:
        current_stream.get().add(message)

    async def close(self, *, abort: bool = False) -> None:
        """End all streams; with `abort`, also the runs."""
        self.closed.set()
        await self.front.close(abort=abort)
        for stream in self._streams.values():
            stream.end()


class HttpSessions:
    """All clients over HTTP."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._open: OrderedDict[str, HttpSession] = OrderedDict()

    async def create(self, user: str | None) -> HttpSession:
        """A new session of a user."""
        session = HttpSession(self._sessions, user)
        self._open[session.id] = session
        if len(self._open) > KEPT_SESSIONS and (forgotten := self._find_unused(session)) is not None:
            await self.delete(forgotten)
        return session

    def _find_unused(self, new: HttpSession) -> HttpSession | None:
        """A session that no call goes on in, to make room for a new one: of the same user before those of others."""
        unused = [one for one in self._open.values() if one is not new and not one.front.is_busy]
        return next((one for one in unused if one.user == new.user), unused[0] if unused else None)

    def find(self, user: str | None, id: str) -> HttpSession | None:
        """A session of a user."""
        session = self._open.get(id)
        if session is None or session.user != user:
            return None
        self._open.move_to_end(id)
        return session

    async def delete(self, session: HttpSession, *, abort: bool = False) -> None:
        """End a session; with `abort`, also its runs."""
        self._open.pop(session.id, None)
        await session.close(abort=abort)

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self._open.values()):
            await self.delete(session)
