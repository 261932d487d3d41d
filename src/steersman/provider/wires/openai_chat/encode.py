"""Encodes a request to Chat Completions; the messages come last, so a longer conversation only appends.

Each message of a growing transcript is encoded once; a later turn encodes only the new ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import msgspec

from steersman.provider.wires.openai_chat.blocks import NOT_REPLAYED
from steersman.provider.wires.openai_chat.quirks import Quirks
from steersman.provider.wires.protocol import (
    ToolNames,
    encode_json,
    memoize_by_identities,
    memoize_by_members,
)
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

_NAME, _NAME_LENGTH = re.compile(r"[a-zA-Z0-9_-]+"), 64
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SEEN = "(The result is the picture that follows.)"
_PICTURES = "(The pictures of the tool results above.)"
_NOTED = b',{"role":"assistant","content":"Noted."}'
# DeepSeek V4 refuses an empty text where there was no thinking, or none of its own.
_NO_THOUGHT = " "
# The API takes no images from the assistant.
_IMAGE = "[image]"
_MEMO = "openai-chat"


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of a request: their names on the wire, and their encoded form."""

    names: ToolNames
    known: frozenset[str]
    complete: frozenset[str]
    """The names with which no other one begins."""
    encoded: bytes
    from_wire: Callable[[str], str]
    """Returns the tool's own name."""


@memoize_by_members(limit=1024)
def encode_tools(tools: Sequence[ToolSpec]) -> ToolSet:
    """Return the encoded tools; the same tools are encoded once."""
    names = ToolNames(tools, _NAME, _NAME_LENGTH)
    known = frozenset(names.to_wire(spec.name) for spec in tools)
    begun = {name for name, other in pairwise(sorted(known)) if other.startswith(name)}
    encoded = encode_json([_declare(spec, names) for spec in tools])
    return ToolSet(names, known, known - begun, encoded, names.from_wire)


def _declare(spec: ToolSpec, names: ToolNames) -> dict[str, Any]:
    parameters: Mapping[str, Any] = spec.parameters or {"type": "object", "properties": {}}
    function = {"name": names.to_wire(spec.name), "description": spec.description, "parameters": parameters}
    return {"type": "function", "function": function}


def encode_request(
    model: Model, request: Request, options: StreamOptions, quirks: Quirks, tools: ToolSet
) -> tuple[bytes, int | None]:
    """Return the request body and its limit on output tokens."""
    limit = None if options.max_tokens is None else limit_output_tokens(model, request, options.max_tokens)
    head = _encode_head((model, options, quirks, tools), request.system_prompt, limit)
    messages = _encode_messages(request.messages, head.writer)
    comma = b"," if request.system_prompt and request.messages else b""
    return b"".join((head.encoded, comma, *messages, b"]}")), head.limit


@dataclass(frozen=True, slots=True)
class _Head:
    """What the requests of a conversation begin with, up to the system prompt, and how their messages are encoded."""

    encoded: bytes
    limit: int | None
    writer: _MessageEncoder


@memoize_by_identities(limit=1024)
def _encode_head(parts: Sequence[Any], system_prompt: str, limit: int | None) -> _Head:
    model, options, quirks, tools = cast(tuple[Model, StreamOptions, Quirks, ToolSet], parts)
    settings = _build_options(model, options, quirks, limit, has_tools=bool(tools.known))
    declared = (b',"tools":', tools.encoded) if tools.known else ()
    system = encode_json({"role": quirks.system_role, "content": system_prompt}) if system_prompt else b""
    encoded = b"".join((encode_json(settings)[:-1], *declared, b',"messages":[', system))
    return _Head(encoded, settings.get(quirks.max_tokens_field), _MessageEncoder(model, quirks, tools))


def _build_options(
    model: Model, options: StreamOptions, quirks: Quirks, limit: int | None, *, has_tools: bool
) -> dict[str, Any]:
    settings: dict[str, Any] = {"model": model.id, "stream": True}
    if quirks.stream_usage:
        settings["stream_options"] = {"include_usage": True}
    if limit is not None:
        settings[quirks.max_tokens_field] = limit
    settings.update(_build_sampling(options, quirks))
    if options.thinking_level != "off":
        settings.update(_build_thinking(options.thinking_level, quirks))
    if options.output_schema is not None:
        settings.update(_build_output_format(options.output_schema, quirks))
    if has_tools:
        if options.tool_choice != "auto":
            settings["tool_choice"] = quirks.required_choice if options.tool_choice == "required" else "none"
        if quirks.parallel_tool_calls is not None:
            settings["parallel_tool_calls"] = quirks.parallel_tool_calls
    if quirks.cache_key and options.session_id:
        settings["prompt_cache_key"] = options.session_id[:64]
    extra = model.settings.get("extra_body")
    return {**settings, **extra} if extra else settings


def _build_sampling(options: StreamOptions, quirks: Quirks) -> dict[str, Any]:
    fields = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "stop": [*options.stop] or None,
        quirks.seed_field: options.seed,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _build_thinking(level: str, quirks: Quirks) -> dict[str, Any]:
    match quirks.thinking:
        case "effort":
            return {"reasoning_effort": level}
        case "openrouter":
            return {"reasoning": {"effort": level}}
        case "switch":
            return {"thinking": {"type": "enabled"}}
        case "template":
            return {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": level}
        case "none":
            return {}


def _build_output_format(schema: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    match quirks.output_format:
        case "none" | "tool":
            return {}
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "json_schema":
            form: dict[str, Any] = {"name": "output", "schema": schema}
            if _is_strict(schema):
                form["strict"] = True
            return {"response_format": {"type": "json_schema", "json_schema": form}}


def _is_strict(schema: object) -> bool:
    """Whether the server can enforce the schema: closed objects with every property required."""
    if isinstance(schema, list):
        return all(map(_is_strict, cast(list[object], schema)))
    if not isinstance(schema, Mapping):
        return True
    fields = cast(Mapping[str, Any], schema)
    if fields.get("type") == "object" or "properties" in fields:
        properties = cast(Mapping[str, Any], fields.get("properties") or {})
        if fields.get("additionalProperties") is not False or set(fields.get("required") or ()) != set(properties):
            return False
        if not all(map(_is_strict, properties.values())):
            return False
    if _LOOSE & fields.keys():
        return False
    return all(_is_strict(value) for key, value in fields.items() if key not in ("properties", "enum", "const"))


_LOOSE = frozenset(("oneOf", "allOf", "not", "if", "patternProperties", "default", "dependentRequired", "prefixItems"))


@dataclass(slots=True)
class _EncodedMessages:
    """The encoded messages of a growing transcript, and the offset at which each one ends."""

    tool_names: frozenset[str]
    bytes: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list[int])
    ids: dict[str, str] = field(default_factory=dict[str, str])
    """The ids of calls on the wire, where they are others than ours."""
    has_images: bool = False
    """Whether a tool result may have images: one is more than a text."""


def _encode_messages(messages: Sequence[Message], writer: _MessageEncoder) -> Iterable[bytes | bytearray]:
    """Encode the messages; those of a list that only grows are encoded once."""
    base: object = getattr(messages, "base", None)
    source, encoded = messages, None
    if isinstance(base, MemoList):
        # The list behind the view is faster to index.
        source = cast(MemoList[Message], base)
        encoded = _find_encoded(source, writer)
    encoded = encoded or _EncodedMessages(frozenset())
    count = len(messages)
    for index in range(len(encoded.ends), count):
        writer.encode_message(source, index, encoded)
        encoded.ends.append(len(encoded.bytes))
    if count == 0:
        return ()
    # A copy, because a buffer cannot grow while a memoryview exists.
    whole = encoded.bytes if count == len(encoded.ends) else bytes(memoryview(encoded.bytes)[: encoded.ends[count - 1]])
    return (whole, *writer.encode_images(source, count)) if encoded.has_images else (whole,)


def _find_encoded(base: MemoList[Message], writer: _MessageEncoder) -> _EncodedMessages:
    encoded: _EncodedMessages | None = base.memo.get(writer.memo_key)
    if encoded is None or encoded.tool_names != writer.tools.known:
        encoded = base.memo[writer.memo_key] = _EncodedMessages(writer.tools.known)
    return encoded


def _build_memo_key(quirks: Quirks) -> str:
    """Build a key of all quirks that change the encoded messages."""
    return (
        f"{_MEMO}:{quirks.call_ids}:{quirks.empty_content}:{quirks.replay_reasoning}:{quirks.require_reasoning}:"
        f"{quirks.tool_result_name}:{quirks.assistant_after_tool}:{quirks.assistant_after_user}"
    )


class _MessageEncoder:
    """Encodes messages with the quirks of one server."""

    __slots__ = ("_maker", "_to_id", "memo_key", "names", "quirks", "tools")

    def __init__(self, model: Model, quirks: Quirks, tools: ToolSet) -> None:
        # Behind a gateway, another model may be on another server.
        self._maker = (model.provider, model.id)
        self.quirks = quirks
        self.memo_key = _build_memo_key(quirks)
        self.tools = tools
        self.names = tools.names
        self._to_id: Callable[[str], str] = encode_short_call_id if quirks.call_ids == "nine" else encode_call_id

    def encode_message(self, messages: Sequence[Message], index: int, encoded: _EncodedMessages) -> None:
        """Append one message, and first what has to come before it."""
        message, out = messages[index], encoded.bytes
        if index and message.role != "tool_result" and messages[index - 1].role == "tool_result":
            for extra in self.encode_images(messages, index) if encoded.has_images else ():
                out += extra
            if self.quirks.assistant_after_tool and message.role == "user":
                out += _NOTED
        elif self.quirks.assistant_after_user and index and message.role == "user" == messages[index - 1].role:
            out += _NOTED
        if index:
            out += b","
        if message.role == "tool_result":
            out += encode_json(self._build_result(message, encoded))
        elif message.role == "assistant":
            out += encode_json(self._build_answer(message, encoded.ids))
        else:
            out += encode_json({"role": "user", "content": _build_content(message.content)})

    def encode_images(self, messages: Sequence[Message], index: int) -> Iterable[bytes]:
        """Encode the images of the tool results before `index`: a tool message holds only text, so they follow it."""
        images: list[ImageContent] = []
        at = index - 1
        while at >= 0 and type(message := messages[at]) is ToolResultMessage:
            images[:0] = [block for block in message.content if isinstance(block, ImageContent)]
            at -= 1
        if not images:
            return ()
        parts = [{"type": "text", "text": _PICTURES}, *map(_build_image, images)]
        noted = _NOTED if self.quirks.assistant_after_tool else b""
        return (noted + b"," + encode_json({"role": "user", "content": parts}),)

    def _build_answer(self, message: AssistantMessage, ids: dict[str, str]) -> dict[str, Any]:
        texts: list[str] = []
        calls: list[ToolCall] = []
        thoughts: list[ThinkingContent] = []
        for block in message.content:
            if type(block) is TextContent:
                texts.append(block.text)
            elif type(block) is ToolCall:
                calls.append(block)
            elif type(block) is ThinkingContent:
                thoughts.append(block)
            else:
                texts.append(_IMAGE)
        text = "".join(texts)
        answer: dict[str, Any] = {"role": "assistant"}
        if text:
            answer["content"] = text
        elif self.quirks.empty_content != "omit":
            answer["content"] = None if self.quirks.empty_content == "null" else ""
        replay, field = self.quirks.replay_reasoning, self.quirks.require_reasoning
        if thoughts and (replay == "always" or (calls and replay == "tool_calls")):
            answer.update(_build_reasoning(thoughts))
        if field is not None and (calls or replay == "always"):
            answer.setdefault(field, _NO_THOUGHT)
        if calls:
            own = self.quirks.call_ids == "any" and (message.provider, message.model) == self._maker
            answer["tool_calls"] = [self._build_call(call, ids, own=own) for call in calls]
        return answer

    def _build_call(self, call: ToolCall, ids: dict[str, str], *, own: bool) -> dict[str, Any]:
        """Build a call; a server gets back the id and the fields that it made."""
        name = self.names.to_wire(call.name) if call.name else "unknown"
        function = {"name": name, "arguments": encode_json(call.arguments).decode()}
        id = call.id
        if not own or not id:
            id = self._to_id(id)
        if id != call.id:
            ids[call.id] = id
        elif ids:
            ids.pop(call.id, None)
        fields: dict[str, Any] = {"id": id, "type": "function", "function": function}
        if call.signature is not None and call.signature.startswith("{"):
            fields.update(msgspec.json.decode(call.signature, type=dict[str, msgspec.Raw]))
        return fields

    def _build_result(self, message: ToolResultMessage, encoded: _EncodedMessages) -> dict[str, Any]:
        content, id = message.content, message.tool_call_id
        result: dict[str, Any] = {"role": "tool", "tool_call_id": encoded.ids.get(id, id)}
        if self.quirks.tool_result_name:
            result["name"] = self.names.to_wire(message.tool_name)
        if len(content) == 1 and type(block := content[0]) is TextContent:
            result["content"] = block.text
        else:
            encoded.has_images = True
            texts = [block.text for block in content if type(block) is TextContent]
            result["content"] = "\n".join(texts) if texts else _SEEN
        return result


def _build_reasoning(thoughts: Sequence[ThinkingContent]) -> dict[str, Any]:
    """Build the reasoning fields of an answer, under the names in which they came."""
    fields: dict[str, Any] = {}
    details: list[bytes] = []
    for block in thoughts:
        if block.field is None or block.field in NOT_REPLAYED:
            continue
        if block.field == "reasoning_details":
            if block.signature:
                details.append(block.signature.encode()[1:-1])
        else:
            fields[block.field] = fields.get(block.field, "") + block.thinking
    if details:
        fields["reasoning_details"] = msgspec.Raw(b"[" + b",".join(details) + b"]")
    return fields


def _build_content(content: Sequence[Content]) -> Any:
    """Return a string if the content is only text, because not every server takes parts."""
    if all(isinstance(block, TextContent) for block in content):
        return "\n".join([block.text for block in content if isinstance(block, TextContent)])
    return [
        _build_image(block) if isinstance(block, ImageContent) else {"type": "text", "text": block.text}
        for block in content
        if isinstance(block, ImageContent | TextContent)
    ]


def _build_image(image: ImageContent) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{image.mime_type};base64,{image.data}"}}


def encode_call_id(id: str) -> str:
    """Return the id if OpenAI takes it, else one derived from it."""
    return id if _ID.fullmatch(id) else f"call_{_hash(id)[:24]}"


def encode_short_call_id(id: str) -> str:
    """Return the id if it is nine letters and digits, else nine characters derived from it."""
    if _NINE.fullmatch(id):
        return id
    number = int(_hash(id), 16)
    characters: list[str] = []
    for _ in range(9):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return "".join(characters)


def _hash(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
