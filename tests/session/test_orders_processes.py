"""Between real processes on one file or one database: steering, kill -9, SIGSTOP past a takeover, and many senders."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from tests.session.kit import done, records, said
from tests.session.worker import open_place

from steersman import Agent, Session
from steersman.session import SessionQueue
from steersman.testing import ScriptedModel

pytestmark = pytest.mark.real_time
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file or a database, as another process is told of it."""
    return request.getfixturevalue("postgres").dsn if request.param == "postgres" else str(tmp_path / "sessions.db")


class Worker:
    """One process of `tests.session.worker`."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.session.worker", *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []

    def wait_for(self, line: str) -> str:
        """Read until there is a line that begins like this."""
        assert self.process.stdout is not None
        for found in self.process.stdout:
            self.lines.append(found.rstrip("\n"))
            if found.startswith(line):
                return self.lines[-1]
        raise AssertionError(f"It ended without {line!r}: {self.lines}")

    def begin(self) -> None:
        """Let a sender begin."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """Stop it where it is, and wait until it is stopped."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def working(*arguments: str) -> Generator[Worker]:
    """A worker, which is gone in the end."""
    worker = Worker(*arguments)
    try:
        yield worker
    finally:
        worker.kill()


async def test_a_stopped_writer_is_taken_over_and_its_late_writes_are_refused(place: str) -> None:
    """durable.md U2, U3: what is steered is heard once; after SIGCONT the former owner writes nothing and ends."""
    store = open_place(place)
    with working("hold", place, "s") as worker:
        worker.wait_for("holding")
        with SessionQueue(store, "s") as queue:
            for _ in range(2):
                queue.steer("Hear me.", key="once")
            worker.wait_for("heard Hear me.")
            worker.wait_for("holding")
            worker.stop()
            owner = Session.open(store, "s", take_over=True)
            queue.steer("To the new one.")
            agent = Agent(ScriptedModel("Mine.").model, session=owner)
            await agent.run("Now I.")
            assert await owner.save()
            before = records(store, "s")
            worker.process.send_signal(signal.SIGCONT)
            ended = worker.wait_for("ended")
            worker.wait_for("refused")
            assert queue.waiting() == []
    assert ended.startswith("ended aborted: The session 's' was taken over by another writer.")
    assert worker.lines.count("heard Hear me.") == worker.lines.count("let go") - 1 == 1
    assert "heard To the new one." not in worker.lines
    assert records(store, "s") == before
    assert said(agent.messages)[-3:] == ["user: Now I.", "user: To the new one.", "assistant: Mine."]
    done(agent)


async def test_what_a_killed_writer_had_not_heard_is_heard_by_the_next_one(place: str) -> None:
    """durable.md U2: it is stopped when the message is queued, and never goes on."""
    store = open_place(place)
    with working("hold", place, "s") as worker, worker_queue(worker, place) as queue:
        worker.stop()
        queue.steer("For the next one.")
        worker.kill()
        agent = Agent(ScriptedModel("Heard.").model, session=Session.open(store, "s"))
        await agent.run("Who is there?")
        assert [line for line in said(agent.messages) if line.startswith("user")] == [
            "user: Begin.",
            "user: Who is there?",
            "user: For the next one.",
        ]
        done(agent)
        assert queue.waiting() == []


@contextmanager
def worker_queue(worker: Worker, place: str) -> Generator[SessionQueue]:
    """The queue of a worker's session, once the worker holds."""
    worker.wait_for("holding")
    with SessionQueue(open_place(place), "s") as queue:
        yield queue


def _heard(place: str) -> list[str]:
    """What was heard, by sender and number, in the order of the log; and no number came before a lower one."""
    found = records(open_place(place), "s")
    numbers = [record.payload["number"] for record in found if record.type == "accepted"]
    assert numbers == sorted(set(numbers))
    texts = [record.payload["message"]["content"] for record in found if record.type == "message"]
    words = ["".join(block.get("text", "") for block in content) for content in texts]
    return [" ".join(text.split()[:2]) for text in words if text.startswith("sender")]


@pytest.mark.soak
def test_five_hundred_messages_of_four_processes_are_heard_once_in_order(place: str) -> None:
    """durable.md U2: and how long it takes from the call in one process to the inbox of the run in the other."""
    with working("hold", place, "s") as worker, worker_queue(worker, place) as queue:
        senders = [Worker("send", place, "s", f"sender{name}", "125") for name in range(4)]
        for sender in senders:
            sender.wait_for("ready")
        for sender in senders:
            sender.begin()
        for sender in senders:
            sender.wait_for("sent")
            sender.kill()
        queue.steer("All are done.")
        worker.wait_for("heard All are done.")
        queue.abort()
        worker.wait_for("ended aborted")
    heard = _heard(place)
    assert sorted(heard) == sorted(f"sender{name} {number}" for name in range(4) for number in range(125))
    for name in range(4):
        of_one = [text for text in heard if text.startswith(f"sender{name} ")]
        assert of_one == [f"sender{name} {number}" for number in range(125)]
    _print_latency(place)


def _print_latency(place: str) -> None:
    spans: list[float] = []
    for record in records(open_place(place), "s"):
        if record.type == "accepted" and (text := record.payload["message"]["content"][0]["text"]).startswith("sender"):
            spans.append(record.time - float(text.split()[2]))
    if spans:
        median, most = 1000 * statistics.median(spans), 1000 * max(spans)
        print(f"\n{len(spans)} orders, from the call to the inbox: median {median:.1f} ms, longest {most:.1f} ms")


@pytest.mark.soak
def test_a_steer_alone_is_heard_far_within_a_tenth_of_a_second(place: str) -> None:
    """durable.md U2: the median of 50, one at a time, while the run holds."""
    with working("hold", place, "s") as worker, worker_queue(worker, place) as queue:
        for number in range(50):
            queue.steer(f"sender0 {number} {time.time()!r}")
            worker.wait_for(f"heard sender0 {number} ")
            worker.wait_for("holding")
        queue.abort()
        worker.wait_for("ended aborted")
    _print_latency(place)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_writers_are_killed_again_and_again_and_all_is_heard_once(place: str, seed: int) -> None:
    """durable.md U2: each writer is killed at some moment, and the next one goes on."""
    random = Random(seed)
    Session.create(open_place(place), "s").close()
    sender = Worker("send", place, "s", "sender", "60")
    sender.wait_for("ready")
    sender.begin()
    sent = [f"sender {number}" for number in range(60)]
    with SessionQueue(open_place(place), "s") as queue:
        for life in range(5):
            with working("hold", place, "s") as worker:
                worker.wait_for("ready")
                words = [f"sender{life} {number}" for number in range(random.randrange(2, 20))]
                for text in words:
                    queue.steer(text)
                worker.wait_for(f"heard {random.choice(words)}")
            sent.extend(words)
        sender.wait_for("sent")
        sender.kill()
        with working("hold", place, "s") as worker:
            worker.wait_for("holding")
            queue.steer("All are done.")
            worker.wait_for("heard All are done.")
            queue.abort()
            worker.wait_for("ended aborted")
        assert queue.waiting() == []
    assert sorted(_heard(place)) == sorted(sent)
