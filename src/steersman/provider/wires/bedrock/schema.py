"""What differs between the models behind the Converse API, and their schemas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from steersman.provider.streaming.output_tool import OutputMode
from steersman.provider.wires.anthropic.schema import choose_output_mode as choose_claude_output
from steersman.provider.wires.anthropic.schema import convert_parameters, parse_version
from steersman.types.model import Model, Request, StreamOptions

Family: TypeAlias = Literal["claude", "nova", "gpt-oss", "other"]

_CACHED_CLAUDE = (3, 7)
_NOVA_2 = re.compile(r"nova-(?:[a-z]+-)?2\b|nova-2")
# What the schema of a tool of Nova may have at its top.
_NOVA_KEYS = frozenset(("type", "properties", "required", "$defs"))


@dataclass(frozen=True, slots=True)
class Traits:
    """What a model takes."""

    family: Family = "other"
    cache: bool = False
    cache_tools: bool = False
    status: bool = False
    """Whether the result of a call may say that it is an error, and hold images if it is none."""
    reasons: bool = False
    """Whether a thinking level can be set."""


def find_name(model: Model) -> str:
    """The id of the foundation model: `base_model` of the settings, where the id is an ARN that does not say it."""
    return str(model.settings.get("base_model") or model.id)


def find_traits(model: Model) -> Traits:
    """Return what a model takes, by its name."""
    name = find_name(model)
    if "claude" in name:
        version = parse_version(name)
        cached = (version is not None and version >= _CACHED_CLAUDE) or "claude-3-5-haiku" in name
        return Traits("claude", cached, cached, status=True, reasons=version is not None and version >= _CACHED_CLAUDE)
    if "amazon.nova" in name:
        return Traits("nova", cache=True, status=True, reasons=_NOVA_2.search(name) is not None)
    if "gpt-oss" in name:
        return Traits("gpt-oss", reasons=True)
    return Traits()


def convert_tool_schema(family: Family, parameters: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a tool's schema for a family of models, and text to append to its description."""
    schema, more = convert_parameters(parameters)
    if family == "nova":
        schema = {key: value for key, value in schema.items() if key in _NOVA_KEYS}
    return schema, more


def choose_output_mode(model: Model, request: Request, options: StreamOptions) -> OutputMode:
    """Choose how to ask for structured output: Claude takes a schema from 4.5 on, the others get a tool."""
    if find_traits(model).family == "claude":
        return choose_claude_output(replace(model, id=find_name(model)), request, options)
    return "tool"
