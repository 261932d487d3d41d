"""What real servers sent is read the same however the network cut it, and never taken for whole when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.provider.wires.openai_chat.chat import FIXTURES, MODEL, RECORDED, answer_of, asked, read
from tests.rows import each_row

from steersman.provider.http.sse import SseDecoder
from steersman.provider.wires.openai_chat.wire import WIRE
from steersman.types.errors import IncompleteStreamError, OverloadedError

QWEN, SMOL = FIXTURES / "llamacpp-qwen0.5b", FIXTURES / "llamacpp-smollm2"


def shown(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_a_recorded_error_inside_a_stream_is_the_servers_failure() -> None:
    """failures.md B11."""
    with pytest.raises(OverloadedError, match="does not match the expected peg-native format") as caught:
        read((QWEN / "openai_chat_midstream_error.sse").read_bytes())
    assert (caught.value.info.status, caught.value.info.should_retry) == (500, True)


@each_row("path", RECORDED, ids=shown)
def test_a_recorded_stream_cut_at_any_byte_is_incomplete_until_its_finish_reason_is_there(path: Path) -> None:
    """failures.md B8, B9: a finish_reason and the end of the stream make an answer, [DONE] or not."""
    stream = path.read_bytes()
    last = stream.rindex(b'"finish_reason":"')
    enough = stream.index(b"\n", last)
    whole = answer_of(stream, "count_lines")
    lines = SseDecoder()
    decoder = WIRE.decoder(MODEL, asked("count_lines"))
    for at in range(enough):
        for name, data in lines.feed(stream[at : at + 1]):
            decoder.feed(name, data)
        with pytest.raises(IncompleteStreamError):
            decoder.finish()
    for at in (enough, enough + 1, enough + 2, len(stream)):
        message = read(stream[:at], "count_lines")[1]
        assert (message.content, message.stop_reason) == (whole.content, whole.stop_reason)
