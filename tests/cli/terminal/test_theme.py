"""Themes and colours by syntax: only colours change, whatever the text is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.cli.chat.test_injection import FORMS

from steersman.cli.exits import UserError
from steersman.cli.render import render_diff, render_markdown
from steersman.cli.setup.settings import find_theme
from steersman.cli.setup.settings_parser import parse_settings
from steersman.cli.terminal.highlight import (
    MAX_LINE,
    Highlighter,
    color_diff,
    find_language,
    find_language_of_file,
)
from steersman.cli.terminal.spans import paint
from steersman.cli.terminal.theme import (
    DARK,
    LIGHT,
    PLAIN,
    build_theme,
    describe_for_prompt,
    guess_theme,
    parse_color,
    use_theme,
)

SGR = re.compile(r"\x1b\[[0-9;]*m")
CODE = 'def f(x):\n    """Doc\n    more"""\n    return [1, "a"]  # note'


@pytest.fixture(autouse=True)
def theme() -> Iterator[None]:
    use_theme(DARK)
    yield
    use_theme(DARK)


def test_a_theme_gives_each_role_its_colour() -> None:
    spans = [("a", "1;36"), ("b", "keyword"), ("c", ""), ("d", "2")]
    assert paint(spans, color=True) == "\x1b[1;36ma\x1b[0m\x1b[35mb\x1b[0mc\x1b[2md\x1b[0m"
    assert paint(spans, color=False) == "abcd"
    use_theme(LIGHT)
    assert paint(spans, color=True) == "\x1b[1;38;5;25ma\x1b[0m\x1b[38;5;90mb\x1b[0mc\x1b[38;5;240md\x1b[0m"
    assert describe_for_prompt("accent") == "fg:#005faf"
    use_theme(PLAIN)
    assert paint(spans, color=True) == "\x1b[1ma\x1b[0mbc\x1b[2md\x1b[0m"
    use_theme(build_theme("mine", {"base": "plain", "accent": "bright blue", "keyword": "#ff8000", "dim": "none"}))
    assert paint(spans, color=True) == "\x1b[1;38;5;12ma\x1b[0m\x1b[38;2;255;128;0mb\x1b[0mcd"
    assert [describe_for_prompt(role) for role in ("accent", "keyword", "dim")] == [
        "fg:ansibrightblue",
        "fg:#ff8000",
        "",
    ]


def test_the_theme_comes_from_the_settings_or_suits_the_terminal() -> None:
    file = Path("config.toml")
    mine = parse_settings(b"theme = 'mine'\n[themes.mine]\nbase = 'light'\naccent = '160'\nadded = '7'", file)
    assert find_theme(mine).styles["accent"] == "38;5;160"
    assert find_theme(mine).styles["added"] == "48;5;7"
    assert find_theme(parse_settings(b"theme = 'light'", file)) is LIGHT
    assert [guess_theme({"COLORFGBG": text}) for text in ("0;15", "15;0", "")] == [LIGHT, DARK, DARK]
    wrong = ["theme = 'lihgt'", "[themes.dark]", "[themes.a]\naccent = 'blu'", "[themes.a]\nfoo = 'red'",
             "[themes.a]\nbase = 'x'", "[themes.a]\naccent = 3", "notify = 'loud'", "vim = 'yes'"]  # fmt: skip
    for text in wrong:
        with pytest.raises(UserError):
            parse_settings(text.encode(), file)
    for text in ("theme = 'light'", "vim = true", "notify = 'off'"):
        with pytest.raises(UserError, match="only your own settings"):
            parse_settings(text.encode(), file, project=True)
    with pytest.raises(ValueError, match="a colour is"):
        parse_color("256")


def test_code_is_coloured_with_what_came_before_it() -> None:
    whole = Highlighter("python").color(CODE.split("\n"))
    assert [style for _, style in whole[0]][:3] == ["keyword", "", "name"]
    assert whole[2] == [("    more" + '"""', "string")]
    block = Highlighter("python")
    assert [block.color([line])[0] for line in CODE.split("\n")] == whole
    shown = render_markdown(f"```python\n{CODE}\n```", 80, color=True)
    assert SGR.sub("", shown) == "\n".join(f"  {line}" for line in CODE.split("\n"))
    assert "\x1b[35mdef" in shown
    assert render_markdown(f"```python\n{CODE}\n```", 80, color=False) == SGR.sub("", shown)


def test_languages_are_known_by_fence_and_by_file_and_others_stay_plain() -> None:
    assert [find_language(word) for word in ("py", "C++", "{.python}", "", "brainfuck", "ts title=x")] == [
        "python", "cpp", "python", None, None, "typescript",
    ]  # fmt: skip
    assert [find_language_of_file(path) for path in ("a/b.py", "Dockerfile", "x.tar.zz", "py", "")] == [
        "python", "docker", None, "python", None,
    ]  # fmt: skip
    long = "x = 1 " * MAX_LINE
    assert Highlighter("python").color([long]) == [[(long, "")]]
    assert Highlighter(None).color(["def f"]) == [[("def f", "")]]


def test_a_language_that_took_long_stays_plain() -> None:
    ticks = iter(range(100))
    assert Highlighter("lua", clock=lambda: next(ticks)).color(["return 1"])[0][0] == ("return", "keyword")
    assert Highlighter("lua").color(["return 1"]) == [[("return 1", "")]]


def test_a_diff_shows_what_changed_and_the_language() -> None:
    many, few = {"TERM": "xterm-256color"}, {"TERM": "xterm"}
    lines = ["@@ -1 +1 @@", " def f():", "-    return 1", "+    return 'two'"]
    colored = color_diff(lines, "a.py", many)
    assert colored[0] == [("@@ -1 +1 @@", "2")]
    assert colored[2][:1] == [("-", "removed;31")]
    assert ("return", "added;keyword") in colored[3]
    assert ["".join(text for text, _ in spans) for spans in colored] == lines
    assert color_diff(lines, "notes.txt", many)[3] == [("+    return 'two'", "32")]
    assert color_diff(lines, "a.py", few)[3] == [("+    return 'two'", "32")]


HOSTILE = some.lists(
    some.sampled_from([*FORMS, '"""', "'", "\\", "/*", "*/", "<!--", "${", "\n", "\t", "def", "1", " "]), max_size=30
)


@given(HOSTILE, some.sampled_from(["python", "javascript", "bash", "html", "json", "yaml", "rust", "c"]))
def test_hostile_code_keeps_its_text_and_brings_no_sequences(parts: list[str], language: str) -> None:
    text = "".join(parts).replace("```", "")
    plain = render_markdown(f"```{language}\n{text}\n```", 60, color=False)
    shown = render_markdown(f"```{language}\n{text}\n```", 60, color=True)
    assert SGR.sub("", shown) == plain
    assert "\x1b" not in plain
    diff = "\n".join(f"+{line}" for line in text.split("\n"))
    colored = render_diff(diff, width=60, color=True, max_lines=None, path="a.py")
    assert SGR.sub("", colored) == render_diff(diff, width=60, color=False, max_lines=None)
