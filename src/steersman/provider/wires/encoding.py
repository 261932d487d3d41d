"""What the encoders share: JSON without lone surrogates, and memos by identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from steersman.types.content import replace_lone_surrogates

T = TypeVar("T")
Result = TypeVar("Result")

_MAX_OBJECTS = 1024

_encode = msgspec.json.Encoder().encode


def encode_json(value: Any) -> bytes:
    """The value as JSON; lone surrogates, which UTF-8 cannot hold, are replaced."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_replace_surrogates(value))


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, Mapping):
        items = cast(Mapping[str, Any], value).items()
        return {replace_lone_surrogates(key): _replace_surrogates(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [_replace_surrogates(item) for item in cast(Sequence[Any], value)]
    return value


def memoize_by_identity(compute: Callable[[T], Result]) -> Callable[[T], Result]:
    """Compute the result once for each object; the objects must never change."""
    known: dict[int, tuple[T, Result]] = {}

    def look_up(value: T) -> Result:
        found = known.get(id(value))
        if found is not None:
            return found[1]
        result = compute(value)
        if len(known) >= _MAX_OBJECTS:
            known.clear()
        # The memo keeps the object alive, so that no other object can get its id.
        known[id(value)] = (value, result)
        return result

    return look_up


def memoize_by_identities(
    limit: int,
) -> Callable[[Callable[[Sequence[T]], Result]], Callable[[Sequence[T]], Result]]:
    """Compute the result once for each sequence of objects; the oldest of more than `limit` results is dropped."""

    def memoize(compute: Callable[[Sequence[T]], Result]) -> Callable[[Sequence[T]], Result]:
        known: dict[tuple[int, ...], tuple[tuple[T, ...], Result]] = {}

        def look_up(values: Sequence[T]) -> Result:
            key = tuple(map(id, values))
            found = known.get(key)
            if found is not None:
                return found[1]
            if len(known) >= limit:
                known.pop(next(iter(known)))
            result = compute(values)
            # The memo keeps the objects alive, so that no other object can get one of their ids.
            known[key] = (tuple(values), result)
            return result

        return look_up

    return memoize
