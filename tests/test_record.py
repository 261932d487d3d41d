"""A picture of a run shows what the terminal showed, and refers to nothing outside itself."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from docs.record import Look, Run, main, record_command, render_svg

PRINTED = r"printf 'a \033[1;36mbold\033[0m \033[2mfaint\033[0m <&> \346\274\242\345\255\227\n'; exit 3"


@pytest.mark.real_time
def test_a_command_is_recorded_as_the_terminal_shows_it() -> None:
    assert record_command(["sh", "-c", PRINTED], columns=40, rows=4) == [
        [
            Run(0, "a ", Look()),
            Run(2, "bold", Look("cyan", bold=True)),
            Run(7, "faint", Look(faint=True)),
            Run(12, " <&> 漢字", Look()),
        ]
    ]


@pytest.mark.real_time
def test_what_scrolled_away_is_in_the_picture_too() -> None:
    lines = record_command(["sh", "-c", "seq 20"], columns=40, rows=4)
    assert [run.text for line in lines for run in line] == [str(number) for number in range(1, 21)]


@pytest.mark.real_time
def test_the_picture_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    picture = tmp_path / "images" / "run.svg"
    assert main(["--output", str(picture), "--columns", "40", "--", "sh", "-c", PRINTED]) == 0
    text = picture.read_text(encoding="utf-8")
    words = ["".join(part.itertext()) for part in ElementTree.fromstring(text).iter() if part.tag.endswith("}text")]
    assert [word for word in words if word] == ["steersman", "$", words[2], "a", "bold", "faint", "<&>", "漢", "字"]
    assert re.findall(r"\w+://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search("<(image|script|style|foreignObject|a|use)|href|url", text)


def test_no_text_of_a_run_becomes_markup() -> None:
    drawn = render_svg([[Run(0, "</text><script>x</script>", Look())]], title='"><script>')
    assert "<script>" not in drawn
