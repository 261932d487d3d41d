"""Matches shell commands against rules: `allow` strictly, word by word; `deny` and `ask` anywhere in the command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from steersman.policy.patterns import MAX_TEXT_LENGTH, Match, fold_lookalikes
from steersman.policy.shell.prefix_rules import (
    drop_global_options,
    explain_program_folders,
    explain_unknown_program,
    explain_unsafe_arguments,
    explain_unsafe_inputs,
    explain_unsafe_pipe,
    explain_unsafe_prefix,
)
from steersman.policy.shell.programs import explain_runner, runs_text, takes_commands
from steersman.policy.shell.syntax import ParsedCommand, Part, Word, list_possible_commands, parse_command
from steersman.policy.shell.table import Entry, find_entry, find_program

_BLANKS = " \t\n"  # to a shell, any other white space is part of a word
_MANY = 50
_BEFORE = r"(?<![a-z0-9_-])"
_AFTER = r"(?![a-z0-9_-])"
# What these letters mean to programs that know both.
_LONG_NAMES = {"a": "--all", "m": "--message", "q": "--quiet", "u": "--set-upstream", "v": "--verbose"}
_BETWEEN = re.compile(r"[|&;<>()]+")
_QUOTES = re.compile(r"[\"'\\]")
_STAR = "a wildcard may stand only at the end, after the words the command begins with"


@dataclass(frozen=True, slots=True)
class AllowedCommand:
    """A command of an `allow` rule: the whole command, or the words it begins with (`prefix`)."""

    text: str
    words: tuple[Word, ...]
    prefix: bool

    def covers(self, part: Part) -> bool:
        """Whether the rule matches a simple command."""
        size = len(self.words)
        words = drop_global_options(part.words) if self.prefix else part.words
        if not size or words[:size] != self.words:
            return False
        return self.prefix or (len(part.words) == size and part.is_bare)

    @property
    def warning(self) -> str | None:
        """What to tell the person who makes this rule; `None` where there is nothing to say."""
        return explain_unknown_program([word.text for word in self.words]) if self.prefix else None


def parse_allowed_command(pattern: str) -> AllowedCommand:
    """Parse the parentheses of an `allow` rule; raise `ValueError` where it would allow too much."""
    text = pattern.strip()
    prefix = text.removesuffix("*").removesuffix(":").strip() if text.endswith("*") else text
    if not prefix:
        raise ValueError("it would allow every command; if that is meant, name the tool without parentheses")
    if prefix == text:
        return _parse_whole_command(text)
    parsed = parse_command(prefix)
    if parsed.problem is not None or len(parsed.parts) != 1 or not parsed.parts[0].is_bare:
        raise ValueError(f"{prefix!r} is not the beginning of one simple command")
    words = parsed.parts[0].words
    if any(word.wild >= 0 for word in words):
        raise ValueError(_STAR)
    if (why := explain_unsafe_prefix([word.text for word in words])) is not None:
        raise ValueError(f"{why}, so it cannot be allowed by how it begins; write the whole command without `*`")
    return AllowedCommand(text, words, prefix=True)


def _parse_whole_command(text: str) -> AllowedCommand:
    """Parse a rule without a trailing `*`: that exact text, or that exact simple command as a part of others."""
    parsed = parse_command(text)
    simple = parsed.problem is None and len(parsed.parts) == 1 and parsed.parts[0].is_bare
    words = [word for part in parsed.parts for word in part.words]
    if "*" in text and (not words or any(word.wild >= 0 and "*" in word.text[word.wild :] for word in words)):
        raise ValueError(_STAR)
    return AllowedCommand(text, tuple(words) if simple else (), prefix=False)


def explain_uncovered(
    rules: Sequence[AllowedCommand], command: str, parsed: ParsedCommand, folders: Sequence[str] = ()
) -> str | None:
    """Explain why these rules do not allow a command; `None` where they allow every part of it.

    `folders` are those of `PATH` that are in the workspace.
    """
    text = command.strip(_BLANKS)
    if any(not rule.prefix and rule.text == text for rule in rules):
        return None
    if parsed.problem is not None:
        return f"the command is not understood: {parsed.problem}"
    for part in parsed.parts:
        if (why := _explain_uncovered_part(rules, part, folders)) is not None:
            return why
    return None


def _explain_uncovered_part(rules: Sequence[AllowedCommand], part: Part, folders: Sequence[str]) -> str | None:
    if part.files:
        return f"it is redirected to or from {part.files[0]!r}"
    covering = [rule for rule in rules if rule.covers(part)]
    if not covering:
        return f"no rule allows {part.text!r:.200}"
    words = drop_global_options(part.words)
    if any(not rule.prefix for rule in covering):
        return explain_unsafe_pipe(words) if part.piped else None
    return (
        explain_unsafe_arguments(words)
        or explain_unsafe_inputs(words, part.inputs)
        or explain_program_folders(words, folders)
    )


@dataclass(frozen=True, slots=True)
class ForbiddenCommand:
    """A command of a `deny` or `ask` rule: the words it begins with, or pieces of text with anything between them.

    `hints` are the words of such a text, which may have `*` in them.
    """

    words: tuple[str, ...]
    open: bool = False
    pieces: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()

    def match(self, command: str, parsed: ParsedCommand) -> Match:
        """Whether any part of a command matches, or may match."""
        if len(command) > MAX_TEXT_LENGTH:
            return "maybe" if self.words or self.pieces else "yes"
        if self.pieces:
            texts = (command, *[part.text for part in parsed.parts], *map(" ".join, list_possible_commands(command)))
            found = any(_has_in_order(self.pieces, _normalize_spaces(text)) for text in texts)
        else:
            found = not self.words or any(self._is_among(words) for words in _list_candidates(command, parsed))
        if found:
            return "yes"
        unsure = (
            parsed.problem is not None
            or self._is_hinted_at(command, parsed)
            or self._is_spelled_otherwise(parsed)
            or self._is_in_text(parsed)
        )
        return "maybe" if unsure else "no"

    def _is_in_text(self, parsed: ParsedCommand) -> bool:
        """Whether a shell of the command may run one of its quoted texts as this command: `sh -c 'r$()m x'`."""
        words = [word for part in parsed.parts for word in part.words]
        if not any(runs_text(word.text) for word in words):
            return False
        texts = [word.text for word in words if word.quoted and word.text.strip()]
        return len(texts) > _MANY or any(self.match(text, parse_command(text)) != "no" for text in texts)

    def _is_hinted_at(self, command: str, parsed: ParsedCommand) -> bool:
        """Whether the words are in a text that a program of the command may run as a command."""
        if not self.words:
            return bool(self.hints) and all(_has_hint(hint, command, parsed) for hint in self.hints)
        commands = [[word.text for word in part.words] for part in parsed.parts]
        if any(_runs_script(words) for words in commands):
            return self._is_in(command, before="")  # in a sed script, a letter comes right before a command
        if any(takes_commands(words) for words in commands):
            return self._is_in(command, before=_BEFORE)
        texts = [_find_unknown(part.words) for part in parsed.parts]
        return any(text and self._is_in(text, before=rf"(?:{_BEFORE}|(?<=\s-[a-z]))") for text in texts)

    def _is_in(self, text: str, *, before: str) -> bool:
        after = [_AFTER] * (len(self.words) - 1) + ["" if self.open else _AFTER]
        text = fold_lookalikes(text)
        return all(
            re.search(f"{before}{re.escape(word)}{end}", text) for word, end in zip(self.words, after, strict=True)
        )

    def _is_spelled_otherwise(self, parsed: ParsedCommand) -> bool:
        """Whether a part may be the command with wildcards, a shortened subcommand or other names of options."""
        if not self.words:
            return False
        for part in parsed.parts:
            given = [word.text for word in part.words]
            for words in self._list_spellings(part.words):
                if (words != given and self._is_among(words)) or self._may_have_options(part.words, words):
                    return True
        return False

    def _list_spellings(self, words: Sequence[Word]) -> Iterator[list[str]]:
        """List what words may be: a wildcard may become a word of the rule and those after it, in names of files."""
        places = range(len(self.words) if any(word.wild >= 0 for word in words) else 1)
        for place in places:
            found: list[str] = []
            for word in words:
                if _may_become(word, self.words[place]):
                    found += self.words[place:]
                else:
                    found.append(self._complete(word))
            yield found

    def _complete(self, word: Word) -> str:
        """Find the word of the rule that a word may be short for; itself where there is none."""
        text = fold_lookalikes(word.text)
        if word.wild >= 0 or not text or text.startswith("-"):
            return word.text
        return next((wanted for wanted in self.words[1:] if wanted.startswith(text)), word.text)

    def _may_have_options(self, given: Sequence[Word], words: Sequence[str]) -> bool:
        """Whether it is the command but for its options, and each of those may be one of the command's by another name.

        For every option that is not known to be a different one the answer is yes.
        """
        options = [name for word in self.words[1:] if word.startswith("-") for name in _split_option(word)]
        plain = replace(self, words=tuple([word for word in self.words if not word.startswith("-")]))
        if not options or not plain._is_among(words):
            return False
        entry = find_entry([word.text for word in given])
        return all(any(_may_be(word, option, entry) for word in given[1:]) for option in options)

    def _is_among(self, words: Sequence[str]) -> bool:
        """Whether the words are the command; after a program that runs others, whether it begins at any word."""
        words = [fold_lookalikes(word) for word in words]
        starts = range(len(words) if _runs_others(words[0]) else 1)
        places = [start for start in starts if words[start].rpartition("/")[2].startswith(self.words[0])]
        # No real command looks like this, and checking every position would take long.
        return len(places) > _MANY or any(self._begins_at(words, start) for start in places)

    def _begins_at(self, words: Sequence[str], start: int) -> bool:
        wanted, *others = self.words
        name = words[start].rpartition("/")[2]
        if name == wanted or (self.open and not others):
            rest = words[start + 1 :]
        elif others and name.startswith(f"{wanted}-"):
            rest = [name[len(wanted) + 1 :], *words[start + 1 :]]  # `git-push` is another name of `git push`
        else:
            return False
        options = [word for word in others if word.startswith("-")]
        operands = [word for word in others if not word.startswith("-")]
        return _has_options(options, rest) and self._has_operands(operands, rest)

    def _has_operands(self, operands: Sequence[str], words: Sequence[str]) -> bool:
        """Whether the words come in this order, with only options and their values between them."""
        place = 0
        for number, operand in enumerate(operands):
            last = self.open and number == len(operands) - 1
            after_option = False
            while place < len(words):
                word = words[place]
                place += 1
                if word == operand or (last and word.startswith(operand)):
                    break
                if not word.startswith("-") and not after_option:
                    return False
                after_option = word.startswith("-")
            else:
                return False
        return True


def parse_forbidden_command(pattern: str) -> ForbiddenCommand:
    """Parse the parentheses of a `deny` or `ask` rule."""
    text = fold_lookalikes(pattern.strip())
    prefix = text.removesuffix("*")
    if "*" in prefix:
        pieces = _normalize_spaces(text).split("*")
        # A compound pattern is searched in the whole command, a single one in each part.
        hints = [word for word in _BETWEEN.sub(" ", _QUOTES.sub("", text)).split() if word.strip("*")]
        ends = ("",) if _BETWEEN.search(text) else ()
        return ForbiddenCommand((), pieces=(*ends, *pieces, *ends), hints=tuple(hints))
    joined = text.endswith("*") and prefix == prefix.strip() and not prefix.endswith(":")
    words = _QUOTES.sub("", prefix.removesuffix(":") if text != prefix else prefix).split()
    if not words and not text.endswith("*"):
        raise ValueError("it names no command")
    if words:
        words[0] = words[0].rpartition("/")[2] or words[0]
    return ForbiddenCommand(tuple(words), open=joined)


def _list_candidates(command: str, parsed: ParsedCommand) -> list[list[str]]:
    """List the words of everything in a command that may be run as a command."""
    found = [[word.text for word in part.words] for part in parsed.parts]
    found += [[*part.variables, *[word.text for word in part.words]] for part in parsed.parts if part.variables]
    if parsed.problem is not None or any(_runs_others(words[0]) for words in found):
        found += list_possible_commands(command)
    return found


def _normalize_spaces(text: str) -> str:
    """Normalize white space to one blank, also around separators of commands: `a|b` becomes `a | b`."""
    return " ".join(_BETWEEN.sub(r" \g<0> ", fold_lookalikes(text)).split())


def _has_in_order(pieces: Sequence[str], text: str) -> bool:
    """Whether the text consists of the pieces, in this order, with anything between them."""
    first, *middle, last = pieces
    if not text.startswith(first):
        return False
    place = len(first)
    for piece in middle:
        found = text.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return text.endswith(last) and len(text) - len(last) >= place


def _runs_others(program: str) -> bool:
    return program.rpartition("/")[2] == "find" or explain_runner(program) is not None


def _runs_script(words: Sequence[str]) -> bool:
    """Whether it is a sed command that may do more than print lines."""
    if words[0].rpartition("/")[2] not in ("sed", "gsed"):
        return False
    return explain_unsafe_arguments([Word(word) for word in words]) is not None


def _may_become(word: Word, wanted: str) -> bool:
    """Whether a word with a wildcard may become a word of a rule, in any folder."""
    if word.wild < 0:
        return False
    pattern = fold_lookalikes(word.text).replace("$?", "*")
    return fnmatchcase(wanted, pattern) or fnmatchcase(wanted, pattern.rpartition("/")[2])


def _has_hint(hint: str, command: str, parsed: ParsedCommand) -> bool:
    """Whether a word of a rule with wildcards is anywhere in a command, or a wildcard may become it."""
    text = fold_lookalikes(command)
    for form in (text, _QUOTES.sub("", text)):
        if "*" in hint and _has_in_order(("", *hint.split("*"), ""), form):
            return True
        if "*" not in hint and re.search(rf"(?<![\w.-]){re.escape(hint)}(?![\w./-])", form):
            return True
    words = [word for part in parsed.parts for word in part.words if word.text.strip("*")]
    return any(_may_become(word, hint.strip("*")) for word in words)


def _find_unknown(words: Sequence[Word]) -> str:
    """Find what a command may run: all words of a program that is not known, or all from its first option on."""
    program = words[0].text
    if find_program(program) is None and explain_runner(program) is None:
        return " " + " ".join([word.text for word in words[1:]])
    first = next((place for place, word in enumerate(words) if place and word.text.startswith("-")), 0)
    if not first or explain_unsafe_arguments(words) is None:
        return ""
    return " " + " ".join([word.text for word in words[first:]])


def _has_options(options: Sequence[str], words: Sequence[str]) -> bool:
    letters = set("".join([word[1:] for word in words if word.startswith("-") and not word.startswith("--")]))
    for option in options:
        if option.startswith("--"):
            if not any(_is_option(word, option) for word in words):
                return False
        elif not letters.issuperset(option[1:]) and option not in words:
            return False
    return True


def _is_option(word: str, option: str) -> bool:
    name = word.partition("=")[0]
    return name == option or (len(name) > 3 and name.startswith("--") and option.startswith(name))


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
