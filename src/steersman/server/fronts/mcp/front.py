"""The driver of the Model Context Protocol: answers one client, runs the agents that it calls, and asks it questions.

Each call is a conversation of its own, kept in the store like others. A client that cannot be asked (no elicitation)
has its questions denied at once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import msgspec

from steersman.agent.named import DEFAULT_AGENT
from steersman.server.fronts.followed import FollowedSession, create
from steersman.server.fronts.following import follow_events
from steersman.server.fronts.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NoAnswer,
    Params,
    Peer,
    RequestId,
    RpcError,
    read_params,
)
from steersman.server.fronts.mcp.call_view import CallView, make_error
from steersman.server.fronts.questions import Questions
from steersman.server.live import LiveSession
from steersman.server.sessions import Sessions
from steersman.server.watch import Watch
from steersman.types.messages import user_message

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions of the protocol that are spoken, the newest first."""
TOOL: Final = "run"
"""The name of the tool of a server with one agent."""
DESCRIPTION: Final = "Hand a task to an agent. It works on it with its own tools and returns its answer."

_LAST_SECONDS = 1.0
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_.-]+")
_SCHEMA: Params = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "description": "What to do, with everything needed to do it."}},
    "required": ["prompt"],
    "additionalProperties": False,
}
_APPROVAL: Params = {
    "type": "object",
    "properties": {"approved": {"type": "boolean", "title": "Allow this call"}},
    "required": ["approved"],
}


class _Initialize(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any] = {}


class _Call(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] = {}
    meta: dict[str, Any] = msgspec.field(default_factory=dict[str, Any], name="_meta")


class McpFront:
    """Serves one client. `peer` takes its messages; `send` gets the answers, and `wait_for_space` waits for it."""

    def __init__(
        self,
        sessions: Sessions,
        send: Callable[[Params], None],
        *,
        user: str | None = None,
        description: str = DESCRIPTION,
        wait_for_space: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.peer = Peer(send, self._respond, self._observe)
        self.version = VERSIONS[0]
        self._sessions = sessions
        self._user = user
        self._description = description
        self._wait_for_space = wait_for_space
        self._can_ask = False
        self._calls: dict[RequestId, _Running] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a call goes on."""
        return bool(self._calls)

    async def close(self, *, abort: bool = False) -> None:
        """Let go of the client. Its runs go on in the server, unless they are aborted."""
        for running in list(self._calls.values()) if abort else ():
            if running.live is not None:
                await running.live.abort()
        await self.peer.close()

    async def finish(self) -> None:
        """The client sends no more: give what it asked for a moment, and then let go of it."""
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self.peer.finish()
        except TimeoutError:
            pass  # it hangs up in the middle of a run, which is cut
        await self.close()

    async def _respond(self, method: str, params: Params, id: RequestId) -> Any:
        match method:
            case "initialize":
                return self._initialize(read_params(params, _Initialize))
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [self._describe_tool(name) for name in name_tools(self._sessions)]}
            case "tools/call":
                return await self._call(read_params(params, _Call), id)
            case _:
                raise RpcError(METHOD_NOT_FOUND, f"There is no method {method!r:.100}.")

    async def _observe(self, method: str, params: Params) -> None:
        if method == "notifications/cancelled" and (running := self._calls.get(params.get("requestId"))) is not None:
            running.cancelled = True
            if running.live is not None:
                await running.live.abort()

    def _initialize(self, wanted: _Initialize) -> Params:
        if wanted.protocol_version in VERSIONS:
            self.version = wanted.protocol_version
        self._can_ask = _can_ask(wanted.capabilities)
        return {
            "protocolVersion": self.version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "steersman", "title": "Steersman", "version": _find_version()},
        }

    def _describe_tool(self, name: str) -> Params:
        return {"name": name, "description": self._description, "inputSchema": _SCHEMA}

    # Calls

    async def _call(self, wanted: _Call, id: RequestId) -> Params:
        agent = name_tools(self._sessions).get(wanted.name)
        if agent is None:
            raise RpcError(INVALID_PARAMS, f"There is no tool {wanted.name!r:.100}.")
        prompt = wanted.arguments.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip() or set(wanted.arguments) != {"prompt"}:
            return make_error("The tool takes one argument, 'prompt', which is a text that is not empty.")
        if self._sessions.draining:
            raise RpcError(INTERNAL_ERROR, "The server is about to stop. Try again in a moment.")
        if id in self._calls:
            raise RpcError(INVALID_REQUEST, f"A call with the id {id!r:.100} is going on. Give each call its own.")
        running = self._calls[id] = _Running()
        try:
            async with create(self._sessions, self._user, agent) as live:
                running.live = live
                with Watch(live.hub, live.hub.position):  # so that the server does not close it as idle
                    result = await self._run(running, live, prompt, wanted.meta.get("progressToken"))
            await self._sessions.close_idle(live.hub.session_id)
        finally:
            del self._calls[id]
        if running.cancelled:
            raise NoAnswer
        return result

    async def _run(self, running: _Running, live: LiveSession | FollowedSession, prompt: str, token: Any) -> Params:
        async def act() -> None:
            await live.prompt(user_message(prompt), approvals="wait" if self._can_ask else "deny")
            if running.cancelled:
                await live.abort()

        view, questions, count = CallView(), Questions(), 0
        try:
            async with aclosing(follow_events(live, act)) as events:
                async for _, event in events:
                    words = view.read(event)
                    if words is not None and token is not None and not running.cancelled:
                        count += 1
                        more = {"message": words} if words else {}
                        self.peer.notify("notifications/progress", {"progressToken": token, "progress": count, **more})
                    questions.read(event, lambda asked: self._ask(live, asked))
                    if self._wait_for_space is not None:
                        await self._wait_for_space()
        finally:
            await questions.close()
        await live.wait_until_idle()
        return view.make_result(live.hub.session_id)

    async def _ask(self, live: LiveSession | FollowedSession, question: Mapping[str, Any]) -> None:
        if not self._can_ask:  # a worker cannot be told to deny them
            await live.deny(question["approval_id"], "The client cannot ask its user.", by="mcp")
            return
        words = f"May the agent use {question['tool_name']}? {question['reason']}\n\n{question['preview']}".strip()
        approved, reason = False, "The user declined."
        try:
            answer = await self.peer.request("elicitation/create", {"message": words, "requestedSchema": _APPROVAL})
            approved = is_approval(answer)
        except RpcError as error:
            reason = f"The client could not ask its user: {error.message}"
        except ConnectionError:
            reason = "The client is gone."
        if approved:
            await live.approve(question["approval_id"], by="mcp")
        else:
            await live.deny(question["approval_id"], reason, by="mcp")


class _Running:
    """A call that goes on."""

    def __init__(self) -> None:
        self.live: LiveSession | FollowedSession | None = None
        self.cancelled = False


def name_tools(sessions: Sessions) -> dict[str, str]:
    """The tools, one for each agent, and the names of their agents."""
    found: dict[str, str] = {}
    for agent in sessions.agents:
        is_only = len(sessions.agents) == 1 or agent == DEFAULT_AGENT
        base = TOOL if is_only else _UNNAMEABLE.sub("_", agent)[:60]
        name, number = base, 2
        while name in found:
            name, number = f"{base}_{number}", number + 1
        found[name] = agent
    return found


def is_approval(answer: Any) -> bool:
    """Whether the answer to an elicitation approves the call; everything that is not clear is a denial."""
    try:
        return msgspec.convert(answer, _Answer).approves
    except msgspec.ValidationError:
        return False


class _Answer(msgspec.Struct, frozen=True):
    action: str
    content: dict[str, Any] | None = None

    @property
    def approves(self) -> bool:
        return self.action == "accept" and (self.content or {}).get("approved") is True


def _can_ask(capabilities: Mapping[str, Any]) -> bool:
    """Whether the client can show a form. An empty capability means forms, as before there was another kind."""
    found: Any = capabilities.get("elicitation")
    return isinstance(found, dict) and (not found or "form" in found)


def _find_version() -> str:
    try:
        return version("steersman")
    except PackageNotFoundError:
        return "0"
