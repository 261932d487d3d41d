"""A strict server for OpenAI Chat Completions and for compatible servers with demands of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias, cast

from steersman.provider.scripted.script import Turn
from steersman.testing.servers.base import DeltaBytes, Received, Reply, StrictServer, encode_arguments, split_text, sse
from steersman.testing.servers.openai_chat.messages import Fault, Flavour
from steersman.testing.servers.openai_chat.request import find_request_fault
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo, ErrorKind
from steersman.types.messages import StopReason

ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning", "reasoning_text", "reasoning_details"]

_REASONS: Mapping[StopReason, str] = {
    "stop": "stop",
    "tool_use": "tool_calls",
    "length": "length",
    "refusal": "content_filter",
    "error": "error",
    "aborted": "abort",
}

# The status, code and type with which the API reports each kind of error.
_ERRORS: Mapping[ErrorKind, tuple[int, str | None, str]] = {
    "authentication": (401, "invalid_api_key", "invalid_request_error"),
    "quota": (429, "insufficient_quota", "insufficient_quota"),
    "rate_limit": (429, "rate_limit_exceeded", "requests"),
    "context_overflow": (400, "context_length_exceeded", "invalid_request_error"),
    "refused": (400, "content_policy_violation", "invalid_request_error"),
    "invalid_request": (400, None, "invalid_request_error"),
}


class OpenAIChatServer(StrictServer):
    """Plays a script as OpenAI Chat Completions; `flavour` adds the demands of another server.

    `reasoning` is the field in which thinking is sent, and in which it has to come back with its tool calls;
    `index=False` leaves out the indexes of tool calls, `whole=True` sends each call in one piece.
    """

    provider: ClassVar[str] = "openai-chat"
    prefix: ClassVar[str] = "/v1"
    routes: ClassVar[tuple[str, ...]] = ("/v1/chat/completions",)

    def __init__(
        self,
        *script: Any,
        flavour: Flavour = "openai",
        reasoning: ReasoningField = "reasoning_content",
        index: bool = True,
        whole: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(*script, **settings)
        self.flavour: Flavour = flavour
        self._reasoning = reasoning
        self._index = index
        self._whole_calls = whole
        self._thought: set[str] = set()

    def validate(self, received: Received) -> Reply | None:
        """Return the real API's answer to an invalid request, or `None`."""
        given = received.headers.get("authorization", "")
        if self.key is not None and not given:
            return self.refusal(
                401,
                "You didn't provide an API key. You need to provide your API key in an Authorization header using "
                "Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
            )
        if self.key is not None and given != f"Bearer {self.key}":
            shown = f"{given.removeprefix('Bearer ')[:3]}****"
            return self.refusal(401, f"Incorrect API key provided: {shown}.", "invalid_api_key")
        fault = find_request_fault(received, self.flavour, {self._reasoning: self._thought})
        return None if fault is None else self._build_fault_reply(fault)

    def _build_fault_reply(self, fault: Fault) -> Reply:
        body = self.build_error_body(fault.status, fault.message, fault.code)
        body["error"]["param"] = fault.param
        return Reply(fault.status, body)

    def build_headers(self, received: Received) -> Mapping[str, str]:
        """Build the header with the request id."""
        del received
        return {"x-request-id": f"req_{len(self.raw)}"}

    def build_error_body(self, status: int, message: str, code: str | None = None) -> Any:
        """Build the JSON of an error."""
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def build_scripted_error(self, info: ErrorInfo) -> Reply:
        """Build the response for a scripted error, with the API's code for it."""
        reply = super().build_scripted_error(info)
        known = _ERRORS.get(info.kind)
        if known is None:
            return reply
        status, code, kind = known
        body = {"error": {"message": info.message, "type": kind, "param": None, "code": code}}
        return Reply(info.status or status, body, reply.headers)

    def render_error(self, info: ErrorInfo) -> bytes:
        """Render an error inside a stream: an object instead of a chunk."""
        status, code, kind = _ERRORS.get(info.kind, (info.status or 500, None, "server_error"))
        return sse({"error": {"message": info.message, "type": kind, "param": None, "code": code or status}})

    def render(self, turn: Turn, received: Received) -> Iterable[bytes]:
        """Render the chunks up to the finish_reason."""
        yield self._encode_chunk(received, {"role": "assistant", "content": None if self._has_only_calls(turn) else ""})
        number = 0
        thought = False
        for block in turn.blocks:
            if isinstance(block, TextContent):
                for piece in split_text(block.text, turn.deltas):
                    yield DeltaBytes(self._encode_chunk(received, {"content": piece}))
            elif isinstance(block, ThinkingContent):
                thought = True
                for piece in split_text(block.thinking, turn.deltas):
                    yield DeltaBytes(self._encode_chunk(received, self._build_thinking(piece)))
            elif isinstance(block, ToolCall):
                if thought:
                    self._thought.add(block.id)
                for piece in self._split_call(block, number, turn.deltas):
                    yield DeltaBytes(self._encode_chunk(received, {"tool_calls": [piece]}))
                number += 1

    def render_end(self, turn: Turn, received: Received) -> Iterable[bytes]:
        """Render the finish_reason, the usage if the request wants it, and `[DONE]`."""
        calls = any(isinstance(block, ToolCall) for block in turn.blocks)
        reason = turn.raw_stop_reason or _REASONS[turn.stop_reason or ("tool_use" if calls else "stop")]
        yield self._encode_chunk(received, {}, reason)
        wanted: dict[str, Any] = _get_fields(received).get("stream_options") or {}
        if wanted.get("include_usage") and turn.usage is not None:
            yield sse({**self._build_frame(received), "choices": [], "usage": _build_usage(turn)})
        yield sse("[DONE]")

    def _has_only_calls(self, turn: Turn) -> bool:
        return all(isinstance(block, ToolCall) for block in turn.blocks)

    def _build_frame(self, received: Received) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{len(self.raw)}",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": _get_fields(received).get("model", ""),
        }

    def _encode_chunk(self, received: Received, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return sse({**self._build_frame(received), "choices": [choice]})

    def _build_thinking(self, words: str) -> dict[str, Any]:
        if self._reasoning != "reasoning_details":
            return {self._reasoning: words}
        detail = {"type": "reasoning.text", "text": words, "format": "unknown", "index": 0}
        return {"reasoning": words, "reasoning_details": [detail]}

    def _split_call(self, call: ToolCall, number: int, deltas: int | None) -> Iterable[dict[str, Any]]:
        mark = {"index": number} if self._index else {}
        arguments = encode_arguments(call)
        first = {"name": call.name, "arguments": arguments if self._whole_calls else ""}
        yield {**mark, "id": call.id, "type": "function", "function": first}
        if not self._whole_calls:
            for piece in split_text(arguments, deltas):
                yield {**mark, "function": {"arguments": piece}}


def _get_fields(received: Received) -> dict[str, Any]:
    """Return the request body; empty if it is not an object, which `strict=False` allows."""
    return cast(dict[str, Any], received.json) if isinstance(received.json, dict) else {}


def _build_usage(turn: Turn) -> dict[str, Any]:
    usage = turn.usage
    assert usage is not None  # the caller checks
    prompt = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    output = usage.output or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read or 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
    }
