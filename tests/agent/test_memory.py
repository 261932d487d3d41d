"""An agent that does nothing takes little memory, and what agents share for that is never changed."""

from __future__ import annotations

import gc
import tracemalloc

from steersman import Agent
from steersman.loop.questions import Answer
from steersman.types.events import AgentEvent

MODEL = "openai-chat:some-model"
MOST_BYTES = 2048
AGENTS = 1000


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def note(text: str) -> str:
    """Note a text."""
    return text


def make() -> Agent:
    return Agent(MODEL, api_key="none", base_url="http://127.0.0.1:1/v1", tools=[add, note])


def test_an_idle_agent_takes_at_most_two_kib() -> None:
    kept = [make()]  # loads what is loaded at first use
    gc.collect()
    tracemalloc.start()
    try:
        kept += [make() for _ in range(AGENTS)]
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] / AGENTS <= MOST_BYTES
    finally:
        tracemalloc.stop()


def test_what_is_done_with_one_agent_does_not_show_in_another() -> None:
    one, other = make(), make()
    seen: list[AgentEvent] = []
    one.steer("This way.")
    one.follow_up("And then?")
    one.subscribe(seen.append, answers=True, deltas=False)
    one.questions.answer_or_keep("approval-1", Answer("approved", "test"))
    one.state["count"] = 1
    one.artifacts.save("a.txt", "text")
    one.context.get_approved_calls().add(("call", None))
    assert (len(one.inbox), one.dispatcher.answers, [*one.questions.early]) == (2, True, ["approval-1"])
    fresh = make()
    for untouched in (other, fresh):
        assert (len(untouched.inbox), untouched.queued.steering, untouched.queued.follow_up) == (0, [], [])
        assert (untouched.dispatcher.callbacks, untouched.dispatcher.answers) == ((), False)
        assert (dict(untouched.questions.early), dict(untouched.state)) == ({}, {})
        assert (untouched.artifacts.list(), untouched.context.approved_calls) == ([], None)
