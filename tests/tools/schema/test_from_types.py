from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict, Union

import msgspec
import pydantic
import pytest
from tests.rows import each_row

from steersman.tools.schema.from_types import build_converter, build_output_codec, build_schema

UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    PAIR = (1, 2)
    OTHER = (3, 4)


@dataclass
class Point:
    """A place.

    Attributes:
        x: How far right.
    """

    x: int
    y: Annotated[int, "How far up."] = 0
    tags: list[str] = field(default_factory=list[str])
    hidden: int = field(default=0, init=False)


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list["Tree"])


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")


class Movie(TypedDict):
    title: str
    year: NotRequired[int]
    color: Color


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Cat(msgspec.Struct, tag="cat", tag_field="kind"):
    lives: Annotated[int, msgspec.Meta(ge=1, le=9)]


class Dog(msgspec.Struct, tag="dog", tag_field="kind", rename="camel"):
    good_boy: bool = True
    toys: list[str] = []


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str


class Address(pydantic.BaseModel):
    street: str
    number: int = pydantic.Field(ge=1)

    @pydantic.field_validator("street")
    @classmethod
    def named(cls, value: str) -> str:
        if value == "nowhere":
            raise ValueError("no such street")
        return value


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    home: Address
    friends: list[Person] = []


POINT: dict[str, Any] = {
    "type": "object",
    "description": "A place.",
    "properties": {
        "x": {"type": "integer", "description": "How far right."},
        "y": {"type": "integer", "description": "How far up.", "default": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["x"],
    "additionalProperties": False,
}


@each_row(
    ("kind", "schema", "plain", "expected"),
    [
        (Any, {}, [1], [1]),
        (str, {"type": "string"}, "a", "a"),
        (int, {"type": "integer"}, 1, 1),
        (float, {"type": "number"}, 1, 1.0),
        (bool, {"type": "boolean"}, True, True),
        (None, {"type": "null"}, None, None),
        (list[int], {"type": "array", "items": {"type": "integer"}}, [1], [1]),
        (list, {"type": "array"}, [1], [1]),
        (Sequence[float], {"type": "array", "items": {"type": "number"}}, [1], [1.0]),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [1], {1}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [1, 2], (1, 2)),
        (
            tuple[int, Color],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string", "enum": ["red", "blue"]}],
                "minItems": 2,
                "maxItems": 2,
            },
            [1, "red"],
            (1, Color.RED),
        ),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": 1}),
        (dict[int, Any], {"type": "object"}, {"1": "a"}, {1: "a"}),
        (
            Mapping[Color, int],
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"red": 1},
            {Color.RED: 1},
        ),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "a", "a"),
        (Literal[1, "b", None], {"enum": [1, "b", None]}, None, None),
        (Literal[Color.RED], {"type": "string", "enum": ["red"]}, "red", Color.RED),
        (Color, {"type": "string", "enum": ["red", "blue"]}, "blue", Color.BLUE),
        (Level, {"type": "integer", "enum": [1, 2]}, 2, Level.HIGH),
        (Odd, {"type": "string", "enum": ["PAIR", "OTHER"]}, "PAIR", Odd.PAIR),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),  # noqa: UP045
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "a", "a"),  # noqa: UP007
        (Color | None, {"anyOf": [{"type": "string", "enum": ["red", "blue"]}, {"type": "null"}]}, "red", Color.RED),
        (UserId, {"type": "integer"}, 7, 7),
        (Path, {"type": "string"}, "a/b", Path("a/b")),
        (
            Annotated[list[Annotated[int, msgspec.Meta(gt=0)]], "Some numbers.", msgspec.Meta(max_length=3)],
            {
                "type": "array",
                "items": {"type": "integer", "exclusiveMinimum": 0},
                "maxItems": 3,
                "description": "Some numbers.",
            },
            [1],
            [1],
        ),
        (
            Annotated[str | None, pydantic.Field(description="A name.", min_length=2, pattern="^a")],
            {
                "anyOf": [{"type": "string", "minLength": 2, "pattern": "^a"}, {"type": "null"}],
                "description": "A name.",
            },
            "ab",
            "ab",
        ),
        (Point, POINT, {"x": 1, "tags": ["a"]}, Point(1, 0, ["a"])),
        (
            Movie,
            {
                "type": "object",
                "properties": {
                    "title": {"type": "string"},
                    "year": {"type": "integer"},
                    "color": {"type": "string", "enum": ["red", "blue"]},
                },
                "required": ["title", "color"],
                "additionalProperties": False,
            },
            {"title": "M", "color": "red"},
            {"title": "M", "color": Color.RED},
        ),
        (
            Pair,
            {
                "type": "object",
                "properties": {"left": {"type": "integer"}, "right": {"type": "string", "default": "r"}},
                "required": ["left"],
                "additionalProperties": False,
            },
            {"left": 1},
            Pair(1),
        ),
        (
            Cat,
            {
                "type": "object",
                "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer", "minimum": 1, "maximum": 9}},
                "required": ["kind", "lives"],
                "additionalProperties": False,
            },
            {"kind": "cat", "lives": 9},
            Cat(9),
        ),
        (
            Dog,
            {
                "type": "object",
                "properties": {
                    "kind": {"const": "dog"},
                    "goodBoy": {"type": "boolean", "default": True},
                    "toys": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["kind"],
                "additionalProperties": False,
            },
            {"kind": "dog", "goodBoy": False},
            Dog(False),
        ),
    ],
)
def test_a_type_has_a_schema_and_a_way_back(kind: Any, schema: Any, plain: Any, expected: Any) -> None:
    result = build_converter(kind)(plain)
    assert (build_schema(kind), result, type(result)) == (schema, expected, type(expected))
    assert build_output_codec(kind)[1](plain) == expected


def test_unions_of_classes_are_told_apart_by_their_shape() -> None:
    _, convert = build_output_codec(list[Cat | Dog | Point])
    assert convert([{"kind": "dog"}, {"x": 1}, {"kind": "cat", "lives": 3}]) == [Dog(), Point(1), Cat(3)]


def test_a_class_that_contains_itself_is_defined_apart() -> None:
    node = {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
        },
        "required": ["value"],
        "additionalProperties": False,
    }
    schema, convert = build_output_codec(Tree)
    assert schema == {**node, "$defs": {"Tree": node}}
    assert convert({"value": "1", "children": [{"value": 2}]}) == Tree(1, [Tree(2)])
    assert build_schema(list[Tree]) == {
        "type": "array",
        "items": {"$ref": "#/$defs/Tree"},
        "$defs": {"Tree": node},
    }


def test_a_pydantic_model_keeps_its_schema_and_its_validators() -> None:
    schema, convert = build_output_codec(Person)
    person = convert({"fullName": "Ada", "home": {"street": "Elm", "number": "3"}, "friends": []})
    assert person == Person(fullName="Ada", home=Address(street="Elm", number=3))
    assert (schema["type"], sorted(schema["$defs"])) == ("object", ["Address", "Person"])
    with pytest.raises(ValueError, match=r"^output: home: street: Value error, no such street$"):
        convert({"fullName": "Ada", "home": {"street": "nowhere", "number": 3}})
    with pytest.raises(ValueError, match=r"^output\.home\.number: expected at least 1, got 0$"):
        convert({"fullName": "Ada", "home": {"street": "Elm", "number": 0}})


def test_definitions_of_one_name_do_not_overwrite_each_other() -> None:
    address = pydantic.create_model("Address", zip=int)
    company = pydantic.create_model("Company", seat=address)
    schema, convert = build_output_codec(tuple[Person, company])
    person = {"fullName": "Ada", "home": {"street": "Elm", "number": 3}}
    first, second = convert([person, {"seat": {"zip": "123"}}])
    assert sorted(schema["$defs"]) == ["Address", "Address_2", "Person"]
    assert (first.home.street, second.seat.zip) == ("Elm", 123)


@pytest.mark.parametrize(
    ("kind", "plain", "expected"),
    [
        (datetime.date, "2024-02-29", datetime.date(2024, 2, 29)),
        (datetime.datetime, "2024-02-29T12:00:00Z", datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)),
        (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
        (Decimal, "1.10", Decimal("1.10")),
        (bytes, "aGk=", b"hi"),
        (Row, [1, "b"], Row(1, "b")),
        (dict[str, list[Point | None]], {"a": [{"x": 1}, None]}, {"a": [Point(1), None]}),
    ],
)
def test_what_msgspec_knows_works_too(kind: Any, plain: Any, expected: Any) -> None:
    assert build_output_codec(kind)[1](plain) == expected


@pytest.mark.parametrize(
    ("kind", "plain", "expected"),
    [
        (datetime.date, "yesterday", "output: Invalid RFC3339 encoded date"),
        (Even, {"number": 3}, "output: 3 is odd"),
        (Point, {"x": "far"}, "output.x: expected an integer, got 'far'"),
        (list[Color], ["green"], "output[0]: expected one of 'red', 'blue', got 'green'"),
    ],
)
def test_what_does_not_fit_is_said_in_words(kind: Any, plain: Any, expected: str) -> None:
    with pytest.raises(ValueError, match="output") as caught:
        build_output_codec(kind)[1](plain)
    assert str(caught.value) == expected


@pytest.mark.parametrize("kind", [complex, type, object(), Literal[b"x"], "unquoted"])
def test_a_type_without_a_json_form_is_a_mistake_that_says_what_to_use(kind: Any) -> None:
    with pytest.raises(TypeError, match="JSON"):
        build_schema(kind)
