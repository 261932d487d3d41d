"""Reads the tables of programs: for each, the options that are known to be harmless, and what its operands are.

A table is a text. An entry begins with the commands it is about, separated by commas, and after `|` its properties:

    plain      no option of the program runs another program or writes, so that a wildcard may become any option
    free       every word is text for the program, as for echo
    words      options are whole words with one dash: `-name`, `-name value`
    equals     such a word may have its value behind `=`; other programs take the next word for the value all the same
    double     such a word may have two dashes as well
    deep       the program reads the files below its operands
    exact      known from its manual only: values are plain names or numbers, operands plain names or paths inside the
               workspace, with no wildcard, no `--`, and no value behind a letter but a number
    sends      it tells what it is given to another machine
    changes    it changes files or the repository, whatever its operands are
    operands=  any (the default), none, names (plain, with no slash), inside (the workspace), write (files or branches
               that it may change), target (of a makefile), or the number of operands after which the next one is
               written to
    after=     who reads the words after `--`: another entry, or `ask` where that is not known
    check=     a function of `policy.shell.checks` that looks at all arguments

Indented lines have its options: `-abc` are three, `-n:` and `--name=` take a value, `-n?` and `--name?` may have one in
the same word. Written twice (`-n::`, `--name==`) the value may begin with a dash. A letter after that limits the value:
`n` a plain name, `t` a report on the terminal, `i` a path inside the workspace, `o` owner/repository, `r` a revision,
`s` never in the same word, `d` a number, `l` names of lints, `u` a plugin that is not to be used, `w` plain words, `m`
how to merge. `-#` is every digit, and `@name` includes a group. Lines with `!` have the options that need approval.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

_TABLES = ("text", "system", "git", "code", "packages", "cloud")
_TOKEN = re.compile(r"(--?[^\s:=?]+)(::|==|:|=|\?)?([niorstdluwm])?")
_CLUSTER = re.compile(r"-[A-Za-z0-9.#]{2,}")
_VERSION = "-.0123456789"
# Other programs may have a digit that is no version: `id3` is not `id`.
_NUMBERED = frozenset(("python", "pip", "node", "ruby", "php", "perl", "pytest", "gcc", "clang"))
_LONGEST = 4
# Where the programs of the system are. A program of the same name elsewhere is another one, as `./jq` is.
_FOLDERS = frozenset(("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"))


@dataclass(frozen=True, slots=True)
class Option:
    """An option: whether it takes a value (`:` yes, `?` only in the same word), and whether it is harmless."""

    harmless: bool
    arity: str = ""
    dashed: bool = False
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known about a command."""

    key: str
    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    flags: frozenset[str] = frozenset()
    operands: str = "any"
    after: str = ""
    check: str = ""

    @property
    def writes(self) -> bool:
        """Whether the command changes something."""
        return self.operands == "write" or "changes" in self.flags


def find_entry(words: Sequence[str]) -> Entry | None:
    """Find the entry of a command: the one with the most words that the command begins with."""
    name = find_program(words[0])
    if name is None:
        return None
    for size in range(min(_LONGEST, len(words)), 0, -1):
        key = " ".join((name, *words[1:size]))
        if key in _load_index().blocks:
            return read_entry(key)
    return None


def find_program(program: str) -> str | None:
    """Find the name of a program in the tables: without its folder and its version; `None` if it is not there."""
    folder, slash, name = program.rpartition("/")
    if slash and folder not in _FOLDERS:
        return None
    programs = _load_index().programs
    if name in programs:
        return name
    short = name.rstrip(_VERSION)
    known = short in programs and (short in _NUMBERED or not name[len(short) :].isdigit())
    return short if known else None


def list_keys() -> list[str]:
    """List the commands of all entries."""
    return list(_load_index().blocks)


@cache
def read_entry(key: str) -> Entry:
    """Read the entry of a command."""
    properties, lines = _load_index().blocks[key]
    found: dict[str, Option] = {}
    words = "words" in properties.split()
    for harmless, token in _expand(lines):
        found.update(_parse_option(token, harmless=harmless, words=words))
    values = dict([name.split("=", 1) for name in properties.split() if "=" in name])
    flags = frozenset([name for name in properties.split() if "=" not in name])
    return Entry(key, found, flags, values.get("operands", "any"), values.get("after", ""), values.get("check", ""))


def _expand(lines: Sequence[str]) -> Iterator[tuple[bool, str]]:
    """Yield the options of some lines and of the groups they include, each with whether it is harmless."""
    for line in lines:
        for token in line.removeprefix("!").split():
            if token.startswith("@"):
                yield from _expand(_load_index().groups[token])
            else:
                yield not line.startswith("!"), token


def _parse_option(token: str, *, harmless: bool, words: bool) -> Iterator[tuple[str, Option]]:
    if token == "-#":
        yield from [(f"-{digit}", Option(harmless)) for digit in range(10)]
    elif not words and _CLUSTER.fullmatch(token):
        yield from [(f"-{letter}", Option(harmless)) for letter in token[1:]]
    elif (match := _TOKEN.fullmatch(token)) is not None:
        mark = match[2] or ""
        arity = mark if mark in ("", "?") else ":"
        yield match[1], Option(harmless, arity, len(mark) == 2, match[3] or "")
    else:
        raise ValueError(f"{token!r} in the table of programs is not an option.")


@dataclass(frozen=True, slots=True)
class _Index:
    """The lines of all entries and groups, by their names."""

    blocks: dict[str, tuple[str, list[str]]]
    groups: dict[str, list[str]]
    programs: frozenset[str]


@cache
def _load_index() -> _Index:
    from importlib import import_module

    blocks: dict[str, tuple[str, list[str]]] = {}
    groups: dict[str, list[str]] = {}
    for name in _TABLES:
        header, lines = "", []
        for line in import_module(f"steersman.policy.shell.tables.{name}").TABLE.splitlines():
            if line.startswith("  "):
                lines.append(line.strip())
            elif line:
                header = f"{header} {line}" if header.endswith(",") else line
                if not header.endswith(","):
                    lines = _add_block(blocks, groups, header)
    return _Index(blocks, groups, frozenset([key.split()[0] for key in blocks]))


def _add_block(blocks: dict[str, tuple[str, list[str]]], groups: dict[str, list[str]], header: str) -> list[str]:
    """Add an empty entry or group, and return its list of lines."""
    lines: list[str] = []
    keys, _, properties = header.partition("|")
    if keys.startswith("@"):
        groups[keys.strip()] = lines
        return lines
    for key in keys.split(","):
        if key.strip() in blocks:
            raise ValueError(f"{key.strip()!r} is twice in the tables of programs.")
        blocks[key.strip()] = (properties, lines)
    return lines
