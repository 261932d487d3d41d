"""A stream means the same wherever the network cuts it: every recorded one, and one of each strict server.

Nothing is sampled: each stream is read from its bytes to its message at every two-way split there is, and byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.provider.wires.openai_chat.chat import asked
from tests.provider.wires.protocols import READINGS, SERVERS, WORDS, played
from tests.provider.wires.reading import REQUEST, Reading, chunks
from tests.rows import each_row

from steersman.testing.servers import GoogleServer
from steersman.types.errors import ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Request

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").rglob("*.sse"))
LINE_ENDS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}


def outcome(reading: Reading, pieces: bytes | Iterable[bytes], request: Request) -> Any:
    """All that a stream means, also where it means an error."""
    try:
        return reading.read(pieces, request=request)
    except ProviderError as error:
        return error.info


def check_splits(name: str, stream: bytes, request: Request = REQUEST) -> Any:
    """What a stream means, which it does at every split."""
    reading = READINGS[name]
    whole = outcome(reading, stream, request)
    assert outcome(reading, chunks(stream, 1), request) == whole
    seen: set[Any] = set()
    for at in range(len(stream) + 1):
        pieces = stream[:at], stream[at:]
        # Most splits are inside an event: the decoder gets the same events as at the split before.
        if (events := reading.cut(pieces)) not in seen:
            assert outcome(reading, pieces, request) == whole, at
            seen.add(events)
    return whole


@each_row("path", FIXTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_stream_is_read_the_same_at_every_split(path: Path) -> None:
    """failures.md B1, I15."""
    name = path.stem.partition("_")[0]
    request = asked("count_lines") if name == "openai" else REQUEST
    check_splits(name, path.read_bytes(), request)


@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize("name", SERVERS)
def test_a_stream_of_a_strict_server_is_read_the_same_at_every_split(name: str, end: str) -> None:
    """failures.md B1, B2."""
    stream = played(SERVERS[name](), alt="sse").replace(b"\r\n", b"\n").replace(b"\n", LINE_ENDS[end])
    _, message = check_splits(name, stream)
    assert_told(message)


def test_an_array_of_gemini_is_read_the_same_at_every_split() -> None:
    """failures.md B1: what comes where server-sent events were not asked for."""
    _, message = check_splits("google array", played(GoogleServer()))
    assert_told(message)


def assert_told(message: AssistantMessage) -> None:
    assert message.text == WORDS
    assert [made.arguments for made in message.tool_calls] == [{"path": "日本/é"}, {}]
    assert message.stop_reason == "tool_use"
