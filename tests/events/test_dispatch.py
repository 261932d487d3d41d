from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from steersman import Agent, AgentEvent
from steersman.events.dispatch import Dispatcher
from steersman.loop.run import witness
from steersman.testing import EventCollector, ScriptedModel, answer, call
from steersman.types.events import CustomEvent, MessageStart, TurnStart


def event(number: int = 0) -> CustomEvent:
    return CustomEvent("loop", number, 0.0, "test")


def test_each_event_reaches_every_subscriber_in_registration_order_before_the_next() -> None:
    """loop.md section 5"""
    heard: list[str] = []
    dispatcher = Dispatcher()
    for name in "abc":
        dispatcher.subscribe(lambda event, name=name: heard.append(f"{name}{event.seq}"))
    for number in range(2):
        assert not dispatcher.dispatch(event(number))
    assert heard == ["a0", "b0", "c0", "a1", "b1", "c1"]


def test_subscribing_inside_a_callback_takes_effect_with_the_next_event() -> None:
    """loop.md section 5"""
    heard: list[str] = []
    dispatcher = Dispatcher()

    def late(event: AgentEvent) -> None:
        heard.append(f"late{event.seq}")

    def first(event: AgentEvent) -> None:
        heard.append(f"first{event.seq}")
        if event.seq == 0:
            dispatcher.subscribe(late)

    dispatcher.subscribe(first)
    for number in range(2):
        dispatcher.dispatch(event(number))
    assert heard == ["first0", "first1", "late1"]


def test_unsubscribing_inside_a_callback_takes_effect_after_the_current_dispatch() -> None:
    """loop.md section 5"""
    heard: list[str] = []
    dispatcher = Dispatcher()
    ids: list[int] = []

    def first(event: AgentEvent) -> None:
        heard.append(f"first{event.seq}")
        for number in ids:
            dispatcher.unsubscribe(number)

    ids.append(dispatcher.subscribe(first))
    ids.append(dispatcher.subscribe(lambda event: heard.append(f"second{event.seq}")))
    for number in range(2):
        dispatcher.dispatch(event(number))
    assert heard == ["first0", "second0"]


def test_a_subscription_id_is_never_used_twice_and_an_unknown_one_is_ignored() -> None:
    dispatcher = Dispatcher()
    first = dispatcher.subscribe(print)
    dispatcher.unsubscribe(first)
    dispatcher.unsubscribe(first)
    dispatcher.unsubscribe(-1)
    assert dispatcher.subscribe(print) != first


def test_one_function_subscribed_twice_hears_twice() -> None:
    heard = EventCollector()
    dispatcher = Dispatcher()
    first = dispatcher.subscribe(heard)
    dispatcher.subscribe(heard)
    dispatcher.dispatch(event(0))
    dispatcher.unsubscribe(first)
    dispatcher.dispatch(event(1))
    assert [told.seq for told in heard] == [0, 0, 1]


@pytest.mark.parametrize("raised", [ValueError("x"), KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError()])
def test_a_subscriber_that_raises_is_reported_and_removed(raised: BaseException, caplog: Any) -> None:
    """loop.md section 5, failures.md J1"""
    heard = EventCollector()
    dispatcher = Dispatcher()

    def broken(_: AgentEvent) -> None:
        raise raised

    dispatcher.subscribe(broken)
    dispatcher.subscribe(heard)
    with caplog.at_level(logging.ERROR, "steersman"):
        failures = dispatcher.dispatch(event(0))
    assert failures == [f"{broken!r} raised {type(raised).__name__}: {raised}"]
    assert not dispatcher.dispatch(event(1))
    assert [told.seq for told in heard] == [0, 1]
    assert "A subscriber raised on custom and was removed." in caplog.text


@pytest.mark.parametrize("callback", [None, "print", 3])
def test_a_subscriber_is_a_function(callback: Any) -> None:
    with pytest.raises(TypeError, match=r"subscribe\(\) takes a function of one event"):
        Dispatcher().subscribe(callback)


async def test_an_async_subscriber_is_refused_with_advice() -> None:
    async def hear(_: AgentEvent) -> None: ...

    class Hearing:
        async def __call__(self, _: AgentEvent) -> None: ...

    for callback in (hear, Hearing()):
        with pytest.raises(TypeError, match="Iterate over the EventStream"):
            Agent(ScriptedModel("x").model).subscribe(callback)


async def test_a_subscriber_of_the_middle_of_a_run_hears_from_then_on() -> None:
    """loop.md section 5"""
    late = EventCollector()
    agent = Agent(ScriptedModel(answer("one two three", deltas=3)).model)

    def first(event: AgentEvent) -> None:
        if event.type == "turn_start":
            agent.subscribe(late)

    agent.subscribe(first)
    await agent.run("go")
    assert [event.seq for event in late] == list(range(2, len(late) + 2))
    assert late.events[-1].type == "agent_end"


async def test_the_loop_goes_on_only_when_every_subscriber_has_heard() -> None:
    """loop.md section 5"""
    order: list[str] = []
    script = ScriptedModel("one")

    def noting(word: str) -> Any:
        def note(*_: Any) -> None:
            order.append(word)

        return note

    agent = Agent(
        script.model,
        before_turn=noting("hook"),
        after_loop=noting("after"),
    )
    agent.subscribe(lambda event: order.append(event.type))
    agent.subscribe(lambda event: order.append(f"{event.type} again"))
    await agent.run("go")
    assert order[:9] == [
        "agent_start",
        "agent_start again",
        "turn_start",
        "turn_start again",
        "message_start",
        "message_start again",
        "message_end",
        "message_end again",
        "hook",
    ]
    assert order[-3:] == ["agent_end", "agent_end again", "after"]


async def test_a_subscriber_stays_for_later_runs_until_it_leaves() -> None:
    heard = EventCollector()
    agent = Agent(ScriptedModel("ok", repeat_last=True).model)
    subscription = agent.subscribe(heard)
    await agent.run("one")
    await agent.run("two")
    agent.unsubscribe(subscription)
    await agent.run("three")
    assert [event.type for event in heard].count("agent_end") == 2


async def test_a_subscriber_without_deltas_gets_every_other_event_and_costs_no_delta() -> None:
    whole: list[str] = []
    every: list[str] = []
    agent = Agent(ScriptedModel(answer("One two three.", deltas=5)).model)
    agent.subscribe(lambda event: whole.append(event.type), deltas=False)
    other = agent.subscribe(lambda event: every.append(event.type))
    await agent.run("Go.")
    assert every.count("message_update") >= 5
    assert whole == [kind for kind in every if kind != "message_update"]
    assert len(agent.dispatcher.delta_callbacks) == 1
    agent.unsubscribe(other)
    assert (len(agent.dispatcher.callbacks), agent.dispatcher.delta_callbacks) == (1, ())


def test_a_subscriber_of_some_kinds_gets_only_those_and_no_other_is_built() -> None:
    dispatcher, some, every = Dispatcher(), list[str](), list[str]()
    dispatcher.subscribe(lambda event: some.append(event.type), kinds={TurnStart})
    assert dispatcher.find_callbacks(MessageStart) == ()  # so that the loop does not build it
    other = dispatcher.subscribe(lambda event: every.append(event.type))
    start, custom = TurnStart("run", 0, 0.0, 0, "user"), CustomEvent("run", 1, 0.0, "mine", None)
    for event in (start, custom):
        dispatcher.dispatch(event)
    dispatcher.unsubscribe(other)
    assert dispatcher.find_callbacks(CustomEvent) == ()
    dispatcher.dispatch(start)
    assert (some, every) == (["turn_start", "turn_start"], ["turn_start", "custom"])


async def test_the_events_of_a_sub_agent_are_forwarded_only_where_deltas_are_wanted() -> None:
    def make_agent() -> Agent:
        helper = Agent(ScriptedModel("Found.").model)
        script = ScriptedModel(answer(call("helper", prompt="Look.")), "Done.")
        return Agent(script.model, tools=[helper.as_tool("helper", "Helps.")])

    counts: list[int] = []
    for deltas in (False, True):
        updates: list[str] = []
        agent = make_agent()
        agent.subscribe(lambda event, to=updates: to.append(event.type), deltas=deltas)
        token = witness.set(None)  # the judge of all tests wants every event
        await agent.run("Go.")
        witness.reset(token)
        counts.append(updates.count("tool_execution_update"))
    assert counts[0] == 0 < counts[1]
