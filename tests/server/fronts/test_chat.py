"""OpenAI's Chat Completions: its own clients understand every completion, and each stream follows its grammar."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from openai import APIError, APIStatusError, BadRequestError, ConflictError
from tests.server.fronts.openai_kit import make_sdk, run_server
from tests.server.fronts.plays import GRAMMAR, Play, meddle, plays
from tests.server.judging import judge
from tests.server.kit import Client, Gate, make_agent

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call, cut, error, thinking

pytestmark = pytest.mark.real_time
Frame = dict[str, Any]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


async def read_chunks(client: Client, **body: Any) -> list[Frame]:
    """The chunks of one stream; the last line says that it is over."""
    headers = {"Authorization": f"Bearer {client.token}"}
    sent = {"stream": True, "messages": [user("Go.")], **body}
    async with client.http.post(f"{client.url}/v1/chat/completions", json=sent, headers=headers) as response:
        assert response.status == 200, await response.text()
        lines = [line[6:] async for line in response.content if line.startswith(b"data: ")]
    assert lines[-1] == b"[DONE]\n"
    return [json.loads(line) for line in lines[:-1]]


def check_chunks(chunks: list[Frame]) -> str | None:
    """The grammar of one stream; returns the reason of its end, `None` for an error."""
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len({chunk["id"] for chunk in chunks}) == 1
    if "error" in chunks[-1]:
        assert chunks[-1]["error"]["message"]
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])
        return None
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]]
    assert reasons[:-1] == [None] * (len(reasons) - 1)
    assert reasons[-1] in ("stop", "length", "content_filter", "tool_calls")
    return reasons[-1]


async def test_a_run_is_one_message() -> None:
    """Our own tools are not told as calls of the client."""
    gate = Gate()
    gate.opened.set()
    script = (answer(thinking("Hm."), "Let me see. ", call("wait")), "Done.")
    async with run_server(make_agent(*script, tools=[gate.make_tool()])) as client:
        found = await make_sdk(client).chat.completions.create(model="default", messages=[user("Go.")])
        chunks = await read_chunks(client, stream_options={"include_usage": True})
    [choice] = found.choices
    assert (choice.message.content, choice.finish_reason) == ("Let me see. Done.", "stop")
    assert choice.message.tool_calls is None
    assert choice.message.to_dict()["reasoning_content"] == "Hm."
    assert found.usage is not None
    assert check_chunks(chunks) == "stop"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]) == "Let me see. Done."
    assert [chunk["usage"] is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1]["choices"] == []


async def test_a_fresh_session_begins_with_the_history_of_the_client() -> None:
    """agent-framework#8135: nothing of another session is mixed in."""
    async with run_server(make_agent("One.", "Two.")) as client:
        sdk = make_sdk(client)
        await sdk.chat.completions.create(model="default", messages=[user("First")])
        history: Any = [
            {"role": "system", "content": "Be kind."},
            user("First"),
            {"role": "assistant", "content": "Hi."},
        ]
        await sdk.chat.completions.create(model="default", messages=[*history, user("Second")])
        _, listed = await client.send("GET", "/sessions")
        trees = [(await client.send("GET", f"/sessions/{one['id']}/tree"))[1] for one in listed["sessions"]]
    titles = sorted([node["title"] for node in tree] for tree in trees)
    assert titles == [["First", "Hi.", "Second", "One."], ["First", "One."]]


async def test_a_tool_of_the_client_goes_on_in_the_run_that_waits() -> None:
    script = (answer("Let me ask. ", call("get_weather", city="Rome")), "It rains.")
    async with run_server(make_agent(*script)) as client:
        sdk = make_sdk(client)
        first = await sdk.chat.completions.create(model="default", messages=[user("Weather?")], tools=[WEATHER])
        message = first.choices[0].message
        assert first.choices[0].finish_reason == "tool_calls"
        [asked] = message.tool_calls or []
        result: Any = {"role": "tool", "tool_call_id": asked.id, "content": "rain"}
        messages: Any = [user("Weather?"), message.to_dict(), result]
        second = await sdk.chat.completions.create(model="default", messages=messages, tools=[WEATHER])
        _, listed = await client.send("GET", "/sessions")
        again = await sdk.chat.completions.create(model="default", messages=messages, tools=[WEATHER])
        _, more = await client.send("GET", "/sessions")
    assert asked.type == "function"
    assert json.loads(asked.function.arguments) == {"city": "Rome"}
    assert second.choices[0].message.content == "It rains."
    assert len(listed["sessions"]) == 1
    # The run is over, so the same messages are the beginning of a fresh session.
    assert len(more["sessions"]) == 2
    assert again.choices[0].finish_reason == "stop" or again.choices[0].message.tool_calls


async def test_results_that_are_sent_again_under_one_key_count_once() -> None:
    """S5: also where they go on with a run that waits."""
    script = ScriptedModel(answer(call("get_weather", city="Rome")), "It rains.", "Not again.")
    async with run_server(lambda: Agent(script.model)) as client:
        sdk = make_sdk(client)
        first = await sdk.chat.completions.create(model="default", messages=[user("Weather?")], tools=[WEATHER])
        [asked] = first.choices[0].message.tool_calls or []
        result: Any = {"role": "tool", "tool_call_id": asked.id, "content": "rain"}
        messages: Any = [user("Weather?"), first.choices[0].message.to_dict(), result]
        create: Any = sdk.chat.completions.create
        sent = {"messages": messages, "tools": [WEATHER], "extra_headers": {"Idempotency-Key": "key-1"}}
        found: list[Any] = [await create(model="default", **sent) for _ in range(2)]
    assert [one.choices[0].message.content for one in found] == ["It rains.", "It rains."]
    assert found[0].to_dict() == found[1].to_dict()
    assert script.asked == 2


async def test_a_request_that_is_sent_again_late_changes_nothing_for_the_calls_that_wait() -> None:
    """S5: it gets the completion that it got before, while the run waits for the results of later calls."""
    script = answer(call("get_weather", city="Oslo")), answer(call("get_weather", city="Rome")), "Both are fine."
    async with run_server(make_agent(*script, tools=[])) as client:
        messages: list[Any] = [user("Where is it warmer?")]

        async def complete(key: str, *more: Any) -> Frame:
            body = {"messages": [*messages, *more], "tools": [WEATHER]}
            status, found = await client.send("POST", "/v1/chat/completions", body, Idempotency_Key=key)
            assert status == 200, found
            return found["choices"][0]["message"]

        def give(message: Frame) -> list[Any]:
            return [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "20"}]

        first = await complete("1")
        second = await complete("2", *give(first))
        assert await complete("1") == first
        last = await complete("3", *give(first), *give(second))
    assert last["content"] == "Both are fine."


async def test_a_key_is_for_one_of_the_two_apis_and_never_empty() -> None:
    script = ScriptedModel("One.", "Two.")
    async with run_server(lambda: Agent(script.model)) as client:
        body = {"messages": [user("Go.")]}
        empty = [
            await client.send("POST", "/v1/chat/completions", body, Idempotency_Key=key) for key in ("", "x" * 201)
        ]
        await client.send("POST", "/v1/chat/completions", body, Idempotency_Key="key-1")
        await client.send("POST", "/v1/responses", {"input": "Else."}, Idempotency_Key="key-1")
    assert [status for status, _ in empty] == [400, 400]
    said = [[message.text for message in request.messages] for request, _ in script.requests]
    assert said == [["Go."], ["Else."]]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_question_is_a_conflict_with_words(stream: bool) -> None:
    async with run_server() as client:
        if stream:
            chunks = await read_chunks(client)
            assert check_chunks(chunks) is None
            assert chunks[-1]["error"]["code"] == "approval_required"
        else:
            sdk, key = make_sdk(client), {"Idempotency-Key": "k"}
            with pytest.raises(ConflictError, match="waits for an approval: deploy"):
                await sdk.chat.completions.create(model="default", messages=[user("Go.")], extra_headers=key)
            _, listed = await client.send("GET", "/sessions")
            [session] = listed["sessions"]
            _, shown = await client.send("GET", f"/sessions/{session['id']}")
            await client.act(session["id"], "approve", {"id": shown["approvals"][0]["approval_id"]})
            found = await sdk.chat.completions.create(model="default", messages=[user("Go.")], extra_headers=key)
            again = await sdk.chat.completions.create(model="default", messages=[user("Go.")], extra_headers=key)
            assert found.choices[0].message.content == again.choices[0].message.content == "Let me see. Done."
            assert found.id == again.id


async def test_a_failed_run_is_an_error_that_is_not_repeated() -> None:
    async with run_server(make_agent(error("authentication"))) as client:
        sdk = make_sdk(client)
        with pytest.raises(APIStatusError) as caught:
            await sdk.chat.completions.create(model="default", messages=[user("Go.")])
        stream = await sdk.chat.completions.create(model="default", messages=[user("Go.")], stream=True)
        with pytest.raises(APIError):
            async for _ in stream:
                pass
    assert caught.value.status_code == 502
    assert caught.value.response.headers["x-should-retry"] == "false"


async def test_finish_reasons_say_why_the_text_ends() -> None:
    script = (answer("Cut sh", stop_reason="length"),)
    async with run_server(make_agent(*script)) as client:
        found = await make_sdk(client).chat.completions.create(model="default", messages=[user("Go.")], max_tokens=3)
    assert found.choices[0].finish_reason == "length"


async def test_a_run_that_was_stopped_elsewhere_is_no_complete_answer() -> None:
    gate = Gate()
    async with run_server(
        make_agent(answer("Let me see. ", call("wait")), "Done.", tools=[gate.make_tool()])
    ) as client:
        sent = asyncio.create_task(client.send("POST", "/v1/chat/completions", {"messages": [user("Go.")]}))
        await gate.reached.wait()
        _, listed = await client.send("GET", "/sessions")
        await client.act(listed["sessions"][0]["id"], "abort")
        _, body = await sent
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["content"] == "Let me see. "


async def test_an_answer_that_was_tried_again_counts_once() -> None:
    async with run_server(make_agent(cut("Half an ", after=2), "Whole.")) as client:
        found = await make_sdk(client).chat.completions.create(model="default", messages=[user("Go.")])
    assert found.choices[0].message.content == "Whole."


async def test_a_client_that_leaves_stops_nothing() -> None:
    """S3."""
    gate = Gate()
    async with run_server(make_agent(answer("Before. ", call("wait")), "After.", tools=[gate.make_tool()])) as client:
        sdk = make_sdk(client)
        stream = await sdk.chat.completions.create(model="default", messages=[user("Go.")], stream=True)
        async for _ in stream:
            break
        await stream.close()
        await gate.reached.wait()
        _, listed = await client.send("GET", "/sessions")
        gate.opened.set()
        end = await client.find(listed["sessions"][0]["id"], "agent_end")
    assert end["end_reason"] == "done"


async def test_what_cannot_be_read_is_refused_with_words() -> None:
    async with run_server() as client:
        sdk = make_sdk(client)
        for messages in ([], [{"role": "odd", "content": "x"}], [user("")]):
            with pytest.raises(BadRequestError):
                await sdk.chat.completions.create(model="default", messages=messages)  # pyright: ignore[reportArgumentType]
        with pytest.raises(BadRequestError, match="one choice"):
            await sdk.chat.completions.create(model="default", messages=[user("Go.")], n=2)


async def test_its_javascript_client_plays_a_conversation() -> None:
    steps = [
        {"chat": {"model": "default", "messages": [user("Weather?")], "tools": [WEATHER]}},
        {"chat": {"model": "default", "messages": [user("Go.")]}},
    ]
    script = (answer("Let me ask. ", call("get_weather", city="Rome")), "It rains.")
    async with run_server(make_agent(*script)) as client:
        told = await judge("openai.mjs", client.url, client.token, json.dumps(steps))
    first, second = told["report"]
    assert first["failed"] is None, told
    assert first["final"]["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    assert first["types"][-1] == "tool_calls"
    assert second["types"][-1] == "stop"


@GRAMMAR
@given(plays())
async def test_every_stream_follows_the_grammar(play: Play) -> None:
    """Cut, error, abort, steer and questions at each place."""
    async with run_server(play.make_agent) as client:
        # The session that the key of the completion will name, made by another front, so that it can be watched.
        id = f"openai-chat-{hashlib.sha256(b'k').hexdigest()[:24]}"
        await start_thread(client, id)
        async with meddle(client, play, id):
            await check_play(client, play, id)


async def check_play(client: Client, play: Play, id: str) -> None:
    """Run a play to its end; each stream has its grammar."""
    headers = {"Authorization": f"Bearer {client.token}", "Idempotency-Key": "k"}
    body = {"stream": True, "messages": [user("Go.")]}
    for approved in [*play.answers, *([True] * 20)]:
        async with client.http.post(f"{client.url}/v1/chat/completions", json=body, headers=headers) as response:
            if response.status == 409:
                return  # a steering message was first
            assert response.status == 200, await response.text()
            lines = [line[6:] async for line in response.content if line.startswith(b"data: ")]
        assert lines[-1] == b"[DONE]\n"
        chunks = [json.loads(line) for line in lines[:-1]]
        if check_chunks(chunks) is not None or chunks[-1]["error"]["code"] != "approval_required":
            return
        _, session = await client.send("GET", f"/sessions/{id}")
        for question in session["approvals"]:
            await client.act(id, "approve" if approved else "deny", {"id": question["approval_id"]})
    raise AssertionError("the run asks without an end")


async def start_thread(client: Client, id: str) -> None:
    headers = {"Authorization": f"Bearer {client.token}"}
    body = {"threadId": id, "runId": "run-0"}
    async with client.http.post(f"{client.url}/agui", json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        await response.read()


async def test_a_format_that_cannot_be_promised_is_refused() -> None:
    """A silent ignore would let a client parse text as JSON."""
    format: Any = {"type": "json_object"}
    async with run_server(make_agent("One.")) as client:
        sdk = make_sdk(client)
        with pytest.raises(BadRequestError, match=r"^Error code: 400 .*response_format is"):
            await sdk.chat.completions.create(model="default", messages=[user("Go.")], response_format=format)
        text: Any = {"type": "text"}
        found = await sdk.chat.completions.create(model="default", messages=[user("Go.")], response_format=text)
        _, listed = await client.send("GET", "/sessions")
    assert found.choices[0].message.content == "One."
    assert len(listed["sessions"]) == 1


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
async def test_a_tool_choice_that_cannot_be_made_is_refused(choice: Any) -> None:
    async with run_server(make_agent("One.")) as client:
        with pytest.raises(BadRequestError, match="tool_choice is 'auto' or 'none' here"):
            await make_sdk(client).chat.completions.create(
                model="default", messages=[user("Go.")], tools=[WEATHER], tool_choice=choice
            )


async def test_with_the_tool_choice_none_the_tools_of_the_client_are_not_offered() -> None:
    offered: list[list[str]] = []

    def play(request: Any) -> Any:
        offered.append([tool.name for tool in request.tools])
        return "One."

    async with run_server(make_agent(play, play, tools=())) as client:
        sdk = make_sdk(client)
        for choice in ("none", "auto"):
            await sdk.chat.completions.create(
                model="default", messages=[user("Go.")], tools=[WEATHER], tool_choice=choice
            )
    assert offered == [[], ["get_weather"]]


@pytest.mark.parametrize("more", [{"approvals": "deny"}, {"metadata": {"approvals": "deny"}}])
async def test_questions_are_denied_at_once_for_a_client_that_says_so(more: Any) -> None:
    """Section 6: a prompt with approvals: deny has them denied at once."""
    async with run_server() as client:
        found = await make_sdk(client).chat.completions.create(model="default", messages=[user("Go.")], extra_body=more)
        _, listed = await client.send("GET", "/sessions")
        events = await client.collect(listed["sessions"][0]["id"])
    assert found.choices[0].message.content == "Let me see. Done."
    assert [event["result"]["is_error"] for _, event in events if event["type"] == "tool_execution_end"] == [True]


async def test_a_question_that_waits_is_visible_in_the_list() -> None:
    """Section 6: asked over HTTP, it waits, and shows as waiting, until it is answered."""
    async with run_server() as client:
        with pytest.raises(ConflictError):
            await make_sdk(client).chat.completions.create(model="default", messages=[user("Go.")])
        _, listed = await client.send("GET", "/sessions")
    assert [one["status"] for one in listed["sessions"]] == ["waiting"]
