"""Encodes a request to the Anthropic Messages API; the bytes of earlier messages stay the same, for the prompt cache.

Consecutive messages of one role become one message, because the API wants the roles to alternate: one user message
holds all tool results of a turn, then the user's own text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from steersman.provider.wires.anthropic.decode import PAUSED
from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.provider.wires.anthropic.schema import (
    convert_output_schema,
    convert_parameters,
    parse_version,
    takes_output_schema,
)
from steersman.provider.wires.protocol import ToolNames, encode_json, memoize_by_identities
from steersman.provider.wires.sampling import require_accepted
from steersman.provider.wires.token_budget import limit_output_tokens
from steersman.types.content import (
    Content,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
)
from steersman.types.frozen import MemoList
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage
from steersman.types.model import Model, Request, StreamOptions, ToolSpec

NameOf = Callable[[str], str]
"""Maps the name of a tool to the name on the wire."""

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_FOREIGN_ID = "x-"
_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_END = b"]}"
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_NAME_LENGTH = 64
_MARKS = {"5m": b',"cache_control":{"type":"ephemeral"}', "1h": b',"cache_control":{"type":"ephemeral","ttl":"1h"}'}
_MEMO = "anthropic"


class ToolSet:
    """The tools of a request: their names on the wire, and their encoded form."""

    __slots__ = ("changed", "encoded", "names", "tools")

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self.tools = tuple(tools)
        self.names = ToolNames(self.tools, _NAME, _MAX_NAME_LENGTH)
        self.encoded = [encode_json(self._declare(tool)) for tool in self.tools]
        # Encoded messages depend on these names.
        self.changed = tuple(
            (tool.name, wire) for tool in self.tools if (wire := self.names.to_wire(tool.name)) != tool.name
        )

    def _declare(self, tool: ToolSpec) -> dict[str, Any]:
        schema, more = convert_parameters(tool.parameters)
        words = "\n\n".join(filter(None, (tool.description, more)))
        fields: dict[str, Any] = {"name": self.names.to_wire(tool.name)}
        if words:
            fields["description"] = words
        return {**fields, "input_schema": schema}


@memoize_by_identities(limit=64)
def encode_tools(tools: Sequence[ToolSpec]) -> ToolSet:
    """Return the encoded tools; the same tools are encoded once."""
    return ToolSet(tools)


def encode_request(model: Model, request: Request, options: StreamOptions) -> tuple[bytes, int | None]:
    """Return the request body and its limit on output tokens; what may change from turn to turn comes last."""
    tools = encode_tools(request.tools)
    mark = _choose_cache_mark(model)
    extra = cast(Mapping[str, Any], model.settings.get("extra_body") or {})
    encoded = encode_messages(request.messages, tools.names.to_wire, tools.changed)
    declared = [*tools.encoded, *map(encode_json, extra.get("tools") or ())]
    chosen = build_tool_choice(options)
    if not declared and encoded.used:
        # The API refuses tool calls in the messages without declared tools; these declarations are not to be used.
        declared = [encode_json({"name": name, "input_schema": {"type": "object"}}) for name in encoded.used]
        chosen = {"type": "none"}
    parts = [b'{"model":', encode_json(model.id), b',"stream":true']
    if declared:
        parts += (b',"tools":', _encode_array(declared, mark))
    if request.system_prompt.strip():
        parts += (
            b',"system":',
            _encode_array([encode_json({"type": "text", "text": request.system_prompt})], mark),
        )
    parts.append(b',"messages":[')
    fields = build_options(model, request, options, encoded)
    if declared and chosen is not None:
        fields["tool_choice"] = chosen
    fields.update({name: value for name, value in extra.items() if name != "tools"})
    pieces = add_cache_marks(encoded.list_pieces(), mark) if mark else encoded.list_pieces()
    # Joined only once: a long conversation is many bytes.
    pieces[:1] = [b"".join((*parts, *pieces[:1]))]
    pieces[-1] = b"".join((pieces[-1], b"],", encode_json(fields)[1:]))
    return b",".join(pieces), fields["max_tokens"]


def _encode_array(objects: list[bytes], mark: bytes) -> bytes:
    whole = b"[" + b",".join(objects) + b"]"
    return insert_cache_mark(whole, mark, depth=2) if mark else whole


def _choose_cache_mark(model: Model) -> bytes:
    wanted = model.settings.get("cache", True)
    if isinstance(wanted, bool):
        return _MARKS["5m"] if wanted else b""
    if wanted not in _MARKS:
        raise ValueError(f"The setting 'cache' must be False, True, '5m' or '1h', got {wanted!r}.")
    return _MARKS[wanted]


def encode_call_id(call_id: str) -> str:
    """Return a legal id for a call: the same id if it is legal, else its hexadecimal form; ids stay distinct."""
    if _ID.fullmatch(call_id) and not call_id.startswith(_FOREIGN_ID):
        return call_id
    return _FOREIGN_ID + call_id.encode("utf-8", "surrogatepass").hex()


class EncodedMessages:
    """The encoded messages of a conversation; `extend` adds new ones and keeps the rest."""

    __slots__ = (
        "_answered", "_blocks", "_done", "_first", "_name_of", "_results", "_role", "count", "names", "used",
    )  # fmt: skip

    def __init__(self, name_of: NameOf, names: object) -> None:
        self.count = 0
        self.names = names
        # The tools that were called: the API wants declarations for them.
        self.used: dict[str, None] = {}
        self._name_of = name_of
        self._done: list[bytes] = []
        self._role = b""
        self._results: list[bytes] = []
        self._blocks: list[bytes] = []
        # The first block of the answers since the last prompt, and whether results followed the last answer.
        self._first: Content | None = None
        self._answered = False

    @property
    def works_without_thinking(self) -> bool:
        """Whether the current tool calls began without thinking, because of another model or with thinking off.

        With a thinking budget, the API wants the answers since the last prompt to begin with signed thinking.
        """
        return self._answered and not (isinstance(self._first, ThinkingContent) and self._first.signature)

    def extend(self, messages: Iterable[Message]) -> None:
        """Encode more messages."""
        for message in messages:
            self.count += 1
            if isinstance(message, AssistantMessage):
                if not self._answered:
                    self._first = message.content[0] if message.content else None
                self._answered = False
                self._switch_role(_ASSISTANT)
                self._blocks.extend(filter(None, map(self._encode_answer_block, _drop_trailing_thinking(message))))
            elif isinstance(message, ToolResultMessage):
                self._answered = True
                self._switch_role(_USER)
                self._encode_result(message)
            else:
                self._switch_role(_USER)
                self._blocks.extend(filter(None, map(_encode_block, message.content)))

    def list_pieces(self) -> list[bytes]:
        """Return the JSON of each message, including the last one, which may still grow."""
        last = self._encode_open_message()
        return [*self._done, last] if last else list(self._done)

    def _switch_role(self, role: bytes) -> None:
        if role is self._role:
            return
        if last := self._encode_open_message():
            self._done.append(last)
        self._role = role
        self._results = []
        self._blocks = []

    def _encode_open_message(self) -> bytes:
        blocks = [*self._results, *self._blocks]
        return b"".join((self._role, b",".join(blocks), _END)) if blocks else b""

    def _encode_answer_block(self, block: Content) -> bytes | None:
        if isinstance(block, ToolCall):
            name = self._name_of(block.name)
            self.used[name] = None
            call = {"type": "tool_use", "id": encode_call_id(block.id), "name": name, "input": _build_input(block)}
            return encode_json(call)
        if isinstance(block, ThinkingContent):
            return _encode_thinking(block)
        # The API takes no images from the assistant.
        return _encode_block(TextContent("[image]") if isinstance(block, ImageContent) else block)

    def _encode_result(self, message: ToolResultMessage) -> None:
        content = message.content
        fields: dict[str, Any] = {"type": "tool_result", "tool_use_id": encode_call_id(message.tool_call_id)}
        if message.is_error:
            # An error result holds only text; its images follow the results.
            self._blocks.extend(
                filter(None, (_encode_block(block) for block in content if isinstance(block, ImageContent)))
            )
            content = [block for block in content if not isinstance(block, ImageContent)]
            fields["is_error"] = True
        blocks = [msgspec.Raw(block) for block in map(_encode_block, content) if block]
        if blocks:
            fields["content"] = blocks
        self._results.append(encode_json(fields))


def encode_messages(messages: Sequence[Message], name_of: NameOf, names: object) -> EncodedMessages:
    """Encode the messages; of a conversation that only grew, encode just the new ones.

    `names` is what `name_of` depends on: with other names all messages are encoded again.
    """
    base: object = getattr(messages, "base", None)
    if not isinstance(base, MemoList):
        fresh = EncodedMessages(name_of, names)
        fresh.extend(messages)
        return fresh
    grown = cast(MemoList[Message], base)
    known: EncodedMessages | None = grown.memo.get(_MEMO)
    if known is None or known.names != names:
        known = grown.memo[_MEMO] = EncodedMessages(name_of, names)
    elif known.count > len(messages):
        known = EncodedMessages(name_of, names)  # an older request again: the memo is for the newer ones
    known.extend(grown[known.count : len(messages)])
    return known


def add_cache_marks(pieces: list[bytes], mark: bytes) -> list[bytes]:
    """Put a cache mark on the last two user messages.

    The second to last was marked in the previous request, so the prompt cache finds that prefix again.
    """
    left = 2
    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        if piece.startswith(_USER):
            pieces[index] = insert_cache_mark(piece, mark, depth=3)
            left -= 1
            if not left:
                break
    return pieces


def insert_cache_mark(encoded: bytes, mark: bytes, *, depth: int) -> bytes:
    """Insert `mark` into the object that ends `depth` bytes before the end of the JSON."""
    return b"".join((encoded[:-depth], mark, encoded[-depth:]))


def _drop_trailing_thinking(message: AssistantMessage) -> Sequence[Content]:
    """Drop thinking from the end of an answer: the API refuses a message that ends with it.

    A paused answer goes back unchanged.
    """
    content = message.content
    end = len(content)
    while end and _is_thinking(content[end - 1]) and message.raw_stop_reason != PAUSED:
        end -= 1
    return content if end == len(content) else content[:end]


def _is_thinking(block: Content) -> bool:
    """Whether the block is thinking or blank text; a block of an unknown type is neither."""
    if isinstance(block, TextContent):
        return not block.text or block.text.isspace()
    return isinstance(block, ThinkingContent) and block.field != OPAQUE


def _encode_block(block: Content) -> bytes | None:
    if isinstance(block, TextContent):
        return encode_json({"type": "text", "text": block.text}) if block.text and not block.text.isspace() else None
    if isinstance(block, ImageContent):
        kind = "image/jpeg" if block.mime_type == "image/jpg" else block.mime_type
        return encode_json({"type": "image", "source": {"type": "base64", "media_type": kind, "data": block.data}})
    return None


def _encode_thinking(block: ThinkingContent) -> bytes | None:
    """Encode thinking unchanged; the API refuses thinking without its signature."""
    if not block.signature:
        return None
    if block.field == OPAQUE:
        return block.signature.encode("utf-8", "replace")
    if block.redacted:
        return encode_json({"type": "redacted_thinking", "data": block.signature})
    return encode_json({"type": "thinking", "thinking": block.thinking, "signature": block.signature})


def _build_input(call: ToolCall) -> dict[str, Any]:
    return call.arguments if call.raw_arguments is None else {"_raw": call.raw_arguments}


_ADAPTIVE = (4, 6)
_NO_TEMPERATURE = (4, 7)

_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 10_240, "high": 20_480}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_MIN_THINKING_BUDGET = 1024

_MAX_TOKENS = 32_000
_OLD_MAX_TOKENS = {(3, 0): 4096, (3, 5): 8192}

_MIN_ANSWER_TOKENS = 1024


def build_options(model: Model, request: Request, options: StreamOptions, encoded: EncodedMessages) -> dict[str, Any]:
    """Build the fields for the limit, thinking, output format and sampling, in a fixed order."""
    require_accepted(_MEMO, model, options)
    version = parse_version(model.id)
    limit = limit_output_tokens(
        model, request, options.max_tokens or model.max_output_tokens or _find_default_limit(version)
    )
    fields: dict[str, Any] = {"max_tokens": limit}
    config: dict[str, Any] = {}
    thinking = _build_thinking(model, request, options, encoded, limit)
    if thinking is not None:
        fields["thinking"] = thinking
        if thinking.get("type") == "adaptive" and options.thinking_level in _EFFORTS:
            config["effort"] = _EFFORTS[options.thinking_level]
    if options.output_schema is not None and takes_output_schema(model):
        form = convert_output_schema(options.output_schema)
        if form is not None:
            config["format"] = form
    if config:
        fields["output_config"] = config
    fixed = thinking is not None or (version is not None and version >= _NO_TEMPERATURE)
    if options.temperature is not None and not fixed:
        fields["temperature"] = options.temperature
    if options.top_p is not None:
        fields["top_p"] = options.top_p
    if options.stop:
        fields["stop_sequences"] = [*options.stop]
    return fields


def build_tool_choice(options: StreamOptions) -> dict[str, Any] | None:
    """Build `tool_choice`, unless the model may choose."""
    if options.tool_choice == "auto":
        return None
    return {"type": "none" if options.tool_choice == "none" else "any"}


def _build_thinking(
    model: Model, request: Request, options: StreamOptions, encoded: EncodedMessages, limit: int
) -> dict[str, Any] | None:
    version = parse_version(model.id)
    forced = options.tool_choice == "required" and request.tools
    own = model.settings.get("thinking")
    if isinstance(own, Mapping):
        return {**own}
    # The API refuses thinking together with a forced tool call.
    if options.thinking_level == "off" or forced:
        return None
    if version is not None and version >= _ADAPTIVE:
        return {"type": "adaptive", "display": "summarized"}
    if encoded.works_without_thinking:
        return None
    budget = min(_BUDGETS[options.thinking_level], max(_MIN_THINKING_BUDGET, limit - _MIN_ANSWER_TOKENS))
    # A limit at or below the smallest thinking budget leaves no tokens for thinking.
    return {"type": "enabled", "budget_tokens": budget} if budget < limit else None


def _find_default_limit(version: tuple[int, int] | None) -> int:
    if version is None:
        return _MAX_TOKENS
    return next((limit for old, limit in _OLD_MAX_TOKENS.items() if old == version), _MAX_TOKENS)
