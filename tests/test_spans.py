"""The picture of a run's spans shows each of them, and refers to nothing outside itself."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from docs.spans import PICTURE, Bar, lay_out, record_spans, render_svg

NAMES = [
    "invoke_agent tides",
    "chat large-model",
    "chat large-model",
    "execute_tool search",
    "execute_tool researcher",
    "invoke_agent researcher",
    "chat small-model",
    "execute_tool read_page",
    "chat small-model",
    "chat large-model",
]


async def test_the_run_of_the_picture_has_these_spans() -> None:
    bars = lay_out(await record_spans())
    assert [bar.name for bar in bars] == NAMES
    assert [bar.depth for bar in bars] == [0, 1, 1, 2, 2, 3, 4, 5, 4, 1]
    assert [name for _, name in bars[0].events] == ["steersman.retry", "steersman.steering"]
    assert [bar.note for bar in bars if bar.failed] == ["overloaded"]


def read_words(picture: str) -> list[str]:
    parts = ElementTree.fromstring(picture).iter()
    return ["".join(part.itertext()) for part in parts if part.tag.endswith("}text")]


def test_the_picture_in_the_documents_is_of_that_run_and_needs_nothing_else() -> None:
    text = Path(PICTURE).read_text(encoding="utf-8")
    words = read_words(text)
    assert [word for word in words if word in NAMES] == NAMES
    assert {"retry", "steering", "overloaded"} <= set(words)
    assert re.findall(r"\w+://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search("<(image|script|style|foreignObject|a|use)|href|url", text)


def test_no_name_of_a_span_becomes_markup() -> None:
    drawn = render_svg([Bar(0, "chat <script>", 0.0, 1.0, "<b>", False, ((0.5, "x.<i>"),))])
    assert {"chat <script>", "<b>", "<i>"} <= set(read_words(drawn))
