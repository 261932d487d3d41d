"""Going on after a crash: whatever record was the last to be kept, nothing is lost and nothing is done twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.session.kit import check_sendable, cut, done, planted, records, reopened, said, types

from steersman import (
    Agent,
    Approval,
    Compaction,
    Default,
    Inject,
    Rewrite,
    Session,
    Skip,
    ToolCall,
    ToolContext,
    ToolOutput,
    prun,
    tool,
)
from steersman.context.repair import NOT_STARTED, UNKNOWN
from steersman.loop.tool_calls.execution import ABORTED
from steersman.session.records import Record
from steersman.session.stores.store import Store
from steersman.testing import EventCollector, ScriptedModel, answer, call, stall
from steersman.types.events import CompactionStarted, ToolExecutionEnd, ToolExecutionStart, TurnEnd, TurnStart
from steersman.types.messages import to_message, user_message


class Bench:
    """Tools that write down what they did: `pay` must not be done twice, `look` may be."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.keys: list[str] = []

    @property
    def tools(self) -> list[Any]:
        """Both tools."""

        @tool
        async def pay(to: str, ctx: ToolContext) -> str:
            """Pay a person."""
            self.done.append(f"pay {to}")
            self.keys.append(ctx.idempotency_key)
            return f"paid {to}"

        @tool(idempotent=True)
        async def look(at: str, ctx: ToolContext) -> str:
            """Look at something."""
            self.done.append(f"look {at}")
            self.keys.append(ctx.idempotency_key)
            return f"saw {at}"

        return [pay, look]


THREE = answer("On it.", call("pay", to="a"), call("look", at="b"), call("pay", to="c"))


async def _whole(store: Store) -> tuple[str, list[Record]]:
    """A run with a batch of three calls, and all of its records."""
    with Session.create(store) as session:
        await Agent(ScriptedModel(THREE, "Done.").model, tools=Bench().tools, session=session).run("Go.")
    return session.id, records(store, session.id)


async def _crashed(store: Store, *kept: str) -> str:
    """The session of that run as it is when only the intents (`a!`) and results (`a`) named here were kept."""
    _, found = await _whole(store)
    names = {"call_1": "a", "call_2": "b", "call_3": "c"}
    wanted = [record for record in found if record.type in ("session", "run_start", "message")][:4]
    for record in found:
        name = names.get(record.payload.get("tool_call_id", ""))
        if name is not None and f"{name}{'!' * (record.type == 'intent')}" in kept:
            wanted.append(record)
    numbered = [
        Record(record.id, record.parent, seq, record.type, record.time, record.payload)
        for seq, record in enumerate(wanted, 1)
    ]
    return planted(store, numbered)


async def test_what_had_ended_keeps_its_result_and_what_had_not_begun_is_run(stores: Store) -> None:
    """failures.md A3; a call that was running is not run again, and the model is told so honestly."""
    bench = Bench()
    session_id = await _crashed(stores, "a!", "b!", "a")
    agent, script = reopened(stores, session_id, "Thanks.", tools=bench.tools)
    result = await agent.continue_()
    assert bench.done == ["look b", "pay c"]
    assert said(agent.messages) == [
        "user: Go.",
        "assistant: On it.[call_1, call_2, call_3]",
        "call_1: paid a",
        "call_2: saw b",
        "call_3: paid c",
        "assistant: Thanks.",
    ]
    assert (result.end_reason, script.asked) == ("done", 1)
    done(agent)


async def test_a_call_that_was_running_is_answered_once_with_what_is_known(stores: Store) -> None:
    """failures.md A3: the second time there is nothing left to answer."""
    session_id = await _crashed(stores, "a!", "b!", "c!")
    bench = Bench()
    agent, _ = reopened(stores, session_id, "I see.", tools=bench.tools)
    await agent.continue_()
    assert bench.done == ["look b"]
    assert said(agent.messages)[2:] == [
        f"call_1: {UNKNOWN}",
        "call_2: saw b",
        f"call_3: {UNKNOWN}",
        "assistant: I see.",
    ]
    assert [message.details for message in agent.messages if message.role == "tool_result"] == [
        {"status": "interrupted"},
        {"status": "completed"},
        {"status": "interrupted"},
    ]
    done(agent)
    before = records(stores, session_id)
    again, _ = reopened(stores, session_id, "Hello.", tools=bench.tools)
    assert again.session is not None
    assert again.session.recovery is None
    with pytest.raises(ValueError, match="nothing to answer"):
        again.continue_()
    done(again)
    assert records(stores, session_id) == before
    assert bench.done == ["look b"]


@pytest.mark.parametrize("when", ["at once", "before_loop"])
async def test_an_abort_settles_what_a_crash_left_and_runs_none_of_it(stores: Store, when: str) -> None:
    """D6, T12: each call has its honest result, and the next program has nothing to settle or to ask."""
    bench = Bench()
    session_id = await _crashed(stores, "a!", "b!", "a")
    agent, script = reopened(stores, session_id, "Thanks.", tools=bench.tools)
    if when == "before_loop":
        agent.configure(before_loop=lambda *_: agent.abort())
    stream = agent.continue_()
    if when == "at once":
        agent.abort()
    collected = EventCollector()
    async for event in stream:
        collected(event)
    assert [turn.turn_index for turn in collected.of(TurnEnd)] == [0]
    assert ((await stream).end_reason, bench.done, script.asked) == ("aborted", [], 0)
    assert said(agent.messages)[2:] == ["call_1: paid a", f"call_2: {UNKNOWN}", f"call_3: {ABORTED}"]
    details = [message.details for message in agent.messages if message.role == "tool_result"]
    assert details[1:] == [{"status": "interrupted"}, {"status": "not_started"}]
    check_sendable(agent.messages)
    done(agent)
    again, _ = reopened(stores, session_id, "Hello.", tools=bench.tools)
    assert again.session is not None
    assert again.session.recovery is None
    await again.run("And now?")
    assert said(again.messages)[-2:] == ["user: And now?", "assistant: Hello."]
    assert bench.done == []
    done(again)


async def test_opening_twice_adds_nothing(stores: Store) -> None:
    """failures.md A3, I8: recovery is in what is said next, not in the opening."""
    session_id = await _crashed(stores, "a!")
    before = records(stores, session_id)
    for _ in range(2):
        agent, _ = reopened(stores, session_id, tools=Bench().tools)
        assert agent.session is not None
        assert agent.session.recovery is not None
        done(agent)
    assert records(stores, session_id) == before


async def test_a_new_prompt_is_no_wish_to_go_on_with_the_old_calls(stores: Store) -> None:
    """Nothing is run: what had ended is kept, and the rest is answered honestly before the prompt is heard."""
    bench = Bench()
    session_id = await _crashed(stores, "a!", "b!", "a")
    agent, script = reopened(stores, session_id, "Stopped.", tools=bench.tools)
    await agent.run("Stop that.")
    assert bench.done == []
    assert said(agent.messages)[2:] == [
        "call_1: paid a",
        f"call_2: {UNKNOWN}",
        f"call_3: {NOT_STARTED}",
        "user: Stop that.",
        "assistant: Stopped.",
    ]
    assert [message.details["status"] for message in agent.messages if message.role == "tool_result"] == [
        "completed",
        "interrupted",
        "not_started",
    ]
    check_sendable(script.requests[0][0].messages)
    done(agent)


async def test_the_key_for_doing_it_once_is_the_same_the_second_time(stores: Store) -> None:
    """The service behind a tool can tell that it was asked before, and calls on other branches have other keys."""
    bench = Bench()
    look = answer(call("look", at="b", id="call_0"))
    with Session.create(stores) as session:
        agent = Agent(ScriptedModel(look, "Done.", look, "Done.").model, tools=bench.tools, session=session)
        await agent.run("Go.")
        await agent.rerun()
    first, other = bench.keys
    assert first != other
    intent = types(whole := records(stores, session.id)).index("intent")
    assert whole[intent].payload["tool_call_id"] == "call_0"
    resumed, _ = reopened(stores, cut(stores, session.id, intent + 1), "Fine.", tools=(again := Bench()).tools)
    resumed.context.session_id = session.id  # the copy has a name of its own
    await resumed.continue_()
    done(resumed)
    assert again.keys == [first]


async def test_the_turn_that_settles_old_calls_tells_what_it_does(stores: Store) -> None:
    """docs/loop.md section 10: a turn of its own, spans for what is decided now, results in call order."""
    session_id = await _crashed(stores, "a!", "b!", "a")
    agent, _ = reopened(stores, session_id, "Thanks.", tools=Bench().tools)
    events = EventCollector()
    agent.subscribe(events)
    await agent.continue_()
    done(agent)
    assert events.shape == [
        "agent_start",
        "turn_start",
        "tool_execution_start",
        "tool_execution_start",
        "tool_execution_end",
        "tool_execution_end",
        *["message_start", "message_end"] * 3,
        "turn_end",
        "turn_start",
        "message_start",
        "message_end",
        "turn_end",
        "agent_end",
    ]
    assert [event.tool_call_id for event in events.of(ToolExecutionStart)] == ["call_2", "call_3"]
    assert [event.triggered_by for event in events.of(TurnStart)] == ["continuation", "continuation"]
    first = events.of(TurnEnd)[0]
    assert first.message == agent.messages[1]
    assert [result.tool_call_id for result in first.tool_results] == ["call_1", "call_2", "call_3"]


async def test_the_turn_after_the_settling_is_the_first_of_the_prompt(stores: Store) -> None:
    """docs/loop.md section 10, T1: what a user says is heard in a turn that says a user triggered it."""
    session_id = await _crashed(stores, "a!")
    agent, _ = reopened(stores, session_id, "Fine.", tools=Bench().tools)
    events = EventCollector()
    agent.subscribe(events)
    await agent.run("What happened?")
    done(agent)
    assert [(event.turn_index, event.triggered_by) for event in events.of(TurnStart)] == [
        (0, "continuation"),
        (1, "user"),
    ]


async def test_a_compaction_continuation_compacts_after_the_turn_that_settles_old_calls(stores: Store) -> None:
    """loop.md R6: that turn asks no model, so the first turn of the run is the one after it."""
    session_id = await _crashed(stores, "a!")
    agent, _ = reopened(stores, session_id, call("look", at="d"), "Fine.", tools=Bench().tools)
    events = EventCollector()
    agent.subscribe(events)
    await agent.continue_(Compaction())
    done(agent)
    assert [event.turn_index for event in events.of(TurnStart)] == [0, 1, 2]
    places = [event.type for event in events.events if isinstance(event, TurnStart | CompactionStarted)]
    assert places == ["turn_start", "turn_start", "compaction_started", "turn_start"]


async def test_gates_are_asked_again_for_what_runs_again(stores: Store) -> None:
    """failures.md L22: no approval comes out of a session."""
    bench = Bench()
    session_id = await _crashed(stores, "b!")

    def guard(asked: ToolCall) -> Skip | None:
        return Skip("not allowed") if asked.name == "look" else None

    agent, _ = reopened(stores, session_id, "Fine.", tools=bench.tools, before_tool_execution=guard)
    await agent.continue_()
    done(agent)
    assert bench.done == ["pay a", "pay c"]
    assert said(agent.messages)[3] == "call_2: not allowed"


async def test_a_tool_that_is_gone_is_answered_so(stores: Store) -> None:
    """failures.md H10: the session was written with other tools."""
    session_id = await _crashed(stores, "b!")
    agent, _ = reopened(stores, session_id, "Fine.")
    await agent.continue_()
    done(agent)
    assert said(agent.messages)[2:5] == [
        "call_1: No tool named 'pay'. Available tools: none.",
        f"call_2: {UNKNOWN}",
        "call_3: No tool named 'pay'. Available tools: none.",
    ]


async def test_a_cancel_while_old_calls_run_answers_them_all(stores: Store) -> None:
    """failures.md A1, F4: and the end of the run is kept."""
    session_id = await _crashed(stores)
    started = asyncio.Event()

    @tool
    async def pay(to: str) -> str:
        """Take for ever."""
        started.set()
        await asyncio.get_running_loop().create_future()
        return to

    agent, _ = reopened(stores, session_id, tools=[pay, Bench().tools[1]], tool_execution="sequential")
    stream = agent.continue_()
    await started.wait()
    agent.abort()
    assert (await stream).end_reason == "aborted"
    done(agent)
    assert said(agent.messages)[2:] == [
        "call_1: tool call cancelled: operation aborted",
        "call_2: tool call cancelled: operation aborted",
        "call_3: tool call cancelled: operation aborted",
    ]
    kept = records(stores, session_id)
    assert (kept[-1].type, kept[-1].payload["end_reason"]) == ("run_end", "aborted")
    assert types(kept)[-4:] == ["message", "message", "message", "run_end"]


async def test_a_prompt_is_heard_even_when_the_run_ends_while_old_calls_are_settled(stores: Store) -> None:
    """failures.md I4: a subscriber aborts in the turn before the prompt would be heard."""
    session_id = await _crashed(stores, "a!", "a")
    agent, script = reopened(stores, session_id, tools=Bench().tools)
    agent.subscribe(lambda event: agent.abort() if event.type == "tool_execution_end" else None)
    result = await agent.run("Remember me.")
    done(agent)
    assert (result.end_reason, script.asked) == ("aborted", 0)
    assert said(agent.messages)[-1] == "user: Remember me."


async def test_steering_that_came_with_the_crash_skips_what_had_not_begun(stores: Store) -> None:
    """loop.md D6; it is heard right after the results, once."""
    bench = Bench()
    session_id = await _crashed(stores, "a!", "a")
    first, _ = reopened(stores, session_id, tools=bench.tools)
    first.steer("Only the first, please.")
    done(first)
    agent, _ = reopened(stores, session_id, "Only the first.", tools=bench.tools)
    await agent.continue_()
    done(agent)
    assert bench.done == []
    assert said(agent.messages)[2:] == [
        "call_1: paid a",
        "call_2: Skipped due to queued user message.",
        "call_3: Skipped due to queued user message.",
        "user: Only the first, please.",
        "assistant: Only the first.",
    ]


@pytest.mark.parametrize(
    ("mode", "ran"), [("wait", ["look b", "pay a", "pay c"]), ("cancel", []), ("skip", ["look b"])]
)
async def test_steering_keeps_its_mode_over_a_crash(stores: Store, mode: Any, ran: list[str]) -> None:
    """loop.md D6: `wait` lets everything run, `skip` what was running, `cancel` nothing."""
    bench = Bench()
    session_id = await _crashed(stores, "b!")
    first, _ = reopened(stores, session_id, tools=bench.tools)
    first.steer("Hm.", mode)
    done(first)
    agent, _ = reopened(stores, session_id, "Hm.", tools=bench.tools)
    await agent.continue_()
    done(agent)
    assert sorted(bench.done) == ran
    assert said(agent.messages)[5:] == ["user: Hm.", "assistant: Hm."]


async def test_steering_while_old_calls_run_is_heard_in_the_next_turn(stores: Store) -> None:
    """loop.md T11: not one turn later."""
    session_id = await _crashed(stores)

    @tool
    async def pay(to: str) -> str:
        """Pay, and be interrupted."""
        agent.steer(f"Enough after {to}.", "wait")
        return f"paid {to}"

    agent, script = reopened(stores, session_id, "Good.", "And good.", tools=[pay], tool_execution="sequential")
    await agent.continue_()
    done(agent)
    assert said(agent.messages)[5:] == [
        "user: Enough after a.",
        "assistant: Good.",
        "user: Enough after c.",
        "assistant: And good.",
    ]
    assert script.asked == 2


async def test_what_old_calls_ask_of_the_loop_is_granted(stores: Store) -> None:
    """loop.md C2: a prun that runs after a crash prunes, and spares the group that asked."""
    with Session.create(stores) as session:
        script = ScriptedModel(answer("Old work.", call("look", at="x")), answer(call("prun", tokens=1)), "Done.")
        await Agent(script.model, tools=[*Bench().tools, prun], session=session).run("Go.")
    found = records(stores, session.id)
    asked = [place for place, record in enumerate(found) if record.type == "message"][3]
    agent, _ = reopened(stores, cut(stores, session.id, asked + 1), "Done.", tools=[*Bench().tools, prun])
    await agent.continue_()
    done(agent)
    assert [entry.type for entry in agent.context.log.entries].count("prun") == 1
    assert said(agent.context.log.visible) == [
        "user: Go.",
        "assistant: [call_2]",
        said(agent.messages)[4],
        "assistant: Done.",
    ]


async def test_old_calls_that_all_ask_to_end_the_run_end_it(stores: Store) -> None:
    """loop.md D4"""

    @tool
    async def pay(to: str) -> ToolOutput:
        """Pay and go."""
        return ToolOutput(to, terminate=True)

    @tool
    async def look(at: str) -> ToolOutput:
        """Look and go."""
        return ToolOutput(at, terminate=True)

    agent, script = reopened(stores, await _crashed(stores), tools=[pay, look])
    result = await agent.continue_()
    done(agent)
    assert (result.end_reason, script.asked) == ("terminated", 0)


async def test_a_killed_program_goes_on_after_any_of_its_records(stores: Store) -> None:
    """failures.md A3, I4 to I8: every prefix opens, no payment is made twice, every request is one a server takes."""
    session_id, whole = await _whole(stores)
    for length in range(1, len(whole) + 1):
        prefix = whole[:length]
        known = {(record.type, record.payload.get("tool_call_id")) for record in prefix}
        bench = Bench()
        agent, script = reopened(stores, cut(stores, session_id, length), "Fine.", tools=bench.tools)
        before = said(agent.messages)
        assert before == said(record_messages(prefix))
        if not before:
            await agent.run("Go.")
        elif before[-1] != "assistant: Done.":
            await agent.continue_(Default())
        expected = [
            f"{name} {letter}"
            for name, letter, call_id in (("pay", "a", "call_1"), ("look", "b", "call_2"), ("pay", "c", "call_3"))
            if len(before) in (2, 3, 4)
            and f"{call_id}: " not in "".join(before)
            and ("result", call_id) not in known
            and (name == "look" or ("intent", call_id) not in known)
        ]
        assert bench.done == expected, length
        assert said(agent.messages)[: len(before)] == before
        check_sendable(agent.messages)
        assert script.asked == (0 if before and before[-1] == "assistant: Done." else 1)
        done(agent)


def record_messages(found: list[Record]) -> list[Any]:
    """The messages that these records hold."""
    return [to_message(record.payload["message"]) for record in found if record.type == "message"]


async def test_a_cancelled_run_is_kept_to_its_end(stores: Store) -> None:
    """failures.md F4: however it is cancelled, the last thing that is kept is how it ended."""
    with Session.create(stores) as session:
        agent = Agent(ScriptedModel(stall("Once upon", after=1)).model, session=session)
        shown = asyncio.Event()
        agent.subscribe(lambda event: shown.set() if event.type == "message_update" else None)
        task = asyncio.ensure_future(agent.run("Tell me."))
        await shown.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        kept = records(stores, session.id)
        assert types(kept) == ["session", "run_start", "message", "message", "run_end"]
        assert kept[-1].payload["end_reason"] == "aborted"


async def test_an_aborted_batch_is_kept_to_its_end(stores: Store) -> None:
    """failures.md F4, A1: every call has its result in the session before the run says it is over."""
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        started.set()
        await asyncio.get_running_loop().create_future()
        return ""

    with Session.create(stores) as session:
        script = ScriptedModel(answer(call("wait"), call("wait")))
        agent = Agent(script.model, tools=[wait], tool_execution="sequential", session=session)
        stream = agent.prompt("Go.")
        await started.wait()
        agent.abort()
        await stream
        kept = records(stores, session.id)
    assert types(kept)[4:] == ["intent", "result", "result", "message", "message", "run_end"]
    agent, _ = reopened(stores, session.id, "Better not.")
    assert agent.session is not None
    assert agent.session.recovery is None
    assert (await agent.run("Never mind.")).text == "Better not."
    done(agent)


async def test_one_intent_per_group_is_waited_for_before_a_call_starts(stores: Store) -> None:
    """An intent is on disk before the tool's body begins; calls that wait for their turn have none yet."""
    seen: list[list[str]] = []

    @tool
    async def step(n: int) -> int:
        """Look at what is kept at this moment."""
        seen.append([str(record.payload["arguments"]["n"]) for record in _intents(stores, session.id)])
        return n

    with Session.create(stores) as session:
        script = ScriptedModel(answer(*(call("step", n=n) for n in range(3))), "Done.")
        await Agent(script.model, tools=[step], tool_execution="sequential", session=session).run("Go.")
    assert seen == [["0"], ["0", "1"], ["0", "1", "2"]]


def _intents(store: Store, session_id: str) -> list[Record]:
    return [record for record in records(store, session_id) if record.type == "intent"]


async def test_the_same_call_id_on_another_branch_is_another_call(stores: Store) -> None:
    """failures.md A9: what is known about a call is what was written under its own answer."""
    bench = Bench()
    pay = answer(call("pay", to="a", id="call_0"))
    with Session.create(stores) as session:
        agent = Agent(ScriptedModel(pay, "Paid.", pay, "Paid again.").model, tools=bench.tools, session=session)
        await agent.run("Pay.")
        await agent.rerun()
    assert bench.done == ["pay a", "pay a"]
    found = records(stores, session.id)
    second = [place for place, record in enumerate(found) if record.type == "message"][4]
    again = Bench()
    resumed, _ = reopened(stores, cut(stores, session.id, second + 1), "Paid at last.", tools=again.tools)
    await resumed.continue_()
    done(resumed)
    assert again.done == ["pay a"]
    assert said(resumed.messages) == ["user: Pay.", "assistant: [call_0]", "call_0: paid a", "assistant: Paid at last."]


async def test_what_happened_on_another_branch_since_is_of_no_matter(stores: Store) -> None:
    """failures.md A9: going back to the answer that a crash left, its call has not been made yet."""
    pay = answer(call("pay", to="a", id="call_0"))
    with Session.create(stores) as session:
        await Agent(ScriptedModel(pay, "Paid.").model, tools=Bench().tools, session=session).run("Pay.")
    asked = types(records(stores, session.id)).index("intent")
    crashed = cut(stores, session.id, asked)
    agent, _ = reopened(stores, crashed, pay, "Paid.", "Paid here too.", tools=(bench := Bench()).tools)
    left = agent.context.log.entry_id_of(1)
    await agent.rerun()
    assert bench.done == ["pay a"]
    await agent.branch(left)
    assert bench.done == ["pay a", "pay a"]
    done(agent)


async def test_a_branch_with_a_prompt_runs_no_old_calls(stores: Store) -> None:
    """Another way is taken: what was asked for on the first one is answered and not run."""
    bench = Bench()
    agent, _ = reopened(stores, await _crashed(stores), "Fine.", tools=bench.tools)
    await agent.branch(1, prompt="Something else.")
    done(agent)
    assert bench.done == []
    assert said(agent.messages)[2:] == [
        *(f"call_{number}: {NOT_STARTED}" for number in (1, 2, 3)),
        "user: Something else.",
        "assistant: Fine.",
    ]


async def test_a_source_of_steering_that_breaks_while_old_calls_run_ends_the_run_with_an_error(stores: Store) -> None:
    """loop.md R8: the calls have their results, and the error is said."""
    asked: list[int] = []

    def steering() -> list[Any]:
        asked.append(1)
        if len(asked) > 1:
            raise LookupError("no steering here")
        return []

    agent, script = reopened(stores, await _crashed(stores), tools=Bench().tools, get_steering_messages=steering)
    result = await agent.continue_()
    done(agent)
    assert (result.end_reason, script.asked) == ("error", 0)
    assert "no steering here" in result.detail
    assert [message.role for message in agent.messages][2:] == ["tool_result"] * 3 + ["assistant"]
    check_sendable(agent.messages)


async def test_what_before_loop_wants_said_is_said_even_when_the_run_ends_while_old_calls_run(stores: Store) -> None:
    """failures.md I4"""

    @tool
    async def pay(to: str) -> str:
        """Be interrupted."""
        agent.abort()
        await asyncio.sleep(10)
        return to

    def remind(*_: object) -> Inject:
        return Inject([user_message("Remember me.")])

    agent, _ = reopened(stores, await _crashed(stores), tools=[pay], before_loop=remind)
    result = await agent.continue_()
    done(agent)
    assert (result.end_reason, said(agent.messages)[-1]) == ("aborted", "user: Remember me.")


async def test_results_that_had_reached_the_transcript_are_not_said_twice(stores: Store) -> None:
    """Killed between two result messages: the rest follows, in call order."""
    session_id, whole = await _whole(stores)
    places = [place for place, record in enumerate(whole) if record.type == "message"]
    agent, _ = reopened(stores, cut(stores, session_id, places[2] + 1), "Thanks.", tools=(bench := Bench()).tools)
    events = EventCollector()
    agent.subscribe(events)
    await agent.continue_()
    done(agent)
    assert bench.done == []
    assert said(agent.messages)[2:] == ["call_1: paid a", "call_2: saw b", "call_3: paid c", "assistant: Thanks."]
    assert events.of(ToolExecutionEnd) == []


async def test_a_program_that_is_killed_again_while_it_goes_on_does_nothing_twice(stores: Store) -> None:
    """failures.md I6, I8: what was started after the first crash is known after the second."""
    first = await _crashed(stores, "a!", "a")
    agent, _ = reopened(stores, first, "Thanks.", tools=Bench().tools, tool_execution="sequential")
    await agent.continue_()
    done(agent)
    whole = records(stores, first)
    began = max(place for place, record in enumerate(whole) if record.type == "run_start")
    for length in range(began, len(whole)):
        started = {record.payload["tool_call_id"] for record in whole[:length] if record.type == "intent"}
        ended = {record.payload["tool_call_id"] for record in whole[:length] if record.type == "result"}
        bench = Bench()
        again, _ = reopened(stores, cut(stores, first, length), "Thanks.", tools=bench.tools)
        if said(again.messages)[-1] != "assistant: Thanks.":
            await again.continue_()
        done(again)
        calls = {"call_2": "look b", "call_3": "pay c"}
        expected = [text for id, text in calls.items() if id not in ended and (text == "look b" or id not in started)]
        assert bench.done == expected, length
        check_sendable(again.messages)


async def test_open_calls_that_were_put_there_by_hand_are_not_run(stores: Store) -> None:
    """failures.md L22: as without a session, the model is told that their outcome is unknown."""
    bench = Bench()
    script = ScriptedModel("I see.", "I see that too.")
    with Session.create(stores) as session:
        agent = Agent(script.model, tools=bench.tools, session=session)
        asked = {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "x", "name": "pay", "arguments": {"to": "a"}}],
        }
        agent.context.messages = ["Pay.", asked]
        await agent.continue_()
    assert (bench.done, said(script.requests[0][0].messages)[-1]) == (
        [],
        "x: Tool call interrupted: its outcome is unknown.",
    )
    length = 1 + [place for place, record in enumerate(records(stores, session.id)) if record.type == "message"][1]
    again, script = reopened(stores, cut(stores, session.id, length), "Still.", tools=bench.tools)
    await again.continue_()
    done(again)
    assert bench.done == []


@pytest.mark.parametrize("change", [False, True], ids=["the same call", "another call"])
async def test_an_open_question_is_asked_again_under_its_id_after_a_crash(stores: Store, *, change: bool) -> None:
    """server.md S7: it survives a restart of the process, bound to the exact name and arguments."""
    bench = Bench()
    script = ScriptedModel(answer(call("pay", to="a")), "Done.")
    with Session.create(stores) as session:
        agent = Agent(script.model, tools=bench.tools, session=session, approval=Approval(), approve="wait")
        stream = agent.prompt("Go.")
        await asyncio.sleep(1)
        (asked,) = agent.open_approvals
        await session.recorder.save()
        kept = records(stores, session.id)
        agent.abort()
        await stream
    events = [record.payload for record in kept if record.type == "event"]
    assert [(event["type"], event["approval_id"]) for event in events] == [("approval_requested", asked.approval_id)]

    def rewrite(_: ToolCall) -> Rewrite | None:
        return Rewrite({"to": "b"}) if change else None

    options = {"tools": bench.tools, "approval": Approval(), "approve": "wait", "before_tool_execution": rewrite}
    agent, _ = reopened(stores, planted(stores, kept), "Done.", **options)
    stream = agent.continue_()
    await asyncio.sleep(1)
    (question,) = agent.open_approvals
    assert (question.approval_id == asked.approval_id) is not change
    assert agent.approve(question.approval_id)
    await stream
    assert bench.done == ["pay b" if change else "pay a"]
