"""What is said in the pictures of the page: one small story, and some things that are hard to lay out."""

from __future__ import annotations

from typing import Any

from steersman.testing import answer, call, error, stall, thinking
from steersman.types import ErrorInfo, Usage

PROGRAM = '''from datetime import datetime

from tables import Row, load


def get_time(row: Row) -> datetime:
    return row.time


def next_high(station: str, now: datetime) -> Row | None:
    """The next high tide after a time."""
    rows = load(station)
    for row in rows:
        if row.time > now:
            return row
    return None
'''
BODY = PROGRAM[PROGRAM.index("    rows =") :]
NEW_BODY = """    rows = load(station, days=2)  # tonight may be tomorrow
    return rows[bisect_right(rows, now, key=get_time)]
"""
IMPORT = "from datetime import datetime\n"
EDITS = [{"old": BODY, "new": NEW_BODY}, {"old": IMPORT, "new": "from bisect import bisect_right\n" + IMPORT}]
REPORT = """## What I changed

The function returned nothing for a tide after midnight: **the table ends with its day**, so between 22:40 and midnight there was no row left. It now looks at the next day as well.

1. `next_high` asks for the rows of *two* days
2. The search is a binary one, because the table is sorted
   - 96 rows a day, so this matters little
   - it matters for the yearly view

| Station | Before | After | Rows |
|---|---|---|---:|
| Cuxhaven | — | 04:12 | 96 |
| Heligoland | — | 03:36 | 96 |
| Brest | 23:58 | 23:58 | 104 |

```python
def next_high(station: str, now: datetime) -> Row:
    \"\"\"The next high tide after a time.\"\"\"
    rows = load(station, days=2)  # tonight may be tomorrow
    return rows[bisect_right(rows, now, key=get_time)]
```

> The tests pass: 12 in 0.31 s.

Shall I also move the station table to [its own file](https://example.org)?
"""  # noqa: E501
LONG_TEXT = "the value of `station` is never compared with the name in the table, which is in capitals since 2019"
WIDE = f"""# Things that are wide

A table with many columns, some of them long:

| Station | Country | Latitude | Longitude | Reference level | Source of the harmonic constants | Last measured | Remarks |
|---|---|---:|---:|---|---|---|---|
| Cuxhaven | Germany | 53.8678 | 8.7175 | Normalhöhennull | Bundesamt für Seeschifffahrt | 2026-03-01 | {LONG_TEXT} |
| Brest | France | 48.3829 | -4.4950 | Zéro hydrographique | Shom | 2025-11-19 | none |

```sh
curl -sS https://example.org/api/v2/stations/cuxhaven/predictions?from=2026-03-01\\&until=2026-03-31\\&interval=15min\\&unit=m | jq '.[] | select(.kind == "high") | .time' | sort | uniq -c
```

- a path: `/srv/tides/data/harmonic-constants/2026/germany/north-sea/cuxhaven/constituents-semi-diurnal.json`
- a URL: https://example.org/{"a-long-part-of-a-path/" * 9}
  - inside:
    1. deeper
       > and a quote of {LONG_TEXT}

The end of it.
"""  # noqa: E501
BUSY = ErrorInfo("overloaded", "The model is overloaded.", "helm", 529)
FAILURE = ErrorInfo("quota", "The account has no credit left. Add some, or choose another model.", "helm", 402)


class Answers:
    """The answers of the model, by scene."""

    @staticmethod
    def of(scene: str) -> list[Any]:
        """What the model says in a scene."""
        return {
            "stream": [_look_first(), stall(REPORT.partition("| Brest")[0])],
            "tool": [answer(thinking("Which tests are there?"), "I run the tests of all stations.", _run_tests())],
            "error": [
                _look_first(),
                error(BUSY),
                _propose(),
                error(FAILURE, "Let me run the tests", usage=_count(9_100, 40)),
            ],
            "wide": [
                answer(call("print_much", lines=40), usage=_count(1_000, 60)),
                answer(WIDE, usage=_count(9_000, 400)),
            ],
            "long": ["Hello."],
            "empty": ["Hello."],
            "draining": ["Hello."],
        }.get(scene) or [_look_first(), _propose(), _write(REPORT, usage=_count(14_000, 420)), *_talk()]


def make_long_messages(count: int) -> list[dict[str, Any]]:
    """Questions and answers, all but the last two of so many."""
    found: list[dict[str, Any]] = []
    for number in range(1, count // 2):
        more = "\n\n```python\nprint('x')\n```\n" * (number % 7 == 0) + "\n- point\n- point" * (number % 5 == 0)
        text = f"**Answer {number}**. " + "Some words of it. " * (number % 23) + more
        found.append({"role": "user", "content": f"Question {number}"})
        found.append({"role": "assistant", "content": text})
    return found


def _look_first() -> Any:
    thought = "The report says that nothing is shown late in the evening. Probably the search runs off the table."
    read = call("read", path="tides.py")
    return _write(thinking(thought), "I will look at the search first.", read, usage=_count(8_800, 180))


def _run_tests() -> Any:
    return call("bash", command="python -m pytest -q tests --stations all")


def _propose() -> Any:
    edit = call("edit", path="tides.py", edits=EDITS)
    return _write("The loop stops at midnight. The fix is small:", edit, usage=_count(13_000, 310))


def _talk() -> list[Any]:
    said = (
        "A table with one row a station is simpler: `stations.toml` has the name, the offset and the source. "
        "I would keep the loader as it is."
    )
    return [
        _write(said, usage=_count(26_000, 120)),
        _write(said.replace("A table", "Yes: a table"), usage=_count(26_000, 130)),
    ]


def _write(*blocks: Any, usage: Usage) -> Any:
    """An answer at the pace of a model."""
    return answer(*blocks, usage=usage, deltas=8, pace=0.07)


def _count(input: int, output: int) -> Usage:
    return Usage(
        input=input, output=output, cache_read=input // 2, total=input + output, cost=input * 1.5e-6 + output * 8e-6
    )
