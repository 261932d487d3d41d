"""What may be changed of a session's agent from outside, by a server or through the queue; kept with the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import msgspec

from steersman.session.records import Payload
from steersman.types.model import ThinkingLevel


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of runs; `None` switches one off."""

    max_turns: int | msgspec.UnsetType | None = msgspec.UNSET
    max_total_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    max_duration: float | msgspec.UnsetType | None = msgspec.UNSET
    max_cost: float | msgspec.UnsetType | None = msgspec.UNSET


class Configure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may be changed from outside."""

    model: str | msgspec.UnsetType = msgspec.UNSET
    thinking_level: ThinkingLevel | msgspec.UnsetType = msgspec.UNSET
    mode: Literal["ask", "accept-edits", "plan", "bypass"] | msgspec.UnsetType = msgspec.UNSET
    limits: Limits | msgspec.UnsetType = msgspec.UNSET
    title: str | msgspec.UnsetType = msgspec.UNSET


class SettingChanges(TypedDict, total=False):
    """The same as arguments."""

    model: str
    thinking_level: ThinkingLevel
    mode: Literal["ask", "accept-edits", "plan", "bypass"]
    limits: Mapping[str, float | None]
    title: str


def merge_settings(before: Payload, changes: Payload) -> Payload:
    """What was changed so far, with further changes; limits are changed one by one."""
    limits: Any = {**before.get("limits", {}), **changes.get("limits", {})}
    return {**before, **changes, **({"limits": limits} if limits else {})}
