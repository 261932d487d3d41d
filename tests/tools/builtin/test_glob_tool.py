from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.builtin.looking import call, error, lines, plant, text, write

from steersman.tools.builtin.gitignore import translate_glob
from steersman.tools.builtin.glob_tool import MAX_MATCHES, Glob, glob_tool
from steersman.tools.confine.workspace import Workspace
from steersman.types.errors import ToolError

TREE = (
    "README.md", "setup.py", "src/a.py", "src/b.ts", "src/deep/c.py", "src/deep/er/d.tsx", "tests/test_a.py",
    "tests/test_b.py", ".github/ci.yml", "docs/[x].md", "docs/{y}.md",
)  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["setup.py", "src/a.py", "src/deep/c.py", "tests/test_a.py", "tests/test_b.py"]),
        ("./*.py", ["setup.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/c.py"]),
        ("**/*.py", ["setup.py", "src/a.py", "src/deep/c.py", "tests/test_a.py", "tests/test_b.py"]),
        ("**/deep/**", ["src/deep/c.py", "src/deep/er/d.tsx"]),
        ("src/**", ["src/a.py", "src/b.ts", "src/deep/c.py", "src/deep/er/d.tsx"]),
        ("*.{ts,tsx}", ["src/b.ts", "src/deep/er/d.tsx"]),
        ("{src,tests}/*{a,b}.{py,ts}", ["src/a.py", "src/b.ts", "tests/test_a.py", "tests/test_b.py"]),
        ("{src/{a,b},tests/test_a}.*", ["src/a.py", "src/b.ts", "tests/test_a.py"]),
        ("test_[!a].py", ["tests/test_b.py"]),
        ("[[:upper:]]*", ["README.md"]),
        ("test_?.py", ["tests/test_a.py", "tests/test_b.py"]),
        ("*.yml", [".github/ci.yml"]),
        ("\\[x\\].md", ["docs/[x].md"]),
        ("{y}.md", ["docs/{y}.md"]),
        ("\\{y}.md", ["docs/{y}.md"]),
        ("**/d*/", ["docs/", "src/deep/"]),
        ("src/*/", ["src/deep/"]),
        ("README.md", ["README.md"]),
    ],
)
async def test_a_pattern_finds_what_it_says(tmp_path: Path, pattern: str, found: list[str]) -> None:
    plant(tmp_path, *TREE)
    assert sorted(await lines(glob_tool(Workspace(tmp_path)), pattern=pattern)) == sorted(found)


async def test_the_order_is_the_same_every_time_files_before_folders(tmp_path: Path) -> None:
    plant(tmp_path, "z.py", "b/z.py", "b/a.py", "a/x/y.py", "a/z.py", "B.py")
    found = await lines(glob_tool(Workspace(tmp_path)), pattern="*.py")
    assert found == ["B.py", "z.py", "a/z.py", "a/x/y.py", "b/a.py", "b/z.py"]


async def test_a_pattern_is_relative_to_the_folder_and_the_answer_to_the_workspace(tmp_path: Path) -> None:
    plant(tmp_path, *TREE)
    tool = glob_tool(Workspace(tmp_path))
    assert await lines(tool, pattern="*.py", path="src") == ["src/a.py", "src/deep/c.py"]
    assert await lines(tool, pattern="deep/*.py", path="src") == ["src/deep/c.py"]
    assert await lines(tool, pattern="*.py", path=str(tmp_path / "src" / "deep")) == ["src/deep/c.py"]
    assert await lines(tool, pattern=f"{tmp_path}/src/*.py") == ["src/a.py"]


async def test_what_gitignore_hides_is_left_out_and_said_when_nothing_else_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "out/x.js", "src/x.py", "src/gen/y.js", ".git/config", ".git/z.js")
    write(tmp_path, ".gitignore", "out/\n")
    write(tmp_path, "src/.gitignore", "gen\n")
    tool = glob_tool(Workspace(tmp_path))
    assert await text(tool, pattern="*.js") == (
        "No file in '.' matches '*.js'.\n[Hidden by .gitignore and left out: 2. Use ignored=true to look there too.]"
    )
    assert await lines(tool, pattern="*.js", ignored=True) == ["out/x.js", "src/gen/y.js"]
    assert await lines(tool, pattern="*.js", path="out") == ["out/x.js"]
    assert await lines(tool, pattern="*.js", path=".git") == [".git/z.js"]


async def test_links_are_named_and_never_entered(tmp_path: Path) -> None:
    """failures.md L2: links out of the workspace, into it, and in a circle."""
    root = plant(tmp_path / "ws", "real/x.py")
    plant(tmp_path, "outside/secret.py")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "in").symlink_to("real")
    (root / "real" / "up").symlink_to("..")
    (root / "real" / "file.py").symlink_to("../../outside/secret.py")
    tool = glob_tool(Workspace(root))
    assert await lines(tool, pattern="**") == ["in", "out", "real/file.py", "real/up", "real/x.py"]
    assert await lines(tool, pattern="*.py", path="in") == ["real/file.py", "real/x.py"]
    assert (await error(tool, pattern="*.py", path="out")).startswith("'out' is outside the workspace")


async def test_a_folder_swapped_for_a_link_leads_nowhere_else(tmp_path: Path) -> None:
    """failures.md L2: the swap comes between the look and the entry."""
    root = plant(tmp_path / "ws", "a/inner/x.py", "b/y.py")
    plant(tmp_path, "outside/inner/secret.py")
    tool, over = glob_tool(Workspace(root)), threading.Event()

    def swap() -> None:
        while not over.is_set():
            os.rename(root / "a", root / "c")
            (root / "a").symlink_to(tmp_path / "outside")
            (root / "a").unlink()
            os.rename(root / "c", root / "a")

    racer = threading.Thread(target=swap)
    racer.start()
    try:
        found = {line for _ in range(150) for line in (await text(tool, pattern="*")).split("\n")}
    finally:
        over.set()
        racer.join()
    assert not [line for line in found if "secret" in line]
    assert await lines(tool, pattern="*") == ["a/inner/x.py", "b/y.py"]


async def test_many_matches_are_cut_and_counted(tmp_path: Path) -> None:
    """failures.md L20"""
    plant(tmp_path, *(f"{number:04}.py" for number in range(MAX_MATCHES + 3)))
    output = await call(glob_tool(Workspace(tmp_path)), pattern="*.py")
    shown = str(output.content).split("\n")
    assert (len(shown), shown[-1]) == (501, "[3 more of 503. Use a narrower pattern, or give a path.]")
    assert output.details == {"matches": MAX_MATCHES + 3}


async def test_long_names_are_cut_by_bytes(tmp_path: Path) -> None:
    """failures.md L20"""
    plant(tmp_path, *("ü" * 100 + str(number) for number in range(300)))
    output = await call(glob_tool(Workspace(tmp_path)), pattern="*")
    assert len(str(output.content).encode()) < 31_000
    assert str(output.content).endswith(" more of 300. Use a narrower pattern, or give a path.]")


async def test_time_is_limited(tmp_path: Path) -> None:
    """failures.md L20"""
    plant(tmp_path, "a/x.py")
    words = await error(glob_tool(Workspace(tmp_path), seconds=-1), pattern="*.py")
    assert words == (
        "No file in '.' matches '*.py'.\n[Stopped after -1 seconds, before everything was seen. Give a path.]"
    )


async def test_what_the_kernel_makes_up_is_not_looked_at() -> None:
    """failures.md L3"""
    assert await text(glob_tool(Workspace("/proc")), pattern="environ") == "No file in '.' matches 'environ'."


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pattern": ""}, "The glob pattern '' is wrong: it is empty."),
        ({"pattern": "./"}, "The glob pattern './' is wrong: it is empty."),
        ({"pattern": "a["}, "The glob pattern 'a[' is wrong: a '[' has no ']'."),
        ({"pattern": "[[:no:]]"}, "The glob pattern '[[:no:]]' is wrong: there is no character class [:no:]."),
        ({"pattern": "a\\"}, "The glob pattern 'a\\\\' is wrong: it ends with a backslash."),
        ({"pattern": "../*"}, "The glob pattern '../*' is wrong: it has '..'; give the folder as 'path' instead."),
        ({"pattern": "{a,../b}"}, "The glob pattern '{a,../b}' is wrong: it has '..';"),
        ({"pattern": "/etc/*"}, "The glob pattern '/etc/*' is wrong: it begins with '/'"),
        ({"pattern": "{a,b}" * 9}, "The glob pattern '{a,b}{a,b}"),
        ({"pattern": "x" * 1001}, "The glob pattern is too long (1,001 characters; at most 1,000)."),
        ({"pattern": "*", "path": "nope"}, "'nope' does not exist."),
        ({"pattern": "*", "path": "file"}, "'file' is not a folder. Give the folder to look in, or leave 'path' out."),
        ({"pattern": "*", "path": "/etc"}, "'/etc' is outside the workspace"),
    ],
)
async def test_misuse_is_an_error_that_says_what_to_do(tmp_path: Path, arguments: dict[str, str], words: str) -> None:
    plant(tmp_path, "file")
    assert (await error(glob_tool(Workspace(tmp_path)), **arguments)).startswith(words)


NAME = st.text("ab", min_size=1, max_size=4)
PATH = st.lists(NAME, min_size=1, max_size=5).map("/".join)
SEGMENT = st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]"]), min_size=1, max_size=4).map("".join)
PATTERN = st.lists(st.one_of(st.just("**"), SEGMENT), min_size=1, max_size=5).map("/".join)


def by_definition(pattern: list[str], names: list[str]) -> bool:
    """What a pattern means, one name at a time and with no thought of speed."""
    if not pattern:
        return not names
    if len(pattern[0]) > 1 and set(pattern[0]) == {"*"}:  # as git: three stars are the same as two
        if len(pattern) == 1:
            return bool(names)
        return any(by_definition(pattern[1:], names[skipped:]) for skipped in range(len(names) + 1))
    plain = re.sub(r"\*+", "*", pattern[0]).replace("*", ".*").replace("?", ".").replace("[!", "[^")
    return bool(names) and re.fullmatch(plain, names[0]) is not None and by_definition(pattern[1:], names[1:])


@given(pattern=PATTERN, path=PATH)
def test_a_star_that_never_goes_back_finds_the_same(pattern: str, path: str) -> None:
    expected = by_definition(pattern.split("/"), path.split("/"))
    assert (re.fullmatch(translate_glob(pattern), path) is not None) is expected


@given(st.text("ab*?[]!{},\\/.-^:", max_size=20), PATH)
def test_whatever_a_pattern_is_it_fits_or_not_or_says_why(pattern: str, path: str) -> None:
    with contextlib.suppress(ToolError):
        Glob(pattern).matches(path, path.rpartition("/")[2])


@pytest.mark.parametrize("rest", ["{" * 960, "{," * 480])
def test_braces_that_stay_open_are_read_in_one_pass(rest: str) -> None:
    start = time.process_time()
    assert Glob("{a,b}" * 6 + rest).matches(f"aabbab{rest}", f"aabbab{rest}")
    assert time.process_time() - start < 2
