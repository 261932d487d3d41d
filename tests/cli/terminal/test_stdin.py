"""What is piped in is read to its end, whatever else was done to the descriptor."""

from __future__ import annotations

import os
import select
import subprocess
import sys

from tests.cli.command import wait_until

READ = "from steersman.cli.terminal.stdin import read_piped_input as read; print(read(patient=True))"


def test_an_input_that_does_not_block_is_waited_for() -> None:
    """Another process that shares it may have made it so; nothing to read yet is neither the end nor an error."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with subprocess.Popen(
        [sys.executable, "-c", READ], stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as reading:
        os.write(writer, b"one ")
        wait_until(lambda: _is_empty(reader), "the first word to be read")
        os.write(writer, b"two")
        os.close(writer)
        said = reading.communicate(timeout=60)
    os.close(reader)
    assert (said, reading.returncode) == ((b"one two\n", b""), 0)


def _is_empty(reader: int) -> bool:
    return not select.select([reader], [], [], 0)[0]
