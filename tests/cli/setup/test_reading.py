"""Whatever stands in place of a file is read to its end or refused, and never waited for without end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from steersman.cli.setup.settings import read_file_bytes

pytestmark = pytest.mark.real_time


def test_a_file_is_read_whole_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100_000)
    assert read_file_bytes(file, most=100_000) == b"x" * 100_000
    with pytest.raises(ValueError, match="it has more than 99,999 bytes"):
        read_file_bytes(file, most=99_999)
    with pytest.raises(ValueError, match="it has more than 10 bytes"):
        read_file_bytes(Path("/dev/zero"), most=10)
    with pytest.raises(IsADirectoryError):
        read_file_bytes(tmp_path, most=10)


def test_a_pipe_is_read_while_it_has_a_writer_and_is_empty_where_it_has_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_file_bytes(tmp_path / "fifo", most=10) == b""
    reading, writing = os.pipe()

    def write() -> None:
        for piece in (b"one ", b"two"):
            os.write(writing, piece)
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_file_bytes(Path(f"/dev/fd/{reading}"), most=10) == b"one two"
    writer.join()
    os.close(reading)
