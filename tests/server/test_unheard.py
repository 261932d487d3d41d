"""What is said at one server while another process has the session, and does not hear it or has heard it before."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.kit import Gate, make_agent, make_deployer, run_server
from tests.server.test_elsewhere import make_slow, run_both, store
from tests.server.test_two_servers import show

from steersman import Approval, Session
from steersman.session import SessionQueue, Store
from steersman.testing import answer, call

pytestmark = pytest.mark.real_time
__all__ = ["store"]


async def test_what_was_done_under_a_key_is_not_done_again_at_another_server(store: Store) -> None:
    """S5: an abort and settings that are sent again elsewhere, after the next run has begun, change nothing."""
    gate = Gate()
    made = make_agent(
        answer(call("wait")), answer(call("wait")), "Done.", tools=[gate.make_tool()], approval=Approval("bypass")
    )
    async with run_both(made, store) as (a, b), asyncio.timeout(20):
        id = await a.create()
        await a.act(id, "prompt", {"content": "Go."})
        await gate.reached.wait()
        sent: list[tuple[str, dict[str, str], str]] = [("abort", {}, "stop"), ("configure", {"mode": "plan"}, "plan")]
        first = [await a.act(id, action, body, Idempotency_Key=key) for action, body, key in sent]
        await a.act(id, "configure", {"mode": "bypass"})
        gate.reached.clear()
        await a.act(id, "prompt", {"content": "On."})
        await gate.reached.wait()
        again = [await b.act(id, action, body, Idempotency_Key=key) for action, body, key in sent]
        gate.opened.set()
        whole = await a.collect(id, after=(await a.collect(id))[-1][0])
        _, shown = await a.send("GET", f"/sessions/{id}")
    assert again == first
    assert whole[-1][1]["end_reason"] == "done"
    assert shown["mode"] == "bypass"


async def test_what_the_other_process_never_hears_is_done_here(store: Store) -> None:
    """U2: it has the session open, does not listen, and closes it."""
    Session.create(store, "s").close()
    handle = store.open("s")
    async with run_server(make_agent("Heard."), store=store) as client:
        await client.act("s", "steer", {"content": "Is there anyone?"}, Idempotency_Key="k")
        await asyncio.to_thread(handle.close)
        events = await client.collect("s")
        again = await client.act("s", "steer", {"content": "Is there anyone?"}, Idempotency_Key="k")
        assert again["status"] == "accepted"
    assert show(events).complete == ["Heard."]


async def queue_before_opening(store: Store) -> None:
    """A session that no process has open, and in which a message waits."""

    def queue() -> None:
        Session.create(store, "s").close()
        with SessionQueue(store, "s") as waiting:
            waiting.steer("Is there anyone?")

    await asyncio.to_thread(queue)


@pytest.mark.parametrize("action", ["configure", "abort"])
async def test_what_is_heard_while_a_session_is_opened_starts_a_run(action: str, store: Store) -> None:
    """U2: also where the session is opened for something else, and where another server sees that it was heard."""
    await queue_before_opening(store)
    async with run_server(make_agent("Heard."), store=store) as client, asyncio.timeout(20):
        await client.act("s", action, {"title": "New"} if action == "configure" else {})
        events = await client.collect("s")
    assert show(events).complete == ["Heard."]


async def test_a_session_opened_for_a_run_has_that_run_alone(store: Store) -> None:
    """U2: `continue` takes what was heard meanwhile, and no second run gets in its way."""
    await queue_before_opening(store)
    async with run_server(make_agent("Heard."), store=store) as client, asyncio.timeout(20):
        await client.act("s", "continue", {})
        events = await client.collect("s")
        _, shown = await client.send("GET", "/sessions/s")
    assert show(events).complete == ["Heard."]
    assert (shown["status"], [event["type"] for _, event in events].count("agent_start")) == ("idle", 1)


@pytest.mark.parametrize("action", ["approve", "deny", "abort"])
async def test_an_answer_that_the_other_process_never_hears_lets_the_run_go_on_here(action: str, store: Store) -> None:
    """S7, U2: the process that has the session is gone before it has heard the answer, or the abort."""
    async with run_server(make_deployer, store=store) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        position, asked = (await client.collect(id, "approval_requested"))[-1]
    handle = await asyncio.to_thread(store.open, id)
    after = make_agent(answer("Done.")) if action != "abort" else make_agent()
    async with run_server(after, store=store) as client, asyncio.timeout(20):
        await client.act(id, action, {} if action == "abort" else {"id": asked["approval_id"]})
        await asyncio.to_thread(handle.close)
        events = await client.collect(id, after=position)
        _, shown = await client.send("GET", f"/sessions/{id}")
    [status] = [event["result"]["details"]["status"] for _, event in events if event["type"] == "tool_execution_end"]
    assert status == {"approve": "completed", "deny": "denied", "abort": "not_started"}[action]
    assert (shown["status"], shown["approvals"]) == ("idle", [])


async def test_a_run_that_was_cut_goes_on_nowhere_while_another_server_has_it_open(store: Store) -> None:
    """Section 6 of server.md: a prompt gets 409 only while a run goes on, and both servers say the same of it."""
    gate = Gate()
    async with run_server(make_slow(gate), store=store) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Go."})
        await gate.reached.wait()
    async with run_both(make_agent("More."), store) as (a, b), asyncio.timeout(20):
        last = (await a.send("GET", f"/sessions/{id}"))[1]["position"]
        async with a.watch(id):  # the session stays open there
            await a.act(id, "configure", {"limits": {"max_turns": 9}})
            shown = [(await client.send("GET", f"/sessions/{id}"))[1]["status"] for client in (a, b)]
            await b.act(id, "prompt", {"content": "On."})
            events = await b.collect(id, after=last)
    assert shown == ["idle", "idle"]
    assert events[-1][1]["end_reason"] == "done"
