"""Guards for callers without a type checker, and hints for names that they mistyped."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from enum import Enum
from functools import wraps
from types import UnionType
from typing import Any, TypeVar, cast

_Class = TypeVar("_Class", bound=type[Any])


class Unset(Enum):
    """The default of an argument for which `None` is a value like any other."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return self.name


UNSET = Unset.UNSET


def is_instance(value: object, kind: type | UnionType) -> bool:
    """`isinstance` for arguments of the public API, where a type checker would call the check unnecessary."""
    return isinstance(value, kind)


def to_snake_case(name: str) -> str:
    """`beforeTurn` as `before_turn`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def find_nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, also where this one is written in camelCase."""
    from difflib import get_close_matches  # a millisecond at import, and only errors need it

    near = get_close_matches(to_snake_case(name), list(known), 1) if isinstance(name, str) else []
    return near[0] if near else None


def refuse_unknown(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise `TypeError` for the first given name that is not known, with the nearest one."""
    names = list(known)
    for name in given:
        if name not in names:
            near = find_nearest(name, names)
            hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(names)}."
            raise TypeError(f"{owner} takes no {name!r}. {hint}")


def suggest_options(cls: _Class) -> _Class:
    """Let the constructor of a class suggest the nearest option for one it does not know."""
    initialise = cls.__init__

    @wraps(initialise)
    def __init__(self: Any, *values: Any, **options: Any) -> None:
        try:
            initialise(self, *values, **options)
        except TypeError:
            known = list(inspect.signature(initialise).parameters)[1:]
            refuse_unknown(cls.__name__, options, known)
            raise

    cast(Any, cls).__init__ = __init__
    return cls
