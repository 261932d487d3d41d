"""Watchers of every run in the process, such as telemetry. There is none unless a program adds one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from steersman.types.model import StreamFn

if TYPE_CHECKING:
    from steersman.loop.run import Run


class Watcher(Protocol):
    """Sees runs before their first event, and their requests. It must not raise."""

    def watch_run(self, run: Run, /) -> None:
        """Take note of a run that is about to start, in the context of its caller; it may subscribe to its host."""
        ...

    def watch_requests(self, stream_fn: StreamFn, /) -> StreamFn:
        """The `StreamFn` with what watches each of its requests; retry and fallback are around it."""
        ...


watchers: tuple[Watcher, ...] = ()
"""Those who see runs. A run looks at it, and calls nothing where it is empty."""


def add_watcher(watcher: Watcher) -> None:
    """Let a watcher see all runs that start from now on, in any thread."""
    global watchers
    watchers = (*watchers, watcher)


def remove_watcher(watcher: Watcher) -> None:
    """Let a watcher see no more runs; those that go on stay watched."""
    global watchers
    watchers = tuple([one for one in watchers if one is not watcher])
