"""Matches shell commands against rules of `deny` and `ask`: anywhere in a command, and also what only may be meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from steersman.policy.patterns import Match, fold_lookalikes
from steersman.policy.shell.aliases import list_aliases
from steersman.policy.shell.command_view import (
    BETWEEN,
    MANY,
    QUOTES,
    Candidate,
    CommandView,
    PartView,
    has_in_order,
    normalize_spaces,
)
from steersman.policy.shell.programs import is_version
from steersman.policy.shell.syntax import Word, parse_command
from steersman.policy.shell.table import Entry

_BEFORE = r"(?<![a-z0-9_-])"
_BEFORE_OR_LETTER = rf"(?:{_BEFORE}|(?<=\s-[a-z]))"
# `push:*` in front of other words may be meant as `push *`.
_OPEN_WORD = re.compile(r"(?<=[a-z0-9]):\*$")
# No program is called so: `rm:`, `rm,mv` and `{rm,mv}` are meant otherwise.
_NOT_IN_NAMES = re.compile(r"[:,{}]")
_AFTER = r"(?![a-z0-9_-])"
# What these letters mean to programs that know both.
_LONG_NAMES = {"a": "--all", "m": "--message", "q": "--quiet", "u": "--set-upstream", "v": "--verbose"}


class ForbiddenCommand:
    """A command of a `deny` or `ask` rule: the words it begins with, or pieces of text with anything between them.

    `hints` are the words of such a text, which may have `*` in them.
    """

    __slots__ = (
        "_aliases",
        "_bare",
        "_exact",
        "_is_doubled",
        "_kinds",
        "_operands",
        "_options",
        "_plain",
        "_short",
        "_split",
        "_starts",
        "_values",
        "hints",
        "open",
        "pieces",
        "words",
    )

    def __init__(
        self,
        words: Sequence[str],
        *,
        is_open: bool = False,
        pieces: Sequence[str] = (),
        hints: Sequence[str] = (),
        aliases: Sequence[ForbiddenCommand] = (),
    ) -> None:
        self.words = tuple(words)
        self.open = is_open
        self.pieces = tuple(pieces)
        self.hints = tuple(hints)
        self._aliases = tuple(aliases)
        # The value of an option may go on behind a rule that is open: such a rule is about all its values.
        named = [*self.words[:-1], self.words[-1].partition("=")[0]] if is_open and self.words else self.words
        self._options = [word for word in named[1:] if word.startswith("-")]
        self._operands = [word for word in self.words[1:] if not word.startswith("-")]
        # The options by their single names, and the rule without them.
        self._split = [name for word in self._options for name in _split_option(word)]
        plain = [word for word in self.words if not word.startswith("-")]
        self._plain = ForbiddenCommand(plain, is_open=is_open) if self._split else None
        # The options after which an operand comes, which may be their value: a command may have both in one word.
        pairs = [(option, value) for option, value in pairwise(self.words[1:]) if option in self._options]
        self._values = {value: option for option, value in pairs if value and not value.startswith("-")}
        apart = [word for word in self._operands if word not in self._values]
        # The rule without them: a command may have them behind its other words.
        is_cut = bool(self.words) and self.words[-1] in self._values
        bare = [word for word in plain if word not in self._values]
        self._bare = ForbiddenCommand(bare, is_open=is_open and not is_cut) if self._values and bare else None
        self._exact = [frozenset((word,)) for word in apart]
        # All that is short for a word of the rule, by word and together.
        self._kinds = [_list_beginnings(word) for word in apart]
        self._short = frozenset[str]().union(*map(_list_beginnings, self._operands))
        # The programs with which the rule begins, with and without its options, and whether another word may be one.
        # A rule of options only may be about any program.
        forms = (self.words, plain if self._split else self.words)
        self._starts = [*dict.fromkeys(form[0] for form in forms)] if all(forms) else []
        names = [word.rpartition("/")[2] for word in self._operands]
        self._is_doubled = any(name.startswith(start) for name in names for start in self._starts)

    def match(self, view: CommandView) -> Match:
        """Whether any part of a command matches, or may match, by this name or another of the same command."""
        found = [self._match_name(view), *[other.match(view) for other in self._aliases]]
        return "yes" if "yes" in found else "maybe" if "maybe" in found else "no"

    def _match_name(self, view: CommandView) -> Match:
        if view.is_too_long:
            return "maybe" if self.words or self.pieces else "yes"
        if self.pieces:
            found = view.has_in_order(self.pieces)
        else:
            found = not self.words or self._is_in_command(view)
        if found:
            return "yes"
        unsure = (
            view.parsed.problem is not None
            or self._is_hinted_at(view)
            or self._is_spelled_otherwise(view)
            or self._is_in_text(view)
        )
        return "maybe" if unsure else "no"

    def _is_in_command(self, view: CommandView) -> bool:
        if not self.open and not view.may_have(self._exact):
            return False
        return any(self._is_among(each) for each in view.find_candidates(self.words[0]))

    def _is_in_text(self, view: CommandView) -> bool:
        """Whether a shell of the command may run one of its quoted texts as this command: `sh -c 'r$()m x'`."""
        texts = view.shell_texts
        return texts is None or any(self.match(text) != "no" for text in texts)

    def _is_hinted_at(self, view: CommandView) -> bool:
        """Whether the words are in a text that a program of the command may run as a command."""
        if not self.words:
            return bool(self.hints) and all(_has_hint(hint, view) for hint in self.hints)
        if view.runs_script:
            return self._is_in(view.folded, before="")  # in a sed script, a letter comes right before a command
        if view.takes_commands:
            return self._is_in(view.folded, before=_BEFORE)
        if not all(word in view.all_unknown_texts for word in self.words):
            return False
        return any(self._is_in(text, before=_BEFORE_OR_LETTER) for text in view.unknown_texts)

    def _is_in(self, text: str, *, before: str) -> bool:
        if not all(word in text for word in self.words):
            return False
        after = [_AFTER] * (len(self.words) - 1) + ["" if self.open else _AFTER]
        # An option may have its value in the same word: `-mpip`.
        return all(
            re.search(
                f"{before and (_BEFORE_OR_LETTER if word in self._values else before)}{re.escape(word)}"
                f"{'' if word in self._values.values() else end}",
                text,
            )
            for word, end in zip(self.words, after, strict=True)
        )

    def _is_spelled_otherwise(self, view: CommandView) -> bool:
        """Whether a part may be the command with wildcards, a shortened subcommand or other names of options."""
        return bool(self.words) and any(self._may_be_part(part, view) for part in self._list_similar(view))

    def _list_similar(self, view: CommandView) -> Iterable[PartView]:
        """List the parts that may be the command if words of them are completed: all others do not begin like it."""
        if not self._starts:
            return view.parts
        is_plain = not self.open and not self.words[0].startswith("-")
        if is_plain and not view.wild_words and not view.may_have(self._kinds):
            return ()
        found: dict[PartView, None] = {}
        for start in self._starts:
            found |= dict.fromkeys(view.find_parts(start))
            # Behind a program that runs others, any word may be the first.
            found |= dict.fromkeys(view.find_wild_parts(start))
        for word in self._short:
            found |= dict.fromkeys(view.parts_by_program.get(word, ()))
        return {**found, **dict.fromkeys(view.runner_parts)} if self._is_doubled else found

    def _may_be_part(self, part: PartView, view: CommandView) -> bool:
        if not part.wild_words and self._short.isdisjoint(part.folded):
            return self._may_have_options(part, part.candidate)
        return any(
            self._is_among(candidate) or self._may_have_options(part, candidate)
            for candidate in map(Candidate, self._list_spellings(part, view))
        )

    def _list_spellings(self, part: PartView, view: CommandView) -> Iterator[list[str]]:
        """List what words may be: a wildcard may become a word of the rule and those after it, in names of files."""
        folded = list(zip(part.words, part.candidate.words, strict=True))
        for place in range(len(self.words) if part.wild_words else 1):
            wanted = self.words[place:]
            becoming = view.find_becoming(wanted[0])
            found: list[str] = []
            for word, text in folded:
                if word in becoming:
                    found += wanted
                else:
                    found.append(self._complete(text) if word.wild < 0 and text in self._short else text)
            yield found

    def _complete(self, text: str) -> str:
        """Find the word of the rule that a word is short for."""
        return next(wanted for wanted in self._operands if wanted.startswith(text))

    def _may_have_options(self, part: PartView, candidate: Candidate) -> bool:
        """Whether it is the command but for its options, and each of those may be one of the command's by another name.

        For every option that is not known to be a different one the answer is yes.
        """
        if not part.marked:
            return False
        # `git push origin +main` is about `main`.
        unmarked = candidate.unmarked
        if self._plain is None:
            return unmarked is not candidate and self._is_among(unmarked)
        if self._plain.words and not self._plain._is_among(self._take_apart(candidate)):
            is_marked = unmarked is not candidate and self._plain._is_among(unmarked)
            if not is_marked and not self._has_values(part, candidate):
                return False
        return all(any(_may_be(word, option, part.entry) for word in part.marked) for option in self._split)

    def _has_values(self, part: PartView, candidate: Candidate) -> bool:
        """Whether it is the command but for options with the values of the rule, which may come behind other words."""
        if self._bare is None or not self._bare._is_among(candidate):
            return False
        pairs = self._take_apart(candidate).pairs
        return all(
            any(self._is_value(given, value) and _may_be_option(before, option, part.entry) for before, given in pairs)
            for value, option in self._values.items()
        )

    def _is_value(self, given: str, value: str) -> bool:
        """Whether a word is a value of the rule, which may go on in a rule that is open."""
        return given == value or (self.open and value == self.words[-1] and given.startswith(value))

    def _is_among(self, candidate: Candidate) -> bool:
        """Whether the words are the command; after a program that runs others, whether it begins at any word."""
        start = self.words[0]
        places = [place for place, name in enumerate(candidate.names) if name.startswith(start)]
        # No real command looks like this, and checking every position would take long.
        if len(places) > MANY or any(self._begins_at(candidate, place) for place in places):
            return True
        apart = self._take_apart(candidate)
        return apart is not candidate and self._is_among(apart)

    def _take_apart(self, candidate: Candidate) -> Candidate:
        """Split the options of a command from the values that the rule names; the same one if there are none."""
        if not any(value in candidate.dashed for value in self._values):
            return candidate
        apart = [piece for word in candidate.words for piece in self._split_value(word)]
        return Candidate(apart) if len(apart) > len(candidate.words) else candidate

    def _split_value(self, word: str) -> list[str]:
        if not word.startswith("-"):
            return [word]
        name, equals, given = word.partition("=")
        for value, option in self._values.items():
            found = [(name, given)] if equals else []
            if not word.startswith("--"):
                # Behind the letter of the rule, or a single one that may be short for its option.
                letter = 1 if option.startswith("--") else max(1, word.find(option[-1], 1))
                found += [(word[:end], word[end:]) for end in (letter + 1, 2)]
            for before, text in found:
                if self._is_value(text, value):
                    return [before, text]
        return [word]

    def _begins_at(self, candidate: Candidate, start: int) -> bool:
        wanted, name = self.words[0], candidate.names[start]
        if name == wanted or (self.open and len(self.words) == 1) or is_version(name, wanted):
            rest = candidate.words[start + 1 :]
            return self._has_operands(rest) and candidate.has_options(self._options, start)
        if len(self.words) > 1 and name.startswith(f"{wanted}-"):
            # `git-push` is another name of `git push`.
            rest = [name[len(wanted) + 1 :], *candidate.words[start + 1 :]]
            return self._has_operands(rest) and Candidate([wanted, *rest]).has_options(self._options, 0)
        return False

    def _has_operands(self, words: Sequence[str]) -> bool:
        """Whether the operands come in this order, with only options and their values between them."""
        place = 0
        for number, operand in enumerate(self._operands):
            last = self.open and number == len(self._operands) - 1
            after_option = False
            while place < len(words):
                word = words[place]
                place += 1
                if word == operand or (last and word.startswith(operand)):
                    break
                # In front of a subcommand, cargo takes a toolchain: `cargo +nightly publish`.
                if not word.startswith(("-", "+")) and not after_option:
                    return False
                after_option = word.startswith("-")
            else:
                return False
        return True


def parse_forbidden_command(pattern: str) -> ForbiddenCommand:
    """Parse the parentheses of a `deny` or `ask` rule."""
    text = fold_lookalikes(pattern.strip())
    prefix = text.removesuffix("*")
    program = text.partition(" ")[0].removesuffix(":*").rpartition("/")[2]
    if ":*," in text or (len(program) > 1 and "=" not in program and _NOT_IN_NAMES.search(program)):
        raise ValueError("a rule is about one command, and `:*` stands only at its end: bash(rm:*)")
    if "*" in prefix:
        return _parse_text(text.removesuffix(":*"), begins=text.endswith(":*"))
    joined = text.endswith("*") and prefix == prefix.strip() and not prefix.endswith(":")
    plain = prefix.removesuffix(":") if text != prefix else prefix
    words = QUOTES.sub("", plain).split()
    if not words and not text.endswith("*"):
        raise ValueError("it names no command")
    found = _drop_folder(words)
    aliases = [ForbiddenCommand(other, is_open=joined) for other in list_aliases(found, is_open=joined)]
    parsed = parse_command(plain)
    simple = [word.text for part in parsed.parts[:1] if len(parsed.parts) == 1 and part.is_bare for word in part.words]
    if " ".join(simple).split() != words:
        # Several commands, a redirection or an expansion: no simple command has all of these words.
        aliases.append(_parse_text(plain.strip(), begins=text != prefix))
    elif simple != words:
        # Blanks in a word: `rm 'a b'`.
        aliases.append(ForbiddenCommand(_drop_folder(simple), is_open=joined))
    return ForbiddenCommand(found, is_open=joined, aliases=aliases)


def _parse_text(text: str, *, begins: bool = False) -> ForbiddenCommand:
    """Parse a rule that is compared as text, in which `*` stands for anything; with `begins`, more words may follow."""
    # The blanks keep `| shasum` apart from `| sh`.
    first, *others = f" {normalize_spaces(text)} ".split("*")
    pieces = [first if first.strip() else "", *others]
    pieces[-1] = pieces[-1] if pieces[-1].strip() else ""
    # A compound pattern is searched in the whole command, a single one in each part.
    words = BETWEEN.sub(" ", QUOTES.sub("", text)).split()
    hints = [_OPEN_WORD.sub("*", word) for word in words if word.strip("*")]
    ends = ("",) if BETWEEN.search(text) else ()
    longer = [_parse_text(f"{text} *")] if begins else ()
    return ForbiddenCommand((), pieces=(*ends, *pieces, *ends), hints=hints, aliases=longer)


def _list_beginnings(word: str) -> frozenset[str]:
    return frozenset([word[:size] for size in range(1, len(word) + 1)])


def _drop_folder(words: list[str]) -> list[str]:
    """Drop the folder of the program that a rule begins with."""
    return [words[0].rpartition("/")[2] or words[0], *words[1:]] if words else words


def _has_hint(hint: str, view: CommandView) -> bool:
    """Whether a word of a rule with wildcards is anywhere in a command, or a wildcard may become it."""
    for form in (view.folded, view.unquoted):
        if "*" in hint and has_in_order(("", *hint.split("*"), ""), form):
            return True
        if "*" not in hint and hint in form and re.search(rf"(?<![\w.-]){re.escape(hint)}(?![\w./-])", form):
            return True
    return any(word.text.strip("*") for word in view.find_becoming(hint.strip("*")))


def _split_option(text: str) -> list[str]:
    """Split an option into its names: a long one, or one for each letter."""
    name = text.partition("=")[0]
    return [name] if name.startswith("--") else [f"-{letter}" for letter in name[1:]]


def _may_be(word: Word, option: str, entry: Entry | None) -> bool:
    """Whether a word of a command may be an option by another name, or do the same as `+branch` does."""
    if word.wild == 0 or (len(word.text) > 1 and word.text[0] in "+:"):
        return True
    if not word.text.startswith("-") or word.text in ("-", "--"):
        return False
    return word.wild >= 0 or any(_may_be_same(name, option, entry) for name in _split_option(word.text))


def _may_be_option(given: str, option: str, entry: Entry | None) -> bool:
    """Whether a word may be an option of a rule, by another name or among other letters."""
    return any(_may_be(Word(given), name, entry) for name in _split_option(option))


def _may_be_same(given: str, option: str, entry: Entry | None) -> bool:
    name = fold_lookalikes(given)
    if name.startswith("--") and option.startswith("--"):
        return name.startswith(option) or option.startswith(name)
    if not name.startswith("--") and not option.startswith("--"):
        return name == option
    letter, long = (name, option) if option.startswith("--") else (option, name)
    return not letter[1].isdigit() and not _are_different(letter, long, entry)


def _are_different(letter: str, long: str, entry: Entry | None) -> bool:
    """Whether a table tells that a letter is not short for a long name: only one takes a value, or is harmless."""
    if entry is None or long not in entry.options:
        return False
    usual, full = _LONG_NAMES.get(letter[1]), entry.options[long]
    if usual != long and usual in entry.options and letter in entry.options:
        return True
    found = [entry.options[name] for name in (letter, letter.upper()) if name in entry.options]
    return bool(found) and all((one.harmless, one.arity) != (full.harmless, full.arity) for one in found)
