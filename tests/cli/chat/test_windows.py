"""Windows of every kind: narrow ones, ones that change, ones without colours, and ones that cannot be drawn on."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest
from tests.cli.chat.kit import READY, SIZES, WAITING, below, chatting, go, heard
from tests.cli.command import MODEL, Place, environment
from tests.cli.pty_terminal import Terminal

import steersman
from steersman.testing import answer, call
from steersman.testing.servers import OpenAIChatServer

pytestmark = pytest.mark.real_time

PASTES_UNMARKED = b"\x1b[?2004l"

MARKDOWN = """# A heading that is longer than forty columns are wide

- 漢字の長い項目がここにあります、幅は二倍です、折り返しが必要です
- `code` and **bold** and averyveryverylongwordthatdoesnotfitintofortycolumnsatall

```python
print("a line of code that is also longer than forty columns", 1, 2, 3)
```

| a | table |
|---|-------|
| with | cells that are wide enough to need more than forty columns |
"""


CODE = "```python\ndef greet():\n    return 'hello'\n```"


def test_the_help_is_a_table_where_there_is_room_and_a_list_where_there_is_little(
    place: Place, server: OpenAIChatServer
) -> None:
    with chatting(place, server, columns=120, rows=40) as terminal:
        terminal.enter("/help")
        terminal.wait_for("Ctrl-D                  quit")
        terminal.resize(80, 24)
        terminal.enter("/help")
        terminal.wait_for(f"of the last tool call; again: of all\n{' ' * 24}calls of the run\n")
        terminal.resize(40, 15)
        terminal.enter("/help")
        terminal.wait_for("!command\n    run a command yourself; the model\n    reads its output.")
        terminal.wait_for("Ctrl-D\n    quit\n")
        wrong = "✗ No command /hlep. Did you mean 'help'? /help lists the commands; // sends a slash."
        for columns, rows in SIZES:
            terminal.resize(columns, rows)
            terminal.enter("/hlep")
            terminal.wait_for(lambda at: wrong in below(at, "\u276f /hlep\n"))


@pytest.mark.parametrize(("columns", "rows"), [(40, 12), (20, 10)])
def test_a_narrow_window_does_not_break(place: Place, server: OpenAIChatServer, columns: int, rows: int) -> None:
    server.say(answer(call("bash", command=f"echo {'long ' * 30}; touch x")), MARKDOWN)
    with chatting(place, server, columns=columns, rows=rows, ready="\n\u276f") as terminal:
        terminal.type("漢字 and words 漢字 and words 漢字")
        terminal.wait_for("漢")
        terminal.press("enter")
        terminal.wait_for("\n?")
        terminal.type("y")
        terminal.wait_for("\n? y")
        terminal.press("enter")
        terminal.wait_for(lambda at: "enough" in at.everything)
        # A narrow line has no room for the provider.
        terminal.wait_for(
            lambda at: at.cursor_line == "\u276f" and "ask · gpt-x" in at.shown and "Esc" not in at.lines[-1]
        )
        # The input line is there, with the state right below it, and nothing below that.
        at = int(terminal.screen.cursor.y)
        assert terminal.cursor_line == "\u276f"
        assert terminal.lines[at + 1] == ("ask · gpt-x · 0% full · /help" if columns == 40 else "ask · gpt-x")
        assert "".join(terminal.lines[at + 2 :]) == ""
        assert terminal.screen.cursor.x == 2
        # A state line that stayed behind would be in what has scrolled away.
        assert "gpt-x · " not in "\n".join(terminal.scrollback)
        command = "".join(line.strip(" │┆") for line in terminal.everything.split("\n"))
        assert command.count("long") >= 30
    assert heard(server, 0) == [("user", "漢字 and words 漢字 and words 漢字")]


def test_a_window_that_changes_its_size_is_drawn_anew(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("bash", command=WAITING)), "It is " + "very " * 30 + "long.")
    with chatting(place, server, columns=100, rows=30) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for("started")
        terminal.resize(40, 15)
        terminal.wait_for(lambda at: any(line.startswith("ask · openai-chat:gpt-x") for line in at.lines))
        terminal.type("narrow now")
        terminal.wait_for("narrow now")
        terminal.resize(60, 20)
        go(place)
        terminal.wait_for("long.")
        terminal.wait_for(READY)
        assert terminal.cursor_line == "\u276f narrow now"
        assert max(len(line) for line in terminal.lines) <= 60
        # Pastes are marked all the time: without the marks, lines of a paste count as typed, and a `!` runs.
        assert PASTES_UNMARKED not in terminal.raw
        terminal.press("ctrl+c", "ctrl+d")
        terminal.ended()
        assert terminal.raw.count(PASTES_UNMARKED) == 1


def test_without_colours_nothing_is_coloured(place: Place, server: OpenAIChatServer) -> None:
    (place.project / "a.py").write_text("x = 1\n")
    with chatting(place, server, env={"NO_COLOR": "1"}, columns=120, rows=40) as terminal:
        for number, (columns, rows) in enumerate(SIZES):
            terminal.resize(columns, rows)
            edit = answer(call("edit", path="a.py", edits=[{"old": f"x = {number + 1}", "new": f"x = {number + 2}"}]))
            server.say(edit, f"**Bold** and `code`.\n\n{CODE}", "Next.")
            terminal.enter("Hello.")
            terminal.wait_for(f"  │ +x = {number + 2}")
            terminal.wait_for("\n?")
            terminal.type("y")
            terminal.wait_for("\n? y")
            terminal.press("enter")
            terminal.wait_for("def greet")
            terminal.wait_for(READY)
            terminal.enter("/theme")
            terminal.wait_for("The theme is dark")
            terminal.enter("/context")
            terminal.wait_for("tool results")
            terminal.enter("Next.")
            terminal.wait_for("Next.\n\n12 in")
        terminal.press("ctrl+d")
        terminal.ended()
        raw = bytes(terminal.raw)
    for parameter in (*range(30, 38), *range(40, 48), *range(90, 98), *range(100, 108)):
        assert f"\x1b[{parameter}m".encode() not in raw
        assert f";{parameter}m".encode() not in raw
    assert b"38;5" not in raw
    assert b"38;2" not in raw


def test_the_theme_suits_the_terminal_and_another_one_colours_what_follows(
    place: Place, server: OpenAIChatServer
) -> None:
    """A terminal with a light background says so in COLORFGBG."""
    colours = {"light": "\x1b[38;5;90mdef", "dark": "\x1b[35mdef", "plain": "  def"}
    with chatting(place, server, env={"COLORFGBG": "0;15"}, columns=120, rows=40) as terminal:
        terminal.enter("/theme")
        terminal.wait_for("The theme is light. Themes: dark, light, plain.")
        for columns, rows in SIZES:
            terminal.resize(columns, rows)
            for theme in colours:
                server.say(CODE)
                terminal.enter(f"/theme {theme}")
                told = f"From now on the theme is {theme}; theme in the settings keeps it."
                terminal.wait_for(lambda at, told=told: told in below(at, "/theme"))
                begun = len(terminal.raw)
                asked = f"Show {theme} {columns}."
                terminal.enter(asked)
                terminal.wait_for(lambda at, asked=asked: "greet" in below(at, f"\u276f {asked}\n"))
                terminal.wait_for(READY)
                drawn = terminal.raw[begun:].decode()
                assert [name for name, colour in colours.items() if colour in drawn] == [theme]
            terminal.enter("/theme drak")
            terminal.wait_for(lambda at: "Did you mean 'dark'?" in below(at, "/theme drak"))


def test_a_terminal_that_cannot_be_drawn_on_gets_a_chat_line_by_line(place: Place, server: OpenAIChatServer) -> None:
    server.say(
        answer(call("bash", command="touch asked")), "Asked.", answer(call("bash", command=WAITING)), "Heard.", "Last."
    )
    with chatting(place, server, env={"TERM": "dumb"}, ready="\n>") as terminal:
        terminal.enter("Make a file.")
        terminal.wait_for("│ touch asked")
        terminal.wait_for("\n?")
        terminal.enter("y")
        terminal.wait_for("Asked.\n>")
        terminal.enter("Wait.")
        terminal.wait_for("- bash sh wait.sh")
        terminal.enter("Look here.")
        go(place)
        terminal.wait_for("Heard.")
        terminal.enter("/cost")
        terminal.wait_for("This chat:")
        (place.project / "go").unlink()
        server.say(answer(call("bash", command=WAITING)))
        terminal.enter("Again.")
        terminal.wait_for("Last.")
        terminal.enter("Wait again.")
        terminal.wait_for(lambda at: at.everything.count("- bash sh wait.sh") == 2)
        terminal.press("ctrl+c")
        terminal.wait_for("(aborted")
        terminal.press("ctrl+d")
        assert terminal.ended() == 0
        assert terminal.as_before
        assert b"\x1b" not in terminal.raw
        assert "To continue: steersman -c" in terminal.everything
    assert (place.project / "asked").exists()
    assert heard(server, 3)[-1] == ("user", "Look here.")


def test_without_the_extra_there_is_a_chat_all_the_same_and_it_says_what_is_missing(
    place: Place, server: OpenAIChatServer, tmp_path: Path
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name.split("-")[0] not in ("prompt_toolkit", "rich", "wcwidth", "__pycache__"):
            (packages / entry.name).symlink_to(entry)
    source = Path(steersman.__file__).parents[1]
    server.say("Plainly.")
    env = environment(place, server, {"PYTHONPATH": f"{source}:{packages}"})
    arguments = [sys.executable, "-S", "-m", "steersman", "--model", MODEL]
    with Terminal(arguments, env=env, cwd=place.project) as terminal:
        terminal.wait_for("pip install 'steersman[cli]'")
        terminal.wait_for("\n>")
        terminal.enter("Hello.")
        terminal.wait_for("Plainly.")
        terminal.wait_for(lambda at: at.cursor_line == ">")
        terminal.press("ctrl+d")
        assert terminal.ended() == 0
