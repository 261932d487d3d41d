"""Reads what Gemini's `streamGenerateContent` sends: chunks without names, and no terminal event but the end.

An answer is complete when a candidate gave its finish reason, or the prompt was blocked. Parts are kept as they came:
one with a thought signature is a block of its own, since a signature belongs to its part and to no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from steersman.provider.wires.dialects import build_incomplete_error, keep_unknown_event
from steersman.provider.wires.google.chunks import (
    Call,
    Chunk,
    DecodedEvent,
    Part,
    Tokens,
    decode_event,
    restore_surrogates,
)
from steersman.provider.wires.google.errors import build_malformed_error, classify_event
from steersman.provider.wires.google.tools import ToolSet
from steersman.types.content import (
    Content,
    ImageContent,
    TextContent,
    ThinkingContent,
    escape_lone_surrogates,
    parse_tool_call,
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
from steersman.types.usage import Usage, add_cost

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
    # What the model wrote could not be read: the next attempt is another throw of the dice.
    **dict.fromkeys(("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"), ("error", "incomplete")),
}
_NO_CHUNK = Chunk()
_LONGEST_COUNT = 15
_UNKNOWN: _Outcome = ("error", "protocol")
_REFUSED: _Outcome = ("refusal", "refused")

OPAQUE = "google_part"
"""`ThinkingContent.field` of a part that only Gemini understands; its JSON is in `signature`."""


class GoogleDecoder:
    """One answer of Gemini, chunk by chunk."""

    __slots__ = (
        "_blocked",
        "_content",
        "_held",
        "_ids",
        "_kind",
        "_model",
        "_note",
        "_parts",
        "_reason",
        "_response",
        "_tokens",
        "_tools",
        "_unknown_events",
    )

    def __init__(self, model: Model, tools: ToolSet) -> None:
        self._model = model
        self._tools = tools
        self._content: list[Content] = []
        self._kind: _Kind | None = None
        self._parts: list[str] = []
        # The first half of a character that was split between two chunks.
        self._held = ""
        self._ids: set[str] = set()
        self._reason: str | None = None
        self._blocked = False
        self._note: str | None = None
        self._response: str | None = None
        self._tokens: list[Tokens] = []
        self._unknown_events: list[str] = []

    @property
    def done(self) -> bool:
        """Never before the end of the stream: more parts may follow a finish reason, and only the end says so."""
        return False

    @property
    def complete(self) -> bool:
        """Whether a finish reason or a block reason has come."""
        return self._reason is not None

    def feed(self, event: str, data: str) -> Sequence[StreamEvent]:
        """The events of one chunk, or of a whole array of them."""
        del event
        if not data or data == "[DONE]" or data.startswith(":"):
            return ()  # said by gateways, never by Google: an end of its own, or a comment wrapped as data
        events: list[StreamEvent] = []
        try:
            answer = decode_event(data)
            if self._response is None:
                self._start_message(answer, events)
            for chunk in answer.chunks:
                self._add_chunk(chunk, answer, events)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise build_malformed_error(self._model.provider, data, error) from error
        return events

    def finish(self) -> AssistantMessage:
        """The whole answer, once the stream has come to its end."""
        reason = self._reason
        if reason is None:
            strange = self._unknown_events if self._response is None else ()
            raise build_incomplete_error(self._model, "google", "its finishReason", strange)
        stop, kind = _REFUSED if self._blocked else _STOP_REASONS.get(reason, _UNKNOWN)
        content = self._content
        if stop == "stop":
            stop = _classify_stop(content)
        words = None if kind is None else self._describe_stop(reason, kind)
        return AssistantMessage(
            FrozenList(content),
            stop_reason=stop,
            raw_stop_reason=reason,
            usage=add_cost(_decode_usage(self._tokens), self._model.prices),
            model=self._model.id,
            provider=self._model.provider,
            error_message=words,
            error_kind=kind,
            response_id=self._response or None,
        )

    def _start_message(self, answer: DecodedEvent, events: list[StreamEvent]) -> None:
        """The answer begins with the first chunk that is one."""
        if any(chunk != _NO_CHUNK for chunk in answer.chunks):
            self._response = ""
            events.append(StreamStart())
        else:
            keep_unknown_event(self._unknown_events, answer.text)

    def _add_chunk(self, chunk: Chunk, answer: DecodedEvent, events: list[StreamEvent]) -> None:
        if chunk.error is not None:
            raise classify_event(self._model, chunk.error)
        if not self._response and chunk.response_id is not None:
            self._response = str(chunk.response_id)
        if chunk.usage_metadata is not None:
            self._tokens.append(chunk.usage_metadata)
        candidates = chunk.candidates
        if candidates:
            candidate = candidates[0]
            if candidate.content is not None and candidate.content.parts:
                for part in candidate.content.parts:
                    self._add_part(part, answer, events)
            if candidate.finish_reason is not None:
                self._reason = str(candidate.finish_reason)
                self._note = candidate.finish_message
            if self._reason is not None:
                # Nobody says whether more follows, and what does is part of the answer.
                self._stop_block(events)
        elif chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason is not None:
            self._stop_block(events)
            self._blocked = True
            self._reason = chunk.prompt_feedback.block_reason
            self._note = chunk.prompt_feedback.block_reason_message

    def _add_part(self, part: Part, answer: DecodedEvent, events: list[StreamEvent]) -> None:
        text = part.text
        if text is None:
            if self._add_other_part(part, answer, events):
                return
            text = ""
        if text or part.thought_signature:
            kind: _Kind = "thinking" if part.thought else "text"
            self._add_text(
                kind, restore_surrogates(text) if answer.has_lone_surrogates else text, part.thought_signature, events
            )

    def _add_other_part(self, part: Part, answer: DecodedEvent, events: list[StreamEvent]) -> bool:
        """A part without text, unless there is nothing to it but its signature."""
        if part.function_call is not None:
            self._add_call(part.function_call, part.thought_signature, events, odd=answer.has_lone_surrogates)
        elif part.inline_data is not None:
            self._stop_block(events)
            if part.inline_data.data:
                self._content.append(ImageContent(part.inline_data.data, part.inline_data.mime_type or "image/png"))
        else:
            whole = answer.encode_part(part)
            if whole is None:
                return False
            self._stop_block(events)
            index = len(self._content)
            self._content.append(ThinkingContent("", whole, field=OPAQUE))
            events += (ThinkingStart(index), ThinkingEnd(index))
        return True

    def _add_text(self, kind: _Kind, text: str, signature: str | None, events: list[StreamEvent]) -> None:
        if signature is not None or self._kind != kind:
            self._stop_block(events)
            self._kind = kind
            events.append(TextStart(len(self._content)) if kind == "text" else ThinkingStart(len(self._content)))
        if self._held or not text.isascii():
            text, self._held = split_trailing_surrogate(self._held + text)
            text = replace_lone_surrogates(text)
        if text:
            self._emit_text(kind, text, events)
        if signature is not None:
            self._stop_block(events, signature)

    def _emit_text(self, kind: _Kind, text: str, events: list[StreamEvent]) -> None:
        self._parts.append(text)
        index = len(self._content)
        events.append(TextDelta(text, index) if kind == "text" else ThinkingDelta(text, index))

    def _stop_block(self, events: list[StreamEvent], signature: str | None = None) -> None:
        """The open block is complete."""
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

    def _add_call(self, call: Call, signature: str | None, events: list[StreamEvent], *, odd: bool) -> None:
        """A call comes whole; one without a name is none."""
        self._stop_block(events)
        if not call.name:
            return
        written = bytes(call.args).decode()
        name, arguments = self._tools.decode_call(call.name, restore_surrogates(written) if odd else written)
        given = "" if call.id is None else str(call.id)
        taken = not given or given in self._ids
        id = new_id("call") if taken else given
        self._ids.add(id)
        parsed = parse_tool_call(
            id, name, arguments, signature=signature, provider_id=given if taken and given else None
        )
        index = len(self._content)
        self._content.append(parsed)
        events.append(ToolCallStart(index, id, name))
        if arguments:
            events.append(ToolCallDelta(escape_lone_surrogates(arguments), index))
        events.append(ToolCallEnd(index, parsed))

    def _describe_stop(self, reason: str, kind: ErrorKind) -> str:
        if self._blocked:
            words = f"Gemini blocked the prompt: {reason}."
        elif kind == "refused":
            words = f"Gemini's filter stopped the answer: {reason}."
        elif kind == "incomplete":
            words = f"Gemini broke the answer off: {reason}."
        else:
            words = f"Gemini ended the answer with {reason!r}, which is no success."
        return f"{words} {self._note}" if self._note else words


def _classify_stop(content: Sequence[Content]) -> StopReason:
    """`STOP` ends turns with calls as well; arguments that cannot be read count as cut off."""
    stop: StopReason = "stop"
    for block in content:
        if block.type == "tool_call":
            if block.is_truncated:
                return "length"
            stop = "tool_use"
    return stop


def _find_last_count(tokens: Sequence[Tokens], name: str) -> int | None:
    """Counts are cumulative: the last word holds, and what later chunks leave out stays as it was."""
    return next((count for one in reversed(tokens) if (count := _decode_count(getattr(one, name))) is not None), None)


def _decode_count(value: object) -> int | None:
    """A count as a whole number; gateways write some with a point, or as a text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _LONGEST_COUNT:
        return int(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return int(value) if 0 <= value < 10**_LONGEST_COUNT else None


def _decode_usage(tokens: Sequence[Tokens]) -> Usage:
    """The normal form: the prompt without what was cached, the output with the thoughts."""
    prompt, cached, output, thoughts, used = (_find_last_count(tokens, name) for name in Tokens.__struct_fields__)
    if thoughts is not None:
        output = thoughts + (output or 0)
    if prompt is not None:
        prompt = max(0, prompt - (cached or 0)) + (used or 0)
    return Usage(input=prompt, output=output, cache_read=cached, reasoning=thoughts)
