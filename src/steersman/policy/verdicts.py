"""The verdicts that a hook, a policy or an input filter may return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec
from msgspec.structs import force_setattr

from steersman.types.messages import AgentMessage, MessageLike, to_messages


class Stop(msgspec.Struct, frozen=True):
    """End the run here."""

    reason: str = ""

    def __post_init__(self) -> None:
        _check_text(self, "reason", self.reason)


@dataclass(frozen=True, slots=True, init=False)
class Inject:
    """Say something more to the model: a string, a message, a dict such as `{"role": "user", ...}`, or several."""

    messages: Sequence[AgentMessage]

    def __init__(self, messages: MessageLike | Sequence[MessageLike]) -> None:
        object.__setattr__(self, "messages", tuple(to_messages(messages)))


class Skip(msgspec.Struct, frozen=True):
    """Do not do it; a tool call is answered with this text."""

    text: str = "Skipped by a policy."

    def __post_init__(self) -> None:
        _check_text(self, "text", self.text)
        if not self.text.strip():
            raise ValueError(f"Skip(text) is what the model reads instead of a result, so say why; got {self.text!r}.")


class Rewrite(msgspec.Struct, frozen=True):
    """Run the tool call with these arguments instead; they are checked again."""

    args: Mapping[str, Any]

    def __post_init__(self) -> None:
        force_setattr(self, "args", _check_args(self.args))


class Pass(msgspec.Struct, frozen=True):
    """Let the input in."""


class Warn(msgspec.Struct, frozen=True):
    """Let the input in with a warning to the model."""

    text: str

    def __post_init__(self) -> None:
        _check_text(self, "text", self.text)


class Reject(msgspec.Struct, frozen=True):
    """Keep the input out."""

    reason: str = ""

    def __post_init__(self) -> None:
        _check_text(self, "reason", self.reason)


Verdict: TypeAlias = Stop | Inject | Skip | Rewrite
"""What a hook or a policy answers when it has an opinion; `None` otherwise."""

FilterVerdict: TypeAlias = Pass | Warn | Reject
"""What an input filter answers, always."""


def _check_text(verdict: object, name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{type(verdict).__name__}({name}) takes a string, got {value!r}.")


def _check_args(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"Rewrite(args) takes the tool's arguments as a dict, got {value!r}.")
    return dict(cast(Mapping[str, Any], value))
