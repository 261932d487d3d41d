"""Conversations of every kind for a program that may be killed at any moment; a ledger beside it outlives it.

The model's answers follow a plan for each thing a user says: turns after `|`, names of tools in each. How far a plan
has come is in the ledger, so a program that goes on where another was killed gives the next answers and not the same.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from steersman import (
    Agent,
    ContextConfig,
    ExecutionLimits,
    Retry,
    Rewrite,
    ToolOutput,
    Warn,
    batched,
    prun_with_memo,
    tool,
)
from steersman.session.session import Session
from steersman.testing import ScriptedModel, answer, call, error, text, thinking
from steersman.types.messages import UserMessage
from steersman.types.model import Request

QUICK = Retry(max_attempts=3, base_delay=0.0, jitter=0)
IDEMPOTENT = frozenset(("put", "read"))


class Ledger:
    """Lines in a file, each there as soon as it is written: a killed program cannot take them back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on_effect: Callable[[], None] | None = None
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: str, value: Any = None) -> None:
        os.write(self._file, json.dumps([kind, value]).encode() + b"\n")

    def read(self, kind: str) -> list[Any]:
        lines = self.path.read_text().splitlines()
        return [value for found, value in map(json.loads, lines) if found == kind]


class Brain:
    """Answers by plan; a request that comes to the end of its plan gets a plain answer."""

    def __init__(self, plans: dict[str, str], ledger: Ledger) -> None:
        self.plans = plans
        self.ledger = ledger
        self.given = ledger.read("answer")
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        said = [m.text for m in request.messages if isinstance(m, UserMessage) and not m.synthetic]
        planned = [plan for words in reversed(said) for plan in self.plans if plan in words]
        prompt = planned[0] if planned else said[-1] if said else ""
        turns = self.plans.get(prompt, "").split("|")
        number = self.given.count(prompt)
        self.given.append(prompt)
        self.ledger.write("answer", prompt)
        words = turns[number].split() if number < len(turns) else []
        if words[:1] == ["overloaded"]:
            return error("overloaded", after=2)
        if words[:1] == ["say"]:
            return answer(words[1] * (1_000 if words[1] == "much" else 1))
        calls = [self.calling(name) for name in words if name != "think"]
        if "think" in words:
            return answer(thinking("Hm.", signature="signed"), text("So."), *calls)
        return answer(text("Working."), *calls) if calls else answer(f"Done: {prompt[:20]}")

    def calling(self, name: str) -> Any:
        """A call that is never made again: its token is its own."""
        if name == "prun_with_memo":
            return call(name, tokens=10, memo="It was written.")
        token = f"{name}-{os.urandom(6).hex()}"
        return call(name, prompt=token) if name == "helper" else call(name, token=token)


_current: list[Ledger] = []


def effect(token: str) -> None:
    """What a tool does, for all to see."""
    ledger = _current[-1]
    ledger.write("effect", token)
    if ledger.on_effect is not None:
        ledger.on_effect()


@tool
async def write(token: str) -> str:
    """Write, which must not be done twice."""
    effect(token)
    await asyncio.sleep(0)
    return f"written {token}"


@tool(idempotent=True)
async def put(token: str) -> str:
    """Put in place, which may be done twice."""
    effect(token)
    await asyncio.sleep(0)
    return f"put {token}"


@tool
async def slow(token: str) -> str:
    """Write, and take a while."""
    effect(token)
    await asyncio.sleep(0.002)
    return f"slowly {token}"


@tool
async def long(token: str) -> str:
    """Write, and take so long that it is cancelled."""
    effect(token)
    await asyncio.sleep(0.1)
    return f"at last {token}"


@tool
async def fail(token: str) -> str:
    """Write, and fail."""
    effect(token)
    raise RuntimeError(f"failed {token}")


@tool
def threaded(token: str) -> str:
    """Write in a thread."""
    effect(token)
    return f"threaded {token}"


@tool(sequential=True)
async def lone(token: str) -> str:
    """Write, with no call beside it."""
    effect(token)
    return f"alone {token}"


@tool(keys=lambda args: ["the file"])
async def keyed(token: str) -> str:
    """Write to the one file."""
    effect(token)
    await asyncio.sleep(0)
    return f"keyed {token}"


@tool(needs_approval=True)
async def risky(token: str) -> str:
    """Write if allowed."""
    effect(token)
    return f"risked {token}"


@tool
async def last(token: str) -> ToolOutput:
    """Write and end the run."""
    effect(token)
    return ToolOutput(f"last {token}", terminate=True)


def _delegated(request: Request) -> Any:
    """A sub-agent writes what it is told, once, and its conversation is its own."""
    told = request.messages[-1]
    return answer(call("write", token=told.text)) if isinstance(told, UserMessage) else answer(f"Has {told.text}")


helper = Agent(ScriptedModel(_delegated, repeat_last=True).model, tools=[write]).as_tool("helper", "Have one write.")
EFFECTS = frozenset(("write", "put", "slow", "long", "fail", "threaded", "lone", "keyed", "risky", "last", "helper"))
TOOLS = [write, put, slow, long, fail, threaded, lone, keyed, risky, last, prun_with_memo, helper]


@dataclass
class Stage:
    """A play under way."""

    agent: Agent
    session: Session
    ledger: Ledger
    queued: list[str] = field(default_factory=list[str])

    async def prompt(self, words: str) -> None:
        """Speak, and note down what the end of the run promises to be kept."""
        self.ledger.write("prompt", words)
        await self.agent.run(words)
        self.promise()

    def promise(self) -> None:
        """A run has ended: every word of it is kept from then on."""
        self.ledger.write("promise", [entry.id for entry in self.agent.context.log.entries])

    async def save(self) -> None:
        """Wait until what was queued is kept, and note down that it is."""
        if await self.session.save():
            self.ledger.write("sure", self.queued)

    def queue(self, words: str, *, follow_up: bool = False, mode: Any = None) -> None:
        """Steer or queue a follow-up, once."""
        if words not in self.queued:
            self.queued.append(words)
            self.ledger.write("queue", words)
            if follow_up:
                self.agent.follow_up(words, key=words)
            else:
                self.agent.steer(words, mode)


Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """What the model is going to do, how the agent is set up, what happens, and how it goes if no process is killed."""

    plans: dict[str, str]
    play: Play
    options: Callable[[], dict[str, Any]] = dict[str, Any]
    ends: str = "done"
    never: frozenset[str] = frozenset()

    def agent(self, session: Session, ledger: Ledger, brain: Brain) -> Agent:
        """The agent of the scenario, on its session."""
        model = ScriptedModel(brain, repeat_last=True)
        _current.append(ledger)
        return Agent(model.model, session=session, tools=TOOLS, retry=QUICK, approve=_allow, **self.options())


async def _allow(_: Any) -> bool:
    return True


def prompts(*words: str) -> Play:
    async def play(stage: Stage) -> None:
        for prompt in words:
            await stage.prompt(prompt)

    return play


def simple(plan: str, *, ends: str = "done", **options: Any) -> Scenario:
    return Scenario({"Go.": plan}, prompts("Go."), lambda: options, ends)


def steered(plan: str, mode: str, never: tuple[str, ...] = (), **options: Any) -> Scenario:
    """A word of steering as soon as a tool has had its effect."""

    async def play(stage: Stage) -> None:
        stage.ledger.on_effect = lambda: stage.queue("Turn left.", mode=mode)
        await stage.prompt("Go.")

    return Scenario({"Go.": plan, "Turn left.": "write|"}, play, lambda: options, never=frozenset(never))


async def _follow_ups(stage: Stage) -> None:
    stage.queue("And then?", follow_up=True)
    await stage.save()
    stage.queue("And after that?", follow_up=True)
    await stage.prompt("Go.")
    stage.queue("Later.", follow_up=True)
    await stage.save()


async def _queued_while_idle(stage: Stage) -> None:
    stage.queue("First this.")
    stage.queue("Then that.")
    await stage.save()
    await stage.prompt("Go.")
    stage.queue("Taken back.")
    await stage.save()
    stage.agent.clear_queue()
    if await stage.session.save():
        stage.ledger.write("withdrawn", "Taken back.")
    await stage.prompt("Go on.")


async def _rerun(stage: Stage) -> None:
    await stage.prompt("Go.")
    await stage.agent.rerun("again")
    stage.promise()


async def _branch(stage: Stage) -> None:
    await stage.prompt("Go.")
    await stage.prompt("Go on.")
    await stage.agent.branch(0, "other way", prompt="Another way.")
    stage.promise()
    stage.session.label(stage.agent.context.log.entries[0].id, "start")
    await stage.save()


async def _abort(stage: Stage) -> None:
    def stop() -> None:
        stage.queue("Stop there.", mode="wait")
        stage.agent.abort()

    stage.ledger.on_effect = stop
    await stage.prompt("Go.")


async def _by_hand(stage: Stage) -> None:
    await stage.prompt("Go.")
    await stage.prompt("Go on.")
    assert stage.agent.compact()
    await stage.prompt("And on.")
    stage.agent.undo()
    await stage.prompt("To the end.")


def _warned(_: str) -> Warn:
    return Warn("mind the gap")


def _rewritten(call: Any) -> Rewrite:
    return Rewrite(dict(call.arguments))


SMALL = ContextConfig(max_context_tokens=3_000, threshold=0.5, keep_recent=2)


class Answer(msgspec.Struct):
    """What is asked for."""

    n: int


def _output() -> dict[str, Any]:
    return {"output_type": Answer}


SCENARIOS: dict[str, Scenario] = {
    "a text": simple(""),
    "thinking": simple("think write|think"),
    "two prompts": Scenario({"Go.": "", "Go on.": "put|"}, prompts("Go.", "Go on.")),
    "one call": simple("write|"),
    "an idempotent call": simple("put|put|"),
    "parallel calls": simple("write put slow write|"),
    "sequential calls": simple("write put slow|", tool_execution="sequential"),
    "batches of calls": simple("write slow put write|", tool_execution=batched(2)),
    "calls that wait for each other": simple("keyed lone keyed put|"),
    "many turns": simple("write|put put|write slow|"),
    "calls that fail": simple("fail nobody write|fail|"),
    "threads": simple("threaded threaded write|"),
    "steering that skips": steered("write slow put|", "skip", ("slow", "put"), tool_execution="sequential"),
    "steering that cancels": steered("long put lone|", "cancel", ("lone",), cancel_grace=0.001),
    "steering that waits": steered("write put|", "wait", tool_execution="sequential"),
    "follow-ups": Scenario({"Go.": "write|", "And then?": "put|"}, _follow_ups),
    "queued while idle": Scenario({"Then that.": "write put|"}, _queued_while_idle, lambda: {"steering_mode": "all"}),
    "filters": Scenario({"Go.": "write|"}, _follow_ups, lambda: {"input_filters": [_warned]}),
    "compaction": Scenario(
        {"Go.": "say much", "Go on.": "write|say much", "And on.": "put|"},
        prompts("Go.", "Go on.", "And on.", "To the end."),
        lambda: {"context_config": SMALL},
    ),
    "compaction by hand": Scenario({"Go.": "say much", "Go on.": "write|say much", "And on.": "put|"}, _by_hand),
    "prun": simple("write|prun_with_memo|put|"),
    "rerun": Scenario({"Go.": "write||put|"}, _rerun),
    "branch": Scenario({"Go.": "write|", "Go on.": "put|", "Another way.": "write|"}, _branch),
    "retries": simple("overloaded|write|overloaded|overloaded|"),
    "retries used up": simple("write|overloaded|overloaded|overloaded|overloaded|", ends="error"),
    "a sub-agent": simple("helper put|"),
    "an abort": Scenario(
        {"Go.": "long write lone|"},
        _abort,
        lambda: {"cancel_grace": 0.001},
        "aborted",
        frozenset(("lone",)),
    ),
    "a limit": simple("write|put|write|", ends="limit", limits=ExecutionLimits(max_turns=2, wrap_up=True)),
    "structured output": Scenario({"Go.": 'write|say nonsense|say {"n":42}'}, prompts("Go."), _output),
    "approval and a gate": simple("risky write|risky|", before_tool_execution=_rewritten),
    "a tool that ends the run": simple("last|", ends="terminated"),
}


def effects_of(ledger: Ledger) -> dict[str, int]:
    """How often each token had its effect."""
    found: dict[str, int] = {}
    for token in ledger.read("effect"):
        found[token] = found.get(token, 0) + 1
    return found


def token_in(arguments: Mapping[str, Any]) -> str:
    """The token of a call, or nothing where it has none."""
    return str(arguments.get("token") or arguments.get("prompt") or "")
