"""An answer that is whole is an answer, however long the server keeps the line open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.provider.wires.bedrock import kit as bedrock
from tests.provider.wires.protocols import READINGS, SERVERS
from tests.rows import each_row

from steersman import Agent, AssistantMessage, Retry, get_model
from steersman.testing.servers.exchange import sse

FIXTURES = Path(__file__).parents[2] / "fixtures"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
CHAT = b'data: {"choices":[{"index":0,"delta":{"content":"Fine."},"finish_reason":"stop"}]}\n\n'
GOOGLE = (
    b'data: {"candidates":[{"content":{"role":"model","parts":[{"text":"Fine."}]},"finishReason":"STOP"}],'
    b'"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}}\n\n'
)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def keeps_open(body: bytes, gone: asyncio.Event) -> Serve:
    """A server that says everything and does not hang up until the client does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + body)
        await writer.drain()
        while await reader.read(65536):
            pass
        gone.set()
        writer.close()

    return serve


@pytest.mark.real_time
@pytest.mark.parametrize(("provider", "body"), [("openai-chat", CHAT), ("google", GOOGLE)])
async def test_a_whole_answer_does_not_wait_for_the_end_of_the_line(provider: str, body: bytes) -> None:
    """failures.md B8: a finish reason and then silence is an answer, asked for once."""
    gone = asyncio.Event()
    server = await asyncio.start_server(keeps_open(body, gone), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        agent = Agent(
            f"{provider}:one", base_url=f"http://127.0.0.1:{port}", api_key="none", retry=Retry(max_attempts=1)
        )
        result = await asyncio.wait_for(agent.run("Go."), 30)
        assert (result.end_reason, result.text) == ("done", "Fine.")
        await asyncio.wait_for(gone.wait(), 10)
    finally:
        server.close()
        await server.wait_closed()


def replays(raw: bytes) -> Serve:
    """A server that gives a recorded response to every request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()
        writer.close()

    return serve


@pytest.mark.real_time
async def test_an_answer_of_as_many_tokens_as_allowed_was_cut_whatever_the_server_calls_it() -> None:
    """A recorded server says `completed` where it stopped at the limit."""
    raw = (FIXTURES / "llamacpp-qwen0.5b" / "responses_length.http").read_bytes()
    server = await asyncio.start_server(replays(raw), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        # What the recorded server was sent, which is less than the API it copies takes.
        settings = {"extra_body": {"max_output_tokens": 12}}
        model = get_model("openai:local", base_url=f"http://127.0.0.1:{port}", api_key="none", settings=settings)
        agent = Agent(model, max_tokens=12)
        result = await asyncio.wait_for(agent.run("Write a long story about the sea."), 30)
        last = result.messages[-1]
        assert isinstance(last, AssistantMessage)
        assert (last.stop_reason, last.raw_stop_reason) == ("length", "completed")
    finally:
        server.close()
        await server.wait_closed()


def counted(name: str, one: object, details: object = None) -> bytes:
    """A whole answer whose tokens are counted like this."""
    match name:
        case "openai":
            usage = {"prompt_tokens": one, "completion_tokens": 3, "prompt_tokens_details": details}
            choice = {"index": 0, "delta": {"content": "Fine."}, "finish_reason": "stop"}
            return sse({"choices": [choice], "usage": usage}) + sse("[DONE]")
        case "bedrock":
            usage = {"inputTokens": one, "outputTokens": 3, "cacheDetails": details}
            stop = bedrock.framed("messageStop", {"stopReason": "end_turn"})
            return bedrock.begun() + bedrock.said(0, "Fine.") + stop + bedrock.framed("metadata", {"usage": usage})
        case "google":
            usage = {"promptTokenCount": one, "candidatesTokenCount": 3, "promptTokensDetails": details}
            candidate = {"content": {"parts": [{"text": "Fine."}]}, "finishReason": "STOP"}
            return sse({"candidates": [candidate], "usageMetadata": usage})
        case "responses":
            usage = {"input_tokens": one, "output_tokens": 3, "input_tokens_details": details}
            item = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Fine."}]}
            response = {"id": "r", "status": "completed", "usage": usage, "output": [item]}
            return sse({"type": "response.completed", "response": response})
        case _:
            usage = {"input_tokens": one, "output_tokens": 3, "cache_creation": details}
            return b"".join(
                map(
                    sse,
                    (
                        {"type": "message_start", "message": {"id": "m", "usage": usage}},
                        {"type": "content_block_start", "content_block": {"type": "text", "text": "Fine."}},
                        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
                        {"type": "message_stop"},
                    ),
                )
            )


@each_row("one", [12.0, "12", 1.5, -5, None, [], "x", True, 10**30])
@each_row("name", SERVERS)
def test_an_answer_is_not_lost_over_its_bill(name: str, one: object) -> None:
    message = READINGS[name].message_of(counted(name, one))
    assert (message.text, message.stop_reason) == ("Fine.", "stop")


@each_row("details", [[], "x", {}, None])
@each_row("name", SERVERS)
def test_what_is_known_of_a_bill_is_kept(name: str, details: object) -> None:
    """Gateways in PHP write an empty list for an empty object."""
    usage = READINGS[name].message_of(counted(name, 12, details)).usage
    assert (usage.input, usage.output, usage.total) == (12, 3, 15)
