"""A run as one JSON object, written when it is over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.cli.terminal.stdout import Outlet
from steersman.cli.troubles import keyless
from steersman.types.messages import EndReason
from steersman.types.result import RunResult
from steersman.types.wire import encode

if TYPE_CHECKING:
    from steersman.cli.setup.startup import Outfit
    from steersman.events.stream import EventStream


class WholeJson:
    """Shows each run as one object on one line."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._outfit: Outfit | None = None
        self._began = time.monotonic()

    def wear(self, outfit: Outfit) -> None:
        """Know whose runs these are."""
        self._outfit = outfit

    async def show(self, stream: EventStream) -> RunResult:
        """Wait for the end of a run and write what it came to."""
        self._began = time.monotonic()
        result = await stream
        self._write(result)
        return result

    def missed(self, reason: EndReason, detail: str) -> None:
        """Say that there was no run, and why."""
        from steersman.types.usage import Usage

        self._write(RunResult([], Usage(), reason, detail))

    def _write(self, result: RunResult) -> None:
        outfit = self._outfit
        fields: dict[str, Any] = {
            "text": result.text,
            "output": result.output,
            "end_reason": result.end_reason,
            "detail": result.detail,
            "model": None if outfit is None else f"{outfit.model.provider}:{outfit.model.id}",
            "session_id": None if outfit is None else outfit.agent.context.session_id,
            "usage": result.usage,
            "cost": result.cost,
            "duration": round(time.monotonic() - self._began, 3),
            "messages": [msgspec.Raw(encode(message)) for message in result.messages],
        }
        line = msgspec.json.encode(fields, enc_hook=repr).decode()
        self._outlet.write(keyless()(line).encode() + b"\n")
