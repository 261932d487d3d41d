"""The options of activities: what is usual, and what a user gives in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityConfig

from steersman.tools.tool import Tool

_ONCE = RetryPolicy(maximum_attempts=1)
MODEL = ActivityConfig(
    start_to_close_timeout=timedelta(minutes=15),
    heartbeat_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=60), maximum_attempts=10),
)
_TOOL = ActivityConfig(
    heartbeat_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(maximum_attempts=5),
)
SESSION = ActivityConfig(start_to_close_timeout=timedelta(minutes=1), heartbeat_timeout=timedelta(seconds=10))


def join_options(*given: ActivityConfig | None) -> ActivityConfig:
    """Options of an activity; later ones go before earlier ones."""
    joined = ActivityConfig()
    for options in given:
        joined.update(options or {})
    return joined


def find_tool_options(tool: Tool, given: Sequence[Mapping[str, ActivityConfig]]) -> ActivityConfig:
    """The options of the calls of a tool; one that is not idempotent is tried once."""
    # The tool's own timeout comes first, and is told in its own words.
    longest = timedelta(hours=1) if tool.timeout is None else timedelta(seconds=tool.timeout + 60)
    own = [options.get(name) for options in given for name in ("*", tool.name)]
    usual = ActivityConfig(start_to_close_timeout=longest, summary=tool.name)
    config = join_options(_TOOL, usual, *own)
    if not tool.idempotent:
        config["retry_policy"] = _ONCE
    return config
