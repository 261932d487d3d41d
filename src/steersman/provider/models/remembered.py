"""What is worked out once per object, such as a model's settings: models are few, and the last ones are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Result = TypeVar("Result")

_MOST = 1024


def remembered(work_out: Callable[[T], Result]) -> Callable[[T], Result]:
    """The same function of an object that never changes; it is asked once for each."""
    known: dict[int, tuple[T, Result]] = {}

    def of(thing: T) -> Result:
        found = known.get(id(thing))
        # Kept beside its result, a thing stays alive, and no other can come to have its identity.
        if found is not None:
            return found[1]
        result = work_out(thing)
        if len(known) >= _MOST:
            known.clear()
        known[id(thing)] = (thing, result)
        return result

    return of
