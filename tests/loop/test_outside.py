"""What callers' functions may do to a run from outside, and what it makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from tests.loop.play import asked

from steersman import (
    Agent,
    AgentMessage,
    ContextConfig,
    ExtensionMessage,
    Model,
    ProviderError,
    Request,
    Retry,
    Stop,
    StreamOptions,
    tool,
)
from steersman.testing import EventCollector, ScriptedModel, answer, call
from steersman.types import wire
from steersman.types.content import TextContent
from steersman.types.messages import AssistantMessage
from steersman.types.stream import Done, StreamEvent, StreamStart, TextDelta
from steersman.types.tools import ToolOutput

QUICK = Retry(base_delay=0.1, jitter=0)
MODEL = Model("some", "one")


def done(text: str) -> Done:
    return Done(AssistantMessage([TextContent(text)]))


def with_a_dict(messages: list[AgentMessage]) -> Any:
    return [*messages, {"role": "user", "content": "By dict."}]


def as_dicts(messages: Any) -> Any:
    return [{"role": "user", "content": message.text} for message in messages]


def always(answer: Any) -> Callable[..., Any]:
    """A hook that always says the same."""

    def hook(*_: Any) -> Any:
        return answer

    return hook


def always_one(answer: Any) -> Callable[[Any], Any]:
    """The same for a function of one argument."""

    def function(_: Any) -> Any:
        return answer

    return function


async def test_dicts_from_a_conversion_or_a_transform_are_messages_too() -> None:
    """loop.md T6: dicts are accepted wherever messages are."""
    script = ScriptedModel("One.")
    agent = Agent(
        script.model,
        transform_context=with_a_dict,
        convert_to_llm=as_dicts,
    )
    await agent.run("Hello.")
    assert asked(script) == ["user: Hello.", "user: By dict."]


@pytest.mark.parametrize("left", [[], [ExtensionMessage(kind="note")], 7], ids=["empty", "extension", "junk"])
async def test_a_request_with_nothing_in_it_is_not_sent(left: Any) -> None:
    """loop.md R8, section 6: never an empty success."""
    script = ScriptedModel("Never said.")
    agent = Agent(script.model, convert_to_llm=always_one(left))
    result = await agent.run("Hello.")
    assert (result.end_reason, script.asked) == ("error", 0)
    assert ("nothing to send" in result.detail) or ("Messages are" in result.detail)


async def test_every_event_of_a_call_says_what_it_was_called_with() -> None:
    """loop.md D2: the effective arguments, on start, update and end alike."""

    @tool
    async def work(n: int, ctx: Any = None) -> str:
        """Work."""
        return str(n)

    script = ScriptedModel(answer(call("work", n="7")), "Done.")
    agent = Agent(script.model, tools=[work])
    events = EventCollector()
    agent.subscribe(events)
    await agent.run("Go.")
    spans = [event for event in events if event.type.startswith("tool_execution")]
    assert [event.args for event in spans] == [{"n": 7}] * len(spans)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert len(spans) >= 2


class Broken(Exception):
    """As an HTTP client of the user's might raise."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status_code = status


class ServerDisconnectedError(Exception):
    """Named after what an HTTP client raises, with its base class below."""


class ClientConnectionError(Exception):
    """The base class that tells a connection error from others."""


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ProviderError("x", status=503), 3),
        (ProviderError("x", status=400), 1),
        (Broken(529), 3),
        (Broken(404), 1),
        (type("Disconnected", (ClientConnectionError,), {})("gone"), 3),
        (RuntimeError("x"), 1),
    ],
    ids=["503", "400", "another client's 529", "another client's 404", "a connection", "a bug"],
)
async def test_what_a_stream_function_raises_is_retried_by_what_it_is(error: Exception, attempts: int) -> None:
    """loop.md section 8; failures.md E2: also when it is no exception of ours."""
    tries = 0

    async def broken(*_: object) -> AsyncGenerator[StreamEvent, None]:
        nonlocal tries
        tries += 1
        yield StreamStart()
        raise error

    result = await Agent(MODEL, stream_fn=broken, retry=QUICK).run("Go.")
    assert (result.end_reason, tries) == ("error", attempts)


async def test_a_dict_error_may_say_no_more_than_a_status() -> None:
    """loop.md section 8: an error event needs no kind."""
    tries = 0

    async def failing(*_: object) -> AsyncGenerator[Any, None]:
        nonlocal tries
        tries += 1
        yield {"type": "error", "error": {"status": 503, "message": "busy"}}

    result = await Agent(MODEL, stream_fn=failing, retry=QUICK).run("Go.")
    assert (result.end_reason, tries) == ("error", 3)
    assert "busy" in result.detail


@pytest.mark.parametrize("own", [True, False], ids=["the model's key", "a key that is asked for"])
async def test_a_key_is_in_nothing_the_run_says(own: bool) -> None:
    """failures.md L13, invariant I16: not even when the server or the client puts it in an error."""
    seen: list[str | None] = []

    async def leaking(_: Model, __: Request, options: StreamOptions, /) -> AsyncGenerator[StreamEvent, None]:
        seen.append(options.api_key)
        yield StreamStart()
        raise ConnectionError(f"bad key {options.api_key}")

    options: dict[str, Any] = {"api_key": lambda: "CANARY-1"} if own else {"get_api_key": always_one("CANARY-1")}
    agent = Agent("some:one", stream_fn=leaking, retry=QUICK, **options)
    events = EventCollector()
    agent.subscribe(events)
    result = await agent.run("Go.")
    assert seen == ["CANARY-1"] * 3
    told = repr(result) + repr(agent) + repr(agent.config) + "".join(wire.encode(event).decode() for event in events)
    assert "CANARY" not in told
    assert "[redacted]" in result.detail


async def test_the_key_of_the_agent_reaches_its_stream_function() -> None:
    """Keys come from `api_key`, which may be a function, sync or async."""
    seen: list[str | None] = []

    async def model(_: Model, __: Request, options: StreamOptions, /) -> AsyncGenerator[StreamEvent, None]:
        seen.append(options.api_key)
        yield done("Fine.")

    async def key() -> str:
        return "by function"

    await Agent("some:one", stream_fn=model, api_key="plain").run("Go.")
    await Agent("some:one", stream_fn=model, api_key=key).run("Go.")
    assert seen == ["plain", "by function"]
    assert "secret" not in repr(Model("some", "one", base_url="http://user:secret@host"))


async def test_a_stream_that_will_not_be_cancelled_is_left_behind() -> None:
    """loop.md T12, R8; failures.md F2: nothing holds a run that was told to stop, and nothing it says later counts."""
    release = asyncio.Event()

    async def deaf(*_: object) -> AsyncGenerator[StreamEvent, None]:
        yield TextDelta("Well")
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        yield done("too late")

    agent = Agent(MODEL, stream_fn=deaf)
    stream = agent.prompt("Go.")
    await asyncio.sleep(1)
    agent.abort()
    result = await stream
    assert (result.end_reason, result.text, agent.is_running) == ("aborted", "Well", False)
    before = list(agent.messages)
    release.set()
    await asyncio.sleep(1)
    assert list(agent.messages) == before


async def test_a_stream_that_takes_long_to_close_does_not_hold_its_answer() -> None:
    """loop.md R8: the answer is in."""

    async def slow_to_close(*_: object) -> AsyncGenerator[StreamEvent, None]:
        try:
            yield done("Fine.")
        finally:
            await asyncio.sleep(1000)

    agent = Agent(MODEL, stream_fn=slow_to_close)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await agent.run("Go.")).text == "Fine."
    assert loop.time() - began < 10


@pytest.mark.parametrize("seam", ["before_compaction_start", "after_compaction_end"])
async def test_a_stop_around_a_compaction_ends_the_run(seam: str) -> None:
    """loop.md section 5, T5: a verdict means the same at every seam."""
    script = ScriptedModel("Never said.")
    history = [{"role": role, "content": "word " * 500} for _ in range(4) for role in ("user", "assistant")]
    config = ContextConfig(max_context_tokens=2_000, threshold=0.5, keep_recent=1)
    options: dict[str, Any] = {seam: always(Stop("enough"))}
    result = await Agent(script.model, messages=history, context_config=config, **options).run("Go.")
    assert (result.end_reason, result.detail, script.asked) == ("stopped", "enough", 0)


async def test_nonsense_before_a_compaction_ends_the_run_as_an_error() -> None:
    """loop.md R8: an answer that means nothing is no yes."""
    history = [{"role": role, "content": "word " * 500} for _ in range(4) for role in ("user", "assistant")]
    config = ContextConfig(max_context_tokens=2_000, threshold=0.5, keep_recent=1)
    agent = Agent(ScriptedModel("x").model, messages=history, context_config=config, before_compaction_start=always(42))
    result = await agent.run("Go.")
    assert (result.end_reason, "42" in result.detail) == ("error", True)


async def test_details_of_a_tool_survive_the_wire() -> None:
    """loop.md section 9: what JSON has no form for is made JSON where it comes in."""

    @tool
    async def odd() -> ToolOutput:
        """Give odd details."""
        return ToolOutput("odd", details={"nan": float("nan"), "keys": {1: "one"}, "object": object})

    agent = Agent(ScriptedModel(answer(call("odd")), "Done.").model, tools=[odd])
    events = EventCollector()
    agent.subscribe(events)
    await agent.run("Go.")
    assert [wire.decode(wire.encode(event)) for event in events] == list(events)


async def test_a_failed_output_type_says_it_in_a_plain_sentence() -> None:
    """A human detail, without the innards."""
    result = await Agent(ScriptedModel("no", "no", "no").model, output_type=dict[str, int]).run("Go.")
    assert result.end_reason == "error"
    assert result.detail.startswith("The answer did not fit output_type after 3 attempts")


async def test_a_plain_no_says_where_it_was_said() -> None:
    """loop.md section 1: every end has a human detail."""
    result = await Agent(ScriptedModel("One.").model, post_loop_policies=[always_one(False)]).run("Go.")
    assert (result.end_reason, result.detail) == ("stopped", "post_loop_policies said no")


def test_a_session_is_none_a_path_or_a_session() -> None:
    """Bad input gets a clear error."""
    assert Agent(MODEL, session=None).messages == []
    with pytest.raises(TypeError, match="session is a Session or the path of a file, got 7"):
        Agent(MODEL, session=7)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("where", ["api_key", "get_api_key"])
async def test_the_function_that_gives_keys_may_break_without_showing_one(where: str) -> None:
    """failures.md L13: the words of a key store are not repeated."""

    def broken() -> str:
        raise RuntimeError("the key is CANARY-1")

    options: dict[str, Any] = {where: broken}
    agent = Agent("some:one", stream_fn=ScriptedModel("x"), **options)
    events = EventCollector()
    agent.subscribe(events)
    result = await agent.run("Go.")
    assert (result.end_reason, "RuntimeError" in result.detail) == ("error", True)
    assert "CANARY" not in repr(result) + "".join(wire.encode(event).decode() for event in events)
