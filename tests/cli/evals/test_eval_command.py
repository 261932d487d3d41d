"""`steersman eval` as a process: its report, its exit codes, how it goes on, and what it says of a mistake."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from tests.cli.command import Place, command_line, environment, run_command
from tests.cli.pty_terminal import Terminal

from steersman.evals import Report

YAML = """\
name: echoes
scorers: [contains]
cases:
  - {id: good, prompt: say hello, expected: hello}
  - {id: bad, prompt: say bye, expected: xyz, files: {a.txt: hi}}
"""
ECHO = ("--model", "scripted:echo")
PYTHON = """\
from steersman import Agent
from steersman.evals import Case, contains
from steersman.testing import ScriptedModel, error

def reply(request):
    if "crash" in request.messages[-1].text:
        return error("authentication")
    return GOOD if int(request.messages[-1].text.split()[-1]) % 2 else "\\x1b]0;owned\\x07 odd"

GOOD = "yes"
agent = Agent(ScriptedModel(reply, repeat_last=True).model, retry=None)
cases = [Case(f"number {number}", id=f"n{number}") for number in range(16)]
scorers = [contains("yes")]
"""


def test_it_prints_a_table_and_keeps_report_and_sessions(place: Place) -> None:
    (place.project / "echoes.yaml").write_text(YAML)
    done = run_command(["eval", "echoes.yaml", *ECHO], place=place)
    assert done.code == 0, done.errors
    folder = place.project / "echoes.eval" / "1"
    report = Report.load(folder / "report.json")
    assert done.text.startswith("\n".join(str(report).split("\n")[:3]))
    assert "contains: not in the answer: 'xyz'" in done.text
    assert [run.passed for run in report.agents[0].runs] == [True, False]
    assert (folder / "report.html").read_text().count("<article ") == 2
    assert folder.stat().st_mode & 0o077 == 0
    [workspace] = [path for path in (folder / "workspaces").iterdir() if path.name.startswith("bad.")]
    assert (workspace / "a.txt").read_text() == "hi"
    # Every case is a session that the other commands show.
    listed = run_command(["sessions", "list", "--session-dir", str(folder), "--json"], place=place)
    assert sorted(one["id"] for one in listed.json) == sorted(run.session for run in report.agents[0].runs)
    again = run_command(["sessions", "rerun", "good", "--session-dir", str(folder), *ECHO], place=place)
    assert "say hello" in again.text


def test_a_finished_evaluation_is_followed_by_a_new_one_and_an_interrupted_one_goes_on(place: Place) -> None:
    (place.project / "echoes.yaml").write_text(YAML)
    first = place.project / "echoes.eval" / "1"
    run_command(["eval", "echoes.yaml", *ECHO], place=place)
    before = (first / "report.json").read_bytes()
    (first / "report.json").unlink()  # as if it had been interrupted before its end
    done = run_command(["eval", "echoes.yaml", *ECHO], place=place)
    assert (first / "report.json").read_bytes() == before
    done = run_command(["eval", "echoes.yaml", *ECHO, "--baseline", str(first)], place=place)
    assert (done.code, "no difference beyond noise" in done.text) == (0, True)
    assert sorted(os.listdir(first.parent)) == ["1", "2"]


HELD = """\
import os
from steersman import Agent
from steersman.evals import Case, contains
from steersman.testing import ScriptedModel, stall

def reply(request):
    number = int(request.messages[-1].text.split()[-1])
    with open("asked", "a") as file:
        file.write(f"{number}\\n")
    return stall() if number > 3 and not os.path.exists("go") else f"yes {number}"

agent = Agent(ScriptedModel(reply, repeat_last=True).model, retry=None)
cases = [Case(f"number {number}", id=f"n{number}") for number in range(6)]
scorers = [contains("yes")]
"""


def test_ctrl_c_in_the_middle_keeps_what_is_done_and_the_same_command_goes_on(place: Place) -> None:
    """On a terminal, with the line that shows the progress."""
    (place.project / "held.py").write_text(HELD)
    arguments = ["eval", "held.py", "--out", "out"]
    with Terminal(command_line(arguments), env=environment(place), cwd=place.project) as terminal:
        terminal.wait_for("4 of 6, 4 passed, 0 failed")
        assert terminal.cursor_line.startswith("████████████████░░░░░░░░ 4 of 6")
        terminal.press("ctrl+c")
        assert terminal.ended() == 130
        shown = terminal.everything
    assert "Interrupted. The same command goes on where it was." in shown
    assert "Traceback" not in shown
    assert "4 of 6" not in shown  # the line is removed
    assert not (place.project / "out" / "report.json").exists()
    (place.project / "go").touch()
    done = run_command(arguments, place=place)
    assert (done.code, "6/6" in done.text) == (0, True), done.errors
    asked = [int(line) for line in (place.project / "asked").read_text().split()]
    assert sorted(asked) == [0, 1, 2, 3, 4, 4, 5, 5]
    report = Report.load(place.project / "out" / "report.json")
    assert [run.passed for run in report.agents[0].runs] == [True] * 6


def test_several_models_are_compared_with_the_first(place: Place) -> None:
    (place.project / "echoes.yaml").write_text(YAML)
    models = ["--model", "scripted:echo", "--model", "scripted:other"]
    done = run_command(["eval", "echoes.yaml", *models, "--out", "out"], place=place)
    assert done.code == 0, done.errors
    report = Report.load(place.project / "out" / "report.json")
    assert [(one.name, one.crashed) for one in report.agents] == [("scripted:echo", 0), ("scripted:other", 2)]
    assert "scripted:other against scripted:echo: 0.0 % instead of 50.0 %" in done.text
    twice = run_command(["eval", "echoes.yaml", *ECHO, *ECHO], place=place)
    assert (twice.code, "'scripted:echo' is named twice. --repeat N" in twice.errors) == (2, True)


def test_the_exit_code_says_whether_it_is_worse_than_the_baseline(place: Place) -> None:
    (place.project / "odd.py").write_text(PYTHON)
    good = run_command(["eval", "odd.py", "--out", "good"], place=place)
    assert (good.code, "8/16" in good.text) == (0, True)
    assert "\x1b]" not in good.text
    (place.project / "odd.py").write_text(PYTHON.replace('GOOD = "yes"', 'GOOD = "no"'))
    worse = run_command(["eval", "odd.py", "--out", "bad", "--baseline", "good/report.json", "--json"], place=place)
    assert worse.code == 1
    assert msgspec.convert(worse.json, Report).worse
    better = run_command(["eval", "odd.py", "--out", "good", "--baseline", "bad"], place=place)
    assert (better.code, ": better (p = 0.00781, 16 cases)" in better.text) == (0, True)


def test_a_replay_gives_the_same_report_byte_by_byte(place: Place) -> None:
    """O8, with the command: its prompt names the folder and the day, which are no difference."""
    (place.project / "echoes.yaml").write_text(YAML)
    for out in ("a", "b"):
        done = run_command(["eval", "echoes.yaml", *ECHO, "--cassettes", "tapes", "--out", out], place=place)
        assert done.code == 0, done.errors
    for name in ("report.json", "report.html"):
        assert (place.project / "a" / name).read_bytes() == (place.project / "b" / name).read_bytes()
    assert "crashed" not in done.text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no.yaml", *ECHO], "Cannot read the dataset 'no.yaml': No such file or directory."),
        (["bad.jsonl", *ECHO], "'bad.jsonl', line 2: there is no field 'promt'. Did you mean 'prompt'?"),
        (["bad.py"], "'bad.py' defines no 'cases'. It needs 'dataset', 'agent' and 'scorers'."),
        (["raises.py", "--verbose"], "'raises.py' raised ZeroDivisionError: division by zero. Run the same command"),
        (["good.jsonl", *ECHO], "No scorer is given, so only a crash would fail a case."),
        (["good.jsonl", *ECHO, "--scorer", "equls"], "There is no scorer 'equls'. Did you mean 'equals'?"),
        (["good.jsonl", *ECHO, "--baseline", "no.json"], "Cannot read the report 'no.json'"),
        (["good.jsonl", *ECHO, "--repeat", "0"], "expected a whole number of at least 1, got '0'"),
    ],
)
def test_a_mistake_is_told_and_is_code_2(place: Place, arguments: list[str], told: str) -> None:
    (place.project / "good.jsonl").write_text('{"prompt": "x"}\n')
    (place.project / "bad.jsonl").write_text('{"prompt": "x"}\n{"promt": "y"}\n')
    (place.project / "bad.py").write_text("agent = 1\n")
    (place.project / "raises.py").write_text("agent = 1 / 0\n")
    done = run_command(["eval", *arguments], place=place)
    assert (done.code, done.stdout) == (2, b"")
    assert told in done.errors
    assert ("line 1, in <module>" in done.errors) == ("--verbose" in arguments)
    assert not [path for path in Path(place.project).iterdir() if path.suffix == ".eval"]
