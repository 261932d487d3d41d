"""OpenAI's Responses: its own clients understand every response, and each stream follows its grammar (server.md 5)."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from openai import APIStatusError, AuthenticationError, BadRequestError, ConflictError, NotFoundError
from tests.server.fronts.openai_kit import make_sdk, run_server
from tests.server.fronts.plays import GRAMMAR, Play, meddle, plays
from tests.server.judging import judge
from tests.server.kit import Client, Gate, deploy, make_agent, make_deployer

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call, cut, error, thinking

pytestmark = pytest.mark.real_time
Frame = dict[str, Any]
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}


CHAT_WEATHER: Any = {"type": "function", "function": {name: WEATHER[name] for name in ("name", "parameters")}}


async def read_frames(client: Client, path: str, body: Any = None) -> list[Frame]:
    """The frames of one stream."""
    headers = {"Authorization": f"Bearer {client.token}"}
    method = "GET" if body is None else "POST"
    sent = None if body is None else {"stream": True, **body}
    async with client.http.request(method, f"{client.url}{path}", json=sent, headers=headers) as response:
        assert response.status == 200, await response.text()
        return [json.loads(line[6:]) async for line in response.content if line.startswith(b"data: ")]


def check_frames(frames: list[Frame]) -> Frame:
    """The grammar of one stream; returns the response at its end."""
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    assert [frame["type"] for frame in frames[:2]] == ["response.created", "response.in_progress"]
    ends = ("response.completed", "response.incomplete", "response.failed")
    assert [frame["type"] in ends for frame in frames] == [False] * (len(frames) - 1) + [True]
    final = frames[-1]["response"]
    assert frames[-1]["type"] == f"response.{final['status']}"
    items: dict[int, Frame] = {}
    parts: dict[int, str] = {}
    for frame in frames[2:-1]:
        check_frame(frame, items, parts)
    assert all("done" in item for item in items.values()), "an item is still open at the end"
    for index, item in enumerate(final["output"]):
        # An answer that is tried again empties the items that were told of it.
        void: Frame = {**items[index]["done"], "content": [], "status": "incomplete"}
        assert item in (items[index]["done"], void)
    assert len(items) == len(final["output"])
    return final


def check_frame(frame: Frame, items: dict[int, Frame], parts: dict[int, str]) -> None:
    """One frame in the middle of a stream."""
    kind, index = frame["type"], frame["output_index"]
    if kind == "response.output_item.added":
        assert index == len(items)
        assert frame["item"]["status"] == "in_progress"
        items[index] = {"id": frame["item"]["id"]}
        return
    assert "done" not in items[index], f"{kind} after the end of its item"
    if kind == "response.output_item.done":
        assert frame["item"]["id"] == items[index]["id"]
        assert frame["item"]["status"] in ("completed", "incomplete")
        items[index]["done"] = frame["item"]
        return
    assert frame["item_id"] == items[index]["id"]
    if kind == "response.content_part.added":
        assert index not in parts
        parts[index] = ""
    elif kind.endswith("arguments.delta"):
        parts[index] = parts.get(index, "") + frame["delta"]
    elif kind.endswith(".delta"):
        assert frame["delta"]
        assert frame["content_index"] == 0
        parts[index] += frame["delta"]
    elif kind.endswith("text.done"):
        assert frame["text"] == parts[index]
    elif kind.endswith("arguments.done"):
        assert frame["arguments"] == parts[index]


async def test_text_thinking_and_a_tool_of_ours_are_one_response() -> None:
    """Our own tools are not told as calls of the client."""
    gate = Gate()
    gate.opened.set()
    script = (answer(thinking("Hm."), "Let me see. ", call("wait")), "Done.", "Again.")
    async with run_server(make_agent(*script, tools=[gate.make_tool()])) as client:
        frames = await read_frames(client, "/v1/responses", {"model": "default", "input": "Go."})
        final = check_frames(frames)
        sdk = make_sdk(client)
        found = await sdk.responses.retrieve(final["id"])
        second = await sdk.responses.create(model="default", input="More.", previous_response_id=final["id"])
        models = [model.id async for model in sdk.models.list()]
    assert [item["type"] for item in final["output"]] == ["reasoning", "message", "message"]
    assert "".join(frame["delta"] for frame in frames if frame["type"] == "response.reasoning_text.delta") == "Hm."
    assert final["usage"]["total_tokens"] == final["usage"]["input_tokens"] + final["usage"]["output_tokens"]
    assert found.output_text == "Let me see. Done."
    assert found.status == second.status == "completed"
    assert second.output_text == "Again."
    assert models == ["default"]


@pytest.mark.parametrize("options", [{}, {"conversation": "talk-1"}])
async def test_without_a_response_before_each_request_is_fresh(options: Any) -> None:
    """A conversation goes on by its name; without one, nothing is known from before."""
    async with run_server(make_agent("One.", "Two.")) as client:
        sdk: Any = make_sdk(client)
        first = await sdk.responses.create(input="First", **options)
        second = await sdk.responses.create(input="Second", **options)
    assert first.output_text == "One."
    assert second.output_text == ("Two." if options else "One.")


async def test_only_what_is_new_at_the_end_of_the_input_counts() -> None:
    """agent-framework#8135: two authorities over the history double turns."""
    async with run_server(make_agent("One.", "Two.")) as client:
        sdk = make_sdk(client)
        await sdk.responses.create(input="First", conversation="talk-1")
        history: Any = [
            {"role": "user", "content": "First"},
            {"role": "assistant", "content": "Something else entirely."},
            {"role": "user", "content": [{"type": "input_text", "text": "Second"}]},
        ]
        await sdk.responses.create(input=history, conversation="talk-1")
        fresh = await sdk.responses.create(input=history)
        _, tree = await client.send("GET", "/sessions/talk-1/tree")
        session = fresh.id.split("_", 2)[2]
        _, seeded = await client.send("GET", f"/sessions/{session}/tree")
    assert [node["title"] for node in tree] == ["First", "One.", "Second", "Two."]
    assert [node["title"] for node in seeded] == ["First", "Something else entirely.", "Second", "One."]


async def test_an_earlier_response_is_a_branch() -> None:
    async with run_server(make_agent("One.", "Two.", "Other two.")) as client:
        sdk = make_sdk(client)
        first = await sdk.responses.create(input="First")
        await sdk.responses.create(input="Second", previous_response_id=first.id)
        await sdk.responses.create(input="Another second", previous_response_id=first.id)
        _, tree = await client.send("GET", f"/sessions/{first.id.split('_', 2)[2]}/tree")
    parents = {node["title"]: node["parent"] for node in tree}
    assert parents["Second"] == parents["Another second"] is not None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_of_the_client_is_told_and_its_output_goes_on(stream: bool) -> None:
    script = (answer("Let me ask. ", call("get_weather", city="Rome")), "It rains.")
    async with run_server(make_agent(*script)) as client:
        sdk = make_sdk(client)
        if stream:
            async with sdk.responses.stream(model="default", input="Weather?", tools=[WEATHER]) as events:
                first: Any = await events.get_final_response()
        else:
            first = await sdk.responses.create(input="Weather?", tools=[WEATHER])
        [asked] = [item for item in first.output if item.type == "function_call"]
        with pytest.raises(BadRequestError, match="no tool output"):
            await sdk.responses.create(input="Well?", previous_response_id=first.id)
        second = await sdk.responses.create(
            input=[{"type": "function_call_output", "call_id": asked.call_id, "output": "rain"}],
            previous_response_id=first.id,
            tools=[WEATHER],
        )
        session = first.id.split("_", 2)[2]
        results = [event for _, event in await client.collect(session) if event["type"] == "tool_execution_end"]
        again = await sdk.responses.retrieve(first.id)
    assert (asked.name, json.loads(asked.arguments), asked.status) == ("get_weather", {"city": "Rome"}, "completed")
    assert [result["result"]["content"][0]["text"] for result in results] == ["rain"]
    assert (second.output_text, second.status) == ("It rains.", "completed")
    assert [item.type for item in again.output] == ["message", "function_call"]


async def test_a_call_that_waits_for_the_client_survives_a_restart(tmp_path: Path) -> None:
    script = (answer(call("get_weather", city="Rome")), "It rains.")
    store = tmp_path / "sessions.db"
    async with run_server(make_agent(*script), store=store) as client:
        first = await make_sdk(client).responses.create(input="Weather?", tools=[WEATHER])
    async with run_server(make_agent("It rains."), store=store) as client:
        sdk = make_sdk(client)
        output: Any = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
        second = await sdk.responses.create(input=[output], previous_response_id=first.id, tools=[WEATHER])
        again = await sdk.responses.retrieve(first.id)
        events = await client.collect(first.id.split("_", 2)[2])
    assert (second.output_text, second.status) == ("It rains.", "completed")
    assert again.output[0].type == "function_call"
    results = [event for _, event in events if event["type"] == "tool_execution_end"]
    assert [result["result"]["content"][0]["text"] for result in results] == ["rain"]


async def test_a_name_of_our_tools_cannot_be_declared() -> None:
    async with run_server() as client:
        tools: Any = [{**WEATHER, "name": "deploy"}]
        with pytest.raises(BadRequestError, match="of its own"):
            await make_sdk(client).responses.create(input="Go.", tools=tools)


async def test_a_question_is_a_conflict_with_words_and_the_run_waits() -> None:
    """The client cannot answer, so it is told where to; afterwards the response is there."""
    async with run_server() as client:
        sdk = make_sdk(client)
        with pytest.raises(ConflictError, match="waits for an approval: deploy") as caught:
            await sdk.responses.create(input="Deploy.", conversation="talk-1", extra_headers={"Idempotency-Key": "k"})
        assert caught.value.response.headers["x-should-retry"] == "false"
        with pytest.raises(ConflictError, match="waits for an approval"):
            await sdk.responses.create(input="And?", conversation="talk-1")
        _, session = await client.send("GET", "/sessions/talk-1")
        assert session["status"] == "waiting"
        [question] = session["approvals"]
        await client.act("talk-1", "approve", {"id": question["approval_id"]})
        found = await sdk.responses.create(
            input="Deploy.", conversation="talk-1", extra_headers={"Idempotency-Key": "k"}
        )
        _, tree = await client.send("GET", "/sessions/talk-1/tree")
    assert found.output_text == "Let me see. Done."
    assert [node["title"] for node in tree if node["role"] == "user"] == ["Deploy."]


async def test_a_question_ends_a_stream_with_words() -> None:
    async with run_server() as client:
        final = check_frames(await read_frames(client, "/v1/responses", {"input": "Deploy."}))
        found = await make_sdk(client).responses.retrieve(final["id"])
    assert final["error"]["code"] == "approval_required"
    assert "deploy" in final["error"]["message"]
    assert found.status == "in_progress"


async def test_what_a_request_brings_is_gone_after_its_run() -> None:
    """Also where no client follows it to its end: instructions, limits and tools are for one run."""
    script = ScriptedModel(answer(call("deploy", target="live")), "Done.", "Hello.", "Hi.", "Fine.")
    async with run_server(lambda: Agent(script.model, tools=[deploy], system_prompt="Own.")) as client:
        body = {"input": "Go.", "instructions": "Theirs.", "tools": [WEATHER], "conversation": "c"}
        status, _ = await client.send("POST", "/v1/responses", body)
        assert status == 409
        _, shown = await client.send("GET", "/sessions/c")
        await client.act("c", "approve", {"id": shown["approvals"][0]["approval_id"]})
        position = (await client.collect("c"))[-1][0]
        await client.act("c", "prompt", {"content": "And now?"})
        await client.collect("c", after=position)
        messages = [{"role": "system", "content": "Theirs."}, {"role": "user", "content": "Go."}]
        await client.send("POST", "/v1/chat/completions", {"messages": messages, "tools": [CHAT_WEATHER]})
        _, listed = await client.send("GET", "/sessions")
        id = next(one["id"] for one in listed["sessions"] if one["id"] != "c")
        position = (await client.collect(id))[-1][0]
        await client.act(id, "prompt", {"content": "And now?"})
        await client.collect(id, after=position)
    found = [(request.system_prompt, len(request.tools)) for request, _ in script.requests]
    both, own = ("Own.\n\nTheirs.", 2), ("Own.", 1)
    assert found == [both, both, own, both, own]


async def test_a_request_that_was_refused_leaves_nothing_to_the_next_run() -> None:
    """Instructions, limits and tools are for one run, and a refused request has none."""
    script = ScriptedModel("Hello.", repeat_last=True)
    async with run_server(lambda: Agent(script.model, system_prompt="Own.")) as client:
        body = {"instructions": "Theirs.", "tools": [WEATHER], "conversation": "c"}
        assert (await client.send("POST", "/v1/responses", {**body, "input": []}))[0] == 400
        await client.act("c", "prompt", {"content": "And now?"})
        await client.collect("c")
        messages = [{"role": "system", "content": "Theirs."}]
        body = {"messages": messages, "tools": [CHAT_WEATHER]}
        assert (await client.send("POST", "/v1/chat/completions", body))[0] == 400
        _, listed = await client.send("GET", "/sessions")
        id = next(one["id"] for one in listed["sessions"] if one["id"] != "c")
        await client.act(id, "prompt", {"content": "And now?"})
        await client.collect(id)
    assert [(request.system_prompt, len(request.tools)) for request, _ in script.requests] == [("Own.", 0)] * 2


async def test_a_request_that_was_refused_leaves_nothing_to_a_run_that_began_meanwhile(tmp_path: Path) -> None:
    """One of two clients starts the run, and it has what that one has sent and no more."""
    script = ScriptedModel("Hello.", repeat_last=True)
    async with run_server(lambda: Agent(script.model, system_prompt="Own."), store=tmp_path / "s.db") as client:
        id = await client.create()
        body = {"instructions": "Theirs.", "tools": [WEATHER], "conversation": id, "input": "Hello."}
        async with asyncio.TaskGroup() as group:
            response = group.create_task(client.send("POST", "/v1/responses", body))
            prompt = group.create_task(client.send("POST", f"/sessions/{id}/prompt", {"content": "And now?"}))
        await client.collect(id)
    status, other = response.result()[0], prompt.result()[0]
    expected = ("Own.\n\nTheirs.", 1) if status == 200 else ("Own.", 0)
    assert sorted((status, other)) in ([200, 409], [202, 409])
    assert [(request.system_prompt, len(request.tools)) for request, _ in script.requests] == [expected]


async def test_the_history_of_a_request_that_was_refused_is_not_kept() -> None:
    async with run_server(make_agent("Hello.")) as client:
        history = [{"role": "user", "content": "One."}, {"role": "assistant", "content": "Two."}]
        body = {"conversation": "c", "input": [*history, {"role": "user", "content": " "}]}
        status, _ = await client.send("POST", "/v1/responses", body)
        _, tree = await client.send("GET", "/sessions/c/tree")
    assert (status, tree) == (400, [])


async def test_questions_are_denied_at_once_where_the_client_says_so() -> None:
    async with run_server() as client:
        found = await make_sdk(client).responses.create(input="Deploy.", metadata={"approvals": "deny"})
        events = await client.collect(found.id.split("_", 2)[2])
    assert found.output_text == "Let me see. Done."
    [result] = [event for _, event in events if event["type"] == "tool_execution_end"]
    assert result["is_error"]


async def test_a_failed_run_is_a_failed_response() -> None:
    async with run_server(make_agent(error("authentication"))) as client:
        final = check_frames(await read_frames(client, "/v1/responses", {"input": "Go."}))
        found = await make_sdk(client).responses.create(input="Go.")
    assert final["status"] == found.status == "failed"
    assert final["error"]["code"] == "server_error"
    assert found.error is not None
    assert found.error.message


async def test_an_answer_that_was_tried_again_counts_once() -> None:
    async with run_server(make_agent(cut("Half an ", after=2), "Whole.")) as client:
        final = check_frames(await read_frames(client, "/v1/responses", {"input": "Go."}))
        sdk = make_sdk(client)
        found = await sdk.responses.retrieve(final["id"])
    assert found.output_text == "Whole."


async def test_a_response_is_cancelled_once_and_keeps_its_text() -> None:
    """langgraph#5672: cancel loses no text that was seen."""
    gate = Gate()
    async with run_server(make_agent(answer("Before. ", call("wait")), "After.", tools=[gate.make_tool()])) as client:
        sdk = make_sdk(client)
        begun = await sdk.responses.create(input="Go.", background=True)
        await gate.reached.wait()
        assert begun.status == "in_progress"
        stopped = await sdk.responses.cancel(begun.id)
        again = await sdk.responses.cancel(begun.id)
        frames = await read_frames(client, f"/v1/responses/{begun.id}?stream=true")
    assert stopped.status == again.status == "cancelled"
    assert stopped.output_text == "Before. "
    assert check_frames(frames)["status"] == "incomplete"


async def test_a_client_that_leaves_comes_back_after_the_last_event_it_saw() -> None:
    """S3: a closed stream stops nothing; the events after a number follow without a gap."""
    gate = Gate()
    async with run_server(make_agent(answer("Before. ", call("wait")), "After.", tools=[gate.make_tool()])) as client:
        sdk = make_sdk(client)
        seen: list[Any] = []
        stream = await sdk.responses.create(input="Go.", stream=True)
        async for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        await gate.reached.wait()
        id, last = seen[0].response.id, seen[-1].sequence_number
        rest: list[Any] = []
        async for event in await sdk.responses.retrieve(id, stream=True, starting_after=last):
            rest.append(event)
            gate.opened.set()
        past = await read_frames(client, f"/v1/responses/{id}?stream=true&starting_after=9999")
    frames = [event.to_dict() for event in (*seen, *rest)]
    assert check_frames(frames)["status"] == "completed"
    assert [frame["type"] for frame in past] == ["response.completed"]


async def test_a_response_is_told_again_from_the_log_after_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "sessions.db"
    async with run_server(make_agent(answer(thinking("Hm."), "One.")), store=store) as client:
        first = await make_sdk(client).responses.create(input="Go.", metadata={"for": "me"})
    async with run_server(make_agent("Two."), store=store) as client:
        sdk = make_sdk(client)
        found = await sdk.responses.retrieve(first.id)
        frames = await read_frames(client, f"/v1/responses/{first.id}?stream=true")
        second = await sdk.responses.create(input="On.", previous_response_id=first.id)
    assert found.to_dict() == first.to_dict()
    assert check_frames(frames)["output"] == first.to_dict()["output"]
    assert second.output_text == "Two."


async def test_the_same_key_counts_once() -> None:
    """S5."""
    async with run_server(make_agent("One.", "Two.")) as client:
        sdk = make_sdk(client)
        key = {"Idempotency-Key": "key-1"}
        first = await sdk.responses.create(input="Go.", extra_headers=key)
        again = await sdk.responses.create(input="Go.", extra_headers=key)
        _, sessions = await client.send("GET", "/sessions")
    assert first.id == again.id
    assert again.output_text == "One."
    assert len(sessions["sessions"]) == 1


@pytest.mark.parametrize("options", [{}, {"conversation": "new"}])
async def test_the_same_key_at_once_is_one_response(tmp_path: Path, options: Any) -> None:
    """S5, for a session that neither request has found."""
    script = ScriptedModel("One.", "Not again.")
    async with run_server(lambda: Agent(script.model), store=tmp_path / "sessions.db") as client:
        create: Any = make_sdk(client).responses.create
        async with asyncio.TaskGroup() as group:
            sent: list[Any] = [
                group.create_task(create(input="Go.", extra_headers={"Idempotency-Key": "key-1"}, **options))
                for _ in range(3)
            ]
    found = [task.result() for task in sent]
    assert [one.output_text for one in found] == ["One."] * 3
    assert script.asked == 1


async def test_a_request_that_was_refused_can_be_sent_again_under_its_key(tmp_path: Path) -> None:
    """Two requests at the same time: the one that is refused never gets the answer of the other."""
    gate = Gate()
    script = ScriptedModel(answer(call("wait")), "One.", "Two.")
    agent = partial(Agent, script.model, tools=[gate.make_tool()])
    async with run_server(agent, store=tmp_path / "sessions.db") as client:
        sdk = make_sdk(client)
        sent = [
            asyncio.create_task(
                sdk.responses.create(input=text, conversation="both", extra_headers={"Idempotency-Key": text})
            )
            for text in ("first", "second")
        ]
        (refused,), _ = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
        gate.opened.set()
        await asyncio.wait(sent)
        lost = ("first", "second")[sent.index(refused)]
        again = await sdk.responses.create(input=lost, conversation="both", extra_headers={"Idempotency-Key": lost})
    assert isinstance(refused.exception(), ConflictError)
    assert again.output_text == "Two."
    assert script.requests[-1][0].messages[-1].text == lost


async def test_errors_have_the_shape_that_the_client_reads() -> None:
    async with run_server({"one": make_deployer, "two": make_deployer}) as client:
        sdk = make_sdk(client)
        with pytest.raises(NotFoundError, match="'one', 'two'"):
            await sdk.responses.create(model="gpt-x", input="Go.")
        with pytest.raises(NotFoundError, match="no response"):
            await sdk.responses.retrieve("resp_123_../../etc")
        with pytest.raises(NotFoundError, match="no response"):
            await sdk.responses.create(input="Go.", previous_response_id="resp_1_unknown")
        id = await client.create()
        await client.act(id, "abort", Idempotency_Key=f"resp_1_{id}")  # which is no response for all that
        with pytest.raises(NotFoundError, match="no response"):
            await sdk.responses.retrieve(f"resp_1_{id}")
        with pytest.raises(BadRequestError, match="cannot be read"):
            await sdk.responses.create(input=[{"type": "odd"}])  # pyright: ignore[reportArgumentType]
        with pytest.raises(BadRequestError, match="'function'"):
            await sdk.responses.create(input="Go.", tools=[{"type": "web_search"}])
        assert [one.id async for one in sdk.models.list()] == ["one", "two"]
        assert (await sdk.models.retrieve("two")).id == "two"
        with pytest.raises(NotFoundError, match="no model 'three'"):
            await sdk.models.retrieve("three")
        with pytest.raises(AuthenticationError) as caught:
            await make_sdk(client, "wrong").models.list()
    assert isinstance(caught.value, APIStatusError)
    assert caught.value.code == "invalid_api_key"


async def test_a_response_of_another_user_does_not_exist() -> None:
    """S6, frontmcp#529."""

    def find_user(request: Any) -> str | None:
        return request.headers.get("X-User")

    async with run_server(make_agent("One."), authenticate=find_user) as client:
        ann, bob = (make_sdk(client, default_headers={"X-User": name}) for name in ("ann", "bob"))
        found = await ann.responses.create(input="Go.")
        with pytest.raises(NotFoundError):
            await bob.responses.retrieve(found.id)
        with pytest.raises(NotFoundError):
            await bob.responses.create(input="Go.", previous_response_id=found.id)


async def test_its_javascript_client_plays_a_conversation() -> None:
    script = (answer(thinking("Hm."), "Let me ask. ", call("get_weather", city="Rome")), "It rains.", error("quota"))
    output = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
    steps = [
        {"responses": {"model": "default", "input": "Weather?", "tools": [WEATHER]}},
        {"responses": {"model": "default", "input": [output], "tools": [WEATHER]}, "previous": True},
        {"responses": {"model": "default", "input": "And now?"}, "previous": True},
    ]
    async with run_server(make_agent(*script)) as client:
        told = await judge("openai.mjs", client.url, client.token, json.dumps(steps))
    first, second, third = told["report"]
    assert [step["failed"] for step in (first, second)] == [None, None], told
    assert [item["type"] for item in first["final"]["output"]] == ["reasoning", "message", "function_call"]
    assert second["final"]["output_text"] == "It rains."
    assert third["types"][-1] == "response.failed"
    assert told["models"] == ["default"]


@GRAMMAR
@given(plays())
async def test_every_stream_follows_the_grammar(play: Play) -> None:
    """Cut, error, abort, steer and questions at each place; CLIProxyAPI#5851, llm-rosetta#56."""
    async with run_server(play.make_agent) as client, meddle(client, play, await client.create()) as id:
        body = {"input": "Go.", "conversation": id, "stream": True}
        headers = {"Authorization": f"Bearer {client.token}"}
        async with client.http.post(f"{client.url}/v1/responses", json=body, headers=headers) as response:
            if response.status == 409:
                return  # a steering message was first
            frames = [json.loads(line[6:]) async for line in response.content if line.startswith(b"data: ")]
        final = check_frames(frames)
        for approved in [*play.answers, *([True] * 20)]:
            if not final["error"] or final["error"]["code"] != "approval_required":
                break
            _, session = await client.send("GET", f"/sessions/{id}")
            for question in session["approvals"]:
                await client.act(id, "approve" if approved else "deny", {"id": question["approval_id"]})
            final = check_frames(await read_frames(client, f"/v1/responses/{final['id']}?stream=true"))
        else:
            raise AssertionError("the run asks without an end")


async def test_a_format_or_a_choice_that_cannot_be_promised_is_refused() -> None:
    """A silent ignore would let a client parse text as JSON."""
    object: Any = {"format": {"type": "json_object"}}
    text: Any = {"format": {"type": "text"}, "verbosity": "low"}
    async with run_server(make_agent("One.")) as client:
        sdk = make_sdk(client)
        with pytest.raises(BadRequestError, match=r"text.format is"):
            await sdk.responses.create(model="default", input="Go.", text=object)
        with pytest.raises(BadRequestError, match=r"tool_choice is"):
            await sdk.responses.create(model="default", input="Go.", tool_choice="required")
        found = await sdk.responses.create(model="default", input="Go.", text=text, tool_choice="none")
    assert (found.output_text, found.tool_choice) == ("One.", "none")
