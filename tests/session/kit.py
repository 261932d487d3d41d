"""Agents with sessions, what the sessions hold, and sessions as they are when a program is killed after any record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from steersman import Agent, AgentMessage, AssistantMessage, Session, ToolResultMessage
from steersman.context.repair import repair
from steersman.provider.scripted.strict import find_request_fault
from steersman.session.records import Record
from steersman.session.stores.store import Store, read_records
from steersman.testing import ScriptedModel
from steersman.types.model import Request

_numbers = count(1)


def records(store: Store, session_id: str) -> list[Record]:
    """Everything a session holds."""
    handle = store.open(session_id, write=False)
    try:
        return list(read_records(handle))
    finally:
        handle.close()


def types(found: Iterable[Record]) -> list[str]:
    """What kinds of records these are."""
    return [record.type for record in found]


def cut(store: Store, session_id: str, length: int) -> str:
    """The session as it is when the program is killed after so many records, as another session of the store."""
    return planted(store, records(store, session_id)[:length])


def planted(store: Store, found: Sequence[Record]) -> str:
    """A session of these records."""
    handle = store.create(f"cut-{next(_numbers)}")
    handle.append(found)
    handle.close()
    return handle.session_id


def reopened(store: Store, session_id: str, *turns: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    """What another program makes of a session: an agent with a script of its own."""
    script = ScriptedModel(*turns)
    return Agent(script.model, session=Session.open(store, session_id), **options), script


def session_of(agent: Agent) -> Session:
    """The session that this agent has for sure."""
    assert agent.session is not None
    return agent.session


def revived(
    store: Store, session_id: str, turns: Sequence[Any], **options: Any
) -> Iterator[tuple[list[Record], Agent, bool]]:
    """Kill a program after each of its records: what is left, an agent with it, and whether it has anything to do."""
    found = records(store, session_id)
    for length in range(1, len(found) + 1):
        left = found[:length]
        roles = [record.payload["message"]["role"] for record in left if record.type == "message"]
        answers = roles.count("assistant")
        again, _ = reopened(store, planted(store, left), *turns[answers:], **options)
        yield left, again, bool(roles) and answers < len(turns)
        done(again)


def said(messages: Iterable[AgentMessage]) -> list[str]:
    """Who said what; the calls of an answer stand in brackets."""
    return [_line(message) for message in messages]


def _line(message: AgentMessage) -> str:
    if isinstance(message, AssistantMessage) and message.tool_calls:
        return f"assistant: {message.text}[{', '.join(call.id for call in message.tool_calls)}]"
    if isinstance(message, ToolResultMessage):
        return f"{message.tool_call_id}: {message.text}"
    return f"{message.role}: {message.text}"


def check_sendable(messages: Sequence[AgentMessage]) -> None:
    """Fail unless the request that these messages make is one a strict server takes."""
    if any(message.role != "extension" for message in messages):
        fault = find_request_fault(Request("", repair(messages, provider="scripted", model="script"), ()))
        assert fault is None, (fault, said(messages))


def done(agent: Agent) -> None:
    """The end of a program that ends in good order."""
    assert agent.session is not None
    agent.close()
    agent.session.close()
