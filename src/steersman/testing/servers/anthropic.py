"""A strict server that speaks the Anthropic Messages API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import msgspec

from steersman.provider.scripted.script import Turn
from steersman.provider.wires.anthropic.decode import PAUSED
from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.provider.wires.overflow import classify_overflow
from steersman.testing.servers.anthropic_messages import Fault
from steersman.testing.servers.anthropic_rules import check, signature_of
from steersman.testing.servers.base import Received, Reply, Shown, StrictServer, pieces, sse, written
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo, ErrorKind
from steersman.types.usage import Usage

__all__ = ["AnthropicServer", "signature_of"]

_LARGEST = 32 * 1024 * 1024

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
    """Plays a script as the Anthropic Messages API would; thinking is signed, and taken back only as it was."""

    provider = "anthropic"
    routes = ("/v1/messages",)

    def __init__(self, *script: Any, **settings: Any) -> None:
        super().__init__(*script, **settings)
        self._issued: set[tuple[str, str]] = set()
        self._paused = False

    def validate(self, received: Received) -> Reply | None:
        """What the real API answers to a request it will not take."""
        if len(received.body) > _LARGEST:
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
            check(received.json, issued=self._is_issued, prefill=self._paused)
        except Fault as fault:
            return self.refusal(400, str(fault))
        return None

    def render(self, turn: Turn, received: Received) -> Iterator[bytes]:
        """The events up to the end of the last block."""
        usage = _counts(turn, received)
        message: dict[str, Any] = {
            "id": f"msg_{len(self.raw):02d}",
            "type": "message",
            "role": "assistant",
            "model": _model(received.json),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**usage, "output_tokens": 1},
        }
        yield _event("message_start", message=message)
        yield _event("ping")
        for index, block in enumerate(turn.blocks):
            yield from self._block(index, block, turn.deltas)

    def closing(self, turn: Turn, received: Received) -> Iterator[bytes]:
        """Stop reason, usage, and the end."""
        called = any(isinstance(block, ToolCall) for block in turn.blocks)
        reason = turn.raw_stop_reason or _REASONS[turn.stop_reason or ("tool_use" if called else "stop")]
        delta: dict[str, Any] = {"stop_reason": reason, "stop_sequence": None}
        if reason == "refusal":
            delta["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
        self._paused = reason == PAUSED
        yield _event("message_delta", delta=delta, usage=_counts(turn, received))
        yield _event("message_stop")

    def error_body(self, status: int, message: str, code: str | None = None) -> Any:
        """The JSON of an error."""
        kind = code or _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
        return {
            "type": "error",
            "error": {"type": kind, "message": message},
            "request_id": f"req_{len(self.raw):02d}",
        }

    def stream(self, turn: Turn, received: Received) -> list[bytes]:
        """The pieces of a whole stream; a refusal is no error here, but the end of an answer."""
        if not isinstance(turn.ending, ErrorInfo) or turn.ending.kind != "refused":
            return super().stream(turn, received)
        given = super().stream(replace(turn, ending="cut"), received)
        opened = sum(piece.startswith(_OPENS) for piece in given)
        if opened > sum(piece.startswith(_CLOSES) for piece in given):
            given.append(_event("content_block_stop", index=opened - 1))
        return [*given, *self.closing(replace(turn, stop_reason="refusal"), received)]

    def stream_error(self, info: ErrorInfo) -> bytes:
        """An error in the midst of a stream."""
        return sse(self._told(info).body, "error")

    def scripted_error(self, info: ErrorInfo) -> Reply:
        """A scripted error as a response; a refusal is an answer of its own kind."""
        if info.kind == "refused":
            turn = Turn(stop_reason="refusal")
            body = b"".join((*self.render(turn, self.raw[-1]), *self.closing(turn, self.raw[-1])))
            return Reply(200, body, {"content-type": "text/event-stream"})
        told = self._told(info)
        return Reply(told.status, told.body, super().scripted_error(info).headers)

    def head(self, received: Received) -> Mapping[str, str]:
        """The id by which the server knows the request."""
        del received
        return {"request-id": f"req_{len(self.raw):02d}"}

    def call_id(self, number: int) -> str:
        """An id as the API gives it."""
        return f"toolu_{number:02d}"

    def unknown_path(self, received: Received) -> Reply:
        """What is said to a request that no route takes."""
        del received
        return self.refusal(404, "Not Found")

    def _told(self, info: ErrorInfo) -> Reply:
        message = info.message
        if info.kind == "context_overflow" and not classify_overflow(message, status=400):
            message = f"{message}: prompt is too long: 200001 tokens > 200000 maximum"
        status = info.status or _STATUS.get(info.kind) or super().scripted_error(info).status
        return self.refusal(status, message)

    def _is_issued(self, thinking: str, signature: str) -> bool:
        return (thinking, signature) in self._issued or bool(thinking and signature == signature_of(thinking))

    def _block(self, index: int, block: Content, deltas: int | None) -> Iterable[bytes]:
        match block:
            case TextContent():
                yield _start(index, {"type": "text", "text": ""})
                for piece in pieces(block.text, deltas):
                    yield Shown(_delta(index, {"type": "text_delta", "text": piece}))
            case ToolCall():
                yield _start(index, {"type": "tool_use", "id": block.id, "name": block.name, "input": {}})
                yield _delta(index, {"type": "input_json_delta", "partial_json": ""})
                for piece in pieces(written(block), deltas):
                    yield Shown(_delta(index, {"type": "input_json_delta", "partial_json": piece}))
            case ThinkingContent():
                yield from self._thinking(index, block, deltas)
            case _:
                raise TypeError(f"A model says text, thinking and tool calls, got {block!r}.")
        yield _event("content_block_stop", index=index)

    def _thinking(self, index: int, block: ThinkingContent, deltas: int | None) -> Iterable[bytes]:
        signature = block.signature or signature_of(block.thinking)
        if block.field == OPAQUE:
            yield _start(index, msgspec.Raw(signature.encode()))
        elif block.redacted:
            self._issued.add(("", signature))
            yield _start(index, {"type": "redacted_thinking", "data": signature})
        else:
            self._issued.add((block.thinking, signature))
            yield _start(index, {"type": "thinking", "thinking": "", "signature": ""})
            for piece in pieces(block.thinking, deltas):
                yield Shown(_delta(index, {"type": "thinking_delta", "thinking": piece}))
            yield _delta(index, {"type": "signature_delta", "signature": signature})


def _event(name: str, **fields: Any) -> bytes:
    return sse({"type": name, **fields}, name)


def _model(body: Any) -> Any:
    return cast(dict[str, Any], body).get("model") if isinstance(body, dict) else None


def _start(index: int, block: Any) -> bytes:
    return _event("content_block_start", index=index, content_block=block)


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return _event("content_block_delta", index=index, delta=delta)


def _counts(turn: Turn, received: Received) -> dict[str, Any]:
    """The tokens in the API's words; about as many as there are where the script does not say."""
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
