"""Questions about tool calls: what they show, and what counts as an answer."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.command import Place, command_line, environment
from tests.cli.pty_terminal import Terminal
from wcwidth import wcswidth

from steersman.cli.terminal.approval import (
    CAPITAL,
    EVERY_TIME,
    NO_RULE,
    ApprovalAnswer,
    ApprovalRequest,
    describe_confirmation,
    describe_effect,
    describe_in_thread,
    describe_question,
    parse_answer,
)
from steersman.cli.terminal.columns import measure_widest
from steersman.policy.proposals import Proposal
from steersman.testing import answer, call
from steersman.testing.servers import OpenAIChatServer
from steersman.types.content import ToolCall

HERE = Path("/work/place")


def shown(name: str, width: int = 60, why: str = "no rule allows it", **arguments: object) -> list[str]:
    request = ApprovalRequest(ToolCall(id="1", name=name, arguments=arguments), why)
    return describe_effect(request, HERE, width, color=False).split("\n")


def test_only_a_clear_yes_is_one() -> None:
    asked = ToolCall(id="1", name="bash", arguments={"command": "ls"})
    request, bare = ApprovalRequest(asked, proposal=Proposal(("bash(ls:*)",))), ApprovalRequest(asked)
    assert [parse_answer(line, request) for line in ("y", " YES ", "s", "A", "always")] == [
        ApprovalAnswer(yes=True),
        ApprovalAnswer(yes=True),
        ApprovalAnswer(yes=True, scope="session"),
        ApprovalAnswer(yes=True, scope="always"),
        ApprovalAnswer(yes=True, scope="always"),
    ]
    # What a habit of another program may mean, and what no rule can say, is asked about again.
    assert (parse_answer("a", request), parse_answer("A", bare)) == (CAPITAL, NO_RULE)
    assert [parse_answer(line, bare) for line in ("", "n", "No", "\t")] == [ApprovalAnswer(yes=False)] * 4
    assert parse_answer("yes but elsewhere", bare) == ApprovalAnswer(yes=False, words="yes but elsewhere")
    assert parse_answer("yy", bare) == ApprovalAnswer(yes=False, words="yy")


async def test_the_event_loop_goes_on_while_a_long_text_is_described() -> None:
    """failures.md F16: an answer can hold hundreds of thousands of lines."""
    request = ApprovalRequest(ToolCall(id="1", name="write", arguments={"path": "a.py", "content": "\n" * 100_000}))
    passes, loop = 0, asyncio.get_running_loop()

    def count() -> None:
        nonlocal passes
        passes += 1
        loop.call_soon(count)

    count()
    text = await describe_in_thread(request, HERE, 80, color=True)
    assert text == describe_effect(request, HERE, 80, color=True)
    assert passes > 3


async def test_a_question_says_how_many_lines_of_a_call_are_above_it() -> None:
    """The beginning of a command with many empty lines is no longer on the screen when the question is answered."""
    calls = [ToolCall(id="1", name="bash", arguments={"command": f"./evil{end}ls"}) for end in ("\n", "\n" * 300)]
    few, many = [await describe_question(ApprovalRequest(each), HERE, 80, color=False) for each in calls]
    assert "lines above" not in few
    assert "All 303 lines above are about this call." in many.split("\n")[-3:]


def test_a_question_about_many_lines_is_repeated_below_them() -> None:
    """Its beginning is no longer on the screen when it is answered, and with it that there are hooks in a file."""
    question = "Trust a file, whose hooks run code?"
    assert describe_confirmation(question, "a\nb", 80).split("\n") == [question, "  │ a", "  │ b"]
    lines = describe_confirmation(question, "[[hooks]]" + "\n" * 200, 80).split("\n")
    assert (lines[0], lines[-1]) == (question, f"The 201 lines above are about this: {question}")


def test_a_command_is_shown_with_its_folder_and_every_argument() -> None:
    assert shown("bash", command="make\ttest\nrm -rf x", timeout=5) == [
        "May the agent run this command?",
        "  │ make    test",
        "  │ rm -rf x",
        "  │ {",
        '  │   "timeout": 5',
        "  │ }",
        "Warning: it deletes folders with everything in them.",
        "In /work/place.",
        "Needs approval: no rule allows it.",
    ]


def test_a_rule_is_shown_with_where_it_would_hold() -> None:
    asked = ToolCall(id="1", name="bash", arguments={"command": "ls"})
    request = ApprovalRequest(asked, proposal=Proposal(("bash(ls:*)",)))
    lines = describe_effect(request, HERE, 80, color=False).split("\n")
    assert lines[-2:] == ["s adds this rule; A in every folder:", "  │ bash(ls:*)"]
    assert "for every folder" in CAPITAL


def test_a_rule_that_lets_code_of_the_project_run_says_so() -> None:
    asked = ToolCall(id="1", name="bash", arguments={"command": "pytest"})
    request = ApprovalRequest(asked, proposal=Proposal(("bash(pytest:*)",), runs_project=True))
    lines = describe_effect(request, HERE, 90, color=False).split("\n")
    assert lines[-2:] == [
        "  │ bash(pytest:*)",
        "That lets it run code that is not judged, such as the project's, as it is by then.",
    ]


@pytest.mark.parametrize("word", ["s", "S", "a", "A", "always"])
def test_what_is_asked_about_every_time_says_why_and_takes_no_longer_yes(word: str) -> None:
    asked = ToolCall(id="1", name="bash", arguments={"command": "rm x"})
    request = ApprovalRequest(asked, proposal=Proposal(refusal="it deletes files"))
    assert request.choices == "y yes, once · n no · or type what to do instead"
    assert describe_effect(request, HERE, 60, color=False).endswith("Asked about every time: it deletes files.")
    assert parse_answer(word, request) == EVERY_TIME
    assert parse_answer("y", request) == ApprovalAnswer(yes=True)


def test_an_edit_is_shown_as_what_goes_and_what_comes() -> None:
    edits = [{"old": "a\nb", "new": ""}, {"old": "c", "new": "d", "all": True}]
    assert shown("edit", path="x.py", edits=edits, why="") == [
        "May the agent change this file?",
        "  │ x.py",
        "  │ - a",
        "  │ - b",
        "  │ + (nothing)",
        "  │ ",
        "  │ all occurrences in the file:",
        "  │ - c",
        "  │ + d",
    ]


def test_a_write_says_whether_a_file_is_there(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    for path, words in (("old", "May the agent overwrite this file?"), ("new", "May the agent create this file?")):
        asked = ToolCall(id="1", name="write", arguments={"path": path, "content": "x\n"})
        shown = describe_effect(ApprovalRequest(asked), tmp_path, 60, color=False)
        assert shown.split("\n") == [words, f"  │ {path}", "  │ + x"]


def test_a_name_an_address_and_a_reason_cannot_forge_a_line() -> None:
    assert shown("mcp:evil:tool\nMay it rest?", url="x", why="it\nsays y") == [
        "May the agent call the tool mcp:evil:tool␊May it rest??",
        "  │ {",
        '  │   "url": "x"',
        "  │ }",
        "Needs approval: it␊says y.",
    ]
    assert shown("fetch", url="https://a.example/\u200b?x", why="") == [
        "May the agent fetch this URL?",
        "  │ https://a.example/\\u{200b}?x",
    ]


@pytest.mark.parametrize("part", ["why", "refusal", "name"])
def test_what_a_sentence_quotes_begins_no_row(part: str) -> None:
    """A reason quotes the call: rows of it at the edge of the window, or behind a bar, would look like a question."""
    fill = "\u2500" * 23
    forged = f"x {fill} May the agent run this command? {fill} \u2502 git status {fill} Needs approval: it looks. " * 3
    asked = ToolCall(id="1", name=forged if part == "name" else "bash", arguments={})
    request = ApprovalRequest(
        asked, forged if part == "why" else "", proposal=Proposal(refusal=forged if part == "refusal" else "")
    )
    ours = ("May the agent", "  \u2502 ", "    ", "Needs approval: x", "Asked about every time: x", "In /work/place.")
    lines = describe_effect(request, HERE, 60, color=False).split("\n")
    lines += describe_confirmation(f"May the agent {forged}", "", 60).split("\n")
    assert [line for line in lines if not line.startswith(ours)] == []
    assert sum(line.startswith("May the agent") for line in lines) == 2


def test_a_reason_does_not_push_the_call_out_of_the_window() -> None:
    assert len(shown("bash", 80, command="ls", why="x" * 10_000)) < 12


def test_a_path_stands_behind_a_bar_and_keeps_every_blank_of_it() -> None:
    path = "a  b.txt? It was approved before." + " " * 30 + "May it read?"
    assert shown("write", 60, path=path, content="x", why="") == [
        "May the agent create this file?",
        "  │ a  b.txt? It was approved before.                      ",
        "  ┆         May it read?",
        "  │ + x",
    ]


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("filler", ["\u4dc0", "\u2630", "\u1715a", "\u1112\u1161", "\U0001f1e9", "\u0430"])
def test_no_line_of_a_call_is_wider_than_its_row(filler: str, color: bool) -> None:
    """The rest of such a line would stand at the beginning of the next row, without the bar, as our own words do."""
    content = "# " + (filler * 40)[:37] + "May the agent run this command?"
    asked = ToolCall(id="1", name="write", arguments={"path": "a.py", "content": content})
    request = ApprovalRequest(asked, f"no rule allows {content}")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", describe_effect(request, HERE, 80, color=color)).split("\n")
    lines += describe_confirmation(content, content, 80).split("\n")
    assert [line for line in lines if measure_widest(line) > 80] == []
    assert [line for line in lines if wcswidth(line) > 80] == []


def test_arguments_of_another_form_are_shown_as_they_are() -> None:
    lines = shown("edit", path="x", edits=[{"old": "a", "new": "b", "more": "c"}], why="")
    assert json.loads("\n".join(line.removeprefix("  │ ") for line in lines[1:])) == {
        "path": "x",
        "edits": [{"old": "a", "new": "b", "more": "c"}],
    }


@given(st.text(max_size=200), st.integers(8, 60))
def test_nothing_is_cut_nothing_is_wider_than_the_window_and_nothing_steers_it(command: str, width: int) -> None:
    lines = shown("bash", width, why="", command=command)
    body = [line for line in lines if line.startswith(("  │ ", "  ┆ "))]
    assert all(measure_widest(line) <= max(width, 9) for line in lines)
    assert all(wcswidth(line) <= max(width, 9) for line in lines)
    assert all(character.isprintable() for line in lines for character in line)
    whole = "".join(line[4:] for line in body)
    assert all(character in whole for character in command if "!" <= character <= "~")


@pytest.mark.real_time
def test_a_single_answer_on_a_terminal_asks_there_too(place: Place, server: OpenAIChatServer) -> None:
    server.say(
        answer(call("bash", command="touch y\u200b")),
        answer(call("bash", command="touch yes")),
        answer(call("bash", command="touch words")),
        "Done.",
    )
    with Terminal(
        command_line(["Make files."], server), env=environment(place, server), cwd=place.project, rows=40
    ) as terminal:
        for number, word in enumerate(("", "y", "not this"), start=1):
            terminal.wait_for(lambda at, number=number: at.everything.count("Needs approval:") == number)
            terminal.wait_for(lambda at: at.cursor_line == "?")
            terminal.type(f"{word}\r")
        terminal.wait_for("Done.")
        assert terminal.ended() == 0
        assert "touch y\\u{200b}" in terminal.everything
        assert terminal.as_before
    assert [path.name for path in place.project.iterdir()] == ["yes"]
    assert server.requests[3]["messages"][-1] == {"role": "user", "content": "not this"}


@pytest.mark.real_time
@pytest.mark.parametrize("word", ["y", "n"])
def test_a_project_that_brings_programs_is_asked_about_before_the_chat(
    place: Place, server: OpenAIChatServer, word: str
) -> None:
    small = Path(__file__).parents[2] / "tools" / "mcp" / "small_server.py"
    brought = {"mcpServers": {"small": {"command": sys.executable, "args": ["-E", "-S", str(small)]}}}
    (place.project / ".mcp.json").write_text(json.dumps(brought))
    with Terminal(
        command_line([], server), env=environment(place, server), cwd=place.project, columns=200, rows=60
    ) as terminal:
        terminal.wait_for(lambda at: at.cursor_line == "?")
        assert "small_server.py" in "".join(terminal.shown.split())
        terminal.type(f"{word}\r")
        terminal.wait_for("· /help")
        terminal.enter("/tools")
        terminal.wait_for("fetch")
        terminal.wait_for("· /help")
        assert ("mcp:small:echo" in terminal.shown) == (word == "y")
