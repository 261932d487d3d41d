"""`Retry`, which failures are retried and how long to wait; the wrapper that does it is in `retry`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

from steersman.types.errors import ErrorInfo
from steersman.types.guards import suggest_options


def draw_random() -> float:
    """A random number from 0 to 1; `random` is imported when the first one is needed."""
    import random

    return random.random()


class RetryStrategy(Protocol):
    """Decides about a retry; `attempt` is the number of attempts so far, from 1 on."""

    def should_retry(self, error: ErrorInfo, attempt: int, /) -> bool: ...
    def delay(self, error: ErrorInfo, attempt: int, /) -> float: ...


@suggest_options
@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff with jitter; the wait that a server asks for is respected, up to `max_delay` seconds.

    After a rate limit, requests that share a key are retried one by one, also within `max_delay`.
    `first_event_timeout` and `idle_timeout` (seconds) cut a silent attempt; there is no total timeout.
    """

    max_attempts: int = 3
    base_delay: float = 1.0
    max_delay: float = 60.0
    multiplier: float = 2.0
    jitter: float = 0.25
    first_event_timeout: float | None = None
    idle_timeout: float | None = None

    def __post_init__(self) -> None:
        _check_attempts(self.max_attempts)
        _check_number("base_delay", self.base_delay, least=0)
        _check_number("max_delay", self.max_delay, least=0)
        _check_number("multiplier", self.multiplier, least=1)
        _check_number("jitter", self.jitter, least=0, most=1)
        for name, value in (
            ("first_event_timeout", self.first_event_timeout),
            ("idle_timeout", self.idle_timeout),
        ):
            if value is not None:
                _check_number(name, value, least=0)
                if value == 0:
                    raise ValueError(f"{name} must be more than 0 seconds, or None for no timeout; got {value!r}.")

    def should_retry(self, error: ErrorInfo, attempt: int, /) -> bool:
        """Whether the failure may be temporary, attempts are left, and the server does not ask for too long a wait."""
        if attempt >= self.max_attempts or not error.should_retry:
            return False
        asked = get_requested_wait(error)
        return asked is None or asked <= self.max_delay

    def delay(self, error: ErrorInfo, attempt: int, /, random: Callable[[], float] = draw_random) -> float:
        """Seconds to wait: what the server asks for, else exponential backoff, shortened by up to `jitter` of it."""
        asked = get_requested_wait(error)
        if asked is not None:
            return asked
        try:
            backoff = self.base_delay * self.multiplier ** (attempt - 1)
        except OverflowError:
            backoff = self.max_delay
        return min(backoff, self.max_delay) * (1 - self.jitter * random())


def get_requested_wait(error: ErrorInfo) -> float | None:
    """The seconds that the server asks to wait; `None` also for an impossible value (negative, not a number)."""
    return error.retry_after if error.retry_after is not None and error.retry_after >= 0 else None


def _check_attempts(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"max_attempts must be a whole number from 1 on (1 means no retry), got {value!r}.")


def _check_number(name: str, value: object, *, least: float, most: float | None = None) -> None:
    span = f"from {least:g} on" if most is None else f"from {least:g} to {most:g}"
    good = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= least
    if not good or (most is not None and isinstance(value, int | float) and value > most):
        raise ValueError(f"{name} must be a number {span}, got {value!r}.")
