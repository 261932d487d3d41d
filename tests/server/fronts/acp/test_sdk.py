"""ACP judged by the client of its Python SDK, over the stdin and stdout of a real process (server.md 5)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

pytestmark = pytest.mark.real_time
ROOT = Path(__file__).parents[4]


class Client:
    """A client that keeps what it is told; `option` is its answer to questions, `None` if it cannot answer."""

    def __init__(self, option: str | None = "allow_once") -> None:
        self.updates: list[Any] = []
        self.option = option
        self.asked = asyncio.Event()
        self.news = asyncio.Event()
        self.kill: Callable[[], None] = lambda: None

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        """Answer a question."""
        # The SDK takes long to import: only the process that asks it does.
        import acp
        from acp.schema import AllowedOutcome, RequestPermissionResponse

        self.asked.set()
        if self.option is None:
            raise acp.RequestError.method_not_found("session/request_permission")
        if self.option == "never":
            await asyncio.Event().wait()
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.option))

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Keep an update."""
        self.updates.append(update)
        self.news.set()

    def join(self, kind: str) -> str:
        """The text of all chunks of a kind."""
        return "".join(one.content.text for one in self.updates if one.session_update == kind)

    @property
    def statuses(self) -> list[str]:
        """The statuses that tool calls had."""
        return [one.status for one in self.updates if one.session_update in ("tool_call", "tool_call_update")]


@asynccontextmanager
async def connect(client: Client, store: Path) -> AsyncGenerator[Any]:
    """A connection to a scripted agent in a process of its own."""
    import acp

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", "tests.server.fronts.acp.program", str(store))
    async with acp.spawn_agent_process(cast(Any, client), *command, env=env, cwd=ROOT, use_unstable_protocol=True) as (
        agent,
        process,
    ):
        client.kill = process.kill
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        yield agent


async def say(agent: Any, session: str, text: str) -> str:
    """Send a prompt; returns why it stopped."""
    from acp.schema import TextContentBlock

    prompt = [TextContentBlock(type="text", text=text)]
    return (await agent.prompt(session_id=session, prompt=prompt)).stop_reason


async def test_a_run_with_text_thinking_a_tool_and_approvals(tmp_path: Path) -> None:
    client = Client()
    async with connect(client, tmp_path / "sessions.db") as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        assert await say(agent, session, "think") == "end_turn"
        assert (client.join("agent_thought_chunk"), client.join("agent_message_chunk")) == ("Hmm.", "Thought.")
        assert await say(agent, session, "deploy") == "end_turn"
        assert client.statuses[-1] == "completed"
        client.option = "reject_once"
        assert await say(agent, session, "deploy") == "end_turn"
        assert client.statuses[-1] == "failed"
        client.option = None
        assert await say(agent, session, "deploy") == "end_turn"
        assert client.statuses[-1] == "failed"


async def test_an_error_a_cancel_a_resume_and_a_fork(tmp_path: Path) -> None:
    import acp

    client = Client("never")
    async with connect(client, tmp_path / "sessions.db") as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        with pytest.raises(acp.RequestError):
            await say(agent, session, "fail")
        running = asyncio.create_task(say(agent, session, "deploy"))
        await client.asked.wait()
        await agent.cancel(session_id=session)
        assert await running == "cancelled"
        assert client.statuses[-1] == "failed"
    client = Client()
    async with connect(client, tmp_path / "sessions.db") as agent:
        await agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
        assert client.join("user_message_chunk") == "faildeploy"
        other = (await agent.fork_session(cwd=str(tmp_path), session_id=session)).session_id
        await agent.resume_session(cwd=str(tmp_path), session_id=session)
        assert await say(agent, session, "hello") == "end_turn"
        assert client.join("agent_message_chunk").endswith("that is prompt 3.")
        listed = await agent.list_sessions(cwd=str(tmp_path))
        assert {one.session_id for one in listed.sessions} == {session, other}
        await agent.close_session(session_id=session)


@pytest.mark.parametrize(("option", "status"), [("allow_once", "completed"), ("reject_once", "failed")])
async def test_a_question_that_was_open_at_a_kill_is_asked_again(tmp_path: Path, option: str, status: str) -> None:
    """S7: the process is killed while it asks; another one asks again after `session/load`."""
    client = Client("never")
    async with connect(client, tmp_path / "sessions.db") as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        running = asyncio.create_task(say(agent, session, "deploy"))
        await client.asked.wait()
        client.kill()
        with pytest.raises(Exception):  # noqa: B017, PT011  # the SDK's own words for a lost connection
            await running
    client = Client(option)
    async with connect(client, tmp_path / "sessions.db") as agent:
        await agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
        while not client.join("agent_message_chunk").endswith("one."):
            client.news.clear()
            await asyncio.wait_for(client.news.wait(), 20)
        assert client.asked.is_set()
        assert client.statuses[-1] == status
        assert await say(agent, session, "hello") == "end_turn"
        assert client.join("agent_message_chunk").endswith("that is prompt 2.")


async def test_changes_images_modes_and_options(tmp_path: Path) -> None:
    import acp
    from acp.schema import ImageContentBlock

    client = Client()
    (tmp_path / "old.txt").write_text("a\nb\n")
    async with connect(client, tmp_path / "sessions.db") as agent:
        state = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
        session = state.session_id
        assert state.modes.current_mode_id == "ask"
        await agent.set_session_mode(session_id=session, mode_id="accept-edits")
        assert await say(agent, session, "edit") == "end_turn"
        ended = next(one for one in client.updates if getattr(one, "status", None) == "completed")
        diff = ended.content[0]
        assert (diff.path, diff.old_text, diff.new_text) == (str(tmp_path / "old.txt"), "b", "B")
        changed = await agent.set_config_option(config_id="thinking", session_id=session, value="high")
        assert [one.current_value for one in changed.config_options if one.id == "thinking"] == ["high"]
        image = ImageContentBlock(type="image", data="aGk=", mime_type="image/png")
        assert (await agent.prompt(session_id=session, prompt=[image])).stop_reason == "end_turn"
        with pytest.raises(acp.RequestError):
            await agent.set_session_mode(session_id=session, mode_id="nothing")
        with pytest.raises(acp.RequestError):
            await agent.authenticate(method_id="nothing")
