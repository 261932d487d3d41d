"""Twenty different streams of events, for tests whose watchers leave and come back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.server.kit import Client, deploy, make_agent

from steersman import Agent, Retry, tool
from steersman.testing import ScriptedModel, answer, call, cut, error, text, thinking

Play = Callable[[Client, str], Awaitable[object]]
# A moment before each delta, so that watchers come back in the middle of an answer.
PACE = 0.002
RETRY = Retry(max_attempts=2, base_delay=0.001, max_delay=0.001)
WORDS = "One two three, four five six. "


@tool
def look(target: str) -> str:
    """Look."""
    return f"saw {target}"


@tool
def fail(target: str) -> str:
    """Fail."""
    raise ValueError(f"no {target}")


@dataclass(frozen=True)
class Stream:
    """An agent, what a person does with it, and how many runs that makes."""

    name: str
    agent: Callable[[], Agent]
    play: Play
    runs: int = 1


def say(*answers: Any, **options: Any) -> Callable[[], Agent]:
    """An agent that plays this script."""
    tools = [deploy, look, fail]
    return make_agent(*answers, **{"tools": tools, "retry": RETRY, **options})


def make_parent() -> Agent:
    """An agent with a sub-agent that asks before it acts."""
    nested = ScriptedModel(answer("Nested. ", call("deploy", target="below"), pace=PACE), "Below is done.")
    helper = Agent(nested.model, tools=[deploy, look]).as_tool("helper", "Help.")
    return say(answer("I ask for help. ", call("helper", prompt="Go.")), "Helped.", tools=[helper])()


def make_family() -> Agent:
    """An agent with two sub-agents that work at the same time."""
    nested = [ScriptedModel(answer(call("look", target=name), pace=PACE), f"{name} is fine.") for name in ("A", "B")]
    helpers = [
        Agent(one.model, tools=[look]).as_tool(f"helper_{at}", "Help.") for at, one in enumerate(nested, start=1)
    ]
    both = answer("Both. ", *(call(f"helper_{at}", prompt="Go.") for at in (1, 2)))
    return say(both, "Both are fine.", tools=helpers)()


async def prompt(client: Client, id: str, words: str = "Go.") -> None:
    """One run."""
    await client.act(id, "prompt", {"content": words})


async def prompt_twice(client: Client, id: str) -> None:
    """Two runs, one after the other."""
    await prompt(client, id)
    await client.find(id, "agent_end")
    await prompt(client, id, "Again.")


async def approve(client: Client, id: str) -> None:
    """A run whose question is answered with yes."""
    await _answer(client, id, "approve")


async def deny(client: Client, id: str) -> None:
    """A run whose question is answered with no."""
    await _answer(client, id, "deny", reason="Not today.")


async def _answer(client: Client, id: str, action: str, **more: str) -> None:
    await prompt(client, id)
    question = await client.find(id, "approval_requested")
    await client.act(id, action, {"id": question["approval_id"], **more})


async def abort(client: Client, id: str) -> None:
    """A run that is stopped in the middle of its answer."""
    await prompt(client, id)
    await client.find(id, "message_update")
    await client.act(id, "abort")


async def abort_and_go_on(client: Client, id: str) -> None:
    """A run that is stopped, and goes on."""
    await abort(client, id)
    await client.find(id, "agent_end")
    await client.act(id, "continue")


async def steer(client: Client, id: str) -> None:
    """A run that is steered while it waits for an answer to its question."""
    await prompt(client, id)
    question = await client.find(id, "approval_requested")
    await client.act(id, "steer", {"content": "To the left.", "mode": "wait"})
    await client.act(id, "approve", {"id": question["approval_id"]})


async def follow_up(client: Client, id: str) -> None:
    """A message that waits for the end of the run."""
    await prompt(client, id)
    question = await client.find(id, "approval_requested")
    await client.act(id, "follow_up", {"content": "And then?"})
    await client.act(id, "approve", {"id": question["approval_id"]})


async def branch(client: Client, id: str) -> None:
    """Another way from the first message."""
    await prompt(client, id)
    end = (await client.collect(id))[-1][0]
    _, tree = await client.send("GET", f"/sessions/{id}/tree")
    await client.act(id, "branch", {"at": tree[0]["id"], "content": "Another way."})
    await client.find(id, "agent_end", end)


DEPLOY = answer("Let me see. ", call("deploy", target="live"), pace=PACE)
STREAMS = (
    Stream("text", say(answer(WORDS * 2, pace=PACE)), prompt),
    Stream("thinking", say(answer(thinking("Hm, hm. " * 4), WORDS, pace=PACE)), prompt),
    Stream("tool", say(answer("I look. ", call("look", target="x"), pace=PACE), "Done."), prompt),
    Stream("tools", say(answer(call("look", target="x"), call("look", target="y"), pace=PACE), "Done."), prompt),
    Stream("broken tool", say(answer(call("fail", target="x"), pace=PACE), "It failed."), prompt),
    Stream("unknown tool", say(answer(call("nothing", a=1), pace=PACE), "There is none."), prompt),
    Stream("approved", say(DEPLOY, "Done."), approve),
    Stream("denied", say(DEPLOY, "Not done."), deny),
    Stream("error", say(error("authentication", text(WORDS), after=3, pace=PACE)), prompt),
    Stream("retry", say(error("overloaded", text(WORDS), after=3, pace=PACE), answer(WORDS, pace=PACE)), prompt),
    Stream("cut", say(cut(thinking("Hm."), text(WORDS), after=4, pace=PACE), answer(WORDS, pace=PACE)), prompt),
    Stream("abort", say(answer(WORDS * 4, deltas=40, pace=PACE)), abort),
    Stream("resume", say(answer(WORDS * 4, deltas=40, pace=PACE), "On."), abort_and_go_on, 2),
    Stream("steer", say(DEPLOY, answer("To the left, then.", pace=PACE)), steer),
    Stream("follow-up", say(DEPLOY, "Done.", answer("And more.", pace=PACE)), follow_up),
    Stream("sub-agent", make_parent, approve),
    Stream("sub-agents", make_family, prompt),
    Stream("long deltas", say(answer("0123456789abcdef" * 80, deltas=5, pace=PACE)), prompt),
    Stream("many deltas", say(answer("\u00e9\u2028\U0001f6a2\n\n: id: 7\n" * 6, deltas=48, pace=0)), prompt),
    Stream("branch", say(answer(WORDS, pace=PACE), answer("Another.", pace=PACE)), branch, 2),
)
