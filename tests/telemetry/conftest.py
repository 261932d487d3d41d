"""Around every test of telemetry: what it collects is checked, and nothing stays instrumented."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.telemetry.kit import Collected

from steersman.telemetry import uninstrument


@pytest.fixture
def collected() -> Iterator[Collected]:
    """A collector of spans and metrics."""
    found = Collected()
    log = logging.getLogger("opentelemetry")
    log.addHandler(found)
    yield found
    log.removeHandler(found)
    uninstrument("all")
    found.check()
