"""A budget per user and day, kept in a small file, so that it holds across restarts and processes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from steersman.context.tokens import estimate_total_tokens
from steersman.policy.verdicts import Stop
from steersman.provider.models.registry import find_stream_fn
from steersman.provider.streaming.normalize import stream_events
from steersman.tools.threads import call_in_thread
from steersman.types.errors import ErrorInfo, SteersmanError
from steersman.types.guards import is_instance
from steersman.types.messages import AgentMessage, AssistantMessage
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import Done, Failed, StreamEvent
from steersman.types.usage import Usage, add_cost


def _find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # an unknown name, no name at all, a folder of the database
        raise ValueError(f"There is no time zone {name!r}. A name is such as 'Europe/Berlin'.") from None


class BudgetError(SteersmanError):
    """The file of a budget cannot be read or written; no model is asked then."""


class Spent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one user spent on a day: US dollars, tokens, and the requests whose cost is not known."""

    cost: float = 0.0
    tokens: int = 0
    unknown: int = 0


class _Ledger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    day: str
    spent: dict[str, Spent]


class DailyBudget:
    """Refuses requests of a user who has spent `max_cost` US dollars or `max_tokens` tokens today.

    With `stream_fn=budget.wrap()` every request counts, those of retries and compactions too; in `hooks=[budget]` as
    well, a run ends `vetoed` before its next turn, not with an error. `user` is a name, or a function without arguments
    that is called in the run, such as the `get` of a `ContextVar`. A day begins at midnight in `zone`. A request whose
    cost is not known uses up a budget in dollars, because the budget could not be held otherwise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        user: str | Callable[[], str],
        *,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        zone: tzinfo | str = UTC,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if max_cost is None and max_tokens is None:
            raise ValueError("A budget needs max_cost, max_tokens or both.")
        for name, most in (("max_cost", max_cost), ("max_tokens", max_tokens)):
            # Nothing is more than NaN: such a budget would never end.
            if most is not None and not (is_instance(most, int | float) and most >= 0):
                raise ValueError(f"{name} is a number from 0 on, got {most!r}.")
        self.path = Path(path)
        self._user, self._clock = user, clock
        self.max_cost, self.max_tokens = max_cost, max_tokens
        self._zone = _find_zone(zone) if isinstance(zone, str) else zone

    def get_spent(self) -> Spent:
        """What the user of this moment has spent today; raises `BudgetError` if the file cannot be read."""
        user = self._find_user()
        with self._lock_file():
            return self._read().spent.get(user, Spent())

    def spend(self, usage: Usage) -> Spent:
        """Add a usage to what the user has spent today, such as that of a `ModelJudge`."""
        return self._spend(self._find_user(), usage)

    async def before_turn(self, messages: Sequence[AgentMessage], turn_index: int) -> Stop | None:
        """End the run if the budget is used up."""
        reason = await self._find_excess(self._find_user())
        return None if reason is None else Stop(reason)

    def wrap(self, stream_fn: StreamFn | None = None) -> StreamFn:
        """A `StreamFn` that refuses requests when the budget is used up, and counts those it lets through."""

        async def ask(model: Model, request: Request, options: StreamOptions, /) -> AsyncGenerator[StreamEvent]:
            user = self._find_user()
            reason = await self._find_excess(user)
            if reason is not None:
                yield _refuse(model, reason)
                return
            # Until the answer says what it cost, an estimate stands for it: it may be cut off at any time.
            usage = add_cost(Usage(input=request.tokens or estimate_total_tokens(request.messages)), model.prices)
            is_open = True
            try:
                async with aclosing(
                    stream_events(stream_fn or find_stream_fn(model), model, request, options)
                ) as events:
                    async for event in events:
                        if isinstance(event, Done | Failed):
                            is_open = False
                            self._spend(user, _find_usage(event, model, usage))
                        yield event
            finally:
                if is_open:
                    self._spend(user, usage)

        return ask

    async def _find_excess(self, user: str) -> str | None:
        spent = await call_in_thread(self._read_spent, user)
        if self.max_cost is not None and spent.unknown:
            return f"The budget of {user!r} cannot be held today: the cost of {spent.unknown} requests is not known."
        if self.max_cost is not None and spent.cost >= self.max_cost:
            return f"The budget of {user!r} for today is used up: ${spent.cost:.4f} of ${self.max_cost:.4f}."
        if self.max_tokens is not None and spent.tokens >= self.max_tokens:
            return f"The budget of {user!r} for today is used up: {spent.tokens} of {self.max_tokens} tokens."
        return None

    def _read_spent(self, user: str) -> Spent:
        with self._lock_file():
            return self._read().spent.get(user, Spent())

    def _find_user(self) -> str:
        user = self._user() if callable(self._user) else self._user
        if not is_instance(user, str) or not user:
            raise BudgetError(f"The user of a budget is a name, got {user!r}.")
        return user

    def _spend(self, user: str, usage: Usage) -> Spent:
        with self._lock_file():
            ledger = self._read()
            old = ledger.spent.get(user, Spent())
            unknown = old.unknown + (usage.cost is None or usage.partial)
            new = Spent(old.cost + (usage.cost or 0.0), old.tokens + (usage.total or 0), unknown)
            self._replace(_Ledger(ledger.day, {**ledger.spent, user: new}))
        return new

    def _read(self) -> _Ledger:
        today = datetime.fromtimestamp(self._clock(), self._zone).date().isoformat()
        try:
            ledger = msgspec.json.decode(self.path.read_bytes(), type=_Ledger)
        except FileNotFoundError:
            return _Ledger(today, {})
        except (OSError, ValueError) as error:
            raise BudgetError(f"The budget {self.path} cannot be read, so nothing is spent: {error}.") from error
        # A clock that was set back does not give the budget of a day twice.
        return ledger if ledger.day >= today else _Ledger(today, {})

    def _replace(self, ledger: _Ledger) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(file, "wb") as stream:
                stream.write(msgspec.json.encode(ledger))
                stream.flush()
                os.fsync(file)
            os.replace(new, self.path)
        except OSError as error:
            raise BudgetError(f"The budget {self.path} cannot be written: {error}.") from error

    @contextmanager
    def _lock_file(self) -> Generator[None]:
        """Wait for the lock that all processes with this budget take; it is held for one read and write."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(self.path.with_name(f"{self.path.name}.lock"), flags, 0o600)
        except OSError as error:
            raise BudgetError(f"The budget {self.path} cannot be locked: {error}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _refuse(model: Model, reason: str) -> Failed:
    info = ErrorInfo("quota", reason, model.provider)
    message = AssistantMessage("", stop_reason="error", error_message=reason, error_kind="quota", model=model.id)
    return Failed(message, info)


def _find_usage(event: Done | Failed, model: Model, estimate: Usage) -> Usage:
    """What an answer cost: nothing, where a failed one says nothing, and the estimate where a whole one does not."""
    usage: Any = event.message.usage
    if not usage.known:
        return estimate if isinstance(event, Done) else Usage(total=0, cost=0.0)
    return add_cost(usage, model.prices)
