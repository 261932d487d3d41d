"""A table of rows is one test, and no row of it is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.rows import EACH_ROW, each_row, run_rows

from steersman.loop.run import witness
from steersman.testing import Witness, run_virtual

pytestmark = pytest.mark.skipif(EACH_ROW, reason="every row is a test of its own")


@each_row("letter", ["a", "b"])
@each_row(("number", "twice"), [(1, 2), pytest.param(3, 6, id="three")])
async def test_a_row_has_the_values_of_every_table_and_the_fixtures(
    tmp_path: Path, letter: str, number: int, twice: int
) -> None:
    assert twice == 2 * number
    place = tmp_path / letter
    place.mkdir(exist_ok=True)
    (place / str(number)).touch(exist_ok=False)
    if (letter, number) == ("b", 3):
        made = tmp_path.glob("*/*")  # noqa: ASYNC240  # files of this test alone
        assert sorted(str(path.relative_to(tmp_path)) for path in made) == ["a/1", "a/3", "b/1", "b/3"]


def test_every_row_that_fails_is_named_with_what_was_expected_and_found() -> None:
    called: list[int] = []

    @each_row("number", [1, pytest.param(20, id="twenty"), 3, 40, 50, 60, 7])
    async def check(number: int) -> None:
        called.append(number)
        judge = witness.get()
        assert isinstance(judge, Witness)
        if number == 40:
            pytest.skip("no forties")
        elif number == 50:
            lost = asyncio.get_running_loop().create_task(asyncio.sleep(3600))
            assert not lost.done()
        elif number == 60:
            judge.faults.append("an event out of order")
        else:
            assert number < 10, f"{number} is not below ten"

    with pytest.raises(pytest.fail.Exception) as caught:
        run_rows(check, run_virtual)
    first, *failed = str(caught.value).split("\n\n[")
    assert called == [1, 20, 3, 40, 50, 60, 7]
    assert first == "4 of 7 rows failed:"
    twenty, forty, fifty, sixty = failed
    assert twenty.startswith("twenty] number=20\n")
    assert "20 is not below ten" in twenty
    assert forty.startswith("] number=40\n")
    assert "A row cannot be skipped: no forties" in forty
    assert fifty.startswith("] number=50\n")
    assert "sleep" in fifty
    assert sixty.startswith("] number=60\n")
    assert "an event out of order" in sixty


def test_after_a_row_that_took_too_long_none_is_tried() -> None:
    called: list[int] = []

    @each_row("number", [1, 2, 3])
    def check(number: int) -> None:
        called.append(number)
        if number == 2:
            pytest.fail("Timeout (>120.0s) from pytest-timeout.")

    with pytest.raises(pytest.fail.Exception) as caught:
        run_rows(check, run_virtual)
    told = "[] number=2\nTimeout (>120.0s) from pytest-timeout.\nThe rows after it were not tried."
    assert str(caught.value) == f"1 of 3 rows failed:\n\n{told}"
    assert called == [1, 2]


def test_a_table_that_does_not_fit_the_test_is_refused() -> None:
    def check(number: int) -> None:
        assert number

    with pytest.raises(AssertionError, match="without rows"):
        each_row("number", [])
    with pytest.raises(AssertionError, match="not parameters"):
        each_row("other", [1])(check)
    with pytest.raises(ValueError, match="shorter"):
        each_row("one,two", [(1,)])
    with pytest.raises(ValueError, match="longer"):
        each_row("number", [1, 2], ids=["one"])
    with pytest.raises(AssertionError, match="no marks"):
        each_row("number", [pytest.param(1, marks=pytest.mark.soak)])
