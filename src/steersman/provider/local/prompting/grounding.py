"""Checks an answer against what was looked at: names, files and numbers that occur nowhere there are invented.

A sentence that only repeats the question is no answer either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from steersman.provider.local.prompting.answer import Turn
from steersman.provider.local.prompting.findings import Hit, is_nothing, parse_search
from steersman.provider.local.prompting.question import Question, expand_term, parse_question, strip_stem

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)*(?!\w)")
_QUOTED = re.compile(r"`([^`]+)`")
_NAME = re.compile(
    r"(?<![\w./-])(?:[\w.-]*/[\w./-]*\w|[\w-]+\.[A-Za-z]\w*|\w+_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*)(?![\w/])"
)
_PROPER = re.compile(r"(?<=[a-z,;:] )[A-Z][\w-]{2,}")
_WORD = re.compile(r"[A-Za-z]{4,}")
_WORDS = re.compile(r"\w+")
# Neither the number of a list's item nor a colon before a list ends a sentence.
_SENTENCE = re.compile(r"(?<=[.!?])(?<!\b\d\.)(?<!\b\d\d\.)[ \t]+|(?<!:)\n+(?!\s)")
_ITEM = re.compile(r"^\s*(?:\d{1,2}[.)]|[-*])\s+", re.MULTILINE)
# Words that say nothing about the project by themselves.
_COMMON_TEXT = "python javascript typescript json yaml markdown http https html url api readme the yes"
_COMMON = frozenset(_COMMON_TEXT.split())
_PHRASES_TEXT = (
    "about also answer based called case code contains defined describes designed does file files following found "
    "from function have here includes information into line lines located mentioned named only project provided "
    "provides question result results returns says specified such that their there these they this used uses using "
    "value which with would your implemented class method return given when where whether set contain purpose "
    "program package libraries library module number which while means each both other same some more than them "
    "then will been being because between checks check make makes made takes take handle handles allow allows "
    "create creates ensure"
)
_PHRASES = frozenset(_PHRASES_TEXT.split())
_LEAST_SHARE, _FEW_WORDS = 0.45, 4
_NEAR = 2


@dataclass(slots=True)
class Evidence:
    """What an answer may be made of: the question, the calls and the results of a conversation."""

    question: Question
    text: str
    lines: list[str]
    numbers: frozenset[str]
    stems: frozenset[str]
    strict: bool = False
    """Whether a number has to stand near a word of the question."""
    patterns: list[str] = field(default_factory=list[str])


def collect_evidence(turns: Sequence[Turn]) -> Evidence:
    """The evidence for the answer to the last turn."""
    question = parse_question("\n".join(turns[-1].asked))
    lines: list[str] = []
    said: list[str] = []
    for turn in turns:
        said += [*turn.asked, turn.answer]
        for step in turn.steps:
            said.append(step.arguments)
            if step.name == "search" and not step.failed:
                lines += _separate_hits(parse_search(step.result).hits)
            elif not is_nothing(step.result):
                lines += step.result.splitlines()
    text = "\n".join([*said, *lines])
    read = any(step.name == "read" for step in turns[-1].steps)
    return Evidence(
        question,
        text.lower(),
        lines,
        frozenset(_to_number(found) for found in _NUMBER.findall(re.sub(r"(?<=\w)[_-](?=\d)|(?<=\d)[_-]", " ", text))),
        frozenset(strip_stem(word) for word in _WORD.findall(text)),
        strict=question.kind in ("topic", "open") and question.is_lookup and not read,
        patterns=[expand_term(term) for term in question.terms],
    )


def _separate_hits(hits: Sequence[Hit]) -> Iterator[str]:
    """The lines of a search, with empty ones between those that are not close to each other."""
    before: Hit | None = None
    for hit in hits:
        if before is not None and (hit.path != before.path or hit.line > before.line + _NEAR):
            yield from [""] * _NEAR
        yield f"{hit.path}: {hit.line}: {hit.text}"
        before = hit


def find_invention(sentence: str, evidence: Evidence) -> str | None:
    """The first name or number of a sentence that the evidence does not have; `None` if all are there."""
    sentence = _ITEM.sub("", sentence)
    for number in _NUMBER.findall(sentence):
        if not _supports_number(_to_number(number), evidence):
            return number
    names = [word for quoted in _QUOTED.findall(sentence) for word in quoted.split()]
    for name in [*names, *_NAME.findall(sentence), *_PROPER.findall(sentence)]:
        bare = name.strip("`'\"().,:;*#<>[]{}").lower()
        if bare and bare not in evidence.text and bare not in _COMMON:
            return name
    if not evidence.question.is_lookup:
        return None
    words = [word for word in map(str.lower, _WORD.findall(sentence)) if word not in _PHRASES]
    known = [word for word in words if strip_stem(word) in evidence.stems or word in evidence.text]
    if len(words) >= _FEW_WORDS and len(known) < _LEAST_SHARE * len(words):
        return next(word for word in words if word not in known)
    return None


def repeats_question(sentence: str, question: Question) -> bool:
    """Whether a sentence says no more than the question did."""
    said = _WORDS.findall(parse_question(sentence).text.lower())
    return bool(said) and said == _WORDS.findall(question.text.lower())


def _supports_number(number: str, evidence: Evidence) -> bool:
    if number not in evidence.numbers and not re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", evidence.text):
        return False
    if not evidence.strict or re.search(rf"(?<!\d){re.escape(number)}(?!\d)", evidence.question.text):
        return True
    for index, line in enumerate(evidence.lines):
        if re.search(rf"(?<!\d){re.escape(number)}(?!\d)", line.replace(",", "")):
            near = "\n".join(evidence.lines[max(0, index - _NEAR) : index + _NEAR + 1])
            if any(re.search(pattern, near, re.IGNORECASE) for pattern in evidence.patterns):
                return True
    return False


def _to_number(text: str) -> str:
    return text.replace(",", "").rstrip(".")


class SentenceGate:
    """Lets an answer through sentence by sentence; after the first invention or echo of the question nothing more."""

    def __init__(self, evidence: Evidence) -> None:
        self.released = ""
        self.refused: str | None = None
        self._evidence = evidence
        self._held: list[str] = []

    def feed(self, piece: str) -> list[str]:
        """Take the next piece of the answer; the pieces that may be shown now."""
        if self.refused is not None:
            return []
        self._held.append(piece)
        text = "".join(self._held)
        ends = [found.end() for found in _SENTENCE.finditer(text)]
        return self._release(text, ends[-1]) if ends else []

    def finish(self) -> list[str]:
        """The rest, at the end of the answer."""
        text = "".join(self._held)
        return self._release(text, len(text)) if text and self.refused is None else []

    def _release(self, text: str, end: int) -> list[str]:
        for sentence in _SENTENCE.split(text[:end]):
            echo = sentence if repeats_question(sentence, self._evidence.question) else None
            self.refused = self.refused or echo or find_invention(sentence, self._evidence)
        if self.refused is not None:
            return []
        pieces, left = list[str](), end
        while left and self._held:
            piece = self._held.pop(0)
            if len(piece) > left:
                self._held.insert(0, piece[left:])
                piece = piece[:left]
            pieces.append(piece)
            left -= len(piece)
        self.released += text[:end]
        return pieces
