"""The floor of the wire: an agent loop written by hand on aiohttp and msgspec, and the official SDK without any loop.

The first keeps the history encoded, so that its turns cost the same however long it is. It tells a watcher of each
delta, puts tool calls together, runs several at once and asks again. It has no retry, no timeouts but aiohttp's own, no
events, no repair, no limits: what those cost is what is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

import aiohttp
import msgspec

Plain: TypeAlias = dict[str, Any]
Tool: TypeAlias = Callable[..., Coroutine[Any, Any, str]]

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": SCHEMA}}]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    total_tokens: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Chunk).decode
_encode = msgspec.json.Encoder().encode


class FloorAgent:
    """A model behind HTTP, tools and a history."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        model: str,
        tools: Mapping[str, Tool],
        on_delta: Callable[[str], object],
        on_turn: Callable[[], object] | None = None,
    ) -> None:
        self._session = session
        self._url = f"{url}/chat/completions"
        fields = {"model": model, "stream": True, "stream_options": {"include_usage": True}, "tools": TOOLS}
        self._head = _encode(fields)[:-1] + b',"messages":['
        self._history: list[bytes] = []
        self._tools = tools
        self._on_delta = on_delta
        self._on_turn = on_turn
        self.tokens = 0

    async def run(self, prompt: str) -> str:
        """Run to the end; the text of the last answer comes back."""
        self._remember({"role": "user", "content": prompt})
        while True:
            if self._on_turn is not None:
                self._on_turn()
            text, calls = await self._answer()
            if not calls:
                self._remember({"role": "assistant", "content": text})
                return text
            # What it said before its calls is a part of the answer: without it the model would not know its own words.
            self._remember({"role": "assistant", "content": text or None, "tool_calls": calls})
            if len(calls) == 1:
                results = [await self._result(calls[0])]
            else:
                results = await asyncio.gather(*[self._result(call) for call in calls])
            for result in results:
                self._remember(result)

    def _remember(self, message: Plain) -> None:
        self._history.append(_encode(message))

    async def _answer(self) -> tuple[str, list[Plain]]:
        body = b"".join((self._head, b",".join(self._history), b"]}"))
        headers = {"content-type": "application/json", "authorization": "Bearer key"}
        parts: list[str] = []
        calls: dict[int, tuple[str, str, list[str]]] = {}
        finished = False
        rest = b""
        async with self._session.post(self._url, data=body, headers=headers) as response:
            if response.status != 200:
                raise RuntimeError(await response.text())
            async for data in response.content.iter_any():
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    line = event[6:]
                    if line != b"[DONE]":
                        finished = self._read(_decode(line), parts, calls) or finished
        if not finished:
            raise RuntimeError("The stream ended before its finish_reason.")
        made = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": "".join(pieces)}}
            for id, name, pieces in calls.values()
        ]
        return "".join(parts), made

    def _read(self, chunk: _Chunk, parts: list[str], calls: dict[int, tuple[str, str, list[str]]]) -> bool:
        if chunk.usage is not None:
            self.tokens += chunk.usage.total_tokens
        if not chunk.choices:
            return False
        choice = chunk.choices[0]
        delta = choice.delta
        if delta.content:
            parts.append(delta.content)
            self._on_delta(delta.content)
        if delta.tool_calls:
            for call in delta.tool_calls:
                function = call.function
                if call.index not in calls:
                    calls[call.index] = (call.id or "", (function and function.name) or "", [])
                if function is not None and function.arguments:
                    calls[call.index][2].append(function.arguments)
                    self._on_delta(function.arguments)
        return choice.finish_reason is not None

    async def _result(self, call: Plain) -> Plain:
        function = call["function"]
        try:
            text = await self._tools[function["name"]](**msgspec.json.decode(function["arguments"]))
        except Exception as error:  # noqa: BLE001  # a tool that raises is an error result
            text = f"{type(error).__name__}: {error}"
        return {"role": "tool", "tool_call_id": call["id"], "content": text}


async def sdk_stream(client: Any, model: str, requests: int) -> str:
    """The official SDK's raw stream, request after request; the text of the last comes back."""
    parts: list[str] = []
    for _ in range(requests):
        parts.clear()
        stream = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Begin."}],
            tools=TOOLS,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                parts.append(chunk.choices[0].delta.content)
    return "".join(parts)
