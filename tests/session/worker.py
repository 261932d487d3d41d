"""A program that runs an agent in a session, or queues into one; for tests that steer it, stop it and kill it.

python -m tests.session.worker hold WHERE ID        a run that holds until it is steered, and tells what it hears
python -m tests.session.worker send WHERE ID NAME COUNT
"""

from __future__ import annotations

import asyncio
import sys
import time

from steersman import Agent, AgentEvent, Session, tool
from steersman.session import PostgresStore, SessionQueue, SessionTaken
from steersman.session.records import Record
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import SharedStore
from steersman.testing import ScriptedModel, answer, call


def open_place(where: str) -> SharedStore:
    """The store of a path or of a connection string."""
    return PostgresStore(where) if "host=" in where else SqliteStore(where)


def _say(line: str) -> None:
    print(line, flush=True)


def _tell(event: AgentEvent) -> None:
    if event.type == "message_end" and event.message.role == "user":
        _say(f"heard {event.message.text}")


@tool
async def hold() -> str:
    """Hold until a steering message comes."""
    _say("holding")
    try:
        await asyncio.Event().wait()
    finally:
        _say("let go")
    return ""


async def _hold(where: str, id: str) -> None:
    session = Session.open(open_place(where), id, create=True)
    model = ScriptedModel(answer(call("hold")), repeat_last=True)
    agent = Agent(
        model.model,
        tools=[hold],
        session=session,
        steering="cancel",
        steering_mode="all",
        cancel_grace=0.001,
        limits=None,
        repeated_calls=None,
    )
    agent.subscribe(_tell)
    _say("ready")
    result = await agent.run("Begin.")
    _say(f"ended {result.end_reason}: {result.detail}")
    assert session.recorder.journal is not None
    handle = session.recorder.journal.handle
    try:
        handle.append([Record("late", None, handle.last_seq + 1, "note", time.time(), {"by": "the former owner"})])
        _say("written")
    except SessionTaken:
        _say("refused")
    agent.close()
    session.close()


def _send(where: str, id: str, name: str, count: str) -> None:
    with SessionQueue(open_place(where), id) as queue:
        _say("ready")
        sys.stdin.readline()
        for number in range(int(count)):
            queue.steer(f"{name} {number} {time.time()!r}", key=f"{name} {number}")
    _say("sent")


if __name__ == "__main__":
    act, *rest = sys.argv[1:]
    if act == "hold":
        asyncio.run(_hold(*rest))
    else:
        _send(*rest)
