"""Decodes an answer of Gemini's `streamGenerateContent`: chunks without event names and without a terminal event.

An answer is complete with a finish reason, or when the prompt was blocked. A part with a thought signature becomes a
block of its own, because the signature belongs to that part only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from steersman.provider.http.errors import build_malformed_error
from steersman.provider.wires.dialects import build_incomplete_error, keep_unknown_event
from steersman.provider.wires.google.chunks import (
    Call,
    Candidate,
    Chunk,
    DecodedEvent,
    Part,
    Tokens,
    decode_chunk,
    decode_unusual_event,
    decode_usage,
    restore_surrogates,
)
from steersman.provider.wires.google.errors import classify_event, describe_stop
from steersman.provider.wires.google.partial_calls import PartialCall
from steersman.provider.wires.google.tools import ToolSet
from steersman.provider.wires.protocol import (
    MAX_TOOL_CALLS,
    check_block_count,
    check_call_count,
    judge_calls,
    parse_call,
)
from steersman.types.content import (
    Content,
    ImageContent,
    TextContent,
    ThinkingContent,
    escape_lone_surrogates,
    replace_lone_surrogates,
    split_trailing_surrogate,
)
from steersman.types.errors import ErrorKind
from steersman.types.frozen import FrozenList
from steersman.types.ids import new_id
from steersman.types.messages import AssistantMessage, StopReason
from steersman.types.model import Model
from steersman.types.stream import (
    StreamEvent,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from steersman.types.usage import add_cost

_Kind: TypeAlias = Literal["text", "thinking"]
_Outcome: TypeAlias = tuple[StopReason, ErrorKind | None]

_STOP_REASONS: dict[str, _Outcome] = {
    "STOP": ("stop", None),
    "MAX_TOKENS": ("length", None),
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MODEL_ARMOR",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
        ),
        ("refusal", "refused"),
    ),
    # The model wrote malformed output: another attempt may succeed.
    **dict.fromkeys(("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"), ("error", "incomplete")),
}
_NO_CHUNK = Chunk()
_EMPTY = AssistantMessage()
_UNKNOWN: _Outcome = ("error", "protocol")
_REFUSED: _Outcome = ("refusal", "refused")

OPAQUE = "google_part"
"""`ThinkingContent.field` of a part of an unknown type; its JSON is kept in `signature`."""


class GoogleDecoder(msgspec.Struct, eq=False):
    """Decodes one answer."""

    _model: Model
    _tools: ToolSet
    _content: list[Content] = []
    _kind: _Kind | None = None
    _parts: list[str] = []
    # A high surrogate whose low surrogate comes with the next chunk.
    _held: str = ""
    _ids: set[str] = set()
    _partial_call: PartialCall | None = None
    # How many steps the paths of its arguments, and those of the calls before it, have.
    _steps: int = 0
    # How many parts are of unknown types.
    _others: int = 0
    _reason: str | None = None
    _blocked: bool = False
    _note: str | None = None
    _response: str | None = None
    _tokens: list[Tokens] = []
    _unknown_events: list[str] = []

    @property
    def done(self) -> bool:
        """Always False: parts may follow a finish reason, so only the end of the stream ends the answer."""
        return False

    @property
    def complete(self) -> bool:
        """Whether a finish reason or a block reason has arrived."""
        return self._reason is not None

    def feed(self, event: str, data: str) -> Sequence[StreamEvent]:
        """Decode one chunk, or an array of chunks."""
        out: list[StreamEvent] = []
        self.feed_all(((event, data),), out)
        return out

    def feed_all(self, received: Sequence[tuple[str, str]], out: list[StreamEvent]) -> None:
        """Decode several events; nearly every one holds only more text for the open block, or one call."""
        for event, data in received:
            try:
                chunk = decode_chunk(data)
            except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
                self._feed_unusual(event, data, error, out)
                continue
            if event or not self._add_usual(chunk, out):
                self._add_event(event, DecodedEvent((chunk,), data), out)

    def _add_usual(self, chunk: Chunk, out: list[StreamEvent]) -> bool:
        """Append to the open block, or add a call that came whole; returns whether the chunk holds no other content."""
        candidates = chunk.candidates
        if not candidates or chunk.error is not None or self._held or self._reason is not None:
            return False
        if not self._response:
            self._start_answer(chunk, out)
        candidate = candidates[0]
        parts = None if candidate.content is None else candidate.content.parts
        if parts is None or len(parts) != 1:
            return False
        part = parts[0]
        text, signature = part.text, part.thought_signature
        if text is None and part.function_call is not None:
            self._add_function_call(part.function_call, signature, out)
        elif not text or not text.isascii() or signature is not None:
            return False
        else:
            kind: _Kind = "thinking" if part.thought else "text"
            if kind != self._kind:
                self._start_block(kind, out)
            self._emit_text(kind, text, out)
        self._record_tokens(chunk.usage_metadata)
        if candidate.finish_reason is not None:
            self._record_stop(candidate, out)
        return True

    def _record_stop(self, candidate: Candidate, out: list[StreamEvent]) -> None:
        self._reason = str(candidate.finish_reason)
        self._note = candidate.finish_message
        self._stop_all(out)

    def _stop_all(self, out: list[StreamEvent]) -> None:
        """Stop what is open; parts may still follow, in blocks of their own."""
        self._stop_block(out)
        if self._partial_call is not None:
            self._stop_call(out, complete=False)

    def _feed_unusual(self, event: str, data: str, error: Exception, out: list[StreamEvent]) -> None:
        """Decode what is not one chunk: an array of chunks, a chunk with lone surrogates, or a mark of a gateway."""
        if not data or data == "[DONE]" or data.startswith(":"):
            return  # an end marker, or a comment sent as data
        try:
            answer = decode_unusual_event(data)
            self._add_event(event, answer, out)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            if event == "error":
                raise classify_event(self._model, data) from None
            raise build_malformed_error(self._model, data, error) from error

    def finish(self) -> AssistantMessage:
        """Return the whole answer, after the end of the stream."""
        reason = self._reason
        if reason is None:
            unknown = self._unknown_events if self._response is None else ()
            raise build_incomplete_error(self._model, "google", "its finishReason", unknown)
        stop, kind = _REFUSED if self._blocked else _STOP_REASONS.get(reason, _UNKNOWN)
        content = self._content
        if stop == "stop":
            stop = judge_calls(content)
        words = None if kind is None else describe_stop(reason, kind, self._note, blocked=self._blocked)
        return msgspec.structs.replace(
            _EMPTY,
            content=FrozenList(content),
            stop_reason=stop,
            raw_stop_reason=reason,
            usage=add_cost(decode_usage(self._tokens), self._model.prices),
            model=self._model.id,
            provider=self._model.provider,
            error_message=words,
            error_kind=kind,
            response_id=self._response or None,
        )

    def _add_event(self, event: str, answer: DecodedEvent, events: list[StreamEvent]) -> None:
        if self._response is None:
            self._start_message(answer, events)
        for chunk in answer.chunks:
            if chunk.error is not None:
                raise classify_event(self._model, chunk.error)
            self._add_chunk(chunk, answer, events)
        if event == "error":
            raise classify_event(self._model, answer.text)

    def _start_message(self, answer: DecodedEvent, events: list[StreamEvent]) -> None:
        """Start the message with the first chunk that has a known field."""
        for chunk in answer.chunks:
            if chunk.candidates or chunk != _NO_CHUNK:
                self._start_answer(chunk, events)
                return
        keep_unknown_event(self._unknown_events, answer.text)

    def _start_answer(self, chunk: Chunk, events: list[StreamEvent]) -> None:
        """Note the id of the answer, with the first chunk that has one; the first chunk of all starts the answer."""
        if self._response is None:
            events.append(StreamStart())
        self._response = "" if chunk.response_id is None else str(chunk.response_id)

    def _add_chunk(self, chunk: Chunk, answer: DecodedEvent, events: list[StreamEvent]) -> None:
        if not self._response and chunk.response_id is not None:
            self._start_answer(chunk, events)
        self._record_tokens(chunk.usage_metadata)
        candidates = chunk.candidates
        if candidates:
            candidate = candidates[0]
            if candidate.content is not None and candidate.content.parts:
                for part in candidate.content.parts:
                    if part.function_call is not None and part.text is None:
                        odd = answer.has_lone_surrogates
                        self._add_function_call(part.function_call, part.thought_signature, events, odd=odd)
                    else:
                        self._add_part(part, answer, events)
            if candidate.finish_reason is not None:
                self._record_stop(candidate, events)
            elif self._reason is not None:
                self._stop_all(events)
        elif chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason is not None:
            self._stop_block(events)
            self._blocked = True
            self._reason = chunk.prompt_feedback.block_reason
            self._note = chunk.prompt_feedback.block_reason_message

    def _record_tokens(self, tokens: Tokens | None) -> None:
        if tokens is not None and (not self._tokens or tokens != self._tokens[-1]):
            self._tokens.append(tokens)

    def _add_part(self, part: Part, answer: DecodedEvent, events: list[StreamEvent]) -> None:
        text = part.text
        if text is None:
            if self._add_other_part(part, answer, events):
                return
            text = ""
        if text or part.thought_signature:
            text = restore_surrogates(text) if answer.has_lone_surrogates else text
            self._add_text("thinking" if part.thought else "text", text, part.thought_signature, events)

    def _add_other_part(self, part: Part, answer: DecodedEvent, events: list[StreamEvent]) -> bool:
        """Add a part without text; returns False if the part holds only a signature."""
        if part.inline_data is not None:
            self._stop_block(events)
            if part.inline_data.data and not part.thought:  # a draft that the model thinks with is no answer
                self._content.append(ImageContent(part.inline_data.data, part.inline_data.mime_type or "image/png"))
        else:
            whole = answer.encode_part(part)
            if whole is None:
                return False
            self._stop_block(events)
            self._others += 1
            check_block_count(self._others)
            index = len(self._content)
            self._content.append(ThinkingContent("", whole, field=OPAQUE))
            events += (ThinkingStart(index), ThinkingEnd(index))
        return True

    def _add_function_call(
        self, call: Call, signature: str | None, events: list[StreamEvent], *, odd: bool = False
    ) -> None:
        """Add a call, or a piece of one."""
        if call.will_continue or call.partial_args or self._partial_call is not None:
            self._add_call_piece(call, signature, events, odd=odd)
        elif call.name:
            written = str(call.args, "utf-8")
            self._add_call(call, restore_surrogates(written) if odd else written, signature, events)
        else:
            self._stop_block(events)  # a call without a name is skipped

    def _add_text(self, kind: _Kind, text: str, signature: str | None, events: list[StreamEvent]) -> None:
        if signature is not None or self._kind != kind:
            self._start_block(kind, events)
        if self._held or not text.isascii():
            text, self._held = split_trailing_surrogate(self._held + text)
            text = replace_lone_surrogates(text)
        if text:
            self._emit_text(kind, text, events)
        if signature is not None:
            self._stop_block(events, signature)

    def _start_block(self, kind: _Kind, events: list[StreamEvent]) -> None:
        """Start a block of text or thinking behind the open one."""
        if self._kind is not None:
            self._stop_block(events)
        self._kind = kind
        events.append(TextStart(len(self._content)) if kind == "text" else ThinkingStart(len(self._content)))

    def _emit_text(self, kind: _Kind, text: str, events: list[StreamEvent]) -> None:
        self._parts.append(text)
        index = len(self._content)
        events.append(TextDelta(text, index) if kind == "text" else ThinkingDelta(text, index))

    def _stop_block(self, events: list[StreamEvent], signature: str | None = None) -> None:
        """Stop the open block, if there is one."""
        kind = self._kind
        if kind is None:
            return
        if self._held:
            self._held = ""
            self._emit_text(kind, "\ufffd", events)
        text = "".join(self._parts)
        index = len(self._content)
        if kind == "text":
            events.append(TextEnd(index))
            self._content.append(TextContent(text, signature))
        else:
            events.append(ThinkingEnd(index))
            self._content.append(ThinkingContent(text, signature))
        self._kind = None
        self._parts = []

    def _add_call_piece(self, call: Call, signature: str | None, events: list[StreamEvent], *, odd: bool) -> None:
        """Add a piece of a call; a piece with another name begins another call."""
        if call.name and self._partial_call is not None:
            self._stop_call(events, complete=False)
        if self._partial_call is None:
            self._partial_call = PartialCall(call, signature, self._steps)
        self._partial_call.add(call, signature)
        self._partial_call.has_lone_surrogates |= odd
        if not call.will_continue:
            self._stop_call(events, complete=True)

    def _stop_call(self, events: list[StreamEvent], *, complete: bool) -> None:
        """Pass on a call that came in pieces."""
        partial, self._partial_call = self._partial_call, None
        if partial is not None:
            self._steps = partial.steps
        if partial is not None and partial.name:
            call = Call(partial.name, partial.id)
            written = partial.encode(complete=complete)
            written = restore_surrogates(written) if partial.has_lone_surrogates else written
            self._add_call(call, written, partial.signature, events)

    def _add_call(self, call: Call, written: str, signature: str | None, events: list[StreamEvent]) -> None:
        """Add a whole call with its arguments as they were written."""
        if self._kind is not None:
            self._stop_block(events)
        name, arguments = self._tools.decode_call(call.name or "", written)
        id, own_id, ids = "" if call.id is None else str(call.id), None, self._ids
        if not id or id in ids:
            id, own_id = new_id("call"), id or None
        ids.add(id)
        if len(ids) > MAX_TOOL_CALLS:
            check_call_count(len(ids))
        content, parsed = self._content, parse_call(id, name, arguments, signature, own_id)
        index = len(content)
        content.append(parsed)
        events.append(ToolCallStart(index, id, name))
        if arguments:
            shown = arguments if arguments.isascii() else escape_lone_surrogates(arguments)
            events.append(ToolCallDelta(shown, index))
        events.append(ToolCallEnd(index, parsed))
