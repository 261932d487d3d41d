"""A strict server for the OpenAI Responses API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import msgspec

from steersman.provider.scripted.script import Turn
from steersman.provider.wires.openai_responses.encode import CUSTOM, PHASES
from steersman.provider.wires.overflow import is_overflow
from steersman.testing.servers.base import DeltaBytes, Received, Reply, StrictServer, encode_arguments, split_text, sse
from steersman.testing.servers.openai_responses.messages import InputChecker, seal
from steersman.testing.servers.openai_responses.request import Fault, Json, check_fields, check_input
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo, ErrorKind
from steersman.types.usage import Usage

__all__ = ["OpenAIResponsesServer"]

_TYPES: dict[int, str] = {401: "invalid_request_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES: dict[ErrorKind, str] = {
    "authentication": "invalid_api_key",
    "quota": "insufficient_quota",
    "rate_limit": "rate_limit_exceeded",
    "context_overflow": "context_length_exceeded",
    "refused": "invalid_prompt",
    "invalid_request": "invalid_value",
}
_STATUS: dict[ErrorKind, int] = {"quota": 429}
_OVERFLOW = "Your input exceeds the context window of this model. Please adjust your input and try again."
_ORGANISATION = "steersman-tests"
_ITEM = re.compile(rb'"(?:msg|rs|fc|ctc)_(\d{4,9})_\d+"')


class OpenAIResponsesServer(StrictServer):
    """Plays a script as the OpenAI Responses API; it encrypts reasoning and accepts it back only unchanged.

    A scripted refusal becomes refusal parts, or an incomplete response if its `raw_stop_reason` is `content_filter`.
    The signature of a text is its phase; a call with the signature `custom_tool_call` is one to a custom tool.
    """

    provider = "openai"
    prefix = "/v1"
    routes = ("/v1/responses",)

    def __init__(self, *script: Any, **settings: Any) -> None:
        super().__init__(*script, **settings)
        # The id of an item to the id of the reasoning item before it.
        self._after: dict[str, str] = {}
        # The number of a request to the number in the ids of its response.
        self._turns: dict[int, int] = {}

    def validate(self, received: Received) -> Reply | None:
        """Return the real API's answer to an invalid request, or `None`."""
        try:
            self._check_key(received.headers.get("authorization", ""))
            if not isinstance(received.json, dict):
                raise Fault(
                    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your "
                    "HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid "
                    "JSON.)"
                )
            fields = cast(Json, received.json)
            check_fields(fields)
            InputChecker(store=bool(fields.get("store", True)), after=self._after).check(check_input(fields["input"]))
        except Fault as fault:
            return Reply(fault.status, self._build_error(fault.status, str(fault), fault.code, fault.param))
        return None

    def _check_key(self, header: str) -> None:
        scheme, _, key = header.partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise Fault(
                "You didn't provide an API key. You need to provide your API key in an Authorization header using "
                "Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
                status=401,
            )
        if self.key is not None and key != self.key:
            shown = f"{key[:4]}{'*' * 8}{key[-4:]}"
            raise Fault(
                f"Incorrect API key provided: {shown}. You can find your API key at "
                "https://platform.openai.com/account/api-keys.",
                None,
                "invalid_api_key",
                401,
            )

    def render(self, turn: Turn, received: Received) -> Iterator[bytes]:
        """Render the events up to the end of the last item."""
        rendered = self._render_response(turn, received)
        self._after.update(rendered.after)
        return iter(rendered.events)

    def render_end(self, turn: Turn, received: Received) -> Iterator[bytes]:
        """Render the terminal event with the whole response."""
        rendered = self._render_response(turn, received)
        status, reason = _find_status(turn)
        response = {
            **rendered.response,
            "status": status,
            "incomplete_details": None if reason is None else {"reason": reason},
            "output": rendered.output,
            "usage": _build_usage(turn, received),
        }
        yield rendered.encode_event(f"response.{status}", response=response)

    def _render_response(self, turn: Turn, received: Received) -> _ResponseRenderer:
        place = next((at for at, known in enumerate(self.raw) if known is received), len(self.raw))
        if place not in self._turns:
            # Real ids never collide, so numbers that occur in the conversation are skipped.
            taken = {*map(int, _ITEM.findall(received.body)), *self._turns.values()}
            self._turns[place] = next(number for number in count(place) if number not in taken)
        return _ResponseRenderer(turn, self._turns[place], received.json)

    def build_error_body(self, status: int, message: str, code: str | None = None) -> Any:
        """Build the JSON of an error."""
        return self._build_error(status, message, code, None)

    def _build_error(self, status: int, message: str, code: str | None, param: str | None) -> Any:
        kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
        if code == "insufficient_quota":
            kind = code
        return {"error": {"message": message, "type": kind, "param": param, "code": code}}

    def render_error(self, info: ErrorInfo) -> bytes:
        """Render an error inside a stream."""
        code = _CODES.get(info.kind, "server_error")
        words = _describe_error(info)
        return sse({"type": "error", "code": code, "message": words, "param": None, "sequence_number": 99_999}, "error")

    def build_scripted_error(self, info: ErrorInfo) -> Reply:
        """Build the HTTP response for a scripted error that comes before any delta."""
        usual = super().build_scripted_error(info)
        status = info.status or _STATUS.get(info.kind) or usual.status
        return Reply(
            status, self._build_error(status, _describe_error(info), _CODES.get(info.kind), None), usual.headers
        )

    def build_headers(self, received: Received) -> Mapping[str, str]:
        """Build the header with the request id."""
        del received
        return {"x-request-id": f"req_{len(self.raw):02d}", "openai-organization": _ORGANISATION}

    def answer_unknown_path(self, received: Received) -> Reply:
        """Answer a request to an unknown path."""
        return self.refusal(404, f"Invalid URL ({received.method} {received.path})")


@dataclass(slots=True)
class _ResponseRenderer:
    """Renders a turn as the events of one response."""

    turn: Turn
    number: int
    request: Any
    events: list[bytes] = field(default_factory=list[bytes])
    output: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    after: dict[str, str] = field(default_factory=dict[str, str])
    _sequence: int = 0

    def __post_init__(self) -> None:
        for name in ("created", "in_progress"):
            self.events.append(self.encode_event(f"response.{name}", response=self.response))
        reasoning: str | None = None
        for index, block in enumerate(self.turn.blocks):
            item = self._render_item(index, block)
            self.output.append(item)
            if item["type"] == "reasoning":
                reasoning = item["id"]
            elif reasoning is not None:
                self.after[item["id"]] = reasoning
                reasoning = None

    @property
    def response(self) -> dict[str, Any]:
        fields = cast(dict[str, Any], self.request) if isinstance(self.request, dict) else {}
        return {
            "id": f"resp_{self.number:04d}",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": fields.get("instructions"),
            "model": fields.get("model"),
            "output": [],
            "parallel_tool_calls": True,
            "store": fields.get("store", True),
            "tool_choice": fields.get("tool_choice", "auto"),
            "tools": fields.get("tools") or [],
            "usage": None,
        }

    def encode_event(self, name: str, **fields: Any) -> bytes:
        """Encode the next event of the stream."""
        number = self._sequence
        self._sequence += 1
        return sse({"type": name, **fields, "sequence_number": number}, name)

    def _render_item(self, index: int, block: Content) -> dict[str, Any]:
        last = index == len(self.turn.blocks) - 1
        status = "incomplete" if last and self.turn.stop_reason == "length" else "completed"
        match block:
            case TextContent():
                return self._render_message(index, block, status)
            case ThinkingContent():
                return self._render_reasoning(index, block)
            case ToolCall():
                return self._render_call(index, block, status)
            case _:
                raise TypeError(f"An answer holds text, thinking and tool calls, got {block!r}.")

    def _start_item(self, index: int, item: dict[str, Any]) -> None:
        self.events.append(self.encode_event("response.output_item.added", output_index=index, item=item))

    def _stop_item(self, index: int, item: dict[str, Any]) -> dict[str, Any]:
        self.events.append(self.encode_event("response.output_item.done", output_index=index, item=item))
        return item

    def _add_deltas(self, name: str, fields: dict[str, Any], words: str, **more: Any) -> None:
        for piece in split_text(words, self.turn.deltas):
            self.events.append(DeltaBytes(self.encode_event(f"{name}.delta", **fields, delta=piece, **more)))

    def _render_message(self, index: int, block: TextContent, status: str) -> dict[str, Any]:
        id = f"msg_{self.number:04d}_{index}"
        item: dict[str, Any] = {"id": id, "type": "message", "role": "assistant", "status": status}
        if block.signature in PHASES:
            item["phase"] = block.signature
        at = {"item_id": id, "output_index": index, "content_index": 0}
        refused = self.turn.stop_reason == "refusal" and self.turn.raw_stop_reason is None
        name, word = ("response.refusal", "refusal") if refused else ("response.output_text", "text")
        empty: dict[str, Any] = {"type": "refusal"} if refused else {"type": "output_text", "annotations": []}
        more: dict[str, Any] = {} if refused else {"logprobs": []}
        part = {**empty, **more, word: block.text}
        self._start_item(index, {**item, "status": "in_progress", "content": []})
        self.events.append(self.encode_event("response.content_part.added", **at, part={**part, word: ""}))
        self._add_deltas(name, at, block.text, **more)
        self.events.append(self.encode_event(f"{name}.done", **at, **{word: block.text}, **more))
        self.events.append(self.encode_event("response.content_part.done", **at, part=part))
        return self._stop_item(index, {**item, "content": [part]})

    def _render_reasoning(self, index: int, block: ThinkingContent) -> dict[str, Any]:
        id = f"rs_{self.number:04d}_{index}"
        item: dict[str, Any] = {"id": id, "type": "reasoning", "summary": [], "encrypted_content": None}
        content = seal(id, block.thinking, block.signature)
        # The announced item has only a part of the encrypted content, as with the real API.
        self._start_item(index, {**item, "encrypted_content": content[: len(content) // 2]})
        summary: list[dict[str, Any]] = []
        for number, words in enumerate(block.thinking.split("\n\n") if block.thinking else ()):
            at = {"item_id": id, "output_index": index, "summary_index": number}
            part = {"type": "summary_text", "text": words}
            name = "response.reasoning_summary"
            self.events.append(self.encode_event(f"{name}_part.added", **at, part={**part, "text": ""}))
            self._add_deltas(f"{name}_text", at, words)
            self.events.append(self.encode_event(f"{name}_text.done", **at, text=words))
            self.events.append(self.encode_event(f"{name}_part.done", **at, part=part))
            summary.append(part)
        return self._stop_item(index, {**item, "summary": summary, "encrypted_content": content})

    def _render_call(self, index: int, block: ToolCall, status: str) -> dict[str, Any]:
        if block.signature == CUSTOM:
            kind, prefix, word, words = CUSTOM, "ctc", "input", str(block.arguments.get("input", ""))
            name = "response.custom_tool_call_input"
        else:
            kind, prefix, word, words = "function_call", "fc", "arguments", encode_arguments(block)
            name = "response.function_call_arguments"
        id = f"{prefix}_{self.number:04d}_{index}"
        item: dict[str, Any] = {"id": id, "type": kind, "call_id": block.id, "name": block.name, "status": status}
        at = {"item_id": id, "output_index": index}
        self._start_item(index, {**item, "status": "in_progress", word: ""})
        self._add_deltas(name, at, words)
        self.events.append(self.encode_event(f"{name}.done", **at, **{word: words}))
        return self._stop_item(index, {**item, word: words})


def _find_status(turn: Turn) -> tuple[str, str | None]:
    """Return the status of the response, and the reason if it is incomplete."""
    if turn.raw_stop_reason is not None and turn.raw_stop_reason != "completed":
        return "incomplete", turn.raw_stop_reason
    return ("incomplete", "max_output_tokens") if turn.stop_reason == "length" else ("completed", None)


def _describe_error(info: ErrorInfo) -> str:
    if info.kind == "context_overflow" and not is_overflow(info.message, status=400):
        return f"{info.message}: {_OVERFLOW}"
    return info.message


def _build_usage(turn: Turn, received: Received) -> dict[str, Any]:
    """Build the usage; an estimate if the script has none."""
    usage = turn.usage or Usage(input=len(received.body) // 4, output=1 + len(msgspec.json.encode(turn.blocks)) // 4)
    written_to, read = usage.cache_write or 0, usage.cache_read or 0
    into, out = (usage.input or 0) + written_to + read, usage.output or 0
    return {
        "input_tokens": into,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written_to},
        "output_tokens": out,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": into + out,
    }
