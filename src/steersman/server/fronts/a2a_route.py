"""`/a2a`: tasks over JSON-RPC, and the agent card that says what there is.

A context is a session, and a task is a run. A task is told by a task of the server, and any number of streams read it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aiohttp import web

from steersman.server.fronts.a2a import (
    BY,
    CANCELED,
    INPUT_REQUIRED,
    STOPPED,
    Frame,
    Translator,
    read_answer,
    read_message,
)
from steersman.server.fronts.a2a_calls import (
    Call,
    Listing,
    Message,
    OfTask,
    Send,
    check_version,
    read_page,
    read_params,
)
from steersman.server.fronts.a2a_card import CARD, show_card
from steersman.server.fronts.a2a_telling import Telling
from steersman.server.fronts.agui_route import list_questions
from steersman.server.fronts.following import Event, follow_events
from steersman.server.fronts.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RpcError,
)
from steersman.server.fronts.run_log import list_events
from steersman.server.fronts.sse import encode_data
from steersman.server.http.access import current_user
from steersman.server.http.api import reply
from steersman.server.http.bodies import read_body
from steersman.server.http.problems import Problem, find_status
from steersman.server.live import LiveSession
from steersman.server.position import Position
from steersman.server.sessions import Sessions
from steersman.session.stores.store import SessionError

TASK_NOT_FOUND, NOT_CANCELABLE, NO_PUSH, UNSUPPORTED = -32001, -32002, -32003, -32004
_SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
# So many tasks that wait for input are kept as they were told.
_KEPT = 200


def add_routes(router: web.UrlDispatcher, sessions: Sessions) -> None:
    """Add the routes of this front."""
    router.add_post("/a2a", A2AFront(sessions).respond)
    router.add_get(CARD, partial(show_card, sessions))


class A2AFront:
    """Tasks of one server."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._tellings: dict[str, Telling] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer one call; errors are those of JSON-RPC."""
        try:
            call = await read_body(request, Call)
        except Problem as problem:
            if problem.status not in (400, 413, 422):
                raise
            code = PARSE_ERROR if problem.status == 400 else INVALID_REQUEST
            return reply({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": problem.detail}})
        try:
            check_version(request.headers.get("A2A-Version") or request.query.get("A2A-Version"))
            match call.method:
                case "SendStreamingMessage":
                    return await self._stream(request, call, await self._send(call))
                case "SubscribeToTask":
                    return await self._stream(request, call, await self._subscribe(call))
                case "SendMessage":
                    result = await self._send_and_wait(call)
                case "GetTask":
                    result = await self._show(call)
                case "ListTasks":
                    result = await self._list(read_params(call, Listing))
                case "CancelTask":
                    result = await self._cancel(call)
                case _:
                    code = NO_PUSH if "PushNotification" in call.method else METHOD_NOT_FOUND
                    raise RpcError(code, f"There is no method {call.method!r:.100} here.")
        except Exception as error:  # noqa: BLE001  # every call gets an answer
            return reply({"jsonrpc": "2.0", "id": call.id, "error": _describe_error(error)})
        return reply({"jsonrpc": "2.0", "id": call.id, "result": result})

    # Sending

    async def _send_and_wait(self, call: Call) -> Frame:
        configuration = read_params(call, Send).configuration
        telling = await self._send(call)
        if not configuration.return_immediately:
            await telling.wait()
        return {"task": telling.translator.describe(configuration.history_length)}

    async def _send(self, call: Call) -> Telling:
        message = read_params(call, Send).message
        if message.task_id:
            return await self._send_to_task(message)
        if self._sessions.draining:
            raise Problem(503, "The server is about to stop. Try again in a moment.")
        user = current_user.get()
        context = message.context_id or f"a2a-{_digest(message.message_id)}"
        live = await self._sessions.open_named(user, context)
        id = f"task_{_digest(message.message_id)}_{live.session.id}"
        return await live.start_alone(partial(self._start, live, message, id))

    async def _start(self, live: LiveSession, message: Message, id: str) -> Telling:
        if (note := live.find_note(id)) is not None:
            return await self._find(live, note)
        await live.settle()
        if live.is_busy or list_questions(live):
            raise RpcError(UNSUPPORTED, "A task is going on in this context. Wait until it has ended, or answer it.")
        given = read_message(message.parts)
        await live.session.save()
        note = {"id": id, "after": live.hub.last_record, "context": message.context_id or live.session.id}
        with live.note(id, note):
            return await self._tell(live, note, partial(live.prompt, given))

    async def _send_to_task(self, message: Message) -> Telling:
        """Answer the question of a task, or steer its run."""
        live = await self._open_session(message.task_id)
        return await live.start_alone(partial(self._go_on, live, message))

    async def _go_on(self, live: LiveSession, message: Message) -> Telling:
        note = _find_task(live, message.task_id)
        if message.context_id not in ("", note["context"]):
            raise RpcError(
                INVALID_PARAMS, f"The task {message.task_id!r:.200} is of another context, {note['context']!r:.200}."
            )
        telling = await self._find(live, note, anew=False)
        key = f"a2a:{message.message_id}"
        if live.is_known(key):
            return telling  # sent again: it may be about a question that has come since
        if telling.translator.state == INPUT_REQUIRED and (questions := list_questions(live)):
            approved, named = read_answer(message.parts)
            # The first question of all may be another one by now than the client was shown.
            id = named or telling.translator.asked
            if id not in [question["approval_id"] for question in questions]:
                raise RpcError(UNSUPPORTED, "The question that was shown is over: GetTask shows the next one.")
            act = partial(live.approve if approved else live.deny, id, by=BY)
            with live.note(key, {"id": id}):
                return await self._tell(live, note, act, telling.translator)
        if telling.is_over or not live.is_busy or live.is_ending:  # what comes then starts a run that is no task
            raise RpcError(UNSUPPORTED, f"The task {message.task_id!r:.200} has ended. Send a message without its id.")
        await live.steer(read_message(message.parts), key=key)
        return telling

    # Reading

    async def _show(self, call: Call) -> Frame:
        params = read_params(call, OfTask)
        _, telling = await self._open(params.id)
        return telling.translator.describe(params.history_length)

    async def _subscribe(self, call: Call) -> Telling:
        params = read_params(call, OfTask)
        _, telling = await self._open(params.id)
        if telling.is_over and telling.translator.state != INPUT_REQUIRED:
            raise RpcError(UNSUPPORTED, f"The task {params.id!r:.200} has ended: GetTask shows it.")
        return telling

    async def _cancel(self, call: Call) -> Frame:
        id = read_params(call, OfTask).id
        live, telling = await self._open(id)
        state = telling.translator.state
        if telling.is_over and state not in (CANCELED, INPUT_REQUIRED):
            raise RpcError(NOT_CANCELABLE, f"The task {id!r:.200} has ended already.")
        if state == INPUT_REQUIRED or (live.is_busy and state != CANCELED):
            await live.abort()
            await live.wait_until_idle()
            self._forget_question(id)
            _, telling = await self._open(id)
            await telling.wait()
        return telling.translator.describe()

    async def _list(self, params: Listing) -> Frame:
        start, size = read_page(params.page_token), min(max(params.page_size or 50, 1), 100)
        keys = await self._list_keys(params.context_id)
        if params.status in ("", 0, "TASK_STATE_UNSPECIFIED"):
            total, tasks = len(keys), await self._describe_all(keys[start : start + size], params)
        else:
            found = await self._describe_all(keys, params)
            found = [task for task in found if task["status"]["state"] == params.status]
            total, tasks = len(found), found[start : start + size]
        more = str(start + size) if start + size < total else ""
        return {"tasks": tasks, "nextPageToken": more, "pageSize": size, "totalSize": total}

    async def _list_keys(self, context: str) -> list[str]:
        """The ids of a user's tasks, those of the session that was used last first."""
        found: list[str] = []
        for summary in await self._sessions.list_summaries(current_user.get()):
            live = self._sessions.live.get(summary.id)
            notes: Mapping[str, Any] = (
                (await self._sessions.find_outline(summary)).receipts if live is None else live.list_notes()
            )
            tasks = [key for key, note in notes.items() if _is_task(note) and context in ("", note["context"])]
            found += reversed(tasks)
        return found

    async def _describe_all(self, ids: Sequence[str], params: Listing) -> list[Frame]:
        found: list[Frame] = []
        for id in ids:
            session_id = _find_session(id)
            was_open = session_id in self._sessions.live
            try:
                _, telling = await self._open(id)
            except RpcError:
                continue  # another program has its session, or it was deleted meanwhile
            task = telling.translator.describe(params.history_length or 0)
            found.append(task if params.include_artifacts else _leave_out_artifacts(task))
            if not was_open:
                await self._sessions.close_idle(session_id)  # other programs may want it
        return found

    async def _open(self, id: str) -> tuple[LiveSession, Telling]:
        live = await self._open_session(id)
        return live, await self._find(live, _find_task(live, id))

    async def _open_session(self, id: str) -> LiveSession:
        """The session of a task."""
        try:
            return await self._sessions.open(current_user.get(), _find_session(id))
        except SessionError as error:
            raise RpcError(TASK_NOT_FOUND, f"There is no task {id!r:.200}.") from error

    # Telling

    async def _find(self, live: LiveSession, note: Mapping[str, Any], *, anew: bool = True) -> Telling:
        """A task that was started before: as it is told now, or told again from the log.

        Unless it is told `anew`, its question is the one that was told before, also if that is over.
        """
        known, ids = self._tellings.get(note["id"]), [question["approval_id"] for question in list_questions(live)]
        state, asked = ("", "") if known is None else (known.translator.state, known.translator.asked)
        if known is not None and (state != INPUT_REQUIRED or asked in ids or (ids and not anew)):
            return known
        telling = Telling(Translator(note["id"], note["context"]))
        for event in await list_events(live, note["after"]):
            telling.add(telling.translator.translate(event))
        asked = telling.translator.asked
        self._check_questions(live, telling)
        if not anew:
            telling.translator.asked = asked or telling.translator.asked
        elif telling.translator.state == INPUT_REQUIRED:
            self._tellings[note["id"]] = telling
            self._drop_old()
        if not telling.is_over and live.is_busy:
            return await self._tell(live, note, None)
        if not telling.is_over:
            telling.add(telling.translator.fail(STOPPED))
        return telling

    async def _tell(
        self,
        live: LiveSession,
        note: Mapping[str, Any],
        act: Callable[[], Awaitable[Any]] | None,
        translator: Translator | None = None,
    ) -> Telling:
        """Tell a task in a task of the server; raises what `act` raises. With a translator it goes on from there."""
        telling = Telling(Translator(note["id"], note["context"]) if translator is None else translator)
        events = follow_events(live, act, None if translator is not None else Position(note["after"]))
        if translator is not None:
            translator.state, translator.asked = "TASK_STATE_WORKING", ""
        if act is not None:
            await anext(events)
        if translator is not None:
            # Of several questions, the next one was asked before. A task from its beginning comes to its question.
            self._check_questions(live, telling)
        self._tellings[note["id"]] = telling
        self._drop_old()
        task = asyncio.get_running_loop().create_task(self._follow(live, note["id"], telling, events))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return telling

    async def _follow(
        self, live: LiveSession, id: str, telling: Telling, events: AsyncGenerator[tuple[str, Event]]
    ) -> None:
        while not telling.is_over and (found := await anext(events, None)) is not None:
            _, event = found
            telling.add(telling.translator.translate(event))
            if event["type"] == "approval_requested":
                self._check_questions(live, telling)
        if not telling.is_over:
            telling.add(telling.translator.fail(STOPPED))
        await events.aclose()
        if telling.translator.state != INPUT_REQUIRED:
            self._tellings.pop(id, None)  # the log has it; its updates stay as long as a stream reads them

    def _check_questions(self, live: LiveSession, telling: Telling) -> None:
        if not telling.is_over and (questions := list_questions(live)):
            telling.add(telling.translator.ask(questions))

    def _drop_old(self) -> None:
        for id, telling in list(self._tellings.items()):
            if len(self._tellings) <= _KEPT:
                break
            if telling.is_over:
                del self._tellings[id]  # the log has it

    def _forget_question(self, id: str) -> None:
        known = self._tellings.get(id)
        if known is not None and known.translator.state == INPUT_REQUIRED:
            del self._tellings[id]

    async def _stream(self, request: web.Request, call: Call, telling: Telling) -> web.StreamResponse:
        """The task first, then its updates."""
        response = web.StreamResponse(headers=_SSE)
        await response.prepare(request)
        first: Frame = {"task": telling.translator.describe()}
        place = len(telling.frames)

        async def send(result: Frame) -> None:
            data = encode_data({"jsonrpc": "2.0", "id": call.id, "result": result})
            await response.write(b"data: " + data + b"\n\n")

        await send(first)
        async for frame in telling.read(place):
            if frame is None:
                await response.write(b": beat\n\n")
            else:
                await send(frame)
        return response


def _describe_error(error: Exception) -> Frame:
    if isinstance(error, RpcError):
        return {"code": error.code, "message": error.message}
    if isinstance(error, Problem):
        return {"code": INTERNAL_ERROR, "message": error.detail}
    status = find_status(error)
    if status is None:
        raise error
    return {"code": INVALID_PARAMS if status == 422 else UNSUPPORTED, "message": str(error)}


def _is_task(note: Mapping[str, Any]) -> bool:
    """Whether a note is that of a task: others have the idempotency keys of clients, which may look like its id."""
    return "context" in note


def _find_task(live: LiveSession, id: str) -> Mapping[str, Any]:
    """The note of a task."""
    note = live.find_note(id)
    if note is None or not _is_task(note):
        raise RpcError(TASK_NOT_FOUND, f"There is no task {id!r:.200}.")
    return note


def _find_session(id: str) -> str:
    """The session in the id of a task."""
    return id.removeprefix("task_").partition("_")[2]


def _leave_out_artifacts(task: Frame) -> Frame:
    return {name: value for name, value in task.items() if name != "artifacts"}


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:24]
