"""What a run costs: the loop alone, then with HTTP around it. `python -m bench`, or with --quick; see `make bench`."""

from __future__ import annotations

import sys

from bench import loop, wire

if __name__ == "__main__":
    missed = [measured.__name__ for measured in (loop, wire) if measured.main()]
    sys.exit(f"Goals were missed in: {', '.join(missed)}." if missed else 0)
