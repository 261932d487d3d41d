"""Read-only containers that compare equal to `dict` and `list`, and a list that carries memos.

Messages and events are passed to subscribers, hooks and tools, none of which must be able to change the transcript.
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


# Most values hold only these types, and are copied in one step.
_LEAVES = frozenset((str, int, float, bool, type(None)))
_IMMUTABLE = _LEAVES | {FrozenDict, FrozenList}


def freeze(value: Any) -> Any:
    """Return an equal JSON value that is read-only at every level."""
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
    """Return a copy of a JSON value that may be changed."""
    if isinstance(value, dict):
        items: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]  # a cast would be a call
        if _LEAVES.issuperset(map(type, items.values())):
            return dict(items)
        return {key: thaw(item) for key, item in items.items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in cast(Iterable[Any], value)]
    return value


class MemoList(list[T]):
    """A list that is only appended to, with a `memo` for values computed from its items, such as their encoded form.

    Items never change, so a memo stays valid and only new items have to be added to it.
    """

    __slots__ = ("memo",)

    def __init__(self, *items: Any) -> None:
        super().__init__(*items)
        self.memo: dict[str, Any] = {}
