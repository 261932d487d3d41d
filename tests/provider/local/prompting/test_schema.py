"""What the model may write when it decides: `provider/local/schema.py`."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.provider.local.prompting.decide import build_arguments_schema, build_decision_schema

PATH = {"type": "object", "properties": {"path": {"type": "string", "description": "A file."}}, "required": ["path"]}
NO_MORE = {"additionalProperties": False}


def test_each_tool_is_one_choice_and_respond_is_another() -> None:
    arguments = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], **NO_MORE}
    fields = {"tool": {"const": "read"}, "arguments": arguments}
    read = {"type": "object", "properties": fields, "required": ["tool", "arguments"], **NO_MORE}
    respond = {"type": "object", "properties": {"tool": {"const": "respond"}}, "required": ["tool"], **NO_MORE}
    assert build_decision_schema({"read": PATH}, respond=True) == {"anyOf": [read, respond]}
    assert build_decision_schema({"read": PATH}, respond=False) == {"anyOf": [read]}


def test_only_what_is_required_is_asked_for() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["b"]}
    assert build_arguments_schema(schema)["properties"] == {"b": {"type": "integer"}}


def test_where_nothing_is_required_the_first_is_asked_for() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string", "default": "."}, "b": {"type": "integer"}}}
    assert build_arguments_schema(schema)["properties"] == {"a": {"type": "string"}}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string"}),
        ({"type": ["integer", "null"]}, {"type": "integer"}),
        ({"type": "string", "enum": ["a", "b"]}, {"enum": ["a", "b"]}),
        ({"type": "string", "pattern": "(?=x)", "format": "uri"}, {"type": "string"}),
        (
            {"type": "array", "items": {"type": "number"}, "minItems": 3},
            {"type": "array", "items": {"type": "number"}, "minItems": 1},
        ),
        ({"$ref": "#/$defs/Name"}, {"type": "string"}),
        ({"$ref": "#/$defs/Round"}, {}),
        ({"type": "strange"}, {}),
        ({}, {}),
    ],
)  # fmt: skip
def test_a_schema_is_made_simple(given: dict[str, Any], made: dict[str, Any]) -> None:
    defs = {"Name": {"type": "string"}, "Round": {"$ref": "#/$defs/Round"}}
    whole = {"properties": {"it": given}, "required": ["it"], "$defs": defs}
    assert build_arguments_schema(whole)["properties"] == {"it": made}


def test_a_schema_without_end_comes_to_one() -> None:
    defs: dict[str, Any] = {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}}
    whole = {"properties": {"it": {"$ref": "#/$defs/Node"}}, "required": ["it"], "$defs": defs}
    assert len(repr(build_arguments_schema(whole))) < 2000


def test_values_that_many_references_name_are_not_copied_for_all_of_them() -> None:
    defs: dict[str, Any] = {"Long": {"enum": ["x" * 2_000]}}
    given = {"anyOf": [{"$ref": "#/$defs/Long"}] * 900}
    whole = {"properties": {"it": given}, "required": ["it"], "$defs": defs}
    assert len(repr(build_arguments_schema(whole))) < 30_000


def test_a_schema_that_refers_to_itself_in_many_ways_is_not_followed_in_all_of_them() -> None:
    """A server may send it in a hundred bytes: eight ways, six steps deep, would be a quarter of a million parts."""
    defs: dict[str, Any] = {"Any": {"anyOf": [{"$ref": "#/$defs/Any"}] * 8}}
    whole = {"properties": {"it": {"$ref": "#/$defs/Any"}}, "required": ["it"], "$defs": defs}
    assert len(repr(build_arguments_schema(whole))) < 10_000
