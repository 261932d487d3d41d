"""`steersman init` writes what the project says about itself, and never over something without a yes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType

import pytest
from tests.cli.command import Place, environment, run_command
from tests.cli.fork_server import COMMAND
from tests.cli.pty_terminal import Terminal

from steersman.cli.setup.settings_parser import parse_settings
from steersman.cli.setup.survey import survey_project

pytestmark = pytest.mark.real_time
EXPECTED = """\
# ship

Sails \u241b[2J well.

Written in Python.

Tools: uv, make.

## Commands

- Test: `make test`, `uv run pytest`
- Lint: `uv run ruff check .`
- Types: `uv run mypy .`
- Format: `uv run ruff format .`

## What CI runs

- `make test`

## Folders

- `src/`: 2 files
- `tests/`: 1 file

## Rules

- Run the tests above before you say that something is done.
- Change only what was asked for.
"""


def _make_project(folder: Path) -> None:
    for name in ("src/a.py", "src/b.py", "tests/test_a.py", "node_modules/x.js", ".git/config", "uv.lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "Makefile").write_text("X := 1\ntest: build\n\tpytest\nclean:\n\trm -r x\n")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "ship"\ndescription = "Sails \\u001b[2J well."\n'
        '[dependency-groups]\ndev = ["pytest", "ruff", "mypy"]\n'
    )
    (folder / ".github/workflows").mkdir(parents=True)
    (folder / ".github/workflows/ci.yml").write_text(
        "jobs:\n  a:\n    steps:\n      - run: make test\n      - run: |\n          x\n"
    )


def test_it_writes_what_it_finds_and_keeps_what_is_there(place: Place) -> None:
    _make_project(place.project)
    done = run_command(["init"], place=place)
    assert (done.code, done.errors) == (0, "")
    written = (place.project / "AGENTS.md").read_text()
    assert written == EXPECTED.replace("\u241b", "")
    settings = (place.project / ".steersman/config.toml").read_bytes()
    assert parse_settings(settings, Path("x"), project=True).deny == ("read(.env)", "read(.env.*)")

    (place.project / "AGENTS.md").write_text("Mine. \x1b[2J\n")
    done = run_command(["init"], place=place)
    assert done.code == 1
    assert "-Mine. " in done.text
    assert "+# ship" in done.text
    assert "\x1b" not in done.text
    assert "Kept as it was: AGENTS.md. --force replaces." in done.text
    assert "Read what was written" not in done.text
    assert (place.project / "AGENTS.md").read_text() == "Mine. \x1b[2J\n"
    done = run_command(["init", "--force"], place=place)
    assert (done.code, (place.project / "AGENTS.md").read_text()) == (0, written)


@pytest.mark.parametrize(("columns", "rows"), [(120, 40), (80, 24), (40, 15)])
def test_on_a_terminal_it_shows_the_difference_and_asks(place: Place, columns: int, rows: int) -> None:
    arguments = [*COMMAND, "init"]
    with Terminal(arguments, columns=columns, rows=rows, env=environment(place), cwd=place.project) as terminal:
        assert terminal.ended() == 0
        assert "Wrote AGENTS.md.\nWrote .steersman/config.toml.\n" in terminal.everything
    (place.project / "AGENTS.md").write_text("Mine. \x1b[2J\n")
    with Terminal(arguments, columns=columns, rows=rows, env=environment(place), cwd=place.project) as terminal:
        terminal.wait_for("\n?")
        terminal.type("n\n")
        assert terminal.ended() == 1
        assert "Kept as it was: AGENTS.md." in terminal.everything
    assert (place.project / "AGENTS.md").read_text() == "Mine. \x1b[2J\n"
    with Terminal(arguments, columns=columns, rows=rows, env=environment(place), cwd=place.project) as terminal:
        terminal.wait_for("\n?")
        assert "│ -Mine. " in terminal.everything
        terminal.type("y\n")
        assert terminal.ended() == 0
        assert b"\x1b[2J" not in terminal.raw
        told = "Read what was written, and correct it: the agent believes it."
        assert (told if columns >= 80 else told.replace(": ", ":\n")) in terminal.everything
    assert (place.project / "AGENTS.md").read_text().startswith("# project\n")


def test_a_link_is_not_written_through(place: Place) -> None:
    (place.home / "elsewhere").write_text("theirs")
    (place.project / "AGENTS.md").symlink_to(place.home / "elsewhere")
    assert run_command(["init", "--force"], place=place).code == 1
    assert (place.home / "elsewhere").read_text() == "theirs"


def test_a_link_into_the_repository_is_not_written_through(place: Place) -> None:
    """What is there may be run by git."""
    (place.project / ".git/hooks").mkdir(parents=True)
    (place.project / "AGENTS.md").symlink_to(".git/hooks/pre-commit")
    done = run_command(["init"], place=place)
    assert (done.code, [*(place.project / ".git/hooks").iterdir()]) == (1, [])
    assert "is protected by '.git'" in done.errors


def test_a_folder_that_is_a_link_out_of_the_project_is_not_written_through(place: Place) -> None:
    """It may be the folder of the user's own settings, which hold everywhere."""
    own = place.home / "config/steersman"
    own.mkdir(parents=True)
    (place.project / ".steersman").symlink_to(own)
    for arguments in (["init"], ["init", "--force"]):
        done = run_command(arguments, place=place)
        assert (done.code, [*own.iterdir()]) == (1, [])
        assert "Cannot write .steersman/config.toml: " in done.errors


def test_other_kinds_of_projects_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text(
        json.dumps({"name": "web", "scripts": {"test": "x", "lint": "y", "go": "z"}})
    )
    (tmp_path / "Cargo.toml").write_text("[package]\nname = 'rusty'\n")
    (tmp_path / "go.mod").write_text("module x\n")
    (tmp_path / "pyproject.toml").write_text("not toml")
    (tmp_path / "yarn.lock").touch()
    found = survey_project(tmp_path)
    assert found.runners == ["yarn", "cargo", "go"]
    assert found.commands == {
        "test": ["yarn test", "cargo test", "go test ./..."],
        "lint": ["yarn run lint", "cargo clippy", "go vet ./..."],
        "build": ["cargo build", "go build ./..."],
        "format": ["cargo fmt"],
    }
    assert found.notes == ["pyproject.toml is not valid TOML."]


def test_a_project_file_may_have_dates_and_be_nested_as_it_likes(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest]\nsince = 2020-01-01\n")
    (tmp_path / "Cargo.toml").write_text(f"a = {'[' * 5_000}")
    found = survey_project(tmp_path)
    assert found.commands["test"] == ["pytest", "cargo test"]
    assert found.notes == ["Cargo.toml is not valid TOML."]
    (tmp_path / "pyproject.toml").write_text(f"[project]\nversion = 0x{'f' * 5_000}")
    assert survey_project(tmp_path).notes == ["pyproject.toml is not valid TOML.", "Cargo.toml is not valid TOML."]


def test_of_many_commands_only_the_first_are_looked_at(tmp_path: Path) -> None:
    """Five files of 200 kB have 80,000 of them, and to compare each with all before it takes half a minute."""
    (tmp_path / ".gitlab-ci.yml").write_text("".join(f"run: a{number}\n" for number in range(10_000)))
    looked = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal looked
        looked += event == "call" and frame.f_code.co_name == "to_one_line"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        found = survey_project(tmp_path)
    finally:
        sys.setprofile(before)
    assert found.commands == {"CI": [f"a{number}" for number in range(8)]}
    assert looked < 20
