"""The output items of a response while they arrive, and the content blocks they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from steersman.provider.wires.openai_responses.encode import CUSTOM, PHASES
from steersman.provider.wires.openai_responses.events import Id, OutputItem, Part, Response
from steersman.provider.wires.protocol import MAX_BLOCKS, check_block_count, encode_json, judge_calls, parse_call
from steersman.types.content import (
    Content,
    TextContent,
    ThinkingContent,
    ToolCall,
    escape_lone_surrogates,
    replace_lone_surrogates,
    split_trailing_surrogate,
)
from steersman.types.messages import StopReason
from steersman.types.stream import (
    StreamEvent,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ThinkingEnd,
    ToolCallDelta,
    ToolCallEnd,
)

Events: TypeAlias = list[StreamEvent]
_get_order = attrgetter("order")


_DELTAS: dict[str, Callable[[str, int], StreamEvent]] = {
    "text": TextDelta,
    "thinking": ThinkingDelta,
    "tool_call": ToolCallDelta,
}


class OpenBlock(msgspec.Struct, eq=False):
    """A block while its deltas arrive; `held` is a high surrogate that waits for its low surrogate."""

    kind: str
    index: int
    parts: list[str] = []
    held: str = ""
    content: Content | None = None
    refused: bool = False

    def add(self, words: str) -> StreamEvent:
        """Add text and return its delta event."""
        self.parts.append(words)
        return _DELTAS[self.kind](words, self.index)

    def add_joined(self, words: str, out: Events) -> None:
        """Add text that may end inside a surrogate pair; a high surrogate at the end is held back."""
        if self.held or not words.isascii():
            words, self.held = split_trailing_surrogate(self.held + words)
            words = self._replace_surrogates(words)
        if words:
            out.append(self.add(words))

    def add_rest(self, whole: str, out: Events) -> str:
        """Add what the deltas left out of the whole text; return all that was added."""
        if self.held:
            out.append(self.add(self._replace_surrogates(self.held)))
            self.held = ""
        said = "".join(self.parts)
        if len(whole) > len(said) and whole.startswith(said):
            out.append(self.add(whole[len(said) :]))
            return whole
        return said

    def _replace_surrogates(self, words: str) -> str:
        """Replace lone surrogates; in arguments they are escaped, so that no call runs with another character."""
        return escape_lone_surrogates(words) if self.kind == "tool_call" else replace_lone_surrogates(words)

    def end(self, content: Content) -> StreamEvent:
        """Set the content and return the event that stops the block."""
        self.content = content
        if type(content) is ToolCall:
            return ToolCallEnd(self.index, content)
        return TextEnd(self.index) if type(content) is TextContent else ThinkingEnd(self.index)


class OpenItem(msgspec.Struct, eq=False):
    """An output item while it arrives; `order` is its place in the answer."""

    kind: str | None
    order: int
    id: Id = None
    call_id: str = ""
    name: str = ""
    # Whether the server announced the item; its deltas may come unannounced.
    announced: bool = False
    done: bool = False
    # By part of a message; any other item has one block, part 0.
    blocks: dict[int, OpenBlock] = {}
    # The event type and number of the reasoning part that is being emitted.
    part: tuple[str, int] | None = None
    # Whether its block was begun before it had any content, to keep its place.
    reserved: bool = False

    @property
    def can_begin(self) -> bool:
        """Whether its first block can be emitted: that of a call needs the name."""
        return bool(self.name) or self.kind not in ("function_call", CUSTOM)

    @property
    def text(self) -> str:
        """The text of its blocks that have stopped."""
        contents = (self.blocks[part].content for part in sorted(self.blocks))
        return "".join(content.text for content in contents if isinstance(content, TextContent))

    def find_part(self, number: int) -> int:
        """Return the number of a message's part; the first one takes the block that was reserved for the message."""
        if number not in self.blocks and len(self.blocks) == 1 and 0 in self.blocks and self.reserved:
            self.blocks[number] = self.blocks.pop(0)
        self.reserved = False
        return number

    def is_same(self, given: OutputItem) -> bool:
        """Whether this is the same item as a whole one."""
        if self.kind != given.type:
            return False
        if given.id is not None and self.id == given.id:
            return True
        return given.call_id is not None and self.call_id == str(given.call_id)


class Output(msgspec.Struct, eq=False):
    """The items of one response, in the order the server gives them."""

    items: list[OpenItem] = []
    # The announced items of which nothing was emitted yet.
    silent: list[OpenItem] = []
    # Whether the server's indexes identify the items: no longer once one is missing or used twice.
    indexed: bool = True
    _by_index: dict[int, OpenItem] = {}
    _by_id: dict[str | int, OpenItem] = {}

    def open(self, index: int | None, given: OutputItem, *, announced: bool = True) -> OpenItem:
        """Return the announced item; if its deltas came first, it exists already."""
        is_new = self.indexed and index is not None and index not in self._by_index
        item = None if is_new else self.find(index, given.id)
        if item is None or item.done or item.kind != given.type or (item.announced and item.id != given.id):
            item = OpenItem(given.type, index if is_new and index is not None else len(self.items))
            self.indexed = is_new
            self.items.append(item)
            if len(self.items) > MAX_BLOCKS:
                check_block_count(len(self.items))
            self.silent.append(item)
        elif item.announced:
            return item
        id = item.id = given.id
        item.announced = announced
        item.call_id = str(given.call_id or id or f"call_{len(self.items)}")
        item.name = given.name or ""
        if index is not None:
            self._by_index[index] = item
        if id:
            self._by_id[id] = item
        return item

    def take_silent(self, item: OpenItem) -> list[OpenItem]:
        """Return the silent items before this one; from now on neither they nor it count as silent."""
        earlier = [other for other in self.silent if other.order < item.order and other.kind and other.can_begin]
        self.silent = [other for other in self.silent if other is not item and other not in earlier]
        return earlier

    def find(self, index: int | None, id: Id) -> OpenItem | None:
        """Return the item of an event: by index, else by id, else the newest one."""
        if id and id in self._by_id and (index is None or not self.indexed):
            return self._by_id[id]
        if index is not None:
            return self._by_index.get(index)
        newest = self.items[-1] if self.items else None
        # Some servers give the item no id, but its deltas one.
        return newest if newest is not None and (not id or newest.id is None) else None

    def find_done(self, index: int | None, given: OutputItem) -> OpenItem:
        """Return the item of `output_item.done`; a call may reuse the id of an earlier call."""
        placed = self._by_index.get(index) if self.indexed and index is not None else None
        if placed is not None and placed.is_same(given):
            return placed
        if placed is None and self.indexed and index is not None:
            same = [item for item in self.items if item.is_same(given)]
            if same and all(item.done and (item.id is None or item.id != given.id) for item in same):
                return self.open(index, given)
        return self.find_or_open(index, given)

    def find_or_open(self, index: int | None, given: OutputItem) -> OpenItem:
        """Return the item that a whole one belongs to, and open it if it is new."""
        placed = self._by_index.get(index) if self.indexed and index is not None else None
        if placed is not None and placed.is_same(given):
            return placed
        same = [item for item in self.items if item.is_same(given)]
        if same:
            return same[0]
        item = self.find(index, given.id)
        if item is None or item.done or item.kind != given.type:
            item = self.open(index, given)
        return item

    def list_texts(self) -> set[str]:
        """Return the texts of the items that have stopped; only a message has one."""
        return {item.text for item in self.items}

    def list_blocks(self) -> list[OpenBlock]:
        """Return the blocks in the order of the answer."""
        ordered = sorted(self.items, key=_get_order) if self.indexed else self.items
        blocks: list[OpenBlock] = []
        for item in ordered:
            parts = item.blocks
            blocks += parts.values() if len(parts) < 2 else [parts[number] for number in sorted(parts)]
        return blocks


def is_said(whole: OutputItem, texts: Set[str]) -> bool:
    """Whether a message was streamed already, under another id and index."""
    text = "".join(map(get_words, whole.content or ())) if whole.type == "message" else ""
    return bool(text) and text in texts


def match_parts(item: OpenItem, parts: Sequence[Part]) -> list[tuple[int, Part | None]]:
    """Match the blocks of a message to its finished parts, and return both by number.

    vLLM numbers the parts otherwise in its deltas. So a part belongs to the block whose text it begins with.
    """
    check_block_count(len(parts))
    only = item.blocks.get(0) if len(parts) == len(item.blocks) == 1 else None
    if only is not None and get_words(parts[0]).startswith("".join(only.parts) or "\0"):
        return [(0, parts[0])]
    texts = {number: text for number, part in enumerate(parts) if (text := get_words(part))}
    said = {number: "".join(item.blocks[number].parts) for number in sorted(item.blocks)}
    matched = {number: number for number, text in said.items() if texts.get(number, "").startswith(text or "\0")}
    if len(matched) < len(said) and "".join(said.values()) == "".join(texts.values()):
        return [(number, None) for number in said]  # cut in other places, and nothing is missing
    left = [number for number in texts if number not in matched]
    for number, text in said.items():
        if number not in matched:
            found = next((one for one in left if texts[one].startswith(text)), None)
            if found is None and left:
                found = number if number in left else left[0]
            if found is not None:
                left.remove(found)
                matched[number] = found
    pairs = [(number, parts[matched[number]] if number in matched else None) for number in said]
    return pairs + [(_find_free(number, said), parts[number]) for number in left]


def _find_free(number: int, taken: Mapping[int, str]) -> int:
    return number if number not in taken else max(taken) + 1 + number


def get_words(part: Part) -> str:
    """Return the text of a part, or its refusal."""
    return (part.refusal if part.type == "refusal" else part.text) or ""


def build_text(text: str, phase: str | None) -> TextContent:
    """Build a text block."""
    return TextContent(text, phase if phase in PHASES else None)


def build_call(item: OutputItem, id: str, name: str, shown: str, *, cut: bool) -> ToolCall:
    """Build a call; a cut call keeps its partial arguments as text and is never run."""
    if item.type == CUSTOM and not cut:
        return ToolCall(id, name, {"input": item.input if isinstance(item.input, str) else ""}, signature=CUSTOM)
    arguments = shown if item.arguments is None else item.arguments
    if cut or item.status == "incomplete":
        raw = arguments if isinstance(arguments, str) else encode_json(arguments).decode()
        return ToolCall(id, name, raw_arguments=escape_lone_surrogates(raw))
    return parse_call(id, name, arguments)


def encode_arguments(item: OutputItem) -> str:
    """Return the arguments of a whole call as text, for deltas that are missing."""
    if item.type == CUSTOM:
        return encode_json({"input": item.input if isinstance(item.input, str) else ""}).decode()
    if item.arguments is None or isinstance(item.arguments, str):
        return item.arguments or ""
    return encode_json(item.arguments).decode()


def join_reasoning(item: OutputItem) -> str:
    """Join the visible text of a reasoning item: the summary, or else the reasoning itself."""
    for parts in (item.summary, item.content):
        texts = [part.text for part in parts or () if part.text]
        if texts:
            return "\n\n".join(texts)
    return ""


def build_thinking(item: OutputItem, raw: bytes, shown: str) -> ThinkingContent:
    """Build a thinking block for reasoning or for an item of an unknown type, with what has to go back."""
    return ThinkingContent(shown, build_signature(item, raw), redacted=item.type != "reasoning")


def build_signature(item: OutputItem, raw: bytes) -> str | None:
    """Return the JSON of an item as it has to go back, or `None` if it has no content the server could use.

    `status` and null fields are left out: the server refuses them.
    """
    if item.type == "reasoning" and not item.encrypted_content and not item.content:
        return None
    fields: dict[str, Any] = msgspec.json.decode(raw)
    if not fields:
        return None  # the item never came whole
    kept = {name: value for name, value in fields.items() if value is not None}
    if item.type == "reasoning":
        kept.pop("status", None)
        if not item.content:
            kept.pop("content", None)
        kept.setdefault("summary", [])
    return encode_json(kept).decode()


def classify_stop(
    status: str, response: Response, blocks: Sequence[OpenBlock], content: Sequence[Content]
) -> tuple[str, StopReason, str | None]:
    """Return the server's reason to stop, ours, and the error if it is one; from the status and from the content."""
    reason: object = status
    if status == "incomplete" and response.incomplete_details is not None:
        reason = response.incomplete_details.reason or status
    raw = str(reason)
    refusals = [block.content.text for block in blocks if block.refused and isinstance(block.content, TextContent)]
    if refusals:
        return raw, "refusal", "".join(refusals)
    if reason == "content_filter":
        return raw, "refusal", "The provider's filter stopped the answer (content_filter)."
    if reason == "max_output_tokens":
        return raw, "length", None
    if reason not in ("completed", "done"):
        return raw, "error", f"The response ended as {status!r} for an unknown reason: {reason!r}."
    return raw, judge_calls(content), None
