"""A program whose wall clock is set while it waits; it prints what became of its waits.

    LD_PRELOAD=wall.so python -m tests.stepped FOLDER SECONDS

`wall.so` is made of the code below: the clock of the system, as if it had been set by so many seconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.provider.wires.protocols import SERVERS

from steersman import Agent, ExecutionLimits, Retry, Session, tool
from steersman.session.stores.store import SessionBusy
from steersman.testing import answer, call, stall
from steersman.testing.servers import Reply
from steersman.types.events import AgentEvent

WALL = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long set_by;

void set_wall_clock(long seconds) { set_by += seconds; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += set_by;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (into) *into = exact.tv_sec;
    return exact.tv_sec;
}
"""
SOON, BACKOFF = 0.01, 0.1
SHORT, LONG = 0.1, 600.0


def step(seconds: int) -> None:
    """Set the wall clock, and see that it is set."""
    before = time.time()
    ctypes.CDLL(None).set_wall_clock(ctypes.c_long(seconds))
    assert abs(time.time() - before - seconds) < LONG


class Step:
    """A subscriber that sets the clock at the first event of a type, or soon after: then the next wait has begun."""

    def __init__(self, event_type: str, seconds: int, *, soon: bool = True) -> None:
        self._event_type = event_type
        self._seconds = seconds
        self._soon = soon
        self._asked = False
        self.taken = False

    def __call__(self, event: AgentEvent) -> None:
        """Hear an event."""
        if event.type == self._event_type and not self._asked:
            self._asked = True
            if self._soon:
                asyncio.get_running_loop().call_later(SOON, self._take)
            else:
                self._take()

    def _take(self) -> None:
        step(self._seconds)
        self.taken = True


async def waited(name: str, seconds: int) -> list[Any]:
    """Between two attempts: as long as the server asked for, by a clock that is never set."""
    at: list[float] = []

    def busy(_: object) -> Reply:
        at.append(time.monotonic())
        return Reply(429, SERVERS[name]().build_error_body(429, "busy"), {"retry-after": str(BACKOFF)})

    def fine(_: object) -> str:
        at.append(time.monotonic())
        return "Fine."

    async with SERVERS[name](busy, fine) as server:
        agent = Agent(server.model())
        agent.subscribe(stepping := Step("retry_scheduled", seconds))
        result = await agent.run("Hi.")
    return [stepping.taken, result.end_reason, result.text, len(at), at[-1] - at[0] >= BACKOFF]


async def heard_out(name: str, seconds: int) -> list[Any]:
    """While an answer comes slowly: it is not cut, though each of its bounds is shorter than the step."""
    bounds = {f"{bound}_timeout": LONG for bound in ("first_byte", "idle", "content_idle", "total")}
    retry = Retry(first_event_timeout=LONG, idle_timeout=LONG)
    async with SERVERS[name](answer("Take your time.", pace=SOON), repeat_last=True) as server:
        agent = Agent(server.model(settings=bounds), retry=retry, limits=ExecutionLimits(max_duration=LONG))
        agent.subscribe(stepping := Step("message_update", seconds, soon=False))
        result = await agent.run("Hi.")
    return [stepping.taken, result.end_reason, result.text, len(server.raw)]


async def cut_off(name: str, seconds: int) -> list[Any]:
    """While a server is silent: it is cut, though the clock says that no time has passed."""
    async with SERVERS[name](stall("Well", after=1)) as server:
        agent = Agent(server.model(settings={"idle_timeout": SHORT}), retry=Retry(max_attempts=1))
        agent.subscribe(stepping := Step("message_update", seconds))
        result = await agent.run("Hi.")
    return [stepping.taken, result.end_reason, result.error_kind]


async def limited(name: str, seconds: int) -> list[Any]:
    """While a tool works: a run has the time it was given, no less and no more."""

    @tool
    def work() -> str:
        """Work."""
        step(seconds)
        return "done"

    ended: list[Any] = []
    for last, limit in (("Fine.", LONG), (stall("Well", after=1), 2 * SHORT)):
        async with SERVERS[name](answer(call("work")), last) as server:
            limits = ExecutionLimits(max_duration=limit)
            ended.append((await Agent(server.model(), tools=[work], limits=limits).run("Go.")).end_reason)
    return ended


def locked(folder: Path, seconds: int) -> list[Any]:
    """While a session is held: others do not have it before it is let go, and then they have it at once."""
    held = Session.create(folder / "sessions.db")
    step(seconds)
    try:
        Session.open(folder / "sessions.db").close()
        busy = False
    except SessionBusy:
        busy = True
    held.close()
    Session.open(folder / "sessions.db").close()
    return [busy]


async def main(folder: Path, seconds: int) -> None:
    told: dict[str, Any] = {"locked": locked(folder, seconds)}
    for name in SERVERS:
        for scenario in (waited, heard_out, cut_off, limited):
            told[f"{name} {scenario.__name__}"] = await scenario(name, seconds)
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
