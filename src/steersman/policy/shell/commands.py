"""Matches shell commands against rules of `allow`: strictly, word by word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steersman.policy.shell.prefix_rules import (
    drop_global_options,
    explain_program_folders,
    explain_unknown_program,
    explain_unsafe_arguments,
    explain_unsafe_inputs,
    explain_unsafe_pipe,
    explain_unsafe_prefix,
)
from steersman.policy.shell.syntax import ParsedCommand, Part, Word, parse_command

_BLANKS = " \t\n"  # to a shell, any other white space is part of a word
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


class AllowedCommands:
    """The commands of all `allow` rules: different rules may allow the parts of a command.

    `folders` are those of `PATH` that are in the workspace.
    """

    __slots__ = ("_by_words", "_folders", "_sizes", "_texts")

    def __init__(self, rules: Sequence[AllowedCommand], folders: Sequence[str] = ()) -> None:
        self._texts = frozenset([rule.text for rule in rules if not rule.prefix])
        self._folders = folders
        self._by_words: dict[Sequence[Word], list[AllowedCommand]] = {}
        for rule in rules:
            if rule.words:
                self._by_words.setdefault(rule.words, []).append(rule)
        self._sizes = sorted({len(words) for words in self._by_words})

    def explain_uncovered(self, command: str, parsed: ParsedCommand) -> str | None:
        """Explain why the rules do not allow a command; `None` where they allow every part of it."""
        if command.strip(_BLANKS) in self._texts:
            return None
        if parsed.problem is not None:
            return f"the command is not understood: {parsed.problem}"
        # A part that comes again is judged once: what is decided about it depends on nothing else.
        for part in dict.fromkeys(parsed.parts):
            if (why := self._explain_uncovered_part(part)) is not None:
                return why
        return None

    def _explain_uncovered_part(self, part: Part) -> str | None:
        if part.files:
            return f"it is redirected to or from {part.files[0]!r:.200}"
        words = drop_global_options(part.words)
        beginnings = {each[:size] for each in (part.words, words) for size in self._sizes}
        near = [rule for beginning in beginnings for rule in self._by_words.get(beginning, ())]
        covering = [rule for rule in near if rule.covers(part)]
        if not covering:
            return f"no rule allows {part.text!r:.200}"
        if any(not rule.prefix for rule in covering):
            return explain_unsafe_pipe(words) if part.piped else None
        return (
            explain_unsafe_arguments(words)
            or explain_unsafe_inputs(words, part.inputs)
            or explain_program_folders(words, self._folders)
        )
