"""AG-UI: its own client understands every run, and each stream follows its grammar (server.md 5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.rows import each_row
from tests.server.fronts.plays import GRAMMAR, Play, meddle, plays
from tests.server.judging import judge
from tests.server.kit import Client, Gate, deploy, make_agent, make_deployer, run_server

from steersman import Agent
from steersman.server.fronts.agui import Message, Translator
from steersman.server.fronts.agui_route import stream
from steersman.server.fronts.following import follow_events
from steersman.server.sessions import Sessions
from steersman.session import MemoryStore
from steersman.testing import ScriptedModel, answer, call, error, thinking
from steersman.types.messages import user_message

pytestmark = pytest.mark.real_time
Frame = dict[str, Any]
_numbers = count(1000)


async def read_frames(client: Client, body: dict[str, Any], status: int = 200) -> list[Frame]:
    """The frames of one request."""
    return [frame async for frame in stream_frames(client, body, status)]


async def stream_frames(client: Client, body: dict[str, Any], status: int = 200) -> AsyncGenerator[Frame]:
    headers = {"Authorization": f"Bearer {client.token}"}
    sent: dict[str, Any] = {"threadId": "thread-1", "messages": [], "tools": [], "context": [], **body}
    async with client.http.post(f"{client.url}/agui", json=sent, headers=headers) as response:
        assert response.status == status, await response.text()
        if status != 200:
            return
        async for line in response.content:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def name_run() -> str:
    """An id that no other run of the tests has."""
    return f"run-{next(_numbers)}"


def user(id: str, text: str) -> Frame:
    return {"id": id, "role": "user", "content": text}


def check_frames(frames: list[Frame]) -> None:
    """The grammar of one stream: one start, one end, and every span is closed once, inside."""
    assert frames[0]["type"] == "RUN_STARTED"
    assert [frame["type"] in ("RUN_FINISHED", "RUN_ERROR") for frame in frames] == [False] * (len(frames) - 1) + [True]
    opened: dict[tuple[str, str], bool] = {}
    for frame in frames:
        kind = frame["type"]
        for name, key in (
            ("TEXT_MESSAGE", "messageId"),
            ("REASONING_MESSAGE", "messageId"),
            ("TOOL_CALL", "toolCallId"),
        ):
            span = name, frame.get(key, "")
            if kind == f"{name}_START":
                assert span not in opened, f"{span} begins twice"
                opened[span] = True
            elif kind in (f"{name}_CONTENT", f"{name}_ARGS"):
                assert opened.get(span), f"{kind} outside of {span}"
                assert frame["delta"]
            elif kind == f"{name}_END":
                assert opened.get(span), f"{kind} without a beginning"
                opened[span] = False
    assert not any(opened.values()), "a span is still open at the end"


def join_text(frames: list[Frame]) -> str:
    return "".join(frame["delta"] for frame in frames if frame["type"] == "TEXT_MESSAGE_CONTENT")


async def test_text_thinking_and_a_tool_become_spans() -> None:
    script = (answer(thinking("Hm."), "Let me see. ", call("wait")), "Done.")
    gate = Gate()
    gate.opened.set()
    async with run_server(make_agent(*script, tools=[gate.make_tool()])) as client:
        frames = await read_frames(client, {"runId": "run-1", "messages": [user("m1", "Go.")]})
        events = await client.collect("thread-1")
    check_frames(frames)
    texts = [frame["delta"] for frame in frames if frame["type"] == "TEXT_MESSAGE_CONTENT"]
    assert "".join(texts) == "Let me see. Done."
    assert "".join(frame["delta"] for frame in frames if frame["type"] == "REASONING_MESSAGE_CONTENT") == "Hm."
    assert [frame["content"] for frame in frames if frame["type"] == "TOOL_CALL_RESULT"] == ["waited"]
    assert frames[-1]["outcome"] == {"type": "success"}
    assert next(event for _, event in events if event["type"] == "agent_start")["loop_id"] == "run-1"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"status": "resolved", "payload": {"approved": True}}, "deployed to live"),
        ({"status": "resolved", "payload": {"approved": False}}, "Denied"),
        ({"status": "cancelled"}, "Denied"),
        ({"status": "resolved"}, "Denied"),
    ],
)
async def test_a_question_is_an_interrupt_and_its_answer_goes_on(entry: Frame, text: str) -> None:
    """pydantic-ai#2889: a question is told as an interrupt; the run waits in the server."""
    async with run_server() as client:
        first = await read_frames(client, {"runId": "run-1", "messages": [user("m1", "Deploy.")]})
        [interrupt] = first[-1]["outcome"]["interrupts"]
        body = {"runId": "run-2", "resume": [{"interruptId": interrupt["id"], **entry}]}
        second = await read_frames(client, body)
        again = await read_frames(client, {**body, "runId": "run-3"})
    for frames in (first, second, again):
        check_frames(frames)
    assert first[-1]["outcome"]["type"] == "interrupt"
    assert interrupt["toolCallId"] == "call_1"
    [result] = [frame for frame in second if frame["type"] == "TOOL_CALL_RESULT"]
    assert text in result["content"]
    assert [frame["type"] for frame in again] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


async def test_a_run_that_has_told_its_end_is_not_told_again_while_hooks_follow_it() -> None:
    held = asyncio.Event()

    async def wait(*_: object) -> None:
        await held.wait()

    async with run_server(make_agent("One.", after_loop=wait)) as client:
        body = {"runId": "run-1", "messages": [user("m1", "First")]}
        await read_frames(client, body)
        again = asyncio.ensure_future(read_frames(client, {**body, "runId": "run-2"}))
        await asyncio.wait([again], timeout=0.2)
        held.set()
        types = [frame["type"] for frame in await again]
    assert types == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


async def test_only_what_is_new_at_the_end_of_the_history_counts() -> None:
    """agent-framework#8135: two authorities over the history double turns."""
    async with run_server(make_agent("One.", "Two.")) as client:
        await read_frames(client, {"runId": "run-1", "messages": [user("m1", "First")]})
        history = [user("m1", "First"), {"id": "a1", "role": "assistant", "content": "Something else entirely."}]
        await read_frames(client, {"runId": "run-2", "messages": [*history, user("m2", "Second")]})
        repeated = await read_frames(client, {"runId": "run-2", "messages": [*history, user("m2", "Second")]})
        _, tree = await client.send("GET", "/sessions/thread-1/tree")
    assert [node["title"] for node in tree] == ["First", "One.", "Second", "Two."]
    snapshot = next(frame for frame in repeated if frame["type"] == "MESSAGES_SNAPSHOT")
    assert [message["content"] for message in snapshot["messages"]] == ["First", "One.", "Second", "Two."]


async def test_a_failed_run_ends_with_one_error() -> None:
    """ag-ui#1892: exactly one end."""
    async with run_server(make_agent(error("authentication"))) as client:
        frames = await read_frames(client, {"runId": "run-1", "messages": [user("m1", "Go.")]})
    check_frames(frames)
    assert frames[-1]["type"] == "RUN_ERROR"
    assert frames[-1]["message"]


async def test_a_client_that_leaves_can_come_back_to_its_run() -> None:
    """S3: a closed tab stops nothing; another request for the same message follows the run."""
    gate = Gate()
    script = (answer("Before. ", call("wait")), "After.")
    async with run_server(make_agent(*script, tools=[gate.make_tool()])) as client:
        body = {"runId": "run-1", "messages": [user("m1", "Go.")]}
        async for frame in stream_frames(client, body):
            if frame["type"] == "TOOL_CALL_END":
                break
        await gate.reached.wait()
        busy = await read_frames(client, {"runId": "run-2", "messages": [user("m2", "Me too.")]}, status=409)
        seen: list[Frame] = []
        async for frame in stream_frames(client, body):
            seen.append(frame)
            gate.opened.set()
    assert busy == []
    check_frames(seen)
    texts = [frame["delta"] for frame in seen if frame["type"] == "TEXT_MESSAGE_CONTENT"]
    assert "".join(texts) == "Before. After."


async def test_a_message_whose_run_failed_is_not_said_again() -> None:
    """server.md 5: the log is the only truth. After a failure the client's messages are next to each other."""
    script = ScriptedModel(error("authentication"), "Fine.", "And more.")
    async with run_server(lambda: Agent(script.model)) as client:
        await read_frames(client, {"runId": name_run(), "messages": [user("m1", "First")]})
        shown = await read_frames(client, {"runId": name_run(), "messages": [user("m1", "First")]})
        known = shown[1]["messages"]
        await read_frames(client, {"runId": name_run(), "messages": known})
        await read_frames(client, {"runId": name_run(), "messages": [user("m1", "First"), user("m2", "Second")]})
        await read_frames(
            client, {"runId": name_run(), "messages": [*known, user("m2", "Second"), user("m3", "Third")]}
        )
    said = [[one.text for one in request.messages if one.role == "user"] for request, _ in script.requests]
    assert said == [["First"], ["First", "Second"], ["First", "Second", "Third"]]


async def test_a_snapshot_has_the_ids_that_the_client_knows() -> None:
    body = {"runId": name_run(), "messages": [user("m1", "Go.")]}
    async with run_server() as client:
        first = await read_frames(client, body)
        (asked,) = first[-1]["outcome"]["interrupts"]
        yes = {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}
        second = await read_frames(client, {**body, "runId": name_run(), "resume": [yes]})
        third = await read_frames(client, {**body, "runId": name_run()})
    told = [
        frame["messageId"] for frame in (*first, *second) if frame["type"] in ("TEXT_MESSAGE_START", "TOOL_CALL_RESULT")
    ]
    assert [one["id"] for one in second[1]["messages"]] == ["m1", told[0]]
    assert [one["id"] for one in third[1]["messages"]] == ["m1", *told]


async def test_a_snapshot_keeps_the_images_of_the_user() -> None:
    image = {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}}
    message = {"id": "m1", "role": "user", "content": [{"type": "text", "text": "See."}, image]}
    async with run_server(make_agent("Nice.")) as client:
        await read_frames(client, {"runId": name_run(), "messages": [message]})
        frames = await read_frames(client, {"runId": name_run(), "messages": [message]})
    assert frames[1]["messages"][0] == message


async def test_a_request_that_is_sent_again_hears_how_its_run_ended() -> None:
    body = {"runId": name_run(), "messages": [user("m1", "Go.")]}
    async with run_server(make_agent(error("authentication"))) as client:
        first = await read_frames(client, body)
        again = await read_frames(client, body)
    assert [frame["type"] for frame in again] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_ERROR"]
    assert again[-1] == first[-1]


async def test_a_run_that_was_cut_is_told_as_interrupted(tmp_path: Path) -> None:
    gate, body = Gate(), {"runId": name_run(), "messages": [user("m1", "Go.")]}
    script = answer("Let me see. ", call("wait"))
    async with run_server(make_agent(script, tools=[gate.make_tool()]), store=tmp_path / "sessions.db") as client:
        reading = asyncio.create_task(read_frames(client, body))
        await gate.reached.wait()
        reading.cancel()
        await asyncio.wait([reading])
    async with run_server(make_agent("Later."), store=tmp_path / "sessions.db") as client:
        again = await read_frames(client, body)
        check_frames(await read_frames(client, {"runId": name_run(), "messages": [user("m2", "Go on.")]}))
    assert [frame["type"] for frame in again] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_ERROR"]
    assert again[-1]["code"] == "interrupted"


async def test_a_client_that_comes_back_gets_each_message_once() -> None:
    """The snapshot ends where the run begins, and the rest is told."""
    gate = Gate()
    script = (answer("Let me see. ", call("wait")), "Done.")
    body = {"runId": name_run(), "messages": [user("m1", "Go.")]}
    async with run_server(make_agent(*script, tools=[gate.make_tool()])) as client:
        task = asyncio.create_task(read_frames(client, body))
        await gate.reached.wait()
        again = stream_frames(client, body)
        frames = [await anext(again) for _ in range(3)]
        gate.opened.set()
        frames += [frame async for frame in again]
        await task
    check_frames(frames)
    assert [one["content"] for one in frames[1]["messages"]] == ["Go."]
    assert join_text(frames) == "Let me see. Done."
    assert [frame["content"] for frame in frames if frame["type"] == "TOOL_CALL_RESULT"] == ["waited"]


def say_text(text: str) -> Frame:
    return {"role": "assistant", "stop_reason": "stop", "content": [{"type": "text", "text": text}]}


START: Frame = {"type": "message_start", "loop_id": "run", "message": {"role": "assistant"}}
PIECE: Frame = {
    "type": "message_update",
    "loop_id": "run",
    "delta": {"type": "text_delta", "content_index": 0, "delta": "Hel"},
}


@pytest.mark.parametrize(
    "events",
    [[], [START], [START, PIECE], [{"type": "snapshot", "loop_id": "run", "message": say_text("Hell")}],
     [START, PIECE, {"type": "snapshot", "loop_id": "run", "message": say_text("Hell")}]],
)  # fmt: skip
def test_a_reader_that_falls_behind_gets_the_whole_answer_once(events: list[Frame]) -> None:
    """S4: it gets joined pieces, then a snapshot; an answer that has ended meanwhile may come as its record alone."""
    translator = Translator("thread", "run")
    ended: Frame = {"type": "message_end", "loop_id": "run", "entry_id": "e1", "message": say_text("Hello.")}
    end: Frame = {"type": "agent_end", "end_reason": "done"}
    frames = [*translator.start(), *(frame for event in [*events, ended, end] for frame in translator.translate(event))]
    check_frames(frames)
    assert join_text(frames) == "Hello."
    assert len({frame["messageId"] for frame in frames if "messageId" in frame}) == 1


def say_call(**fields: Any) -> Frame:
    block = {"type": "tool_call", "id": "c1", "name": "look", **fields}
    return {"role": "assistant", "stop_reason": "tool_use", "content": [block]}


def tell_call(type: str, **fields: Any) -> Frame:
    return {"type": "message_update", "loop_id": "run", "delta": {"type": type, "content_index": 0, **fields}}


BEGUN = [START, tell_call("tool_call_start", id="c1", name="look")]
LAGGED: Frame = {
    "type": "snapshot",
    "loop_id": "run",
    "message": say_call(arguments={}, raw_arguments='{"at": "Os', complete=False),
}
REST = [tell_call("tool_call_delta", delta='lo"}'), tell_call("tool_call_end")]
CALLED: Frame = {
    "type": "message_end",
    "loop_id": "run",
    "entry_id": "e1",
    "message": say_call(arguments={"at": "Oslo"}),
}


@each_row(
    ("events", "is_broken"),
    [
        ([], False),
        (BEGUN, False),
        ([*BEGUN, tell_call("tool_call_delta", delta='{"at":"O')], False),
        ([*BEGUN, tell_call("tool_call_delta", delta='{"at": "O')], True),
        ([LAGGED, *REST], False),
        ([*BEGUN, tell_call("tool_call_delta", delta='{"a'), LAGGED, *REST], False),
        ([*BEGUN, tell_call("tool_call_delta", delta='{"a'), LAGGED], True),
        ([START, tell_call("tool_call_start", id="c0", name="void"), tell_call("tool_call_delta", delta="{")], False),
    ],
)
def test_a_reader_that_falls_behind_in_a_call_gets_its_arguments(events: list[Frame], is_broken: bool) -> None:
    """S4: what is missing is added, and where it cannot be, the messages are told anew."""
    translator = Translator("thread", "run")
    frames = [*translator.start(), *(frame for event in [*events, CALLED] for frame in translator.translate(event))]
    assert translator.is_broken == is_broken
    frames += translator.translate({"type": "agent_end", "end_reason": "done"})
    check_frames(frames)
    pieces = [f["delta"] for f in frames if f["type"] == "TOOL_CALL_ARGS" and f["toolCallId"] == "c1"]
    assert is_broken or json.loads("".join(pieces)) == {"at": "Oslo"}
    assert [f["toolCallId"] for f in frames if f["type"] == "TOOL_CALL_END"].count("c1") == 1


async def test_arguments_that_cannot_be_completed_are_told_with_the_messages() -> None:
    """S4: the client's messages are those of the log in the end, under the ids that it knows."""
    script = (answer("Let me see.", call("look", at="Oslo")), "Done.")
    sessions = Sessions(make_agent(*script), MemoryStore())
    try:
        live = await sessions.open_named(None, "thread-1")
        sent = [Message("m1", "user", "Go.")]
        act = partial(live.prompt, user_message("Go."), key="agui:m1", loop_id="run")
        events = [event async for event in follow_events(live, act)]
        records = [event for event in events if event[1]["type"] not in ("message_update", "started")]
        at = [event["message"]["role"] for _, event in records if event["type"] == "message_start"].index("assistant")
        start = [index for index, (_, event) in enumerate(records) if event["type"] == "message_start"][at] + 1

        async def lag() -> AsyncGenerator[tuple[str, Frame]]:
            """What a reader gets that falls out of the ring in the middle of the arguments."""
            for event in records[:start]:
                yield event
            for kind, fields in (
                ("tool_call_start", {"id": "call_1", "name": "look"}),
                ("tool_call_delta", {"delta": '{"at": "O'}),
            ):
                yield "", tell_call(kind, **fields, content_index=1)
            for event in records[start:]:
                yield event

        frames = [frame async for frame in stream(live, Translator("thread-1", "run"), lag(), None, sent)]
    finally:
        await sessions.close()
    check_frames(frames)
    [snapshot] = [frame for frame in frames if frame["type"] == "MESSAGES_SNAPSHOT"]
    answered = next(message for message in snapshot["messages"] if message["role"] == "assistant")
    assert snapshot["messages"][0]["id"] == "m1"
    assert json.loads(answered["toolCalls"][0]["function"]["arguments"]) == {"at": "Oslo"}
    assert answered["id"] == next(frame["messageId"] for frame in frames if frame["type"] == "TEXT_MESSAGE_START")


@pytest.mark.parametrize("content", ["", "  ", []])
async def test_an_empty_message_is_refused_before_the_stream_begins(content: Any) -> None:
    message = {"id": "m1", "role": "user", "content": content}
    async with run_server() as client:
        assert await read_frames(client, {"runId": name_run(), "messages": [message]}, 422) == []
        frames = await read_frames(client, {"runId": name_run(), "messages": [user("m2", "Go.")]})
    check_frames(frames)


async def test_the_same_request_twice_at_once_in_a_new_thread_is_one_run(tmp_path: Path) -> None:
    """S5, for a thread that neither request has found."""
    script = ScriptedModel("Fine.", "Not again.")
    body = {"runId": name_run(), "messages": [user("m1", "Go.")]}
    store = tmp_path / "sessions.db"
    async with run_server(lambda: Agent(script.model), store=store) as client, asyncio.TaskGroup() as group:
        reading = [group.create_task(read_frames(client, body)) for _ in range(3)]
    for task in reading:
        check_frames(task.result())
    assert script.asked == 1


async def test_answering_one_of_two_questions_tells_the_other_one() -> None:
    calls = answer(call("deploy", target="one"), call("deploy", target="two"))
    async with run_server(make_agent(calls, "Done.")) as client:
        first = await read_frames(client, {"runId": name_run(), "messages": [user("m1", "Go.")]})
        one, two = (entry["id"] for entry in first[-1]["outcome"]["interrupts"])
        yes = {"status": "resolved", "payload": {"approved": True}}
        second = await read_frames(client, {"runId": name_run(), "resume": [{"interruptId": one, **yes}]})
        third = await read_frames(client, {"runId": name_run(), "resume": [{"interruptId": two, **yes}]})
    assert [entry["id"] for entry in second[-1]["outcome"]["interrupts"]] == [two]
    assert third[-1]["outcome"] == {"type": "success"}


async def test_only_a_clear_yes_approves() -> None:
    async with run_server() as client:
        first = await read_frames(client, {"runId": name_run(), "messages": [user("m1", "Go.")]})
        (asked,) = first[-1]["outcome"]["interrupts"]
        entry = {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": 1}}
        frames = await read_frames(client, {"runId": name_run(), "resume": [entry]})
    (result,) = [frame["content"] for frame in frames if frame["type"] == "TOOL_CALL_RESULT"]
    assert result.startswith("Denied")


async def test_an_answer_to_a_question_never_asked_is_not_found() -> None:
    async with run_server() as client:
        body = {"runId": "r", "resume": [{"interruptId": "approval_x", "status": "resolved"}]}
        assert await read_frames(client, body, status=404) == []


async def test_its_own_client_plays_a_whole_thread() -> None:
    """The official client accepts every event of a run with a question, and its messages are those of the log."""
    async with run_server(make_deployer) as client:
        steps = [
            {"say": "Deploy."},
            {"resume": [{"status": "resolved", "payload": {"approved": True}}]},
            {"say": "Again."},
        ]
        told = await judge("agui.mjs", f"{client.url}/agui", client.token, json.dumps(steps))
    first, second, third = told["report"]
    assert [step["failed"] for step in told["report"]] == [None, None, None]
    assert first["interrupts"][0]["toolCallId"] == "call_1"
    assert second["types"][-1] == third["types"][-1] == "RUN_FINISHED"
    shown = [(message["role"], message.get("content")) for message in told["messages"]]
    assert ("tool", "deployed to live") in shown
    assert shown[-1] == ("assistant", "And again.")


async def test_its_own_client_keeps_the_order_of_the_conversation() -> None:
    """A snapshot names messages as the streams before it did; the client moves what it does not know to the end."""
    gate = Gate()
    gate.opened.set()
    script = (
        answer(thinking("Hm."), "First look. ", call("wait")),
        answer("Then ask. ", call("deploy", target="live")),
        answer(thinking("So."), "Done."),
    )
    steps = [{"say": "Go."}, {"resume": [{"status": "resolved", "payload": {"approved": True}}]}, {"connect": True}]
    async with run_server(make_agent(*script, tools=[gate.make_tool(), deploy])) as client:
        found = await judge("agui.mjs", f"{client.url}/agui", client.token, json.dumps(steps))
    assert [one["failed"] for one in found["report"]] == [None] * 3
    assert [(one["role"], one["content"]) for one in found["messages"]] == [
        ("user", "Go."),
        ("reasoning", "Hm."),
        ("assistant", "First look. "),
        ("tool", "waited"),
        ("assistant", "Then ask. "),
        ("tool", "deployed to live"),
        ("reasoning", "So."),
        ("assistant", "Done."),
    ]


async def test_its_own_client_hears_of_an_error_once() -> None:
    async with run_server(make_agent(error("authentication"), "Fine.")) as client:
        told = await judge("agui.mjs", f"{client.url}/agui", client.token, json.dumps([{"say": "Go."}, {"say": "On."}]))
    first, second = told["report"]
    assert first["types"].count("RUN_ERROR") == 1
    assert second["types"][-1] == "RUN_FINISHED"


@GRAMMAR
@given(plays())
async def test_every_stream_follows_the_grammar(play: Play) -> None:
    """Cut, error, abort, steer and questions at each place."""
    async with run_server(play.make_agent) as client:
        await read_frames(client, {"runId": "run-0"})
        async with meddle(client, play, "thread-1"):
            await check_play(client, play)


async def check_play(client: Client, play: Play) -> None:
    """Run a play to its end; each stream has its grammar."""
    frames = await read_frames_or_busy(client, {"runId": name_run(), "messages": [user("m1", "Go.")]})
    answers = [*play.answers, *([True] * 20)]
    for approved in answers:
        if frames is None:
            break
        check_frames(frames)
        outcome = frames[-1].get("outcome", {})
        if outcome.get("type") != "interrupt":
            break
        resume = [
            {"interruptId": one["id"], "status": "resolved", "payload": {"approved": approved}}
            for one in outcome["interrupts"]
        ]
        frames = await read_frames_or_busy(client, {"runId": name_run(), "resume": resume})
    else:
        raise AssertionError("the run asks without an end")


async def read_frames_or_busy(client: Client, body: dict[str, Any]) -> list[Frame] | None:
    """The frames; `None` if a steering message that came between two runs has started one of its own."""
    headers = {"Authorization": f"Bearer {client.token}"}
    sent: dict[str, Any] = {"threadId": "thread-1", "messages": [], "tools": [], "context": [], **body}
    async with client.http.post(f"{client.url}/agui", json=sent, headers=headers) as response:
        if response.status == 409:
            return None
        assert response.status == 200, await response.text()
        return [json.loads(line[6:]) async for line in response.content if line.startswith(b"data: ")]
