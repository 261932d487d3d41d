"""Checks a request as the OpenAI Responses API does, except its input items."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

Json: TypeAlias = Mapping[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]+")
_TYPES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    type(None): "null",
}


class Fault(Exception):
    """The reason why a request is refused."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


def require(fields: Json, name: str, path: str = "") -> Any:
    """Return a required field."""
    where = f"{path}.{name}" if path else name
    if fields.get(name) is None:
        raise Fault(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    return fields[name]


def check_type(value: object, kind: type | tuple[type, ...], path: str) -> Any:
    """Return the value if it has this type."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(_TYPES[one] for one in kinds)
        got = _TYPES.get(type(value), "an unknown value")
        raise Fault(f"Invalid type for '{path}': expected {wanted}, but got {got} instead.", path, "invalid_type")
    return value


def check_text(value: object, path: str, *, longest: int | None = None) -> str:
    """Return the text if it is neither empty nor too long."""
    words = cast(str, check_type(value, str, path))
    if not words:
        raise Fault(
            f"Invalid '{path}': empty string. Expected a string with minimum length 1, but got an empty string "
            "instead.",
            path,
            "empty_string",
        )
    if longest is not None and len(words) > longest:
        raise Fault(
            f"Invalid '{path}': string too long. Expected a string with maximum length {longest}, but got a string "
            f"with length {len(words)} instead.",
            path,
            "string_above_max_length",
        )
    return words


def check_array(value: object, path: str) -> Sequence[Any]:
    """Return the list if it is not empty."""
    found = cast(Sequence[Any], check_type(value, list, path))
    if not found:
        raise Fault(
            f"Invalid '{path}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            path,
            "empty_array",
        )
    return found


def check_value(value: object, allowed: Sequence[str], path: str) -> str:
    """Return the value if it is one of those allowed."""
    if value not in allowed:
        words = [f"'{word}'" for word in allowed]
        listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, and {words[-1]}"
        raise Fault(f"Invalid value: '{value}'. Supported values are: {listed}.", path, "invalid_value")
    return cast(str, value)


def check_known(fields: Json, allowed: frozenset[str], path: str = "") -> None:
    """Refuse unknown fields."""
    for name in fields:
        if name not in allowed:
            where = f"{path}.{name}" if path else name
            raise Fault(f"Unknown parameter: '{where}'.", where, "unknown_parameter")


def check_name(value: object, path: str) -> str:
    """Return the name of a tool or a format if it is legal."""
    name = check_text(value, path, longest=64)
    if not NAME.fullmatch(name):
        raise Fault(
            f"Invalid '{path}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            path,
            "invalid_value",
        )
    return name


def check_id(value: object, prefix: str, path: str) -> str:
    """Return the id of an item if it is legal and has the prefix of its type."""
    id = cast(str, check_type(value, str, path))
    if not NAME.fullmatch(id):
        raise Fault(
            f"Invalid '{path}': '{id}'. Expected an ID that contains letters, numbers, underscores, or dashes, but "
            "this value contained additional characters.",
            path,
            "invalid_value",
        )
    if not id.startswith(prefix):
        raise Fault(f"Invalid '{path}': '{id}'. Expected an ID that begins with '{prefix}'.", path, "invalid_value")
    return id


_FIELDS = frozenset(
    ("access_programs", "background", "context_management", "conversation", "image", "include", "input", "instructions",
     "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation", "parallel_tool_calls",
     "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
     "reasoning", "safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature", "text",
     "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user")
)  # fmt: skip
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SUMMARIES = ("auto", "concise", "detailed")
_FORMATS = ("text", "json_schema", "json_object")
_COMBINED = ("oneOf", "anyOf", "allOf", "enum", "not")
_CHOICES = ("none", "auto", "required")
_PLAIN = re.compile(r"(?:ft:)?(?:gpt-3\.5|gpt-4|gpt-5-chat|chatgpt-)")
_MIN_OUTPUT_TOKENS = 16


def check_fields(fields: Json) -> None:
    """Raise `Fault` for the first invalid field, except `input`."""
    check_text(require(fields, "model"), "model")
    check_known(fields, _FIELDS)
    if fields.get("input") is None:
        raise Fault('One of "input" or "previous_response_id" or "prompt" or "conversation" must be provided.', "input")
    if fields.get("stream") is not True:
        raise Fault("This server only plays streams; ask with 'stream': true.", "stream")
    for name, kind in (("store", bool), ("instructions", str), ("parallel_tool_calls", bool)):
        if fields.get(name) is not None:
            check_type(fields[name], kind, name)
    if fields.get("prompt_cache_key") is not None:
        check_text(fields["prompt_cache_key"], "prompt_cache_key", longest=64)
    if fields.get("previous_response_id") is not None:
        id = fields["previous_response_id"]
        words = f"Previous response with id '{id}' not found."
        raise Fault(words, "previous_response_id", "previous_response_not_found")
    _check_numbers(fields)
    _check_reasoning(fields)
    _check_format(fields)
    _check_choice(fields, _check_tools(fields))


def _check_numbers(fields: Json) -> None:
    limit = fields.get("max_output_tokens")
    if limit is not None and check_type(limit, int, "max_output_tokens") < _MIN_OUTPUT_TOKENS:
        raise Fault(
            f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {_MIN_OUTPUT_TOKENS}, "
            f"but got {limit} instead.",
            "max_output_tokens",
            "integer_below_min_value",
        )
    for name, most in (("temperature", 2), ("top_p", 1)):
        value = fields.get(name)
        if value is not None and not 0 <= check_type(value, (int, float), name) <= most:
            side, bound = ("above maximum", f"<= {most}") if value > most else ("below minimum", ">= 0")
            raise Fault(
                f"Invalid '{name}': decimal {side} value. Expected a value {bound}, but got {value} instead.",
                name,
                "decimal_above_max_value" if value > most else "decimal_below_min_value",
            )


def _check_reasoning(fields: Json) -> None:
    plain = _PLAIN.match(fields["model"]) is not None
    for number, word in enumerate(fields.get("include") or ()):
        check_text(word, f"include[{number}]")
        if word == "reasoning.encrypted_content" and plain:
            raise Fault("Encrypted content is not supported with this model.", "include")
    given = fields.get("reasoning")
    if given is None:
        return
    reasoning = cast(Json, check_type(given, dict, "reasoning"))
    for name, allowed in (("effort", _EFFORTS), ("summary", _SUMMARIES)):
        if reasoning.get(name) is None:
            continue
        path = f"reasoning.{name}"
        check_value(reasoning[name], allowed, path)
        if plain:
            words = f"Unsupported parameter: '{path}' is not supported with this model."
            raise Fault(words, path, "unsupported_parameter")


def _check_format(fields: Json) -> None:
    given = fields.get("text")
    if given is None:
        return
    form = cast(Json, check_type(given, dict, "text")).get("format") or {"type": "text"}
    if check_value(form.get("type"), _FORMATS, "text.format.type") == "json_schema":
        name = check_name(require(form, "name", "text.format"), "text.format.name")
        _check_schema(require(form, "schema", "text.format"), f"response_format '{name}'", "text.format.schema")
        if form.get("strict"):
            _check_strict(form["schema"], f"response_format '{name}'", "text.format.schema", ())


def _check_tools(fields: Json) -> list[str]:
    names: list[str] = []
    for number, tool in enumerate(cast(list[Any], check_type(fields.get("tools") or [], list, "tools"))):
        path = f"tools[{number}]"
        kind = check_text(require(check_type(tool, dict, path), "type", path), f"{path}.type")
        if kind not in ("function", "custom"):
            continue
        name = check_name(require(tool, "name", path), f"{path}.name")
        if name in names:
            raise Fault(f"Duplicate tool name: '{name}'.", f"{path}.name", "invalid_value")
        names.append(name)
        if kind == "function" and tool.get("parameters") is not None:
            _check_schema(tool["parameters"], f"function '{name}'", f"{path}.parameters")
            if tool.get("strict", True):
                _check_strict(tool["parameters"], f"function '{name}'", f"{path}.parameters", ())
    return names


def _check_choice(fields: Json, names: list[str]) -> None:
    choice = fields.get("tool_choice")
    if choice is None:
        return
    if isinstance(choice, dict):
        choice_fields = cast(Json, choice)
        if choice_fields.get("type") == "function" and choice_fields.get("name") not in names:
            raise Fault("Tool choice 'function' not found in 'tools' parameter.", "tool_choice")
    elif check_value(choice, _CHOICES, "tool_choice") != "auto" and not fields.get("tools"):
        raise Fault(f"Tool choice '{choice}' must be specified with 'tools' parameter.", "tool_choice")


def _check_schema(schema: object, where: str, param: str) -> None:
    fields = cast(Json, check_type(schema, dict, param))
    code = "invalid_function_parameters" if "function" in where else "invalid_json_schema"
    if fields.get("type") != "object":
        words = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{fields.get('type')}\"'."
    elif any(word in fields for word in _COMBINED):
        listed = "/".join(f"'{word}'" for word in _COMBINED)
        words = f"schema must have type 'object' and not have {listed} at the top level."
    elif "properties" not in fields:
        words = "In context=(), object schema missing properties."
    else:
        return
    raise Fault(f"Invalid schema for {where}: {words}", param, code)


def _check_strict(schema: object, where: str, param: str, context: tuple[str, ...]) -> None:
    if not isinstance(schema, dict):
        return
    fields = cast(Json, schema)
    code = "invalid_function_parameters" if "function" in where else "invalid_json_schema"
    if fields.get("type") == "object" or "properties" in fields:
        if fields.get("additionalProperties") is not False:
            words = "'additionalProperties' is required to be supplied and to be false."
            raise Fault(f"Invalid schema for {where}: In context={context!r}, {words}", param, code)
        missing = [name for name in fields.get("properties") or () if name not in (fields.get("required") or ())]
        if missing:
            words = (
                "'required' is required to be supplied and to be an array including every key in properties. "
                f"Missing '{missing[0]}'."
            )
            raise Fault(f"Invalid schema for {where}: In context={context!r}, {words}", param, code)
    for name in ("properties", "$defs"):
        for key, inner in cast(Json, fields.get(name) or {}).items():
            _check_strict(inner, where, param, (*context, name, key))
    _check_strict(fields.get("items"), where, param, (*context, "items"))
    for number, inner in enumerate(fields.get("anyOf") or ()):
        _check_strict(inner, where, param, (*context, "anyOf", str(number)))


def check_input(value: object) -> list[Json]:
    """Return the items of an input, which may also be a string."""
    if isinstance(value, str):
        return [{"role": "user", "content": check_text(value, "input")}]
    return [
        cast(Json, check_type(item, dict, f"input[{number}]"))
        for number, item in enumerate(check_array(value, "input"))
    ]
