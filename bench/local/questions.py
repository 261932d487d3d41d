"""A question about a project, and the verdict on an answer: right, an honest "don't know", or confidently wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from bench.local.projects import Project, Tree

Verdict: TypeAlias = Literal["right", "unknown", "wrong"]
Kind: TypeAlias = Literal["says", "number", "file", "absent", "known"]
Truth: TypeAlias = str | Callable[[Tree], str | int]

# What the speaker did not find or does not know.
_UNKNOWN = re.compile(
    r"\bI (?:do not|don't|did not|didn't|could not|couldn't|cannot|can't) (?:know|find|tell|say|read|answer)"
    r"|not found|no (?:line|file|folder)\b.{0,80}\bmatch|no matches|did not work|not (?:sure|certain)"
    r"|(?:results?|files?|text) (?:do|does) not (?:say|contain|mention|show)",
    re.IGNORECASE | re.DOTALL,
)
# That there is no such thing: true of what is absent, a mistake about anything else.
_DENIAL = re.compile(
    r"\bno\b|\bnot\b|n't\b|\bnone\b|\bnothing\b|\bnever\b|\b0\b|\bzero\b|without|unspecified|missing", re.IGNORECASE
)
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER = re.compile(rf"(?<![\w.])(\d[\d,]*|{'|'.join(_NUMBERS)})(?![\w]|\.\d)", re.IGNORECASE)
_FILE = re.compile(r"[\w./-]*[\w-]+\.[A-Za-z]\w*|\b(?:Makefile|Dockerfile|LICENSE|README|CHANGES)\b")


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt about a project, the kind of its answer, and the truth.

    The kinds: `says` a pattern; a `number`, the first in the answer that is not part of the prompt; a `file`, the
    first one named that the prompt does not name; `absent`, so that only a denial or a "don't know" is right;
    `known` to everybody, so that the project is not needed.
    """

    project: Project
    prompt: str
    kind: Kind
    truth: Truth = ""
    wrong: str = ""

    def find_truth(self, tree: Tree) -> str:
        """The truth about a project, which is to be found before an agent may change it."""
        return str(self.truth(tree) if callable(self.truth) else self.truth)

    def judge(self, text: str, truth: str) -> Verdict:
        """The verdict on an answer."""
        if self.kind == "absent":
            wrong = self.wrong and re.search(self.wrong, text, re.IGNORECASE)
            return "right" if not wrong and (_UNKNOWN.search(text) or _DENIAL.search(text)) else "wrong"
        if _is_unknown(text):
            return "unknown"
        if self.wrong and re.search(self.wrong, text, re.IGNORECASE):
            return "wrong"
        return "right" if self._says(text, truth) else "unknown" if _UNKNOWN.search(text) else "wrong"

    def _says(self, text: str, truth: str) -> bool:
        match self.kind:
            case "number":
                numbers = [_to_digits(found) for found in _NUMBER.findall(text)]
                asked = [_to_digits(found) for found in _NUMBER.findall(self.prompt)]
                return next((number for number in numbers if number not in asked), None) == truth
            case "file":
                named = [name for name in _FILE.findall(text) if name not in self.prompt]
                return bool(named) and re.search(truth, named[0]) is not None
            case _:
                return re.search(truth, text, re.IGNORECASE | re.DOTALL) is not None


def _is_unknown(text: str) -> bool:
    """Whether an answer begins with what the speaker does not know."""
    return _UNKNOWN.search(re.split(r"(?<=[.!?])\s", text.strip(), maxsplit=1)[0]) is not None


def _to_digits(text: str) -> str:
    lower = text.lower().replace(",", "")
    return str(_NUMBERS.index(lower)) if lower in _NUMBERS else lower
