"""The type of a run's output, and what stands for an output that is no value."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # noqa: TID251  # checkers know it; nothing is imported when a program runs

    OutputT = TypeVar("OutputT", covariant=True, default=str)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT", covariant=True)  # only a checker needs the default


class Absent(Enum):
    """What stands in a result for an output: the text of the last answer, or nothing where a value was asked for."""

    TEXT = "text"
    NOTHING = "nothing"
