"""A strict server for the Anthropic Messages API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import msgspec

from steersman.provider.scripted.script import Turn
from steersman.provider.wires.anthropic.decode import PAUSED
from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.provider.wires.overflow import is_overflow
from steersman.testing.servers.anthropic.messages import Fault
from steersman.testing.servers.anthropic.request import check_request, sign
from steersman.testing.servers.base import DeltaBytes, Received, Reply, StrictServer, encode_arguments, split_text, sse
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo, ErrorKind
from steersman.types.usage import Usage

__all__ = ["AnthropicServer", "sign"]

_MAX_BODY_BYTES = 32 * 1024 * 1024

_TYPES: dict[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STATUS: dict[ErrorKind, int] = {"overloaded": 529, "stalled": 504, "network": 500, "incomplete": 500}
_OPENS, _CLOSES = b"event: content_block_start\n", b"event: content_block_stop\n"
_REASONS = {"stop": "end_turn", "tool_use": "tool_use", "length": "max_tokens", "refusal": "refusal"}


class AnthropicServer(StrictServer):
    """Plays a script as the Anthropic Messages API; it signs thinking and accepts it back only unchanged."""

    provider = "anthropic"
    routes = ("/v1/messages",)

    def __init__(self, *script: Any, **settings: Any) -> None:
        super().__init__(*script, **settings)
        self._issued: set[tuple[str, str]] = set()
        self._paused = False

    def validate(self, received: Received) -> Reply | None:
        """Return the real API's answer to an invalid request, or `None`."""
        if len(received.body) > _MAX_BODY_BYTES:
            return self.refusal(413, "Request exceeds the maximum size")
        key = received.headers.get("x-api-key") or received.headers.get("authorization", "").removeprefix("Bearer ")
        if not key:
            return self.refusal(401, "x-api-key header is required")
        if self.key is not None and key != self.key:
            return self.refusal(401, "invalid x-api-key")
        if "anthropic-version" not in received.headers:
            return self.refusal(400, "anthropic-version: header is required")
        if not received.headers.get("content-type", "").startswith("application/json"):
            return self.refusal(400, "content-type: must be application/json")
        try:
            check_request(received.json, issued=self._is_issued, prefill=self._paused)
        except Fault as fault:
            return self.refusal(400, str(fault))
        return None

    def render(self, turn: Turn, received: Received) -> Iterator[bytes]:
        """Render the events up to the end of the last block."""
        usage = _build_usage(turn, received)
        message: dict[str, Any] = {
            "id": f"msg_{len(self.raw):02d}",
            "type": "message",
            "role": "assistant",
            "model": _find_model(received.json),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**usage, "output_tokens": 1},
        }
        yield _encode_event("message_start", message=message)
        yield _encode_event("ping")
        for index, block in enumerate(turn.blocks):
            yield from self._render_block(index, block, turn.deltas)

    def render_end(self, turn: Turn, received: Received) -> Iterator[bytes]:
        """Render the stop reason, the usage and the terminal event."""
        called = any(isinstance(block, ToolCall) for block in turn.blocks)
        reason = turn.raw_stop_reason or _REASONS[turn.stop_reason or ("tool_use" if called else "stop")]
        delta: dict[str, Any] = {"stop_reason": reason, "stop_sequence": None}
        if reason == "refusal":
            delta["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
        self._paused = reason == PAUSED
        yield _encode_event("message_delta", delta=delta, usage=_build_usage(turn, received))
        yield _encode_event("message_stop")

    def build_error_body(self, status: int, message: str, code: str | None = None) -> Any:
        """Build the JSON of an error."""
        kind = code or _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
        return {
            "type": "error",
            "error": {"type": kind, "message": message},
            "request_id": f"req_{len(self.raw):02d}",
        }

    def render_stream(self, turn: Turn, received: Received) -> list[bytes]:
        """Render a whole stream; a refusal is not an error here, but a stop reason."""
        if not isinstance(turn.ending, ErrorInfo) or turn.ending.kind != "refused":
            return super().render_stream(turn, received)
        given = super().render_stream(replace(turn, ending="cut"), received)
        opened = sum(piece.startswith(_OPENS) for piece in given)
        if opened > sum(piece.startswith(_CLOSES) for piece in given):
            given.append(_encode_event("content_block_stop", index=opened - 1))
        return [*given, *self.render_end(replace(turn, stop_reason="refusal"), received)]

    def render_error(self, info: ErrorInfo) -> bytes:
        """Render an error inside a stream."""
        return sse(self._build_error_reply(info).body, "error")

    def build_scripted_error(self, info: ErrorInfo) -> Reply:
        """Build the response for a scripted error; a refusal is an answer with a stop reason."""
        if info.kind == "refused":
            turn = Turn(stop_reason="refusal")
            body = b"".join((*self.render(turn, self.raw[-1]), *self.render_end(turn, self.raw[-1])))
            return Reply(200, body, {"content-type": "text/event-stream"})
        reply = self._build_error_reply(info)
        return Reply(reply.status, reply.body, super().build_scripted_error(info).headers)

    def build_headers(self, received: Received) -> Mapping[str, str]:
        """Build the header with the request id."""
        del received
        return {"request-id": f"req_{len(self.raw):02d}"}

    def make_call_id(self, number: int) -> str:
        """Make an id in the form of the API."""
        return f"toolu_{number:02d}"

    def answer_unknown_path(self, received: Received) -> Reply:
        """Answer a request to an unknown path."""
        del received
        return self.refusal(404, "Not Found")

    def _build_error_reply(self, info: ErrorInfo) -> Reply:
        message = info.message
        if info.kind == "context_overflow" and not is_overflow(message, status=400):
            message = f"{message}: prompt is too long: 200001 tokens > 200000 maximum"
        status = info.status or _STATUS.get(info.kind) or super().build_scripted_error(info).status
        return self.refusal(status, message)

    def _is_issued(self, thinking: str, signature: str) -> bool:
        return (thinking, signature) in self._issued or bool(thinking and signature == sign(thinking))

    def _render_block(self, index: int, block: Content, deltas: int | None) -> Iterable[bytes]:
        match block:
            case TextContent():
                yield _encode_start(index, {"type": "text", "text": ""})
                for piece in split_text(block.text, deltas):
                    yield DeltaBytes(_encode_delta(index, {"type": "text_delta", "text": piece}))
            case ToolCall():
                yield _encode_start(index, {"type": "tool_use", "id": block.id, "name": block.name, "input": {}})
                yield _encode_delta(index, {"type": "input_json_delta", "partial_json": ""})
                for piece in split_text(encode_arguments(block), deltas):
                    yield DeltaBytes(_encode_delta(index, {"type": "input_json_delta", "partial_json": piece}))
            case ThinkingContent():
                yield from self._render_thinking(index, block, deltas)
            case _:
                raise TypeError(f"An answer holds text, thinking and tool calls, got {block!r}.")
        yield _encode_event("content_block_stop", index=index)

    def _render_thinking(self, index: int, block: ThinkingContent, deltas: int | None) -> Iterable[bytes]:
        signature = block.signature or sign(block.thinking)
        if block.field == OPAQUE:
            yield _encode_start(index, msgspec.Raw(signature.encode()))
        elif block.redacted:
            self._issued.add(("", signature))
            yield _encode_start(index, {"type": "redacted_thinking", "data": signature})
        else:
            self._issued.add((block.thinking, signature))
            yield _encode_start(index, {"type": "thinking", "thinking": "", "signature": ""})
            for piece in split_text(block.thinking, deltas):
                yield DeltaBytes(_encode_delta(index, {"type": "thinking_delta", "thinking": piece}))
            yield _encode_delta(index, {"type": "signature_delta", "signature": signature})


def _encode_event(name: str, **fields: Any) -> bytes:
    return sse({"type": name, **fields}, name)


def _find_model(body: Any) -> Any:
    return cast(dict[str, Any], body).get("model") if isinstance(body, dict) else None


def _encode_start(index: int, block: Any) -> bytes:
    return _encode_event("content_block_start", index=index, content_block=block)


def _encode_delta(index: int, delta: dict[str, Any]) -> bytes:
    return _encode_event("content_block_delta", index=index, delta=delta)


def _build_usage(turn: Turn, received: Received) -> dict[str, Any]:
    """Build the usage; an estimate if the script has none."""
    usage = turn.usage or Usage(input=len(received.body) // 4, output=1 + len(msgspec.json.encode(turn.blocks)) // 4)
    counts: dict[str, Any] = {"input_tokens": usage.input or 0, "output_tokens": usage.output or 0}
    for name, count in (
        ("cache_creation_input_tokens", usage.cache_write),
        ("cache_read_input_tokens", usage.cache_read),
    ):
        if count is not None:
            counts[name] = count
    if usage.reasoning is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return counts
