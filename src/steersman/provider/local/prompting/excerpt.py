"""Makes texts short enough for a small model: the lines that matter for a question, or head and tail."""

from __future__ import annotations

import re
from collections.abc import Sequence

from steersman.provider.local.prompting.findings import Hit, is_definition, parse_search

_CUT = "\n[...]\n"
_AFTER_DEFINITION = 6
# More lines of a search than these cost seconds to read, and distract.
_SEARCH_TOKENS = 300


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too many than too few."""
    if text.isascii():
        return len(text) // 3 + 1
    plain = sum(character.isascii() for character in text)
    return plain // 3 + 2 * (len(text) - plain) + 1


def truncate(text: str, tokens: int) -> str:
    """The text; if it is longer than so many tokens, its head and its tail."""
    text = text.strip()
    whole = estimate_tokens(text)
    if whole <= tokens:
        return text
    length = max(0, len(text) * tokens // whole - len(_CUT))
    head = length * 3 // 4
    tail = length - head
    return text[:head].rstrip() + _CUT + (text[-tail:].lstrip() if tail else "")


def truncate_together(texts: Sequence[str], tokens: int) -> list[str]:
    """The texts within one token budget; each later text gets twice as much as the one before."""
    shown: list[str] = []
    for text in reversed(texts):
        left = max(tokens - sum(map(estimate_tokens, shown)), 0)
        last = len(shown) == len(texts) - 1
        shown.append(truncate(text, left if last else max(left * 2 // 3, 1)))
    return shown[::-1]


def choose_excerpt(tool: str, result: str, patterns: Sequence[str], tokens: int) -> str:
    """A result within a token budget: the lines with most of the patterns, in their order.

    The hits of a search get their path in front, so that no line stands for itself.
    """
    hits = list(parse_search(result).hits) if tool == "search" else []
    if hits:
        lines = [f"{hit.path}:{hit.line}: {hit.text}" for hit in hits]
        scores = _score([f"{hit.path} {hit.text}" for hit in hits], patterns)
        _raise_definitions(scores, hits)
        tokens = min(tokens, _SEARCH_TOKENS)
    elif estimate_tokens(result) <= tokens:
        return result
    else:
        lines = result.splitlines()
        scores = _score(lines, patterns)
    if not any(scores):
        return "\n".join(lines)
    return _join_best(lines, scores, tokens)


def _score(lines: Sequence[str], patterns: Sequence[str]) -> list[float]:
    """How much each line matters: a pattern that few lines match counts more. Neighbours of a line get a little."""
    scores = [0.0] * len(lines)
    for pattern in patterns:
        found = [index for index, line in enumerate(lines) if re.search(pattern, line, re.IGNORECASE)]
        for index in found:
            scores[index] += 1 + 1 / len(found)
    return [score + 0.3 * max(scores[max(0, index - 1) : index + 3], default=0.0) for index, score in enumerate(scores)]


def _raise_definitions(scores: list[float], hits: Sequence[Hit]) -> None:
    """Let the lines that define something that was searched for come first, with the lines after them."""
    for index, hit in enumerate(hits):
        word = re.search(r"(?:def|class|function|fn|func|struct)\s+(\w+)", hit.text)
        if hit.exact and word and is_definition(word[1], hit.text):
            for other in range(index, min(index + _AFTER_DEFINITION, len(hits))):
                scores[other] += 1.5 if hits[other].path == hit.path else 0.0


def _join_best(lines: Sequence[str], scores: Sequence[float], tokens: int) -> str:
    kept: set[int] = set()
    left = tokens
    for index in sorted(range(len(lines)), key=lambda index: (-scores[index], index)):
        cost = estimate_tokens(lines[index])
        if cost <= left and (scores[index] or not kept):
            kept.add(index)
            left -= cost
    shown: list[str] = []
    for index in sorted(kept):
        if shown and index - 1 not in kept:
            shown.append("[...]")
        shown.append(lines[index])
    return "\n".join(shown)
