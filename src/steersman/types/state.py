"""`State`: the JSON values that a conversation keeps, each under a name, and the changes that made them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence, Sized
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from steersman.types.frozen import freeze, thaw

MAX_STATE_BYTES: Final = 1_048_576
"""The most that a state holds, as JSON in UTF-8: 1 MiB."""

_BIGGEST = 2**63 - 1
_MISSING: Final = object()


class StateChange(msgspec.Struct, frozen=True):
    """Names that got a value, and names that were removed. With `reset` all others were removed too."""

    set: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    delete: tuple[str, ...] = ()
    reset: bool = False

    def describe(self) -> dict[str, Any]:
        """The change as a record holds it: only the fields that say something."""
        fields = {"set": thaw(self.set), "delete": list(self.delete), "reset": self.reset}
        return {name: value for name, value in fields.items() if value}

    def apply_to(self, values: dict[str, Any]) -> None:
        """Change these values."""
        if self.reset:
            values.clear()
        for name in self.delete:
            values.pop(name, None)
        values.update(self.set)

    def merge(self, later: StateChange) -> StateChange:
        """The one change that does what this one and then a later one do."""
        return _merge_all((self, later))


class State(MutableMapping[str, Any]):
    """What a conversation keeps for its tools: JSON values by name. Safe from any thread.

    Values are copied and read-only: assign a new one to change it. Each change belongs to the entry of the log after
    which it was made, so a branch begins with the state of the entry it begins at. `update` is one change.
    """

    __slots__ = ("_changes", "_entries", "_lock", "_read_only", "_sizes", "_values", "listener")

    def __init__(self, entries: Sized = ()) -> None:
        # Called with every change after it was made, for a session; it must not raise.
        self.listener: Callable[[StateChange], None] | None = None
        self._entries = entries
        self._lock = threading.RLock()
        self._values: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        # At most one for each number of entries, in order.
        self._changes: list[tuple[int, StateChange]] = []
        self._read_only = ""

    @property
    def changes(self) -> list[tuple[int, StateChange]]:
        """The changes in order, each with the number of entries that the log had."""
        with self._lock:
            return list(self._changes)

    @property
    def view(self) -> Mapping[str, Any]:
        """The same values, to read only: later changes show in it."""
        return MappingProxyType(self)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def __setitem__(self, name: str, value: Any) -> None:
        self._change({name: value})

    def __delitem__(self, name: str) -> None:
        with self._lock:
            if name not in self._values:
                raise KeyError(name)
            self._change({}, (name,))

    def pop(self, name: str, default: Any = _MISSING) -> Any:
        """Remove a name and return its value, or the default if there is none."""
        with self._lock:
            if name not in self._values and default is not _MISSING:
                return default
            value = self[name]
            del self[name]
            return value

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The value of a name, which is set to the default first if it has none."""
        with self._lock:
            if name not in self._values:
                self[name] = default
            return self._values[name]

    def update(self, *others: Any, **values: Any) -> None:
        """Set several names in one change: either all of them are set or, after an error, none."""
        new: dict[str, Any] = {}
        for other in others:
            new.update(other)
        new.update(values)
        if new:
            self._change(new)

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            if self._values:
                self._change({}, tuple(self._values))

    def __repr__(self) -> str:
        return f"State({dict(self._values)!r})"

    def compute(self, place: int) -> dict[str, Any]:
        """The values as they were when the log had so many entries."""
        values: dict[str, Any] = {}
        for at, change in self.changes:
            if at <= place:
                change.apply_to(values)
        return values

    def restore(self, changes: Iterable[tuple[int, StateChange]]) -> None:
        """Make changes of the past again, as a session or another log has them; the listener is not called."""
        with self._lock:
            for place, group in groupby(changes, _get_place):
                change = _merge_all([change for _, change in group])
                self._add_change(place, msgspec.structs.replace(change, set=freeze(change.set)))
            self._sizes = {name: _measure(name, value) for name, value in self._values.items()}

    def copy_read_only(self, reason: str) -> State:
        """A copy of the values as they are now; a change of it raises `RuntimeError` with this reason."""
        copy = State()
        copy._values = dict(self._values)
        copy._read_only = reason
        return copy

    def _change(self, values: Mapping[str, Any], delete: tuple[str, ...] = ()) -> None:
        if self._read_only:
            raise RuntimeError(self._read_only)
        new = {_check_name(name): _copy_json(value, name) for name, value in values.items()}
        sizes = {name: _measure(name, value) for name, value in new.items()}
        change = StateChange(freeze(new), delete)
        with self._lock:
            after = {**self._sizes, **sizes}
            total = sum(after.values())
            if values and total > MAX_STATE_BYTES:
                raise ValueError(
                    f"The state would have {total:,} bytes as JSON, and {MAX_STATE_BYTES:,} is the most. "
                    "Keep large data in a file, and its name in the state."
                )
            self._add_change(len(self._entries), change)
            self._sizes = {name: size for name, size in after.items() if name in self._values}
            if self.listener is not None:
                self.listener(change)

    def _add_change(self, place: int, change: StateChange) -> None:
        change.apply_to(self._values)
        if self._changes and self._changes[-1][0] == place:
            change = self._changes.pop()[1].merge(change)
        self._changes.append((place, change))


def _get_place(change: tuple[int, StateChange]) -> int:
    return change[0]


def _merge_all(changes: Sequence[StateChange]) -> StateChange:
    """The one change that does what these do, one after the other."""
    values: dict[str, Any] = {}
    gone: dict[str, None] = {}
    reset = False
    for change in changes:
        if change.reset:
            gone.clear()
        change.apply_to(values)
        gone.update(dict.fromkeys(change.delete))
        reset = reset or change.reset
    return StateChange(values, tuple(name for name in gone if name not in values), reset)


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError(f"A name in the state is a string that is not empty, got {name!r}.")
    return name


def _measure(name: str, value: Any) -> int:
    try:
        return len(msgspec.json.encode({name: value}))
    except UnicodeEncodeError as error:
        raise ValueError(
            f"The state takes text that UTF-8 can hold, and that under {name!r} is not: {error}."
        ) from error


def _copy_json(value: Any, name: str) -> Any:
    """A copy of a JSON value; `TypeError` or `ValueError` for what JSON cannot hold."""
    try:
        return _copy(value, f"state[{name!r}]")
    except RecursionError as error:
        raise ValueError(f"The value for state[{name!r}] is too deep, or contains itself.") from error


def _copy(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        if not -_BIGGEST <= value <= _BIGGEST:
            raise ValueError(f"{where} is a number with more than 64 bits. Keep it as a string.")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value!r}, which JSON does not have.")
        return float(value)
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value)
        wrong = next((key for key in items if not isinstance(key, str)), None)
        if wrong is not None or None in items:
            raise TypeError(f"{where} has the key {wrong!r}. The keys of a JSON object are strings.")
        return {str(key): _copy(item, where) for key, item in items.items()}
    if isinstance(value, list | tuple):
        return [_copy(item, where) for item in cast(Iterable[Any], value)]
    raise TypeError(
        f"{where} takes JSON values (None, bool, int, float, str, list, dict with string keys), "
        f"got a {type(value).__name__}."
    )
