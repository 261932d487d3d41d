"""Steering and follow-ups outlive the program: they come back as they were, and are heard exactly once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.session.kit import cut, done, records, reopened, said, types

from steersman import Agent, ExecutionLimits, Pass, Reject, Session, tool
from steersman.session.stores.store import Store
from steersman.testing import ScriptedModel, answer, call


def _open(store: Store, *turns: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel(*turns).model, session=Session.create(store), **options)


def _id(agent: Agent) -> str:
    assert agent.session is not None
    return agent.session.id


def _waiting(agent: Agent) -> list[tuple[str, str, str | None, str | None]]:
    assert agent.session is not None
    return [(item.kind, item.message.text, item.mode, item.key) for item in agent.session.waiting]


async def test_what_was_queued_comes_back_with_its_key_and_its_mode(stores: Store) -> None:
    agent = _open(stores)
    agent.steer("One.", "cancel", key="first")
    agent.follow_up("Two.", key="second")
    agent.steer("Three.")
    done(agent)
    agent, _ = reopened(stores, _id(agent))
    assert _waiting(agent) == [
        ("steering", "One.", "cancel", "first"),
        ("follow_up", "Two.", None, "second"),
        ("steering", "Three.", None, None),
    ]
    assert [message.text for message in agent.queued.steering] == ["One.", "Three."]
    assert [message.text for message in agent.queued.follow_up] == ["Two."]
    done(agent)


async def test_what_came_back_is_heard_once_in_order(stores: Store) -> None:
    """failures.md G7: one at a time, as queues work by default."""
    agent = _open(stores)
    for number in range(3):
        agent.steer(f"Steer {number}.")
        agent.follow_up(f"Follow {number}.")
    done(agent)
    agent, script = reopened(stores, _id(agent), *(f"Yes {number}." for number in range(6)))
    await agent.run("Begin.")
    assert [line for line in said(agent.messages) if line.startswith("user")] == [
        "user: Begin.",
        *(f"user: Steer {number}." for number in range(3)),
        *(f"user: Follow {number}." for number in range(3)),
    ]
    assert (_waiting(agent), script.asked) == ([], 6)
    done(agent)
    agent, _ = reopened(stores, _id(agent))
    assert _waiting(agent) == []
    done(agent)


async def test_a_key_is_one_message_also_in_another_program(stores: Store) -> None:
    """failures.md G1: a client that heard no answer sends it again, before it was heard or after."""
    agent = _open(stores)
    agent.steer("Once.", key="k")
    done(agent)
    agent, _ = reopened(stores, _id(agent), "Yes.")
    assert agent.steer("Once.", key="k").status == "next_run"
    assert len(agent.queued.steering) == 1
    await agent.run("Begin.")
    done(agent)
    agent, _ = reopened(stores, _id(agent), "Yes.")
    assert agent.steer("Once.", key="k").status == "delivered"
    assert agent.queued.steering == []
    assert said(agent.messages) == ["user: Begin.", "user: Once.", "assistant: Yes."]
    done(agent)


async def test_what_was_taken_back_does_not_come_back(stores: Store) -> None:
    agent = _open(stores)
    agent.steer("Never mind.", key="k")
    assert [message.text for message in agent.clear_queue()] == ["Never mind."]
    done(agent)
    agent, _ = reopened(stores, _id(agent))
    assert _waiting(agent) == []
    assert agent.steer("Do mind.", key="k").status == "next_run"
    done(agent)


async def test_what_a_filter_kept_out_does_not_come_back(stores: Store) -> None:
    """loop.md R4"""

    def refuse(text: str) -> Pass | Reject:
        return Reject("not here") if "bad" in text else Pass()

    agent = _open(stores, "Fine.", input_filters=[refuse])
    agent.steer("Something bad.")
    await agent.run("Begin.")
    done(agent)
    agent, _ = reopened(stores, _id(agent))
    assert (_waiting(agent), said(agent.messages)) == ([], ["user: Begin.", "assistant: Fine."])
    done(agent)


async def test_a_prompt_that_no_filter_has_judged_is_kept(stores: Store) -> None:
    """failures.md I4: the run was aborted while the filters thought, so the prompt waits for the next one."""

    async def think(_: str) -> Pass:
        agent.abort()
        await asyncio.sleep(1)
        return Pass()

    agent = _open(stores, "Fine.", input_filters=[think])
    result = await agent.run("Begin.")
    assert (result.end_reason, [message.text for message in result.undelivered]) == ("aborted", ["Begin."])
    done(agent)
    agent, _ = reopened(stores, _id(agent), "Fine.")
    assert _waiting(agent) == [("steering", "Begin.", None, None)]
    await agent.run("Go on.")
    assert said(agent.messages) == ["user: Go on.", "user: Begin.", "assistant: Fine."]
    done(agent)


async def test_steering_at_a_limit_stays_queued_over_the_end_of_the_program(stores: Store) -> None:
    """failures.md G3"""

    @tool
    async def work() -> str:
        """Work, and be spoken to."""
        agent.steer("Also this.")
        return "worked"

    agent = _open(stores, answer(call("work")), tools=[work], limits=ExecutionLimits(max_turns=1))
    result = await agent.run("Go.")
    assert result.end_reason == "limit"
    done(agent)
    agent, _ = reopened(stores, _id(agent), "Both done.")
    heard = [line for line in said(agent.messages) if line == "user: Also this."]
    assert len(heard) + len(_waiting(agent)) == 1
    await agent.run("Go on.")
    assert said(agent.messages).count("user: Also this.") == 1
    done(agent)


async def test_a_follow_up_from_the_last_event_of_a_run_is_kept(stores: Store) -> None:
    """failures.md G4"""
    agent = _open(stores, "Done.")
    agent.subscribe(lambda event: agent.follow_up("One more.") and None if event.type == "agent_end" else None)
    await agent.run("Go.")
    done(agent)
    agent, _ = reopened(stores, _id(agent), "Done again.")
    assert _waiting(agent) == [("follow_up", "One more.", None, None)]
    await agent.continue_()
    assert said(agent.messages) == ["user: Go.", "assistant: Done.", "user: One more.", "assistant: Done again."]
    done(agent)


@pytest.mark.real_time
async def test_messages_from_other_threads_are_kept(stores: Store) -> None:
    """failures.md G1: each is waiting or heard, in this program or the next."""

    @tool
    def work() -> str:
        """Work while many others speak."""
        threads = [threading.Thread(target=agent.steer, args=(f"Word {number}.",)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "worked"

    agent = _open(stores, answer(call("work")), "Heard.", tools=[work], limits=ExecutionLimits(max_turns=2))
    await agent.run("Go.")
    done(agent)
    agent, _ = reopened(stores, _id(agent))
    heard = [line.removeprefix("user: ") for line in said(agent.messages) if "Word" in line]
    assert sorted(heard + [text for _, text, _, _ in _waiting(agent)]) == sorted(f"Word {n}." for n in range(20))
    done(agent)


async def test_each_message_is_heard_once_after_any_last_record(stores: Store) -> None:
    """failures.md I4, I5, S2, G2: in the queue or in the transcript at every moment, never in both or in neither."""

    @tool
    async def work() -> str:
        """Work, and be spoken to."""
        agent.steer("Steer one.", "wait")
        agent.steer("Steer two.", key="two")
        agent.follow_up("Follow.")
        return "worked"

    agent = _open(stores, answer(call("work")), "A.", "B.", "C.", tools=[work])
    await agent.run("Go.")
    done(agent)
    whole = records(stores, _id(agent))
    assert types(whole).count("delivered") == 3
    words = ["Steer one.", "Steer two.", "Follow."]
    for length in range(1, len(whole) + 1):
        accepted = [r.payload["message"]["content"][0]["text"] for r in whole[:length] if r.type == "accepted"]
        again, _ = reopened(stores, cut(stores, _id(agent), length), *["Yes."] * 6, tools=[])
        for word in words:
            waiting = [text for _, text, _, _ in _waiting(again)].count(word)
            assert said(again.messages).count(f"user: {word}") + waiting == (word in accepted), (length, word)
        await again.run("More.")
        for word in words:
            assert said(again.messages).count(f"user: {word}") == (word in accepted), (length, word)
        assert _waiting(again) == []
        done(again)
