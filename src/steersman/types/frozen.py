"""Read-only containers and views that compare equal to `dict` and `list`, and a list that carries memos.

Messages and events are passed to subscribers, hooks and tools, none of which must be able to change the transcript.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Never, TypeVar, cast, overload

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

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
        for item in items.values():
            if type(item) not in _IMMUTABLE:
                return FrozenDict({key: freeze(item) for key, item in items.items()})
        return FrozenDict(items)
    if isinstance(value, list | tuple):
        return FrozenList([freeze(item) for item in cast(Iterable[Any], value)])
    return value


def thaw(value: Any) -> Any:
    """Return a copy of a JSON value that may be changed."""
    if isinstance(value, dict):
        items: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]  # a cast would be a call
        return dict(items) if is_flat(items) else {key: thaw(item) for key, item in items.items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in cast(Iterable[Any], value)]
    return value


def is_flat(items: dict[str, Any]) -> bool:
    """Whether no value of a JSON object is an object or a list, so that a copy of the one is a copy of all."""
    for item in items.values():  # noqa: SIM110  # `all` with a generator takes five times as long
        if type(item) not in _LEAVES:
            return False
    return True


class MemoList(list[T]):
    """A list that is only appended to, with a `memo` for values computed from its items, such as their encoded form.

    Items never change, so a memo stays valid and only new items have to be added to it.
    """

    __slots__ = ("memo",)

    def __init__(self, *items: Any) -> None:
        super().__init__(*items)
        self.memo: dict[str, Any] = {}


class View(Sequence[T_co]):
    """The first items of `base`, which its owner may append to and never changes otherwise."""

    __slots__ = ("_length", "base")

    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride]  # equal to lists, so as unhashable as they are

    def __init__(self, base: list[T_co], length: int | None = None) -> None:
        self.base = base
        self._length = len(base) if length is None else length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> list[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | list[T_co]:
        length = self._length
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            if step > 0:
                return self.base[start:stop:step]
            return [self.base[at] for at in range(start, stop, step)]
        at = index + length if index < 0 else index
        if not 0 <= at < length:
            raise IndexError(f"There is no item {index!r} among {length}.")
        return self.base[at]

    def __iter__(self) -> Iterator[T_co]:
        return islice(self.base, self._length)

    def __reversed__(self) -> Iterator[T_co]:
        for at in range(self._length - 1, -1, -1):
            yield self.base[at]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, str | bytes | bytearray) or not isinstance(other, Sequence):
            return NotImplemented
        items = cast(Sequence[Any], other)
        return len(items) == self._length and all(a is b or a == b for a, b in zip(self, items, strict=True))

    def __add__(self, other: Sequence[Any]) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Sequence[Any]) -> list[Any]:
        return [*other, *self]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"
