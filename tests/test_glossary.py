"""Every name of the five documents the design began with has a home here that can be imported."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"\| `(?P<name>[^`]+)` \| `(?P<home>[\w.]+)` \|(?P<note>.*)\|")
SEED_NAMES = (ROOT / "tests" / "seed_names.txt").read_text(encoding="utf-8").split()


class Row(NamedTuple):
    """One line of the glossary."""

    name: str
    home: str
    note: str


def rows() -> list[Row]:
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("| `")]
    found = [ROW.fullmatch(line) for line in table]
    assert [line for line, match in zip(table, found, strict=True) if match is None] == []
    return [Row(match["name"], match["home"], match["note"].strip()) for match in found if match is not None]


def imported(path: str) -> Any:
    """What a dotted path leads to: as much of it as is a module is imported, the rest are attributes."""
    parts = path.split(".")
    value: Any = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], start=2):
        if not hasattr(value, part):
            value = importlib.import_module(".".join(parts[:number]))
        else:
            value = getattr(value, part)
    return value


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def test_every_name_of_the_seeds_is_in_the_glossary() -> None:
    assert sorted(set(SEED_NAMES) - {row.name for row in rows()}) == []


def test_the_glossary_has_each_name_once_and_no_others() -> None:
    assert sorted(row.name for row in rows()) == sorted(SEED_NAMES)


def homeless(row: Row) -> str | None:
    try:
        imported(row.home)
    except ImportError as error:
        return f"{row.name!r} does not live at {row.home!r}: {error}"
    return None


def test_every_home_can_be_imported() -> None:
    assert [fault for row in rows() if (fault := homeless(row)) is not None] == []
    assert {row.home.split(".")[0] for row in rows()} == {"steersman", "builtins"}


def test_a_name_that_was_replaced_says_by_what() -> None:
    replaced = [row for row in rows() if plain(row.name) != plain(row.home.split(".")[-1])]
    assert [row for row in replaced if not row.note] == []
