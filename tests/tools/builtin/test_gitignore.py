from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.builtin.looking import context, plant, write

from steersman.tools.builtin.gitignore import (
    MAX_RULES,
    MAX_STEP,
    NO_RULES,
    IgnoreRules,
    compile_steps,
    load_outer_rules,
    parse_ignore_file,
)
from steersman.tools.builtin.walk import Deadline, Walk
from steersman.tools.confine.workspace import Workspace

GIT = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
NAMES = ("a", "b", "ab", "a.o", "c d")
FOLDERS = ("a", "b", "ab")


def tree(prefix: str = "", depth: int = 1) -> list[tuple[str, bool]]:
    """All paths of a small tree, and whether each is a folder."""
    found: list[tuple[str, bool]] = []
    for name in NAMES:
        folder = depth < 3 and name in FOLDERS
        found.append((prefix + name, folder))
        if folder:
            found += tree(f"{prefix}{name}/", depth + 1)
    return found


PATHS = tree()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], env=GIT, check=True, timeout=30)
    plant(root, *(f"{path}/" if folder else path for path, folder in PATHS))
    return root


def hidden_by_git(root: Path, files: dict[str, bytes]) -> set[str]:
    places = [root / (name or ".gitignore") for name in files]
    for place, content in zip(places, files.values(), strict=True):
        place.write_bytes(content)
    asked = b"\0".join(os.fsencode(path) for path, _ in PATHS)
    done = subprocess.run(
        ["git", "check-ignore", "--stdin", "-z", "--no-index"],
        cwd=root, env=GIT, input=asked, capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    for place in places:
        place.unlink()
    assert done.stderr == b""
    return {os.fsdecode(path) for path in done.stdout.split(b"\0") if path}


def hidden_by_us(root: Path, files: dict[str, bytes]) -> set[str]:
    """What a walk does not come across, with the same files in place."""
    for name, content in files.items():
        write(root, name, content)
    seen: set[str] = set()
    for folder in Walk(Workspace(root), "", Deadline(context())):
        seen |= {folder.join(name) for name in [*folder.files, *folder.folders]}
    for name in files:
        (root / name).unlink()
    return {path for path, _ in PATHS} - seen


# Without a backslash before a slash, which git does not read as its documentation says.
ATOM = st.sampled_from([
    *"abo*?!#-. /[]", "**", "**/", "/**", "[ab]", "[!a]", "[a-b]", "[]a]", "[^b-]", "[[:alpha:]]", "[[:nope:]]",
    "c d", "\\ ", "\\a", "\\*", "\\!", "\\#", ".o", "ab", "\r",
])  # fmt: skip
LINE = st.lists(ATOM, min_size=1, max_size=6).map("".join)
RULES = st.lists(LINE, min_size=1, max_size=4).map(lambda lines: "\n".join(lines).encode())
PLACES = st.sampled_from([".gitignore", "a/.gitignore", "a/b/.gitignore", ".git/info/exclude"])


@given(files=st.dictionaries(PLACES, RULES, min_size=1, max_size=3))
def test_what_is_hidden_is_what_git_says(repository: Path, files: dict[str, bytes]) -> None:
    assert hidden_by_us(repository, files) == hidden_by_git(repository, files)


@pytest.mark.parametrize(
    ("rules", "hidden", "shown"),
    [
        ("*.o", ["x.o", "deep/x.o"], ["x.on", "o"]),
        ("/top", ["top"], ["deep/top"]),
        ("build/", ["build/x"], ["buildx"]),
        ("a/*/z", ["a/b/z"], ["a/z", "a/b/c/z", "x/a/b/z"]),
        ("a/**/z", ["a/z", "a/b/c/z"], ["az"]),
        ("**/logs", ["logs", "deep/er/logs"], ["xlogs"]),
        ("logs/**", ["logs/x", "logs/y/z"], ["deep/logs/x"]),
        ("*\n!keep", ["x"], ["keep"]),
        ("out/\n!out/keep", ["out/keep"], ["in/keep"]),
        ("!x\nx", ["x"], []),
        ("# comment\n\\#x", ["#x"], ["# comment"]),
        ("\\!x", ["!x"], ["x"]),
        ("x   \ny\\ ", ["x", "y "], ["x   ", "y"]),
        ("x\\\\  \ny\\   ", ["x\\", "y "], ["x\\  ", "y", "y   "]),
        ("\ufeffx\r\ny", ["x", "y"], []),
        ("[a-c]?[!x]", ["b1y"], ["b1x", "d1y"]),
        ("é", ["é", "sub/é"], ["e"]),
        ("??", ["é", "ab"], ["a"]),  # two bytes, as git counts
        ("[", [], ["["]),
    ],
)
def test_a_line_hides_what_it_says(tmp_path: Path, rules: str, hidden: list[str], shown: list[str]) -> None:
    plant(tmp_path, *hidden, *shown, ".gitignore")
    (tmp_path / ".gitignore").write_text(rules, encoding="utf-8", newline="")
    walk = Walk(Workspace(tmp_path), "", Deadline(context()))
    found = {folder.join(name) for folder in walk for name in folder.files} - {".gitignore"}
    assert (sorted(set(hidden) & found), sorted(set(shown) - found)) == ([], [])


def test_the_rules_above_a_workspace_hold_in_it_up_to_its_repository(tmp_path: Path) -> None:
    plant(
        tmp_path, "repo/.git/info/", "repo/sub/in/", "repo/sub/in/x.o", "repo/sub/in/y.tmp", "repo/sub/in/z", "repo/z"
    )
    write(tmp_path, ".gitignore", "x.o")
    write(tmp_path, "repo/.git/info/exclude", "*.tmp")
    write(tmp_path, "repo/.gitignore", "/z\n/sub/in/w")
    write(tmp_path, "repo/sub/.gitignore", "in/v")
    rules = load_outer_rules(tmp_path / "repo" / "sub" / "in")
    hidden = [name for name in ("x.o", "y.tmp", "z", "w", "v") if rules.hides(name, folder=False)]
    assert hidden == ["y.tmp", "w", "v"]
    assert load_outer_rules(tmp_path / "repo" / "sub" / "in") is not NO_RULES
    assert load_outer_rules(tmp_path) is NO_RULES


def test_a_rules_file_that_is_a_link_or_no_file_says_nothing(tmp_path: Path) -> None:
    """failures.md L2, and a FIFO without a writer."""
    plant(tmp_path, "ws/a/x", "ws/b/x")
    write(tmp_path, "rules", "x")
    (tmp_path / "ws" / "a" / ".gitignore").symlink_to(tmp_path / "rules")
    os.mkfifo(tmp_path / "ws" / "b" / ".gitignore")
    walk = Walk(Workspace(tmp_path / "ws"), "", Deadline(context()))
    assert [folder.join(name) for folder in walk for name in folder.files] == ["a/x", "b/x"]


@pytest.mark.parametrize(
    "line",
    [b"*a" * 200 + b"b", b"**/a/" * 80 + b"b", b"?*" * 200 + b"b", b"[a-z]*" * 100 + b"0", b"**/*a*/" * 60 + b"b"],
)
def test_a_hostile_line_is_matched_in_a_short_time(line: bytes) -> None:
    """failures.md F16, L20: as a plain regular expression each of these would take longer than the universe."""
    rules = IgnoreRules(parse_ignore_file(line))
    began = time.process_time()
    assert not rules.hides("a/" * 400 + "a" * 200, folder=False)
    assert time.process_time() - began < 1


def test_a_rules_file_without_end_is_read_in_part() -> None:
    """failures.md L20"""
    rules = parse_ignore_file(b"\n".join(b"x%d" % number for number in range(10 * MAX_RULES)))
    assert len(rules.rules) == MAX_RULES
    assert (rules.match("x0", folder=False), rules.match(f"x{MAX_RULES}", folder=False)) == (True, None)


@pytest.mark.parametrize("line", [b" " * 99_000, b"[[:" * 33_000, b"a" * 5_000])
def test_a_line_longer_than_any_path_is_left_out(line: bytes) -> None:
    """docs/file-tools.md: a search has a deadline. Such lines, from a project, took half a minute to parse."""
    assert len(parse_ignore_file(line + b"\nnext").rules) == 1


def test_many_rules_are_matched_in_steps_between_which_others_run_and_the_deadline_counts() -> None:
    """A thousand nested folders, each with 100 KB of rules, took hours for one path, a second of it without a pause."""
    regexes = [f"{number:01000}" for number in range(45)]
    steps = compile_steps(regexes)
    assert [len(step.pattern) // 1_000 for step in steps] == [20, 20, 5]
    assert max(map(len, regexes)) * 20 == MAX_STEP
    assert all(any(step.fullmatch(regex) for step in steps) for regex in regexes)
    checks: list[int] = []
    rules = NO_RULES.extend("", b"a").extend("b", b"c").extend("b/d", b"e")
    assert not rules.hides("b/d/f", folder=False, check=lambda: checks.append(1))
    assert len(checks) == 4
