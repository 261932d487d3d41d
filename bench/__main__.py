"""What a run costs: the loop alone, with HTTP around it, and watchers of a server: `python -m bench`, `make bench`."""

from __future__ import annotations

import sys

from bench import loop, serve, wire

if __name__ == "__main__":
    missed = [measured.__name__ for measured in (loop, wire, serve) if measured.main()]
    sys.exit(f"Goals were missed in: {', '.join(missed)}." if missed else 0)
