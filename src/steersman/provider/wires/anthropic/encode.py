"""Encodes a request to the Anthropic Messages API; the bytes of earlier messages stay the same, for the prompt cache.

Consecutive messages of one role become one message, because the API wants the roles to alternate: one user message
holds all tool results of a turn, then the user's own text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, cast

import msgspec

from steersman.provider.wires.alternating import ASSISTANT, USER, AlternatingMessages, encode_new_messages
from steersman.provider.wires.anthropic.schema import (
    convert_output_schema,
    convert_parameters,
    parse_version,
    takes_output_schema,
)
from steersman.provider.wires.anthropic.written_blocks import (
    CallIds,
    ServerCalls,
    build_block,
    build_call,
    drop_trailing_thinking,
    encode_blocks,
    encode_thinking,
)
from steersman.provider.wires.protocol import ToolNames, encode_json, memoize_by_identities, memoize_by_members
from steersman.provider.wires.sampling import require_accepted, warn_of_temperature
from steersman.provider.wires.token_budget import limit_output_tokens
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import Message, ToolResultMessage
from steersman.types.model import Model, Request, StreamOptions, ToolSpec

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_NAME_LENGTH = 64
_MARKS = {"5m": b',"cache_control":{"type":"ephemeral"}', "1h": b',"cache_control":{"type":"ephemeral","ttl":"1h"}'}
_MEMO = "anthropic"
_SEEN = TextContent("(see the image)")
_IMAGE = TextContent("[image]")


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


@memoize_by_members(limit=1024)
def encode_tools(tools: Sequence[ToolSpec]) -> ToolSet:
    """Return the encoded tools; the same tools are encoded once."""
    return ToolSet(tools)


def encode_request(model: Model, request: Request, options: StreamOptions) -> tuple[bytes, int | None]:
    """Return the request body and its limit on output tokens; what may change from turn to turn comes last."""
    tools = encode_tools(request.tools)
    encoded = encode_messages(request.messages, tools, model)
    limit = _find_limit(model, request, options)
    used = () if tools.encoded else tuple(encoded.used)
    frame = _encode_frame(
        (model, tools, options), request.system_prompt, limit, used, encoded.works_without_thinking, encoded.container
    )
    last = encoded.list_last()
    if frame.mark:
        add_cache_marks(last, frame.mark)
    # Joined only once: a long conversation is many bytes.
    return b"".join((frame.head, encoded.earlier, b",".join(last), frame.tail)), frame.limit


class _Frame(msgspec.Struct, frozen=True):
    """What stands before and behind the messages of a request, the cache mark inside them, and its limit."""

    head: bytes
    tail: bytes
    mark: bytes
    limit: int


@memoize_by_identities(limit=1024)
def _encode_frame(
    parts: Sequence[Any],
    system_prompt: str,
    limit: int,
    used: Iterable[str],
    works_without_thinking: bool,
    container: str | None,
) -> _Frame:
    """Encode what is nearly always the same in all requests of a conversation; `used` are names of tools in it."""
    model, tools, options = cast(tuple[Model, ToolSet, StreamOptions], parts)
    mark = choose_cache_mark(model, _MARKS)
    extra = cast(Mapping[str, Any], model.settings.get("extra_body") or {})
    chosen = build_tool_choice(options)
    declared: Iterable[str] = ()
    if used and not extra.get("tools"):
        # The API refuses tool calls in the messages without declared tools; these declarations are not to be used.
        declared, chosen = used, {"type": "none"}
    fields = _build_fields(
        model, options, limit, has_tools=bool(tools.tools), works_without_thinking=works_without_thinking
    )
    if container is not None:
        fields["container"] = container
    if chosen is not None and (tools.encoded or declared or extra.get("tools")):
        fields["tool_choice"] = chosen
    if extra:
        fields.update({name: value for name, value in extra.items() if name != "tools"})
    head = _encode_head((model, tools), system_prompt, mark, declared)
    return _Frame(head, b"]," + encode_json(fields)[1:], mark, fields["max_tokens"])


@memoize_by_identities(limit=1024)
def _encode_head(parts: Sequence[Any], system_prompt: str, mark: bytes, unusable: Iterable[str]) -> bytes:
    """Encode what the requests of a conversation begin with; `unusable` are names of tools that are only declared."""
    model, tools = cast(tuple[Model, ToolSet], parts)
    extra = cast(Mapping[str, Any], model.settings.get("extra_body") or {})
    declared = [*tools.encoded, *map(encode_json, extra.get("tools") or ())]
    declared += [encode_json({"name": name, "input_schema": {"type": "object"}}) for name in unusable]
    written = [b'{"model":', encode_json(model.id), b',"stream":true']
    if declared:
        written += (b',"tools":', _encode_array(declared, mark))
    if system_prompt.strip():
        written += (b',"system":', _encode_array([encode_json({"type": "text", "text": system_prompt})], mark))
    return b"".join((*written, b',"messages":['))


def _encode_array(objects: list[bytes], mark: bytes) -> bytes:
    whole = b"[" + b",".join(objects) + b"]"
    return insert_cache_mark(whole, mark, depth=2) if mark else whole


def choose_cache_mark(model: Model, marks: Mapping[str, bytes], *, usual: bool = True) -> bytes:
    """Return the mark for the lifetime that the setting `cache` names; empty if the prompt cache is off."""
    wanted = model.settings.get("cache", usual)
    if isinstance(wanted, bool):
        return marks["5m"] if wanted else b""
    if wanted not in marks:
        raise ValueError(f"The setting 'cache' must be False, True, '5m' or '1h', got {wanted!r}.")
    return marks[wanted]


class EncodedMessages(AlternatingMessages):
    """The encoded messages of a conversation; `extend` adds new ones and keeps the rest."""

    __slots__ = ("_container", "_ids", "_tools", "server_calls")

    def __init__(self, tools: ToolSet, ids: CallIds, server_calls: ServerCalls) -> None:
        super().__init__()
        self._tools = tools
        self._ids = ids
        self.server_calls = server_calls
        # The container of the code that made the last calls.
        self._container: str | None = None

    @property
    def container(self) -> str | None:
        """The container to name in the request: code in it waits for the results that come last."""
        return self._container if self._answered else None

    def depends_on(self, tools: ToolSet, model: Model) -> bool:
        """Whether the messages were encoded with these names and for this kind of server."""
        is_known = self._tools is tools or self._tools.changed == tools.changed
        return is_known and (self._ids.model is model or self._ids.are_for(model))

    def extend(self, messages: Iterable[Message]) -> None:
        """Encode more messages."""
        for message in messages:
            self.count += 1
            if message.role == "assistant":
                self._ids.begin_answer(message)
                self._container = None
                self._begin_answer(message)
                self._switch_role(ASSISTANT)
                for block in drop_trailing_thinking(message, self.server_calls.select(message.content)):
                    self._add_answer_block(block)
                continue
            self._switch_role(USER)
            if message.role == "tool_result":
                self._answered = True
                self._add_result(message)
            else:
                self._blocks += encode_blocks(message.content)
            if self._blocks:
                self.server_calls.give_up()

    def _add_answer_block(self, block: Content) -> None:
        if type(block) is ToolCall:
            name = self._tools.names.to_wire(block.name)
            self.used[name] = None
            call, container = build_call(block, self._ids.add(block.id), name)
            self._container = container or self._container
            self._blocks.append(encode_json(call))
        elif type(block) is ThinkingContent:
            thought = encode_thinking(block)
            self._blocks += () if thought is None else (thought,)
        else:
            # The API takes no images from the assistant.
            built = build_block(_IMAGE if type(block) is ImageContent else block)
            self._blocks += () if built is None else (encode_json(built),)

    def _add_result(self, message: ToolResultMessage) -> None:
        content = message.content
        fields: dict[str, Any] = {"type": "tool_result", "tool_use_id": self._ids.find(message.tool_call_id)}
        if message.is_error:
            # An error result holds only text, and at least one; its images follow the results.
            self._blocks += encode_blocks([block for block in content if isinstance(block, ImageContent)])
            content = [block for block in content if not isinstance(block, ImageContent)] or [_SEEN]
            fields["is_error"] = True
        blocks = [built for built in map(build_block, content) if built is not None]
        if blocks:
            fields["content"] = blocks
        self._results.append(encode_json(fields))


def encode_messages(
    messages: Sequence[Message], tools: ToolSet, model: Model, given_up: Set[str] = frozenset()
) -> EncodedMessages:
    """Encode the messages; of a conversation that only grew, encode just the new ones.

    With other tool names or another kind of server all messages are encoded again, and so they are when a call of the
    server is given up that was sent before.
    """
    encoded = encode_new_messages(
        messages,
        _MEMO,
        lambda: EncodedMessages(tools, CallIds(model), ServerCalls(given_up)),
        lambda known: not known.server_calls.is_late and known.depends_on(tools, model),
    )
    calls = encoded.server_calls
    return encode_messages(messages, tools, model, calls.given_up) if calls.is_late else encoded


def add_cache_marks(pieces: list[bytes], mark: bytes) -> None:
    """Put a cache mark on the last two user messages.

    The second to last was marked in the previous request, so the prompt cache finds that prefix again.
    """
    left = 2
    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        if piece.startswith(USER):
            pieces[index] = insert_cache_mark(piece, mark, depth=3)
            left -= 1
            if not left:
                break


def insert_cache_mark(encoded: bytes, mark: bytes, *, depth: int) -> bytes:
    """Insert `mark` into the object that ends `depth` bytes before the end of the JSON."""
    return b"".join((encoded[:-depth], mark, encoded[-depth:]))


_ADAPTIVE = (4, 6)
_NO_TEMPERATURE = (4, 7)
_USUAL_TEMPERATURE = 1

_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 10_240, "high": 20_480}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_MIN_THINKING_BUDGET = 1024

_MAX_TOKENS = 32_000
_OLD_MAX_TOKENS = {(3, 0): 4096, (3, 5): 8192}

_MIN_ANSWER_TOKENS = 1024


def build_options(
    model: Model, request: Request, options: StreamOptions, *, works_without_thinking: bool
) -> dict[str, Any]:
    """Build the fields for the limit, thinking, output format and sampling, in a fixed order.

    `works_without_thinking`: the current tool calls began without thinking, see `EncodedMessages`.
    """
    limit = _find_limit(model, request, options)
    has_tools = bool(request.tools)
    return _build_fields(model, options, limit, has_tools=has_tools, works_without_thinking=works_without_thinking)


def _build_fields(
    model: Model, options: StreamOptions, limit: int, *, has_tools: bool, works_without_thinking: bool
) -> dict[str, Any]:
    require_accepted(_MEMO, model, options)
    version = parse_version(model.id)
    fields: dict[str, Any] = {"max_tokens": limit}
    config: dict[str, Any] = {}
    thinking = _build_thinking(
        model, options, limit, has_tools=has_tools, works_without_thinking=works_without_thinking
    )
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
    elif options.temperature not in (None, _USUAL_TEMPERATURE):
        warn_of_temperature(model.name, "while it thinks" if thinking is not None else "from Claude 4.7 on")
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
    model: Model, options: StreamOptions, limit: int, *, has_tools: bool, works_without_thinking: bool
) -> dict[str, Any] | None:
    forced = options.tool_choice == "required" and has_tools
    own = model.settings.get("thinking")
    if isinstance(own, Mapping):
        return {**own}
    # The API refuses thinking together with a forced tool call.
    if options.thinking_level == "off" or forced:
        return None
    version = parse_version(model.id)
    if version is not None and version >= _ADAPTIVE:
        return {"type": "adaptive", "display": "summarized"}
    if works_without_thinking:
        return None
    budget = min(_BUDGETS[options.thinking_level], max(_MIN_THINKING_BUDGET, limit - _MIN_ANSWER_TOKENS))
    # A limit at or below the smallest thinking budget leaves no tokens for thinking.
    return {"type": "enabled", "budget_tokens": budget} if budget < limit else None


def _find_limit(model: Model, request: Request, options: StreamOptions) -> int:
    """Find the limit on output tokens, which the API wants to be told."""
    wanted = options.max_tokens or model.max_output_tokens or _find_default_limit(model.id)
    return limit_output_tokens(model, request, wanted)


def _find_default_limit(model_id: str) -> int:
    version = parse_version(model_id)
    return _MAX_TOKENS if version is None else _OLD_MAX_TOKENS.get(version, _MAX_TOKENS)
