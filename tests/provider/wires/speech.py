"""The same answers in the bytes of each protocol, and what a request of each says: for tests on real sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
from tests.provider.wires.anthropic import kit as anthropic
from tests.provider.wires.bedrock import kit as bedrock
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_responses import kit as responses
from tests.provider.wires.protocols import SERVERS

from steersman import Agent, AssistantMessage, Retry, RunResult
from steersman.testing.servers import StrictServer
from steersman.testing.servers.anthropic.request import sign
from steersman.testing.servers.openai_responses.messages import seal
from steersman.tools.tool import Tool
from steersman.types.messages import ToolResultMessage

ONCE = Retry(max_attempts=1)
ANY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
# Written into a text, these become halves of an emoji, which no encoder would write.
HIGH, LOW = "(high)", "(low)"
ENDS: dict[str, dict[str, Any]] = {
    "anthropic": {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens", "refusal": "refusal"},
    "bedrock": {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens", "refusal": "content_filtered"},
    "google": {"stop": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"},
    "openai": {"stop": "stop", "calls": "tool_calls", "length": "length", "refusal": "content_filter"},
    "responses": {
        "stop": "completed",
        "calls": "completed",
        "length": "max_output_tokens",
        "refusal": "content_filter",
    },
}
# The older models of Gemini ask for no signatures. Of the models on Bedrock, Claude has the most to say.
MODELS = {"google": "gemini-3-pro-preview", "bedrock": "anthropic.claude-sonnet-4-5-20250929-v1:0"}
SIGNATURES = ("c2lnMQ==", "c2lnMg==", "c2lnMw==")


class Text:
    """Words, in the deltas in which they come."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces


@dataclass(frozen=True)
class Thought:
    """Thinking, signed so that the strict server knows it again; `number` tells one from the other."""

    words: str
    number: int = 0


@dataclass(frozen=True)
class Call:
    """A call with its arguments as the model wrote them: JSON, or what is none."""

    arguments: str = "{}"
    name: str = "act"
    id: str = "c1"
    cuts: tuple[int, ...] = ()

    @property
    def pieces(self) -> list[str]:
        """The arguments in deltas."""
        edges = [0, *self.cuts, len(self.arguments)]
        return [self.arguments[start:end] for start, end in pairwise(edges)]


Block = Text | Thought | Call


def spoken(name: str, *blocks: Block, end: str = "calls", reason: Any = ...) -> bytes:
    """An answer of these blocks; `reason` is a word of the server's own instead of the one for `end`."""
    word = ENDS[name][end] if reason is ... else reason
    return halved(name, b"".join(_WRITERS[name](blocks, word)))


def split_events(name: str, stream: bytes) -> list[bytes]:
    """The events of a stream, each with all its bytes."""
    if name == "bedrock":
        return [bedrock.framed(event, payload) for event, payload in bedrock.unframed(stream)]
    line = b"\r\n\r\n" if name == "google" else b"\n\n"
    return [event + line for event in stream.split(line) if event]


def replace_bytes(name: str, stream: bytes, old: bytes, new: bytes) -> bytes:
    """The stream with other bytes in its events."""
    if name != "bedrock":
        return stream.replace(old, new)
    changed = ((event, payload.replace(old, new)) for event, payload in bedrock.unframed(stream))
    return b"".join(bedrock.framed(event, payload) for event, payload in changed)


def halved(name: str, stream: bytes) -> bytes:
    """The stream with halves of characters where it says so; frames have a length and a CRC, so they are made anew."""
    if name == "bedrock":
        return b"".join(bedrock.framed(event, halved("", payload)) for event, payload in bedrock.unframed(stream))
    return stream.replace(HIGH.encode(), b"\\ud83d").replace(LOW.encode(), b"\\ude42")


def _anthropic(blocks: Sequence[Block], word: Any) -> Iterator[bytes]:
    yield anthropic.begun()
    for at, block in enumerate(blocks):
        match block:
            case Text():
                yield anthropic.said(at, *block.pieces)
            case Call():
                yield anthropic.called(at, block.id, block.name, *block.pieces)
            case Thought():
                yield anthropic.start(at, "thinking", thinking="", signature="")
                yield anthropic.delta(at, "thinking_delta", thinking=block.words)
                yield anthropic.delta(at, "signature_delta", signature=sign(block.words))
                yield anthropic.stop(at)
    yield anthropic.ended(word)


def _responses(blocks: Sequence[Block], word: Any) -> Iterator[bytes]:
    yield responses.begun()
    for at, block in enumerate(blocks):
        match block:
            case Text():
                yield responses.said(at, *block.pieces)
            case Call():
                yield responses.called(at, block.id, block.name, *block.pieces)
            case Thought():
                yield responses.thought(at, block.words, encrypted=seal(f"rs_{at}", block.words))
    yield responses.ended() if word == "completed" else responses.ended("incomplete", reason=word)


def _chat(blocks: Sequence[Block], word: Any) -> Iterator[bytes]:
    number = 0
    for block in blocks:
        match block:
            case Text():
                yield chat.said(*block.pieces)
            case Call():
                yield chat.calls(chat.piece(number, block.id, block.name, ""))
                yield from (chat.calls(chat.piece(number, args=piece)) for piece in block.pieces)
                number += 1
            case Thought():
                yield chat.said(block.words, field="reasoning_content")
    yield chat.chunk(None, word) + chat.DONE


def _bedrock(blocks: Sequence[Block], word: Any) -> Iterator[bytes]:
    yield bedrock.begun()
    for at, block in enumerate(blocks):
        match block:
            case Text():
                yield bedrock.said(at, *block.pieces)
            case Call():
                yield bedrock.called(at, block.id, block.name, *block.pieces)
            case Thought():
                yield bedrock.thought(at, block.words, sign(block.words))
    yield bedrock.ended(word)


def _google(blocks: Sequence[Block], word: Any) -> Iterator[bytes]:
    for block in blocks:
        match block:
            case Text():
                yield google.stream(*(google.chunk(google.text(piece)) for piece in block.pieces))
            case Call():
                # What is no JSON in the arguments is none in the chunk either.
                given = msgspec.Raw(block.arguments.encode()) if block.arguments.strip() else None
                yield google.stream(google.chunk(google.call(block.name, given, block.id)))
            case Thought():
                yield google.stream(google.chunk(google.thought(block.words, SIGNATURES[block.number])))
    yield google.stream(google.chunk(finish=word))


_WRITERS: dict[str, Callable[[Sequence[Block], Any], Iterator[bytes]]] = {
    "anthropic": _anthropic,
    "bedrock": _bedrock,
    "google": _google,
    "openai": _chat,
    "responses": _responses,
}


def calls_in(name: str, body: Any) -> list[tuple[str, Any]]:
    """The calls in a request: tool and arguments."""
    return [(tool, arguments) for tool, arguments, _ in _asked(name, body)]


def ids_in(name: str, body: Any) -> list[str]:
    """The ids of the calls in a request."""
    return [id for _, _, id in _asked(name, body)]


def _asked(name: str, body: Any) -> Iterator[tuple[str, Any, str]]:
    for item in items_in(name, body):
        match item:
            case {"type": "tool_use"}:
                yield item["name"], item["input"], item["id"]
            case {"type": "function_call"}:
                yield item["name"], json.loads(item["arguments"]), item["call_id"]
            case {"toolUse": call}:
                yield call["name"], call["input"], call["toolUseId"]
            case {"functionCall": call}:
                yield call["name"], call["args"], call.get("id", "")
            case {"tool_calls": calls}:
                for call in calls:
                    yield call["function"]["name"], json.loads(call["function"]["arguments"]), call["id"]
            case _:
                pass


def results_in(name: str, body: Any) -> list[str]:
    """The results in a request."""
    found: list[str] = []
    for item in items_in(name, body):
        match item:
            case {"type": "tool_result", "content": [{"text": text}]} | {"role": "tool", "content": text}:
                found.append(text)
            case {"type": "function_call_output", "output": text}:
                found.append(text)
            case {"toolResult": {"content": [{"text": text}]}}:
                found.append(text)
            case {"functionResponse": {"response": {"output": text} | {"error": text}}}:
                found.append(text)
            case _:
                pass
    return found


def items_in(name: str, body: Any) -> Iterator[Any]:
    """What a request says, block by block, part by part or item by item; of Chat Completions the messages."""
    match name:
        case "anthropic":
            yield from (block for message in body["messages"] for block in message["content"])
        case "bedrock":
            blocks = (block for message in body["messages"] for block in message["content"])
            yield from (block for block in blocks if "cachePoint" not in block)
        case "google":
            yield from (part for content in body["contents"] for part in content["parts"])
        case "responses":
            yield from body["input"]
        case _:
            yield from body["messages"]


@dataclass
class Talk:
    """A run, another prompt after it, and what the server got."""

    result: RunResult
    again: RunResult
    server: StrictServer
    ran: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def told(self) -> list[tuple[str, str, bool]]:
        """The results of calls: tool, text, whether it is an error."""
        return [
            (message.tool_name, message.text, message.is_error)
            for message in self.result.messages
            if isinstance(message, ToolResultMessage)
        ]

    @property
    def answer(self) -> AssistantMessage:
        """The first answer."""
        return next(message for message in self.result.messages if isinstance(message, AssistantMessage))


async def talk(
    name: str,
    *script: Any,
    schema: dict[str, Any] | None = None,
    tools: Sequence[Tool] = (),
    settings: dict[str, Any] | None = None,
    strict: bool = True,
    **options: Any,
) -> Talk:
    """A run whose answers are these, bytes as they are, and then "Fine."; after it a prompt that has to be taken."""
    ran: list[dict[str, Any]] = []

    async def act(args: dict[str, Any]) -> str:
        ran.append(args)
        return "acted"

    more: dict[str, Any] = {"strict": strict, **({"signatures": SIGNATURES} if name == "google" else {})}
    async with SERVERS[name](*script, "Fine.", repeat_last=True, **more) as server:
        model = server.model(MODELS.get(name, "test-model"), settings=settings or {})
        given: dict[str, Any] = {"tools": [Tool("act", "Act.", schema or ANY_OBJECT, act), *tools], "retry": ONCE}
        agent = Agent(model, **{**given, **options})
        result = await agent.run("Go.")
        again = await agent.run("Go on.")
    assert (again.end_reason, again.detail, again.text) == ("done", "", "Fine.")
    return Talk(result, again, server, ran)
