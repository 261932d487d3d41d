"""Servers that are only compatible number what others name: the numbers are taken as text, and go back as text."""

from __future__ import annotations

from typing import Any

import pytest
from tests.loop.toolbox import echo
from tests.provider.wires.bedrock import kit as bedrock
from tests.provider.wires.protocols import SERVERS
from tests.provider.wires.test_windows import last

from steersman import Agent, ToolCall
from steersman.testing.servers.exchange import sse

pytestmark = pytest.mark.real_time


def numbered(name: str) -> bytes:
    """A call with the id 7, in an answer with the id 12."""
    match name:
        case "anthropic":
            block: dict[str, Any] = {"type": "tool_use", "id": 7, "name": "echo", "input": {}}
            written = {"type": "input_json_delta", "partial_json": '{"text":"hi"}'}
            return b"".join(
                (
                    sse({"type": "message_start", "message": {"id": 12, "role": "assistant", "content": []}}),
                    sse({"type": "content_block_start", "index": 0, "content_block": block}),
                    sse({"type": "content_block_delta", "index": 0, "delta": written}),
                    sse({"type": "content_block_stop", "index": 0}),
                    sse({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
                    sse({"type": "message_stop"}),
                )
            )
        case "bedrock":
            return b"".join(
                (bedrock.begun(), bedrock.called(0, 7, "echo", '{"te', 'xt":"hi"}'), bedrock.ended("tool_use"))
            )
        case "google":
            call: dict[str, Any] = {"id": 7, "name": "echo", "args": {"text": "hi"}}
            candidate = {"content": {"parts": [{"functionCall": call}]}, "finishReason": "STOP"}
            return sse({"responseId": 12, "candidates": [candidate]})
        case "openai":
            return b"".join((*map(_chunk, ('{"te', 'xt":"hi"}')), _chunk("", "tool_calls"), sse("[DONE]")))
        case _:
            item = {"type": "function_call", "id": 3, "call_id": 7, "name": "echo", "arguments": ""}
            more = {"type": "response.function_call_arguments.delta", "item_id": 3, "delta": '{"text":"hi"}'}
            whole = {**item, "arguments": '{"text":"hi"}'}
            response = {"id": 12, "status": "completed", "output": [whole]}
            return b"".join(
                (
                    sse({"type": "response.output_item.added", "item": item}),
                    sse(more),
                    sse({"type": "response.output_item.done", "item": whole}),
                    sse({"type": "response.completed", "response": response}),
                )
            )


def _chunk(arguments: str, reason: str | None = None) -> bytes:
    call = {"index": 0, "id": 7, "function": {"name": "echo", "arguments": arguments}}
    return sse({"id": 12, "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": reason}]})


@pytest.mark.parametrize("name", SERVERS)
async def test_a_number_for_an_id_is_taken_as_its_text(name: str) -> None:
    with SERVERS[name](numbered(name), "Fine.") as server:
        agent = Agent(server.model(), tools=[echo])
        result = await agent.run("Go.")
        sent = server.raw[1].body
    first = result.messages[1]
    assert (result.end_reason, last(result).text) == ("done", "Fine.")
    assert (first.content, getattr(first, "response_id", None)) == (
        [ToolCall("7", "echo", {"text": "hi"})],
        None if name == "bedrock" else "12",
    )
    assert sent.count(b'"7"') == 2
