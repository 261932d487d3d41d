"""`CaseRun`: one finished run of a case, as its session tells it. Scorers judge it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from steersman.context.entries import MessageEntry
from steersman.evals.case import Case
from steersman.session.records import Payload
from steersman.session.session import Session
from steersman.types.content import ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage
from steersman.types.usage import Usage

EVALUATED = "evaluated"
"""The type of the record that says how the run of a case ended; a session without it is not finished."""

SCORE = "score"
"""The type of the record of a score that must not be asked for again, such as that of a judge."""

CRASHES = frozenset(("error", "aborted"))
"""The ends of a run that are crashes: it failed, or it was aborted from outside."""


@dataclass(frozen=True, slots=True)
class CaseRun:
    """A finished run: what was said, what it took, and how it ended.

    `output` is the JSON value of the agent's `output_type`, or else the text of the last answer. `duration` is in
    seconds. `error` says why the case crashed; it is empty for one that did not. `workspace` is the folder of the case.
    """

    case: Case
    agent: str
    repeat: int
    session_id: str
    messages: Sequence[AgentMessage]
    output: Any
    usage: Usage
    duration: float
    end_reason: str
    detail: str
    error: str = ""
    workspace: Path | None = None

    @property
    def text(self) -> str:
        """The text of the last answer."""
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage):
                return message.text
        return ""

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls that the model made, in order."""
        return [
            block
            for message in self.messages
            if isinstance(message, AssistantMessage)
            for block in message.content
            if isinstance(block, ToolCall)
        ]

    @property
    def tool_results(self) -> list[ToolResultMessage]:
        """The results of the tool calls, in order."""
        return [message for message in self.messages if isinstance(message, ToolResultMessage)]

    @property
    def turns(self) -> int:
        """The number of answers of the model."""
        return sum(isinstance(message, AssistantMessage) for message in self.messages)

    @property
    def cost(self) -> float | None:
        """US dollars, `None` when no price is known."""
        return self.usage.cost


def find_record(session: Session, type: str) -> Payload | None:
    """The last record of a type."""
    found = None
    for record in session.records():
        if record.type == type:
            found = record.payload
    return found


def find_scores(session: Session, leaf: str | None) -> dict[str, Payload]:
    """The recorded scores of the run that ends in this entry, by their keys."""
    scores: dict[str, Payload] = {}
    for record in session.records():
        if record.type == SCORE and record.payload.get("leaf") == leaf:
            scores[str(record.payload.get("key"))] = record.payload
    return scores


def load_case_run(
    session: Session, ended: Mapping[str, Any], case: Case, agent: str, repeat: int, workspace: Path | None
) -> CaseRun:
    """The run that a session holds. It is always read from there, so it is the same in whichever process it ran."""
    leaf = cast("str | None", ended.get("leaf"))
    entries = session.entries(leaf) if leaf is not None else ()
    return CaseRun(
        case,
        agent,
        repeat,
        session.id,
        [entry.message for entry in entries if isinstance(entry, MessageEntry)],
        ended.get("output"),
        msgspec.convert(ended.get("usage") or {}, Usage),
        float(ended.get("duration") or 0.0),
        str(ended.get("end_reason", "")),
        str(ended.get("detail", "")),
        str(ended.get("error", "")),
        workspace,
    )
