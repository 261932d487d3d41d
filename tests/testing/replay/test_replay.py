"""A session replayed is the session: transcript, events and requests, for runs in which anything may have happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from tests.conftest import SOAK
from tests.rows import each_row
from tests.session.kit import planted
from tests.testing.replay.plays import TOOLS, Play

from steersman import Agent, AgentEvent, ContextConfig, ExecutionLimits, Session, Skip, Stop, ToolCall, Usage, tool
from steersman.context.tokens import estimate_tokens
from steersman.session.records import Payload, Record
from steersman.session.stores.memory import MemoryStore
from steersman.testing import (
    EventCollector,
    Replayed,
    ReplayMismatch,
    ScriptedModel,
    answer,
    call,
    check_events,
    error,
    normalize_events,
    replay,
    thinking,
)
from steersman.types.content import ImageContent, TextContent
from steersman.types.errors import ErrorInfo
from steersman.types.events import MessageEnd, MessageUpdate, ToolExecutionStart, TurnEnd
from steersman.types.messages import AgentMessage, AssistantMessage, UserMessage, user_message
from steersman.types.model import Request
from steersman.types.stream import TextDelta, ThinkingDelta, ToolCallDelta

# Each play is two or three runs: hundreds in the ordinary run, tens of thousands in the long one.
CHUNKS = 8
PLAYS = 1_500 if SOAK else 40
pytestmark = [pytest.mark.soak] if SOAK else []


@tool
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def asked(request: Request) -> tuple[str, list[Any], list[tuple[str, str, Any]]]:
    """A request as values that can be compared."""
    tools = [(spec.name, spec.description, spec.parameters) for spec in request.tools]
    return request.system_prompt, list(request.messages), tools


def check_same(session: Session, heard: Sequence[AgentEvent], replayed: Replayed) -> None:
    """The log down to the ids and times, and the events in their normal form."""
    assert list(replayed.log.entries) == list(session.log.entries)
    assert list(replayed.log.visible) == list(session.log.visible)
    assert normalize_events(replayed.events) == normalize_events(heard)
    for run in replayed.runs:
        if run.end_reason is not None:
            check_events(run.events)


@pytest.mark.parametrize("chunk", range(CHUNKS))
async def test_a_replay_is_identical_whatever_happened(chunk: int) -> None:
    """failures.md I9. Models, tools, gates, hooks, steering, aborts, limits, compaction, prun, branches, reruns."""
    runs = 0
    for seed in range(chunk * PLAYS, (chunk + 1) * PLAYS):
        play = Play(seed)
        await play.run()
        replayed = await replay(play.session)
        check_same(play.session, play.heard.events, replayed)
        requests = [request for run in replayed.runs for request in run.requests]
        assert len(requests) == len(play.asked), seed
        for mine, its in zip(requests, play.asked, strict=True):
            assert its is None or asked(mine) == asked(its), seed
        runs += len(replayed.runs)
        play.session.close()
    assert runs > PLAYS * 2


@pytest.mark.parametrize("chunk", range(2))
async def test_a_session_of_killed_programs_replays(chunk: int) -> None:
    """Cut after any record and gone on with by another agent, which settles what was left open."""
    for seed in range(100_000 + chunk * PLAYS, 100_000 + (chunk + 1) * PLAYS):
        play = Play(seed)
        await play.run()
        records = list(play.session.records())
        play.session.close()
        chance = Random(seed)
        store = MemoryStore()
        with Session.open(store, planted(store, records[: chance.randint(2, len(records))])) as session:
            check_same(session, (await replay(session)).events, await replay(session))
            heard = await went_on(session, chance)
            replayed = await replay(session)
            assert list(replayed.log.entries) == list(session.log.entries), seed
            last = [event for run in replayed.runs[-2:] for event in run.events]
            assert normalize_events(last) == normalize_events(heard), seed


async def went_on(session: Session, chance: Random) -> Sequence[AgentEvent]:
    """Two more runs by an agent of another make."""
    script = ScriptedModel("Fine.", answer(call("look", at="x")), "Done.", repeat_last=True)
    agent = Agent(script.model, tools=chance.choice([TOOLS, []]), session=session)
    heard = EventCollector()
    agent.subscribe(heard)
    try:
        await (agent.continue_() if chance.random() < 0.5 else agent.prompt("And now?"))
    except ValueError:  # there is nothing to go on from
        await agent.prompt("So?")
    await agent.prompt("And then?")
    agent.close()
    return heard.events


async def played(*turns: Any, prompts: Sequence[str] = ("Go.",), **options: Any) -> tuple[Session, EventCollector]:
    session = Session.create(MemoryStore(), "one")
    agent = Agent(ScriptedModel(*turns).model, session=session, **options)
    heard = EventCollector()
    agent.subscribe(heard)
    for prompt in prompts:
        await agent.run(prompt)
    agent.close()
    return session, heard


async def test_neither_model_nor_tools_are_asked() -> None:
    done: list[str] = []

    @tool
    async def send(to: str) -> str:
        """Send something that must not be sent twice."""
        done.append(to)
        return "sent"

    session, heard = await played(answer("Now.", call("send", to="Ann")), "Sent.", tools=[send])
    check_same(session, heard.events, await replay(session))
    assert done == ["Ann"]


async def test_an_answer_comes_with_one_delta_for_each_block() -> None:
    """Deltas are not kept, so what they were is not known; what they add up to is."""
    session, heard = await played(
        answer(thinking("Hm. Well."), "So it is.", call("add", a=1), deltas=3), "2.", tools=[add]
    )
    replayed = await replay(session)
    deltas = [event.delta for event in replayed.events if isinstance(event, MessageUpdate)]
    assert [delta for delta in deltas if isinstance(delta, TextDelta | ThinkingDelta | ToolCallDelta)] == [
        ThinkingDelta("Hm. Well.", 0),
        TextDelta("So it is.", 1),
        ToolCallDelta('{"a":1}', 2),
        TextDelta("2.", 0),
    ]
    check_same(session, heard.events, replayed)


async def test_what_the_next_request_is_made_of_is_in_the_session() -> None:
    session, _ = await played("Hello.", system_prompt="You sail.", tools=[add], max_tokens=99, thinking_level="low")
    replayed = await replay(session)
    request = replayed.build_next_request("And now?")
    assert asked(request) == (
        "You sail.",
        [*session.messages, user_message("And now?")],
        [("add", "Add two numbers.", msgspec.to_builtins(add.parameters))],
    )
    options = replayed.options
    assert (options.max_tokens, options.thinking_level, options.session_id) == (99, "low", "one")


async def test_a_session_is_replayed_while_its_agent_has_it_and_by_who_only_reads() -> None:
    store = MemoryStore()
    with Session.create(store, "one") as session:
        agent = Agent(ScriptedModel("Hi.", "Bye.").model, session=session)
        await agent.run("Hello?")
        assert (await replay(session)).messages == session.messages
        await session.save()
        reader = Session.open(store, "one", write=False)
        assert (await replay(reader)).messages == session.messages
        await agent.run("And?")
        assert session.messages[-1].text == "Bye."
        reader.close()


async def test_an_agents_own_functions_shape_the_requests_of_a_replay() -> None:
    """`like` brings what a session does not hold: functions."""

    def shout(messages: list[AgentMessage]) -> list[AgentMessage]:
        return [
            user_message(message.text.upper()) if isinstance(message, UserMessage) else message for message in messages
        ]

    def double(message: AgentMessage) -> int:
        return 2 * estimate_tokens(message)

    options: dict[str, Any] = {
        "transform_context": shout,
        "context_config": ContextConfig(max_context_tokens=200, threshold=0.5, keep_recent=1, estimator=double),
    }
    session, heard = await played("word " * 80, "Yes.", prompts=("Go.", "Go on."), **options)
    agent = Agent(ScriptedModel().model, **options)
    replayed = await replay(session, like=agent)
    check_same(session, heard.events, replayed)
    assert [message.text for message in replayed.runs[1].requests[0].messages if message.role == "user"][-1] == "GO ON."
    with pytest.raises(ReplayMismatch, match="tokens"):
        await replay(session)


async def test_a_limit_an_error_and_a_retry_are_as_they_were() -> None:
    session, heard = await played(
        error("overloaded"),
        answer(call("add", a=1)),
        "So far.",
        error("invalid_request"),
        prompts=("Go.", "Again."),
        tools=[add],
        limits=ExecutionLimits(max_turns=1, wrap_up=True),
    )
    replayed = await replay(session)
    check_same(session, heard.events, replayed)
    assert [run.end_reason for run in replayed.runs] == ["limit", "error"]
    assert "retry_scheduled" in [event.type for event in replayed.runs[0].events]


async def test_a_call_that_was_denied_had_the_arguments_it_would_have_run_with() -> None:
    """They were mended before the gate was asked, and no intent tells them."""

    def deny(_: ToolCall) -> Skip:
        return Skip("not that")

    session, heard = await played(answer(call("add", a="2")), "No.", tools=[add], before_tool_execution=deny)
    check_same(session, heard.events, await replay(session))
    assert [event.args for event in heard.of(ToolExecutionStart)] == [{"a": 2}]


async def test_a_run_that_was_aborted_while_it_was_being_stopped_tells_both() -> None:
    def stop(_: object) -> Stop:
        agent.abort()
        return Stop("enough")

    session, heard = Session.create(MemoryStore(), "one"), EventCollector()
    agent = Agent(ScriptedModel("One.").model, session=session, pre_turn_policies=[stop])
    agent.subscribe(heard)
    result = await agent.run("Go.")
    assert (result.end_reason, result.detail) == ("aborted", "operation aborted (enough)")
    assert [event.reason for event in heard.of(TurnEnd)] == ["stopped"]
    check_same(session, heard.events, await replay(session))


TWO = [{"type": "text", "text": "Two."}]
GO_ON = [{"type": "text", "text": "Go on."}]


def altered(records: Sequence[Record], number: int, fields: Payload) -> list[Record]:
    """The same records with other values in one of them."""
    return [
        msgspec.structs.replace(record, payload={**record.payload, **fields}) if record.seq == number else record
        for record in records
    ]


def numbered(records: Iterable[Record]) -> list[Record]:
    """The same records without gaps."""
    return [msgspec.structs.replace(record, seq=seq) for seq, record in enumerate(records, 1)]


async def replay_of(records: Sequence[Record]) -> Replayed:
    """These records as a session, replayed."""
    store = MemoryStore()
    with Session.open(store, planted(store, records), write=False) as session:
        return await replay(session)


async def test_the_first_difference_is_told_with_the_record_it_differs_from() -> None:
    session, _ = await played(answer(call("add", a=1)), "Never said.", tools=[add], limits=ExecutionLimits(max_turns=1))
    records = list(session.records())
    last = records[-1].seq
    for fields, told in (
        ({"end_reason": "done"}, r"\('done', 'Max turns reached \(1/1\)', 2\)\n  replayed: \('limit'"),
        ({"detail": "It rained."}, r"\('limit', 'It rained.', 2\)\n  replayed: \('limit', 'Max turns"),
        ({"turns": 3}, r"3\)\n  replayed: \('limit', 'Max turns reached \(1/1\)', 2\)"),
    ):
        with pytest.raises(ReplayMismatch, match=told) as caught:
            await replay_of(altered(records, last, fields))
        assert (caught.value.loop_id, caught.value.seq) == (records[-1].payload["loop_id"], last)


async def test_a_loop_that_goes_on_where_the_record_is_done_differs() -> None:
    session, _ = await played(answer(call("add", a=1)), "Two.", tools=[add])
    records = [record for record in session.records() if record.payload.get("message", {}).get("content") != TWO]
    with pytest.raises(ReplayMismatch, match="the model is asked"):
        await replay_of(numbered(records))


async def test_a_loop_that_ends_where_the_record_goes_on_differs() -> None:
    session, _ = await played("One.", "Two.", prompts=("Go.", "Go on."))
    records = list(session.records())
    end = next(record for record in records if record.type == "run_end")
    start = [record for record in records if record.type == "run_start"][1]
    # Two answers in one run, the second to no question.
    unasked = [record for record in records if record.payload.get("message", {}).get("content") != GO_ON]
    with pytest.raises(ReplayMismatch, match="the run ends: done"):
        await replay_of(numbered(record for record in unasked if record not in (end, start)))


async def test_an_answer_is_where_it_was_between_the_events() -> None:
    session, _ = await played("Hi.")
    replayed = await replay(session)
    told = [event.message for event in replayed.events if isinstance(event, MessageEnd)]
    assert told == list(session.messages)
    assert isinstance(told[-1], AssistantMessage)


def refused(text: str, status: int = 400) -> Any:
    return error(ErrorInfo("context_overflow", text, status=status))


LONG = refused("prompt is too long: 9000 tokens > 8000 maximum")
SHARED = refused("`max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or `max_tokens`")
HEAVY, PAGE = refused("Request exceeds the maximum size", 413), refused("<html>No.</html>", 413)
FULL = answer(stop_reason="length", usage=Usage(input=7_990, output=0))
BILL = Usage(input=9_000, output=10)
BLIND = answer("Half blind.", usage=BILL)
PICTURE = UserMessage([TextContent("And this?"), ImageContent("b2xk" * 5_000)])
OVERFLOWS = {
    "too long": [LONG, "Fine."],
    "too long twice": [LONG, LONG],
    "shared": [SHARED, "Fine."],
    "shared twice": [SHARED, SHARED, "Fine."],
    "shared and too long": [SHARED, LONG, SHARED, "Fine."],
    "shared to the end": [SHARED] * 4,
    "too large": [HEAVY, "Fine."],
    "too large twice": [HEAVY, HEAVY],
    "a page": [PAGE, PAGE],
    "full": [FULL, "Fine."],
    "full twice": [FULL, FULL],
    "blind": [BLIND, "Fine."],
    "blind twice": [BLIND, BLIND],
    "blind and none": [BLIND, HEAVY],
    "blind and full": [BLIND, FULL],
    "shared and blind": [SHARED, BLIND, "Fine."],
    "busy and blind": [error(ErrorInfo("overloaded", "busy", status=529)), BLIND, "Fine."],
    "blind calls": [answer(call("look", at="x"), usage=BILL)] * 3,
}


@each_row("turns", OVERFLOWS.values(), ids=OVERFLOWS)
@each_row(
    ("said", "stop"),
    [("nothing", False), ("words", False), ("pictures", False), ("nothing", True), ("words", True), ("pictures", True)],
)
@each_row("limit", [None, 1_000])
async def test_a_request_that_was_too_long_replays(turns: list[Any], said: str, stop: bool, limit: int | None) -> None:
    """failures.md I9: what the loop asks again, and what it adds to the words of a provider, is its own."""

    def after(*_: int) -> Stop | None:
        return Stop("enough") if stop else None

    before = {"nothing": [], "words": [user_message("w " * 1_000)] * 8, "pictures": [PICTURE] * 6}[said]
    session = Session.create(MemoryStore(), "one")
    script = ScriptedModel(*["Yes."] * len(before), *turns, "Fine.", context_window=8_000, repeat_last=True)
    config = None if limit is None else ContextConfig(max_context_tokens=limit, keep_recent=1)
    agent = Agent(script.model, tools=TOOLS, session=session, after_compaction_end=after, context_config=config)
    heard = EventCollector()
    agent.subscribe(heard)
    for prompt in (*before, PICTURE if said == "pictures" else user_message("Go on.")):
        await agent.run(prompt)
    agent.close()
    replayed = await replay(session)
    check_same(session, heard.events, replayed)
    answers = [message for message in session.messages if isinstance(message, AssistantMessage)]
    assert sum(len(run.requests) for run in replayed.runs) == len(answers)


@each_row("turns", OVERFLOWS.values(), ids=OVERFLOWS)
@each_row("said", ["words", "pictures"])
@each_row("allowed", [0, 1])
async def test_a_request_that_was_too_long_replays_if_a_hook_refused_to_compact(
    turns: list[Any], said: str, allowed: int
) -> None:
    """failures.md I9: also if the hook allowed a compaction before the one that it refused."""
    calls = 0

    def before(tokens: int, count: int) -> bool:
        nonlocal calls
        calls += 1
        return calls <= allowed

    prompts = {"words": [user_message("w " * 1_000)] * 8, "pictures": [PICTURE] * 6}[said]
    last = PICTURE if said == "pictures" else user_message("Go on. " * 2_000)  # over the threshold, with the words
    session = Session.create(MemoryStore(), "one")
    script = ScriptedModel(*["Yes."] * len(prompts), *turns, "Fine.", context_window=8_000, repeat_last=True)
    config = ContextConfig(max_context_tokens=6_000, keep_recent=1) if allowed else None
    agent = Agent(script.model, tools=TOOLS, session=session, before_compaction_start=before, context_config=config)
    heard = EventCollector()
    agent.subscribe(heard)
    for prompt in (*prompts, last):
        await agent.run(prompt)
    agent.close()
    check_same(session, heard.events, await replay(session))
