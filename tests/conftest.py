"""What holds around every test: async tests run on virtual time and leave nothing behind, and every run is judged."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

import hypothesis
import pytest
from _pytest.runner import runtestprotocol
from tests.pace import PacedLoop
from tests.rows import run_rows

from steersman.loop.run import witness
from steersman.testing import Witness, run_virtual

SOAK = os.environ.get("STEERSMAN_SOAK") == "1"
# Programs that must be installed, separated by commas: a test that is skipped because one is missing fails.
REQUIRED = [name for name in os.environ.get("STEERSMAN_REQUIRE", "").lower().split(",") if name]

# No deadline: examples run on virtual time, and real time on a busy machine says nothing.
# `make test` tries the same few examples every time, so a change is judged by itself; `make fuzz` tries many new ones.
hypothesis.settings.register_profile("ordinary", deadline=None, print_blob=True, derandomize=True, max_examples=20)
EXAMPLES = int(os.environ.get("STEERSMAN_EXAMPLES", "500"))
hypothesis.settings.register_profile("soak", deadline=None, print_blob=True, max_examples=EXAMPLES)
hypothesis.settings.load_profile("soak" if SOAK else "ordinary")

# Every test process and every Python that a test starts would compile the same modules again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The tests themselves are millions of objects: they are set aside, so that no collection during a test visits them.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect garbage again, now that all tests are known; what is there stays.

    Seldom: with so much set aside, every full collection would look due.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


# These tests take longest, or share a look at all modules. At the end, where processes take tests from each other, one
# process would go on alone, or each of them would look at all modules.
FIRST = ("test_house.py", "test_docs_types.py", "test_killed.py", "test_planted_defects.py", "test_reference.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first. With more examples, new ones each time, the properties are their own campaign."""
    items.sort(key=lambda item: item.path.name not in FIRST)
    for item in items:
        if SOAK and isinstance(item, pytest.Function) and hypothesis.is_hypothesis_test(item.obj):
            item.add_marker("fuzz")


@pytest.hookimpl
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker reports a test that passes once, with its call: reports to another process cost more than most tests.

    Where anything is amiss, the setup and the teardown are reported as well.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    calls = [report for report in reports if report.when == "call"]
    for report in calls if all(report.passed for report in reports) else reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip for the sake of a program that `STEERSMAN_REQUIRE` names is a failure."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if any(name in reason.lower() for name in REQUIRED):
            report.outcome = "failed"
            report.longrepr = f"STEERSMAN_REQUIRE forbids this skip: {reason}"
    return report


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Call it with a line of what a test has measured: it is shown after all tests, whether the test passes or not."""

    def tell(line: str) -> None:
        print(line)
        record_property("measured", line)

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the tests have measured, also those that ran in other processes."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            lines = [value for name, value in getattr(report, "user_properties", ()) if name == "measured"]
            if lines and report.when == "call":
                terminalreporter.write_sep("-", f"measured by {report.nodeid}")
                terminalreporter.write_line("\n".join(lines))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """An `async def` test is run to its end on a loop of its own; one inside `@given`, and every row, as well."""
    run = _run_real if pyfuncitem.get_closest_marker("real_time") else run_virtual
    inner = getattr(pyfuncitem.obj, "hypothesis", None)
    if hasattr(pyfuncitem.obj, "rows"):
        pyfuncitem.obj = functools.partial(run_rows, pyfuncitem.obj, run)
    elif inner is not None:
        if inspect.iscoroutinefunction(inner.inner_test):
            inner.inner_test = _driven(inner.inner_test, run)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _driven(pyfuncitem.obj, run)


@pytest.fixture(scope="session", autouse=True)
def heedful() -> Iterator[None]:
    """What the tests start heeds its signals, also where they run in the background or under `nohup`, which do not.

    A signal that a process ignores is ignored by all it starts.
    """
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def without_proxies() -> Iterator[None]:
    """Every server of the tests is on this machine: it is not reached through a proxy of the user."""
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name.lower().endswith("_proxy")}
    yield
    os.environ.update(taken)


@pytest.fixture(autouse=True)
def witnessed() -> Iterator[Witness]:
    """Every event of every run in the test is held to the grammar, and every transcript to its rules."""
    judge = Witness()
    token = witness.set(judge)
    yield judge
    witness.reset(token)
    judge.check()


Work = Callable[..., Coroutine[Any, Any, None]]
Run = Callable[[Coroutine[Any, Any, None]], None]


def _driven(function: Work, run: Run) -> Callable[..., None]:
    @functools.wraps(function)
    def test(*args: Any, **kwargs: Any) -> None:
        run(function(*args, **kwargs))

    return test


def _run_real(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=PacedLoop) as runner:
        runner.run(work)
        runner.run(asyncio.sleep(0))
        left = [task for task in asyncio.all_tasks(runner.get_loop()) if not task.done()]
    assert not left, f"Tasks left when the test was over: {left!r}"
