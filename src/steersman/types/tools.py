"""`ToolOutput`, the answer of a tool, and the effects through which a tool asks the loop for something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from steersman.types.content import Content


class Prun(msgspec.Struct, frozen=True):
    """Asks the loop to drop the model's own recent messages once the batch of tool calls is done."""

    tokens: int
    memo: str | None = None


Effect: TypeAlias = Prun


class ToolOutput(msgspec.Struct, frozen=True):
    """A tool's answer: `content` for the model, `details` for the application, `effects` for the loop."""

    content: str | Sequence[Content] = ""
    details: dict[str, Any] = msgspec.field(default_factory=dict)
    is_error: bool = False
    terminate: bool = False
    effects: Sequence[Effect] = ()
