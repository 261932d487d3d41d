"""What a run costs: the loop alone, with telemetry, over HTTP, and to watchers of a server. `make bench` runs it."""

from __future__ import annotations

import sys

from bench import loop, serve, telemetry, wire

if __name__ == "__main__":
    missed = [measured.__name__ for measured in (loop, telemetry, wire, serve) if measured.main()]
    sys.exit(f"Goals were missed in: {', '.join(missed)}." if missed else 0)
