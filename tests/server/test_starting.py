"""Starting runs for fronts: one at a time in a session, and never a note without a run (server.md S5)."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.kit import make_agent

from steersman.server.sessions import Sessions
from steersman.session.stores.memory import MemoryStore
from steersman.types.messages import user_message

pytestmark = pytest.mark.real_time


async def test_what_starts_a_run_is_done_even_if_the_client_leaves() -> None:
    sessions = Sessions(make_agent("Done."), MemoryStore())
    live = await sessions.open_named(None, "one")
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def start() -> None:
        begun.set()
        await go_on.wait()
        await live.prompt(user_message("Go."))

    client = asyncio.create_task(live.start_alone(start))
    await begun.wait()
    client.cancel()
    await asyncio.wait([client])
    go_on.set()

    async def find_messages() -> int:
        await live.wait_until_idle()
        return len(live.agent.messages)

    # The next one waits for the one before it.
    assert await live.start_alone(find_messages) == 2
    await sessions.close()


async def test_a_session_in_which_a_front_starts_a_run_is_not_closed_as_unused() -> None:
    sessions = Sessions(make_agent("Done."), MemoryStore())
    live = await sessions.open_named(None, "one")

    async def start() -> None:
        await sessions.close_idle("one")
        await live.prompt(user_message("Go."))

    await live.start_alone(start)
    await live.wait_until_idle()
    assert len(live.agent.messages) == 2
    await sessions.close()


async def test_a_session_that_is_closed_as_unused_before_one_who_asked_for_it_could_act_is_opened_again() -> None:
    sessions = Sessions(make_agent("Done."), MemoryStore())
    closed_first: list[bool] = []

    async def close_at_once() -> None:
        await sessions.close_idle()
        closed_first.append(not opening.done())

    opening = asyncio.create_task(sessions.open_named(None, "one"))
    while "one" not in sessions.live:  # noqa: ASYNC110  # the moment after is what this is about
        await asyncio.sleep(0)
    closing = asyncio.create_task(close_at_once())
    live = await opening
    await live.prompt(user_message("Go."))
    await asyncio.wait([closing])
    await live.wait_until_idle()
    assert (len(live.agent.messages), closed_first) == (2, [True])
    await sessions.close()


async def test_a_note_is_taken_back_if_its_run_could_not_start() -> None:
    store = MemoryStore()
    sessions = Sessions(make_agent("Done."), store)
    live = await sessions.open_named(None, "one")
    with live.note("kept", {"id": "1"}):
        pass
    with pytest.raises(ValueError, match="blank"), live.note("refused", {"id": "2"}):
        raise ValueError("blank")
    found = [live.find_note("refused"), live.find_note("kept")]
    await sessions.close()
    after = await Sessions(make_agent("Done."), store).open_named(None, "one")
    assert found == [after.find_note("refused"), after.find_note("kept")]
    assert found[0] is None
    await after.close()


@pytest.mark.parametrize("user", [None, "ann"])
async def test_a_name_leads_to_one_session_however_it_looks(user: str | None) -> None:
    """S6: the session belongs to the user, and its id is one that a store takes."""
    sessions = Sessions(make_agent("Done."), MemoryStore())
    for name in ("plain", "x" * 128, "x" * 129, "../../etc/passwd", "", "u0123456789abcdef.theirs"):
        async with asyncio.TaskGroup() as group:
            opening = [group.create_task(sessions.open_named(user, name)) for _ in range(2)]
        first, second = (task.result() for task in opening)
        assert first is second
        sessions.check_owner(user, first.session.id)
    await sessions.close()
