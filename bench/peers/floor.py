"""The floor: the smallest agent loop on aiohttp and msgspec that does the job, in each of the four protocols.

It decodes with types, validates arguments, is an asynchronous iterator of text deltas, runs several calls at once, and
keeps the history encoded, so that a turn costs the same however long the run is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

import aiohttp
import msgspec
from bench.peers import jobs
from msgspec import Struct

encode = msgspec.json.encode


class _Add(Struct):
    a: int
    b: int


class _Note(Struct):
    text: str


_decode_add = msgspec.json.Decoder(_Add).decode
_decode_note = msgspec.json.Decoder(_Note).decode


async def call_tool(name: str, arguments: str | bytes) -> str:
    """Run a tool with arguments that are JSON."""
    if name == "add":
        pair = _decode_add(arguments)
        return str(await jobs.add(pair.a, pair.b))
    return str(await jobs.note(_decode_note(arguments).text))


Call = tuple[str, str, list[str]]


class Answer:
    """An answer while it arrives."""

    __slots__ = ("calls", "text")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.calls: list[Call] = []


class Wire(Protocol):
    """A protocol: the path and the headers, the start of every request, and how messages are written and read."""

    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def separator(self) -> bytes: ...
    @property
    def path(self) -> str: ...
    @property
    def head(self) -> bytes: ...

    def read(self, event: bytes, answer: Answer) -> str | None:
        """Add an event to the answer; returns its text, if it has some."""
        ...

    def write_user(self, text: str) -> Any: ...
    def write_answer(self, text: str, calls: list[Call]) -> list[Any]: ...
    def write_results(self, calls: list[Call], results: list[str]) -> list[Any]: ...


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str = ""


class _ChatCall(Struct):
    index: int
    function: _Function
    id: str | None = None


class _ChatDelta(Struct):
    content: str | None = None
    tool_calls: list[_ChatCall] = []


class _Choice(Struct):
    delta: _ChatDelta


class _Chunk(Struct):
    choices: list[_Choice]


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class Chat:
    """OpenAI Chat Completions."""

    def __init__(self, model: str) -> None:
        self.headers = {"authorization": "Bearer x", "content-type": "application/json"}
        self.separator = b"\n\n"
        self.path = "/v1/chat/completions"
        tools = [
            {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}
            for name, text, schema in jobs.SCHEMAS
        ]
        fields = {"model": model, "stream": True, "stream_options": {"include_usage": True}, "tools": tools}
        system = encode({"role": "system", "content": jobs.SYSTEM})
        self.head = encode(fields)[:-1] + b',"messages":[' + system + b","

    def read(self, event: bytes, answer: Answer) -> str | None:
        if event == b"data: [DONE]":
            return None
        said = None
        for choice in _decode_chunk(event[6:]).choices:
            delta = choice.delta
            if delta.content:
                said = delta.content
                answer.text.append(said)
            for call in delta.tool_calls:
                if call.id:
                    answer.calls.append((call.id, call.function.name or "", []))
                if call.function.arguments:
                    answer.calls[call.index][2].append(call.function.arguments)
        return said

    def write_user(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def write_answer(self, text: str, calls: list[Call]) -> list[Any]:
        made = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": "".join(parts)}}
            for id, name, parts in calls
        ]
        return [{"role": "assistant", "content": text, "tool_calls": made}]

    def write_results(self, calls: list[Call], results: list[str]) -> list[Any]:
        return [
            {"role": "tool", "tool_call_id": call[0], "content": result}
            for call, result in zip(calls, results, strict=True)
        ]


class _Block(Struct):
    type: str
    id: str = ""
    name: str = ""


class _BlockDelta(Struct, gc=False):
    text: str | None = None
    partial_json: str | None = None


class _MessageEvent(Struct):
    type: str
    content_block: _Block | None = None
    delta: _BlockDelta | None = None


_decode_message_event = msgspec.json.Decoder(_MessageEvent).decode


class Messages:
    """Anthropic Messages."""

    def __init__(self, model: str) -> None:
        self.headers = {"x-api-key": "x", "anthropic-version": "2023-06-01", "content-type": "application/json"}
        self.separator = b"\n\n"
        self.path = "/v1/messages"
        tools = [{"name": name, "description": text, "input_schema": schema} for name, text, schema in jobs.SCHEMAS]
        fields = {"model": model, "stream": True, "max_tokens": 4096, "system": jobs.SYSTEM, "tools": tools}
        self.head = encode(fields)[:-1] + b',"messages":['

    def read(self, event: bytes, answer: Answer) -> str | None:
        found = _decode_message_event(event[event.index(b"\ndata: ") + 7 :])
        if found.type == "content_block_delta" and found.delta is not None:
            if found.delta.text:
                answer.text.append(found.delta.text)
                return found.delta.text
            if found.delta.partial_json:
                answer.calls[-1][2].append(found.delta.partial_json)
        elif found.content_block is not None and found.content_block.type == "tool_use":
            answer.calls.append((found.content_block.id, found.content_block.name, []))
        return None

    def write_user(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def write_answer(self, text: str, calls: list[Call]) -> list[Any]:
        blocks: list[Any] = [{"type": "text", "text": text}]
        blocks += [
            {"type": "tool_use", "id": id, "name": name, "input": msgspec.Raw("".join(parts).encode())}
            for id, name, parts in calls
        ]
        return [{"role": "assistant", "content": blocks}]

    def write_results(self, calls: list[Call], results: list[str]) -> list[Any]:
        blocks = [
            {"type": "tool_result", "tool_use_id": call[0], "content": result}
            for call, result in zip(calls, results, strict=True)
        ]
        return [{"role": "user", "content": blocks}]


class _Item(Struct):
    type: str = ""
    call_id: str = ""
    name: str = ""


class _ResponseEvent(Struct):
    type: str
    item: _Item | None = None
    delta: str | None = None


_decode_response_event = msgspec.json.Decoder(_ResponseEvent).decode


class Responses:
    """OpenAI Responses."""

    def __init__(self, model: str) -> None:
        self.headers = {"authorization": "Bearer x", "content-type": "application/json"}
        self.separator = b"\n\n"
        self.path = "/v1/responses"
        tools = [
            {"type": "function", "name": name, "description": text, "parameters": schema}
            for name, text, schema in jobs.SCHEMAS
        ]
        fields = {"model": model, "stream": True, "store": False, "instructions": jobs.SYSTEM, "tools": tools}
        self.head = encode(fields)[:-1] + b',"input":['

    def read(self, event: bytes, answer: Answer) -> str | None:
        found = _decode_response_event(event[event.index(b"\ndata: ") + 7 :])
        if found.type == "response.output_text.delta":
            answer.text.append(found.delta or "")
            return found.delta
        if found.type == "response.function_call_arguments.delta":
            answer.calls[-1][2].append(found.delta or "")
        elif found.item is not None and found.type.endswith("added") and found.item.type == "function_call":
            answer.calls.append((found.item.call_id, found.item.name, []))
        return None

    def write_user(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def write_answer(self, text: str, calls: list[Call]) -> list[Any]:
        items: list[Any] = [{"role": "assistant", "content": text}]
        items += [
            {"type": "function_call", "call_id": id, "name": name, "arguments": "".join(parts)}
            for id, name, parts in calls
        ]
        return items

    def write_results(self, calls: list[Call], results: list[str]) -> list[Any]:
        return [
            {"type": "function_call_output", "call_id": call[0], "output": result}
            for call, result in zip(calls, results, strict=True)
        ]


class _FunctionCall(Struct):
    name: str
    args: msgspec.Raw
    id: str = ""


class _Part(Struct):
    text: str | None = None
    functionCall: _FunctionCall | None = None  # the name on the wire


class _Content(Struct):
    parts: list[_Part] = []


class _Candidate(Struct):
    content: _Content


class _GeminiEvent(Struct):
    candidates: list[_Candidate]


_decode_gemini_event = msgspec.json.Decoder(_GeminiEvent).decode


class Gemini:
    """Google's Gemini."""

    def __init__(self, model: str) -> None:
        self.headers = {"x-goog-api-key": "x", "content-type": "application/json"}
        self.separator = b"\r\n\r\n"
        self.path = f"/v1beta/models/{model}:streamGenerateContent?alt=sse"
        tools = [{"name": name, "description": text, "parameters": schema} for name, text, schema in jobs.SCHEMAS]
        fields = {
            "systemInstruction": {"parts": [{"text": jobs.SYSTEM}]},
            "tools": [{"functionDeclarations": tools}],
        }
        self.head = encode(fields)[:-1] + b',"contents":['

    def read(self, event: bytes, answer: Answer) -> str | None:
        said = None
        for part in _decode_gemini_event(event[6:]).candidates[0].content.parts:
            if part.text:
                said = part.text
                answer.text.append(said)
            elif part.functionCall is not None:
                call = part.functionCall
                answer.calls.append((call.id, call.name, [bytes(call.args).decode()]))
        return said

    def write_user(self, text: str) -> Any:
        return {"role": "user", "parts": [{"text": text}]}

    def write_answer(self, text: str, calls: list[Call]) -> list[Any]:
        parts: list[Any] = [{"text": text}]
        parts += [
            {"functionCall": {"id": id, "name": name, "args": msgspec.Raw("".join(arguments).encode())}}
            for id, name, arguments in calls
        ]
        return [{"role": "model", "parts": parts}]

    def write_results(self, calls: list[Call], results: list[str]) -> list[Any]:
        parts = [
            {"functionResponse": {"id": call[0], "name": call[1], "response": {"result": result}}}
            for call, result in zip(calls, results, strict=True)
        ]
        return [{"role": "user", "parts": parts}]


WIRES: dict[str, Callable[[str], Wire]] = {
    "chat": Chat, "messages": Messages, "responses": Responses, "gemini": Gemini
}  # fmt: skip

Post = Callable[[str, Mapping[str, str], bytes], AsyncIterator[bytes]]
"""Sends a request to a path; gives the bytes of the body as they come."""


def make_aiohttp_post(base_url: str) -> Post:
    """A client with one session; call it inside the event loop."""
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout())

    async def post(path: str, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[bytes, None]:
        async with session.post(base_url + path, data=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            async for data in response.content.iter_any():
                yield data

    return post


class FloorAgent:
    """A model behind HTTP, two tools, and a history of encoded messages."""

    def __init__(self, post: Post, wire: Wire) -> None:
        self._post = post
        self._wire = wire

    async def stream(self, prompt: str) -> AsyncGenerator[str | Answer, None]:
        """Run to the end; yields each text delta, and then the last answer."""
        wire, history = self._wire, [encode(self._wire.write_user(prompt))]
        while True:
            answer = Answer()
            body = b"".join((wire.head, b",".join(history), b"]}"))
            async for said in self._read(self._post(wire.path, wire.headers, body), answer):
                yield said
            if not answer.calls:
                yield answer
                return
            history += map(encode, wire.write_answer("".join(answer.text), answer.calls))
            calls: list[Awaitable[str]] = [call_tool(name, "".join(parts)) for _, name, parts in answer.calls]
            results = [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)
            history += map(encode, wire.write_results(answer.calls, results))

    async def _read(self, body: AsyncIterator[bytes], answer: Answer) -> AsyncGenerator[str, None]:
        wire, rest = self._wire, b""
        async for data in body:
            *events, rest = (rest + data if rest else data).split(wire.separator)
            for event in events:
                said = wire.read(event, answer)
                if said is not None:
                    yield said
