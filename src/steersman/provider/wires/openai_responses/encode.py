"""Encodes a request to the OpenAI Responses API; the input comes last, so a longer conversation only appends.

The server stores nothing (`store: false`). A reasoning item goes back whole, with its encrypted content, and only if an
item follows it; messages and calls go back without ids, because the server does not know them any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import is_
from typing import Any, cast

import msgspec

from steersman.provider.wires.openai_responses.schema import convert_parameters, is_object, is_strict
from steersman.provider.wires.protocol import ToolNames, encode_json, memoize_by_identities
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
_TOOLS_MEMO = "openai-responses tools"

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


@dataclass(slots=True)
class _EncodedMessages:
    """The encoded messages of a conversation, one piece per message, and the ids of calls to custom tools."""

    names: ToolNames
    renamed: tuple[tuple[str, str], ...]
    own_ids: str | None = None
    """The provider whose calls keep their ids: the server takes back any id that it made."""
    pieces: list[bytes] = field(default_factory=list[bytes])
    custom: set[str] = field(default_factory=set[str])
    ids: dict[str, str] = field(default_factory=dict[str, str])
    """The ids of calls on the wire."""


def encode_tools(request: Request) -> ToolSet:
    """Return the encoded tools of a request; a conversation encodes the same tools once."""
    tools = request.tools
    base: object = getattr(request.messages, "base", None)
    if not isinstance(base, MemoList):
        return _encode_shared_tools(tools)
    known: ToolSet | None = base.memo.get(_TOOLS_MEMO)
    if known is None or len(known.tools) != len(tools) or not all(map(is_, known.tools, tools)):
        known = base.memo[_TOOLS_MEMO] = _encode_shared_tools(tools)
    return known


@memoize_by_identities(limit=64)
def _encode_shared_tools(tools: Sequence[ToolSpec]) -> ToolSet:
    names = ToolNames(tools, _NAME, _NAME_LENGTH)
    pairs = [(spec.name, names.to_wire(spec.name)) for spec in tools]
    known = frozenset(wire for _, wire in pairs)
    renamed = tuple((name, wire) for name, wire in pairs if name != wire)
    return ToolSet(tuple(tools), names, [encode_json(_declare(spec, names)) for spec in tools], known, renamed)


def find_extra_tools(model: Model) -> frozenset[str]:
    """Return the names of the custom tools that the model's settings add to a request."""
    extra: object = model.settings.get("extra_body")
    tools: object = cast(Mapping[str, Any], extra).get("tools") if isinstance(extra, Mapping) else None
    given = cast(Sequence[Any], tools) if isinstance(tools, list | tuple) else ()
    names = (cast(Mapping[str, Any], spec).get("name") for spec in given if isinstance(spec, Mapping))
    return frozenset(name for name in names if isinstance(name, str))


def encode_request(model: Model, request: Request, options: StreamOptions) -> tuple[bytes, int | None]:
    """Return the request body and its limit on output tokens."""
    tools = encode_tools(request)
    limit = None
    if options.max_tokens is not None:
        limit = max(limit_output_tokens(model, request, options.max_tokens), _MIN_OUTPUT_TOKENS)
    head, limit = _encode_head((model, options, tools), request.system_prompt, limit)
    return b"".join((head, _encode_messages(model, request, tools), b"]}")), limit


@memoize_by_identities(limit=256)
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


def _encode_messages(model: Model, request: Request, tools: ToolSet) -> bytes:
    """Encode the messages; those of a list that only grows are encoded once."""
    messages = request.messages
    base: object = getattr(messages, "base", None)
    own_ids = model.provider if model.base_url and not _is_openai(model.base_url) else None
    encoded: _EncodedMessages | None = base.memo.get(_MEMO) if isinstance(base, MemoList) else None
    if encoded is None or encoded.renamed != tools.renamed or encoded.own_ids != own_ids:
        encoded = _EncodedMessages(tools.names, tools.renamed, own_ids)
        if isinstance(base, MemoList):
            base.memo[_MEMO] = encoded
    pieces = encoded.pieces
    for index in range(len(pieces), len(messages)):
        pieces.append(_encode_message(messages[index], encoded))
    return b",".join(filter(None, pieces if len(pieces) == len(messages) else pieces[: len(messages)]))


def _encode_message(message: Message, encoded: _EncodedMessages) -> bytes:
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            own = bool(call.id) and message.provider == encoded.own_ids
            encoded.ids[call.id] = call.id if own else encode_call_id(call.id)
        return b",".join(_encode_answer(message.content, encoded))
    if isinstance(message, ToolResultMessage):
        return _encode_result(message, encoded)
    return encode_json({"role": "user", "content": [_build_part(block) for block in message.content]})


def _encode_answer(content: Sequence[Content], encoded: _EncodedMessages) -> Iterable[bytes]:
    """Encode the items of an answer in order; reasoning at the end is left out, because the server would refuse it."""
    last = max((at for at, block in enumerate(content) if not _is_reasoning(block)), default=-1)
    texts: list[TextContent] = []
    for block in content[: last + 1]:
        if isinstance(block, TextContent):
            if texts and texts[0].signature != block.signature:
                yield _encode_texts(texts)
                texts = []
            if block.text:
                texts.append(block)
            continue
        if texts:
            yield _encode_texts(texts)
            texts = []
        if isinstance(block, ToolCall):
            yield _encode_call(block, encoded)
        elif isinstance(block, ImageContent):
            yield encode_json({"role": "user", "content": [_build_part(block)]})
        else:
            yield from _encode_thinking(block)
    if texts:
        yield _encode_texts(texts)


def _is_reasoning(block: Content) -> bool:
    """Whether an item must follow the block; an item of an unknown type counts as such an item."""
    if isinstance(block, TextContent):
        return not block.text
    return isinstance(block, ThinkingContent) and not block.redacted


def _encode_texts(texts: Sequence[TextContent]) -> bytes:
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": block.text} for block in texts],
    }
    if texts[0].signature in PHASES:
        item["phase"] = texts[0].signature
    return encode_json(item)


def _encode_thinking(block: ThinkingContent) -> Iterable[bytes]:
    """Encode an item as the server sent it; thinking without a signature is left out."""
    signature = block.signature
    if signature is None:
        return
    if signature.startswith("{"):
        yield signature.encode()
    else:
        summary = [{"type": "summary_text", "text": block.thinking}] if block.thinking else []
        yield encode_json({"type": "reasoning", "summary": summary, "encrypted_content": signature})


def _encode_call(call: ToolCall, encoded: _EncodedMessages) -> bytes:
    name = encoded.names.to_wire(call.name)
    if call.signature == CUSTOM and isinstance(call.arguments.get("input"), str):
        encoded.custom.add(call.id)
        item = {"type": CUSTOM, "call_id": encoded.ids[call.id], "name": name, "input": call.arguments["input"]}
    else:
        arguments = encode_json(call.arguments).decode()
        item = {"type": "function_call", "call_id": encoded.ids[call.id], "name": name, "arguments": arguments}
    return encode_json(item)


def _encode_result(message: ToolResultMessage, encoded: _EncodedMessages) -> bytes:
    content = message.content
    output: Any = [_build_part(block) for block in content]
    if len(content) == 1 and isinstance(content[0], TextContent):
        output = content[0].text
    kind = "custom_tool_call_output" if message.tool_call_id in encoded.custom else "function_call_output"
    id = encoded.ids.get(message.tool_call_id) or encode_call_id(message.tool_call_id)
    return encode_json({"type": kind, "call_id": id, "output": output})


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
