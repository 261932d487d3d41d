"""How requests of OpenAI's APIs start runs, and go on with runs that wait for results of the client's tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from steersman.server.fronts.openai.client_tools import find_client_tools
from steersman.server.fronts.openai.inputs import Input
from steersman.server.http.problems import Problem
from steersman.server.live import Approvals, LiveSession
from steersman.types.errors import AgentBusy
from steersman.types.messages import require_content

SSE: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""The headers of a stream."""


async def begin_run(live: LiveSession, set_up: Callable[[], None], act: Callable[[], Awaitable[Any]]) -> None:
    """Start a run with what `set_up` gives the agent for it.

    Both is one step: a run that another client starts at the same time has nothing of this one.
    """
    await live.settle()
    if live.is_busy:
        raise AgentBusy("A run is going on in this conversation. Wait until it has ended, or cancel it.")
    set_up()
    await act()


def plan_run(
    live: LiveSession, given: Input, approvals: Approvals, at: str | None = None
) -> Callable[[], Awaitable[Any]]:
    """Start a run with an input: a fresh conversation begins with the history that the client has sent."""
    if given.message is not None:
        require_content(given.message)
    if given.history and not live.agent.messages:
        live.agent.configure(messages=given.history)
    elif given.outputs and not given.message:
        find_client_tools(live).give(given.outputs)
        return partial(live.resume, approvals=approvals)
    if given.message is None:
        if not given.history:
            raise Problem(400, "The input has no message of the user at its end.")
        return partial(live.resume, approvals=approvals)
    if at is not None:
        return partial(live.branch, at, given.message, approvals=approvals)
    return partial(live.prompt, given.message, approvals=approvals)


async def give_outputs(live: LiveSession, given: Input) -> None:
    """Give the client's results to the run that waits for them."""
    if given.message is not None:
        await live.steer(given.message)
    find_client_tools(live).give(given.outputs)
