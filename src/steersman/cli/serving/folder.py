"""What the commands that serve share: messages on stderr, the agent of a folder, and the store of its sessions."""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from steersman.cli.arguments import Options
from steersman.cli.flag_values import parse_amount
from steersman.cli.setup.settings import find_session_file, make_private_folder
from steersman.cli.setup.startup import StartedAgent, start_agent
from steersman.cli.terminal.stderr import StderrMessages
from steersman.session.opening import open_store
from steersman.session.stores.store import Store
from steersman.tools.table import Toolset


def add_approval_timeout(parser: argparse.ArgumentParser) -> None:
    """Adds the flag that limits how long a question waits for its answer."""
    parser.add_argument(
        "--approval-timeout",
        type=parse_amount,
        metavar="S",
        help="deny a question that has no answer after so many seconds",
    )


@asynccontextmanager
async def open_stderr(options: Options) -> AsyncGenerator[StderrMessages]:
    """The messages on stderr; closed at the end."""
    stderr = StderrMessages(verbose=options.verbose)
    try:
        yield stderr
    finally:
        await stderr.close()


def start_served_agent(
    options: Options, stderr: StderrMessages, *, workspace: Path | None = None, toolsets: Sequence[Toolset] = ()
) -> AbstractAsyncContextManager[StartedAgent]:
    """Starts the agent of a folder without a session of its own; its clients approve, and stderr has its notices."""
    return start_agent(
        options,
        approve=None,
        notify=stderr.notify,
        progress=stderr.show_progress,
        chosen=lambda choice: stderr.notify(choice.why),
        keep_session=False,
        workspace=workspace,
        toolsets=toolsets,
    )


def open_folder_store(options: Options, folder: Path) -> Store:
    """The store that the command uses in a folder."""
    path = find_session_file(options.session_dir, folder)
    make_private_folder(path.parent)
    return open_store(path)
