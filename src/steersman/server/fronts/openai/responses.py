"""The Responses API: the events of one response, as a pure function of those of a run.

A text block is a message item, thinking is a reasoning item, and a call of a tool that the client has declared is a
function call, which ends the response. Our own tools are not told. What is void because an answer was tried again stays
in its place, incomplete and empty, so that indices and texts are right at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec

from steersman.server.fronts.openai.errors import APPROVAL_REQUIRED

Frame: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["text", "thinking"]

FAILED_ANSWERS: Final = ("error", "aborted", "refusal")
"""Stop reasons of answers whose tool calls never run."""

STOPPED: Final = (
    "The server stopped in the middle of the run. Send a new request with the response before as the previous one."
)
"""What is told of a response whose run has no end."""

_PARTS: dict[str, str] = {"text": "output_text", "thinking": "reasoning_text"}
_DELTAS: dict[str, Kind] = {"text_delta": "text", "thinking_delta": "thinking"}
_ENDS = {
    "done": "completed",
    "terminated": "completed",
    "stopped": "completed",
    "error": "failed",
    "rejected": "failed",
}


@dataclass(slots=True)
class _Span:
    """An item that is being told."""

    kind: Kind
    index: int
    item: Frame
    pieces: list[str] = field(default_factory=list[str])
    is_open: bool = True

    @property
    def text(self) -> str:
        """What was told of it."""
        return "".join(self.pieces)


class Translator:
    """Turns the events of a run into those of a response. `ended` says that the response is over."""

    def __init__(
        self,
        head: Mapping[str, Any],
        client_tools: Collection[str] = (),
        change: Callable[[Frame], Sequence[Frame]] | None = None,
    ) -> None:
        self._change = change
        self.ended = False
        self.calls: list[str] = []
        self.aborted = False
        self._head = head
        self._client_tools = client_tools
        self._output: list[Frame] = []
        # The items of the answer that is arriving, by the index of their block.
        self._spans: dict[int, _Span] = {}
        self._number = 0
        self._status = "in_progress"
        self._more: Frame = {}
        self._usage: Frame | None = None
        self._last: Frame = {}

    def describe(self) -> Frame:
        """The response as it is now."""
        fields = {"status": self._status, "error": None, "incomplete_details": None, **self._more}
        return {**self._head, **fields, "output": list(self._output), "usage": self._usage}

    def start(self) -> list[Frame]:
        """The beginning of the response."""
        return [self._tell(f"response.{kind}", response=self.describe()) for kind in ("created", "in_progress")]

    def fail(self, message: str, code: str = "server_error") -> list[Frame]:
        """The end of a response that cannot go on."""
        return self._end("failed", error={"code": code, "message": message})

    def ask(self, words: str) -> list[Frame]:
        """The end of a stream whose run waits for an approval."""
        return self.fail(words, APPROVAL_REQUIRED)

    def translate(self, event: Frame) -> list[Frame]:
        """The frames for an event, which is changed first if there is a `change`; none for what is not told."""
        events = (event,) if self._change is None else self._change(event)
        return [frame for one in events for frame in self._translate(one)]

    def _translate(self, event: Frame) -> list[Frame]:
        if self.ended:
            return []
        match event:
            case {"type": "message_update", "delta": delta}:
                return self._update(delta)
            case {"type": "snapshot", "message": message}:
                return self._show_blocks(message)
            case {"type": "message_end", "message": {"role": "assistant"} as message}:
                return self._end_answer(message)
            case {"type": "agent_end"}:
                return self._finish(event)
            case {"type": "cut"}:
                return self.fail(STOPPED)
            case _:
                return []

    def _tell(self, type: str, **fields: Any) -> Frame:
        frame = {"type": type, "sequence_number": self._number, **fields}
        self._number += 1
        return frame

    # Items

    def _update(self, delta: Frame) -> list[Frame]:
        kind, index = delta["type"], delta.get("content_index", 0)
        if kind in _DELTAS:
            return self._add_text(index, _DELTAS[kind], delta["delta"])
        if kind in ("text_end", "thinking_end") and index in self._spans:
            return self._close(self._spans[index], "completed")
        return self._drop_answer() if kind == "reset" else []

    def _add_text(self, index: int, kind: Kind, more: str) -> list[Frame]:
        if not more:
            return []
        frames: list[Frame] = []
        span = self._spans.get(index)
        if span is None:
            span = self._spans[index] = _Span(kind, len(self._output), self._make_item(kind))
            frames = self._open(span)
        span.pieces.append(more)
        ids = {**_place(span), "delta": more, **_add_logprobs(kind)}
        return [*frames, self._tell(f"response.{_PARTS[kind]}.delta", **ids)]

    def _make_item(self, kind: Kind) -> Frame:
        number = len(self._output)
        if kind == "thinking":
            id = f"rs_{self._head['id']}_{number}"
            return {"type": "reasoning", "id": id, "summary": [], "content": [], "status": "in_progress"}
        id = f"msg_{self._head['id']}_{number}"
        return {"type": "message", "id": id, "role": "assistant", "content": [], "status": "in_progress"}

    def _open(self, span: _Span) -> list[Frame]:
        self._output.append(span.item)
        added = self._tell("response.output_item.added", output_index=span.index, item=span.item)
        return [added, self._tell("response.content_part.added", **_place(span), part=_make_part(span.kind, ""))]

    def _close(self, span: _Span, status: str, *, void: bool = False) -> list[Frame]:
        if not span.is_open:
            return []
        span.is_open = False
        text = span.text
        part = _make_part(span.kind, text)
        done = self._tell(f"response.{_PARTS[span.kind]}.done", **_place(span), text=text, **_add_logprobs(span.kind))
        item = {**span.item, "content": [] if void else [part], "status": status}
        self._output[span.index] = item
        return [
            done,
            self._tell("response.content_part.done", **_place(span), part=part),
            self._tell("response.output_item.done", output_index=span.index, item=item),
        ]

    def _drop_answer(self) -> list[Frame]:
        """Forget an answer that is tried again."""
        frames: list[Frame] = []
        for span in self._spans.values():
            frames += self._close(span, "incomplete", void=True)
            self._output[span.index] = {**self._output[span.index], "content": [], "status": "incomplete"}
        self._spans.clear()
        return frames

    def _show_blocks(self, message: Frame) -> list[Frame]:
        """Tell what is not told yet of an answer."""
        blocks = [(index, *_read_block(block)) for index, block in enumerate(message["content"])]
        shown = {index: text for index, _, text in blocks}
        frames: list[Frame] = []
        if any(not shown.get(index, "").startswith(span.text) for index, span in self._spans.items()):
            frames += self._drop_answer()  # what was told is of an attempt before
        for index, kind, text in blocks:
            told = self._spans[index].text if index in self._spans else ""
            if kind is not None and not (index in self._spans and not self._spans[index].is_open):
                frames += self._add_text(index, kind, text[len(told) :])
        return frames

    def _end_answer(self, message: Frame) -> list[Frame]:
        self._last = message
        self._usage = add_usage(self._usage, message.get("usage") or {})
        frames = self._show_blocks(message)
        failed = message["stop_reason"] in FAILED_ANSWERS
        frames += self._close_all("incomplete" if failed or message["stop_reason"] == "length" else "completed")
        calls = [] if failed else list_client_calls(message, self._client_tools)
        for call in calls:
            frames += self._tell_call(call)
        return [*frames, *self._end("completed")] if calls else frames

    def _tell_call(self, call: Frame) -> list[Frame]:
        index, text = len(self._output), msgspec.json.encode(call["arguments"]).decode()
        id = f"fc_{self._head['id']}_{index}"
        item = {"type": "function_call", "id": id, "call_id": call["id"], "name": call["name"], "status": "completed"}
        self.calls.append(call["id"])
        begun = {**item, "arguments": "", "status": "in_progress"}
        place = {"item_id": id, "output_index": index}
        self._output.append({**item, "arguments": text})
        return [
            self._tell("response.output_item.added", output_index=index, item=begun),
            self._tell("response.function_call_arguments.delta", **place, delta=text),
            self._tell("response.function_call_arguments.done", **place, name=call["name"], arguments=text),
            self._tell("response.output_item.done", output_index=index, item=self._output[index]),
        ]

    # The end

    def _finish(self, event: Frame) -> list[Frame]:
        reason = event["end_reason"]
        if reason == "aborted":
            self.aborted = True
            return self._end("incomplete")
        if (details := find_incomplete_reason(reason, self._last)) is not None:
            return self._end("incomplete", incomplete_details={"reason": details})
        if _ENDS.get(reason) != "failed":
            return self._end("completed")
        limited = self._last.get("error_kind") == "rate_limit"
        code = "invalid_prompt" if reason == "rejected" else "rate_limit_exceeded" if limited else "server_error"
        return self.fail(event.get("detail") or "The run failed.", code)

    def _close_all(self, status: str) -> list[Frame]:
        frames = [frame for span in self._spans.values() for frame in self._close(span, status)]
        self._spans.clear()
        return frames

    def _end(self, status: str, **more: Any) -> list[Frame]:
        frames = self._close_all("incomplete")
        self._status, self._more, self.ended = status, more, True
        return [*frames, self._tell(f"response.{status}", response=self.describe())]


def find_incomplete_reason(end_reason: str, last: Mapping[str, Any]) -> str | None:
    """Why a run ended before its answer was complete, in OpenAI's words; `None` if it was complete, or has failed."""
    if last.get("stop_reason") == "refusal" or end_reason == "vetoed":
        return "content_filter"
    if end_reason == "limit":
        return "max_messages"
    return "max_output_tokens" if end_reason == "done" and last.get("stop_reason") == "length" else None


def list_client_calls(message: Mapping[str, Any], names: Collection[str]) -> list[Frame]:
    """The calls of an answer that the client has to run."""
    return [block for block in message["content"] if block["type"] == "tool_call" and block["name"] in names]


def add_usage(so_far: Frame | None, usage: Mapping[str, Any]) -> Frame:
    """Usage in OpenAI's words, with that of one more answer."""
    cached, written = usage.get("cache_read") or 0, usage.get("cache_write") or 0
    given = (usage.get("input") or 0) + cached + written
    made, thought = usage.get("output") or 0, usage.get("reasoning") or 0
    if so_far is not None:
        cached += so_far["input_tokens_details"]["cached_tokens"]
        written += so_far["input_tokens_details"]["cache_write_tokens"]
        given, made = given + so_far["input_tokens"], made + so_far["output_tokens"]
        thought += so_far["output_tokens_details"]["reasoning_tokens"]
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": given + made,
    }


def _read_block(block: Frame) -> tuple[Kind | None, str]:
    if block["type"] == "text":
        return "text", block["text"]
    return ("thinking", block["thinking"]) if block["type"] == "thinking" else (None, "")


def _place(span: _Span) -> Frame:
    return {"item_id": span.item["id"], "output_index": span.index, "content_index": 0}


def _add_logprobs(kind: Kind) -> Frame:
    return {"logprobs": []} if kind == "text" else {}


def _make_part(kind: Kind, text: str) -> Frame:
    if kind == "thinking":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
