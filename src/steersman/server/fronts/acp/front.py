"""The driver of the Agent Client Protocol: answers the requests of one editor, and asks it for permission."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from steersman.server.fronts.acp import prompts
from steersman.server.fronts.acp.editor_sessions import OpenSession, Turn, Workplaces, copy_session
from steersman.server.fronts.acp.options import apply_option, describe_modes, describe_options, set_mode
from steersman.server.fronts.acp.permissions import Permissions
from steersman.server.fronts.acp.turns import Turns
from steersman.server.fronts.acp.updates import Updates
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
from steersman.session.stores.store import SessionError, SessionNotFound
from steersman.types.errors import SteersmanError
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
        self._turns = Turns(self.peer, outlet, Permissions(self.peer))
        self._folders: set[Path] = set()
        # Held while a session is loaded or resumed, so that one that is asked for twice at once is opened in turn.
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
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
            await session.wait_for_turn()
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
        if session is not None and session.turn is not None:
            session.turn.cancelled = True
            await session.live.abort()
            session.live.hub.wake()

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
        async with self._opening.setdefault(wanted.session_id, asyncio.Lock()):
            return await self._load_alone(wanted)

    async def _load_alone(self, wanted: prompts.OldSession) -> Params:
        session = await self._open(wanted.session_id, wanted.cwd, wanted.mcp_servers)
        updates = Updates(str(session.cwd), echo=True)
        for entry in session.live.session.entries():
            if entry.type != "message":
                continue
            message = msgspec.json.decode(encode(entry.message))
            for update in updates.read({"type": "message_end", "message": message, "entry_id": entry.id}):
                self._turns.update(session, update)
            await self._outlet.wait_for_space()
        if not session.open_questions:
            for update in updates.finish():
                self._turns.update(session, update)
        self._ask_again_soon(session, updates)
        return _describe_state(session)

    async def _resume(self, params: Params) -> Params:
        wanted = read_params(params, prompts.OldSession)
        async with self._opening.setdefault(wanted.session_id, asyncio.Lock()):
            session = await self._open(wanted.session_id, wanted.cwd, wanted.mcp_servers)
            self._ask_again_soon(session, None)
            return _describe_state(session)

    def _ask_again_soon(self, session: OpenSession, history: Updates | None) -> None:
        """Ask again what the end of a process has left open, after the response."""
        asyncio.get_running_loop().call_soon(self._ask_again, session, history)

    def _ask_again(self, session: OpenSession, history: Updates | None) -> None:
        if session.open_questions and session.turn is None and not session.live.hub.closed:
            session.begin_turn(lambda turn: self._turns.ask_again(session, turn, history))

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
            if known.turn is not None and (known.live.is_busy or not known.turn.is_ours):
                raise RpcError(INVALID_REQUEST, "A run is going on in this session. Wait for its end, or cancel it.")
            del self.sessions[id]
            await known.close()
            await known.wait_for_turn()
        session = OpenSession(folder, self._workplaces, servers)
        await session.start(id, self._timeout)
        self.sessions[session.id] = session
        loop = asyncio.get_running_loop()
        # After the response, which tells the client the id.
        loop.call_soon(
            self._turns.update, session, {"sessionUpdate": "available_commands_update", "availableCommands": _COMMANDS}
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
            await session.stop_turn(session.turn)
            await session.wait_for_turn()
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
        self._turns.update(
            session, {"sessionUpdate": "config_option_update", "configOptions": describe_options(session)}
        )
        return {}

    async def _set_option(self, params: Params) -> Params:
        wanted = read_params(params, prompts.SetOption)
        session = self._find(wanted.session_id)
        apply_option(session, wanted.config_id, wanted.value)
        if wanted.config_id == "mode":
            self._turns.update(session, {"sessionUpdate": "current_mode_update", "currentModeId": wanted.value})
        return {"configOptions": describe_options(session)}

    # Prompts

    async def _prompt(self, params: Params, id: RequestId) -> Params:
        wanted = read_params(params, prompts.Prompt)
        session, message = self._find(wanted.session_id), prompts.read_prompt(wanted.prompt)
        before = session.turn
        if before is not None and not before.cancelled and not before.is_ours:
            raise RpcError(INVALID_REQUEST, "A prompt is being answered in this session. Wait for it, or cancel it.")
        turn = session.turn = Turn()
        self._prompts[id] = session
        try:
            if before is not None:
                if before.is_ours:
                    await session.stop_turn(before)
                await before.ended.wait()
            reason = "cancelled" if turn.cancelled else await self._turns.answer(session, turn, message)
            return {"stopReason": reason}
        finally:
            self._prompts.pop(id, None)
            if session.turn is turn:
                session.turn = None
            turn.ended.set()


def _describe_state(session: OpenSession) -> Params:
    modes = describe_modes(session)
    return {"configOptions": describe_options(session), **({} if modes is None else {"modes": modes})}


def _read_folder(cwd: str) -> Path:
    path = Path(cwd)
    if "\0" in cwd or not path.is_absolute() or not path.is_dir():
        raise RpcError(INVALID_PARAMS, f"cwd must be the absolute path of a folder, got {cwd!r:.500}.")
    return path


def _find_version() -> str:
    try:
        return version("steersman")
    except PackageNotFoundError:
        return "0"
