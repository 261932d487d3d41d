"""How text is brought into columns."""

from __future__ import annotations

import pytest

from steersman.cli.render.lines import crop, measure_width


@pytest.mark.parametrize("text", ["+12", "漢字", "a漢字", "👩‍👩‍👧 at home", "two words"])
def test_cropped_text_is_never_wider_than_its_room(text: str) -> None:
    for room in range(12):
        assert measure_width(crop(text, room)) <= room
        assert crop(text, room) == text or crop(text, room).endswith("…") or room == 0
