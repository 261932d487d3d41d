"""Chat Completions: the chunks of one completion, as a pure function of the events of a run.

The text of all answers of the run is one message, and thinking comes as `reasoning_content`, which many clients read.
Calls of tools that the client has declared end it. What a stream has shown of an answer that is tried again cannot be
taken back, so the new attempt begins on a line of its own; the whole message has only the new attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from steersman.server.fronts.openai.responses import (
    FAILED_ANSWERS,
    Frame,
    add_usage,
    find_incomplete_reason,
    list_client_calls,
)

STOPPED: Final = "The server stopped in the middle of the run. Send the request again."
"""What is told of a completion whose run has no end."""

_FINISH = {"content_filter": "content_filter", "max_output_tokens": "length", "max_messages": "length"}
_DELTAS = {"text_delta": "content", "thinking_delta": "reasoning_content"}
_BLOCKS = {"text": ("content", "text"), "thinking": ("reasoning_content", "thinking")}


class Translator:
    """Turns the events of a run into deltas of one message. `finish_reason` is there once it is over."""

    def __init__(self, client_tools: Collection[str] = (), name_call: Callable[[str], str] = str) -> None:
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.calls: list[str] = []
        self.usage: Frame | None = None
        self._client_tools = client_tools
        self._name_call = name_call
        self._message: dict[str, str] = {"content": "", "reasoning_content": ""}
        self._before = dict(self._message)
        self._tool_calls: list[Frame] = []
        # What was told of the answer that is arriving, by the index of the block.
        self._told: dict[int, str] = {}
        self._last: Frame = {}

    @property
    def ended(self) -> bool:
        """Whether the completion is over."""
        return self.finish_reason is not None or self.error is not None

    def describe(self) -> Frame:
        """The whole message."""
        message: Frame = {"role": "assistant", "content": self._message["content"] or None, "refusal": None}
        if self._message["reasoning_content"]:
            message["reasoning_content"] = self._message["reasoning_content"]
        return {**message, "tool_calls": self._tool_calls} if self._tool_calls else message

    def describe_usage(self) -> Frame:
        """The tokens of all answers."""
        usage = self.usage or add_usage(None, {})
        return {
            "prompt_tokens": usage["input_tokens"],
            "completion_tokens": usage["output_tokens"],
            "total_tokens": usage["total_tokens"],
            "prompt_tokens_details": {"cached_tokens": usage["input_tokens_details"]["cached_tokens"]},
            "completion_tokens_details": usage["output_tokens_details"],
        }

    def translate(self, event: Frame) -> list[Frame]:
        """The deltas for an event; none for what is not told."""
        match event:
            case {"type": "message_update", "delta": {"type": str(kind), "delta": str(more)} as delta} if (
                kind in _DELTAS
            ):
                return self._add(delta.get("content_index", 0), _DELTAS[kind], more)
            case {"type": "message_update", "delta": {"type": "reset"}}:
                return self._try_again()
            case {"type": "snapshot", "message": message}:
                return self._show_blocks(message)
            case {"type": "message_end", "message": {"role": "assistant"} as message}:
                return self._end_answer(message)
            case {"type": "agent_end"}:
                return self._finish(event)
            case {"type": "cut"}:
                self.error = STOPPED
                return []
            case _:
                return []

    def _add(self, index: int, name: str, more: str) -> list[Frame]:
        self._told[index] = self._told.get(index, "") + more
        self._message[name] += more
        return [{name: more}] if more else []

    def _try_again(self) -> list[Frame]:
        shown = self._message["content"] != self._before["content"]
        self._message, self._told = dict(self._before), {}
        return [{"content": "\n\n"}] if shown else []

    def _show_blocks(self, message: Frame) -> list[Frame]:
        """Tell what is not told yet of an answer."""
        blocks = [
            (index, *(_BLOCKS[block["type"]]), block)
            for index, block in enumerate(message["content"])
            if block["type"] in _BLOCKS
        ]
        frames: list[Frame] = []
        texts = {index: block[key] for index, _, key, block in blocks}
        if any(not texts.get(index, "").startswith(told) for index, told in self._told.items()):
            frames += self._try_again()
        for index, name, _, _ in blocks:
            frames += self._add(index, name, texts[index][len(self._told.get(index, "")) :])
        return frames

    def _end_answer(self, message: Frame) -> list[Frame]:
        self._last = message
        self.usage = add_usage(self.usage, message.get("usage") or {})
        frames = self._show_blocks(message)
        self._told, self._before = {}, dict(self._message)
        if message["stop_reason"] in FAILED_ANSWERS:
            return frames
        for number, call in enumerate(list_client_calls(message, self._client_tools)):
            self.calls.append(call["id"])
            text = msgspec.json.encode(call["arguments"]).decode()
            function = {"name": call["name"], "arguments": text}
            told = {"id": self._name_call(call["id"]), "type": "function", "function": function}
            self._tool_calls.append(told)
            frames.append({"tool_calls": [{"index": number, **told}]})
        if self.calls:
            self.finish_reason = "tool_calls"
        return frames

    def _finish(self, event: Mapping[str, Any]) -> list[Frame]:
        reason = event["end_reason"]
        details = find_incomplete_reason(reason, self._last)
        if details is None and reason in ("error", "rejected"):
            self.error = event.get("detail") or "The run failed."
        else:
            self.finish_reason = "stop" if details is None else _FINISH[details]
        return []
