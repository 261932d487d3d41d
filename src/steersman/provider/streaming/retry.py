"""The wrapper that retries failed requests, as a `RetryStrategy` says.

After a rate limit, requests that share a key are retried one by one: each reserves a slot of time of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from math import inf
from typing import TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from steersman.provider.streaming.batches import Batches
from steersman.provider.streaming.failures import get_error_info, get_usage, to_error_info
from steersman.provider.streaming.normalize import DecideNext, ModelCall, NextAttempt, NormalizedStreamFn, run_attempts
from steersman.provider.streaming.retry_strategy import Retry, RetryStrategy, draw_random, get_requested_wait
from steersman.provider.streaming.timeouts import with_timeouts
from steersman.types.errors import ErrorInfo
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import Failed, RetryNotice

SLOT_SECONDS = 0.05
"""The length of a slot; in one slot, one request with a key is retried."""

MAX_EXTRA_WAIT = 60.0
"""The most seconds that a retry waits for others; with a longer queue, slots do not help."""

_MAX_SLOTS = 1024
_Slots: TypeAlias = dict[int, int]
"""Slots that are taken, each with the number of the next slot that may be free."""

_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Slots]] = WeakKeyDictionary()


def reserve_slot(
    model: Model,
    options: StreamOptions,
    delay: float,
    random: Callable[[], float],
    *,
    keys: object = None,
    most: float = inf,
) -> float:
    """Reserve a slot after a delay; return the seconds to wait: the delay itself, unless that slot is taken.

    `keys` is the function that gives the key of each request, if there is one; `most` is the longest wait. If every
    slot up to then is taken, the wait is a random one among them.
    """
    loop = asyncio.get_running_loop()
    now = loop.time()
    wanted = int((now + delay) / SLOT_SECONDS)
    slots = _get_slots(_loops.setdefault(loop, {}), _get_rate_limit_key(model, options, keys), now)
    found = _find_free_slot(slots, wanted)
    if found == wanted:
        slots[found] = found + 1
        return delay
    # Moved by a part of a slot, so that other processes do not retry at the same moment.
    turn = (found + random()) * SLOT_SECONDS - now
    latest = max(delay, min(delay + MAX_EXTRA_WAIT, most))
    if turn > latest:
        return delay + (latest - delay) * random()
    slots[found] = found + 1
    return turn


def _find_free_slot(slots: _Slots, wanted: int) -> int:
    """The first free slot from `wanted` on."""
    passed: list[int] = []
    slot = wanted
    while slot in slots:
        passed.append(slot)
        slot = slots[slot]
    # Shorten the path: the next search takes one step.
    for taken in passed:
        slots[taken] = slot
    return slot


def _get_slots(lanes: dict[Hashable, _Slots], lane: Hashable, now: float) -> _Slots:
    """The slots of a key; past ones are dropped."""
    if len(lanes) >= _MAX_SLOTS:
        for name in [name for name, slots in lanes.items() if max(slots) * SLOT_SECONDS < now]:
            del lanes[name]
    slots = lanes.setdefault(lane, {})
    if len(slots) >= _MAX_SLOTS:
        first = int(now / SLOT_SECONDS)
        for slot in [slot for slot in slots if slot < first]:
            del slots[slot]
    return slots


def _get_rate_limit_key(model: Model, options: StreamOptions, keys: object) -> Hashable:
    """What a rate limit counts: a key at a base URL. The key itself is not kept, only its hash.

    Requests whose key comes from the same function share it.
    """
    key = options.api_key or keys or model.api_key
    return model.provider, model.base_url, hash(key) if isinstance(key, Hashable) else id(key)


# Failures that other requests with the same key get at the same time.
_RATE_LIMITED = frozenset(("overloaded", "rate_limit"))


def with_retry(
    stream_fn: StreamFn, retry: RetryStrategy, *, random: Callable[[], float] = draw_random, keys: object = None
) -> StreamFn:
    """The same `StreamFn`, called again if the strategy says so.

    Each new attempt is announced by a `RetryNotice`, and by a `Reset` when something of the failed one was shown.
    `keys` is the function that gives `stream_fn` its key: requests that share it are retried one by one, and a request
    whose key is refused is sent once more, with a fresh key, whatever the strategy says.
    """
    first_event, idle = getattr(retry, "first_event_timeout", None), getattr(retry, "idle_timeout", None)
    if first_event is not None or idle is not None:
        stream_fn = with_timeouts(stream_fn, first_event=first_event, idle=idle)
    return NormalizedStreamFn(_RetryingStream(stream_fn, retry, random, keys).batches)


class _RetryingStream:
    """A `StreamFn` and the strategy that decides about retries."""

    __slots__ = ("_keys", "_random", "_retry", "_stream_fn")

    def __init__(self, stream_fn: StreamFn, retry: RetryStrategy, random: Callable[[], float], keys: object) -> None:
        self._stream_fn = stream_fn
        self._keys = keys
        self._retry = retry
        self._random = random

    def batches(self, model: Model, request: Request, options: StreamOptions) -> Batches:
        ask = ModelCall(self._stream_fn, model, request, options)
        decide = partial(self._decide_next, ask)
        return run_attempts(ask, decide if self._keys is None else _ask_for_fresh_key_once(decide))

    def _decide_next(self, ask: ModelCall, failed: Failed, attempt: int) -> Failed | NextAttempt:
        error, retry = get_error_info(failed), self._retry
        try:
            if not retry.should_retry(error, attempt):
                return _reword(failed, _describe_giving_up(error, attempt, retry))
            timed = isinstance(retry, Retry)
            delay = retry.delay(error, attempt, self._random) if timed else retry.delay(error, attempt)
            delay = delay if delay > 0 else 0.0
            if error.kind in _RATE_LIMITED:
                most = retry.max_delay if timed else inf
                delay = reserve_slot(ask.model, ask.options, delay, self._random, keys=self._keys, most=most)
        except Exception as broken:  # noqa: BLE001  # a broken strategy ends the answer with both failures named
            return _reword(failed, f"{error.message} (and the retry strategy raised {to_error_info(broken).message})")
        return NextAttempt(RetryNotice(attempt, delay, error, get_usage(failed)), delay)


def _ask_for_fresh_key_once(decide: DecideNext) -> DecideNext:
    """Call again at once when the server refuses the key, and once only: each attempt asks for its key anew."""
    has_asked = False

    def decide_about_key(failed: Failed, attempt: int) -> Failed | NextAttempt:
        nonlocal has_asked
        error = get_error_info(failed)
        if has_asked or error.kind != "authentication" or error.status is None:
            return decide(failed, attempt)
        has_asked = True
        return NextAttempt(RetryNotice(attempt, 0.0, error, get_usage(failed)))

    return decide_about_key


def _describe_giving_up(error: ErrorInfo, attempt: int, retry: RetryStrategy) -> str:
    """The error message with how often it was tried, and how long the server asks to wait."""
    words: list[str] = []
    if attempt > 1:
        words.append(f"after {attempt} attempts")
    asked = get_requested_wait(error)
    if asked is not None and error.should_retry:
        words.append(f"the server asks to wait {asked:g} s")
        if isinstance(retry, Retry) and asked > retry.max_delay:
            words.append(f"longer than max_delay={retry.max_delay:g} s")
    return f"{error.message} ({', '.join(words)})" if words else error.message


def _reword(failed: Failed, text: str) -> Failed:
    """The same failure with another message."""
    error = get_error_info(failed)
    if text == error.message:
        return failed
    message = msgspec.structs.replace(failed.message, error_message=text)
    return Failed(message, msgspec.structs.replace(error, message=text))
