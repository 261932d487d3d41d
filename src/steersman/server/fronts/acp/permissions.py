"""Requests for permission: what the user can choose, and what the choice means. What is not understood is a denial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

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


_DECISIONS = {
    "allow_once": Decision("approved"),
    "allow_always": Decision("approved", always=True),
    "reject_once": Decision("denied", "The user rejected this call."),
    "reject_always": Decision("denied", "The user rejected this call for good.", always=True),
}


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
