"""Asks an editor for permission: what its user can choose, and what the choice means.

What is not understood is a denial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from steersman.policy.approval import fingerprint
from steersman.server.fronts.acp.editor_sessions import OpenSession
from steersman.server.fronts.json_rpc import METHOD_NOT_FOUND, Params, Peer, RpcError

OPTIONS: Final = [
    {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "allow_always", "name": "Always allow this call", "kind": "allow_always"},
    {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
    {"optionId": "reject_always", "name": "Always reject this call", "kind": "reject_always"},
]


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a question; with `always`, also to the same question later on in this session."""

    says: Literal["approved", "denied"]
    reason: str = ""
    always: bool = False
    cannot_ask: bool = False


_DECISIONS = {
    "allow_once": Decision("approved"),
    "allow_always": Decision("approved", always=True),
    "reject_once": Decision("denied", "The user rejected this call."),
    "reject_always": Decision("denied", "The user rejected this call for good.", always=True),
}


class Permissions:
    """Asks one editor. If it does not know how, it is not asked again."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._can_ask = True

    async def ask(self, session: OpenSession, call: Params, question: Mapping[str, Any]) -> None:
        """Ask about a call, and give the answer to the session. If the editor goes, the question stays open."""
        mark, live = fingerprint(question["tool_name"], question["args"]), session.live
        decision = Decision("denied", "The user has rejected this call for good.")
        if mark not in session.rejected:
            try:
                decision = await self._request(session, call)
            except ConnectionError:
                return
        if decision.cannot_ask:
            while not live.is_busy and not live.hub.closed:
                await live.hub.wait()  # no run waits for this answer: it stays open until one does
        if decision.says == "approved":
            await live.approve(question["approval_id"], by="acp", remember=decision.always)
            return
        if decision.always:
            session.rejected.add(mark)
        await live.deny(question["approval_id"], decision.reason, by="acp")

    async def _request(self, session: OpenSession, call: Params) -> Decision:
        if not self._can_ask:
            return Decision("denied", "The editor cannot ask its user, so this call is denied.", cannot_ask=True)
        try:
            params = {"sessionId": session.id, "toolCall": call, "options": OPTIONS}
            return read_decision(await self._peer.request("session/request_permission", params))
        except RpcError as error:
            self._can_ask = error.code != METHOD_NOT_FOUND
            return Decision("denied", f"The editor could not ask its user: {error.message}", cannot_ask=True)


def read_decision(result: Any) -> Decision:
    """The decision in the result of a request for permission."""
    outcome: Any = cast(Mapping[str, Any], result).get("outcome") if isinstance(result, Mapping) else None
    if not isinstance(outcome, Mapping):
        return Decision("denied", "The editor's answer could not be read.")
    fields = cast(Mapping[str, Any], outcome)
    if fields.get("outcome") == "cancelled":
        return Decision("denied", "The user cancelled the question.")
    option = fields.get("optionId")
    found = _DECISIONS.get(option) if isinstance(option, str) and fields.get("outcome") == "selected" else None
    return found or Decision("denied", f"The editor chose {option!r:.50}, which was not offered.")
