"""Tools from an OpenAPI description: what they are called, what they ask for, and what comes back."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from aiohttp import web
from tests.rows import each_row
from tests.timing import ample
from tests.tools.openapi.kit import Api, Reply, Seen, called, described, one, parameter

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.openapi.build import Operation, openapi_tools
from steersman.tools.openapi.document import load_document
from steersman.tools.openapi.operations import list_operations
from steersman.tools.schema.validation import InvalidArguments
from steersman.types.errors import ToolError
from steersman.types.messages import ToolResultMessage
from steersman.types.tools import ToolOutput

BASE = "https://api.example.org/v1"
PETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "http://169.254.169.254/"}],
    "paths": {
        "/pets": {
            "summary": "All of them",
            "get": {
                "operationId": "listPets",
                "summary": "List the pets.",
                "tags": ["pets"],
                "parameters": [
                    {
                        "name": "limit",
                        "in": "query",
                        "description": "How many.",
                        "schema": {"type": "integer", "maximum": 100},
                    },
                    {"$ref": "#/components/parameters/Kind"},
                ],
            },
            "post": {
                "operationId": "add pet!",
                "description": "Add a pet.",
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
            },
        },
        "/pets/{pet}": {
            "parameters": [{"name": "pet", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "get": {"deprecated": True},
            "delete": {"operationId": "delete"},
        },
        "x-extra": {"get": {}},
    },
    "components": {
        "parameters": {"Kind": {"name": "kind", "in": "query", "schema": {"$ref": "#/components/schemas/Kind"}}},
        "requestBodies": {
            "Pet": {
                "required": True,
                "content": {
                    "text/csv": {"schema": {"type": "string"}},
                    "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}},
                },
            }
        },
        "schemas": {
            "Kind": {"type": "string", "enum": ["cat", "dog"], "nullable": True},
            "Pet": {
                "type": "object",
                "required": ["id", "name"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "name": {"type": "string", "example": "Rex"},
                    "kind": {"$ref": "#/components/schemas/Kind"},
                    "friends": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
                },
            },
            "Unused": {"type": "string"},
        },
    },
}

YAML = """
openapi: 3.1.0
paths:
  /flags/{country}:
    get:
      operationId: flag
      parameters:
        - &country
          name: country
          in: path
          required: true
          schema: {type: string, enum: [no, on, yes, 2020-01-01, 0x1F, 010], default: no}
        - <<: *country
          name: year
          in: query
          required: false
          schema: {type: integer, title: 1_000, const: 1e3, enum: [1, -2, 3.5, null, ~, true]}
      responses:
        200: {description: Fine}
        404: {description: Not there}
"""


def schemas(spec: Any, **settings: Any) -> dict[str, Any]:
    return {tool.name: tool.parameters for tool in openapi_tools(spec, BASE, **settings)}


def test_every_operation_is_a_tool() -> None:
    tools = openapi_tools(PETS, BASE)
    assert [(tool.name, tool.description, tool.access, tool.idempotent) for tool in tools] == [
        ("listPets", "List the pets.\n\nGET /pets", "full", True),
        ("add_pet", "Add a pet.\n\nPOST /pets", "full", False),
        ("get_pets_pet", "GET /pets/{pet}", "full", True),
        ("delete", "DELETE /pets/{pet}", "full", False),
    ]


def test_parameters_and_body_are_one_schema() -> None:
    kind = {"type": ["string", "null"], "enum": ["cat", "dog", None]}
    by_id = {"properties": {"pet": {"type": "integer"}}, "required": ["pet"], "additionalProperties": False}
    assert schemas(PETS) == {
        "listPets": {
            "type": "object",
            "properties": {
                "limit": {"type": "integer", "maximum": 100, "description": "How many."},
                "kind": {"$ref": "#/$defs/Kind"},
            },
            "required": [],
            "additionalProperties": False,
            "$defs": {"Kind": kind},
        },
        "add_pet": {
            "type": "object",
            "properties": {"body": {"$ref": "#/$defs/Pet"}},
            "required": ["body"],
            "additionalProperties": False,
            "$defs": {
                "Kind": kind,
                "Pet": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "kind": {"$ref": "#/$defs/Kind"},
                        "friends": {"type": "array", "items": {"$ref": "#/$defs/Pet"}},
                    },
                    "required": ["name"],
                },
            },
        },
        "get_pets_pet": {"type": "object", **by_id},
        "delete": {"type": "object", **by_id},
    }


@each_row(
    ("version", "schema", "made"),
    [
        ("3.0.0", {"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            "3.0.0",
            {"enum": ["a"], "type": "string", "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            "3.0.0",
            {"allOf": [{"type": "string"}], "nullable": True},
            {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        ("3.0.0", {"nullable": True}, {}),
        (
            "3.0.0",
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            {"type": "integer", "exclusiveMinimum": 1},
        ),
        ("3.0.0", {"type": "integer", "maximum": 9, "exclusiveMaximum": False}, {"type": "integer", "maximum": 9}),
        ("3.1.0", {"type": ["string", "null"], "examples": ["a"], "$comment": "x"}, {"type": ["string", "null"]}),
        ("3.1.0", {"type": "integer", "exclusiveMinimum": 1}, {"type": "integer", "exclusiveMinimum": 1}),
        ("3.2.0", {"const": 5, "x-own": 1, "xml": {}, "deprecated": True}, {"const": 5}),
        (
            "3.1.0",
            {"oneOf": [{"type": "string"}, {"type": "integer"}], "discriminator": {}},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        ("3.1.0", True, True),
        (
            "3.1.0",
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"type": "object", "additionalProperties": {"type": "string"}},
        ),
        ("3.1.0", {"not": {"type": "null"}, "items": False}, {"not": {"type": "null"}, "items": False}),
        (
            "3.1.0",
            {"patternProperties": {"^x": {"readOnly": True}, "^y": {}}, "required": "x"},
            {"patternProperties": {"^y": {}}},
        ),
    ],
)
def test_a_schema_becomes_json_schema(version: str, schema: Any, made: Any) -> None:
    spec = described("/", version=version, parameters=[parameter("a", schema=schema)])
    assert schemas(spec)["it"]["properties"] == {"a": made}


def test_references_of_any_kind_lead_to_definitions_with_names_of_their_own() -> None:
    spec = described(
        "/a~b",
        "post",
        parameters=[parameter("x", schema={"$ref": "#/components/schemas/a~1b", "description": "An x."})],
        requestBody={"content": {"*/*": {"schema": {"$ref": "#/components/other/a%20b/properties/b"}}}},
    )
    spec["components"] = {
        "schemas": {"a/b": {"type": "string"}, "b": {"$ref": "#/components/schemas/c"}, "c": {"type": "integer"}},
        "other": {"a b": {"properties": {"b": {"items": {"$ref": "#/components/schemas/b"}}}}},
    }
    made = schemas(spec)["it"]
    assert made["properties"] == {
        "x": {"$ref": "#/$defs/a_b", "description": "An x."},
        "body": {"$ref": "#/$defs/b"},
    }
    assert made["$defs"] == {
        "a_b": {"type": "string"},
        "b": {"items": {"$ref": "#/$defs/b_2"}},
        "b_2": {"type": "integer"},
    }


@pytest.mark.real_time
async def test_a_schema_that_holds_itself_takes_a_value_that_does() -> None:
    with Api() as api:
        (tool,) = openapi_tools(PETS, api.url, ["add pet!"])
        pet = {"name": "Rex", "friends": [{"name": "Tom", "kind": "cat", "friends": [{"name": "Ann", "kind": None}]}]}
        assert await called(tool, body=pet) == ToolOutput(
            '{"done": true}', {"http_status": 200, "media_type": "application/json"}
        )
        assert (api.last.method, api.last.path, json.loads(api.last.body)) == ("POST", "/pets", pet)
        assert api.last.headers["content-type"] == "application/json"
        with pytest.raises(InvalidArguments, match=r"body\.friends\[0\]\.name: "):
            tool.check({"body": {"name": "Rex", "friends": [{"name": 5}]}})


def test_a_description_comes_as_a_mapping_as_text_or_as_a_file(tmp_path: Path) -> None:
    text, wanted = json.dumps(PETS), schemas(PETS)
    (tmp_path / "pets.json").write_text(text, encoding="utf-8")
    (tmp_path / "pets.txt").write_text("\ufeff" + text, encoding="utf-8")
    for spec in (text, text.encode(), "\n " + text, tmp_path / "pets.json", str(tmp_path / "pets.txt")):
        assert schemas(spec) == wanted


def test_yaml_means_what_json_means(tmp_path: Path) -> None:
    """Its older words for true and false, its dates and its octal numbers are texts."""
    pytest.importorskip("yaml")
    (tmp_path / "flags.yaml").write_text(YAML, encoding="utf-8")
    assert schemas(YAML) == schemas(tmp_path / "flags.yaml")
    assert schemas(YAML)["flag"]["properties"] == {
        "country": {"type": "string", "enum": ["no", "on", "yes", "2020-01-01", "0x1F", "010"], "default": "no"},
        "year": {"type": "integer", "title": "1_000", "const": 1000.0, "enum": [1, -2, 3.5, None, None, True]},
    }


def test_yaml_without_its_library_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['yaml'] = None\n"
        "from steersman.tools.openapi.build import openapi_tools\n"
        "try: openapi_tools('openapi: 3.1.0\\npaths: {}', 'https://api.example.org')\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (
        "MissingExtra The OpenAPI description is not JSON, and reading YAML needs PyYAML: "
        "pip install 'steersman[yaml]'.\n",
        "",
    )


@each_row(
    ("spec", "words"),
    [
        ({"swagger": "2.0"}, "An OpenAPI description of version 3 is needed .* got swagger '2.0'"),
        ({}, "An OpenAPI description of version 3 is needed .* got null"),
        ({"openapi": 3.1}, "An OpenAPI description of version 3 is needed .* got 3.1"),
        ("https://api.example.org/openapi.json", "A description is not downloaded here; get 'https://api"),
        ("{broken", "The OpenAPI description is not JSON"),
        ("a: [\n", "neither JSON nor YAML"),
        ("- a\n- b\n", "An OpenAPI description is an object, got"),
        ("[" * 500 + "\n", "neither JSON nor YAML"),
        ("!!python/object/apply:os.system ['true']\n", "neither JSON nor YAML"),
        ({"openapi": "3.1.0", "paths": []}, None),
        ({"openapi": "3.1.0", "paths": {"pets": {"get": {}}}}, "A path begins with '/'"),
        ({"openapi": "3.1.0", "paths": {"/a/../b": {"get": {}}}}, "no '.' or '..' as a step"),
        ({"openapi": "3.1.0", "paths": {"/a": 5}}, "The path '/a' is an object, got 5"),
        ({"openapi": "3.1.0", "paths": {"/a": {"get": None}}}, "GET /a is an object, got null"),
        (described("/", parameters=[{"$ref": "other.json#/x"}]), "Only references inside the description are followed"),
        (described("/", parameters=[{"$ref": "http://127.0.0.1/x"}]), "Only references inside the description"),
        (described("/", parameters=[{"$ref": "#/nowhere"}]), "refers to '#/nowhere', which it does not hold"),
        (described("/", parameters=[{"$ref": "#/paths/~1/get/parameters/0"}]), "a reference that leads to itself"),
        (described("/", parameters=[{"name": "x"}]), "has 'in': null and 'name': 'x'"),
        (described("/", parameters=[parameter("x", "body")]), "has 'in': 'body'"),
        (described("/", parameters=[parameter("x", style="simple")]), "has the style 'simple'; there are form"),
        (described("/", parameters=[parameter("x", schema=5)]), "A schema is an object or a boolean, got 5"),
        (described("/", parameters=[parameter("x", schema={"$ref": 5})]), "Only references inside the description"),
        (described("/", parameters=[parameter("x", schema={"type": "file"})]), "Unknown type 'file'"),
    ],
)
def test_a_wrong_description_is_a_mistake_that_is_told(spec: Any, words: str | None) -> None:
    if words is None:
        assert openapi_tools(spec, BASE) == []
        return
    with pytest.raises(ValueError, match=words):
        openapi_tools(spec, BASE)


def test_a_schema_that_is_only_itself_is_a_mistake() -> None:
    spec = described("/", parameters=[parameter("x", schema={"$ref": "#/components/schemas/A"})])
    spec["components"] = {"schemas": {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}}
    with pytest.raises(ValueError, match="'#/components/schemas/A' is a reference that leads to itself"):
        openapi_tools(spec, BASE)


def test_a_small_description_that_is_huge_inside_is_refused() -> None:
    """failures.md L20: each line of the YAML holds the one before nine times."""
    pytest.importorskip("yaml")
    lines = ["openapi: 3.1.0", "x:", "  l0: &l0 {type: string}"]
    for level in range(1, 10):
        parts = ", ".join(f"p{number}: *l{level - 1}" for number in range(9))
        lines.append(f"  l{level}: &l{level} {{type: object, properties: {{{parts}}}}}")
    lines.append("paths: {/: {get: {parameters: [{name: a, in: query, schema: *l9}]}}}")
    text = "\n".join(lines)
    with pytest.raises(ValueError, match="too large, or contains itself"):
        openapi_tools(text, BASE)
    spec = described("/", parameters=[parameter("a")])
    inner: dict[str, Any] = {"type": "object"}
    inner["properties"] = {"again": inner}
    spec["paths"]["/"]["get"]["parameters"][0]["schema"] = inner
    with pytest.raises(ValueError, match="too large, or contains itself"):
        openapi_tools(spec, BASE)


def test_operations_that_share_a_schema_are_refused_where_they_are_too_large_together() -> None:
    """failures.md L20: each tool has a copy of the schema, so a short description had made gigabytes."""
    parts = {f"p{number}": {"type": "string"} for number in range(1_000)}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/large"}}}}
    spec = {
        "openapi": "3.1.0",
        "components": {"schemas": {"large": {"type": "object", "properties": parts}}},
        "paths": {f"/{number}": {"put": {"operationId": f"put{number}", "requestBody": body}} for number in range(300)},
    }
    with pytest.raises(ValueError, match="have more than 200,000 parts; choose some with 'operations'"):
        openapi_tools(spec, BASE)
    assert len(openapi_tools(spec, BASE, ["put1", "put2"])) == 2


LONG_NAME = "name" * 20_000


LISTS: dict[str, dict[str, Any]] = {
    "booleans": {"properties": dict.fromkeys(map(str, range(1_000)), True)},
    "required": {"required": [str(number) for number in range(1_000)]},
    "const": {"const": [[number] for number in range(500)]},
    "default": {"default": {"a": {str(number): [] for number in range(1_000)}}},
    "reference": {"$ref": f"#/components/{LONG_NAME}"},
}


@pytest.mark.parametrize("schema", LISTS.values(), ids=LISTS)
def test_all_that_a_schema_lists_counts_for_the_operations_that_share_it(schema: Any) -> None:
    """failures.md L20: a page of booleans, shared by hundreds of operations, took seconds and gigabytes."""
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/large"}}}}
    spec: dict[str, Any] = {
        "openapi": "3.1.0",
        "components": {"large": {"type": "object", **schema}, LONG_NAME: {}},
        "paths": {f"/{number}": {"put": {"requestBody": body}} for number in range(300)},
    }
    with pytest.raises(ValueError, match="have more than 200,000 parts"):
        openapi_tools(spec, BASE)


LONG = "a b-" * 25_000
SHARED: dict[str, dict[str, Any]] = {
    "media types": {"requestBody": {"content": {f"a/{number}": {} for number in range(1_000)}}},
    "parameters": {"parameters": [parameter(f"content-{number}", "header") for number in range(1_000)]},
    "tags": {"tags": [*range(50_000)]},
    "texts": {"operationId": LONG, "summary": LONG, "parameters": [parameter(LONG)]},
}


@pytest.mark.parametrize(
    ("shared", "made"), [("media types", None), ("parameters", None), ("tags", 500), ("texts", 500)]
)
def test_operations_that_share_much_are_made_or_refused_at_once(shared: str, made: int | None) -> None:
    """failures.md L20: all of it was read and copied for each of them."""
    spec: dict[str, Any] = {
        "openapi": "3.1.0",
        "x": {"put": SHARED[shared]},
        "paths": {f"/{number}": {"$ref": "#/x"} for number in range(500)},
    }
    began = process_time()
    if made is None:
        with pytest.raises(ValueError, match="have more than 200,000 parts"):
            openapi_tools(spec, BASE)
    else:
        assert len(openapi_tools(spec, BASE)) == made
    assert process_time() - began < 2


def test_yaml_that_merges_what_was_merged_is_refused() -> None:
    """failures.md L20: each line holds the one before nine times, which took hours and all of the memory."""
    pytest.importorskip("yaml")
    lines = ["openapi: 3.1.0", "x0: &x0 {a: 1, b: 2}"]
    for level in range(1, 12):
        lines.append(f"x{level}: &x{level} {{<<: [{', '.join([f'*x{level - 1}'] * 9)}]}}")
    with pytest.raises(ValueError, match="its keys '<<' merge more than 200,000 values"):
        openapi_tools("\n".join([*lines, "paths: {}"]), BASE)
    few = "\n".join([*lines[:3], "paths: {/: {get: {<<: *x1, operationId: one}}}"])
    assert [tool.name for tool in openapi_tools(few, BASE)] == ["one"]


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("{tags: [*l7]}", None),
        ("{parameters: [{name: a, in: query, style: *l7}]}", "has the style"),
        ("{parameters: [{name: *l7, in: query}]}", "'name': "),
        ("{parameters: [{name: a, in: *l7}]}", "has 'in': "),
    ],
)
def test_what_should_be_a_text_and_is_huge_inside_is_not_written(operation: str, words: str | None) -> None:
    """failures.md L20: each line of the YAML holds the one before nine times, which is megabytes or more."""
    pytest.importorskip("yaml")
    lines = ["openapi: 3.1.0", "x:", "  l0: &l0 [a]"]
    lines += [f"  l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]" for level in range(1, 8)]
    text = "\n".join([*lines, f"paths: {{/: {{get: {operation}}}}}"])
    if words is None:
        assert all(len(tag) < 100 for operation in list_operations(load_document(text)) for tag in operation.tags)
        return
    with pytest.raises(ValueError, match=words) as raised:
        openapi_tools(text, BASE)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("id", ["get", "a_long_name_" * 5], ids=["short", "long"])
def test_thousands_of_operations_of_one_name_are_told_apart_at_once(id: str) -> None:
    """failures.md L20: for each, all the numbers that were taken were tried again."""
    spec = {"openapi": "3.1.0", "paths": {f"/{number}": {"get": {"operationId": id}} for number in range(8_000)}}
    began = process_time()
    assert len({operation.tool for operation in list_operations(load_document(spec))}) == 8_000
    assert process_time() - began < 2


def test_something_else_than_a_description_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="An OpenAPI description is a mapping, JSON or YAML text, or a path, got 5"):
        openapi_tools(5, BASE)  # pyright: ignore[reportArgumentType]  # the mistake
    with pytest.raises(FileNotFoundError):
        openapi_tools(tmp_path / "none.json", BASE)


def about_pets(operation: Operation) -> bool:
    return "pets" in operation.tags and not operation.deprecated


@pytest.mark.parametrize(
    ("operations", "names"),
    [
        (None, ["listPets", "add_pet", "get_pets_pet", "delete"]),
        (["delete", "listPets"], ["listPets", "delete"]),
        (["add pet!"], ["add_pet"]),
        (["add_pet"], ["add_pet"]),
        (["GET /pets/{pet}"], ["get_pets_pet"]),
        ([], []),
        (about_pets, ["listPets"]),
    ],
)
def test_operations_are_chosen_by_name_or_by_a_function(operations: Any, names: list[str]) -> None:
    assert [tool.name for tool in openapi_tools(PETS, BASE, operations)] == names


@pytest.mark.parametrize("setting", ["operations", "reads"])
def test_an_operation_there_is_not_is_a_mistake_with_a_hint(setting: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^'{setting}' names an operation 'listPet', which .* Did you mean 'listPets'\?$"
    ):
        openapi_tools(PETS, BASE, **{setting: ["listPet"]})  # pyright: ignore[reportArgumentType]  # one of several settings
    with pytest.raises(ValueError, match=r"There are: listPets, add pet!, GET /pets/\{pet\}, delete\.$"):
        openapi_tools(PETS, BASE, **{setting: ["zzz"]})  # pyright: ignore[reportArgumentType]  # one of several settings
    with pytest.raises(TypeError, match="is a list, such as"):
        openapi_tools(PETS, BASE, **{setting: "listPets"})  # pyright: ignore[reportArgumentType]  # one of several settings


def test_only_what_the_user_calls_a_read_is_one() -> None:
    """A GET sends what the model wrote to a server, so it is no read of itself."""

    def is_get(operation: Operation) -> bool:
        return operation.method == "GET"

    assert [tool.access for tool in openapi_tools(PETS, BASE, reads=["listPets"])] == ["read", "full", "full", "full"]
    assert [tool.access for tool in openapi_tools(PETS, BASE, reads=is_get)] == ["read", "full", "read", "full"]


def test_names_are_unique_and_short_and_may_have_a_prefix() -> None:
    long = "x" * 100
    paths = {
        f"/{n}": {"get": {"operationId": id}} for n, id in enumerate(["a b", "a_b", "a/b", long, long, "---", "€"])
    }
    tools = openapi_tools({"openapi": "3.1.0", "paths": paths}, BASE, prefix="api_")
    names = [
        "api_a_b",
        "api_a_b_2",
        "api_a_b_3",
        "api_" + "x" * 60,
        "api_" + "x" * 58 + "_2",
        "api_---",
        "api_operation",
    ]
    assert [tool.name for tool in tools] == names


def test_arguments_of_one_name_are_told_apart() -> None:
    places = ("path", "query", "header", "cookie")
    spec = described(
        "/{id}/{arguments}",
        "post",
        parameters=[
            *(parameter("id", place) for place in reversed(places)),
            parameter("body"),
            parameter("filter[name]"),
            parameter("filter(name)"),
            parameter("x" * 99),
        ],
        requestBody={"content": {"application/json": {"schema": {}}}},
    )
    made = schemas(spec)["it"]
    assert list(made["properties"]) == [
        *("id", "arguments_path", "id_query", "body", "filter_name_", "filter_name__query", "x" * 64),
        *("id_header", "id_cookie", "body_request"),
    ]
    assert made["required"] == ["id", "arguments_path"]


def test_headers_that_are_not_the_models_business_are_left_out() -> None:
    names = [
        "Accept",
        "Authorization",
        "content-TYPE",
        "Content-Length",
        "Host",
        "Cookie",
        "Transfer-Encoding",
        "X-Fine",
        "bad name",
        "a\r\nb",
    ]
    spec = described("/", parameters=[parameter(name, "header") for name in names])
    assert list(schemas(spec)["it"]["properties"]) == ["X-Fine"]


@each_row(
    "base_url",
    [
        "",
        "api.example.org",
        "ftp://api.example.org",
        "https://",
        "https://key@api.example.org",
        "https://a.example/?key=1",
        "https://a.example/#x",
        "https://a.example/v1/../v2",
    ],
)
def test_a_wrong_base_url_is_a_mistake(base_url: str) -> None:
    with pytest.raises(ValueError, match=r"^'base_url' "):
        openapi_tools(PETS, base_url)


@pytest.mark.parametrize("settings", [{"timeout": 0}, {"connect_timeout": float("nan")}, {"max_bytes": -1}])
def test_a_wrong_setting_is_a_mistake(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        openapi_tools(PETS, BASE, **settings)


@pytest.mark.real_time
@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
async def test_requests_go_to_the_users_address_and_not_to_that_of_the_description(base: str) -> None:
    with Api() as api:
        (tool,) = openapi_tools(PETS, api.url + base, ["listPets"])
        await called(tool, limit="5")
        assert (api.last.method, api.last.path, api.last.query) == ("GET", f"{base.rstrip('/')}/pets", [("limit", "5")])
        assert (api.last.headers["accept"], api.last.body) == ("application/json, */*;q=0.5", b"")


CUT = "\n\n[There is more, or it was cut off; only this much was read.]"
PACKED = {"Content-Encoding": "gzip", "Content-Type": "text/plain"}


def told(status: int, **details: Any) -> Reply:
    def reply(_: Seen) -> web.StreamResponse:
        return web.Response(status=status, **details)

    return reply


@pytest.mark.real_time
@each_row(
    ("reply", "content", "is_error"),
    [
        (told(200, body=b'{"a":  1}', content_type="application/json"), '{"a":  1}', False),
        (told(200, text="grün", charset="latin-1"), "grün", False),
        (told(200, body=gzip.compress(b"packed"), headers=PACKED), "packed", False),
        (told(204), "HTTP 204 No Content. The answer is empty.", False),
        (
            told(200, body=b"\x00\x01", content_type="application/pdf"),
            "HTTP 200 OK. The answer is application/pdf, 2 bytes, and is not shown.",
            False,
        ),
        (
            told(404, text='{"error": "no pet"}', content_type="application/json"),
            'HTTP 404 Not Found\n\n{"error": "no pet"}',
            True,
        ),
        (told(500), "HTTP 500 Internal Server Error. The answer is empty.", True),
        (told(200, text="a" * 101), "a" * 100 + CUT, False),
        (told(200, body=gzip.compress(b"a" * 10_000_000), headers=PACKED), "a" * 100 + CUT, False),
    ],
)
async def test_the_answer_is_what_the_server_said(reply: Any, content: str, is_error: bool) -> None:
    with Api(reply) as api:
        output = await called(
            one(described("/x"), api.url, max_bytes=100),
        )
        assert (output.content, output.is_error) == (content, is_error)


@pytest.mark.real_time
async def test_an_answer_is_shown_whole_with_its_status() -> None:
    with Api(told(201, text="made")) as api:
        output = await called(one(described("/x", "put"), api.url))
        assert output == ToolOutput("made", {"http_status": 201, "media_type": "text/plain"})


@pytest.mark.real_time
async def test_head_says_whether_it_is_there() -> None:
    with Api() as api:
        assert (await called(one(described("/x", "head"), api.url))).content == "HTTP 200 OK. The answer is empty."


@pytest.mark.real_time
async def test_a_redirect_is_followed_on_the_same_server_and_when_nothing_is_changed_by_it() -> None:
    def reply(seen: Seen) -> web.StreamResponse:
        if seen.path == "/end":
            return web.Response(text=f"{seen.method} {seen.headers['x-key']}")
        return web.Response(status=302, headers={"Location": "/end"})

    with Api(reply) as api:
        settings: dict[str, Any] = {"headers": {"X-Key": "abc"}}
        assert (await called(one(described("/x"), api.url, **settings))).content == "GET abc"
        with pytest.raises(
            ToolError, match=r"^POST /x was redirected to 'http://127\.0\.0\.1:\d+/end', which is not followed\.$"
        ):
            await called(one(described("/x", "post"), api.url, **settings))
        api.reply = told(307, headers={"Location": "/again"})
        with pytest.raises(ToolError, match=r"^GET /x was redirected more than 5 times\.$"):
            await called(one(described("/x"), api.url, **settings))


@pytest.mark.real_time
async def test_a_server_that_does_not_answer_is_left() -> None:
    with Api() as api:
        seconds = await ample(lambda: called(one(described("/x/{id}"), api.url), id="1"), 0.2)
        api.silent = True
        with pytest.raises(ToolError) as raised:
            await called(one(described("/x/{id}"), api.url, timeout=seconds), id="1")
        assert str(raised.value) == f"GET /x/{{id}} was not answered in full within {seconds:g}s."
        assert await asyncio.to_thread(api.left.wait, 10)


@pytest.mark.real_time
async def test_a_cancelled_call_closes_its_connection() -> None:
    """failures.md F1."""
    with Api() as api:
        api.silent = True
        task = asyncio.ensure_future(called(one(described("/x"), api.url)))
        while not api.seen:  # noqa: ASYNC110  # the server is in another thread
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(api.left.wait, 10)


@pytest.mark.real_time
async def test_a_server_that_is_not_there_is_an_error_result() -> None:
    with Api() as api:
        url = api.url
    with pytest.raises(ToolError, match=rf"^No connection to '{url}/' \("):
        await called(one(described("/x"), url))


@pytest.mark.real_time
async def test_the_tools_work_in_a_run() -> None:
    def reply(seen: Seen) -> web.StreamResponse:
        return web.json_response([{"id": 7, "name": "Rex"}] if seen.path == "/pets" else {"gone": seen.path})

    with Api(reply) as api:
        script = ScriptedModel(
            answer(
                call("listPets", limit=1), call("delete", pet="7"), call("delete", pet="x"), call("listPets", page=2)
            ),
            "Done.",
        )
        result = await Agent(script.model, tools=openapi_tools(PETS, api.url)).run("Tidy up.")
    assert [message.text for message in result.messages if isinstance(message, ToolResultMessage)] == [
        '[{"id": 7, "name": "Rex"}]',
        '{"gone": "/pets/7"}',
        "Invalid arguments for tool 'delete':\narguments.pet: expected an integer, got 'x'",
        "Invalid arguments for tool 'listPets':\narguments.page: there is no such parameter; there are limit, kind",
    ]
    assert len(api.seen) == 2


def test_regular_expressions_of_a_description_are_left_to_the_server() -> None:
    """With thirty letters this one takes minutes."""
    parameter = {"name": "a", "in": "query", "schema": {"type": "string", "pattern": "^(a+)+$", "maxLength": 9}}
    spec = {"openapi": "3.1.0", "paths": {"/x": {"get": {"operationId": "x", "parameters": [parameter]}}}}
    (tool,) = openapi_tools(spec, "http://127.0.0.1:1")
    assert tool.check({"a": "aaaa!"}) == {"a": "aaaa!"}
    with pytest.raises(ToolError, match="at most 9 characters"):
        tool.check({"a": "aaaaaaaaa!"})
