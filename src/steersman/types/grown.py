"""A list that only grows, with room beside it for what was worked out from its items."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


class Grown(list[T]):
    """Whoever works something out of the items, such as their encoded form, may keep it in `memo` under its own key.

    Items are appended and never changed, so what was worked out stays true and only the new items are left to do.
    """

    __slots__ = ("memo",)

    def __init__(self, *items: Any) -> None:
        super().__init__(*items)
        self.memo: dict[str, Any] = {}
