"""How a Claude model is asked: how much it may write and think, and in what form it answers.

What a model takes depends on its version, which its id tells: from 4.6 on it decides itself how long it thinks and is
told an effort, before that it is given a budget of tokens; from 4.7 on it takes no temperature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from steersman.provider.streaming.output_tool import OutputMode
from steersman.provider.wires.anthropic.encode import Written
from steersman.provider.wires.anthropic.schema import output_format
from steersman.provider.wires.token_budget import limited
from steersman.types.model import Model, Request, StreamOptions

_VERSION = re.compile(r"claude-(?:[a-z]+-)*(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_PREVIEW = re.compile(r"claude-[a-z]+(?:-[a-z]+)*$")

_ADAPTIVE = (4, 6)
_NO_TEMPERATURE = (4, 7)
_STRUCTURED = (4, 5)

_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 10_240, "high": 20_480}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_LEAST_BUDGET = 1024

_MAX_TOKENS = 32_000
_OLD_MAX_TOKENS = {(3, 0): 4096, (3, 5): 8192}

_LEAST_ROOM = 1024


def version_of(model_id: str) -> tuple[int, int] | None:
    """The version in a model's id, such as (4, 5); `None` for what is not named like a Claude model."""
    found = _VERSION.search(model_id)
    if found:
        return int(found[1]), int(found[2] or 0)
    return (4, 6) if _PREVIEW.search(model_id) else None


def asked(model: Model, request: Request, options: StreamOptions, said: Written) -> dict[str, Any]:
    """The fields of a request body that say how, in a fixed order."""
    version = version_of(model.id)
    limit = limited(model, request, options.max_tokens or model.max_output_tokens or _usual_limit(version))
    fields: dict[str, Any] = {"max_tokens": limit}
    config: dict[str, Any] = {}
    thinking = _thinking(model, request, options, said, limit)
    if thinking is not None:
        fields["thinking"] = thinking
        if thinking.get("type") == "adaptive" and options.thinking_level in _EFFORTS:
            config["effort"] = _EFFORTS[options.thinking_level]
    if options.output_schema is not None and _structured(model, version):
        form = output_format(options.output_schema)
        if form is not None:
            config["format"] = form
    if config:
        fields["output_config"] = config
    hot = thinking is not None or (version is not None and version >= _NO_TEMPERATURE)
    if options.temperature is not None and not hot:
        fields["temperature"] = options.temperature
    return fields


def output_mode(model: Model, request: Request, options: StreamOptions) -> OutputMode:
    """How the form of an answer is told: as a schema where the model and the API take it, else as a tool.

    A model that thinks may not be forced to call one.
    """
    del request
    schema = options.output_schema
    if schema is not None and _structured(model, version_of(model.id)) and output_format(schema) is not None:
        return "schema"
    own = model.settings.get("thinking")
    thinks = cast(Mapping[str, Any], own).get("type") != "disabled" if isinstance(own, Mapping) else None
    return "offered" if thinks or (thinks is None and options.thinking_level != "off") else "tool"


def choice(options: StreamOptions) -> dict[str, Any] | None:
    """Whether tools may or must be used, where that is not left to the model."""
    if options.tool_choice == "auto":
        return None
    return {"type": "none" if options.tool_choice == "none" else "any"}


def _structured(model: Model, version: tuple[int, int] | None) -> bool:
    wanted = model.settings.get("structured_output")
    return version is not None and version >= _STRUCTURED if wanted is None else bool(wanted)


def _thinking(
    model: Model, request: Request, options: StreamOptions, said: Written, limit: int
) -> dict[str, Any] | None:
    version = version_of(model.id)
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
    budget = min(_BUDGETS[options.thinking_level], max(_LEAST_BUDGET, limit - _LEAST_ROOM))
    # Where the answer itself may not be longer than the least budget, there is no room for thinking.
    return {"type": "enabled", "budget_tokens": budget} if budget < limit else None


def _usual_limit(version: tuple[int, int] | None) -> int:
    if version is None:
        return _MAX_TOKENS
    return next((most for old, most in _OLD_MAX_TOKENS.items() if old == version), _MAX_TOKENS)
