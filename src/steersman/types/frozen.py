"""Containers that compare equal to `dict` and `list` and cannot be changed.

Messages and events are handed to subscribers, hooks and tools; whatever those do with them, the transcript stays as it
was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Never, TypeVar, cast

T = TypeVar("T")

_ADVICE = "messages and events are read-only; change a copy made with thaw(value)"


def _refuse(*_: object, **__: object) -> Never:
    raise TypeError(_ADVICE)


class FrozenDict(dict[str, Any]):
    """A `dict` that refuses every change."""

    __slots__ = ()
    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[T]):
    """A `list` that refuses every change."""

    __slots__ = ()
    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = sort = reverse = __iadd__ = (
        __imul__
    ) = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


# Most values hold nothing but these, and are copied in one step.
_LEAVES = frozenset((str, int, float, bool, type(None)))
_IMMUTABLE = _LEAVES | {FrozenDict, FrozenList}


def freeze(value: Any) -> Any:
    """The same JSON value, read-only all the way down."""
    if type(value) in _IMMUTABLE:
        return value
    if isinstance(value, dict):
        items: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]  # a cast would be a call
        if _IMMUTABLE.issuperset(map(type, items.values())):
            return FrozenDict(items)
        return FrozenDict({key: freeze(item) for key, item in items.items()})
    if isinstance(value, list | tuple):
        return FrozenList([freeze(item) for item in cast(Iterable[Any], value)])
    return value


def thaw(value: Any) -> Any:
    """A copy of a JSON value that may be changed."""
    if isinstance(value, dict):
        items: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]  # a cast would be a call
        if _LEAVES.issuperset(map(type, items.values())):
            return dict(items)
        return {key: thaw(item) for key, item in items.items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in cast(Iterable[Any], value)]
    return value


class MemoList(list[T]):
    """Whoever works something out of the items, such as their encoded form, may keep it in `memo` under its own key.

    Items are appended and never changed, so what was worked out stays true and only the new items are left to do.
    """

    __slots__ = ("memo",)

    def __init__(self, *items: Any) -> None:
        super().__init__(*items)
        self.memo: dict[str, Any] = {}
