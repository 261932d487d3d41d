"""What the tests of policies share."""

from __future__ import annotations

import pytest
from tests.policy.shell.shells import Bench


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A folder with programs that write down how they were called."""
    return Bench(tmp_path_factory.mktemp("bench"))
