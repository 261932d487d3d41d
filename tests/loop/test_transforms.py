"""`transform_context` and `async_transform_context` get what their parameter names ask for."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.loop.test_compaction import history
from tests.loop.toolbox import agent_of, echo
from tests.rows import each_row

from steersman import Agent, AgentContext, AgentLoopConfig, AgentMessage, CancelToken, agent_loop
from steersman.loop.transforms import bind_transform
from steersman.testing import ScriptedModel, error

MESSAGES: Any = ["the messages"]
SIGNAL = CancelToken()


class Shaper:
    """A callable object."""

    def __call__(self, messages: Any, *, overflow: bool) -> Any:
        return messages, overflow

    def shape(self, ctx: Any, signal: Any = None) -> Any:
        return ctx, signal


def both(messages: Any, signal: Any) -> Any:
    return messages, signal


def all_three(messages: Any, signal: Any, overflow: bool) -> Any:
    return messages, signal, overflow


def one(m: Any) -> Any:
    return m


def other_name(ctx: Any, overflow: bool) -> Any:
    return ctx, overflow


def other_order(overflow: bool, messages: Any) -> Any:
    return overflow, messages


def any_number(*args: Any) -> Any:
    return args


def anything(*args: Any, **names: Any) -> Any:
    return args, names


def prefixed(prefix: str, m: Any) -> Any:
    return prefix, m


def by_position(overflow: bool, m: Any, /) -> Any:
    return overflow, m


def after_a_name(signal: Any, *rest: Any) -> Any:
    return signal, rest


def with_default(m: Any, size: int = 3, overflow: bool = False) -> Any:
    return m, size, overflow


def any_names(**names: Any) -> Any:
    return names


def more_names(m: Any, **names: Any) -> Any:
    return m, names


@functools.wraps(both)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return both(*args, **kwargs)


CASES: list[tuple[Callable[..., Any], Any]] = [
    (both, (MESSAGES, SIGNAL)),
    (all_three, (MESSAGES, SIGNAL, True)),
    (one, MESSAGES),
    (other_name, (MESSAGES, True)),
    (other_order, (True, MESSAGES)),
    (any_number, (MESSAGES,)),
    (anything, ((MESSAGES,), {})),
    (any_names, {"messages": MESSAGES, "signal": SIGNAL, "overflow": True}),
    (more_names, (MESSAGES, {"signal": SIGNAL, "overflow": True})),
    (by_position, (True, MESSAGES)),
    (after_a_name, (SIGNAL, (MESSAGES,))),
    (with_default, (MESSAGES, 3, True)),
    (functools.partial(all_three, overflow=False), (MESSAGES, SIGNAL, False)),
    (functools.partial(with_default, size=5), (MESSAGES, 5, True)),
    (functools.partial(prefixed, "p"), ("p", MESSAGES)),
    (Shaper(), (MESSAGES, True)),
    (Shaper().shape, (MESSAGES, SIGNAL)),
    (wrapped, (MESSAGES, SIGNAL)),
    (list, MESSAGES),
]


@each_row(("function", "given"), CASES)
def test_a_transform_gets_what_its_parameter_names_ask_for(function: Callable[..., Any], given: Any) -> None:
    """api.md: `transform_context` gets what its parameter names ask for (`messages`, `signal`, `overflow`)."""
    assert bind_transform("transform_context", function)(MESSAGES, SIGNAL, True) == given


def no_parameters() -> Any: ...


def only_a_signal(signal: Any) -> Any: ...


def too_many(messages: Any, is_retry: bool) -> Any: ...


def asks_by_name(messages: Any, *, budget: int) -> Any: ...


@each_row("option", ["transform_context", "async_transform_context"])
@each_row(
    ("function", "text"),
    [
        (too_many, "messages, signal, overflow. .* also asks for 'is_retry'"),
        (asks_by_name, "also asks for 'budget'"),
        (no_parameters, "has no parameter for them"),
        (only_a_signal, "has no parameter for them"),
        (3, "takes a function, got 3"),
    ],
)
def test_any_other_required_parameter_is_refused_when_the_agent_is_made(option: str, function: Any, text: str) -> None:
    """api.md: any other required parameter is refused when the agent is made."""
    options: dict[str, Any] = {option: function}
    with pytest.raises(TypeError, match=f"{option} .*{text}"):
        Agent(ScriptedModel("x").model, **options)


async def test_the_signal_is_the_callers_own_or_the_token_of_the_run() -> None:
    """api.md, loop.md T6: `transform_context(messages, signal)` got the overflow flag as its signal."""
    seen: list[Any] = []

    def note(messages: Sequence[AgentMessage], signal: Any) -> Sequence[AgentMessage]:
        seen.append(signal)
        return messages

    signal, token = asyncio.Event(), CancelToken()
    config = AgentLoopConfig(model=ScriptedModel("a", "b", "c").model, transform_context=note)
    for given in (signal, token, None):
        await agent_loop("hi", AgentContext(), config, signal=given)
    assert seen[:2] == [signal, token]
    assert isinstance(seen[2], CancelToken)


async def test_an_abort_is_seen_in_the_signal() -> None:
    """loop.md T12: a transform that waits may look at the signal."""
    seen: list[bool] = []

    async def wait(messages: Sequence[AgentMessage], signal: CancelToken) -> Sequence[AgentMessage]:
        agent.abort()
        seen.append(signal.cancelled)
        return messages

    agent = Agent(ScriptedModel("never").model, async_transform_context=wait)
    assert ((await agent.run("go")).end_reason, seen) == ("aborted", [True])


async def test_a_transform_is_told_of_an_overflow_by_name() -> None:
    """loop.md T6: told when this is an overflow retry, wherever the parameter stands."""
    seen: list[bool] = []

    def note(overflow: bool, messages: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
        seen.append(overflow)
        return messages

    agent, _ = agent_of(
        ScriptedModel(error("context_overflow"), "ok"), [echo], messages=history(10, 4_000), transform_context=note
    )
    assert ((await agent.run("go")).text, seen) == ("ok", [False, True])
