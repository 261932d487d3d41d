"""How long an answer may take and how big it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one answer, each settable by its name in `Model.settings`; `None` means none.

    `connect_timeout`: seconds until the connection stands. `first_byte_timeout`: seconds until the first byte of the
    answer, from when it was asked. `idle_timeout`: seconds between bytes after that; a comment or a ping counts.
    `content_idle_timeout`: seconds without anything but comments and pings, off unless set, because a model may think
    for long. `total_timeout`: seconds in all, off unless set: a slow healthy stream is not cut. Only waiting for the
    server counts, not the time a consumer takes.
    """

    connect_timeout: float | None = 30.0
    first_byte_timeout: float | None = 300.0
    idle_timeout: float | None = 300.0
    content_idle_timeout: float | None = None
    total_timeout: float | None = None
    max_event_bytes: int = 32 * 1024 * 1024
    max_response_bytes: int = 256 * 1024 * 1024


DEFAULT = Bounds()
_NAMES = tuple(field.name for field in fields(Bounds))


def bounds_of(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> Bounds:
    """The bounds that a model's settings name, over those of its provider."""
    if not settings and not defaults:
        return DEFAULT
    given = {name: source[name] for source in (defaults, settings) for name in _NAMES if name in source}
    if not given:
        return DEFAULT
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and isfinite(value) and value > 0):
            raise ValueError(f"The setting {name} is a number above 0, or None for no bound; got {value!r}.")
    return Bounds(**given)
