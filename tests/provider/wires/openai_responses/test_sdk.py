"""The same bytes, read by the official SDK and by us, give the same answer; where the SDK loses data, we do not."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import hypothesis.strategies as st
import msgspec
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel
from tests.provider.wires.openai_responses.kit import (
    RECORDED,
    begun,
    called,
    ended,
    event,
    message_of,
    read,
    said,
    thought,
)

from steersman.provider.http.client import aclose_http, http_stream
from steersman.provider.streaming.normalize import stream_events
from steersman.provider.wires.openai_responses.encode import CUSTOM
from steersman.provider.wires.openai_responses.wire import WIRE
from steersman.testing import answer, call, text, thinking
from steersman.testing.servers import OpenAIResponsesServer, Received, Reply
from steersman.tools.tool import Tool
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Request, StreamOptions
from steersman.types.stream import Done, Failed
from steersman.types.usage import Usage

pytestmark = pytest.mark.real_time

SQL = Tool("sql", "Run a query.", {"type": "object"}, lambda: "")


@asynccontextmanager
async def playing(*script: Any, strict: bool = False) -> AsyncGenerator[tuple[OpenAIResponsesServer, AsyncOpenAI]]:
    """A server that plays the script, and the SDK's client for it."""
    async with (
        OpenAIResponsesServer(*script, strict=strict) as server,
        AsyncOpenAI(base_url=server.url, api_key="test-key", max_retries=0) as client,
    ):
        yield server, client


async def events_by_sdk(client: AsyncOpenAI) -> list[Any]:
    """What the SDK gives to a loop over a stream."""
    return [event async for event in await client.responses.create(model="gpt-5", input="Hi", stream=True)]


async def by_sdk(client: AsyncOpenAI) -> Response:
    """The response that the SDK's own accumulation ends with."""
    last: Any = None
    async with client.responses.stream(model="gpt-5", input="Hi") as stream:
        async for event in stream:
            last = event
    return last.response


async def by_us(server: OpenAIResponsesServer) -> Done | Failed:
    """The end of the same stream, read by us."""
    stream_fn, request = http_stream(WIRE), Request("", [user_message("Hi")], [SQL])
    last = [event async for event in stream_events(stream_fn, server.model("gpt-5"), request, StreamOptions())][-1]
    assert isinstance(last, Done | Failed)
    return last


def sdk_blocks(response: Response) -> list[Any]:
    """What the SDK says there is in a response, as plainly as can be."""
    blocks: list[Any] = []
    for item in response.output:
        if item.type == "message":
            for part in item.content:
                words = part.text if part.type == "output_text" else part.refusal
                if words:
                    blocks.append(("text", words, item.phase))
        elif item.type == "reasoning":
            words = "\n\n".join(part.text for part in item.summary if part.text)
            if words or item.encrypted_content:
                blocks.append(("thinking", words, item.encrypted_content))
        elif item.type == "function_call":
            blocks.append(("call", item.call_id, item.name, parsed(item.arguments)))
        elif item.type == "custom_tool_call":
            blocks.append(("call", item.call_id, item.name, {"input": item.input}))
    return blocks


def our_blocks(message: AssistantMessage) -> list[Any]:
    """The same of our message."""
    blocks: list[Any] = []
    for block in message.content:
        # An item that overlaps with others and stays empty keeps its place among them.
        if isinstance(block, TextContent):
            blocks += [("text", block.text, block.signature)] if block.text else []
        elif isinstance(block, ThinkingContent):
            encrypted = None if block.signature is None else json.loads(block.signature)["encrypted_content"]
            blocks.append(("thinking", block.thinking, encrypted))
        elif isinstance(block, ToolCall):
            arguments = block.arguments if block.raw_arguments is None else parsed(block.raw_arguments)
            blocks.append(("call", block.id, block.name, arguments))
    return blocks


def parsed(arguments: str) -> Any:
    """Arguments as JSON, or as they were written where they are none."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def assert_same(response: Response, message: AssistantMessage) -> None:
    """The same content, usage, id and reason."""
    assert our_blocks(message) == sdk_blocks(response)
    assert message.response_id == response.id
    usage, ours = response.usage, message.usage
    assert usage is not None
    counted = (usage.input_tokens, usage.output_tokens, usage.total_tokens)
    assert ((ours.input or 0) + (ours.cache_read or 0) + (ours.cache_write or 0), ours.output, ours.total) == counted
    # Not every server says more about them than the kit's streams do, and llama.cpp says nothing about the output.
    if getattr(usage, "input_tokens_details", None) is not None:
        assert ours.cache_read == usage.input_tokens_details.cached_tokens
    if getattr(usage, "output_tokens_details", None) is not None:
        assert ours.reasoning == usage.output_tokens_details.reasoning_tokens
    details = response.incomplete_details
    assert message.raw_stop_reason == (response.status if details is None else details.reason)


@pytest.mark.parametrize(
    "stream", [pytest.param(path.read_bytes(), id=f"{path.parent.name}/{path.stem}") for path in RECORDED]
)
async def test_a_recorded_stream_gives_what_the_sdk_gives(stream: bytes) -> None:
    """The SDK's accumulation cannot read llama.cpp's streams, which have no indexes; its last event says it all."""
    async with playing(stream, stream, stream) as (server, client):
        response = (await events_by_sdk(client))[-1].response
        ours = await by_us(server)
        assert isinstance(ours, Done)
        assert_same(response, ours.message)
        if b"output_text.delta" in stream:
            with pytest.raises(TypeError, match="list indices must be integers"):
                await by_sdk(client)
        await aclose_http()


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = st.sampled_from(["add", "read_file", "x-1"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3)
PHASES = st.sampled_from([None, "commentary", "final_answer"])
SUMMARIES = st.lists(WORDS.filter(lambda words: "\n\n" not in words), max_size=3)
CUSTOM_CALLS = st.builds(
    ToolCall, st.just(""), st.just("sql"), st.fixed_dictionaries({"input": WORDS}), signature=st.just(CUSTOM)
)
BLOCKS: st.SearchStrategy[list[Any]] = st.lists(
    st.builds(text, WORDS, signature=PHASES)
    | st.builds(thinking, SUMMARIES.map("\n\n".join))
    | st.builds(call, NAMES, ARGUMENTS)
    | st.builds(call, NAMES, raw=WORDS)
    | CUSTOM_CALLS,
    max_size=5,
)
COUNTS = st.integers(0, 10_000)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
REASONS: st.SearchStrategy[tuple[Any, str | None]] = st.sampled_from(
    [(None, None), (None, None), ("length", None), ("refusal", None), ("refusal", "content_filter")]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A whole stream as the strict server plays it."""
    blocks = [
        msgspec.structs.replace(block, id=f"call_{number}") if isinstance(block, ToolCall) else block
        for number, block in enumerate(draw(BLOCKS))
    ]
    reason, raw = draw(REASONS)
    turn = answer(*blocks, deltas=draw(st.integers(1, 5)), stop_reason=reason, raw_stop_reason=raw, usage=draw(USAGES))
    return b"".join(
        OpenAIResponsesServer().render_stream(turn, Received("POST", "/v1/responses", {}, {}, {}, b"", {}, 1))
    )


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams())
async def test_a_generated_stream_gives_what_the_sdk_gives(stream: bytes) -> None:
    async with playing(stream, stream) as (server, client):
        response = await by_sdk(client)
        ours = await by_us(server)
        assert isinstance(ours, Done)
        assert_same(response, ours.message)
        await aclose_http()


def item(kind: str, index: int, data: st.DataObject) -> tuple[bytes, bytes, bytes, list[bytes]]:
    """An item of the kind: its opening, its end, its whole, and its deltas, which may come whenever it is open."""
    pieces = data.draw(st.lists(WORDS, max_size=3))
    makers: dict[str, Any] = {
        "text": lambda: said(index, *pieces),
        "thinking": lambda: thought(index, *pieces),
        "call": lambda: called(index, f"call_{index}", "add", json.dumps({"words": pieces})),
    }
    whole = makers[kind]()
    first, *deltas, last = whole.removesuffix(b"\n\n").split(b"\n\n")
    return first + b"\n\n", last + b"\n\n", whole, [delta + b"\n\n" for delta in deltas]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
async def test_items_that_overlap_give_what_the_sdk_gives(data: st.DataObject) -> None:
    """failures.md C1, with what is unknown in between, and with indexes that leave some out."""
    kinds = data.draw(st.lists(st.sampled_from(["text", "thinking", "call"]), min_size=1, max_size=4))
    gap = data.draw(st.integers(0, 2))
    items = [item(kind, number + gap, data) for number, kind in enumerate(kinds)]
    stream = begun()
    for opening, _, _, _ in items:
        stream += opening
    part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
    for number, kind in enumerate(kinds):
        if kind == "text":
            at = {"item_id": f"msg_{number + gap}", "output_index": number + gap, "content_index": 0}
            stream += event("response.content_part.added", **at, part=part)
    queues = [list(deltas) for _, _, _, deltas in items]
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        stream += queue.pop(0)
        if data.draw(st.booleans()):
            stream += event("response.web_search_call.searching", item_id="x", output_index=90)
    for number in data.draw(st.permutations(range(len(items)))):
        stream += items[number][1]
    stream += ended(output=None)
    message_of(stream)  # whose blocks are where the events say
    async with playing(stream, stream) as (server, client):
        response = await by_sdk(client)
        ours = await by_us(server)
        assert isinstance(ours, Done)
        assert_same(response, ours.message)
        await aclose_http()


# Where we must differ


async def test_an_early_end_is_no_success_for_us() -> None:
    stream = begun() + said(0, "Hello")
    async with playing(stream, stream) as (server, client):
        assert (await events_by_sdk(client))[
            -1
        ].type == "response.output_item.done"  # and nothing tells that it was cut
        ours = await by_us(server)
        assert isinstance(ours, Failed)
        assert ours.error is not None
        assert (ours.error.kind, ours.message.text) == ("incomplete", "Hello")
        await aclose_http()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(200, {"error": {"message": "Slow down", "code": 429}}), "rate_limit"),
        (Reply(200, "<html>Sign in</html>", {"content-type": "text/html"}), "protocol"),
    ],
)
async def test_what_is_no_stream_is_an_error_for_us(reply: Reply, kind: str) -> None:
    """failures.md B10: the SDK gives no events, and no error."""
    async with playing(reply, reply) as (server, client):
        assert await events_by_sdk(client) == []
        ours = await by_us(server)
        assert isinstance(ours, Failed)
        assert ours.error is not None
        assert ours.error.kind == kind
        await aclose_http()


async def test_an_error_event_is_an_error_for_us() -> None:
    """failures.md B11: the SDK gives an event like any other."""
    stream = begun() + event("error", code="server_error", message="Oops", param=None, sequence_number=2)
    async with playing(stream, stream) as (server, client):
        assert (await events_by_sdk(client))[-1].type == "error"
        ours = await by_us(server)
        assert isinstance(ours, Failed)
        assert ours.error is not None
        assert (ours.error.kind, ours.error.should_retry) == ("overloaded", True)
        await aclose_http()


async def test_a_failed_response_is_an_error_for_us() -> None:
    stream = begun() + ended("failed", error={"code": "server_error", "message": "Oops"})
    async with playing(stream, stream) as (server, client):
        assert (await events_by_sdk(client))[-1].type == "response.failed"
        assert isinstance(await by_us(server), Failed)
        await aclose_http()


async def test_an_invalid_byte_is_replaced_by_us() -> None:
    """failures.md B22."""
    stream = (begun() + said(0, "a?b") + ended()).replace(b"a?b", b"a\xffb")
    async with playing(stream, stream) as (server, client):
        with pytest.raises(UnicodeDecodeError):
            await events_by_sdk(client)
        assert (await by_us(server)).message.text == "a\ufffdb"
        await aclose_http()


async def test_what_is_no_json_is_a_typed_error_for_us() -> None:
    """failures.md B13."""
    stream = begun() + b"data: nonsense\n\n" + ended()
    async with playing(stream, stream) as (server, client):
        with pytest.raises(json.JSONDecodeError):
            await events_by_sdk(client)
        ours = await by_us(server)
        assert isinstance(ours, Failed)
        assert ours.error is not None
        assert ours.error.kind == "protocol"
        await aclose_http()


async def test_a_mark_before_the_first_event_costs_us_nothing() -> None:
    stream = b"\xef\xbb\xbf" + begun() + said(0, "Hello") + ended()
    async with playing(stream, stream) as (server, client):
        await events_by_sdk(client)
        assert (await by_us(server)).message.text == "Hello"
        assert read(stream)[1] == read(stream[3:])[1]
        await aclose_http()


async def test_a_last_event_without_its_blank_line_counts_for_us() -> None:
    """failures.md B9."""
    stream = (begun() + said(0, "Hello") + ended()).removesuffix(b"\n\n")
    async with playing(stream, stream) as (server, client):
        assert (await events_by_sdk(client))[-1].type == "response.output_item.done"
        assert isinstance(await by_us(server), Done)
        await aclose_http()


# What the SDK sends

ADD = {
    "type": "function",
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.mark.parametrize("store", [False, True])
async def test_a_conversation_of_the_sdk_is_taken_by_the_strict_server(store: bool) -> None:
    words = text("Let me add.", signature="commentary")
    script = (
        answer(thinking("I see.\n\nAdd."), words, call("add", a=1, b=2), call("add", a=3, b=4)),
        answer(thinking(""), "3 and 7."),
        "You are welcome.",
    )
    image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}
    sent: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "Add these."}, image]}]
    response: Any = None
    async with playing(*script, strict=True) as (server, client):
        for _ in range(3):
            async with client.responses.stream(
                model="gpt-5",
                instructions="Be brief.",
                input=sent,
                tools=[ADD],  # pyright: ignore[reportArgumentType]
                reasoning={"effort": "low", "summary": "auto"},
                include=["reasoning.encrypted_content"],
                store=store,
            ) as stream:
                response = await stream.get_final_response()
            # As its documentation says: what came goes back; but its empty `status` is refused, so it is left out.
            sent += [item.to_dict(exclude_none=True, mode="json") for item in response.output]
            for made in sent:
                made.pop("parsed_arguments", None)
            sent += [
                {"type": "function_call_output", "call_id": item.call_id, "output": "7"}
                for item in response.output
                if item.type == "function_call"
            ]
            if not any(item.type == "function_call" for item in response.output):
                sent.append({"role": "user", "content": "Thanks!"})
        assert response.output_text == "You are welcome."
        assert len(server.requests) == 3


async def test_a_schema_of_the_sdk_is_taken_by_the_strict_server() -> None:
    class City(BaseModel):
        name: str
        people: int

    async with playing('{"name": "Oslo", "people": 700000}', strict=True) as (_, client):
        async with client.responses.stream(model="gpt-5", input="A city?", text_format=City) as stream:
            response = await stream.get_final_response()
        assert response.output_parsed == City(name="Oslo", people=700_000)


async def test_the_sdk_is_refused_as_it_would_be() -> None:
    async with playing("Hi", strict=True) as (_, client):
        with pytest.raises(openai.BadRequestError, match="No tool call found for function call output with call_id x"):
            await client.responses.create(
                model="gpt-5", input=[{"type": "function_call_output", "call_id": "x", "output": "1"}], stream=True
            )
        with pytest.raises(openai.AuthenticationError, match="Incorrect API key provided"):
            await client.with_options(api_key="wrong-key").responses.create(model="gpt-5", input="Hi", stream=True)
