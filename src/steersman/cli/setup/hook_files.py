"""The files of a workspace that hooks run outside the sandbox, where a tool may have written them.

They are compared with what they were when they were trusted, with the other files of their folders: a script reads
what is beside it. Of a project's hooks, only those that run nothing else, as far as their words say, run once tools may
have changed any file: most programs, such as `make`, find in the project what to run.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from hashlib import file_digest
from itertools import pairwise
from pathlib import Path

from steersman.cli.setup.settings import HookSettings
from steersman.cli.setup.trust import AskTrust, Notify, trust_content
from steersman.policy.command_kinds import sort_part
from steersman.policy.shell.programs import split_words
from steersman.policy.shell.syntax import Part, parse_command
from steersman.tools.confine.changed_folders import count_changes
from steersman.tools.confine.launch import clean_search_path
from steersman.tools.confine.protected_paths import leads_through

MAX_FILES, MAX_BYTES, MAX_SHOWN = 200, 100_000_000, 100_000
"""The most files that a hook may run, with those beside them; their bytes; and the bytes of one that is shown."""

_AGAIN = "To see and trust it as it is now, start `steersman` again in this folder, on a terminal"
_MOVE = "Keep that in a folder of its own, such as `.steersman/hooks`, where tools cannot write"
_REDIRECTED = re.compile(r">[>|&]?\s*[^\s;&|<>()]+")
_WORD = re.compile(r"[^\s'\"=:;,&|()<>`{}$]+")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_VARIABLE = re.compile(r"\$\{?\w+\}?/")
_FOLDER_OPTIONS = frozenset(["cd", "pushd", "-C", "--directory", "--prefix", "--cwd", "--project"])
_INTERPRETERS = split_words("bash dash node perl php python ruby sh")
_OPTION = re.compile(r"-[BIeux]+")  # of an interpreter; others may name code, or say where it is
_VERSION = "-.0123456789"
_HERE = re.compile(r"\$(?:PWD|\{PWD\})/")
_RUN_NOTHING = split_words("exit false printf test")  # like those that only look

# By workspace: what hooks of the user run there, before any tool of this program changed something.
_unchanged: dict[tuple[str, HookSettings], Mapping[str, bytes | None]] = {}


class HookFiles:
    """The files that hooks run in a workspace; what they were when it was made counts as trusted.

    In a program with several sessions that is what they were before tools changed anything.
    """

    def __init__(self, hooks: Sequence[HookSettings], workspace: Path) -> None:
        self._root = os.path.realpath(workspace)
        self._paths = {hook: sorted(_find_paths(hook.command, self._root)) for hook in hooks}
        self._before = {hook: self._read_before(hook) for hook in self._paths}
        self._is_trusted = True

    async def trust(self, path: Path, *, ask: AskTrust | None, notify: Notify) -> None:
        """Asks the user to trust what the hooks of the project run, unless that is the same as before.

        `path` are the settings of the project. The texts that the user sees are those that count from now on.
        """
        texts: dict[str, bytes] = {}
        for hook, files in self._before.items():
            if hook.of_project and isinstance(files, Mapping):
                texts |= {name: data for name, data in files.items() if data is not None}
        if texts:
            # Names and sizes so that no other files have the same text.
            heads = {name: name if name.isprintable() else ascii(name) for name in sorted(texts)}
            content = b"\n".join(
                b"--- %s (%d bytes)\n%s" % (head.encode(), len(texts[name]), texts[name])
                for name, head in heads.items()
            )
            name = path.with_name(f"{path.name} (files of its hooks)")
            self._is_trusted = await trust_content(name, content, ask=ask, notify=notify)

    def explain_change(self, hook: HookSettings) -> str | None:
        """Says why a hook must not run now; `None` if what it runs is what was trusted. Reads files."""
        changed = self._may_be_changed()
        if not hook.of_project and not changed:
            return None
        before = self._before[hook]
        if isinstance(before, str):
            return before
        if hook.of_project and before and not self._is_trusted:
            return f"the files that it runs are not trusted. {_AGAIN}"
        after = _read_files(self._paths[hook], self._root)
        if isinstance(after, str):
            return after
        different = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if different:
            return f"{different[0]!r:.200} was changed, and it would run outside the sandbox. {_AGAIN}"
        if changed and (target := _find_moved_target(hook.command, self._root)):
            return f"it writes to {target!r:.200}, which leads elsewhere. {_AGAIN}"
        watched = [name for name, data in before.items() if data is not None]
        runner = _find_runner(hook.command, watched, self._root)
        if hook.of_project and changed and runner:
            return (
                f"tools may have changed files of the project, and {runner!r:.100} may run them outside the sandbox. "
                f"{_AGAIN}, have a script in `.steersman/hooks` as the whole hook, or have it in your own settings"
            )
        return None

    def _may_be_changed(self) -> bool:
        """Whether tools of this program may have changed something here, also before, in another session."""
        return count_changes([self._root], below=self._root) > 0

    def _read_before(self, hook: HookSettings) -> Mapping[str, bytes | None] | str:
        """The files of a hook that count as trusted; for one of the user, those before tools changed anything."""
        files = _read_files(self._paths[hook], self._root)
        if hook.of_project or isinstance(files, str) or not any(data is not None for data in files.values()):
            return files
        if not self._may_be_changed():
            _unchanged[self._root, hook] = files
        return _unchanged.get((self._root, hook), f"tools may have changed what it runs. {_AGAIN}")


def _find_runner(command: str, watched: Sequence[str], root: str) -> str | None:
    """What in a command may run files of the project that are not watched; all of it if it is not understood.

    Let through are programs that are known to run nothing, and scripts in a folder of their own, which is watched.
    """
    parsed = parse_command(_HERE.sub("", command))
    if parsed.problem is not None:
        return command
    for part in parsed.parts:
        # Beside a program in the workspace are the files that it loads.
        is_inside = (program := _find_program(part.words[0].text)) is not None and leads_through(program, [root])
        if is_inside or not (_runs_nothing(part) or _runs_script(part, watched)):
            return part.text
    return None


def _runs_script(part: Part, watched: Sequence[str]) -> bool:
    words = [word.text for word in part.words]
    if not _INTERPRETERS.isdisjoint((words[0], words[0].rstrip(_VERSION))):
        words = [word for word in words[1:] if not _OPTION.fullmatch(word)] or words
    path = os.path.normpath(words[0])
    return path in watched and bool(os.path.dirname(path)) and not _has_wildcards(part)


def _runs_nothing(part: Part) -> bool:
    if (program := part.words[0].text) in _RUN_NOTHING:
        return not _has_wildcards(part)
    kind = sort_part(Part(part.words))
    # git runs what the settings of a repository name, and not every sandbox keeps commands from writing those.
    return kind.scope == "kind" and program != "git" and (program == "ruff" or not kind.runs_project)


def _has_wildcards(part: Part) -> bool:
    return any(word.wild >= 0 for word in part.words)


def _find_program(word: str) -> str | None:
    """Where a program without a folder in its name is."""
    return None if "/" in word else shutil.which(word, path=clean_search_path(os.environ.get("PATH", "")))


def _find_moved_target(command: str, root: str) -> str | None:
    """A file of the workspace into which a command redirects its output, if a link leads elsewhere from there."""
    for found in _REDIRECTED.findall(command):
        target = os.path.normpath(os.path.join(root, os.path.expanduser(found.lstrip(">|& \t").strip("'\""))))
        if leads_through(target, [root]) and os.path.realpath(target) != target:
            return os.path.relpath(target, root)
    return None


def _find_paths(command: str, root: str) -> Iterator[tuple[str, bool]]:
    """The paths of the workspace that a command may run, also missing ones, each with whether its folder counts."""
    words = _WORD.findall(_VARIABLE.sub("", _REDIRECTED.sub(" ", command)))
    quoted = [word for pair in _QUOTED.findall(command) for word in pair if word]
    for before, word in pairwise(["", *words, *quoted]):
        path = os.path.join(root, os.path.expanduser(word))
        if (program := _find_program(word)) is not None and leads_through(program, [root]):
            yield program, False
        is_data = os.path.isdir(path) and before not in _FOLDER_OPTIONS  # what a program looks at, such as `src`
        is_named = os.path.lexists(path) or "/" in word or "." in word
        if is_named and not is_data and leads_through(path, [root]):
            yield path, True


def _read_files(paths: Sequence[tuple[str, bool]], root: str) -> Mapping[str, bytes | None] | str:
    """Reads files, and those beside them unless that is the whole workspace; says why if that is not possible.

    A name has its content, after the target if it is a link; `None` if there is nothing.
    """
    found: dict[str, bytes | None] = {}
    left = MAX_BYTES
    try:
        for path in dict.fromkeys(_list_files(paths, root)):
            if len(found) == MAX_FILES:
                return f"there are more than {MAX_FILES} files beside what it runs. {_MOVE}"
            found[os.path.relpath(path, root)], size = _read_file(path)
            left -= size
            if left < 0:
                return f"there are more than {MAX_BYTES:,} bytes beside what it runs. {_MOVE}"
    except OSError as error:
        return f"what it runs cannot be read: {error.strerror}"
    return found


def _list_files(paths: Sequence[tuple[str, bool]], root: str) -> Iterator[str]:
    for path, with_folder in paths:
        for base in dict.fromkeys((path, os.path.realpath(path))):
            folder = base if os.path.isdir(base) else os.path.dirname(base)
            if folder != base:
                yield base
            if with_folder and os.path.realpath(folder) != root and leads_through(folder, [root]):
                yield from _walk(folder)


def _walk(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        yield from (os.path.join(place, name) for name in sorted([*names, *links]))


def _read_file(path: str) -> tuple[bytes | None, int]:
    """The content of a file, or a hash of a large one, and its size."""
    try:
        link = b"-> %s\n" % os.fsencode(os.readlink(path)) if os.path.islink(path) else b""
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None, 0
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
            return link, about.st_size
        with open(handle, "rb", closefd=False) as file:
            if about.st_size <= MAX_SHOWN:
                return link + file.read(), about.st_size
            digest = file_digest(file, "sha256").hexdigest()
            return link + f"{about.st_size} bytes, sha256 {digest}".encode(), about.st_size
    finally:
        os.close(handle)
