from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.loop.play import answering, asked, doing, listened, outline, said
from tests.rows import each_row

from steersman import (
    Agent,
    AgentContext,
    AgentEvent,
    AgentLoopConfig,
    AgentMessage,
    Branch,
    CancelToken,
    Compaction,
    ContextConfig,
    Default,
    Inject,
    Pass,
    Rerun,
    Retry,
    Stop,
    ToolOutput,
    Usage,
    agent_loop,
    agent_loop_continue,
    default_convert_to_llm,
    tool,
)
from steersman.policy.hooks import PolicyView
from steersman.testing import EventCollector, ScriptedModel, answer, call, error, stall, text
from steersman.types.continuation import ContinuationKind
from steersman.types.errors import ErrorInfo
from steersman.types.events import MessageEnd, MessageStart, MessageUpdate, TurnEnd, TurnStart
from steersman.types.messages import AssistantMessage, Message


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(1)
    return "seen"


async def test_a_turn_with_tools_and_the_turn_after_it_tell_everything_in_order() -> None:
    """loop.md T1, loop.md T2, loop.md T7, loop.md T10"""
    agent, events = listened(ScriptedModel([text("let me see"), call("look")], answer("done", deltas=2)), tools=[look])

    await agent.run(["one", "two"])

    assert events.types == [
        "agent_start",
        "turn_start",
        *("message_start", "message_end") * 2,
        *("message_start", *("message_update",) * 10, "message_end"),
        "tool_execution_start",
        "tool_execution_end",
        *("message_start", "message_end"),
        "turn_end",
        "turn_start",
        *("message_start", *("message_update",) * 4, "message_end"),
        "turn_end",
        "agent_end",
    ]
    assert outline(events) == [
        "agent_start",
        "turn_start 0 user",
        "user: one",
        "user: two",
        "assistant: let me see[look]",
        "start look",
        "end look",
        "tool_result: seen",
        "turn_end 0 tool_use",
        "turn_start 1 continuation",
        "assistant: done",
        "turn_end 1 stop",
        "agent_end done",
    ]


async def test_turn_end_carries_the_answer_and_the_results_of_its_turn() -> None:
    """loop.md T1"""
    agent, events = listened(ScriptedModel([call("look"), call("look")], "done"), tools=[look])

    result = await agent.run("go")

    turns = [(turn.turn_index, turn.message, list(turn.tool_results), turn.reason) for turn in events.of(TurnEnd)]
    assert turns == [
        (0, result.messages[1], result.messages[2:4], "tool_use"),
        (1, result.messages[4], [], "stop"),
    ]


@pytest.mark.parametrize(
    ("kind", "trigger"),
    [
        (None, "continuation"),
        (Default(), "continuation"),
        (Rerun("x"), "continuation"),
        (Compaction(), "continuation"),
        (Branch("x"), "branch"),
    ],
    ids=repr,
)
async def test_the_first_turn_of_a_continuation_says_what_triggered_it(
    kind: ContinuationKind | None, trigger: str
) -> None:
    """loop.md T1"""
    context = AgentContext(messages=["go"], tools=[look], agent_id="a", session_id="s", continuation_kind=kind)
    config = AgentLoopConfig(model=ScriptedModel(call("look"), "done").model, first_turn_trigger="sub_agent")

    events = [event async for event in agent_loop_continue(context, config)]

    starts = [(event.turn_index, event.triggered_by) for event in events if isinstance(event, TurnStart)]
    assert starts == [(0, trigger), (1, "continuation")]


@pytest.mark.parametrize("trigger", ["user", "sub_agent"])
async def test_the_first_turn_of_a_fresh_run_says_what_the_configuration_says(trigger: Any) -> None:
    """loop.md T1"""
    config = AgentLoopConfig(model=ScriptedModel("done").model, first_turn_trigger=trigger)

    events = [event async for event in agent_loop("go", AgentContext(), config)]

    assert [event.triggered_by for event in events if isinstance(event, TurnStart)] == [trigger]


async def test_what_is_pending_is_heard_in_order_prompts_steering_injections() -> None:
    """loop.md T2"""

    def before_loop(messages: object, index: int) -> Inject:
        return Inject("injected")

    agent, _ = listened(ScriptedModel("ok"), before_loop=before_loop, steering_mode="all")
    agent.steer("steer 1")
    agent.steer("steer 2")

    result = await agent.run(["prompt 1", "prompt 2"])

    assert said(result.messages) == [
        "user: prompt 1",
        "user: prompt 2",
        "user: steer 1",
        "user: steer 2",
        "user: injected",
        "assistant: ok",
    ]


async def test_steering_is_heard_before_what_a_policy_injected_after_the_same_turn() -> None:
    """loop.md T2"""

    def after_turn(messages: list[AgentMessage], usage: Usage) -> Inject | None:
        return Inject("injected") if len(messages) == 2 else None

    agent, _ = listened(ScriptedModel(answer("one", pace=1), "two"), after_turn=after_turn)
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    agent.steer("steered")

    assert said((await stream).messages) == [
        "user: go",
        "assistant: one",
        "user: steered",
        "user: injected",
        "assistant: two",
    ]


async def test_a_prompt_is_in_the_log_whatever_ends_its_turn() -> None:
    """loop.md T2"""
    agent, events = listened(ScriptedModel(), before_turn=answering(False))

    await agent.run("go")

    assert said(agent.messages) == ["user: go"]
    assert outline(events) == ["agent_start", "turn_start 0 user", "user: go", "turn_end 0 vetoed", "agent_end vetoed"]


@pytest.mark.parametrize(
    ("no", "detail"), [(False, "before_turn said no"), (Stop("enough"), "enough")], ids=["False", "Stop"]
)
async def test_before_turn_can_end_the_run(no: object, detail: str) -> None:
    """loop.md T4"""
    seen: list[tuple[int, int]] = []

    def before_turn(messages: list[AgentMessage], index: int) -> object:
        seen.append((len(messages), index))
        return no if index == 1 else None

    script = ScriptedModel(call("look"), "never")
    agent, events = listened(script, tools=[look], before_turn=before_turn)

    result = await agent.run("go")

    assert (result.end_reason, result.detail, script.asked) == ("vetoed", detail, 1)
    assert seen == [(1, 0), (3, 1)]
    assert outline(events)[-3:] == ["turn_start 1 continuation", "turn_end 1 vetoed", "agent_end vetoed"]


async def test_the_context_is_compacted_before_the_model_is_asked_when_it_is_over_the_threshold() -> None:
    """loop.md T5"""
    order: list[object] = []

    def before_compaction_start(estimated_tokens: int, message_count: int) -> bool:
        order.append(("before", estimated_tokens > 800, message_count))
        return allowed[0]

    def after_compaction_end(messages_before: int, messages_after: int, tokens_before: int, tokens_after: int) -> None:
        order.append(("after", messages_before, messages_after < messages_before, tokens_after < tokens_before))

    history: list[Any] = ["task"]
    for number in range(20):
        history.append({"role": "assistant", "content": f"answer {number} " + "word " * 100})
        history.append(f"question {number}")
    allowed = [False]
    script = ScriptedModel("first", "second")
    agent, events = listened(
        script,
        messages=history,
        context_config=ContextConfig(max_context_tokens=4000, threshold=0.2),
        before_compaction_start=before_compaction_start,
        after_compaction_end=after_compaction_end,
    )

    await agent.run("skipped")
    skipped = (list(order), [kind for kind in events.types if kind.startswith("compaction")])
    allowed[0] = True
    order.clear()
    events.events.clear()
    await agent.run("compacted")

    assert skipped == ([("before", True, 42)], [])
    assert order == [("before", True, 44), ("after", 44, True, True)]
    assert outline(events)[:6] == [
        "agent_start",
        "turn_start 0 user",
        "user: compacted",
        "compaction_started",
        "compaction_ended",
        "assistant: second",
    ]
    assert len(script.requests[0][0].messages) > len(script.requests[1][0].messages)


async def test_a_request_is_transformed_converted_judged_and_sent_in_that_order() -> None:
    """loop.md T6"""
    order: list[object] = []

    async def async_transform(messages: list[AgentMessage]) -> list[AgentMessage]:
        order.append(("async_transform_context", said(messages)))
        return [*messages, *default_convert_to_llm([AgentMessageOf("a")])]

    def transform(messages: list[AgentMessage]) -> list[AgentMessage]:
        order.append(("transform_context", said(messages)))
        return [*messages, AgentMessageOf("b")]

    def convert(messages: list[AgentMessage]) -> list[Message]:
        order.append(("convert_to_llm", said(messages)))
        return default_convert_to_llm(messages)

    def policy(view: PolicyView) -> None:
        order.append(("pre_turn", said(view.messages)))

    def get_api_key(provider: str) -> str:
        order.append(("get_api_key", provider))
        return f"key {len(order)}"

    script = ScriptedModel(call("look"), "done")
    agent, _ = listened(
        script,
        tools=[look],
        async_transform_context=async_transform,
        transform_context=transform,
        convert_to_llm=convert,
        pre_turn_policies=[policy],
        get_api_key=get_api_key,
    )

    await agent.run("go")

    turn = ["user: go"]
    later = ["user: go", "assistant: [look]", "tool_result: seen"]
    assert order == [
        ("async_transform_context", turn),
        ("transform_context", [*turn, "user: a"]),
        ("convert_to_llm", [*turn, "user: a", "user: b"]),
        ("pre_turn", turn),
        ("get_api_key", "scripted"),
        ("async_transform_context", later),
        ("transform_context", [*later, "user: a"]),
        ("convert_to_llm", [*later, "user: a", "user: b"]),
        ("pre_turn", later),
        ("get_api_key", "scripted"),
    ]
    assert [asked(script, 0), asked(script, 1)] == [[*turn, "user: a", "user: b"], [*later, "user: a", "user: b"]]
    assert [options.api_key for _, options in script.requests] == ["key 5", "key 10"]
    assert said(agent.messages) == [*later, "assistant: done"]


def AgentMessageOf(words: str) -> AgentMessage:  # reads as the value it gives
    return AgentContext(messages=[words]).messages[0]


async def test_a_transform_works_on_a_copy() -> None:
    """loop.md T6"""

    def transform(messages: list[AgentMessage]) -> list[AgentMessage]:
        messages.clear()
        return [AgentMessageOf("only this")]

    script = ScriptedModel("one", "two")
    agent, _ = listened(script, transform_context=transform)
    await agent.run("a")
    await agent.run("b")

    assert [asked(script, 0), asked(script, 1)] == [["user: only this"], ["user: only this"]]
    assert said(agent.messages) == ["user: a", "assistant: one", "user: b", "assistant: two"]


async def test_transforms_are_told_when_the_request_is_made_again_after_an_overflow() -> None:
    """loop.md T6"""
    told: list[tuple[str, bool]] = []

    async def async_transform(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage]:
        told.append(("async", overflow))
        return messages

    def transform(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage]:
        told.append(("sync", overflow))
        return messages

    history: list[Any] = ["task"]
    for number in range(20):
        history.append({"role": "assistant", "content": f"answer {number} " + "word " * 100})
        history.append(f"question {number}")
    script = ScriptedModel(error("context_overflow"), "fits now")
    agent, _ = listened(
        script,
        messages=history,
        context_config=ContextConfig(max_context_tokens=100_000),
        async_transform_context=async_transform,
        transform_context=transform,
    )

    result = await agent.run("go")

    assert (result.end_reason, result.text) == ("done", "fits now")
    assert told == [("async", False), ("sync", False), ("async", True), ("sync", True)]


async def test_a_pre_turn_policy_can_end_the_run_before_the_model_is_asked() -> None:
    """loop.md T6"""
    script = ScriptedModel()
    agent, events = listened(script, pre_turn_policies=[answering(Stop("over budget"))])

    result = await agent.run("go")

    assert (result.end_reason, result.detail, script.asked) == ("stopped", "over budget", 0)
    assert outline(events) == [
        "agent_start",
        "turn_start 0 user",
        "user: go",
        "turn_end 0 stopped",
        "agent_end stopped",
    ]


async def test_what_a_pre_turn_policy_injects_is_said_and_the_request_is_built_again_once() -> None:
    """loop.md T6"""
    conversions: list[list[str]] = []
    policies: list[int] = []

    def convert(messages: list[AgentMessage]) -> list[Message]:
        conversions.append(said(messages))
        return default_convert_to_llm(messages)

    def policy(view: PolicyView) -> Inject:
        policies.append(len(view.messages))
        return Inject("mind the gap")

    script = ScriptedModel("ok")
    agent, events = listened(script, convert_to_llm=convert, pre_turn_policies=[policy])

    await agent.run("go")

    assert conversions == [["user: go"], ["user: go", "user: mind the gap"]]
    assert policies == [1]
    assert asked(script) == ["user: go", "user: mind the gap"]
    assert outline(events)[1:-1] == [
        "turn_start 0 user",
        "user: go",
        "user: mind the gap",
        "assistant: ok",
        "turn_end 0 stop",
    ]


async def test_the_answer_streams_live_with_one_start_and_one_end() -> None:
    """loop.md T7"""
    seen: list[tuple[float, str]] = []
    loop = asyncio.get_running_loop()
    agent = Agent(ScriptedModel(answer("one two ", deltas=2, pace=5)).model)
    async for event in agent.prompt("go"):
        if event.type in ("message_start", "message_end"):
            assert isinstance(event, MessageStart | MessageEnd)
            if event.message.role == "assistant":
                seen.append((loop.time(), f"{event.type} {event.message.text!r}"))
        elif event.type == "message_update":
            delta = getattr(event, "delta")  # noqa: B009  # only this kind of event has one
            seen.append((loop.time(), f"{delta.type} {getattr(delta, 'delta', '')}".strip()))

    assert seen == [
        (0, "message_start ''"),
        (0, "text_start"),
        (5, "text_delta one"),
        (10, "text_delta two"),
        (10, "text_end"),
        (10, "message_end 'one two '"),
    ]


ORDER = ["on_error", "after_turn", "post_turn_policies", "turn_end", "agent_end", "after_loop"]


def ordered(script: ScriptedModel, **more: Any) -> tuple[Agent, list[str]]:
    """An agent, and the order in which it asks and tells at the end of a turn."""
    order: list[str] = []

    def noting(name: str) -> Any:
        return doing(lambda *_: order.append(name))

    agent = Agent(
        script.model,
        on_error=noting("on_error"),
        after_turn=noting("after_turn"),
        post_turn_policies=[noting("post_turn_policies")],
        after_loop=noting("after_loop"),
        **more,
    )
    agent.subscribe(lambda event: order.append(event.type) if event.type in ("turn_end", "agent_end") else None)
    return agent, order


@pytest.mark.parametrize(
    ("turn", "detail"),
    [
        (error("invalid_request"), "scripted error: invalid_request"),
        (ValueError("no"), "ValueError: no"),
        (answer("I will not", stop_reason="refusal"), "The model's answer ended with 'refusal'."),
        (error("refused", "I wi", after=1), "scripted error: refused"),
    ],
    ids=["error", "raise", "refusal", "refusal in the stream"],
)
async def test_a_failed_answer_goes_through_its_seams_and_ends_the_run(turn: Any, detail: str) -> None:
    """loop.md T9"""
    script = ScriptedModel(turn, "never asked")
    agent, order = ordered(script)
    agent.follow_up("later")

    result = await agent.run("go")

    assert order == ORDER
    assert (result.end_reason, result.detail, script.asked) == ("error", detail, 1)
    assert [said(result.undelivered), said(agent.queued.follow_up)] == [["user: later"]] * 2


async def test_an_aborted_answer_skips_on_error_and_goes_through_the_other_seams() -> None:
    """loop.md T9"""
    script = ScriptedModel(stall("half an ans", after=2))
    agent, order = ordered(script)
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    agent.steer("not lost")
    agent.abort()

    result = await stream

    assert order == ORDER[1:]
    assert (result.end_reason, script.asked) == ("aborted", 1)
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.text) == ("aborted", "half a"[:5])
    assert said(agent.queued.steering) == ["user: not lost"]


async def test_an_answer_that_says_it_was_aborted_ends_the_run_as_aborted() -> None:
    """loop.md T9"""
    agent, order = ordered(ScriptedModel(answer("ha", stop_reason="aborted")))

    result = await agent.run("go")

    assert (result.end_reason, order) == ("aborted", ORDER[1:])


@pytest.mark.parametrize("stop_reason", ["error", "aborted", "refusal"])
async def test_tool_calls_inside_a_failed_answer_never_run_and_are_never_sent_again(stop_reason: Any) -> None:
    """loop.md T9"""
    runs: list[str] = []

    def touch() -> str:
        """Touch."""
        runs.append("touched")
        return "done"

    script = ScriptedModel(answer("let me", call("touch"), stop_reason=stop_reason), "fine")
    agent, events = listened(script, tools=[touch])
    await agent.run("go")
    await agent.run("again")

    assert runs == []
    assert [list(turn.tool_results) for turn in events.of(TurnEnd)] == [[], []]
    assert asked(script) == ["user: go", "user: again"]
    assert said(agent.messages) == ["user: go", "assistant: let me[touch]", "user: again", "assistant: fine"]


async def test_after_the_tools_come_after_turn_the_policies_and_then_turn_end() -> None:
    """loop.md T10"""
    order: list[object] = []

    def after_turn(messages: list[AgentMessage], usage: Usage) -> None:
        order.append(("after_turn", said(messages)[1:], usage.total))

    def policy(view: PolicyView) -> None:
        order.append(("post_turn", view.turn_index, said(view.tool_results)))

    script = ScriptedModel(
        answer(call("look"), usage=Usage(input=1, output=2)), answer("done", usage=Usage(input=10, output=20))
    )
    agent = Agent(script.model, tools=[look], after_turn=after_turn, post_turn_policies=[policy])
    agent.subscribe(lambda event: order.append(event.type) if event.type == "turn_end" else None)

    await agent.run("go")

    work = ["assistant: [look]", "tool_result: seen"]
    assert order == [
        ("after_turn", work, 3),
        ("post_turn", 0, ["tool_result: seen"]),
        "turn_end",
        ("after_turn", [*work, "assistant: done"], 30),
        ("post_turn", 1, []),
        "turn_end",
    ]


@pytest.mark.parametrize("seam", ["after_turn", "post_turn_policies"])
async def test_what_is_decided_after_a_turn_ends_the_run_or_goes_on(seam: str) -> None:
    """loop.md T10"""
    verdicts: list[object] = [Inject("and now?"), Stop("that will do")]

    def verdict(*_: object) -> object:
        return verdicts.pop(0)

    given: Any = [verdict] if seam == "post_turn_policies" else verdict
    agent, _ = listened(ScriptedModel("one", "two", "never"), **{seam: given})

    result = await agent.run("go")

    assert (result.end_reason, result.detail) == ("stopped", "that will do")
    assert said(result.messages) == ["user: go", "assistant: one", "user: and now?", "assistant: two"]


Abort = Callable[[], None]


def policy_list(abort: Abort) -> Any:
    return [any_arguments(abort)]


def kept(abort: Abort) -> Any:
    def transform(messages: list[AgentMessage]) -> list[AgentMessage]:
        abort()
        return messages

    return transform


def any_arguments(abort: Abort) -> Any:
    return doing(lambda *_: abort())


def passing(abort: Abort) -> Any:
    def input_filter(words: str) -> Pass:
        abort()
        return Pass()

    return [input_filter]


CALLBACKS: dict[str, tuple[Callable[[Abort], Any], int]] = {
    # Where the abort comes from, and how many requests were made by then.
    "input_filters": (passing, 0),
    "before_loop": (any_arguments, 0),
    "before_turn": (any_arguments, 0),
    "transform_context": (kept, 0),
    "convert_to_llm": (kept, 0),
    "pre_turn_policies": (policy_list, 0),
    "get_api_key": (any_arguments, 0),
    "get_steering_messages": (any_arguments, 0),
    "pre_dispatch_policies": (policy_list, 1),
    "before_tool_execution": (any_arguments, 1),
    "after_tool_execution": (any_arguments, 1),
    "after_turn": (any_arguments, 1),
    "post_turn_policies": (policy_list, 1),
    "post_loop_policies": (policy_list, 2),
    "before_follow_up": (any_arguments, 2),
    "get_follow_up_messages": (any_arguments, 2),
}


@each_row("how", ["abort", "signal", "token"])
@each_row("seam", CALLBACKS)
async def test_an_abort_inside_any_callback_ends_the_run_without_another_request(seam: str, how: str) -> None:
    """loop.md T12"""
    signal, token = asyncio.Event(), CancelToken()
    make, requests = CALLBACKS[seam]
    script = ScriptedModel(call("look"), "done", "never")
    agents: list[Agent] = []
    stops: dict[str, Abort] = {"abort": lambda: agents[0].abort(), "signal": signal.set, "token": token.cancel}
    given = {seam: make(stops[how])}
    if how == "abort":
        agents.append(Agent(script.model, tools=[look], **given))
        result = await agents[0].prompt("go")
    else:
        context = AgentContext(tools=[look])
        config = AgentLoopConfig(model=script.model, **given)
        result = await agent_loop("go", context, config, signal=signal if how == "signal" else token)

    assert (result.end_reason, script.asked) == ("aborted", requests)


@pytest.mark.parametrize(
    ("event_type", "requests"),
    [
        ("agent_start", 0),
        ("turn_start", 0),
        ("message_start", 0),
        ("message_update", 1),
        ("tool_execution_start", 1),
        ("tool_execution_end", 1),
        ("turn_end", 1),
    ],
)
async def test_an_abort_by_a_subscriber_ends_the_run_without_another_request(event_type: str, requests: int) -> None:
    """loop.md T12"""
    script = ScriptedModel(call("look"), "never")
    agent = Agent(script.model, tools=[look])

    def stop(event: AgentEvent) -> None:
        if event.type == event_type:
            agent.abort()

    agent.subscribe(stop)
    result = await agent.prompt("go")

    assert (result.end_reason, script.asked) == ("aborted", requests)


async def test_an_abort_takes_effect_at_once_even_if_more_of_the_answer_was_already_there() -> None:
    """loop.md T12"""
    agent, events = listened(ScriptedModel(answer("one two three four", deltas=4)))

    def stop(event: AgentEvent) -> None:
        if isinstance(event, MessageUpdate) and event.delta.type == "text_delta":
            agent.abort()

    agent.subscribe(stop)
    result = await agent.prompt("go")
    last = result.messages[-1]

    assert isinstance(last, AssistantMessage)
    assert (result.end_reason, last.stop_reason, last.text) == ("aborted", "aborted", "one ")
    assert events.text == "one "


async def test_a_signal_that_was_set_before_the_run_means_no_request_at_all() -> None:
    """loop.md T12"""
    signal, token = asyncio.Event(), CancelToken()
    signal.set()
    token.cancel()
    ends: list[object] = []
    for given in (signal, token):
        script = ScriptedModel("never")
        result = await agent_loop("go", AgentContext(), AgentLoopConfig(model=script.model), signal=given)
        ends.append((result.end_reason, said(result.messages), script.asked))

    assert ends == [("aborted", ["user: go"], 0)] * 2


async def hang(*_: object) -> Any:
    await asyncio.get_running_loop().create_future()


class HangingCompaction:
    """A strategy that never comes back."""

    async def compact(self, messages: object, config: object) -> list[AgentMessage]:
        return await hang()


WAITS: dict[str, dict[str, Any]] = {
    "input_filters": {"input_filters": [hang]},
    "before_loop": {"before_loop": hang},
    "before_turn": {"before_turn": hang},
    "async_transform_context": {"async_transform_context": hang},
    "convert_to_llm": {"convert_to_llm": hang},
    "pre_turn_policies": {"pre_turn_policies": [hang]},
    "get_api_key": {"get_api_key": hang},
    "get_steering_messages": {"get_steering_messages": hang},
    "before_tool_execution": {"before_tool_execution": hang, "gate_timeout": None},
    "after_tool_execution": {"after_tool_execution": hang},
    "after_turn": {"after_turn": hang},
    "post_turn_policies": {"post_turn_policies": [hang]},
    "post_loop_policies": {"post_loop_policies": [hang]},
    "before_follow_up": {"before_follow_up": hang},
    "get_follow_up_messages": {"get_follow_up_messages": hang},
}


@each_row("place", WAITS)
async def test_a_cancel_is_seen_wherever_the_loop_waits(place: str) -> None:
    """loop.md T12"""
    script = ScriptedModel(call("look"), "done")
    agent = Agent(script.model, tools=[look], limits=None, **WAITS[place])
    stream = agent.prompt("go")
    await asyncio.sleep(30)
    agent.abort()
    before = asyncio.get_running_loop().time()
    result = await stream

    assert result.end_reason == "aborted"
    assert asyncio.get_running_loop().time() - before < 1


@pytest.mark.parametrize(
    "turn",
    [stall(), stall("some words", after=2), answer("slow answer", pace=100), error("overloaded")],
    ids=["silence", "stalled stream", "slow stream", "backoff"],
)
async def test_a_cancel_is_seen_while_the_model_is_waited_for(turn: Any) -> None:
    """loop.md T12"""
    script = ScriptedModel(turn, "never")
    agent = Agent(script.model, retry=Retry(base_delay=60))
    stream = agent.prompt("go")
    await asyncio.sleep(10)
    agent.abort()
    before = asyncio.get_running_loop().time()
    result = await stream

    assert (result.end_reason, script.asked, script.streaming) == ("aborted", 1, 0)
    assert asyncio.get_running_loop().time() == before


async def test_a_stream_that_swallows_its_cancel_cannot_hold_the_run() -> None:
    """loop.md T12, failures.md F2"""
    agent, events = listened(ScriptedModel(stall("some words", after=1, ignored_cancels=3)))
    stream = agent.prompt("go")
    await asyncio.sleep(10)
    agent.abort()
    result = await stream

    assert (result.end_reason, outline(events)[-2:]) == ("aborted", ["turn_end 0 aborted", "agent_end aborted"])
    assert asyncio.get_running_loop().time() < 15


@pytest.mark.parametrize("seam", ["after_turn", "after_loop"])
async def test_a_hook_that_never_returns_after_an_abort_cannot_hold_the_run(seam: str) -> None:
    """loop.md T12, loop.md R8"""
    agent, _ = listened(ScriptedModel(stall()), **{seam: hang})
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    agent.abort()

    async with asyncio.timeout(600):
        result = await stream

    assert (result.end_reason, agent.is_running) == ("aborted", False)


async def test_only_the_presence_of_complete_tool_calls_makes_a_tool_turn() -> None:
    """loop.md T10"""
    script = ScriptedModel(answer(call("look"), stop_reason="stop"), answer("done", stop_reason="tool_use"))
    agent, events = listened(script, tools=[look])

    result = await agent.run("go")

    assert result.end_reason == "done"
    assert [(turn.reason, len(turn.tool_results)) for turn in events.of(TurnEnd)] == [("tool_use", 1), ("stop", 0)]


async def test_a_turn_that_breaks_after_its_tools_ran_keeps_their_results() -> None:
    """loop.md R8, loop.md T1"""

    def after_turn(messages: object, usage: object) -> None:
        raise ZeroDivisionError

    agent, events = listened(ScriptedModel(call("look")), tools=[look], after_turn=after_turn)

    result = await agent.run("go")

    assert result.end_reason == "error"
    assert said(result.messages) == ["user: go", "assistant: [look]", "tool_result: seen"]
    assert [len(turn.tool_results) for turn in events.of(TurnEnd)] == [1]


async def test_a_broken_source_of_steering_does_not_cost_the_results_of_running_tools() -> None:
    """loop.md R8, loop.md T1"""
    ended: list[str] = []
    polls: list[int] = []

    def get_steering_messages() -> list[str]:
        polls.append(1)
        if len(polls) > 1:
            raise ZeroDivisionError("no queue")
        return []

    async def slow() -> str:
        """Slow."""
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("slow")
        return "slow"

    script = ScriptedModel([call("look"), call("slow")], "never")
    agent, events = listened(script, tools=[look, slow], get_steering_messages=get_steering_messages)

    result = await agent.run("go")

    assert (result.end_reason, ended) == ("error", ["slow"])
    assert "ZeroDivisionError: no queue" in result.detail
    assert [message.role for message in result.messages] == ["user", "assistant", "tool_result", "tool_result"]
    assert [len(turn.tool_results) for turn in events.of(TurnEnd)] == [2]


async def test_a_tool_may_end_the_run() -> None:
    """loop.md T10"""

    def finish() -> ToolOutput:
        """Finish."""
        return ToolOutput("bye", terminate=True)

    agent, _ = listened(ScriptedModel(call("finish"), "never"), tools=[finish])

    result = await agent.run("go")

    assert (result.end_reason, said(result.messages)[-1]) == ("terminated", "tool_result: bye")


async def test_errors_of_the_provider_keep_their_kind() -> None:
    """loop.md T9"""
    events = EventCollector()
    agent = Agent(ScriptedModel(error(ErrorInfo("quota", "no money left", status=402))).model)
    agent.subscribe(events)

    result = await agent.run("go")

    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.error_kind, last.error_message, result.detail) == ("quota", "no money left", "no money left")
