"""The floor: an agent loop written by hand on plain dicts, as lean as one that does the same can be.

It keeps the history, numbers and stamps an event for everything that happens, tells subscribers or a reader behind a
bounded queue, hears follow-ups, runs each tool call in a task of its own, adds up usage, and minds a cancel and a limit
of turns. It has no hooks, no validation, no retry, no repair, no steering: what those cost is what is measured.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from time import time
from typing import Any, TypeAlias

Plain: TypeAlias = dict[str, Any]
Model: TypeAlias = Callable[[list[Plain]], AsyncIterator[Plain]]
Tool: TypeAlias = Callable[..., Coroutine[Any, Any, str]]

QUEUE_LIMIT = 256
_ids = itertools.count(1)


class FloorAgent:
    """A model, tools and a history."""

    __slots__ = (
        "_queue", "_seq", "cancelled", "follow_ups", "loop_id", "max_turns", "messages", "model", "subscribers",
        "tokens", "tools",
    )  # fmt: skip

    def __init__(self, model: Model, tools: Mapping[str, Tool], *, max_turns: int = 50) -> None:
        self.model = model
        self.tools = tools
        self.max_turns = max_turns
        self.messages: list[Plain] = []
        self.follow_ups: deque[str] = deque()
        self.subscribers: list[Callable[[Plain], object]] = []
        self.tokens = 0
        self.cancelled = False
        self.loop_id = ""
        self._seq = 0
        self._queue: asyncio.Queue[Plain] | None = None

    async def events(self, prompt: str) -> AsyncGenerator[Plain, None]:
        """Run, and give each event to whoever iterates."""
        queue = self._queue = asyncio.Queue(QUEUE_LIMIT)
        task = asyncio.create_task(self.run(prompt))
        try:
            while True:
                event = await queue.get()
                yield event
                if event["type"] == "agent_end":
                    break
            await task
        finally:
            task.cancel()
            self._queue = None

    async def run(self, prompt: str) -> str:
        """Run to the end; the text of the last answer comes back."""
        self.loop_id = f"loop_{next(_ids)}"
        self._seq = 0
        new = len(self.messages)
        await self._emit("agent_start")
        pending = [_user(prompt)]
        turn = 0
        while True:
            message, results = await self._turn(turn, pending)
            turn += 1
            if self.cancelled or turn >= self.max_turns:
                break
            if results:
                pending = []
            elif self.follow_ups:
                pending = [_user(self.follow_ups.popleft())]
            else:
                break
        await self._emit("agent_end", messages=self.messages[new:], usage=self.tokens)
        return "".join([block["text"] for block in message["content"] if block["type"] == "text"])

    async def _turn(self, number: int, pending: list[Plain]) -> tuple[Plain, list[Plain]]:
        await self._emit("turn_start", turn_index=number)
        for message in pending:
            await self._say(message)
        message = await self._answer()
        calls = [block for block in message["content"] if block["type"] == "tool_call"]
        results = await self._work(calls) if calls else []
        await self._emit("turn_end", turn_index=number, message=message, tool_results=results)
        return message, results

    async def _answer(self) -> Plain:
        await self._emit("message_start", message={"role": "assistant", "content": []})
        deltas: list[Plain] = []
        async for event in self.model(self.messages):
            kind = event["type"]
            if kind == "done":
                message: Plain = {**event["message"], "timestamp": time()}
                self.tokens += message["usage"]["input"] + message["usage"]["output"]
                self.messages.append(message)
                await self._emit("message_end", message=message)
                return message
            if kind == "start":
                continue
            deltas.append(event)
            self._seq += 1
            if self.subscribers or self._queue is not None:
                await self._tell(
                    {
                        "type": "message_update",
                        "loop_id": self.loop_id,
                        "seq": self._seq - 1,
                        "timestamp": time(),
                        "delta": event,
                    }
                )
            if self.cancelled:
                break
        raise RuntimeError(f"The stream ended after {len(deltas)} deltas without its terminal event.")

    async def _work(self, calls: list[Plain]) -> list[Plain]:
        tasks: list[asyncio.Task[Plain]] = []
        for call in calls:
            await self._emit("tool_execution_start", tool_call_id=call["id"], tool_name=call["name"])
            tasks.append(asyncio.create_task(self._call(call)))
        results = await asyncio.gather(*tasks)
        for result in results:
            await self._say(result)
        return results

    async def _call(self, call: Plain) -> Plain:
        failed = False
        try:
            text = await self.tools[call["name"]](**call["arguments"])
        except Exception as error:  # noqa: BLE001  # a tool that raises is an error result
            text, failed = f"{type(error).__name__}: {error}", True
        result = {
            "role": "tool_result",
            "content": [{"type": "text", "text": text}],
            "timestamp": time(),
            "tool_call_id": call["id"],
            "tool_name": call["name"],
            "is_error": failed,
        }
        await self._emit("tool_execution_end", tool_call_id=call["id"], tool_name=call["name"], result=result)
        return result

    async def _say(self, message: Plain) -> None:
        await self._emit("message_start", message=message)
        self.messages.append(message)
        await self._emit("message_end", message=message)

    async def _emit(self, kind: str, **fields: Any) -> None:
        self._seq += 1
        if self.subscribers or self._queue is not None:
            await self._tell(
                {"type": kind, "loop_id": self.loop_id, "seq": self._seq - 1, "timestamp": time(), **fields}
            )

    async def _tell(self, event: Plain) -> None:
        for subscriber in self.subscribers:
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001  # a watcher cannot break the run
                self.subscribers.remove(subscriber)
        if self._queue is not None:
            if self._queue.full():
                await self._queue.put(event)
            else:
                self._queue.put_nowait(event)


def _user(text: str) -> Plain:
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": time()}
