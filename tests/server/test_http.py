"""The HTTP API over real sockets: sessions, prompts, receipts, questions, errors (server.md 3 and 6)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import ClientSession, web
from tests.server.kit import Client, Gate, check_order, make_agent, make_deployer, read_sse, run_server

from steersman import Approval
from steersman.server import Server
from steersman.session import SessionQueue, SqliteStore
from steersman.testing import answer, call, error

pytestmark = pytest.mark.real_time


async def test_a_prompt_runs_and_its_events_can_be_read_from_the_start() -> None:
    """S1, S3: the run belongs to the server; its records have whole numbers, and agent_end is one."""
    async with run_server(make_agent("Hello there.")) as client:
        id = await client.create()
        receipt = await client.act(id, "prompt", {"content": "Hi"})
        events = await client.collect(id)
    assert set(receipt) == {"id", "status"}
    check_order(events)
    types = [event["type"] for _, event in events]
    assert types[0] == "session"
    assert types[-1] == "agent_end"
    assert "." not in events[-1][0]
    answers = [event["message"] for _, event in events if event["type"] == "message_end"]
    assert [message["role"] for message in answers] == ["user", "assistant"]
    assert answers[1]["content"] == [{"type": "text", "text": "Hello there."}]
    texts = [event["delta"]["delta"] for _, event in events if event.get("delta", {}).get("type") == "text_delta"]
    assert "".join(texts) == "Hello there."


async def test_a_question_waits_until_it_is_answered() -> None:
    """S7: the question is visible as waiting, and an answer lets the run go on; a second answer changes nothing."""
    async with run_server() as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        question = await client.find(id, "approval_requested")
        _, shown = await client.send("GET", f"/sessions/{id}")
        _, listed = await client.send("GET", "/sessions")
        first = await client.act(id, "approve", {"id": question["approval_id"]})
        events = await client.collect(id)
        second = await client.act(id, "deny", {"id": question["approval_id"]})
        unknown, _ = await client.send("POST", f"/sessions/{id}/approve", {"id": "approval_x"})
    assert shown["status"] == listed["sessions"][0]["status"] == "waiting"
    assert [one["approval_id"] for one in shown["approvals"]] == [question["approval_id"]]
    assert (first["status"], second["status"], unknown) == ("accepted", "resolved", 404)
    results = [event for _, event in events if event["type"] == "tool_execution_end"]
    assert [event["result"]["content"][0]["text"] for event in results] == ["deployed to live"]


async def test_a_denial_reaches_the_model_with_its_reason() -> None:
    async with run_server() as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        question = await client.find(id, "approval_requested")
        await client.act(id, "deny", {"id": question["approval_id"], "reason": "not on a Friday"})
        events = await client.collect(id)
    result = next(event["result"] for _, event in events if event["type"] == "tool_execution_end")
    assert "not on a Friday" in result["content"][0]["text"]
    assert result["details"]["status"] == "denied"


async def test_questions_of_a_prompt_that_says_so_are_denied_at_once() -> None:
    """S8: a client that cannot answer is never waited for."""
    async with run_server() as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy.", "approvals": "deny"})
        events = await client.collect(id)
    resolved = next(event for _, event in events if event["type"] == "approval_resolved")
    assert resolved["decision"] == "denied"


async def test_a_question_without_an_answer_expires() -> None:
    async with run_server(approval_timeout=0.05) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        events = await client.collect(id)
    resolved = next(event for _, event in events if event["type"] == "approval_resolved")
    assert resolved["decision"] == "expired"


async def test_the_same_key_counts_once() -> None:
    """S5: sent twice it is one message, with one receipt."""
    async with run_server(make_agent("One.", "Two.")) as client:
        id = await client.create()
        first = await client.act(id, "prompt", {"content": "Hi"}, Idempotency_Key="k1")
        await client.collect(id)
        again = await client.act(id, "prompt", {"content": "Hi"}, Idempotency_Key="k1")
        other = await client.act(id, "prompt", {"content": "Hi"}, Idempotency_Key="k2")
        events = await client.collect(id, after=(await client.collect(id))[-1][0])
    assert first == again
    assert other["id"] != first["id"]
    answers = [event for _, event in events if event["type"] == "message_end"]
    assert [event["message"]["content"][0]["text"] for event in answers] == ["Hi", "Two."]


async def test_steering_and_follow_ups_reach_the_run() -> None:
    gate = Gate()
    agent = make_agent(answer(call("wait")), "First.", "Second.", tools=[gate.make_tool()])
    async with run_server(agent) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Go."})
        await gate.reached.wait()
        busy, _ = await client.send("POST", f"/sessions/{id}/prompt", {"content": "Me too."})
        await client.act(id, "steer", {"content": "Left.", "mode": "wait"})
        await client.act(id, "follow_up", {"content": "Later."})
        _, shown = await client.send("GET", f"/sessions/{id}")
        gate.opened.set()
        events = await client.collect(id)
    assert busy == 409
    assert shown["status"] == "running"
    assert [item["kind"] for item in shown["queued"]] == ["steering", "follow_up"]
    said = [
        event["message"]["content"][0]["text"]
        for _, event in events
        if event["type"] == "message_end" and event["message"]["role"] == "user"
    ]
    assert said == ["Go.", "Left.", "Later."]


async def test_a_steering_message_without_a_run_starts_one() -> None:
    async with run_server(make_agent("Yes.")) as client:
        id = await client.create()
        await client.act(id, "steer", {"content": "Are you there?"})
        events = await client.collect(id)
    assert events[-1][1]["end_reason"] == "done"


async def test_only_abort_stops_a_run() -> None:
    """S3: the watcher that leaves changes nothing."""
    gate = Gate()
    async with run_server(make_agent(answer(call("wait")), "Done.", tools=[gate.make_tool()])) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Go."})
        async with client.watch(id) as events:
            async for _, event in events:
                if event["type"] == "tool_execution_start":
                    break
        _, shown = await client.send("GET", f"/sessions/{id}")
        await client.act(id, "abort")
        end = await client.find(id, "agent_end")
    assert shown["status"] == "running"
    assert end["end_reason"] == "aborted"


async def test_a_failed_run_can_be_continued() -> None:
    script = (error("authentication"), "Now it works.")
    async with run_server(make_agent(*script)) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Hi"})
        failed = await client.collect(id)
        await client.act(id, "continue", Idempotency_Key="c")
        again = await client.collect(id, after=failed[-1][0])
        repeated = await client.act(id, "continue", Idempotency_Key="c")
        nothing, problem = await client.send("POST", f"/sessions/{id}/continue", {})
    assert failed[-1][1]["end_reason"] == "error"
    assert again[-1][1]["end_reason"] == "done"
    assert repeated["status"] == "accepted"
    assert (nothing, problem["status"]) == (422, 422)


async def test_branch_and_rerun_make_a_tree() -> None:
    async with run_server(make_agent("One.", "Two.", "Three.")) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Hi"})
        first = await client.collect(id)
        user = next(event for _, event in first if event["type"] == "message_end")
        await client.act(id, "rerun")
        second = await client.collect(id, after=first[-1][0])
        await client.act(id, "branch", {"at": user["entry_id"], "content": "Another way."})
        await client.collect(id, after=second[-1][0])
        _, tree = await client.send("GET", f"/sessions/{id}/tree")
    by_title = {node["title"]: node for node in tree}
    assert by_title["One."]["parent"] == by_title["Two."]["parent"] == by_title["Hi"]["id"]
    assert by_title["Three."]["parent"] == by_title["Another way."]["id"]
    assert [node["title"] for node in tree if node["current"]] == ["Three."]


async def test_sessions_are_listed_in_pages_newest_first() -> None:
    async with run_server(make_agent("Yes.")) as client:
        ids = [await client.create() for _ in range(5)]
        _, page = await client.send("GET", "/sessions?limit=2")
        found = [one["id"] for one in page["sessions"]]
        while page["next"] is not None:
            _, page = await client.send("GET", f"/sessions?limit=2&cursor={page['next']}")
            found += [one["id"] for one in page["sessions"]]
        wrong, _ = await client.send("GET", "/sessions?limit=0")
    assert sorted(found) == sorted(ids)
    assert len(found) == 5
    assert wrong == 400


async def test_a_deleted_session_does_not_exist() -> None:
    async with run_server(make_agent("Yes.")) as client:
        id = await client.create()
        assert await client.send("DELETE", f"/sessions/{id}") == (204, None)
        statuses = [
            (await client.send(method, path))[0]
            for method, path in (
                ("GET", f"/sessions/{id}"),
                ("DELETE", f"/sessions/{id}"),
                ("GET", f"/sessions/{id}/events"),
                ("GET", f"/sessions/{id}/tree"),
            )
        ]
    assert statuses == [404, 404, 404, 404]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"conten": "Hi"}, 422, "conten"),
        ({"content": ""}, 422, "some text"),
        ({"content": 3}, 422, "content"),
        ({"content": [{"type": "video"}]}, 422, "video"),
        ({"content": [{"type": "image", "data": "???", "mime_type": "image/png"}]}, 422, "base64"),
        ([], 422, "object"),
    ],
)
async def test_a_wrong_body_is_refused_with_words(body: Any, status: int, words: str) -> None:
    async with run_server(make_agent("Yes.")) as client:
        id = await client.create()
        found, problem = await client.send("POST", f"/sessions/{id}/prompt", body)
        _, shown = await client.send("GET", f"/sessions/{id}")
    assert found == status
    assert words in problem["detail"]
    assert shown["status"] == "idle"


async def test_a_session_is_idle_once_it_has_told_the_end_of_its_run() -> None:
    """S2: a client that has read `agent_end` must not be told that the run goes on, though hooks still follow it."""
    shown = asyncio.Event()

    async def wait_until_shown(*_: object) -> None:
        await shown.wait()

    async with run_server(make_agent("Yes.", after_loop=wait_until_shown)) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Hi"})
        await client.collect(id, "agent_end")
        _, session = await client.send("GET", f"/sessions/{id}")
        shown.set()
    assert session["status"] == "idle"


async def test_configure_changes_only_what_is_offered() -> None:
    """Section 6: model of those offered, thinking level, mode and limits; never base_url, keys, tools or paths."""
    async with run_server(make_agent("Yes."), models=["scripted:other"]) as client:
        id = await client.create()
        await client.act(id, "configure", {"thinking_level": "high", "limits": {"max_turns": 3}, "title": "Mine"})
        await client.act(id, "configure", {"model": "scripted:other"})
        _, shown = await client.send("GET", f"/sessions/{id}")
        wrong: list[dict[str, Any]] = [{"base_url": "http://x"}, {"api_key": "k"}, {"tools": []}, {"model": "openai:x"}]
        refused = [(await client.send("POST", f"/sessions/{id}/configure", body))[0] for body in wrong]
    assert (shown["thinking_level"], shown["title"], shown["model"]) == ("high", "Mine", "scripted:other")
    assert refused == [422, 422, 422, 422]


async def test_what_is_approved_for_one_session_is_not_for_another() -> None:
    ask = answer(call("deploy", target="live"))
    async with run_server(make_agent(ask, "Done.", ask, "Done.", approval=Approval())()) as client:
        one, two = await client.create(), await client.create()
        await client.act(one, "prompt", {"content": "Deploy."})
        question = await client.find(one, "approval_requested")
        await client.act(one, "approve", {"id": question["approval_id"], "remember": True})
        await client.collect(one)
        await client.act(two, "prompt", {"content": "Deploy."})
        asked = await client.find(two, "approval_requested")
        await client.act(two, "abort")
    assert asked["tool_name"] == "deploy"


async def test_openapi_describes_every_route() -> None:
    """Section 3: generated from the same table as the routes."""
    async with run_server(make_agent("Yes.")) as client:
        _, described = await client.send("GET", "/openapi.json")
        id = await client.create()
        for path, methods in described["paths"].items():
            for method in methods:
                if path.endswith(("/events", "/metrics")):
                    continue  # the first does not end, the second is no JSON
                status, body = await client.send(method.upper(), path.replace("{id}", id), [])
                if path.endswith("/artifacts/{name}"):
                    assert (status, body["detail"]) == (404, "No artifact named '{name}'. Artifacts here: none.")
                    continue
                assert status not in (404, 405, 500), (method, path)
                if method == "delete":
                    id = await client.create()
    assert described["paths"]["/healthz"]["get"]["security"] == []
    assert {"/metrics", "/openapi.json"} < set(described["paths"])
    prompt = described["paths"]["/sessions/{id}/prompt"]["post"]
    assert prompt["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Say"}


async def test_metrics_and_health_say_what_goes_on() -> None:
    async with run_server(make_agent("Yes.")) as client:
        await client.create()
        async with client.http.get(f"{client.url}/healthz") as response:
            health = await response.json()
        async with client.http.get(f"{client.url}/metrics") as response:
            closed = response.status
        async with client.http.get(
            f"{client.url}/metrics", headers={"Authorization": f"Bearer {client.token}"}
        ) as response:
            metrics = await response.text()
    assert health["status"] == "ok"
    assert closed == 401
    assert "steersman_sessions_open 1" in metrics.splitlines()


async def test_two_who_prompt_at_once_start_one_run() -> None:
    gate = Gate()
    agent = make_agent(answer(call("wait")), "Yes.", "No.", tools=[gate.make_tool()])
    async with run_server(agent) as client:
        id = await client.create()

        async def prompt() -> int:
            return (await client.send("POST", f"/sessions/{id}/prompt", {"content": "Hi"}))[0]

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(prompt()) for _ in range(2)]
        gate.opened.set()
        await client.collect(id)
    assert sorted(task.result() for task in tasks) == [202, 409]


async def test_a_session_is_made_once_for_a_key() -> None:
    """S5: a request that is sent again after a network failure makes no second session; lists name the agents."""
    async with run_server({"one": make_agent("Hi."), "two": make_agent("Ho.")}) as client:
        made = [await client.send("POST", "/sessions", {"agent": "two"}, Idempotency_Key=key) for key in "aab"]
        _, listed = await client.send("GET", "/sessions")
    assert [status for status, _ in made] == [201, 201, 201]
    assert made[0] == made[1] != made[2]
    assert len(listed["sessions"]) == 2
    assert listed["agents"] == ["one", "two"]


async def test_a_watcher_can_begin_with_the_last_records(caplog: pytest.LogCaptureFixture) -> None:
    """S1: `?last=` counts records from the end; a header says where the log ended when the watch began."""
    async with run_server(make_agent("Hello.", "Again.")) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Hi"})
        events = await client.collect(id)
        end = int(events[-1][0])
        positions: list[str] = []
        headers = {"Authorization": f"Bearer {client.token}"}
        async with client.http.get(f"{client.url}/sessions/{id}/events?last=3", headers=headers) as response:
            told = response.headers["Steersman-Position"]
            async for position, event in read_sse(response):
                positions.append(position)
                if event["type"] == "agent_end":
                    break
        wrong, _ = await client.send("GET", f"/sessions/{id}/events?last=x")
        await client.act(id, "prompt", {"content": "More"})
        await client.collect(id, after=events[-1][0])
    records = [position for position in positions if "." not in position]
    assert records == [str(end - 2), str(end - 1), str(end)]
    assert told.partition(".")[0] == str(end)
    assert wrong == 400
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(("action", "at"), [("branch", "nope"), ("branch", 99), ("rerun", "nope"), ("rerun", 99)])
async def test_an_entry_that_is_not_there_is_refused_with_words(action: str, at: str | int) -> None:
    async with run_server(make_agent("Yes.", "Again.")) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Hi"})
        await client.collect(id)
        body = {"at": at, "content": "x"} if action == "branch" else {"at": at}
        status, problem = await client.send("POST", f"/sessions/{id}/{action}", body)
    assert (status, str(at) in problem["detail"]) == (422, True)


@pytest.mark.parametrize("query", ["limit=0000000199999", "limit=" + "9" * 5000, "cursor=nan~a", "cursor=inf~a"])
async def test_a_number_of_a_list_is_within_its_bounds(query: str) -> None:
    async with run_server(make_agent("Yes.")) as client:
        await client.create()
        status, _ = await client.send("GET", f"/sessions?{query}")
    assert status == 400


async def test_while_the_server_stops_no_answer_starts_a_run(tmp_path: Path) -> None:
    """Section 6: draining is 503, also for the answer to a question that a restart has left open."""
    async with run_server(store=tmp_path / "s.db") as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        question = await client.find(id, "approval_requested")
    server = Server(make_agent("Done."), store=tmp_path / "s.db")
    runner = web.AppRunner(server.app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession() as http:
        client = Client(http, f"http://127.0.0.1:{runner.addresses[0][1]}", server.token)
        await server.sessions.drain(0)
        body = {"id": question["approval_id"]}
        answered, _ = await client.send("POST", f"/sessions/{id}/approve", body)
        _, shown = await client.send("GET", f"/sessions/{id}")
    await runner.cleanup()
    assert (answered, shown["status"]) == (503, "waiting")


async def test_another_process_speaks_to_a_session_of_the_server(tmp_path: Path) -> None:
    """durable.md U2: through the store, whether a run goes on or the session rests."""
    store = SqliteStore(tmp_path / "sessions.db")
    async with run_server(make_agent("One.", answer(call("deploy", target="live")), "Two."), store=store) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Hi"})
        seen = await client.collect(id)
        with SessionQueue(store, id) as queue:
            await asyncio.to_thread(queue.steer, "And now?")
            question = await client.find(id, "approval_requested", seen[-1][0])
            await asyncio.to_thread(queue.approve, question["approval_id"], by="ann")
            events = await client.collect(id, after=seen[-1][0])
    ended = [event["message"]["content"][0].get("text") for _, event in events if event["type"] == "message_end"]
    assert (ended[0], ended[-1]) == ("And now?", "Two.")
    assert [event["by"] for _, event in events if event["type"] == "approval_resolved"] == ["ann"]


async def test_every_event_is_one_line_however_a_client_splits_lines() -> None:
    """Section 3: some clients split at the line separators of Unicode, as `str.splitlines` does."""
    words = "one\u2028two\u2029three\x85four"
    async with run_server(make_agent(words)) as client, httpx.AsyncClient() as http:
        id = await client.create()
        await client.act(id, "prompt", {"content": words})
        headers = {"Authorization": f"Bearer {client.token}"}
        async with http.stream("GET", f"{client.url}/sessions/{id}/events", headers=headers) as response:
            async for line in response.aiter_lines():
                assert line.partition(": ")[0] in ("", "id", "data")
                event: dict[str, Any] = json.loads(line[6:]) if line.startswith("data: ") else {"type": ""}
                if event["type"] == "message_end":
                    assert event["message"]["content"] == [{"type": "text", "text": words}]
                if event["type"] == "agent_end":
                    break


async def test_an_application_that_stops_does_not_wait_for_watchers() -> None:
    """S3: embedded in another program, the server ends the streams of events, and aiohttp waits for none of them."""
    server = Server(make_deployer)
    runner = web.AppRunner(server.app, shutdown_timeout=60)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession() as http, asyncio.timeout(10):
        client = Client(http, f"http://127.0.0.1:{runner.addresses[0][1]}", server.token)
        id = await client.create()
        async with client.watch(id) as events:
            await anext(events)
            await runner.cleanup()
            assert [event["type"] async for _, event in events] == ["served"]
