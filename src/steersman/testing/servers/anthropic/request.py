"""Checks a request as the Anthropic Messages API does."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, cast

from steersman.provider.wires.anthropic.schema import parse_version
from steersman.testing.servers.anthropic.messages import (
    NAME,
    Fault,
    Issued,
    Json,
    check_beginning,
    check_blocks,
    check_end,
    check_pairs,
    check_server_calls,
    merge_turns,
)

_FIELDS = frozenset(
    ("cache_control", "container", "diagnostics", "inference_geo", "max_tokens", "messages", "metadata", "model",
     "output_config", "service_tier", "speed", "stop_sequences", "stream", "system", "temperature", "thinking",
     "tool_choice", "tools", "top_k", "top_p", "user_profile_id", "workspace_id")
)  # fmt: skip
_MAX_MARKS = 4


def sign(thinking: str) -> str:
    """Return the signature of a thinking; the server checks with it that the thinking is unchanged."""
    return base64.b64encode(sha256(thinking.encode("utf-8", "replace")).digest()).decode()


def check_request(body: Any, *, issued: Issued, prefill: bool) -> None:
    """Raise `Fault` with the error of the real API; `prefill` allows an assistant message at the end."""
    if not isinstance(body, dict):
        raise Fault("The request body is not valid JSON.")
    fields = cast(Json, body)
    _check_fields(fields)
    _check_tools(fields)
    _check_options(fields)
    _check_marks(fields)
    _check_system(fields.get("system"))
    turns = merge_turns(fields["messages"])
    for at, turn in enumerate(turns):
        check_blocks(at, turn, issued)
        if turn[0] == "assistant" and not (prefill and turn is turns[-1]):
            check_end(at, turn)
    check_pairs(turns)
    check_server_calls(turns)
    if cast(Json, fields.get("thinking") or {}).get("type") == "enabled":
        check_beginning(turns)
    if turns[-1][0] == "assistant" and not prefill:
        raise Fault(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    if not fields.get("tools") and any(
        block["type"] in ("tool_use", "tool_result") for _, blocks in turns for block in blocks
    ):
        raise Fault("Requests which include `tool_use` or `tool_result` blocks must define tools.")


def _check_fields(fields: Json) -> None:
    for name in ("model", "max_tokens", "messages"):
        if name not in fields:
            raise Fault(f"{name}: Field required")
    if unknown := sorted(set(fields) - _FIELDS):
        raise Fault(f"{unknown[0]}: Extra inputs are not permitted")
    if not isinstance(fields["model"], str) or not fields["model"]:
        raise Fault("model: Input should be a valid string")
    limit = fields["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise Fault("max_tokens: Input should be a valid integer")
    if limit < 1:
        raise Fault("max_tokens: Input should be greater than or equal to 1")
    if not isinstance(fields["messages"], list):
        raise Fault("messages: Input should be a valid array")
    if not fields["messages"]:
        raise Fault("messages: at least one message is required")
    if fields.get("stream") is not True:
        raise Fault("stream: this server only streams; set it to true")


def _check_tools(fields: Json) -> None:
    tools = fields.get("tools")
    if tools is None:
        if "tool_choice" in fields:
            raise Fault("tool_choice: tool_choice may only be specified while providing tools")
        return
    if not isinstance(tools, list):
        raise Fault("tools: Input should be a valid array")
    names: set[str] = set()
    for number, tool in enumerate(cast(list[Json], tools)):
        at = f"tools.{number}.custom"
        name = tool.get("name")
        if not isinstance(name, str) or not re.match(NAME, name):
            raise Fault(f"{at}.name: String should match pattern '{NAME}'")
        if name in names:
            raise Fault("tools: Tool names must be unique.")
        names.add(name)
        if tool.get("type") in (None, "custom"):
            _check_schema(at, tool.get("input_schema"))
    choice = fields.get("tool_choice")
    if choice is not None and choice.get("type") not in ("auto", "any", "tool", "none"):
        raise Fault(
            f"tool_choice: Input tag {choice.get('type')!r} found using 'type' does not match any of the expected "
            "tags: 'any', 'auto', 'none', 'tool'"
        )


def _check_schema(at: str, schema: Any) -> None:
    if not isinstance(schema, dict):
        raise Fault(f"{at}.input_schema: Field required")
    fields = cast(Json, schema)
    if "type" not in fields:
        raise Fault(f"{at}.input_schema.type: Field required")
    if fields["type"] != "object":
        raise Fault(f"{at}.input_schema.type: Input should be 'object'")
    if {"oneOf", "allOf", "anyOf"} & fields.keys():
        raise Fault(f"{at}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")


def _check_options(fields: Json) -> None:
    version = parse_version(fields["model"])
    thinking: Json = fields.get("thinking") or {"type": "disabled"}
    kind = thinking.get("type")
    if kind not in ("enabled", "disabled", "adaptive", "between_tools"):
        raise Fault(f"thinking: Input tag {kind!r} found using 'type' does not match any of the expected tags")
    if kind == "enabled":
        _check_budget(thinking, fields["max_tokens"], version)
    if kind == "adaptive" and version is not None and version < (4, 6):
        raise Fault("adaptive thinking is not supported on this model")
    if kind in ("enabled", "adaptive"):
        if fields.get("temperature", 1) != 1:
            raise Fault("`temperature` may only be set to 1 when thinking is enabled.")
        if cast(Json, fields.get("tool_choice") or {}).get("type") in ("any", "tool"):
            raise Fault("Thinking may not be enabled when tool_choice forces tool use.")
    if "temperature" in fields and version is not None and version >= (4, 7):
        raise Fault("`temperature` is deprecated for this model.")
    temperature = fields.get("temperature", 1)
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 1:
        raise Fault("temperature: range: 0..1")
    _check_sampling(fields, version, thinks=kind in ("enabled", "adaptive"))
    _check_output(fields.get("output_config") or {})


def _check_sampling(fields: Json, version: tuple[int, int] | None, *, thinks: bool) -> None:
    sequences: object = fields.get("stop_sequences", [])
    if not isinstance(sequences, list):
        raise Fault("stop_sequences: Input should be a valid list")
    for index, text in enumerate(cast(list[Any], sequences)):
        if not isinstance(text, str):
            raise Fault(f"stop_sequences.{index}: Input should be a valid string")
        if not text.strip():
            raise Fault("stop_sequences: each stop sequence must contain non-whitespace")
    if "top_p" not in fields:
        return
    if version is not None and version >= (4, 7):
        raise Fault("`top_p` is deprecated for this model.")
    top_p: object = fields["top_p"]
    if not isinstance(top_p, int | float) or not 0 <= top_p <= 1:
        raise Fault("top_p: range: 0..1")
    if thinks and top_p < 0.95:
        raise Fault("`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled.")
    if "temperature" in fields and version is not None and version >= (4, 1):
        raise Fault("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")


def _check_budget(thinking: Json, limit: int, version: tuple[int, int] | None) -> None:
    if version is not None and version >= (4, 7):
        raise Fault(
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.'
        )
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int):
        raise Fault("thinking.enabled.budget_tokens: Field required")
    if budget < 1024:
        raise Fault("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if budget >= limit:
        raise Fault("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_output(config: Json) -> None:
    if unknown := sorted(set(config) - {"effort", "format"}):
        raise Fault(f"output_config.{unknown[0]}: Extra inputs are not permitted")
    if config.get("effort", "high") not in ("low", "medium", "high", "xhigh", "max"):
        raise Fault("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    form = config.get("format")
    if form is None:
        return
    if form.get("type") != "json_schema":
        raise Fault("output_config.format.type: Input should be 'json_schema'")
    for schema in _walk_schemas(form.get("schema")):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            raise Fault(
                "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false"
            )
        bounds = {"minimum", "maximum", "minLength", "maxLength", "maxItems", "multipleOf", "pattern"} & schema.keys()
        if bounds:
            kind = schema.get("type")
            raise Fault(
                f"output_config.format.schema: For {kind!r} type, properties {', '.join(sorted(bounds))} are not "
                "supported"
            )


def _walk_schemas(schema: Any) -> Iterator[Json]:
    if not isinstance(schema, dict):
        return
    fields = cast(Json, schema)
    yield fields
    for key in ("properties", "$defs"):
        for inner in cast(Json, fields.get(key) or {}).values():
            yield from _walk_schemas(inner)
    for key in ("anyOf", "allOf", "oneOf"):
        for inner in cast(list[Any], fields.get(key) or []):
            yield from _walk_schemas(inner)
    yield from _walk_schemas(fields.get("items"))


def _check_marks(fields: Json) -> None:
    found = 0
    for mapping in _walk_mappings(fields):
        if "cache_control" in mapping:
            found += 1
            if mapping.get("type") in ("thinking", "redacted_thinking"):
                raise Fault(f"{mapping['type']}.cache_control: Extra inputs are not permitted")
            mark = mapping["cache_control"]
            if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
                raise Fault("cache_control: Input should be {'type': 'ephemeral'} with a ttl of '5m' or '1h'")
    if found > _MAX_MARKS:
        raise Fault(f"A maximum of {_MAX_MARKS} blocks with cache_control may be provided. Found {found}.")


def _walk_mappings(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        fields = cast(Json, value)
        yield fields
        for key, inner in fields.items():
            if key not in ("input", "input_schema", "schema"):
                yield from _walk_mappings(inner)
    elif isinstance(value, list):
        for inner in cast(list[Any], value):
            yield from _walk_mappings(inner)


def _check_system(system: Any) -> None:
    blocks = cast(list[Json], [] if isinstance(system, str | None) else system)
    for number, block in enumerate(blocks):
        if block.get("type") != "text":
            raise Fault(f"system.{number}.type: Input should be 'text'")
        if not block.get("text"):
            raise Fault("system: text content blocks must be non-empty")
