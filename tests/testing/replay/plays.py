"""Sessions in which anything may have happened, from a seed: the live side of the tests of `replay`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from steersman import (
    Agent,
    AgentEvent,
    Compaction,
    ContextConfig,
    ExecutionLimits,
    Inject,
    Pass,
    Reject,
    RepeatedCalls,
    Retry,
    Rewrite,
    Session,
    Skip,
    Stop,
    ToolOutput,
    Usage,
    batched,
    prun,
    tool,
)
from steersman.policy.hooks import PolicyView
from steersman.session.stores.memory import MemoryStore
from steersman.testing import EventCollector, ScriptedModel, answer, call, cut, error, raises, stall, text, thinking
from steersman.tools.builtin.prun import prun_with_memo
from steersman.types.content import ToolCall
from steersman.types.errors import ErrorKind
from steersman.types.events import MessageEnd
from steersman.types.messages import AssistantMessage
from steersman.types.model import Request

WORDS = "sail mast keel rope tide wind helm star salt gull"
ERRORS: list[ErrorKind] = ["overloaded", "invalid_request", "context_overflow", "refused", "quota", "network"]


@tool
async def look(at: str = "", seconds: float = 0.0) -> str:
    """Look at something."""
    await asyncio.sleep(seconds)
    return f"saw {at}"


@tool(sequential=True)
async def alone(seconds: float = 0.0) -> str:
    """Do it alone."""
    await asyncio.sleep(seconds)
    return "alone"


@tool(keys=lambda arguments: [arguments["path"]])
async def touch(path: str, seconds: float = 0.0) -> ToolOutput:
    """Touch a file, one call per file at a time."""
    await asyncio.sleep(seconds)
    return ToolOutput(path, {"path": path})


@tool
async def broken() -> str:
    """Fail."""
    raise ValueError("no luck")


@tool
async def last() -> ToolOutput:
    """End the run."""
    return ToolOutput("bye", terminate=True)


@tool(needs_approval=True)
async def risky() -> str:
    """Need approval."""
    return "done"


TOOLS = [look, alone, touch, broken, last, risky, prun, prun_with_memo]


class Play:
    """One session, everything that was told while it was made, and what the model was asked for each of its answers."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.heard = EventCollector()
        self.asked: list[Request | None] = []
        self.session = Session.create(MemoryStore(), f"play-{seed}")
        self.script = ScriptedModel(*self._turns(), repeat_last=True, usage=self._usage())
        self.agent = Agent(self.script.model, session=self.session, stream_fn=self.script, **self._options())
        self.agent.subscribe(self.heard)
        self.agent.subscribe(self._listen)
        self._counted = 0
        self._left = 0
        self._act: Callable[[], object] = self.agent.abort

    async def run(self) -> None:
        """One to four runs, with things said and done to them."""
        for number in range(self.chance.randint(1, 4)):
            self._left, self._act = self.chance.randint(1, 60), self._action()
            if self.chance.random() < 0.3:
                self.agent.follow_up(self._words("follow"), key=self.chance.choice([None, "again"]))
            if self.chance.random() < 0.2:
                self.agent.steer(self._words("before"))
            await self._begun(first=number == 0)
            self._between()
        await self.session.save()

    async def _begun(self, *, first: bool) -> None:
        agent, chance = self.agent, self.chance
        ways: list[Callable[[], Any]] = [lambda: agent.prompt(self._words("prompt"))]
        if not first:
            at = chance.randrange(max(1, len(agent.messages)))
            ways += [
                lambda: agent.continue_(chance.choice([None, Compaction()])),
                lambda: agent.rerun("again"),
                lambda: agent.branch(at, prompt=self._words("branch")),
                lambda: agent.branch(at),
            ]
        try:
            await chance.choice(ways)()
        except (ValueError, IndexError):  # there is nothing to go on from
            await agent.prompt(self._words("prompt"))

    def _between(self) -> None:
        if self.chance.random() < 0.2:
            self.agent.compact(ContextConfig(max_context_tokens=60, keep_recent=1))
        if self.chance.random() < 0.1 and any(entry.type != "message" for entry in self.agent.context.log.entries):
            try:
                self.agent.undo()
            except ValueError:  # it is undone already
                return

    def _listen(self, event: AgentEvent) -> None:
        self._left -= 1
        if self._left == 0:
            self._act()
        if isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            fresh = self.script.asked > self._counted
            self._counted = self.script.asked
            # An aborted one may have been about to be asked for again, after a compaction.
            own = fresh and self.script.models[-1] is self.script.model and event.message.stop_reason != "aborted"
            self.asked.append(self.script.requests[-1][0] if own else None)

    def _action(self) -> Callable[[], object]:
        agent, words = self.agent, self._words("meanwhile")
        return self.chance.choice(
            [
                lambda: None,
                agent.abort,
                lambda: agent.steer(words, self.chance.choice([None, "skip", "cancel", "wait"])),
                lambda: agent.follow_up(words),
                lambda: (agent.steer(words), agent.follow_up(words), agent.abort()),
            ]
        )

    def _words(self, kind: str) -> str:
        return f"{kind}: {' '.join(self.chance.choices(WORDS.split(), k=self.chance.randint(1, 60)))}"

    def _usage(self) -> Usage | None:
        return self.chance.choice([None, Usage(input=40, output=10, cost=0.01)])

    # What the agent is like

    def _options(self) -> dict[str, Any]:
        chance = self.chance
        options: dict[str, Any] = {
            "system_prompt": chance.choice(["", "You sail."]),
            "tools": chance.sample(TOOLS, chance.randint(0, len(TOOLS))),
            "tool_execution": chance.choice(["parallel", "parallel", "sequential", batched(2)]),
            "steering": chance.choice(["skip", "cancel", "wait"]),
            "steering_mode": chance.choice(["one-at-a-time", "all"]),
            "follow_up_mode": chance.choice(["one-at-a-time", "all"]),
            "retry": Retry(max_attempts=chance.randint(1, 3), base_delay=1.0, idle_timeout=5.0),
            "repeated_calls": chance.choice([None, RepeatedCalls(nudge_after=2, stop_after=4)]),
            "limits": ExecutionLimits(
                max_turns=chance.choice([1, 3, 8]),
                max_total_tokens=chance.choice([None, 120]),
                max_duration=chance.choice([None, 2, 30]),
                wrap_up=chance.random() < 0.3,
            ),
            "context_config": chance.choice(
                [None, ContextConfig(max_context_tokens=250, threshold=0.6, keep_recent=2)]
            ),
            "fallbacks": chance.choice([(), ("scripted:other",)]),
            "approve": chance.choice([None, _agree]),
            "length_policy": chance.choice(["run_complete", "fail_all"]),
        }
        for seam in chance.sample(sorted(self._hooks), chance.randint(0, 2)):
            options[seam] = self._hooks[seam]()
        if chance.random() < 0.15:
            options["input_filters"] = [_no_gulls]
        return options

    @property
    def _hooks(self) -> dict[str, Callable[[], Any]]:
        chance = self.chance

        def sometimes(value: Any, share: float = 0.2) -> Callable[..., Any]:
            def hook(*_: Any) -> Any:
                if chance.random() < share:
                    if isinstance(value, Exception):
                        raise value
                    return value
                return None

            return hook

        return {
            "before_loop": lambda: sometimes(Stop("not today")),
            "before_turn": lambda: sometimes(
                chance.choice([Stop("no more"), Inject("Mind the tide."), ValueError("?")])
            ),
            "after_turn": lambda: sometimes(chance.choice([Stop("enough"), Inject("Well done."), ValueError("odd")])),
            "before_tool_execution": lambda: sometimes(
                chance.choice([Skip("not that"), Rewrite({"at": "elsewhere"}), Stop("stop all")]), 0.4
            ),
            "after_tool_execution": lambda: sometimes(chance.choice(["changed", ValueError("odd")])),
            "before_follow_up": lambda: sometimes(chance.choice([Stop("enough"), Inject("One more thing.")])),
            "before_compaction_start": lambda: sometimes(Skip("no"), 0.5),
            "pre_turn_policies": lambda: [sometimes(chance.choice([Stop("no"), Inject("Look out.")]))],
            "post_turn_policies": lambda: [_view_of(sometimes(Inject("Go on.")))],
        }

    # What the model does

    def _turns(self) -> list[Any]:
        turns: list[Any] = []
        while len(turns) < 20:
            turns += [self._turn()] * self.chance.choice([1, 1, 1, 5])
        return turns

    def _turn(self) -> Any:
        chance, kind = self.chance, self.chance.random()
        words = " ".join(chance.choices(WORDS.split(), k=chance.randint(1, 40)))
        pace = chance.choice([None, 0.0, 0.2])
        if kind < 0.35:
            return answer(words, pace=pace)
        if kind < 0.4:
            return answer(
                thinking("Hm.", signature="s"), text(words), pace=pace, stop_reason=chance.choice([None, "length"])
            )
        if kind < 0.8:
            calls = [self._call() for _ in range(chance.randint(1, 4))]
            return answer(*chance.choice([(), (text(words),)]), *calls, pace=pace)
        if kind < 0.9:
            return error(chance.choice(ERRORS), after=chance.choice([None, 2]), pace=pace)
        return chance.choice(
            [
                cut(words, after=2),
                stall(words, after=2),
                raises(ConnectionError("gone"), words, after=1),
                error("quota"),
            ]
        )

    def _call(self) -> ToolCall:
        chance = self.chance
        wait = chance.choice([0.0, 0.5, 1.0, 40.0])
        same = chance.choice([None, None, None, "call_1"])
        return chance.choice(
            [
                call("look", at=chance.choice("abc"), seconds=wait, id=same),
                call("look", at="a"),
                call("alone", seconds=wait),
                call("touch", path=chance.choice("ab"), seconds=wait),
                call("broken"),
                call("last"),
                call("risky"),
                call("nobody"),
                call("look", raw='{"at": '),
                call("look", raw="[1]"),
                call("look", wrong=1),
                call("prun", tokens=chance.choice([5, 50])),
                call("prun_with_memo", tokens=20, memo="It was long."),
            ]
        )


def _view_of(hook: Callable[..., Any]) -> Callable[[PolicyView], Any]:
    return lambda view: hook(view)


def _agree(_: ToolCall) -> bool:
    return True


def _no_gulls(said: str) -> Reject | Pass:
    return Reject("no gulls") if "gull" in said else Pass()
