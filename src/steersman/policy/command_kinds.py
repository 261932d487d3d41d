"""Sorts commands by what a yes to one may mean for others: its kind, exactly this command, or nothing beyond it.

Short lists say for which kinds rules are proposed. For what is not known, exactly its words are, unless it runs others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from steersman.policy.destructive import find_destructive_effects
from steersman.policy.shell.arguments import NeedsApproval, read_arguments
from steersman.policy.shell.prefix_rules import drop_global_options, explain_unsafe_arguments
from steersman.policy.shell.programs import (
    SCRIPTS,
    SUBCOMMANDS,
    changes_shell,
    explain_runner,
    split_words,
    takes_commands,
)
from steersman.policy.shell.syntax import Part, Word
from steersman.policy.shell.table import Entry, find_entry, find_program

Scope: TypeAlias = Literal["kind", "exact"]

_WORDS_OF_LOOKING = """
    ls, cat, head, tail, wc, grep, egrep, fgrep, rg, find, sort, uniq, cut, tr, nl, tac, diff, cmp, comm, file, stat,
    du, df, tree, jq, pwd, whoami, which, date, basename, dirname, realpath, readlink, md5sum, sha256sum, echo, seq,
    true, git status, git diff, git log, git show, git blame, git grep, git ls-files, git ls-tree, git rev-parse,
    git shortlog, git describe, git merge-base, git stash list, git stash show,
    git branch --list, git tag --list, git tag -l
"""
_WORDS_OF_RUNNING = """
    pytest, python -m pytest, npm test, pnpm test, yarn test, npm run, pnpm run, yarn run, jest, cargo build,
    cargo check, cargo test, cargo clippy, go build, go test, go vet, eslint, ruff check, mypy, pyright, basedpyright,
    pylint, flake8, golangci-lint run
"""


def _split_keys(text: str) -> frozenset[str]:
    return frozenset([" ".join(key.split()) for key in text.split(",")])


LOOKERS = _split_keys(_WORDS_OF_LOOKING)
"""Commands that only read, whatever follows that the table lets through: their kind is proposed."""

PROJECT_RUNNERS = _split_keys(_WORDS_OF_RUNNING)
"""Commands that run the code and the settings of the project, which is what they are for: their kind is proposed."""

_TARGET = r"(?:test|tests|check|lint|build|all|compile|types|typecheck|type-check|unit|coverage|fmt|format)"
_SCRIPT = re.compile(_TARGET)
# Other usual ways to test and to build a project. Exactly these words are proposed.
_PROJECT_COMMAND = re.compile(
    rf"(?:make|just)(?: {_TARGET})*|(?:mvn|gradle) (?:test|compile|build|check)|python3? -m unittest|"
    r"python3? manage\.py test|bundle exec rspec|(?:dotnet|mix|swift|bun|deno) test|tox|nox"
)
_ENVIRONMENTS = (["uv", "run"], ["poetry", "run"], ["pdm", "run"])
_FORMATTERS = frozenset(("black", "isort", "ruff format", "cargo fmt", "go fmt", "terraform fmt"))
# Whatever these do, they read settings of the project, which may run its code.
_TOOLCHAINS = split_words(
    "cargo cmake gmake go java javac make node npm perl php pip pnpm prettier py.test python ruby rustc tsc uv yarn"
)
# Without an operand, these list what there is.
_LISTS = frozenset(("git branch", "git tag"))


@dataclass(frozen=True, slots=True)
class Kind:
    """What may be proposed for a command: a rule for the words it begins with, for exactly this one, or none."""

    scope: Scope | None = None
    words: tuple[str, ...] = ()
    runs_project: bool = False
    why: str = ""


def sort_part(part: Part) -> Kind:
    """Sort a simple command; without a scope, `why` says why it is asked about every time."""
    words = drop_global_options(part.words)
    texts = [word.text for word in words]
    if (why := explain_unstable_words(part)) is not None:
        return Kind(why=why)
    if _runs_project(texts):
        return _sort_exact(part, runs_project=True)
    entry = find_entry(texts)
    if entry is None:
        return _sort_unknown(part, texts)
    if (why := explain_unsafe_arguments(words)) is not None:
        return Kind(why=why)
    if entry.key in LOOKERS:
        return Kind("kind", tuple(texts[: len(entry.key.split())]))
    if entry.key in PROJECT_RUNNERS or entry.key.partition(" ")[2] in SCRIPTS:
        return _sort_runner(part, entry, texts)
    if entry.key in _FORMATTERS or (entry.key in _LISTS and not _has_operands(entry, words)):
        return _sort_exact(part, runs_project=entry.key in _FORMATTERS)
    if entry.writes or "sends" in entry.flags:
        what = "changes something" if entry.writes else "tells another machine what it is given"
        return Kind(why=f"{entry.key!r} {what}")
    name = entry.key.partition(" ")[0]
    return _sort_exact(part, runs_project=name in _TOOLCHAINS or entry.key.startswith("docker compose"))


def explain_unstable_words(part: Part) -> str | None:
    """Explain why the same words may do something else the next time, or must not be done twice unseen."""
    program = part.words[0].text
    if part.files:
        return f"it is redirected to or from {part.files[0]!r:.100}"
    if changes_shell(program) and find_entry([word.text for word in part.words]) is None:
        return f"{program!r:.100} changes what the commands after it do"
    if "/" in program and find_program(program) is None:
        return f"{program!r:.100} is a file, and what is in it may change"
    effects = find_destructive_effects(part.text)
    return f"it {effects[0]}" if effects else None


def _sort_runner(part: Part, entry: Entry, texts: Sequence[str]) -> Kind:
    if part.piped:
        return Kind(why="what it does may depend on what it reads from the pipe")
    size = len(entry.key.split())
    if entry.key.partition(" ")[2] in SCRIPTS:
        size += 1
        if not _names_usual_script(entry, texts):
            return Kind(why="what this script of the project does is not known from its name")
    return Kind("kind", tuple(texts[:size]), runs_project=True)


def _sort_unknown(part: Part, texts: Sequence[str]) -> Kind:
    """Sort a command that is not in the table: exactly its words, unless its program runs others by nature."""
    if takes_commands(texts) or explain_runner(texts[0]) is not None:
        why = explain_runner(texts[0]) or "runs other commands"
        return Kind(why=f"{texts[0]!r:.100} {why}")
    known, dash, _ = texts[0].partition("-")  # `git-push` is another name of `git push`
    if find_program(texts[0]) is not None or (dash and known in SUBCOMMANDS):
        # Many commands of such a program change something or talk to other machines: only those of the table are known.
        return Kind(why=f"what {' '.join(texts[:2])!r:.100} does is not known from its words")
    return _sort_exact(part, runs_project=True)


def _sort_exact(part: Part, *, runs_project: bool) -> Kind:
    if part.piped or part.inputs:
        return Kind(why="what it does may depend on what it reads")
    if any(word.wild >= 0 for word in part.words):
        return Kind(why="its wildcard may stand for other files the next time")
    if part.variables:
        return Kind(why="a variable is set for it")
    return Kind("exact", runs_project=runs_project)


def _runs_project(texts: list[str]) -> bool:
    """Whether it is a usual way to test or to build a project, also in the environment of a package manager."""
    if texts[:2] not in _ENVIRONMENTS:
        return _PROJECT_COMMAND.fullmatch(" ".join(texts)) is not None
    inner = texts[2:]
    entry = find_entry(inner) if inner else None
    if entry is None or entry.key not in PROJECT_RUNNERS or explain_unsafe_arguments([*map(Word, inner)]) is not None:
        return False
    return entry.key.partition(" ")[2] not in SCRIPTS or _names_usual_script(entry, inner)


def _names_usual_script(entry: Entry, texts: Sequence[str]) -> bool:
    """Whether the script of the project that a command names is one for what projects usually have a script for."""
    name = texts[len(entry.key.split()) :][:1]
    return bool(name) and _SCRIPT.fullmatch(name[0]) is not None


def _has_operands(entry: Entry, words: Sequence[Word]) -> bool:
    try:
        return bool(read_arguments(entry, words[len(entry.key.split()) :]).operands)
    except NeedsApproval:
        return True
