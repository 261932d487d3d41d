"""What the HTTP API does: one method for each route. Those that act answer 202 with a receipt."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web

from steersman.server.artifact_view import list_artifacts, load_artifact, make_headers
from steersman.server.http import bodies
from steersman.server.http.access import current_user
from steersman.server.http.bodies import read_body
from steersman.server.http.problems import Problem
from steersman.server.hub import Item
from steersman.server.live import LiveSession
from steersman.server.outline import read_outline
from steersman.server.owners import make_id
from steersman.server.position import Position, parse_position
from steersman.server.receipts import Receipt
from steersman.server.remote import RemoteSession
from steersman.server.sessions import Listed, Sessions
from steersman.server.supervised import WorkerSession, create_for_worker
from steersman.server.tree_view import read_tree
from steersman.server.watch import Watch
from steersman.session.settings import Configure
from steersman.session.stores.store import SessionBusy, SessionError, SessionExists, SessionNotFound
from steersman.types.wire import encode

_log = logging.getLogger("steersman.server")

_PAGE = 50
_MOST = 200
_LONGEST_KEY = 200
_SIGN_OF_LIFE = b": still here\n\n"
_SLICE = 256 << 10
_SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def reply(value: Any, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


class Api:
    """The handlers of the API, over the sessions of a server."""

    def __init__(self, sessions: Sessions, *, max_watchers: int = 10_000) -> None:
        self.sessions = sessions
        self.max_watchers = max_watchers
        self._is_stopping = False

    async def end_watches(self) -> None:
        """End the streams of events, and start no more runs: the application stops, and would wait for them."""
        self._is_stopping = True
        await self.sessions.drain(0)
        self.sessions.beat()

    # Sessions

    async def create_session(self, request: web.Request) -> web.Response:
        """Create a session."""
        body = await read_body(request, bodies.NewSession)
        self._check_not_draining()
        if self.sessions.supervisor is not None:
            # Workers may have other agents: one that lacks an agent says so.
            id, agent = make_id(current_user.get(), _read_key(request)), body.agent or next(iter(self.sessions.agents))
            await asyncio.to_thread(create_for_worker, self.sessions.store, id, agent, body.title or "")
            return reply({"id": id, "agent": agent}, 201)
        user, key = current_user.get(), _read_key(request)
        try:
            live = await self.sessions.create(user, body.agent, key=key)
        except (SessionBusy, SessionExists):
            if key is None:
                raise
            # It was made under this key in another server, and is open there.
            id = make_id(user, key)
            made = await self.sessions.read(user, id, read_outline)
            return reply({"id": id, "agent": made.agent or body.agent or next(iter(self.sessions.agents))}, 201)
        if body.title:
            live.session.set_title(body.title)
        return reply({"id": live.session.id, "agent": live.agent_name}, 201)

    async def list_sessions(self, request: web.Request) -> web.Response:
        """List the sessions, the most recently used first."""
        limit = _read_number(request, "limit", _PAGE, 1, _MOST)
        cursor, search = request.query.get("cursor"), request.query.get("q", "").casefold()
        found = await self.sessions.list_summaries(current_user.get())
        if search:
            found = [one for one in found if search in one.title.casefold()]
        if cursor is not None:
            after = _read_cursor(cursor)
            found = [one for one in found if (-one.updated, one.id) > after]
        page = found[:limit]
        last = f"{page[-1].updated!r}~{page[-1].id}" if len(found) > limit else None
        described = [await self.sessions.describe(one) for one in page]
        shown = [_describe(one) for one in described if one is not None]
        return reply({"sessions": shown, "next": last, "agents": list(self.sessions.agents)})

    async def show_session(self, request: web.Request) -> web.Response:
        """Show a session: what it does, its open questions and its queued messages."""
        user, id = current_user.get(), request.match_info["id"]
        self.sessions.check_owner(user, id)
        summary = next((one for one in await self.sessions.list_summaries(user) if one.id == id), None)
        described = None if summary is None else await self.sessions.describe(summary)
        if summary is None or described is None:
            raise SessionNotFound(f"There is no session {id!r}.")
        fields = _describe(described)
        live = self.sessions.live.get(id)
        if live is None:
            outline = await self.sessions.find_outline(summary)
            waiting = {"approvals": list(outline.questions.values()), "queued": outline.list_queued()}
            return reply({**fields, **waiting, "position": str(outline.last)})
        return reply({**fields, **_describe_live(live), "models": self.sessions.models})

    async def delete_session(self, request: web.Request) -> web.Response:
        """Delete a session for good."""
        await self.sessions.delete(current_user.get(), request.match_info["id"])
        return web.Response(status=204)

    async def show_tree(self, request: web.Request) -> web.Response:
        """Show the tree of the conversation: every entry with its parent."""
        user, id = current_user.get(), request.match_info["id"]
        return reply(await self.sessions.read(user, id, read_tree))

    async def list_artifacts(self, request: web.Request) -> web.Response:
        """List the artifacts of the current branch: the files that its tools saved."""
        id = request.match_info["id"]
        self.sessions.check_owner(current_user.get(), id)
        return reply({"artifacts": await asyncio.to_thread(list_artifacts, self.sessions.store, id)})

    async def load_artifact(self, request: web.Request) -> web.Response:
        """Download an artifact: its last version, or the one with this number."""
        id, name = request.match_info["id"], request.match_info["name"]
        self.sessions.check_owner(current_user.get(), id)
        version = _read_number(request, "version", 0, 1, 10**9) or None
        found, data = await asyncio.to_thread(load_artifact, self.sessions.store, id, name, version)
        return web.Response(body=data, headers=make_headers(found))

    async def stream_events(self, request: web.Request) -> web.StreamResponse:
        """Stream the events as server-sent events; the id of each is its position."""
        if self.sessions.count_watchers() >= self.max_watchers:
            raise Problem(503, "Too many watchers. Try again in a moment.", headers={"Retry-After": "5"})
        hub = await self.sessions.find_hub(current_user.get(), request.match_info["id"])
        watch = Watch(hub, _read_position(request, hub.position))
        response = web.StreamResponse(headers={**_SSE, "Steersman-Position": str(hub.position)})
        with watch:
            await response.prepare(request)
            try:
                while not hub.closed and not self._is_stopping:
                    await _send_events(response, await watch.read())
            except SessionError as error:
                # The response ends where it is, so that the watcher comes back with its position: no gap.
                _log.error("The events of %r could not be read: %s", hub.session_id, error)
        return response

    # Acting on a session

    async def prompt(self, request: web.Request) -> web.Response:
        """Start a run with a message."""
        body = await read_body(request, bodies.Say)
        live, key = await self._find(request), _read_key(request)
        return _accept(await live.prompt(body.to_message("prompt"), key=key, approvals=body.approvals))

    async def steer(self, request: web.Request) -> web.Response:
        """Steer the run; without one it starts one."""
        body = await read_body(request, bodies.Steer)
        live, key = await self._find(request), _read_key(request)
        message = body.to_message("steer")
        return _accept(await live.steer(message, mode=body.mode, key=key, approvals=body.approvals))

    async def follow_up(self, request: web.Request) -> web.Response:
        """Queue a message for the end of the run; without one it starts one."""
        body = await read_body(request, bodies.Say)
        live, key = await self._find(request), _read_key(request)
        return _accept(await live.follow_up(body.to_message("follow_up"), key=key, approvals=body.approvals))

    async def abort(self, request: web.Request) -> web.Response:
        """Interrupt the run, if there is one."""
        await read_body(request, bodies.Nothing)
        live = await self._find(request, starts=False)
        return _accept(await live.abort(key=_read_key(request)))

    async def resume(self, request: web.Request) -> web.Response:
        """Go on after an error, an abort or a restart."""
        body = await read_body(request, bodies.Resume)
        if self.sessions.supervisor is not None and isinstance(found := await self._find(request), WorkerSession):
            return _accept(await found.resume(key=_read_key(request)))
        live, key = await self._open(request, take_over=body.take_over), _read_key(request)
        return _accept(await live.resume(key=key, approvals=body.approvals))

    async def branch(self, request: web.Request) -> web.Response:
        """Go another way from an earlier entry."""
        body = await read_body(request, bodies.BranchAt)
        message = None if body.content is None else bodies.Say(body.content).to_message("branch")
        live, key = await self._open(request), _read_key(request)
        return _accept(await live.branch(body.at, message, tag=body.tag, key=key))

    async def rerun(self, request: web.Request) -> web.Response:
        """Repeat an answer."""
        body = await read_body(request, bodies.RerunAt)
        live, key = await self._open(request), _read_key(request)
        return _accept(await live.rerun(at=body.at, tag=body.tag, key=key))

    async def approve(self, request: web.Request) -> web.Response:
        """Approve a tool call that waits for it."""
        body = await read_body(request, bodies.Decision)
        live, key = await self._open_to_answer(request), _read_key(request)
        return _accept(await live.approve(body.id, by=_get_name(), remember=body.remember, key=key))

    async def deny(self, request: web.Request) -> web.Response:
        """Deny a tool call that waits for approval."""
        body = await read_body(request, bodies.Decision)
        live, key = await self._open_to_answer(request), _read_key(request)
        return _accept(await live.deny(body.id, body.reason, by=_get_name(), key=key))

    async def configure(self, request: web.Request) -> web.Response:
        """Change the model, the thinking level, the approval mode, limits or the title."""
        body = await read_body(request, Configure)
        live, key = await self._find(request, starts=False), _read_key(request)
        changes: dict[str, Any] = msgspec.to_builtins(body)
        return _accept(await live.configure(changes, self.sessions.models, key=key))

    async def _open(self, request: web.Request, *, starts: bool = True, take_over: bool = False) -> LiveSession:
        """The session of the request; `starts` says that a run may begin, which is refused while draining."""
        if starts:
            self._check_not_draining()
        open = self.sessions.take_over if take_over else self.sessions.open
        return await open(current_user.get(), request.match_info["id"])

    async def _find(self, request: web.Request, *, starts: bool = True) -> LiveSession | RemoteSession:
        """The session of the request, which may be open in another process."""
        if starts:
            self._check_not_draining()
        return await self.sessions.find(current_user.get(), request.match_info["id"])

    async def _open_to_answer(self, request: web.Request) -> LiveSession | RemoteSession:
        """The session of the request, for an answer to a question; without a run the answer would start one."""
        live = await self._find(request, starts=False)
        if not live.is_busy:
            self._check_not_draining()
        return live

    def _check_not_draining(self) -> None:
        if self.sessions.draining:
            raise Problem(503, "The server is about to stop. Try again in a moment.", headers={"Retry-After": "5"})


async def _send_events(response: web.StreamResponse, items: Sequence[Item]) -> None:
    if sum([len(item.frame) for item in items]) <= _SLICE:
        await response.write(b"".join([item.frame for item in items]) if items else _SIGN_OF_LIFE)
        return
    # A client that does not read a large frame costs no copy of it.
    for item in items:
        for at in range(0, len(item.frame), _SLICE):
            await response.write(memoryview(item.frame)[at : at + _SLICE])


def _get_name() -> str:
    return current_user.get() or "http"


def _accept(receipt: Receipt) -> web.Response:
    return reply(receipt, 202)


def _describe(listed: Listed) -> dict[str, Any]:
    one = listed.summary
    more = {"status": listed.status, "agent": listed.agent, "records": one.records}
    return {"id": one.id, "title": one.title, "created": one.created, "updated": one.updated, **more}


def _describe_live(live: LiveSession) -> dict[str, Any]:
    agent = live.agent
    approval: Any = agent.config.approval
    return {
        "position": str(live.hub.position),
        "approvals": live.describe_questions(),
        "queued": [
            {"id": item.id, "kind": item.kind, "message": msgspec.Raw(encode(item.message))}
            for item in agent.inbox.items
        ],
        "model": agent.model.name,
        "thinking_level": agent.thinking_level,
        "mode": None if approval is None else approval.mode,
        "context_window": agent.model.context_window,
        "usage": agent.usage,
        "cost": agent.cost,
    }


def _read_position(request: web.Request, latest: Position) -> Position | None:
    text = request.headers.get("Last-Event-ID") or request.query.get("after")
    if not text:
        last = _read_number(request, "last", latest.record, 0, 10**9)
        return Position(max(latest.record - last, 0))
    if text == "latest":
        return latest
    try:
        return parse_position(text)
    except ValueError as error:
        raise Problem(400, str(error)) from error


def _read_key(request: web.Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None and not 0 < len(key) <= _LONGEST_KEY:
        raise Problem(400, f"An Idempotency-Key has 1 to {_LONGEST_KEY} characters, got {len(key)}.")
    if key is not None and not key.isprintable():  # bytes that are no UTF-8 come as lone surrogates
        raise Problem(400, f"An Idempotency-Key is printable text in UTF-8, got {key!a:.100}.")
    return key


def _read_number(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > len(str(most)) or not least <= int(text) <= most:
        raise Problem(400, f"{name} is a number from {least} to {most}, got {text!r:.100}.")
    return int(text)


def _read_cursor(text: str) -> tuple[float, str]:
    """The place in a list after a session, which `next` of the list before has named."""
    updated, _, id = text.partition("~")
    try:
        time = float(updated)
    except ValueError:
        time = math.nan
    if not math.isfinite(time):
        raise Problem(400, f"cursor is the value of 'next' of another list, got {text!r:.100}.")
    return -time, id
