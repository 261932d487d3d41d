"""`edit`: exactly the passages that were meant, and not a byte besides."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import subprocess
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.builtin.changes import (
    MAX_DIFF_LENGTH,
    MAX_EDITS,
    MAX_REPLACEMENTS,
    Change,
    Edit,
    Swap,
    apply_changes,
    build_swaps,
    compare_lines,
    format_diff,
    split_lines,
)
from steersman.tools.builtin.edit_tool import edit_tool
from steersman.tools.builtin.encoding import TextFile
from steersman.tools.builtin.read_tool import read_tool
from steersman.tools.builtin.write_tool import write_tool
from steersman.tools.confine.workspace import MissingPath, StaleFile, TooLarge, Workspace
from steersman.tools.output import ToolContext
from steersman.tools.schema.validation import InvalidArguments
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

POEM = "roses are red\nviolets are blue\nsugar is sweet\nand so are you\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "poem.txt").write_text(POEM)
    return Workspace(tmp_path)


@pytest.fixture
def edit(workspace: Workspace) -> Tool:
    return edit_tool(workspace)


def by(who: str) -> ToolContext:
    """A call from a conversation of its own."""
    return ToolContext("1", "edit", CancelToken(), idempotency_key=f"{who}:1")


def refusal_of(edit: Tool, path: str, *edits: Edit) -> str:
    with pytest.raises(ToolError) as refused:
        edit(path, list(edits))
    return str(refused.value)


def test_one_passage_is_replaced_and_the_diff_is_in_the_details(edit: Tool, tmp_path: Path) -> None:
    assert edit("poem.txt", [Edit("violets are blue", "violets are violet")]) == ToolOutput(
        "Edited 'poem.txt': 1 replacement, at line 2.",
        {
            "path": "poem.txt",
            "replacements": 1,
            "diff": (
                "--- a/poem.txt\n+++ b/poem.txt\n@@ -1,4 +1,4 @@\n roses are red\n-violets are blue\n"
                "+violets are violet\n sugar is sweet\n and so are you\n"
            ),
        },
    )
    assert (tmp_path / "poem.txt").read_text() == POEM.replace("blue", "violet")


def test_several_edits_are_made_at_once_each_against_the_file_as_it_was(edit: Tool, tmp_path: Path) -> None:
    """failures.md K7: what one edit puts in, another does not find."""
    output = edit("poem.txt", [Edit("sugar", "red"), Edit("red", "sugar"), Edit("so are you", "so is red")])
    assert output.content == "Edited 'poem.txt': 3 replacements, at lines 1, 3, 4."
    assert (tmp_path / "poem.txt").read_text() == "roses are sugar\nviolets are blue\nred is sweet\nand so is red\n"


def test_all_edits_are_made_or_none_and_every_problem_is_told(edit: Tool, tmp_path: Path) -> None:
    """failures.md K7"""
    told = refusal_of(
        edit, "poem.txt", Edit("sugar", "salt"), Edit("are", "is"), Edit("tulips", "x"), Edit("", "x"), Edit("so", "so")
    )
    assert told.splitlines() == [
        "'poem.txt' was not edited.",
        "edits[1]: the text was found 3 times, at lines 1, 2, 4. Give more of the lines around it, "
        "so that it is there only once, or set all to true.",
        "edits[2]: the text was not found. Read the file and copy the text exactly.",
        "edits[3]: 'old' is empty. Give a text that is in the file; to make a file or replace all of it, use write.",
        "edits[4]: 'old' and 'new' are the same, so there is nothing to change.",
    ]
    assert (tmp_path / "poem.txt").read_text() == POEM


def test_every_occurrence_is_replaced_when_all_are_meant(edit: Tool, tmp_path: Path) -> None:
    output = edit("poem.txt", [Edit("are", "were", all=True)])
    assert output.content == "Edited 'poem.txt': 3 replacements, at lines 1, 2, 4."
    assert (tmp_path / "poem.txt").read_text() == POEM.replace("are", "were")
    (tmp_path / "many.txt").write_text("x\n" * 1_000)
    assert edit("many.txt", [Edit("x", "y", all=True)]).content == (
        "Edited 'many.txt': 1000 replacements, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more."
    )
    assert (tmp_path / "many.txt").read_text() == "y\n" * 1_000


def test_edits_that_overlap_are_refused(edit: Tool, tmp_path: Path) -> None:
    """failures.md K7"""
    told = refusal_of(edit, "poem.txt", Edit("red\nviolets", "x"), Edit("violets are", "y"))
    assert told == "'poem.txt' was not edited.\nedits[0] and edits[1] overlap at line 2. Make them one edit."
    told = refusal_of(edit, "poem.txt", Edit("blue", "x"), Edit("blue", "x"))
    assert told.endswith("edits[0] and edits[1] overlap at line 2. Make them one edit.")
    assert (tmp_path / "poem.txt").read_text() == POEM
    edit("poem.txt", [Edit("red\n", "dead\n"), Edit("violets", "tulips")])  # side by side is no overlap
    assert (tmp_path / "poem.txt").read_text() == POEM.replace("red", "dead").replace("violets", "tulips")


def test_a_text_that_overlaps_itself_is_there_more_than_once(edit: Tool, tmp_path: Path) -> None:
    """failures.md K7"""
    (tmp_path / "a.txt").write_text("aaa\n" + "b\n" * 50)
    assert "found 2 times, at line 1." in refusal_of(edit, "a.txt", Edit("aa", "x"))
    assert "found more than 10 times, at lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and more." in refusal_of(
        edit, "a.txt", Edit("b", "x")
    )
    edit("a.txt", [Edit("aa", "x", all=True)])
    assert (tmp_path / "a.txt").read_text().startswith("xa\n")


@pytest.mark.parametrize(
    ("content", "old", "hint"),
    [
        ("def f():\n\treturn 1\n", "def f():\n    return 1", "At line 1 is a text that differs only in white space"),
        ("a = 'x'\n", "a = \u2018x\u2019", "At line 1 is a text that differs only in white space, case or quotes"),
        ("one\nTwo Three\n", "two three", "At line 2 is a text that differs only in white space, case or quotes: 'Two"),
        ("last line", "last line\n", "At line 1 is a text that differs only in white space"),
        ("x\n\nresult = compute(a)\n", "result = compute(b)", "The nearest line is 3: 'result = compute(a)'."),
        ("done already\n", "nothing like that", "The new text is already there, at line 1"),
        ("caf\udce9\n", "caf\ufffd", "stands for bytes that are not text. Choose a passage without them."),
        ("aaa\n", "zzz", "Read the file and copy the text exactly."),
    ],
)
def test_a_text_that_is_not_there_is_answered_with_what_may_have_been_meant(
    edit: Tool, tmp_path: Path, content: str, old: str, hint: str
) -> None:
    """failures.md K7"""
    (tmp_path / "a.txt").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert hint in refusal_of(edit, "a.txt", Edit(old, "done already"))


def test_hints_and_diffs_of_texts_that_repeat_themselves_take_no_time(edit: Tool, tmp_path: Path) -> None:
    """failures.md F16: the first of these would hold up all threads for minutes, the others one of them."""
    (tmp_path / "a.txt").write_text("0 " * 100_000)
    assert "was not found" in refusal_of(edit, "a.txt", Edit("0  " * 3_000 + "1", "x"))
    (tmp_path / "b.txt").write_text("\n".join(["a" * (100 + number % 90) + str(number) for number in range(300)]))
    refused = refusal_of(edit, "b.txt", *[Edit("ab" * 99, "x")] * 50)
    assert refused.count("was not found.") == 50
    assert refused.count("was not found. ") == 3
    assert len(compare_lines(["a\n"] * 2_000, ["a\n", "x\n"] * 1_000)) == 1


@pytest.mark.parametrize("special", [".", ".*", "(", "[a]", "\\1", "\\n", "^", "$", "{0}", "%s", "&"])
def test_no_character_means_anything_but_itself(edit: Tool, tmp_path: Path, special: str) -> None:
    """failures.md K7: regular expressions are not meant."""
    (tmp_path / "a.txt").write_text(f"one {special} two\nanother line\n")
    edit("a.txt", [Edit(f"one {special}", f"{special}{special}")])
    assert (tmp_path / "a.txt").read_text() == f"{special}{special} two\nanother line\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "a\nx\ny", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\n", "", b"a\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny\r\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\rb\rc\r", "b\nc", "b\nx\nc", b"a\rb\rx\rc\r"),
        (b"a\r\nb\nc\rd", "a\nb", "a\nx\nb", b"a\r\nx\nb\nc\rd"),
        (b"a\r\nb\nc\rd", "c\nd", "c\ne\nd", b"a\r\nb\nc\re\rd"),
        (b"a\r\nb\nc\rd", "b", "b\nx", b"a\r\nb\nx\nc\rd"),
        (b"a\r\nb\nc\nd\r\n", "a\nb\nc\nd", "A\nb\nc\nD", b"A\r\nb\nc\nD\r\n"),
        (b"a\r\r\nb\r\n", "a\n\nb", "a\n\nc", b"a\r\r\nc\r\n"),
        (b"a\r\r\nb\r\n", "b", "c", b"a\r\r\nc\r\n"),
        (b"one line", "line", "line\nmore", b"one line\nmore"),
        (b"a\r\nb", "b", "b\nc", b"a\r\nb\r\nc"),
        (b"a\rb", "b", "b\nc", b"a\rb\rc"),
        (b"a\nb\n", "b\n", "b", b"a\nb"),
        (b"a\nb", "b", "b\n", b"a\nb\n"),
        (b"\xef\xbb\xbfa\r\nb\r\n", "a", "x", b"\xef\xbb\xbfx\r\nb\r\n"),
        (b"\xef\xbb\xbfa\r\nb\r\n", "a\nb", "\u00e9\nb", b"\xef\xbb\xbf\xc3\xa9\r\nb\r\n"),
        ("\ufeffa\r\n🙂\r\n".encode("utf-16-le"), "a\n", "é\nx\n", "\ufeffé\r\nx\r\n🙂\r\n".encode("utf-16-le")),
        ("\ufeffa\nb".encode("utf-16-be"), "b", "ß", "\ufeffa\nß".encode("utf-16-be")),
        ("\ufeffa\nb".encode("utf-32-le"), "b", "ß", "\ufeffa\nß".encode("utf-32-le")),
        (b"\xff\xfea\x00\x00\xd8b\x00", "b", "c", b"\xff\xfea\x00\x00\xd8c\x00"),
        (b"caf\xe9\r\nold\r\n\x93quoted\x94\r\n", "old", "new", b"caf\xe9\r\nnew\r\n\x93quoted\x94\r\n"),
        (b"caf\xe9\nold \xff\n", "old", "new\nand", b"caf\xe9\nnew\nand \xff\n"),
        (b"x" * 9_000 + b"\x00\nold\n", "old", "new", b"x" * 9_000 + b"\x00\nnew\n"),
        (b"e\xcc\x81 \xc3\xa9\n", "\u00e9", "e", b"e\xcc\x81 e\n"),
        (b"page\x0cfeed\x1cold\n", "old", "new", b"page\x0cfeed\x1cnew\n"),
    ],
)
def test_every_byte_outside_the_passage_is_kept(
    edit: Tool, tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    """failures.md K3: line ends, byte order marks, bytes of other encodings, mixed and doubled ends."""
    (tmp_path / "a.txt").write_bytes(before)
    edit("a.txt", [Edit(old, new)])
    assert (tmp_path / "a.txt").read_bytes() == after


def test_what_cannot_be_written_in_the_encoding_of_the_file_is_refused(edit: Tool, tmp_path: Path) -> None:
    """failures.md K3: it is not known which bytes an é should be among bytes that are no UTF-8."""
    (tmp_path / "a.txt").write_bytes(b"caf\xe9\nold\n")
    assert "so only ASCII characters can be put into it" in refusal_of(edit, "a.txt", Edit("old", "né"))
    (tmp_path / "b.bin").write_bytes(b"\x00\x01old")
    assert "is not text in UTF-8 or UTF-16" in refusal_of(edit, "b.bin", Edit("old", "new"))
    (tmp_path / "c.txt").write_bytes(b"\xff\xfeo\x00l")
    assert "says it is utf-16-le and is not" in refusal_of(edit, "c.txt", Edit("o", "new"))
    assert [(tmp_path / name).read_bytes() for name in ("a.txt", "b.bin", "c.txt")] == [
        b"caf\xe9\nold\n",
        b"\x00\x01old",
        b"\xff\xfeo\x00l",
    ]


def test_a_file_that_is_missing_a_folder_or_too_large_is_told(edit: Tool, tmp_path: Path) -> None:
    with pytest.raises(
        MissingPath, match=r"^'poem' does not exist\. Similar .* 'poem\.txt'\. To make a new file, use write"
    ):
        edit("poem", [Edit("a", "b")])
    (tmp_path / "folder").mkdir()
    assert refusal_of(edit, "folder", Edit("a", "b")) == "'folder' is a folder, not a file."
    with (tmp_path / "large").open("wb") as file:
        file.truncate(20_000_000)
    with pytest.raises(TooLarge, match=r"is too large: more than 16,777,216 bytes\. Change it with a program"):
        edit("large", [Edit("a", "b")])


@pytest.mark.parametrize(
    "edits", [[], [{"old": "a"}], [{"old": "a", "new": 3}], "x", [{"old": "a", "new": "b", "x": 1}]]
)
def test_wrong_arguments_are_refused(edit: Tool, edits: Any) -> None:
    with pytest.raises(InvalidArguments):
        edit.check({"path": "poem.txt", "edits": edits})


def test_a_file_that_changed_since_it_was_read_is_not_edited(workspace: Workspace, tmp_path: Path) -> None:
    """failures.md K4"""
    read, edit = read_tool(workspace), edit_tool(workspace)
    read("poem.txt")
    (tmp_path / "poem.txt").write_text(POEM.replace("sweet", "sour"))
    with pytest.raises(StaleFile, match=r"^'poem\.txt' has changed since it was last read here\. Read it again, then"):
        edit("poem.txt", [Edit("blue", "green")])
    assert (tmp_path / "poem.txt").read_text() == POEM.replace("sweet", "sour")
    read("poem.txt")
    edit("poem.txt", [Edit("blue", "green")])
    edit("poem.txt", [Edit("green", "grey")])  # its own changes it knows
    (tmp_path / "poem.txt").write_text(POEM)
    with pytest.raises(StaleFile):
        edit("poem.txt", [Edit("blue", "green")])


def test_a_file_rewritten_with_the_same_content_is_not_stale(workspace: Workspace, tmp_path: Path) -> None:
    """failures.md K4: what counts is the content, not the time."""
    read_tool(workspace)("poem.txt", limit=1)
    (tmp_path / "poem.txt").write_text(POEM)
    os.utime(tmp_path / "poem.txt", (1, 1))
    edit_tool(workspace)("poem.txt", [Edit("blue", "green")])


def test_a_stale_file_is_noticed_through_every_name_of_it(workspace: Workspace, tmp_path: Path) -> None:
    """failures.md K4"""
    (tmp_path / "link").symlink_to("poem.txt")
    read_tool(workspace)("link")
    (tmp_path / "poem.txt").write_text("changed")
    with pytest.raises(StaleFile):
        edit_tool(workspace)(f"{tmp_path}/poem.txt", [Edit("changed", "x")])


def test_what_another_conversation_edited_here_can_be_edited_on_and_not_written_over(
    workspace: Workspace, tmp_path: Path
) -> None:
    """failures.md K4: an edit says itself what it replaces; a write would lose what the other did."""
    read, edit, write = read_tool(workspace), edit_tool(workspace), write_tool(workspace)
    read("poem.txt", ctx=by("me"))
    edit("poem.txt", [Edit("blue", "green")], ctx=by("you"))
    with pytest.raises(StaleFile):
        write("poem.txt", "mine", ctx=by("me"))
    edit("poem.txt", [Edit("sweet", "sour")], ctx=by("me"))
    assert (tmp_path / "poem.txt").read_text() == POEM.replace("blue", "green").replace("sweet", "sour")
    with pytest.raises(StaleFile):
        write("poem.txt", "yours", ctx=by("you"))
    write("poem.txt", "mine", ctx=by("me"))


def test_an_edit_that_was_cancelled_while_it_waited_is_not_made(workspace: Workspace, tmp_path: Path) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(ToolError, match="The edit was cancelled"):
        edit_tool(workspace)("poem.txt", [Edit("red", "x")], ctx=ToolContext("1", "edit", token))
    assert (tmp_path / "poem.txt").read_text() == POEM


def test_a_hard_link_is_told_and_the_other_name_keeps_the_old_content(edit: Tool, tmp_path: Path) -> None:
    """failures.md L3"""
    os.link(tmp_path / "poem.txt", tmp_path / "other")
    output = edit("poem.txt", [Edit("red", "dead")])
    assert output.content == (
        "Edited 'poem.txt': 1 replacement, at line 1. "
        "The file had 1 more names (hard links), which keep the old content."
    )
    assert (tmp_path / "other").read_text() == POEM


SPELLINGS = [
    "poem.txt",
    "./poem.txt",
    "sub/../poem.txt",
    "link",
    "sub/back",
    "chain",
    "{ws}/poem.txt",
    "sub//..//poem.txt",
]


def spellings(root: Path) -> list[str]:
    (root / "sub").mkdir()
    (root / "link").symlink_to("poem.txt")
    (root / "chain").symlink_to("link")
    (root / "sub" / "back").symlink_to(root / "poem.txt")
    return [spelling.format(ws=root) for spelling in SPELLINGS]


def test_every_spelling_of_a_file_has_the_same_key(edit: Tool, tmp_path: Path) -> None:
    """failures.md K4: calls with a key in common run one after another."""
    os.link(tmp_path / "poem.txt", tmp_path / "hard")
    assert edit.keys is not None
    keys = [set(edit.keys({"path": path})) for path in [*spellings(tmp_path), "hard"]]
    assert keys[0].intersection(*keys[1:]) != set()
    for name in ("new/file.txt", "sub/../new/file.txt", "sub/../sub/../new/./file.txt"):
        assert set(edit.keys({"path": name})) & set(edit.keys({"path": "new/file.txt"}))
    assert set(edit.keys({"path": "poem.txt"})).isdisjoint(edit.keys({"path": "sub/poem.txt"}))
    assert list(edit.keys({"path": "../outside"})) == ["path:../outside"]
    assert (edit.name, edit.access, edit.sequential) == ("edit", "edit", False)


@pytest.mark.real_time
async def test_twenty_parallel_edits_of_one_file_are_all_there(edit: Tool, tmp_path: Path) -> None:
    """failures.md K4: one turn, twenty calls, every spelling of the path."""
    (tmp_path / "poem.txt").write_text("".join(f"line {number:02}\n" for number in range(20)))
    paths = spellings(tmp_path)
    calls = [
        call(
            "edit", path=paths[number % len(paths)], edits=[{"old": f"line {number:02}", "new": f"edited {number:02}"}]
        )
        for number in range(20)
    ]
    result = await Agent(ScriptedModel(answer(*calls), "done").model, tools=[edit]).run("Edit.")
    results = [message for message in result.messages if message.role == "tool_result"]
    assert [message.is_error for message in results] == [False] * 20
    assert (tmp_path / "poem.txt").read_text() == "".join(f"edited {number:02}\n" for number in range(20))
    assert sorted(os.listdir(tmp_path)) == ["chain", "link", "poem.txt", "sub"]


@pytest.mark.real_time
async def test_two_agents_on_one_workspace_lose_nothing(workspace: Workspace, tmp_path: Path) -> None:
    """failures.md K4: the keys are those of one run; the lock is for all."""
    (tmp_path / "poem.txt").write_text("".join(f"line {number:02}\n" for number in range(40)))
    link = tmp_path / "link"
    link.symlink_to("poem.txt")

    def agent(first: int, path: str) -> Agent:
        calls = [
            call("edit", path=path, edits=[{"old": f"line {number:02}", "new": f"edited {number:02}"}])
            for number in range(first, 40, 2)
        ]
        return Agent(ScriptedModel(answer(*calls), "done").model, tools=[edit_tool(workspace)])

    async with asyncio.TaskGroup() as group:
        group.create_task(agent(0, "poem.txt").run("Edit."))
        group.create_task(agent(1, "link").run("Edit."))
    assert (tmp_path / "poem.txt").read_text() == "".join(f"edited {number:02}\n" for number in range(40))


def test_twenty_threads_with_workspaces_of_their_own_lose_nothing(tmp_path: Path) -> None:
    """failures.md K4"""
    (tmp_path / "poem.txt").write_text("".join(f"line {number:02}\n" for number in range(20)))

    def work(number: int) -> None:
        edit_tool(Workspace(tmp_path))("poem.txt", [Edit(f"line {number:02}", f"edited {number:02}")])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "poem.txt").read_text() == "".join(f"edited {number:02}\n" for number in range(20))


def test_twenty_edits_through_two_hard_links_are_each_in_the_file_they_were_made_in(edit: Tool, tmp_path: Path) -> None:
    """failures.md K4, L3: the first edit parts the two names, and from then on they are two files."""
    lines = "".join(f"line {number:02}\n" for number in range(20))
    (tmp_path / "poem.txt").write_text(lines)
    os.link(tmp_path / "poem.txt", tmp_path / "hard")

    def work(number: int) -> None:
        edit("hard" if number % 2 else "poem.txt", [Edit(f"line {number:02}", f"edited {number:02}")])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, odd in (("poem.txt", 0), ("hard", 1)):
        wanted = "".join(f"{'edited' if number % 2 == odd else 'line'} {number:02}\n" for number in range(20))
        assert (tmp_path / name).read_text() == wanted


@pytest.mark.parametrize(
    ("raw", "old", "new"),
    [
        ("<0>\n<1>\r<2>\n<3>\n", "<0>\n<1>\n<2>\n<3>", "\n\n\n"),
        ("a\rb\r\n", "b", "\n"),
        ("a\r<x>\nb\n", "<x>", "\nx"),
        ("a\n<x>\nb\rc\r", "<x>\nb", "x\n"),
    ],
)
def test_no_line_end_is_lost_where_kinds_meet(tmp_path: Path, raw: str, old: str, new: str) -> None:
    """A CR that comes to stand before a LF would be one line end instead of two."""
    (tmp_path / "a.txt").write_bytes(raw.encode())
    edit_tool(Workspace(tmp_path))("a.txt", [Edit(old, new)])
    found = (tmp_path / "a.txt").read_bytes().decode()
    assert re.sub("\r\n|\r", "\n", found) == re.sub("\r\n|\r", "\n", raw).replace(old, new)


ENDS = st.sampled_from(["\n", "\r\n", "\r", " ", "\u2028"])
MARKS = st.sampled_from([("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe")])


@given(st.lists(ENDS, min_size=1, max_size=12), st.data(), st.text("xé\n", max_size=6), MARKS)
def test_an_edit_of_any_text_changes_the_passage_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, ends: list[str], data: st.DataObject, new: str, mark: tuple[str, bytes]
) -> None:
    """failures.md K3: what is before and after the passage is the same bytes."""
    folder = tmp_path_factory.mktemp("edit")
    pieces = [f"<{number}>{end}" for number, end in enumerate(ends)]
    first = data.draw(st.integers(0, len(pieces) - 1))
    last = data.draw(st.integers(first, len(pieces) - 1))
    before, after = "".join(pieces[:first]), ends[last] + "".join(pieces[last + 1 :])
    passage = "".join(pieces[first : last + 1]).removesuffix(ends[last])
    codec, start = mark
    (folder / "a.txt").write_bytes(start + (before + passage + after).encode(codec))
    edit_tool(Workspace(folder))("a.txt", [Edit(re.sub("\r\n|\r", "\n", passage), new)])
    whole = (folder / "a.txt").read_bytes()
    assert whole.startswith(start + before.encode(codec))
    assert whole.endswith(after.encode(codec))
    middle = whole[len(start) :].decode(codec)[len(before) : -len(after)]
    assert re.sub("\r\n|\r", "\n", middle) == new


LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=14).map("\n".join)


@given(LINES, LINES)
def test_a_diff_makes_one_text_of_the_other(before: str, after: str) -> None:
    lines = split_lines(before)
    assert "".join(lines) == before
    made = format_diff("a.txt", lines, compare_lines(lines, split_lines(after)))
    assert apply(before, made) == after
    assert (made == "") is (before == after)


@given(LINES.filter(bool), st.data())
def test_a_diff_of_changes_makes_the_changed_text(before: str, data: st.DataObject) -> None:
    borders = sorted(data.draw(st.sets(st.integers(0, len(before)), min_size=2, max_size=8)))
    changes = [
        Change(start, end, data.draw(st.text("xa\n", max_size=4)), 0)
        for start, end in zip(borders[::2], borders[1::2], strict=False)
    ]
    lines = split_lines(before)
    made = format_diff("a.txt", lines, build_swaps(before, lines, changes))
    assert apply(before, made) == apply_changes(before, changes)


HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
UNENDED = "\n\\ No newline at end of file\n"


def apply(before: str, made: str) -> str:
    """The text with a diff applied to it, and the diff held to its own numbers."""
    lines, result, place = split_lines(before), list[str](), 0
    _, *parts = HUNK.split(made)
    while parts:
        old_start, old_count, new_start, new_count = (int(number or 1) for number in parts[:4])
        marked = [line.removesuffix("\0\n") for line in split_lines(parts[4].replace(UNENDED, "\0\n"))]
        old = [line[1:] for line in marked if line[0] in " -"]
        new = [line[1:] for line in marked if line[0] in " +"]
        start = old_start - 1 if old_count else old_start
        assert (len(old), len(new), lines[start : start + len(old)]) == (old_count, new_count, old)
        result += lines[place:start]
        assert len(result) == (new_start - 1 if new_count else new_start)
        result += new
        place = start + len(old)
        parts = parts[5:]
    return "".join(result + lines[place:])


def test_the_diff_is_one_that_git_applies(edit: Tool, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(1, 60)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    edits = [Edit("line 3\n", "line three\nand a half\n"), Edit("line 5\n", ""), Edit("line 59", "last line\n")]
    made = edit("a.txt", edits).details["diff"]
    after = (tmp_path / "a.txt").read_text()
    (tmp_path / "a.txt").write_text("\n".join(lines))
    subprocess.run(["git", "apply", "-"], input=made, cwd=tmp_path, text=True, timeout=60, check=True)
    assert (tmp_path / "a.txt").read_text() == after
    same = difflib.unified_diff(split_lines("\n".join(lines)), split_lines(after), "a/a.txt", "b/a.txt")
    assert made.replace("\\ No newline at end of file\n", "") == "".join(
        line if line.endswith("\n") else f"{line}\n" for line in same
    )


def test_a_diff_is_cut_and_a_name_cannot_forge_it(workspace: Workspace, tmp_path: Path) -> None:
    """failures.md L23"""
    name = "a\n+++ forged"
    (tmp_path / name).write_text("x\n" * 50_000)
    made = edit_tool(workspace)(name, [Edit("x", "y", all=True)]).details["diff"]
    assert made.startswith(
        "--- 'a\\n+++ forged'\n+++ b/" if False else "--- a/'a\\n+++ forged'\n+++ b/'a\\n+++ forged'\n"
    )
    assert len(made) < MAX_DIFF_LENGTH + 200
    assert made.endswith("[... the rest of the diff is left out ...]\n")


def test_an_edit_that_would_make_a_file_too_large_is_refused_before_it_is_built(edit: Tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 50_000)
    huge = Edit("a", "b" * 1_000, all=True)
    for attempt in (lambda: edit("a.txt", [huge]), lambda: edit.preview and edit.preview(preview_of(huge), None)):
        tracemalloc.start()
        with pytest.raises(TooLarge, match="it would have 50,000,000 characters"):
            attempt()
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
        tracemalloc.stop()
    assert (tmp_path / "a.txt").read_text() == "a" * 50_000


def preview_of(edit: Edit) -> dict[str, Any]:
    return {"path": "a.txt", "edits": [{"old": edit.old, "new": edit.new, "all": edit.all}]}


def test_an_edit_replaces_a_bounded_number_of_passages(edit: Tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab" * (MAX_REPLACEMENTS // 2) + "c")
    refusal = refusal_of(edit, "a.txt", Edit("a", "x", all=True), Edit("b", "x", all=True), Edit("c", "x"))
    assert refusal.endswith("They replace more than 100,000 passages. Use a program, such as sed.")
    assert "Edited" in str(edit("a.txt", [Edit("a", "x", all=True), Edit("b", "x", all=True)]).content)


def test_finding_a_far_line_end_again_and_again_takes_no_longer_than_a_near_one() -> None:
    size = 40_000

    def measure(page: TextFile) -> float:
        begun = time.thread_time()
        assert {page.find_line_end(place) for place in range(size)} == {"\n"}
        return time.thread_time() - begun

    near = measure(TextFile("a\n" * (size // 2)))
    for text in ("a" * size + "\n", "\n" + "a" * size, "a" * size):
        assert measure(TextFile(text)) < 10 * near + 0.05


@given(st.text("a\r\n", max_size=30), st.lists(st.integers(0, 29), max_size=10))
def test_the_line_end_of_a_place_depends_on_nothing_asked_before(text: str, places: list[int]) -> None:
    page = TextFile(text)
    for place in places:
        assert page.find_line_end(place) == TextFile(text).find_line_end(place)


def test_texts_whose_comparison_would_take_long_are_shown_as_replaced() -> None:
    """Each of the passages between two that match would be searched for all the lines that occur often."""

    def build(other: str) -> list[str]:
        few = [line for number in range(560) for line in (f"{number}\n", f"{other}{number}\n")]
        return [f"{other}\n", *few, *[line for number in range(430) for line in ("x\n", f"{other}x{number}\n")]]

    start = time.process_time()
    assert compare_lines(build("old"), build("new")) == [Swap(0, 1981, build("new"))]
    assert time.process_time() - start < 5


def test_an_edit_has_a_bounded_number_of_passages_to_look_for(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("x" * 1_000_000)
    edits = [Edit(f"y{number}", "z") for number in range(MAX_EDITS + 1)]
    start = time.process_time()
    with pytest.raises(ToolError, match="more than 1,000 edits"):
        edit_tool(workspace)("long.txt", edits)
    assert time.process_time() - start < 2
