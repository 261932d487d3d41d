"""`steersman sessions artifacts` on sessions that keep files: listed harmlessly, written only where that was said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Done, Place, assert_calm, command_line, environment, run_command
from tests.cli.pty_terminal import Terminal

from steersman import Session
from steersman.types.artifacts import Artifact, ArtifactChange
from steersman.types.messages import AssistantMessage, UserMessage

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a session that keeps files."""
    folder = tmp_path / "kept"
    folder.mkdir()
    with Session.create(folder / "sessions.db", "session_aaaa1111_1") as session:
        session.artifacts.save("report.csv", "a,b\n")
        session.artifacts.save("report.csv", "a,b\x1b[2J\n")
        session.artifacts.save("plot.png", PNG)
    return folder


def artifacts(args: Sequence[str], place: Place, folder: Path, **more: Any) -> Done:
    done = run_command(["sessions", "artifacts", *args, "--session-dir", str(folder)], place=place, **more)
    assert_calm(done)
    return done


def test_files_are_listed_and_written(place: Place, folder: Path, tmp_path: Path) -> None:
    listed = artifacts(["aaaa"], place, folder)
    assert [line.split() for line in listed.text.splitlines()] == [
        ["NAME", "VERSION", "BYTES", "TYPE"],
        ["report.csv", "2", "8", "text/csv"],
        ["plot.png", "1", "10", "image/png"],
    ]
    described = artifacts(["aaaa", "--json"], place, folder).json
    assert [(one["name"], one["version"]) for one in described] == [
        ("report.csv", 1),
        ("report.csv", 2),
        ("plot.png", 1),
    ]
    assert artifacts(["aaaa", "report.csv", "--version", "1"], place, folder).stdout == b"a,b\n"
    assert artifacts(["aaaa", "plot.png"], place, folder).stdout == PNG
    target = tmp_path / "plot.png"
    written = artifacts(["aaaa", "plot.png", "-o", str(target)], place, folder)
    assert (written.code, written.text, target.read_bytes()) == (0, "", PNG)
    assert target.stat().st_mode & 0o777 == 0o600
    again = artifacts(["aaaa", "plot.png", "-o", str(target)], place, folder)
    assert (again.code, again.errors) == (2, f"steersman: {str(target)!r} exists already; --force overwrites it.\n")
    assert artifacts(["aaaa", "report.csv", "-fo", str(target)], place, folder).code == 0
    assert target.read_bytes() == b"a,b\x1b[2J\n"


def test_what_is_not_there_is_told(place: Place, folder: Path, tmp_path: Path) -> None:
    missing = artifacts(["aaaa", "x\x1b[2J"], place, folder)
    assert (missing.code, missing.errors) == (
        1,
        "steersman: No artifact named 'x\\x1b[2J'. Artifacts here: 'report.csv', 'plot.png'.\n",
    )
    version = artifacts(["aaaa", "plot.png", "--version", "3"], place, folder)
    assert version.errors == "steersman: The artifact 'plot.png' has no version 3. Versions: 1.\n"
    unnamed = artifacts(["aaaa", "-o", "x"], place, folder)
    assert unnamed.code == 2
    nowhere = artifacts(["aaaa", "plot.png", "-o", str(tmp_path / "no" / "x")], place, folder)
    assert nowhere.errors.endswith("cannot be written: No such file or directory.\n")


def test_a_terminal_gets_text_that_does_not_steer_it_and_no_bytes(place: Place, folder: Path) -> None:
    def run(*args: str) -> str:
        line = command_line(["sessions", "artifacts", *args, "--session-dir", str(folder)])
        with Terminal(line, columns=80, env=environment(place), cwd=place.project) as terminal:
            terminal.ended()
            return terminal.everything

    assert "a,b␛[2J" in run("aaaa", "report.csv")
    assert "This artifact is no text; -o FILE writes it to a file." in run("aaaa", "plot.png")


def test_a_hostile_record_is_left_out_and_told(place: Place, folder: Path) -> None:
    with Session.open(folder / "sessions.db") as session:
        hostile = Artifact("../\x1b[31mred", 1, 1, "text/plain", "0" * 64)
        session.recorder.record_save(ArtifactChange((hostile,)))
    listed = artifacts(["aaaa"], place, folder)
    assert "red" not in listed.text
    assert "\x1b" not in listed.errors
    assert "no save of an artifact" in listed.errors


def test_a_copy_of_a_session_has_its_files(place: Place, folder: Path) -> None:
    with Session.open(folder / "sessions.db") as session:
        session.log.append(UserMessage("Hi."))
        session.log.append(AssistantMessage("Hello."))
    asked = ["-r", "aaaa", "--fork-session", "-p", "Go on.", "--model", "scripted:echo", "--session-dir", str(folder)]
    assert run_command(asked, place=place).code == 0
    found = run_command(["sessions", "list", "--all", "--json", "--session-dir", str(folder)], place=place).json
    copy = next(one["id"] for one in found if one["id"] != "session_aaaa1111_1")
    assert artifacts([copy, "report.csv", "--version", "1"], place, folder).stdout == b"a,b\n"
