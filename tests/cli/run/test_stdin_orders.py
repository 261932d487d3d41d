"""Another program drives the command: prompts, steering, follow-ups and aborts come in, events go out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from codecs import BOM_UTF8
from subprocess import PIPE
from typing import Any

import pytest
from tests.cli.command import Done, Place, assert_calm, run_command, spawn

from steersman import Agent
from steersman.cli.run.stdin_orders import OrderDriver
from steersman.cli.terminal.stdin import MAX_LINE, LineReader
from steersman.events.stream import EventStream
from steersman.provider.scripted.script import answer, call, stall, text
from steersman.session import MemoryStore, Session, SessionTaken
from steersman.testing.servers import OpenAIChatServer
from steersman.types.events import AgentEnd, AgentEvent, MessageStart
from steersman.types.result import RunResult

DRIVEN = ["-p", "--input-format", "stream-json", "--output-format", "stream-json"]
WAIT = "while [ ! -e go ]; do sleep 0.01; done"


def lines(*orders: dict[str, Any] | bytes | str) -> bytes:
    """Orders as lines."""
    given = [json.dumps(order).encode() if isinstance(order, dict) else order for order in orders]
    return b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in given)


def prompt(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "prompt", "content": content, **more}


def heard(run: list[AgentEvent]) -> list[str]:
    """What a user said in a run."""
    return [event.message.text for event in run if type(event) is MessageStart and event.message.role == "user"]


def ends(done: Done) -> list[str]:
    return [run[-1].end_reason for run in done.runs if isinstance(run[-1], AgentEnd)]


def test_several_prompts_are_several_runs_of_one_conversation(place: Place, server: OpenAIChatServer) -> None:
    server.say("Nought.", "First.", "Second.", "Third.")
    orders = lines(prompt("One"), prompt([{"type": "text", "text": "Two"}]), prompt("Three"))
    # The one on the command line comes first, and the last line needs no line end.
    done = run_command([*DRIVEN, "Zero"], place=place, server=server, stdin=orders[:-1])
    assert [heard(run) for run in done.runs] == [["Zero"], ["One"], ["Two"], ["Three"]]
    assert (done.code, done.stderr) == (0, b"")
    assert [message["content"] for message in server.requests[-1]["messages"] if message["role"] != "system"] == [
        "Zero",
        "Nought.",
        "One",
        "First.",
        "Two",
        "Second.",
        "Three",
    ]


def test_steering_and_a_follow_up_are_heard_in_the_run_that_goes_on(place: Place, server: OpenAIChatServer) -> None:
    server.say(call("bash", command=WAIT), "As you like.", "And that.")
    with spawn([*DRIVEN, "--allowed-tools", "bash"], place=place, server=server, stdin=PIPE) as started:
        started.send_line(**prompt("Go"))
        started.wait_for('"tool_execution_start"')
        started.send_line(type="follow_up", content="Then this")
        started.send_line(type="steer", content="Rather so", mode="cancel")
        started.send_line(type="steer", content="Rather so", mode="cancel", key="x")
        started.send_line(type="steer", content="Rather so", mode="cancel", key="x")
        server.say("Third.")
        started.hang_up()
        done = started.wait()
    (run,) = done.runs
    assert heard(run) == ["Go", "Rather so", "Rather so", "Then this"]


def test_an_abort_ends_the_run_and_the_next_prompt_goes_on(place: Place, server: OpenAIChatServer) -> None:
    server.say(stall("One two", after=1), "Here I am.", "Still here.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send_line(**prompt("One"))
        started.wait_for("text_delta")
        started.send_line(type="abort")
        started.wait_for('"agent_end"')
        started.send_line(**prompt("Two"))
        # It waits for the first prompt, and between prompts.
        started.wait_for('"agent_end"', times=2)
        started.send_line(**prompt("Three"))
        started.wait_for('"agent_end"', times=3)
        started.hang_up()
        done = started.wait()
    assert [heard(run) for run in done.runs] == [["One"], ["Two"], ["Three"]]
    assert (ends(done), done.code, done.stderr) == (["aborted", "done", "done"], 0, b"")


def test_an_abort_right_behind_its_prompt_meets_it(place: Place, server: OpenAIChatServer) -> None:
    server.say("Never heard.")
    done = run_command(DRIVEN, place=place, server=server, stdin=lines(prompt("One"), {"type": "abort"}))
    assert ([heard(run) for run in done.runs], ends(done), done.code) == ([["One"]], ["aborted"], 130)


def test_what_an_abort_left_unheard_is_told_and_stays_in_the_session(place: Place, server: OpenAIChatServer) -> None:
    """failures.md G2: an abort loses nothing that was taken."""
    server.say(stall("One two", after=1), "Both.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send_line(**prompt("One"))
        started.wait_for("text_delta")
        started.send(lines({"type": "steer", "content": "Two"}, {"type": "abort"}))
        started.hang_up()
        done = started.wait()
    assert (ends(done), done.code) == (["aborted"], 130)
    assert done.errors == "steersman: not sent to the model: 1 queued; the next run of this session sends it\n"
    again = run_command(["-c", "-p", "Three", "--output-format", "stream-json"], place=place, server=server)
    assert sorted(heard(again.events)) == ["Three", "Two"]


@pytest.mark.parametrize("type", ["steer", "follow_up"])
def test_the_same_key_is_one_message_also_where_it_starts_a_run(
    place: Place, server: OpenAIChatServer, type: str
) -> None:
    server.say("First.", stall("Second.", after=1), "Third.", "Fourth.")
    one, three = ({"type": type, "content": word, "key": word} for word in ("One", "Three"))
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send(lines(one, one))
        started.wait_for('"agent_end"')
        started.send(lines(one, prompt("Two")))
        started.wait_for('"text_start"', times=2)
        started.send(lines({"type": "abort"}, three, three))
        started.hang_up()
        done = started.wait()
    assert [heard(run) for run in done.runs] == [["One"], ["Two"], ["Three"]]
    assert (ends(done), done.code, done.stderr) == (["done", "aborted", "done"], 0, b"")
    # It holds for the session, and not only for one program.
    done = run_command([*DRIVEN, "-c"], place=place, server=server, stdin=lines(three, prompt("Four")))
    assert ([heard(run) for run in done.runs], done.code) == ([["Four"]], 0)


def test_what_comes_behind_an_abort_is_not_for_the_run_that_ends(place: Place, server: OpenAIChatServer) -> None:
    """failures.md G1: the end of a run takes its time, and what is said meanwhile must not wait for ever."""
    server.say(stall("One two", after=1), "Second.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        # An abort without a run is nothing.
        started.send(BOM_UTF8 + lines({"type": "abort"}, prompt("One")))
        started.wait_for("text_delta")
        started.send(
            lines({"type": "abort"}, {"type": "steer", "content": "Two"}, {"type": "steer", "content": "Three"})
        )
        started.hang_up()
        done = started.wait()
    assert ([heard(run) for run in done.runs], ends(done)) == ([["One"], ["Two", "Three"]], ["aborted", "done"])
    assert (done.code, done.stderr) == (0, b"")


def test_what_finds_no_run_starts_one(place: Place, server: OpenAIChatServer) -> None:
    """failures.md G1: nothing that was taken waits for what may never come."""
    server.say("First.", "Second.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send_line(type="steer", content="One")
        started.wait_for('"agent_end"')
        started.send_line(type="follow_up", content="Two")
        started.hang_up()
        done = started.wait()
    assert ([heard(run) for run in done.runs], done.code) == ([["One"], ["Two"]], 0)


BAD: dict[str, tuple[bytes, str]] = {
    "not json": (b"hello", "malformed"),
    "half an object": (b'{"type":"prompt"', "truncated"),
    "not an object": (b"[1]", "Expected `object`"),
    "a string": (b'"prompt"', "Expected `object`"),
    "not utf-8": (b'{"type":"prompt","content":"\xff"}', "utf-8"),
    "no type": (b'{"content":"x"}', "missing required field `type`"),
    "another type": (b'{"type":"shutdown"}', "Invalid enum value 'shutdown'"),
    "no content": (b'{"type":"prompt"}', "'prompt' needs 'content'"),
    "blank content": (b'{"type":"prompt","content":" "}', "needs some text"),
    "no blocks": (b'{"type":"steer","content":[]}', "needs some text"),
    "no blocks in a prompt that waits": (b'{"type":"prompt","content":[]}', "needs some text"),
    "a blank block": (b'{"type":"prompt","content":[{"type":"text","text":" "}]}', "needs some text"),
    "no base64": (b'{"type":"prompt","content":[{"type":"image","data":"!"}]}', "in base64"),
    "no picture": (b'{"type":"prompt","content":[{"type":"image","data":"AA==","mime_type":"x"}]}', "in base64"),
    "a number": (b'{"type":"prompt","content":1}', "Expected `str | array | null`"),
    "a tool call": (b'{"type":"prompt","content":[{"type":"tool_call","id":"1","name":"bash"}]}', "'text' or 'image'"),
    "half a block": (b'{"type":"prompt","content":[{"type":"text"}]}', "missing required field `text`"),
    "another mode": (b'{"type":"steer","content":"x","mode":"now"}', "Invalid enum value 'now'"),
    "too deep": (b'{"type":"prompt","content":' + b"[" * 100_000, ""),
    "control characters": (b'{"type":"prompt\\u001b[2J"}', "\\x1b"),
}


def test_lines_that_cannot_be_understood_are_told_and_change_nothing(place: Place, server: OpenAIChatServer) -> None:
    server.say("First.")
    bad = [line for line, _ in BAD.values()]
    orders = lines(*bad[:5], "", "  ", prompt("One", unknown={"key": 1}), *bad[5:])
    done = run_command(DRIVEN, place=place, server=server, stdin=orders)
    told = done.errors.splitlines()
    assert ([heard(run) for run in done.runs], done.code) == ([["One"]], 0)
    assert len(told) == len(BAD)
    for line, (name, (_, words)) in zip(told, BAD.items(), strict=True):
        assert line.startswith("steersman: ignored a malformed line of the input: "), name
        assert words in line or name == "control characters", (name, line)
        assert "\x1b" not in line
    assert_calm(done)


def test_only_lines_that_cannot_be_understood_are_a_mistake_in_the_usage(
    place: Place, server: OpenAIChatServer
) -> None:
    done = run_command(DRIVEN, place=place, server=server, stdin=b"hello\n")
    assert (done.code, done.stdout, server.requests) == (2, b"", [])


def test_no_orders_are_no_runs(place: Place, server: OpenAIChatServer) -> None:
    done = run_command(DRIVEN, place=place, server=server, stdin=b"")
    assert done == Done(0, b"", b"")


def test_a_long_line_is_taken_and_one_that_is_too_long_is_told(place: Place, server: OpenAIChatServer) -> None:
    """failures.md F15: neither a limit of 64 KiB nor memory without an end."""
    server.say("First.", "Second.")
    long = "x" * 300_000
    orders = lines(prompt(long), b'{"type":"prompt","content":"' + b"y" * (MAX_LINE + 70_000) + b'"}', prompt("Two"))
    done = run_command(DRIVEN, place=place, server=server, stdin=orders)
    assert [heard(run) for run in done.runs] == [[long], ["Two"]]
    assert done.errors.splitlines() == [
        "steersman: ignored a malformed line of the input: longer than 16,777,216 bytes"
    ]


@pytest.mark.real_time
async def test_an_input_that_does_not_block_is_waited_for() -> None:
    """Another process that shares it may have made it so; nothing to read yet is not the end."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    heard: asyncio.Queue[bytes | None] = asyncio.Queue()
    over = asyncio.Event()
    LineReader(reader, heard.put_nowait, over.set).start()
    for line in (b"one", b"two"):
        os.write(writer, line + b"\n")
        assert await heard.get() == line
    os.close(writer)
    await over.wait()
    os.close(reader)


@pytest.mark.real_time
async def test_a_line_without_an_end_is_given_up_before_its_end() -> None:
    """failures.md F15: memory is bounded, whatever comes."""
    reader, writer = os.pipe()
    heard: asyncio.Queue[bytes | None] = asyncio.Queue()
    over = asyncio.Event()
    LineReader(reader, heard.put_nowait, over.set).start()
    await asyncio.to_thread(os.write, writer, b"one\ntwo\n" + b"x" * MAX_LINE)
    assert [await heard.get(), await heard.get()] == [b"one", b"two"]
    await asyncio.to_thread(os.write, writer, b"x")
    assert await heard.get() is None
    await asyncio.to_thread(os.write, writer, b"x" * MAX_LINE + b"\nthree")
    os.close(writer)
    await over.wait()
    os.close(reader)
    assert heard.get_nowait() == b"three"


def test_answers_can_be_text(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(text("I look."), call("list", path=".")), "First.", "Second.")
    options = ["-p", "--input-format", "stream-json"]
    done = run_command(options, place=place, server=server, stdin=lines(prompt("One"), prompt("Two")))
    assert (done.code, done.text) == (0, "First.\nSecond.\n")


def test_a_signal_ends_the_run_and_takes_no_more_orders(place: Place, server: OpenAIChatServer) -> None:
    """failures.md F10."""
    server.say(stall("One two", after=1), "Never heard.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send_line(**prompt("One"))
        started.send_line(**prompt("Two"))
        started.wait_for("text_delta")
        started.signal(signal.SIGTERM)
        done = started.wait()
    assert (ends(done), done.code, done.stderr) == (["aborted"], 143, b"")


def test_a_signal_while_it_waits_for_orders_ends_it(place: Place, server: OpenAIChatServer) -> None:
    """failures.md F10."""
    server.say("First.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send_line(**prompt("One"))
        started.wait_for('"agent_end"')
        started.signal(signal.SIGINT)
        done = started.wait()
    assert (ends(done), done.code, done.stderr) == (["done"], 130, b"")


class Silent:
    """Shows nothing of a run."""

    async def show(self, stream: EventStream, /) -> RunResult:
        """Wait for the end of a run."""
        return await stream


@pytest.mark.real_time
async def test_a_session_that_another_program_has_taken_over_ends_the_command() -> None:
    """docs/sessions.md: nothing more is written, so no line can be followed, and who sends them hears of it."""
    store = MemoryStore()
    session = Session.create(store)
    driver = OrderDriver(Agent("scripted:echo", session=session), Silent(), print, lambda _: None)
    reader, writer = os.pipe()
    driving = asyncio.ensure_future(driver.drive(reader))
    with Session.open(store, session.id, take_over=True):
        with pytest.raises(SessionTaken):
            session.set_title("Mine.")
        for content in ("One", "Two", "Three"):
            await asyncio.to_thread(os.write, writer, lines(prompt(content)))
        with pytest.raises(SessionTaken, match="taken over"):
            await driving
    os.close(writer)
