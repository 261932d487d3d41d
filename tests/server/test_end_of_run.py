"""What is sent while a run ends, after an abort or over a restart is neither lost nor done twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.server.kit import Client, Gate, deploy, make_agent, run_server

from steersman import Agent, tool
from steersman.server import Server, serve
from steersman.testing import ScriptedModel, answer, call, error

pytestmark = pytest.mark.real_time


class Hold:
    """Holds a run at a hook until it is opened; hooks come to it once `armed` is set."""

    def __init__(self) -> None:
        self.armed = True
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def wait(self, *_: Any) -> None:
        """The hook."""
        if self.armed:
            self.reached.set()
            await self.opened.wait()

    def open(self) -> None:
        """Let this run and all later ones pass."""
        self.armed = False
        self.opened.set()


async def read_texts(client: Client, id: str) -> list[str]:
    """The beginnings of all messages of the session."""
    _, tree = await client.send("GET", f"/sessions/{id}/tree")
    return [node["title"] for node in tree]


async def wait_for_answer(client: Client, id: str, text: str) -> None:
    """Return once the model has given this answer."""
    async with client.watch(id) as events:
        async for _, event in events:
            if event["type"] == "message_end" and _get_text(event["message"]) == text:
                return


def _get_text(message: Any) -> str:
    return "".join(block.get("text", "") for block in message["content"])


def make_echo(**options: Any) -> Callable[[], Agent]:
    """Agents that fail for "fail" and repeat anything else."""

    async def play(request: Any) -> Any:
        text = request.messages[-1].text
        return error("invalid_request") if text == "fail" else answer(f"Re: {text}")

    return lambda: Agent(ScriptedModel(play, repeat_last=True).model, **options)


@pytest.mark.parametrize("action", ["steer", "follow_up"])
async def test_a_message_after_the_end_of_a_failed_run_starts_the_next_one(action: str) -> None:
    """Section 3: a run that has told its end takes no more messages, so the message must not wait for another one."""
    hold = Hold()
    async with run_server(make_echo(after_loop=hold.wait)) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "fail"})
        await hold.reached.wait()
        await client.act(id, action, {"content": "go on"})
        hold.open()
        await wait_for_answer(client, id, "Re: go on")


@pytest.mark.parametrize("action", ["steer", "follow_up", "prompt"])
async def test_a_message_right_after_abort_starts_the_next_run(action: str) -> None:
    """S3: abort stops the run, and not what is said after it; the run may still be busy with its end."""
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

    made = make_agent(answer("Let me. ", call("linger")), "Re: go on", tools=[linger])
    async with run_server(made) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "work"})
        await reached.wait()
        await client.act(id, "abort")
        sent = asyncio.ensure_future(client.act(id, action, {"content": "go on"}))
        await client.send("GET", f"/sessions/{id}")
        stopped.set()
        await sent
        await wait_for_answer(client, id, "Re: go on")


async def test_a_follow_up_without_a_run_starts_one() -> None:
    """Section 3: also as the first message of a session, and after an answer."""
    async with run_server(make_echo()) as client:
        id = await client.create()
        for text in ("first", "second"):
            await client.act(id, "follow_up", {"content": text})
            await wait_for_answer(client, id, f"Re: {text}")
        assert await read_texts(client, id) == ["first", "Re: first", "second", "Re: second"]


@pytest.mark.parametrize("action", ["steer", "follow_up"])
@pytest.mark.parametrize("approve", [None, "wait"])
async def test_a_message_that_starts_a_run_says_what_becomes_of_questions(action: str, approve: Any) -> None:
    """Section 6: `"approvals": "deny"` counts for every message that starts a run, however the agent is made."""
    script = answer("See. ", call("deploy", target="live")), "Done."
    async with run_server(make_agent(*script, approve=approve)) as client:
        id = await client.create()
        await client.act(id, action, {"content": "Deploy.", "approvals": "deny"})
        events = await client.collect(id)
    results = [event["result"]["details"]["status"] for _, event in events if event["type"] == "tool_execution_end"]
    assert results == ["denied"]


@pytest.mark.parametrize("order", [("deny", "wait"), ("wait", "deny")])
async def test_one_message_is_enough_to_have_the_questions_of_the_next_run_denied(order: tuple[str, str]) -> None:
    """Section 6: of several messages that start a run together, also if another one would wait for its questions."""
    hold = Hold()
    made = make_agent("One.", answer("See. ", call("deploy", target="live")), "Done.", after_loop=hold.wait)
    async with run_server(made) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Begin."})
        await hold.reached.wait()
        for approvals in order:
            await client.act(id, "follow_up", {"content": "Deploy.", "approvals": approvals})
        hold.open()
        resolved = await client.find(id, "approval_resolved")
    assert (resolved["decision"], resolved["by"]) == ("denied", "loop")


async def test_a_message_that_waited_has_the_questions_of_the_run_denied_that_hears_it() -> None:
    """Section 6: it came during a run that was aborted, and starts the next one together with another message."""
    gate = Gate()
    script = answer(call("wait")), answer("See. ", call("deploy", target="live")), "Done."
    async with run_server(make_agent(*script, tools=[gate.make_tool(), deploy])) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Begin."})
        await gate.reached.wait()
        await client.act(id, "follow_up", {"content": "Deploy.", "approvals": "deny"})
        await client.act(id, "abort")
        await client.find(id, "agent_end")
        await client.act(id, "prompt", {"content": "Go on."})
        resolved = await client.find(id, "approval_resolved")
    assert (resolved["decision"], resolved["by"]) == ("denied", "loop")


@pytest.mark.parametrize(
    ("body", "options", "decision"),
    [({"approvals": "deny"}, {}, "denied"), ({}, {"approval_timeout": 0.05}, "expired")],
)
async def test_no_sub_agent_has_questions_wait_for_longer_than_the_server(
    body: dict[str, str], options: Any, decision: str
) -> None:
    """Section 6: also one that was made to wait for answers, and alone asks."""
    helper = make_agent(call("deploy", target="live"), "Done.", approve="wait")()
    script = call("helper", prompt="Deploy."), "I see."
    async with run_server(make_agent(*script, tools=[helper.as_tool("helper", "Helps.")]), **options) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy.", **body})
        events = await client.collect(id)
    assert [event["decision"] for _, event in events if event["type"] == "approval_resolved"] == [decision]


async def test_a_prompt_that_is_sent_twice_while_a_run_ends_counts_once() -> None:
    """S5: both get the same receipt, and neither is refused because the other one has started a run."""
    hold = Hold()
    async with run_server(make_echo(after_loop=hold.wait)) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "first"})
        await hold.reached.wait()
        async with asyncio.TaskGroup() as group:
            body = {"content": "again"}
            sent = [group.create_task(client.act(id, "prompt", body, Idempotency_Key="k")) for _ in range(3)]
            await client.send("GET", f"/sessions/{id}")
            hold.open()
        first, *others = [task.result() for task in sent]
        await wait_for_answer(client, id, "Re: again")
        assert others == [first, first]
        assert await read_texts(client, id) == ["first", "Re: first", "again", "Re: again"]


@pytest.mark.parametrize(("action", "body"), [("rerun", {}), ("branch", {"at": 0, "content": "other"})])
async def test_what_starts_a_run_waits_for_one_that_has_told_its_end(action: str, body: Any) -> None:
    """Section 6: 409 is for a run that goes on, and `agent_end` says that it does not."""
    hold = Hold()
    async with run_server(make_echo(after_loop=hold.wait)) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "first"})
        await client.collect(id)
        await hold.reached.wait()
        sent = asyncio.ensure_future(client.act(id, action, body))
        await client.send("GET", f"/sessions/{id}")
        hold.open()
        receipt = await sent
    assert receipt["status"] == "accepted"


async def test_the_same_key_gives_the_same_receipt_for_everything_that_acts(tmp_path: Path) -> None:
    """S5 and section 6: also for abort, deny and configure, and after a restart."""
    receipts: list[Any] = []
    for _ in range(2):
        made = make_agent(answer("See. ", call("deploy", target="live")), "Done.")
        async with run_server(made, store=tmp_path / "s.db") as client:
            _, session = await client.send("POST", "/sessions", Idempotency_Key="s")
            id = session["id"]
            if not receipts:
                await client.act(id, "prompt", {"content": "Deploy."})
            question = await client.find(id, "approval_requested")
            for action, body in (
                ("deny", {"id": question["approval_id"]}),
                ("abort", {}),
                ("configure", {"title": "Mine"}),
            ):
                receipts.append(await client.act(id, action, body, Idempotency_Key=action))
                receipts.append(await client.act(id, action, body, Idempotency_Key=action))
    assert receipts[:6] == receipts[6:]
    assert receipts[::2] == receipts[1::2]


async def test_an_abort_that_is_sent_twice_stops_one_run() -> None:
    """S5: it counts once, so a repeated request does not stop the next run."""
    gate = Gate()
    made = make_agent(answer("Wait. ", call("wait")), answer("Wait. ", call("wait")), "Done.", tools=[gate.make_tool()])
    async with run_server(made) as client:
        id = await client.create()
        for reason in ("aborted", "done"):
            gate.reached.clear()
            await client.act(id, "prompt", {"content": "Wait."})
            await gate.reached.wait()
            await client.act(id, "abort", Idempotency_Key="stop")
            if reason == "done":
                gate.opened.set()
        first = await client.find(id, "agent_end")
        second = await client.find(id, "agent_end", str(first["seq"]))
    assert [first["end_reason"], second["end_reason"]] == ["aborted", "done"]


async def test_all_answers_to_an_old_question_are_taken_after_a_restart(tmp_path: Path) -> None:
    """S7: the run asks again a little later, so answers that come before it are kept; a second one is ignored."""
    script = (answer("See. ", call("deploy", target="a"), call("deploy", target="b")), "Done.")
    async with run_server(make_agent(*script, tools=[deploy]), store=tmp_path / "s.db") as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        questions = [await client.find(id, "approval_requested")]
        questions.append(await client.find(id, "approval_requested", str(questions[0]["seq"])))
    asked = [question["approval_id"] for question in questions]
    async with run_server(make_agent("Done.", tools=[deploy]), store=tmp_path / "s.db") as client:
        async with asyncio.TaskGroup() as group:
            sent = [group.create_task(client.act(id, "approve", {"id": one})) for one in [*asked, *asked]]
        events = await client.collect(id, after=str(questions[-1]["seq"]))
    assert [task.result()["id"] for task in sent] == [*asked, *asked]
    assert [event["is_error"] for _, event in events if event["type"] == "tool_execution_end"] == [False, False]
    # They were sent at once, so either question may be answered first.
    resolved = [event["approval_id"] for _, event in events if event["type"] == "approval_resolved"]
    assert sorted(resolved) == sorted(asked)


@pytest.mark.parametrize("action", ["prompt", "follow_up"])
async def test_a_message_that_no_run_had_before_a_restart_is_answered_by_continue(tmp_path: Path, action: str) -> None:
    """Section 6: the receipt says that it is saved; `queued` shows it, and `continue` goes on with it."""
    hold = Hold()
    async with run_server(make_echo(before_loop=hold.wait), store=tmp_path / "s.db") as client:
        id = await client.create()
        await client.act(id, action, {"content": "early"})
        await hold.reached.wait()
    async with run_server(make_echo(), store=tmp_path / "s.db") as client:
        _, shown = await client.send("GET", f"/sessions/{id}")
        await client.act(id, "continue")
        await wait_for_answer(client, id, "Re: early")
        assert await read_texts(client, id) == ["early", "Re: early"]
    assert [(one["kind"], one["message"]["content"][0]["text"]) for one in shown["queued"]] == [
        ("steering" if action == "prompt" else "follow_up", "early")
    ]


async def test_a_second_signal_cuts_runs_at_once() -> None:
    """Section 3: SIGTERM gives runs their grace; a second one says not to wait for it."""
    listening: asyncio.Future[tuple[Server, str]] = asyncio.get_running_loop().create_future()
    made = make_agent(answer("See. ", call("deploy", target="live")), "Done.")
    serving = asyncio.ensure_future(
        serve(made, port=0, grace=3600, started=lambda server, url: listening.set_result((server, url)))
    )
    server, url = await listening
    async with ClientSession() as http:
        client = Client(http, url.partition("/?")[0], server.token)
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        await client.find(id, "approval_requested")
        signal.raise_signal(signal.SIGTERM)
        refused = 0
        while refused != 503:
            refused, _ = await client.send("POST", "/sessions")
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await serving
