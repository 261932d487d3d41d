"""A strict server of the Converse API; `BedrockServer` plays a script in the binary framing of AWS."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar
from zlib import crc32

import msgspec

from steersman.provider.scripted.script import Turn
from steersman.provider.wires.bedrock.frames import CONTENT_TYPE
from steersman.provider.wires.overflow import is_overflow
from steersman.testing.servers.anthropic.request import sign
from steersman.testing.servers.base import DeltaBytes, Received, Reply, StrictServer, encode_arguments, split_text
from steersman.testing.servers.bedrock.request import Fault, check_request
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo, ErrorKind
from steersman.types.usage import Usage

_REASONS = {
    "stop": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "refusal": "guardrail_intervened",
    "error": "malformed_model_output",
}
_NAMES = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
_STATUS: dict[ErrorKind, int] = {"authentication": 403, "quota": 400}
_QUOTA = "ServiceQuotaExceededException"
_IN_STREAM: dict[ErrorKind, str] = {
    "authentication": "accessDeniedException",
    "quota": "serviceQuotaExceededException",
    "rate_limit": "throttlingException",
    "overloaded": "serviceUnavailableException",
    "context_overflow": "validationException",
    "invalid_request": "validationException",
    "stalled": "modelTimeoutException",
}
_STRING = 7


def encode_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Encode one frame of `application/vnd.amazon.eventstream`; its headers are strings."""
    encoded = b""
    for name, value in headers.items():
        key, text = name.encode(), value.encode()
        encoded += bytes([len(key)]) + key + bytes([_STRING]) + struct.pack(">H", len(text)) + text
    prelude = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    frame = prelude + struct.pack(">I", crc32(prelude)) + encoded + payload
    return frame + struct.pack(">I", crc32(frame))


def encode_event(name: str, fields: Any) -> bytes:
    """Encode one event; anything but bytes is sent as JSON."""
    payload = fields if isinstance(fields, bytes) else msgspec.json.encode(fields)
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return encode_frame(headers, payload)


def encode_exception(name: str, fields: Any) -> bytes:
    """Encode an exception inside a stream."""
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return encode_frame(headers, msgspec.json.encode(fields))


class BedrockServer(StrictServer):
    """Plays a script as the Converse API; it signs reasoning and accepts it back only unchanged.

    `key` is an API key of Bedrock; with `key=None` a signed request is accepted as well, without a look at the
    signature.
    """

    provider: ClassVar[str] = "bedrock"
    routes: ClassVar[tuple[str, ...]] = ("/model/{model}/converse-stream",)
    content_type: ClassVar[str] = CONTENT_TYPE
    noise: ClassVar[bytes] = encode_event("contentBlockDelta", b"This is not of the protocol.")

    def __init__(self, *script: Any, **settings: Any) -> None:
        super().__init__(*script, **settings)
        self._issued: set[tuple[str, str]] = set()

    def validate(self, received: Received) -> Reply | None:
        """Return the real API's answer to an invalid request, or `None`."""
        given = received.headers.get("authorization", "")
        if self.key is not None and not given:
            return self.refusal(403, "Missing Authentication Token", "MissingAuthenticationTokenException")
        if self.key is not None and given != f"Bearer {self.key}":
            words = "Authentication failed: Please make sure your API Key is valid."
            return self.refusal(403, words, "AccessDeniedException")
        try:
            check_request(received.json, self._is_issued)
        except Fault as fault:
            return self.refusal(400, str(fault))
        return None

    def refusal(
        self, status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Build an error reply; a header names the exception."""
        name = code or _NAMES.get(status) or ("InternalServerException" if status >= 500 else "ValidationException")
        named = {"x-amzn-errortype": f"{name}:http://internal.amazon.com/coral/com.amazon.bedrock/", **(headers or {})}
        return Reply(status, self.build_error_body(status, message, code), named)

    def render(self, turn: Turn, received: Received) -> Iterator[bytes]:
        """Render the events up to the end of the last block."""
        yield encode_event("messageStart", {"p": "abcd", "role": "assistant"})
        for index, block in enumerate(turn.blocks):
            yield from self._render_block(index, block, turn.deltas)

    def render_end(self, turn: Turn, received: Received) -> Iterator[bytes]:
        """Render the stop reason and the usage."""
        called = any(isinstance(block, ToolCall) for block in turn.blocks)
        reason = turn.raw_stop_reason or _REASONS[turn.stop_reason or ("tool_use" if called else "stop")]
        yield encode_event("messageStop", {"p": "abc", "stopReason": reason})
        yield encode_event("metadata", {"metrics": {"latencyMs": 12}, "usage": _build_usage(turn, received)})

    def render_stream(self, turn: Turn, received: Received) -> list[bytes]:
        """Render a whole stream; a refusal is not an error here, but a stop reason."""
        if not isinstance(turn.ending, ErrorInfo) or turn.ending.kind != "refused":
            return super().render_stream(turn, received)
        given = super().render_stream(replace(turn, ending="cut"), received)
        return [*given, *self.render_end(replace(turn, stop_reason="refusal"), received)]

    def build_error_body(self, status: int, message: str, code: str | None = None) -> Any:
        """Build the JSON of an error."""
        del status, code
        return {"message": message}

    def render_error(self, info: ErrorInfo) -> bytes:
        """Render an error inside a stream."""
        return encode_exception(_IN_STREAM.get(info.kind, "internalServerException"), {"message": _add_words(info)})

    def build_scripted_error(self, info: ErrorInfo) -> Reply:
        """Build the response for a scripted error; a refusal is an answer with a stop reason."""
        if info.kind == "refused":
            turn = Turn(stop_reason="refusal")
            body = b"".join((*self.render(turn, self.raw[-1]), *self.render_end(turn, self.raw[-1])))
            return Reply(200, body, {"content-type": CONTENT_TYPE})
        plain = super().build_scripted_error(info)
        status = info.status or _STATUS.get(info.kind) or plain.status
        headers = {name: value for name, value in plain.headers.items() if name != "x-amzn-errortype"}
        return self.refusal(status, _add_words(info), _QUOTA if info.kind == "quota" else None, headers)

    def build_headers(self, received: Received) -> Mapping[str, str]:
        """Build the header with the request id."""
        del received
        return {"x-amzn-requestid": f"request-{len(self.raw):02d}"}

    def make_call_id(self, number: int) -> str:
        """Make an id in the form of the API."""
        return f"tooluse_{number:02d}"

    def answer_unknown_path(self, received: Received) -> Reply:
        """Answer a request to an unknown path."""
        del received
        return self.refusal(404, "UnknownOperationException", "UnknownOperationException")

    def _is_issued(self, thinking: str, signature: str) -> bool:
        return (thinking, signature) in self._issued or bool(thinking and signature == sign(thinking))

    def _render_block(self, index: int, block: Content, deltas: int | None) -> Iterable[bytes]:
        match block:
            case TextContent():
                for piece in split_text(block.text, deltas):
                    yield DeltaBytes(encode_delta(index, {"text": piece}))
            case ToolCall():
                start = {"toolUse": {"name": block.name, "toolUseId": block.id}}
                yield encode_event("contentBlockStart", {"contentBlockIndex": index, "start": start})
                for piece in split_text(encode_arguments(block), deltas):
                    yield DeltaBytes(encode_delta(index, {"toolUse": {"input": piece}}))
            case ThinkingContent():
                yield from self._render_thinking(index, block, deltas)
            case _:
                raise TypeError(f"An answer holds text, thinking and tool calls, got {block!r}.")
        yield encode_event("contentBlockStop", {"contentBlockIndex": index, "p": "abcdefgh"})

    def _render_thinking(self, index: int, block: ThinkingContent, deltas: int | None) -> Iterable[bytes]:
        signature = block.signature or sign(block.thinking)
        self._issued.add(("" if block.redacted else block.thinking, signature))
        if block.redacted:
            yield encode_delta(index, {"reasoningContent": {"redactedContent": signature}})
            return
        for piece in split_text(block.thinking, deltas):
            yield DeltaBytes(encode_delta(index, {"reasoningContent": {"text": piece}}))
        yield encode_delta(index, {"reasoningContent": {"signature": signature}})


def encode_delta(index: int, delta: Mapping[str, Any]) -> bytes:
    """Encode one delta; AWS pads events with a field `p`."""
    return encode_event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta, "p": "abcdefghijklm"})


def _add_words(info: ErrorInfo) -> str:
    if info.kind == "context_overflow" and not is_overflow(info.message, status=400):
        return f"{info.message}: Input is too long for requested model."
    return info.message


def _build_usage(turn: Turn, received: Received) -> dict[str, Any]:
    """Build the usage; an estimate if the script has none."""
    usage = turn.usage or Usage(input=len(received.body) // 4, output=1 + len(msgspec.json.encode(turn.blocks)) // 4)
    counts: dict[str, Any] = {"inputTokens": usage.input or 0, "outputTokens": usage.output or 0}
    counts["totalTokens"] = usage.total or 0
    for name, count in (("cacheReadInputTokens", usage.cache_read), ("cacheWriteInputTokens", usage.cache_write)):
        if count is not None:
            counts[name] = count
    return counts
