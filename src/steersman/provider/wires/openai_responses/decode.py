"""Decodes a Responses stream: each item is announced, grows by deltas and is sent whole at its end.

The whole item counts; its deltas only show it early. Items are found by index, else by id, else the newest one is
taken. One terminal event ends the stream.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NoReturn

import msgspec

from steersman.provider.wires.dialects import build_incomplete_error, keep_unknown_event
from steersman.provider.wires.openai_responses.encode import CUSTOM
from steersman.provider.wires.openai_responses.errors import (
    ErrorFields,
    build_malformed_error,
    classify_event,
    parse_error,
)
from steersman.provider.wires.openai_responses.events import (
    KNOWN_ITEMS,
    Event,
    OutputItem,
    Response,
    decode_event,
    decode_event_of_unknown_item,
    decode_item,
    decode_type,
    decode_usage,
    decode_with_surrogates,
    extract_item,
    find_whole_text,
    is_present,
    responses,
)
from steersman.provider.wires.openai_responses.items import (
    Events,
    OpenBlock,
    OpenItem,
    Output,
    build_call,
    build_text,
    build_thinking,
    classify_stop,
    encode_arguments,
    get_words,
    is_said,
    join_reasoning,
    match_parts,
)
from steersman.provider.wires.protocol import MAX_BLOCKS, ToolNames, check_block_count, check_call_count
from steersman.types.content import Content
from steersman.types.errors import IncompleteStreamError
from steersman.types.frozen import FrozenList
from steersman.types.messages import AssistantMessage, StopReason
from steersman.types.model import Model
from steersman.types.stream import StreamEvent, StreamStart, TextStart, ThinkingStart, ToolCallStart

_DELTAS = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "function_call",
}
"""The delta events, and the type of the item of each."""

_WHOLES = {
    "response.output_text.done": "response.output_text.delta",
    "response.refusal.done": "response.refusal.delta",
    "response.function_call_arguments.done": "response.function_call_arguments.delta",
}
"""The events with a whole part, and the delta events they end."""

_ARGUMENTS = "response.function_call_arguments.delta"
# They say nothing that other events do not say; those with a whole part nearly always do not either.
_UNREAD = frozenset(("response.in_progress", "response.content_part.added", "response.content_part.done"))
_SELDOM_READ = _UNREAD.union(_WHOLES)
# The items that do not have to go back as they came.
_READ_WHOLE = frozenset(("message", "function_call"))
_TERMINAL = frozenset(("response.completed", "response.incomplete", "response.failed", "response.done"))
_READ = frozenset((*_DELTAS, *_TERMINAL, "response.output_item.added", "response.output_item.done", "error"))
_EMPTY = AssistantMessage()


class OpenAIResponsesDecoder(msgspec.Struct, eq=False):
    """Decodes one answer."""

    _model: Model
    _names: ToolNames
    # The tools of the request; a custom tool of another name is the server's own, and it has run it already.
    _custom: Set[str]
    done: bool = False
    _output: Output = msgspec.field(default_factory=Output)
    _started: bool = False
    _unknown_events: list[str] = []
    _blocks: int = 0
    _calls: int = 0
    # The last delta event and its block: the next delta nearly always belongs to the same block.
    _hot: Event = msgspec.field(default_factory=Event)
    _hot_block: OpenBlock | None = None
    _response: Response = msgspec.field(default_factory=Response)
    # That of the whole answer, in its order.
    _content: Sequence[Content] = ()
    _reason: StopReason = "stop"
    _raw_reason: str | None = None
    _error: str | None = None

    @property
    def complete(self) -> bool:
        """Same as `done`: an answer is complete only with its terminal event."""
        return self.done

    def feed(self, event: str, data: str) -> Sequence[StreamEvent]:
        """Decode one event; raises for an error event, a failed response, or malformed data."""
        out: list[StreamEvent] = []
        self.feed_all(((event, data),), out)
        return out

    def feed_all(self, received: Sequence[tuple[str, str]], out: list[StreamEvent]) -> None:
        """Decode several events, up to the terminal one."""
        for event, data in received:
            if event in _SELDOM_READ and (self._started if event in _UNREAD else self._has_part(event, data)):
                continue
            try:
                read = decode_event(data)
            except (msgspec.DecodeError, RecursionError):
                self._feed_leniently(event, data, out)
                if self.done:
                    return
                continue
            block, delta = self._hot_block, read.delta
            if delta and block is not None and not block.held:
                read.delta = ""
                if read == self._hot or read.continues(self._hot, indexed=self._output.indexed):
                    out.append(block.add(delta))
                    continue
            self._add_event(read.type or event, read, data, delta, out)
            if self.done:
                return

    def _has_part(self, event: str, data: str) -> bool:
        """Whether an event with a whole part is about the one whose deltas came last."""
        block, hot = self._hot_block, self._hot
        return block is not None and bool(block.parts) and hot.type == _WHOLES[event] and hot.has_place_of(data)

    def finish(self) -> AssistantMessage:
        """Return the whole answer; raises if the terminal event is missing."""
        if not self.done:
            unknown = () if self._started else self._unknown_events
            raise build_incomplete_error(self._model, "openai", "'response.completed'", unknown)
        return msgspec.structs.replace(
            _EMPTY,
            content=FrozenList(self._content),
            stop_reason=self._reason,
            raw_stop_reason=self._raw_reason,
            usage=decode_usage(self._response.usage),
            model=self._model.id,
            provider=self._model.provider,
            error_message=self._error,
            error_kind="refused" if self._reason == "refusal" else "protocol" if self._reason == "error" else None,
            response_id=None if self._response.id is None else str(self._response.id),
        )

    def _feed_leniently(self, event: str, data: str, out: Events) -> None:
        """Decode an event that the strict decoder refuses."""
        text = data.strip()
        if not text or text == "[DONE]" or text.startswith(":"):
            return  # the end marker of another protocol, or a comment that a proxy sent as data
        read = decode_event_of_unknown_item(data)
        if read is not None:
            return self._add_event(read.type or event, read, data, "", out)
        try:
            read, clean, delta = decode_with_surrogates(data)
        except (ValueError, RecursionError) as error:
            if event == "error":
                raise classify_event(self._model, ErrorFields(message=text), body=text) from None
            return self._check_unknown(event, data, error)
        return self._add_event(read.type or event, read, clean.decode(), delta, out)

    def _check_unknown(self, event: str, data: str, error: Exception) -> None:
        """Skip an event of an unknown type; raise if its type is known or if it is not JSON."""
        try:
            kind = decode_type(data) or event
        except (msgspec.DecodeError, RecursionError):
            kind = ""
        if not kind or kind in _READ:
            raise build_malformed_error(self._model, "an event", data) from error
        keep_unknown_event(self._unknown_events, data)

    def _add_event(self, kind: str, read: Event, data: str, delta: str, out: Events) -> None:
        if not self._started and kind.startswith("response."):
            self._started = True
            out.append(StreamStart())
        if kind in _DELTAS:
            self._add_delta(kind, read, delta, out)
        elif kind == "response.output_item.added":
            self._start_item(read, out)
        elif kind == "response.output_item.done":
            if (whole := read.item) is None:
                raise build_malformed_error(self._model, "an item", data)
            raw = b"" if whole.type in _READ_WHOLE else extract_item(data)
            self._stop_item(self._output.find_done(read.output_index, whole), whole, raw, out)
        elif kind in _WHOLES:
            self._add_whole_part(_WHOLES[kind], read, out)
        elif kind in _TERMINAL:
            self._record_stop(kind, read, data, out)
        else:
            self._check_other_event(kind, read, data)

    def _check_other_event(self, kind: str, read: Event, data: str) -> None:
        """Raise for an event that reports an error; any other one adds nothing to the answer."""
        if kind == "error" or is_present(read.error):
            self._raise_error(read, data)
        if kind == "response.created" and self._output.items:
            text = f"{self._model.name} began a second response inside the first, so neither is complete."
            raise IncompleteStreamError(text, provider=self._model.provider)
        if not kind.startswith("response."):
            keep_unknown_event(self._unknown_events, data)

    def _start_item(self, read: Event, out: Events) -> None:
        if read.item is None:
            return
        self._hot_block = None
        item = self._output.open(read.output_index, read.item)
        if item.kind == "function_call" and item.name:
            # All that usually follows are the arguments of this call.
            self._hot_block = self._find_block(item, 0, "tool_call", out)
            self._hot = Event(_ARGUMENTS, output_index=read.output_index, item_id=item.id)

    def _add_delta(self, kind: str, read: Event, delta: str, out: Events) -> None:
        if not delta:
            return
        item = self._output.find(read.output_index, read.item_id)
        if item is None:
            item = self._output.open(read.output_index, OutputItem(_DELTAS[kind], read.item_id), announced=False)
        if item.done or item.kind != _DELTAS[kind]:
            return
        block: OpenBlock | None
        if item.kind == "function_call":
            block = item.blocks.get(0)
        elif item.kind == "reasoning":
            block = self._find_thinking_block(item, kind, read.summary_index or read.content_index or 0, out)
        else:
            block = self._find_block(item, item.find_part(read.content_index or 0), "text", out)
            block.refused = kind == "response.refusal.delta"
        if block is None:
            return  # a call without a name, or the same thinking a second time: the whole item decides
        read.delta = ""  # what the next delta is compared with
        self._hot, self._hot_block = read, block
        block.add_joined(delta, out)

    def _find_thinking_block(self, item: OpenItem, kind: str, number: int, shown: Events) -> OpenBlock | None:
        """Return the block of a reasoning item; it shows the summary or the text, whichever comes first, not both."""
        if item.part is not None and item.part[0] != kind:
            return None
        block = self._find_block(item, 0, "thinking", shown)
        if item.part is not None and item.part[1] != number:
            shown.append(block.add("\n\n"))
        item.part = (kind, number)
        return block

    def _find_block(self, item: OpenItem, part: int, kind: str, shown: Events) -> OpenBlock:
        return item.blocks.get(part) or self._start_block(item, part, kind, shown)

    def _start_block(self, item: OpenItem, part: int, kind: str, shown: Events) -> OpenBlock:
        silent = self._output.silent
        if silent == [item]:
            silent.clear()
        elif silent and not item.blocks:
            self._reserve_earlier(item, shown)
        block = item.blocks[part] = OpenBlock(kind, self._blocks)
        self._blocks += 1
        if self._blocks > MAX_BLOCKS:
            check_block_count(self._blocks)
        if kind == "tool_call":
            self._calls += 1
            check_call_count(self._calls)
            shown.append(ToolCallStart(block.index, item.call_id, self._names.from_wire(item.name)))
        else:
            shown.append(TextStart(block.index) if kind == "text" else ThinkingStart(block.index))
        return block

    def _reserve_earlier(self, item: OpenItem, shown: Events) -> None:
        """Begin the blocks of the items announced before this one: the answer has their order, whichever ends first."""
        for earlier in self._output.take_silent(item):
            kind = "text" if earlier.kind == "message" else "tool_call" if self._is_call(earlier) else "thinking"
            earlier.reserved = True
            self._find_block(earlier, 0, kind, shown)

    def _is_call(self, item: OpenItem) -> bool:
        return item.kind == "function_call" or (item.kind == CUSTOM and item.name in self._custom)

    def _add_whole_part(self, kind: str, read: Event, out: Events) -> None:
        """Add a whole part, which is new only if its deltas are missing."""
        item = self._output.find(read.output_index, read.item_id)
        if item is None:
            return
        block = item.blocks.get(read.content_index or 0 if item.kind == "message" else 0)
        if block is not None and block.parts:
            return
        text = find_whole_text(read)
        if block is None and item.kind == "message":
            # The number may be another one than that of the deltas.
            block = next((one for one in item.blocks.values() if text.startswith("".join(one.parts))), None)
        if block is None or not block.parts:
            self._add_delta(kind, read, text, out)

    def _stop_item(self, item: OpenItem, whole: OutputItem, raw: bytes, out: Events, *, cut: bool = False) -> None:
        """Stop an item with its whole content."""
        if item.done:
            return
        item.done = True
        item.name = item.name or whole.name or ""
        self._hot_block = None
        if self._output.silent and item in self._output.silent:
            self._output.silent.remove(item)
        if item.kind == "message":
            self._stop_message(item, whole, out)
        elif self._is_call(item):
            self._stop_call(item, whole, out, cut=cut)
        else:
            self._stop_thinking(item, whole, raw, out)

    def _stop_call(self, item: OpenItem, whole: OutputItem, out: Events, *, cut: bool) -> None:
        if not item.blocks:
            item.call_id = str(whole.call_id or item.call_id)
        words = encode_arguments(whole)
        if not item.name and not words:
            return  # an empty call, which some servers send after the last one
        block = item.blocks.get(0) or self._find_block(item, 0, "tool_call", out)
        said = block.add_rest(words, out)
        out.append(block.end(build_call(whole, item.call_id, self._names.from_wire(item.name), said, cut=cut)))

    def _stop_message(self, item: OpenItem, whole: OutputItem, out: Events) -> None:
        for number, part in match_parts(item, whole.content or ()):
            block = self._find_block(item, number, "text", out)
            block.refused = block.refused or (part is not None and part.type == "refusal")
            words = None if part is None else get_words(part)
            said = block.add_rest(words or "", out)
            out.append(block.end(build_text(said if words is None else words, whole.phase)))

    def _stop_thinking(self, item: OpenItem, whole: OutputItem, raw: bytes, out: Events) -> None:
        thought = build_thinking(whole, raw, "")
        words = join_reasoning(whole) if whole.type == "reasoning" else ""
        if item.blocks or words or thought.signature is not None:  # else there is nothing to emit or to send back
            block = self._find_block(item, 0, "thinking", out)
            said = block.add_rest(words, out)
            out.append(block.end(msgspec.structs.replace(thought, thinking=said)))

    def _record_stop(self, kind: str, read: Event, data: str, out: Events) -> None:
        try:
            response = responses.decode(read.response) if is_present(read.response) else Response()
        except msgspec.DecodeError as error:
            raise build_malformed_error(self._model, "a response", data) from error
        status = response.status or kind.removeprefix("response.")
        if kind == "response.failed" or status == "failed":
            raise classify_event(self._model, parse_error(response.error), body=data)
        cut = status == "incomplete" or kind == "response.incomplete"
        self._stop_open_items(response, data, out, cut=cut)
        self._response, self.done = response, True
        blocks = self._output.list_blocks()
        self._content = [block.content for block in blocks if block.content is not None]
        said = "incomplete" if cut else status
        self._raw_reason, self._reason, self._error = classify_stop(said, response, blocks, self._content)

    def _stop_open_items(self, response: Response, data: str, out: Events, *, cut: bool) -> None:
        """Stop the open items, and add items that were not streamed."""
        known, output = self._output.items, response.output or []
        if len(known) >= len(output) and all([item.done for item in known]):
            return
        texts = self._output.list_texts()
        for number, raw in enumerate(output):
            whole = self._decode_item(raw, data)
            if is_said(whole, texts):
                continue
            item = self._output.find_or_open(number if self._output.indexed else None, whole)
            self._stop_item(item, whole, bytes(raw), out, cut=cut and whole.status != "completed")
            texts.add(item.text)
        for item in known:
            if not item.done and (item.blocks or item.kind in KNOWN_ITEMS):
                # A call without arguments that the whole answer does not list has lost them.
                lost = bool(output) and not any([block.parts for block in item.blocks.values()])
                self._stop_item(item, OutputItem(type=item.kind), b"{}", out, cut=cut or lost)

    def _decode_item(self, raw: msgspec.Raw, data: str) -> OutputItem:
        try:
            return decode_item(raw)
        except msgspec.DecodeError as error:
            raise build_malformed_error(self._model, "an item", data) from error

    def _raise_error(self, read: Event, data: str) -> NoReturn:
        if is_present(read.error):
            error = parse_error(msgspec.json.decode(read.error))
        else:
            words, code = (msgspec.json.decode(raw) if raw else None for raw in (read.message, read.code))
            error = ErrorFields(message=words, code=code)
        raise classify_event(self._model, error, body=data)
