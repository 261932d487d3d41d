"""Who shares a key waits for each other once its limit is reached: the next attempts come one by one, not all at once.

Only attempts that are made again are spaced. The first one of anybody goes out at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from math import inf
from typing import TypeAlias
from weakref import WeakKeyDictionary

from steersman.types.model import Model, StreamOptions

GAP = 0.05
"""The span in which one attempt with a key is made again, and no other."""

LONGEST = 60.0
"""The most seconds that anybody waits for others; behind it there is a crowd that no spacing helps."""

_MOST = 1024
_Slots: TypeAlias = dict[int, int]
"""Spans of time that are taken, each with where to look for one that is free."""

_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Slots]] = WeakKeyDictionary()


def spaced(
    model: Model,
    options: StreamOptions,
    delay: float,
    random: Callable[[], float],
    *,
    keys: object = None,
    most: float = inf,
) -> float:
    """The seconds to wait for a turn of one's own after a delay: the delay itself, unless that span is taken.

    `keys` is who is asked for the key of each request, if anybody is, and `most` how long anybody wants to wait. Where
    every span up to then is taken, the turn is anywhere among them.
    """
    loop = asyncio.get_running_loop()
    now = loop.time()
    wanted = int((now + delay) / GAP)
    slots = _slots(_loops.setdefault(loop, {}), _lane(model, options, keys), now)
    found = _free(slots, wanted)
    if found == wanted:
        slots[found] = found + 1
        return delay
    # Moved by a part of a slot, so that nobody falls into step with others elsewhere.
    turn = (found + random()) * GAP - now
    latest = max(delay, min(delay + LONGEST, most))
    if turn > latest:
        return delay + (latest - delay) * random()
    slots[found] = found + 1
    return turn


def _free(slots: _Slots, wanted: int) -> int:
    """The first free slot from one on."""
    passed: list[int] = []
    slot = wanted
    while slot in slots:
        passed.append(slot)
        slot = slots[slot]
    # Whoever comes next goes the whole way in one step.
    for taken in passed:
        slots[taken] = slot
    return slot


def _slots(lanes: dict[Hashable, _Slots], lane: Hashable, now: float) -> _Slots:
    """The slots of a lane; what is past is forgotten."""
    if len(lanes) >= _MOST:
        for name in [name for name, slots in lanes.items() if max(slots) * GAP < now]:
            del lanes[name]
    slots = lanes.setdefault(lane, {})
    if len(slots) >= _MOST:
        first = int(now / GAP)
        for slot in [slot for slot in slots if slot < first]:
            del slots[slot]
    return slots


def _lane(model: Model, options: StreamOptions, keys: object) -> Hashable:
    """Whose limit it is: that of a key at an address; of the key itself nothing is kept.

    Where somebody is asked for the key, those who ask the same one share it.
    """
    key = options.api_key or keys or model.api_key
    return model.provider, model.base_url, hash(key) if isinstance(key, Hashable) else id(key)
