"""What every `StreamFn` has to do, done by each of the four protocols over a real socket."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, get_args

import pytest
from tests.provider.wires.protocols import SERVERS
from tests.rows import each_row

from steersman import Agent, Retry, tool
from steersman.provider.http.client import aclose_http
from steersman.provider.models.registry import find_stream_fn
from steersman.provider.streaming.normalize import stream_events
from steersman.testing import Subject, answer, call, conformance_checks, cut, error, stall, thinking
from steersman.testing.conformance import Check, Scenario
from steersman.testing.servers import StrictServer
from steersman.types.errors import ErrorKind
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Model, Request, StreamOptions

SCRIPTS: dict[Scenario, Any] = {
    "text": answer("Hello there"),
    "thinking": answer(thinking("Hm.\n\nSo."), "Yes."),
    "tool_calls": answer("Look.", call("look", at="x"), call("look")),
    "error": error("overloaded", after=2),
    "cut": cut("Hello there", after=2),
    "stall": stall("Hello there", after=1),
}


@tool
def look(at: str = "here") -> str:
    """Look somewhere."""
    return f"{at} is fine"


def normal(model: Model, request: Request, options: StreamOptions, /) -> Any:
    return stream_events(find_stream_fn(model), model, request, options)


@pytest.mark.real_time
@each_row("check", conformance_checks(), ids=lambda check: check.__name__)
@each_row("kind", SERVERS.values(), ids=SERVERS)
async def test_a_provider_does_what_every_provider_has_to(kind: type[StrictServer], check: Check) -> None:
    with ExitStack() as servers:

        def subject(scenario: Scenario) -> Subject:
            server = servers.enter_context(kind(SCRIPTS[scenario], repeat_last=True))
            return Subject(normal, server.model(), Request("", [user_message("Hi.")], [look]))

        await check(subject)
        # The pool's own work is not a task the stream left behind.
        await aclose_http()


# What a connection that breaks inside an answer is to its reader, and what servers say of their own troubles.
READ_AS: dict[tuple[ErrorKind, bool], tuple[ErrorKind, ...]] = {
    ("network", True): ("incomplete",),
    ("stalled", False): ("stalled", "overloaded"),
    ("stalled", True): ("stalled", "overloaded"),
    ("internal", False): ("overloaded",),
    ("internal", True): ("overloaded",),
}


@pytest.mark.real_time
@each_row("after", [None, 0, 2])
@each_row("kind", get_args(ErrorKind))
@each_row("name", SERVERS)
async def test_an_error_of_a_script_is_read_as_what_it_was_written_as(
    name: str, kind: ErrorKind, after: int | None
) -> None:
    """The words and statuses of a strict server tell the real one's errors apart, at once and after some deltas."""
    async with SERVERS[name](error(kind, after=after), repeat_last=True) as server:
        result = await Agent(server.model(), retry=Retry(max_attempts=1)).run("Hi")
    assert result.end_reason == "error"
    assert result.error_kind in READ_AS.get((kind, after is not None), (kind,))
    answered = result.messages[-1]
    assert isinstance(answered, AssistantMessage)
    assert (answered.stop_reason == "refusal") == (kind == "refused")
    assert answered.text == "partial " * (after or 0)
