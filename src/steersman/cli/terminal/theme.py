"""Colours of the terminal: a theme gives each role its style, and everything that is printed goes through it.

A style is the parameters of an SGR sequence, such as `1;36`, or roles, such as `keyword`. Where `36` stands for a role,
because it is that of the theme `dark`, it becomes the theme's when a line is painted. A process has one terminal, and
so one theme.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

Role: TypeAlias = Literal[
    "accent", "good", "bad", "warn", "dim", "keyword", "string", "number", "comment", "name", "added", "removed"
]
ROLES: tuple[Role, ...] = get_args(Role)

NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_BACKGROUNDS = ("added", "removed")
# What the rest of the command writes for these roles.
_WRITTEN: Mapping[str, Role] = {"36": "accent", "32": "good", "31": "bad", "33": "warn", "2": "dim"}


@dataclass(frozen=True, slots=True)
class Theme:
    """The style of each role; a role without one is printed plainly."""

    name: str
    styles: Mapping[Role, str] = field(default_factory=dict[Role, str])


DARK = Theme(
    "dark",
    {
        "accent": "36", "good": "32", "bad": "31", "warn": "33", "dim": "2",
        "keyword": "35", "string": "32", "number": "33", "comment": "2", "name": "34",
        "added": "48;5;22", "removed": "48;5;52",
    },
)  # fmt: skip
LIGHT = Theme(
    "light",
    {
        "accent": "38;5;25", "good": "38;5;22", "bad": "38;5;124", "warn": "38;5;94", "dim": "38;5;240",
        "keyword": "38;5;90", "string": "38;5;22", "number": "38;5;94", "comment": "38;5;240", "name": "38;5;25",
        "added": "48;5;194", "removed": "48;5;224",
    },
)  # fmt: skip
PLAIN = Theme("plain", {"dim": "2", "comment": "2"})
THEMES: Mapping[str, Theme] = {theme.name: theme for theme in (DARK, LIGHT, PLAIN)}

_current = DARK
_translated: dict[str, str] = {}


def get_theme() -> Theme:
    """The theme that is used."""
    return _current


def use_theme(theme: Theme) -> None:
    """Uses a theme for everything that is printed from now on."""
    global _current
    _current = theme
    _translated.clear()


def translate_style(style: str) -> str:
    """The parameters of the theme for a style, which may have roles in it; empty if it is printed plainly."""
    if (known := _translated.get(style)) is None:
        known = _translated[style] = ";".join(found for part in style.split(";") if (found := _translate_part(part)))
    return known


def has_many_colors(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal says that it has 256 colours or more, so that a background can be a faint one."""
    return "256color" in environment.get("TERM", "") or environment.get("COLORTERM", "") in ("truecolor", "24bit")


def _translate_part(part: str) -> str:
    role = _WRITTEN.get(part) or (part if part in ROLES else None)
    return part if role is None else _current.styles.get(role, "")


def guess_theme(environment: Mapping[str, str] = os.environ) -> Theme:
    """`light` where the terminal says that its background is, as some do in `COLORFGBG`; otherwise `dark`."""
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if background in ("7", "15") else DARK


def build_theme(name: str, given: Mapping[str, str]) -> Theme:
    """Builds a theme of the settings from colours by role, on top of another one; raises `ValueError`."""
    base = given.get("base", "dark")
    if base not in THEMES:
        raise ValueError(f"base is one of {', '.join(THEMES)}, got {base!r:.50}")
    styles = dict(THEMES[base].styles)
    for role in ROLES:
        if role in given:
            styles[role] = parse_color(given[role], background=role in _BACKGROUNDS)
    return Theme(name, styles)


def parse_color(text: str, *, background: bool = False) -> str:
    """The style of a colour: a name such as `bright blue`, a number up to 255, `#rrggbb`, or `none`."""
    layer = "48" if background else "38"
    if text == "none":
        return ""
    if found := re.fullmatch(r"(bright )?([a-z]+)", text):
        if found[2] in NAMES:
            return f"{layer};5;{NAMES.index(found[2]) + (8 if found[1] else 0)}"
    elif re.fullmatch(r"\d{1,3}", text) and int(text) < 256:
        return f"{layer};5;{int(text)}"
    elif re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        return f"{layer};2;{';'.join(str(int(text[at : at + 2], 16)) for at in (1, 3, 5))}"
    raise ValueError(f"a colour is such as 'bright blue', a number up to 255, '#rrggbb' or 'none', got {text!r:.50}")


def describe_for_prompt(role: Role) -> str:
    """The style of a role as prompt_toolkit writes it."""
    style = _current.styles.get(role, "")
    if style == "2":
        return "fg:ansibrightblack"
    if found := re.fullmatch(r"3([0-7])", style):
        return f"fg:ansi{NAMES[int(found[1])].replace('white', 'gray')}"
    if found := re.fullmatch(r"38;5;(\d+)", style):
        return f"fg:{_name_color(int(found[1]))}"
    if found := re.fullmatch(r"38;2;(\d+);(\d+);(\d+)", style):
        return f"fg:#{int(found[1]):02x}{int(found[2]):02x}{int(found[3]):02x}"
    return ""


def _name_color(number: int) -> str:
    """A colour of the 256 as `#rrggbb`; the first sixteen by name, since terminals choose them."""
    if number < 16:
        names = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "gray", "brightblack", "brightred",
                 "brightgreen", "brightyellow", "brightblue", "brightmagenta", "brightcyan", "white")  # fmt: skip
        return f"ansi{names[number]}"
    if number >= 232:
        level = 8 + 10 * (number - 232)
        return f"#{level:02x}{level:02x}{level:02x}"
    levels = [0, 95, 135, 175, 215, 255]
    red, green, blue = (levels[(number - 16) // step % 6] for step in (36, 6, 1))
    return f"#{red:02x}{green:02x}{blue:02x}"
