"""A key that is denied over real sockets, in every protocol: it stays that wherever it comes up, and is never shown."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from traceback import TracebackException
from typing import Any

import pytest
from tests.provider.wires.protocols import SERVERS

from steersman import Agent, AgentEvent, ContextConfig, Retry
from steersman.context.compaction.config import CompactionConfig
from steersman.context.compaction.strategies import SummaryCompaction
from steersman.testing import answer, call
from steersman.testing.servers import Reply, StrictServer
from steersman.types import wire
from steersman.types.errors import AuthenticationError, ErrorInfo
from steersman.types.events import CompactionEnded, ModelFallback
from steersman.types.messages import AgentMessage, ToolResultMessage

pytestmark = pytest.mark.real_time

KEY = "sk-canary-5f1e9c0a7b"
ONCE = Retry(max_attempts=1)
HEADERS = {"anthropic": "request-id", "google": "x-goog-request-id", "openai": "x-request-id"}
SMALL = 2_000


def server_of(name: str, *script: Any) -> StrictServer:
    return SERVERS[name](*script, key=KEY)


def denying(name: str) -> Reply:
    """A server that no longer takes the key, and quotes it in its words and beside them."""
    body = SERVERS[name]().build_error_body(401, f"The key {KEY} was taken back.")
    body.get("error", body)["given"] = {"authorization": f"Bearer {KEY}"}
    return Reply(401, body, {HEADERS.get(name, "x-request-id"): "req_denied"})


@dataclass
class Seen:
    """All that a user of an agent gets to see."""

    events: list[AgentEvent] = field(default_factory=list[AgentEvent])
    words: list[str] = field(default_factory=list[str])

    def watch(self, agent: Agent[Any]) -> Agent[Any]:
        agent.subscribe(self.events.append)
        return agent

    def hold_no_key(self, *more: object) -> None:
        told = [wire.encode(event).decode() for event in self.events] + self.words + [repr(one) for one in more]
        assert told
        assert not [text for text in told if KEY in text]


def check(name: str, info: ErrorInfo | None) -> None:
    """The failure is the one that the server told, whole but for the key."""
    assert info is not None
    assert (info.kind, info.provider, info.status) == ("authentication", SERVERS[name].provider, 401)
    assert info.request_id == "req_denied"
    assert "was taken back" in info.message
    assert info.body is not None
    assert "was taken back" in info.body
    assert "given" in info.body
    assert KEY not in info.message + info.body


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture) -> Any:
    """What is shown, the log at its most talkative included."""
    caplog.set_level(logging.DEBUG)
    seen = Seen()
    yield seen
    assert KEY not in caplog.text


class Asks:
    """A compaction that has the run's model write, and lets go what goes wrong."""

    def __init__(self) -> None:
        self.caught: list[Exception] = []

    async def compact(
        self, messages: Sequence[AgentMessage], config: ContextConfig, ask: Any, /
    ) -> Sequence[AgentMessage]:
        try:
            await ask(messages)
        except Exception as error:
            self.caught.append(error)
            raise
        return messages


def compacting(strategy: Any) -> ContextConfig:
    return ContextConfig(SMALL, keep_recent=1, compaction=CompactionConfig(in_memory_strategy=strategy))


@pytest.mark.parametrize("name", SERVERS)
async def test_a_wrong_key_for_a_summary_is_told_to_the_strategy_as_what_it_is(name: str, seen: Seen) -> None:
    """failures.md E11: across compaction. The run goes on, and ends when its own request is denied."""
    asks = Asks()
    async with server_of(name, "x" * 7_000, denying(name), denying(name)) as server:
        agent = seen.watch(Agent(server.model(), retry=ONCE, context_config=compacting(asks)))
        assert (await agent.run("Hi.")).end_reason == "done"
        result = await agent.run("Go on.")
    (error,) = asks.caught
    assert isinstance(error, AuthenticationError)
    check(name, error.info)
    seen.words += [str(error), *TracebackException.from_exception(error, capture_locals=True).format()]
    (ended,) = [event for event in seen.events if isinstance(event, CompactionEnded)]
    assert ended.error is not None
    assert ended.error.startswith("AuthenticationError: ")
    assert (result.end_reason, result.error_kind, len(server.raw)) == ("error", "authentication", 3)
    check(name, result.error)
    seen.hold_no_key(result, agent.messages)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_wrong_key_for_a_summary_without_which_the_run_cannot_go_on_is_its_end(name: str, seen: Seen) -> None:
    """failures.md E11: not an overflow, which the user could do nothing about."""
    async with server_of(name, "x" * 9_000, denying(name)) as server:
        agent = seen.watch(Agent(server.model(), retry=ONCE, context_config=compacting(Asks())))
        assert (await agent.run("Hi.")).end_reason == "done"
        result = await agent.run("Go on.")
    assert (result.end_reason, result.error_kind, len(server.raw)) == ("error", "authentication", 2)
    assert "was taken back" in result.detail
    check(name, result.error)
    seen.hold_no_key(result, agent.messages)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_summary_that_was_denied_is_replaced_and_the_reason_told(name: str, seen: Seen) -> None:
    """failures.md E11, loop.md C3."""
    async with server_of(name, "x" * 4_000, "y" * 4_000, denying(name), "Fine.") as server:
        strategy = SummaryCompaction(on_fallback=seen.words.append)
        agent = seen.watch(Agent(server.model(), retry=ONCE, context_config=compacting(strategy)))
        for prompt in ("Hi.", "And?"):
            assert (await agent.run(prompt)).end_reason == "done"
        result = await agent.run("Go on.")
    (why,) = seen.words
    assert why.startswith("the summary failed: AuthenticationError: ")
    assert (result.end_reason, result.text, result.error) == ("done", "Fine.", None)
    seen.hold_no_key(result, agent.messages)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_wrong_key_of_a_sub_agent_is_told_whole_to_the_one_above(name: str, seen: Seen) -> None:
    """failures.md E11: across the boundary of a sub-agent, whose parent goes on."""
    async with (
        server_of(name, denying(name)) as below,
        server_of(name, answer(call("ask", prompt="x")), "Ok.") as above,
    ):
        ask = Agent(below.model(), retry=ONCE).as_tool("ask", "Ask somebody.")
        agent = seen.watch(Agent(above.model(), tools=[ask], retry=ONCE))
        result = await agent.run("Go.")
    (told,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert (told.is_error, told.details["end_reason"], told.details["error_kind"]) == (True, "error", "authentication")
    check(name, ErrorInfo(**told.details["error"]))
    assert (result.end_reason, result.text, result.error) == ("done", "Ok.", None)
    seen.hold_no_key(result, agent.messages)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_wrong_key_in_a_chain_of_models_is_told_at_each_step(name: str, seen: Seen) -> None:
    """failures.md E11: the next model is asked, and when no more is left the last failure is the run's."""
    async with server_of(name, denying(name), denying(name)) as first, server_of(name, denying(name)) as second:
        fallbacks = [second.model("second"), first.model("third")]
        result = await seen.watch(Agent(first.model("first"), fallbacks=fallbacks, retry=ONCE)).run("Go.")
    steps = [event for event in seen.events if isinstance(event, ModelFallback)]
    provider = SERVERS[name].provider
    assert [(step.from_model, step.to_model) for step in steps] == [
        (f"{provider}:first", f"{provider}:second"),
        (f"{provider}:second", f"{provider}:third"),
    ]
    for info in (*(step.error for step in steps), result.error):
        check(name, info)
    assert result.error is not None
    assert f"{provider}:third" in result.error.message
    assert (result.end_reason, result.error_kind) == ("error", "authentication")
    seen.hold_no_key(result)


@dataclass
class Colour:
    """A colour."""

    name: str


@pytest.mark.parametrize("name", SERVERS)
async def test_a_wrong_key_while_an_answer_is_mended_ends_the_run_as_that(name: str, seen: Seen) -> None:
    """failures.md E11: not as an answer that does not fit."""
    async with server_of(name, '{"shade": 1}', denying(name)) as server:
        agent = seen.watch(Agent(server.model(), output_type=Colour, retry=ONCE))
        result = await agent.run("Which?")
    assert (result.end_reason, result.error_kind, result.has_output, len(server.raw)) == (
        "error",
        "authentication",
        False,
        2,
    )
    check(name, result.error)
    seen.hold_no_key(result, agent.messages)


@pytest.mark.parametrize("name", SERVERS)
async def test_the_server_knows_the_key_and_tells_another_from_it(name: str, seen: Seen) -> None:
    """The strict server's own refusal, before any script: nothing of the wrong key is shown either."""
    async with SERVERS[name]("Never said.", key="the right key") as server:
        agent = seen.watch(Agent(server.model(api_key=KEY), retry=ONCE))
        result = await agent.run("Hi.")
    assert (result.end_reason, result.error_kind, server.left) == ("error", "authentication", 1)
    assert result.error is not None
    assert (result.error.provider, result.error.status) == (
        server.provider,
        {"google": 400, "bedrock": 403}.get(name, 401),
    )
    seen.hold_no_key(result, agent.messages)
