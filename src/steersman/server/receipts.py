"""The receipts of a session: what is done under a key is done once, also after a restart or through another server."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from steersman.agent.agent import Agent
from steersman.server.outline import RECEIPT, REFUSED, Outline
from steersman.session.session import Session
from steersman.types.ids import new_id

Receipt: TypeAlias = dict[str, str]


def make_receipt(session_id: str, key: str | None) -> Receipt:
    """A receipt; with a key its id follows from the key, so that it is the same after a restart."""
    if key is None:
        return {"id": new_id("queued"), "status": "accepted"}
    digest = hashlib.sha256(f"{session_id}\n{key}".encode()).hexdigest()
    return {"id": f"queued_{digest[:24]}", "status": "accepted"}


class Receipts:
    """The receipts and notes of a session that is open here. They are records of its log."""

    def __init__(self, agent: Agent[Any], session: Session, outline: Outline) -> None:
        self.agent = agent
        self.session = session
        self._outline = outline

    def is_known(self, key: str) -> bool:
        """Whether something was said under this key."""
        return self._find_known(key) is not None

    def name_queued(self, key: str) -> str:
        """The id that a message has in the queue, if it is said under this key."""
        return make_receipt(self.session.id, key)["id"]

    async def find_receipt(self, key: str | None) -> Receipt | None:
        """The receipt of what was done under this key before, once that is saved; `None` if it is new."""
        if (known := self._find_known(key)) is not None:
            await self.session.save()
        return known

    async def keep_receipt(self, action: str, key: str | None, receipt: Receipt) -> Receipt:
        """Note the receipt of an action under its key, and return it once all is saved."""
        if key is not None:
            self._add_note({"action": action, **receipt, "key": key})
        await self.session.save()
        return receipt

    def was_resolved(self, approval_id: str) -> bool:
        """Whether a question with this id was asked and answered in this session."""
        return approval_id in self._outline.resolved

    def find_note(self, key: str) -> Mapping[str, Any] | None:
        """What a front has noted under a key."""
        return self._outline.receipts.get(key)

    def list_notes(self) -> Mapping[str, Mapping[str, Any]]:
        """All notes and receipts by their keys, the oldest first."""
        return self._outline.receipts

    @contextmanager
    def note(self, key: str, fields: Mapping[str, Any]) -> Generator[None]:
        """Note something in the log under a key, to be found after a restart as well; taken back if it fails."""
        self._add_note({"status": "accepted", **fields, "key": key})
        try:
            yield
        except Exception:
            del self._outline.receipts[key]
            self.session.recorder.add(RECEIPT, {"key": key, "status": REFUSED})
            raise

    def _add_note(self, note: dict[str, Any]) -> None:
        self._outline.receipts[note["key"]] = note
        self.session.recorder.add(RECEIPT, note)

    def _find_known(self, key: str | None) -> Receipt | None:
        if key is None:
            return None
        if self.agent.inbox.find_receipt(key) is not None:
            return make_receipt(self.session.id, key)
        known: Mapping[str, Any] | None = self._outline.receipts.get(key)
        return None if known is None else {"id": str(known["id"]), "status": str(known["status"])}

    def note_order(self, key: str, id: str) -> None:
        """Note that something was done under a key for another process; its record is in the log already."""
        self._outline.receipts.setdefault(key, {"id": id, "status": "accepted", "key": key})
