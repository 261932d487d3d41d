"""`write`: exactly the text that was given, and nothing of what others did is lost."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.builtin.changes import Edit
from steersman.tools.builtin.edit_tool import edit_tool
from steersman.tools.builtin.read_tool import read_tool
from steersman.tools.builtin.write_tool import write_tool
from steersman.tools.confine.workspace import StaleFile, Workspace, WrongKind
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def write(workspace: Workspace) -> Tool:
    return write_tool(workspace)


def by(who: str) -> ToolContext:
    """A call from a conversation of its own."""
    return ToolContext("1", "write", CancelToken(), idempotency_key=f"{who}:1")


def test_a_new_file_is_made_with_the_folders_it_needs(write: Tool, tmp_path: Path) -> None:
    assert write("src/new/a.py", "one\ntwo\n") == ToolOutput(
        "Created 'src/new/a.py': 2 lines, 8 bytes.",
        {
            "path": "src/new/a.py",
            "created": True,
            "diff": "--- /dev/null\n+++ b/src/new/a.py\n@@ -0,0 +1,2 @@\n+one\n+two\n",
        },
    )
    assert (tmp_path / "src/new/a.py").read_text() == "one\ntwo\n"


def test_a_file_is_replaced_whole(write: Tool, tmp_path: Path) -> None:
    """failures.md K5"""
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "a.py").chmod(0o750)
    assert write("a.py", "one\n2\nthree") == ToolOutput(
        "Replaced the content of 'a.py': 3 lines, 11 bytes.",
        {
            "path": "a.py",
            "created": False,
            "diff": (
                "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n"
                " one\n-two\n-three\n+2\n+three\n\\ No newline at end of file\n"
            ),
        },
    )
    assert (tmp_path / "a.py").read_text() == "one\n2\nthree"
    assert stat.S_IMODE((tmp_path / "a.py").stat().st_mode) == 0o750


@pytest.mark.parametrize(
    ("content", "data"),
    [
        ("", b""),
        ("\n", b"\n"),
        ("a\r\nb\rc\n", b"a\r\nb\rc\n"),
        ("naïve 🙂", "naïve 🙂".encode()),
        ("\ufeffmark", b"\xef\xbb\xbfmark"),
        ("nul \0 and \x1b", b"nul \0 and \x1b"),
        ("lone \ud83d half", "lone \ufffd half".encode()),
    ],
)
def test_the_text_is_written_as_it_is(write: Tool, tmp_path: Path, content: str, data: bytes) -> None:
    """failures.md K2, K3"""
    write("a.txt", content)
    assert (tmp_path / "a.txt").read_bytes() == data


def test_what_a_model_cannot_see_of_the_old_file_is_told(write: Tool, tmp_path: Path) -> None:
    """failures.md K3"""
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    assert write("a.txt", "one\ntwo\nthree\n").content == (
        "Replaced the content of 'a.txt': 3 lines, 14 bytes. "
        "It had Windows line ends (CRLF) and has line feeds now; edit would have kept them."
    )
    (tmp_path / "b.txt").write_bytes("one".encode("utf-16"))
    assert write("b.txt", "two").content == (
        "Replaced the content of 'b.txt': 1 line, 3 bytes. "
        "It was utf-16-le with a byte order mark and is UTF-8 without one now; edit would have kept it."
    )
    (tmp_path / "c.bin").write_bytes(b"\0\1\2")
    assert write("c.bin", "text") == ToolOutput(
        "Replaced the content of 'c.bin': 1 line, 4 bytes.", {"path": "c.bin", "created": False}
    )


def test_a_link_is_written_through_and_stays(write: Tool, tmp_path: Path) -> None:
    """failures.md K5"""
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link").symlink_to("real.txt")
    (tmp_path / "dangling").symlink_to("new/made.txt")
    assert write("link", "new").details["path"] == "real.txt"
    assert write("dangling", "new").details["path"] == "new/made.txt"
    assert [os.readlink(tmp_path / name) for name in ("link", "dangling")] == ["real.txt", "new/made.txt"]
    assert [(tmp_path / name).read_text() for name in ("real.txt", "new/made.txt")] == ["new", "new"]


def test_a_folder_is_not_written(write: Tool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for path, words in [
        ("folder", "'folder' is a folder, not a file."),
        ("folder/", "'folder/' is a folder, not a file."),
        (".", "'.' is a folder, not a file."),
        ("", "'' is a folder, not a file."),
        ("file/", "'file/' names a folder. Give the path of a file."),
        ("file/x", "'file/x' goes through 'file', which is not a folder."),
        ("new/", "'new/' names a folder. Give the path of a file."),
    ]:
        with pytest.raises(WrongKind) as refused:
            write(path, "x")
        assert str(refused.value) == words
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_file_that_changed_since_it_was_read_is_not_written_over(workspace: Workspace, tmp_path: Path) -> None:
    """failures.md K4"""
    read, write = read_tool(workspace), write_tool(workspace)
    (tmp_path / "a.txt").write_text("one")
    read("a.txt")
    (tmp_path / "a.txt").write_text("somebody else's")
    with pytest.raises(StaleFile, match=r"^'a\.txt' has changed since it was last read here\. Read it again, then"):
        write("a.txt", "two")
    assert (tmp_path / "a.txt").read_text() == "somebody else's"
    read("a.txt")
    write("a.txt", "two")
    write("a.txt", "three")  # its own change it knows
    (tmp_path / "a.txt").write_text("again")
    with pytest.raises(StaleFile):
        write("a.txt", "four")
    (tmp_path / "a.txt").unlink()
    assert write("a.txt", "five").details["created"] is True


def test_a_long_file_that_changed_since_is_not_written_over_either(workspace: Workspace, tmp_path: Path) -> None:
    """failures.md K4"""
    text = "line of a long file\n" * 200_000
    (tmp_path / "a.txt").write_text(text)
    read_tool(workspace)("a.txt", limit=1)
    (tmp_path / "a.txt").write_text(text[:-2] + "x\n")
    with pytest.raises(StaleFile):
        write_tool(workspace)("a.txt", "short")


def test_what_one_conversation_has_read_another_has_not(workspace: Workspace, tmp_path: Path) -> None:
    """failures.md K4: what the other wrote is not lost because this one has read an older content."""
    read, write, edit = read_tool(workspace), write_tool(workspace), edit_tool(workspace)
    (tmp_path / "a.txt").write_text("one")
    read("a.txt", ctx=by("me"))
    write("a.txt", "two", ctx=by("you"))
    for attempt in (
        lambda: write("a.txt", "three", ctx=by("me")),
        lambda: edit("a.txt", [Edit("two", "three")], ctx=by("me")),
    ):
        with pytest.raises(StaleFile):
            attempt()
    read("a.txt", ctx=by("me"))
    write("a.txt", "three", ctx=by("me"))
    with pytest.raises(StaleFile):
        write("a.txt", "four", ctx=by("you"))


def test_a_write_that_was_cancelled_while_it_waited_is_not_made(write: Tool, tmp_path: Path) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(ToolError, match="The write was cancelled"):
        write("a.txt", "new", ctx=ToolContext("1", "write", token))
    assert os.listdir(tmp_path) == []


def test_threads_that_write_one_file_leave_one_of_the_texts(write: Tool, tmp_path: Path) -> None:
    """failures.md K5"""
    texts = [str(number) * 50_000 for number in range(10)]
    threads = [threading.Thread(target=write, args=("new/a.txt", text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "new" / "a.txt").read_text() in texts
    assert os.listdir(tmp_path / "new") == ["a.txt"]


@pytest.mark.real_time
async def test_calls_of_one_turn_on_one_file_run_in_order_and_refusals_are_results(
    workspace: Workspace, tmp_path: Path
) -> None:
    """failures.md K4, L25: what fails is an answer the model can act on, and the run goes on."""
    (tmp_path / "link").symlink_to("a.txt")
    script = ScriptedModel(
        answer(
            call("write", path="a.txt", content="one\n"),
            call("edit", path="link", edits=[{"old": "one", "new": "two"}]),
            call("read", path="./a.txt"),
            call("write", path=".git/hooks/pre-commit", content="x"),
            call("write", path="../outside.txt", content="x"),
            call("write", path="b.txt"),
        ),
        "done",
    )
    tools = [read_tool(workspace), write_tool(workspace), edit_tool(workspace)]
    result = await Agent(script.model, tools=tools).run("Work.")
    results = [message for message in result.messages if message.role == "tool_result"]
    assert [(message.text, message.is_error) for message in results] == [
        ("Created 'a.txt': 1 line, 4 bytes.", False),
        ("Edited 'link': 1 replacement, at line 1.", False),
        ("two", False),
        ("'.git/hooks/pre-commit' is protected by '.git': it can be read but not written.", True),
        (f"'../outside.txt' is outside the workspace {str(tmp_path)!r}. Use a path inside it, relative to it.", True),
        ("Invalid arguments for tool 'write':\narguments.content: missing, a string is required", True),
    ]
    assert result.end_reason == "done"
    assert (write_tool(workspace).name, write_tool(workspace).access) == ("write", "edit")


def test_a_file_in_a_folder_whose_name_is_no_text_is_written_and_the_call_says_so(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/name-\xff"
    os.mkdir(folder)
    os.symlink(folder, tmp_path / "src")
    workspace = Workspace(tmp_path)
    script = ScriptedModel(
        call("write", path="src/new", content="one\n"),
        call("edit", path="src/new", edits=[{"old": "one", "new": "two"}]),
        "Done.",
    )
    agent = Agent(script.model, tools=[write_tool(workspace), edit_tool(workspace)])
    results = agent.run_sync("Write it.").tool_results
    assert [result.text for result in results] == [
        "Created 'src/new': 1 line, 4 bytes.",
        "Edited 'src/new': 1 replacement, at line 1.",
    ]
    assert (tmp_path / "src/new").read_text() == "two\n"
