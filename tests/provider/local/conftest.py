"""What the tests of the embedded model share."""

from __future__ import annotations

from tests.provider.local.real import real_weights

__all__ = ["real_weights"]
