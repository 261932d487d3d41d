"""The same answer over a real socket, in every form that servers and proxies give its bytes, in all four protocols."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.provider.wires.protocols import SERVERS, WORDS, played
from tests.rows import each_row

from steersman import Agent, Retry, RunResult
from steersman.testing.servers import Delivery, StrictServer
from steersman.tools.tool import Tool
from steersman.types.messages import AssistantMessage

pytestmark = pytest.mark.real_time


def count_lines(args: dict[str, Any]) -> str:
    return "7" if args else "0"


# The frames of Bedrock have no lines; they have tests of their own.
SENT_AS_LINES = [name for name in SERVERS if name != "bedrock"]
COUNT = Tool("count_lines", "Count the lines of a file.", {"type": "object"}, count_lines)
DONE = Delivery("Seven.")


def plain(name: str) -> bytes:
    """The answer as the strict server sends it, with one kind of line end."""
    return played(SERVERS[name](), alt="sse").replace(b"\r\n", b"\n")


async def asked(name: str, first: Any, *, settings: dict[str, Any] | None = None) -> tuple[RunResult, StrictServer]:
    """A whole run whose first answer comes in these bytes."""
    async with SERVERS[name](first, DONE, strict=False) as server:
        model = server.model(settings=settings or {})
        result = await Agent(model, tools=[COUNT], retry=Retry(max_attempts=1)).run("How many?")
    return result, server


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "B2 carriage returns": lambda stream: stream.replace(b"\n", b"\r"),
    "B2 both": lambda stream: stream.replace(b"\n", b"\r\n"),
    "B2 mixed": lambda stream: stream.replace(b"\n\n", b"\n\r\n"),
    "B3 comments": lambda stream: stream.replace(b"\n\n", b"\n\n: ping\n\n"),
    "B3 comments inside": lambda stream: stream.replace(b"data: ", b": still here\ndata: "),
    "B3 a comment that a proxy took for data": lambda stream: b"data: : OPENROUTER PROCESSING\n\n" + stream,
    "B6 no space": lambda stream: stream.replace(b"data: ", b"data:").replace(b"event: ", b"event:"),
    "B6 other fields": lambda stream: stream.replace(b"data: ", b"id: 7\nretry: 10\nnew: x\ndata: "),
    "B6 a mark in front": lambda stream: b"\xef\xbb\xbf" + stream,
    "B9 no blank line at the end": lambda stream: stream.removesuffix(b"\n"),
    "B9 no line end at the end": lambda stream: stream.removesuffix(b"\n\n"),
    "B21 no names": lambda stream: re.sub(rb"(?m)^event: .*\n", b"", stream),
}


@each_row("chunk", [None, 1])
@each_row("form", FORMS)
@each_row("name", SENT_AS_LINES)
async def test_an_answer_is_the_same_in_whatever_form_its_bytes_come(name: str, form: str, chunk: int | None) -> None:
    """failures.md B1, B2, B3, B6, B9, B21."""
    stream = FORMS[form](plain(name))
    result, server = await asked(name, Delivery(stream, chunk=chunk))
    assert (result.end_reason, result.text, len(server.raw)) == ("done", "Seven.", 2)
    answer = result.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert (answer.text, answer.stop_reason) == (WORDS, "tool_use")
    assert [made.arguments for made in answer.tool_calls] == [{"path": "日本/é"}, {}]


@pytest.mark.parametrize("name", SENT_AS_LINES)
async def test_a_byte_that_is_no_text_is_replaced_and_the_stream_goes_on(name: str) -> None:
    """failures.md B22."""
    result, _ = await asked(name, Delivery(plain(name).replace("ö".encode(), b"\xff")))
    answer = result.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert (result.end_reason, answer.text) == ("done", WORDS.replace("ö", "\ufffd"))


@pytest.mark.parametrize("name", SENT_AS_LINES)
async def test_garbage_in_the_midst_of_an_answer_is_told_as_such(name: str) -> None:
    """failures.md B13: what had come stays, and the server is not asked again."""
    head, _, tail = plain(name).partition(WORDS[:3].encode())
    at = tail.index(b"\n\n") + 2
    result, server = await asked(name, Delivery(head + WORDS[:3].encode() + tail[:at] + b"data: {oops\n\n" + tail[at:]))
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.error_kind, len(server.raw), last.text[:3]) == ("protocol", 1, WORDS[:3])


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_that_falls_silent_is_cut_off_at_the_limit(name: str) -> None:
    """failures.md B14."""
    silent = Delivery(plain(name), at=len(plain(name)) // 2, ending="stall")
    result, server = await asked(name, silent, settings={"idle_timeout": 0.05})
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.error_kind, len(server.raw)) == ("stalled", 1)
    assert "sent nothing for 0.05 s (idle_timeout in the model's settings)" in result.detail


@pytest.mark.parametrize("name", SENT_AS_LINES)
async def test_signs_of_life_alone_are_cut_off_where_content_is_asked_for(name: str) -> None:
    """failures.md B16."""
    half = plain(name)[: plain(name).rindex(b"\n\n", 0, len(plain(name)) // 2) + 2]
    pings = Delivery(half + b": ping\n\n" * 400, chunk=64, pace=0.01)
    result, _ = await asked(name, pings, settings={"content_idle_timeout": 0.2, "idle_timeout": 5.0})
    assert "sent nothing but pings for 0.2 s" in result.detail
