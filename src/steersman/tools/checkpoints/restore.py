"""Takes files to other states, step by step, by file descriptor and without following links.

What is there is looked at again right before it is replaced: a path that has changed meanwhile is left as it is. A file
or link is replaced by a rename, after an fsync of the new one. So a kill leaves each path in its old or its new state,
or, where a file becomes a folder or the reverse, without either; then the steps can be done once more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from steersman.tools.checkpoints.scan import Scanner, is_protected, open_beneath, split
from steersman.tools.checkpoints.states import Change, State
from steersman.tools.confine.changed_folders import note_change
from steersman.tools.confine.path_errors import WorkspaceError
from steersman.tools.confine.path_resolution import PathChanged, stat_entry
from steersman.tools.confine.write_protection import makes_repository, repository_writes

CHANGED = "it has changed meanwhile"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20


class _Refused(Exception):
    """A step is not done; the text says why."""


@dataclass(slots=True)
class Restored:
    """What was done, and what was not, with the reason."""

    done: list[Change] = field(default_factory=list[Change])
    failed: dict[str, str] = field(default_factory=dict[str, str])


class Restorer:
    """Does the steps of one move. `number` names its temporary files, so that those of a killed one are found."""

    def __init__(self, scanner: Scanner, read: Callable[[str], bytes | None], number: int) -> None:
        self._scanner = scanner
        self._read = read
        self._temporary = f".steersman-undo-{number}.tmp"
        self._root = -1

    def run(self, steps: Sequence[Change], *, again: bool = False) -> Restored:
        """Do the steps; with `again`, some of them may have been done before a kill."""
        result = Restored()
        self._root = self._scanner.open_root()
        note_change(self._scanner.path)  # what comes back may be what tools wrote
        try:
            if again:
                self._remove_leftovers(steps)
            todo = self._select(steps, result, again=again)
            deepest = sorted(todo, key=lambda step: (step.path.count("/"), step.path), reverse=True)
            for step in deepest:
                self._attempt(self._remove, step, result)
            for step in reversed(deepest):
                self._attempt(self._create, step, result)
            for step in deepest:
                self._attempt(self._set_folder_mode, step, result)
            for folder in sorted({split(step.path)[0] for step in todo}):
                self._fsync_folder(folder)
            result.done += [step for step in todo if step.path not in result.failed]
        finally:
            os.close(self._root)
        return result

    def _select(self, steps: Sequence[Change], result: Restored, *, again: bool) -> list[Change]:
        """Select the steps that can be done, from what is there now; of the others, say why not."""
        todo: list[Change] = []
        for step in steps:
            now = self._scanner.look_beneath(self._root, step.path)
            if now == step.after:
                result.done.append(step)
            elif now != step.before and not (again and _is_half_done(step, now)):
                result.failed[step.path] = CHANGED
            elif any(map(is_protected, step.path.split("/"))):
                result.failed[step.path] = "it is protected"
            elif step.after is not None and step.after.digest and self._read(step.after.digest) is None:
                result.failed[step.path] = "its content is not in the store any more"
            else:
                todo.append(Change(step.path, now, step.after))
        return todo

    def _attempt(self, act: Callable[[Change], None], step: Change, result: Restored) -> None:
        if step.path in result.failed:
            return
        try:
            act(step)
        except _Refused as error:
            result.failed[step.path] = str(error)
        except (PathChanged, WorkspaceError):
            result.failed[step.path] = CHANGED
        except OSError as error:
            result.failed[step.path] = _explain(error)

    def _remove(self, step: Change) -> None:
        """Remove what must go before something else can be there."""
        old = step.before
        if old is None or not (step.after is None or _changes_kind(step)):
            return
        folder, name = split(step.path)
        with self._open(folder) as parent:
            self._check(step)
            if old.kind == "folder":
                os.rmdir(name, dir_fd=parent)
            else:
                os.unlink(name, dir_fd=parent)

    def _create(self, step: Change) -> None:
        new = step.after
        if new is None:
            return
        folder, name = split(step.path)
        with repository_writes, self._open(folder) as parent:
            self._check_repositories(step.path, is_file=new.kind != "folder")
            if new.kind == "folder":
                if step.before is None or _changes_kind(step):
                    os.mkdir(name, 0o700, dir_fd=parent)
                return
            found = stat_entry(parent, name)
            if new.kind == "link":
                os.symlink(os.fsdecode(self._load(new)), self._temporary, dir_fd=parent)
            else:
                self._write(parent, self._load(new), new.mode, found)
            try:
                self._move_into_place(parent, name, step)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._temporary, dir_fd=parent)

    def _move_into_place(self, parent: int, name: str, step: Change) -> None:
        if step.before is None or _changes_kind(step):
            # Unlike a rename, this fails if something else was put there meanwhile.
            try:
                os.link(self._temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
                return
            except FileExistsError:
                raise
            except OSError:
                if stat_entry(parent, name) is not None:
                    raise _Refused(CHANGED) from None
        else:
            self._check(step)
        os.rename(self._temporary, name, src_dir_fd=parent, dst_dir_fd=parent)

    def _write(self, parent: int, data: bytes, mode: int, old: os.stat_result | None) -> None:
        """Write the temporary file, with the owner of the one that it replaces where that is possible."""
        descriptor = os.open(self._temporary, _NEW, 0o600, dir_fd=parent)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view[:_CHUNK]) :]
            if old is not None and stat.S_ISREG(old.st_mode):
                mine = os.fstat(descriptor)
                if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
                    with contextlib.suppress(PermissionError):
                        os.fchown(descriptor, old.st_uid, old.st_gid)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _set_folder_mode(self, step: Change) -> None:
        new = step.after
        if new is None or new.kind != "folder":
            return
        with self._open(step.path) as place:
            folder = os.open(".", _LIST, dir_fd=place)
            try:
                if stat.S_IMODE(os.fstat(folder).st_mode) & 0o777 != new.mode:
                    os.fchmod(folder, new.mode)
            finally:
                os.close(folder)

    def _check(self, step: Change) -> None:
        """Raise unless the path is still what the step begins with."""
        if self._scanner.look_beneath(self._root, step.path) != step.before:
            raise _Refused(CHANGED)

    def _check_repositories(self, path: str, *, is_file: bool) -> None:
        """Raise where a folder on the way is a git repository, or would be one: calls may have left its parts."""
        names = path.split("/")
        for depth, name in enumerate(names):
            with self._open("/".join(names[:depth])) as folder:
                if makes_repository(folder, name, is_file=is_file and depth == len(names) - 1):
                    raise _Refused("it would be part of a git repository")

    def _load(self, state: State) -> bytes:
        data = self._read(state.digest)
        if data is None:
            raise _Refused("its content is not in the store any more")
        return data

    @contextlib.contextmanager
    def _open(self, path: str) -> Generator[int]:
        place = open_beneath(self._root, path)
        try:
            yield place
        finally:
            os.close(place)

    def _fsync_folder(self, path: str) -> None:
        """Fsync a folder, so that its renames survive a power cut; one that is gone, or cannot, is no failure."""
        with contextlib.suppress(OSError, PathChanged), self._open(path) as place:
            folder = os.open(".", _LIST, dir_fd=place)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _remove_leftovers(self, steps: Sequence[Change]) -> None:
        """Remove the temporary file that a killed run may have left."""
        for path in sorted({split(step.path)[0] for step in steps}):
            with contextlib.suppress(OSError, PathChanged), self._open(path) as place:
                os.unlink(self._temporary, dir_fd=place)


def _changes_kind(step: Change) -> bool:
    """Whether a path becomes a folder, or stops being one."""
    kinds = [None if state is None else state.kind for state in (step.before, step.after)]
    return None not in kinds and kinds[0] != kinds[1] and "folder" in kinds


def _is_half_done(step: Change, now: State | None) -> bool:
    """Whether a kill can have left a path like this: removed and not made again, or a folder without its mode."""
    if now is None:
        return _changes_kind(step)
    return now.kind == "folder" and step.after is not None and step.after.kind == "folder"


def _explain(error: OSError) -> str:
    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        return "something else is there"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "it is not writable by its permissions"
    return error.strerror or str(error)
