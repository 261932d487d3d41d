"""`read`: what a model sees of a file, and what it is told where there is nothing to see."""

from __future__ import annotations

import base64
import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.tools.builtin.images import MAX_IMAGE_BYTES
from steersman.tools.builtin.read_tool import MAX_BYTES, MAX_LINES, Window, read_tool
from steersman.tools.confine.workspace import Workspace
from steersman.tools.output import ToolContext, truncate_output
from steersman.tools.schema.validation import InvalidArguments
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.content import ImageContent, TextContent
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput


@pytest.fixture
def read(tmp_path: Path) -> Tool:
    return read_tool(Workspace(tmp_path))


def refusal_of(read: Tool, path: str, **more: int) -> str:
    with pytest.raises(ToolError) as refused:
        read(path, **more)
    return str(refused.value)


def test_a_text_is_shown_as_it_is(read: Tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ttwo  \n\nfour")
    assert read("a.txt") == ToolOutput("one\n\ttwo  \n\nfour", {"first_line": 1, "last_line": 4, "total_lines": 4})


def test_an_empty_file_is_said_to_be_empty(read: Tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    assert read("a.txt") == ToolOutput("'a.txt' is empty.", {"total_lines": 0})


def test_a_window_says_where_it_is_and_how_to_read_on(read: Tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    assert read("a.txt", offset=3, limit=2) == ToolOutput(
        "line 3\nline 4\n\n[Lines 3 to 4 of 10. Read on with offset=5.]",
        {"first_line": 3, "last_line": 4, "total_lines": 10},
    )
    assert read("a.txt", offset=10).content == "line 10\n\n[Lines 10 to 10 of 10.]"
    assert read("a.txt", offset=0, limit=1).content == "line 1\n\n[Lines 1 to 1 of 10. Read on with offset=2.]"
    assert refusal_of(read, "a.txt", offset=11) == "'a.txt' has 10 lines, so there is no line 11."


@pytest.mark.parametrize("arguments", [{"offset": -1}, {"limit": 0}, {"offset": "x"}, {"lines": 3}])
def test_wrong_arguments_are_refused_before_anything_is_read(read: Tool, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArguments):
        read.check({"path": "a.txt", **arguments})


def test_a_long_file_comes_in_windows_that_the_loop_does_not_cut(read: Tool, tmp_path: Path) -> None:
    """failures.md K1"""
    lines = [f"line {number}" for number in range(1, 5_001)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    shown: list[str] = []
    offset = 1
    while offset <= len(lines):
        output = read("a.txt", offset=offset, limit=100_000)
        assert truncate_output(output, max_bytes=50_000, max_lines=2_000) is output
        text = output.content.split("\n\n[")[0]
        shown += text.split("\n")
        offset = output.details["last_line"] + 1
    assert shown == lines
    assert read("a.txt").details == {"first_line": 1, "last_line": MAX_LINES, "total_lines": 5_000}


def test_long_lines_come_in_windows_by_bytes(read: Tool, tmp_path: Path) -> None:
    """failures.md K1"""
    (tmp_path / "a.txt").write_text(("é" * 10_000 + "\n") * 5)
    output = read("a.txt")
    assert output.details == {"first_line": 1, "last_line": 2, "total_lines": 5}
    assert output.content.endswith("[Lines 1 to 2 of 5. Read on with offset=3.]")
    assert truncate_output(output, max_bytes=50_000, max_lines=2_000) is output


def test_one_endless_line_is_shown_in_part(read: Tool, tmp_path: Path) -> None:
    """failures.md K1: 50 MB in one line."""
    with (tmp_path / "a.txt").open("wb") as file:
        for _ in range(50):
            file.write(b"x" * 1_000_000)
        file.write(b"\nlast\n")
    output = read("a.txt")
    cut = "Line 1 has 50,000,000 characters, of which the first 48,000 are shown."
    assert output.content == "x" * MAX_BYTES + f"\n\n[{cut} Lines 1 to 1 of 2. Read on with offset=2.]"
    assert read("a.txt", offset=2).content == "last\n\n[Lines 2 to 2 of 2.]"


def test_a_huge_file_is_read_in_part_and_not_as_a_whole(read: Tool, tmp_path: Path) -> None:
    """failures.md K1: a terabyte, of which only the beginning is on the disk."""
    with (tmp_path / "a.log").open("wb") as file:
        file.write(b"".join(b"line %d\n" % number for number in range(1, 100_001)))
        file.truncate(1 << 40)
    output = read("a.log", offset=90_000, limit=2)
    words = "[Lines 90,000 to 90,001 of many (1,099,511,627,776 bytes). Read on with offset=90002.]"
    assert output == ToolOutput(f"line 90000\nline 90001\n\n{words}", {"first_line": 90_000, "last_line": 90_001})


def test_a_line_very_far_in_is_not_looked_for_for_ever(read: Tool, tmp_path: Path) -> None:
    """failures.md L20"""
    with (tmp_path / "a.log").open("wb") as file:
        file.write(b"text\n" * 10_000)
        file.truncate(1 << 40)
    words = "Line 10,002 is not in the first 536,870,912 bytes. Use a program."
    assert refusal_of(read, "a.log", offset=10_002) == words


def test_reading_stops_when_it_is_cancelled(tmp_path: Path) -> None:
    """failures.md F5: the thread is not left reading a terabyte."""
    with (tmp_path / "a.log").open("wb") as file:
        file.write(b"text\n" * 10_000)
        file.truncate(1 << 40)
    token = CancelToken()
    token.cancel()
    read = read_tool(Workspace(tmp_path))
    with pytest.raises(ToolError, match="Reading was cancelled"):
        read("a.log", offset=1_000_000, ctx=ToolContext("1", "read", token))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("naïve 🙂\n".encode(), "naïve 🙂"),
        (b"\xef\xbb\xbfmark\n", "mark"),
        ("naïve 🙂\n".encode("utf-16"), "naïve 🙂"),
        (b"\xfe\xff" + "naïve\n".encode("utf-16-be"), "naïve"),
        ("naïve\n".encode("utf-32"), "naïve"),
        (b"a\r\nb\r\n", "a\nb"),
        (b"a\rb\r", "a\nb"),
        (b"a\r\nb\nc\rd", "a\nb\nc\nd"),
        (b"a\r\r\nb", "a\n\nb"),
        (b"a\x0bb\x0cc\xe2\x80\xa8d\n", "a\x0bb\x0cc\u2028d"),
        (b"\x1b[31mred\x1b[0m\n", "\x1b[31mred\x1b[0m"),
    ],
)
def test_encodings_and_line_ends_are_understood(read: Tool, tmp_path: Path, data: bytes, text: str) -> None:
    """failures.md K2, K3"""
    (tmp_path / "a.txt").write_bytes(data)
    assert read("a.txt").content == text


def test_bytes_that_are_no_utf_8_are_counted_and_shown_as_what_they_are_not(read: Tool, tmp_path: Path) -> None:
    """failures.md K2"""
    (tmp_path / "a.txt").write_bytes("one café\ntwo\nà la carte\n".encode("cp1252"))
    note = "[2 bytes not UTF-8, shown as \ufffd where they are; edit keeps them.]"
    assert read("a.txt").content == f"one caf\ufffd\ntwo\n\ufffd la carte\n\n{note}"


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_a_character_on_the_border_of_two_pieces_is_whole(read: Tool, tmp_path: Path, cut: int) -> None:
    """failures.md K2: a file is read a MiB at a time."""
    (tmp_path / "a.txt").write_text("x" * 9_999 + "\n" + ("x" * (1 << 10)) + "\n")
    filler = ("y" * 1_023 + "\n") * 1_023
    text = filler + "y" * (1_024 - cut) + "🙂\r\nlast"
    (tmp_path / "a.txt").write_bytes(text.encode())
    assert read("a.txt", offset=1_024).content.startswith("y" * (1_024 - cut) + "🙂\nlast\n\n[Lines 1,024 to 1,025")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x7fELF\x02\x01\x01\0\0", "is a program or library (ELF) (9 bytes), not text."),
        (b"%PDF-1.7\n\0\0", "is a PDF document (11 bytes), not text."),
        (b"PK\x03\x04\0", "is a ZIP archive, or a document that is one inside (5 bytes), not text."),
        (b"text\0more", "is binary (9 bytes), not text."),
        (bytes(range(1, 32)) * 10, "(310 bytes) is neither UTF-8 nor UTF-16 text"),
        ("日本語のテキスト".encode("shift-jis"), "(16 bytes) is neither UTF-8 nor UTF-16 text"),
        (b"\xff\xfea", "says it is utf-16-le and is not"),
    ],
)
def test_what_is_no_text_is_explained_and_not_shown(read: Tool, tmp_path: Path, data: bytes, words: str) -> None:
    """failures.md K1, K2: binary bytes would fill the context with nothing."""
    (tmp_path / "a.bin").write_bytes(data)
    assert words in refusal_of(read, "a.bin")


def test_a_program_of_the_system_is_binary(read: Tool, tmp_path: Path) -> None:
    """failures.md K1"""
    (tmp_path / "program").write_bytes(Path("/bin/sh").read_bytes())
    assert "is a program or library (ELF)" in refusal_of(read, "program")


def test_a_missing_file_and_a_folder_are_told_with_what_may_have_been_meant(read: Tool, tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "main.py").write_text("")
    (tmp_path / "empty").mkdir()
    assert refusal_of(read, "src/mian.py") == "'src/mian.py' does not exist. Similar names in 'src': 'main.py'."
    assert refusal_of(read, "src") == "'src' is a folder, not a file. In it: 'deep/', 'main.py'."
    assert refusal_of(read, "empty") == "'empty' is a folder, not a file. In it: nothing."
    for number in range(25):
        (tmp_path / "empty" / f"{number:02}\n").write_text("")
    assert refusal_of(read, "empty").endswith(r"'18\n', '19\n' and 5 more.")


def test_a_pipe_is_refused_at_once(read: Tool, tmp_path: Path) -> None:
    """failures.md K8: opening it would wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    assert refusal_of(read, "pipe") == "'pipe' is a named pipe, not a regular file."


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * min(1_000, (3 * width + 1) * height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    frame = b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", height, width) + b"\x03" + b"\0" * 9
    return (
        b"\xff\xd8\xff\xe0\x00\x10JFIF" + b"\0" * 10 + b"\xff\xff\xfe\x00\x04hi" + frame + b"\xff\xda\0\0" + b"\xff\xd9"
    )


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0" + b"\x3b"


def webp(width: int, height: int, kind: bytes) -> bytes:
    match kind:
        case b"VP8X":
            body = b"\0\0\0\0" + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
        case b"VP8L":
            body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + b"\0" * 8
        case _:
            body = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    content = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(content)) + content


PICTURES = [
    ("image/png", png(3, 2)),
    ("image/jpeg", jpeg(3, 2)),
    ("image/gif", gif(3, 2)),
    ("image/webp", webp(3, 2, b"VP8X")),
    ("image/webp", webp(3, 2, b"VP8L")),
    ("image/webp", webp(3, 2, b"VP8 ")),
]


@pytest.mark.parametrize(("mime_type", "data"), PICTURES)
def test_a_picture_is_shown_whatever_its_name(read: Tool, tmp_path: Path, mime_type: str, data: bytes) -> None:
    (tmp_path / "picture.txt").write_bytes(data)
    words = f"'picture.txt': {mime_type}, 3 x 2 pixels, {len(data)} bytes."
    assert read("picture.txt") == ToolOutput(
        [TextContent(words), ImageContent(base64.b64encode(data).decode(), mime_type)]
    )


@pytest.mark.parametrize(("mime_type", "data"), PICTURES)
def test_a_picture_that_is_cut_off_is_not_shown(read: Tool, tmp_path: Path, mime_type: str, data: bytes) -> None:
    """A provider refuses every later request of a conversation that has a picture it cannot read."""
    for size in (12, len(data) // 2 + 3, len(data) - 1):
        (tmp_path / "a").write_bytes(data[:size])
        assert (
            refusal_of(read, "a")
            == f"'a' is a picture ({mime_type}) that cannot be shown: it is malformed or truncated."
        )


def test_a_picture_that_is_too_large_is_not_shown(read: Tool, tmp_path: Path) -> None:
    """failures.md L20"""
    (tmp_path / "wide.png").write_bytes(png(9_000, 1))
    assert "it has 9,000 x 1 pixels, and at most 8,000 each way can be shown" in refusal_of(read, "wide.png")
    with (tmp_path / "heavy.png").open("wb") as file:
        file.write(png(3, 2))
        file.truncate(5_000_000_000)
    most = f"at most {MAX_IMAGE_BYTES:,} can be shown. Make it smaller."
    assert refusal_of(read, "heavy.png") == f"'heavy.png' is a picture (image/png) of 5,000,000,000 bytes; {most}"


def test_a_picture_of_nothing_but_padding_is_not_followed_to_its_end(read: Tool, tmp_path: Path) -> None:
    """failures.md L20: pages and MCP servers send pictures too, and there the event loop looks at them."""
    whole = jpeg(3, 2)
    for filler in (b"\xff", b"\xff\xd0", b"\xff\xfe\x00\x02"):
        (tmp_path / "a").write_bytes(whole[:2] + filler * 9_000 + whole[2:])
        assert "3 x 2 pixels" in str(read("a"))
        (tmp_path / "a").write_bytes(whole[:2] + filler * 11_000 + whole[2:])
        assert "it is malformed or truncated" in refusal_of(read, "a")


def test_read_changes_nothing_and_waits_for_others_at_the_same_file(read: Tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "link").symlink_to("a.txt")
    assert (read.name, read.access, read.idempotent, read.threaded) == ("read", "read", True, True)
    assert read.keys is not None
    assert set(read.keys({"path": "a.txt"})) & set(read.keys({"path": "./link"}))


LINES = st.lists(st.text("ab🙂", max_size=5), max_size=12)


@given(LINES, st.booleans(), st.integers(1, 14), st.integers(1, 14), st.integers(1, 60), st.integers(1, 7))
def test_a_window_fed_in_any_pieces_is_the_lines_it_should_be(
    lines: list[str], ended: bool, first: int, most: int, room: int, piece: int
) -> None:
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    lines = text.split("\n")[: -1 if text.endswith("\n") or not text else None]
    window = Window(first, most, room)
    for start in range(0, len(text), piece):
        window.feed(text[start : start + piece])
    window.end()
    assert window.total == len(lines)
    wanted: list[str] = []
    for line in lines[first - 1 : first - 1 + most]:
        size = len(line.encode())
        if size >= room:
            if not wanted:
                assert (window.cut, lines[first - 1].startswith(window.kept[0])) == (len(line), True)
                assert len(window.kept[0].encode()) <= room
                return
            break
        wanted.append(line)
        room -= size + 1
    assert (window.kept, window.cut, window.next_line) == (wanted, None, first + len(wanted))
