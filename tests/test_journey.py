"""The journey of a prompt: how many frames lie between `agent.run()` and the socket, and how many files it passes.

A reader follows it in a debugger or a stack trace. Wrappers that are not configured are not on the way.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

import steersman
from steersman import Agent, tool
from steersman.loop.run import witness
from steersman.testing import answer, call
from steersman.testing.servers import OpenAIChatServer
from steersman.types.usage import Usage

pytestmark = pytest.mark.real_time

PACKAGE = Path(steersman.__file__).parent
SENDING = ("socket.send", "socket.sendmsg")
MOST_FRAMES = 14
MOST_FILES = 47


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Journey:
    """A profile function that records the files a program passes, and the stacks where it starts tasks and sends."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.starts: list[list[str]] = []
        self.requests: list[list[str]] = []

    def __call__(self, frame: FrameType, event: str, called: object) -> None:
        """Record one event of `sys.setprofile`."""
        if event == "call":
            if (name := locate(frame)) is not None:
                self.files.add(name)
            if frame.f_code.co_name == "create_task" and (stack := stack_of(frame)):
                self.starts.append(stack)
        elif event == "c_call" and getattr(called, "__qualname__", "") in SENDING and (stack := stack_of(frame)):
            self.requests.append(stack)


def locate(frame: FrameType) -> str | None:
    """The file of a frame within the package; the strict servers and other test tools are not part of the journey."""
    path = Path(frame.f_code.co_filename)
    inside = path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "testing")
    return str(path.relative_to(PACKAGE)) if inside else None


def stack_of(frame: FrameType | None) -> list[str]:
    """The frames of the package, the outermost first."""
    stack: list[str] = []
    while frame is not None:
        if (name := locate(frame)) is not None:
            stack.append(f"{name}:{frame.f_code.co_name}")
        frame = frame.f_back
    return stack[::-1]


async def travel() -> Journey:
    """Trace a prompt with one tool call; another one before it has loaded what is loaded when first needed."""
    witness.set(None)  # the checker of events is no part of it
    answers = [answer(call("add", a=2, b=3)), "5"]
    journey = Journey()
    # A usage as servers report it: without one, it is estimated.
    async with OpenAIChatServer(*answers, *answers, usage=Usage(input=12, output=7)) as server:
        agent = Agent(server.model(), tools=[add])
        await agent.run("What is 2 + 3?")
        before = sys.getprofile()
        sys.setprofile(journey)
        try:
            result = await agent.run("What is 2 + 3?")
        finally:
            sys.setprofile(before)
    assert result.text == "5"
    return journey


async def test_few_frames_lie_between_run_and_the_socket() -> None:
    journey = await travel()
    starts = [stack for stack in journey.starts if stack[0] == "agent/agent.py:run"]
    assert len(starts) == 1
    assert len(journey.requests) == 2
    for request in journey.requests:
        assert request[0] == "loop/run_loop.py:run_loop"
        assert len(starts[0] + request) <= MOST_FRAMES, "\n".join(starts[0] + request)


async def test_a_prompt_with_a_tool_call_passes_few_files() -> None:
    journey = await travel()
    assert len(journey.files) <= MOST_FILES, "\n".join(sorted(journey.files))
