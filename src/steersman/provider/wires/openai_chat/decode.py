"""Decodes a Chat Completions stream: chunks in, stream events and the whole message out.

Each chunk is decoded once; its text is appended to a list, which is joined when the block stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from steersman.provider.wires.dialects import build_incomplete_error, keep_unknown_event
from steersman.provider.wires.openai_chat.blocks import Blocks
from steersman.provider.wires.openai_chat.calls import OpenCall
from steersman.provider.wires.openai_chat.chunks import (
    NO_FIELDS,
    NOTHING,
    CallPiece,
    Choice,
    Chunk,
    Delta,
    Frame,
    decode_chunk,
    decode_head,
    decode_leniently,
    decode_usage,
    find_argument_frame,
    find_frame,
    is_usual_call,
    list_call_fields,
)
from steersman.provider.wires.openai_chat.errors import IN_STREAM, classify_event
from steersman.provider.wires.openai_chat.quirks import Quirks
from steersman.provider.wires.protocol import judge_calls
from steersman.types.content import Content, replace_lone_surrogates
from steersman.types.errors import ProtocolError
from steersman.types.frozen import FrozenList
from steersman.types.messages import AssistantMessage, StopReason
from steersman.types.model import Model
from steersman.types.stream import (
    StreamEvent,
    StreamStart,
    TextDelta,
    ToolCallDelta,
)
from steersman.types.usage import Usage

STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "content_filter": "refusal",
}
"""The finish reasons of the protocol. Any other is an error, unless the model's settings map it."""


class OpenAIChatDecoder(msgspec.Struct, eq=False):
    """Decodes one answer."""

    _model: Model
    _quirks: Quirks
    _blocks: Blocks
    done: bool = False
    _refusal: list[str] = []
    _reason: str | None = None
    _usage: msgspec.Raw = NOTHING
    _id: str | None = None
    # The index of the choice that is decoded.
    _choice: int = 0
    # Chunks of this choice with nothing in them, with `"usage": null` and without usage; none before the first one.
    _empty_chunks: Sequence[Chunk] = ()
    # The JSON around the text of a chunk, searched for once.
    _frame: Frame | None = None
    _framed: bool = False
    _unknown_events: list[str] = []

    @property
    def complete(self) -> bool:
        """Whether a finish reason has arrived; `[DONE]` may be missing."""
        return self._reason is not None

    def feed(self, event: str, data: str) -> Sequence[StreamEvent]:
        """Decode one event."""
        out: list[StreamEvent] = []
        self.feed_all(((event, data),), out)
        return out

    def feed_all(self, events: Sequence[tuple[str, str]], out: list[StreamEvent]) -> None:
        """Decode several events, up to the terminal one."""
        at, end, blocks = self._read_word(events, out), 0 if self.done else len(events), self._blocks
        while at < end:
            # The fast path: nearly every event holds only more text, or more arguments.
            call = blocks.growing
            frame = call.frame if call is not None else self._frame if blocks.has_open_text else None
            if frame is not None:
                at += self._read_framed(frame, events, at, out)
                if at == end:
                    return
            event, data = events[at]
            at += 1
            if data == "[DONE]":
                self.done = True
                self._stop_blocks(out)
                return
            try:
                chunk: Chunk = decode_chunk(data)
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
                found = self._decode_leniently(event, data)
                if self.done:
                    self._stop_blocks(out)
                    return
                if found is None:
                    continue
                chunk, call = found, None
            if call is not None:
                extended = self._extend_call(call, chunk, event, data, out)
            else:
                extended = blocks.has_open_text and self._extend_text(chunk, event, data, out)
            if not extended:
                self._add_chunk(chunk, event, data, out)

    def _read_word(self, events: Sequence[tuple[str, str]], out: list[StreamEvent]) -> int:
        """Append the text of an event that comes alone, in the frame that is known; returns how many events it was."""
        frame, blocks = self._frame, self._blocks
        if len(events) != 1 or frame is None or not blocks.has_open_text or blocks.growing is not None:
            return 0
        word = frame.read_word(events[0])
        if not word:
            return 0
        blocks.parts.append(word)
        out.append(TextDelta(word, blocks.index))
        return 1

    def _read_framed(self, frame: Frame, events: Sequence[tuple[str, str]], at: int, out: list[StreamEvent]) -> int:
        """Append what comes in a frame that is known already; returns how many events it was."""
        call = self._blocks.growing
        if call is None or call.index is None:
            words = frame.read_words(events, at)
            self._blocks.parts += words
            index = self._blocks.index
            out += [TextDelta(word, index) for word in words]
        else:
            words = frame.read_arguments(events, at)
            call.parts += words
            call.shown += len(words)
            index = call.index
            out += [ToolCallDelta(word, index) for word in words]
        return len(words)

    def _extend_text(self, chunk: Chunk, event: str, data: str, out: list[StreamEvent]) -> bool:
        """Append to the open text block; returns whether the chunk held nothing else."""
        delta = chunk.choices[0].delta if chunk.choices and event != "error" else None
        words = None if delta is None else delta.content
        if delta is None or type(words) is not str or not words:
            return False
        delta.content = None
        if chunk != self._empty_chunks[chunk.usage is NOTHING]:
            delta.content = words
            return False
        self._blocks.parts.append(words)
        out.append(TextDelta(words, self._blocks.index))
        if not self._framed:
            self._framed = True
            self._frame = find_frame(data, words)
        return True

    def _add_chunk(self, chunk: Chunk, event: str, data: str, out: list[StreamEvent]) -> None:
        """Add a chunk that is not only more text."""
        if chunk.usage is not NOTHING and chunk.usage != _NULL:
            self._usage = chunk.usage
        choices = chunk.choices
        if not choices or chunk.error is not None or event == "error":
            self._add_without_choice(chunk, event, data)
            return
        choice = choices[0]
        if choice.index != self._choice or not self._empty_chunks:
            found = self._find_choice(choices, data, out)
            if found is None:
                return
            choice = found
        if choice.delta is not None:
            self._add_delta(choice.delta, data, out)
        if choice.finish_reason is not None or self._reason is not None or choice.message is not None:
            self._record_stop(chunk, choice, data, out)

    def _extend_call(self, call: OpenCall, chunk: Chunk, event: str, data: str, out: list[StreamEvent]) -> bool:
        """Append to the arguments of a call; returns whether the chunk held nothing else."""
        if not chunk.choices or chunk.error is not None or event == "error":
            return False
        choice = chunk.choices[0]
        delta = choice.delta
        if delta is None or choice.finish_reason is not None or choice.index != self._choice:
            return False
        if chunk.usage is not NOTHING and chunk.usage != _NULL:
            return False
        pieces = delta.tool_calls
        if pieces is None or len(pieces) != 1:
            return False
        piece = pieces[0]
        function = piece.function
        if piece.index != call.number or piece.id is not None or function is None or function.name is not None:
            return False
        if piece.extra_content is not NOTHING:
            return False
        words = function.arguments
        if type(words) is not str or not words or call.index is None:
            return False
        delta.tool_calls = None
        if delta != _NO_MORE:
            delta.tool_calls = pieces
            return False
        call.parts.append(words)
        call.shown += 1
        out.append(ToolCallDelta(words, call.index))
        if not call.is_framed:
            call.is_framed = True
            call.frame = find_argument_frame(data, words)
        return True

    def finish(self) -> AssistantMessage:
        """Return the whole answer; raises without a finish reason or `[DONE]`."""
        if self._reason is None and not (self.done and self._empty_chunks):
            raise build_incomplete_error(
                self._model, "openai-chat", "its finish_reason", () if self._empty_chunks else self._unknown_events
            )
        content = self._blocks.list_content()
        reason, error = self._classify_stop(content)
        return msgspec.structs.replace(
            _EMPTY,
            content=FrozenList(content),
            stop_reason=reason,
            raw_stop_reason=self._reason,
            usage=(decode_usage(self._usage) if self._usage is not NOTHING else None) or Usage(),
            model=self._model.id,
            provider=self._model.provider,
            error_message=error,
            error_kind="refused" if reason == "refusal" else "protocol" if reason == "error" else None,
            response_id=self._id,
        )

    def _classify_stop(self, content: Sequence[Content]) -> tuple[StopReason, str | None]:
        raw = self._reason
        word = "null" if raw is None else raw
        reason = self._quirks.finish_reasons.get(word) or STOP_REASONS.get(word)
        if self._refusal:
            return "refusal", replace_lone_surrogates("".join(self._refusal))
        if reason is None:
            ending = "no finish_reason" if raw is None else f"the finish_reason {raw!r}"
            return "error", f"The server ended its answer with {ending}, which does not mean that it is complete."
        if reason == "refusal":
            return reason, f"The answer was withheld (finish_reason {raw!r})."
        return judge_calls(content) if reason in ("stop", "tool_use") else reason, None

    def _decode_leniently(self, event: str, data: str) -> Chunk | None:
        """Decode what the typed decoder refuses: `[DONE]` with spaces, a comment sent as data, a malformed chunk."""
        text = data.strip()
        if text == "[DONE]":
            self.done = True
            return None
        if not text or text.startswith(":"):
            return None
        self._blocks.expect_lone_surrogates()
        try:
            chunk = decode_leniently(text)
        except ValueError as error:
            if event == "error":
                raise classify_event(self._model, text) from None
            raise ProtocolError(
                f"The server sent something that is not a chunk of an answer: {error}.",
                provider=self._model.provider,
                body=text[:200],
            ) from error
        return Chunk() if chunk is None else chunk

    def _add_without_choice(self, chunk: Chunk, event: str, data: str) -> None:
        """Add a chunk without a choice: usage, filter results, or an error."""
        if (
            chunk.error is not None
            or event == "error"
            or (chunk.usage is NOTHING and decode_head(data).object == "error")
        ):
            raise classify_event(self._model, data)
        self._record_usage(chunk, None)
        if chunk.choices is None:
            keep_unknown_event(self._unknown_events, data)

    def _find_choice(self, choices: Sequence[Choice], data: str, out: list[StreamEvent]) -> Choice | None:
        """Return the choice to decode: that of the first chunk, whatever its index; `None` if this chunk lacks it."""
        if not self._empty_chunks:
            self._choice = choices[0].index or 0
            id = decode_head(data).id
            self._id = None if id is None else replace_lone_surrogates(str(id))
            self._empty_chunks = _build_empty_chunks(self._choice)
            out.append(StreamStart())
            return choices[0]
        for choice in choices:
            if (choice.index or 0) == self._choice:
                return choice
        return None

    def _record_usage(self, chunk: Chunk, choice: Choice | None) -> None:
        """Record usage that comes in an unusual field."""
        if chunk.x_groq is not None and chunk.x_groq.usage is not NOTHING:
            self._usage = chunk.x_groq.usage
        if choice is not None and choice.usage is not NOTHING and choice.usage != _NULL:
            self._usage = choice.usage

    def _add_delta(self, delta: Delta, data: str, out: list[StreamEvent]) -> None:
        content, pieces = delta.content, delta.tool_calls
        delta.content = delta.tool_calls = None
        has_more = delta != _NO_MORE
        if has_more and (
            delta.reasoning_content is not None
            or delta.reasoning is not None
            or delta.reasoning_text is not None
            or delta.reasoning_details is not None
        ):
            self._blocks.add_thinking(delta, out)
        if content:
            self._blocks.add_content(content, out)
        if has_more and delta.refusal:
            self._refusal.append(delta.refusal)
            self._blocks.add_text("text", delta.refusal, out)
        if pieces is not None:
            self._add_call_pieces(pieces, data, out)
        elif has_more and delta.function_call is not None:
            self._blocks.add_call(CallPiece(0, None, delta.function_call), 0, 1, out)

    def _add_call_pieces(self, pieces: Sequence[CallPiece], data: str, out: list[StreamEvent]) -> None:
        others: Sequence[dict[str, msgspec.Raw]] | None = None
        count = len(pieces)
        for place, piece in enumerate(pieces):
            call = self._blocks.add_call(piece, place, count, out)
            if call.fields is None and count == 1 and is_usual_call(data, piece):
                call.fields = NO_FIELDS
            elif call.fields is None or piece.extra_content is not NOTHING:
                others = list_call_fields(data, self._choice) if others is None else others
                call.fields = call.fields or {}
                call.fields.update(others[place] if place < len(others) else {})

    def _record_stop(self, chunk: Chunk, choice: Choice, data: str, out: list[StreamEvent]) -> None:
        if choice.error is not None:
            raise classify_event(self._model, data)
        self._record_usage(chunk, choice)
        if choice.delta is None and choice.message is not None:
            self._add_delta(choice.message, data, out)
        word: object = choice.finish_reason
        if word is not None and word != "":
            self._reason = (
                replace_lone_surrogates(word) if isinstance(word, str) else msgspec.json.encode(word).decode()
            )
            if self._reason in IN_STREAM:
                raise classify_event(self._model, data)
        if self._reason is not None:
            self._stop_blocks(out)

    def _stop_blocks(self, out: list[StreamEvent]) -> None:
        self._blocks.stop_all(out, cut=self._reason == "length")


_NULL = msgspec.Raw(b"null")
_NO_MORE = Delta()
_EMPTY = AssistantMessage()


@lru_cache(maxsize=8)
def _build_empty_chunks(choice: int) -> Sequence[Chunk]:
    """Build the two forms of an empty chunk: with `"usage": null`, and without usage."""
    return tuple([Chunk([Choice(choice, Delta())], usage) for usage in (_NULL, NOTHING)])
