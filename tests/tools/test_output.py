from __future__ import annotations

import datetime
import enum
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from steersman.tools.output import normalize_output, truncate_output
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.tools import Prun, ToolOutput


class Color(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    color: Color = Color.RED


class Model(pydantic.BaseModel):
    when: datetime.date


class Struct(msgspec.Struct):
    path: Path


IMAGE = ImageContent("aGk=")


@each_row(
    ("value", "expected"),
    [
        ("text", "text"),
        ("", ""),
        (None, ""),
        (5, "5"),
        (1.5, "1.5"),
        (True, "true"),
        (10**30, "1" + "0" * 30),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (["a", "b"], '["a","b"]'),
        ([], "[]"),
        ((), "[]"),
        ({1}, "[1]"),
        ("é🙂", "é🙂"),
        ({"é": "🙂"}, '{"é":"🙂"}'),
        (Point(1), '{"x":1,"color":"red"}'),
        (Model(when=datetime.date(2024, 1, 2)), '{"when":"2024-01-02"}'),
        ([Model(when=datetime.date(2024, 1, 2))], '[{"when":"2024-01-02"}]'),
        (Struct(Path("a/b")), '{"path":"a/b"}'),
        (Path("a/b"), '"a/b"'),
        (range(3), "[0,1,2]"),
        (b"bytes \xff", "bytes \ufffd"),
        ("a\x00b", "ab"),
        ("lone \ud83d", "lone \ufffd"),
        ({"k": "\ud83d\ude42", "l": ["\ud83d"]}, '{"k":"🙂","l":["\ufffd"]}'),
        ({"type": "text", "text": "data"}, '{"type":"text","text":"data"}'),
        ([{"type": "text", "text": "a", "more": 1}], '[{"type":"text","text":"a","more":1}]'),
        ([{"type": "image", "data": 3}], '[{"type":"image","data":3}]'),
        (TextContent("a"), [TextContent("a")]),
        ([TextContent("a"), IMAGE], [TextContent("a"), IMAGE]),
        (("caption", IMAGE), [TextContent("caption"), IMAGE]),
        ([{"type": "text", "text": "a"}], [TextContent("a")]),
        ([{"type": "image", "data": "aGk=", "mime_type": "image/png"}], [IMAGE]),
        ([TextContent("a\x00")], [TextContent("a")]),
    ],
)
def test_what_a_tool_returns_becomes_one_form(value: Any, expected: Any) -> None:
    assert normalize_output(value) == ToolOutput(expected)


def test_a_whole_output_passes_as_it_is() -> None:
    output = ToolOutput("a", {"x": 1}, is_error=True, terminate=True, effects=[Prun(1)])
    assert normalize_output(output) is output


def test_data_inside_an_output_is_brought_to_form_and_the_rest_is_kept() -> None:
    output = ToolOutput({"a": 1}, {"x": 1}, is_error=True)  # pyright: ignore[reportArgumentType]  # as users write it
    assert normalize_output(output) == ToolOutput('{"a":1}', {"x": 1}, is_error=True)


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


@pytest.mark.parametrize("value", [object(), lambda: None, CIRCULAR, {"a": object()}, [object], 3j])
def test_what_has_no_json_form_is_a_type_error_that_shows_it(value: Any) -> None:
    with pytest.raises(TypeError, match="A tool returns text, JSON-able data, content blocks or a ToolOutput, but"):
        normalize_output(value)


@pytest.mark.parametrize("value", [ThinkingContent("x"), ToolCall("1", "t")])
def test_only_text_and_images_are_content_of_a_tool(value: Any) -> None:
    assert isinstance(normalize_output([value]).content, str)


def capped(text: str, tmp_path: Path, max_bytes: int = 1_000, max_lines: int = 20) -> str:
    content = truncate_output(
        ToolOutput(text), max_bytes=max_bytes, max_lines=max_lines, directory=str(tmp_path)
    ).content
    assert isinstance(content, str)
    return content


def test_a_short_output_is_the_same_object(tmp_path: Path) -> None:
    """loop.md C6"""
    output = ToolOutput("a\n" * 20)
    assert truncate_output(output, max_bytes=40, max_lines=20, directory=str(tmp_path)) is output
    assert truncate_output(output, max_bytes=40, max_lines=20) is output
    assert list(tmp_path.iterdir()) == []


def test_too_many_lines_keep_head_and_tail_and_name_the_file_with_all(tmp_path: Path) -> None:
    """failures.md K1; loop.md C6"""
    text = "".join(f"line {number}\n" for number in range(100))
    output = truncate_output(ToolOutput(text, {"x": 1}), max_bytes=10_000, max_lines=5, directory=str(tmp_path / "new"))
    path = Path(output.details["full_output"])
    assert output == ToolOutput(
        f"line 0\nline 1\n[... 760 bytes in 96 lines left out; full output: {path} ...]\nline 98\nline 99\n",
        {"lines": 100, "x": 1, "full_output": str(path)},
    )
    assert (path.read_text(), path.parent, stat.S_IMODE(path.stat().st_mode)) == (text, tmp_path / "new", 0o600)


def test_too_many_bytes_are_cut_between_lines_where_there_are_some(tmp_path: Path) -> None:
    """loop.md C6"""
    text = "".join(f"line {number:03}\n" for number in range(500))
    short = capped(text, tmp_path, max_bytes=1_000, max_lines=1_000)
    head, note, tail = re.split(r"(\[\.\.\. .* \.\.\.\]\n)", short)
    assert len(short.encode()) <= 1_000
    assert (text.startswith(head), text.endswith(tail), head[-9:-5], tail[:5]) == (True, True, "line", "line ")
    assert "left out; full output: " in note


def test_one_long_line_is_cut_inside(tmp_path: Path) -> None:
    """failures.md K1: single-line safe."""
    text = "a" * 5_000_000 + "z"
    short = capped(text, tmp_path)
    assert (len(short.encode()) <= 1_000, short.startswith("aaa"), short.endswith("aaz")) == (True, True, True)
    assert "bytes in 1 line left out" in short


def test_characters_are_never_torn(tmp_path: Path) -> None:
    """failures.md K2"""
    short = capped("🙂é" * 10_000, tmp_path)
    assert (len(short.encode()) <= 1_000, "\ufffd" in short) == (True, False)


def test_binary_output_is_text_by_then_and_capped(tmp_path: Path) -> None:
    """failures.md K2"""
    output = normalize_output(bytes(range(256)) * 1_000)
    short = truncate_output(output, max_bytes=1_000, max_lines=20, directory=str(tmp_path)).content
    assert isinstance(short, str)
    assert (len(short.encode()) <= 1_000, "\x00" in short) == (True, False)


def test_images_stay_and_texts_are_capped_together(tmp_path: Path) -> None:
    output = truncate_output(
        ToolOutput([TextContent("a" * 600), IMAGE, TextContent("b" * 600)], is_error=True),
        max_bytes=1_000,
        max_lines=20,
        directory=str(tmp_path),
    )
    assert not isinstance(output.content, str)
    text = output.content[0]
    assert isinstance(text, TextContent)
    assert (text.text[:3], text.text[-3:], output.content[1:], output.is_error) == ("aaa", "bbb", [IMAGE], True)
    assert Path(output.details["full_output"]).read_text() == "a" * 600 + "\n" + "b" * 600


def test_a_file_that_cannot_be_written_is_said_and_the_output_still_capped(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    output = truncate_output(ToolOutput("a" * 5_000), max_bytes=1_000, max_lines=20, directory=str(blocked))
    assert isinstance(output.content, str)
    assert "the full output could not be saved: " in output.content
    assert (output.details, len(output.content) <= 1_000) == ({}, True)


def test_without_a_directory_the_file_is_a_temporary_one() -> None:
    output = truncate_output(ToolOutput("a" * 5_000), max_bytes=1_000, max_lines=20)
    path = Path(output.details["full_output"])
    assert path.read_text() == "a" * 5_000
    path.unlink()


@pytest.mark.parametrize(("max_bytes", "max_lines"), [(0, 0), (1, 1), (10, 1), (300, 1), (300, 2), (0, 5)])
def test_tiny_limits_leave_at_least_the_note(tmp_path: Path, max_bytes: int, max_lines: int) -> None:
    short = capped("one\ntwo\nthree\n" * 200, tmp_path, max_bytes, max_lines)
    assert short.count("left out; full output: ") == 1


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=60).map("\n".join)


@given(TEXTS, st.integers(400, 1_000), st.integers(2, 30))
def test_a_capped_output_is_within_its_limits_and_is_not_capped_again(
    tmp_path_factory: pytest.TempPathFactory, text: str, max_bytes: int, max_lines: int
) -> None:
    """loop.md C6"""
    directory = str(tmp_path_factory.getbasetemp())
    output = truncate_output(ToolOutput(text), max_bytes=max_bytes, max_lines=max_lines, directory=directory)
    assert truncate_output(output, max_bytes=max_bytes, max_lines=max_lines) is output
    assert truncate_output(output, max_bytes=max_bytes, max_lines=max_lines, directory=directory) is output
    if "full_output" in output.details:
        assert Path(output.details["full_output"]).read_bytes() == text.encode()
