"""Conversations of every kind, each small enough to be interrupted at each of its steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from steersman import (
    Agent,
    AgentEvent,
    ContextConfig,
    ExecutionLimits,
    Inject,
    Pass,
    Retry,
    Rewrite,
    Skip,
    SummaryCompaction,
    ToolContext,
    ToolOutput,
    Usage,
    Warn,
    batched,
    prun_with_memo,
    tool,
)
from steersman.context.compaction.config import CompactionConfig
from steersman.testing import ScriptedModel, answer, call, cut, error, stall, text, thinking
from steersman.types.model import Model, Request, StreamOptions, StreamResponse

QUICK = Retry(max_attempts=3, base_delay=1.0, jitter=0)


class Switch:
    """A `StreamFn` that plays a script until it is told to play another."""

    def __init__(self, script: ScriptedModel) -> None:
        self.script = script

    def __call__(self, model: Model, request: Request, options: StreamOptions, /) -> StreamResponse:
        return self.script(model, request, options)


@dataclass
class Stage:
    """A scenario being played: the agent, what was said to it, and how to go on saying it."""

    agent: Agent
    switch: Switch
    said: list[str] = field(default_factory=list[str])

    async def prompt(self, words: str) -> None:
        """Speak to the agent and wait for the end."""
        self.said.append(words)
        await self.agent.run(words)

    def steer(self, words: str, **options: Any) -> None:
        """Steer, and remember it."""
        self.said.append(words)
        self.agent.steer(words, **options)

    def follow_up(self, words: str) -> None:
        """Queue a follow-up, and remember it."""
        self.said.append(words)
        self.agent.follow_up(words)


Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """How to set the stage, and what happens on it."""

    script: Callable[[], ScriptedModel]
    options: Callable[[], dict[str, Any]] = dict[str, Any]
    play: Play | None = None

    def stage(self) -> Stage:
        """A fresh stage."""
        switch = Switch(self.script())
        options: dict[str, Any] = {"stream_fn": switch, "retry": QUICK, **self.options()}
        return Stage(Agent("scripted:test", **options), switch)

    async def run(self, stage: Stage) -> None:
        """Play it."""
        if self.play is None:
            await stage.prompt("Go.")
        else:
            await self.play(stage)


@tool
async def quick(n: int = 0) -> str:
    """Answer at once."""
    return f"quick {n}"


@tool
async def slow(n: int = 0) -> str:
    """Answer after a while."""
    await asyncio.sleep(2)
    return f"slow {n}"


@tool
async def broken() -> str:
    """Raise."""
    await asyncio.sleep(1)
    raise RuntimeError("broken")


@tool
async def stubborn() -> str:
    """Swallow one cancel, then finish."""
    try:
        await asyncio.sleep(2)
    except asyncio.CancelledError:
        await asyncio.sleep(0.1)
    return "stubborn"


@tool
async def deaf() -> str:
    """Swallow one cancel and hang on."""
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        await asyncio.sleep(1000)
    return "deaf"


@tool(timeout=1)
async def late() -> str:
    """Never finish in time."""
    await asyncio.sleep(1000)
    return "late"


@tool(uninterruptible=True)
async def firm() -> str:
    """Finish whatever is said."""
    await asyncio.sleep(2)
    return "firm"


@tool(keys=lambda args: [args["path"]])
async def touch(path: str) -> str:
    """Touch a file, one call per file at a time."""
    await asyncio.sleep(1)
    return path


@tool(sequential=True)
async def alone() -> str:
    """Run alone."""
    await asyncio.sleep(1)
    return "alone"


@tool
async def last() -> ToolOutput:
    """End the run."""
    return ToolOutput("bye", terminate=True)


@tool(needs_approval=True)
async def risky() -> str:
    """Need approval."""
    return "done"


@tool
async def chatty(ctx: ToolContext) -> str:
    """Show progress."""
    for number in range(3):
        ctx.progress(f"step {number}")
        await asyncio.sleep(0.5)
    return "chatty"


@tool
def threaded(n: int = 0) -> str:
    """Run in a thread."""
    return f"threaded {n}"


def _calls(*names: str) -> Callable[[], ScriptedModel]:
    return lambda: ScriptedModel(answer(text("Working."), *(call(name) for name in names)), "Done.")


async def _pause(*_: Any) -> None:
    await asyncio.sleep(0.5)


def _steered(mode: str | None, names: tuple[str, ...], **options: Any) -> Scenario:
    async def play(stage: Stage) -> None:
        def on_event(event: AgentEvent) -> None:
            if event.type == "tool_execution_start" and "Turn left." not in stage.said:
                stage.steer("Turn left.", mode=mode)

        stage.agent.subscribe(on_event)
        await stage.prompt("Go.")

    tools = [quick, slow, firm, deaf]
    return Scenario(_calls(*names), lambda: {"tools": tools, **options}, play)


async def _play_follow_ups(stage: Stage) -> None:
    stage.follow_up("And then?")
    stage.follow_up("And after that?")
    await stage.prompt("Go.")


async def _play_steered_from_outside(stage: Stage) -> None:
    stage.steer("First this.")
    stage.steer("Then that.")
    await stage.prompt("Go.")


async def _play_continue(stage: Stage) -> None:
    await stage.prompt("Go.")
    if stage.agent.messages and not stage.agent.is_running:
        await stage.agent.continue_()


async def _play_rerun(stage: Stage) -> None:
    await stage.prompt("Go.")
    if stage.agent.messages:
        await stage.agent.rerun("again")


async def _play_branch(stage: Stage) -> None:
    await stage.prompt("Go.")
    if stage.agent.messages:
        await stage.agent.branch(0, "other way")


async def _play_stream(stage: Stage) -> None:
    stage.said.append("Go.")
    async for _ in stage.agent.prompt("Go."):
        pass


async def _play_two(stage: Stage) -> None:
    await stage.prompt("Go.")
    await stage.prompt("Go on.")


async def _gate(_: Any) -> Rewrite:
    await asyncio.sleep(0.5)
    return Rewrite({"n": 7})


def _refuse(_: Any) -> Skip:
    return Skip("no")


def _pass(_: str) -> Pass:
    return Pass()


async def _approve(_: Any) -> bool:
    await asyncio.sleep(0.5)
    return True


async def _warn(_: str) -> Warn:
    await asyncio.sleep(0.5)
    return Warn("mind the gap")


async def _summarise(_: Any) -> str:
    await asyncio.sleep(1)
    return "It was long."


async def _transform(messages: list[Any]) -> list[Any]:
    await asyncio.sleep(0.5)
    return messages


async def _key(_: str) -> str:
    await asyncio.sleep(0.5)
    return "a-key"


def _once(words: str) -> Callable[[], Awaitable[list[str]]]:
    given: list[str] = []

    async def poll() -> list[str]:
        await asyncio.sleep(0.1)
        if given:
            return []
        given.append(words)
        return [words]

    return poll


def _inject_once() -> Callable[[Any], Inject | None]:
    given: list[bool] = []

    def policy(_: Any) -> Inject | None:
        if given:
            return None
        given.append(True)
        return Inject("One more thing.")

    return policy


def _researcher() -> Agent:
    script = ScriptedModel(answer(call("slow")), "Found it.")
    return Agent(script.model, tools=[slow], retry=QUICK)


def _everywhere() -> dict[str, Any]:
    seams = ("before_loop", "before_turn", "after_turn", "before_follow_up", "after_loop", "before_tool_execution")
    return {"tools": [quick], **{seam: _pause for seam in seams}, "after_tool_execution": _pause}


LONG = "word " * 2_000
SMALL = ContextConfig(max_context_tokens=4_000, threshold=0.5, keep_recent=2)


def _long_conversation() -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for number in range(3):
        messages.append({"role": "user", "content": f"Question {number}. {LONG[:2_000]}"})
        messages.append({"role": "assistant", "content": f"Answer {number}. {LONG[:4_000]}"})
    return {"messages": messages, "context_config": SMALL}


SCENARIOS: dict[str, Scenario] = {
    "a text": Scenario(lambda: ScriptedModel(answer("Hello there, friend.", pace=0.1))),
    "a text without a pace": Scenario(lambda: ScriptedModel("Hello there, friend.")),
    "a stream that is read": Scenario(lambda: ScriptedModel(answer("Hello there.", pace=0.1)), play=_play_stream),
    "two prompts": Scenario(lambda: ScriptedModel("One.", "Two."), play=_play_two),
    "thinking": Scenario(lambda: ScriptedModel(answer(thinking("Hm.", signature="s"), text("So."), pace=0.1))),
    "one tool": Scenario(_calls("quick"), lambda: {"tools": [quick]}),
    "a thread": Scenario(_calls("threaded"), lambda: {"tools": [threaded]}),
    "parallel tools": Scenario(_calls("slow", "quick", "broken"), lambda: {"tools": [slow, quick, broken]}),
    "sequential tools": Scenario(
        _calls("slow", "quick", "broken"), lambda: {"tools": [slow, quick, broken], "tool_execution": "sequential"}
    ),
    "batched tools": Scenario(
        _calls("slow", "quick", "slow", "quick"), lambda: {"tools": [slow, quick], "tool_execution": batched(2)}
    ),
    "keys": Scenario(
        lambda: ScriptedModel(
            answer(call("touch", path="a"), call("touch", path="a"), call("touch", path="b")), "Done."
        ),
        lambda: {"tools": [touch]},
    ),
    "a tool that runs alone": Scenario(_calls("slow", "alone", "quick"), lambda: {"tools": [slow, alone, quick]}),
    "a tool that swallows its cancel": Scenario(_calls("stubborn", "quick"), lambda: {"tools": [stubborn, quick]}),
    "a deaf tool": Scenario(_calls("deaf"), lambda: {"tools": [deaf], "tool_timeout": 1.0}),
    "a tool timeout": Scenario(_calls("late", "quick"), lambda: {"tools": [late, quick]}),
    "progress": Scenario(_calls("chatty"), lambda: {"tools": [chatty]}),
    "an unknown tool": Scenario(_calls("nobody", "quick"), lambda: {"tools": [quick]}),
    "a terminating tool": Scenario(_calls("last"), lambda: {"tools": [last]}),
    "approval": Scenario(_calls("risky"), lambda: {"tools": [risky], "approve": _approve}),
    "a gate that rewrites": Scenario(_calls("quick"), lambda: {"tools": [quick], "before_tool_execution": _gate}),
    "a gate that skips": Scenario(
        _calls("quick", "slow"), lambda: {"tools": [quick, slow], "before_tool_execution": _refuse}
    ),
    "hooks at every seam": Scenario(_calls("quick"), _everywhere),
    "an injecting policy": Scenario(
        lambda: ScriptedModel("One.", "Two."), lambda: {"post_loop_policies": [_inject_once()]}
    ),
    "a pre-turn injection": Scenario(lambda: ScriptedModel("One."), lambda: {"pre_turn_policies": [_inject_once()]}),
    "an input filter": Scenario(lambda: ScriptedModel("One."), lambda: {"input_filters": [_warn, _pass]}),
    "steering skips": _steered("skip", ("quick", "slow", "quick"), tool_execution="sequential"),
    "steering cancels": _steered("cancel", ("slow", "firm", "quick")),
    "steering cancels a deaf tool": _steered("cancel", ("deaf", "quick")),
    "steering waits": _steered("wait", ("slow", "quick"), tool_execution="sequential"),
    "queued steering": Scenario(lambda: ScriptedModel("One.", "Two.", "Three."), play=_play_steered_from_outside),
    "follow-ups": Scenario(lambda: ScriptedModel("One.", "Two.", "Three."), play=_play_follow_ups),
    "polled messages": Scenario(
        lambda: ScriptedModel(answer(call("quick")), "One.", "Two.", "Three."),
        lambda: {
            "tools": [quick],
            "get_steering_messages": _once("Steer."),
            "get_follow_up_messages": _once("Follow."),
        },
    ),
    "a retry": Scenario(lambda: ScriptedModel(error("overloaded"), "Fine.")),
    "a retry after deltas": Scenario(lambda: ScriptedModel(error("network", after=3, pace=0.1), "Fine.")),
    "a stream cut short": Scenario(lambda: ScriptedModel(cut(after=2, pace=0.1), "Fine.")),
    "retries used up": Scenario(lambda: ScriptedModel(error("overloaded", after=1), repeat_last=True)),
    "a stall": Scenario(
        lambda: ScriptedModel(stall(after=2), "Fine."),
        lambda: {"retry": Retry(base_delay=1.0, jitter=0, idle_timeout=5.0)},
    ),
    "a fallback": Scenario(lambda: ScriptedModel(error("quota"), "Fine."), lambda: {"fallbacks": ["scripted:other"]}),
    "an overflow": Scenario(lambda: ScriptedModel(error("context_overflow"), "Fine."), _long_conversation),
    "compaction": Scenario(lambda: ScriptedModel("Fine."), _long_conversation),
    "a written summary": Scenario(
        lambda: ScriptedModel("Fine."),
        lambda: {
            **_long_conversation(),
            "context_config": ContextConfig(
                max_context_tokens=4_000,
                threshold=0.5,
                keep_recent=2,
                compaction=CompactionConfig(SummaryCompaction(_summarise)),
            ),
        },
    ),
    "prun": Scenario(
        lambda: ScriptedModel(
            answer(call("quick")), answer(call("prun_with_memo", tokens=10, memo="was quick")), "Done."
        ),
        lambda: {"tools": [quick, prun_with_memo]},
    ),
    "a cut answer": Scenario(
        lambda: ScriptedModel(answer(call("quick"), call("quick", raw='{"n": 1'), stop_reason="length"), "Done."),
        lambda: {"tools": [quick]},
    ),
    "a sub-agent": Scenario(
        lambda: ScriptedModel(answer(call("research", prompt="Look.")), "Done."),
        lambda: {"tools": [_researcher().as_tool("research", "Looks things up.")]},
    ),
    "structured output": Scenario(
        lambda: ScriptedModel("no json", '{"a": 1}'), lambda: {"output_type": dict[str, int]}
    ),
    "a turn limit": Scenario(
        lambda: ScriptedModel(answer(call("quick")), repeat_last=True),
        lambda: {"tools": [quick], "limits": ExecutionLimits(max_turns=2)},
    ),
    "a wrapped-up limit": Scenario(
        lambda: ScriptedModel(answer(call("quick")), "So far so good."),
        lambda: {"tools": [quick], "limits": ExecutionLimits(max_turns=1, wrap_up=True)},
    ),
    "a deadline": Scenario(_calls("slow"), lambda: {"tools": [slow], "limits": ExecutionLimits(max_duration=1)}),
    "a token limit": Scenario(
        lambda: ScriptedModel(answer(call("quick"), usage=Usage(input=90, output=20)), repeat_last=True),
        lambda: {"tools": [quick], "limits": ExecutionLimits(max_total_tokens=100)},
    ),
    "asynchronous preparation": Scenario(
        lambda: ScriptedModel("Fine."), lambda: {"async_transform_context": _transform, "get_api_key": _key}
    ),
    "going on after an error": Scenario(lambda: ScriptedModel(error("invalid_request"), "Fine."), play=_play_continue),
    "a rerun": Scenario(lambda: ScriptedModel("One.", "Two."), play=_play_rerun),
    "a branch": Scenario(lambda: ScriptedModel("One.", "Two."), play=_play_branch),
}
