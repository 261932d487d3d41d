"""A deadline for whatever the driver waits for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import psycopg

if TYPE_CHECKING:
    from psycopg.abc import PQGen

_T = TypeVar("_T")


class ServerTimeout(psycopg.OperationalError):
    """The server did not answer in time."""


def limit_time(work: PQGen[_T], deadline: float) -> PQGen[_T]:
    """The same work with a deadline: the driver resumes this generator again and again while it waits."""
    try:
        state = next(work)
        while True:
            ready = yield state
            if not ready and time.monotonic() > deadline:
                raise ServerTimeout("the server gave no answer in time")
            state = work.send(ready)
    except StopIteration as done:
        return done.value
