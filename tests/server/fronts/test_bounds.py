"""A request with very many messages or parts is refused before it is worked on, in the words of each protocol."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.kit import Client, make_agent, run_server

from steersman.server.fronts.agui_route import make_is_known
from steersman.server.fronts.openai.inputs import read_items, read_messages
from steersman.server.http.bodies import MAX_PARTS, MAX_SCHEMA_PARTS
from steersman.server.sessions import Sessions
from steersman.session import MemoryStore
from steersman.types.content import TextContent, ToolCall
from steersman.types.messages import AssistantMessage, ToolResultMessage, UserMessage

pytestmark = pytest.mark.real_time
Frame = dict[str, Any]
ONE_TOO_MANY = MAX_PARTS + 1
USER: Frame = {"role": "user", "content": "a"}
TEXT: Frame = {"type": "text", "text": "a"}
FUNCTION: Frame = {"type": "function", "function": {"name": "f"}}


def make_call(id: str, name: str) -> Frame:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": "{}"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [USER] * ONE_TOO_MANY}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [TEXT] * MAX_PARTS}]}),
        ("/v1/chat/completions", {"messages": [USER], "tools": [FUNCTION] * ONE_TOO_MANY}),
        ("/v1/responses", {"input": [make_call("a", "b")] * ONE_TOO_MANY}),
        ("/v1/responses", {"input": [USER, {**USER, "content": [{"type": "input_text", "text": "a"}] * MAX_PARTS}]}),
    ],
)
async def test_openai_clients_get_an_error_of_their_own(path: str, body: Frame) -> None:
    async with run_server(make_agent("Hi.")) as client:
        status, found = await client.send("POST", path, body)
        listed = await client.send("GET", "/sessions")
    assert (status, found["error"]["type"]) == (400, "invalid_request_error")
    assert "at most 10,000 messages" in found["error"]["message"]
    assert listed[1]["sessions"] == [] or path == "/v1/responses"


def nest(depth: int) -> Frame:
    return {"type": "object", "properties": {"a": nest(depth - 1)} if depth else {}}


LARGE: Frame = {"type": "object", "properties": {f"a{number}": {} for number in range(MAX_SCHEMA_PARTS)}}


@pytest.mark.parametrize("schema", [LARGE, nest(300)])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_schema_that_would_take_long_to_compile_is_not_compiled(path: str, schema: Frame) -> None:
    chat = path.endswith("completions")
    format = {"type": "json_schema", "name": "x", "schema": schema, "json_schema": {"name": "x", "schema": schema}}
    asked: Frame = {"messages": [USER], "input": "a", "model": "default"}
    tool = {"type": "function", "name": "f", "parameters": schema, "function": {"name": "f", "parameters": schema}}
    async with run_server(make_agent("Hi.")) as client:
        for more in ({"tools": [tool]}, {"response_format": format} if chat else {"text": {"format": format}}):
            status, found = await client.send("POST", path, {**asked, **more})
            assert (status, found["error"]["type"]) == (400, "invalid_request_error")
            assert "at most 6,000 lists and objects, 100 deep" in found["error"]["message"]


@pytest.mark.parametrize(
    "more",
    [
        {"messages": [{"id": "m", **USER}] * ONE_TOO_MANY},
        {"messages": [{"id": "m", "role": "user", "content": [TEXT] * MAX_PARTS}]},
        {"resume": [{"interruptId": "i", "status": "cancelled"}] * ONE_TOO_MANY},
    ],
)
async def test_clients_of_ag_ui_get_a_problem(more: Frame) -> None:
    async with run_server(make_agent("Hi.")) as client:
        status, found = await client.send("POST", "/agui", {"threadId": "t", "runId": "r", "messages": [], **more})
    assert status == 422
    assert "at most 10,000 messages" in found["detail"]


async def test_clients_of_a2a_get_an_error_of_json_rpc() -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}] * ONE_TOO_MANY}
    async with run_server(make_agent("Hi.")) as client:
        status, found = await call_a2a(client, {"message": message})
        _, deep = await call_a2a(client, {"message": [[]] * 150_001})
    assert (status, found["error"]["code"]) == (200, -32602)
    assert "at most 10,000 messages" in found["error"]["message"]
    assert deep["error"]["code"] == -32600
    assert "150,000 lists and objects" in deep["error"]["message"]


async def test_an_id_that_each_event_repeats_is_not_long() -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}], "contextId": "c" * 1_001}
    async with run_server(make_agent("Hi.")) as client:
        _, refused = await call_a2a(client, {"message": message})
        status, found = await client.send("POST", "/agui", {"threadId": "t", "runId": "r" * 1_001, "messages": []})
    assert (refused["error"]["code"], status) == (-32602, 422)
    assert "length <= 1000" in refused["error"]["message"]
    assert "length <= 1000" in found["detail"]


async def call_a2a(client: Client, params: Frame) -> tuple[int, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return await client.send("POST", "/a2a", body, A2A_Version="1.0")


@pytest.mark.parametrize("action", ["prompt", "steer", "follow_up"])
async def test_a_prompt_has_not_too_many_blocks(action: str) -> None:
    async with run_server(make_agent("Hi.")) as client:
        id = await client.create()
        status, found = await client.send("POST", f"/sessions/{id}/{action}", {"content": [TEXT] * ONE_TOO_MANY})
        refused = await client.send("POST", f"/sessions/{id}/branch", {"at": 0, "content": [TEXT] * ONE_TOO_MANY})
    assert status == refused[0] == 422
    assert "at most 10,000 messages" in found["detail"]
    assert "at most 10,000 messages" in refused[1]["detail"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/agui", "/sessions", "/mcp"])
async def test_what_would_take_long_to_decode_is_not_decoded(path: str) -> None:
    async with run_server(make_agent("Hi.")) as client:
        accept = "application/json, text/event-stream"
        status, found = await client.send("POST", path, {"metadata": [[]] * 150_001}, Accept=accept)
    assert status == 413
    words = found["error"]["message"] if path.startswith("/v1") else found["detail"]
    assert "150,000 lists and objects" in words


async def test_as_many_as_allowed_are_answered() -> None:
    """The part of the answer is one message too."""
    messages = [USER, {"role": "assistant", "content": "b"}] * (MAX_PARTS // 2 - 1) + [USER, USER]
    async with run_server(make_agent("Hi.")) as client:
        status, found = await client.send("POST", "/v1/chat/completions", {"messages": messages})
    assert (status, found["choices"][0]["message"]["content"]) == (200, "Hi.")


class Counted(str):
    """An id that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


def test_each_output_looks_up_its_call_once() -> None:
    """Searching the history for each output would compare a million ids here."""
    Counted.compared = 0
    items = [make_call(Counted(f"c{number}"), f"f{number}") for number in range(1000)]
    outputs = [
        {"type": "function_call_output", "call_id": f"c{number}", "output": str(number)} for number in range(1000)
    ]
    found = read_items([*items, *outputs])
    assert Counted.compared < 10_000
    [calls, *results] = found.history
    assert calls == AssistantMessage(
        [ToolCall(f"c{number}", f"f{number}", {}) for number in range(1000)], stop_reason="tool_use"
    )
    assert results == [
        ToolResultMessage([TextContent(str(number))], tool_call_id=f"c{number}", tool_name=f"f{number}")
        for number in range(1000)
    ]
    assert len(found.outputs) == 1000


async def test_each_message_of_ag_ui_is_looked_up_once() -> None:
    """Searching all entries for each message would compare a million ids here."""
    sessions = Sessions({"default": make_agent("Hi.")}, MemoryStore())
    live = await sessions.open_named(None, "thread")
    live.agent.configure(messages=[UserMessage("a"), AssistantMessage("b")] * 500)
    ids = [entry.id for entry in live.entries]
    Counted.compared = 0
    is_known = make_is_known(live)
    assert not any(is_known(Counted(f"m{number}")) for number in range(1000))
    assert all(is_known(Counted(id)) for id in ids)
    assert Counted.compared < 10_000
    await sessions.close()


def test_messages_at_the_end_are_one_message_in_their_order() -> None:
    found = read_messages([USER, {"role": "assistant", "content": "b"}, *({**USER, "content": text} for text in "cde")])
    assert found.message == UserMessage([TextContent("c"), TextContent("d"), TextContent("e")])
    assert found.history == [UserMessage("a"), AssistantMessage("b")]


def test_calls_join_the_answer_before_them() -> None:
    items = [
        {"role": "assistant", "content": "b"},
        make_call("1", "f"),
        {"role": "assistant", "content": ""},
        make_call("2", "f"),
        {"role": "assistant", "content": "c"},
    ]
    assert read_items(items).history == [
        AssistantMessage([TextContent("b"), ToolCall("1", "f", {}), ToolCall("2", "f", {})], stop_reason="tool_use"),
        AssistantMessage("c"),
    ]
