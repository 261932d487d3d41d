"""Encodes a request to Gemini's `streamGenerateContent`; the contents come last, so a longer conversation only appends.

The parts of the model go back unchanged, each with its own thought signature. One content holds all results of a turn,
in the order of their calls: Gemini counts them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import msgspec

from steersman.provider.streaming.output_tool import OutputMode
from steersman.provider.wires.google.decode import OPAQUE
from steersman.provider.wires.google.schema import convert_schema
from steersman.provider.wires.google.tools import ToolSet, encode_tools
from steersman.provider.wires.pictures import fit_picture
from steersman.provider.wires.protocol import encode_json, memoize_by_identities
from steersman.provider.wires.token_budget import limit_output_tokens
from steersman.types.content import (
    Content,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    join_text_blocks,
    replace_lone_surrogates,
)
from steersman.types.frozen import MemoList
from steersman.types.messages import Message, ToolResultMessage
from steersman.types.model import Model, Request, StreamOptions

UNSIGNED = "skip_thought_signature_validator"
"""Replaces a missing signature, such as that of a call by another model; documented by Google as a last resort."""

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_LATEST = re.compile(r"gemini-[a-z-]*latest")
_NOT_THINKING = re.compile(r"image|tts|audio|live|embedding|robotics|computer")
_MINTED = re.compile(r"call_[0-9a-f]{12}_[0-9a-f]+")
_SHORTEST_MINTED = len("call_0123456789ab_0")
_MODES = {"none": "NONE", "required": "ANY"}
_BUDGETS = {"minimal": 512, "low": 2_048, "medium": 8_192, "high": 24_576}
_MIN_THINKING_BUDGET = 512
_PICTURES = frozenset(("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"))
_MEMO = "google"


def encode_request(model: Model, request: Request, options: StreamOptions) -> tuple[bytes, int | None]:
    """Return the request body and its limit on output tokens."""
    tools = encode_tools(request.tools)
    limit = None if options.max_tokens is None else limit_output_tokens(model, request, options.max_tokens)
    head, limit = _encode_head((model, options, tools), request.system_prompt, limit, bool(request.tools))
    encoded = _encode_messages(model, request.messages, tools)
    return b"".join((head, encoded.bytes, b"]}")), limit


@memoize_by_identities(limit=1024)
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


class _EncodedMessages:
    """The encoded contents of a conversation; results that come later join those at its end.

    `signs`: the model refuses calls without a signature, and takes images inside function responses.
    """

    __slots__ = ("_images", "_results", "_results_start", "_written", "bytes", "count", "signs", "tools")

    def __init__(self, tools: ToolSet, *, signs: bool) -> None:
        self.tools = tools
        self.signs = signs
        self.count = 0
        self.bytes = bytearray()
        # The results at the end, the images in them that stand in a content of their own, and where that begins.
        self._results: list[dict[str, Any]] = []
        self._images: list[dict[str, Any]] = []
        self._results_start = 0
        # How many of the results are written.
        self._written = 0

    def extend(self, messages: Sequence[Message]) -> None:
        """Encode more messages."""
        self.count += len(messages)
        for message in messages:
            if type(message) is ToolResultMessage:
                if not self._results:
                    self._results_start = len(self.bytes)
                self._add_result(message)
                continue
            if self._results:
                self._write_results()
                self._results, self._images, self._written = [], [], 0
            if message.role == "assistant":
                content = {"role": "model", "parts": self._build_answer(message.content)}
            else:
                content = {"role": "user", "parts": [_build_part(block) for block in message.content]}
            self._write(content)
        self._write_results()

    def _write_results(self) -> None:
        """Write the results at the end, in place of those of them that were written before."""
        if self._written == len(self._results):
            return
        self._written = len(self._results)
        del self.bytes[self._results_start :]
        self._write({"role": "user", "parts": self._results})
        if self._images:
            # Older models may count what stands beside the results as results, and refuse the request.
            self._write({"role": "user", "parts": self._images})

    def _write(self, content: dict[str, Any]) -> None:
        if self.bytes:
            self.bytes += b","
        self.bytes += encode_json(content)

    def _build_answer(self, content: Sequence[Content]) -> list[Any]:
        """Build the parts of an answer; the first call carries the signature for all calls."""
        parts: list[Any] = []
        part: dict[str, Any]
        unsigned = self.signs
        for block in content:
            if type(block) is ToolCall:
                parts.append(self._build_call(block, block.signature or (UNSIGNED if unsigned else None)))
                unsigned = False
            elif type(block) is TextContent:
                part = {"text": block.text}
                parts.append(part if block.signature is None else _add_signature(part, block.signature))
            elif type(block) is ImageContent:
                part = _build_part(block)
                parts.append(_add_signature(part, UNSIGNED) if self.signs and "inlineData" in part else part)
            elif type(block) is ThinkingContent:
                parts.append(_build_thought(block))
        return parts

    def _build_call(self, call: ToolCall, signature: str | None) -> dict[str, Any]:
        name, arguments = call.name, call.arguments
        if name not in self.tools.unchanged:
            name, arguments = self.tools.encode_call(name, arguments)
        fields = {"id": call.id, "name": name, "args": arguments}
        if len(call.id) >= _SHORTEST_MINTED:
            _leave_out_minted_id(fields)
        part: dict[str, Any] = {"functionCall": fields}
        return part if signature is None else _add_signature(part, signature)

    def _add_result(self, message: ToolResultMessage) -> None:
        call_id, name, content = message.tool_call_id, message.tool_name, message.content
        if name not in self.tools.unchanged:
            name = self.tools.to_wire(name)
        images: list[dict[str, Any]] | None = None
        if len(content) == 1 and type(block := content[0]) is TextContent:
            text = block.text
        else:
            fitting = [_fit_picture(block) if type(block) is ImageContent else block for block in content]
            images = [_build_part(block) for block in fitting if type(block) is ImageContent]
            text = join_text_blocks(fitting) or ("(see the image)" if images else "")
        response = {"error": text} if message.is_error else {"output": text}
        fields: dict[str, Any] = {"id": call_id, "name": name, "response": response}
        if len(call_id) >= _SHORTEST_MINTED:
            _leave_out_minted_id(fields)
        if images and self.signs:
            fields["parts"] = images
        elif images:
            self._images += images
        self._results.append({"functionResponse": fields})


def _leave_out_minted_id(fields: dict[str, Any]) -> None:
    """Leave out an id that was generated here, because Gemini sent none."""
    if _MINTED.fullmatch(fields["id"]):
        del fields["id"]


def _encode_messages(model: Model, messages: Sequence[Message], tools: ToolSet) -> _EncodedMessages:
    """Encode the messages; those of a list that only grows are encoded once."""
    signs = _is_signing(model.id)
    base: object = getattr(messages, "base", None)
    if not isinstance(base, MemoList):
        encoded = _EncodedMessages(tools, signs=signs)
        encoded.extend(messages)
        return encoded
    grown = cast(MemoList[Message], base)
    count = len(messages)
    known: _EncodedMessages | None = grown.memo.get(_MEMO)
    if known is None or known.tools is not tools or known.signs is not signs:
        known = grown.memo[_MEMO] = _EncodedMessages(tools, signs=signs)
    elif known.count > count:
        known = _EncodedMessages(tools, signs=signs)  # an older request again: the memo is for the newer ones
    known.extend(grown[known.count : count])
    return known


@lru_cache(maxsize=64)
def _is_signing(model_id: str) -> bool:
    """Whether the model is of a version that signs its calls."""
    return (parse_version(model_id) or (0, 0)) >= (3, 0)


def _add_signature(part: dict[str, Any], signature: str | None) -> dict[str, Any]:
    if signature is not None:
        part["thoughtSignature"] = signature
    return part


def _build_thought(block: ThinkingContent) -> Any:
    """Build a thought, or a part of an unknown type as it came."""
    if block.field == OPAQUE and block.signature is not None:
        return msgspec.Raw(block.signature.encode())
    return _add_signature({"text": block.thinking, "thought": True}, block.signature)


def _fit_picture(image: ImageContent) -> ImageContent | TextContent:
    """Return the image, or a text in its place; what is no image but a document, a sound or a film stays as it is."""
    return fit_picture(image, _PICTURES) if image.mime_type[:6].lower() == "image/" else image


def _build_part(block: Content) -> dict[str, Any]:
    if isinstance(block, ImageContent):
        block = _fit_picture(block)
    if isinstance(block, ImageContent):
        return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}
    assert isinstance(block, TextContent)  # the transcript repair makes sure of it
    return {"text": block.text}
