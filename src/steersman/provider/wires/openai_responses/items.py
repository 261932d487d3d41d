"""The output items of a response while they grow, and what each comes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from steersman.provider.wires.openai_responses.encode import CUSTOM, PHASES, encode_json
from steersman.provider.wires.openai_responses.events import Id, OutputItem
from steersman.types.content import (
    Content,
    TextContent,
    ThinkingContent,
    ToolCall,
    escape_lone_surrogates,
    parse_tool_call,
    replace_lone_surrogates,
    split_trailing_surrogate,
)
from steersman.types.stream import (
    StreamEvent,
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

Events: TypeAlias = list[StreamEvent]


class OpenBlock:
    """A block of the answer while it grows; `held` is half a surrogate pair that waits for its other half."""

    __slots__ = ("content", "held", "index", "kind", "parts", "refused")

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.index = index
        self.parts: list[str] = []
        self.held = ""
        self.content: Content | None = None
        self.refused = False

    def start(self, id: str, name: str) -> StreamEvent:
        """The event that opens the block."""
        if self.kind == "text":
            return TextStart(self.index)
        return ThinkingStart(self.index) if self.kind == "thinking" else ToolCallStart(self.index, id, name)

    def add(self, words: str) -> StreamEvent:
        """The event that shows more of the block."""
        self.parts.append(words)
        if self.kind == "text":
            return TextDelta(words, self.index)
        return ThinkingDelta(words, self.index) if self.kind == "thinking" else ToolCallDelta(words, self.index)

    def add_joined(self, words: str) -> Events:
        """More of the block where a surrogate pair may be split: its first half waits for the other."""
        words, self.held = split_trailing_surrogate(self.held + words)
        return [self.add(self._replace_surrogates(words))] if words else []

    def add_rest(self, whole: str) -> Events:
        """What the deltas left out, when the whole is told at the end."""
        shown = [self.add(self._replace_surrogates(self.held))] if self.held else []
        self.held = ""
        said = "".join(self.parts)
        if len(whole) > len(said) and whole.startswith(said):
            shown.append(self.add(whole[len(said) :]))
        return shown

    def _replace_surrogates(self, words: str) -> str:
        """Words without half a character; in arguments one is spelled out, so that nobody runs a call with another."""
        return escape_lone_surrogates(words) if self.kind == "tool_call" else replace_lone_surrogates(words)

    def end(self, content: Content) -> StreamEvent:
        """The event that closes the block."""
        self.content = content
        if isinstance(content, TextContent):
            return TextEnd(self.index)
        return ToolCallEnd(self.index, content) if isinstance(content, ToolCall) else ThinkingEnd(self.index)


class OpenItem:
    """An output item while it grows; `order` is its place in the answer."""

    __slots__ = ("blocks", "call_id", "done", "id", "kind", "name", "order", "part", "told")

    def __init__(self, kind: str | None, order: int) -> None:
        self.kind = kind
        self.order = order
        self.id: Id = None
        self.call_id = ""
        self.name = ""
        # Whether the server has announced the item, or its deltas came unannounced.
        self.told = False
        self.done = False
        # By part of a message; other items have one block, the part 0.
        self.blocks: dict[int, OpenBlock] = {}
        # The kind and number of the part of reasoning that is being shown.
        self.part: tuple[str, int] | None = None

    def is_same(self, given: OutputItem) -> bool:
        """Whether this is the item that is told whole."""
        if self.kind != given.type:
            return False
        same_call = given.call_id is not None and self.call_id == str(given.call_id)
        return same_call or (given.id is not None and self.id == given.id)


class Output:
    """The items of one response, in the order the server gives them."""

    __slots__ = ("_by_id", "_by_index", "_indexed", "items")

    def __init__(self) -> None:
        self.items: list[OpenItem] = []
        self._by_index: dict[int, OpenItem] = {}
        self._by_id: dict[str | int, OpenItem] = {}
        # Until an index is missing, or one is used twice: then it does not tell items apart.
        self._indexed = True

    def open(self, index: int | None, given: OutputItem, *, told: bool = True) -> OpenItem:
        """The item announced; one whose deltas came before is the same."""
        item = self.find(index, given.id) if self.items else None
        if item is None or item.done or item.kind != given.type or (item.told and item.id != given.id):
            item = OpenItem(given.type, len(self.items) if index is None else index)
            self._indexed = self._indexed and index is not None and index not in self._by_index
            self.items.append(item)
        elif item.told:
            return item
        item.told = told
        item.id = given.id
        item.call_id = str(given.call_id or given.id or f"call_{len(self.items)}")
        item.name = given.name or ""
        if index is not None:
            self._by_index[index] = item
        if given.id:
            self._by_id[given.id] = item
        return item

    def find(self, index: int | None, id: Id) -> OpenItem | None:
        """The item an event speaks of."""
        if id and id in self._by_id and (index is None or not self._indexed):
            return self._by_id[id]
        if index is not None:
            return self._by_index.get(index)
        newest = self.items[-1] if self.items else None
        # A server that gave the item no id may still give its deltas one.
        return newest if newest is not None and (not id or newest.id is None) else None

    def find_done(self, index: int | None, given: OutputItem) -> OpenItem:
        """The item that is told whole in its place: a call may have the id of another one that has ended."""
        if self._indexed and index is not None and index not in self._by_index:
            same = [item for item in self.items if item.is_same(given)]
            if same and all(item.done and (item.id is None or item.id != given.id) for item in same):
                return self.open(index, given)
        return self.find_or_open(index, given)

    def find_or_open(self, index: int | None, given: OutputItem) -> OpenItem:
        """The item that a whole one belongs to, opened now if it was not."""
        same = [item for item in self.items if item.is_same(given)]
        if same:
            # Where an id was given twice, the place tells which is meant.
            placed = self._by_index.get(index) if self._indexed and index is not None else None
            return placed if placed in same else same[0]
        item = self.find(index, given.id)
        if item is None or item.done or item.kind != given.type:
            item = self.open(index, given)
        return item

    @property
    def indexed(self) -> bool:
        """Whether the server's indexes tell the items apart."""
        return self._indexed

    def list_blocks(self) -> Iterator[OpenBlock]:
        """The blocks that have come to their end, in the order of the answer."""
        ordered = sorted(self.items, key=lambda item: item.order) if self._indexed else self.items
        for item in ordered:
            for part in sorted(item.blocks):
                if item.blocks[part].content is not None:
                    yield item.blocks[part]


def build_text(block: OpenBlock, whole: str | None, phase: str | None) -> TextContent:
    """A text as it was told at the end, or else as it was shown."""
    return TextContent("".join(block.parts) if whole is None else whole, phase if phase in PHASES else None)


def build_call(item: OutputItem, id: str, name: str, shown: str, *, cut: bool) -> ToolCall:
    """A call; one that was cut keeps what there is of its arguments as written, and is never run."""
    if item.type == CUSTOM and not cut:
        return ToolCall(id, name, {"input": item.input if isinstance(item.input, str) else ""}, signature=CUSTOM)
    arguments = shown if item.arguments is None else item.arguments
    if cut or item.status == "incomplete":
        raw = arguments if isinstance(arguments, str) else encode_json(arguments).decode()
        return ToolCall(id, name, raw_arguments=escape_lone_surrogates(raw))
    return parse_tool_call(id, name, arguments)


def encode_arguments(item: OutputItem) -> str:
    """The arguments of a whole call as text, for the deltas that did not come."""
    if item.type == CUSTOM:
        return encode_json({"input": item.input if isinstance(item.input, str) else ""}).decode()
    if item.arguments is None or isinstance(item.arguments, str):
        return item.arguments or ""
    return encode_json(item.arguments).decode()


def join_reasoning(item: OutputItem) -> str:
    """What may be shown of a reasoning item: the summary, or the reasoning itself where there is none."""
    for parts in (item.summary, item.content):
        texts = [part.text for part in parts or () if part.text]
        if texts:
            return "\n\n".join(texts)
    return ""


def build_thinking(item: OutputItem, raw: bytes, shown: str) -> ThinkingContent:
    """Reasoning, or an item of a kind unknown here, with what has to go back to the server."""
    return ThinkingContent(shown, build_signature(item, raw), redacted=item.type != "reasoning")


def build_signature(item: OutputItem, raw: bytes) -> str | None:
    """An item as it has to go back, or `None` where that would only name something the server did not keep.

    `status` and empty fields are the server's notes, which it does not take back.
    """
    if item.type == "reasoning" and not item.encrypted_content and not item.content:
        return None
    fields: dict[str, Any] = msgspec.json.decode(raw)
    kept = {name: value for name, value in fields.items() if value is not None}
    if item.type == "reasoning":
        kept.pop("status", None)
        if not item.content:
            kept.pop("content", None)
        kept.setdefault("summary", [])
    return encode_json(kept).decode()
