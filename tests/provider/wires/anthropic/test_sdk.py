"""The same bytes read by Anthropic's own client and by ours, and requests of both judged by the strict server.

Where the two have to differ, because the client loses something, the test says so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx2
import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
from tests.provider.wires.anthropic.kit import (
    RECORDED,
    begun,
    called,
    delta,
    ended,
    event,
    message_of,
    read,
    said,
    start,
    stop,
)
from tests.provider.wires.test_decode import RICH as ANSWERS
from tests.rows import each_row

from steersman import Agent, tool
from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.testing import answer, call, thinking
from steersman.testing.servers import AnthropicServer
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import IncompleteStreamError, OverloadedError
from steersman.types.messages import AssistantMessage, UserMessage

if TYPE_CHECKING:
    import anthropic

PNG = "iVBORw0KGgo="
RICH = ANSWERS["anthropic"]
CLAUDE = "claude-sample-4-5"  # of no real model, which may be deprecated tomorrow


class Bytes(httpx2.BaseTransport):
    """A transport that answers every request with the same bytes."""

    def __init__(self) -> None:
        self.body = b""
        self.kind = "text/event-stream"

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": self.kind}, content=self.body)


TRANSPORT = Bytes()


@functools.cache
def their_client() -> anthropic.Anthropic:
    """Anthropic's client of that transport."""
    # The SDK takes long to import: only the process that asks it does.
    import anthropic

    return anthropic.Anthropic(api_key="k", max_retries=0, http_client=httpx2.Client(transport=TRANSPORT))


def theirs(stream: bytes, kind: str = "text/event-stream") -> Any:
    """The message that Anthropic's client makes of the stream; raises as it does."""
    TRANSPORT.body, TRANSPORT.kind = stream, kind
    with their_client().messages.stream(
        model=CLAUDE, max_tokens=10, messages=[{"role": "user", "content": "Hi"}]
    ) as events:
        return events.get_final_message()


def their_events(stream: bytes, kind: str = "text/event-stream") -> int:
    """How many events Anthropic's client gives of the stream, without an error."""
    TRANSPORT.body, TRANSPORT.kind = stream, kind
    with their_client().messages.create(
        model=CLAUDE, max_tokens=10, messages=[{"role": "user", "content": "Hi"}], stream=True
    ) as events:
        return len(list(events))


def their_form(message: Any) -> dict[str, Any]:
    usage = message.usage
    return {
        "id": message.id,
        "stop_reason": message.stop_reason,
        "content": [_block(block.to_dict()) for block in message.content],
        "usage": [
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_input_tokens,
            usage.cache_creation_input_tokens,
            usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else None,
        ],
    }


def our_form(message: AssistantMessage) -> dict[str, Any]:
    usage = message.usage
    return {
        "id": message.response_id,
        "stop_reason": message.raw_stop_reason,
        "content": [_ours(block) for block in message.content],
        "usage": [usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning],
    }


def _block(block: dict[str, Any]) -> dict[str, Any]:
    kept = {
        "text": ("type", "text"),
        "thinking": ("type", "thinking", "signature"),
        "redacted_thinking": ("type", "data"),
        "tool_use": ("type", "id", "name", "input"),
    }.get(block["type"], tuple(block))
    return {name: block[name] or None if name == "signature" else block[name] for name in kept if name in block}


def _ours(block: Content) -> dict[str, Any]:
    match block:
        case TextContent():
            return {"type": "text", "text": block.text}
        case ThinkingContent(field=str() as field):
            assert field == OPAQUE
            return msgspec.json.decode(block.signature or "")
        case ThinkingContent(redacted=True):
            return {"type": "redacted_thinking", "data": block.signature}
        case ThinkingContent():
            return {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
        case ToolCall():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
        case _:
            raise TypeError(block)


def same(stream: bytes) -> bool:
    ours, theirs_ = our_form(message_of(stream)), their_form(theirs(stream))
    assert ours == theirs_
    return ours == theirs_


@each_row(
    "path",
    [path for path in RECORDED if "tool_use_max_tokens" not in path.stem],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_a_recorded_answer_is_read_alike(path: Path) -> None:
    """A call without arguments comes from this server without `input`; the client then has none, and we have {}."""
    stream = path.read_bytes().replace(b'"name":"current_time"}', b'"name":"current_time","input":{}}')
    assert same(stream)


def test_a_rich_answer_is_read_alike() -> None:
    assert same(RICH)


texts = st.text(max_size=30)
names = st.text("abcdefghijklmnopqrstuvwxyz_-0123456789", min_size=1, max_size=12)
numbers = st.integers(0, 10**6)
objects = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e300, 1e300) | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


@st.composite
def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """The text, cut anywhere, empty pieces included."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def block_events(draw: st.DrawFn, index: int) -> list[bytes]:
    kind = draw(st.sampled_from(["text", "thinking", "redacted", "call", "server", "unknown"]))
    match kind:
        case "text":
            parts = [delta(index, "text_delta", text=piece) for piece in draw(pieces(draw(texts)))]
            return [start(index, "text", text=draw(st.sampled_from(["", "a"]))), *parts, stop(index)]
        case "thinking":
            parts = [delta(index, "thinking_delta", thinking=piece) for piece in draw(pieces(draw(texts)))]
            signed = [delta(index, "signature_delta", signature=draw(names)) for _ in range(draw(st.integers(0, 2)))]
            return [start(index, "thinking", thinking="", signature=""), *parts, *signed, stop(index)]
        case "redacted":
            return [start(index, "redacted_thinking", data=draw(names)), stop(index)]
        case "unknown":
            return [start(index, "new_thing", payload=draw(objects)), stop(index)]
        case _:
            written = msgspec.json.encode(draw(objects)).decode()
            parts = [delta(index, "input_json_delta", partial_json=piece) for piece in draw(pieces(written))]
            if kind == "server":
                head = start(index, "server_tool_use", id=f"srv_{index}", name="web_search", input={})
            else:
                head = start(index, "tool_use", id=f"toolu_{index}", name=draw(names), input={})
            return [head, *parts, stop(index)]


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    blocks = [draw(block_events(index)) for index in range(draw(st.integers(0, 4)))]
    events: list[bytes] = [block.pop(0) for block in blocks] if draw(st.booleans()) else []
    if events:  # every block begins before any of them goes on
        while waiting := [block for block in blocks if block]:
            events.append(draw(st.sampled_from(waiting)).pop(0))
    else:
        events = [one for block in blocks for one in block]
    noise = st.sampled_from([b"", b"", event("ping"), b": comment\n\n", event("new_event", x=1)])
    first: dict[str, Any] = {"input_tokens": draw(numbers), "output_tokens": draw(numbers)}
    last: dict[str, Any] = {}
    for counts in (first, last):
        for name in ("cache_read_input_tokens", "cache_creation_input_tokens"):
            if draw(st.booleans()):
                counts[name] = draw(st.none() | numbers)
    if draw(st.booleans()):
        last["input_tokens"] = draw(numbers)
        last["output_tokens_details"] = {"thinking_tokens": draw(numbers)}
    reason = draw(st.sampled_from(["end_turn", "stop_sequence", "tool_use", "pause_turn", "refusal"]))
    middle = b"".join(one + draw(noise) for one in events)
    return begun(**first) + middle + ended(reason, output=draw(numbers), usage=last)


@hypothesis.given(streams())
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.too_slow])
def test_any_answer_is_read_alike(stream: bytes) -> None:
    assert same(stream)


@hypothesis.given(streams(), st.integers(1, 64))
def test_any_answer_is_read_the_same_however_it_is_cut(stream: bytes, size: int) -> None:
    cut = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert read(cut) == read(stream)


def test_a_cut_call_is_guessed_at_by_the_client_and_kept_as_written_by_us() -> None:
    """failures.md C9: "truncated" can be another valid command."""
    stream = begun() + called(0, "t", "rm", '{"paths": ["/tmp/a", "/tm') + ended("max_tokens")
    assert theirs(stream).content[0].input == {"paths": ["/tmp/a"]}
    assert message_of(stream).tool_calls[0].raw_arguments == '{"paths": ["/tmp/a", "/tm'


def test_arguments_that_are_no_json_make_the_client_raise_and_are_kept_by_us() -> None:
    """failures.md C12."""
    stream = begun() + called(0, "t", "rm", '{"a": oops}') + ended("tool_use")
    with pytest.raises(ValueError, match="Unable to parse tool parameter JSON"):
        theirs(stream)
    assert message_of(stream).tool_calls[0].raw_arguments == '{"a": oops}'


def test_events_without_names_are_dropped_by_the_client_and_read_by_us() -> None:
    """failures.md B21."""
    nameless = b"".join(line + b"\n" for line in RICH.split(b"\n") if not line.startswith(b"event:"))
    assert their_events(nameless) == 0
    assert message_of(nameless) == message_of(RICH)


def test_a_cut_stream_is_a_success_to_the_client_and_an_error_to_us() -> None:
    stream = RICH[: RICH.index(b"event: message_delta")]
    assert theirs(stream).stop_reason is None
    with pytest.raises(IncompleteStreamError):
        read(stream)


def test_a_byte_order_mark_costs_the_client_the_first_event_and_us_nothing() -> None:
    with pytest.raises((RuntimeError, AssertionError)):
        theirs(b"\xef\xbb\xbf" + RICH)
    assert message_of(b"\xef\xbb\xbf" + RICH) == message_of(RICH)


def test_a_bad_byte_stops_the_client_and_is_replaced_by_us() -> None:
    """failures.md B22."""
    stream = (begun() + said(0, "a?b") + ended()).replace(b"a?b", b"a\xffb")
    with pytest.raises(UnicodeDecodeError):
        theirs(stream)
    assert message_of(stream).text == "a\ufffdb"


def test_an_error_inside_a_200_is_nothing_to_the_client_and_an_error_to_us() -> None:
    """failures.md B10; tests over sockets show that ours is raised."""
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    assert their_events(body, "application/json") == 0
    assert their_events(b"<html></html>", "text/html") == 0


def test_an_error_event_is_an_error_to_both() -> None:
    """failures.md B11: the client's has the status 200; ours has the kind that retry acts on."""
    import anthropic

    stream = begun() + event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    with pytest.raises(anthropic.APIStatusError) as caught:
        theirs(stream)
    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")
    with pytest.raises(OverloadedError):
        read(stream)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SCRIPT: list[Any] = [
    answer(thinking("Two numbers."), "Let me add.", call("add", a=2, b=3), call("add", a=4, b=5)),
    answer("5 and 9."),
]


def plain(value: Any) -> Any:
    """A body without cache marks, and with every content as a list of blocks."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if name != "cache_control"}  # pyright: ignore[reportUnknownVariableType]
    return [plain(item) for item in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def their_conversation(url: str) -> Iterator[str]:
    """What a program written with Anthropic's client says in the same conversation."""
    import anthropic

    picture: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Add these."}, picture]}]
    asked: dict[str, Any] = {
        "model": CLAUDE,
        "max_tokens": 32_000,
        "system": [{"type": "text", "text": "Be brief."}],
        "thinking": {"type": "enabled", "budget_tokens": 4096},
        "tools": [{"name": "add", "description": "Add two numbers.", "input_schema": add.parameters}],
    }
    with anthropic.Anthropic(base_url=url, api_key="test-key", max_retries=0) as client:
        while True:
            with client.messages.stream(messages=messages, **asked) as stream:
                message = stream.get_final_message()
            if message.stop_reason != "tool_use":
                yield "".join(block.text for block in message.content if block.type == "text")
                return
            content = [_block(block.to_dict()) for block in message.content]
            messages.append({"role": "assistant", "content": content})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": [{"type": "text", "text": str(add(**cast(Any, block.input)))}],
                }
                for block in message.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results})


@pytest.mark.real_time
async def test_the_same_conversation_is_sent_alike_and_both_are_taken() -> None:
    async with AnthropicServer(*SCRIPT) as ours:
        agent = Agent(ours.model(CLAUDE), tools=[add], system_prompt="Be brief.", thinking_level="low")
        result = await agent.run(UserMessage([TextContent("Add these."), ImageContent(PNG)]))
    with AnthropicServer(*SCRIPT) as theirs_:
        said_ = list(their_conversation(theirs_.url))
    assert ([result.text], len(ours.requests)) == (said_, 2)
    assert [plain(body) for body in ours.requests] == [plain(body) for body in theirs_.requests]
    assert theirs_.raw[0].headers["anthropic-version"] != ours.raw[0].headers["anthropic-version"]
