from __future__ import annotations

import asyncio
import os
import resource
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.timing import ample
from tests.tools.builtin.looking import call, context, error, lines, plant, text, write

import steersman
from steersman import Agent
from steersman.testing import ScriptedModel, answer
from steersman.testing import call as tool_call
from steersman.tools.builtin.search_engine import find_ripgrep
from steersman.tools.builtin.search_tool import MAX_BYTES, search_tool
from steersman.tools.confine.workspace import Workspace
from steersman.tools.tool import Tool
from steersman.types.errors import ToolError

CATASTROPHE = r"(?=x)?(a+)+$"
RIPGREP = shutil.which("rg")
NO_RIPGREP = "ripgrep (rg) is not installed, so there is nothing to compare with"
ENGINES = [
    pytest.param(True, id="ripgrep", marks=pytest.mark.skipif(RIPGREP is None, reason=NO_RIPGREP)),
    pytest.param(False, id="python"),
]
each_engine = pytest.mark.parametrize("ripgrep", ENGINES)


def search(root: Path, **settings: Any) -> Tool:
    return search_tool(Workspace(root), **settings)


def corpus(root: Path) -> Path:
    """Files with everything that two engines might see differently."""
    write(root, "a.py", "import os\n\ndef main():\n    return os.getcwd()\n\n\nmain()\n")
    write(root, "windows.txt", "first line\r\nsecond main\r\n\r\nlast")
    write(root, "uni.txt", "Straße ΑΒΓ café\nÉCOLE école\n\u2028 one line\n日本語 main\n")
    write(root, "latin.txt", b"caf\xe9 main\n\xff\xfe\n")
    write(root, "long.min.js", "x" * 5_000 + "main()" + "y" * 5_000 + "\nmain();\n")
    write(root, "empty.txt", "")
    write(root, "blank.txt", "\n\n \n\t\n")
    write(root, "nonl.txt", "main")
    write(root, "pic.bin", b"main\0\1\2")
    write(root, "late.bin", "x\n" * 5_000 + "\0\nmain\n")
    write(root, "bom.txt", b"\xef\xbb\xbfmain\nmain\n")
    write(root, "options.txt", "rg -e x --files\n")
    write(root, "sub/deep/b.py", "class Main:\n    pass\n# main\n")
    write(root, "sub/.gitignore", "*.log\n!keep.log\n")
    write(root, "sub/x.log", "main\n")
    write(root, "sub/keep.log", "main\n")
    write(root, ".gitignore", "/build/\n*.tmp\n")
    write(root, "build/out.py", "main\n")
    write(root, "sub/build/out.py", "main\n")
    write(root, "x.tmp", "main\n")
    write(root, ".hidden/c.py", "main\n")
    write(root, ".git/HEAD", "main\n")
    write(root, "-e", "main\n")
    return root


QUERIES: list[dict[str, Any]] = [
    {"pattern": "main"},
    {"pattern": "main", "ignore_case": True},
    {"pattern": "MAIN"},
    {"pattern": "main$"},
    {"pattern": "^main"},
    {"pattern": "^$"},
    {"pattern": "^"},
    {"pattern": r"\bmain\b"},
    {"pattern": r"^\s+\S"},
    {"pattern": r"\w+\(\)", "context": 2},
    {"pattern": "main()", "literal": True},
    {"pattern": "(main|class)\\W", "glob": "*.py", "context": 1},
    {"pattern": "main", "glob": "!*.py"},
    {"pattern": "main", "glob": "sub/**"},
    {"pattern": "main", "path": "sub"},
    {"pattern": "main", "path": "build"},
    {"pattern": "main", "path": "a.py"},
    {"pattern": "main", "ignored": True},
    {"pattern": "école", "ignore_case": True},
    {"pattern": r"\w{5,} \w"},
    {"pattern": "caf\\b", "ignore_case": True},
    {"pattern": "[^a-z\\s]{3}"},
    {"pattern": r"日.語"},
    {"pattern": "a{2}|o[su]?"},
    {"pattern": "-e"},
    {"pattern": "--files"},
    {"pattern": "ma(?=in)"},  # only Python's engine takes this
    {"pattern": r"(.)\1main"},  # and this
    {"pattern": "main() {", "literal": True},
    {"pattern": "x{"},  # and this
    {"pattern": ".", "limit": 7},
    {"pattern": "no such thing"},
    {"pattern": r"a\nb"},
    {"pattern": "main("},
    {"pattern": "*"},
    {"pattern": "(?P<n>"},
]


@pytest.mark.skipif(RIPGREP is None, reason=NO_RIPGREP)
@pytest.mark.parametrize("query", QUERIES, ids=str)
async def test_both_engines_give_the_same(tmp_path: Path, query: dict[str, Any]) -> None:
    root = corpus(tmp_path)
    assert await call(search(root), **query) == await call(search(root, ripgrep=False), **query)


@each_engine
async def test_matches_are_shown_by_file_with_their_lines(tmp_path: Path, ripgrep: bool) -> None:
    root = corpus(tmp_path)
    output = await call(search(root, ripgrep=ripgrep), pattern=r"\bmain\(", glob="*.{py,js}", context=1)
    assert str(output.content).split("\n") == [
        "a.py",
        "2- ",
        "3: def main():",
        "4-     return os.getcwd()",
        "--",
        "6- ",
        "7: main()",
        "long.min.js",
        f"1- {'x' * 300}…",
        "2: main();",
        "[3 matches in 2 files.]",
    ]
    assert output.details == {"matches": 3, "files": 2, "complete": True}


@each_engine
async def test_what_git_and_gitignore_hide_is_not_searched(tmp_path: Path, ripgrep: bool) -> None:
    """Nested files, negation, anchored and folder-only rules; a hidden name alone hides nothing."""
    root, tool = corpus(tmp_path), search(tmp_path, ripgrep=ripgrep)
    write(root, ".git/info/exclude", "nonl.txt\n")
    shown = await lines(tool, pattern="main", limit=1000)
    assert [line for line in shown if line[0] not in "0123456789["] == [
        "-e", "a.py", "bom.txt", "late.bin", "latin.txt", "long.min.js", "uni.txt", "windows.txt", ".hidden/c.py",
        "sub/keep.log", "sub/build/out.py", "sub/deep/b.py",
    ]  # fmt: skip
    assert (await lines(tool, pattern="main", path="build"))[0] == "build/out.py"
    assert (await lines(tool, pattern="main", path="x.tmp"))[0] == "x.tmp"


@each_engine
async def test_a_long_line_is_shown_around_its_match(tmp_path: Path, ripgrep: bool) -> None:
    """failures.md K1: one line can be a whole file."""
    write(tmp_path, "min.js", "é" * 40_000 + "needle" + "x" * 40_000)
    assert await lines(search(tmp_path, ripgrep=ripgrep), pattern="needle") == [
        "min.js",
        f"1: …{'é' * 40}needle{'x' * 254}…",
        "[1 match in 1 file.]",
    ]


@each_engine
async def test_the_output_is_bounded_by_matches_and_by_bytes(tmp_path: Path, ripgrep: bool) -> None:
    """failures.md L20"""
    write(tmp_path, "a.txt", "x\n" * 5_000)
    write(tmp_path, "b.txt", ("y" * 400 + "\n") * 5_000)
    tool = search(tmp_path, ripgrep=ripgrep)
    few = await call(tool, pattern="x", limit=3)
    assert few.content == (
        "a.txt\n1: x\n2: x\n3: x\n[3 matches in 1 file. There are more: narrow the search with 'path' or 'glob'.]"
    )
    wide = await call(tool, pattern="y", limit=1_000, context=20)
    assert len(str(wide.content).encode()) < MAX_BYTES + 500
    assert (few.details["complete"], wide.details["complete"]) == (False, False)


@each_engine
async def test_more_files_than_may_be_open_are_searched(tmp_path: Path, ripgrep: bool) -> None:
    """failures.md L20: batches small enough for the descriptors there are."""
    for number in range(300):
        write(tmp_path, f"{number:03}", "needle\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    tool = search(tmp_path, ripgrep=ripgrep)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 80, hard))
    try:
        output = await call(tool, pattern="needle", limit=1_000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert output.details == {"matches": 300, "files": 300, "complete": True}


@each_engine
async def test_what_is_no_regular_text_file_is_passed_by(tmp_path: Path, ripgrep: bool) -> None:
    """failures.md L2, L3: links, pipes, and a file too large, none of which is opened for reading or waited for."""
    root = plant(tmp_path / "ws", "folder/")
    write(tmp_path, "secret", "needle\n")
    (root / "link").symlink_to("../secret")
    (root / "around").symlink_to(".")
    os.mkfifo(root / "pipe")
    write(root, "large", "needle\n")
    os.truncate(root / "large", 100_000_001)
    write(root, "text", "needle\n")
    assert await lines(search(root, ripgrep=ripgrep), pattern="needle") == [
        "text",
        "1: needle",
        "[1 match in 1 file.]",
        "[Not searched, because larger than 100,000,000 bytes: large.]",
    ]


@each_engine
async def test_a_file_swapped_for_a_link_never_gives_away_what_is_outside(tmp_path: Path, ripgrep: bool) -> None:
    """failures.md L2: the swap comes between the look and the reading."""
    root = plant(tmp_path / "ws", "folder/")
    write(root, "folder/x", "needle\n")
    write(tmp_path, "outside/x", "needle SECRET\n")
    tool, over = search(root, ripgrep=ripgrep), threading.Event()

    def swap() -> None:
        while not over.is_set():
            os.symlink(tmp_path / "outside" / "x", root / "folder" / "new")
            os.rename(root / "folder" / "new", root / "folder" / "x")
            write(root, "folder/new", "needle\n")
            os.rename(root / "folder" / "new", root / "folder" / "x")
            os.mkfifo(root / "folder" / "new")
            os.rename(root / "folder" / "new", root / "folder" / "x")
            write(root, "folder/new", "needle\n")
            os.rename(root / "folder" / "new", root / "folder" / "x")
            os.rename(root / "folder", root / "aside")
            os.symlink(tmp_path / "outside", root / "folder")
            os.unlink(root / "folder")
            os.rename(root / "aside", root / "folder")

    racer = threading.Thread(target=swap)
    racer.start()
    try:
        found = [await call(tool, pattern="needle") for _ in range(25)]
    finally:
        over.set()
        racer.join()
    assert not [output for output in found if "SECRET" in str(output.content)]
    assert await lines(tool, pattern="needle") == ["folder/x", "1: needle", "[1 match in 1 file.]"]


async def test_the_environment_of_the_machine_is_not_searched() -> None:
    """failures.md L3, L13: keys lie in /proc; and a workspace that holds everything does not bring its own ripgrep."""
    assert await text(search(Path("/proc")), pattern=".") == "No line in '.' matches '.'."
    assert find_ripgrep("/") is None


def test_a_program_is_not_looked_for_through_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md L12: a folder of PATH leads through the workspace, where a command may have made it lead anywhere."""
    other, root = tmp_path / "other", tmp_path / "root"
    for folder in (other, root):
        folder.mkdir()
    (other / "rg").write_text("#!/bin/sh")
    (other / "rg").chmod(0o755)
    (root / "bin").symlink_to(other)
    (tmp_path / "bin").symlink_to(root / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_ripgrep(str(root)) is None
    assert find_ripgrep(str(tmp_path / "no")) == str(tmp_path / "bin" / "rg")


@pytest.mark.parametrize("relative", [True, False])
async def test_a_program_that_comes_with_the_project_is_not_run(
    tmp_path: Path, relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """failures.md L12: a PATH can name the workspace, as `.` or `node_modules/.bin`."""
    root = plant(tmp_path / "ws", "bin/")
    write(root, "bin/rg", f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (root / "bin" / "rg").chmod(0o755)
    write(root, "x", "needle\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", f"{'bin' if relative else root / 'bin'}{os.pathsep}/usr/bin")
    assert (await call(search(root), pattern="needle")).details["matches"] == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("script", ["exit 2", "exit 1\n", "echo nonsense", "kill -9 $$", "not a program"])
async def test_a_broken_ripgrep_is_no_harm(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = plant(tmp_path / "ws")
    write(root, "x", "needle\n")
    program = tmp_path / "bin" / "rg"
    write(tmp_path, "bin/rg", script if script == "not a program" else f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent))
    output = await call(search(root), pattern="needle")
    assert output.details["matches"] == (0 if script == "exit 1\n" else 1)


async def test_the_child_gets_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md L14"""
    root = plant(tmp_path / "ws")
    write(tmp_path, "bin/rg", f"#!/bin/sh\n/usr/bin/env > {tmp_path}/seen\nexit 1\n")
    (tmp_path / "bin" / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", "canary")
    await call(search(root), pattern="x")
    assert "canary" not in (tmp_path / "seen").read_text()


@each_engine
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pattern": ""}, "The pattern is empty."),
        ({"pattern": "x" * 5_001}, "The pattern is too long (5,001 characters; at most 5,000)."),
        ({"pattern": "a\0b"}, "The pattern has a character that no text file has (NUL, or a lone surrogate)."),
        ({"pattern": "foo("}, "The pattern 'foo(' is not a regular expression: missing ), unterminated subpattern"),
        ({"pattern": "*a"}, "The pattern '*a' is not a regular expression: nothing to repeat at position 0."),
        ({"pattern": "[z-a]"}, "The pattern '[z-a]' is not a regular expression: bad character range z-a"),
        ({"pattern": "x", "path": "nope"}, "'nope' does not exist."),
        ({"pattern": "x", "path": "../"}, "'../' is outside the workspace"),
        ({"pattern": "x", "path": "binary"}, "'binary' is not a text file; only text is searched."),
        ({"pattern": "x", "path": "pipe"}, "'pipe' is a named pipe, not a regular file."),
        ({"pattern": "x", "glob": "a["}, "The glob pattern 'a[' is wrong: a '[' has no ']'."),
    ],
)
async def test_misuse_is_an_error_that_says_what_to_do(
    tmp_path: Path, ripgrep: bool, arguments: dict[str, str], words: str
) -> None:
    write(tmp_path, "binary", b"a\0b")
    os.mkfifo(tmp_path / "pipe")
    assert (await error(search(tmp_path, ripgrep=ripgrep), **arguments)).startswith(words)


@each_engine
async def test_nothing_found_says_where_else_to_look(tmp_path: Path, ripgrep: bool) -> None:
    write(tmp_path, ".gitignore", "out\n")
    write(tmp_path, "out/x", "needle")
    tool = search(tmp_path, ripgrep=ripgrep)
    assert await text(tool, pattern="needle") == (
        "No line in '.' matches 'needle'.\n"
        "[Hidden by .gitignore and not searched: 1. Use ignored=true to search there too.]"
    )
    assert (await lines(tool, pattern="needle", ignored=True))[0] == "out/x"
    assert await text(tool, pattern=r"a\nb", path="out") == (
        r"No line in 'out' matches 'a\\nb'. Lines are searched one by one, so a pattern with a line break matches none."
    )


def children_with(marker: str) -> list[int]:
    """The processes that have a word in their command line."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it has just ended
    return [process for process in found if process != os.getpid()]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  # a process starts and ends without telling us
            await asyncio.sleep(0.01)


@pytest.mark.real_time
async def test_a_pattern_that_would_take_for_ever_is_stopped_and_named(tmp_path: Path) -> None:
    """failures.md F16, L20"""
    write(tmp_path, "a", "aa\n")
    write(tmp_path, "trap", "a" * 60 + "!\n")
    began, pattern = time.monotonic(), f"(?=marker{os.getpid()})?{CATASTROPHE}"
    output = await call(search(tmp_path, seconds=0.5), pattern=pattern)
    assert (output.content, output.is_error) == (
        "[Stopped after 0.5 seconds in trap, not everything was searched. "
        "Use a simpler pattern, or narrow it down with 'path' or 'glob'.]",
        True,
    )
    took = time.monotonic() - began
    assert children_with(pattern) == []
    assert took < 10 or took < await ample(lambda: call(search(tmp_path), pattern="x"), 10)


@pytest.mark.real_time
async def test_a_cancelled_search_ends_its_child_at_once(tmp_path: Path) -> None:
    """failures.md F8: through the token, as the loop does it."""
    write(tmp_path, "trap", "a" * 60 + "!\n")
    tool, ctx, marker = search(tmp_path), context(), f"(?=marker{os.getpid()})?(a+)+$"
    task = asyncio.create_task(tool.call(tool.check({"pattern": marker}), ctx))
    await until(lambda: children_with(marker))
    began = time.monotonic()
    ctx.token.cancel()
    with pytest.raises(ToolError, match=r"^The call was cancelled\.$"):
        await task
    took = time.monotonic() - began
    assert children_with(marker) == []
    # A search that finds nothing to do takes as long as the machine is busy.
    assert took < 2.5 or took < await ample(lambda: call(search(tmp_path), pattern="x"), 2.5)


@pytest.mark.real_time
async def test_an_aborted_run_leaves_no_child_behind(tmp_path: Path) -> None:
    """failures.md F8, F16: through an agent."""
    write(tmp_path, "trap", "a" * 60 + "!\n")
    marker = f"(?=abort{os.getpid()})?(a+)+$"
    model = ScriptedModel(answer(tool_call("search", pattern=marker)), answer("never said"))
    agent = Agent(model.model, tools=[search(tmp_path)])
    stream = agent.prompt("Search.")
    await until(lambda: children_with(marker))
    agent.abort()
    assert (await stream).end_reason == "aborted"
    await until(lambda: not children_with(marker))


async def worst_lag(tool: Tool, **arguments: Any) -> float:
    """How long the event loop was kept from its work during a call, at worst."""
    loop, worst, running = asyncio.get_running_loop(), 0.0, True

    async def probe() -> None:
        nonlocal worst
        while running:
            began = loop.time()
            await asyncio.sleep(0.005)
            worst = max(worst, loop.time() - began - 0.005)

    probing = asyncio.create_task(probe())
    await call(tool, **arguments)
    running = False
    await probing
    return worst


@pytest.mark.real_time
@each_engine
@pytest.mark.parametrize(
    "arguments", [{"pattern": CATASTROPHE}, {"pattern": "needle"}, {"pattern": "a", "limit": 1000}]
)
async def test_the_event_loop_goes_on_during_a_search(tmp_path: Path, ripgrep: bool, arguments: dict[str, Any]) -> None:
    """failures.md F16: 50 MB, half of it one line, and a pattern without end. The best of three, on a busy machine."""
    write(tmp_path, "large", ("a" * 99 + "\n") * 250_000 + "b" * 25_000_000 + "needle\n")
    write(tmp_path, "trap", "a" * 60 + "!\n")
    tool = search(tmp_path, ripgrep=ripgrep, seconds=1)
    lags: list[float] = []
    while len(lags) < 3 and (not lags or min(lags) >= 0.1):
        lags.append(await worst_lag(tool, **arguments))
    assert min(lags) < 0.1


def test_the_program_that_searches_is_read_before_a_command_can_change_it(tmp_path: Path) -> None:
    """It runs outside the sandbox, and our own code may be in the workspace."""
    source = Path(steersman.__file__).parent
    shutil.copytree(source, tmp_path / "steersman", ignore=shutil.ignore_patterns("__pycache__", "provider", "loop"))
    write(tmp_path, "a.txt", "main\n")
    program = textwrap.dedent("""
        import pathlib
        from steersman.tools.builtin import python_search
        from steersman.tools.builtin.search_tool import search_tool
        from steersman.tools.confine.workspace import Workspace
        from steersman.tools.output import ToolContext
        from steersman.types.cancel import CancelToken

        search = search_tool(Workspace("."), ripgrep=False)
        pathlib.Path(python_search.__file__).write_text("open('evil', 'w')")
        print(search(ToolContext("1", "search", CancelToken()), "(?=m)main", path="a.txt").content)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("a.txt\n1: main\n[1 match in 1 file.]\n", "")
    assert not (tmp_path / "evil").exists()
