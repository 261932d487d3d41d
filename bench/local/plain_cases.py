"""A small project to ask about, and questions with what a right first call and a right last sentence look like."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = {
    "README.md": (
        "# Tidewatch\n\nTidewatch collects the water levels of harbours and draws a chart of them for every day.\n\n"
        "## Install\n\nYou need Python 3.12 or newer. Run `make install`, then `make run`.\n\n"
        "## How it works\n\nA collector asks each station every ten minutes and writes the levels to "
        "`data/levels.csv`. The chart is drawn from that file.\n"
    ),
    "LICENSE": "MIT License\n\nCopyright (c) 2025 The Tidewatch contributors\n",
    "Makefile": "install:\n\tpip install -e .\n\nrun:\n\tpython -m tidewatch\n\ntest:\n\tpython -m pytest -q\n",
    "pyproject.toml": '[project]\nname = "tidewatch"\nversion = "2.4.1"\nrequires-python = ">=3.12"\n',
    "config.json": '{\n  "host": "localhost",\n  "port": 8099,\n  "stations": ["Husum", "Cuxhaven", "Emden"]\n}\n',
    "notes.txt": "Buy a new sensor for Husum.\nAsk Marta about the wind data.\n",
    "docs/guide.md": "# Guide\n\nStations are listed in `config.json`. A reading older than an hour is dropped.\n",
    "src/tidewatch/__main__.py": "from tidewatch.collect import collect\n\ncollect()\n",
    "src/tidewatch/collect.py": (
        "TIMEOUT = 20\n\n\ndef parse_station(line):\n    name, level = line.split(';')\n"
        "    return name, float(level)\n\n\n"
        "def collect():\n    # TODO: ask the stations at the same time\n    return []\n"
    ),
    "src/tidewatch/chart.py": "def draw_chart(levels):\n    raise NotImplementedError\n",
    "tests/test_collect.py": (
        "def test_a_line_has_a_name_and_a_level():\n    assert 'Husum;1.5'.split(';')[0] == 'Husum'\n"
    ),
    "data/levels.csv": "station,level\nHusum,1.52\nCuxhaven,1.48\nEmden,1.61\n",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt, the first calls that are right (`tool` and a pattern for its arguments), and the answer's pattern."""

    prompt: str
    calls: tuple[tuple[str, str], ...] = ()
    answer: str = ""

    def right_call(self, name: str | None, arguments: dict[str, Any]) -> bool:
        """Whether this is a right first thing to do."""
        if name is None:
            return not self.calls
        written = " ".join(str(value) for value in arguments.values())
        return any(name == tool and re.search(wanted, written, re.IGNORECASE) for tool, wanted in self.calls)

    def right_answer(self, text: str) -> bool:
        """Whether the last sentence says what is so."""
        return bool(text.strip()) and re.search(self.answer, text, re.IGNORECASE | re.DOTALL) is not None


_HERE = r"^(\.|\./|\*|)$"
CASES = (
    Case("What does this project do?", (("read", "README"), ("list", _HERE), ("glob", "README")),
         "water level|harbour|chart|tide"),
    Case("What is written in notes.txt?", (("read", "^notes.txt$"), ("bash", "cat.*notes.txt")), "sensor|Marta"),
    Case("Which files are in the folder src/tidewatch?", (("list", "src/tidewatch"), ("glob", "src/tidewatch"),
         ("bash", "ls.*src/tidewatch")), "collect.py.*chart.py|chart.py.*collect.py"),
    Case("List the files in this folder.", (("list", _HERE), ("bash", "^ls"), ("glob", r"^\*")), "README.*"),
    Case("Find all Python files.", (("glob", r"\*\.py"), ("bash", r"find.*\.py")), "collect.py"),
    Case("Where is the function parse_station defined?", (("search", "parse_station"), ("bash", "grep.*parse_station")),
         "collect.py"),
    Case("Which files mention TIMEOUT?", (("search", "TIMEOUT"), ("bash", "grep.*TIMEOUT")), "collect.py"),
    Case("How many lines has the Makefile?", (("bash", "wc.*Makefile"), ("read", "Makefile")), r"\b(8|eight)\b"),
    Case("Run the tests.", (("bash", "pytest|make test"),), "pass|success|pytest|not found|failed"),
    Case("Which Python version does this project need?", (("read", "pyproject.toml|README"), ("search", "python"),
         ("bash", "grep.*python|cat")), r"3\.12"),
    Case("Show me config.json.", (("read", "^config.json$"), ("bash", "cat.*config.json")), "8099|localhost|stations"),
    Case("Create a file hello.txt with the text Good morning.", (("write", "hello.txt.*Good morning"),
         ("bash", "Good morning.*hello.txt")), "hello.txt|created|written"),
    Case("In config.json, replace localhost by 127.0.0.1.", (("edit", "config.json.*localhost.*127.0.0.1"),
         ("bash", "sed.*localhost.*127.0.0.1.*config.json")), "127.0.0.1|replaced|changed"),
    Case("Run the command git status.", (("bash", "git status"),), "branch|commit|clean|nothing"),
    Case("Use bash to print the name of the current user.", (("bash", r"whoami|\$USER|id -un"),), r"\w"),
    Case("Fetch https://example.com/levels.json", (("fetch", "^https://example.com/levels.json$"),), r"\w"),
    Case("Find all Markdown files.", (("glob", r"\*\.md"), ("bash", r"find.*\.md")), r"README\.md(?!.*not found)"),
    Case("Read tests/test_collect.py and tell me what it tests.", (("read", "^tests/test_collect.py$"),),
         "name|level|Husum|line"),
    Case("What does docs/guide.md say about old readings?", (("read", "^docs/guide.md$"), ("search", "reading")),
         "hour|dropped"),
    Case("Search the code for TODO comments.", (("search", "TODO"), ("bash", "grep.*TODO")), "stations|collect.py"),
    Case("Which port is set in config.json?", (("read", "^config.json$"), ("search", "port"), ("bash", "config.json")),
         "8099"),
    Case("Which licence does this project have?", (("read", "LICENSE|README|pyproject"), ("search", "licen[cs]e"),
         ("glob", "licen[cs]e")), "MIT"),
    Case("What is the version in pyproject.toml?", (("read", "pyproject.toml"), ("search", "version")), r"2\.4\.1"),
    Case("Which station has the highest level in data/levels.csv?", (("read", "data/levels.csv"),
         ("bash", "levels.csv")), "Emden"),
    Case("Hello!", (), "hello|hi|help"),
    Case("What is the capital of France?", (), "Paris"),
    Case("What is 2 + 2?", (), r"\b4\b|four"),
    Case("Thank you, that was helpful.", (), "welcome|glad|help|happy|pleasure"),
    Case("Explain in one sentence what a list comprehension is in Python.", (), "list"),
    Case("Who wrote Romeo and Juliet?", (), "Shakespeare"),
)  # fmt: skip
"""At least twenty that need a tool, and at least five that need none."""


def make_project(folder: Path) -> None:
    """Write the project, as a git repository with one commit."""
    for name, text in PROJECT.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    who = ("-c", "user.name=Tidewatch", "-c", "user.email=tide@example.com")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "Begin")):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
