"""Prepares shell commands for the sandbox of a workspace, and clears up after each: for `bash`, and for hooks."""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

# Imported here and not on first use: a command may be able to write to the folder of this code.
from steersman.tools.confine.changed_folders import note_change, note_command
from steersman.tools.confine.command_environment import COMMAND_ENVIRONMENT
from steersman.tools.confine.folder_snapshot import (
    MAX_FOLDERS,
    PROTECTED_NAMES,
    FolderSnapshot,
    remove_links,
    set_aside,
)
from steersman.tools.confine.home import make_home, read_git_identity, remove_home
from steersman.tools.confine.launch import DEFAULT_PATH, build_child_environment
from steersman.tools.confine.protected_paths import Git, SandboxPaths, find_sandbox_paths, select_nested
from steersman.tools.confine.replaced_paths import ReadOnlyPaths
from steersman.tools.confine.running_commands import BegunCommand, begin_command
from steersman.tools.confine.sandbox import Confinement, Sandbox, confinement
from steersman.tools.confine.scratch import Scratch
from steersman.tools.confine.trusted_imports import keep_imports_out
from steersman.types.errors import ToolError

if TYPE_CHECKING:
    from steersman.tools.confine.workspace import Workspace

_TEMPORARY = "tmp"


@dataclass(frozen=True, slots=True)
class PreparedCommand:
    """A command that can be run by its plan; `Shell.clear_up` has to be called when it is over.

    `home` is its home folder, `begun` has what was protected when it began, and `fixed` what is read-only for it.
    Without a sandbox it has none of these.
    """

    sandbox: Confinement
    plan: dict[str, Any]
    home: str
    begun: BegunCommand | None
    fixed: ReadOnlyPaths


class Shell:
    """The sandbox of a workspace, and the state that its commands share; its methods may be called in any thread.

    With `keep_temporary`, files in the temporary folder stay for later commands.
    """

    def __init__(
        self,
        workspace: Workspace | str | os.PathLike[str],
        *,
        sandbox: Sandbox = "auto",
        allow_network: bool = False,
        readable: Sequence[str | os.PathLike[str]] = (),
        writable: Sequence[str | os.PathLike[str]] = (),
        git: Git = "read-only",
        env: Mapping[str, str] | None = None,
        keep_temporary: bool = True,
    ) -> None:
        self.root = _resolve_root(workspace, sandbox)
        keep_imports_out(self.root)
        self.sandbox: Sandbox = sandbox
        self.allow_network = allow_network
        self.git: Git = git
        self.scratch = Scratch()
        self._readable = [os.path.realpath(path) for path in readable]
        self._writable = [os.path.realpath(path) for path in writable]
        self._env = dict(env or {})
        self._keep_temporary = keep_temporary
        self._snapshot: FolderSnapshot | None = None
        self._snapshot_lock = threading.Lock()

    def prepare(
        self,
        command: str,
        *,
        readable: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        shells: Sequence[str] = ("bash", "sh"),
    ) -> PreparedCommand:
        """Prepare a command; `readable` are more paths that it may read. `ToolError` where it cannot be run.

        `env` are more variables. With a HOME among them, caches go to the folder that would have been its home.
        """
        if not os.path.isdir(self.root):
            raise ToolError(f"The workspace {self.root!r} no longer exists, so no command can run in it.")
        check_unmoved((self.root, *self._writable, *self._readable))
        sandbox = confinement(self.sandbox)
        environment = build_child_environment(COMMAND_ENVIRONMENT)
        scratch: list[str] = []
        begun: BegunCommand | None = None
        home = ""
        try:
            if sandbox.kind != "off":
                home = make_home(self.scratch, self._git_identity if self.git == "read-write" else "")
                scratch = [home, self._make_temporary(home)]
                environment.update(HOME=home, TMPDIR=scratch[1])
                begun = self._find_protected(scratch[1], holds=sandbox.holds_names)
                if env and "HOME" in env:
                    environment["XDG_CACHE_HOME"] = home
            environment.update({**self._env, **(env or {})})
            where = self._find_paths(scratch, environment, begun, readable)
            pinned = where.protected.pinned if sandbox.holds_names else ()
            fixed = ReadOnlyPaths(path for path, writable in pinned if not writable)
        except OSError as error:
            raise ToolError(
                f"The command was not run, because a path for it could not be accessed: {error}."
            ) from error
        argv = [_find_shell(environment["PATH"], shells), "-c", command]
        note = note_change if sandbox.kind == "off" else note_command
        note(self.root, *self._writable)
        plan = sandbox.plan(argv, environment, self.root, where, allow_network=self.allow_network)
        return PreparedCommand(sandbox, plan, home, begun, fixed)

    def clear_up(self, prepared: PreparedCommand) -> list[str]:
        """Set aside the protected names that a command made in subfolders, and remove its home folder; return notes."""
        if prepared.begun is None:
            return []
        try:
            return self._set_aside(prepared.begun.before, prepared.fixed.list_replaced())
        finally:
            prepared.begun.close()
            prepared.fixed.close()
            remove_home(prepared.home)

    @functools.cached_property
    def _git_identity(self) -> str:
        """The user's name for commits, read once."""
        return read_git_identity(self.root)

    def _make_temporary(self, home: str) -> str:
        if self._keep_temporary:
            return self.scratch.make_folder(_TEMPORARY)
        os.mkdir(path := os.path.join(home, _TEMPORARY), mode=0o700)
        return path

    def _find_paths(
        self, scratch: list[str], environment: dict[str, str], begun: BegunCommand | None, readable: Sequence[str]
    ) -> SandboxPaths:
        if begun is None:
            return SandboxPaths((), ())
        return find_sandbox_paths(
            self.root,
            scratch,
            environment,
            readable=[*self._readable, *readable],
            writable=self._writable,
            git=self.git,
            nested=select_nested(self.root, begun.before, self.git),
            passing=begun.passing,
        )

    def _find_protected(self, skipped: str, *, holds: bool) -> BegunCommand:
        """Find what is protected in the workspace; a temporary folder in it is not searched."""
        with self._snapshot_lock:
            if self._snapshot is None:
                self._snapshot = FolderSnapshot(self.root, skipped=[skipped])
            allowed = [*self._writable, *([os.path.join(self.root, ".git")] if holds else [])]
            return begin_command(self.scratch, self._snapshot, self.root, git=self.git, allowed=allowed)

    def _set_aside(self, before: set[str], replaced: list[str]) -> list[str]:
        note_change(self.root, *self._writable)
        with self._snapshot_lock:
            if self._snapshot is None:
                return []
            was_complete = self._snapshot.is_complete
            known = before | set(self._writable)

            def is_new(path: str) -> bool:
                return path not in known and bool(select_nested(self.root, [path], self.git))

            found = self._snapshot.refresh(is_new)
            # First, because what is set aside has another path.
            notes = remove_links(self._snapshot.links, root=self.root)
            protected = [path for path in replaced if os.path.basename(path).lower() in PROTECTED_NAMES]
            notes += set_aside([*filter(is_new, found), *protected])
            notes += [
                f"{path!r} has been replaced while the command ran, which could write it from then on: look at it "
                "before you use it"
                for path in replaced
                if path not in protected
            ]
            if was_complete and not self._snapshot.is_complete:
                notes.append(
                    f"there are now more than {MAX_FOLDERS:,} folders, so not all were searched for git repositories, "
                    ".steersman and .mcp.json that the command may have made"
                )
            return notes


def _resolve_root(workspace: Workspace | str | os.PathLike[str], sandbox: Sandbox) -> str:
    # By type, because a `Path` also has an attribute `root`, which is "/".
    root = os.path.realpath(workspace if isinstance(workspace, str | os.PathLike) else workspace.root)
    if root == os.sep and sandbox != "off":
        raise ValueError("The whole file system cannot be a sandboxed workspace: give a folder, or sandbox='off'.")
    return root


def check_unmoved(paths: Iterable[str]) -> None:
    """Refuse a path that has become a link since the tool was made: the sandbox would open what the link leads to."""
    for path in paths:
        if (real := os.path.realpath(path)) != path:
            raise ToolError(
                f"The command was not run: {path!r} is now a link to {real!r}. Only the user can allow that."
            )


def _find_shell(path: str, names: Sequence[str]) -> str:
    for name in names:
        if found := shutil.which(name, path=f"{DEFAULT_PATH}{os.pathsep}{path}"):
            return found
    raise ToolError(f"There is no shell here: {' or '.join(names)} was not found.")
