"""`python -P -m steersman` is the command; without `-P`, see `safe_start`."""

from __future__ import annotations

import sys

from steersman.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
