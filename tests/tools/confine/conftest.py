from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.tools.confine.rooms import KINDS, WHOLE, Room, walls_of

from steersman.tools.confine.sandbox import Confinement


@pytest.fixture(params=KINDS)
def walls(request: pytest.FixtureRequest) -> Confinement:
    return walls_of(request.param)


@pytest.fixture(params=WHOLE)
def whole(request: pytest.FixtureRequest) -> Confinement:
    """Those that also change what a command sees of the file system."""
    return walls_of(request.param)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(Path(os.path.realpath(tmp_path)))
