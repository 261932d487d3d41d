"""The measurements compare like with like: both sides of a job give the same events and the same answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from bench.child import crowd, idle
from bench.cluster_parts import read_cpu
from bench.floor import FloorAgent
from bench.loop import calls_job, delta_job, run_job, slope, text_job, tool_job, write_job
from bench.measure import Pair, Row, medians
from bench.script import MODEL, PROVIDER, Script, add, text_turn, tool_turn, turns_of
from bench.work import TOOL, Done, Job, Watch, floor, steersman

from steersman import Agent, Model

SAID = ["message_start", "message_end"]
TEXT = ["message_start", *["message_update"] * 6, "message_end"]
CALL = ["message_start", *["message_update"] * 4, "message_end"]


def turn(*inside: str) -> list[str]:
    return ["turn_start", *inside, "turn_end"]


WORK = ["tool_execution_start", "tool_execution_end", *SAID]
JOBS = {
    "deltas": (delta_job("subscriber")(4), "word word word word ", turn(*SAID, *TEXT)),
    "paced": (delta_job("reader", paced=True)(4), "word word word word ", turn(*SAID, *TEXT)),
    "read": (delta_job("reader")(4), "word word word word ", turn(*SAID, *TEXT)),
    "follow-ups": (text_job("reader")(2), "It is 42.", turn(*SAID, *TEXT) * 2),
    "runs": (run_job("subscriber")(1), "It is 42.", turn(*SAID, *TEXT)),
    "tools": (tool_job("subscriber")(2), "It is 42.", [*turn(*CALL, *WORK) * 2, *turn(*TEXT)]),
}
JOBS["tools"][2][1:1] = SAID  # the prompt is heard in the first turn


@pytest.mark.parametrize("name", JOBS)
async def test_both_sides_of_a_job_give_the_same_events_and_the_same_answer(name: str) -> None:
    job, answer, events = JOBS[name]
    ours, theirs = await steersman(job), await floor(job)
    assert (ours.answer, ours.events) == (answer, ["agent_start", *events, "agent_end"])
    assert (theirs.answer, theirs.events) == (ours.answer, ours.events)


@pytest.mark.parametrize("job", [delta_job, write_job])
async def test_a_watcher_that_reads_the_answer_so_far_gets_the_same_events(job: Callable[[Watch], Any]) -> None:
    plain, reading = await steersman(job("subscriber")(4)), await steersman(job("partial")(4))
    assert (reading.answer, reading.events) == (plain.answer, plain.events)
    assert reading.events.count("message_update") >= 6


async def test_a_marked_job_reads_the_clock_at_each_request() -> None:
    job = replace(tool_job("nobody")(2), marked=True)
    ours, theirs = await steersman(job), await floor(job)
    assert len(ours.requests) == len(theirs.requests) == 3
    assert ours.requests == sorted(ours.requests)


@pytest.mark.parametrize("watch", ["subscriber", "reader"])
async def test_both_sides_run_all_calls_of_an_answer_and_end_alike(watch: Watch) -> None:
    job = calls_job(watch)(3)
    ours, theirs = await steersman(job), await floor(job)
    assert ours.answer == theirs.answer == "It is 42."
    assert sorted(ours.events) == sorted(theirs.events)
    assert ours.events.count("tool_execution_end") == 3


@pytest.mark.parametrize("watch", ["subscriber", "reader"])
async def test_both_sides_answer_one_prompt_after_another(watch: Watch) -> None:
    one, two = run_job(watch)(1), run_job(watch)(2)
    ours, theirs = await steersman(two), await floor(two)
    assert ours.answer == theirs.answer == "It is 42."
    assert ours.events == theirs.events == (await floor(one)).events * 2


async def test_without_a_listener_both_sides_only_answer() -> None:
    job = delta_job("nobody")(4)
    ours, theirs = await steersman(job), await floor(job)
    assert (ours.answer, ours.events) == (theirs.answer, theirs.events) == ("word word word word ", [])


async def test_both_sides_keep_the_same_history() -> None:
    turns = turns_of(tool_turn(40, 2), text_turn("It is 42."))
    ours = Agent(Model(PROVIDER, MODEL), tools=[TOOL], stream_fn=Script(turns.typed))
    theirs = FloorAgent(Script(turns.plain), {"add": add})
    await ours.run("Begin.")
    await theirs.run("Begin.")
    texts = [(message.role, message.text) for message in ours.messages]
    assert texts == [
        ("user", "Begin."),
        ("assistant", ""),
        ("tool_result", "40"),
        ("tool_result", "41"),
        ("assistant", "It is 42."),
    ]
    assert [(message["role"], _text(message["content"])) for message in theirs.messages] == texts


def _text(content: list[dict[str, str]]) -> str:
    return "".join(block.get("text", "") for block in content)


async def test_every_floor_event_is_numbered_and_stamped_as_ours_are() -> None:
    agent = FloorAgent(Script(turns_of(text_turn("It is 42.")).plain), {})
    events = [event async for event in agent.events("Begin.")]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert {event["loop_id"] for event in events} == {agent.loop_id}
    assert all(event["timestamp"] > 0 for event in events)


@pytest.mark.parametrize("side", ["steersman", "floor"])
async def test_a_small_crowd_gives_only_right_answers(side: str) -> None:
    assert (await crowd(side, 3))["right"] == 3


@pytest.mark.parametrize("side", ["steersman", "floor"])
async def test_the_memory_of_an_idle_agent_is_counted_per_agent(side: str) -> None:
    assert (await idle(side, 2, 1))["bytes"] > 100


def test_a_median_takes_both_sides_in_turn_and_leaves_out_the_warm_up() -> None:
    order: list[str] = []
    figures = iter([100.0, 100.0, 1.0, 10.0, 20.0, 2.0, 3.0, 30.0])

    def sample(side: str) -> float:
        order.append(side)
        return next(figures)

    assert medians(Pair(lambda: sample("ours"), lambda: sample("floor")), 3) == (2.0, 20.0)
    assert order == ["ours", "floor", "ours", "floor", "floor", "ours", "ours", "floor"]


def test_a_row_misses_its_goal_by_ratio_or_by_value() -> None:
    assert Row("turn", "us", 30.0, 10.0, 2).cells() == ("turn", "us", "30.00", "10.00", "3.00x", "<= 2 x", "MISSED")
    assert Row("idle", "KiB", 3.0, 1.0, 8, absolute=True).cells()[-3:] == ("3.00x", "<= 8 KiB", "ok")
    assert [Row("", "us", 30.0, 0.0, 2).missed, Row("", "us", 30.0, 10.0).missed] == [True, False]


def test_a_slope_is_the_cost_of_one_more() -> None:
    async def play(job: Job) -> Done:
        return Done(5.0 + 3.0 * len(job.turns.plain), "", [], [])

    assert slope(play, text_job("nobody"), 2, 6) == 3.0


# Its children are ready, each after some work, once it says so; then they end, and it waits for each.
PARENT = """
import os, sys, time
reading, writing = os.pipe()
for _ in range(30):
    if os.fork() == 0:
        while time.process_time() < 0.05:
            pass
        os.write(writing, b"x")
        os.read(0, 1)
        os._exit(0)
for _ in range(30):
    os.read(reading, 1)
print("ready", flush=True)
for _ in range(30):
    os.wait()
print("over", flush=True)
os.read(0, 1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_cpu_time_of_children_is_counted_while_they_end_too() -> None:
    with subprocess.Popen((sys.executable, "-c", PARENT), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        before = read_cpu(parent.pid)
        parent.stdin.write(b"x" * 30)
        parent.stdin.flush()
        seen = [read_cpu(parent.pid) for _ in range(30)]
        assert parent.stdout.readline() == b"over\n"
        parent.stdin.write(b"x")
    # What has ended is counted in ticks of 10 ms.
    assert before >= 1.5
    assert min(seen) > before - 0.025
