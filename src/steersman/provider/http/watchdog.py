"""Cuts a request whose server is silent for longer than its bounds allow.

One timer per answer, moved lazily: a read costs a look at the clock, not a new timer. Only waiting counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf, isfinite
from typing import Any, Protocol

from steersman.provider.models.presets import PRESETS, find_base_url
from steersman.provider.wires.encoding import memoize_by_identity
from steersman.types.model import Model


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """Bounds of one answer, each settable by its name in `Model.settings`; `None` means none.

    `connect_timeout`: seconds until the connection stands. `first_byte_timeout`: seconds until the first byte of the
    answer, from when it was asked. `idle_timeout`: seconds between bytes after that; a comment or a ping counts.
    `content_idle_timeout`: seconds without anything but comments and pings, off unless set, because a model may think
    for long. `total_timeout`: seconds in all, off unless set: a slow healthy stream is not cut. Only waiting for the
    server counts, not the time a consumer takes.
    """

    connect_timeout: float | None = 30.0
    first_byte_timeout: float | None = 300.0
    idle_timeout: float | None = 300.0
    content_idle_timeout: float | None = None
    total_timeout: float | None = None
    max_event_bytes: int = 32 * 1024 * 1024
    max_response_bytes: int = 256 * 1024 * 1024


DEFAULT = ResponseLimits()
_NAMES = tuple(field.name for field in fields(ResponseLimits))


def parse_limits(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> ResponseLimits:
    """The bounds that a model's settings name, over those of its provider."""
    if not settings and not defaults:
        return DEFAULT
    given = {name: source[name] for source in (defaults, settings) for name in _NAMES if name in source}
    if not given:
        return DEFAULT
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and isfinite(value) and value > 0):
            raise ValueError(f"The setting {name} is a number above 0, or None for no bound; got {value!r}.")
    return ResponseLimits(**given)


def resolve_model(model: Model) -> tuple[Model, ResponseLimits]:
    """The model with the address and the settings of its provider where it has none of its own, and its bounds."""
    known = _resolve_cached(model)
    if model.base_url is None and known[0].base_url != find_base_url(model.provider):
        return _resolve(model)  # its address is the environment's, which has changed
    return known


def _resolve(model: Model) -> tuple[Model, ResponseLimits]:
    preset = PRESETS.get(model.provider)
    settings: Mapping[str, Any] = {} if preset is None else preset.settings
    bounds = parse_limits(model.settings, settings)
    url = find_base_url(model.provider, model.base_url)
    if settings or url != model.base_url:
        model = replace(model, base_url=url, settings={**settings, **model.settings})
    return model, bounds


_resolve_cached = memoize_by_identity(_resolve)


class Closable(Protocol):
    """What is cut: a response."""

    def close(self) -> None: ...


class Watch:
    """Watches over the waits of one answer; `fired` names the bound that was passed and how long it is."""

    __slots__ = (
        "_bounds", "_cancelling", "_content", "_content_idle", "_deadline", "_idle", "_loop", "_next", "_response",
        "_task", "_timer", "_total", "fired", "waiting",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, bounds: ResponseLimits) -> None:
        now = loop.time()
        self._loop = loop
        self._bounds = bounds
        self._idle = inf if bounds.idle_timeout is None else bounds.idle_timeout
        self._content_idle = inf if bounds.content_idle_timeout is None else bounds.content_idle_timeout
        self._total = inf if bounds.total_timeout is None else now + bounds.total_timeout
        # When the wait for the first byte ends.
        self._next = inf if bounds.first_byte_timeout is None else now + bounds.first_byte_timeout
        self._content = inf
        self._deadline = inf
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._response: Closable | None = None
        self.waiting = False
        self.fired: tuple[str, float | None] | None = None

    def head(self) -> None:
        """The current task begins to wait for the head of the response; if that takes too long, it is cancelled."""
        self._task = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        self._wait(min(self._next, self._total))

    def headed(self) -> bool:
        """The wait for the head is over; whether by our cancel alone, which is taken back."""
        self.waiting = False
        task, self._task = self._task, None
        return self.fired is not None and task is not None and task.uncancel() <= self._cancelling

    def heard(self) -> None:
        """There was content in the last bytes."""
        if self._content_idle < inf:
            self._content = self._loop.time() + self._content_idle

    def begin(self, response: Closable, *, first: bool) -> None:
        """The wait for the next bytes begins; `first` says that there were none before."""
        deadline = self._next if first else self._loop.time() + self._idle
        self._response = response
        self._wait(min(deadline, self._content, self._total))

    def close(self) -> None:
        """No timer stays behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, deadline: float) -> None:
        self._deadline = deadline
        self.waiting = True
        if self._timer is not None and self._timer.when() > deadline:
            self.close()
        if self._timer is None and deadline < inf:
            self._timer = self._loop.call_at(deadline, self._tick)

    def _passed(self) -> tuple[str, float | None]:
        """The bound that the current wait has come to."""
        bounds = self._bounds
        if self._deadline == self._total:
            return "total_timeout", bounds.total_timeout
        if self._deadline == self._content:
            return "content_idle_timeout", bounds.content_idle_timeout
        if self._deadline == self._next:
            return "first_byte_timeout", bounds.first_byte_timeout
        return "idle_timeout", bounds.idle_timeout

    def _tick(self) -> None:
        self._timer = None
        if not self.waiting:
            return
        if self._deadline > self._loop.time():
            self._timer = self._loop.call_at(self._deadline, self._tick)
            return
        self.fired = self._passed()
        if self._task is not None:
            self._task.cancel()
        elif self._response is not None:
            self._response.close()
