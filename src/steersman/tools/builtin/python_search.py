"""A program that searches open files with Python's `re`; it runs as a child process, so that it can be killed.

A pattern can take forever, and Python cannot interrupt a match. The child imports only the standard library and is run
as `python -I -S -c <this source> '{"pattern": ..., "files": [3, 4]}'`. It writes `file index` when it begins with a
file, and `index line column offset` for each matching line.
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
    """Compile the pattern; raise `re.error` where it is invalid."""
    with warnings.catch_warnings():
        # Nested sets such as `[[a]`: other engines read them differently, so they are rejected.
        warnings.simplefilter("error", FutureWarning)
        return re.compile(re.escape(pattern) if literal else pattern, re.IGNORECASE if ignore_case else 0)


def search_file(pattern: re.Pattern[str], file: int, index: int, most: int) -> None:
    """Write the positions of the matching lines of an open file, at most `most`."""
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
    """Limit the memory and CPU time of this process, in case its parent has died."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    except (ImportError, OSError, ValueError):
        return  # not supported here, or stricter limits already apply


def main(request: dict[str, Any]) -> int:
    """Search the files of a request; return the exit status, `BAD_PATTERN` for an invalid pattern."""
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
