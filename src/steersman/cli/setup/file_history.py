"""The file history of an agent: the checkpoints of its session, opened when the first call may change a file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from steersman.agent.agent import Agent
from steersman.cli.exits import UserError
from steersman.cli.setup.settings import make_private_folder
from steersman.cli.terminal.numbers import format_count
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.session.session import Session
from steersman.tools.checkpoints.checkpoints import Checkpoints
from steersman.tools.checkpoints.store import Place, StoreError
from steersman.tools.checkpoints.watching import WatchedTools
from steersman.tools.confine.path_errors import WorkspaceError
from steersman.tools.skills import Skills
from steersman.tools.table import Toolset
from steersman.tools.tool import Tool

T = TypeVar("T")


class FileHistory:
    """What the runs of a session change in its folder, for `/undo`."""

    def __init__(self, session: Session, file: Path, workspace: Path, notify: Callable[[str], None]) -> None:
        self.agent: Agent | None = None
        self._session = session
        self._file = file
        self._root = workspace
        self._notify = notify
        self._opened: Checkpoints | None = None
        self._lock = threading.Lock()
        self._watching = WatchedTools(self.open, workspace, self._find_place, lambda text: notify(sanitize_line(text)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever recorded for this folder."""
        return self._opened is None and not self._file.exists()

    def watch(self, tools: Sequence[Tool | Toolset]) -> list[Tool | Toolset]:
        """The same tools, watched for changes of files."""
        return [
            self._watching.watch(item)
            if isinstance(item, Tool)
            else item
            if isinstance(item, Skills)
            else self._watching.watch_all(item)
            for item in tools
        ]

    async def record(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something else that may change files during a run, such as a hook."""
        return await self._watching.record(work)

    def open(self) -> Checkpoints:
        """Open the checkpoints, once; it may finish what a killed program left."""
        with self._lock:
            if self._opened is None:
                make_private_folder(self._file.parent)
                self._opened = Checkpoints(self._root, self._file, self._session.id)
            return self._opened

    def recover(self) -> None:
        """Finish what a killed program left, if there is anything; problems are reported."""
        if self.is_empty:
            return
        try:
            finished = self.open().finished
        except (OSError, StoreError, WorkspaceError, sqlite3.Error) as error:
            self._notify(sanitize_line(f"Changes of files cannot be undone: {error}"))
            return
        for restored in finished:
            count = format_count(len(restored.done), "file")
            left = f" Left as they are: {len(restored.failed)}." if restored.failed else ""
            self._notify(f"An undo that was cut off is finished now: {count}.{left}")

    def require(self) -> Checkpoints:
        """Open the checkpoints for a command; raise `UserError` if there are none, or they cannot be used."""
        try:
            return self.open()
        except (OSError, StoreError, WorkspaceError, sqlite3.Error) as error:
            raise UserError(f"Changes of files cannot be undone: {error}") from error

    def close(self) -> None:
        """Close the checkpoints."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _find_place(self) -> Place | None:
        agent = self.agent
        run = None if agent is None else agent.current_run
        if agent is None or run is None:
            return None
        entries = agent.context.log.entries
        return Place(self._session.id, run.loop_id, entries[-1].id if entries else "")
