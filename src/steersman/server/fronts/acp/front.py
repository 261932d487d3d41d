"""The driver of the Agent Client Protocol: answers the requests of one editor, and asks it for permission."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec

from steersman.policy.approval import fingerprint
from steersman.server.fronts.acp import prompts
from steersman.server.fronts.acp.editor_sessions import OpenSession, Turn, Workplaces, copy_session
from steersman.server.fronts.acp.options import apply_option, describe_modes, describe_options, set_mode
from steersman.server.fronts.acp.permissions import OPTIONS, Decision, read_decision
from steersman.server.fronts.acp.updates import Updates, read_stop_reason
from steersman.server.fronts.following import follow_events
from steersman.server.fronts.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    Outlet,
    Params,
    Peer,
    RequestId,
    RpcError,
    encode_line,
    read_params,
)
from steersman.server.fronts.questions import Questions
from steersman.server.live import LiveSession, Receipt
from steersman.server.position import parse_position
from steersman.session.stores.store import SessionError, SessionNotFound
from steersman.types.errors import SteersmanError
from steersman.types.messages import AgentMessage
from steersman.types.wire import encode

PROTOCOL_VERSION: Final = 1
_PAGE: Final = 50
_COMMANDS = [{"name": "compact", "description": "Shorten what the model sees of this conversation."}]


class AcpFront:
    """Serves one editor. `receive` takes its lines; `close` cuts what still runs, as a crash would."""

    def __init__(self, workplaces: Workplaces, outlet: Outlet, *, approval_timeout: float | None = None) -> None:
        self.sessions: dict[str, OpenSession] = {}
        self.peer = Peer(lambda message: outlet.write(encode_line(message)), self._respond, self._observe)
        self._workplaces = workplaces
        self._outlet = outlet
        self._timeout = approval_timeout
        self._can_ask = True
        self._folders: set[Path] = set()
        self._prompts: dict[RequestId, OpenSession] = {}
        self._methods: dict[str, Callable[[Params], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._create,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    def receive(self, line: bytes | None) -> None:
        """Take one line; `None` is one that was too long."""
        if line is None:
            self.peer.refuse(INVALID_REQUEST, "The message is too long.")
        elif line.strip():
            self.peer.receive(line)

    async def close(self) -> None:
        """End everything: runs are cut, and can be resumed."""
        self.peer.is_closed = True
        for session in list(self.sessions.values()):
            await session.close()
        self.sessions.clear()
        await self.peer.close()

    async def _respond(self, method: str, params: Params, id: RequestId) -> Any:
        try:
            if method == "session/prompt":
                return await self._prompt(params, id)
            if method not in self._methods:
                raise RpcError(METHOD_NOT_FOUND, f"There is no method {method!r:.100}.")
            return await self._methods[method](params)
        except SessionNotFound as error:
            raise RpcError(NOT_FOUND, str(error)) from error
        except (SteersmanError, SessionError, OSError, ValueError) as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from error

    async def _observe(self, method: str, params: Params) -> None:
        if method == "session/cancel":
            session = self.sessions.get(read_params(params, prompts.OneSession).session_id)
        elif method == "$/cancel_request":
            session = self._prompts.get(params.get("requestId"))
        else:
            return
        if session is not None:
            await _cancel(session)

    # The connection

    async def _initialize(self, params: Params) -> Params:
        read_params(params, prompts.Initialize)
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "fork": {}, "close": {}, "delete": {}},
            },
            "agentInfo": {"name": "steersman", "title": "Steersman", "version": _find_version()},
            "authMethods": [],
        }

    async def _authenticate(self, params: Params) -> Params:
        raise RpcError(INVALID_PARAMS, "There is nothing to log in to: keys come from the environment.")

    # Sessions

    async def _create(self, params: Params) -> Params:
        wanted = read_params(params, prompts.NewSession)
        session = await self._open(None, wanted.cwd, wanted.mcp_servers)
        return {"sessionId": session.id, **_describe_state(session)}

    async def _load(self, params: Params) -> Params:
        wanted = read_params(params, prompts.OldSession)
        session = await self._open(wanted.session_id, wanted.cwd, wanted.mcp_servers)
        updates = Updates(str(session.cwd), echo=True)
        for entry in session.live.session.entries():
            if entry.type != "message":
                continue
            message = msgspec.json.decode(encode(entry.message))
            for update in updates.read({"type": "message_end", "message": message, "entry_id": entry.id}):
                self._update(session, update)
            await self._outlet.wait_for_space()
        for update in updates.finish():
            self._update(session, update)
        return _describe_state(session)

    async def _resume(self, params: Params) -> Params:
        wanted = read_params(params, prompts.OldSession)
        return _describe_state(await self._open(wanted.session_id, wanted.cwd, wanted.mcp_servers))

    async def _fork(self, params: Params) -> Params:
        wanted = read_params(params, prompts.OldSession)
        store = self._workplaces.find_store(_read_folder(wanted.cwd))
        id = await asyncio.to_thread(copy_session, store, wanted.session_id)
        session = await self._open(id, wanted.cwd, wanted.mcp_servers)
        return {"sessionId": session.id, **_describe_state(session)}

    async def _open(self, id: str | None, cwd: str, servers: Sequence[prompts.ServerOfClient]) -> OpenSession:
        folder = _read_folder(cwd)
        self._folders.add(folder)
        if id is not None and (known := self.sessions.get(id)) is not None:
            if known.turn is not None:
                raise RpcError(INVALID_REQUEST, "A prompt is being answered in this session. Wait for it, or cancel.")
            del self.sessions[id]
            await known.close()
        session = OpenSession(folder, self._workplaces, servers)
        await session.start(id, self._timeout)
        self.sessions[session.id] = session
        loop = asyncio.get_running_loop()
        # After the response, which tells the client the id.
        loop.call_soon(
            self._update, session, {"sessionUpdate": "available_commands_update", "availableCommands": _COMMANDS}
        )
        return session

    async def _list(self, params: Params) -> Params:
        wanted = read_params(params, prompts.ListSessions)
        folders = {self._workplaces.home, *self._folders} if wanted.cwd is None else {_read_folder(wanted.cwd)}
        found = {
            one.id: (one, folder)
            for folder in folders
            for one in await asyncio.to_thread(self._workplaces.find_store(folder).list)
            if one.title
        }
        listed = sorted(found.values(), key=lambda pair: (-pair[0].updated, pair[0].id))
        start = int(wanted.cursor) if wanted.cursor is not None and wanted.cursor.isdecimal() else 0
        page = [
            {
                "sessionId": one.id,
                "cwd": str(folder),
                "title": one.title,
                "updatedAt": datetime.fromtimestamp(one.updated, UTC).isoformat(),
            }
            for one, folder in listed[start : start + _PAGE]
        ]
        more = {"nextCursor": str(start + _PAGE)} if len(listed) > start + _PAGE else {}
        return {"sessions": page, **more}

    async def _close(self, params: Params) -> Params:
        session = self._find(read_params(params, prompts.OneSession).session_id)
        if session.turn is not None:
            await _cancel(session)
            await session.turn.ended.wait()
        if self.sessions.pop(session.id, None) is not None:
            await session.close()
        return {}

    async def _delete(self, params: Params) -> Params:
        id = read_params(params, prompts.OneSession).session_id
        if id in self.sessions:
            await self._close(params)
        for folder in {self._workplaces.home, *self._folders}:
            try:
                await asyncio.to_thread(self._workplaces.find_store(folder).delete, id)
            except (SessionNotFound, ValueError):
                continue
        return {}

    def _find(self, id: str) -> OpenSession:
        if id not in self.sessions:
            raise RpcError(NOT_FOUND, f"There is no open session {id!r:.200}. Load or resume it first.")
        return self.sessions[id]

    # Options

    async def _set_mode(self, params: Params) -> Params:
        wanted = read_params(params, prompts.SetMode)
        session = self._find(wanted.session_id)
        set_mode(session, wanted.mode_id)
        self._update(session, {"sessionUpdate": "config_option_update", "configOptions": describe_options(session)})
        return {}

    async def _set_option(self, params: Params) -> Params:
        wanted = read_params(params, prompts.SetOption)
        session = self._find(wanted.session_id)
        apply_option(session, wanted.config_id, wanted.value)
        if wanted.config_id == "mode":
            self._update(session, {"sessionUpdate": "current_mode_update", "currentModeId": wanted.value})
        return {"configOptions": describe_options(session)}

    # Prompts

    async def _prompt(self, params: Params, id: RequestId) -> Params:
        wanted = read_params(params, prompts.Prompt)
        session, message = self._find(wanted.session_id), prompts.read_prompt(wanted.prompt)
        before = session.turn
        if before is not None and not before.cancelled:
            raise RpcError(INVALID_REQUEST, "A prompt is being answered in this session. Wait for it, or cancel it.")
        turn = session.turn = Turn()
        self._prompts[id] = session
        try:
            if before is not None:
                await before.ended.wait()
            reason = "cancelled" if turn.cancelled else await self._answer(session, turn, message)
            return {"stopReason": reason}
        finally:
            self._prompts.pop(id, None)
            if session.turn is turn:
                session.turn = None
            turn.ended.set()

    async def _answer(self, session: OpenSession, turn: Turn, message: AgentMessage) -> str:
        live = session.live
        if message.text.strip() == "/compact":
            done = live.agent.compact()
            self._update(session, _say("The context is shorter now." if done else "There is nothing to shorten."))
            return "end_turn"
        updates, questions = Updates(str(session.cwd), context_window=live.agent.model.context_window), Questions()

        async def act() -> Receipt:
            receipt = await live.prompt(message)
            if turn.cancelled:
                await live.abort()
            return receipt

        end: Mapping[str, Any] = {"end_reason": "error", "detail": "The run could not start; the log says why."}
        try:
            async with aclosing(_follow_until_idle(live, act)) as events:
                async for event in events:
                    for update in updates.read(event):
                        self._update(session, update)
                    questions.read(event, lambda asked: self._ask(session, updates.describe_question(asked), asked))
                    if event["type"] == "agent_end":
                        end = event
                    await self._outlet.wait_for_space()
        finally:
            await questions.close()
        for update in updates.finish():
            self._update(session, update)
        reason = "cancelled" if turn.cancelled else read_stop_reason(end, updates.last_answer)
        if reason is None:
            words = updates.last_answer.get("error_message") or end.get("detail") or "The run failed."
            kind = updates.last_answer.get("error_kind")
            raise RpcError(INTERNAL_ERROR, str(words), None if kind is None else {"kind": kind})
        return reason

    async def _ask(self, session: OpenSession, call: Params, question: Mapping[str, Any]) -> None:
        mark = fingerprint(question["tool_name"], question["args"])
        decision = Decision("denied", "The user has rejected this call for good.")
        if not self._can_ask:
            decision = Decision("denied", "The editor cannot ask its user, so this call is denied.")
        elif mark not in session.rejected:
            try:
                params = {"sessionId": session.id, "toolCall": call, "options": OPTIONS}
                decision = read_decision(await self.peer.request("session/request_permission", params))
            except RpcError as error:
                self._can_ask = error.code != METHOD_NOT_FOUND
                decision = Decision("denied", f"The editor could not ask its user: {error.message}")
            except ConnectionError:
                return  # the question stays open in the log
        if decision.says == "approved":
            await session.live.approve(question["approval_id"], by="acp", remember=decision.always)
            return
        if decision.always:
            session.rejected.add(mark)
        await session.live.deny(question["approval_id"], decision.reason, by="acp")

    def _update(self, session: OpenSession, update: Params) -> None:
        self.peer.notify("session/update", {"sessionId": session.id, "update": update})


async def _follow_until_idle(
    live: LiveSession, act: Callable[[], Awaitable[Receipt]]
) -> AsyncGenerator[Mapping[str, Any]]:
    """The events of the run that `act` starts, and of those that follow for messages that came too late for it."""
    after = live.hub.position
    first: Callable[[], Awaitable[Receipt]] | None = act
    while first is not None or live.is_busy:
        async with aclosing(follow_events(live, first, None if first is not None else after)) as events:
            first = None
            async for position, event in events:
                after = parse_position(position)
                yield event


async def _cancel(session: OpenSession) -> None:
    if session.turn is not None:
        session.turn.cancelled = True
        await session.live.abort()


def _describe_state(session: OpenSession) -> Params:
    modes = describe_modes(session)
    return {"configOptions": describe_options(session), **({} if modes is None else {"modes": modes})}


def _read_folder(cwd: str) -> Path:
    path = Path(cwd)
    if "\0" in cwd or not path.is_absolute() or not path.is_dir():
        raise RpcError(INVALID_PARAMS, f"cwd must be the absolute path of a folder, got {cwd!r:.500}.")
    return path


def _say(text: str) -> Params:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


def _find_version() -> str:
    try:
        return version("steersman")
    except PackageNotFoundError:
        return "0"
