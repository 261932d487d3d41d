"""Tables of cheap cases: all rows of a table are one test, whose failure names every row that failed.

A test of its own for every row would cost more than most rows do. `STEERSMAN_EACH_ROW=1` makes every row a test of its
own, with its own fixtures; without it, the rows of a table share theirs.
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

from steersman.loop.run import witness
from steersman.testing import Witness

EACH_ROW = os.environ.get("STEERSMAN_EACH_ROW") == "1"
Function = TypeVar("Function", bound=Callable[..., Any])
Run = Callable[[Coroutine[Any, Any, None]], None]
Row = tuple[str, dict[str, Any]]
_LONGEST = 300
_FRAMES = 3


def each_row(
    names: str | Sequence[str],
    values: Iterable[Any],
    *,
    ids: Iterable[str | int] | Callable[[Any], object] | None = None,
) -> Callable[[Function], Function]:
    """Call the test once for every row of values: as `pytest.mark.parametrize`, but in one test."""
    if EACH_ROW:
        return pytest.mark.parametrize(names, values, ids=ids)
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [_read_row(columns, value) for value in values]
    if ids is not None:
        given = ["-".join(str(ids(cell)) for cell in row.values()) for _, row in table] if callable(ids) else ids
        table = [(str(name), row) for name, (_, row) in zip(given, table, strict=True)]
    assert table, "A table without rows tests nothing."

    def decorate(function: Function) -> Function:
        before: list[Row] = getattr(function, "rows", [("", {})])
        joined = [(_join(inner, outer), {**row, **more}) for outer, more in table for inner, row in before]
        signature = inspect.signature(function)
        assert set(columns) <= {*signature.parameters}, f"{columns} are not parameters of the test"
        kept = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        # What pytest takes for the fixtures of the test.
        vars(function).update(rows=joined, __signature__=signature.replace(parameters=kept))
        return function

    return decorate


def run_rows(function: Callable[..., Any], run: Run, /, **fixtures: Any) -> None:
    """Call a test for every row of its table, each on an event loop of its own; raise one error for all that failed."""
    table: list[Row] = vars(function)["rows"]
    failed: list[str] = []
    for name, row in table:
        try:
            _run_row(function, run, {**fixtures, **row})
        except Exception as error:  # noqa: BLE001  # whatever a row raises, the others are tried as well
            failed.append(_describe(name, row, error))
        except pytest.skip.Exception as reason:
            failed.append(_describe(name, row, f"A row cannot be skipped: {reason}"))
        except pytest.fail.Exception as error:  # also a timeout, after which nothing would stop the next row
            failed.append(_describe(name, row, f"{error}\nThe rows after it were not tried."))
            break
    if failed:
        pytest.fail(f"{len(failed)} of {len(table)} rows failed:\n\n" + "\n\n".join(failed), pytrace=False)


def _run_row(function: Callable[..., Any], run: Run, arguments: dict[str, Any]) -> None:
    judge = Witness()
    token = witness.set(judge)
    try:
        result = function(**arguments)
        if inspect.iscoroutine(result):
            run(result)
    finally:
        witness.reset(token)
    judge.check()


def _read_row(columns: list[str], value: Any) -> Row:
    name = ""
    if isinstance(value, ParameterSet):
        assert not value.marks, "A row has no marks of its own."
        name, value = str(value.id or ""), value.values if len(columns) > 1 else value.values[0]
    cells = value if len(columns) > 1 else (value,)
    return name, dict(zip(columns, cells, strict=True))


def _join(inner: str, outer: str) -> str:
    return "-".join(name for name in (inner, outer) if name)


def _describe(name: str, row: dict[str, Any], trouble: Exception | str) -> str:
    """The row with its values, the lines that failed, and what was expected and found there."""
    values = ", ".join(f"{column}={_shorten(repr(value))}" for column, value in row.items())
    if isinstance(trouble, Exception):
        trouble = "".join(traceback.format_exception(trouble, limit=-_FRAMES)).rstrip()
    return f"[{name}] {values}\n{trouble}"


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
