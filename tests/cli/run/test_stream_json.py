"""The event stream on standard output: the grammar holds on the parsed lines, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from tests.cli.command import (
    Place,
    assert_calm,
    command_line,
    ends_of,
    environment,
    new_marker,
    run_command,
    runs_of,
    shell,
    spawn,
    wait_for_process,
    wait_until_gone,
)

from steersman.provider.scripted.script import answer, call, cut, error, stall, text
from steersman.testing.servers import OpenAIChatServer, Reply
from steersman.types.events import AgentEnd, AgentStart, MessageUpdate, ToolExecutionEnd

STREAM = ["-p", "Go", "--output-format", "stream-json"]
LONG = "word " * 40_000
# More than all the buffers on the way can hold.
HUGE = "word " * 4_000_000


def test_every_event_of_a_run_is_a_line_and_nothing_else_is(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(text("I look.\u2028"), call("list", path=".")), cut("One two", after=1))
    server.say(answer("Nothing \x1b[31mthere\x00 世界.", deltas=9))
    done = run_command(STREAM, place=place, server=server)
    events = done.events
    assert (done.code, done.stderr) == (0, b"")
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event.type for event in events if isinstance(event, AgentStart | AgentEnd | ToolExecutionEnd)] == [
        "agent_start",
        "tool_execution_end",
        "agent_end",
    ]
    deltas = [event.delta for event in events if type(event) is MessageUpdate]
    said = "".join(delta.delta if delta.type == "text_delta" else "" for delta in deltas)
    assert said == "I look.\u2028ONothing \x1b[31mthere\x00 世界."
    # What broke off and was asked for again is taken back by a reset.
    assert [delta.type for delta in deltas].count("reset") == 1
    assert b"\x1b" not in done.stdout
    end = events[-1]
    assert isinstance(end, AgentEnd)
    assert [message.role for message in end.messages] == ["user", "assistant", "tool_result", "assistant"]


def test_runs_that_do_not_go_well_end_with_their_agent_end(place: Place, server: OpenAIChatServer) -> None:
    server.say(error("authentication"), Reply(200, "<html>"), answer(call("list", path=".")))
    server.say(answer("No.", stop_reason="refusal"))
    orders = b"".join(b'{"type":"prompt","content":"%d"}\n' % number for number in range(4))
    options = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--max-turns", "1"]
    done = run_command(options, place=place, server=server, stdin=orders)
    ends = [run[-1].end_reason for run in done.runs if isinstance(run[-1], AgentEnd)]
    # The code is the one of the last run: the model declined.
    assert (ends, done.code) == (["error", "error", "limit", "error"], 4)


def test_a_run_that_takes_too_long_ends_with_its_agent_end(place: Place, server: OpenAIChatServer) -> None:
    server.say(stall("One", after=1))
    done = run_command([*STREAM, "--max-duration", "0.3"], place=place, server=server)
    end = done.events[-1]
    assert isinstance(end, AgentEnd)
    assert (end.end_reason, done.code) == ("limit", 3)


def test_a_run_that_cannot_begin_is_told_as_one_that_ended(place: Place) -> None:
    done = run_command([*STREAM, "--model", "nowhere:x"], place=place)
    start, end = done.events
    assert isinstance(start, AgentStart)
    assert isinstance(end, AgentEnd)
    assert (end.end_reason, done.code) == ("error", 2)
    assert "nowhere" in end.detail
    assert done.errors == f"steersman: {end.detail}\n"


def test_a_reader_that_leaves_ends_the_run_quietly(place: Place, server: OpenAIChatServer) -> None:
    """failures.md F11: `steersman ... | head -1`."""
    marker = new_marker()
    server.say(answer(text("I wait."), call("bash", command=f"sleep {marker} & sleep {marker}")))
    command = f"$STEERSMAN {' '.join(STREAM)} --allowed-tools bash"
    done = shell(f"{command} | head -1; echo ${{PIPESTATUS[0]}}", place=place, server=server)
    first, code = done.text.splitlines()
    assert ('"agent_start"' in first, code, done.stderr) == (True, "141", b"")
    wait_until_gone(f"sleep\x00{marker}")
    assert ends_of(place) == ["aborted"]


def test_a_reader_that_leaves_is_noticed_while_nothing_is_written(place: Place, server: OpenAIChatServer) -> None:
    """failures.md F11: a tool that says nothing for an hour must not outlive the one who asked."""
    marker = new_marker()
    server.say(call("bash", command=f"sleep {marker}"))
    reader, writer = os.pipe()
    args = [*STREAM, "--allowed-tools", "bash"]
    with spawn(args, place=place, server=server, stdout=writer, reading=False) as started:
        os.close(writer)
        seen = b""
        while b"tool_execution_start" not in seen:
            seen += os.read(reader, 65536)
        wait_for_process(f"sleep\x00{marker}")
        os.close(reader)
        done = started.wait()
    assert (done.code, done.stderr) == (141, b"")
    wait_until_gone(f"sleep\x00{marker}")


@pytest.mark.parametrize("options", [["-p", "Go"], STREAM])
def test_a_reader_that_was_never_there_is_no_error(place: Place, server: OpenAIChatServer, options: list[str]) -> None:
    server.say("Hello.")
    done = shell(f"$STEERSMAN {' '.join(options)} | true; echo ${{PIPESTATUS[0]}}", place=place, server=server)
    assert done.text.strip() in ("141", "0")
    assert_calm(done)


def test_a_reader_that_stalls_holds_up_the_run_and_not_the_signals(place: Place, server: OpenAIChatServer) -> None:
    """failures.md J2, F10: memory is bounded, and Ctrl-C works while the pipe is full."""
    server.say(answer(HUGE, deltas=4_000))
    with spawn(STREAM, place=place, server=server, reading=False) as started:
        started.wait_until_stuck()
        started.signal(signal.SIGINT)
        done = started.wait()
    assert (done.code, done.stderr, ends_of(place)) == (130, b"", ["aborted"])
    # The answer was never taken whole: what is not read is not asked for either.
    assert server.raw[0].outcome.result(10) == "left"


def test_a_slow_reader_gets_every_event(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(LONG, deltas=2_000))
    with subprocess.Popen(
        command_line(STREAM, server),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=place.project,
        env=environment(place, server),
        bufsize=0,
    ) as process:
        assert process.stdout is not None
        pieces: list[bytes] = []
        while piece := os.read(process.stdout.fileno(), 4096):
            pieces.append(piece)
    (events,) = runs_of(b"".join(pieces))
    said = [event.delta.delta for event in events if type(event) is MessageUpdate and event.delta.type == "text_delta"]
    assert (process.returncode, "".join(said)) == (0, LONG)
