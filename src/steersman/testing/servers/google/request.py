"""Checks a request as the Gemini API does; a fault is the message of its error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from steersman.testing.servers.google.messages import (
    Json,
    Known,
    find_contents_fault,
    find_unknown_field,
    list_parts,
    parse_version,
)

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_PARAMETER = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
_TYPES = frozenset(("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL", "TYPE_UNSPECIFIED"))

_FIELDS = frozenset(
    (
        "contents",
        "tools",
        "toolConfig",
        "systemInstruction",
        "generationConfig",
        "safetySettings",
        "cachedContent",
        "labels",
        "serviceTier",
        "store",
    )
)
_TOOL = frozenset(
    ("functionDeclarations", "googleSearch", "codeExecution", "urlContext", "googleSearchRetrieval", "computerUse")
)
_DECLARATION = frozenset(
    ("name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "behavior")
)
_OPENAPI = frozenset(
    (
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "maxItems",
        "minItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "example",
        "anyOf",
        "propertyOrdering",
        "default",
        "items",
        "minimum",
        "maximum",
    )
)
_GENERATION = frozenset(
    (
        "stopSequences",
        "responseMimeType",
        "responseSchema",
        "responseJsonSchema",
        "responseModalities",
        "candidateCount",
        "maxOutputTokens",
        "temperature",
        "topP",
        "topK",
        "seed",
        "presencePenalty",
        "frequencyPenalty",
        "responseLogprobs",
        "logprobs",
        "speechConfig",
        "thinkingConfig",
        "imageConfig",
        "mediaResolution",
    )
)
_FREE = frozenset(("args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"))
_MAX_STOPS = 5
_LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH")


def find_request_fault(body: Any, model: str, known: Known) -> str | None:
    """Return the first fault of a request, or `None`."""
    if not isinstance(body, dict):
        return "Invalid JSON payload received. Expected an object."
    request = to_camel_case(cast(Json, body))
    return (
        find_unknown_field(request, _FIELDS, "")
        or _find_system_fault(request.get("systemInstruction"))
        or find_tools_fault(request)
        or find_config_fault(request, model)
        or find_contents_fault(request.get("contents"), model, known)
    )


def _find_system_fault(system: Any) -> str | None:
    if system is None:
        return None
    parts = list_parts(cast(Json, system)) if isinstance(system, dict) else []
    if not parts or any(not part.get("text") for part in parts):
        return (
            "* GenerateContentRequest.system_instruction.parts[0].data: required oneof field 'data' must have one "
            "initialized field\n"
        )
    return None


def find_tools_fault(request: Json) -> str | None:
    """Find a fault in the tools and the tool config."""
    tools = cast(list[Json], request.get("tools") or [])
    seen: set[str] = set()
    for number, tool in enumerate(tools):
        fault = find_unknown_field(tool, _TOOL, f"tools[{number}]")
        for index, declared in enumerate(cast(list[Json], tool.get("functionDeclarations") or [])):
            at = f"tools[{number}].function_declarations[{index}]"
            fault = fault or _find_declaration_fault(at, declared)
            if fault is None and declared["name"] in seen:
                fault = f"Duplicate function declaration found: {declared['name']}"
            seen.add(declared.get("name", ""))
        if fault is not None:
            return fault
    return _find_choice_fault(request.get("toolConfig"), seen)


def _find_choice_fault(config: Any, names: set[str]) -> str | None:
    if config is None:
        return None
    calling = cast(Json, cast(Json, config).get("functionCallingConfig") or {})
    mode = calling.get("mode", "AUTO")
    if mode not in ("AUTO", "ANY", "NONE", "VALIDATED"):
        return (
            "Invalid value at 'tool_config.function_calling_config.mode' "
            f'(type.googleapis.com/google.ai.generativelanguage.v1beta.FunctionCallingConfig.Mode), "{mode}"'
        )
    if not names:
        return "Function calling config is set without function_declarations."
    return None


def _find_declaration_fault(at: str, declared: Json) -> str | None:
    fault = find_unknown_field(declared, _DECLARATION, at)
    if fault is not None:
        return fault
    if not _NAME.fullmatch(str(declared.get("name", ""))):
        return (
            f"* GenerateContentRequest.{at}.name: [FIELD_INVALID] Invalid function name. Must start with a letter or "
            "an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), "
            "with a maximum length of 64.\n"
        )
    if "parameters" in declared and "parametersJsonSchema" in declared:
        return f"* GenerateContentRequest.{at}: parameters and parameters_json_schema are mutually exclusive.\n"
    if "parameters" in declared:
        return _find_openapi_fault(f"{at}.parameters", declared["parameters"])
    return find_json_schema_fault(
        f"{at}.parameters_json_schema", declared.get("parametersJsonSchema", {"type": "object"})
    )


def _find_openapi_fault(at: str, schema: Json) -> str | None:
    """Find a fault in an OpenAPI schema, the older form, where an unknown keyword fails the whole request."""
    fault = find_unknown_field(schema, _OPENAPI, at)
    if fault is not None:
        return fault
    kind = schema.get("type")
    if isinstance(kind, list):
        return f"Invalid value at '{at}.type' (Proto field is not repeating, cannot start list.)"
    if kind is not None and str(kind).upper() not in _TYPES:
        return (
            f"Invalid value at '{at}.type' (type.googleapis.com/google.ai.generativelanguage.v1beta.Type), \"{kind}\""
        )
    if str(kind).upper() == "OBJECT" and not schema.get("properties"):
        return f"* GenerateContentRequest.{at}.properties: should be non-empty for OBJECT type\n"
    children = [*cast(Json, schema.get("properties") or {}).values(), *cast(list[Json], schema.get("anyOf") or [])]
    if "items" in schema:
        children.append(schema["items"])
    return next(
        (fault for number, child in enumerate(children) if (fault := _find_openapi_fault(f"{at}[{number}]", child))),
        None,
    )


def find_json_schema_fault(at: str, schema: Any) -> str | None:
    """Find a fault in a JSON Schema: references must resolve, with nothing beside them."""
    if not isinstance(schema, dict) or cast(Json, schema).get("type") != "object":
        return f"* GenerateContentRequest.{at}: must describe an object.\n"
    for node in _walk_nodes(schema):
        reference = node.get("$ref")
        if reference is not None:
            if any(not name.startswith("$") for name in node):
                return f"* GenerateContentRequest.{at}: a schema with $ref must not have other properties.\n"
            if not _resolves(cast(Json, schema), reference):
                return f"* GenerateContentRequest.{at}: reference to undefined schema: {reference}\n"
        for name in cast(Json, node.get("properties") or {}):
            if not _PARAMETER.fullmatch(name):
                return (
                    f"* GenerateContentRequest.{at}.properties: Invalid parameter name '{name}'. Must start with a "
                    "letter or an underscore, must only contain a-z, A-Z, 0-9 or underscores, with a maximum length of "
                    "64.\n"
                )
    return None


def _walk_nodes(schema: Any) -> Iterator[Json]:
    if isinstance(schema, list):
        for item in cast(list[Any], schema):
            yield from _walk_nodes(item)
    if not isinstance(schema, dict):
        return
    node = cast(Json, schema)
    yield node
    for name, value in node.items():
        if name in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            yield from _walk_nodes(list(cast(Json, value).values()))
        elif name not in ("enum", "const", "default", "examples"):
            yield from _walk_nodes(value)


def _resolves(schema: Json, reference: str) -> bool:
    found: Any = schema
    if not reference.startswith("#"):
        return False
    for part in reference[1:].split("/")[1:]:
        if not isinstance(found, dict) or part not in found:
            return False
        found = cast(Json, found)[part]
    return True


def find_config_fault(request: Json, model: str) -> str | None:
    """Find a fault in the generation config."""
    config = cast(Json, request.get("generationConfig") or {})
    fault = find_unknown_field(config, _GENERATION, "generation_config")
    if fault is not None:
        return fault
    temperature = config.get("temperature")
    if temperature is not None and not 0 <= temperature <= 2:
        return "* GenerateContentRequest.generation_config.temperature: temperature must be in the range [0.0, 2.0].\n"
    if not 0 <= config.get("topP", 1) <= 1:
        return "* GenerateContentRequest.generation_config.top_p: top_p must be in the range [0.0, 1.0].\n"
    if fault := _find_stop_fault(config):
        return fault
    if config.get("maxOutputTokens", 1) < 1:
        return "* GenerateContentRequest.generation_config.max_output_tokens: max_output_tokens must be positive.\n"
    return _find_format_fault(config, request, model) or _find_thinking_fault(config.get("thinkingConfig"), model)


def _find_stop_fault(config: Json) -> str | None:
    sequences: object = config.get("stopSequences", [])
    if not isinstance(sequences, list) or not all(isinstance(text, str) for text in cast(list[object], sequences)):
        return "Invalid value at 'generation_config.stop_sequences' (TYPE_STRING)"
    if len(cast(list[object], sequences)) > _MAX_STOPS:
        return f"* GenerateContentRequest.generation_config.stop_sequences: at most {_MAX_STOPS} are supported.\n"
    seed: object = config.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**31) <= seed < 2**31:
        return "Invalid value at 'generation_config.seed' (TYPE_INT32)"
    return None


def _find_format_fault(config: Json, request: Json, model: str) -> str | None:
    schema = config.get("responseJsonSchema", config.get("responseSchema"))
    mime = config.get("responseMimeType", "text/plain")
    if schema is not None and mime != "application/json":
        return "response_schema can only be set when response_mime_type is application/json."
    if mime == "application/json" and request.get("tools") and parse_version(model) < (3, 0):
        return "Function calling with a response mime type: 'application/json' is unsupported"
    calling = cast(Json, cast(Json, request.get("toolConfig") or {}).get("functionCallingConfig") or {})
    if mime == "application/json" and calling.get("mode") == "ANY":
        return "Forced function calling (ANY mode) with a response mime type: 'application/json' is unsupported"
    return None


def _find_thinking_fault(config: Any, model: str) -> str | None:
    if config is None:
        return None
    asked = cast(Json, config)
    fault = find_unknown_field(
        asked, frozenset(("includeThoughts", "thinkingBudget", "thinkingLevel")), "thinking_config"
    )
    if fault is not None:
        return fault
    number, level, budget = parse_version(model), asked.get("thinkingLevel"), asked.get("thinkingBudget")
    if (0, 0) < number < (2, 5):
        return "Thinking is not enabled for this model."
    if level is not None and budget is not None:
        return "You can only set only one of thinking budget and thinking level."
    if level is not None:
        if (0, 0) < number < (3, 0):
            return "Thinking level is not supported for this model."
        if str(level).upper() not in _LEVELS or (str(level).upper() == "MINIMAL" and "pro" in model):
            return f"Thinking level {level} is not supported for this model. Please retry with other thinking level."
    if budget == 0 and "pro" in model:
        return "Budget 0 is invalid. This model only works in thinking mode."
    return None


def to_camel_case(value: Any) -> Any:
    """Rename all fields to camelCase: the API takes snake_case too. Arguments, responses and schemas stay unchanged."""
    if isinstance(value, list):
        return [to_camel_case(item) for item in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    renamed: Json = {}
    for name, item in cast(Json, value).items():
        own = _camel_case_name(name)
        renamed[own] = item if own in _FREE else to_camel_case(item)
    return renamed


def _camel_case_name(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
