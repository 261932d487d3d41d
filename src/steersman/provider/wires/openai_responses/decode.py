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
    decode_item,
    decode_type,
    decode_usage,
    decode_with_surrogates,
    events,
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
    encode_arguments,
    get_words,
    join_reasoning,
    match_parts,
)
from steersman.provider.wires.protocol import ToolNames, check_call_count
from steersman.types.content import TextContent, ToolCall
from steersman.types.errors import IncompleteStreamError
from steersman.types.messages import AssistantMessage, StopReason
from steersman.types.model import Model
from steersman.types.stream import StreamEvent, StreamStart

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

_TERMINAL = frozenset(("response.completed", "response.incomplete", "response.failed", "response.done"))
_READ = frozenset((*_DELTAS, *_TERMINAL, "response.output_item.added", "response.output_item.done", "error"))


class OpenAIResponsesDecoder:
    """Decodes one answer."""

    __slots__ = (
        "_blocks", "_calls", "_custom", "_error", "_hot", "_hot_block", "_model", "_names", "_output", "_raw_reason",
        "_reason", "_response", "_started", "_unknown_events", "done",
    )  # fmt: skip

    def __init__(self, model: Model, names: ToolNames, custom: Set[str]) -> None:
        self.done = False
        self._model = model
        self._names = names
        # The tools of the request; a custom tool of another name is the server's own, and it has run it already.
        self._custom = custom
        self._output = Output()
        self._started = False
        self._unknown_events: list[str] = []
        self._blocks = self._calls = 0
        # The last delta event and its block: the next delta nearly always belongs to the same block.
        self._hot = Event()
        self._hot_block: OpenBlock | None = None
        self._response = Response()
        self._reason: StopReason = "stop"
        self._raw_reason: str | None = None
        self._error: str | None = None

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
            try:
                read = events.decode(data)
            except (msgspec.DecodeError, RecursionError):
                out += self._feed_leniently(event, data)
                continue
            block, hot = self._hot_block, self._hot
            if (
                block is not None
                and read.delta
                and not block.held
                and read.type == hot.type
                and read.output_index == hot.output_index
                and read.content_index == hot.content_index
                and read.summary_index == hot.summary_index
                and (read.output_index is not None or read.item_id == hot.item_id)
            ):
                out.append(block.add(read.delta))
                continue
            kind = read.type or event
            out += self._start_message(kind, self._add_event(kind, read, data, read.delta))
            if self.done:
                return

    def finish(self) -> AssistantMessage:
        """Return the whole answer; raises if the terminal event is missing."""
        if not self.done:
            raise build_incomplete_error(
                self._model, "openai", "'response.completed'", () if self._started else self._unknown_events
            )
        return AssistantMessage(
            [block.content for block in self._output.list_blocks() if block.content is not None],
            stop_reason=self._reason,
            raw_stop_reason=self._raw_reason,
            usage=decode_usage(self._response.usage),
            model=self._model.id,
            provider=self._model.provider,
            error_message=self._error,
            error_kind="refused" if self._reason == "refusal" else "protocol" if self._reason == "error" else None,
            response_id=None if self._response.id is None else str(self._response.id),
        )

    def _start_message(self, kind: str, shown: Sequence[StreamEvent]) -> Sequence[StreamEvent]:
        if self._started or not kind.startswith("response."):
            return shown
        self._started = True
        return [StreamStart(), *shown]

    def _feed_leniently(self, event: str, data: str) -> Sequence[StreamEvent]:
        """Decode an event that the strict decoder refuses."""
        text = data.strip()
        if not text or text == "[DONE]" or text.startswith(":"):
            return ()  # the end marker of another protocol, or a comment that a proxy sent as data
        try:
            read, delta = decode_with_surrogates(data)
        except (ValueError, RecursionError) as error:
            if event == "error":
                raise classify_event(self._model, ErrorFields(message=text), body=text) from None
            self._check_unknown(event, data, error)
            return ()
        kind = read.type or event
        return self._start_message(kind, self._add_event(kind, read, data, delta))

    def _check_unknown(self, event: str, data: str, error: Exception) -> None:
        """Skip an event of an unknown type; raise if its type is known or if it is not JSON."""
        try:
            kind = decode_type(data) or event
        except (msgspec.DecodeError, RecursionError):
            kind = ""
        if not kind or kind in _READ:
            raise build_malformed_error(self._model, "an event", data) from error
        keep_unknown_event(self._unknown_events, data)

    def _add_event(self, kind: str, read: Event, data: str, delta: str) -> Sequence[StreamEvent]:
        if kind in _DELTAS:
            return self._add_delta(kind, read, delta)
        if kind == "response.output_item.added":
            return self._start_item(read, data)
        if kind == "response.output_item.done":
            item = self._decode_item(read.item, data)
            return self._stop_item(self._output.find_done(read.output_index, item), item, bytes(read.item))
        if kind in _WHOLES:
            return self._add_whole_part(_WHOLES[kind], read)
        if kind in _TERMINAL:
            return self._record_stop(kind, read, data)
        if kind == "error" or is_present(read.error):
            self._raise_error(read, data)
        if kind == "response.created" and self._output.items:
            text = f"{self._model.name} began a second response inside the first, so neither is complete."
            raise IncompleteStreamError(text, provider=self._model.provider)
        if not kind.startswith("response."):
            keep_unknown_event(self._unknown_events, data)
        return ()

    def _decode_item(self, raw: msgspec.Raw, data: str) -> OutputItem:
        try:
            return decode_item(raw)
        except msgspec.DecodeError as error:
            raise build_malformed_error(self._model, "an item", data) from error

    def _start_item(self, read: Event, data: str) -> Sequence[StreamEvent]:
        shown: Events = []
        if is_present(read.item):
            self._hot_block = None
            item = self._output.open(read.output_index, self._decode_item(read.item, data))
            if item.kind == "function_call" and item.name:
                self._find_block(item, 0, "tool_call", shown)
        return shown

    def _add_delta(self, kind: str, read: Event, delta: str) -> Sequence[StreamEvent]:
        if not delta:
            return ()
        item = self._output.find(read.output_index, read.item_id)
        if item is None:
            guess = OutputItem(type=_DELTAS[kind], id=read.item_id)
            item = self._output.open(read.output_index, guess, announced=False)
        if item.done or item.kind != _DELTAS[kind]:
            return ()
        shown: Events = []
        block: OpenBlock | None
        if item.kind == "function_call":
            block = item.blocks.get(0)
        elif item.kind == "reasoning":
            block = self._find_thinking_block(item, kind, read.summary_index or read.content_index or 0, shown)
        else:
            block = self._find_block(item, item.find_part(read.content_index or 0), "text", shown)
            block.refused = kind == "response.refusal.delta"
        if block is None:
            return ()  # a call without a name, or the same thinking a second time: the whole item decides
        self._hot, self._hot_block = read, block
        return [*shown, *block.add_joined(delta)]

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
        block = item.blocks.get(part)
        if block is None:
            if self._output.silent and not item.blocks:
                self._reserve_earlier(item, shown)
            block = item.blocks[part] = OpenBlock(kind, self._blocks)
            self._blocks += 1
            self._calls += kind not in ("text", "thinking")
            check_call_count(self._calls)
            shown.append(block.start(item.call_id, self._names.from_wire(item.name)))
        return block

    def _reserve_earlier(self, item: OpenItem, shown: Events) -> None:
        """Begin the blocks of the items announced before this one: the answer has their order, whichever ends first."""
        for earlier in self._output.take_silent(item):
            kind = "text" if earlier.kind == "message" else "tool_call" if self._is_call(earlier) else "thinking"
            earlier.reserved = True
            self._find_block(earlier, 0, kind, shown)

    def _is_call(self, item: OpenItem) -> bool:
        return item.kind == "function_call" or (item.kind == CUSTOM and item.name in self._custom)

    def _add_whole_part(self, kind: str, read: Event) -> Sequence[StreamEvent]:
        """Add a whole part, which is new only if its deltas are missing."""
        item = self._output.find(read.output_index, read.item_id)
        if item is None:
            return ()
        text = find_whole_text(read)
        block = item.blocks.get(read.content_index or 0 if item.kind == "message" else 0)
        if block is None and item.kind == "message":
            # The number may be another one than that of the deltas.
            block = next((one for one in item.blocks.values() if text.startswith("".join(one.parts))), None)
        return () if block is not None and block.parts else self._add_delta(kind, read, text)

    def _stop_item(self, item: OpenItem, whole: OutputItem, raw: bytes, *, cut: bool = False) -> Events:
        """Stop an item with its whole content."""
        shown: Events = []
        if not item.done:
            item.done = True
            item.name = item.name or whole.name or ""
            self._hot_block = None
            if item in self._output.silent:
                self._output.silent.remove(item)
            if self._is_call(item):
                self._stop_call(item, whole, shown, cut=cut)
            elif item.kind == "message":
                self._stop_message(item, whole, shown)
            else:
                self._stop_thinking(item, whole, raw, shown)
        return shown

    def _stop_call(self, item: OpenItem, whole: OutputItem, shown: Events, *, cut: bool) -> None:
        if not item.blocks:
            item.call_id = str(whole.call_id or item.call_id)
        words = encode_arguments(whole)
        if not item.name and not words:
            return  # an empty call, which some servers send after the last one
        block = self._find_block(item, 0, "tool_call", shown)
        shown += block.add_rest(words)
        call = build_call(whole, item.call_id, self._names.from_wire(item.name), "".join(block.parts), cut=cut)
        shown.append(block.end(call))

    def _stop_message(self, item: OpenItem, whole: OutputItem, shown: Events) -> None:
        for number, part in match_parts(item, whole.content or ()):
            block = self._find_block(item, number, "text", shown)
            block.refused = block.refused or (part is not None and part.type == "refusal")
            words = None if part is None else get_words(part)
            shown += block.add_rest(words or "")
            shown.append(block.end(build_text(block, words, whole.phase)))

    def _stop_thinking(self, item: OpenItem, whole: OutputItem, raw: bytes, shown: Events) -> None:
        thought = build_thinking(whole, raw, "")
        words = join_reasoning(whole) if whole.type == "reasoning" else ""
        if item.blocks or words or thought.signature is not None:  # else there is nothing to emit or to send back
            block = self._find_block(item, 0, "thinking", shown)
            shown += block.add_rest(words)
            shown.append(block.end(msgspec.structs.replace(thought, thinking="".join(block.parts))))

    def _record_stop(self, kind: str, read: Event, data: str) -> Events:
        try:
            response = responses.decode(read.response) if is_present(read.response) else Response()
        except msgspec.DecodeError as error:
            raise build_malformed_error(self._model, "a response", data) from error
        status = response.status or kind.removeprefix("response.")
        if kind == "response.failed" or status == "failed":
            raise classify_event(self._model, parse_error(response.error), body=data)
        cut = status == "incomplete" or kind == "response.incomplete"
        shown = self._stop_open_items(response, data, cut=cut)
        self._response = response
        self.done = True
        self._classify_stop("incomplete" if cut else status, response)
        return shown

    def _stop_open_items(self, response: Response, data: str, *, cut: bool) -> Events:
        """Stop the open items, and add items that were not streamed."""
        shown: Events = []
        known, output = self._output.items, response.output or []
        if len(known) < len(output) or not all(item.done for item in known):
            for number, raw in enumerate(output):
                whole = self._decode_item(raw, data)
                if self._is_said(whole):
                    continue
                item = self._output.find_or_open(number if self._output.indexed else None, whole)
                shown += self._stop_item(item, whole, bytes(raw), cut=cut and whole.status != "completed")
        for item in known:
            if not item.done and (item.blocks or item.kind in KNOWN_ITEMS):
                shown += self._stop_item(item, OutputItem(type=item.kind), b"{}", cut=cut)
        return shown

    def _is_said(self, whole: OutputItem) -> bool:
        """Whether a message of the response was streamed already, under another id and index."""
        text = "".join(map(get_words, whole.content or ())) if whole.type == "message" else ""
        messages = (item for item in self._output.items if item.done and item.kind == "message")
        return bool(text) and any(text == item.text for item in messages)

    def _classify_stop(self, status: str, response: Response) -> None:
        """Set the stop reason, from the status and from the content."""
        reason: object = status
        if status == "incomplete" and response.incomplete_details is not None:
            reason = response.incomplete_details.reason or status
        self._raw_reason = str(reason)
        blocks = list(self._output.list_blocks())
        refusals = [block.content.text for block in blocks if block.refused and isinstance(block.content, TextContent)]
        calls = [block.content for block in blocks if isinstance(block.content, ToolCall)]
        if refusals:
            self._reason, self._error = "refusal", "".join(refusals)
        elif reason == "content_filter":
            self._reason, self._error = "refusal", "The provider's filter stopped the answer (content_filter)."
        elif reason == "max_output_tokens":
            self._reason = "length"
        elif reason not in ("completed", "done"):
            self._reason = "error"
            self._error = f"The response ended as {status!r} for an unknown reason: {reason!r}."
        elif calls:
            self._reason = "length" if any(call.is_truncated for call in calls) else "tool_use"

    def _raise_error(self, read: Event, data: str) -> NoReturn:
        if is_present(read.error):
            error = parse_error(msgspec.json.decode(read.error))
        else:
            words, code = (msgspec.json.decode(raw) if raw else None for raw in (read.message, read.code))
            error = ErrorFields(message=words, code=code)
        raise classify_event(self._model, error, body=data)
