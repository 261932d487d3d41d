"""Approvals in a chat: the exact effect is shown, only a clear yes is one, and nothing typed before can answer."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import pytest
from tests.cli.chat.kit import READY, chatting, heard
from tests.cli.command import Place
from tests.cli.pty_terminal import Terminal

from steersman.testing import answer, call, text
from steersman.testing.servers import OpenAIChatServer, Received

pytestmark = pytest.mark.real_time

ASKED = "y yes, once"
MARK = "\n?"


def said(terminal: Terminal, words: str) -> None:
    """Answer the question that is shown, once it takes answers."""
    terminal.wait_for(MARK)
    terminal.type(words)
    terminal.wait_for(f"{MARK} {words}")
    terminal.press("enter")


def test_the_command_is_shown_with_what_is_invisible_in_it_and_yes_no_and_words_do_what_they_say(
    place: Place, server: OpenAIChatServer
) -> None:
    sneaky = "touch o\u200bk\u202e; touch two"
    server.say(
        answer(call("bash", command=sneaky)),
        answer(call("bash", command="touch yes")),
        answer(call("bash", command="touch words")),
        "Understood.",
    )
    with chatting(place, server) as terminal:
        terminal.enter("Make files.")
        terminal.wait_for("touch o\\u{200b}k\\u{202e}; touch two")
        terminal.wait_for("Needs approval:")
        assert "May the agent run this command?" in terminal.shown
        assert f"In{place.project}." in "".join(terminal.shown.split())
        said(terminal, "n")
        terminal.wait_for("touch yes")
        said(terminal, "y")
        terminal.wait_for("touch words")
        said(terminal, "no, call it other")
        terminal.wait_for("Understood.")
        terminal.wait_for(READY)
        assert "\u202e".encode() not in terminal.raw
        assert "not approved" not in terminal.everything  # these are words for the model
    assert sorted(path.name for path in place.project.iterdir()) == ["wait.sh", "yes"]
    assert heard(server, 1)[-1][1].startswith("Denied: not approved.")
    assert heard(server, 3)[-1] == ("user", "no, call it other")


def test_a_question_comes_after_all_of_a_long_answer(place: Place, server: OpenAIChatServer) -> None:
    """A long answer is drawn in steps, and the question waits for the last one."""
    long = "".join(f"Paragraph {number} of an answer that is rather long.\n\n" for number in range(2_000))
    server.say(answer(text(long), call("bash", command="touch yes")), "Done.")
    with chatting(place, server) as terminal:
        terminal.enter("Make a file.")
        said(terminal, "y")
        terminal.wait_for("Done.")
        shown = terminal.everything
    assert re.findall(r"Paragraph (\d+) of", shown) == [str(number) for number in range(2_000)]
    assert shown.index("Paragraph 1999 of") < shown.index("May the agent run this command?")


def test_a_command_cannot_leave_its_rows_and_write_a_question_of_its_own(
    place: Place, server: OpenAIChatServer
) -> None:
    """U+4DC0 is double width in terminals that know Unicode 16, and single width for older versions of Python."""
    spoofed = "# " + "\u4dc0" * 37 + "May the agent run this command?"
    server.say(answer(call("bash", command="\n".join(["touch real", *[spoofed.ljust(76)] * 9, "git status"]))), "Fine.")
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for(MARK)
        assert "scroll up to read them" in terminal.shown
        assert re.findall("^May the agent.*$", terminal.everything, re.MULTILINE) == ["May the agent run this command?"]
        assert terminal.everything.count("May the agent") == 10
        said(terminal, "n")
        terminal.wait_for("Fine.")


def test_a_command_without_a_rule_is_asked_about_again_and_a_question_that_is_over_gives_the_line_back(
    place: Place, server: OpenAIChatServer
) -> None:
    same = answer(call("bash", command="touch same\n"))
    server.say(same, same, "Stopped.")
    with chatting(place, server) as terminal:
        terminal.enter("Make files.")
        terminal.wait_for("touch same")
        said(terminal, "s")
        terminal.wait_for("This is asked about every time")
        said(terminal, "y")
        terminal.wait_for(lambda at: at.everything.count("Needs approval:") == 2)
        terminal.wait_for(MARK)
        terminal.press("esc")
        terminal.wait_for("Interrupted")
        terminal.wait_for(READY)
        assert terminal.everything.count(ASKED) == 0
        assert terminal.everything.count("Asked about every time: 'touch' changes something.") == 2
    assert (place.project / "same").exists()
    assert len(server.requests) == 2


def test_what_was_typed_before_the_question_is_no_answer_to_it(place: Place, server: OpenAIChatServer) -> None:
    asked, typed = threading.Event(), threading.Event()

    def when_typed(_: Received) -> object:
        asked.set()
        typed.wait(20)
        return answer(call("bash", command="touch sneaked"))

    server.say(when_typed, "Fine.")  # pyright: ignore[reportArgumentType]
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for("waiting for the model")
        assert asked.wait(20)
        terminal.type("y")
        terminal.wait_for("\n\u276f y")
        typed.set()
        terminal.wait_for(ASKED)
        terminal.type("y")
        terminal.press("enter")
        terminal.wait_for(MARK)
        assert f"{MARK} y" not in terminal.shown
        terminal.press("enter")
        terminal.wait_for("Fine.")
        terminal.wait_for(READY)
        assert "\n\u276f y" in terminal.shown
    assert not (place.project / "sneaked").exists()
    # On a slow machine the first Enter is the denial, and the second one sends the line.
    results = [text for role, text in heard(server, 1) if role == "tool"]
    assert [text.partition(".")[0] for text in results] == ["Denied: not approved"]


def test_a_line_that_waits_for_a_command_of_the_plain_chat_is_no_answer_to_a_question_that_came_meanwhile(
    place: Place, server: OpenAIChatServer
) -> None:
    typed = threading.Event()

    def when_typed(_: Received) -> object:
        typed.wait(20)
        return answer(call("bash", command="touch sneaked"))

    server.say(when_typed, "Fine.")  # pyright: ignore[reportArgumentType]
    os.mkfifo(place.project / "gate")
    slow = "[ -e begun ] || { touch begun; exit 1; }; read line < gate; exit 1"
    config = place.home / "mcp.json"
    started = {"command": "sh", "args": ["-c", slow], "cwd": str(place.project)}
    config.write_text(json.dumps({"mcpServers": {"slow": started}}))
    with chatting(place, server, "--mcp-config", str(config), env={"TERM": "dumb"}, ready="\n>") as terminal:
        terminal.enter("Make a file.")
        terminal.enter("/mcp restart slow")
        with (place.project / "gate").open("w") as gate:  # once the server is there
            terminal.enter("y")
            typed.set()
            terminal.wait_for("May the agent run this command?")
            terminal.wait_for(MARK)
            gate.write("go on\n")
        terminal.wait_for("Error: The MCP server")
        terminal.enter("n")
        terminal.wait_for("Fine.")
    assert not (place.project / "sneaked").exists()
    assert heard(server, 1)[-1][1].startswith("Denied: not approved.")


def test_a_question_does_not_break_into_a_sentence_that_is_being_typed(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("bash", command="touch x")), "Fine.")
    sentence = "yes and no and many more words yes"
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        for length in range(1, len(sentence) + 1):
            terminal.type(sentence[length - 1])
            terminal.wait_for(lambda at, length=length: at.cursor_line == f"\u276f {sentence[:length].rstrip()}")
        terminal.wait_for(MARK)
        terminal.press("enter")
        terminal.wait_for("Fine.")
        terminal.wait_for(lambda at: at.cursor_line == f"\u276f {sentence}")


def test_a_paste_never_says_yes_and_neither_does_a_line_that_comes_in_one_piece(
    place: Place, server: OpenAIChatServer
) -> None:
    server.say(answer(call("bash", command="touch one")), answer(call("bash", command="touch two")), "Fine.")
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for(MARK)
        terminal.paste("y\n")
        terminal.wait_for(f"{MARK} y")
        terminal.press("enter")
        terminal.wait_for("touch two")
        terminal.wait_for(MARK)
        terminal.send(b"y\r")
        terminal.wait_for("The line arrived in one piece.")
        assert not (place.project / "two").exists()
        terminal.press("enter")
        terminal.wait_for("Fine.")
    assert [path.name for path in place.project.iterdir() if path.name != "wait.sh"] == ["two"]
    assert ("user", "y") in heard(server, 1)


def test_everything_is_shown_of_a_long_write_an_edit_and_an_unknown_tool(
    place: Place, server: OpenAIChatServer
) -> None:
    (place.project / "a.txt").write_text("old words\n")
    content = "".join(f"line {number}\n" for number in range(60))
    server.say(
        answer(call("write", path="new.txt", content=content)),
        answer(call("read", path="a.txt")),
        answer(call("edit", path="a.txt", edits=[{"old": "old words", "new": "new words"}])),
        "Done.",
    )
    with chatting(place, server, rows=20) as terminal:
        terminal.enter("Write.")
        terminal.wait_for("All 66 lines are above")
        for number in range(60):
            assert f"  │ +line {number}\n" in terminal.everything
        said(terminal, "y")
        terminal.wait_for("-old words")
        assert "May the agent change this file?\n  │ a.txt\n  │ @@ -1 +1 @@\n" in terminal.shown
        assert "  │ +new words" in terminal.shown
        said(terminal, "y")
        terminal.wait_for("Done.")
    assert (place.project / "a.txt").read_text() == "new words\n"
    assert (place.project / "new.txt").read_text() == content


def test_questions_of_calls_side_by_side_come_one_after_another(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("write", path="a", content="a"), call("write", path="b", content="b")), "Both.")
    with chatting(place, server) as terminal:
        terminal.enter("Write.")
        said(terminal, "y")
        terminal.wait_for(lambda at: at.everything.count("Needs approval:") == 2)
        said(terminal, "n")
        terminal.wait_for("Both.")
    written = [name for name in ("a", "b") if Path(place.project / name).exists()]
    assert len(written) == 1


def test_a_run_that_ends_takes_its_question_with_it(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("bash", command="touch late")), "Next.")
    with chatting(place, server, "--max-duration", "1") as terminal:
        terminal.enter("Begin.")
        terminal.wait_for("touch late")
        terminal.wait_for("Approval is no longer needed.")
        terminal.wait_for("limit")
        terminal.wait_for(READY)
        terminal.enter("And now?")
        terminal.wait_for("Next.")
    assert not (place.project / "late").exists()
