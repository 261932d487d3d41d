"""`steersman worker`: runs the sessions of a database that Temporal supervises, with the agent of this folder."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from steersman.agent.agent import Agent
from steersman.agent.named import DEFAULT_AGENT
from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.serving.folder import open_stderr, start_served_agent

_USUAL_COLLECTIONS = (700, 10, 10)
"""After how many new objects, and collections of the younger ones, the garbage collector looks at each generation."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("--store", required=True, metavar="URL", help="the sessions: postgresql://...")
    add_temporal(parser, required=True)
    parser.add_argument(
        "--agent",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="run this agent, or what this function makes, in place of that of the folder; may be repeated",
    )
    parser.add_argument(
        "--max-sessions", type=int, default=100, metavar="N", help="run so many sessions at once, 100 if missing"
    )


def add_temporal(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Adds the flags that say where Temporal is."""
    parser.add_argument("--temporal", required=required, metavar="HOST:PORT", help="the Temporal server")
    parser.add_argument("--task-queue", default="steersman", metavar="NAME", help="the task queue of the workers")
    parser.add_argument("--namespace", default="default", metavar="NAME", help="the namespace in Temporal")


async def run(options: Options) -> int:
    """Works until SIGTERM or Ctrl+C; returns the exit code."""
    arguments = options.arguments
    assert arguments is not None
    from steersman.durable import Worker

    named = load_agents(arguments.agent)
    async with AsyncExitStack() as stack:
        stderr = await stack.enter_async_context(open_stderr(options))
        if not named:
            started = await stack.enter_async_context(start_served_agent(options, stderr))
            named = {DEFAULT_AGENT: started.make_agent}
        try:
            worker = Worker(
                named,
                arguments.store,
                arguments.temporal,
                task_queue=arguments.task_queue,
                namespace=arguments.namespace,
                max_sessions=arguments.max_sessions,
            )
        except (TypeError, ValueError) as error:
            raise UserError(f"{error}") from error
        place = f"the task queue {arguments.task_queue!r} of {arguments.temporal}"

        def announce() -> None:
            # What was imported and set up stays until the end: the garbage collector need not look at it again.
            # The loop is a part of it; else it would be loaded with the first run.
            import_module("steersman.loop.entry")
            # The command collects rarely while it starts; later, much garbage costs more than collecting often.
            gc.set_threshold(*_USUAL_COLLECTIONS)
            gc.collect()
            gc.freeze()
            print(f"Running sessions of {place}.", flush=True)

        await _run_until_signal(worker.run(announce))
    return 0


async def _run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run a worker until a signal comes; a second one ends the process as usual."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def end() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    working, stopping = loop.create_task(work), loop.create_task(stop.wait())
    done, _ = await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working not in done:
        working.cancel()
        await asyncio.wait([working])
    if not working.cancelled():
        working.result()


def load_agents(places: Sequence[str]) -> dict[str, Any]:
    """The agents of these places, by the names they have there; the first is also the default one."""
    found: dict[str, Any] = {}
    for place in places:
        module, _, name = place.partition(":")
        if not module or not name:
            raise UserError(f"--agent is MODULE:NAME, got {place!r}.")
        made = _load(module, name)
        if not (isinstance(made, Agent) or callable(made)):
            raise UserError(f"--agent {place}: {made!r} is no Agent and no function that makes one.")
        found.setdefault(DEFAULT_AGENT, made)
        found[name] = made
    return found


def _load(module: str, name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"--agent {module}:{name} cannot be loaded: {error}.") from error
