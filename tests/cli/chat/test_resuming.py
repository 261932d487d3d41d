"""A session that is taken up again: what was cut off is told, and what was chosen is kept."""

from __future__ import annotations

import re
import signal

import pytest
from tests.cli.chat.kit import WAITING, chatting, heard
from tests.cli.command import Place, environment, run_command
from tests.cli.fork_server import COMMAND
from tests.cli.pty_terminal import Terminal

from steersman.testing import answer, call, text
from steersman.testing.servers import OpenAIChatServer
from steersman.types.usage import Usage

pytestmark = pytest.mark.real_time


def rests(at: Terminal) -> bool:
    status = at.lines[int(at.screen.cursor.y) + 1] if at.cursor_line.startswith("\u276f") else ""
    return status.startswith(("ask · openai", "ask · gpt-")) and "Esc" not in status


def unwrapped(terminal: Terminal) -> str:
    return " ".join(terminal.everything.split())


@pytest.mark.parametrize(("columns", "rows"), [(120, 40), (80, 24), (40, 15)])
def test_a_question_whose_run_was_killed_is_told_and_goes_on_with_the_model_that_was_chosen(
    place: Place, columns: int, rows: int
) -> None:
    with OpenAIChatServer(usage=Usage(input=12, output=7, cache_read=1000)) as server:
        server.say("First answer.", answer(text("I begin."), call("bash", command=WAITING)), "Went on.")
        with chatting(place, server, columns=columns, rows=rows, ready="\n\u276f") as terminal:
            terminal.enter("First?")
            terminal.wait_for(lambda at: "First answer." in at.everything and rests(at))
            terminal.enter("/cost")
            # The same count on the line of the run, in the status line and from the command, which is echoed.
            told = "\u276f /cost This chat: 1,012 tokens in (1,000 read from the cache), 7 out"
            terminal.wait_for(lambda at: told in unwrapped(at))
            assert "1,012 in (1,000 cached) · 7 out" in unwrapped(terminal)
            assert columns < 80 or "1.0k in 7 out" in terminal.shown
            assert " · 0% full" in terminal.shown
            terminal.enter("/model openai-chat:gpt-y")
            terminal.wait_for(lambda at: "Now the model is openai-chat:gpt-y" in unwrapped(at))
            terminal.enter("Second?")
            terminal.wait_for("started")
            terminal.signal(signal.SIGKILL)
            terminal.ended()
        environ = environment(place, server)
        with Terminal([*COMMAND, "-c"], columns=columns, rows=rows, env=environ, cwd=place.project) as terminal:
            terminal.wait_for(lambda at: "/continue goes on with it." in unwrapped(at) and rests(at))
            told = unwrapped(terminal)
            assert "Using openai-chat:gpt-y (chosen in this session)." in told
            assert "\u276f Second? I begin. The run of this question was cut off" in told
            assert "First answer." not in told
            terminal.enter("/continue")
            terminal.wait_for(lambda at: "Went on." in at.everything and rests(at))
            terminal.press("ctrl+d")
            assert terminal.ended() == 0
            (short,) = re.findall(r"steersman -r ([0-9a-f]{8})\b", unwrapped(terminal))
        assert [request["model"] for request in server.requests] == ["gpt-x", "gpt-y", "gpt-y"]
        assert heard(server, 2)[2] == ("user", "Second?")
        with Terminal([*COMMAND, "sessions", "show", short], columns=200, rows=50, env=environ) as terminal:
            terminal.ended()


def test_a_session_goes_on_with_the_model_it_used_unless_the_settings_name_one(
    place: Place, server: OpenAIChatServer
) -> None:
    server.say("One.", "Two.", "Three.")
    run_command(["--model", "openai-chat:gpt-y", "-p", "Hi."], place=place, server=server)
    environ = environment(place, server)
    again = run_command(["-c", "-p", "Again."], place=place, env=environ)
    assert (again.code, again.text) == (0, "Two.\n")
    settings = place.home / "config" / "steersman" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('model = "openai-chat:gpt-z"\n')
    run_command(["-c", "-p", "Again."], place=place, env=environ)
    assert [request["model"] for request in server.requests] == ["gpt-y", "gpt-y", "gpt-z"]
