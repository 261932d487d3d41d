"""`POST /v1/chat/completions`: each request is a fresh session that begins with the messages the client has sent.

Only the results of the client's own tools go on with a run that waits for them: the ids of its calls name the session.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import web

from steersman.server.fronts.agui_route import list_questions
from steersman.server.fronts.following import follow_events
from steersman.server.fronts.openai.chat import STOPPED, Translator
from steersman.server.fronts.openai.client_tools import find_client_tools, list_names
from steersman.server.fronts.openai.errors import describe_error, make_question_problem
from steersman.server.fronts.openai.formats import ValueOnly
from steersman.server.fronts.openai.inputs import Input, read_messages
from steersman.server.fronts.openai.requests import (
    ChatBody,
    check_outputs,
    choose_agent,
    make_token,
    open_fresh,
    read_time,
)
from steersman.server.fronts.openai.responses import Frame
from steersman.server.fronts.openai.runs import SSE, begin_run, give_outputs, plan_run
from steersman.server.fronts.run_log import list_events
from steersman.server.fronts.sse import encode_data, keep_alive
from steersman.server.http.access import current_user
from steersman.server.http.api import reply
from steersman.server.http.bodies import read_body
from steersman.server.http.problems import Problem
from steersman.server.live import LiveSession
from steersman.server.position import Position
from steersman.server.sessions import Sessions
from steersman.session.stores.store import SessionNotFound


def add_routes(router: web.UrlDispatcher, sessions: Sessions) -> None:
    """Add the route of this front."""
    router.add_post("/v1/chat/completions", partial(complete, sessions))


async def complete(sessions: Sessions, request: web.Request) -> web.StreamResponse:
    """Run the agent, and answer with its text as one message."""
    body = await read_body(request, ChatBody)
    if body.n not in (None, 1):
        raise Problem(400, f"There is one choice, got n={body.n}.")
    schema = body.read_schema()
    given, tools, token = read_messages(body.messages), body.list_tools(), make_token(request)
    live = await _find_waiting(sessions, given, token)
    if live is None:
        agent = choose_agent(sessions, body.model)
        if sessions.draining:
            raise Problem(503, "The server is about to stop. Try again in a moment.", headers={"Retry-After": "5"})
        live = await open_fresh(sessions, request, agent, f"openai-chat-{token}")
    translator = Translator(
        list_names(tools), partial(_name_call, live), None if schema is None else ValueOnly(schema).read
    )
    completion = Completion(live, translator, token)
    # A run that cannot start is an error, and not a stream.
    await live.start_alone(partial(completion.start, body, given, tools))
    if body.stream:
        return await _stream(request, completion, body)
    async for _ in completion.deltas:
        pass
    return _answer(completion)


async def _find_waiting(sessions: Sessions, given: Input, token: str) -> LiveSession | None:
    """The session whose run waits for the results that the messages end with, or has got them from this request before.

    The ids of calls lose the part that names it.
    """
    names = {id.rpartition("~")[2] for id in given.outputs if "~" in id}
    given.cut_ids()
    if len(names) != 1:
        return None
    try:
        live = await sessions.open(current_user.get(), names.pop())
    except SessionNotFound:
        return None
    return live if _waits_for_client(live) or live.find_note(_name_note(token)) is not None else None


def _waits_for_client(live: LiveSession) -> bool:
    return live.is_busy and bool(find_client_tools(live).expected)


class Completion:
    """One completion. `deltas` follow the first one, which every completion begins with."""

    def __init__(self, live: LiveSession, translator: Translator, token: str) -> None:
        self.live = live
        self.translator = translator
        self.head: Frame = {"id": f"chatcmpl-{token}", "model": live.agent_name}
        self.deltas: AsyncGenerator[Frame]
        self._key = _name_note(token)

    async def start(self, body: ChatBody, given: Input, tools: list[Frame]) -> None:
        """Start the run, go on with the one that waits for the client, or find what this request has started before."""
        live = self.live
        note = live.find_note(self._key)
        if note is not None:
            self.head["created"] = note["created"]
            self.deltas = self._follow(None, note["after"])
            return
        with find_client_tools(live).take_back_if_refused():
            act = self._go_on(given) if _waits_for_client(live) else _plan(live, body, given, tools)
            await live.session.save()
            self.head["created"] = read_time()
            after = live.hub.last_record
            with live.note(self._key, {"id": self.head["id"], "after": after, "created": self.head["created"]}):
                self.deltas = self._follow(act, after)
                await anext(self.deltas)

    def _go_on(self, given: Input) -> Callable[[], Awaitable[Any]]:
        if questions := list_questions(self.live):
            raise make_question_problem(self.live.session.id, questions)
        check_outputs(find_client_tools(self.live).expected, given.outputs)
        return partial(give_outputs, self.live, given)

    async def _follow(self, act: Callable[[], Awaitable[Any]] | None, after: int) -> AsyncGenerator[Frame]:
        """The deltas of a completion to its end, or to a question; an empty one once the act is done."""
        live, translator = self.live, self.translator
        if act is None and not live.is_busy:
            for event in await list_events(live, after):
                for delta in translator.translate(event):
                    yield delta
        else:
            async for _, event in follow_events(live, act, Position(after)):
                if event["type"] == "started":
                    yield {}
                for delta in translator.translate(event):
                    yield delta
                if translator.ended or (event["type"] in ("approval_requested", "started") and list_questions(live)):
                    break
        find_client_tools(live).expect(translator.calls)


def _plan(live: LiveSession, body: ChatBody, given: Input, tools: list[Frame]) -> Callable[[], Awaitable[Any]]:
    limits = {"max_tokens": body.max_completion_tokens or body.max_tokens, "temperature": body.temperature}
    set_up = find_client_tools(live).prepare(tools, given.instructions, limits, body.read_schema())
    return partial(begin_run, live, set_up, plan_run(live, given, body.approvals))


def _name_note(token: str) -> str:
    return f"chat_{token}"


def _name_call(live: LiveSession, id: str) -> str:
    return f"{id}~{live.session.id}"


def _answer(completion: Completion) -> web.Response:
    if (problem := _find_problem(completion)) is not None:
        raise problem
    translator = completion.translator
    choice = {"index": 0, "message": translator.describe(), "finish_reason": translator.finish_reason, "logprobs": None}
    usage = translator.describe_usage()
    return reply({**completion.head, "object": "chat.completion", "choices": [choice], "usage": usage})


def _find_problem(completion: Completion) -> Problem | None:
    """Why there is no complete answer."""
    live, translator = completion.live, completion.translator
    if translator.finish_reason is not None:
        return None
    if translator.error is None and (questions := list_questions(live)):
        return make_question_problem(live.session.id, questions)
    # The run had its own retries: the client must not repeat it by itself.
    return Problem(502, translator.error or STOPPED, headers={"x-should-retry": "false"})


async def _stream(request: web.Request, completion: Completion, body: ChatBody) -> web.StreamResponse:
    with_usage = bool((body.stream_options or {}).get("include_usage"))
    head = {**completion.head, "object": "chat.completion.chunk", **({"usage": None} if with_usage else {})}
    response = web.StreamResponse(headers=SSE)
    await response.prepare(request)

    async def send(*choices: Frame, **more: Any) -> None:
        data = encode_data({**head, "choices": choices, **more})
        await response.write(b"data: " + data + b"\n\n")

    await send(_make_choice({"role": "assistant", "content": ""}))
    async with keep_alive(response):
        async for delta in completion.deltas:
            await send(_make_choice(delta))
    if (problem := _find_problem(completion)) is not None:
        code = None if problem.status != 409 else "approval_required"
        await send(error=describe_error(problem.status, problem.detail, code))
    else:
        await send(_make_choice({}, completion.translator.finish_reason))
        if with_usage:
            await send(usage=completion.translator.describe_usage())
    await response.write(b"data: [DONE]\n\n")
    return response


def _make_choice(delta: Frame, finish_reason: str | None = None) -> Frame:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
