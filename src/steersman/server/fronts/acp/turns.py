"""Follows the runs of an editor's sessions: what a run does is told as updates, and its questions are asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from steersman.server.fronts.acp.editor_sessions import OpenSession, Turn
from steersman.server.fronts.acp.permissions import Permissions
from steersman.server.fronts.acp.updates import Updates, read_stop_reason
from steersman.server.fronts.following import follow_events
from steersman.server.fronts.json_rpc import INTERNAL_ERROR, Outlet, Params, Peer, RpcError
from steersman.server.fronts.questions import Questions
from steersman.server.live import LiveSession
from steersman.server.position import parse_position
from steersman.types.messages import AgentMessage

_NO_START: Mapping[str, Any] = {"end_reason": "error", "detail": "The run could not start; the log says why."}


class Turns:
    """The turns of one editor."""

    def __init__(self, peer: Peer, outlet: Outlet, permissions: Permissions) -> None:
        self._peer = peer
        self._outlet = outlet
        self._permissions = permissions

    def update(self, session: OpenSession, update: Params) -> None:
        """Tell the editor something about a session."""
        self._peer.notify("session/update", {"sessionId": session.id, "update": update})

    async def answer(self, session: OpenSession, turn: Turn, message: AgentMessage) -> str:
        """Answer a prompt; returns the stop reason, and raises `RpcError` if the run fails."""
        live = session.live
        if message.text.strip() == "/compact":
            done = live.agent.compact()
            self.update(session, _say("The context is shorter now." if done else "There is nothing to shorten."))
            return "end_turn"

        async def act() -> None:
            await live.prompt(message)
            if turn.cancelled:
                await live.abort()

        telling = _Telling(session, self._make_updates(session), self._permissions)
        end = await self._tell(telling, act) or _NO_START
        reason = "cancelled" if turn.cancelled else read_stop_reason(end, telling.updates.last_answer)
        if reason is None:
            kind = telling.updates.last_answer.get("error_kind")
            words = _describe_failure(end, telling.updates)
            raise RpcError(INTERNAL_ERROR, words, None if kind is None else {"kind": kind})
        return reason

    async def ask_again(self, session: OpenSession, turn: Turn, history: Updates | None) -> None:
        """Ask the questions that were open when a process ended, and follow the run that goes on with the answer.

        Calls of the `history` that was sent are known to the editor.
        """
        live, updates = session.live, self._make_updates(session)
        if history is not None:
            updates.go_on_after(history)
        telling = _Telling(session, updates, self._permissions)

        async def wait_for_run() -> None:
            for question in session.open_questions:
                self._tell_event(telling, question)
            while session.open_questions and not (turn.cancelled or live.hub.closed):
                await live.hub.wait()

        end = await self._tell(telling, wait_for_run)
        if end is not None and not turn.cancelled and read_stop_reason(end, updates.last_answer) is None:
            self.update(session, _say(_describe_failure(end, updates)))

    async def _tell(self, telling: _Telling, act: Callable[[], Awaitable[None]]) -> Mapping[str, Any] | None:
        """Tell what the run does that `act` starts, and ask its questions; returns its end, if it had one."""
        end: Mapping[str, Any] | None = None
        try:
            async with aclosing(_follow_until_idle(telling.session.live, act)) as events:
                async for event in events:
                    self._tell_event(telling, event)
                    if event["type"] == "agent_end":
                        end = event
                    await self._outlet.wait_for_space()
        finally:
            await telling.questions.close()
        for update in telling.updates.finish():
            self.update(telling.session, update)
        return end

    def _tell_event(self, telling: _Telling, event: Mapping[str, Any]) -> None:
        for update in telling.updates.read(event):
            self.update(telling.session, update)
        telling.questions.read(event, telling.ask)

    def _make_updates(self, session: OpenSession) -> Updates:
        return Updates(str(session.cwd), context_window=session.live.agent.model.context_window)


class _Telling:
    """What the editor was told and asked in one turn."""

    def __init__(self, session: OpenSession, updates: Updates, permissions: Permissions) -> None:
        self.session = session
        self.updates = updates
        self.questions = Questions()
        self._permissions = permissions

    async def ask(self, question: Mapping[str, Any]) -> None:
        """Ask a question."""
        await self._permissions.ask(self.session, self.updates.describe_question(question), question)


async def _follow_until_idle(
    live: LiveSession, act: Callable[[], Awaitable[None]]
) -> AsyncGenerator[Mapping[str, Any]]:
    """The events of the run that `act` starts, and of those that follow for messages that came too late for it."""
    after = live.hub.position
    first: Callable[[], Awaitable[None]] | None = act
    while first is not None or live.is_busy:
        async with aclosing(follow_events(live, first, None if first is not None else after)) as events:
            first = None
            async for position, event in events:
                after = parse_position(position)
                yield event


def _describe_failure(end: Mapping[str, Any], updates: Updates) -> str:
    return str(updates.last_answer.get("error_message") or end.get("detail") or "The run failed.")


def _say(text: str) -> Params:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
