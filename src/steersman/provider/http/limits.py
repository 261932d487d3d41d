"""The time and size limits of one HTTP response, from the settings of a model and of its provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any

from steersman.provider.models.presets import PRESETS, find_base_url
from steersman.provider.wires.encoding import memoize_by_identity
from steersman.types.model import Model


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """Each can be set by its name in `Model.settings`; `None` means no limit. Times are in seconds.

    `connect_timeout`: until the connection stands. `first_byte_timeout`: from the request to the first byte of the
    answer. `idle_timeout`: between two reads after that; a comment or a ping counts as a sign of life.
    `content_idle_timeout`: without anything but comments and pings; off by default, because a model may think for long.
    `total_timeout`: for the whole answer; off by default, so that a slow healthy stream is not cut. Only the wait for
    the server counts, not the time a consumer takes.
    """

    connect_timeout: float | None = 30.0
    first_byte_timeout: float | None = 300.0
    idle_timeout: float | None = 300.0
    content_idle_timeout: float | None = None
    total_timeout: float | None = None
    max_event_bytes: int = 32 * 1024 * 1024
    max_response_bytes: int = 256 * 1024 * 1024


_DEFAULT = ResponseLimits()
_NAMES = tuple(field.name for field in fields(ResponseLimits))


def parse_limits(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> ResponseLimits:
    """The limits in a model's settings, over those of its provider; `ValueError` for one that is not a number."""
    if not settings and not defaults:
        return _DEFAULT
    given = {name: source[name] for source in (defaults, settings) for name in _NAMES if name in source}
    if not given:
        return _DEFAULT
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and isfinite(value) and value > 0):
            raise ValueError(f"The setting {name} must be a number above 0, or None for no limit; got {value!r}.")
    return ResponseLimits(**given)


def resolve_model(model: Model) -> tuple[Model, ResponseLimits]:
    """The model with its provider's base URL and settings where it has none of its own, and its limits."""
    known = _resolve_cached(model)
    if model.base_url is None and known[0].base_url != find_base_url(model.provider):
        return _resolve(model)  # its base URL comes from the environment, which has changed
    return known


def _resolve(model: Model) -> tuple[Model, ResponseLimits]:
    preset = PRESETS.get(model.provider)
    settings: Mapping[str, Any] = {} if preset is None else preset.settings
    limits = parse_limits(model.settings, settings)
    url = find_base_url(model.provider, model.base_url)
    if settings or url != model.base_url:
        model = replace(model, base_url=url, settings={**settings, **model.settings})
    return model, limits


_resolve_cached = memoize_by_identity(_resolve)
