"""The child that runs pip: it ends when its standard input does, which is when whoever started it lets go or dies."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from importlib.util import find_spec

NO_PIP = 86


def main() -> None:
    """Run pip with the arguments we were given."""
    threading.Thread(target=_exit_with_stdin, daemon=True).start()
    if find_spec("pip") is None:
        sys.exit(NO_PIP)
    sys.argv[0] = "pip"
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def _exit_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    # The whole group, which is ours alone: pip may have started something, too.
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
