"""The values of flags: names, rules, counts and amounts; what is wrong is told by argparse."""

from __future__ import annotations

import argparse
import math


def parse_names(text: str) -> tuple[str, ...]:
    """The names of a flag, separated by commas."""
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    if not found:
        raise argparse.ArgumentTypeError(
            "expected tool names separated by commas, for example read,search; or use --no-tools"
        )
    return found


def parse_rules(text: str) -> list[str]:
    """Splits rules at commas; a comma inside parentheses belongs to its rule."""
    found, depth, start = list[str](), 0, 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
        if character == "," and not depth:
            found.append(text[start:place])
            start = place + 1
    if depth:
        raise argparse.ArgumentTypeError(f"unbalanced parentheses in {text!r}")
    return [rule.strip() for rule in [*found, text[start:]] if rule.strip()]


def parse_count(text: str) -> int:
    """The whole number of a flag, from 1 on."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return value


def parse_amount(text: str) -> float:
    """The number of a flag, above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value
