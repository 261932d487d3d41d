"""Schemas as OpenAI takes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.provider.wires.openai_responses.kit import body_of
from tests.rows import each_row

from steersman.provider.wires.openai_responses.schema import convert_parameters, is_strict
from steersman.testing.servers.openai_responses.request import Fault, check_fields
from steersman.tools.tool import Tool
from steersman.types.model import StreamOptions

NAMED: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NUMBERED: dict[str, Any] = {"type": "object", "properties": {"number": {"type": "integer", "exclusiveMinimum": 0}}}

SCHEMAS: list[dict[str, Any]] = [
    NAMED,
    NUMBERED,
    {"type": "object"},
    {"properties": {"a": {"type": "string"}}},
    {"type": "object", "anyOf": [NAMED, NUMBERED]},
    {"type": "object", "oneOf": [NAMED, NUMBERED], "properties": {"kind": {"const": "x"}}},
    {"type": "object", "allOf": [NAMED, NUMBERED]},
    {"type": "object", "not": {"required": ["x"]}, "properties": {}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": ["string", "null"]}}},
    {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True, "items": {"anyOf": [{}, {}]}}}},
    {"type": "object", "additionalProperties": {"type": "string"}, "patternProperties": {"^x": {}}},
]


@each_row("schema", SCHEMAS)
def test_a_tool_with_any_schema_is_taken(schema: dict[str, Any]) -> None:
    """failures.md C15."""
    sound = Tool("t", "Does it.", {"type": "object", "properties": {}}, lambda: "")
    given: Any = type("Spec", (), {"name": "t", "description": "Does it.", "parameters": schema})()
    check_fields(body_of("Hi", tools=[sound]))
    check_fields(body_of("Hi", tools=[given]))


def test_what_may_not_stand_at_the_top_is_said_in_words() -> None:
    """failures.md C15: without loss of meaning."""
    schema: dict[str, Any] = {"type": "object", "anyOf": [NAMED, NUMBERED], "description": "d"}
    parameters, rule = convert_parameters(schema)
    assert parameters == {
        "type": "object",
        "description": "d",
        "properties": {**NAMED["properties"], **NUMBERED["properties"]},
    }
    combined = msgspec.json.encode({"anyOf": [NAMED, NUMBERED]}).decode()
    assert rule == f"The arguments must also satisfy this JSON Schema: {combined}"
    assert schema == {"type": "object", "anyOf": [NAMED, NUMBERED], "description": "d"}


@each_row(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {}, "required": [], "additionalProperties": False}, True),
        ({**NAMED, "additionalProperties": False}, True),
        (NAMED, False),
        ({**NUMBERED, "additionalProperties": False}, False),
        ({**NAMED, "additionalProperties": False, "minProperties": 1}, False),
        ({**NAMED, "additionalProperties": False, "$defs": {"A": NUMBERED}}, False),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {**NAMED, "additionalProperties": False}}},
                "required": ["a"],
                "additionalProperties": False,
            },
            True,
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"anyOf": [NAMED, {"type": "null"}]}},
                "required": ["a"],
                "additionalProperties": False,
            },
            False,
        ),
    ],
)
def test_an_answer_is_held_to_its_schema_where_the_server_can(schema: dict[str, Any], strict: bool) -> None:
    assert is_strict(schema) is strict
    body = body_of("Hi", options=StreamOptions(output_schema=schema))
    assert body["text"]["format"]["strict"] is strict
    check_fields(body)
    if not strict and "minProperties" not in schema:
        body["text"]["format"]["strict"] = True
        with pytest.raises(Fault, match="Invalid schema for response_format 'output'"):
            check_fields(body)


def test_an_answer_that_is_no_object_is_only_asked_for_in_words() -> None:
    assert "text" not in body_of("Hi", options=StreamOptions(output_schema={"type": "array", "items": {}}))
