"""The routes of the Responses API: start, follow, read and cancel a response.

The run belongs to the server. A response is told by a task of its own, and any number of streams read what it tells.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aiohttp import web

from steersman.context.entries import MessageEntry
from steersman.server.fronts.agui_route import list_questions
from steersman.server.fronts.following import Event, follow_events
from steersman.server.fronts.openai.client_tools import find_client_tools, list_names
from steersman.server.fronts.openai.errors import describe_questions, make_question_problem
from steersman.server.fronts.openai.formats import ValueOnly, read_schema
from steersman.server.fronts.openai.inputs import Input, read_items
from steersman.server.fronts.openai.requests import (
    ResponseBody,
    check_outputs,
    choose_agent,
    make_token,
    open_fresh,
    read_time,
)
from steersman.server.fronts.openai.responses import STOPPED, Frame, Translator
from steersman.server.fronts.openai.runs import SSE, begin_run, give_outputs, plan_run
from steersman.server.fronts.openai.told import Shelf, Told
from steersman.server.fronts.run_log import list_events
from steersman.server.http.access import current_user
from steersman.server.http.api import reply
from steersman.server.http.bodies import read_body
from steersman.server.http.problems import Problem
from steersman.server.live import LiveSession
from steersman.server.position import Position
from steersman.server.sessions import Sessions
from steersman.session.stores.store import SessionNotFound


def add_routes(router: web.UrlDispatcher, sessions: Sessions) -> None:
    """Add the routes of this front."""
    front = ResponsesFront(sessions)
    router.add_post("/v1/responses", front.create)
    router.add_get("/v1/responses/{id}", front.show)
    router.add_post("/v1/responses/{id}/cancel", front.cancel)
    router.add_get("/v1/models", partial(show_models, sessions))
    router.add_get("/v1/models/{id}", partial(show_model, sessions))


async def show_models(sessions: Sessions, _: web.Request) -> web.Response:
    """The agents, which are the models of this server."""
    return reply({"object": "list", "data": [_describe_model(name) for name in sessions.agents]})


async def show_model(sessions: Sessions, request: web.Request) -> web.Response:
    """One agent."""
    name = request.match_info["id"]
    if name not in sessions.agents:
        raise Problem(404, f"There is no model {name!r:.200}. Models here: {', '.join(map(repr, sessions.agents))}.")
    return reply(_describe_model(name))


def _describe_model(name: str) -> Frame:
    return {"id": name, "object": "model", "created": 0, "owned_by": "steersman"}


class ResponsesFront:
    """Responses of one server."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._shelf = Shelf()

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Start a response, or follow the one that this key has started."""
        body = await read_body(request, ResponseBody)
        body.read_schema()
        token = make_token(request)
        live = await self._open(request, body, token)
        id = f"resp_{token}_{live.session.id}"
        told = await live.start_alone(partial(self._start, live, body, id))
        return await self._answer(request, live, told, stream=bool(body.stream), wait=not body.background)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """A response as it is, or its events after a number."""
        live, told = await self._read(request)
        if request.query.get("stream", "").lower() not in ("true", "1"):
            return reply(_describe(live, told))
        return await _stream(request, told, _read_number(request.query.get("starting_after")))

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """Stop the run of a response; one that is over stays as it is."""
        live, told = await self._read(request)
        waits = told.question is not None or find_client_tools(live).expected
        if (live.is_busy or list_questions(live)) and (not told.ended or waits):
            await live.abort()
            await live.wait_until_idle()
            find_client_tools(live).clear()
            if told.question is not None:
                _, told = await self._read(request)
            await told.wait()
        return reply(_describe(live, told))

    # Starting

    async def _open(self, request: web.Request, body: ResponseBody, token: str) -> LiveSession:
        user, agent = current_user.get(), choose_agent(self._sessions, body.model)
        if body.previous_response_id is not None and body.conversation is not None:
            raise Problem(400, "Send previous_response_id or conversation, not both.")
        if body.previous_response_id is not None:
            live, _ = await self._find_note(body.previous_response_id)
            return live
        if body.conversation_id is not None:
            return await self._sessions.open_named(user, body.conversation_id, agent)
        return await open_fresh(self._sessions, request, agent, f"openai-{token}")

    async def _start(self, live: LiveSession, body: ResponseBody, id: str) -> Told:
        note = live.find_note(id)
        return await (self._begin(live, body, id) if note is None else self._find(live, note))

    async def _begin(self, live: LiveSession, body: ResponseBody, id: str) -> Told:
        if self._sessions.draining:
            raise Problem(503, "The server is about to stop. Try again in a moment.", headers={"Retry-After": "5"})
        given, tools = read_items(body.input), body.list_tools()
        with find_client_tools(live).take_back_if_refused():
            act = await self._plan(live, body, given, tools)
            await live.session.save()
            note = {"after": live.hub.last_record, "head": _make_head(live, body, id, tools)}
            with live.note(id, note):
                return await self._tell(live, note, act)

    async def _plan(
        self, live: LiveSession, body: ResponseBody, given: Input, tools: list[Frame]
    ) -> Callable[[], Awaitable[Any]]:
        """What the request does; raises a problem before anything has changed."""
        client = find_client_tools(live)
        if questions := list_questions(live):
            raise make_question_problem(live.session.id, questions)
        await live.settle()
        if live.is_busy:
            if not client.expected:
                raise Problem(409, "A run is going on in this conversation. Wait until it has ended, or cancel it.")
            check_outputs(client.expected, given.outputs)
            return partial(give_outputs, live, given)
        instructions = [*given.instructions, *([body.instructions] if body.instructions else [])]
        limits = {"max_tokens": body.max_output_tokens, "temperature": body.temperature}
        at = await self._find_place(live, body.previous_response_id)
        set_up = client.prepare(tools, instructions, limits, body.read_schema())
        return partial(begin_run, live, set_up, plan_run(live, given, body.approvals, at))

    async def _find_place(self, live: LiveSession, previous: str | None) -> str | None:
        """The last entry of the previous response, if the conversation has gone on since."""
        note = None if previous is None else live.find_note(previous)
        if note is None:
            return None
        translator, last = _make_translator(note), None
        for event in await list_events(live, note["after"]):
            if event["type"] == "message_end":
                last = event["entry_id"]
            translator.translate(event)
            if translator.ended and not translator.calls:
                break
        tip = [entry.id for entry in live.agent.context.log.entries if isinstance(entry, MessageEntry)]
        return None if last is None or (tip and tip[-1] == last) else last

    # Telling

    async def _tell(self, live: LiveSession, note: Mapping[str, Any], act: Callable[[], Awaitable[Any]] | None) -> Told:
        """Tell a response from its beginning, in a task of its own; raises what `act` raises."""
        told = Told(_make_translator(note))
        told.add(told.translator.start())
        events = follow_events(live, act, Position(note["after"]))
        if act is not None:
            _, event = await anext(events)
            self._check_questions(live, told, event)
        self._shelf.add(note["head"]["id"], told)
        self._shelf.run(self._follow(live, told, events))
        return told

    async def _follow(self, live: LiveSession, told: Told, events: AsyncGenerator[tuple[str, Event]]) -> None:
        async for _, event in events:
            told.add(told.translator.translate(event))
            self._check_questions(live, told, event)
            if told.ended:
                break
        find_client_tools(live).expect(told.translator.calls)
        if not told.ended:
            told.add(told.translator.fail(STOPPED))
        await events.aclose()

    def _check_questions(self, live: LiveSession, told: Told, event: Event) -> None:
        if told.ended or event["type"] not in ("approval_requested", "started"):
            return
        if questions := list_questions(live):
            told.question = describe_questions(live.session.id, questions)
            told.add(told.translator.ask(told.question))

    # Reading

    async def _read(self, request: web.Request) -> tuple[LiveSession, Told]:
        live, note = await self._find_note(request.match_info["id"])
        return live, await self._find(live, note)

    async def _find_note(self, id: str) -> tuple[LiveSession, Mapping[str, Any]]:
        _, _, session = id.removeprefix("resp_").partition("_")
        missing = Problem(404, f"There is no response {id!r:.200}.")
        try:
            live = await self._sessions.open(current_user.get(), session)
        except SessionNotFound as error:
            raise missing from error
        note = live.find_note(id)
        if note is None or "head" not in note:  # that of another front, under an idempotency key that looks like this
            raise missing
        return live, note

    async def _find(self, live: LiveSession, note: Mapping[str, Any]) -> Told:
        """A response that was started before: as it is told now, or told again from the log."""
        id = note["head"]["id"]
        if (found := self._shelf.find(id)) is not None:
            return found
        told = Told(_make_translator(note))
        told.add(told.translator.start())
        for event in await list_events(live, note["after"]):
            told.add(told.translator.translate(event))
            if told.ended:
                self._shelf.add(id, told)
                return told
        if live.is_busy:
            return await self._tell(live, note, None)
        if questions := list_questions(live):
            told.question = describe_questions(live.session.id, questions)
        told.add(told.translator.fail(told.question or STOPPED))
        return told

    async def _answer(
        self, request: web.Request, live: LiveSession, told: Told, *, stream: bool, wait: bool
    ) -> web.StreamResponse:
        if stream:
            return await _stream(request, told, -1)
        if wait:
            await told.wait()
        if told.question is not None:
            raise make_question_problem(live.session.id, list_questions(live))
        return reply(_describe(live, told))


def _make_head(live: LiveSession, body: ResponseBody, id: str, tools: list[Frame]) -> Frame:
    """What is the same in every state of a response."""
    return {
        "id": id,
        "object": "response",
        "created_at": read_time(),
        "model": live.agent_name,
        "instructions": body.instructions,
        "metadata": body.metadata or {},
        "parallel_tool_calls": True,
        "temperature": body.temperature,
        "tool_choice": body.tool_choice or "auto",
        "tools": [{"strict": False, "parameters": {}, **tool} for tool in tools],
        "top_p": None,
        "background": bool(body.background),
        "conversation": None if body.conversation_id is None else {"id": body.conversation_id},
        "max_output_tokens": body.max_output_tokens,
        "previous_response_id": body.previous_response_id,
        "store": True,
        "text": {"format": (body.text or {}).get("format") or {"type": "text"}},
        "truncation": "disabled",
    }


def _make_translator(note: Mapping[str, Any]) -> Translator:
    head = note["head"]
    schema = read_schema("text.format", head["text"]["format"])
    return Translator(head, list_names(head["tools"]), None if schema is None else ValueOnly(schema).read)


def _describe(live: LiveSession, told: Told) -> Frame:
    found = told.translator.describe()
    if told.translator.aborted:
        return {**found, "status": "cancelled"}
    return {**found, "status": "in_progress", "error": None} if told.question and list_questions(live) else found


async def _stream(request: web.Request, told: Told, after: int) -> web.StreamResponse:
    response = web.StreamResponse(headers=SSE)
    await response.prepare(request)
    async for frame in told.read(after):
        await response.write(frame)
    return response


def _read_number(value: str | None) -> int:
    if value is None:
        return -1
    if not value.isascii() or not value.isdigit():
        raise Problem(400, f"starting_after is a sequence number, got {value!r:.100}.")
    return int(value)
