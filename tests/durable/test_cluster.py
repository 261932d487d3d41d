"""The compose file of the documents, and the cluster on this machine with its demo."""

from __future__ import annotations

import asyncio
import gc
import shlex
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.cluster import show_demo
from bench.cluster_parts import run_cluster, start_part

from steersman.cli.arguments import parse

COMPOSE = Path(__file__).parents[2] / "docs" / "compose.yaml"


def test_the_compose_file_names_only_what_the_commands_know() -> None:
    """durable.md U6: PostgreSQL, Temporal, two servers and three workers; each command parses."""
    services: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]
    ours: list[Any] = []
    for service in services.values():
        program, *words = shlex.split(service["command"])
        if program == "steersman":
            options = parse(words)
            assert options.arguments is not None
            ours.append((options.command, options.arguments.store, options.arguments.temporal))
    place = ("postgresql://postgres:change-me@postgres/agents", "temporal:7233")
    assert ours == [*[("serve", *place)] * 2, *[("worker", *place)] * 3]
    assert {"postgres", "temporal"} < set(services)


TALKER = """
import sys, time
for number in range(int(sys.argv[2])):
    print("x" * 1_000, flush=True)
open(sys.argv[1], "w").close()
time.sleep(100)
"""


@pytest.mark.real_time
@pytest.mark.parametrize(("lines", "is_read"), [(2_000, True), (170, False)])
async def test_a_part_that_says_much_goes_on_and_leaves_nothing_open(tmp_path: Path, lines: int, is_read: bool) -> None:
    """It would stop once a pipe is full, and its end would be followed by an error of asyncio.

    If it is not read, 128 KiB are in memory and the rest waits in the pipe.
    """
    done = tmp_path / "done"
    part = await start_part("talker", (sys.executable, "-c", TALKER, str(done), str(lines)), cwd=tmp_path)
    if is_read:
        part.read()
    assert await asyncio.to_thread(_wait_for, done)
    await part.end()
    del part
    gc.collect()  # what is open is told here


def _wait_for(file: Path) -> bool:
    """Wait until there is a file, for half a minute."""
    return any(file.exists() or threading.Event().wait(0.02) for _ in range(1_500))


@pytest.mark.real_time
@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_the_demo_of_the_cluster_loses_nothing() -> None:
    """durable.md U6: a run is watched at another server while its worker is killed."""
    async with run_cluster(2, 3, "make_stepper") as cluster:
        assert await show_demo(cluster, ask=False) == []
