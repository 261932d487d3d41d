"""What a run costs: the loop alone, with telemetry, over HTTP, to watchers of a server, and to start. `make bench`."""

from __future__ import annotations

import subprocess
import sys

_PARTS = {"bench.loop": (), "bench.telemetry": (), "bench.peers": ("--floor",), "bench.serve": (), "bench.start": ()}

if __name__ == "__main__":
    missed = [
        part for part, options in _PARTS.items() if subprocess.run([sys.executable, "-m", part, *options]).returncode
    ]
    sys.exit(f"Goals were missed in: {', '.join(missed)}." if missed else 0)
