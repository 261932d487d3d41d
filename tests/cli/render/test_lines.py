"""How text is brought into columns."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.cli.render.calls import RunningCall
from steersman.cli.render.lines import crop, join_text, measure_width, wrap_rows, wrap_spans


@pytest.mark.parametrize("text", ["+12", "漢字", "a漢字", "👩‍👩‍👧 at home", "two words"])
def test_cropped_text_is_never_wider_than_its_room(text: str) -> None:
    for room in range(12):
        assert measure_width(crop(text, room)) <= room
        assert crop(text, room) == text or crop(text, room).endswith("…") or room == 0


def test_rows_of_a_table_go_on_below_their_last_column_or_below_themselves() -> None:
    row = "/model [NAME]             show the model, or change it"
    assert [join_text(line) for line in wrap_rows(row, "", 54)] == [row]
    assert [join_text(line) for line in wrap_rows(row, "", 52)] == [
        "/model [NAME]             show the model, or change",
        "                          it",
    ]
    short = "/vim                      vi"
    assert [join_text(line) for line in wrap_rows(f"{row}\n{short}\nplain words", "", 30)] == [
        "/model [NAME]",
        "    show the model, or change",
        "    it",
        "/vim",
        "    vi",
        "plain words",
    ]
    assert [join_text(line) for line in wrap_rows("  indented words", "", 12)] == ["  indented", "  words"]


@given(st.text("ab 漢\n\t", max_size=80), st.integers(2, 40))
def test_no_row_is_wider_than_its_room_and_no_word_is_lost(text: str, room: int) -> None:
    lines = [join_text(line) for line in wrap_rows(text, "", room)]
    assert max(map(measure_width, lines)) <= room
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_of_a_very_long_command_only_the_beginning_is_measured_while_it_runs() -> None:
    """It is drawn ten times a second, and to measure a hundred thousand emoji takes longer than that."""
    running = RunningCall("bash", {"command": "\u2764\ufe0f" * 60_000}, began=0, depth=0, workspace=Path("/"))
    longest = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal longest
        if event == "call" and frame.f_code is measure_width.__code__:
            longest = max(longest, len(frame.f_locals["text"]))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        (line,) = running.render("*", 40, 0.5, color=False)
    finally:
        sys.setprofile(before)
    assert line.endswith("\u2764\ufe0f…")
    assert 40 < longest <= 2_000


def test_thousands_of_blanks_at_the_end_of_a_line_do_not_hold_up_the_chat() -> None:
    """What a tool or a server says may end so, and it is laid out in the event loop."""
    for text in (f"a word{' ' * 20_000}", " " * 20_000):
        began = time.process_time()
        assert [join_text(line) for line in wrap_spans([(text, "")], 80)] == [text.rstrip()]
        assert time.process_time() - began < 2  # 19 seconds where all that follow a blank are looked at again
