"""A model as it is asked: what it leaves open is taken from its provider, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from steersman.provider.http.bounds import Bounds, bounds_of
from steersman.provider.models.presets import PRESETS, base_url_of
from steersman.provider.models.remembered import remembered
from steersman.types.model import Model


def settled(model: Model) -> tuple[Model, Bounds]:
    """The model with the address and the settings of its provider where it has none of its own, and its bounds."""
    known = _known(model)
    if model.base_url is None and known[0].base_url != base_url_of(model.provider):
        return _completed(model)  # its address is the environment's, which has changed
    return known


def _completed(model: Model) -> tuple[Model, Bounds]:
    preset = PRESETS.get(model.provider)
    settings: Mapping[str, Any] = {} if preset is None else preset.settings
    bounds = bounds_of(model.settings, settings)
    url = base_url_of(model.provider, model.base_url)
    if settings or url != model.base_url:
        model = replace(model, base_url=url, settings={**settings, **model.settings})
    return model, bounds


_known = remembered(_completed)
