"""The sockets between processes that use one file of sessions, in Linux's abstract namespace: they have no file.

Any user may use these names, so a reader of messages looks which user has sent each of them.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import sys
from hashlib import sha256
from typing import Final

IS_LINUX: Final = sys.platform.startswith("linux")
"""Whether there are such sockets."""
WAKE: Final = b"x"
"""What wakes a writer."""
FOLLOW: Final = b"f"
"""What comes to a writer with the end of a connection."""
_CREDENTIALS = struct.Struct("3i")


def wake_writer(file_id: tuple[int, int], number: int, epoch: int) -> None:
    """Wake the writer of a session that has this epoch, if there is one."""
    if not IS_LINUX:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.sendto(WAKE, make_address(file_id, number, epoch))
        except OSError:
            pass  # there is no writer, or it has more than enough datagrams to read already


def make_address(file_id: tuple[int, int], number: int, epoch: int) -> str:
    """The name of the socket of a writer."""
    name = sha256(f"{file_id} {number} {epoch}".encode()).hexdigest()[:32]
    return f"\0steersman-{name}"


def bind_writer(address: str) -> socket.socket | None:
    """A socket with this name; `None` where there can be none."""
    if not IS_LINUX:
        return None
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        listening.bind(address)
    except OSError:
        listening.close()
        return None
    return listening


def connect_to_writer(address: str) -> socket.socket | None:
    """A connection to the writer with this name; `None` if there is none."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            ours.setblocking(False)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            sender.setblocking(False)
            rights = array.array("i", [theirs.fileno()])
            sender.sendmsg([FOLLOW], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], 0, address)
        except OSError:
            ours.close()
            return None
    return ours


def receive_message(source: socket.socket, size: int) -> tuple[bytes, int | None, list[int]]:
    """One message, the user who sent it, and the files that came with it."""
    files = array.array("i")
    space = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4 * files.itemsize)
    data, control, _, _ = source.recvmsg(size, space)
    user: int | None = None
    for level, kind, content in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
        elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            _, user, _ = _CREDENTIALS.unpack(content)
    return data, user, list(files)


def open_received(file: int) -> socket.socket | None:
    """The socket that came as a file; one that is no socket is closed."""
    try:
        return socket.socket(fileno=file)
    except OSError:
        os.close(file)
        return None
