"""The same bytes, read by us and by the official SDK, and the same conversation, written by both.

Where the two differ, the SDK loses something: each such case has a test that says what.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState
from tests.provider.wires.openai_chat.chat import (
    DONE,
    RECORDED,
    answer_of,
    calls,
    chunk,
    counted,
    piece,
    read,
    said,
    told,
)
from tests.provider.wires.openai_chat.test_recorded import shown

from steersman import Agent, tool
from steersman.provider.http.client import http_stream
from steersman.provider.wires.openai_chat.wire import WIRE
from steersman.testing import answer, call, text
from steersman.testing.servers import OpenAIChatServer, Reply
from steersman.testing.servers.exchange import sse
from steersman.types.content import ThinkingContent
from steersman.types.errors import ContextOverflowError, IncompleteStreamError, ProviderError
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Request, StreamOptions
from steersman.types.stream import StreamEvent
from steersman.types.usage import Usage

HELLO = said("Hel", "lo.")
STOP = chunk(None, "stop")


class Sdk:
    """The SDK in front of a server that sends any bytes."""

    def __init__(self, server: OpenAIChatServer, client: OpenAI) -> None:
        self._server = server
        self._client = client

    def chunks(self, stream: bytes | Reply) -> list[Any]:
        """The chunks it gives for a stream, before anything is made of them."""
        self._server.say(stream)
        return list(
            self._client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi."}], stream=True)
        )

    def reads(self, stream: bytes) -> Any:
        """What it makes of a stream: its completion, or what it raised."""
        state: Any = ChatCompletionStreamState()
        try:
            for part in self.chunks(stream):
                state.handle_chunk(part)
        except Exception as error:  # noqa: BLE001  # what it raises is what is compared
            return error
        return state.current_completion_snapshot


@pytest.fixture(scope="module")
def sdk() -> Iterator[Sdk]:
    with (
        OpenAIChatServer(strict=False) as server,
        OpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
    ):
        yield Sdk(server, client)


def theirs(completion: Any) -> dict[str, Any]:
    """The SDK's answer, as what both have in common."""
    choice = completion.choices[0]
    message = choice.message
    usage = completion.usage
    return {
        "id": completion.id,
        "text": (message.content or "") + (message.refusal or ""),
        "thinking": getattr(message, "reasoning_content", None) or "",
        "calls": [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()],
        "reason": choice.finish_reason,
        "usage": None if usage is None else (usage.prompt_tokens, usage.completion_tokens),
    }


def ours(message: AssistantMessage, arguments: list[str]) -> dict[str, Any]:
    """Our answer in the same form; `arguments` are the texts in which the arguments came."""
    usage = message.usage
    return {
        "id": message.response_id,
        "text": message.text,
        "thinking": "".join(block.thinking for block in message.content if isinstance(block, ThinkingContent)),
        "calls": [(call.id, call.name, given) for call, given in zip(message.tool_calls, arguments, strict=True)],
        "reason": message.raw_stop_reason,
        "usage": None if not usage.known else ((usage.input or 0) + (usage.cache_read or 0), usage.output),
    }


def agree(completion: Any, message: AssistantMessage) -> None:
    """Both read the same answer, and the arguments mean what their text says."""
    known = theirs(completion)
    assert ours(message, [arguments for _, _, arguments in known["calls"]]) == known
    for made, (_, _, arguments) in zip(message.tool_calls, known["calls"], strict=True):
        if message.raw_stop_reason == "length" and not arguments and made is message.tool_calls[-1]:
            # Here we must differ: cut before its first argument, a call without arguments may be one that lost them.
            assert made.raw_arguments == ""
            continue
        try:
            value = json.loads(arguments or "{}")
        except ValueError:
            value = None
        if isinstance(value, dict):
            assert (made.arguments, made.raw_arguments) == (value, None)
        else:
            assert told(made) == arguments


def test_recorded_streams_are_read_alike(sdk: Sdk) -> None:
    for path in RECORDED:
        completion = sdk.reads(path.read_bytes())
        assert not isinstance(completion, Exception), shown(path)
        agree(completion, answer_of(path.read_bytes(), "count_lines", "current_time"))


words = st.text(st.characters(codec="utf-8"), max_size=8)
names = st.sampled_from(["search", "read_file", "time"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
arguments = st.dictionaries(words, values, max_size=3).map(json.dumps) | st.sampled_from(
    ["", "{}", '{"cut": "he', "[1]"]
)


@st.composite
def cut_up(draw: st.DrawFn, text: str) -> list[str]:
    """A text in pieces, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A stream as the API may send it: a role, thinking, text, interleaved calls, an end, and usage."""
    parts = [chunk({"role": "assistant", "content": draw(st.sampled_from(["", None]))})]
    parts += [said(word, field="reasoning_content") for word in draw(st.lists(words, max_size=3))]
    parts += [said(word) for word in draw(st.lists(words, max_size=4))]
    number = draw(st.integers(0, 3))
    if number:
        entries = [[piece(index, f"call_{index}", draw(names), "")] for index in range(number)]
        for index in range(number):
            entries[index] += [piece(index, args=part) for part in draw(cut_up(draw(arguments)))]
        firsts = [entry[0] for entry in entries]
        parts += [calls(first) for first in firsts] if draw(st.booleans()) else [calls(*firsts)]
        rest = [entry[1:] for entry in entries]
        while any(rest):
            index = draw(st.sampled_from([index for index in range(number) if rest[index]]))
            parts.append(calls(rest[index].pop(0)))
    parts.append(
        chunk(
            None,
            draw(
                st.sampled_from(["tool_calls", "length", "stop"])
                if number
                else st.sampled_from(["stop", "length", "content_filter"])
            ),
        )
    )
    if draw(st.booleans()):
        parts.append(
            counted(prompt_tokens=draw(st.integers(0, 99)), completion_tokens=draw(st.integers(0, 99)), total_tokens=1)
        )
    return b"".join((*parts, DONE))


@given(stream=streams())
def test_any_stream_of_the_api_is_read_alike(sdk: Sdk, stream: bytes) -> None:
    completion = sdk.reads(stream)
    assert not isinstance(completion, Exception), completion
    agree(completion, answer_of(stream, "search", "read_file", "time"))


def test_a_refusal_is_read_alike(sdk: Sdk) -> None:
    stream = said("I can", "not.", field="refusal") + STOP + DONE
    completion = sdk.reads(stream)
    message = answer_of(stream)
    agree(completion, message)
    assert message.stop_reason == "refusal"


def test_an_error_inside_a_stream_is_one_to_both(sdk: Sdk) -> None:
    stream = HELLO + sse({"error": {"message": "too long", "code": "context_length_exceeded"}})
    failure = sdk.reads(stream)
    assert isinstance(failure, openai.APIError)
    with pytest.raises(ContextOverflowError, match="too long"):
        read(stream)


def test_the_sdk_takes_a_stream_that_was_cut_for_a_whole_one(sdk: Sdk) -> None:
    """wire.md: EOF before the terminal event is a silent success there, and incomplete here."""
    completion = sdk.reads(HELLO)
    assert completion.choices[0].finish_reason is None
    with pytest.raises(IncompleteStreamError):
        read(HELLO)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, {"error": {"message": "slow down", "code": 429}}),
        Reply(200, b"<html>Log in</html>", {"content-type": "text/html"}),
    ],
    ids=["json", "html"],
)
def test_the_sdk_gives_nothing_for_an_error_inside_a_200(sdk: Sdk, reply: Reply) -> None:
    """wire.md: no chunk and no error there; failures.md B10."""
    assert sdk.chunks(reply) == []
    with OpenAIChatServer(reply, strict=False) as server, pytest.raises(ProviderError):
        asyncio.run(_asked(server))


async def _asked(server: OpenAIChatServer) -> list[StreamEvent]:
    stream = http_stream(WIRE)(server.model(), Request("", [user_message("Hi.")]), StreamOptions())
    return [event async for event in cast(AsyncIterator[StreamEvent], stream)]


Difference = tuple[bytes, Callable[[Any], bool], Callable[[AssistantMessage], bool]]
DIFFERENCES: dict[str, Difference] = {
    "a byte-order mark": (
        b"\xef\xbb\xbf" + said("Hel") + said("lo.") + STOP + DONE,
        lambda completion: isinstance(completion, Exception) or completion.choices[0].message.content == "lo.",
        lambda message: message.text == "Hello.",
    ),
    "an invalid byte": (
        said("Hel").replace(b"Hel", b"H\xffl") + STOP + DONE,
        lambda completion: isinstance(completion, UnicodeDecodeError),
        lambda message: message.text == "H\ufffdl",
    ),
    "a comment sent as data": (
        HELLO + b"data: : OPENROUTER PROCESSING\n\n" + STOP + DONE,
        lambda completion: isinstance(completion, json.JSONDecodeError),
        lambda message: message.text == "Hello.",
    ),
    "calls without a number": (
        calls(piece(id="c1", name="time", args="{}"))
        + calls(piece(id="c2", name="time", args="{}"))
        + chunk(None, "tool_calls")
        + DONE,
        lambda completion: isinstance(completion, Exception) or len(completion.choices[0].message.tool_calls) != 2,
        lambda message: [call.id for call in message.tool_calls] == ["c1", "c2"],
    ),
    "calls that are all numbered 0": (
        calls(piece(0, "c1", "time", "{}")) + calls(piece(0, "c2", "time", "{}")) + chunk(None, "tool_calls") + DONE,
        lambda completion: completion.choices[0].message.tool_calls[0].function.name == "timetime",
        lambda message: [call.id for call in message.tool_calls] == ["c1", "c2"],
    ),
    "a name in every piece": (
        calls(piece(0, "c1", "time", "")) + calls(piece(0, None, "time", "{}")) + chunk(None, "tool_calls") + DONE,
        lambda completion: completion.choices[0].message.tool_calls[0].function.name == "timetime",
        lambda message: [call.name for call in message.tool_calls] == ["time"],
    ),
    "choices that are null": (
        sse({"id": "x", "choices": None}) + HELLO + STOP + DONE,
        lambda completion: isinstance(completion, TypeError),
        lambda message: message.text == "Hello.",
    ),
    "halves of a surrogate pair": (
        b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
        b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"\\ude42"}}]}\n\n' + STOP + DONE,
        lambda completion: isinstance(completion, Exception) or completion.choices[0].message.content != "🙂",
        lambda message: message.text == "🙂",
    ),
    "usage in every chunk": (
        chunk({"content": "a"}, usage={"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6})
        + chunk({"content": "b"}, "stop", usage={"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7})
        + chunk({}, "stop", usage=None)
        + DONE,
        lambda completion: completion.usage is None,
        lambda message: message.usage == Usage(5, 2),
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_sdk_loses_something_that_is_kept_here(sdk: Sdk, name: str) -> None:
    """wire.md 3.0 and failures.md B3, B19, B22, C2, C5, C18."""
    stream, lost, kept = DIFFERENCES[name]
    completion = sdk.reads(stream)
    assert lost(completion), completion
    assert kept(answer_of(stream, "time"))


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def sdk_talks(client: OpenAI) -> str:
    """A conversation with a tool, written by hand on the SDK."""
    function = {"name": add.name, "description": add.description, "parameters": add.parameters}
    offered: Any = [{"type": "function", "function": function}]
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 3?"}]
    while True:
        state: Any = ChatCompletionStreamState()
        for part in client.chat.completions.create(
            model="test-model", messages=messages, tools=offered, stream=True, stream_options={"include_usage": True}
        ):
            state.handle_chunk(part)
        message = state.current_completion_snapshot.choices[0].message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed": True}))
        if not message.tool_calls:
            return message.content
        for asked in message.tool_calls:
            result = add(**json.loads(asked.function.arguments))
            messages.append({"role": "tool", "tool_call_id": asked.id, "content": str(result)})


def test_the_strict_server_takes_what_the_sdk_sends_and_we_send_the_same() -> None:
    script = (answer(text("Adding."), call("add", a=2, b=3), call("add", a=1, b=1)), "It is 5.")
    with (
        OpenAIChatServer(*script, key="k") as server,
        OpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
    ):
        assert sdk_talks(client) == "It is 5."
        theirs = server.requests
    with OpenAIChatServer(*script, key="k") as server:
        agent = Agent(server.model(), tools=[add], system_prompt="Be brief.", stream_fn=http_stream(WIRE))
        assert agent.run_sync("What is 2 + 3?").text == "It is 5."
        ours = server.requests
    assert [_plain(request) for request in ours] == [_plain(request) for request in theirs]


def _plain(request: dict[str, Any]) -> dict[str, Any]:
    """A request without the spaces inside arguments, which are the model's own."""
    for message in request["messages"]:
        for entry in message.get("tool_calls") or ():
            entry.pop("index", None)
            entry["function"]["arguments"] = json.loads(entry["function"]["arguments"])
    return request
