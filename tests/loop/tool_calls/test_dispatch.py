from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.loop.toolbox import Workshop, agent_of, echo, fail, texts, told
from tests.rows import each_row

from steersman import (
    Agent,
    AgentContext,
    AgentLoopConfig,
    Request,
    Tool,
    ToolContext,
    ToolError,
    ToolOutput,
    agent_loop,
    batched,
    tool,
)
from steersman.testing import ScriptedModel, answer, call, error
from steersman.types.events import ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, TurnEnd


def jobs(*names: str, tool: str = "job", **more: Any) -> Any:
    return answer(*(call(tool, name=name, **more) for name in names))


async def log_of(*names: str, tool_execution: Any = "parallel", **options: Any) -> list[str]:
    """What a batch of jobs of one second each does, one job per name."""
    shop = Workshop()
    agent, _ = agent_of(ScriptedModel(jobs(*names), "ok"), [shop.job(**options)], tool_execution=tool_execution)
    result = await agent.run("go")
    assert told(result.messages) == [("job", f"{name} done", False, "completed") for name in names]
    return shop.log


async def test_calls_of_one_answer_run_side_by_side() -> None:
    """loop.md D1"""
    assert await log_of("a", "b", "c") == ["+a", "+b", "+c", "-a", "-b", "-c"]


async def test_all_calls_of_one_answer_have_started_before_one_of_them_takes_a_step() -> None:
    """loop.md D1, D6: so steering that comes from a tool does not skip the calls beside it."""
    log: list[str] = []

    @tool
    async def steer(name: str) -> str:
        log.append(f"step {name}")
        agent.steer(f"from {name}")
        return name

    script = ScriptedModel(answer(call("steer", name="a"), call("steer", name="b")), "ok", "ok")
    agent = Agent(script.model, tools=[steer])

    def note(event: object) -> None:
        if isinstance(event, ToolExecutionStart):
            log.append(f"start {event.args['name']}")

    agent.subscribe(note)
    result = await agent.run("go")
    assert log == ["start a", "start b", "step a", "step b"]
    assert told(result.messages) == [("steer", "a", False, "completed"), ("steer", "b", False, "completed")]


async def test_a_call_that_is_told_to_have_started_is_the_last_one_if_its_subscriber_steers() -> None:
    """loop.md D6"""
    script = ScriptedModel(answer(call("echo", text="a"), call("echo", text="b")), "ok", "ok")
    agent, _ = agent_of(script, [echo])

    def steer(event: object) -> None:
        if isinstance(event, ToolExecutionStart):
            agent.unsubscribe(subscription)
            agent.steer("Stop that.")

    subscription = agent.subscribe(steer)
    result = await agent.run("go")
    assert [status for *_, status in told(result.messages)] == ["completed", "not_started"]


async def test_sequential_execution_runs_one_call_at_a_time() -> None:
    """loop.md D1"""
    assert await log_of("a", "b", "c", tool_execution="sequential") == ["+a", "-a", "+b", "-b", "+c", "-c"]


async def test_batched_execution_runs_groups_one_after_another() -> None:
    """loop.md D1"""
    log = await log_of("a", "b", "c", "d", "e", tool_execution=batched(2))
    assert log == ["+a", "+b", "-a", "-b", "+c", "+d", "-c", "-d", "+e", "-e"]


async def test_a_group_waits_for_the_slowest_of_the_group_before() -> None:
    """loop.md D1"""
    shop = Workshop()
    script = ScriptedModel(
        answer(
            call("job", name="slow", seconds=9.0),
            call("job", name="fast"),
            call("job", name="next"),
            call("job", name="last"),
        ),
        "ok",
    )
    agent, _ = agent_of(script, [shop.job()], tool_execution=batched(2))
    await agent.run("go")
    assert shop.log == ["+slow", "+fast", "-fast", "-slow", "+next", "+last", "-next", "-last"]


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "2"])
def test_a_group_has_at_least_one_call(size: Any) -> None:
    """loop.md D1"""
    with pytest.raises(ValueError, match="batched"):
        batched(size)


@pytest.mark.parametrize("mode", ["serial", None, 3])
def test_an_unknown_mode_of_execution_is_refused_where_it_is_given(mode: Any) -> None:
    """loop.md D1"""
    with pytest.raises(ValueError, match=r"tool_execution is 'parallel', 'sequential' or batched\(n\)"):
        Agent(ScriptedModel("x").model, tool_execution=mode)


async def test_a_tool_that_demands_to_run_alone_runs_alone_among_parallel_ones() -> None:
    """loop.md D1"""
    shop = Workshop()
    script = ScriptedModel(
        answer(
            call("job", name="a"),
            call("job", name="b", seconds=2.0),
            call("lone", name="c"),
            call("job", name="d"),
            call("job", name="e"),
        ),
        "ok",
    )
    agent, _ = agent_of(script, [shop.job(), shop.job("lone", sequential=True)])
    await agent.run("go")
    assert shop.log == ["+a", "+b", "-a", "-b", "+c", "-c", "+d", "+e", "-d", "-e"]


async def test_calls_that_share_a_key_run_one_after_another_and_others_beside_them() -> None:
    """loop.md D1"""
    shop = Workshop()

    script = ScriptedModel(
        answer(
            call("write", path="x", name="x1"),
            call("write", path="y", name="y1"),
            call("write", path="x", name="x2"),
            call("write", path="x", name="x3"),
        ),
        "ok",
    )
    agent, _ = agent_of(script, [shop.write()])
    await agent.run("go")
    assert shop.log == ["+x1", "+y1", "-x1", "-y1", "+x2", "-x2", "+x3", "-x3"]


async def test_keys_that_cannot_be_told_make_the_call_an_error_and_nothing_runs() -> None:
    """loop.md D1, D4"""
    ran: list[str] = []

    @tool(keys=lambda args: [args["missing"]])
    async def write(path: str) -> str:
        """Write a file."""
        ran.append(path)
        return path

    agent, _ = agent_of(ScriptedModel(answer(call("write", path="x"), call("echo", text="hi")), "ok"), [write, echo])
    result = await agent.run("go")
    assert told(result.messages) == [
        ("write", "KeyError in the keys of tool 'write': 'missing'", True, "invalid"),
        ("echo", "hi", False, "completed"),
    ]
    assert ran == []


async def test_ends_come_in_completion_order_and_results_in_the_order_of_the_calls() -> None:
    """loop.md D2"""
    shop = Workshop()
    script = ScriptedModel(
        answer(call("job", name="slow", seconds=3.0), call("job", name="mid", seconds=2.0), call("job", name="fast")),
        "ok",
    )
    agent, heard = agent_of(script, [shop.job()])
    result = await agent.run("go")
    assert [event.tool_call_id for event in heard.of(ToolExecutionStart)] == ["call_1", "call_2", "call_3"]
    assert [event.tool_call_id for event in heard.of(ToolExecutionEnd)] == ["call_3", "call_2", "call_1"]
    names = ["slow", "mid", "fast"]
    assert told(result.messages) == [("job", f"{name} done", False, "completed") for name in names]
    assert told(heard.of(TurnEnd)[0].tool_results) == told(result.messages)
    assert heard.shape[6:19] == [
        "tool_execution_start",
        "tool_execution_start",
        "tool_execution_start",
        "tool_execution_end",
        "tool_execution_end",
        "tool_execution_end",
        "message_start",
        "message_end",
        "message_start",
        "message_end",
        "message_start",
        "message_end",
        "turn_end",
    ]


async def test_the_start_tells_the_arguments_the_tool_really_gets() -> None:
    """loop.md D2, D3"""
    got: list[Any] = []

    @tool
    async def add(a: int, b: int = 2) -> int:
        """Add."""
        got.append((a, b))
        return a + b

    agent, heard = agent_of(ScriptedModel(answer(call("add", a="40")), "ok"), [add])
    result = await agent.run("go")
    assert got == [(40, 2)]
    assert [event.args for event in heard.of(ToolExecutionStart)] == [{"a": 40}]
    assert told(result.messages) == [("add", "42", False, "completed")]


async def test_a_tool_shows_progress_between_its_start_and_its_end() -> None:
    """loop.md D2"""

    @tool
    async def count(ctx: ToolContext) -> str:
        """Count."""
        ctx.progress("one")
        await asyncio.sleep(1)
        ctx.update({"done": [1, 2]})
        return "counted"

    agent, heard = agent_of(ScriptedModel(answer(call("count")), "ok"), [count])
    await agent.run("go")
    kinds = (ToolExecutionStart, ToolExecutionUpdate, ToolExecutionEnd)
    assert [event.type for event in heard if isinstance(event, kinds)] == [
        "tool_execution_start",
        "tool_execution_update",
        "tool_execution_update",
        "tool_execution_end",
    ]
    assert [event.update for event in heard.of(ToolExecutionUpdate)] == [
        {"type": "progress", "text": "one"},
        {"done": [1, 2]},
    ]


async def test_progress_from_a_thread_is_a_snapshot_and_comes_before_the_end() -> None:
    """loop.md D2"""

    @tool
    def count(ctx: ToolContext) -> str:
        """Count in a thread."""
        seen: list[int] = []
        for number in range(3):
            seen.append(number)
            ctx.update(seen)
        return "counted"

    agent, heard = agent_of(ScriptedModel(answer(call("count")), "ok"), [count])
    await agent.run("go")
    assert [event.update for event in heard.of(ToolExecutionUpdate)] == [[0], [0, 1], [0, 1, 2]]


async def test_progress_after_the_call_is_settled_is_not_told() -> None:
    """loop.md D2"""
    kept: list[ToolContext] = []

    @tool
    async def keep(ctx: ToolContext) -> str:
        """Keep the context."""
        kept.append(ctx)
        return "kept"

    def speak(_: Request) -> str:
        kept[0].update("too late")
        return "ok"

    agent, heard = agent_of(ScriptedModel(answer(call("keep")), speak), [keep])
    await agent.run("go")
    assert heard.of(ToolExecutionUpdate) == []


async def test_every_kind_of_call_has_one_start_one_end_and_one_result() -> None:
    """loop.md D2: denied, invalid, unknown and failing calls as well."""
    script = ScriptedModel(
        answer(
            call("nope"),
            call("echo", wrong=1),
            call("echo", text="denied"),
            call("fail"),
            call("echo", raw='{"text": "cut'),
            call("echo", text="fine"),
        ),
        "ok",
    )

    def gate(asked: Any) -> bool:
        return asked.arguments.get("text") != "denied"

    agent, heard = agent_of(script, [echo, fail], before_tool_execution=gate)
    result = await agent.run("go")
    ids = [f"call_{number}" for number in range(1, 7)]
    assert sorted(event.tool_call_id for event in heard.of(ToolExecutionStart)) == ids
    assert sorted(event.tool_call_id for event in heard.of(ToolExecutionEnd)) == ids
    assert [status for *_, status in told(result.messages)] == [
        "invalid",
        "invalid",
        "denied",
        "completed",
        "invalid",
        "completed",
    ]
    assert all(event.duration >= 0 for event in heard.of(ToolExecutionEnd))


async def test_a_tool_that_raises_is_an_error_result_that_names_the_exception() -> None:
    """loop.md D4"""
    shop = Workshop()
    script = ScriptedModel(answer(call("job", name="a"), call("fail"), call("job", name="b")), "ok")
    agent, _ = agent_of(script, [shop.job(), fail])
    result = await agent.run("go")
    assert told(result.messages) == [
        ("job", "a done", False, "completed"),
        ("fail", "ValueError: no luck", True, "completed"),
        ("job", "b done", False, "completed"),
    ]
    assert (result.end_reason, result.text) == ("done", "ok")


@each_row(
    ("raised", "text"),
    [
        (ValueError(), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (ToolError("Say it louder."), "Say it louder."),
        (ToolError(), "ToolError"),
        (SystemExit(3), "The tool tried to exit the program (SystemExit(3))."),
        (StopIteration(), "RuntimeError: coroutine raised StopIteration"),
        (StopAsyncIteration(), "StopAsyncIteration"),
        (GeneratorExit(), "GeneratorExit"),
        (TimeoutError("mine"), "TimeoutError: mine"),
        (ExceptionGroup("two", [ValueError("x")]), "ExceptionGroup: two (1 sub-exception)"),
        (asyncio.CancelledError(), "CancelledError: the tool was cancelled, and not by the run."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_a_tool_raises_is_a_result_with_words(raised: BaseException, text: str) -> None:
    """loop.md D4"""

    @tool
    async def broken() -> str:
        """Raise."""
        raise raised

    agent, _ = agent_of(ScriptedModel(answer(call("broken")), "ok"), [broken])
    result = await agent.run("go")
    assert told(result.messages) == [("broken", text, True, "completed")]
    assert (result.end_reason, result.text) == ("done", "ok")


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (ValueError("x"), "ValueError: x"),
        (StopIteration(), "RuntimeError: The call raised StopIteration."),
        (KeyboardInterrupt(), "RuntimeError: The call raised KeyboardInterrupt()."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_a_tool_raises_in_its_thread_is_a_result_with_words(raised: BaseException, text: str) -> None:
    """loop.md D4, D5"""

    @tool
    def broken() -> str:
        """Raise."""
        raise raised

    agent, _ = agent_of(ScriptedModel(answer(call("broken")), "ok"), [broken])
    result = await agent.run("go")
    assert told(result.messages) == [("broken", text, True, "completed")]


@pytest.mark.parametrize(
    "output",
    [
        ToolOutput("x", effects=None),  # pyright: ignore[reportArgumentType]
        ToolOutput("x", effects=["prun"]),  # pyright: ignore[reportArgumentType]
        ToolOutput("x", details=["not", "a", "dict"]),  # pyright: ignore[reportArgumentType]
        ToolOutput(5),  # pyright: ignore[reportArgumentType]
        object(),
        {1, object()},
    ],
    ids=["no effects", "strange effect", "details", "number", "object", "set"],
)
async def test_an_output_that_makes_no_sense_is_an_error_result_and_not_a_hang(output: Any) -> None:
    """loop.md D4"""

    @tool
    async def odd() -> Any:
        """Give something odd."""
        return output

    agent, _ = agent_of(ScriptedModel(answer(call("odd"), call("echo", text="hi")), "ok"), [odd, echo])
    result = await agent.run("go")
    (name, text, is_error, status), fine = told(result.messages)
    assert (name, bool(text), status) == ("odd", True, "completed")
    assert is_error is (output != ToolOutput(5))  # pyright: ignore[reportArgumentType]
    assert fine == ("echo", "hi", False, "completed")
    assert result.end_reason == "done"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("", ""),
        ("words", "words"),
        (3, "3"),
        ([1, "a"], '[1,"a"]'),
        ({"a": None}, '{"a":null}'),
        (ToolOutput("out", details={"k": 1}), "out"),
    ],
    ids=repr,
)
async def test_what_a_tool_gives_is_told_as_text(value: Any, text: str) -> None:
    """loop.md D4; the next request never holds an empty result"""

    @tool
    async def give() -> Any:
        """Give."""
        return value

    script = ScriptedModel(answer(call("give")), "ok")
    agent, _ = agent_of(script, [give])
    result = await agent.run("go")
    assert told(result.messages) == [("give", text, False, "completed")]
    sent = script.requests[1][0].messages
    assert texts(sent)[-1] == ("tool_result", text or "(no output)")


async def test_an_output_the_tool_calls_an_error_is_one() -> None:
    """loop.md D4"""

    @tool
    async def soft() -> ToolOutput:
        """Fail politely."""
        return ToolOutput("exit code 1", details={"code": 1}, is_error=True)

    agent, heard = agent_of(ScriptedModel(answer(call("soft")), "ok"), [soft])
    result = await agent.run("go")
    assert told(result.messages) == [("soft", "exit code 1", True, "completed")]
    assert [event.result.details for event in heard.of(ToolExecutionEnd)] == [{"code": 1, "status": "completed"}]


def ender(name: str, terminate: bool) -> Tool:
    async def execute(args: dict[str, Any]) -> ToolOutput:
        return ToolOutput(f"{name} {args}", terminate=terminate)

    return Tool(name, "End.", {"type": "object", "properties": {}}, execute)


async def test_a_run_ends_after_the_turn_when_every_result_says_so() -> None:
    """loop.md D4"""
    script = ScriptedModel(answer(call("end"), call("end")), "never said")
    agent, _ = agent_of(script, [ender("end", terminate=True)])
    result = await agent.run("go")
    assert (result.end_reason, result.detail) == ("terminated", "A tool asked to end the run.")
    assert (script.asked, len(told(result.messages))) == (1, 2)


@pytest.mark.parametrize("other", [call("go_on"), call("nope"), call("fail")], ids=lambda value: value.name)
async def test_a_run_goes_on_when_one_result_of_the_batch_does_not_say_so(other: Any) -> None:
    """loop.md D4"""
    script = ScriptedModel(answer(call("end"), other), "ok")
    agent, _ = agent_of(script, [ender("end", terminate=True), ender("go_on", terminate=False), fail])
    result = await agent.run("go")
    assert (result.end_reason, result.text) == ("done", "ok")


async def test_what_is_queued_when_a_tool_ends_the_run_stays_queued() -> None:
    """loop.md D4, D7"""
    script = ScriptedModel(answer(call("end")), "ended", "heard")
    agent, _ = agent_of(script, [ender("end", terminate=True)])
    agent.follow_up("and then?")
    result = await agent.run("go")
    assert (result.end_reason, texts(result.undelivered)) == ("terminated", [("user", "and then?")])
    again = await agent.continue_()
    assert (again.text, agent.queued.follow_up) == ("heard", [])


async def test_calls_inside_a_failed_answer_never_run() -> None:
    """loop.md D8, T9"""
    shop = Workshop()
    script = ScriptedModel(error("overloaded", call("job", name="a"), deltas=1), "ok")
    agent, heard = agent_of(script, [shop.job()])
    result = await agent.run("go")
    assert shop.log == []
    assert heard.of(ToolExecutionStart) == []
    assert result.end_reason == "done"


async def test_more_calls_than_allowed_in_one_answer_are_not_run() -> None:
    """loop.md D2"""
    script = ScriptedModel(answer(*(call("echo", text=str(number)) for number in range(5))), "ok")
    agent, _ = agent_of(script, [echo], max_tool_calls=3)
    result = await agent.run("go")
    refused = ("echo", "Not run: more than 3 tool calls in one answer.", True, "not_started")
    assert told(result.messages) == [
        ("echo", "0", False, "completed"),
        ("echo", "1", False, "completed"),
        ("echo", "2", False, "completed"),
        refused,
        refused,
    ]


async def test_the_loop_without_an_agent_runs_tools_the_same_way() -> None:
    """loop.md D1, D2"""
    script = ScriptedModel(answer(call("echo", text="hi")), "ok")
    context = AgentContext(tools=[echo])
    stream = agent_loop("go", context, AgentLoopConfig(model=script.model))
    messages = await stream.result()
    assert texts(messages) == [("user", "go"), ("assistant", ""), ("tool_result", "hi"), ("assistant", "ok")]
    assert context.messages == messages


async def test_a_tool_knows_its_call_and_gets_a_key_for_doing_it_once() -> None:
    """loop.md D2"""
    seen: list[tuple[str, str, str, bool]] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append((ctx.tool_call_id, ctx.tool_name, ctx.idempotency_key, ctx.cancelled))
        return "seen"

    agent, _ = agent_of(ScriptedModel(answer(call("look"), call("look")), "ok"), [look])
    await agent.run("go")
    session, asked = agent.context.session_id, agent.context.log.entry_id_of(1)
    assert seen == [(f"call_{n}", "look", f"{session}:{asked}:call_{n}", False) for n in (1, 2)]


async def test_a_plain_function_runs_in_a_thread_and_the_loop_goes_on() -> None:
    """loop.md D5"""
    ticks: list[int] = []
    release = threading.Event()
    home = threading.get_ident()

    @tool
    def block() -> bool:
        """Block until released."""
        assert release.wait(20)
        return threading.get_ident() != home

    @tool
    async def tick() -> str:
        """Count, then let the other one go."""
        for number in range(3):
            await asyncio.sleep(0)
            ticks.append(number)
        release.set()
        return "ticked"

    agent, _ = agent_of(ScriptedModel(answer(call("block"), call("tick")), "ok"), [block, tick])
    result = await agent.run("go")
    assert told(result.messages) == [("block", "true", False, "completed"), ("tick", "ticked", False, "completed")]
    assert ticks == [0, 1, 2]


async def test_a_broken_steering_source_ends_the_run_as_an_error_with_every_call_answered() -> None:
    """loop.md D7, R8"""
    shop = Workshop()
    script = ScriptedModel(answer(call("job", name="a"), call("job", name="b", seconds=5.0)), "never said")
    calls = 0

    def broken() -> list[str]:
        nonlocal calls
        calls += 1
        if shop.log:
            raise RuntimeError("the queue is gone")
        return []

    errors: list[str] = []
    agent, _ = agent_of(script, [shop.job()], get_steering_messages=broken, on_error=errors.append)
    result = await agent.run("go")
    assert (result.end_reason, result.detail) == ("error", "RuntimeError: the queue is gone")
    assert [name for name, *_ in told(result.messages)] == ["job", "job"]
    assert errors == ["RuntimeError: the queue is gone"]
    assert script.asked == 1
