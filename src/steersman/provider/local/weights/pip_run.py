"""The child process that runs pip: it exits when its standard input closes, so when its parent closes it or dies."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from importlib.util import find_spec

NO_PIP = 86


def main() -> None:
    """Run pip with our arguments."""
    threading.Thread(target=_exit_with_stdin, daemon=True).start()
    if find_spec("pip") is None:
        sys.exit(NO_PIP)
    sys.argv[0] = "pip"
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def _exit_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    # The whole process group: pip may have started processes, too.
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
