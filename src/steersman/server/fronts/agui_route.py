"""`POST /agui`: starts, answers or follows a run for a client of AG-UI, and streams it as server-sent events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import msgspec
from aiohttp import web

from steersman.context.entries import MessageEntry
from steersman.server.fronts.agui import (
    INTERRUPTED,
    Frame,
    Message,
    Resume,
    RunInput,
    Translator,
    describe_messages,
    find_new_message,
    name_answer,
)
from steersman.server.fronts.followed import FollowedSession, open_named
from steersman.server.fronts.following import Event, follow_events
from steersman.server.fronts.run_log import list_events
from steersman.server.fronts.sse import encode_data, keep_alive
from steersman.server.http.access import current_user
from steersman.server.http.bodies import check_part_count, read_body
from steersman.server.http.problems import Problem
from steersman.server.live import LiveSession
from steersman.server.log_events import read_line
from steersman.server.position import Position
from steersman.server.sessions import Sessions
from steersman.types.errors import AgentBusy
from steersman.types.wire import encode

_SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_STOPPED = "The server stopped. Send the same request again."
Thread: TypeAlias = LiveSession | FollowedSession
Events: TypeAlias = AsyncGenerator[tuple[str, Event]]


def add_routes(router: web.UrlDispatcher, sessions: Sessions) -> None:
    """Add the route of this front."""
    router.add_post("/agui", partial(respond, sessions))


async def respond(sessions: Sessions, request: web.Request) -> web.StreamResponse:
    """Follow the run that the request starts, answers or asks about."""
    body = await read_body(request, RunInput)
    check_part_count(body.count_parts())
    async with open_named(sessions, current_user.get(), body.thread_id) as live:
        frames = await live.start_alone(partial(plan, live, body, draining=sessions.draining))
        response = web.StreamResponse(headers=_SSE)
        await response.prepare(request)
        async with keep_alive(response):
            async for frame in frames:
                await response.write(b"data: " + encode_data(frame) + b"\n\n")
    return response


async def plan(live: Thread, body: RunInput, *, draining: bool) -> AsyncGenerator[Frame]:
    """Start, answer or find the run of a request; raises a problem before the stream begins."""
    translator = Translator(body.thread_id, body.run_id)
    await live.catch_up()
    if body.resume:
        entries = find_open_entries(live, body.resume)
        if not entries:
            return await follow(live, translator, body)
        known = await find_names(live, body.messages)
        messages = list_messages(live, known)
        for loop_id, count in known.answers.items():
            translator.skip_answers(loop_id, count)
        events = await begin(live, partial(answer, live, entries))
        answered = {entry.interrupt_id for entry in entries}
        left = [question for question in list_questions(live) if question["approval_id"] not in answered]
        return stream(live, translator, events, messages, body.messages, left)
    found = find_new_message(body.messages, make_is_known(live))
    if found is None:
        return await follow(live, translator, body)
    if draining:
        raise Problem(503, "The server is about to stop. Try again in a moment.", headers={"Retry-After": "5"})
    # A message that is heard elsewhere just now was sent before: its run is after what is shown here.
    after = live.hub.position if isinstance(live, FollowedSession) else None
    await live.settle()
    loop_id = body.run_id if body.run_id and live.hub.spans.find_start(body.run_id) is None else None
    act = partial(live.prompt, found[0], key=_make_key(found[1]), loop_id=loop_id)
    try:
        events = await begin(live, act, after)
    except AgentBusy as error:
        why = "A run is going on in this thread. Wait until it has ended, or answer its interrupt."
        raise Problem(409, why) from error
    return stream(live, translator, events, None, body.messages)


def make_is_known(live: Thread) -> Callable[[str], bool]:
    """Tells whether the log has a message: under the id that a client gave it, or its own, from MESSAGES_SNAPSHOT."""
    ids = {entry.id for entry in live.entries}
    return lambda id: id in ids or live.is_known(_make_key(id))


def _make_key(message_id: str) -> str:
    return f"agui:{message_id}"


async def begin(live: Thread, act: Callable[[], Awaitable[Any]], after: Position | None = None) -> Events:
    """The events after an act, which is done when this returns; raises what it raises."""
    events = follow_events(live, act, after)
    await anext(events)
    return events


async def follow(live: Thread, translator: Translator, body: RunInput) -> AsyncGenerator[Frame]:
    """Follow the run that goes on, from its beginning; without one, show the thread."""
    await live.settle()  # a run that has told its end is over for the client
    start, known = find_run_start(live), await find_names(live, body.messages)
    messages = list_messages(live, known)
    if start is None:
        return show_thread(live, translator, body.run_id, messages)
    await live.catch_up()
    told = {
        known.ids.get(event["entry_id"], event["entry_id"])
        for event in await list_events(live, start.record)
        if event["type"] == "message_end" and event["message"]["role"] != "user"
    }
    before = [message for message in messages if message["id"] not in told]
    return stream(live, translator, follow_events(live, None, start), before, body.messages)


def find_open_entries(live: Thread, entries: list[Resume]) -> list[Resume]:
    """The answers to open questions; a second answer is left out. Raises a problem for a question never asked."""
    known = {question["approval_id"] for question in list_questions(live)}
    for entry in entries:
        if entry.interrupt_id not in known and not live.was_resolved(entry.interrupt_id):
            raise Problem(404, f"There is no interrupt {entry.interrupt_id!r:.200}.")
    return [entry for entry in entries if entry.interrupt_id in known]


async def answer(live: Thread, entries: list[Resume]) -> None:
    """Answer questions; one that is answered already ignores a second answer."""
    for entry in entries:
        if entry.approves:
            await live.approve(entry.interrupt_id, by="ag-ui")
        else:
            await live.deny(entry.interrupt_id, by="ag-ui")


async def show_thread(
    live: Thread, translator: Translator, run_id: str, messages: Sequence[Frame]
) -> AsyncGenerator[Frame]:
    """The frames of a stream without a run: the conversation, and how the run ended if it is the last one."""
    for frame in translator.start():
        yield frame
    yield describe_messages(messages)
    questions, (record, last_id) = list_questions(live), live.hub.spans.find_last()
    if questions or last_id != run_id:
        frames = translator.finish_idle(questions)
    else:
        ends = [event for event in await list_events(live, record - 1) if event["type"] in ("agent_end", "cut")]
        frames = translator.translate(ends[-1]) if ends else translator.fail(INTERRUPTED, "interrupted")
    for frame in frames:
        yield frame


async def stream(
    live: Thread,
    translator: Translator,
    events: Events,
    messages: Sequence[Frame] | None,
    sent: Sequence[Message],
    questions: Sequence[Frame] = (),
) -> AsyncGenerator[Frame]:
    """The frames of one stream: exactly one RUN_FINISHED or RUN_ERROR, at its end. `questions` are still open.

    `sent` is the client's history, which it knows by ids of its own.
    """
    for frame in translator.start():
        yield frame
    if messages is not None:
        yield describe_messages(messages)
    async with aclosing(events):
        if questions:
            for frame in translator.interrupt(questions):
                yield frame
            return
        async for _, event in events:
            frames = translator.translate(event)
            frames += await mend(live, translator, event, sent)
            if event["type"] == "approval_requested":
                frames += await interrupt(live, translator, event)
            for frame in frames:
                yield frame
            if translator.ended:
                return
    stopped = live.hub.closed or live.is_busy
    for frame in translator.fail(*((_STOPPED, "stopped") if stopped else (INTERRUPTED, "interrupted"))):
        yield frame


async def mend(live: Thread, translator: Translator, event: Event, sent: Sequence[Message]) -> list[Frame]:
    """The conversation, after an answer of which something was told that cannot be completed."""
    if not translator.is_broken or event["type"] != "message_end":
        return []
    translator.is_broken = False
    return [describe_messages(list_messages(live, await find_names(live, sent)))]


async def interrupt(live: Thread, translator: Translator, event: Event) -> list[Frame]:
    """The interrupt for a question, unless it was answered: a run is followed from its beginning."""
    await live.catch_up()
    questions = list_questions(live)
    is_open = any(question["approval_id"] == event["approval_id"] for question in questions)
    return translator.interrupt(questions) if is_open else []


def find_run_start(live: Thread) -> Position | None:
    """The position before the run that goes on; `None` if there is none."""
    if live.loop_id is None:
        return None
    record = live.hub.spans.find_start(live.loop_id)
    return Position(live.hub.last_record) if record is None else Position(record - 1)


def list_questions(live: Thread) -> list[Frame]:
    """The open questions as plain values."""
    return [msgspec.json.decode(msgspec.json.encode(question)) for question in live.describe_questions()]


@dataclass(slots=True)
class Names:
    """The ids by which a client knows entries of the log, and how many answers each run has there."""

    ids: dict[str, str] = field(default_factory=dict[str, str])
    answers: Counter[str] = field(default_factory=Counter[str])


async def find_names(live: Thread, messages: Sequence[Message]) -> Names:
    """The ids of the client's own messages, and of answers that streams have told.

    Its client keeps what it knows in its place, so with other ids MESSAGES_SNAPSHOT would change the order.
    """
    given = {live.name_queued(_make_key(message.id)): message.id for message in messages if message.role == "user"}
    await live.catch_up()
    return await asyncio.to_thread(_read_names, live, given)


def _read_names(live: Thread, given: Mapping[str, str]) -> Names:
    names, after = Names(), 0
    while lines := live.hub.read_lines(after):
        after = lines[-1][0]
        for _, line in lines:
            if b'"message"' not in line:
                continue
            event = msgspec.json.decode(read_line(line, live.hub.spans))
            if event["type"] != "message_end":
                continue
            loop_id = event["loop_id"]
            if event["message"]["role"] == "assistant" and loop_id:
                names.answers[loop_id] += 1
                names.ids[event["entry_id"]] = name_answer(loop_id, names.answers[loop_id])
            elif event.get("queue_id") in given:
                names.ids[event["entry_id"]] = given[event["queue_id"]]
    return names


def list_messages(live: Thread, names: Names) -> list[Frame]:
    """The messages of the current branch, under the ids that a client knows."""
    return [
        {"id": names.ids.get(entry.id, entry.id), "message": msgspec.json.decode(encode(entry.message))}
        for entry in live.entries
        if isinstance(entry, MessageEntry)
    ]
