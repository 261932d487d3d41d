"""Pipeline, parallel, loop, hand-off and supervisor: what each does, and what they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.loop.toolbox import echo, fail, told
from tests.rows import each_row

from steersman import (
    Agent,
    AgentEvent,
    ExecutionLimits,
    ImageContent,
    Inject,
    Session,
    Skip,
    TextContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from steersman.loop.config import SteeringPolicy
from steersman.team import Handoff, Loop, Parallel, Part, PartAnswer, Pipeline, Supervisor, gather, judge
from steersman.testing import EventCollector, ScriptedModel, answer, call, error
from steersman.types import encode
from steersman.types.events import AgentStart, ToolExecutionUpdate
from steersman.types.usage import Prices

USAGE = Usage(input=10, output=5)


def part(*turns: Any, **options: Any) -> Agent[Any]:
    """An agent that plays these turns; each of its requests uses 15 tokens."""
    return Agent(ScriptedModel(*turns, usage=USAGE).model, **options)


def scripted(*turns: Any, **options: Any) -> tuple[ScriptedModel, Agent[Any]]:
    script = ScriptedModel(*turns, usage=USAGE)
    return script, Agent(script.model, **options)


def prompts(script: ScriptedModel) -> list[list[str]]:
    """The texts of the messages of each request."""
    return [[message.text for message in request.messages] for request, _ in script.requests]


async def test_a_pipeline_gives_each_part_the_answer_of_the_one_before() -> None:
    first, second = ScriptedModel("draft", usage=USAGE), ScriptedModel("final", usage=USAGE)
    pipeline = Pipeline([Agent(first.model), Agent(second.model)])
    result = await pipeline.run("Write.")
    assert (prompts(first), prompts(second)) == ([["Write."]], [["draft"]])
    assert (result.text, result.output, result.end_reason) == ("final", "final", "done")
    assert result.usage == Usage(input=20, output=10)
    assert told(result.messages) == [("part_1", "draft", False, "completed"), ("part_2", "final", False, "completed")]


async def test_the_events_of_all_parts_come_in_one_stream_and_name_their_part() -> None:
    """loop.md R3"""
    pipeline = Pipeline({"draft": part("a"), "review": part("b")})
    events = EventCollector()
    async for event in pipeline.prompt("go"):
        events(event)
    (outer,) = events.of(AgentStart)
    starts = [
        (event.update["agent"], event.tool_call_id, event.update["event"]["parent_tool_call_id"])
        for event in events.of(ToolExecutionUpdate)
        if event.update["event"]["type"] == "agent_start"
    ]
    assert starts == [("draft", "pipeline_1", "pipeline_1"), ("review", "pipeline_2", "pipeline_2")]
    assert outer.config_snapshot is not None
    assert outer.config_snapshot.model == "steersman:pipeline"
    assert {event.update["event"].get("parent_loop_id", outer.loop_id) for event in events.of(ToolExecutionUpdate)} == {
        outer.loop_id
    }


async def test_a_part_sees_the_images_of_the_prompt() -> None:
    script, seeing = scripted("A cat.")
    image = ImageContent("iVBORw0KGgo=", "image/png")
    await Pipeline([seeing, part("ok")]).run([TextContent("What is it?"), image])
    assert list(script.requests[0][0].messages[0].content) == [TextContent("What is it?"), image]


async def test_long_answers_are_passed_on_whole() -> None:
    long = "line\n" * 30_000
    script, last = scripted("ok")
    await Pipeline([part(long), last]).run("go")
    assert prompts(script) == [[long]]


async def test_a_part_that_fails_ends_the_run_as_an_error_that_names_it() -> None:
    """failures.md E11: the kind of the failure is kept."""
    script, never = scripted("never asked")
    result = await Pipeline({"a": part("x"), "b": part(error("authentication")), "c": never}).run("go")
    assert (result.end_reason, result.error_kind, script.asked) == ("error", "authentication", 0)
    assert result.detail == "Sub-agent 'b' ended with 'error': scripted error: authentication"
    assert result.usage.total == 30


async def test_a_part_that_overflows_is_not_asked_again_by_the_pattern() -> None:
    script = ScriptedModel(error("context_overflow"), repeat_last=True)
    result = await Pipeline([Agent(script.model, context_config=None)]).run("go")
    assert (result.end_reason, result.error_kind) == ("error", "incomplete")
    assert len(result.tool_results) == 1
    assert script.asked <= 2


async def test_a_pipeline_that_failed_goes_on_with_the_part_that_failed() -> None:
    first, one = scripted("draft")
    second, two = scripted(error("authentication"), "final")
    pipeline = Pipeline([one, two])
    assert (await pipeline.run("go")).end_reason == "error"
    result = await pipeline.continue_()
    assert (result.text, first.asked, prompts(second)) == ("final", 1, [["draft"], ["draft"]])


async def test_a_new_prompt_begins_anew_also_after_a_failure() -> None:
    first, one = scripted("draft", "draft 2")
    _, two = scripted(error("authentication"), "final 2")
    pipeline = Pipeline([one, two])
    await pipeline.run("go")
    result = await pipeline.run("again")
    assert (result.text, prompts(first)) == ("final 2", [["go"], ["again"]])


async def test_another_process_goes_on_where_the_session_ends(tmp_path: Path) -> None:
    first, one = scripted("draft")
    _, broken = scripted(error("authentication"))
    second, two = scripted("final")
    with Pipeline([one, broken], session=Session.create(tmp_path / "s.db", id="s")) as pipeline:
        assert (await pipeline.run("go")).end_reason == "error"
        assert pipeline.session is not None
        pipeline.session.close()
    with Session.open(tmp_path / "s.db", "s") as session:
        result = await Pipeline([one, two], session=session).continue_()
    assert (result.text, first.asked, prompts(second)) == ("final", 1, [["draft"]])


async def test_a_follow_up_is_a_request_of_its_own() -> None:
    first, one = scripted("a", "b")
    pipeline = Pipeline([one, part("x", "y")])
    pipeline.follow_up("And now?")
    result = await pipeline.run("go")
    assert (result.text, prompts(first)) == ("y", [["go"], ["And now?"]])


async def test_an_output_type_is_checked_and_the_last_part_is_asked_again() -> None:
    script, last = scripted('{"height": "tall"}', '{"height": 8849}')
    result = await Pipeline([part("x"), last], output_type=Mountain).run("go")
    assert result.output == Mountain(8849)
    assert prompts(script)[1][0].startswith("x\n\nThat answer does not fit")


@dataclass
class Mountain:
    """How high it is."""

    height: int


async def test_parallel_parts_get_the_same_prompt_and_are_gathered_in_their_order() -> None:
    slow, fast = ScriptedModel(answer("one", pace=5), usage=USAGE), ScriptedModel("two", usage=USAGE)
    parallel = Parallel({"slow": Agent(slow.model), "fast": Agent(fast.model)})
    result = await parallel.run("go")
    assert result.text == "## slow\n\none\n\n## fast\n\ntwo"
    assert (prompts(slow), prompts(fast), result.usage.total) == ([["go"]], [["go"]], 30)


async def test_parallel_parts_run_at_once_and_no_more_than_allowed() -> None:
    running: list[int] = []
    scripts: list[ScriptedModel] = []

    def look(_: object) -> str:
        running.append(sum(script.streaming for script in scripts))
        return "x"

    scripts.extend(ScriptedModel(look, pace=1) for _ in range(6))
    await Parallel([Agent(script.model) for script in scripts], max_at_once=2).run("go")
    assert max(running) <= 2
    assert len(running) == 6


async def test_a_judge_chooses_and_its_reason_is_in_the_details() -> None:
    script, judging = scripted('{"index": 1, "reason": "It rhymes."}')
    result = await Parallel({"a": part("one"), "b": part("two")}, combine=judge(judging)).run("A poem.")
    assert (result.text, result.usage.total) == ("two", 45)
    assert {key: result.tool_results[-1].details[key] for key in ("chosen", "reason")} == {
        "chosen": "b",
        "reason": "It rhymes.",
    }
    assert '"request":"A poem."' in prompts(script)[0][0]


async def test_a_single_good_answer_needs_no_judge() -> None:
    script, judging = scripted("never asked")
    result = await Parallel([part(error("authentication")), part("two")], combine=judge(judging)).run("go")
    assert (result.text, script.asked) == ("two", 0)


async def test_an_agent_merges_the_answers_and_hears_of_the_failures() -> None:
    script, merger = scripted("both")
    result = await Parallel({"a": part("one"), "b": part(error("quota"))}, combine=merger).run("go")
    assert result.text == "both"
    (question,) = prompts(script)[0]
    assert '"answers":[{"index":0,"part":"a","answer":"one"}]' in question
    assert '"failed":[{"part":"b","error":"Sub-agent \'b\' ended with' in question


async def test_a_function_combines_the_answers() -> None:
    async def shortest(answers: Sequence[PartAnswer]) -> str:
        return min((one.text for one in answers if one.ok), key=len)

    assert (await Parallel([part("long one"), part("short")], combine=shortest).run("go")).text == "short"


async def test_if_all_parts_fail_the_run_fails_and_says_why() -> None:
    result = await Parallel({"a": part(error("quota")), "b": part(error("authentication"))}).run("go")
    assert result.end_reason == "error"
    assert result.detail.startswith("No part came to a good end:\nSub-agent 'a'")
    assert "'b' ended with 'error': scripted error: authentication" in result.detail


def raise_error(_: object) -> Any:
    raise ValueError("out of order")


async def test_a_failing_function_of_the_caller_is_named() -> None:
    combined = await Parallel([part("a"), part("b")], combine=raise_error).run("go")
    looped = await Loop(part("a"), until=raise_error).run("go")
    nothing = await Loop(part("a"), until=lambda _: "").run("go")
    number = await Parallel([part("a")], combine=lambda _: 3).run("go")  # pyright: ignore[reportArgumentType]  # on purpose
    assert [run.end_reason for run in (combined, looped, nothing, number)] == ["error"] * 4
    assert "'combine' raised ValueError: out of order" in combined.detail
    assert "'until' raised ValueError: out of order" in looped.detail
    assert "'until' returns True, False, or a text" in nothing.detail
    assert "'combine' returns the answer as a text; it returned 3" in number.detail


async def test_a_loop_goes_on_until_the_answer_is_good() -> None:
    script, writer = scripted("a", "bb", "ccc")
    result = await Loop(writer, until=lambda result: len(result.text) > 2 or "Longer, please.").run("Write.")
    assert (result.text, result.end_reason, result.usage.total) == ("ccc", "done", 45)
    assert prompts(script)[1] == ["Write.\n\nYour last answer:\na\n\nWhat is to be improved:\nLonger, please."]


async def test_a_loop_ends_as_stopped_with_its_last_answer() -> None:
    script, writer = scripted("a", "b", "never asked")
    result = await Loop(writer, until=lambda _: False, max_rounds=2).run("Write.")
    assert (result.text, result.end_reason, script.asked) == ("b", "stopped", 2)
    assert result.detail == "Max rounds reached, and the answer is not good yet."


async def test_an_agent_judges_the_rounds_of_a_loop() -> None:
    script, judging = scripted('{"good": false, "feedback": "No rhyme."}', '{"good": true}')
    writer_script, writer = scripted("a", "b")
    result = await Loop(writer, until=judging).run("A poem.")
    assert (result.text, result.usage.total) == ("b", 60)
    assert prompts(writer_script)[1][0].endswith("What is to be improved:\nNo rhyme.")
    assert '{"request":"A poem.","answer":"a"}' in prompts(script)[0][0]


async def test_a_judge_that_fails_ends_the_loop() -> None:
    result = await Loop(part("a"), until=part(error("authentication"))).run("go")
    assert (result.end_reason, result.detail) == (
        "error",
        "The judge ended with 'error': scripted error: authentication",
    )


async def test_a_hand_off_takes_the_whole_conversation_along() -> None:
    triage = ScriptedModel(answer(call("echo", text="A-17")), answer(call("hand_off_to_billing", reason="An invoice.")))
    billing = ScriptedModel("It is 3 euros.", "It is paid.")
    desk = Handoff(
        {"triage": Agent(triage.model, tools=[echo]), "billing": Part(Agent(billing.model), "Invoices and refunds.")}
    )
    result = await desk.run("What does A-17 cost?")
    assert (result.text, result.end_reason) == ("It is 3 euros.", "done")
    assert prompts(billing)[0] == [
        "What does A-17 cost?",
        "",
        "A-17",
        "",
        "'billing' takes over.",
        "'triage' hands off to 'billing': An invoice.\n\nGo on with the conversation in place of 'triage'.",
    ]
    tool = next(tool for tool in triage.requests[0][0].tools if tool.name == "hand_off_to_billing")
    assert tool.description.endswith("'billing': Invoices and refunds.")
    # The next prompt goes to the agent that has the conversation.
    assert (await desk.run("Is it paid?")).text == "It is paid."
    assert prompts(billing)[1][-2:] == ["It is 3 euros.", "Is it paid?"]
    assert triage.asked == 2


async def test_a_hand_off_ends_the_run_also_beside_other_calls() -> None:
    first = ScriptedModel(answer(call("hand_off_to_b", reason="yours"), call("echo", text="x")), "never asked")
    desk = Handoff({"a": Agent(first.model, tools=[echo]), "b": part("done")})
    result = await desk.run("go")
    assert (result.text, first.asked) == ("done", 1)


async def test_hand_offs_back_and_forth_come_to_an_end() -> None:
    a = ScriptedModel(answer(call("hand_off_to_b", reason="yours")), repeat_last=True)
    b = ScriptedModel(answer(call("hand_off_to_a", reason="no, yours")), repeat_last=True)
    result = await Handoff({"a": Agent(a.model), "b": Agent(b.model)}, max_handoffs=3).run("go")
    assert (result.end_reason, a.asked, b.asked) == ("error", 2, 2)
    assert result.detail == "Max hand-offs reached (3/3): 'b' hands off to 'a': no, yours"


async def test_an_agent_hands_off_only_to_whom_it_may() -> None:
    script, a = scripted(answer(call("hand_off_to_c", reason="x")), "I cannot.")
    result = await Handoff({"a": a, "b": part("b"), "c": part("c")}, to={"a": ["b"]}).run("go")
    assert result.text == "I cannot."
    assert [tool.name for tool in script.requests[0][0].tools] == ["hand_off_to_b"]


async def test_a_conversation_that_was_handed_off_survives_its_process(tmp_path: Path) -> None:
    agents = {"a": part(answer(call("hand_off_to_b", reason="yours"))), "b": part("done")}
    with Session.create(tmp_path / "s.db", id="s") as session:
        await Handoff(agents, session=session).run("go")
    script, b = scripted("more")
    with Session.open(tmp_path / "s.db", "s") as session:
        result = await Handoff({"a": part("never asked"), "b": b}, session=session).run("And?")
    assert result.text == "more"
    assert prompts(script)[0][0] == "go"
    assert prompts(script)[0][-2:] == ["done", "And?"]


async def test_an_agent_that_failed_is_asked_again_with_the_same_prompt() -> None:
    script, a = scripted(error("authentication"), "done")
    desk = Handoff({"a": a, "b": part("x")})
    assert (await desk.run("go")).end_reason == "error"
    assert ((await desk.continue_()).text, prompts(script)) == ("done", [["go"], ["go"]])


async def test_a_supervisor_leads_its_workers_and_the_agent_stays_as_it_was() -> None:
    script = ScriptedModel(
        answer(call("coder", prompt="Code."), call("tester", prompt="Test.")), "All good.", usage=USAGE
    )
    agent = Agent(script.model, tools=[echo], system_prompt="Be brief.")
    supervisor = Supervisor(agent, {"coder": Part(part("coded"), "Writes code."), "tester": part("tested")})
    result = await supervisor.run("Go.")
    assert told(result.messages) == [("coder", "coded", False, "completed"), ("tester", "tested", False, "completed")]
    assert (result.text, result.usage.total) == ("All good.", 60)
    request = script.requests[0][0]
    assert [(tool.name, tool.description) for tool in request.tools][1:] == [
        ("coder", "Writes code."),
        ("tester", "A member of your team: tester."),
    ]
    assert request.system_prompt.startswith("Be brief.\n\nYou lead a team.")
    assert ([tool.name for tool in agent.tools if isinstance(tool, Tool)], agent.system_prompt) == (
        ["echo"],
        "Be brief.",
    )


async def test_a_supervisor_keeps_the_output_type_and_takes_options() -> None:
    agent = Agent(ScriptedModel('{"height": 1}').model, output_type=Mountain)
    supervisor = Supervisor(agent, [part("x")], limits=ExecutionLimits(max_turns=3))
    assert (await supervisor.run("go")).output == Mountain(1)
    assert supervisor.config.execution_limits == ExecutionLimits(max_turns=3)


async def test_patterns_are_parts_of_patterns_and_tools_of_agents() -> None:
    inner = Parallel({"x": part("one"), "y": Loop(part("a", "bb"), until=lambda result: len(result.text) > 1)})
    pipeline = Pipeline({"both": inner, "end": part("fin")})
    boss = Agent(
        ScriptedModel(answer(call("team", prompt="go")), "ok", usage=USAGE).model,
        tools=[pipeline.as_tool("team", "Does it all.")],
        limits=ExecutionLimits(max_sub_agent_depth=4),
    )
    result = await boss.run("go")
    assert (told(result.messages), result.text) == ([("team", "fin", False, "completed")], "ok")
    assert result.usage == Usage(input=60, output=30)


async def test_the_depth_of_patterns_is_limited_as_that_of_sub_agents_is() -> None:
    nested: Agent[Any] = part("deep")
    for _ in range(4):
        nested = Pipeline([nested])
    result = await nested.run("go")
    assert result.end_reason == "error"
    assert "Max sub-agent depth reached (3/3)" in result.detail


async def test_the_same_pattern_runs_side_by_side_with_itself() -> None:
    both = Pipeline([Agent("scripted:echo"), Agent("scripted:echo")])
    result = await Parallel({"a": both, "b": both}).run("hi")
    assert result.text == "## a\n\nhi\n\n## b\n\nhi"


async def test_costs_are_rolled_up_and_the_pattern_itself_costs_nothing() -> None:
    from dataclasses import replace

    priced = ScriptedModel("x", usage=Usage(input=1_000_000, output=0)).model
    result = await Pipeline([Agent(replace(priced, prices=Prices(2.0, 4.0)))]).run("go")
    assert (result.cost, result.usage.partial) == (2.0, False)


async def test_the_guards_of_a_pattern_hold_for_the_calls_of_its_parts() -> None:
    """failures.md L21"""
    seen: list[str] = []

    class Guard:
        def before_tool_execution(self, call: ToolCall) -> Skip | None:
            seen.append(call.name)
            return Skip("Not allowed.") if call.name == "echo" else None

    script, working = scripted(answer(call("echo", text="x")), "I may not.", tools=[echo])
    result = await Pipeline([working], hooks=[Guard()]).run("go")
    assert (seen, result.text) == (["part_1", "echo"], "I may not.")
    assert [message.text for message in script.requests[1][0].messages if isinstance(message, ToolResultMessage)] == [
        "Not allowed."
    ]


async def test_a_guard_that_denies_a_part_ends_the_run_as_an_error() -> None:
    class Guard:
        def before_tool_execution(self, call: ToolCall) -> Skip:
            return Skip(f"No {call.name}.")

    result = await Pipeline([part("never")], hooks=[Guard()]).run("go")
    assert (result.end_reason, result.detail) == ("error", "No part_1.")


async def test_a_policy_that_injects_gives_the_last_part_more_to_do() -> None:
    once = iter([Inject(UserMessage("Shorter.", synthetic=True))])

    def ask_once_more(_: object) -> Inject | None:
        return next(once, None)

    script, last = scripted("long", "short")
    result = await Pipeline([part("x"), last], post_loop_policies=[ask_once_more]).run("go")
    assert (result.text, prompts(script)) == ("short", [["x"], ["x\n\nShorter."]])


def steer_while_it_answers(agent: Agent[Any], text: str, mode: SteeringPolicy | None = None) -> None:
    """Steer an agent once, while the model of a part answers."""

    def steer(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionUpdate) and '"type":"text_delta"' in encode(event).decode():
            agent.steer(text, mode, key="once")

    agent.subscribe(steer)


async def test_steering_reaches_the_running_part_and_is_in_the_transcript_once() -> None:
    """failures.md G1"""
    script = ScriptedModel(answer("thinking", pace=1), "steered")
    last, end = scripted("end")
    pipeline = Pipeline({"a": Agent(script.model), "b": end})
    steer_while_it_answers(pipeline, "Be kind.")
    result = await pipeline.run("go")
    assert prompts(script)[1] == ["go", "thinking", "Be kind."]
    assert (prompts(last), result.text) == ([["steered"]], "end")
    assert [message.text for message in result.messages if message.role == "user"] == ["go", "Be kind."]


async def test_steering_reaches_a_part_of_a_part() -> None:
    script = ScriptedModel(answer("thinking", pace=1), "steered")
    pipeline = Pipeline([Pipeline([Agent(script.model)])])
    steer_while_it_answers(pipeline, "Be kind.")
    result = await pipeline.run("go")
    assert (result.text, prompts(script)) == ("steered", [["go"], ["go", "thinking", "Be kind."]])


async def test_all_parallel_parts_hear_what_is_said() -> None:
    scripts = [ScriptedModel(answer("thinking", pace=1), "steered") for _ in range(2)]
    parallel = Parallel([Agent(script.model) for script in scripts])
    steer_while_it_answers(parallel, "Hey.")
    result = await parallel.run("go")
    assert [prompts(script)[-1][-1] for script in scripts] == ["Hey.", "Hey."]
    assert result.text == gather([PartAnswer("part_1", "steered"), PartAnswer("part_2", "steered")])


@pytest.mark.parametrize("kind", ["pipeline", "parallel", "loop", "handoff"])
async def test_steering_that_cancels_starts_the_part_again_with_it(kind: str) -> None:
    """loop.md D6"""
    script = ScriptedModel(answer("thinking", pace=100), "steered")
    agent = Agent(script.model)
    pattern = {
        "pipeline": lambda: Pipeline([agent]),
        "parallel": lambda: Parallel([agent], combine=lambda answers: answers[0].text),
        "loop": lambda: Loop(agent, until=lambda _: True),
        "handoff": lambda: Handoff({"a": agent}),
    }[kind]()
    steer_while_it_answers(pattern, "Stop that.", mode="cancel")
    result = await pattern.run("go")
    assert (result.text, result.end_reason) == ("steered", "done")
    assert "\n\n".join(prompts(script)[-1]) == "go\n\nStop that."


async def test_a_part_keeps_its_own_source_of_steering() -> None:
    waiting = ["Mine."]
    script, own = scripted("a", get_steering_messages=lambda: [waiting.pop()] if waiting else [])
    await Pipeline([own]).run("go")
    assert prompts(script) == [["go", "Mine."]]


async def test_a_tool_of_a_part_that_raises_is_a_result_for_its_model() -> None:
    """loop.md D4"""
    result = await Pipeline([part(answer(call("fail")), "It failed.", tools=[fail]), part("noted")]).run("go")
    assert (result.text, result.end_reason) == ("noted", "done")


@each_row(
    ("make", "raised", "words"),
    [
        (lambda: Pipeline([]), ValueError, "at least one part"),
        (lambda: Pipeline([3]), TypeError, "got 3"),  # pyright: ignore[reportArgumentType]  # on purpose
        (lambda: Pipeline(part("x")), TypeError, "list of agents"),  # pyright: ignore[reportArgumentType]  # on purpose
        (lambda: Pipeline({"": part("x")}), ValueError, "name"),
        (lambda: Pipeline([part("x")], retry=None), TypeError, "no option 'retry'"),  # pyright: ignore[reportCallIssue]  # on purpose
        (lambda: Parallel([part("x")], combine=3), TypeError, "combine is"),  # pyright: ignore[reportArgumentType]  # on purpose
        (lambda: Parallel([part("x")], max_at_once=0), ValueError, "max_at_once"),
        (lambda: Parallel({"combine": part("x")}), ValueError, "combine"),
        (lambda: judge("x"), TypeError, "judge"),  # pyright: ignore[reportArgumentType]  # on purpose
        (lambda: Loop(part("x"), until=3), TypeError, "until is"),  # pyright: ignore[reportArgumentType]  # on purpose
        (lambda: Loop(part("x"), until=raise_error, max_rounds=0), ValueError, "max_rounds"),
        (lambda: Handoff([part("x")]), TypeError, "by name"),  # pyright: ignore[reportArgumentType]  # on purpose
        (lambda: Handoff({"a": part("x")}, to={"a": ["b"]}), ValueError, "hand off to whom"),
        (lambda: Handoff({"a": part("x")}, max_handoffs=0), ValueError, "max_handoffs"),
        (lambda: Supervisor("x", [part("x")]), TypeError, "made of an Agent"),  # pyright: ignore[reportArgumentType]  # on purpose
        (lambda: Part(part("x"), 3), TypeError, "description"),  # pyright: ignore[reportArgumentType]  # on purpose
    ],
)
def test_a_wrong_pattern_is_refused_where_it_is_made(make: Any, raised: type[Exception], words: str) -> None:
    with pytest.raises(raised, match=words):
        make()
