"""A shell command as the rules of `deny` and `ask` see it: what they look for is found once, for all of them.

A command may have thousands of parts, and a policy thousands of rules. Parts with the same words are one part here, and
a rule is compared only with those parts in which its program may be.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import pairwise
from typing import Generic, TypeVar

from steersman.policy.patterns import MAX_TEXT_LENGTH, fold_lookalikes
from steersman.policy.shell.prefix_rules import explain_unsafe_arguments
from steersman.policy.shell.programs import explain_runner, runs_text, takes_commands
from steersman.policy.shell.syntax import Word, list_possible_commands, parse_command
from steersman.policy.shell.table import Entry, find_entry, find_program

MANY = 50
"""How many places in a command are looked at one by one; no real command has more of them."""

BETWEEN = re.compile(r"[|&;<>()`]+")
QUOTES = re.compile(r"[\"'\\]")
_SPECIAL = re.compile(r"[*?\[]")
_DASH = re.compile("-")
_Item = TypeVar("_Item")


class Candidate:
    """Words that may be run as a command; they have no differences of case and look-alike characters (folded).

    `names` are those of the programs with which a command may begin: of the first word and, where that runs other
    programs, of every word.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.runs_others = _runs_others(self.words[0])
        self.names = [word.rpartition("/")[2] for word in (self.words if self.runs_others else self.words[:1])]

    def has_options(self, options: Iterable[str], start: int) -> bool:
        """Whether all these options are among the words after a place; letters may share a dash."""
        letters = self._letters[start + 1]
        return all(
            self._has_long_option(option, start) if option.startswith("--") else letters.issuperset(option[1:])
            for option in options
        )

    def _has_long_option(self, option: str, start: int) -> bool:
        """Whether a long option, or the beginning of one, is among the words after a place, with the same value."""
        name, equals, value = option.partition("=")
        names = (name, *[name[:size] for size in range(4, len(name))])
        if equals:
            return any(self._last_values.get((each, value), -1) > start for each in names)
        return any(self._last_places.get(each, -1) > start for each in names)

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Each word with the one after it."""
        return [*pairwise(self.words)]

    @cached_property
    def unmarked(self) -> Candidate:
        """The words without `+` and `:` in front of them; the same one if there are none."""
        words = [word.lstrip("+:") or word for word in self.words]
        return self if words == [*self.words] else Candidate(words)

    @cached_property
    def dashed(self) -> str:
        """The words that begin with a dash, one in each line."""
        return "\n".join([word for word in self.words if word.startswith("-")])

    @cached_property
    def _letters(self) -> list[frozenset[str]]:
        """The letters of the options from each place on."""
        found = [frozenset[str]()] * (len(self.words) + 1)
        for place in range(len(self.words) - 1, -1, -1):
            word, after = self.words[place], found[place + 1]
            is_short = word.startswith("-") and not word.startswith("--")
            found[place] = after if not is_short or after.issuperset(word[1:]) else after.union(word[1:])
        return found

    @cached_property
    def _last_places(self) -> dict[str, int]:
        """The last place of each long option, without its value."""
        names = [(word.partition("=")[0], place) for place, word in enumerate(self.words) if word.startswith("--")]
        return dict(names)

    @cached_property
    def _last_values(self) -> dict[tuple[str, str], int]:
        """The last place of each long option with its value, which is in the same word or the next."""
        found: dict[tuple[str, str], int] = {}
        for place, word in enumerate(self.words):
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                found[name, value if equals else "".join(self.words[place + 1 : place + 2])] = place
        return found


class Wildcard:
    """A word with a wildcard: patterns for what it may become, as it is and in any folder."""

    def __init__(self, word: Word) -> None:
        self.word = word
        # Quotes were removed, so that other wildcards of the shell are text here, and count as wildcards to be safe.
        pattern = fold_lookalikes(word.text).replace("$?", "*")
        self._patterns = tuple(dict.fromkeys((pattern, pattern.rpartition("/")[2])))

    def list_heads(self) -> list[str]:
        """List the texts with which what it may become begins."""
        return [_SPECIAL.split(pattern, maxsplit=1)[0] for pattern in self._patterns]

    def may_become(self, wanted: str) -> bool:
        """Whether it may become a word of a rule."""
        return any(
            fnmatchcase(wanted, pattern)
            if "?" in pattern or "[" in pattern
            else has_in_order(pattern.split("*"), wanted)
            for pattern in self._patterns
        )


class PartView:
    """A part of a command, as strictly parsed."""

    def __init__(self, words: tuple[Word, ...]) -> None:
        self.words = words
        self.texts = [word.text for word in words]
        self.wild_words = [*dict.fromkeys(word for word in words if word.wild >= 0)]
        self.candidate = Candidate(_fold(self.texts))

    @cached_property
    def folded(self) -> frozenset[str]:
        """The words without differences of case."""
        return frozenset(self.candidate.words)

    @cached_property
    def marked(self) -> list[Word]:
        """The words after the program that may be options, or do the same as an option."""
        return [
            *dict.fromkeys(word for word in self.words[1:] if word.wild == 0 or word.text.startswith(("-", "+", ":")))
        ]

    @cached_property
    def entry(self) -> Entry | None:
        """What the tables know about the command."""
        return find_entry(self.texts)


class _NameIndex(Generic[_Item]):
    """Finds things by the beginning of one of their names."""

    def __init__(self, items: Iterable[tuple[_Item, Sequence[str]]]) -> None:
        self._items: dict[str, list[_Item]] = {}
        for item, names in items:
            for name in dict.fromkeys(names):
                self._items.setdefault(name, []).append(item)
        self._names = sorted(self._items)

    def find(self, start: str) -> Iterator[_Item]:
        """Find what has a name that begins like this; what has several is found several times."""
        for place in range(bisect_left(self._names, start), len(self._names)):
            if not (name := self._names[place]).startswith(start):
                return
            yield from self._items[name]


class CommandView:
    """A shell command, parsed strictly, and what it may run. All of it is found on first use, and once."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.is_too_long = len(command) > MAX_TEXT_LENGTH
        self.parsed = parse_command(command)
        self._becoming: dict[str, frozenset[Word]] = {}

    @cached_property
    def folded(self) -> str:
        """The command without differences of case."""
        return fold_lookalikes(self.command)

    @cached_property
    def unquoted(self) -> str:
        """The folded command without quotes."""
        return QUOTES.sub("", self.folded)

    @cached_property
    def parts(self) -> list[PartView]:
        """The parts, each once."""
        return [PartView(words) for words in dict.fromkeys(part.words for part in self.parsed.parts)]

    @cached_property
    def parts_by_program(self) -> dict[str, list[PartView]]:
        """The parts by their first word, without differences of case."""
        found: dict[str, list[PartView]] = {}
        for part in self.parts:
            found.setdefault(part.candidate.words[0], []).append(part)
        return found

    @cached_property
    def runner_parts(self) -> list[PartView]:
        """The parts that may run others, from any of their words on."""
        return [part for part in self.parts if part.candidate.runs_others]

    def find_parts(self, start: str) -> Iterator[PartView]:
        """Find the parts in which a command may begin with a program whose name begins like this."""
        return self._part_index.find(start)

    @cached_property
    def _part_index(self) -> _NameIndex[PartView]:
        return _NameIndex((part, part.candidate.names) for part in self.parts)

    def find_candidates(self, start: str) -> list[Candidate]:
        """Find everything that may be run and in which a command may begin with a program of such a name."""
        return list(dict.fromkeys(self._candidate_index.find(start)))

    @cached_property
    def _candidate_index(self) -> _NameIndex[Candidate]:
        return _NameIndex((each, each.names) for each in self._candidates)

    @cached_property
    def _candidates(self) -> list[Candidate]:
        found = [part.candidate for part in self.parts]
        more = [(*part.variables, *[word.text for word in part.words]) for part in self.parsed.parts if part.variables]
        found += [Candidate(_fold(words)) for words in dict.fromkeys(more)]
        if (
            self.parsed.problem is not None
            or any(_runs_others(part.texts[0]) for part in self.parts)
            or any(_runs_others(words[0]) for words in more)
        ):
            found += [Candidate(_fold(words)) for words in self._possible_commands]
        return found

    @cached_property
    def _words(self) -> frozenset[str]:
        """The words of everything that may be run, also those behind a sign: `git-push` is `git push`."""
        words = {word for each in self._candidates for word in each.words}
        words |= {word.lstrip("+:") for word in words if word.startswith(("+", ":"))}
        dashed = {name for each in self._candidates for name in each.names if "-" in name}
        behind = {name[match.end() :] for name in dashed for match in _DASH.finditer(name)}
        return frozenset(words | behind)

    @cached_property
    def _is_crowded(self) -> bool:
        return any(len(each.words) > MANY for each in self._candidates)

    def may_have(self, kinds: Iterable[frozenset[str]]) -> bool:
        """Whether the command has a word of each of these kinds, or so many words that not each is looked at."""
        return self._is_crowded or not any(kind.isdisjoint(self._words) for kind in kinds)

    @cached_property
    def _possible_commands(self) -> list[list[str]]:
        return list_possible_commands(self.command)

    def has_in_order(self, pieces: Sequence[str]) -> bool:
        """Whether the command, or something in it that may be run, consists of these pieces in this order.

        It has a blank at both ends.
        """
        if not all(piece in self._all_texts for piece in pieces):
            return False
        return any(has_in_order(pieces, text) for text in self._texts)

    @cached_property
    def _texts(self) -> list[str]:
        parts = [part.text for part in self.parsed.parts]
        texts = dict.fromkeys((self.command, self.unquoted, *parts, *map(" ".join, self._possible_commands)))
        return [f" {text} " for text in dict.fromkeys(map(normalize_spaces, texts))]

    @cached_property
    def _all_texts(self) -> str:
        return "\n".join(self._texts)

    @cached_property
    def runs_script(self) -> bool:
        """Whether a part is a sed command that may do more than print lines."""
        return any(
            part.texts[0].rpartition("/")[2] in ("sed", "gsed")
            and explain_unsafe_arguments([Word(text) for text in part.texts]) is not None
            for part in self.parts
        )

    @cached_property
    def takes_commands(self) -> bool:
        """Whether a part may run a text as a command."""
        return any(takes_commands(part.texts) for part in self.parts)

    @cached_property
    def unknown_texts(self) -> list[str]:
        """What programs that are not known may run as a command, each once and without differences of case."""
        found = dict.fromkeys(_find_unknown(part.words) for part in self.parts)
        return list(dict.fromkeys(fold_lookalikes(text) for text in found if text))

    @cached_property
    def all_unknown_texts(self) -> str:
        """All of these texts, one in each line."""
        return "\n".join(self.unknown_texts)

    @cached_property
    def shell_texts(self) -> list[CommandView] | None:
        """The quoted texts that a shell of the command may run; `None` where they are too many to look at."""
        words = [word for part in self.parts for word in part.words]
        if not any(runs_text(text) for text in dict.fromkeys(word.text for word in words)):
            return []
        quoted = [word.text for part in self.parsed.parts for word in part.words if word.quoted and word.text.strip()]
        return None if len(quoted) > MANY else [CommandView(text) for text in dict.fromkeys(quoted)]

    @cached_property
    def wild_words(self) -> list[Word]:
        """The words with wildcards, each once."""
        return [*dict.fromkeys(word for part in self.parts for word in part.wild_words)]

    def find_becoming(self, wanted: str) -> frozenset[Word]:
        """Find the words with wildcards that may become this one."""
        if (found := self._becoming.get(wanted)) is None:
            beginnings = [wanted[:size] for size in range(len(wanted) + 1)]
            near = [wildcard for beginning in beginnings for wildcard in self._wildcards.get(beginning, ())]
            found = frozenset([wildcard.word for wildcard in near if wildcard.may_become(wanted)])
            self._becoming[wanted] = found
        return found

    @cached_property
    def _wildcards(self) -> dict[str, list[Wildcard]]:
        """The wildcards by the texts with which what they become begins."""
        found: dict[str, list[Wildcard]] = {}
        for wildcard in map(Wildcard, self.wild_words):
            for head in wildcard.list_heads():
                found.setdefault(head, []).append(wildcard)
        return found

    def find_wild_parts(self, wanted: str) -> list[PartView]:
        """Find the parts that may run others and have a word that may become this one."""
        becoming = self.find_becoming(wanted)
        return [part for part in self.runner_parts if becoming and not becoming.isdisjoint(part.wild_words)]


def _fold(words: Iterable[str]) -> list[str]:
    return [fold_lookalikes(word) for word in words]


def normalize_spaces(text: str) -> str:
    """Normalize white space to one blank, also around separators of commands: `a|b` becomes `a | b`."""
    return " ".join(BETWEEN.sub(r" \g<0> ", fold_lookalikes(text)).split())


def has_in_order(pieces: Sequence[str], text: str) -> bool:
    """Whether the text consists of the pieces, in this order, with anything between them."""
    if len(pieces) == 1:
        return text == pieces[0]
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


def _find_unknown(words: Sequence[Word]) -> str:
    """Find what a command may run: all words of a program that is not known, or all from its first option on."""
    program = words[0].text
    if find_program(program) is None and explain_runner(program) is None:
        return " " + " ".join([word.text for word in words[1:]])
    first = next((place for place, word in enumerate(words) if place and word.text.startswith("-")), 0)
    if not first or explain_unsafe_arguments(words) is None:
        return ""
    return " " + " ".join([word.text for word in words[first:]])
