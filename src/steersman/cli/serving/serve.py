"""`steersman serve`: the agent of this folder behind HTTP, with a web page. It opens nothing by itself."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.agent.agent import Agent
from steersman.agent.named import Agents
from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.serving.folder import add_approval_timeout, open_folder_store, open_stderr, start_served_agent
from steersman.cli.serving.worker import add_temporal
from steersman.cli.setup.export import find_request_context
from steersman.cli.setup.settings import find_state_folder, get_current_folder, make_private_folder
from steersman.server.server import Server, find_store, serve
from steersman.server.supervised import Supervisor
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import Store

if TYPE_CHECKING:
    from steersman.durable import Client

_DEFAULT_PORT = 8765
_SHORTEST_TOKEN = 16


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument(
        "--port", type=int, default=_DEFAULT_PORT, metavar="N", help="listen on this port; 0: any free one"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="listen on this address")
    parser.add_argument(
        "--store",
        metavar="URL",
        help="keep sessions here: a file, or postgresql://...; those of this folder if missing",
    )
    add_temporal(parser)
    add_approval_timeout(parser)


async def run(options: Options) -> int:
    """Serves until SIGTERM or Ctrl+C; returns the exit code."""
    arguments = options.arguments
    assert arguments is not None
    if arguments.temporal is not None and arguments.store is None:
        raise UserError(
            "--temporal needs --store: the workers run the sessions that are there. Give both the same one."
        )
    if not arguments.host:
        raise UserError("--host must not be empty: '127.0.0.1' is this machine, '0.0.0.0' are all its addresses.")
    store = _open_store(options, arguments.store)
    # A store that cannot be used is told at once, and not with the first request.
    await asyncio.to_thread(store.list)
    if arguments.temporal is not None:
        async with _open_supervisor(store, arguments) as supervisor:
            return await _serve(arguments, _refuse_to_run, store, supervisor)
    async with open_stderr(options) as stderr, start_served_agent(options, stderr) as started:
        return await _serve(arguments, started.make_agent, store)


async def _serve(
    arguments: argparse.Namespace, agents: Agents, store: Store, supervisor: Supervisor | None = None
) -> int:
    try:
        await serve(
            agents,
            store=store,
            host=arguments.host,
            port=arguments.port,
            token=load_token(find_state_folder() / "server-token"),
            approval_timeout=arguments.approval_timeout,
            supervisor=supervisor,
            enter_request=find_request_context(),
            started=_show_url,
        )
    except OSError as error:
        raise UserError(
            f"Cannot listen on {arguments.host}:{arguments.port}: {error.strerror}. Choose another one with --port."
        ) from error
    return 0


def _open_supervisor(store: Store, arguments: argparse.Namespace) -> Client:
    """The client of the workers that run the sessions of this server."""
    from steersman.durable import Client

    try:
        return Client(store, arguments.temporal, task_queue=arguments.task_queue, namespace=arguments.namespace)
    except TypeError as error:
        raise UserError(f"--temporal needs --store postgresql://...: {error}") from error


def _refuse_to_run() -> Agent[Any]:
    """The agent of a server whose sessions workers run."""
    raise AssertionError("A server with --temporal makes no agent.")


def load_token(path: Path) -> str:
    """The token in a file that only the user can read; a new one if there is none. Pages stay logged in by it."""
    try:
        token = path.read_text("utf-8").strip()
        if len(token) >= _SHORTEST_TOKEN and path.stat().st_mode & 0o077 == 0:
            return token
    except (OSError, ValueError):
        pass  # missing or unreadable: a new one is made, and pages log in again
    token = secrets.token_urlsafe(24)
    make_private_folder(path.parent)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    new.replace(path)
    return token


def _open_store(options: Options, where: str | None) -> Store:
    if where is None:
        return open_folder_store(options, get_current_folder())
    try:
        store = find_store(where)
    except ValueError as error:
        raise UserError(f"{error}") from error
    if isinstance(store, SqliteStore) and not store.path.parent.is_dir():
        raise UserError(f"There is no folder {str(store.path.parent)!r} for the sessions: make it, or change --store.")
    return store


def _show_url(_: Server, url: str) -> None:
    print(url, flush=True)
