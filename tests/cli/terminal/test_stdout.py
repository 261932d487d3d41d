"""Where output leaves: in order, in one piece per step, bounded, and without ever holding up the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.cli.command import wait_until

from steersman.cli.terminal.stdout import OutputWriter

pytestmark = pytest.mark.real_time


class Pipe(NamedTuple):
    """Both ends of a pipe."""

    reader: int
    writer: int


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = Pipe(*os.pipe())
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue  # the test has closed it


async def test_what_one_step_writes_leaves_in_one_piece(pipe: Pipe) -> None:
    writer = OutputWriter(pipe.writer)
    for piece in (b"a", b"b", b"c"):
        writer.write(piece)
    await writer.drain()
    writer.write(b"d")
    await writer.drain()
    writer.close()
    assert os.read(pipe.reader, 100) == b"abcd"


async def test_a_writer_with_more_to_say_waits_for_a_slow_reader_and_others_do_not(pipe: Pipe) -> None:
    """failures.md J2, F16."""
    writer = OutputWriter(pipe.writer, max_bytes=1000)
    written = 0

    async def write() -> None:
        nonlocal written
        while written < 2_000_000:
            writer.write(b"x" * 500)
            written += 500
            if writer.full:
                await writer.wait_for_space()

    writing = asyncio.create_task(write())
    await asyncio.to_thread(wait_until, lambda: written > 40_000 and writer.full, "a full pipe")
    # A pipe holds 64 KiB, and the writer its bound and one piece.
    assert written < 80_000
    read = 0
    while read < 2_000_000:
        read += len(await asyncio.to_thread(os.read, pipe.reader, 65536))
    await writing
    await writer.drain()
    writer.close()
    assert (read, writer.failure) == (2_000_000, None)


async def test_a_descriptor_that_does_not_block_is_waited_for(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    writer = OutputWriter(pipe.writer)
    writer.write(b"x" * 300_000)
    read = 0
    while read < 300_000:
        read += len(await asyncio.to_thread(os.read, pipe.reader, 65536))
    await writer.drain()
    writer.close()
    assert writer.failure is None


@pytest.mark.parametrize("busy", [True, False])
async def test_a_reader_that_leaves_is_noticed(pipe: Pipe, busy: bool) -> None:
    """failures.md F11: also while there is nothing to write."""
    failed: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()
    writer = OutputWriter(pipe.writer, on_failure=failed.set_result)
    if busy:
        writer.write(b"x" * 300_000)
    os.close(pipe.reader)
    assert isinstance(await failed, BrokenPipeError)
    writer.write(b"y")
    await writer.drain()
    await writer.wait_for_space()
    writer.close()


async def test_a_reader_that_is_only_slow_is_waited_for_in_a_hurry(pipe: Pipe) -> None:
    """failures.md F10: after a signal too, a reader that goes on gets everything."""
    writer = OutputWriter(pipe.writer)
    writer.write(b"x" * 400_000)
    writer.drop_if_stalled(0.2)
    pause, read = threading.Event(), 0
    while read < 400_000:
        await asyncio.to_thread(pause.wait, 0.05)
        read += len(await asyncio.to_thread(os.read, pipe.reader, 32_768))
    await writer.drain()
    writer.close()
    assert writer.failure is None


async def test_a_reader_that_does_not_read_can_be_left_behind(pipe: Pipe) -> None:
    writer = OutputWriter(pipe.writer)
    writer.write(b"x" * 300_000)
    writer.drop_if_stalled(0.01)
    await writer.drain()
    assert isinstance(writer.failure, TimeoutError)
    writer.close()
    os.close(pipe.reader)
