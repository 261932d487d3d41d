from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.loop.toolbox import agent_of, always, echo, fail, texts, told
from tests.rows import each_row

from steersman import (
    Agent,
    AgentMessage,
    ContextConfig,
    Hooks,
    Inject,
    Model,
    Reject,
    Request,
    Rewrite,
    Skip,
    Stop,
    StreamFn,
    StreamOptions,
    ToolCall,
    ToolOutput,
    Usage,
)
from steersman.policy.hooks import POLICY_SEAMS, SEAMS, PolicyView
from steersman.testing import ScriptedModel, answer, call, error
from steersman.types.events import TurnEnd
from steersman.types.stream import Reset, StreamEvent


def fail_if_called(*_: object) -> None:
    raise AssertionError("called")


class Diary:
    """Writes down at every seam what it is called with."""

    def __init__(self) -> None:
        self.pages: list[tuple[Any, ...]] = []

    def before_loop(self, messages: Sequence[AgentMessage], turn_index: int) -> None:
        self.pages.append(("before_loop", len(messages), turn_index))

    async def before_turn(self, messages: Sequence[AgentMessage], turn_index: int) -> bool:
        await asyncio.sleep(0)
        self.pages.append(("before_turn", len(messages), turn_index))
        return True

    def before_tool_execution(self, call: ToolCall) -> None:
        self.pages.append(("before_tool_execution", call.name, dict(call.arguments)))

    async def after_tool_execution(self, call: ToolCall, output: ToolOutput) -> None:
        self.pages.append(("after_tool_execution", call.name, output.content))

    def after_turn(self, messages: Sequence[AgentMessage], usage: Usage) -> None:
        self.pages.append(("after_turn", len(messages), usage.total))

    def before_follow_up(self, messages: Sequence[AgentMessage]) -> None:
        self.pages.append(("before_follow_up", len(messages)))

    def on_error(self, text: str) -> None:
        self.pages.append(("on_error", text))

    async def after_loop(self, messages: Sequence[AgentMessage], usage: Usage) -> None:
        self.pages.append(("after_loop", len(messages), usage.total))


async def test_every_seam_is_asked_in_its_place_with_its_arguments() -> None:
    """loop.md R2, R7, T4, T10, D3"""
    script = ScriptedModel(answer(call("echo", text="hi"), usage=Usage(5, 5)), answer("ok", usage=Usage(20, 1)))
    diary = Diary()
    agent, _ = agent_of(script, [echo], hooks=[diary])
    await agent.run("go")
    assert diary.pages == [
        ("before_loop", 0, 0),
        ("before_turn", 1, 0),
        ("before_tool_execution", "echo", {"text": "hi"}),
        ("after_tool_execution", "echo", "hi"),
        ("after_turn", 3, 10),
        ("before_turn", 3, 1),
        ("after_turn", 4, 21),
        ("before_follow_up", 4),
        ("after_loop", 4, 31),
    ]


async def test_an_error_is_told_before_the_turn_is_concluded() -> None:
    """loop.md T9"""
    diary = Diary()
    agent, _ = agent_of(ScriptedModel(error("authentication")), hooks=[diary])
    result = await agent.run("go")
    assert diary.pages == [
        ("before_loop", 0, 0),
        ("before_turn", 1, 0),
        ("on_error", "scripted error: authentication"),
        ("after_turn", 2, None),
        ("after_loop", 2, None),
    ]
    assert (result.end_reason, result.detail) == ("error", "scripted error: authentication")


async def test_hook_objects_single_hooks_and_policies_are_one_mechanism_asked_in_order() -> None:
    """loop.md T4, T6"""
    asked: list[str] = []

    class First:
        def before_turn(self, messages: Sequence[AgentMessage], turn_index: int) -> None:
            asked.append(f"first {len(messages)} {turn_index}")

    class Second:
        async def before_turn(self, messages: Sequence[AgentMessage], turn_index: int) -> None:
            asked.append(f"second {len(messages)} {turn_index}")

    class Evaluated:
        def evaluate(self, view: PolicyView) -> None:
            asked.append(f"evaluated {len(view.messages)} {view.turn_index}")

    class Seamed:
        def before_turn(self, view: PolicyView) -> None:
            asked.append(f"seamed {view.agent_id == agent.context.agent_id}")

    def single(messages: Sequence[AgentMessage], index: int) -> None:
        asked.append(f"single {len(messages)} {index}")

    def policy(view: PolicyView) -> None:
        asked.append(f"policy {view.usage}")

    agent, _ = agent_of(
        ScriptedModel("ok"),
        hooks=[First(), Second()],
        before_turn=single,
        pre_turn_policies=[policy, Evaluated(), Seamed()],
    )
    await agent.run("go")
    assert asked == ["first 1 0", "second 1 0", "single 1 0", f"policy {Usage()}", "evaluated 1 0", "seamed True"]


async def test_what_one_hook_decides_at_a_turn_seam_the_next_is_not_asked_again() -> None:
    """loop.md T4"""
    asked: list[str] = []

    def stop(view: PolicyView) -> Stop:
        asked.append("stop")
        return Stop("that is enough")

    def never(view: PolicyView) -> None:
        asked.append("never")

    script = ScriptedModel("never said")
    agent, heard = agent_of(script, pre_turn_policies=[stop, never])
    result = await agent.run("go")
    assert (result.end_reason, result.detail, script.asked, asked) == ("stopped", "that is enough", 0, ["stop"])
    assert [event.reason for event in heard.of(TurnEnd)] == ["stopped"]


async def test_injections_of_several_policies_add_up_in_order() -> None:
    """loop.md T6"""
    script = ScriptedModel("ok")
    agent, _ = agent_of(
        script,
        pre_turn_policies=[
            always(Inject("first")),
            always(Inject(["second", {"role": "user", "content": "third"}])),
        ],
    )
    await agent.run("go")
    sent = script.requests[0][0].messages
    assert texts(sent) == [("user", "go"), ("user", "first"), ("user", "second"), ("user", "third")]


async def test_an_injection_after_the_last_turn_makes_another_turn_and_is_heard_once() -> None:
    """loop.md T11"""
    done: list[int] = []

    def once(view: PolicyView) -> Inject | None:
        done.append(view.turn_index)
        return Inject("check it again") if len(done) == 1 else None

    script = ScriptedModel("first", "second")
    agent, _ = agent_of(script, post_loop_policies=[once])
    result = await agent.run("go")
    assert texts(result.messages) == [
        ("user", "go"),
        ("assistant", "first"),
        ("user", "check it again"),
        ("assistant", "second"),
    ]
    assert len(done) == 2


async def test_an_injection_after_a_turn_is_heard_by_the_next() -> None:
    """loop.md T10"""

    def once(view: PolicyView) -> Inject | None:
        assert view.message is not None
        return Inject(f"after {view.message.text!r}") if view.turn_index == 0 else None

    agent, _ = agent_of(ScriptedModel("first", "second"), post_turn_policies=[once])
    result = await agent.run("go")
    assert [text for _, text in texts(result.messages)] == ["go", "first", "after 'first'", "second"]


async def test_a_policy_after_the_turn_sees_the_answer_and_its_results_and_may_stop_the_run() -> None:
    """loop.md T10"""
    seen: list[Any] = []

    def policy(view: PolicyView) -> Stop:
        seen.append((view.message is not None and view.message.stop_reason, told(view.tool_results)))
        return Stop("seen enough")

    script = ScriptedModel(answer(call("echo", text="hi")), "never said")
    agent, _ = agent_of(script, [echo], post_turn_policies=[policy])
    result = await agent.run("go")
    assert seen == [("tool_use", [("echo", "hi", False, "completed")])]
    assert (result.end_reason, result.detail, script.asked) == ("stopped", "seen enough", 1)


@pytest.mark.parametrize("seam", ["before_loop", "before_turn", "after_turn", "before_follow_up"])
async def test_a_hook_that_raises_at_a_loop_or_turn_seam_ends_the_run_as_an_error(seam: str) -> None:
    """loop.md R8"""

    def broken(*_: Any) -> None:
        raise RuntimeError("broken hook")

    options: dict[str, Any] = {seam: broken}
    agent, _ = agent_of(ScriptedModel("said", "never said"), **options)
    result = await agent.run("go")
    assert result.end_reason == "error"
    assert result.detail.startswith(f"{seam} hook ")
    assert result.detail.endswith("broken raised RuntimeError: broken hook")
    assert result.messages[-1].role == "assistant"


@pytest.mark.parametrize("name", POLICY_SEAMS)
async def test_a_policy_that_raises_never_counts_as_one_that_agreed(name: str) -> None:
    """loop.md R8, D3"""
    script = ScriptedModel(answer(call("echo", text="hi")), "ok")

    def broken(_: PolicyView) -> None:
        raise RuntimeError("broken policy")

    agent, _ = agent_of(script, [echo], **{name: [broken]})
    result = await agent.run("go")
    if name == "pre_dispatch_policies":
        ((tool, text, is_error, status),) = told(result.messages)
        assert (tool, is_error, status, result.end_reason) == ("echo", True, "denied", "done")
        assert "broken policy" in text
    else:
        assert (result.end_reason, "broken policy" in result.detail) == ("error", True)


@each_row(
    ("seam", "verdict"),
    [
        *[(seam, answer) for seam in ("before_turn", "before_follow_up") for answer in ("yes", 0, b"")],
        *[(seam, answer) for seam in ("before_turn", "after_turn") for answer in (Skip("x"), Rewrite({}))],
    ],
    ids=repr,
)
async def test_an_answer_that_means_nothing_at_a_turn_seam_ends_the_run_as_an_error(seam: str, verdict: Any) -> None:
    """loop.md R8"""
    options: dict[str, Any] = {seam: always(verdict)}
    agent, _ = agent_of(ScriptedModel("said", "never said"), **options)
    result = await agent.run("go")
    assert (result.end_reason, result.detail.startswith(f"{seam} hook ")) == ("error", True)


async def test_an_after_loop_hook_that_raises_is_logged_too(caplog: Any) -> None:
    """loop.md R7: no event says it, because agent_end was the last one."""

    def broken(*_: Any) -> None:
        raise RuntimeError("broken hook")

    agent, _ = agent_of(ScriptedModel("ok"), after_loop=broken)
    result = await agent.run("go")
    assert (result.end_reason, result.text, agent.is_running) == ("error", "ok", False)
    assert "broken raised RuntimeError: broken hook" in caplog.text


@each_row("seam", SEAMS)
def test_a_hook_that_does_not_take_the_arguments_is_refused_where_it_is_given(seam: str) -> None:
    """loop.md R8: a programmer's mistake raises at the call that made it."""

    def odd(a: int, b: int, c: int, d: int, e: int, f: int) -> None: ...

    options: dict[str, Any] = {seam: odd}
    with pytest.raises(TypeError, match=f"{seam} is called as {seam}"):
        agent_of(ScriptedModel("x"), **options)


@pytest.mark.parametrize("seam", ["before_tool_execution", "pre_dispatch_policies"])
async def test_a_gate_of_a_tool_that_returns_a_string_reads_what_it_may_return(seam: str) -> None:
    """api.md: `before_tool_execution` may answer by returning a ToolOutput; it cannot inject."""
    gate = always("no")
    options: dict[str, Any] = {seam: [gate] if seam.endswith("policies") else gate}
    agent, _ = agent_of(ScriptedModel(answer(call("echo", text="hi")), "ok"), [echo], **options)
    (result,) = (await agent.run("go")).tool_results
    assert "gave 'no'; return None, True, False, Stop, Skip, Rewrite or a ToolOutput" in result.text


@pytest.mark.parametrize("hooks", [[object()], [print], ["before_turn"]])
def test_an_object_without_any_seam_is_no_hook(hooks: Any) -> None:
    with pytest.raises(TypeError, match="A hook has a method named after a seam"):
        Agent(ScriptedModel("x").model, hooks=hooks)


@pytest.mark.parametrize("name", POLICY_SEAMS)
def test_a_policy_is_a_function_or_has_the_method_of_its_seam(name: str) -> None:
    options: dict[str, Any] = {name: [object()]}
    with pytest.raises(TypeError, match=f"{name} takes functions of one view"):
        Agent(ScriptedModel("x").model, **options)


def test_any_object_with_a_seam_is_hooks_and_no_other() -> None:
    """api.md: a hook object has a method named after a seam."""

    class Empty(Hooks): ...

    class ByKey(dict[str, Any]):
        __getattr__ = dict[str, Any].__getitem__

    hooks = [Diary(), SimpleNamespace(on_error=print), ByKey(after_turn=print), Empty()]
    others = [3, None, "before_turn", object(), print, SimpleNamespace(before_turn=3), ByKey(), ByKey(before_tool=3)]
    assert [isinstance(hook, Hooks) for hook in hooks] == [True] * len(hooks)
    assert [isinstance(other, Hooks) for other in others] == [False] * len(others)
    assert not isinstance(Diary(), Empty)


class Guarded:
    """A guard with one right and one misspelt method."""

    def before_turn(self, *_: object) -> None: ...

    def before_tool_call(self, call: ToolCall) -> Skip:
        return Skip("never")


class Static:
    """The same with functions that take no instance."""

    before_turn = staticmethod(always(None))
    after_tool = staticmethod(always(None))


@each_row(
    ("hook", "name", "nearest"),
    [
        (Guarded(), "Guarded.before_tool_call", "before_tool_execution"),
        (Static(), "Static.after_tool", "after_tool_execution"),
        (SimpleNamespace(before_turn=always(None), on_eror=always(None)), "SimpleNamespace.on_eror", "on_error"),
        (SimpleNamespace(before_turns=always(None)), "SimpleNamespace.before_turns", "before_turn"),
        (SimpleNamespace(on_error=always(None), beforeTurn=always(None)), "SimpleNamespace.beforeTurn", "before_turn"),
        (SimpleNamespace(BeforeToolCall=always(None)), "SimpleNamespace.BeforeToolCall", "before_tool_execution"),
        (SimpleNamespace(afterloop=always(None)), "SimpleNamespace.afterloop", "after_loop"),
    ],
    ids=["method", "static", "attribute", "only one", "camelCase", "PascalCase", "without underscore"],
)
@each_row("option", ["hooks", "pre_turn_policies"])
def test_a_hook_with_a_misspelt_seam_is_refused_with_the_nearest_name(
    option: str, hook: object, name: str, nearest: str
) -> None:
    """api.md: a hook object is refused when it has a public method that looks like a seam and is none."""
    options: dict[str, Any] = {option: [hook]}
    with pytest.raises(TypeError, match=f"{name} looks like a seam.* did you mean '{nearest}'"):
        agent_of(ScriptedModel("x"), **options)


async def test_what_is_no_public_method_does_not_look_like_a_seam() -> None:
    """api.md: public methods are judged; attributes, properties and private names are the object's own business."""

    class Quiet(dict[str, Any]):
        on_screen = 3
        before_all = None

        def __getattr__(self, name: str) -> Any:
            return self[name]

        @property
        def after_reading(self) -> None:
            raise AssertionError("read")

        def _on_turn(self) -> None: ...

        def before_turn(self, messages: object, turn_index: int) -> None:
            self["turns"] = turn_index

    quiet = Quiet()
    agent, _ = agent_of(ScriptedModel("ok"), hooks=[quiet])
    await agent.run("go")
    assert quiet == {"turns": 0}


@each_row("value", [5, 0, "text", [], {"a": 1}, object], ids=str)
@each_row("seam", ["after_turn", "after_loop", "on_error", "after_compaction_end"])
async def test_what_an_observer_returns_is_ignored_unless_it_is_a_verdict(seam: str, value: object) -> None:
    """api.md: any other value is ignored, such as the number that `write` returns."""
    history = [{"role": role, "content": "word " * 500} for _ in range(4) for role in ("user", "assistant")]
    config = ContextConfig(max_context_tokens=2_000, threshold=0.5, keep_recent=1)
    seen: list[object] = []

    def observe(*arguments: object) -> object:
        seen.append(arguments)
        return value

    options: dict[str, Any] = {seam: observe}
    script = ScriptedModel(error("authentication") if seam == "on_error" else "said")
    agent, _ = agent_of(script, messages=history, context_config=config, **options)
    result = await agent.run("go")
    assert (result.end_reason, len(seen)) == ("error" if seam == "on_error" else "done", 1)


@pytest.mark.parametrize("seam", ["after_turn", "after_compaction_end"])
async def test_an_observer_that_says_no_stops_the_run(seam: str) -> None:
    """api.md: `False` counts where the seam can say no."""
    history = [{"role": role, "content": "word " * 500} for _ in range(4) for role in ("user", "assistant")]
    config = ContextConfig(max_context_tokens=2_000, threshold=0.5, keep_recent=1)
    options: dict[str, Any] = {seam: always(False)}
    agent, _ = agent_of(ScriptedModel("said"), messages=history, context_config=config, **options)
    result = await agent.run("go")
    assert (result.end_reason, result.detail) == ("stopped", f"{seam} said no")


async def test_a_verdict_after_a_tool_counts_and_the_output_stays() -> None:
    """api.md: a verdict of an observer counts. The results are in the log before the run ends."""
    script = ScriptedModel(answer(call("echo", text="hi")), "never said")
    agent, _ = agent_of(script, [echo], after_tool_execution=always(Stop("seen enough")))
    result = await agent.run("go")
    assert (result.end_reason, result.detail, script.asked) == ("stopped", "seen enough", 1)
    assert told(result.messages) == [("echo", "hi", False, "completed")]

    script = ScriptedModel(answer(call("echo", text="hi")), "ok")
    agent, _ = agent_of(script, [echo], after_tool_execution=always(Inject("Mind the gap.")))
    assert [text for _, text in texts((await agent.run("go")).messages)] == ["go", "", "hi", "Mind the gap.", "ok"]


async def test_after_loop_is_called_when_a_later_turn_is_vetoed() -> None:
    """api.md: however a run ends that got past `before_loop` and its filters, its cost can be billed."""
    billed: list[tuple[int, int | None]] = []

    def veto(messages: object, turn_index: int) -> bool:
        return turn_index == 0

    def bill(messages: Sequence[AgentMessage], usage: Usage) -> None:
        billed.append((len(messages), usage.total))

    script = ScriptedModel(answer(call("echo", text="hi"), usage=Usage(5, 5)), "never said")
    agent, _ = agent_of(script, [echo], before_turn=veto, after_loop=bill)
    result = await agent.run("go")
    assert (result.end_reason, script.asked, billed) == ("vetoed", 1, [(3, 10)])
    await Agent(ScriptedModel("x").model, before_turn=always(False), after_loop=bill).run("go")
    assert billed[1:] == [(1, None)]


@pytest.mark.parametrize(
    "options", [{"before_loop": always(False)}, {"input_filters": [always(Reject("no"))]}], ids=["vetoed", "rejected"]
)
async def test_after_loop_is_not_called_for_a_run_that_did_not_begin(options: dict[str, Any]) -> None:
    """api.md: called for every run that got past `before_loop` and its input filters, and for no other."""
    agent, _ = agent_of(ScriptedModel("x"), after_loop=fail_if_called, **options)
    assert (await agent.run("go")).end_reason in ("vetoed", "rejected")


async def test_after_loop_is_called_for_a_run_that_was_given_up() -> None:
    """api.md: however it ended. A stream that never reacts to cancels is abandoned, and what it cost is billed."""
    billed: list[int] = []

    async def bill(messages: Sequence[AgentMessage], usage: Usage) -> None:
        await asyncio.sleep(0)
        assert agent.is_running
        billed.append(len(messages))

    released = asyncio.Event()

    async def ignore_cancels(model: Model, request: Request, options: StreamOptions) -> AsyncIterator[StreamEvent]:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()
        yield Reset()

    agent, _ = agent_of(ScriptedModel(), stream_fn=ignore_cancels, after_loop=bill)
    stream = agent.prompt("go")
    await asyncio.sleep(10)
    agent.abort()
    result = await stream
    released.set()
    assert (result.end_reason, billed, agent.is_running) == ("aborted", [2], False)


async def test_after_tool_execution_may_replace_the_output() -> None:
    """loop.md D4"""

    def shout(call: ToolCall, output: ToolOutput) -> str:
        return f"{call.arguments['text']}!"

    agent, _ = agent_of(ScriptedModel(answer(call("echo", text="hi")), "ok"), [echo], after_tool_execution=shout)
    result = await agent.run("go")
    assert told(result.messages) == [("echo", "hi!", False, "completed")]


async def test_after_tool_execution_may_turn_an_output_into_an_error_or_the_end() -> None:
    """loop.md D4"""

    async def judge(call: ToolCall, output: ToolOutput) -> ToolOutput:
        return ToolOutput("secret found", details={"by": "judge"}, is_error=True, terminate=True)

    agent, _ = agent_of(ScriptedModel(answer(call("echo", text="hi")), "ok"), [echo], after_tool_execution=judge)
    result = await agent.run("go")
    assert told(result.messages) == [("echo", "secret found", True, "completed")]
    assert result.end_reason == "terminated"


async def test_after_tool_execution_sees_the_arguments_the_tool_got() -> None:
    """loop.md D2, D4"""
    seen: list[Any] = []

    def note(call: ToolCall, output: ToolOutput) -> None:
        seen.append((dict(call.arguments), output.content))

    agent, _ = agent_of(
        ScriptedModel(answer(call("echo", text="hi")), "ok"),
        [echo],
        before_tool_execution=always(Rewrite({"text": "ho"})),
        after_tool_execution=note,
    )
    await agent.run("go")
    assert seen == [({"text": "ho"}, "ho")]


async def test_several_hooks_after_a_tool_fold() -> None:
    """loop.md D4"""

    class Bang:
        def after_tool_execution(self, call: ToolCall, output: ToolOutput) -> str:
            return f"{output.content}!"

    agent, _ = agent_of(ScriptedModel(answer(call("echo", text="hi")), "ok"), [echo], hooks=[Bang(), Bang()])
    result = await agent.run("go")
    assert told(result.messages) == [("echo", "hi!!", False, "completed")]


async def test_a_hook_after_a_tool_that_raises_withholds_the_output() -> None:
    """loop.md D3, D4"""

    def broken(call: ToolCall, output: ToolOutput) -> None:
        raise RuntimeError("scanner down")

    agent, _ = agent_of(
        ScriptedModel(answer(call("echo", text="secret"), call("echo", text="other")), "ok"),
        [echo],
        after_tool_execution=broken,
    )
    result = await agent.run("go")
    assert result.end_reason == "done"
    for name, text, is_error, status in told(result.messages):
        assert (name, is_error, status) == ("echo", True, "denied")
        assert text.endswith("broken raised RuntimeError: scanner down. The output is withheld.")


async def test_the_hooks_after_a_tool_see_its_failure_too() -> None:
    """loop.md D4"""

    def redact(call: ToolCall, output: ToolOutput) -> str:
        assert output.is_error
        return str(output.content).replace("hunter2", "[redacted]")

    agent, _ = agent_of(
        ScriptedModel(answer(call("fail", text="password hunter2 is wrong")), "ok"), [fail], after_tool_execution=redact
    )
    result = await agent.run("go")
    assert told(result.messages) == [("fail", "ValueError: password [redacted] is wrong", True, "completed")]


async def test_a_stream_function_may_be_wrapped_and_each_request_passes_through_it() -> None:
    """loop.md T6, section 5: recorded once, replayed without the model."""
    script = ScriptedModel(answer(call("echo", text="hi")), "ok")
    tape: list[list[StreamEvent]] = []

    def recording(inner: Any) -> StreamFn:
        async def stream(model: Model, request: Request, options: StreamOptions) -> AsyncIterator[StreamEvent]:
            tape.append([])
            async for event in inner(model, request, options):
                tape[-1].append(event)
                yield event

        return stream

    def replaying(recorded: list[list[StreamEvent]]) -> StreamFn:
        left = list(recorded)

        async def stream(model: Model, request: Request, options: StreamOptions) -> AsyncIterator[StreamEvent]:
            for event in left.pop(0):
                yield event

        return stream

    agent, first = agent_of(script, [echo], stream_fn=recording(script))
    recorded = await agent.run("go")
    other, second = agent_of(script, [echo], stream_fn=replaying(tape))
    replayed = await other.run("go")
    assert (len(tape), script.asked) == (2, 2)
    assert texts(replayed.messages) == texts(recorded.messages)
    assert second.types == first.types
