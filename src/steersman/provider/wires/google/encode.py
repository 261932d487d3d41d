"""Encodes a request to Gemini's `streamGenerateContent`; the contents come last, so a longer conversation only appends.

The parts of the model go back unchanged, each with its own thought signature. One content holds all results of a turn,
in the order of their calls: Gemini counts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from steersman.provider.streaming.output_tool import OutputMode
from steersman.provider.wires.google.decode import OPAQUE
from steersman.provider.wires.google.schema import convert_schema
from steersman.provider.wires.google.tools import ToolSet, encode_tools
from steersman.provider.wires.protocol import encode_json, memoize_by_identities
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

UNSIGNED = "skip_thought_signature_validator"
"""Replaces a missing signature, such as that of a call by another model; documented by Google as a last resort."""

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_LATEST = re.compile(r"gemini-[a-z-]*latest")
_NOT_THINKING = re.compile(r"image|tts|audio|live|embedding|robotics|computer")
_MINTED = re.compile(r"call_[0-9a-f]{12}_[0-9a-f]+")
_MODES = {"none": "NONE", "required": "ANY"}
_BUDGETS = {"minimal": 512, "low": 2_048, "medium": 8_192, "high": 24_576}
_MIN_THINKING_BUDGET = 512
_MEMO = "google"


@dataclass(frozen=True, slots=True)
class _Traits:
    """How newer models differ from older ones."""

    signs: bool
    """The model refuses calls without a signature, and takes images inside function responses."""


@dataclass(slots=True)
class _EncodedMessages:
    """The encoded contents of a conversation; `results` and `images` belong to a last group that may still grow."""

    tools: ToolSet
    traits: _Traits
    count: int = 0
    pieces: list[bytes] = field(default_factory=list[bytes])
    results: list[bytes] = field(default_factory=list[bytes])
    images: list[bytes] = field(default_factory=list[bytes])


def encode_request(model: Model, request: Request, options: StreamOptions) -> tuple[bytes, int | None]:
    """Return the request body and its limit on output tokens."""
    tools = encode_tools(request.tools)
    limit = None if options.max_tokens is None else limit_output_tokens(model, request, options.max_tokens)
    head, limit = _encode_head((model, options, tools), request.system_prompt, limit, bool(request.tools))
    return b"".join((head, _encode_messages(model, request, tools), b"]}")), limit


@memoize_by_identities(limit=256)
def _encode_head(
    parts: Sequence[Any], system_prompt: str, limit: int | None, has_tools: bool
) -> tuple[bytes, int | None]:
    """Encode what the requests of a conversation begin with, and return it with the limit in it."""
    model, options, tools = cast(tuple[Model, StreamOptions, ToolSet], parts)
    fields: dict[str, Any] = {}
    if system_prompt:
        fields["systemInstruction"] = {"parts": [{"text": replace_lone_surrogates(system_prompt)}]}
    if has_tools:
        fields["tools"] = [{"functionDeclarations": msgspec.Raw(tools.encoded)}]
        if options.tool_choice in _MODES:
            fields["toolConfig"] = {"functionCallingConfig": {"mode": _MODES[options.tool_choice]}}
    generation = _build_options(model, replace(options, max_tokens=limit), has_tools=has_tools)
    extra = cast(Mapping[str, Any], model.settings.get("extra_body") or {})
    generation |= extra.get("generationConfig") or {}
    if generation:
        fields["generationConfig"] = generation
    fields |= {name: value for name, value in extra.items() if name != "generationConfig"}
    begin = b"{" if not fields else encode_json(fields)[:-1] + b","
    return begin + b'"contents":[', generation.get("maxOutputTokens")


def parse_version(model_id: str) -> tuple[int, int] | None:
    """Return the version of a Gemini model; an alias for the latest model gets the highest version."""
    found = _VERSION.search(model_id)
    if found is not None:
        return int(found[1]), int(found[2] or 0)
    return (99, 0) if _LATEST.search(model_id) else None


def _build_options(model: Model, options: StreamOptions, *, has_tools: bool) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if options.temperature is not None:
        config["temperature"] = options.temperature
    if options.top_p is not None:
        config["topP"] = options.top_p
    if options.stop:
        config["stopSequences"] = [*options.stop]
    if options.seed is not None:
        config["seed"] = options.seed
    if options.max_tokens is not None:
        config["maxOutputTokens"] = options.max_tokens
    thinking = build_thinking(model.id, options)
    if thinking is not None:
        config["thinkingConfig"] = thinking
    # Before version 3, tools and an output schema exclude each other; the loop validates the answer anyway.
    if options.output_schema is not None and (not has_tools or (parse_version(model.id) or (0, 0)) >= (3, 0)):
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = convert_schema(options.output_schema)
    return config


def choose_output_mode(model: Model, request: Request, options: StreamOptions) -> OutputMode:
    """Choose how to ask for structured output: with a schema, unless the model refuses one beside tools."""
    both = (parse_version(model.id) or (0, 0)) >= (3, 0) and options.tool_choice != "required"
    return "schema" if both or not request.tools else "tool"


def build_thinking(model_id: str, options: StreamOptions) -> dict[str, Any] | None:
    """Build `thinkingConfig` for this version of the model, or `None`."""
    level = options.thinking_level
    number = parse_version(model_id)
    if _NOT_THINKING.search(model_id) or (number is not None and number < (2, 5)):
        return None
    if number is None or number == (99, 0):
        return None if level == "off" else {"includeThoughts": True, "thinkingLevel": level.upper()}
    if number < (3, 0):
        return _build_thinking_budget(model_id, options)
    # Only the flash models know "minimal", and thinking cannot be turned off.
    least = "MINIMAL" if "flash" in model_id else "LOW"
    if level == "off":
        return {"thinkingLevel": least}
    if level == "medium" and "gemini-3-pro" in model_id:
        level = "high"
    return {"includeThoughts": True, "thinkingLevel": least if level == "minimal" else level.upper()}


def _build_thinking_budget(model_id: str, options: StreamOptions) -> dict[str, Any]:
    """Build a thinking budget; its tokens count against the limit on output tokens."""
    if options.thinking_level == "off":
        return {"thinkingBudget": 128 if "pro" in model_id else 0}
    budget = _BUDGETS[options.thinking_level]
    if options.max_tokens is not None:
        budget = max(_MIN_THINKING_BUDGET, min(budget, options.max_tokens // 2))
    return {"includeThoughts": True, "thinkingBudget": budget}


def _encode_messages(model: Model, request: Request, tools: ToolSet) -> bytes:
    """Encode the messages; those of a list that only grows are encoded once."""
    messages = request.messages
    traits = _Traits((parse_version(model.id) or (0, 0)) >= (3, 0))
    encoded = _EncodedMessages(tools, traits)
    base: object = getattr(messages, "base", None)
    if isinstance(base, MemoList):
        known = cast(_EncodedMessages | None, base.memo.get(_MEMO))
        if known is None or known.tools is not tools or known.traits != traits:
            base.memo[_MEMO] = encoded
        elif known.count <= len(messages):
            encoded = known
    for index in range(encoded.count, len(messages)):
        _encode_message(messages[index], encoded)
    encoded.count = len(messages)
    return b",".join(encoded.pieces)


def _encode_message(message: Message, encoded: _EncodedMessages) -> None:
    if isinstance(message, ToolResultMessage):
        if encoded.results:
            encoded.pieces.pop()
        _encode_result(message, encoded)
        encoded.pieces.append(_encode_content(b"user", [*encoded.results, *encoded.images]))
        return
    encoded.results = []
    encoded.images = []
    if isinstance(message, AssistantMessage):
        encoded.pieces.append(_encode_content(b"model", _encode_answer(message.content, encoded)))
    else:
        encoded.pieces.append(_encode_content(b"user", [encode_json(_build_part(block)) for block in message.content]))


def _encode_content(role: bytes, parts: Iterable[bytes]) -> bytes:
    return b"".join((b'{"role":"', role, b'","parts":[', b",".join(parts), b"]}"))


def _encode_answer(content: Sequence[Content], encoded: _EncodedMessages) -> Iterable[bytes]:
    """Encode the parts of an answer; the first call carries the signature for all calls."""
    unsigned = encoded.traits.signs
    for block in content:
        if isinstance(block, ToolCall):
            yield encode_json(_build_call(block, encoded, block.signature or (UNSIGNED if unsigned else None)))
            unsigned = False
        elif isinstance(block, ThinkingContent) and block.field == OPAQUE and block.signature is not None:
            yield block.signature.encode()
        elif isinstance(block, ImageContent):
            yield encode_json(_add_signature(_build_part(block), UNSIGNED if encoded.traits.signs else None))
        elif isinstance(block, ThinkingContent):
            yield encode_json(_add_signature({"text": block.thinking, "thought": True}, block.signature))
        else:
            yield encode_json(_add_signature({"text": block.text}, block.signature))


def _add_signature(part: dict[str, Any], signature: str | None) -> dict[str, Any]:
    if signature is not None:
        part["thoughtSignature"] = signature
    return part


def _build_call(call: ToolCall, encoded: _EncodedMessages, signature: str | None) -> dict[str, Any]:
    tools = encoded.tools
    named = _add_call_id(
        call.id, {"name": tools.to_wire(call.name), "args": tools.rename_arguments(call.name, call.arguments)}
    )
    return _add_signature({"functionCall": named}, signature)


def _add_call_id(call_id: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Add the id of a call, unless the id was generated here because Gemini sent none."""
    return fields if _MINTED.fullmatch(call_id) else {"id": call_id, **fields}


def _encode_result(message: ToolResultMessage, encoded: _EncodedMessages) -> None:
    images = [_build_part(block) for block in message.content if isinstance(block, ImageContent)]
    text = message.text or ("(see the image)" if images else "")
    fields: dict[str, Any] = {
        "name": encoded.tools.to_wire(message.tool_name),
        "response": {"error" if message.is_error else "output": text},
    }
    if images and encoded.traits.signs:
        fields["parts"] = images
    else:
        encoded.images.extend(map(encode_json, images))
    encoded.results.append(encode_json({"functionResponse": _add_call_id(message.tool_call_id, fields)}))


def _build_part(block: Content) -> dict[str, Any]:
    if isinstance(block, ImageContent):
        return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}
    assert isinstance(block, TextContent)  # the transcript repair makes sure of it
    return {"text": block.text}
