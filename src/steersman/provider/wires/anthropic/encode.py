"""Writes a conversation for the Anthropic Messages API, as bytes that stay the same while it goes on.

A turn of ours may be several messages; on the wire one user message holds all results of a turn, then what was said.
Consecutive messages of one side become one, so that the sides take turns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from steersman.provider.streaming.output_tool import OutputMode
from steersman.provider.wires.anthropic.decode import PAUSED
from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.provider.wires.anthropic.schema import convert_output_schema
from steersman.provider.wires.token_budget import limit_output_tokens
from steersman.types.content import (
    Content,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    replace_lone_surrogates,
)
from steersman.types.frozen import MemoList
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage
from steersman.types.model import Model, Request, StreamOptions

NameOf = Callable[[str], str]
"""A tool's name as the wire takes it."""

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_FOREIGN_ID = "x-"
_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_END = b"]}"
_MEMO = "anthropic"
_encoder = msgspec.json.Encoder()


def encode_json(value: Any) -> bytes:
    """JSON; half characters, which it has no way to write, are replaced."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_replace_surrogates(value))


def encode_call_id(call_id: str) -> str:
    """A call's id as the API takes it: the same where it is legal, else spelled out, never that of another call."""
    if _ID.fullmatch(call_id) and not call_id.startswith(_FOREIGN_ID):
        return call_id
    return _FOREIGN_ID + call_id.encode("utf-8", "surrogatepass").hex()


class EncodedMessages:
    """The messages of a conversation as they go over the wire; it takes more, and keeps what it has."""

    __slots__ = (
        "_answered", "_blocks", "_done", "_first", "_name_of", "_results", "_role", "count", "names", "used",
    )  # fmt: skip

    def __init__(self, name_of: NameOf, names: object) -> None:
        self.count = 0
        self.names = names
        # The tools that were called: the API wants to know tools that a conversation mentions.
        self.used: dict[str, None] = {}
        self._name_of = name_of
        self._done: list[bytes] = []
        self._role = b""
        self._results: list[bytes] = []
        self._blocks: list[bytes] = []
        # With what the calls began that lead up to the last results, and whether results have followed the last answer.
        self._first: Content | None = None
        self._answered = False

    @property
    def works_without_thinking(self) -> bool:
        """Whether calls are being answered that were begun without thinking, by another model or with thinking off.

        With a budget, what the model says after the last prompt has to begin with thinking that it signed.
        """
        return self._answered and not (isinstance(self._first, ThinkingContent) and self._first.signature)

    def extend(self, messages: Iterable[Message]) -> None:
        """Write the messages that follow."""
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
        """The messages, each as its JSON, with the last one as it is now."""
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
        # The model's side may not show pictures.
        return _encode_block(TextContent("[image]") if isinstance(block, ImageContent) else block)

    def _encode_result(self, message: ToolResultMessage) -> None:
        content = message.content
        fields: dict[str, Any] = {"type": "tool_result", "tool_use_id": encode_call_id(message.tool_call_id)}
        if message.is_error:
            # An error is text alone; the pictures follow the results.
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
    """The messages on the wire; of a conversation that only grew, just the new ones are encoded.

    `names` is what `name_of` depends on: a conversation that was written with other names is written anew.
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
        known = EncodedMessages(name_of, names)  # an older request, asked again: what is kept is for the newer ones
    known.extend(grown[known.count : len(messages)])
    return known


def add_cache_marks(pieces: list[bytes], mark: bytes) -> list[bytes]:
    """The messages with a cache mark on the last two of the user's.

    The mark before the last stood there in the request before, so what the server kept then is found again.
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
    """The JSON with `mark` inside the object that ends `depth` bytes before its end."""
    return b"".join((encoded[:-depth], mark, encoded[-depth:]))


def _drop_trailing_thinking(message: AssistantMessage) -> Sequence[Content]:
    """What an answer said, up to its last block that is no thinking: the API takes no message that ends with one.

    An answer that paused goes back as it is.
    """
    content = message.content
    end = len(content)
    while end and _is_thinking(content[end - 1]) and message.raw_stop_reason != PAUSED:
        end -= 1
    return content if end == len(content) else content[:end]


def _is_thinking(block: Content) -> bool:
    """Whether there is nothing to the block but thinking; a block of an unknown kind may be anything."""
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
    """Thinking goes back as it came; the API takes none without its signature, and none that was changed."""
    if not block.signature:
        return None
    if block.field == OPAQUE:
        return block.signature.encode("utf-8", "replace")
    if block.redacted:
        return encode_json({"type": "redacted_thinking", "data": block.signature})
    return encode_json({"type": "thinking", "thinking": block.thinking, "signature": block.signature})


def _build_input(call: ToolCall) -> dict[str, Any]:
    return call.arguments if call.raw_arguments is None else {"_raw": call.raw_arguments}


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, dict):
        return {
            _replace_surrogates(key): _replace_surrogates(item) for key, item in cast(dict[Any, Any], value).items()
        }
    if isinstance(value, list | tuple):
        return [_replace_surrogates(item) for item in cast(Sequence[Any], value)]
    return value


_VERSION = re.compile(r"claude-(?:[a-z]+-)*(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_PREVIEW = re.compile(r"claude-[a-z]+(?:-[a-z]+)*$")

_ADAPTIVE = (4, 6)
_NO_TEMPERATURE = (4, 7)
_STRUCTURED = (4, 5)

_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 10_240, "high": 20_480}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_MIN_THINKING_BUDGET = 1024

_MAX_TOKENS = 32_000
_OLD_MAX_TOKENS = {(3, 0): 4096, (3, 5): 8192}

_MIN_ANSWER_TOKENS = 1024


def parse_version(model_id: str) -> tuple[int, int] | None:
    """The version in a model's id, such as (4, 5); `None` for what is not named like a Claude model."""
    found = _VERSION.search(model_id)
    if found:
        return int(found[1]), int(found[2] or 0)
    return (4, 6) if _PREVIEW.search(model_id) else None


def build_options(model: Model, request: Request, options: StreamOptions, said: EncodedMessages) -> dict[str, Any]:
    """The fields of a request body that say how, in a fixed order."""
    version = parse_version(model.id)
    limit = limit_output_tokens(
        model, request, options.max_tokens or model.max_output_tokens or _find_default_limit(version)
    )
    fields: dict[str, Any] = {"max_tokens": limit}
    config: dict[str, Any] = {}
    thinking = _build_thinking(model, request, options, said, limit)
    if thinking is not None:
        fields["thinking"] = thinking
        if thinking.get("type") == "adaptive" and options.thinking_level in _EFFORTS:
            config["effort"] = _EFFORTS[options.thinking_level]
    if options.output_schema is not None and _takes_output_schema(model, version):
        form = convert_output_schema(options.output_schema)
        if form is not None:
            config["format"] = form
    if config:
        fields["output_config"] = config
    hot = thinking is not None or (version is not None and version >= _NO_TEMPERATURE)
    if options.temperature is not None and not hot:
        fields["temperature"] = options.temperature
    return fields


def choose_output_mode(model: Model, request: Request, options: StreamOptions) -> OutputMode:
    """How the form of an answer is told: as a schema where the model and the API take it, else as a tool.

    A model that thinks may not be forced to call one.
    """
    del request
    schema = options.output_schema
    if (
        schema is not None
        and _takes_output_schema(model, parse_version(model.id))
        and convert_output_schema(schema) is not None
    ):
        return "schema"
    own = model.settings.get("thinking")
    thinks = cast(Mapping[str, Any], own).get("type") != "disabled" if isinstance(own, Mapping) else None
    return "offered" if thinks or (thinks is None and options.thinking_level != "off") else "tool"


def build_tool_choice(options: StreamOptions) -> dict[str, Any] | None:
    """Whether tools may or must be used, where that is not left to the model."""
    if options.tool_choice == "auto":
        return None
    return {"type": "none" if options.tool_choice == "none" else "any"}


def _takes_output_schema(model: Model, version: tuple[int, int] | None) -> bool:
    wanted = model.settings.get("structured_output")
    return version is not None and version >= _STRUCTURED if wanted is None else bool(wanted)


def _build_thinking(
    model: Model, request: Request, options: StreamOptions, said: EncodedMessages, limit: int
) -> dict[str, Any] | None:
    version = parse_version(model.id)
    forced = options.tool_choice == "required" and request.tools
    own = model.settings.get("thinking")
    if isinstance(own, Mapping):
        return {**own}
    # A model that is forced to call a tool may not think first: the API takes one or the other.
    if options.thinking_level == "off" or forced:
        return None
    if version is not None and version >= _ADAPTIVE:
        return {"type": "adaptive", "display": "summarized"}
    if said.works_without_thinking:
        return None
    budget = min(_BUDGETS[options.thinking_level], max(_MIN_THINKING_BUDGET, limit - _MIN_ANSWER_TOKENS))
    # Where the answer itself may not be longer than the least budget, there is no room for thinking.
    return {"type": "enabled", "budget_tokens": budget} if budget < limit else None


def _find_default_limit(version: tuple[int, int] | None) -> int:
    if version is None:
        return _MAX_TOKENS
    return next((most for old, most in _OLD_MAX_TOKENS.items() if old == version), _MAX_TOKENS)
