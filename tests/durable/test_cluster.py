"""The compose file of the documents, and the cluster on this machine with its demo."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.cluster import show_demo
from bench.cluster_parts import run_cluster

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


@pytest.mark.real_time
@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_the_demo_of_the_cluster_loses_nothing() -> None:
    """durable.md U6: a run is watched at another server while its worker is killed."""
    async with run_cluster(2, 3, "make_stepper") as cluster:
        assert await show_demo(cluster, ask=False) == []
