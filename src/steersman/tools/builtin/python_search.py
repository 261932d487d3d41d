"""A program for a process of its own: the lines of open files that fit a regular expression. It may be killed any time.

A pattern can take for ever, and Python cannot be asked to stop in the middle of one. So this runs as a child, which
imports nothing but the standard library: `python -I -S -c <this text> '{"pattern": ..., "files": [3, 4]}'`. It writes
`file index` when it begins with a file, and then `index line column offset` for a line that fits.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from typing import Any

BAD_PATTERN = 3
MEMORY = 1 << 30


def compile_pattern(pattern: str, *, literal: bool, ignore_case: bool) -> re.Pattern[str]:
    """The pattern, or `re.error`."""
    with warnings.catch_warnings():
        # Sets within sets: other engines read them otherwise, so nobody should rely on what this one makes of them.
        warnings.simplefilter("error", FutureWarning)
        return re.compile(re.escape(pattern) if literal else pattern, re.IGNORECASE if ignore_case else 0)


def search_file(pattern: re.Pattern[str], file: int, index: int, most: int) -> None:
    """Write where the lines of an open file fit, at most so many."""
    offset = count = 0
    with open(file, "rb", closefd=False) as lines:
        for number, line in enumerate(lines, 1):
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
            match = pattern.search(text)
            if match is not None:
                column = len(text[: match.start()].encode("utf-8", "surrogateescape")) + 1
                sys.stdout.write(f"{index} {number} {column} {offset}\n")
                count += 1
                if count >= most:
                    return
            offset += len(line)


def limit_resources(seconds: int) -> None:
    """Bound what this process may use, in case nobody is left to stop it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    except (ImportError, OSError, ValueError):
        return  # no such limits here, or stricter ones already


def main(request: dict[str, Any]) -> int:
    """Search the files of a request; the exit status says whether the pattern was one."""
    limit_resources(request["seconds"])
    try:
        pattern = compile_pattern(request["pattern"], literal=request["literal"], ignore_case=request["ignore_case"])
    except (re.error, FutureWarning, OverflowError, RecursionError, MemoryError) as error:
        sys.stdout.write(" ".join(str(error or type(error).__name__).split()))
        return BAD_PATTERN
    for index, file in enumerate(request["files"]):
        sys.stdout.write(f"file {index}\n")
        sys.stdout.flush()
        search_file(pattern, file, index, request["most"])
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
