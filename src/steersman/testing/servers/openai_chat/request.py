"""Checks a request as Chat Completions servers do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from typing import Any, cast

from steersman.testing.servers.exchange import Received
from steersman.testing.servers.openai_chat.messages import (
    Fault,
    Flavour,
    Json,
    build_empty_array_fault,
    build_value_fault,
    find_message_faults,
    find_name_faults,
    find_pairing_faults,
    find_replay_faults,
    find_thinking_faults,
)

# fmt: off
_FIELDS = frozenset((
    "model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls",
    "response_format", "temperature", "top_p", "max_tokens", "max_completion_tokens", "reasoning_effort", "stop",
    "n", "seed", "logprobs", "top_logprobs", "frequency_penalty", "presence_penalty", "logit_bias", "user",
    "store", "metadata", "prompt_cache_key", "safety_identifier", "service_tier", "verbosity", "modalities",
    "prediction", "web_search_options", "functions", "function_call", "audio", "prompt_cache_retention",
))
# fmt: on
_OWN_FIELDS: Mapping[str, frozenset[str]] = {
    "deepseek": frozenset(("thinking",)),
    "llamacpp": frozenset(("chat_template_kwargs", "cache_prompt", "grammar", "min_p", "top_k")),
    "mistral": frozenset(("safe_prompt", "random_seed", "prompt_mode")),
}
_MAX_STOPS = 4
_NEEDS_NEW_LIMIT = re.compile(r"o\d|gpt-5")


def find_request_fault(received: Received, flavour: Flavour, thought: Mapping[str, Set[str]]) -> Fault | None:
    """Return the first fault of a request; `thought` names the calls whose reasoning has to come back."""
    if not received.headers.get("content-type", "").startswith("application/json"):
        return Fault("Unsupported content type: set the Content-Type header to 'application/json'.", status=415)
    body: object = received.json
    if not isinstance(body, dict):
        return Fault(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP "
            "library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
        )
    fields = cast(Json, body)
    return next(_find_faults(fields, flavour, thought), None)


def _find_faults(body: Json, flavour: Flavour, thought: Mapping[str, Set[str]]) -> Iterator[Fault]:
    yield from _find_option_faults(body, flavour)
    yield from _find_tools_faults(body, flavour)
    yield from _find_format_faults(body, flavour)
    messages: object = body.get("messages")
    if not isinstance(messages, list):
        yield Fault("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
        return
    given = cast(list[Any], messages)
    if not given:
        yield build_empty_array_fault("messages")
    for number, message in enumerate(given):
        yield from find_message_faults(f"messages[{number}]", message, flavour)
    yield from find_pairing_faults(cast(list[Json], given), flavour)
    yield from find_replay_faults(cast(list[Json], given), thought)
    if flavour == "deepseek" and cast(Json, body.get("thinking") or {}).get("type") == "enabled":
        yield from find_thinking_faults(cast(list[Json], given))


def _find_option_faults(body: Json, flavour: Flavour) -> Iterator[Fault]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Fault("you must provide a model parameter")
    for name in body:
        if name not in _FIELDS and name not in _OWN_FIELDS.get(flavour, ()):
            status = 422 if flavour == "mistral" else 400
            yield Fault(f"Unrecognized request argument supplied: {name}", name, status=status)
    if body.get("stream") is not True:
        yield Fault("This server only streams: set 'stream' to true.", "stream")
    if flavour == "mistral" and "stream_options" in body:
        yield Fault("Extra inputs are not permitted: stream_options", "stream_options", status=422)
    yield from _find_number_faults(body, flavour)


def _find_number_faults(body: Json, flavour: Flavour) -> Iterator[Fault]:
    if flavour == "openai" and "max_tokens" in body and _NEEDS_NEW_LIMIT.match(str(body.get("model"))):
        yield Fault(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            "max_tokens",
            "unsupported_parameter",
        )
    for name in ("max_tokens", "max_completion_tokens"):
        limit = body.get(name)
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            yield Fault(
                f"Invalid '{name}': integer below minimum value. Expected a value >= 1, but got {limit} instead.",
                name,
                "integer_below_min_value",
            )
    for name, most in (("temperature", 2), ("top_p", 1)):
        value = body.get(name)
        if value is not None and not (isinstance(value, int | float) and 0 <= value <= most):
            yield Fault(
                f"Invalid '{name}': decimal above maximum value. Expected a value <= {most}, but got {value} instead.",
                name,
                "decimal_above_max_value",
            )
    yield from _find_sampling_faults(body, flavour)
    effort = body.get("reasoning_effort")
    if effort not in (None, "none", "minimal", "low", "medium", "high", "xhigh"):
        yield build_value_fault("reasoning_effort", effort, "'none', 'minimal', 'low', 'medium', 'high', and 'xhigh'")


def _find_sampling_faults(body: Json, flavour: Flavour) -> Iterator[Fault]:
    stop = body.get("stop")
    texts = cast(list[object], [stop] if isinstance(stop, str) else stop)
    if stop is not None and not (isinstance(stop, str | list) and all(isinstance(text, str) for text in texts)):
        yield Fault("Invalid type for 'stop': expected one of a string or array of strings.", "stop", "invalid_type")
    elif stop is not None and flavour == "openai" and len(texts) > _MAX_STOPS:
        yield Fault(
            f"Invalid 'stop': array too long. Expected an array with maximum length {_MAX_STOPS}, "
            f"but got an array with length {len(texts)} instead.",
            "stop",
            "array_above_max_length",
        )
    if flavour == "mistral" and "seed" in body:
        yield Fault("Extra inputs are not permitted: seed", "seed", status=422)
    for name in ("seed", "random_seed"):
        seed = body.get(name)
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            yield Fault(f"Invalid type for '{name}': expected an integer.", name, "invalid_type")


def _find_tools_faults(body: Json, flavour: Flavour) -> Iterator[Fault]:
    tools = body.get("tools")
    if tools is None:
        for name in ("tool_choice", "parallel_tool_calls"):
            if name in body:
                yield Fault(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.", name)
        return
    if not isinstance(tools, list) or not tools:
        yield build_empty_array_fault("tools")
        return
    names: set[str] = set()
    for number, tool in enumerate(cast(list[Json], tools)):
        kind = "custom" if tool.get("type") == "custom" else "function"
        at = f"tools[{number}].{kind}"
        function: Json = tool.get(kind) or {}
        yield from find_name_faults(f"{at}.name", function.get("name"))
        name = function.get("name")
        if name in names:
            yield Fault(f"Invalid value: duplicate function name {name!r}.", f"{at}.name", "invalid_value")
        names.add(cast(str, name))
        schema: Any = function.get("parameters", {"type": "object"})
        form = cast(Json, schema).get("type") if isinstance(schema, dict) else None
        if form != "object":
            yield Fault(
                f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got "
                f"'type: \"{form}\"'.",
                f"{at}.parameters",
                "invalid_function_parameters",
            )
    choice = body.get("tool_choice", "auto")
    choices = ("none", "auto", "any" if flavour == "mistral" else "required")
    if isinstance(choice, str) and choice not in choices:
        yield build_value_fault("tool_choice", choice, ", ".join(map(repr, choices)))


def _find_format_faults(body: Json, flavour: Flavour) -> Iterator[Fault]:
    form = body.get("response_format")
    if not isinstance(form, dict):
        return
    kind = cast(Json, form).get("type")
    if kind not in ("text", "json_object", "json_schema"):
        yield build_value_fault("response_format.type", kind, "'json_object', 'json_schema', and 'text'")
    if kind != "json_schema":
        return
    schema: Json = cast(Json, form).get("json_schema") or {}
    name = schema.get("name")
    yield from find_name_faults("response_format.json_schema.name", name)
    root = cast(Json, schema.get("schema") or {}).get("type")
    if flavour == "openai" and root != "object":
        yield Fault(
            f"Invalid schema for response_format '{name}': schema must be a JSON Schema of 'type: \"object\"', got "
            f"'type: \"{root}\"'.",
            "response_format",
        )
    if schema.get("strict"):
        where = _find_open_object(schema.get("schema"))
        if where is not None:
            yield Fault(
                f"Invalid schema for response_format '{name}': In context={where}, 'additionalProperties' is required "
                "to be supplied and to be false.",
                "response_format",
            )


def _find_open_object(schema: object, path: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Return the path of an object in a strict schema that allows additional properties."""
    if isinstance(schema, list):
        return next((found for item in cast(list[Any], schema) if (found := _find_open_object(item, path))), None)
    if not isinstance(schema, dict):
        return None
    fields = cast(Json, schema)
    if fields.get("type") == "object" and fields.get("additionalProperties") is not False:
        return path or ("",)
    for key, value in fields.items():
        if (found := _find_open_object(value, (*path, key))) is not None:
            return found
    return None
