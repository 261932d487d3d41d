"""What it takes to start, against `import asyncio` in the same run: python -m bench.start [--rounds 15]

Every figure is of a fresh interpreter, and a median of interleaved rounds. Bytecode is compiled beforehand. The prompt
is that of the chat in a terminal, with a key in the environment; its time is on the clock, which also counts what
others do on the machine, and of the CPU. All others are of the CPU.
Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import pty
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from bench.measure import Pair, Row, medians, say, show

_PROMPT = "\u276f".encode()
_LONGEST = 30.0
_AGENT = "from steersman import Agent"
Environment = dict[str, str]


def measure_import(statement: str, environment: Environment) -> float:
    """CPU milliseconds of a statement in a fresh interpreter, without those of the interpreter."""
    code = f"from time import process_time as now; began = now(); {statement}; print(now() - began)"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return 1000 * float(ran.stdout)


def measure_process(command: list[str], environment: Environment) -> float:
    """CPU milliseconds of a whole process."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return 1000 * (used.ru_utime + used.ru_stime)


def measure_prompt(command: list[str], environment: Environment, folder: str) -> tuple[float, float]:
    """Milliseconds until the chat shows its prompt in a terminal: on the clock, and of the CPU."""
    began = monotonic()
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        os.execvpe(command[0], command, environment)
    seen = b""
    try:
        while _PROMPT not in seen:
            ready, _, _ = select.select([terminal], [], [], _LONGEST)
            if not ready:
                raise RuntimeError(f"No prompt within {_LONGEST:g} seconds: {seen[-400:]!r}")
            seen += os.read(terminal, 65536)
        shown = monotonic()
    finally:
        os.kill(child, 9)
        used = os.wait4(child, 0)[2]
        os.close(terminal)
    return 1000 * (shown - began), 1000 * (used.ru_utime + used.ru_stime)


def measure(rounds: int) -> list[Row]:
    """All figures."""
    command = str(Path(sys.executable).with_name("steersman"))
    with tempfile.TemporaryDirectory() as folder:
        home = {"HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_DATA_HOME": folder, "XDG_CACHE_HOME": folder}
        environment = {**os.environ, **home, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "PYTHONDONTWRITEBYTECODE": ""}
        chat = {**environment, "TERM": "xterm-256color", "ANTHROPIC_API_KEY": "none"}

        def compare(name: str, ours: Callable[[], float], floor: Callable[[], float], most: float, *, ms: bool) -> Row:
            say(f"  {name}")
            mine, least = medians(Pair(ours, floor), rounds)
            return Row(name, "ms", mine, least, most, absolute=ms)

        def load(statement: str) -> Callable[[], float]:
            return lambda: measure_import(statement, environment)

        def run(*arguments: str) -> Callable[[], float]:
            return lambda: measure_process(list(arguments), environment)

        floor = run(sys.executable, "-c", "import asyncio")
        return [
            compare("import steersman", load("import steersman"), load("import asyncio"), 1.0, ms=False),
            compare(_AGENT, load(_AGENT), load("import asyncio"), 1.5, ms=False),
            compare("steersman --help", run(command, "--help"), floor, 60, ms=True),
            compare("prompt of the chat", lambda: measure_prompt([command], chat, folder)[0], floor, 500, ms=True),
            compare("prompt of the chat, CPU", lambda: measure_prompt([command], chat, folder)[1], floor, 500, ms=True),
        ]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    say("Measuring ...")
    rows = measure(rounds)
    print(f"Python {platform.python_version()}, {platform.machine()}, medians of {rounds} rounds\n")
    show(rows)
    missed = [row.name for row in rows if row.missed]
    print(f"\nMissed: {'; '.join(missed)}." if missed else "\nEvery goal is reached.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
