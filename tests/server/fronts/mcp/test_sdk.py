"""The MCP server judged by the client of the Python SDK, over stdio and over HTTP (server.md 5)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.server.fronts.reacting import make_agent
from tests.server.kit import run_server

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import ElicitResult

pytestmark = pytest.mark.real_time
ROOT = Path(__file__).parents[4]


class Person:
    """Who answers the questions of a client."""

    def __init__(self, *, approves: bool | None) -> None:
        self.approves = approves
        self.asked: list[str] = []
        self.progress: list[tuple[float, str | None]] = []
        self.news = asyncio.Event()

    async def answer(self, _: Any, params: Any) -> ElicitResult:
        """Answer a question; without an opinion it is declined."""
        # The SDK takes long to import: only the process that asks it does.
        from mcp.types import ElicitResult

        self.asked.append(params.message)
        if self.approves is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"approved": self.approves})

    async def follow(self, progress: float, total: float | None, message: str | None) -> None:
        """Keep what is told of progress."""
        self.progress.append((progress, message))
        self.news.set()


@asynccontextmanager
async def connect(transport: str, folder: Path, person: Person | None = None) -> AsyncGenerator[Client]:
    """A client of a scripted agent."""
    from mcp import Client, StdioServerParameters

    more: Any = {} if person is None else {"elicitation_callback": person.answer}
    if transport == "stdio":
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        args = ["-m", "tests.server.fronts.mcp.program", str(folder)]
        command = StdioServerParameters(command=sys.executable, args=args, env=env, cwd=str(ROOT))
        async with Client(command, **more) as client:
            yield client
    else:
        async with (
            run_server(lambda: make_agent(folder)) as server,
            Client(f"{server.url}/mcp?token={server.token}", **more) as client,
        ):
            yield client


both = pytest.mark.parametrize("transport", ["stdio", "http"])


def read(result: Any) -> str:
    """The text of a result."""
    return "".join(block.text for block in result.content)


@both
async def test_there_is_one_tool_and_it_answers_with_progress(transport: str, tmp_path: Path) -> None:
    person = Person(approves=True)
    async with connect(transport, tmp_path) as client:
        [tool] = (await client.list_tools()).tools
        assert tool.name == "run"
        assert tool.input_schema["required"] == ["prompt"]
        result = await client.call_tool("run", {"prompt": "think"}, progress_callback=person.follow)
    assert (read(result), result.is_error) == ("Thought.", False)
    counts = [count for count, _ in person.progress]
    assert counts == sorted(set(counts))
    assert "".join(words or "" for _, words in person.progress) == "Thought."


@both
@pytest.mark.parametrize(("approves", "text"), [(True, "Done."), (False, "Not done."), (None, "Not done.")])
async def test_a_question_is_an_elicitation(transport: str, tmp_path: Path, approves: bool | None, text: str) -> None:
    """Section 5: elicitation for questions."""
    person = Person(approves=approves)
    async with connect(transport, tmp_path, person) as client:
        result = await client.call_tool("run", {"prompt": "deploy"})
    assert len(person.asked) == 1
    assert "deploy" in person.asked[0]
    assert read(result) == text


@both
async def test_a_client_that_cannot_be_asked_is_denied_at_once(transport: str, tmp_path: Path) -> None:
    """S8: never a silent wait."""
    async with connect(transport, tmp_path) as client:
        assert read(await client.call_tool("run", {"prompt": "deploy"})) == "Not done."
        assert read(await client.call_tool("run", {"prompt": "delegate"})) == "Done."


@both
async def test_failures_are_results_that_a_model_can_read(transport: str, tmp_path: Path) -> None:
    from mcp.shared.exceptions import MCPError

    async with connect(transport, tmp_path) as client:
        failed = await client.call_tool("run", {"prompt": "fail"})
        empty = await client.call_tool("run", {"prompt": " "})
        wrong = await client.call_tool("run", {"other": 1})
        with pytest.raises(MCPError):
            await client.call_tool("nothing", {"prompt": "x"})
        good = await client.call_tool("run", {"prompt": "hello"})
    assert failed.is_error
    assert "invalid_request" in read(failed)
    assert empty.is_error
    assert wrong.is_error
    assert "that is prompt 1." in read(good), "each call is a conversation of its own"


@both
async def test_a_cancelled_call_stops_its_run(transport: str, tmp_path: Path) -> None:
    person = Person(approves=True)
    async with connect(transport, tmp_path) as client:
        call = asyncio.create_task(client.call_tool("run", {"prompt": "slow"}, progress_callback=person.follow))
        await person.news.wait()
        call.cancel()
        await asyncio.wait([call])
        count = len(person.progress)
        assert "that is prompt 1." in read(await client.call_tool("run", {"prompt": "hello"}))
    assert len(person.progress) <= count + 2
