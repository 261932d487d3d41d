"""Reads the arguments of a command by the table of its program, and explains which of them need approval."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from steersman.policy.shell.syntax import Word
from steersman.policy.shell.table import Entry, Option, read_entry

_LIMITS = {
    "n": re.compile(r"[A-Za-z0-9_+,-]*"),
    "t": re.compile(r"term|term-missing"),
    "r": re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@{}./:~^-]*"),
    "d": re.compile(r"0[xX][0-9A-Fa-f]+|[0-9][0-9,]*|"),
    # cargo clippy joins its arguments with a text in capitals, and what follows that is another argument.
    "l": re.compile(r"[a-z][a-z0-9_:,-]*"),
    "u": re.compile(r"no:[A-Za-z0-9_.-]+"),
    # Before version 6, pytest evaluates such a text as Python; without a parenthesis or a dot, it calls nothing.
    "w": re.compile(r"[A-Za-z0-9_ -]*"),
    "o": re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+"),
    # With `subtree`, also without a name, git looks for the folder into which it merges.
    "m": re.compile(r"(?!subtree)[a-z0-9-]+"),
}
# What may stand in the place of a value or an operand of a program that is known only from its manual.
_EXACT_VALUE = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.,-]*")
_EXACT_OPERAND = re.compile(r"[A-Za-z0-9_.](?:[A-Za-z0-9_./-]|::)*")
_BACK = re.compile(r"\.\.?\*+")  # older shells expand `.*` to `..` as well
_TARGET = re.compile(r"[A-Za-z0-9_./:@%+,-]*")
_HIDDEN = re.compile(r"(?:^|/)\.[^/]*\*")  # `.g*` may become `.git`
# To these, a word with `@` or `+` in front is a text, a revision, a mode or a format. To others it may be a file with
# more arguments, a server or an option.
_TEXTS = frozenset(("git", "rg", "fd", "fdfind", "date", "chmod"))
_SEARCHES = frozenset(("grep", "egrep", "fgrep"))
_PATTERN_OPTIONS = frozenset(("-e", "-f", "--regexp", "--file"))
# What a command that changes something may name: a path, a branch, a commit or a mode in plain letters.
_WRITTEN = re.compile(r"[A-Za-z0-9_.@+=][A-Za-z0-9_.@+=,:%{}~^/-]*|-")
# No such command names these, nor anything that is hidden: they decide which program a later command runs.
_PROTECTED = re.compile(r"\.(?!\Z).*|venv|env|virtualenv|node_modules|mise(?:\.[a-z.]+)?|rust-toolchain(?:\.toml)?")


class NeedsApproval(Exception):
    """An argument that is not known to be harmless; its text says why."""


@dataclass(slots=True)
class Arguments:
    """The arguments of a command: its options with their values, and its operands."""

    options: list[tuple[str, Word | None]] = field(default_factory=list[tuple[str, Word | None]])
    operands: list[Word] = field(default_factory=list[Word])

    def list_values(self, *names: str) -> list[Word]:
        """List the values of these options."""
        return [value for name, value in self.options if name in names and value is not None]


def read_arguments(entry: Entry, words: Sequence[Word], *, partial: bool = False) -> Arguments:
    """Read arguments; raise `NeedsApproval` for one that is not known to be harmless.

    `partial` is for the beginning of a command, which may end before the value of an option.
    """
    return _Reader(entry, words, partial=partial).read()


class _Reader:
    """One pass over the arguments of a command."""

    def __init__(self, entry: Entry, words: Sequence[Word], *, partial: bool) -> None:
        self.entry = entry
        self.words = words
        self.partial = partial
        self.place = 0
        self.found = Arguments()

    def read(self) -> Arguments:
        """Read all words."""
        flags = self.entry.flags
        while self.place < len(self.words):
            word = self.words[self.place]
            self.place += 1
            if "free" in flags or word.text == "-" or not word.text.startswith("-"):
                self.found.operands.append(word)
            elif word.text == "--" and "words" not in flags and ("exact" not in flags or self.entry.after):
                self._read_rest()
            elif self.found.operands and (self.entry.operands.isdecimal() or self.entry.check == "sed"):
                # Some programs take every word after the first operand for an operand, and write to it. Such a sed
                # takes the first operand for the script: `sed 'w x' -e p`.
                raise NeedsApproval(f"{word.text!r:.200} after an operand of {self.entry.key!r} could be one as well")
            else:
                self._read_option(word)
        for word in self.found.operands[self._count_patterns() :]:
            self._check_operand(word)
        _check_count(self.entry, self.found.operands)
        return self.found

    def _count_patterns(self) -> int:
        """Count the operands at the beginning that are a pattern and no file: `grep '..' f`.

        A wildcard may become `-epattern` or several words, and then the first operand is a file: `grep -r / *`.
        """
        if self.entry.key not in _SEARCHES or not self.found.operands or any(word.wild >= 0 for word in self.words):
            return 0
        return 0 if any(name in _PATTERN_OPTIONS for name, _ in self.found.options) else 1

    def _read_rest(self) -> None:
        """Read what comes after `--`: operands, or the arguments of another program."""
        rest, after = self.words[self.place :], self.entry.after
        self.place = len(self.words)
        if after and self.partial:
            raise NeedsApproval(f"what follows `--` in {self.entry.key!r} is for another program")
        if not after:
            dashed = [word.text for word in rest if word.text.startswith("-") and word.text != "-"]
            if dashed and "plain" not in self.entry.flags:
                # Some programs look for options among all words: `pytest -- -pname`, `unzip -l -- -lod`.
                raise NeedsApproval(f"{dashed[0]!r:.200} after `--` could be an option all the same")
            self.found.operands += rest
            return
        if after == "ask":
            options = [word.text for word in rest if word.text.startswith("-")]
            if options:
                raise NeedsApproval(f"the option {options[0]!r:.200} is for another program")
            self.found.operands += rest
            return
        read_arguments(read_entry(after), rest)

    def _read_option(self, word: Word) -> None:
        text = word.text
        name, equals, value = text.partition("=")
        if word.wild >= 0 and (not equals or word.wild <= len(name)):
            raise NeedsApproval(f"{text!r:.200} could become any option")
        if word.wild >= 0 and "plain" not in self.entry.flags:
            # Also behind a letter: `sed -e=*` becomes another script where a file has that name.
            raise NeedsApproval(f"{text!r:.200} could become another value, or several words")
        if "double" in self.entry.flags and name.startswith("--"):
            name = name[1:]
        if text.startswith("--") or "words" in self.entry.flags:
            option = self._get_option(name, text)
            if equals and (not option.arity or self._takes_next_word()):
                raise NeedsApproval(f"the option {name!r:.200} takes no value in the same word, got {text!r:.200}")
            self._take_value(name, option, Word(value, -1, word.quoted) if equals else None)
            return
        for place, letter in enumerate(text[1:], 2):
            name = f"-{letter}"
            option = self._get_option(name, text)
            if option.arity:
                attached = text[place:]
                if attached and "exact" in self.entry.flags and not attached.isdecimal():
                    raise NeedsApproval(f"{text!r:.200} could be another option")
                self._take_value(name, option, Word(attached, -1, word.quoted) if attached else None)
                return
            self.found.options.append((name, None))

    def _takes_next_word(self) -> bool:
        """Whether the program ignores what follows `=` and takes the next word for the value: `xxd -cols=8 4 f`."""
        return "words" in self.entry.flags and "equals" not in self.entry.flags

    def _get_option(self, name: str, text: str) -> Option:
        option = self.entry.options.get(name)
        if option is None:
            raise NeedsApproval(f"the option {text!r:.200} is not among those known to be harmless")
        if not option.harmless:
            raise NeedsApproval(f"the option {text!r:.200} can run another program or write a file")
        return option

    def _take_value(self, name: str, option: Option, attached: Word | None) -> None:
        value = attached
        if value is not None and option.limit == "s":
            raise NeedsApproval(f"the option {name!r} takes its value in the next word")
        if value is None and option.arity == ":":
            if self.place == len(self.words):
                if self.partial:
                    return
                raise NeedsApproval(f"the option {name!r} has no value")
            value = self.words[self.place]
            self.place += 1
            self._check_separate_value(name, option, value)
        if value is not None:
            self._check_value(name, option, value)
        self.found.options.append((name, value))

    def _check_separate_value(self, name: str, option: Option, value: Word) -> None:
        if value.text.startswith("-") and value.text != "-" and not option.dashed:
            # If a program took no value there, this would be an option.
            raise NeedsApproval(f"{value.text!r:.200} after {name!r} could be an option")
        if self.entry.operands in ("inside", "write") and not option.dashed:
            # An option of a plugin that is not installed takes no value, and this is an operand.
            self._check_place(value)
        if value.wild >= 0 and "plain" not in self.entry.flags:
            # `-name -*` becomes `-name -a -exec`, where files have such names, and `uniq -f 1*` two operands.
            raise NeedsApproval(f"{value.text!r:.200} after {name!r} could become several words")

    def _check_mark(self, word: Word) -> None:
        """Check that a word is no file with more arguments, no server and no option with a plus."""
        if word.text.startswith(("@", "+")) and "plain" not in self.entry.flags and not self._takes_texts():
            raise NeedsApproval(f"{word.text!r:.200} may name a file with more arguments, or be an option")

    def _takes_texts(self) -> bool:
        return self.entry.key.partition(" ")[0] in _TEXTS

    def _check_value(self, name: str, option: Option, value: Word) -> None:
        if not option.dashed:
            self._check_mark(value)
        if (option.limit == "i" or "exact" in self.entry.flags) and is_outside(value.text):
            raise NeedsApproval(f"{value.text!r:.200} is outside the folder")
        limit = _LIMITS.get(option.limit)
        if limit is None and "exact" in self.entry.flags:
            limit = _EXACT_OPERAND if option.limit == "i" else _EXACT_VALUE
        if limit is not None and not limit.fullmatch(value.text):
            raise NeedsApproval(f"the value {value.text!r:.200} of {name!r} is not among those known to be harmless")

    def _check_operand(self, word: Word) -> None:
        text, flags, kind = word.text, self.entry.flags, self.entry.operands
        self._check_mark(word)
        if "exact" in flags and (word.wild >= 0 or is_outside(text) or not _EXACT_OPERAND.fullmatch(text)):
            raise NeedsApproval(f"{text!r:.200} is not a plain name or a path inside the folder")
        if word.wild >= 0 and "//" in text[word.wild :] and "plain" not in flags:
            # `http?//x` becomes `http://x` where the folder `http:` exists.
            raise NeedsApproval(f"{text!r:.200} could become an address")
        if word.wild == 0 and "plain" not in flags:
            raise NeedsApproval(f"{text!r:.200} could become an option")
        if "deep" in flags and _is_above(text, wild=word.wild >= 0):
            raise NeedsApproval(f"below {text!r:.200} may be what other processes know")
        if kind == "names" and not _EXACT_VALUE.fullmatch(text):
            raise NeedsApproval(f"{text!r:.200} is not a plain name")
        if kind in ("inside", "write", "target"):
            self._check_place(word)
        if kind == "target" and (word.wild >= 0 or not _TARGET.fullmatch(text)):
            raise NeedsApproval(f"{text!r:.200} sets a variable of the makefile, or could")

    def _check_place(self, word: Word) -> None:
        """Check that a path leads to no other folder and, where it may be written, to no protected one."""
        text = word.text
        if is_outside(text):
            raise NeedsApproval(f"{text!r:.200} is outside the folder")
        if word.wild >= 0 and _HIDDEN.search(text):
            raise NeedsApproval(f"{text!r:.200} could lead to a hidden folder, or out of this one")
        if self.entry.operands != "write":
            return
        if word.wild >= 0 or not _WRITTEN.fullmatch(text):
            raise NeedsApproval(f"{text!r:.200} is no plain name, and {self.entry.key!r} changes what it names")
        if any(_PROTECTED.fullmatch(step) for step in text.casefold().split("/")):
            raise NeedsApproval(f"{text!r:.200} changes what later commands do")


def _check_count(entry: Entry, operands: Sequence[Word]) -> None:
    if not operands:
        return
    if entry.operands == "none":
        raise NeedsApproval(f"{operands[0].text!r:.200} is not known to be harmless after {entry.key!r}")
    if entry.operands.isdecimal() and (len(operands) > int(entry.operands) or any(word.wild >= 0 for word in operands)):
        raise NeedsApproval(f"{entry.key!r} writes to its last operand")


def is_outside(path: str) -> bool:
    """Whether a path may lead out of the folder, judging by its text."""
    return path.startswith(("/", "~")) or ".." in path.split("/") or "://" in path


def _is_above(path: str, *, wild: bool) -> bool:
    """Whether a path is the root, or a folder above the workspace, with all that is below it, or may be.

    Where a name is a link, `..` after it leads elsewhere: `/var/run/..` is the root.
    """
    steps = [step for step in path.split("/") if step not in ("", ".")]
    ups = [step == ".." or (wild and _BACK.fullmatch(step) is not None) for step in steps]
    if not steps:
        return path.startswith("/")
    return all(ups) or any(up and not before for before, up in pairwise(ups))
