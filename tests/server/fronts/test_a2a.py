"""A2A: its own clients understand every task, and each stream follows its grammar (server.md 5)."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskState,
)
from hypothesis import given
from tests.server.fronts.plays import GRAMMAR, Play, meddle, plays
from tests.server.judging import judge
from tests.server.kit import Client, Gate, make_agent, make_deployer, run_server

from steersman import Agent, tool
from steersman.server.fronts.a2a_telling import Telling
from steersman.testing import answer, call, cut, error, thinking

pytestmark = pytest.mark.real_time
Frame = dict[str, Any]
ENDS = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_INPUT_REQUIRED")
_numbers = count(1)


async def ask(client: Client, method: str, **params: Any) -> Frame:
    """The result of a call, or its error."""
    body = {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": params}
    status, answer = await client.send("POST", "/a2a", body, A2A_Version="1.0")
    assert (status, answer["id"]) == (200, body["id"])
    return answer


async def stream(client: Client, method: str, **params: Any) -> AsyncGenerator[Frame]:
    """The results of a call that streams."""
    body = {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": params}
    headers = {"Authorization": f"Bearer {client.token}", "A2A-Version": "1.0"}
    async with client.http.post(f"{client.url}/a2a", json=body, headers=headers) as response:
        if response.content_type == "application/json":
            yield await response.json()
            return
        async for line in response.content:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])["result"]


def say(text: str, **more: Any) -> Frame:
    """A message of the user."""
    return {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}], **more}


def check_frames(frames: list[Frame]) -> tuple[str, str]:
    """The grammar of one stream: the task, then updates, then one end; returns its state and the text."""
    assert [next(iter(frame)) for frame in frames].count("task") == 1
    task = frames[0]["task"]
    texts = {one["artifactId"]: one["parts"][0]["text"] for one in task["artifacts"]}
    state = task["status"]["state"]
    for frame in frames[1:]:
        assert state not in ENDS, "an update after the end"
        if "statusUpdate" in frame:
            state = frame["statusUpdate"]["status"]["state"]
        else:
            update = frame["artifactUpdate"]
            id, text = update["artifact"]["artifactId"], update["artifact"]["parts"][0]["text"]
            assert update["append"] == (id in texts and bool(texts[id])) or not update["append"]
            texts[id] = texts[id] + text if update["append"] else text
    assert state in ENDS
    return state, "".join(texts.values())


@asynccontextmanager
async def open_sdk(client: Client) -> AsyncGenerator[Any]:
    """The official client, from the agent card."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {client.token}"}) as http:
        card = await A2ACardResolver(http, client.url).get_agent_card()
        async with ClientFactory(ClientConfig(httpx_client=http)).create(card) as sdk:
            yield sdk


def make_request(text: str, **more: Any) -> SendMessageRequest:
    message = Message(message_id=f"m-{next(_numbers)}", role=Role.ROLE_USER, parts=[Part(text=text)], **more)
    return SendMessageRequest(message=message)


async def test_the_agent_card_needs_no_token() -> None:
    async with run_server() as client, client.http.get(f"{client.url}/.well-known/agent-card.json") as response:
        card = await response.json()
        status, _ = await client.send("POST", "/a2a", {}, Authorization="Bearer wrong")
    assert card["supportedInterfaces"][0] == {
        "url": f"{client.url}/a2a",
        "protocolBinding": "JSONRPC",
        "protocolVersion": "1.0",
    }
    assert status == 401


async def test_text_thinking_and_a_tool_are_updates_of_one_task() -> None:
    gate = Gate()
    gate.opened.set()

    @tool
    def look(at: str) -> str:
        """Look."""
        return "nothing"

    calls = (call("wait"), call("look", at="é\u2028"))
    script = (answer(thinking("Hm."), "Let me see. ", *calls), "Done.", "Again.")
    async with run_server(make_agent(*script, tools=[gate.make_tool(), look])) as client:
        frames = [frame async for frame in stream(client, "SendStreamingMessage", message=say("Go.", contextId="c-1"))]
        second = await ask(client, "SendMessage", message=say("More.", contextId="c-1"))
        listed = await ask(client, "ListTasks", contextId="c-1", includeArtifacts=True)
        other = await ask(client, "ListTasks", contextId="c-2")
    assert check_frames(frames) == ("TASK_STATE_COMPLETED", "Let me see. Done.")
    parts = [
        part
        for frame in frames[1:]
        for part in frame.get("statusUpdate", {}).get("status", {}).get("message", {}).get("parts", [])
    ]
    assert [part["metadata"]["kind"] for part in parts] == ["thinking", "tool", "tool"]
    told = {part["data"]["tool"]: part["data"]["arguments"] for part in parts[1:]}
    assert told == {"wait": {}, "look": {"at": "é\u2028"}}
    task = second["result"]["task"]
    assert (task["contextId"], task["artifacts"][0]["parts"]) == ("c-1", [{"text": "Again."}])
    assert [one["role"] for one in task["history"]] == ["ROLE_USER", "ROLE_AGENT"]
    assert [one["id"] for one in listed["result"]["tasks"]] == [task["id"], frames[0]["task"]["id"]]
    assert other["result"]["tasks"] == []


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"text": "yes"}, "deployed to live"),
        ({"text": "No."}, "Denied"),
        ({"data": {"approved": True}}, "deployed to live"),
        ({"data": {"approved": False}}, "Denied"),
    ],
)
async def test_a_question_waits_for_input(part: Frame, text: str) -> None:
    async with run_server() as client:
        first = (await ask(client, "SendMessage", message=say("Deploy.", contextId="c-1")))["result"]["task"]
        assert first["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert "deploy" in first["status"]["message"]["parts"][0]["text"]
        unclear = await ask(client, "SendMessage", message=say("Perhaps.", taskId=first["id"]))
        busy = await ask(client, "SendMessage", message=say("Else.", contextId="c-1"))
        message = {**say("", taskId=first["id"]), "parts": [part]}
        second = (await ask(client, "SendMessage", message=message))["result"]["task"]
        late = await ask(client, "SendMessage", message={**say("", taskId=first["id"]), "parts": [part]})
        events = await client.collect("c-1")
    assert unclear["error"]["code"] == -32602
    assert busy["error"]["code"] == late["error"]["code"] == -32004
    assert second["status"]["state"] == "TASK_STATE_COMPLETED"
    [result] = [event for _, event in events if event["type"] == "tool_execution_end"]
    assert text in result["result"]["content"][0]["text"]


async def test_a_yes_is_all_of_a_message() -> None:
    """docs/a2a.md: parts are joined by those who read them, as in `Say "yes", and it is done.`."""
    yes, no = {"data": {"approved": True}}, {"data": {"approved": False}}
    said = [
        [{"text": "Only if nobody has said "}, {"text": "yes"}],
        [{"text": "no"}, {"text": "yes"}],
        [yes, {"text": "No, wait."}],
        [yes, {"text": "no"}],
        [yes, no],
        [{"text": "yes"}, {"data": {"approved": "false"}}],
        [{"text": "yes"}, {"raw": "aGk=", "mediaType": "image/png"}],
        [{**yes, "data": {"approved": True, "approvalId": "a"}}, yes],
    ]
    other = [{"data": {"approved": True, "approvalId": 0}}]
    async with run_server() as client:
        task = (await ask(client, "SendMessage", message=say("Deploy.")))["result"]["task"]
        for parts in (*said, other):
            found = await ask(client, "SendMessage", message={**say("", taskId=task["id"]), "parts": parts})
            assert found["error"]["code"] == (-32004 if parts is other else -32602)
        shown = await ask(client, "GetTask", id=task["id"])
    assert shown["result"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


async def test_an_idempotency_key_that_looks_like_a_task_is_none() -> None:
    """docs/serve.md: a client may name its requests as it likes, and tasks are listed all the same."""
    async with run_server() as client:
        id = await client.create()
        key = f"task_1_{id}"
        await client.act(id, "abort", Idempotency_Key=key)
        task = (await ask(client, "SendMessage", message=say("Deploy.")))["result"]["task"]
        listed = await ask(client, "ListTasks")
        found = await ask(client, "GetTask", id=key)
    assert [each["id"] for each in listed["result"]["tasks"]] == [task["id"]]
    assert found["error"]["code"] == -32001


async def test_a_question_survives_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "sessions.db"
    async with run_server(store=store) as client:
        first = (await ask(client, "SendMessage", message=say("Deploy.", contextId="c-1")))["result"]["task"]
    async with run_server(make_agent("Done."), store=store) as client:
        found = (await ask(client, "GetTask", id=first["id"]))["result"]
        assert found["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        second = (await ask(client, "SendMessage", message=say("yes", taskId=first["id"])))["result"]["task"]
        listed = (await ask(client, "ListTasks"))["result"]
    assert second["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [task["id"] for task in listed["tasks"]] == [first["id"]]


async def test_a_subscriber_gets_the_task_first_and_then_what_follows() -> None:
    """a2a-dotnet#340, a2a-java#754: it neither hangs nor closes at once; a client that leaves stops nothing (S3)."""
    gate = Gate()
    async with run_server(make_agent(answer("Before. ", call("wait")), "After.", tools=[gate.make_tool()])) as client:
        id = ""
        async for frame in stream(client, "SendStreamingMessage", message=say("Go.")):
            id = frame["task"]["id"]
            break
        await gate.reached.wait()
        frames: list[Frame] = []
        async for frame in stream(client, "SubscribeToTask", id=id):
            frames.append(frame)
            gate.opened.set()
        [late] = [frame async for frame in stream(client, "SubscribeToTask", id=id)]
    assert check_frames(frames) == ("TASK_STATE_COMPLETED", "Before. After.")
    assert late["error"]["code"] == -32004


async def test_cancel_is_idempotent_and_keeps_the_text() -> None:
    """langgraph#5672: cancel loses no text that was seen."""
    gate = Gate()
    script = (answer("Before. ", call("wait")), "After.", "Done.")
    async with run_server(make_agent(*script, tools=[gate.make_tool()])) as client:
        message, configuration = say("Go."), {"returnImmediately": True}
        begun = (await ask(client, "SendMessage", message=message, configuration=configuration))["result"]["task"]
        await gate.reached.wait()
        first, second = [await ask(client, "CancelTask", id=begun["id"]) for _ in range(2)]
        gate.opened.set()
        done = (await ask(client, "SendMessage", message=say("Go.")))["result"]["task"]
        late = await ask(client, "CancelTask", id=done["id"])
    assert first["result"]["status"]["state"] == second["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert first["result"]["artifacts"][0]["parts"] == [{"text": "Before. "}]
    assert late["error"]["code"] == -32002


async def test_the_same_message_counts_once() -> None:
    """S5."""
    async with run_server(make_agent("One.", "Two.")) as client:
        message = say("Go.")
        first, again = [(await ask(client, "SendMessage", message=message))["result"]["task"] for _ in range(2)]
    assert first == again


async def test_an_answer_is_for_its_own_task_alone() -> None:
    """S7: a yes to a task that has ended must not approve what another one asks."""
    async with run_server(make_agent("One.", answer(call("deploy", target="live")), "Done.")) as client:
        old = (await ask(client, "SendMessage", message=say("First.", contextId="c")))["result"]["task"]
        new = (await ask(client, "SendMessage", message=say("Second.", contextId="c")))["result"]["task"]
        refused = await ask(client, "SendMessage", message=say("yes", taskId=old["id"]))
        elsewhere = await ask(client, "SendMessage", message=say("yes", taskId=new["id"], contextId="other"))
        shown = [(await ask(client, "GetTask", id=task["id"]))["result"] for task in (old, new)]
    assert refused["error"]["code"] == -32004
    assert elsewhere["error"]["code"] == -32602
    assert [task["status"]["state"] for task in shown] == ["TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED"]
    assert [one["parts"][0]["text"] for one in shown[0]["artifacts"]] == ["One."]


async def test_an_answer_that_is_sent_again_answers_no_other_question() -> None:
    """S5: sent twice, it counts once."""
    script = (answer(call("deploy", target="one")), answer(call("deploy", target="two")), "Done.")
    async with run_server(make_agent(*script)) as client:
        task = (await ask(client, "SendMessage", message=say("Go.", contextId="c")))["result"]["task"]
        yes = say("yes", taskId=task["id"], contextId="c")
        first = (await ask(client, "SendMessage", message=yes))["result"]["task"]
        again = (await ask(client, "SendMessage", message=yes))["result"]["task"]
    assert again["status"] == first["status"]
    assert again["status"]["message"]["parts"][1]["data"]["arguments"] == {"target": "two"}


@pytest.mark.parametrize("names_it", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
async def test_an_answer_is_for_the_question_that_was_shown(names_it: bool, restarts: bool, tmp_path: Path) -> None:
    """S7: where that was answered elsewhere, a yes approves no question that nobody has seen."""
    store, both = tmp_path / "sessions.db", answer(call("deploy", target="one"), call("deploy", target="two"))
    async with run_server(make_agent(both, "Done."), store=store) as client:
        task = (await ask(client, "SendMessage", message=say("Go.", contextId="c")))["result"]["task"]
        first = task["status"]["message"]["parts"][1]["data"]["approvalId"]
        part = {"data": {"approved": True, "approvalId": first}} if names_it else {"text": "yes"}
        yes = {**say("", taskId=task["id"]), "parts": [part]}
        assert (await client.send("POST", "/sessions/c/deny", {"id": first}))[0] == 202
        await client.find("c", "approval_resolved")
        if not restarts:
            await check_that_only_a_new_yes_counts(client, yes)
    if restarts:
        async with run_server(make_agent("Done."), store=store) as client:
            await check_that_only_a_new_yes_counts(client, yes)


async def check_that_only_a_new_yes_counts(client: Client, old: Frame) -> None:
    """Send the yes to the first question twice, and then one to the second, which was shown by then."""
    for _ in range(2):
        assert (await ask(client, "SendMessage", message=old))["error"]["code"] == -32004
    shown = (await ask(client, "GetTask", id=old["taskId"]))["result"]
    assert shown["status"]["message"]["parts"][1]["data"]["arguments"] == {"target": "two"}
    done = (await ask(client, "SendMessage", message=say("yes", taskId=old["taskId"])))["result"]["task"]
    events = await client.collect("c")
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    resolved = [event["decision"] for _, event in events if event["type"] == "approval_resolved"]
    assert resolved == ["denied", "approved"]


async def test_a_task_that_was_cut_stays_failed_when_another_one_follows(tmp_path: Path) -> None:
    """server.md 5: a task is a run; what a later one says is not its own."""
    gate, store = Gate(), tmp_path / "sessions.db"
    async with run_server(
        make_agent(answer("Working.", call("wait")), tools=[gate.make_tool()]), store=store
    ) as client:
        message = say("First.", contextId="c")
        body = {"message": message, "configuration": {"returnImmediately": True}}
        id = (await ask(client, "SendMessage", **body))["result"]["task"]["id"]
        await gate.reached.wait()
    script = ("Second answer.", answer(call("deploy", target="live")))
    async with run_server(make_agent(*script), store=store) as client:
        await ask(client, "SendMessage", message=say("Second.", contextId="c"))
        after_answer = (await ask(client, "GetTask", id=id))["result"]
        await ask(client, "SendMessage", message=say("Third.", contextId="c"))
        after_question = (await ask(client, "GetTask", id=id))["result"]
    for task in (after_answer, after_question):
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert [one["parts"][0]["text"] for one in task["artifacts"]] == ["Working."]


async def test_a_message_that_is_refused_is_no_task(tmp_path: Path) -> None:
    gate = Gate()
    agent = make_agent(answer("Hm.", call("wait")), "Done.", tools=[gate.make_tool()])
    async with run_server(agent, store=tmp_path / "sessions.db") as client:
        sent = [ask(client, "SendMessage", message=say(text, contextId="c")) for text in ("One.", "Two.", " ")]
        waiting = [asyncio.create_task(one) for one in sent]
        while sum(task.done() for task in waiting) < 2:
            await asyncio.wait([task for task in waiting if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        gate.opened.set()
        answers = [await task for task in waiting]
        listed = (await ask(client, "ListTasks", contextId="c"))["result"]["tasks"]
    assert sorted("result" in one for one in answers) == [False, False, True]
    assert [task["id"] for task in listed] == [one["result"]["task"]["id"] for one in answers if "result" in one]


async def test_a_message_for_a_task_that_is_about_to_end_is_refused() -> None:
    """It would start a run that is no task, and whose answer the client never sees."""
    reached, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def linger() -> str:
        """Take some time to stop."""
        try:
            reached.set()
            await asyncio.Event().wait()
        finally:
            await stopped.wait()
        return ""

    async with run_server(make_agent(call("linger"), "For nobody.", tools=[linger])) as client:
        sent = {"message": say("Begin.", contextId="c"), "configuration": {"returnImmediately": True}}
        task = (await ask(client, "SendMessage", **sent))["result"]["task"]
        await reached.wait()
        await client.act("c", "abort")
        steered = asyncio.create_task(ask(client, "SendMessage", message=say("Go on.", taskId=task["id"])))
        await client.send("GET", "/sessions/c")
        stopped.set()
        refused = await steered
        ended = await client.find("c", "agent_end")
        _, shown = await client.send("GET", "/sessions/c")
    assert refused["error"]["code"] == -32004
    assert (ended["end_reason"], shown["status"], shown["queued"]) == ("aborted", "idle", [])


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"{", -32700), (b"[]", -32600), (b'{"jsonrpc":"2.0","id":{},"method":"GetTask"}', -32600),
     (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}', -32602),
     (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x","historyLength":-1}}', -32602),
     (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"","parts":[]}}}', -32602)],
)  # fmt: skip
async def test_what_is_malformed_gets_an_error_of_json_rpc(body: bytes, code: int) -> None:
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    async with run_server() as client:
        headers["Authorization"] = f"Bearer {client.token}"
        async with client.http.post(f"{client.url}/a2a", data=body, headers=headers) as response:
            found = await response.json()
    assert found["error"]["code"] == code


async def test_a_page_of_tasks_opens_no_other_session(tmp_path: Path) -> None:
    """A list is bounded, and leaves sessions to other programs."""
    store = tmp_path / "sessions.db"
    async with run_server(make_agent("Fine.", "Fine."), store=store) as client:
        for name in ("c-1", "c-2", "c-3"):
            await ask(client, "SendMessage", message=say("Go.", contextId=name))
    made: list[str] = []

    def make() -> Agent:
        made.append("an agent")
        return make_agent("Fine.")()

    async with run_server(make, store=store) as client:
        first = (await ask(client, "ListTasks", pageSize=1))["result"]
        opened = len(made)
        second = (await ask(client, "ListTasks", pageSize=2, pageToken=first["nextPageToken"]))["result"]
        done = (await ask(client, "ListTasks", status="TASK_STATE_COMPLETED", pageSize=2))["result"]
        metrics = await (
            await client.http.get(f"{client.url}/metrics", headers={"Authorization": f"Bearer {client.token}"})
        ).text()
    assert opened == 1
    assert [task["contextId"] for page in (first, second) for task in page["tasks"]] == ["c-3", "c-2", "c-1"]
    assert (first["totalSize"], second["nextPageToken"], done["totalSize"], len(done["tasks"])) == (3, "", 3, 2)
    assert "steersman_sessions_open 0" in metrics


async def test_a_task_that_has_ended_is_in_the_log_alone() -> None:
    """Its updates would fill the memory of a server that has many tasks."""
    async with run_server(make_agent("Fine.")) as client:
        sent = [await ask(client, "SendMessage", message=say("Go.", contextId=f"many-{n}")) for n in range(3)]
        tasks = [one["result"] for one in sent]
        shown = (await ask(client, "GetTask", id=tasks[0]["task"]["id"]))["result"]
        told = [one for one in gc.get_objects() if isinstance(one, Telling) and one.frames]
    kept = [one for one in told if one.translator.describe()["contextId"].startswith("many-")]
    assert len(kept) <= 1, "only the last one may be about to end"
    assert shown == tasks[0]["task"]


async def test_a_failed_run_is_a_failed_task() -> None:
    async with run_server(make_agent(error("authentication"))) as client:
        task = (await ask(client, "SendMessage", message=say("Go.")))["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["parts"][0]["text"]


async def test_an_answer_that_was_tried_again_counts_once() -> None:
    async with run_server(make_agent(cut("Half an ", after=2), "Whole.")) as client:
        frames = [frame async for frame in stream(client, "SendStreamingMessage", message=say("Go."))]
    assert check_frames(frames) == ("TASK_STATE_COMPLETED", "Whole.")


async def test_errors_have_the_codes_of_the_protocol() -> None:
    def find_user(request: Any) -> str | None:
        return request.headers.get("X-User", "ann")

    async with run_server(make_agent("One."), authenticate=find_user) as client:
        task = (await ask(client, "SendMessage", message=say("Go.")))["result"]["task"]
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}
        _, other = await client.send("POST", "/a2a", body, X_User="bob", A2A_Version="1.0")
        codes = [
            (await ask(client, method, **params))["error"]["code"]
            for method, params in [
                ("GetTask", {"id": "task_1_../../etc"}),
                ("GetTask", {}),
                ("CreateTaskPushNotificationConfig", {}),
                ("Odd", {}),
                ("SendMessage", {"message": say("")}),
            ]
        ]
    assert other["error"]["code"] == -32001
    assert codes == [-32001, -32602, -32003, -32601, -32602]


async def test_its_own_client_plays_a_task() -> None:
    async with run_server(make_deployer) as client, open_sdk(client) as sdk:
        first = [event async for event in sdk.send_message(make_request("Deploy."))]
        id = first[0].task.id
        waiting = await sdk.get_task(GetTaskRequest(id=id))
        second = [event async for event in sdk.send_message(make_request("yes", task_id=id))]
        with pytest.raises(TaskNotCancelableError):
            await sdk.cancel_task(CancelTaskRequest(id=id))
        with pytest.raises(TaskNotFoundError):
            await sdk.get_task(GetTaskRequest(id="task_1_2"))
    assert first[-1].status_update.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert waiting.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert second[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_its_own_client_reads_every_character() -> None:
    text = "one\u2028two\u2029three\x85four"
    async with run_server(make_agent(text)) as client, open_sdk(client) as sdk:
        found = [event async for event in sdk.send_message(make_request("Go."))]
    told = [event.artifact_update.artifact.parts[0].text for event in found if event.HasField("artifact_update")]
    assert "".join(told) == text


async def test_its_javascript_client_plays_a_task() -> None:
    steps = [
        {"say": [{"text": "Deploy."}]},
        {"answer": [{"data": {"approved": True}}]},
        {"get": True},
        {"cancel": True},
    ]
    async with run_server(make_deployer) as client:
        told = await judge("a2a.mjs", client.url, client.token, json.dumps(steps))
    first, second, third, fourth = told["report"]
    assert [step["failed"] for step in (first, second, third)] == [None] * 3, told
    assert first["kinds"][0] == second["kinds"][0] == "task"
    assert (first["state"], second["state"]) == (6, 3), told
    assert third["artifacts"] == 2
    assert fourth["failed"]


@GRAMMAR
@given(plays())
async def test_every_stream_follows_the_grammar(play: Play) -> None:
    """Cut, error, abort, steer and questions at each place."""
    async with run_server(play.make_agent) as client, meddle(client, play, await client.create()) as context:
        message = say("Go.", contextId=context)
        frames = [frame async for frame in stream(client, "SendStreamingMessage", message=message)]
        for approved in [*play.answers, *([True] * 20)]:
            if "error" in frames[0]:
                return  # a steering message was first, or the task ended before its answer came
            state, _ = check_frames(frames)
            if state != "TASK_STATE_INPUT_REQUIRED":
                break
            message = {**say("", taskId=frames[0]["task"]["id"]), "parts": [{"data": {"approved": approved}}]}
            frames = [frame async for frame in stream(client, "SendStreamingMessage", message=message)]
        else:
            raise AssertionError("the run asks without an end")


@pytest.mark.parametrize("number", range(5))
async def test_what_was_said_before_a_question_is_told_before_it(tmp_path: Path, number: int) -> None:
    """Also if the question is open before the first event is told, as it often is with a store on a disk."""
    async with run_server(store=tmp_path / "sessions.db") as client:
        frames = [frame async for frame in stream(client, "SendStreamingMessage", message=say("Go."))]
    assert check_frames(frames) == ("TASK_STATE_INPUT_REQUIRED", "Let me see. ")


@pytest.mark.parametrize(
    ("method", "version", "code"),
    [
        ("ListTasks", "1.0", None),
        ("ListTasks", "1.0.1", None),
        ("ListTasks", "0.3", -32009),
        ("ListTasks", "2.0", -32009),
        ("ListTasks", "", -32009),
        ("message/send", "", -32009),
        ("Nothing", "1.0", -32601),
    ],
)
async def test_another_version_is_refused(method: str, version: str, code: int | None) -> None:
    """A2A 3.6.2: the header names the version; without it, it is 0.3, which is not spoken here."""
    async with run_server() as client:
        body: Frame = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
        headers = {"A2A_Version": version} if version else {}
        _, found = await client.send("POST", "/a2a", body, **headers)
        _, by_query = await client.send("POST", f"/a2a?A2A-Version={version}", body)
    assert found.get("error", {}).get("code") == code
    assert by_query.get("error", {}).get("code") == code


async def test_a_status_has_the_time_of_its_event() -> None:
    """The same live and from the log."""
    async with run_server(make_agent("Hello.")) as client:
        frames = [frame async for frame in stream(client, "SendStreamingMessage", message=say("Go."))]
        task = frames[0]["task"]
        end = await client.find(task["contextId"], "agent_end")
        shown = (await ask(client, "GetTask", id=task["id"]))["result"]
    told = frames[-1]["statusUpdate"]["status"]["timestamp"]
    assert told == shown["status"]["timestamp"]
    assert told.endswith("Z")
    assert abs(datetime.fromisoformat(told).timestamp() - end["timestamp"]) < 0.002
