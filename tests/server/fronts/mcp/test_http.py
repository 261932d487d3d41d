"""`/mcp` over raw HTTP: sessions, versions, streams that are read on, and who may use it (server.md 5 and 6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse
from tests.server.fronts.reacting import make_agent
from tests.server.kit import Client, Gate, run_listening, run_server
from tests.server.kit import make_agent as make_scripted

from steersman.server import Server
from steersman.server.fronts.mcp.streams import KEPT_SESSIONS
from steersman.testing import answer, call

pytestmark = pytest.mark.real_time
ACCEPT = "application/json, text/event-stream"


class Mcp:
    """A client of `/mcp` that can be told to misbehave."""

    def __init__(self, server: Client) -> None:
        self.server = server
        self.url = f"{server.url}/mcp?token={server.token}"
        self.session: str | None = None

    def send(self, message: Any, method: str = "POST", **headers: str) -> Any:
        """Send a message; returns the request's context manager."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        own = {"Accept": ACCEPT} | ({} if self.session is None else {"Mcp-Session-Id": self.session})
        data = message if isinstance(message, bytes | None) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        kind = {} if data is None else {"Content-Type": "application/json"}
        return self.server.http.request(method, self.url, data=data, headers={**own, **kind, **names})

    async def get_status(self, message: Any, method: str = "POST", **headers: str) -> int:
        """The status of the answer to a message."""
        async with self.send(message, method, **headers) as response:
            await response.read()
            return response.status

    async def ask(self, id: int, method: str, **params: Any) -> Any:
        """The answer to a request that is answered with JSON."""
        async with self.send({"id": id, "method": method, "params": params}) as response:
            assert response.status == 200, await response.text()
            if "Mcp-Session-Id" in response.headers:
                self.session = response.headers["Mcp-Session-Id"]
            return await response.json()

    async def initialize(self, version: str = "2025-11-25", **capabilities: Any) -> Any:
        """Begin a session."""
        info = {"name": "test", "version": "0"}
        result = await self.ask(0, "initialize", protocolVersion=version, capabilities=capabilities, clientInfo=info)
        assert await self.get_status({"method": "notifications/initialized"}) == 202
        return result["result"]

    def call(self, id: int, prompt: str, token: Any = None) -> Any:
        """Call the tool; returns the request's context manager."""
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        params = {"name": "run", "arguments": {"prompt": prompt}, **meta}
        return self.send({"id": id, "method": "tools/call", "params": params})


async def read_events(response: ClientResponse) -> AsyncGenerator[tuple[str, Any]]:
    """The ids and messages of a stream."""
    id = ""
    async for line in response.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "id":
            id = value
        elif name == "data":
            yield id, json.loads(value) if value else None


@asynccontextmanager
async def connect(agents: Any, **options: Any) -> AsyncGenerator[Mcp]:
    """A client of a server."""
    async with run_server(agents, **options) as server:
        yield Mcp(server)


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_version_that_is_known_is_spoken(version: str) -> None:
    async with connect(make_scripted("Hello.")) as mcp:
        assert (await mcp.initialize(version))["protocolVersion"] == version
        assert await mcp.ask(1, "ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_another_version_gets_the_newest_one_offered() -> None:
    async with connect(make_scripted("Hello.")) as mcp:
        assert (await mcp.initialize("2099-01-01"))["protocolVersion"] == "2025-11-25"
        assert await mcp.get_status({"id": 1, "method": "ping"}, MCP_Protocol_Version="2099-01-01") == 400


async def test_what_the_transport_demands_is_checked() -> None:
    async with connect(make_scripted("Hello.")) as mcp:
        ping = {"id": 1, "method": "ping"}
        assert await mcp.get_status(ping) == 400, "without a session"
        await mcp.initialize()
        assert await mcp.get_status(ping, Mcp_Session_Id="other") == 404
        assert await mcp.get_status(ping, Accept="application/json") == 406
        assert await mcp.get_status(ping, Content_Type="text/plain") == 415
        assert await mcp.get_status(b"{nonsense") == 400
        assert await mcp.get_status(b"[]") == 400
        assert await mcp.get_status(b"[" * 100_000) == 400
        assert await mcp.get_status(None, "PUT", Authorization=f"Bearer {mcp.server.token}") == 405
        assert (await mcp.ask(2, "nothing"))["error"]["code"] == -32601
        assert await mcp.get_status({"id": "x", "result": {}}) == 202, "an answer to no question"
        assert await mcp.get_status(None, "DELETE") == 204
        assert await mcp.get_status(ping) == 404, "the session has ended"


async def test_the_token_may_be_in_the_url_and_must_be_right() -> None:
    """Section 6: /mcp takes ?token= as well when bound to loopback; no other route does."""
    async with connect(make_scripted("Hello.")) as mcp:
        await mcp.initialize()
        server = mcp.server
        async with server.http.get(f"{server.url}/sessions?token={server.token}") as response:
            assert response.status == 401
        mcp.url = f"{server.url}/mcp?token=wrong"
        assert await mcp.get_status({"id": 1, "method": "ping"}) == 401
        mcp.url = f"{server.url}/mcp"
        assert await mcp.get_status({"id": 1, "method": "ping"}) == 401
        assert await mcp.get_status({"id": 1, "method": "ping"}, Authorization=f"Bearer {server.token}") == 200
        mcp.url = f"{server.url}/mcp?token={server.token}"
        assert await mcp.get_status({"id": 1, "method": "ping"}, Host="evil.example") == 403
        assert await mcp.get_status({"id": 1, "method": "ping"}, Origin="http://evil.example") == 403


async def test_a_stream_that_was_lost_is_read_on_in_its_own_session_alone() -> None:
    """The run goes on without a connection; in a peer the replay was not scoped to its session."""
    gate = Gate()
    agent = make_scripted(answer("Let me wait. ", call("wait")), "Done.", tools=[gate.make_tool()])
    async with connect(agent) as mcp:
        await mcp.initialize()
        seen: list[tuple[str, Any]] = []
        async with mcp.call(1, "Go.", token="t") as response:
            async for id, message in read_events(response):
                seen.append((id, message))
                if message is not None and message["params"].get("message") == "[wait]":
                    break
        await gate.reached.wait()
        other = Mcp(mcp.server)
        await other.initialize()
        assert await other.get_status(None, "GET", Last_Event_ID=seen[-1][0]) == 404
        assert await mcp.get_status(None, "GET", Last_Event_ID="9-9") == 404
        gate.opened.set()
        async with mcp.send(None, "GET", Last_Event_ID=seen[-1][0]) as response:
            rest = [one async for one in read_events(response)]
        async with mcp.send(None, "GET", Last_Event_ID=seen[0][0]) as response:
            again = [one async for one in read_events(response)]
    assert seen[0][1] is None, "an id comes at once"
    assert [*seen[1:], *rest] == again, "no gap, and nothing twice"
    assert rest[-1][1]["result"]["content"] == [{"type": "text", "text": "Done."}]
    counts = [message["params"]["progress"] for _, message in again[:-1]]
    assert counts == list(range(1, len(counts) + 1))


async def test_a_question_survives_a_lost_stream(tmp_path: Path) -> None:
    async with connect(lambda: make_agent(tmp_path)) as mcp:
        await mcp.initialize(elicitation={})
        async with mcp.call(1, "deploy") as response:
            events = read_events(response)
            await anext(events)
            last, question = await anext(events)
        assert question["method"] == "elicitation/create"
        yes = {"action": "accept", "content": {"approved": True}}
        assert await mcp.get_status({"id": question["id"], "result": yes}) == 202
        async with mcp.send(None, "GET", Last_Event_ID=last) as response:
            [(_, result)] = [one async for one in read_events(response)]
    assert result["result"]["content"][0]["text"] == "Done."


async def test_a_cancelled_call_has_no_answer_and_its_run_ends(tmp_path: Path) -> None:
    async with connect(lambda: make_agent(tmp_path)) as mcp:
        await mcp.initialize()
        async with mcp.call(1, "slow", token=1) as response:
            events = read_events(response)
            await anext(events)
            await anext(events)
            assert await mcp.get_status({"method": "notifications/cancelled", "params": {"requestId": 1}}) == 202
            rest = [message async for _, message in events]
        assert not [message for message in rest if "result" in message or "error" in message]
        _, listed = await mcp.server.send("GET", "/sessions")
        [session] = listed["sessions"]
        end = await mcp.server.find(session["id"], "agent_end")
    assert end["end_reason"] == "aborted"
    assert session["title"] == "slow"


async def test_the_session_of_another_user_does_not_exist() -> None:
    """S6."""

    def find_user(request: Any) -> str | None:
        return request.headers.get("X-User")

    async with connect(make_scripted("Hello."), authenticate=find_user) as mcp:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        async with mcp.send({"id": 0, "method": "initialize", "params": hello}, X_User="ann") as response:
            mcp.session = response.headers["Mcp-Session-Id"]
        assert await mcp.get_status({"id": 1, "method": "ping"}, X_User="ann") == 200
        assert await mcp.get_status({"id": 1, "method": "ping"}, X_User="bob") == 404
        assert await mcp.get_status({"id": 1, "method": "ping"}) == 401


async def test_many_sessions_take_no_place_of_a_call_or_of_another_user() -> None:
    """Its answer would be lost: the sessions that are forgotten have none, and are of the user who begins others."""
    gate = Gate()
    made = make_scripted(answer(call("wait")), "Done.", tools=[gate.make_tool()])

    def find_user(request: Any) -> str:
        return request.query.get("user", "ann")

    async with connect(made, authenticate=find_user) as mcp:
        other = Mcp(mcp.server)
        other.url += "&user=bob"
        await other.initialize()
        await mcp.initialize()
        async with mcp.call(1, "Go.") as response:
            await gate.reached.wait()
            for _ in range(KEPT_SESSIONS + 1):
                await Mcp(mcp.server).initialize()
            gate.opened.set()
            *_, (_, last) = [event async for event in read_events(response)]
        assert last["result"]["content"][0]["text"] == "Done."
        assert await other.get_status({"id": 2, "method": "ping"}) == 200


async def test_a_call_whose_run_was_cut_says_so() -> None:
    """The run can be continued, so it is not said that it could not start."""
    gate = Gate()
    server = Server(make_scripted(call("wait"), tools=[gate.make_tool()]))
    async with run_listening(server) as client:
        mcp = Mcp(client)
        await mcp.initialize()
        async with mcp.call(1, "Go.") as response:
            await gate.reached.wait()
            await server.close()
            *_, (_, last) = [event async for event in read_events(response)]
    assert last["result"]["isError"] is True
    assert last["result"]["content"][0]["text"].startswith("The server stopped in the middle of the run")


async def test_several_agents_are_several_tools() -> None:
    agents = {"first": make_scripted("One."), "the second": make_scripted("Two.")}
    async with connect(agents) as mcp:
        await mcp.initialize()
        tools = (await mcp.ask(1, "tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["first", "the_second"]
        params = {"name": "the_second", "arguments": {"prompt": "Go."}}
        async with mcp.send({"id": 2, "method": "tools/call", "params": params}) as response:
            messages = [message async for _, message in read_events(response)]
    assert messages[-1]["result"]["content"][0]["text"] == "Two."


async def test_two_calls_at_once_have_streams_of_their_own(tmp_path: Path) -> None:
    async with connect(lambda: make_agent(tmp_path)) as mcp:
        await mcp.initialize()

        async def call(id: int, words: str) -> list[Any]:
            async with mcp.call(id, words, token=f"t{id}") as response:
                return [message async for _, message in read_events(response) if message is not None]

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call(number, f"word {number}")) for number in range(5)]
    for number, task in enumerate(tasks):
        messages = task.result()
        assert messages[-1]["id"] == number
        assert f"word {number}" in messages[-1]["result"]["content"][0]["text"]
        assert {message["params"]["progressToken"] for message in messages[:-1]} == {f"t{number}"}


@pytest.mark.parametrize(
    "message",
    [{"id": True, "method": "ping"}, {"id": [1], "method": "ping"}, {"id": 3}, {"id": 3, "method": 5}, {},
     {"id": {}, "method": "tools/call", "params": {"name": "run", "arguments": {"prompt": "Hi."}}}],
)  # fmt: skip
async def test_a_message_that_cannot_be_answered_is_refused_at_once(tmp_path: Path, message: Any) -> None:
    """Its answer could not say what it belongs to, so the request would wait for ever."""
    async with run_server(lambda: make_agent(tmp_path)) as server:
        client = Mcp(server)
        await client.initialize()
        async with asyncio.timeout(10):
            assert await client.get_status(message) == 400


async def test_a_second_call_under_the_id_of_one_that_goes_on_is_refused() -> None:
    gate = Gate()
    async with run_server(make_scripted(answer(call("wait")), "Done.", tools=[gate.make_tool()])) as server:
        client = Mcp(server)
        await client.initialize()
        message = {"id": 7, "method": "tools/call", "params": {"name": "run", "arguments": {"prompt": "Go."}}}
        async with client.send(message) as first:
            await gate.reached.wait()
            async with client.send(message) as second:
                refused = await second.text()
            gate.opened.set()
            done = await first.text()
    assert '"code":-32600' in refused
    assert '"text":"Done."' in done


@pytest.mark.parametrize(
    ("names", "tools"),
    [(["helper"], ["run"]), (["a b", "a_b", "c"], ["a_b", "a_b_2", "c"])],
)
async def test_each_agent_has_a_tool_of_its_own(names: list[str], tools: list[str]) -> None:
    """docs/mcp-server.md: `run` for a single one, else under the agent's name."""
    async with run_server({name: make_scripted("Hi.") for name in names}) as server:
        client = Mcp(server)
        await client.initialize()
        listed = (await client.ask(1, "tools/list"))["result"]["tools"]
    assert [one["name"] for one in listed] == tools
