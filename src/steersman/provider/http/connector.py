"""The client's connector, which gives out no connection that the server has closed since its last answer.

The event loop tells of a close only when it comes to it. A process that was suspended, or held up, asks before that.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING
from weakref import WeakSet

from aiohttp import ClientRequest, ClientTimeout, TCPConnector

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_CAN_LOOK = hasattr(select, "poll")  # not on Windows: who meets a closed connection there is asked again
if _CAN_LOOK:
    # Not every system tells that the other side alone has closed; they all tell of a connection that is closed.
    _GONE = getattr(select, "POLLRDHUP", select.POLLIN) | select.POLLHUP | select.POLLERR


class Connector(TCPConnector):
    """Connections, looked at again before they are used again."""

    def __init__(self, *, keepalive: float, dns_ttl: int) -> None:
        # As many at once as there are agents: whoever starts them sets the bound.
        super().__init__(limit=0, keepalive_timeout=keepalive, ttl_dns_cache=dns_ttl)  # pyright: ignore[reportUnknownMemberType]  # of a parameter not used here
        self._given: WeakSet[ResponseHandler] = WeakSet()

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """A connection of the pool that is still open, or a new one."""
        while True:
            connection = await super().connect(req, traces, timeout)
            reader = connection.protocol
            if reader not in self._given:
                # A new one is not looked at: a server that closes those at once would be asked for ever.
                if reader is not None:
                    self._given.add(reader)
                return connection
            if not _is_gone(connection):
                return connection
            connection.close()


def _is_gone(connection: Connection) -> bool:
    """Whether the other side has closed, also if nobody has read that yet."""
    transport = connection.transport
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None or not _CAN_LOOK:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), _GONE)
    return bool(poll.poll(0))
