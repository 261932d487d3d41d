"""No key ever gets into a session, whatever brings it there: the raw bytes of the files are searched for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steersman import Agent, Model, Retry, Session, tool
from steersman.testing import ScriptedModel, answer, call, error, raises
from steersman.testing.servers import (
    AnthropicServer,
    GoogleServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    StrictServer,
)
from steersman.types.errors import ErrorInfo

CANARY = "sk-canary-7f3a9b2c4d5e6f70"
ONCE = Retry(max_attempts=1)


def _found(folder: Path) -> list[str]:
    """The files in which the key or the better part of it is."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if CANARY[:14].encode() in path.read_bytes()]


async def _quoted(folder: Path, fields: dict[str, Any] | None = None, **options: Any) -> None:
    """Runs in which the model, a tool, a failure and a user all quote the key."""

    @tool
    async def show() -> str:
        """Show the key."""
        return f"The key is {CANARY}, in part {CANARY[:20]}"

    @tool
    async def fail() -> str:
        """Fail with the key."""
        raise RuntimeError(f"401 for {CANARY}")

    script = ScriptedModel(
        answer(f"I have {CANARY}.", call("show"), call("fail"), call("show", extra=CANARY)),
        error(ErrorInfo("authentication", f"Incorrect API key provided: {CANARY}")),
        raises(RuntimeError(f"cannot connect with {CANARY}")),
        "Fine.",
    )
    given = Model("scripted", "script", settings={"script": script}, **(fields or {}))
    with Session.create(folder / "sessions.db") as session:
        agent = Agent(given, tools=[show, fail], session=session, retry=ONCE, **options)
        await agent.run("Go.")
        agent.steer(f"Use {CANARY}.", key=CANARY)
        await agent.continue_()
        agent.follow_up(f"Or {CANARY}")
        await agent.run(f"My key is {CANARY}")
        agent.context.messages.append({"role": "extension", "kind": CANARY, "data": {CANARY: [CANARY]}})
        session.label(agent.context.log.entry_id_of(0), CANARY)
        session.export(folder / "session.jsonl")
    assert CANARY in str(agent.messages)  # it was really there


async def test_a_key_that_was_given(tmp_path: Path) -> None:
    """failures.md L13, I16"""
    await _quoted(tmp_path, {"api_key": CANARY})
    assert _found(tmp_path) == []


async def test_a_key_from_a_header(tmp_path: Path) -> None:
    """failures.md L13"""
    headers = {"Authorization": f"Bearer {CANARY}"}
    await _quoted(tmp_path, {"headers": headers})
    assert _found(tmp_path) == []


async def test_a_key_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md L13, L14: whichever provider it is for."""
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    await _quoted(tmp_path)
    assert _found(tmp_path) == []


@pytest.mark.parametrize("way", ["get_api_key", "api_key"])
async def test_a_key_that_is_asked_for(tmp_path: Path, way: str) -> None:
    """failures.md L13: from the moment it is known."""
    if way == "get_api_key":
        await _quoted(tmp_path, get_api_key=lambda: CANARY)
    else:
        await _quoted(tmp_path, {"api_key": lambda: CANARY})
    assert _found(tmp_path) == []


async def test_a_key_of_a_fallback(tmp_path: Path) -> None:
    """failures.md L13"""
    other = Model("scripted", "other", api_key=CANARY, settings={"script": ScriptedModel("Fine.", repeat_last=True)})
    await _quoted(tmp_path, fallbacks=[other])
    assert _found(tmp_path) == []


@pytest.mark.real_time
@pytest.mark.parametrize("server", [AnthropicServer, OpenAIResponsesServer, OpenAIChatServer, GoogleServer])
async def test_a_key_that_a_real_server_quotes(tmp_path: Path, server: type[StrictServer]) -> None:
    """failures.md L13: through a socket, in the words of its error."""
    refusal = error(ErrorInfo("authentication", f"Incorrect API key provided: {CANARY}.", status=401))
    async with server(refusal, "Fine.", key=CANARY) as running:
        model = running.model()
        with Session.create(tmp_path / "sessions.db") as session:
            agent = Agent(model, session=session, retry=ONCE)
            assert (await agent.run("Go.")).end_reason == "error"
            assert (await agent.run("Again.")).text == "Fine."
            session.export(tmp_path / "session.jsonl")
    assert _found(tmp_path) == []
    assert "redacted" in str([message for message in agent.messages if message.role == "assistant"])
