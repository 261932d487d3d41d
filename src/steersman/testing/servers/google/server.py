"""A strict server for the Gemini API: `POST /v1beta/models/{model}:streamGenerateContent`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from steersman.provider.scripted.script import Turn
from steersman.provider.wires.overflow import is_overflow
from steersman.testing.servers.base import DeltaBytes, Received, Reply, StrictServer, split_text, sse
from steersman.testing.servers.exchange import STATUS
from steersman.testing.servers.google.messages import Json
from steersman.testing.servers.google.request import find_request_fault
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo
from steersman.types.usage import Usage

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "RESOURCE_EXHAUSTED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_REASONS = {"length": "MAX_TOKENS", "refusal": "SAFETY", "error": "OTHER"}
_TOO_LONG = "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."
_NO_KEY = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other "
    "form of API consumer identity to call this API."
)


class GoogleServer(StrictServer):
    """Plays a script as the Gemini API; without `alt=sse` it answers with a JSON array, as the real one does.

    A signature is accepted only on the part it was issued for; those in `signatures` are accepted on any part.
    `ids=False` leaves out the ids of calls, as older models do.
    """

    provider: ClassVar[str] = "google"
    routes: ClassVar[tuple[str, ...]] = (r"/{version:v1(?:alpha|beta)?}/models/{model}:streamGenerateContent",)
    prefix: ClassVar[str] = "/v1beta"

    def __init__(self, *script: Any, ids: bool = True, signatures: Iterable[str] = (), **settings: Any) -> None:
        super().__init__(*script, **settings)
        self.signatures = set(signatures)
        self._ids = ids
        self._signed: dict[tuple[str, str], Json] = {}
        self._responses = itertools.count(1)

    def validate(self, received: Received) -> Reply | None:
        """Return the real API's answer to an invalid request, or `None`."""
        key = received.headers.get("x-goog-api-key") or received.query.get("key")
        if self.key is not None and not key:
            return self.refusal(403, _NO_KEY)
        if self.key is not None and key != self.key:
            return self._refuse_key()
        if "json" not in received.headers.get("content-type", ""):
            return self.refusal(400, "Invalid JSON payload received. Unexpected token.")
        model = received.params["model"]
        fault = find_request_fault(received.json, model, lambda signature, part: self._is_known(model, signature, part))
        return None if fault is None else self.refusal(400, fault)

    def render(self, turn: Turn, received: Received) -> Iterable[bytes]:
        """Render the chunks up to the end of the last block."""
        response = f"response-{next(self._responses)}"
        model = received.params["model"]
        for number, part in enumerate(self._render_parts(turn)):
            if part.get("thoughtSignature"):
                self._signed[model, part["thoughtSignature"]] = part
            chunk = _build_chunk(model, response, {"content": {"parts": [part], "role": "model"}, "index": 0})
            chunk["usageMetadata"] = _build_usage(turn.usage, partial=True)
            yield DeltaBytes(_encode_chunk(chunk, received, first=number == 0))

    def render_end(self, turn: Turn, received: Received) -> Iterable[bytes]:
        """Render the chunk with the finish reason; the API has no terminal event."""
        reason = turn.raw_stop_reason or _REASONS.get(turn.stop_reason or "", "STOP")
        if turn.raw_stop_reason is None and any(_is_malformed(block) for block in turn.blocks):
            reason = "MALFORMED_FUNCTION_CALL"
        candidate = {"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": reason, "index": 0}
        chunk = _build_chunk(received.params["model"], f"response-{next(self._responses)}", candidate)
        chunk["usageMetadata"] = _build_usage(turn.usage, partial=False)
        yield _encode_chunk(chunk, received, first=not any(True for _ in self._render_parts(turn)))
        if not _is_sse(received):
            yield b"]"

    def build_error_body(self, status: int, message: str, code: str | None = None) -> Any:
        """Build the JSON of an error."""
        return {"error": {"code": status, "message": message, "status": code or _STATUS.get(status, "INTERNAL")}}

    def build_scripted_error(self, info: ErrorInfo) -> Reply:
        """Build the response for a scripted error; a refusal is an answer without a candidate."""
        if info.kind == "refused":
            return Reply(200, sse({"promptFeedback": {"blockReason": "SAFETY"}}), {"content-type": "text/event-stream"})
        return super().build_scripted_error(_add_overflow_words(info))

    def render_error(self, info: ErrorInfo) -> bytes:
        """Render an error inside a stream."""
        if info.kind == "refused":
            return sse({"candidates": [{"finishReason": "SAFETY", "index": 0}]})
        info = _add_overflow_words(info)
        body = self.build_error_body(info.status or STATUS[info.kind], info.message)
        if info.retry_after is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            body["error"]["details"] = [{"@type": kind, "retryDelay": f"{info.retry_after:g}s"}]
        return sse(body)

    def build_headers(self, received: Received) -> Mapping[str, str]:
        """Build the content type header if the answer is not an event stream."""
        return {} if _is_sse(received) else {"content-type": "application/json; charset=UTF-8"}

    def _refuse_key(self) -> Reply:
        body = self.build_error_body(400, "API key not valid. Please pass a valid API key.")
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        body["error"]["details"] = [{"@type": kind, "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
        return Reply(400, body)

    def _is_known(self, model: str, signature: str, part: Json) -> bool:
        """Whether the signature was issued for this part, or is accepted on any part."""
        if signature in self.signatures:
            return True
        given = self._signed.get((model, signature))
        return given is not None and _strip_call_id(given) == _strip_call_id(part)

    def _render_parts(self, turn: Turn) -> Iterator[Json]:
        for block in turn.blocks:
            if not _is_malformed(block):
                yield from _render_block(block, turn.deltas, ids=self._ids)


def _add_overflow_words(info: ErrorInfo) -> ErrorInfo:
    """Add the words with which this API reports a context overflow; it has no code for it."""
    if info.kind != "context_overflow" or is_overflow(info.message, status=400):
        return info
    return msgspec.structs.replace(info, message=f"{info.message}: {_TOO_LONG}")


def _render_block(block: Content, deltas: int | None, *, ids: bool) -> Iterator[Json]:
    if isinstance(block, ToolCall):
        raw = block.raw_arguments
        args: Any = block.arguments if raw is None else msgspec.json.decode(raw)
        call = {"name": block.name, "args": args, **({"id": block.id} if ids else {})}
        yield _add_signature({"functionCall": call}, block.signature)
    elif isinstance(block, ImageContent):
        yield {"inlineData": {"mimeType": block.mime_type, "data": block.data}}
    else:
        marks: Json = {"thought": True} if isinstance(block, ThinkingContent) else {}
        words = block.text if isinstance(block, TextContent) else block.thinking
        # A signature belongs to one part, so a signed text is sent whole.
        for piece in split_text(words, deltas) if block.signature is None else (words,):
            yield _add_signature({"text": piece, **marks}, block.signature)


def _add_signature(part: Json, signature: str | None) -> Json:
    return part if signature is None else {**part, "thoughtSignature": signature}


def _is_malformed(block: Content) -> bool:
    """Whether the arguments of a call are malformed JSON: Gemini never sends these, it ends the answer instead."""
    if not isinstance(block, ToolCall) or block.raw_arguments is None:
        return False
    try:
        msgspec.json.decode(block.raw_arguments)
    except msgspec.DecodeError:
        return True
    return False


def _strip_call_id(part: Json) -> Any:
    """Return a part without the id of its call, which a client may add."""
    call = part.get("functionCall")
    if call is None:
        return part
    return {**part, "functionCall": {"name": call["name"], "args": call.get("args") or {}}}


def _is_sse(received: Received) -> bool:
    return received.query.get("alt") == "sse"


def _encode_chunk(chunk: Json, received: Received, *, first: bool) -> bytes:
    if _is_sse(received):
        return b"data: " + msgspec.json.encode(chunk) + b"\r\n\r\n"
    return (b"[" if first else b",\r\n") + msgspec.json.encode(chunk)


def _build_chunk(model: str, response: str, candidate: Json) -> Json:
    return {"candidates": [candidate], "modelVersion": model, "responseId": response}


def _build_usage(usage: Usage | None, *, partial: bool) -> Json:
    """Build the usage: the prompt includes cached tokens, the candidates exclude thoughts."""
    if usage is None:
        return {}
    prompt = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    tokens: Json = {"promptTokenCount": prompt, "totalTokenCount": prompt}
    if usage.cache_read is not None:
        tokens["cachedContentTokenCount"] = usage.cache_read
    if partial:
        return tokens
    if usage.reasoning is not None:
        tokens["thoughtsTokenCount"] = usage.reasoning
    if usage.output is not None:
        tokens["candidatesTokenCount"] = usage.output - (usage.reasoning or 0)
        tokens["totalTokenCount"] += usage.output
    return tokens
