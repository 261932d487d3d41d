"""Encodes a request to the OpenAI Responses API; the input comes last, so a longer conversation only appends.

The server stores nothing (`store: false`). A reasoning item goes back whole, with its encrypted content, and only if an
item follows it; messages and calls go back without ids, because the server does not know them any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import msgspec

from steersman.provider.wires.openai_responses.schema import convert_parameters, is_object, is_strict
from steersman.provider.wires.protocol import (
    ToolNames,
    encode_json,
    memoize_by_identities,
    memoize_by_identity,
    memoize_by_members,
)
from steersman.provider.wires.sampling import require_accepted
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
from steersman.types.model import Model, Request, StreamOptions, ToolSpec

CUSTOM = "custom_tool_call"
"""The signature of a call to a custom tool, whose argument is free text and whose result has its own type."""

PHASES = frozenset(("commentary", "final_answer"))
"""The signatures of texts: the phase of the answer that the model gives them."""

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_NAME_LENGTH = 64
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEY_LENGTH = 64
_MIN_OUTPUT_TOKENS = 16
_MEMO = "openai-responses messages"

# Models that do not reason and refuse options for reasoning.
_PLAIN = re.compile(r"(?:ft:)?(?:gpt-3\.5|gpt-4|gpt-5-chat|chatgpt-)")
# The models with the effort "minimal"; the lowest effort of later models is "low".
_MINIMAL = re.compile(r"gpt-5(?:-mini|-nano)?(?:-\d{4}.*)?")


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of a request: their names on the wire, and their encoded form."""

    tools: tuple[ToolSpec, ...] = field(repr=False)
    names: ToolNames
    encoded: list[bytes]
    known: frozenset[str]
    """The names on the wire."""

    renamed: tuple[tuple[str, str], ...]
    """The changed names; encoded messages depend on them."""


@memoize_by_members(limit=1024)
def encode_tools(tools: Sequence[ToolSpec]) -> ToolSet:
    """Return the encoded tools; the same tools are encoded once."""
    names = ToolNames(tools, _NAME, _NAME_LENGTH)
    pairs = [(spec.name, names.to_wire(spec.name)) for spec in tools]
    known = frozenset(wire for _, wire in pairs)
    renamed = tuple((name, wire) for name, wire in pairs if name != wire)
    return ToolSet(tuple(tools), names, [encode_json(_declare(spec, names)) for spec in tools], known, renamed)


@memoize_by_identity
def find_extra_tools(model: Model) -> frozenset[str]:
    """Return the names of the custom tools that the model's settings add to a request."""
    extra: object = model.settings.get("extra_body")
    tools: object = cast(Mapping[str, Any], extra).get("tools") if isinstance(extra, Mapping) else None
    given = cast(Sequence[Any], tools) if isinstance(tools, list | tuple) else ()
    names = (cast(Mapping[str, Any], spec).get("name") for spec in given if isinstance(spec, Mapping))
    return frozenset(name for name in names if isinstance(name, str))


def encode_request(model: Model, request: Request, options: StreamOptions) -> tuple[bytes, int | None]:
    """Return the request body and its limit on output tokens."""
    tools = encode_tools(request.tools)
    limit = None
    if options.max_tokens is not None:
        limit = max(limit_output_tokens(model, request, options.max_tokens), _MIN_OUTPUT_TOKENS)
    head, limit = _encode_head((model, options, tools), request.system_prompt, limit)
    count = len(request.messages)
    return b"".join((head, _encode_messages(model, request.messages, tools).read(count), b"]}")), limit


@memoize_by_identities(limit=1024)
def _encode_head(parts: Sequence[Any], system_prompt: str, limit: int | None) -> tuple[bytes, int | None]:
    """Encode what the requests of a conversation begin with, and return it with the limit in it."""
    model, options, tools = cast(tuple[Model, StreamOptions, ToolSet], parts)
    fields = _build_options(model, options, system_prompt, limit)
    if tools.tools:
        fields["tools"] = [*map(msgspec.Raw, tools.encoded)]
        fields["tool_choice"] = options.tool_choice
    extra = dict(cast(Mapping[str, Any], model.settings.get("extra_body") or {}))
    if "tools" in extra:
        fields["tools"] = [*map(msgspec.Raw, tools.encoded), *extra.pop("tools")]
    fields.update(extra)
    head = encode_json({name: value for name, value in fields.items() if value is not None})
    return head[:-1] + b',"input":[', fields.get("max_output_tokens")


def _build_options(model: Model, options: StreamOptions, system_prompt: str, limit: int | None) -> dict[str, Any]:
    require_accepted("openai", model, options)
    fields: dict[str, Any] = {"model": model.id, "stream": True, "store": False}
    if system_prompt:
        fields["instructions"] = replace_lone_surrogates(system_prompt)
    if limit is not None:
        fields["max_output_tokens"] = limit
    if options.temperature is not None:
        fields["temperature"] = options.temperature
    if options.top_p is not None:
        fields["top_p"] = options.top_p
    if not _PLAIN.match(model.id):
        fields["include"] = ["reasoning.encrypted_content"]
        if options.thinking_level != "off":
            fields["reasoning"] = {"effort": _choose_effort(model, options.thinking_level), "summary": "auto"}
    if options.output_schema is not None and is_object(options.output_schema):
        fields["text"] = {"format": _build_output_format(options.output_schema)}
    if options.session_id:
        fields["prompt_cache_key"] = shorten(options.session_id, _KEY_LENGTH)
    return fields


def _choose_effort(model: Model, level: str) -> str:
    return "low" if level == "minimal" and not _MINIMAL.fullmatch(model.id) else level


def _build_output_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "name": "output", "strict": is_strict(schema), "schema": schema}


def _declare(spec: ToolSpec, names: ToolNames) -> dict[str, Any]:
    parameters, rule = convert_parameters(spec.parameters)
    words = f"{spec.description}\n\n{rule}".strip() if rule else spec.description
    # Explicit, because the server takes a schema as strict by default.
    return {
        "type": "function",
        "name": names.to_wire(spec.name),
        "description": words,
        "parameters": parameters,
        "strict": False,
    }


class _EncodedMessages:
    """The encoded messages of a growing conversation, and the offset at which each one begins."""

    __slots__ = ("_custom", "_ids", "_model", "_own_ids", "_tools", "bytes", "starts")

    def __init__(self, model: Model, tools: ToolSet) -> None:
        self._model = model
        self._tools = tools
        self._own_ids = _find_own_ids(model)
        self.bytes = bytearray()
        self.starts: list[int] = []
        # The ids of calls on the wire, and which of them are calls to custom tools.
        self._ids: dict[str, str] = {}
        self._custom: set[str] = set()

    def are_for(self, model: Model, tools: ToolSet) -> bool:
        """Whether the messages would be encoded in the same way for this model and these tools."""
        if model is not self._model and _find_own_ids(model) != self._own_ids:
            return False
        return tools is self._tools or tools.renamed == self._tools.renamed

    def extend(self, messages: Sequence[Message]) -> None:
        """Encode more messages."""
        for message in messages:
            if message.role == "assistant":
                piece = self._encode_answer(message)
            elif message.role == "tool_result":
                piece = self._encode_result(message)
            else:
                piece = encode_json({"role": "user", "content": [_build_part(block) for block in message.content]})
            self.starts.append(len(self.bytes))
            if piece and self.bytes:
                self.bytes += b","
            self.bytes += piece

    def read(self, count: int) -> bytearray:
        """Return the first messages."""
        return self.bytes if count == len(self.starts) else self.bytes[: self.starts[count]]

    def _encode_answer(self, message: AssistantMessage) -> bytes:
        """Encode the items of an answer in order."""
        items: list[Any] = []
        texts: list[TextContent] = []
        for block in _drop_trailing_reasoning(message.content):
            if type(block) is TextContent:
                if texts and texts[0].signature != block.signature:
                    items.append(_build_message(texts))
                    texts = []
                if block.text:
                    texts.append(block)
                continue
            if texts:
                items.append(_build_message(texts))
                texts = []
            if type(block) is ToolCall:
                items.append(self._build_call(block, is_own=(message.provider, message.model) == self._own_ids))
            elif type(block) is ImageContent:
                items.append({"role": "user", "content": [_build_part(block)]})
            elif type(block) is ThinkingContent and block.signature is not None:
                items.append(_build_reasoning(block, block.signature))
        if texts:
            items.append(_build_message(texts))
        return encode_json(items)[1:-1]

    def _build_call(self, call: ToolCall, *, is_own: bool) -> dict[str, Any]:
        id = self._ids[call.id] = call.id if is_own and call.id else encode_call_id(call.id)
        name = self._tools.names.to_wire(call.name)
        if call.signature == CUSTOM and isinstance(call.arguments.get("input"), str):
            self._custom.add(call.id)
            return {"type": CUSTOM, "call_id": id, "name": name, "input": call.arguments["input"]}
        arguments = encode_json(call.arguments).decode()
        return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}

    def _encode_result(self, message: ToolResultMessage) -> bytes:
        content = message.content
        if len(content) == 1 and type(content[0]) is TextContent:
            output: Any = content[0].text
        else:
            output = [_build_part(block) for block in content]
        kind = "custom_tool_call_output" if message.tool_call_id in self._custom else "function_call_output"
        id = self._ids.get(message.tool_call_id) or encode_call_id(message.tool_call_id)
        return encode_json({"type": kind, "call_id": id, "output": output})


def _find_own_ids(model: Model) -> tuple[str, str] | None:
    """Find the provider and the model whose calls keep their ids, if the server takes back any id that it made.

    Behind a gateway, another model may be on another server.
    """
    return (model.provider, model.id) if model.base_url and not _is_openai(model.base_url) else None


def _encode_messages(model: Model, messages: Sequence[Message], tools: ToolSet) -> _EncodedMessages:
    """Encode the messages; those of a list that only grows are encoded once."""
    base: object = getattr(messages, "base", None)
    if not isinstance(base, MemoList):
        encoded = _EncodedMessages(model, tools)
        encoded.extend(messages)
        return encoded
    grown = cast(MemoList[Message], base)
    known: _EncodedMessages | None = grown.memo.get(_MEMO)
    if known is None or not known.are_for(model, tools):
        known = grown.memo[_MEMO] = _EncodedMessages(model, tools)
    known.extend(grown[len(known.starts) : len(messages)])
    return known


def _drop_trailing_reasoning(content: Sequence[Content]) -> Sequence[Content]:
    """Drop reasoning at the end of an answer: the server would refuse it."""
    end = len(content)
    while end and _is_reasoning(content[end - 1]):
        end -= 1
    return content if end == len(content) else content[:end]


def _is_reasoning(block: Content) -> bool:
    """Whether an item must follow the block; an item of an unknown type counts as such an item."""
    if type(block) is TextContent:
        return not block.text
    return type(block) is ThinkingContent and not block.redacted


def _build_message(texts: Sequence[TextContent]) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": block.text} for block in texts],
    }
    if texts[0].signature in PHASES:
        item["phase"] = texts[0].signature
    return item


def _build_reasoning(block: ThinkingContent, signature: str) -> Any:
    """Build an item as the server sent it."""
    if signature.startswith("{"):
        return msgspec.Raw(signature.encode())
    summary = [{"type": "summary_text", "text": block.thinking}] if block.thinking else []
    return {"type": "reasoning", "summary": summary, "encrypted_content": signature}


def _build_part(block: Content) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"type": "input_text", "text": block.text}
    if isinstance(block, ImageContent):
        url = f"data:{block.mime_type};base64,{block.data}"
        return {"type": "input_image", "detail": "auto", "image_url": url}
    raise TypeError(f"User messages and tool results hold text and images, got a {block.type} block.")


@lru_cache(maxsize=64)
def _is_openai(base_url: str) -> bool:
    """Whether a URL is that of OpenAI or Azure, which refuse ids that others make."""
    from urllib.parse import urlsplit

    return f".{urlsplit(base_url).hostname or ''}".endswith((".openai.com", ".azure.com"))


def encode_call_id(id: str) -> str:
    """Return a legal id for a call; the same id always gives the same result."""
    return id if _ID.fullmatch(id) else shorten(re.sub(r"[^a-zA-Z0-9_-]", "_", id), _KEY_LENGTH, of=id)


def shorten(text: str, length: int, *, of: str | None = None) -> str:
    """Return the text if it is short enough, else its beginning and a hash."""
    if of is None and len(text) <= length:
        return text
    from hashlib import sha256

    digest = sha256((text if of is None else of).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[: length - len(digest) - 1]}_{digest}"
