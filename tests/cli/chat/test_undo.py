"""`/undo`, `/redo`, `/checkpoints`, and going back in the tree with the files, in a real terminal."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.chat.kit import SIZES, below, chatting, heard
from tests.cli.chat.test_injection import FORMS, strange
from tests.cli.command import Place, run_command
from tests.cli.pty_terminal import Terminal

from steersman.cli.exits import UserError
from steersman.cli.setup.settings_parser import parse_settings
from steersman.testing import answer, call
from steersman.testing.servers import OpenAIChatServer, Received

pytestmark = pytest.mark.real_time

BYPASS = ("--permission-mode", "bypass")


def read_files(folder: Path) -> dict[str, str]:
    """The files of the project, without the script of the kit."""
    names = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "wait.sh")
    return {str(path.relative_to(folder)): path.read_text() for path in names}


def send(terminal: Terminal, text: str, number: int) -> None:
    """Send a prompt, and wait for the end of its run, which is the run of this number."""
    terminal.enter(text)
    terminal.wait_for(lambda at: at.everything.count(" s · gpt-x") == number)


def confirm(terminal: Terminal, command: str, shown: str, said: str = "y") -> None:
    """Give a command, and answer its question."""
    terminal.enter(command)
    terminal.wait_for(shown)
    terminal.wait_for("\n?")
    terminal.type(said)
    terminal.wait_for(f"\n? {said}")
    terminal.press("enter")


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_what_prompts_changed_is_undone_and_redone(
    place: Place, server: OpenAIChatServer, columns: int, rows: int
) -> None:
    """By `write`, `edit` and `bash`; a file that the user changed since stays; the model is told; `-c` can undo too."""
    project = place.project
    (project / "keep.txt").write_text("one\ntwo\n")
    (project / "gone.txt").write_text("precious\n")
    (project / ".git").mkdir()
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    start = read_files(project)
    server.say(
        answer(
            call("read", path="keep.txt"),
            call("write", path="new/file.txt", content="new\n"),
        ),
        answer(call("edit", path="keep.txt", edits=[{"old": "two", "new": "2\n3"}])),
        "First done.",
        answer(call("bash", command="rm gone.txt; echo more >> keep.txt; mkdir -p empty/er; echo hi > mine.txt")),
        "Second done.",
        "I know.",
    )
    with chatting(place, server, *BYPASS, columns=columns, rows=rows) as terminal:
        terminal.enter("/undo")
        terminal.wait_for("There is nothing to undo")
        send(terminal, "Do the first thing.", 1)
        after_first = read_files(project)
        send(terminal, "Do the second thing.", 2)
        after_second = read_files(project)
        assert "gone.txt" not in after_second
        terminal.enter("/checkpoints")
        terminal.wait_for("c2  3 files")
        (project / "mine.txt").write_text("the user wrote this\n")
        confirm(terminal, "/undo", "Undo c2?", "n")
        terminal.wait_for("The files stay as they are.")
        assert read_files(project) == after_second | {"mine.txt": "the user wrote this\n"}
        confirm(terminal, "/undo", "mine.txt  stays as it is")
        terminal.wait_for("Undone: 2 files.")
        assert read_files(project) == after_first | {"mine.txt": "the user wrote this\n"}
        assert not (project / "empty").exists()
        confirm(terminal, "/undo", "Undo c1?")
        terminal.wait_for(lambda at: at.everything.count("Undone: 2 files.") == 2)
        assert read_files(project) == start | {"mine.txt": "the user wrote this\n"}
        assert not (project / "new").exists()
        confirm(terminal, "/redo", "Redo c1?")
        terminal.wait_for("Redone: 2 files.")
        terminal.wait_for("/redo again makes c2 too.")
        assert read_files(project) == after_first | {"mine.txt": "the user wrote this\n"}
        terminal.press("ctrl+d")
        terminal.ended()
    with chatting(place, server, *BYPASS, "-c", columns=columns, rows=rows) as terminal:
        confirm(terminal, "/undo", "Undo c1?")
        terminal.wait_for("Undone: 2 files.")
        assert read_files(project) == start | {"mine.txt": "the user wrote this\n"}
        send(terminal, "And now?", 1)
    told = [text for who, text in heard(server, -1) if who == "user" and "/undo" in text]
    assert [text.partition(":")[0] for text in told] == ["The user took back changes of files with /undo"] * 3
    assert "'keep.txt'" in told[-1]
    assert (project / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"


def test_what_a_killed_chat_changed_is_undone_by_the_next(place: Place, server: OpenAIChatServer) -> None:
    """At three sizes: it is made again before the next one."""
    project = place.project
    (project / "a.txt").write_text("one\n")
    server.say(answer(call("bash", command="echo two >> a.txt; touch begun; sleep 100")), "Went on.")
    with chatting(place, server, *BYPASS) as terminal:
        terminal.enter("Change things.")
        terminal.wait_for(lambda _: (project / "begun").exists())
        os.killpg(terminal.process.pid, signal.SIGKILL)
    assert (project / "a.txt").read_text() == "one\ntwo\n"
    with chatting(place, server, *BYPASS, "-c") as terminal:
        assert "\u276f Change things.\n\nThe run of this question was cut off" in terminal.everything
        for number, (columns, rows) in enumerate(SIZES, 1):
            terminal.resize(columns, rows)
            confirm(terminal, "/undo", "a.txt  +0 -1")
            terminal.wait_for(lambda at, number=number: at.everything.count("Undone: 2 files.") == number)
            assert read_files(project) == {"a.txt": "one\n"}
            if number < len(SIZES):
                confirm(terminal, "/redo", "a.txt  +1 -0")
                terminal.wait_for(lambda at, number=number: at.everything.count("Redone: 2 files.") == number)
                assert read_files(project) == {"a.txt": "one\ntwo\n", "begun": ""}
        terminal.enter("/continue")
        terminal.wait_for("Went on.")
    assert read_files(project) == {"a.txt": "one\n"}
    assert heard(server, 1)[-1][1].startswith("The user took back changes of files with /undo: 'a.txt'")


def test_an_undo_waits_until_a_run_that_is_shown_as_over_is_written(place: Place, server: OpenAIChatServer) -> None:
    """Another program may hold the file of the session for a moment."""
    held: list[sqlite3.Connection] = []

    def hold(_: Received) -> object:
        held.append(sqlite3.connect(place.sessions[0], isolation_level=None, check_same_thread=False))
        held[0].execute("BEGIN IMMEDIATE")
        return "Done."

    server.say(hold)  # pyright: ignore[reportArgumentType]
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for(" s · gpt-x")
        terminal.enter("/undo")
        terminal.wait_for("\u276f /undo\n")
        held[0].close()
        terminal.wait_for("There is nothing to undo")


def test_going_back_in_the_tree_offers_the_files(place: Place, server: OpenAIChatServer) -> None:
    project = place.project
    server.say(
        answer(call("write", path="a.txt", content="first\n")),
        "Alpha.",
        answer(call("write", path="a.txt", content="second\n")),
        "Beta.",
        "Gamma.",
    )
    with chatting(place, server, *BYPASS, columns=120, rows=40) as terminal:
        for number, text in enumerate(("Write it.", "Again."), 1):
            send(terminal, text, number)
        # What the model is told about these two belongs to the next prompt: going back to "Again." asks it nothing.
        confirm(terminal, "/undo", "Undo c2?")
        terminal.wait_for("Undone: 1 file.")
        confirm(terminal, "/redo", "Redo c2?")
        terminal.wait_for("Redone: 1 file.")
        send(terminal, "More @wait.sh", 3)
        terminal.enter("/tree")
        terminal.wait_for("● ")
        points = {words: id for id, words in re.findall(r"[○●] (\S+)  (.+)", terminal.shown)}
        assert [*points] == ["Write it.", "Again.", "More @wait.sh"]
        terminal.enter(f"/branch {points['Again.']}")
        terminal.wait_for(f"You are at {points['Again.']}.")
        assert len(server.requests) == 5
        # The number of a message is answered with the id of its entry.
        terminal.enter("/branch 7")
        terminal.wait_for(lambda at: at.everything.count(f"You are at {points['Again.']}.") == 2)
        goals = ["Write it.", "Again.", "Write it."]
        contents = {"Write it.": "first\n", "Again.": "second\n"}
        for (columns, rows), goal in zip(SIZES, goals, strict=True):
            terminal.resize(columns, rows)
            terminal.enter("/tree")
            terminal.wait_for(lambda at: "More @wait.sh" in below(at, "/tree"))
            tree = below(terminal, "/tree")
            assert [f" {points[words]} {words} " in tree for words in points] == [True] * 3
            before = (project / "a.txt").read_text()
            confirm(terminal, f"/branch {points[goal]}", "only the conversation", "n")
            terminal.wait_for("The files stay as they are.")
            assert (project / "a.txt").read_text() == before != contents[goal]
            confirm(terminal, f"/branch {points[goal]}", "a.txt  +1 -1")
            told = f"Taken back: 1 file. You are at {points[goal]}."
            terminal.wait_for(lambda at, told=told: told in below(at, "/branch"))
            assert (project / "a.txt").read_text() == contents[goal]


def test_names_of_files_reach_the_terminal_only_as_text(place: Place, server: OpenAIChatServer) -> None:
    """failures.md L15: a name that a command made is shown in the plan, in the list and in what was left."""
    names = [form for form in FORMS if "/" not in form and "\x00" not in form]
    spelled = ["".join(f"\\x{byte:02x}" for byte in form.encode()) for form in names]
    script = "".join(f"touch -- $'name{name}'\n" for name in [*spelled, "\\xff"])
    (place.project / "names.sh").write_text(script)
    server.say(answer(call("bash", command="bash names.sh")), "Made.")
    with chatting(place, server, *BYPASS, columns=100, rows=60) as terminal:
        send(terminal, "Make names.", 1)
        made = len([name for name in os.listdir(os.fsencode(place.project)) if name.startswith(b"name")]) - 1
        assert made > 80
        os.unlink(place.project / f"name{names[0]}")
        (place.project / f"name{names[1]}").write_text("mine")
        terminal.enter("/checkpoints")
        terminal.wait_for("c1  ")
        confirm(terminal, "/undo", "Undo c1?")
        terminal.wait_for("Undone: ")
        terminal.press("ctrl+d")
        terminal.ended()
        assert strange(bytes(terminal.raw)) == []
    left = sorted(name for name in os.listdir(place.project) if name.startswith("name"))
    assert left == sorted([f"name{names[1]}", "names.sh"])


def test_the_settings_switch_checkpoints_off(place: Place, server: OpenAIChatServer) -> None:
    """Only the user's own: a project would else keep its user from undoing."""
    server.say(answer(call("bash", command="echo x > a.txt")), "Done.")
    config = place.home / "config" / "steersman" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("checkpoints = false\n")
    with chatting(place, server, *BYPASS) as terminal:
        send(terminal, "Write.", 1)
        terminal.enter("/undo")
        terminal.wait_for("There are no checkpoints")
    assert not (place.home / "state" / "steersman" / "checkpoints").exists()
    with pytest.raises(UserError, match="only your own settings may set this"):
        parse_settings(b"checkpoints = false", config, project=True)


def test_removing_a_session_removes_its_checkpoints(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("write", path="a.txt", content="one\n")), "Done.")
    assert run_command(["-p", "Write.", *BYPASS], place=place, server=server).code == 0
    [store] = (place.home / "state" / "steersman" / "checkpoints").glob("*.db")
    assert (store.stat().st_mode & 0o777, store.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert b"one\n" in store.read_bytes()
    listed = run_command(["sessions", "list", "--json"], place=place).json
    assert run_command(["sessions", "rm", "--yes", listed[0]["id"]], place=place).code == 0
    with closing(sqlite3.connect(store)) as database:
        tables = ("checkpoints", "changes", "contents")
        assert [database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables] == [0, 0, 0]
