"""The files of a workspace that hooks of the user run, as the user and without a sandbox.

A tool may have written them since. They are compared with what they were before, with the other files of their
folders: a script reads what is beside it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from hashlib import file_digest
from itertools import pairwise
from pathlib import Path

from steersman.cli.setup.settings import HookSettings
from steersman.tools.confine.changed_folders import count_changes
from steersman.tools.confine.protected_paths import leads_through

MAX_FILES, MAX_BYTES = 200, 100_000_000
"""The most files that a hook may run, with those beside them; and their bytes."""

_AGAIN = "Look at it, then start `steersman` again, which takes it as it is"
_MOVE = "Keep that in a folder of its own, such as `.steersman/hooks`, where tools cannot write"
_REDIRECTED = re.compile(r">[>|&]?\s*[^\s;&|<>()]+")
_WORD = re.compile(r"[^\s'\"=:;,&|()<>`{}$]+")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_HOME, _HERE = re.compile(r"\$HOME\b|\$\{HOME\}"), re.compile(r"\$PWD\b|\$\{PWD\}")
_QUOTES = re.compile(r"['\"\\]")
_VARIABLE = re.compile(r"\$\{?\w+\}?/")
_FOLDER_OPTIONS = frozenset(["cd", "pushd", "-C", "--directory", "--prefix", "--cwd", "--project"])

# By workspace: what hooks run there, before any tool of this program changed something.
_unchanged: dict[tuple[str, HookSettings], Mapping[str, str | None]] = {}


class HookFiles:
    """The files that hooks of the user run in a workspace; what they were before tools changed anything may run."""

    def __init__(self, hooks: Sequence[HookSettings], workspace: Path) -> None:
        self._root = os.path.realpath(workspace)
        self._paths = {hook: sorted(_find_paths(hook.command, self._root)) for hook in hooks}
        self._before = {hook: self._read_before(hook) for hook in self._paths}

    def explain_change(self, hook: HookSettings) -> str | None:
        """Says why a hook must not run now; `None` if no tool has changed what it runs. Reads files."""
        if not self._may_be_changed():
            return None
        before, after = self._before[hook], _read_files(self._paths[hook], self._root)
        if isinstance(before, str):
            return before
        if isinstance(after, str):
            return after
        different = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if different:
            return f"{different[0]!r:.200} was changed, and it would run outside the sandbox. {_AGAIN}"
        if target := _find_moved_target(hook.command, self._root):
            return f"it writes to {target!r:.200}, which leads elsewhere. {_AGAIN}"
        return None

    def _may_be_changed(self) -> bool:
        """Whether tools of this program may have changed something here, also before, in another session."""
        return count_changes([self._root], below=self._root) > 0

    def _read_before(self, hook: HookSettings) -> Mapping[str, str | None] | str:
        if _runs_beside_everything(hook.command, self._root):
            return f"it runs a file directly in the workspace, and tools may have changed what is beside it. {_MOVE}"
        files = _read_files(self._paths[hook], self._root)
        if isinstance(files, str) or not any(data is not None for data in files.values()):
            return files
        if not self._may_be_changed():
            _unchanged[self._root, hook] = files
        return _unchanged.get((self._root, hook), f"tools may have changed what it runs. {_AGAIN}")


def _find_moved_target(command: str, root: str) -> str | None:
    """A file of the workspace into which a command redirects its output, if a link leads elsewhere from there."""
    for found in _REDIRECTED.findall(_QUOTES.sub("", _spell_out(command, root))):
        target = os.path.normpath(os.path.join(root, os.path.expanduser(found.lstrip(">|& \t"))))
        if leads_through(target, [root]) and os.path.realpath(target) != target:
            return os.path.relpath(target, root)
    return None


def _spell_out(command: str, root: str) -> str:
    return _HERE.sub(lambda _: root, _HOME.sub("~", command))


def _list_words(command: str, root: str) -> list[str]:
    """The words of a command that may be paths, with the home folder as `~`; quoted ones also without their quotes."""
    plain = _REDIRECTED.sub(" ", _spell_out(command, root))
    texts = [_VARIABLE.sub("", text) for text in (plain, _QUOTES.sub("", plain))]
    quoted = [word for pair in _QUOTED.findall(plain) for word in pair if word]
    return [*(word for text in dict.fromkeys(texts) for word in _WORD.findall(text)), *quoted]


def _find_paths(command: str, root: str) -> Iterator[str]:
    """The paths of the workspace that a command may run, also missing ones."""
    for before, word in pairwise(["", *_list_words(command, root)]):
        path = os.path.join(root, given := os.path.expanduser(word))
        # What a program looks at, such as `src`. One with a whole path may be run: `python ~/project/tools`.
        is_data = os.path.isdir(path) and before not in _FOLDER_OPTIONS and not os.path.isabs(given)
        is_named = os.path.lexists(path) or "/" in word or "." in word
        if is_named and not is_data and leads_through(path, [root]):
            yield path


def _runs_beside_everything(command: str, root: str) -> bool:
    """Whether a command may run a file directly in the workspace: a script needs a whole path, other words are data."""
    whole = [path for word in _list_words(command, root) if os.path.isabs(path := os.path.expanduser(word))]
    files = [path for path in whole if not os.path.isdir(path)]
    return any(root in map(os.path.dirname, (os.path.normpath(path), os.path.realpath(path))) for path in files)


def _read_files(paths: Sequence[str], root: str) -> Mapping[str, str | None] | str:
    """Hashes files, and those beside them unless that is the whole workspace; says why if that is not possible.

    `None` is for a name at which there is nothing.
    """
    found: dict[str, str | None] = {}
    left = MAX_BYTES
    try:
        for path in dict.fromkeys(_list_files(paths, root)):
            if len(found) == MAX_FILES:
                return f"there are more than {MAX_FILES} files beside what it runs. {_MOVE}"
            found[os.path.relpath(path, root)], size = _hash_file(path)
            left -= size
            if left < 0:
                return f"there are more than {MAX_BYTES:,} bytes beside what it runs. {_MOVE}"
    except OSError as error:
        return f"what it runs cannot be read: {error.strerror}"
    return found


def _list_files(paths: Sequence[str], root: str) -> Iterator[str]:
    for path in paths:
        for base in dict.fromkeys((path, os.path.realpath(path))):
            folder = base if os.path.isdir(base) else os.path.dirname(base)
            if folder != base:
                yield base
            if os.path.realpath(folder) != root and leads_through(folder, [root]):
                yield from _walk(folder)


def _walk(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        yield from (os.path.join(place, name) for name in sorted([*names, *links]))


def _hash_file(path: str) -> tuple[str | None, int]:
    """A hash of a file, after its target if it is a link; and its size."""
    try:
        link = f"-> {os.readlink(path)}\n" if os.path.islink(path) else ""
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None, 0
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
            return link, about.st_size
        with open(handle, "rb", closefd=False) as file:
            return link + file_digest(file, "sha256").hexdigest(), about.st_size
    finally:
        os.close(handle)
