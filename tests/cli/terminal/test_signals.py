"""Signals at many moments: the run ends in order, the session is whole, nothing is left, no traceback is shown.

failures.md F10 throughout.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import (
    Place,
    assert_calm,
    ends_of,
    new_marker,
    run_command,
    spawn,
    wait_for_process,
    wait_until,
    wait_until_gone,
)

from steersman.provider.scripted.script import answer, call, stall, text
from steersman.testing.servers import OpenAIChatServer
from steersman.types.errors import ErrorInfo
from steersman.types.events import AgentEnd

STREAM = ["-p", "Go", "--output-format", "stream-json"]
INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


@pytest.mark.parametrize(("number", "k"), [(INT, 0), (TERM, 3), (HUP, 7), (INT, 11), (TERM, 16)])
def test_a_signal_at_any_event_ends_the_run_with_its_agent_end(
    place: Place, server: OpenAIChatServer, number: signal.Signals, k: int
) -> None:
    server.say(answer(text("I look."), call("list", path=".")), stall("One two three four five", after=2))
    with spawn(STREAM, place=place, server=server) as started:
        started.wait_for(f'"seq":{k},')
        started.signal(number)
        if number == HUP:
            started.signal(number)  # as a closing terminal does, which means the same
        done = started.wait()
    end = done.events[-1]
    assert isinstance(end, AgentEnd)
    assert (done.code, end.end_reason, done.stderr) == (128 + number, "aborted", b"")
    assert ends_of(place) == ["aborted"]


@pytest.mark.parametrize("number", [INT, TERM])
def test_what_a_tool_started_is_gone_and_the_session_goes_on(
    place: Place, server: OpenAIChatServer, number: signal.Signals
) -> None:
    """failures.md F8: grandchildren too, those that do not want to go among them."""
    marker = new_marker()
    command = f"trap '' TERM; (trap '' TERM HUP INT; setsid sleep {marker}) & sleep {marker}"
    server.say(call("bash", command=command), "We go on.")
    with spawn(["-p", "Wait", "--allowed-tools", "bash"], place=place, server=server) as started:
        wait_for_process(f"sleep\x00{marker}", 2)
        started.signal(number)
        done = started.wait()
    assert (done.code, done.stdout) == (128 + number, b"")
    assert_calm(done)
    wait_until_gone(marker)
    assert ends_of(place) == ["aborted"]
    if number == INT:
        return  # to go on is the same after any signal
    again = run_command(["-c", "-p", "Go on"], place=place, server=server)
    assert (again.code, again.text) == (0, "We go on.\n")
    said = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "user"]
    assert (said[0], said[-1]) == ("Wait", "Go on")


def test_a_signal_ends_the_wait_before_a_retry(place: Place, server: OpenAIChatServer) -> None:
    server.say(ErrorInfo("overloaded", "busy", retry_after=55.0))
    with spawn(STREAM, place=place, server=server) as started:
        started.wait_for('"retry_scheduled"')
        started.signal(INT)
        done = started.wait()
    end = done.events[-1]
    assert isinstance(end, AgentEnd)
    assert (done.code, end.end_reason) == (130, "aborted")


@pytest.mark.parametrize(("number", "options"), [(TERM, STREAM), (INT, ["-p", "Go"])])
def test_a_signal_before_the_run_ends_what_was_being_prepared(
    place: Place, server: OpenAIChatServer, number: signal.Signals, options: list[str]
) -> None:
    marker = new_marker()
    servers = {"mcpServers": {"silent": {"command": "sleep", "args": [marker]}}}
    config = place.home / "mcp.json"
    config.write_text(json.dumps(servers))
    with spawn([*options, "--mcp-config", str(config)], place=place, server=server) as started:
        wait_for_process(f"sleep\x00{marker}")
        started.signal(number)
        done = started.wait()
    wait_until_gone(marker)
    assert done.code == 128 + number
    assert_calm(done)
    if options is STREAM:
        end = done.events[-1]
        assert isinstance(end, AgentEnd)
        assert end.end_reason == "aborted"
    assert server.requests == []


def test_a_second_ctrl_c_leaves_at_once(place: Place, server: OpenAIChatServer) -> None:
    # More than all the buffers on the way can hold.
    server.say(answer("word " * 4_000_000, deltas=4_000))
    with spawn(STREAM, place=place, server=server, reading=False) as started:
        started.wait_until_stuck()
        started.signal(INT)
        # It has been heard: the model is asked no more, and only the reader is still waited for.
        assert server.raw[0].outcome.result(60) == "left"
        started.signal(INT)
        done = started.wait()
    assert (done.code, done.stderr) == (130, b"")


def test_a_second_ctrl_c_waits_for_nothing() -> None:
    program = """
import asyncio, signal
from steersman.cli.terminal import signals
signals.PATIENCE = 600.0
def interrupt():
    signal.raise_signal(signal.SIGINT)
async def main():
    with signals.catch_signals(interrupt, on_leave=lambda: print("leaving", flush=True)):
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("leaving\n", "", 130)


def test_an_end_that_does_not_come_is_not_waited_for_for_ever() -> None:
    program = """
import asyncio, signal
from steersman.cli.terminal import signals
signals.PATIENCE = 0.1
async def main():
    with signals.catch_signals(lambda: None):
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 143)


def test_what_had_come_of_the_answer_is_written(place: Place, server: OpenAIChatServer) -> None:
    server.say(stall("One two three", after=3))
    with spawn(["-p", "Go", "--no-tools"], place=place, server=server) as started:
        started.wait_for("One two")
        started.signal(INT)
        done = started.wait()
    assert (done.code, done.text) == (130, "One two t\n")
    assert_calm(done)


def test_the_first_signal_decides_and_is_acted_on_once() -> None:
    program = """
import asyncio, signal
from steersman.cli.terminal.signals import catch_signals
async def main():
    stops = []
    with catch_signals(lambda: stops.append(1)) as signals:
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(number)
            await asyncio.sleep(0)
        print(signals.code, stops)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("129 [1]\n", "", 0)


def test_a_signal_that_came_while_the_command_was_loading_is_heard() -> None:
    program = """
import asyncio, signal
from steersman.cli.terminal.descriptors import exit_on_signals, record_signals
exit_on_signals()
record_signals()
signal.raise_signal(signal.SIGTERM)
from steersman.cli.terminal.signals import catch_signals
async def main():
    stopped = asyncio.Event()
    with catch_signals(stopped.set) as signals:
        await stopped.wait()
        print(signals.code, flush=True)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("143\n", "", 0)


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    program = """
import asyncio, signal
from steersman.cli.terminal.signals import catch_signals
signal.signal(signal.SIGHUP, signal.SIG_IGN)
async def main():
    with catch_signals(lambda: None) as signals:
        signal.raise_signal(signal.SIGHUP)
        before = signals.code
        signal.raise_signal(signal.SIGTERM)
        print(before, signals.code)
asyncio.run(main())
print(repr(signal.getsignal(signal.SIGHUP)), signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("None 143\n<Handlers.SIG_IGN: 1> True\n", "")


def test_a_signal_behind_the_last_run_still_ends_the_process() -> None:
    """A resolver of the operating system that hangs cannot be interrupted, and Python waits for it at its end."""
    program = """
import signal
from steersman.cli.terminal.descriptors import exit_on_signals, record_signals, stop_recording_signals
exit_on_signals()
record_signals()
signal.raise_signal(signal.SIGTERM)
print("noted", flush=True)
stop_recording_signals()
signal.raise_signal(signal.SIGINT)
print("never", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("noted\n", "", 130)


def test_a_signal_while_the_end_is_written_shows_no_traceback(place: Place) -> None:
    """There was no run, and the lines that say so are not read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)))
    os.set_blocking(writer, True)
    with spawn([*STREAM, "--model", "nowhere:x"], place=place, stdout=writer, reading=False) as started:
        os.close(writer)
        wait_until(lambda: is_writing(started.pid), "a write to the full pipe")
        started.signal(TERM)
        done = started.wait()
    os.close(reader)
    assert done.code == 2
    assert len(done.errors.splitlines()) == 1
    assert_calm(done)


def is_writing(pid: int) -> bool:
    """Whether a thread of a process sleeps in a write to its standard output."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return any(syscall_of(task)[1:2] == ["0x1"] for task in tasks)


def syscall_of(task: Path) -> list[str]:
    """The system call that a thread sleeps in, and its arguments; nothing where it has ended since it was listed."""
    try:
        return (task / "syscall").read_text().split()
    except OSError:
        return []
