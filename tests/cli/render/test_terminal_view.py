"""A run on a real terminal, by the real command: what is drawn, what is left, and what bytes went there."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import threading
from pathlib import Path

import pytest
from tests.cli.command import Place, command_line, environment
from tests.cli.pty_terminal import Terminal
from tests.cli.render.attacks import ATTACKS, FORMS, check_written
from tests.cli.render.runs import a_show, start

from steersman import Agent
from steersman.cli.render import TerminalView, show_on_terminal, wants_color
from steersman.provider.scripted.script import answer, call, stall, text, thinking
from steersman.testing import ScriptedModel
from steersman.testing.servers import OpenAIChatServer
from steersman.tools.threads import call_in_thread


def read_until(fd: int, end: bytes) -> bytes:
    shown = b""
    while end not in shown:
        shown += os.read(fd, 1 << 16)
    return shown


WAITING = "for n in 1 2 3 4 5 6; do echo line $n; done; until [ -e go ]; do sleep 0.02; done; echo over"


def started(place: Place, server: OpenAIChatServer, *, columns: int = 80, rows: int = 24, **more: str) -> Terminal:
    args = ["--allowed-tools", "bash,write", "--", "Go on."]
    return Terminal(
        command_line(args, server),
        columns=columns,
        rows=rows,
        env=environment(place, server, more),
        cwd=place.project,
        patience=60,
    )


def told(terminal: Terminal) -> list[str]:
    """The lines of the run: without the line about the model and the one about what it took."""
    lines = terminal.everything.rstrip("\n").split("\n")
    return [line for line in lines if not line.startswith("steersman: ") and " in \u00b7 " not in line]


def test_a_running_tool_is_live_and_then_a_line(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(text("Let me wait."), call("bash", command=WAITING)), "## Done\n\nAll is `well`.")
    with started(place, server, columns=60) as terminal:
        terminal.wait_for("line 6")
        terminal.wait_for("working")
        assert [line for line in terminal.lines if line.startswith("  line")] == [f"  line {n}" for n in range(2, 7)]
        assert re.search(r"^[\u2800-\u28ff] bash  for n in 1 2", terminal.shown, re.M)
        (place.project / "go").touch()
        assert terminal.ended() == 0
        shown = told(terminal)
        check_written(terminal.raw)
        assert (terminal.cursor_shown, 7 in terminal.modes, terminal.as_before) == (True, True, True)
    shown = [re.sub(r" · [\d.]+ s ·", " · some s ·", line) for line in shown]
    shown = [re.sub(r"\d; do.*…", "…", line) for line in shown]
    assert [line for line in shown if line] == [
        "Let me wait.",
        "✓ bash  for n in 1 2 3 4 5 … · exit 0 · some s · 7 lines",
        "  … 2 lines above",
        *[f"  line {number}" for number in range(3, 7)],
        "  over",
        "Done",
        "All is well.",
    ]


def test_a_window_that_changes_its_size_stays_tidy(place: Place, server: OpenAIChatServer) -> None:
    long = "A sentence that is much longer than the window is wide, with 漢字 and 👍🏽 in it. " * 3
    server.say(answer(text(long), call("bash", command=WAITING)), long)
    with started(place, server, columns=100) as terminal:
        terminal.wait_for("line 6")
        terminal.resize(40, 12)
        terminal.wait_for("working")
        (place.project / "go").touch()
        assert terminal.ended() == 0
        shown = told(terminal)
        check_written(terminal.raw)
    # The whole last answer, in lines for the narrow window, and no spinner left of what was live.
    after = shown[max(index for index, line in enumerate(shown) if line == "  over") + 1 :]
    assert " ".join(" ".join(after).split()).startswith(long.strip()[:200])
    assert max(map(len, after)) <= 40
    assert not re.search("[\u2800-\u28ff]", "\n".join(after))


def test_a_narrow_window_does_not_break(place: Place, server: OpenAIChatServer) -> None:
    server.say(
        answer(thinking("Hm, " * 40), text("# A heading that is long\n\n| a | b |\n|-|-|\n| " + "x" * 50 + " | y |"),
               call("write", path="a/very/long/path/to/a/file.txt", content="x" * 100), call("nope", x="y" * 90)),
        "http://a.example/" + "long" * 30,
    )  # fmt: skip
    with started(place, server, columns=40, rows=10) as terminal:
        assert terminal.ended() in (0, 4)
        check_written(terminal.raw)
        assert "Traceback" not in terminal.everything


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_however_it_ends_the_terminal_is_as_it_was(
    place: Place, server: OpenAIChatServer, number: signal.Signals
) -> None:
    server.say(stall(text("A word\n\nand another")))
    with started(place, server) as terminal:
        terminal.wait_for("and another")
        terminal.signal(number)
        terminal.ended()
        check_written(terminal.raw)
        assert (terminal.cursor_shown, 7 in terminal.modes, terminal.as_before) == (True, True, True)
        shown = terminal.shown
    assert ("Interrupted" in shown) == (number != signal.SIGKILL)
    if number != signal.SIGKILL:
        assert not re.search("[\u2800-\u28ff]", shown)


def test_no_colours_where_they_are_not_wanted(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("list", path=".")), "# Some\n\n**bold** words")
    with started(place, server, NO_COLOR="1") as terminal:
        assert terminal.ended() == 0
        assert not re.search(rb"\x1b\[[0-9;]*m", terminal.raw)
        assert "# Some" in terminal.everything


def test_no_form_of_attack_reaches_the_terminal(place: Place, server: OpenAIChatServer) -> None:
    """failures.md L15: from the model in every form of Markdown, from tools, files, file names and their arguments."""
    attacks = [attack.encode("utf-8", "replace").decode() for attack in ATTACKS.values()]
    (place.project / "hostile.txt").write_text("\n".join(attacks))
    _write_hostile_names(place.project, attacks)
    everything = "\n\n".join(form.replace("{}", attack) for form in FORMS.values() for attack in attacks[::6])
    server.say(
        answer(
            thinking("".join(attacks)),
            text("\n\n".join(attacks)),
            call("list", path="."),
            call("read", path="hostile.txt"),
            call("bash", command="cat hostile.txt; exit 3"),
            *(call("read", path=attack) for attack in attacks),
        ),
        answer(call("write", path="new.txt", content="\n".join(attacks)), call("".join(attacks)[:40], x=attacks[0])),
        everything,
    )
    with started(place, server, columns=70) as terminal:
        terminal.ended()
        check_written(terminal.raw)
        assert "exit 3" in terminal.everything
        assert (terminal.cursor_shown, terminal.screen.title) == (True, "")


def _write_hostile_names(folder: Path, attacks: list[str]) -> None:
    for attack in attacks:
        name = os.fsencode(attack.replace("/", "_"))[:200]
        if name and b"\0" not in name:
            (folder / os.fsdecode(name)).touch()


@pytest.mark.real_time
async def test_a_terminal_that_takes_nothing_does_not_block_the_event_loop() -> None:
    master, slave = os.openpty()
    try:
        show = a_show()
        async with TerminalView(show, fd=slave, patience=0.05):
            show.show_event(start())
            show.say("notice", "words " * 20_000)
            # Other tasks go on: the writing waits in a thread of its own.
            await call_in_thread(lambda: _wait_until_full(slave))
        assert len(os.read(master, 1 << 20)) > 0
    finally:
        os.close(slave)
        os.close(master)
    # The numbers of its descriptors are soon used again: the thread that was left behind writes nothing there.
    master, slave = os.openpty()
    try:
        await call_in_thread(_wait_for_writers)
        assert select.select([master], [], [], 0)[0] == []
    finally:
        os.close(slave)
        os.close(master)


def _wait_for_writers() -> None:
    me = threading.current_thread()
    while any(one.name == me.name and one is not me for one in threading.enumerate()):
        os.sched_yield()


def _wait_until_full(descriptor: int) -> None:
    while select.select([], [descriptor], [], 0)[1]:
        os.sched_yield()


@pytest.mark.real_time
async def test_a_run_is_shown_until_its_end_and_its_result_given() -> None:
    master, slave = os.openpty()
    try:
        agent = Agent(ScriptedModel("Some **words**.").model)
        result = await show_on_terminal(a_show(color=True), agent.prompt("Go."), fd=slave)
        shown = os.read(master, 1 << 16)
    finally:
        os.close(slave)
        os.close(master)
    assert result.text == "Some **words**."
    assert b"Some \x1b[1mwords\x1b[0m." in shown
    assert shown.endswith(b"\x1b[?25h")
    check_written(shown)


async def test_a_question_comes_after_what_was_drawn_before_it() -> None:
    """Also where the draw has just begun, and its thread has not come to it yet."""
    master, slave = os.openpty()
    try:
        show = a_show()
        show.show_event(start())
        view = TerminalView(show, fd=slave)
        async with view:
            await asyncio.sleep(0)
            with view.pause():
                os.write(slave, b"May it?")
                shown = b""
                while not shown.endswith(b"May it?"):  # a terminal may pass on a write in parts
                    shown += await call_in_thread(lambda: os.read(master, 1 << 16))
    finally:
        os.close(slave)
        os.close(master)
    drawn, taken_away, asked = shown.partition(b"\r\x1b[J\x1b[?25hMay it?")
    assert (b"working" in drawn, bool(taken_away), asked) == (True, True, b"")


async def test_nothing_is_drawn_while_the_user_is_asked() -> None:
    master, slave = os.openpty()
    try:
        show = a_show()
        view = TerminalView(show, fd=slave)
        async with view:
            show.show_event(start())
            shown = await call_in_thread(lambda: os.read(master, 1 << 16))
            assert b"working" in shown
            with view.pause():
                # The live part is gone, and stays away however much happens.
                assert (await call_in_thread(lambda: os.read(master, 1 << 16))).endswith(b"\r\x1b[J\x1b[?25h")
                for number in range(20):
                    show.say("notice", f"note {number}")
                    await asyncio.sleep(0.01)
                assert not select.select([master], [], [], 0)[0]
            assert b"note 19" in await call_in_thread(lambda: os.read(master, 1 << 16))
    finally:
        os.close(slave)
        os.close(master)


async def test_other_tasks_run_while_a_very_long_answer_is_drawn_at_the_end() -> None:
    master, slave = os.openpty()
    reading = asyncio.ensure_future(call_in_thread(lambda: read_until(master, b"\r\nOver.\r\n")))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    try:
        show = a_show()
        async with TerminalView(show, fd=slave):
            show.say("answer", "Some words of a very long answer.\n\n" * 10_000 + "Over.")
            counting = asyncio.ensure_future(count_turns())
        counting.cancel()
        shown = await reading
    finally:
        os.close(slave)
        os.close(master)
    assert (shown.count(b"Some words"), turns > 10) == (10_000, True)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(environment: dict[str, str], wanted: bool) -> None:
    master, slave = os.openpty()
    read, write = os.pipe()
    try:
        assert wants_color(slave, environment) is wanted
        assert wants_color(write, environment) is False
    finally:
        for descriptor in (master, slave, read, write):
            os.close(descriptor)
