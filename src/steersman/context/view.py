"""A read-only look at a list that only ever grows: made in constant time, it stays as it was when the list goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, TypeVar, cast, overload

from steersman.types.messages import AgentMessage

T_co = TypeVar("T_co", covariant=True)


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


class MessageView(View[AgentMessage]):
    """Messages, in log order."""

    __slots__ = ()
