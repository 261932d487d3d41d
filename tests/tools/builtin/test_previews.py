"""Previews of changes: the same diff as after the change, and the same failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from steersman import Tool, ToolError
from steersman.tools.builtin import builtin_tools

TEXT = "".join(f"line {number}\n" for number in range(1, 21))


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Tool]:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("a\n")
    return {tool.name: tool for tool in builtin_tools(tmp_path)}


def preview(tool: Tool, arguments: dict[str, Any]) -> str:
    assert tool.preview is not None
    return tool.preview(tool.check(arguments), None)


def edits(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"old": old, "new": new} for old, new in pairs]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("edit", {"path": "a.txt", "edits": edits(("line 10\n", "ten\nand more\n"), ("line 2\n", ""))}),
        ("edit", {"path": "a.txt", "edits": [{"old": "line", "new": "row", "all": True}]}),
        ("edit", {"path": "crlf.txt", "edits": edits(("two", "2"))}),
        ("write", {"path": "a.txt", "content": "only\nline 5\n"}),
        ("write", {"path": "new/deep.txt", "content": "x"}),
    ],
)
def test_the_preview_is_the_diff_that_the_change_makes(
    tools: dict[str, Tool], tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    shown = preview(tools[name], arguments)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    output: Any = tools[name](**cast(Any, _native(tools[name], arguments)))
    assert shown == output.details["diff"]
    assert shown.count("@@") >= 2


def _native(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    from steersman.tools.builtin.changes import Edit

    return {**arguments, **({"edits": [Edit(**edit) for edit in arguments["edits"]]} if "edits" in arguments else {})}


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("edit", {"path": "a.txt", "edits": edits(("nowhere", "x"))}, "the text was not found"),
        ("edit", {"path": "no.txt", "edits": edits(("a", "b"))}, "does not exist"),
        ("edit", {"path": "../x", "edits": edits(("a", "b"))}, "outside the workspace"),
        ("write", {"path": "/etc/passwd", "content": ""}, "outside the workspace"),
        ("write", {"path": ".git/config", "content": ""}, "protected"),
        ("write", {"path": "new/", "content": ""}, "names a folder"),
        ("edit", {"path": ".git/config", "edits": edits(("a", "b"))}, "protected"),
    ],
)
def test_what_cannot_succeed_fails_in_the_preview(
    tools: dict[str, Tool], name: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        preview(tools[name], arguments)


def test_a_write_shows_what_is_lost_also_where_no_diff_can(tools: dict[str, Tool]) -> None:
    assert "-line 20\n" in preview(tools["write"], {"path": "a.txt", "content": "x\n"})
    assert "what it has now is not shown" in preview(tools["write"], {"path": "binary", "content": "x\n"})
    assert "Windows line ends" in preview(tools["write"], {"path": "crlf.txt", "content": "one\ntwo\n"})
    assert preview(tools["write"], {"path": "a.txt", "content": TEXT}) == "[No line of 'a.txt' changes.]\n"


def test_a_new_file_without_content_is_told_as_one(tools: dict[str, Tool]) -> None:
    shown = preview(tools["write"], {"path": "new/__init__.py", "content": ""})
    assert shown == "['new/__init__.py' is a new file with nothing in it.]\n"


def test_nothing_is_left_out_of_a_long_preview(tools: dict[str, Tool]) -> None:
    """The diff after the change is shortened; what is approved must be seen."""
    content = "".join(f"row {number}\n" for number in range(20_000))
    assert preview(tools["write"], {"path": "a.txt", "content": content}).count("\n+row ") == 20_000


def test_a_carriage_return_is_not_shown_as_the_end_of_a_line(tools: dict[str, Tool]) -> None:
    """docs/approval.md: what was shown is what runs. To a shell, what follows it is still part of the comment."""
    content = "# a note\rcheck || exit 1\n"
    shown = preview(tools["write"], {"path": "new.sh", "content": content})
    assert "+# a note\rcheck || exit 1\n" in shown
    changed = preview(tools["write"], {"path": "a.txt", "content": TEXT.replace("\n", "\r", 1)})
    assert "+line 1\rline 2\n" in changed


def test_other_line_ends_are_told_with_the_name_of_the_file(tools: dict[str, Tool]) -> None:
    shown = preview(tools["write"], {"path": "a.txt", "content": TEXT.replace("\n", "\r\n")})
    notes = "[It gets Windows line ends (CRLF).]\n[Only line ends or the encoding of 'a.txt' change.]\n"
    assert shown == notes
    assert "Windows" in preview(tools["write"], {"path": "new.sh", "content": "#!/bin/sh\r\n"})
