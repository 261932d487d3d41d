"""`steersman serve`: the agent of this folder behind HTTP, with a web page. It opens nothing by itself."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.setup.settings import find_session_file, find_state_folder, get_current_folder, make_private_folder
from steersman.cli.setup.startup import start_agent
from steersman.cli.terminal.stderr import StderrMessages
from steersman.server.server import Server, find_store, serve
from steersman.session.stores.store import Store

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
    parser.add_argument(
        "--approval-timeout", type=float, metavar="S", help="deny a question that has no answer after so many seconds"
    )


async def run(options: Options) -> int:
    """Serves until SIGTERM or Ctrl+C; returns the exit code."""
    arguments = options.arguments
    assert arguments is not None
    stderr = StderrMessages(verbose=options.verbose)
    async with (
        close_at_end(stderr),
        start_agent(
            options,
            approve=None,
            notify=stderr.notify,
            progress=stderr.show_progress,
            chosen=lambda choice: stderr.notify(choice.why),
            keep_session=False,
        ) as started,
    ):
        try:
            await serve(
                started.agent,
                store=_open_store(options, arguments.store),
                host=arguments.host,
                port=arguments.port,
                token=load_token(find_state_folder() / "server-token"),
                approval_timeout=arguments.approval_timeout,
                started=_show_url,
            )
        except OSError as error:
            raise UserError(
                f"Cannot listen on {arguments.host}:{arguments.port}: {error.strerror}. Choose another one with --port."
            ) from error
    return 0


@asynccontextmanager
async def close_at_end(stderr: StderrMessages) -> AsyncGenerator[None]:
    """Close the messages on stderr at the end."""
    try:
        yield
    finally:
        await stderr.close()


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
    if where is not None:
        return find_store(where)
    path = find_session_file(options.session_dir, get_current_folder())
    make_private_folder(path.parent)
    return find_store(path)


def _show_url(_: Server, url: str) -> None:
    print(url, flush=True)
