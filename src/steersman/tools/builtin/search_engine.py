"""Runs a regular expression in a child process that can be killed: ripgrep where it is installed, else Python.

The child gets open file descriptors and returns positions, not text. Both engines give the same result.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple, cast

from steersman.tools.builtin import python_search as matching
from steersman.tools.builtin.walk import Deadline, DeadlinePassed
from steersman.tools.confine.launch import PYTHON, build_child_environment, find_program
from steersman.types.errors import ToolError

_TICK = 0.02
_MAX_OUTPUT = 16_000_000
_CHUNK = 1 << 16
_GRACE = 5
_FLAGS = (
    "--no-config", "--no-ignore", "--hidden", "--text", "--encoding=none", "--crlf", "--no-mmap", "--threads=1",
    "--color=never", "--no-heading", "--with-filename", "--line-number", "--column", "--byte-offset", "--null",
    "--max-columns=1", "--no-messages", "--regex-size-limit=10M", "--dfa-size-limit=100M",
)  # fmt: skip


def _load_program() -> str | None:
    loader = getattr(matching, "__loader__", None)
    try:
        return None if loader is None else loader.get_source(matching.__name__)
    except OSError:
        return None  # installed without its source


# Read once, at import: it runs outside the sandbox, and a command may be able to write to the folder of this code.
_PROGRAM = _load_program()


@dataclass(frozen=True, slots=True)
class Query:
    """The pattern to search, and the most lines to find in a file."""

    pattern: str
    literal: bool = False
    ignore_case: bool = False
    most: int = 100


class Hit(NamedTuple):
    """A matching line: index of the file, line number, column of the match in bytes, offset of the line in bytes."""

    file: int
    line: int
    column: int
    offset: int


class SearchEngine:
    """Searches open files. `ripgrep` is the path of the program, or `None` to use only Python."""

    def __init__(self, ripgrep: str | None) -> None:
        self.ripgrep = ripgrep

    def find(self, query: Query, files: Sequence[int], watch: Deadline) -> list[Hit]:
        """Find the matching lines of the files, in order. Raises `ToolError` for an invalid pattern."""
        if self.ripgrep is not None:
            found = _search_with_ripgrep(self.ripgrep, query, files, watch)
            if found is not None:
                return found
            # It does not run here or rejects the pattern: Python may accept it, or explains why not.
            self.ripgrep = None
        return _search_with_python(query, files, watch)


def find_ripgrep(root: str) -> str | None:
    """Find ripgrep on the PATH, but not in the workspace: a program of the project must not run."""
    return find_program("rg", os.environ.get("PATH", ""), outside=[root])


def _search_with_ripgrep(program: str, query: Query, files: Sequence[int], watch: Deadline) -> list[Hit] | None:
    flags = [*_FLAGS, f"--max-count={query.most}"]
    flags.append("--ignore-case" if query.ignore_case else "--case-sensitive")
    if query.literal:
        flags.append("--fixed-strings")
    # By file descriptor, not by path: a path could be replaced between check and use (TOCTOU).
    paths = [f"/dev/fd/{file}" for file in files] or [os.devnull]
    try:
        status, output = _run_child([program, *flags, "--", query.pattern, *paths], files, watch)
    except OSError:
        return None
    try:
        return _parse_ripgrep_output(output, files) if status in (0, 1) else None
    except (KeyError, ValueError):
        return None  # another program with that name


def _parse_ripgrep_output(output: bytes, files: Sequence[int]) -> list[Hit]:
    places = {b"/dev/fd/%d" % file: index for index, file in enumerate(files)}
    hits: list[Hit] = []
    for record in output.split(b"\n")[:-1]:
        name, _, rest = record.partition(b"\0")
        line, column, offset, *_ = rest.split(b":", 3)
        hits.append(Hit(places[name], int(line), int(column), int(offset)))
    return hits


def _search_with_python(query: Query, files: Sequence[int], watch: Deadline) -> list[Hit]:
    if not PYTHON or _PROGRAM is None:
        raise ToolError("Nothing can be searched here: there is no ripgrep and no Python to run. Install ripgrep.")
    request: dict[str, Any] = {
        "pattern": query.pattern,
        "literal": query.literal,
        "ignore_case": query.ignore_case,
        "most": query.most,
        "files": list(files),
        "seconds": int(watch.seconds) + _GRACE,
    }
    try:
        status, output = _run_child([PYTHON, "-I", "-S", "-c", _PROGRAM, json.dumps(request)], files, watch)
    except OSError as error:
        raise ToolError(f"The search could not be started: {error.strerror}.") from error
    if status == matching.BAD_PATTERN:
        raise ToolError(
            f"The pattern {query.pattern!r:.200} is not a regular expression: {output.decode('utf-8', 'replace')}. "
            "Put a backslash before a special character to match it literally, or use literal=true for all of them."
        )
    if status != 0:
        raise ToolError(f"The search for {query.pattern!r:.200} broke off: it needed too much memory or time.")
    return [Hit(*map(int, line.split())) for line in output.splitlines() if not line.startswith(b"file")]


def _run_child(command: Sequence[str], files: Sequence[int], watch: Deadline) -> tuple[int, bytes]:
    """Run a child process to its end and read its output; in any case it is killed and reaped afterwards."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=build_child_environment(),
        cwd="/",
        pass_fds=files,
        start_new_session=True,
    )
    pipe, output = cast(IO[bytes], child.stdout), bytearray()
    try:
        _limit_memory(child.pid)
        _read_output(pipe.fileno(), output, watch)
        return child.wait(_GRACE), bytes(output)
    except subprocess.TimeoutExpired:
        return -1, bytes(output)
    except DeadlinePassed as error:
        raise DeadlinePassed(_find_last_file(output)) from error
    finally:
        child.kill()
        child.wait()
        pipe.close()


def _read_output(pipe: int, output: bytearray, watch: Deadline) -> None:
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while len(output) < _MAX_OUTPUT:
            watch.check()
            if ready.select(_TICK):
                piece = os.read(pipe, _CHUNK)
                if not piece:
                    return
                output += piece
    raise ToolError("The search found more than it can hold. Use a narrower pattern.")


def _limit_memory(process: int) -> None:
    """Limit the memory of a child process with `prlimit`, where the system has it."""
    try:
        import resource

        resource.prlimit(process, resource.RLIMIT_AS, (matching.MEMORY, matching.MEMORY))
    except (ImportError, AttributeError, OSError, ValueError):
        return  # not Linux, or the child has already ended


def _find_last_file(output: bytearray) -> int | None:
    begun = bytes(output).rpartition(b"file ")[2].partition(b"\n")[0]
    return int(begun) if begun.isdigit() else None
