"""`POST /agui`: starts, answers or follows a run for a client of AG-UI, and streams it as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from steersman.context.entries import MessageEntry
from steersman.server.fronts.agui import (
    Frame,
    Resume,
    RunInput,
    Translator,
    describe_messages,
    find_new_message,
)
from steersman.server.fronts.following import follow_events
from steersman.server.http.access import current_user
from steersman.server.http.bodies import read_body
from steersman.server.http.problems import Problem
from steersman.server.live import LiveSession
from steersman.server.position import Position
from steersman.server.sessions import Sessions

_SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def add_routes(router: web.UrlDispatcher, sessions: Sessions) -> None:
    """Add the route of this front."""
    router.add_post("/agui", partial(respond, sessions))


async def respond(sessions: Sessions, request: web.Request) -> web.StreamResponse:
    """Follow the run that the request starts, answers or asks about."""
    body = await read_body(request, RunInput)
    live = await sessions.open_named(current_user.get(), body.thread_id)
    frames = await plan(live, body, draining=sessions.draining)
    response = web.StreamResponse(headers=_SSE)
    await response.prepare(request)
    async for frame in frames:
        await response.write(b"data: " + msgspec.json.encode(frame) + b"\n\n")
    return response


async def plan(live: LiveSession, body: RunInput, *, draining: bool) -> AsyncGenerator[Frame]:
    """Decide what the request is about; raises a problem before the stream begins."""
    translator = Translator(body.thread_id, body.run_id)
    if body.resume:
        open_entries = find_open_entries(live, body.resume)
        act = partial(answer, live, open_entries) if open_entries else None
        return stream(live, translator, act, snapshot=True)
    found = find_new_message(body.messages)
    key = None if found is None else f"agui:{found[1]}"
    if found is None or key is None or live.is_known(key):
        return stream(live, translator, None, snapshot=True)
    if draining:
        raise Problem(503, "The server is about to stop. Try again in a moment.", headers={"Retry-After": "5"})
    await live.settle()
    if live.is_busy:
        raise Problem(409, "A run is going on in this thread. Wait until it has ended, or answer its interrupt.")
    loop_id = body.run_id if live.hub.spans.find_start(body.run_id) is None else None
    return stream(live, translator, partial(live.prompt, found[0], key=key, loop_id=loop_id), snapshot=False)


def find_open_entries(live: LiveSession, entries: list[Resume]) -> list[Resume]:
    """The answers to open questions; a second answer is left out. Raises a problem for a question never asked."""
    known = {question["approval_id"] for question in list_questions(live)}
    for entry in entries:
        if entry.interrupt_id not in known and not live.was_resolved(entry.interrupt_id):
            raise Problem(404, f"There is no interrupt {entry.interrupt_id!r:.200}.")
    return [entry for entry in entries if entry.interrupt_id in known]


async def answer(live: LiveSession, entries: list[Resume]) -> None:
    """Answer questions; one that is answered already ignores a second answer."""
    for entry in entries:
        if entry.status == "resolved" and entry.payload in ({"approved": True}, True):
            await live.approve(entry.interrupt_id, by="ag-ui")
        else:
            await live.deny(entry.interrupt_id, by="ag-ui")


async def stream(
    live: LiveSession, translator: Translator, act: Callable[[], Awaitable[Any]] | None, *, snapshot: bool
) -> AsyncGenerator[Frame]:
    """The frames of one stream: exactly one RUN_FINISHED or RUN_ERROR, at its end."""
    for frame in translator.start():
        yield frame
    if snapshot:
        yield describe_messages(list_messages(live))
    start = find_run_start(live) if act is None else None
    if act is None and start is None:
        for frame in translator.finish_idle(list_questions(live)):
            yield frame
        return
    async for _, event in follow_events(live, act, start):
        frames = translator.translate(event)
        if event["type"] in ("approval_requested", "started") and (questions := list_questions(live)):
            frames += translator.interrupt(questions)
        for frame in frames:
            yield frame
        if translator.ended:
            return
    for frame in translator.fail("The server stopped. Send the same request again.", "stopped"):
        yield frame


def find_run_start(live: LiveSession) -> Position | None:
    """The position before the run that goes on; `None` if there is none."""
    run = live.agent.current_run
    if run is None or not live.is_busy:
        return None
    record = live.hub.spans.find_start(run.loop_id)
    return Position(live.hub.last_record) if record is None else Position(record - 1)


def list_questions(live: LiveSession) -> list[Frame]:
    """The open questions as plain values."""
    return [msgspec.json.decode(msgspec.json.encode(question)) for question in live.describe_questions()]


def list_messages(live: LiveSession) -> list[Frame]:
    """The messages of the current branch, with the ids of their entries."""
    entries = live.agent.context.log.entries
    return [
        {"entry_id": entry.id, "message": msgspec.to_builtins(entry.message)}
        for entry in entries
        if isinstance(entry, MessageEntry)
    ]
