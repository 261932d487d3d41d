from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
from tests.tools.builtin.looking import call, context, error, lines, plant, text, write

from steersman.tools.builtin.list_tool import MAX_ENTRIES, list_tool
from steersman.tools.confine.workspace import Workspace
from steersman.types.errors import ToolError


async def test_a_folder_is_listed_with_kinds_and_sizes(tmp_path: Path) -> None:
    plant(tmp_path, "src/", ".hidden/", "b.txt", **{"a.txt": "hello", ".env": "x" * 1234})
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        shown = await text(list_tool(Workspace(tmp_path)))
    assert shown == (
        ".hidden/\nsrc/\n.env (1,234 bytes)\na.txt (5 bytes)\nb.txt (0 bytes)\npipe (named pipe)\nsocket (socket)"
    )


async def test_links_say_where_they_lead(tmp_path: Path) -> None:
    """failures.md L2: listed, and neither followed nor looked at."""
    root = plant(tmp_path / "ws", "src/", "file")
    write(tmp_path, "secret", "x")
    for name, target in [
        ("inside", "file"), ("folder", "src"), ("loop", "loop"), ("out", "../secret"), ("far", "/etc"), ("gone", "no"),
    ]:  # fmt: skip
        (root / name).symlink_to(target)
    assert await lines(list_tool(Workspace(root))) == [
        "src/",
        "far -> /etc (leads out of the workspace)",
        "file (0 bytes)",
        "folder -> src/",
        "gone -> no (leads nowhere)",
        "inside -> file",
        "loop -> loop (leads nowhere)",
        "out -> ../secret (leads out of the workspace)",
    ]


async def test_a_name_stays_on_its_line(tmp_path: Path) -> None:
    """failures.md L23: a name with a line break, an escape sequence, a mark that turns the writing round."""
    plant(tmp_path, "a\nb (7 bytes)", "\x1b[2J", "x\u202egpj.exe", "é ü", os.fsdecode(b"\xff"))
    assert await lines(list_tool(Workspace(tmp_path))) == [
        r'"\u001b[2J" (0 bytes)',
        r'"a\nb (7 bytes)" (0 bytes)',
        r'"x\u202egpj.exe" (0 bytes)',
        "é ü (0 bytes)",
        r'"\udcff" (0 bytes)',
    ]


async def test_a_large_folder_is_cut_and_counted(tmp_path: Path) -> None:
    """failures.md L20"""
    plant(tmp_path, *(f"{number:05}" for number in range(MAX_ENTRIES + 7)), "z/")
    output = await call(list_tool(Workspace(tmp_path)))
    shown = str(output.content).split("\n")
    assert (shown[:2], shown[-1]) == (
        ["z/", "00000 (0 bytes)"],
        "[8 more of 508 entries. Use glob with a pattern to see fewer.]",
    )
    assert (len(shown), output.details) == (MAX_ENTRIES + 1, {"entries": MAX_ENTRIES + 8})


async def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    plant(tmp_path, "empty/")
    assert await text(list_tool(Workspace(tmp_path)), path="empty") == "'empty' is an empty folder."


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nope", "'nope' does not exist."),
        ("folde", "'folde' does not exist. Similar names in '.': 'folder'"),
        ("file", "'file' is not a folder, so it has no entries. Use read to see a file."),
        ("file/x", "'file/x' goes through 'file', which is not a folder."),
        ("..", "'..' is outside the workspace"),
        ("/etc", "'/etc' is outside the workspace"),
        ("out", "'out' is outside the workspace"),
        ("", "The path is empty."),
        ("loop", "'loop' goes through symbolic links that lead in a circle."),
        ("a\0b", "'a\\x00b' has a NUL character"),
        ("x" * 5000, "The path 'xxx"),
    ],
)
async def test_a_wrong_path_is_an_error_that_says_what_to_do(tmp_path: Path, path: str, words: str) -> None:
    """failures.md K8, L1, L2"""
    root = plant(tmp_path / "ws", "folder/", "file")
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    assert (await error(list_tool(Workspace(root)), path=path)).startswith(words)


async def test_an_abandoned_listing_ends(tmp_path: Path) -> None:
    plant(tmp_path, *(str(number) for number in range(1_500)))
    tool, ctx = list_tool(Workspace(tmp_path)), context()
    ctx.token.cancel()
    with pytest.raises(ToolError, match=r"^The call was cancelled\.$"):
        await asyncio.wait_for(tool.call({}, ctx), 30)


def test_it_changes_nothing_and_says_so(tmp_path: Path) -> None:
    assert list_tool(Workspace(tmp_path)).access == "read"
