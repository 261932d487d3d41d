"""`POST /v1/chat/completions`: each request is a fresh session that begins with the messages the client has sent.

Only the results of the client's own tools go on with a run that waits for them: the ids of its calls name the session.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from steersman.server.fronts.agui_route import list_questions
from steersman.server.fronts.following import follow_events
from steersman.server.fronts.openai.chat import Translator
from steersman.server.fronts.openai.client_tools import find_client_tools, list_functions, list_names
from steersman.server.fronts.openai.errors import describe_error, make_question_problem
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
from steersman.server.fronts.openai.runs import SSE, give_outputs, plan_run
from steersman.server.fronts.run_log import list_events
from steersman.server.http.access import current_user
from steersman.server.http.api import reply
from steersman.server.http.bodies import read_body
from steersman.server.http.problems import Problem
from steersman.server.live import LiveSession
from steersman.server.position import Position
from steersman.server.sessions import Sessions
from steersman.session.stores.store import SessionNotFound

_STOPPED = "The server stopped in the middle of the run. Send the request again."


def add_routes(router: web.UrlDispatcher, sessions: Sessions) -> None:
    """Add the route of this front."""
    router.add_post("/v1/chat/completions", partial(complete, sessions))


async def complete(sessions: Sessions, request: web.Request) -> web.StreamResponse:
    """Run the agent, and answer with its text as one message."""
    body = await read_body(request, ChatBody)
    if body.n not in (None, 1):
        raise Problem(400, f"There is one choice, got n={body.n}.")
    given, tools, token = read_messages(body.messages), list_functions(body.tools or []), make_token(request)
    live = await _find_waiting(sessions, given)
    act: Callable[[], Awaitable[Any]] | None
    if live is not None:
        act, note = partial(give_outputs, live, given), await _add_note(live, token)
    else:
        agent = choose_agent(sessions, body.model)
        if sessions.draining:
            raise Problem(503, "The server is about to stop. Try again in a moment.", headers={"Retry-After": "5"})
        live = await open_fresh(sessions, request, agent, token)
        note = live.find_note(_name_note(token))
        act = None
        if note is None:
            act = _plan(live, body, given, tools)
            note = await _add_note(live, token)
    translator = Translator(list_names(tools), partial(_name_call, live))
    head = {"id": f"chatcmpl-{token}", "created": note["created"], "model": live.agent_name}
    deltas = _follow(live, translator, act, note)
    if body.stream:
        return await _stream(request, live, translator, head, deltas, body)
    async for _ in deltas:
        pass
    return _answer(live, translator, head)


async def _find_waiting(sessions: Sessions, given: Input) -> LiveSession | None:
    """The session whose run waits for the results that the messages end with; ids lose the part that names it."""
    names = {id.rpartition("~")[2] for id in given.outputs if "~" in id}
    given.cut_ids()
    if len(names) != 1:
        return None
    try:
        live = await sessions.open(current_user.get(), names.pop())
    except SessionNotFound:
        return None
    expected = find_client_tools(live).expected
    if not live.is_busy or not expected:
        return None
    if questions := list_questions(live):
        raise make_question_problem(live.session.id, questions)
    check_outputs(expected, given.outputs)
    return live


def _plan(live: LiveSession, body: ChatBody, given: Input, tools: list[Frame]) -> Callable[[], Awaitable[Any]]:
    limits = {"max_tokens": body.max_completion_tokens or body.max_tokens, "temperature": body.temperature}
    find_client_tools(live).set_up(tools, given.instructions, limits)
    return plan_run(live, given, body.approvals)


async def _add_note(live: LiveSession, token: str) -> Mapping[str, Any]:
    await live.session.save()
    note = {"id": f"chatcmpl-{token}", "after": live.hub.last_record, "created": read_time()}
    live.add_note(_name_note(token), note)
    return note


def _name_note(token: str) -> str:
    return f"chat_{token}"


def _name_call(live: LiveSession, id: str) -> str:
    return f"{id}~{live.session.id}"


async def _follow(
    live: LiveSession, translator: Translator, act: Callable[[], Awaitable[Any]] | None, note: Mapping[str, Any]
) -> AsyncGenerator[Frame]:
    """The deltas of a completion to its end, or to a question; the first one comes once the run has started."""
    first: Frame = {"role": "assistant", "content": ""}
    if act is None:
        yield first
    if act is None and not live.is_busy:
        for event in await list_events(live, note["after"]):
            for delta in translator.translate(event):
                yield delta
    else:
        async for _, event in follow_events(live, act, Position(note["after"])):
            if event["type"] == "started":
                yield first
            for delta in translator.translate(event):
                yield delta
            if translator.ended or (event["type"] in ("approval_requested", "started") and list_questions(live)):
                break
    find_client_tools(live).expected = translator.calls


def _answer(live: LiveSession, translator: Translator, head: Frame) -> web.Response:
    if (problem := _find_problem(live, translator)) is not None:
        raise problem
    choice = {"index": 0, "message": translator.describe(), "finish_reason": translator.finish_reason, "logprobs": None}
    usage = translator.describe_usage()
    return reply({**head, "object": "chat.completion", "choices": [choice], "usage": usage})


def _find_problem(live: LiveSession, translator: Translator) -> Problem | None:
    """Why there is no complete answer."""
    if translator.finish_reason is not None:
        return None
    if translator.error is None and (questions := list_questions(live)):
        return make_question_problem(live.session.id, questions)
    # The run had its own retries: the client must not repeat it by itself.
    return Problem(502, translator.error or _STOPPED, headers={"x-should-retry": "false"})


async def _stream(
    request: web.Request,
    live: LiveSession,
    translator: Translator,
    head: Frame,
    deltas: AsyncGenerator[Frame],
    body: ChatBody,
) -> web.StreamResponse:
    with_usage = bool((body.stream_options or {}).get("include_usage"))
    head = {**head, "object": "chat.completion.chunk", **({"usage": None} if with_usage else {})}
    first = await anext(deltas)  # a run that cannot start is an error, and not a stream
    response = web.StreamResponse(headers=SSE)
    await response.prepare(request)

    async def send(*choices: Frame, **more: Any) -> None:
        data = msgspec.json.encode({**head, "choices": choices, **more})
        await response.write(b"data: " + data + b"\n\n")

    await send(_make_choice(first))
    async for delta in deltas:
        await send(_make_choice(delta))
    if (problem := _find_problem(live, translator)) is not None:
        code = None if problem.status != 409 else "approval_required"
        await send(error=describe_error(problem.status, problem.detail, code))
    else:
        await send(_make_choice({}, translator.finish_reason))
        if with_usage:
            await send(usage=translator.describe_usage())
    await response.write(b"data: [DONE]\n\n")
    return response


def _make_choice(delta: Frame, finish_reason: str | None = None) -> Frame:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
