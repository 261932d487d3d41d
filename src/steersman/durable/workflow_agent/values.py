"""What travels between a workflow and its activities: positions, new messages and outcomes, never a conversation.

Plain dataclasses, so that the usual data converter writes them as JSON that can be read in a history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass
class Place:
    """Where a run is: its agent by name, its session, and the number of the last record that the workflow knows of."""

    agent: str
    session_id: str
    agent_id: str
    loop_id: str
    record: int = 0


@dataclass
class NewEntry:
    """A message that the workflow has added to its log. The result of a call that an activity ran is only named."""

    id: str
    message: Json | None = None
    call_id: str = ""


@dataclass
class AskInput:
    """Ask the model: the log is in the session, up to these new entries. `entry_id` will be the id of the answer."""

    place: Place
    entry_id: str
    entries: list[NewEntry] = field(default_factory=list[NewEntry])
    tool_choice: str = "auto"
    pruns: list[Json] = field(default_factory=list[Json])


@dataclass
class AddInput:
    """Add new entries, and messages for the queue of the session: more than the next activity can be given."""

    place: Place
    entries: list[NewEntry] = field(default_factory=list[NewEntry])
    queued: list[Json] = field(default_factory=list[Json])


@dataclass
class AskOutput:
    """The answer, without what only the model reads again, its record, and what all requests for it used."""

    record: int
    message: Json
    usage: Json
    error: Json | None = None


@dataclass
class CallInput:
    """Run a tool call of the answer in record `place.record`. `arguments` are there if a gate has changed them."""

    place: Place
    entry_id: str
    call_id: str
    arguments: Json | None = None


@dataclass
class CallOutput:
    """How a tool call ended; its result is in the session."""

    is_error: bool = False
    terminate: bool = False
    pruns: list[Json] = field(default_factory=list[Json])


@dataclass
class EndInput:
    """Record the end of a run, after these new entries; `queued` are messages that it leaves for the next one."""

    place: Place
    end_reason: str
    detail: str
    usage: Json
    turns: int
    entries: list[NewEntry] = field(default_factory=list[NewEntry])
    take_over: bool = False
    queued: list[Json] = field(default_factory=list[Json])


@dataclass
class Carried:
    """What a run takes along when its workflow continues as new. `keys` are those of what was heard before."""

    place: Place
    usage: Json
    turns: int = 0
    tokens: int = 0
    cost: float = 0.0
    elapsed: float = 0.0
    entries: list[NewEntry] = field(default_factory=list[NewEntry])
    queued: list[Json] = field(default_factory=list[Json])
    keys: list[str] = field(default_factory=list[str])


@dataclass
class AgentResult:
    """The result of a run: why it ended, the text of the last answer, and what was used.

    `carried` is there if the history of the workflow is full and the run has not ended: continue as new with it.
    """

    session_id: str
    end_reason: str
    detail: str = ""
    text: str = ""
    output: Any = None
    usage: Json = field(default_factory=dict[str, Any])
    turns: int = 0
    carried: Carried | None = None
