"""A disk without room: the run says so and goes on, and once there is room everything is kept."""

from __future__ import annotations

import logging
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from steersman import Agent, tool
from steersman.session.session import Session
from steersman.testing import ScriptedModel, answer, call
from steersman.types.events import CustomEvent
from steersman.types.messages import AgentMessage

pytestmark = pytest.mark.real_time


@contextmanager
def no_room(file: Path) -> Generator[None]:
    """No file of this process may become longer than this one is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def kept(path: Path) -> list[AgentMessage]:
    with Session.open(path, write=False) as session:
        assert list(session.problems) == []
        return list(session.log.messages)


@pytest.mark.parametrize("told", [False, True], ids=["closed", "synced"])
async def test_a_run_goes_on_while_the_disk_has_no_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, told: bool
) -> None:
    """failures.md H7, H8: what was acknowledged stays, what comes meanwhile is kept later, and nothing is torn."""
    path = tmp_path / "sessions.db"
    done: list[str] = []

    @tool
    async def write(words: str) -> str:
        """Write."""
        done.append(words)
        return "x" * 20_000

    script = ScriptedModel("Before.", answer(call("write", words="one")), answer(call("write", words="two")), "After.")
    session = Session.create(path)
    agent = Agent(script.model, tools=[write], session=session)
    said: list[object] = []
    agent.subscribe(lambda event: said.append((event.name, [*event.data])) if isinstance(event, CustomEvent) else None)
    assert (await agent.run("First.")).text == "Before."
    acknowledged = list(agent.messages)
    with caplog.at_level(logging.ERROR, "steersman"), no_room(path.with_name("sessions.db-wal")):
        result = await agent.run("Go.")
        assert (result.end_reason, result.text, done) == ("done", "After.", ["one", "two"])
        assert session.degraded is not None
        assert said == [("session_degraded", ["reason"])]
        assert "could not be written" in session.degraded
        assert [record.message for record in caplog.records] == [
            f"Session {session.id!r} goes on in memory: {session.degraded}"
        ]
        assert not await session.save()
        assert kept(path) == acknowledged
        # What only memory has is no less there: a branch may begin in it.
        assert list(session.log.messages) == list(agent.messages)
        assert [entry.id for entry in session.entries()] == [entry.id for entry in session.log.entries]
    if told:
        assert await session.save()
        assert session.degraded is None
        assert kept(path) == list(agent.messages)
    session.close()
    assert kept(path) == list(agent.messages)
