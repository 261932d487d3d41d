"""What a person decides in the chat: modes, answers that hold longer than one call, and output that can be seen."""

from __future__ import annotations

import re

import pytest
from tests.cli.chat.kit import SIZES, below, chatting, heard
from tests.cli.command import Place
from tests.cli.pty_terminal import Terminal

from steersman.cli.setup.settings_parser import read_settings
from steersman.testing import answer, call
from steersman.testing.servers import OpenAIChatServer

pytestmark = pytest.mark.real_time


def said(terminal: Terminal, words: str) -> None:
    """Answer the question that is shown, once it takes answers."""
    terminal.wait_for("\n?")
    terminal.type(words)
    terminal.wait_for(f"\n? {words}")
    terminal.press("enter")


def ready(terminal: Terminal, mode: str) -> None:
    """Wait until the chat rests in a mode, which its status line names first."""

    def rests(at: Terminal) -> bool:
        status = [*at.lines, ""][int(at.screen.cursor.y) + 1] if at.cursor_line.startswith("\u276f") else ""
        return status.startswith((f"{mode} · openai", f"{mode} · gpt-x")) and "Esc" not in status

    terminal.wait_for(rests)


def unwrapped(terminal: Terminal) -> str:
    return " ".join(terminal.everything.split())


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_person_sees_what_will_happen_decides_for_how_long_and_sees_what_came_of_it(
    place: Place, server: OpenAIChatServer, columns: int, rows: int
) -> None:
    (place.project / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 13)))
    server.say(
        answer(call("write", path="../out.txt", content="x")),
        answer(call("write", path="a.txt", content="line 1\nline two\n")),
        answer(call("edit", path="a.txt", edits=[{"old": "line 6\n", "new": "six\n"}])),
        answer(call("edit", path="a.txt", edits=[{"old": "nowhere", "new": "x"}])),
        answer(call("bash", command="rm -rf build && git push --force")),
        answer(call("bash", command="seq 1 60")),
        answer(call("bash", command="seq x")),
        answer(call("bash", command="ls a.txt")),
        answer(call("bash", command="touch made")),
        "Done.",
        answer(call("write", path="b.txt", content="x\n"), call("bash", command="touch planned")),
        "Planned.",
    )
    with chatting(place, server, columns=columns, rows=rows, ready="\n\u276f") as terminal:
        ready(terminal, "ask")
        terminal.enter("Go.")
        # What a write would remove is seen before it is gone, with the numbers of its lines.
        terminal.wait_for("\n?")
        assert "May the agent overwrite this file?" in terminal.everything
        # What has to fail has failed before, without a question.
        assert terminal.everything.count("May the agent") == 1
        assert "'../out.txt' is outside the workspace" in unwrapped(terminal)
        shown = "│ a.txt\n  │ @@ -1,12 +1,2 @@\n  │  line 1\n  │ -line 2\n"
        assert shown in terminal.everything
        assert "  │ -line 12\n  │ +line two\n" in terminal.everything
        said(terminal, "n")
        # Another mode answers the question that is open.
        terminal.wait_for("  │ +six")
        terminal.wait_for("\n?")
        terminal.send(b"\x1b[Z")
        terminal.wait_for(lambda at: "deletes folders with everything in them." in unwrapped(at))
        terminal.wait_for(lambda at: "Warning: it replaces commits of the remote repository." in unwrapped(at))
        assert terminal.everything.count("May the agent change this file?") == 1
        assert "the text was not found" in unwrapped(terminal)
        said(terminal, "n")
        # The rule is shown before it is added; then calls of its kind are not asked about.
        terminal.wait_for("  │ bash(seq:*)")
        said(terminal, "s")
        terminal.wait_for("  │ bash(ls:*)")
        assert "You said yes, for this session: bash(seq:*)" in unwrapped(terminal)
        said(terminal, "A")
        # What changes something is asked about every time.
        terminal.wait_for(lambda at: "Asked about every time: 'touch' changes something." in unwrapped(at))
        said(terminal, "y")
        terminal.wait_for(lambda at: "Done." in at.everything)
        ready(terminal, "accept-edits")
        told = terminal.everything
        assert re.search(r"✓ bash  seq 1 60 · exit 0 · [\d.]+ s( · 60 lines)?\n  … 55 lines above", told)
        assert "\n  56\n  57\n  58\n  59\n  60\n" in told
        assert re.search(r"✗ bash  seq x · exit 1 · [\d.]+ s\n  seq: invalid", told)
        assert "\n  55\n" not in told
        terminal.press("ctrl+o")
        terminal.wait_for(lambda at: at.everything.count("✓ bash  touch made") == 2)
        terminal.press("ctrl+o")
        terminal.wait_for(lambda at: "\n  55\n" in at.everything and at.everything.count("✓ bash  touch made") == 3)
        terminal.enter("/mode plan")
        ready(terminal, "plan")
        terminal.enter("And now?")
        terminal.wait_for(lambda at: "Planned." in at.everything)
        ready(terminal, "plan")
        assert max(len(line) for line in terminal.everything.split("\n")) <= columns
    assert (place.project / "a.txt").read_text().split("\n")[4:7] == ["line 5", "six", "line 7"]
    assert sorted(path.name for path in place.project.iterdir()) == ["a.txt", "made", "wait.sh"]
    assert read_settings(place.home / "config" / "steersman" / "config.toml").allow == ("bash(ls:*)",)
    assert "plan mode" in heard(server, 11)[-1][1]


def test_always_holds_in_the_next_chat_and_a_mode_can_be_given(place: Place, server: OpenAIChatServer) -> None:
    for number in (1, 2, 3):
        server.say(answer(call("bash", command=f"seq 5 5 {number * 5}")), f"Done {number}.")
    server.say(answer(call("bash", command="seq 5 5 20"), call("write", path="b.txt", content="x\n")), "Done 4.")
    with chatting(place, server, columns=40, rows=15, ready="\n\u276f") as terminal:
        terminal.enter("Go.")
        terminal.wait_for("  │ bash(seq:*)")
        said(terminal, "A")
        terminal.wait_for("Done 1.")
        terminal.press("ctrl+d")
        terminal.ended()
    with chatting(place, server, "--permission-mode", "accept-edits", columns=120, rows=40) as terminal:
        for number, (columns, rows) in enumerate(SIZES, 2):
            terminal.resize(columns, rows)
            ready(terminal, "accept-edits")
            terminal.enter(f"Go {number}.")
            terminal.wait_for(f"Done {number}.")
            ready(terminal, "accept-edits")
        assert "May the agent" not in terminal.everything
        for columns, rows in SIZES:
            terminal.resize(columns, rows)
            # Shift+Tab never leads to bypass, where a slip would run everything.
            for mode in ("plan", "ask", "accept-edits"):
                terminal.send(b"\x1b[Z")
                ready(terminal, mode)
            terminal.enter("/mode bypas")
            terminal.wait_for(lambda at: "Did you mean 'bypass'?" in below(at, "/mode bypas"))
            terminal.enter("/mode bypass")
            ready(terminal, "bypass")
            terminal.enter("/mode accept-edits")
            ready(terminal, "accept-edits")
    results = [text.split() for role, text in heard(server, 7) if role == "tool"]
    assert results[:3] == [["5", "10"], ["5", "10", "15"], ["5", "10", "15", "20"]]
    assert (place.project / "b.txt").exists()


def test_a_mode_that_is_only_passed_through_answers_no_question(place: Place, server: OpenAIChatServer) -> None:
    """Shift+Tab leads from ask through accept-edits to plan: who wants less has not said yes to the open question."""
    server.say(answer(call("write", path="b.txt", content="x\n")), "Done.")
    with chatting(place, server) as terminal:
        terminal.enter("Go.")
        terminal.wait_for("\n?")
        terminal.send(b"\x1b[Z\x1b[Z")
        terminal.wait_for("Done.")
        ready(terminal, "plan")
    assert not (place.project / "b.txt").exists()
