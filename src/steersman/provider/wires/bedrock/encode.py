"""Encodes a request to the Converse API: what the models of all makers share, and what each of them adds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from steersman.provider.wires.anthropic.encode import build_options as build_claude_options
from steersman.provider.wires.anthropic.encode import choose_cache_mark
from steersman.provider.wires.bedrock.messages import EncodedMessages, add_cache_points, encode_messages
from steersman.provider.wires.bedrock.schema import Family, Traits, convert_tool_schema, find_name, find_traits
from steersman.provider.wires.protocol import ToolNames, encode_json, memoize_by_members
from steersman.provider.wires.sampling import require_accepted
from steersman.provider.wires.token_budget import limit_output_tokens
from steersman.types.model import Model, Request, StreamOptions, ToolSpec

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_NAME_LENGTH = 64
_MARKS = {"5m": b'{"cachePoint":{"type":"default"}}', "1h": b'{"cachePoint":{"type":"default","ttl":"1h"}}'}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_SAMPLING = {
    "max_tokens": "maxTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
}


class ToolSet:
    """The tools of a request: their names on the wire, and their encoded form for each family of models."""

    __slots__ = ("_encoded", "names", "tools")

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self.tools = tuple(tools)
        self.names = ToolNames(self.tools, _NAME, _MAX_NAME_LENGTH)
        self._encoded: dict[Family, list[bytes]] = {}

    def encode(self, family: Family) -> list[bytes]:
        """The declarations of the tools."""
        if family not in self._encoded:
            self._encoded[family] = [self._declare(tool, family) for tool in self.tools]
        return self._encoded[family]

    def _declare(self, tool: ToolSpec, family: Family) -> bytes:
        schema, more = convert_tool_schema(family, tool.parameters)
        words = "\n\n".join(filter(None, (tool.description.strip(), more)))
        fields: dict[str, Any] = {"name": self.names.to_wire(tool.name)}
        if words:
            fields["description"] = words
        return encode_json({"toolSpec": {**fields, "inputSchema": {"json": schema}}})


@memoize_by_members(limit=1024)
def encode_tools(tools: Sequence[ToolSpec]) -> ToolSet:
    """Return the encoded tools; the same tools are encoded once."""
    return ToolSet(tools)


def encode_request(model: Model, request: Request, options: StreamOptions) -> tuple[bytes, int | None]:
    """Return the request body and its limit on output tokens; what may change from turn to turn comes last."""
    require_accepted("bedrock", model, options)
    traits = find_traits(model)
    mark = choose_cache_mark(model, _MARKS, usual=traits.cache)
    tools = encode_tools(request.tools)
    encoded = encode_messages(request.messages, tools.names, tools, status=traits.status)
    head: dict[str, Any] = {}
    if (config := _build_tool_config(request, options, encoded, tools, traits, mark)) is not None:
        head["toolConfig"] = config
    if request.system_prompt.strip():
        system: list[Any] = [{"text": request.system_prompt}]
        head["system"] = [*system, msgspec.Raw(mark)] if mark else system
    tail = _build_options(model, request, options, traits, encoded)
    for name, value in cast(Mapping[str, Any], model.settings.get("extra_body") or {}).items():
        _merge(head if name in head else tail, name, value)
    last = add_cache_points(encoded.list_last(), mark) if mark else encoded.list_last()
    begin = encode_json(head)[:-1] + b"," if head else b"{"
    end = b"," + encode_json(tail)[1:] if tail else b"}"
    body = b"".join((begin, b'"messages":[', encoded.earlier, b",".join(last), b"]", end))
    limit: Any = cast(dict[str, Any], tail.get("inferenceConfig") or {}).get("maxTokens")
    return body, limit if isinstance(limit, int) else None


def _build_tool_config(
    request: Request, options: StreamOptions, encoded: EncodedMessages, tools: ToolSet, traits: Traits, mark: bytes
) -> dict[str, Any] | None:
    """Build the tools and the choice among them; the API cannot forbid calls, so then no tool is declared."""
    declared = [] if options.tool_choice == "none" else list(tools.encode(traits.family))
    if not declared and encoded.used:
        # The API refuses calls in the messages without declared tools; these declarations are not to be used.
        empty = {"json": {"type": "object"}}
        declared = [encode_json({"toolSpec": {"name": name, "inputSchema": empty}}) for name in encoded.used]
    if not declared:
        return None
    if mark and traits.cache_tools:
        declared.append(mark)
    config: dict[str, Any] = {"tools": [msgspec.Raw(each) for each in declared]}
    if options.tool_choice == "required" and request.tools:
        config["toolChoice"] = {"any": {}}
    return config


def _build_options(
    model: Model, request: Request, options: StreamOptions, traits: Traits, encoded: EncodedMessages
) -> dict[str, Any]:
    if traits.family == "claude":
        return _build_claude_fields(model, request, options, traits, encoded)
    fields: dict[str, Any] = {}
    inference: dict[str, Any] = {"temperature": options.temperature, "topP": options.top_p}
    if options.max_tokens is not None:
        inference["maxTokens"] = limit_output_tokens(model, request, options.max_tokens)
    inference["stopSequences"] = [*options.stop] or None
    inference = {name: value for name, value in inference.items() if value is not None}
    if traits.reasons and options.thinking_level != "off":
        effort = _EFFORTS[options.thinking_level]
        fields["additionalModelRequestFields"] = (
            {"reasoning_effort": effort}
            if traits.family == "gpt-oss"
            else {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}
        )
        if traits.family == "nova" and effort == "high":
            inference = {}  # Nova takes no limits and no sampling with the highest effort
    return {**({"inferenceConfig": inference} if inference else {}), **fields}


def _build_claude_fields(
    model: Model, request: Request, options: StreamOptions, traits: Traits, encoded: EncodedMessages
) -> dict[str, Any]:
    """The options of the Anthropic API, at the places where the Converse API has them."""
    named = replace(model, id=find_name(model))
    if not traits.reasons:
        options = replace(options, thinking_level="off")
    built = build_claude_options(named, request, options, works_without_thinking=encoded.works_without_thinking)
    inference = {name: built[key] for key, name in _SAMPLING.items() if key in built}
    fields: dict[str, Any] = {"inferenceConfig": inference}
    if "thinking" in built:
        fields["additionalModelRequestFields"] = {"thinking": built["thinking"]}
    config: dict[str, Any] = built.get("output_config") or {}
    output: dict[str, Any] = {"effort": config["effort"]} if "effort" in config else {}
    if "format" in config:
        schema = {"schema": encode_json(config["format"]["schema"]).decode(), "name": "answer"}
        output["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    if output:
        fields["outputConfig"] = output
    return fields


def _merge(fields: dict[str, Any], name: str, value: Any) -> None:
    """Put a field over ours; objects on both sides are merged, such as `additionalModelRequestFields`."""
    known = fields.get(name)
    if isinstance(known, dict) and isinstance(value, Mapping):
        value = {**cast(dict[str, Any], known), **cast(Mapping[str, Any], value)}
    fields[name] = value
