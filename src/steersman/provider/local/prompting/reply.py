"""Replies that need no model: where something is, how many there are, and what was looked at in vain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from steersman.provider.local.prompting.answer import Step
from steersman.provider.local.prompting.findings import Found, Hit, is_nothing, parse_search
from steersman.provider.local.prompting.question import Question, expand_term

_SHOWN = 10
_NEAREST = 5
_LINE = 200
_IMPORTS = re.compile(r"\b(?:import|require|include|use|from)\b")


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    text: str


def describe_definitions(question: Question, definitions: Sequence[Hit], found: Found) -> str:
    """Where a name is defined; without a definition, where it is mentioned."""
    name = question.name
    if not definitions:
        count = _count(len(found.files), "file")
        text = f"I found no definition of {format_code(name)}. It is mentioned in {count}:"
        return text + _quote([hit for hit in found.hits if hit.exact][:_NEAREST])
    known = sorted(definitions, key=lambda hit: "test" in hit.path)[:_SHOWN]
    verb = "is set" if question.kind == "value" else "is defined"
    yes = "Yes. " if re.match(r"(?:is|are) there", question.text, re.IGNORECASE) else ""
    if len(known) == 1:
        return f"{yes}{format_code(name)} {verb} in {format_code(known[0].path)}, line {known[0].line}:" + _quote(
            known, place=False
        )
    return (
        f"{yes}{format_code(name)} {verb} in {format_code(known[0].path)}, line {known[0].line}, and in other places:"
        + _quote(known)
    )


def describe_mentions(question: Question, found: Found, steps: Sequence[Step]) -> str:
    """Which files mention a name."""
    hits = [hit for hit in found.hits if hit.exact]
    if " import" in question.text:
        hits = [hit for hit in hits if _IMPORTS.search(hit.text)] or hits
    files = list(dict.fromkeys(hit.path for hit in hits))
    if len(steps) > 1 and is_nothing(steps[0].result):
        return f"I did not find {format_code(question.name)}. These lines are similar:" + _quote(hits[:_NEAREST])
    names = ", ".join(format_code(file) for file in files[: 3 * _SHOWN])
    more = "" if found.complete and len(files) <= 3 * _SHOWN else " There are more."
    verb = "has" if len(files) == 1 else "have"
    return f"{_count(len(files), 'file')} {verb} {format_code(question.name)}: {names}.{more}"


def describe_count(question: Question, number: int | None, result: str) -> str:
    """How many there are, as a tool counted them, and what was counted."""
    if question.noun == "lines":
        if number is None:
            return f"I don't know how many lines {format_code(question.file)} has: it is too long to be counted here."
        return f"{format_code(question.file)} has {_count(number, 'line')}."
    found = parse_search(result)
    where = f" in {format_code(question.file)}" if question.file else ""
    at_least = "" if found.complete else "at least "
    if question.noun == "files with it":
        files = ", ".join(format_code(file) for file in found.files[:_SHOWN])
        verb = "is" if len(found.files) == 1 else "are"
        return f"There {verb} {at_least}{_count(len(found.files), 'file')} with {format_code(question.name)}: {files}."
    if question.noun == "lines with it":
        verb = "is" if found.matches == 1 else "are"
        return f"There {verb} {at_least}{_count(found.matches, 'line')} with {format_code(question.name)}."
    if not found.matches:
        return f"I did not find any {question.noun}{where}: no line matches {format_code(question.pattern)}."
    verb = "is" if found.matches == 1 else "are"
    files = "" if question.file else f", in {_count(len(found.files), 'file')}"
    text = f"There {verb} {at_least}{found.matches} {_fit_number(question.noun, found.matches)}{where}{files}"
    return f"{text}. Counted were the lines that match {format_code(question.pattern)}."


def describe_files(question: Question, files: Sequence[str], total: int) -> str:
    """How many files there are, and which."""
    where = f" in {format_code(question.file)}" if question.file else ""
    if not total:
        return f"I did not find any {question.noun}{where}: no file matches {format_code(question.pattern)}."
    names = ", ".join(format_code(file) for file in files[: 2 * _SHOWN])
    more = ", ..." if total > 2 * _SHOWN else ""
    verb = "is" if total == 1 else "are"
    return f"There {verb} {total} {_fit_number(question.noun, total)}{where}: {names}{more}."


def describe_missing_file(question: Question, similar: Sequence[str]) -> str:
    """That there is no such file, and which have a similar name."""
    text = f"I did not find {format_code(question.file)}: there is no such file."
    if not similar:
        return f"{text} No file has a similar name."
    return f"{text} Similar names: {', '.join(format_code(file) for file in similar[:_NEAREST])}."


def describe_absence(question: Question, steps: Sequence[Step]) -> str:
    """That something was looked for and not found, and what is similar to it."""
    looked = [format_code(pattern) for step in steps if (pattern := str(step.read_arguments().get("pattern", "")))]
    what = format_code(question.name) if question.name else "it"
    no = "No. " if re.match(r"(?:is|are) there", question.text, re.IGNORECASE) else ""
    text = f"{no}I did not find {what} here. I looked for {' and for '.join(dict.fromkeys(looked))}."
    similar = [hit for step in steps if step.name == "search" for hit in parse_search(step.result).hits if hit.exact]
    return text + (" These lines are similar:" + _quote(similar[:_NEAREST]) if similar else "")


def describe_unknown(question: Question, steps: Sequence[Step]) -> str:
    """That the answer is not in what was looked at, with the nearest lines."""
    looked = list(dict.fromkeys(map(_describe_look, steps)))
    text = f"I don't know. I {' and '.join(looked)}, and did not find the answer there." if looked else "I don't know."
    patterns = [expand_term(term) for term in question.terms]
    hits = [hit for step in steps if step.name == "search" for hit in parse_search(step.result).hits if hit.exact]
    ranked = sorted(hits, key=lambda hit: -_count_terms(hit, patterns))[:_NEAREST]
    return text + (" The nearest lines:" + _quote(ranked) if ranked else "")


def _count_terms(hit: Hit, patterns: Sequence[str]) -> int:
    return sum(re.search(pattern, hit.text, re.IGNORECASE) is not None for pattern in patterns)


def _describe_look(step: Step) -> str:
    given = step.read_arguments()
    what = str(given.get("pattern") or given.get("path") or given.get("command") or "")
    verbs = {"search": "searched for", "glob": "looked for files named", "read": "read", "list": "looked into"}
    return f"{verbs.get(step.name, f'used {step.name} with')} {format_code(what[:_LINE])}"


def _quote(hits: Sequence[Hit], *, place: bool = True) -> str:
    # Indented, lines of files are shown as they are, whatever Markdown is in them.
    lines = [f"    {hit.path}:{hit.line}: {hit.text.strip()[:_LINE]}" for hit in hits]
    return "\n\n" + "\n".join(lines if place else [f"    {hit.text.strip()[:_LINE]}" for hit in hits])


def format_code(text: str) -> str:
    """A text as inline code; a longer run of backticks encloses one that has backticks itself."""
    flat = " ".join(text.split())
    runs = re.findall(r"`+", flat)
    if not runs:
        return f"`{flat}`"
    fence = "`" * (max(map(len, runs)) + 1)
    return f"{fence} {flat} {fence}"


def _fit_number(noun: str, number: int) -> str:
    """A noun in the plural, or in the singular for one."""
    if number != 1:
        return noun
    return noun[:-2] if noun.endswith("sses") else noun.removesuffix("s")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
