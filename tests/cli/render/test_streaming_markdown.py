"""Markdown that arrives in pieces looks as if it had come at once, and costs no more than its length."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.cli.render.attacks import ANY_TEXT
from tests.cli.render.runs import plain

from steersman.cli.render import render_markdown
from steersman.cli.render.streaming_markdown import STEP, StreamingMarkdown

TEXT = """\
# A title with *emphasis*

Some **bold** words, `code`, [a link](http://a.example/b) and <b>tags</b>.
A second line.

1. one
2. two

   with a paragraph
3. three
   - nested
   - twice

- apart

- from each other

> quoted
> text

```python
def double(x):
\treturn 2 * x
```

| name | size |
|:-----|-----:|
| **a** | 1 |
| b | 1000 |

---
The end.
"""

SHOWN = """\
# A title with emphasis

Some bold words, `code`, a link
(http://a.example/b) and <b>tags</b>.
A second line.

1. one
2. two

   with a paragraph
3. three
   • nested
   • twice

• apart

• from each other

│ quoted
│ text

  def double(x):
      return 2 * x

name  size
────  ────
a        1
b     1000

────────────────────────────────────────

The end."""


def streamed(pieces: list[str], width: int, *, color: bool = True) -> list[str]:
    text = StreamingMarkdown(color=color)
    lines: list[str] = []
    for piece in pieces:
        text.add(piece)
        lines += text.take_finished(width)
        text.render_live(width)
    text.close()
    while not text.done:
        lines += text.take_finished(width)
    return lines


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[low:high] for low, high in pairwise(ends)]


def test_markdown_looks_like_what_it_says() -> None:
    assert render_markdown(TEXT, 40, False) == SHOWN


def test_line_ends_of_any_kind_are_line_ends() -> None:
    assert render_markdown("a\r\nb\r\n\r\nc\rd", 40, False) == "a\nb\n\nc␍d"
    assert streamed(["a\r", "\nb"], 40) == ["a", "b"]


def test_with_colours_the_signs_are_not_needed() -> None:
    assert plain(render_markdown("## A title\n\n`code`", 40, True)) == "A title\n\ncode"
    assert render_markdown("**b** `c` *i*", 40, True) == "\x1b[1mb\x1b[0m \x1b[36mc\x1b[0m \x1b[3mi\x1b[0m"


@given(st.lists(st.integers(0, len(TEXT)), max_size=30), st.sampled_from([20, 40, 100]))
@example(list(range(len(TEXT))), 40)
def test_where_it_is_cut_makes_no_difference(places: list[int], width: int) -> None:
    assert "\n".join(streamed(cut(TEXT, places), width)) == render_markdown(TEXT, width, True)


@given(ANY_TEXT, st.lists(st.integers(0, 30), max_size=6))
@example("a\r\nb", [2])
@example("- a\n\n- b\n1. c\n> d\ne", [4, 5, 9])
@example("a \ud83d\ude00", [3])
@example("```\na\n``\n```\nb", [7])
@example("~~~\n```\n~~~~\nb", [4, 8])
def test_where_any_text_is_cut_makes_no_difference(text: str, places: list[int]) -> None:
    assert "\n".join(streamed(cut(text, places), 30)) == render_markdown(text, 30, True)


@given(ANY_TEXT, st.integers(20, 60))
def test_no_line_is_wider_than_the_window(text: str, width: int) -> None:
    for shown in (text, f"- {text}", f"> 1. {text}", f"|{text}|b|\n|-|-|\n|{text}|{text}|", f"```\n{text}\n```"):
        for line in plain(render_markdown(shown, width, True)).split("\n"):
            assert cell_len(line) <= width, line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("漢字かな交じり文。漢字かな交じり文。", ["漢字かな交じり文。漢", "字かな交じり文。"]),
        ("👩‍👩‍👧 👍🏽 ❤️ 🇩🇪 ab cd ef gh", ["👩‍👩‍👧 👍🏽 ❤️ 🇩🇪 ab", "cd ef gh"]),
        ("http://a.example/" + "b" * 20, ["http://a.example/bbb", "bbbbbbbbbbbbbbbbb"]),
        ("a b c d e f g h i j k l m n", ["a b c d e f g h i j", "k l m n"]),
        ("a\tb", ["a   b"]),
    ],
)
def test_lines_break_where_they_should(text: str, shown: list[str]) -> None:
    assert render_markdown(text, 20, False).split("\n") == shown


def test_a_table_without_room_is_shown_cell_by_cell() -> None:
    text = "| name | size | colour |\n|---|---|---|\n| a window | very large | greenish |\n| b | c | d |\n"
    assert render_markdown(text, 20, False).split("\n") == [
        "name: a window",
        "size: very large",
        "colour: greenish",
        "",
        "name: b",
        "size: c",
        "colour: d",
    ]


def test_complete_blocks_are_given_while_the_next_one_arrives() -> None:
    text = StreamingMarkdown(color=False)
    text.add("One.\n\nTw")
    assert (text.take_finished(40), text.render_live(40)) == (["One."], ["", "Tw"])
    text.add("o.\n\n```\na = 1\nb")
    assert (text.take_finished(40), text.render_live(40)) == (["", "Two.", "", "  a = 1"], ["  b"])
    text.add(" = 2\n```\n- c\n- d")
    assert (text.take_finished(40), text.render_live(40)) == (["  b = 2"], ["", "• c", "• d"])
    text.add("\n")
    assert (text.take_finished(40), text.render_live(40)) == (["", "• c"], ["• d"])


def test_a_block_that_never_ends_is_given_in_parts() -> None:
    """However long a paragraph, a table or a line of code grows, what is laid out again and again stays short."""
    for shape in ("word " * 5_000, "|a|b|\n|-|-|\n" + "|some|cells|\n" * 2_000, "```\n" + "x" * 25_000, "`x" * 10_000):
        text = StreamingMarkdown(color=False)
        lines = 0
        for place in range(0, len(shape), 800):
            text.add(shape[place : place + 800])
            lines += len(text.take_finished(80))
            assert len(text.render_live(80)) < 300
        assert lines > 200


@pytest.mark.parametrize(
    "shape",
    [
        "Some words of a text.\n\n",
        "word ",
        "word",
        "- item\n",
        "\n",
        "\ud83d\ude00",
        "```\nx\n```\n",
        "|a|b|\n|-|-|\n" + "|some|cells|\n" * 500,
    ],
)
def test_a_text_that_arrives_at_once_is_rendered_in_steps(shape: str) -> None:
    """Between the steps of an answer of a megabyte, keys are read."""
    text = StreamingMarkdown(color=False)
    text.add(shape * (400_000 // len(shape)))
    text.close()
    steps: list[int] = []
    while not text.done:
        assert text.waiting
        steps.append(sum(map(len, text.take_finished(80))))
    assert len(steps) >= 25
    assert max(steps) <= 2 * STEP


def test_a_text_in_steps_is_all_there() -> None:
    words = [f"word{number}" for number in range(20_000)]
    for sign in (" ", "\n", "\n\n", "\n- ", "\n```\n"):
        assert re.findall(r"word\d+", render_markdown(sign.join(words), 80, False)) == words


def test_a_row_that_is_longer_than_a_table_may_grow_follows_its_header_once() -> None:
    text = "|a|b|\n|-|-|\n" + "|" + "x" * 30_000
    pieces = [text[place : place + 1_000] for place in range(0, len(text), 1_000)]
    shown = "".join(streamed(pieces, 80, color=False))
    assert shown.count("x") == 30_000
    assert shown.count("\u2500  \u2500") < 5


def test_the_rest_of_a_long_table_is_under_its_header_again() -> None:
    rows = [f"|{number}|cell|" for number in range(2_000)]
    shown = "\n".join(streamed(["\n".join(["|no|what|", "|-|-|", *rows[:1000], ""]), "\n".join(rows[1000:])], 40))
    assert plain(shown).count("no    what") >= 1
    for number in range(2_000):
        assert f"\n{number} " in plain(shown)


def test_a_table_whose_rows_lack_most_of_their_cells_is_shown_as_it_was_written() -> None:
    """The parser would add the missing ones: to draw those of five kilobytes takes many seconds."""
    text = "|".join("a" * 300) + "\n" + "|".join("-" * 300) + "\n" + "b|c\n" * 1_000
    assert render_markdown(text, 10_000, False).count("b|c") == 1_000
    rows = "x|y\n|x|y|\nx\n" * 400
    assert render_markdown(f"a|b\n-|-\n{rows}", 80, False).split("\n").count("x  y") == 800


def test_many_lines_without_a_blank_one_cost_no_more_than_their_length() -> None:
    """Where each line was asked whether a table begins there, the whole rest was looked at each time."""
    text = "a\n" * 30_000
    began = time.process_time()
    render_markdown(text, 80, False)
    assert time.process_time() - began < 2.5
