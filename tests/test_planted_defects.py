"""Defects put into a copy of the code on purpose: the tests would notice each of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Defect:
    """A change of one place in the code, and the tests that are to notice it."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


DEFECTS = {
    "the finally that closes a turn is dropped": Defect(
        "loop/turn.py",
        "    finally:\n        close_turn(run, turn)\n    return turn",
        "    if turn.message is not None and run.ending.reason is None:\n"
        "        close_turn(run, turn)\n    return turn",
        ("tests/loop/test_turn.py", "tests/loop/test_limits.py"),
    ),
    "the dispatcher takes steering": Defect(
        "loop/tool_calls/dispatch.py",
        '        for slot in self.waiting:\n            settle(self.run, slot, SKIPPED, status="not_started")',
        '        self.run.inbox.take("steering")\n'
        '        for slot in self.waiting:\n            settle(self.run, slot, SKIPPED, status="not_started")',
        ("tests/loop/tool_calls/test_tool_steering.py", "tests/failures/test_seeds.py"),
    ),
    "a skipped result is appended twice": Defect(
        "loop/tool_calls/dispatch.py",
        "        for result in turn.results:\n            add_message(run, result)\n",
        "        for result in turn.results:\n            add_message(run, result)\n"
        '            if result.details["status"] == "not_started":\n                add_message(run, result)\n',
        ("tests/loop/tool_calls/test_tool_steering.py",),
    ),
    "follow-ups are polled before the post-loop policies": Defect(
        "loop/run_loop.py",
        "        await _ask_policies(run, turn)\n",
        '        if await take_queued(run, "follow_up"):\n            return\n        await _ask_policies(run, turn)\n',
        ("tests/loop/test_turn.py", "tests/loop/test_steering.py", "tests/loop/test_hooks.py"),
    ),
    "the history is copied per turn": Defect(
        "loop/request.py",
        "    messages: Sequence[AgentMessage] = run.context.log.visible\n",
        "    messages: Sequence[AgentMessage] = list(run.context.log.visible)\n",
        ("tests/loop/test_growth.py",),
    ),
    "a raising listener is let through": Defect(
        "events/dispatch.py",
        "            except BaseException as error:",
        "            except ZeroDivisionError as error:",
        ("tests/events/test_dispatch.py", "tests/failures/test_events.py"),
    ),
    "a failing gate allows": Defect(
        "policy/hooks.py",
        '        except HookError as error:\n            return Admission(tool_call, f"Denied: {error}.")',
        "        except HookError:\n            continue",
        ("tests/loop/tool_calls/test_gates.py", "tests/failures/test_events.py"),
    ),
}


def _outcome(checkout: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """Run these tests of a checkout: how pytest ended, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout[-3000:] + done.stderr[-3000:]


def _checkout(folder: Path) -> Path:
    for part in ("src", "tests", "pyproject.toml"):
        source = ROOT / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / part)
    return folder


# Each runs tests in a copy of the sources, so most of them are for `make soak`.
ORDINARY = 2


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if at >= ORDINARY else ()) for at, name in enumerate(DEFECTS)]
)
def test_a_planted_defect_is_noticed(name: str, tmp_path: Path) -> None:
    """The tests named beside a defect fail when it is there."""
    defect = DEFECTS[name]
    checkout = _checkout(tmp_path)
    file = checkout / "src" / "steersman" / defect.file
    code = file.read_text()
    assert code.count(defect.old) == 1, f"{defect.file} has changed: say anew how {name}"
    file.write_text(code.replace(defect.old, defect.new))
    status, said = _outcome(checkout, defect.tests)
    assert (status, "1 failed" in said) == (1, True), said


@pytest.mark.parametrize("count", [ORDINARY, pytest.param(len(DEFECTS), marks=pytest.mark.soak)])
def test_without_a_defect_the_same_tests_pass(count: int, tmp_path: Path) -> None:
    """What fails above fails because of the defect, not because it is a copy."""
    tests = tuple(sorted({test for defect in list(DEFECTS.values())[:count] for test in defect.tests}))
    status, said = _outcome(_checkout(tmp_path), tests)
    assert status == 0, said
