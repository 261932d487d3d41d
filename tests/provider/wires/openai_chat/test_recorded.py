"""What real servers sent is read the same however the network cut it, and never taken for whole when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.provider.wires.openai_chat.chat import FIXTURES, MODEL, RECORDED, answer_of, asked, read, told

from steersman.provider.http.sse import SseDecoder
from steersman.provider.wires.openai_chat.wire import WIRE
from steersman.types.content import TextContent
from steersman.types.errors import IncompleteStreamError, OverloadedError
from steersman.types.usage import Usage

QWEN, SMOL = FIXTURES / "llamacpp-qwen0.5b", FIXTURES / "llamacpp-smollm2"


def shown(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_a_recorded_text_is_read_whole() -> None:
    message = answer_of((QWEN / "openai_chat_unicode.sse").read_bytes())
    assert message.content == [TextContent("héllo 世界 🙂 done")]
    assert (message.stop_reason, message.raw_stop_reason) == ("stop", "stop")
    assert message.usage == Usage(input=15, output=8, cache_read=14)
    assert message.response_id == "chatcmpl-G5HfGFxvpYFReGEfPUEtpyZ97FZnmXKp"


def test_recorded_parallel_calls_are_read_whole() -> None:
    message = answer_of((SMOL / "openai_chat_parallel_tool_calls.sse").read_bytes(), "count_lines")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [
        ("count_lines", {"path": "README.md"}),
        ("count_lines", {"path": "setup.py"}),
    ]
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("path", "raw"),
    [
        (QWEN / "openai_chat_tool_call_length.sse", '{"path": "/home/user'),
        (SMOL / "openai_chat_tool_call_length.sse", '{"path":'),
    ],
    ids=["qwen", "smollm"],
)
def test_a_recorded_call_cut_by_the_token_limit_keeps_what_was_written(path: Path, raw: str) -> None:
    """failures.md C9."""
    message = answer_of(path.read_bytes(), "count_lines")
    assert [(call.arguments, call.raw_arguments) for call in message.tool_calls] == [({}, raw)]
    assert (message.stop_reason, message.raw_stop_reason) == ("length", "length")


def test_a_recorded_call_without_arguments_has_none() -> None:
    """failures.md C6."""
    message = answer_of((QWEN / "openai_chat_tool_call_noargs.sse").read_bytes(), "current_time")
    assert [(call.name, told(call)) for call in message.tool_calls] == [("current_time", {})]


def test_a_recorded_stream_without_usage_has_unknown_usage() -> None:
    """failures.md I8."""
    assert answer_of((QWEN / "openai_chat_text_nousage.sse").read_bytes()).usage == Usage()


def test_a_recorded_error_inside_a_stream_is_the_servers_failure() -> None:
    """failures.md B11."""
    with pytest.raises(OverloadedError, match="does not match the expected peg-native format") as caught:
        read((QWEN / "openai_chat_midstream_error.sse").read_bytes())
    assert (caught.value.info.status, caught.value.info.should_retry) == (500, True)


@pytest.mark.parametrize("path", RECORDED, ids=shown)
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
