"""Chat Completions: the chunks of one completion, as a pure function of the events of a run.

The text of all answers of the run is one message, and thinking comes as `reasoning_content`, which many clients read.
Calls of tools that the client has declared end it. What a stream has shown of an answer that is tried again cannot be
taken back, so the new attempt begins on a line of its own; the whole message has only the new attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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

    def __init__(
        self,
        client_tools: Collection[str] = (),
        name_call: Callable[[str], str] = str,
        change: Callable[[Frame], Sequence[Frame]] | None = None,
    ) -> None:
        self._change = change
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.calls: list[str] = []
        self.usage: Frame | None = None
        self._client_tools = client_tools
        self._name_call = name_call
        # The text of the answers before, and the pieces of the one that is arriving.
        self._before: dict[str, str] = {"content": "", "reasoning_content": ""}
        self._new: dict[str, list[str]] = {"content": [], "reasoning_content": []}
        self._tool_calls: list[Frame] = []
        # What was told of the answer that is arriving, by the index of the block.
        self._told: dict[int, list[str]] = {}
        self._last: Frame = {}

    @property
    def ended(self) -> bool:
        """Whether the completion is over."""
        return self.finish_reason is not None or self.error is not None

    def describe(self) -> Frame:
        """The whole message."""
        texts = self._join_texts()
        message: Frame = {"role": "assistant", "content": texts["content"] or None, "refusal": None}
        if texts["reasoning_content"]:
            message["reasoning_content"] = texts["reasoning_content"]
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
        """The deltas for an event, which is changed first if there is a `change`; none for what is not told."""
        events = (event,) if self._change is None else self._change(event)
        return [delta for one in events for delta in self._translate(one)]

    def _translate(self, event: Frame) -> list[Frame]:
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
        if not more:
            return []
        self._told.setdefault(index, []).append(more)
        self._new[name].append(more)
        return [{name: more}]

    def _join_texts(self) -> dict[str, str]:
        return {name: text + "".join(self._new[name]) for name, text in self._before.items()}

    def _try_again(self) -> list[Frame]:
        shown = bool(self._new["content"])
        self._forget_new()
        return [{"content": "\n\n"}] if shown else []

    def _forget_new(self) -> None:
        self._new, self._told = {name: [] for name in self._before}, {}

    def _show_blocks(self, message: Frame) -> list[Frame]:
        """Tell what is not told yet of an answer."""
        blocks = [
            (index, *(_BLOCKS[block["type"]]), block)
            for index, block in enumerate(message["content"])
            if block["type"] in _BLOCKS
        ]
        frames: list[Frame] = []
        texts = {index: block[key] for index, _, key, block in blocks}
        told = {index: "".join(pieces) for index, pieces in self._told.items()}
        if any(not texts.get(index, "").startswith(text) for index, text in told.items()):
            frames, told = self._try_again(), {}
        for index, name, _, _ in blocks:
            frames += self._add(index, name, texts[index][len(told.get(index, "")) :])
        return frames

    def _end_answer(self, message: Frame) -> list[Frame]:
        self._last = message
        self.usage = add_usage(self.usage, message.get("usage") or {})
        frames = self._show_blocks(message)
        self._before = self._join_texts()
        self._forget_new()
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
        elif reason == "aborted":
            self.finish_reason = "length"  # the text is there, but it is not the whole of it
        else:
            self.finish_reason = "stop" if details is None else _FINISH[details]
        return []
