from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.loop.toolbox import Workshop, agent_of, echo, told
from tests.rows import each_row

from steersman import Inject, Rewrite, Skip, Stop, ToolCall, tool
from steersman.policy.hooks import PolicyView
from steersman.testing import ScriptedModel, answer, call, stall
from steersman.types.events import ToolExecutionStart


async def outcome(*blocks: Any, tools: Any = (echo,), **options: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """The results of one batch, and the arguments its calls were started with."""
    agent, heard = agent_of(ScriptedModel(answer(*blocks), "ok"), tools, **options)
    result = await agent.run("go")
    assert (result.end_reason, result.text) == ("done", "ok")
    return told(result.messages), [event.args for event in heard.of(ToolExecutionStart)]


async def test_an_unknown_tool_is_answered_with_the_names_there_are() -> None:
    """loop.md D3"""
    results, _ = await outcome(call("nope", x=1), call("echo", text="hi"))
    assert results == [
        ("nope", "No tool named 'nope'. Available tools: echo.", True, "invalid"),
        ("echo", "hi", False, "completed"),
    ]


async def test_an_unknown_tool_among_none_is_said_so() -> None:
    """loop.md D3"""
    results, _ = await outcome(call("nope"), tools=())
    assert results == [("nope", "No tool named 'nope'. Available tools: none.", True, "invalid")]


@tool
async def order(item: str, count: int, rush: bool = False) -> str:
    """Order something."""
    return f"{count} {item} {rush}"


async def test_arguments_are_mended_where_nothing_is_lost_by_it() -> None:
    """loop.md D3"""
    results, started = await outcome(call("order", item="7", count="42", rush="true"), tools=[order])
    assert started == [{"item": "7", "count": 42, "rush": True}]
    assert results == [("order", "42 7 True", False, "completed")]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"item": "x", "count": "many"}, "arguments.count: expected an integer, got 'many'"),
        ({"item": "x", "count": 1.5}, "arguments.count: expected an integer, got 1.5"),
        ({"item": "x"}, "arguments.count: missing, an integer is required"),
    ],
    ids=["words", "fraction", "missing"],
)
async def test_arguments_that_do_not_fit_are_answered_with_what_was_expected(arguments: Any, text: str) -> None:
    """loop.md D3"""
    results, _ = await outcome(call("order", arguments), tools=[order])
    assert results == [("order", f"Invalid arguments for tool 'order':\n{text}", True, "invalid")]


async def test_the_gates_are_asked_in_order_and_only_about_calls_that_could_run() -> None:
    """loop.md D3: unknown tool, arguments, policies, hooks, approval, execution."""
    asked: list[str] = []

    @tool(needs_approval=True)
    async def act(x: int) -> str:
        """Act."""
        asked.append(f"execute {x}")
        return "acted"

    def policy(view: PolicyView) -> None:
        assert view.call is not None
        asked.append(f"policy {view.call.arguments}")

    def hook(call: ToolCall) -> None:
        asked.append(f"hook {call.arguments}")

    def approve(call: ToolCall) -> bool:
        asked.append(f"approve {call.arguments}")
        return True

    results, _ = await outcome(
        call("nope"),
        call("act", x="no number"),
        call("act", x="1"),
        tools=[act],
        pre_dispatch_policies=[policy],
        before_tool_execution=hook,
        approve=approve,
    )
    assert asked == ["policy {'x': 1}", "hook {'x': 1}", "approve {'x': 1}", "execute 1"]
    assert [status for *_, status in results] == ["invalid", "invalid", "completed"]


@pytest.mark.parametrize("seam", ["pre_dispatch_policies", "before_tool_execution"])
async def test_skip_answers_the_call_with_its_text(seam: str) -> None:
    """loop.md D3"""

    def gate(_: Any) -> Skip:
        return Skip("not allowed here")

    results, _ = await outcome(call("echo", text="x"), **{seam: [gate] if seam.endswith("policies") else gate})
    assert results == [("echo", "not allowed here", True, "denied")]


async def test_no_is_a_denial_and_the_first_no_wins() -> None:
    """loop.md D3"""
    asked: list[str] = []

    def first(_: PolicyView) -> bool:
        asked.append("first")
        return False

    def second(_: PolicyView) -> Skip:
        asked.append("second")
        return Skip("never said")

    results, _ = await outcome(call("echo", text="x"), pre_dispatch_policies=[first, second])
    ((name, text, is_error, status),) = results
    assert (name, is_error, status, asked) == ("echo", True, "denied", ["first"])
    assert text.startswith("Denied: ")
    assert text.endswith("first did not allow it.")


async def test_rewrites_fold_and_are_checked_again_and_told_as_the_effective_arguments() -> None:
    """loop.md D3, D2"""
    seen: list[Any] = []

    def more(view: PolicyView) -> Rewrite:
        assert view.call is not None
        return Rewrite({**view.call.arguments, "count": "3"})

    def urgent(call: ToolCall) -> Rewrite:
        seen.append(dict(call.arguments))
        return Rewrite({**call.arguments, "rush": True})

    results, started = await outcome(
        call("order", item="tea", count=1), tools=[order], pre_dispatch_policies=[more], before_tool_execution=urgent
    )
    assert seen == [{"item": "tea", "count": "3"}]
    assert started == [{"item": "tea", "count": 3, "rush": True}]
    assert results == [("order", "3 tea True", False, "completed")]


async def test_a_rewrite_that_does_not_fit_is_invalid_and_nothing_runs() -> None:
    """loop.md D3"""

    def spoil(_: ToolCall) -> Rewrite:
        return Rewrite({"item": "tea", "count": "lots"})

    results, _ = await outcome(call("order", item="tea", count=1), tools=[order], before_tool_execution=spoil)
    text = "Invalid arguments for tool 'order':\narguments.count: expected an integer, got 'lots'"
    assert results == [("order", text, True, "invalid")]


async def test_a_rewrite_to_a_key_in_use_waits_for_the_other_call() -> None:
    """loop.md D3, D1"""
    shop = Workshop()

    def one_file(call: ToolCall) -> Rewrite:
        return Rewrite({**call.arguments, "path": "same"})

    await outcome(
        call("write", path="x", name="a"),
        call("write", path="y", name="b"),
        tools=[shop.write()],
        before_tool_execution=one_file,
    )
    assert shop.log == ["+a", "-a", "+b", "-b"]


async def test_stop_ends_the_run_and_every_call_that_has_not_started_is_answered() -> None:
    """loop.md D3"""
    shop = Workshop()
    script = ScriptedModel(answer(*(call("job", name=name) for name in "abc")), "never said")

    def gate(call: ToolCall) -> Stop | None:
        return Stop("enough") if call.arguments["name"] == "b" else None

    agent, _ = agent_of(script, [shop.job()], before_tool_execution=gate)
    result = await agent.run("go")
    assert (result.end_reason, result.detail, script.asked) == ("stopped", "enough", 1)
    assert told(result.messages) == [
        ("job", "a done", False, "completed"),
        ("job", "Denied: the run was stopped. enough", True, "denied"),
        ("job", "Not run: enough", True, "not_started"),
    ]
    assert shop.log == ["+a", "-a"]


async def test_a_stop_among_tools_does_not_lose_the_steering_that_is_queued() -> None:
    """loop.md D7"""
    script = ScriptedModel(answer(call("echo", text="a")), "ok", "heard")

    def gate(_: ToolCall) -> Stop:
        agent.steer("wait, also this")
        return Stop("enough")

    agent, _ = agent_of(script, [echo], before_tool_execution=gate)
    result = await agent.run("go")
    assert result.end_reason == "stopped"
    assert [message.text for message in result.undelivered] == ["wait, also this"]
    assert [message.text for message in agent.queued.steering] == ["wait, also this"]


async def hang(_: Any) -> None:
    await asyncio.sleep(10_000)


async def hang_and_agree(_: Any) -> bool:
    try:
        await asyncio.sleep(10_000)
    except asyncio.CancelledError:
        return True
    return True


def explode(_: Any) -> None:
    raise RuntimeError("the guard broke")


async def give_up(_: Any) -> None:
    raise asyncio.CancelledError


def nonsense(_: Any) -> str:
    return "sure, go ahead"


def inject(_: Any) -> Inject:
    return Inject("psst")


GATES = {
    hang: "gave no answer within 60.0s.",
    hang_and_agree: "gave no answer within 60.0s.",
    explode: "raised RuntimeError: the guard broke.",
    give_up: "raised CancelledError.",
    nonsense: "gave 'sure, go ahead'; return None, True, False, Stop, Skip, Rewrite or a ToolOutput.",
    inject: "cannot inject messages.",
}


@each_row("seam", ["pre_dispatch_policies", "before_tool_execution"])
@each_row("gate", GATES)
async def test_a_gate_that_breaks_hangs_or_makes_no_sense_denies(seam: str, gate: Any) -> None:
    """loop.md D3, failures.md J4"""
    results, _ = await outcome(call("echo", text="x"), **{seam: [gate] if seam.endswith("policies") else gate})
    ((name, text, is_error, status),) = results
    assert (name, is_error, status) == ("echo", True, "denied")
    assert text.startswith(f"Denied: {seam} ")
    assert text.endswith(GATES[gate])


@pytest.mark.real_time
@pytest.mark.parametrize("seam", ["pre_dispatch_policies", "before_tool_execution"])
async def test_a_plain_gate_that_took_too_long_denies_although_it_said_yes(seam: str) -> None:
    """failures.md J4: nothing can cut it off, so the clock is looked at when it has answered."""

    def block(_: Any) -> bool:
        threading.Event().wait(0.05)
        return True

    gates = {seam: [block] if seam.endswith("policies") else block}
    ((_, text, _, status),), _ = await outcome(call("echo", text="x"), gate_timeout=0.01, **gates)
    assert status == "denied"
    assert text.startswith(f"Denied: {seam} gate ")
    assert text.endswith("gave no answer within 0.01s.")


@tool(needs_approval=True)
async def delete(path: str) -> str:
    """Delete something."""
    return f"{path} deleted"


async def yes(_: ToolCall) -> bool:
    return True


def no(_: ToolCall) -> bool:
    return False


def approve_badly(_: ToolCall) -> Any:
    raise RuntimeError("the terminal is gone")


def approve_vaguely(_: ToolCall) -> Any:
    return "yes"


async def approve_never(_: ToolCall) -> bool:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("approve", "result"),
    [
        (yes, ("delete", "x deleted", False, "completed")),
        (no, ("delete", "Denied: not approved.", True, "denied")),
        (None, ("delete", "Denied: tool 'delete' needs approval and there is no approver.", True, "denied")),
        (
            approve_badly,
            ("delete", "Denied: approve hook approve_badly raised RuntimeError: the terminal is gone.", True, "denied"),
        ),
        (approve_vaguely, ("delete", "Denied: not approved.", True, "denied")),
        (approve_never, ("delete", "Denied: approve hook approve_never raised CancelledError.", True, "denied")),
    ],
    ids=["yes", "no", "none", "raises", "vague", "cancelled"],
)
async def test_a_tool_that_needs_approval_runs_only_after_a_clear_yes(approve: Any, result: Any) -> None:
    """loop.md D3"""
    results, _ = await outcome(call("delete", path="x"), tools=[delete], approve=approve)
    assert results == [result]


async def test_approval_may_depend_on_the_arguments() -> None:
    """loop.md D3"""

    @tool(needs_approval=lambda args: args["path"].startswith("/"))
    async def read(path: str) -> str:
        """Read."""
        return path

    results, _ = await outcome(call("read", path="a"), call("read", path="/etc"), tools=[read], approve=no)
    assert results == [("read", "a", False, "completed"), ("read", "Denied: not approved.", True, "denied")]


async def test_a_tool_that_cannot_say_whether_it_needs_approval_is_not_run() -> None:
    """loop.md D3"""

    @tool(needs_approval=lambda args: args["missing"])
    async def read(path: str) -> str:
        """Read."""
        return path

    results, _ = await outcome(call("read", path="a"), tools=[read], approve=yes)
    assert results == [("read", "Denied: whether it needs approval raised KeyError: 'missing'", True, "denied")]


async def test_an_abort_while_a_gate_is_asked_answers_every_call_and_starts_none() -> None:
    """loop.md D6, T12"""
    shop = Workshop()
    script = ScriptedModel(answer(call("job", name="a"), call("job", name="b")), stall())

    async def gate(_: ToolCall) -> None:
        agent.abort()
        await asyncio.sleep(100)

    agent, _ = agent_of(script, [shop.job()], before_tool_execution=gate)
    result = await agent.run("go")
    assert result.end_reason == "aborted"
    assert told(result.messages) == [("job", "tool call cancelled: operation aborted", True, "not_started")] * 2
    assert (shop.log, script.asked) == ([], 1)


async def test_an_abort_inside_a_gate_that_says_yes_starts_nothing() -> None:
    """loop.md D6, T12"""
    shop = Workshop()

    def gate(_: ToolCall) -> None:
        agent.abort()

    agent, _ = agent_of(ScriptedModel(answer(call("job", name="a"))), [shop.job()], before_tool_execution=gate)
    result = await agent.run("go")
    assert result.end_reason == "aborted"
    assert told(result.messages) == [("job", "tool call cancelled: operation aborted", True, "not_started")]
    assert shop.log == []


async def test_steering_that_comes_while_a_gate_is_asked_skips_the_call() -> None:
    """loop.md D6"""
    shop = Workshop()
    script = ScriptedModel(answer(call("job", name="a"), call("job", name="b")), "ok")

    def gate(call: ToolCall) -> None:
        if call.arguments["name"] == "a":
            agent.steer("something else")

    agent, _ = agent_of(script, [shop.job()], before_tool_execution=gate)
    result = await agent.run("go")
    assert told(result.messages) == [("job", "Skipped due to queued user message.", True, "not_started")] * 2
    assert shop.log == []
