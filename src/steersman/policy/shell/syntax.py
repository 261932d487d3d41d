"""Parses a shell command in two ways: strictly, for what it surely runs, and loosely, for everything it may run.

The strict parser knows plain words, quotes without expansion, separators of commands, the simplest redirections, and
variables that change no program. It rejects everything else, also where shells disagree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import dropwhile

from steersman.policy.patterns import MAX_TEXT_LENGTH

# Reserved words at the start of a command; `time` and `coproc` run the command after them.
_RESERVED = re.compile(
    r"if|then|elif|else|fi|for|while|until|do|done|case|esac|in|select|function|time|coproc|\[\[|\]\]|[{}!]"
)
_NOWHERE = "/dev/null"
_COMMAND = re.compile(r"[A-Za-z0-9_./+-]+")
# Variables before a command that change how its output looks, and no more.
_VARIABLE = re.compile(
    r"(?:CI|NO_COLOR|FORCE_COLOR|PYTHONDONTWRITEBYTECODE)=(?:[01]|true|false)|"
    r"NODE_ENV=(?:test|development|production)|(?:GIT_|GH_)?PAGER=cat|(?:LANG|LC_ALL)=(?:C|C\.UTF-8)"
)
_REDIRECTIONS = frozenset((">", "1>", "2>", ">>", "1>>", "2>>", "<", ">&1", ">&2", "1>&2", "2>&1"))

# All tokens of a command, in the order in which they are tried. What no line matches is not understood:
# `$` (but for `$?`, a number), backticks, most backslashes, parentheses, braces (but for `HEAD@{1}`), `!`, heredocs,
# comments, `?`, `[` and characters beyond ASCII without quotes, `~` and `=` at the start of a word. To some shells,
# `&>` ends a command, and what comes after the file is another one.
_TOKEN = re.compile(
    r"""
    (?P<blank>    [ \t]+ )
  | (?P<dup>      [0-9]*>&[0-9](?=[ \t\n;&|]|\Z) )
  | (?P<silence>  &>[ \t]*/dev/null(?=[ \t]*(?:[\n;|]|&&|\Z)) )
  | (?P<redirect> [0-9]*(?:>>?|<)[ \t]* )
  | (?P<line>     \n )
  | (?P<both>     &&|\|\| )
  | (?P<end>      [;&] )
  | (?P<pipe>     \| )
  | (?P<single>   '[^'\n]*' )
  | (?P<double>   "(?:[^"\\$`!\n]|\$\?|\\[^"\\$`!\n])*" )
  | (?P<escaped>  \\[()!*.] )
  | (?P<status>   \$\? )
  | (?P<tilde>    (?<=[A-Za-z0-9_\-./^@+%,])~ )
  | (?P<braced>   (?<=@)\{[A-Za-z0-9-]+\} )
  | (?P<bare>     [A-Za-z0-9_\-./:,+%@]+ )
  | (?P<inner>    [=^] )
  | (?P<glob>     \* )
    """,
    re.VERBOSE,
)


_IN_WORDS = frozenset(("single", "double", "escaped", "status", "tilde", "braced", "bare", "inner", "glob"))


@dataclass(frozen=True, slots=True)
class Word:
    """A word as the program gets it, but for what the shell still expands.

    `wild` is the position of the first of that: an unquoted `*` or `$?`, -1 for none.
    """

    text: str
    wild: int = -1
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One simple command of a compound command.

    `inputs` are the files that it reads as its input, `files` those of all other redirections, `variables` those that
    are set for it, and `piped` says whether it reads what the part before it writes.
    """

    words: tuple[Word, ...]
    files: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    piped: bool = False

    @property
    def is_bare(self) -> bool:
        """Whether the words are all of the command."""
        return not self.files and not self.inputs and not self.variables

    @property
    def text(self) -> str:
        """The words with single blanks between them."""
        return " ".join([word.text for word in self.words])


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A parsed command: its parts, or why it was not understood."""

    parts: tuple[Part, ...] = ()
    problem: str | None = None


class _NotUnderstood(Exception):
    """Something that the strict parser does not understand."""


def parse_command(command: str) -> ParsedCommand:
    """Parse a command strictly into its parts; `problem` says why it was not understood."""
    if len(command) > MAX_TEXT_LENGTH:
        return ParsedCommand(problem=f"it is longer than {MAX_TEXT_LENGTH:,} characters")
    if not command.isprintable():
        for character in command:
            if not character.isprintable() and character not in "\n\t":
                return ParsedCommand(problem=f"it has the invisible character {character!a}")
    try:
        return ParsedCommand(tuple(_StrictParser(command).parse()))
    except _NotUnderstood as error:
        return ParsedCommand(problem=str(error))


class _StrictParser:
    """One pass over a command."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.parts: list[Part] = []
        self.words: list[Word] = []
        self.files: list[str] = []
        self.inputs: list[str] = []
        self.variables: list[str] = []
        self.pieces: list[str] = []
        self.size = 0
        self.wild = -1
        self.quoted = False
        self.into = ""  # the redirection whose file is being read
        self.joined = False  # whether the last separator wants another command after it
        self.piped = False  # whether that separator was a pipe

    def parse(self) -> list[Part]:
        position, command = 0, self.command
        while position < len(command):
            match = _TOKEN.match(command, position)
            if match is None:
                raise _NotUnderstood(_describe_unknown(command[position]))
            kind = match.lastgroup or ""
            if kind in _IN_WORDS:
                self._extend_word(kind, match[0])
            elif self.pieces and match[0][0].isdigit():
                # Digits after a word belong to the word; only on their own do they belong to a redirection.
                raise _NotUnderstood(f"{match[0].strip()!r} inside a word is not understood")
            else:
                self._close_word()
                self._separate(kind, match[0])
            position = match.end()
        self._close_word()
        self._close_part(ends=True)
        if self.joined or not self.parts:
            raise _NotUnderstood("a command is missing")
        return self.parts

    def _extend_word(self, kind: str, text: str) -> None:
        if kind in ("single", "double"):
            self.quoted = True
            text = text[1:-1]
            if kind == "double" and "$?" in text and self.wild < 0:
                self.wild = self.size + text.index("$?")
        elif kind == "escaped":
            self.quoted = True
            text = text[1:]
        elif kind == "inner" and not self.pieces:
            raise _NotUnderstood(f"{text!r} at the start of a word is not understood")
        elif kind in ("glob", "status") and self.wild < 0:
            self.wild = self.size
        self.pieces.append(text)
        self.size += len(text)

    def _separate(self, kind: str, text: str) -> None:
        if kind == "blank":
            return
        if kind in ("dup", "silence", "redirect"):
            if not self.words or self.into or (kind != "silence" and text.strip() not in _REDIRECTIONS):
                raise _NotUnderstood(f"the redirection {text.strip()!r} is not understood here")
            self.into = text.strip() if kind == "redirect" else ""
            return
        if kind == "line":
            # After `&&`, `||` and `|` the command continues on the next line.
            self._close_part(ends=True)
            return
        self._close_part(ends=False)
        self.joined = kind != "end"
        self.piped = kind == "pipe"

    def _close_word(self) -> None:
        if not self.pieces:
            return
        word = Word("".join(self.pieces), self.wild, self.quoted)
        self.pieces, self.size, self.wild, self.quoted = [], 0, -1, False
        if self.into:
            plain = self.into == "<" and word.wild < 0
            self.into = ""
            if word.text != _NOWHERE:
                (self.inputs if plain else self.files).append(word.text)
            return
        if not self.words and not word.quoted and _VARIABLE.fullmatch(word.text):
            self.variables.append(word.text)
            return
        if not self.words:
            _check_command(word)
        self.words.append(word)

    def _close_part(self, *, ends: bool) -> None:
        if self.into:
            raise _NotUnderstood("a redirection has no file")
        if self.words:
            self.parts.append(
                Part(tuple(self.words), tuple(self.files), tuple(self.inputs), tuple(self.variables), self.piped)
            )
            self.words, self.files, self.inputs, self.variables = [], [], [], []
            self.joined, self.piped = False, False
        elif not ends or self.variables:
            raise _NotUnderstood("a command is missing")


def _describe_unknown(character: str) -> str:
    if character in "\"'":
        return f"a text in {character} has no end, more than one line, or something that expands in it"
    return f"{character!r} is not understood here"


def _check_command(word: Word) -> None:
    if word.quoted or word.wild >= 0 or not _COMMAND.fullmatch(word.text) or _RESERVED.fullmatch(word.text):
        raise _NotUnderstood(f"{word.text!r:.200} is not the plain name of a program")


_BOUNDARY = re.compile(r"[;&|(){}<>`$\n\r]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


def _leads_on(word: str) -> bool:
    """Whether a command may come after a word: a reserved one, or a variable."""
    return _RESERVED.fullmatch(word) is not None or _ASSIGNMENT.match(word) is not None


def list_possible_commands(command: str) -> list[list[str]]:
    """List the words of everything in a command that may be run, whatever quotes and constructs are around it."""
    bare = re.sub(r"\\\n", "", command)
    found: dict[tuple[str, ...], list[str]] = {}
    # Once with the quotes removed, which joins words, and once with blanks instead, which splits them.
    for text in (re.sub(r"[\"'\\]", "", bare), re.sub(r"\$?['\"]|\\", " ", bare)):
        for chunk in _BOUNDARY.split(text):
            words = [*dropwhile(_leads_on, chunk.split())]
            if words:
                found[tuple(words)] = words
    return list(found.values())
