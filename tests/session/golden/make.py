"""Writes the golden logs of the present format, each with what is to be read from it.

They are written once for a format and then kept for good, for a later version must read them as this one does:

    python -m tests.session.golden.make tests/session/golden/1.0
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from steersman import (
    Agent,
    ContextConfig,
    ExecutionLimits,
    Inject,
    Retry,
    Session,
    Stop,
    ToolOutput,
    batched,
    prun_with_memo,
    tool,
)
from steersman.provider.wires.anthropic import wire as anthropic
from steersman.provider.wires.google import wire as google
from steersman.provider.wires.openai_chat import wire as openai_chat
from steersman.provider.wires.openai_responses import wire as openai_responses
from steersman.provider.wires.protocol import Wire
from steersman.session.records import Record, encode
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import read_records
from steersman.testing import ScriptedModel, answer, call, error, normalize_events, replay, run_virtual, thinking
from steersman.types.content import ImageContent, TextContent
from steersman.types.model import Model

WIRES: dict[str, tuple[Wire, Model]] = {
    "anthropic": (anthropic.WIRE, Model("anthropic", "claude-sonnet-4-5", "http://127.0.0.1:1")),
    "openai": (openai_responses.WIRE, Model("openai", "gpt-5", "http://127.0.0.1:1/v1")),
    "openai-chat": (openai_chat.WIRE, Model("openai-chat", "qwen", "http://127.0.0.1:1/v1")),
    "google": (google.WIRE, Model("google", "gemini-3-pro-preview", "http://127.0.0.1:1/v1beta")),
}
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
AT_ONCE = Retry(base_delay=0.0, jitter=0.0)
Scenario = Callable[[Session], Awaitable[None]]


@tool
async def look(at: str, seconds: float = 0.0) -> ToolOutput:
    """Look at something."""
    await asyncio.sleep(seconds)
    return ToolOutput([TextContent(f"The {at} is blue."), ImageContent(DOT)], {"at": at})


@tool
async def broken() -> str:
    """Fail."""
    raise ValueError("no luck")


def agent_of(session: Session, *turns: Any, **options: Any) -> Agent:
    """An agent that plays a script."""
    options = {"tools": [look, broken, prun_with_memo], "system_prompt": "You sail.", "retry": AT_ONCE, **options}
    return Agent(ScriptedModel(*turns).model, session=session, **options)


async def talk(session: Session) -> None:
    """Two prompts, with thinking that is signed and letters of many kinds."""
    agent = agent_of(session, answer(thinking("Hm.", signature="c2ln"), "Grüße, 世界 🌍!"), 'A "quote"\nand a break.')
    await agent.run("Hello?")
    await agent.run("And\u2028more?")


async def tools(session: Session) -> None:
    """Calls at once, one that fails, one of an unknown tool, one that is cut, and a picture."""
    calls = [call("look", at="sea", seconds=2), call("look", at="sky", seconds=1), call("broken"), call("nobody")]
    agent = agent_of(session, answer("Let me see.", *calls), answer(call("look", raw='{"at": ')), "Blue.")
    await agent.run("Look.")


async def steering(session: Session) -> None:
    """Steering that skips calls, a follow-up, and one that is still waiting at the end."""
    agent = agent_of(
        session,
        answer(call("look", at="sea", seconds=1), call("look", at="sky"), call("look", at="shore")),
        "I stop.",
        "Then this.",
        tool_execution=batched(1),
    )
    agent.subscribe(lambda event: agent.steer("Stop.", key="s") if event.type == "tool_execution_start" else None)
    agent.follow_up("And then?")
    await agent.run("Look.")
    agent.follow_up("Later.", key="later")


async def failures(session: Session) -> None:
    """A retry, a limit with its last word, a veto, an error, an abort, and going on after it."""
    vetoes: list[Stop | None] = [None, Stop("not that")]

    def veto(_: object, __: object) -> Stop | None:
        return vetoes.pop(0) if vetoes else None

    agent = agent_of(
        session,
        error("overloaded"),
        answer(call("look", at="sea")),
        "So far.",
        error("invalid_request"),
        answer("Word by word by word.", pace=1.0),
        "On we go.",
        limits=ExecutionLimits(max_turns=1, wrap_up=True),
        before_loop=veto,
    )
    await agent.run("Look.")
    await agent.run("Vetoed.")
    await agent.run("Wrong.")
    watch = agent.subscribe(lambda event: agent.abort() if event.type == "message_update" and event.seq > 6 else None)
    await agent.run("Slowly.")
    agent.unsubscribe(watch)
    await agent.continue_()


async def compaction(session: Session) -> None:
    """A prun with a memo, a compaction in a run, one by hand, and one undone."""
    config = ContextConfig(max_context_tokens=200, threshold=0.5, keep_recent=2)

    def remind(messages: Sequence[object], _: object) -> Inject | None:
        return Inject("Mind the tide.") if len(messages) == 5 else None

    agent = agent_of(
        session,
        answer(call("look", at="sea")),
        answer(call("prun_with_memo", tokens=10, memo="The sea is blue.")),
        "wave " * 60,
        "Yes.",
        "No.",
        context_config=config,
        after_turn=remind,
    )
    await agent.run("Look.")
    await agent.run("Again?")
    agent.compact(ContextConfig(max_context_tokens=40, keep_recent=1))
    agent.undo()
    await agent.run("And now?")


async def branches(session: Session) -> None:
    """A rerun, a branch with a tag, a label, and the session standing at the first one again."""
    agent = agent_of(session, "One.", "Two.", "Three.", "Four.")
    await agent.run("Count.")
    await agent.run("On.")
    await agent.rerun("again")
    first = session.log.entry_id_of(1)
    session.label(first, "one")
    await agent.branch(first, "other", prompt="Elsewhere.")
    session.branch("again")


async def killed(session: Session) -> None:
    """Cut in the middle of a batch by `main`, then gone on with; see `cut_after`."""
    agent = agent_of(session, answer(call("look", at="sea"), call("look", at="sky", seconds=3)), "Blue.")
    await agent.run("Look.")


async def goes_on(session: Session) -> None:
    """What another program does with a session that was killed."""
    await agent_of(session, "It went on.").continue_()


SCENARIOS: dict[str, Scenario] = {
    "talk": talk,
    "tools": tools,
    "steering": steering,
    "failures": failures,
    "compaction": compaction,
    "branches": branches,
    "killed": killed,
}


async def records_of(name: str) -> list[Record]:
    """What a scenario leaves."""
    store = MemoryStore()
    with Session.create(store, name) as session:
        await SCENARIOS[name](session)
    found = list(read_records(store.open(name, write=False)))
    if name == "talk":
        # As a newer minor version may write it.
        found[0].payload["format"] = "1.7"
        found.append(Record("new_1", found[-1].parent, len(found) + 1, "scent", found[-1].time, {"scent": "lavender"}))
    if name == "killed":
        found = await gone_on_with(found[: 1 + next(at for at, each in enumerate(found) if each.type == "result")])
    return found


async def gone_on_with(found: list[Record]) -> list[Record]:
    """The records of a program that was killed, and of the next one."""
    store = MemoryStore()
    handle = store.create("killed")
    handle.append(found)
    handle.close()
    with Session.open(store, "killed") as session:
        await goes_on(session)
    return list(read_records(store.open("killed", write=False)))


async def expected(session: Session) -> dict[str, Any]:
    """What is to be read from a session."""
    replayed = await replay(session)
    request = replayed.build_next_request("And what now?")
    bodies = {
        name: wire.request(model, request, replayed.options, None).body.decode()
        for name, (wire, model) in WIRES.items()
    }
    return {
        "entries": msgspec.to_builtins(list(session.entries())),
        "visible": msgspec.to_builtins(list(session.log.visible)),
        "branches": [msgspec.to_builtins(branch) for branch in session.tree()],
        "waiting": [msgspec.to_builtins(item) for item in session.waiting],
        "events": normalize_events(replayed.events),
        "next": bodies,
    }


async def main(folder: Path) -> None:
    """Write them all."""
    for name in SCENARIOS:
        found = await records_of(name)
        store = MemoryStore()
        handle = store.create(name)
        handle.append(found)
        handle.close()
        (folder / f"{name}.jsonl").write_bytes(b"".join(encode(record) + b"\n" for record in found))
        with Session.open(store, name, write=False) as session:
            form = msgspec.json.encode(await expected(session))
        (folder / f"{name}.json").write_bytes(msgspec.json.format(form, indent=1) + b"\n")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise SystemExit(f"There are golden logs in {target} already: they are not written twice.")
    run_virtual(main(target))
