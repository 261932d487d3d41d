"""What other processes queue into a session is heard by the agent that has it: at once, each once, and by number."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.session.kit import cut, done, records, reopened, said

from steersman import Agent, AgentEvent, Approval, EventStream, RunResult, Session, ToolContext, tool
from steersman.session import SessionQueue, SessionTaken
from steersman.session.stores.store import Store
from steersman.testing import ScriptedModel, answer, call
from steersman.testing.queue_checks import QueueCheck, queue_checks

pytestmark = pytest.mark.real_time


class Rope:
    """A tool that holds a run until it is let go or cancelled, and tells that it has begun."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.cancelled = 0

    def tool(self) -> Any:
        @tool(idempotent=True)
        async def hold(ctx: ToolContext) -> str:
            """Hold."""
            self.begun.set()
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return "held"

        return hold


def _agent(store: Store, rope: Rope, *turns: Any, id: str = "s", **options: Any) -> Agent:
    session = Session.open(store, id, create=True)
    options = {"steering": "cancel", "cancel_grace": 0.01, **options}
    return Agent(ScriptedModel(*turns).model, tools=[rope.tool()], session=session, **options)


def _numbers(store: Store, type: str, id: str = "s") -> list[int]:
    found = [record.payload for record in records(store, id) if record.type == type]
    return [fields["number"] for fields in found if "number" in fields]


def _recorded(agent: Agent, type: str) -> int:
    assert agent.session is not None
    return sum(record.type == type for record in agent.session.records())


async def _wait_for(agent: Agent, is_it: Callable[[AgentEvent], bool]) -> None:
    came = asyncio.Event()
    subscription = agent.subscribe(lambda event: came.set() if is_it(event) else None)
    await asyncio.wait_for(came.wait(), 30)
    agent.unsubscribe(subscription)


async def _until(agent: Agent, is_so: Callable[[], bool]) -> None:
    """Wait until this is so; it is looked at after each order."""
    assert agent.session is not None
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    agent.session.listening.on_order = lambda _: loop.call_soon_threadsafe(heard.set)
    async with asyncio.timeout(30):
        while not is_so():
            await heard.wait()
            heard.clear()


async def _end(stream: EventStream[Any]) -> RunResult[Any]:
    async with asyncio.timeout(30):
        return await stream


@pytest.mark.parametrize("check", queue_checks(), ids=lambda check: check.__name__)
def test_a_queue_conforms(check: QueueCheck, stores: Any) -> None:
    """durable.md U2, U3: the public checks; one store for all names, since each check uses one."""
    check(lambda _: stores)


async def test_a_run_hears_at_once_what_another_one_queues(stores: Store) -> None:
    """durable.md U2: steering interrupts the call that holds it, and the follow-up comes at the end."""
    rope = Rope()
    agent = _agent(stores, rope, answer(call("hold")), "Stopped.", "And followed.")
    stream = agent.prompt("Begin.")
    await rope.begun.wait()
    with SessionQueue(stores, "s") as queue:
        assert await asyncio.to_thread(queue.follow_up, "Then this.") == (1, True)
        assert await asyncio.to_thread(queue.steer, "Stop that.") == (2, True)
        result = await _end(stream)
        assert (result.end_reason, rope.cancelled) == ("done", 1)
        assert [line for line in said(agent.messages) if line.startswith("user")] == [
            "user: Begin.",
            "user: Stop that.",
            "user: Then this.",
        ]
        assert queue.waiting() == []
    done(agent)
    assert _numbers(stores, "accepted") == [1, 2]


async def test_what_no_agent_is_there_to_hear_is_heard_by_the_next_one(stores: Store) -> None:
    """durable.md U2: it is also what a continuation goes on with."""
    agent = _agent(stores, Rope(), "Yes.")
    await agent.run("Begin.")
    done(agent)
    with SessionQueue(stores, "s") as queue:
        queue.steer("One.", "wait")
        queue.follow_up({"role": "user", "content": "Two."})
        assert [(order.number, order.kind, order.mode) for order in queue.waiting()] == [
            (1, "steering", "wait"),
            (2, "follow_up", None),
        ]
    agent, _ = reopened(stores, "s", "First.", "Second.")
    assert [message.text for message in agent.queued.steering] == ["One."]
    await agent.continue_()
    assert [line for line in said(agent.messages) if line.startswith("user")][1:] == ["user: One.", "user: Two."]
    done(agent)
    agent, _ = reopened(stores, "s")
    assert (agent.queued.steering, agent.queued.follow_up) == ([], [])
    done(agent)


async def test_what_was_heard_and_not_delivered_is_heard_after_a_crash(stores: Store) -> None:
    """durable.md U2: from the moment it leaves the queue it is in the log."""
    agent = _agent(stores, Rope(), "Yes.")
    await agent.run("Begin.")
    with SessionQueue(stores, "s") as queue:
        queue.steer("Once.", key="k")
        assert agent.session is not None
        await _until(agent, lambda: len(agent.queued.steering) == 1)
        await agent.session.save()
        assert queue.waiting() == []
        length = len(records(stores, "s"))
        done(agent)
        left = cut(stores, "s", length)
        assert queue.steer("Once.", key="k") == (1, False)
    agent, _ = reopened(stores, left, "Heard.")
    await agent.continue_()
    assert said(agent.messages)[-2:] == ["user: Once.", "assistant: Heard."]
    done(agent)


async def test_a_key_is_one_message_wherever_it_is_queued(stores: Store) -> None:
    """failures.md G1, durable.md U2: by other processes, and by the agent itself."""
    agent = _agent(stores, Rope(), "Yes.", "Yes.")
    agent.steer("Once.", key="a")
    with SessionQueue(stores, "s") as queue, SessionQueue(stores, "s") as other:
        assert queue.steer("Once.", key="a") == (1, True)  # the queue cannot know what the agent has heard
        assert (queue.steer("Twice.", key="b"), other.steer("Twice.", key="b")) == ((2, True), (2, False))
        await _until(agent, lambda: len(agent.queued.steering) == 2)
        assert agent.steer("Twice.", key="b").status == "next_run"
        await agent.run("Begin.")
        assert other.waiting() == []
    assert [line for line in said(agent.messages) if line.startswith("user")] == [
        "user: Begin.",
        "user: Once.",
        "user: Twice.",
    ]
    done(agent)
    assert (_numbers(stores, "order"), _numbers(stores, "accepted")) == ([1], [2])


async def test_many_senders_are_heard_in_the_order_of_the_numbers(stores: Store) -> None:
    """durable.md U2: whatever way their commits fall."""
    agent = _agent(stores, Rope(), "Yes.", steering_mode="all")

    def send(name: int) -> None:
        with SessionQueue(stores, "s") as queue:
            for number in range(10):
                queue.steer(f"{name} {number}")

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    await _until(agent, lambda: len(agent.queued.steering) == 40)
    await agent.run("Begin.")
    heard = [line.removeprefix("user: ") for line in said(agent.messages) if line.startswith("user")][1:]
    done(agent)
    assert sorted(heard) == sorted(f"{name} {number}" for name in range(4) for number in range(10))
    for name in range(4):
        assert [line for line in heard if line.startswith(f"{name} ")] == [f"{name} {number}" for number in range(10)]
    assert _numbers(stores, "accepted") == sorted(_numbers(stores, "accepted"))


async def test_an_abort_ends_the_run_and_no_later_one(stores: Store) -> None:
    """durable.md U1, U2: an abort without a run does nothing."""
    rope = Rope()
    agent = _agent(stores, rope, answer(call("hold")), "Never.")
    assert agent.session is not None
    with SessionQueue(stores, "s") as queue:
        queue.abort()
        await _until(agent, lambda: _recorded(agent, "order") == 1)
        stream = agent.prompt("Begin.")
        await rope.begun.wait()
        queue.abort()
        result = await _end(stream)
        assert (result.end_reason, result.detail, rope.cancelled) == ("aborted", "operation aborted", 1)
    done(agent)
    assert _numbers(stores, "order") == [1, 2]


@pytest.mark.parametrize("when", ["before it was heard", "after it was heard"])
async def test_a_run_that_was_cut_off_is_aborted_when_it_goes_on(stores: Store, when: str) -> None:
    """durable.md U1, U2: the abort is for that run, not for a new prompt."""
    rope = Rope()
    agent = _agent(stores, rope, answer(call("hold")), "Never.")
    stream = agent.prompt("Begin.")
    await rope.begun.wait()
    assert agent.session is not None
    await agent.session.save()
    length = len(records(stores, "s"))
    agent.abort()
    await stream
    done(agent)
    for act in ("continue", "prompt"):
        left = cut(stores, "s", length)
        with SessionQueue(stores, left) as queue:
            queue.abort()
        if when == "after it was heard":
            done(reopened(stores, left)[0])
        rope = Rope()
        rope.let_go.set()
        agent, script = reopened(stores, left, "Yes.", tools=[rope.tool()])
        result = await (agent.continue_() if act == "continue" else agent.prompt("And now?"))
        ended = (result.end_reason, script.asked) if act == "prompt" else (result.end_reason, rope.begun.is_set())
        assert ended == (("aborted", False) if act == "continue" else ("done", 1))
        done(agent)


def _guarded(store: Store, id: str, script: ScriptedModel, ran: list[str]) -> Agent:
    @tool(needs_approval=True)
    async def write(text: str) -> str:
        """Write."""
        ran.append(text)
        return "written"

    session = Session.open(store, id, create=True)
    return Agent(script.model, tools=[write], session=session, approve="wait")


async def test_a_question_is_answered_by_another_one(stores: Store) -> None:
    """durable.md U1, U2: the first answer counts; an answer to a question that was never asked does nothing."""
    ran: list[str] = []
    script = ScriptedModel(answer(call("write", text="a")), answer(call("write", text="b")), "Done.")
    agent = _guarded(stores, "s", script, ran)
    with SessionQueue(stores, "s") as queue:
        stream = agent.prompt("Begin.")
        async for event in stream:
            if event.type == "approval_requested" and event.args == {"text": "a"}:
                queue.approve("approval_never_asked")
                queue.approve(event.approval_id, by="ann")
                queue.deny(event.approval_id, "too late", by="ben")
            elif event.type == "approval_requested":
                queue.deny(event.approval_id, "no more", by="cid")
    assert (ran, (await stream).text) == (["a"], "Done.")
    found = [record.payload for record in records(stores, "s") if record.type == "event"]
    assert [(each["decision"], each["by"]) for each in found if each["type"] == "approval_resolved"] == [
        ("approved", "ann"),
        ("denied", "cid"),
    ]
    done(agent)


@pytest.mark.parametrize("when", ["before it was heard", "after it was heard"])
async def test_a_question_that_a_crash_cut_off_is_answered_when_it_is_asked_again(stores: Store, when: str) -> None:
    """durable.md U1, U2."""
    ran: list[str] = []
    agent = _guarded(stores, "s", ScriptedModel(answer(call("write", text="a")), "Done."), ran)
    stream = agent.prompt("Begin.")
    await _wait_for(agent, lambda event: event.type == "approval_requested")
    assert agent.session is not None
    await agent.session.save()
    left = cut(stores, "s", len(records(stores, "s")))
    question = agent.open_approvals[0].approval_id
    agent.abort()
    await stream
    done(agent)
    with SessionQueue(stores, left) as queue:
        queue.approve(question, by="ann")
    if when == "after it was heard":
        done(_guarded(stores, left, ScriptedModel(), ran))
    agent = _guarded(stores, left, ScriptedModel("Done."), ran)
    result = await _end(agent.continue_())
    assert (result.text, ran) == ("Done.", ["a"])
    done(agent)


async def test_settings_are_changed_by_another_one_from_the_next_turn_on(stores: Store) -> None:
    """durable.md U2: they are kept for the process that opens the session next, and start no run."""
    rope, model = Rope(), ScriptedModel(answer(call("hold")), "Stopped.")
    agent = _agent(stores, rope, stream_fn=model, approval=Approval(allow=["hold"]))
    stream = agent.prompt("Begin.")
    await rope.begun.wait()
    with SessionQueue(stores, "s") as queue:
        changes: Any = {"thinking_level": "high", "mode": "plan", "limits": {"max_turns": 7}, "title": "Mine"}
        assert await asyncio.to_thread(lambda: queue.configure(**changes, key="k")) == (1, True)
        assert await asyncio.to_thread(lambda: queue.configure(**changes, key="k")) == (1, False)
        await asyncio.to_thread(lambda: queue.configure(limits={"max_cost": None}))
        await asyncio.to_thread(queue.steer, "Go on.")
        assert (await _end(stream)).text == "Stopped."
        assert queue.waiting() == []
    limits, approval = agent.config.execution_limits, agent.config.approval
    assert limits is not None
    assert approval is not None
    levels = [options.thinking_level for _, options in model.requests]
    assert (levels, approval.mode, limits.max_turns) == (["off", "high"], "plan", 7)
    done(agent)
    with Session.open(stores, "s", write=False) as session:
        kept = session.recorder.index.settings
    assert kept == {"thinking_level": "high", "mode": "plan", "limits": {"max_turns": 7, "max_cost": None}}
    assert [summary.title for summary in stores.list()] == ["Mine"]


async def test_settings_that_the_agent_refuses_change_nothing(stores: Store, caplog: pytest.LogCaptureFixture) -> None:
    """durable.md U2: the reason is logged and recorded, and what comes after it is heard."""
    agent = _agent(stores, Rope(), "Yes.")
    with SessionQueue(stores, "s") as queue:
        await asyncio.to_thread(lambda: queue.configure(mode="plan", thinking_level="low"))
        await asyncio.to_thread(lambda: queue.configure(limits={"max_turns": -1}))
        with pytest.raises(ValueError, match=r"These settings cannot be changed so: .* Got \{'system_prompt': 'x'\}"):
            queue.configure(system_prompt="x")  # pyright: ignore[reportCallIssue]
        await asyncio.to_thread(queue.follow_up, "Hi.")
    await _until(agent, lambda: bool(agent.queued.follow_up))
    assert agent.thinking_level == "off"
    assert "This agent has no approval policy, so it has no mode." in caplog.text
    done(agent)
    reasons = [record.payload.get("reason", "") for record in records(stores, "s") if record.type == "order"]
    assert [bool(reason) for reason in reasons] == [True, True]
    assert [record.type for record in records(stores, "s")].count("configured") == 0


async def test_an_order_of_an_unknown_kind_is_refused_and_stays(stores: Any, caplog: pytest.LogCaptureFixture) -> None:
    """durable.md U2: a newer program may have queued it; it is not guessed at, and what follows it is heard."""
    Session.create(stores, "s").close()
    queue = stores.open_queue("s")
    queue.add("id:1", b'{"kind":"rewind","id":"q1","to":3}')
    queue.add("id:2", b"no json")
    queue.add(
        "id:3", b'{"kind":"steering","id":"q3","message":{"role":"user","content":[{"type":"text","text":"Hi."}]}}'
    )
    agent, _ = reopened(stores, "s", "Yes.")
    assert agent.session is not None
    assert [problem.where for problem in agent.session.problems] == ["order 1", "order 2"]
    assert "It is of the kind 'rewind', which this version does not know" in agent.session.problems[0].text
    assert "Order 1 of session 's' was not heard" in caplog.text
    await agent.run("Begin.")
    assert [line for line in said(agent.messages) if line.startswith("user")] == ["user: Begin.", "user: Hi."]
    done(agent)
    assert [number for number, _ in queue.waiting()] == [1, 2]
    queue.close()


def test_what_cannot_be_queued_is_refused_at_the_call(stores: Store) -> None:
    Session.create(stores, "s").close()
    with SessionQueue(stores, "s") as queue:
        for wrong in ("", {"role": "user", "content": ""}):
            with pytest.raises(ValueError, match="A message needs some text"):
                queue.steer(wrong)
        with pytest.raises(ValueError, match="mode is 'skip', 'cancel', 'wait' or None, got 'now'"):
            queue.steer("Hi.", "now")  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError, match="key is a string, got 7"):
            queue.follow_up("Hi.", key=7)  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError, match="approval_id is a string, got None"):
            queue.approve(None)  # pyright: ignore[reportArgumentType]
        assert queue.waiting() == []
    with pytest.raises(TypeError, match="This store has no queues"):
        SessionQueue(object(), "s")  # pyright: ignore[reportArgumentType]


async def test_a_run_whose_session_is_taken_over_ends_there(stores: Store) -> None:
    """durable.md U3: its tools are cancelled, it writes nothing more, and it says why."""
    rope = Rope()
    agent = _agent(stores, rope, answer(call("hold")), "Never.")
    stream = agent.prompt("Begin.")
    await rope.begun.wait()
    assert agent.session is not None
    await agent.session.save()
    before = records(stores, "s")
    owner = await asyncio.to_thread(lambda: Session.open(stores, "s", take_over=True))
    result = await _end(stream)
    assert (result.end_reason, rope.cancelled) == ("aborted", 1)
    assert result.detail.startswith("The session 's' was taken over by another writer.")
    assert agent.session.taken == agent.session.degraded == result.detail
    assert owner.epoch > agent.session.epoch
    with pytest.raises(SessionTaken, match="was taken over by another writer"):
        agent.prompt("Again.")
    done(agent)
    assert records(stores, "s") == before
    going_on = Agent(ScriptedModel("Done.").model, tools=[rope.tool()], session=owner)
    rope.let_go.set()
    assert (await going_on.continue_()).text == "Done."
    done(going_on)


@pytest.mark.parametrize("hears", [True, False])
async def test_no_tool_starts_whose_intent_was_refused(stores: Store, hears: bool) -> None:
    """durable.md U3: a writer that was stopped learns from the database, before a tool has an effect.

    Also one that hears nothing of the takeover, and learns of it when it writes.
    """
    rope = Rope()
    owners: list[Session] = []

    def take(event: AgentEvent) -> None:
        if event.type == "message_end" and event.message.role == "assistant":
            if not hears and agent.session is not None:
                agent.session.listening.stop()
            owners.append(Session.open(stores, "s", take_over=True))

    agent = _agent(stores, rope, answer(call("hold")), "Never.")
    agent.subscribe(take)
    result = await asyncio.wait_for(agent.run("Begin."), 30)
    assert (result.end_reason, rope.begun.is_set()) == ("aborted", False)
    done(agent)
    owners[0].close()
    assert not any(record.type == "intent" for record in records(stores, "s"))


async def test_what_is_queued_before_a_takeover_is_heard_by_the_new_owner(stores: Store) -> None:
    """durable.md U2, U3: the former owner may have read it; what counts is the log."""
    agent = _agent(stores, Rope(), "Yes.")
    await agent.run("Begin.")
    owner = Session.open(stores, "s", take_over=True)
    with SessionQueue(stores, "s") as queue:
        queue.steer("Hear this.")
    done(agent)
    agent = Agent(ScriptedModel("Heard.").model, session=owner)
    await agent.continue_()
    assert said(agent.messages)[-2:] == ["user: Hear this.", "assistant: Heard."]
    done(agent)
