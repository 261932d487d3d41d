"""Checks of programs for which a list of options is not enough: scripts, formats, addresses and remotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from steersman.policy.shell.arguments import Arguments

_REGEX = r"/(?:[^/\\\n\[]|\\[^\n]|\[\^?\]?[^\]/\n]*\])+/[IM]*"
_ADDRESS = rf"(?:[0-9]+(?:~[0-9]+)?|\$|{_REGEX})"
_PLACE = rf"(?:{_ADDRESS}(?:,(?:{_ADDRESS}|[+~][0-9]+))?[ \t]*!?[ \t]*)?"
_SED_PRINT = re.compile(
    rf"[ \t]*{_PLACE}(?:[pd=l]|[qQ][0-9]*)[ \t]*(?:[;\n][ \t]*{_PLACE}(?:[pd=l]|[qQ][0-9]*)[ \t]*)*;?"
)
_SED_REPLACE = re.compile(
    rf"{_PLACE}s(?P<mark>[/|,#:@%+])(?:(?!(?P=mark))[^\\\n]|\\[^\n])*(?P=mark)(?:(?!(?P=mark))[^\\\n]|\\[^\n])*(?P=mark)"
    r"[gpiImM0-9]*"
)
_URL = re.compile(r"(?:[Hh][Tt][Tt][Pp][Ss]?://)?[A-Za-z0-9.-]+(?::[0-9]+)?(?:[/?#][^{}\[\]@\\]*)?")
_WRITE_OUT = re.compile(r"(?:[^%@]|%%|%\{[a-z_.]+\}|%header\{[A-Za-z0-9-]+\})*")
_CURL_VALUES = {
    ("-o", "--output"): re.compile("/dev/null"),
    ("-w", "--write-out"): _WRITE_OUT,
    ("-X", "--request"): re.compile("GET|HEAD|OPTIONS"),
}
_SIGNATURE = re.compile(r"%[-+ ]?G|signature", re.IGNORECASE)
_PS_LETTERS = re.compile(r"[aufxwlrTjvsmHZXhSc]+|[0-9,]+")
_PS_FORMAT = re.compile(r"[a-z0-9_,=:%+-]+")
_PS_NUMBERS = re.compile(r"[0-9,]+")
_PS_SELECT = tuple([f"-{letter}" for letter in "CGgnpqstUu"]) + tuple(
    [f"--{name}" for name in ("Group", "group", "pid", "ppid", "quick-pid", "sid", "tty", "User", "user")]
)
_MODE = re.compile(r"[ugoa]*[-+=][rwxX]+|0?[0-7]{3}")
_REMOTES = frozenset(("origin", "upstream"))


def _check_sed(found: Arguments) -> str | None:
    """Allow only printing, deleting and replacing lines of the output: a script can run commands and write files."""
    scripts = found.list_values("-e", "--expression") or found.operands[:1]
    harmless = all(
        script.wild < 0 and (_SED_PRINT.fullmatch(script.text) or _SED_REPLACE.fullmatch(script.text))
        for script in scripts
    )
    if scripts and harmless:
        return None
    return "only sed scripts that print, delete or replace lines of the output are known to be harmless"


def _check_printf(found: Arguments) -> str | None:
    first = found.operands[0].text if found.operands else ""
    return f"the option {first!r:.200} sets a variable" if first.startswith("-") and first != "--" else None


def _check_date(found: Arguments) -> str | None:
    wrong = [word.text for word in found.operands if not word.text.startswith("+")]
    return f"{wrong[0]!r:.200} sets the clock" if wrong else None


def _check_ps(found: Arguments) -> str | None:
    """BSD options have no dash, and `e` shows the environment variables of other processes.

    Where ps does not know a user or a terminal, it reads all options again as BSD options, also those with a dash.
    """
    formats = found.list_values("-o", "-O", "--format", "--sort")
    after_format = False
    for word in found.operands:
        if after_format:
            formats.append(word)
            after_format = False
        elif word.text.endswith("o") and _PS_LETTERS.fullmatch(word.text[:-1]):
            after_format = True
        elif not _PS_LETTERS.fullmatch(word.text):
            return f"{word.text!r:.200} may show the environment of other processes"
    for word in formats:
        if not _PS_FORMAT.fullmatch(word.text) or "env" in word.text:
            return f"{word.text!r:.200} may show the environment of other processes"
    everything = any(name == "-e" for name, _ in found.options)
    for word in found.list_values(*_PS_SELECT):
        if not _PS_NUMBERS.fullmatch(word.text) and (everything or "e" in word.text.lower()):
            return f"with {word.text!r:.200}, ps may show the environment of other processes"
    return None


def _check_curl(found: Arguments) -> str | None:
    """`@` before a name sends that file, `{}` and `[]` make several addresses of one, and `file:` reads a file."""
    for word in found.operands:
        if not _URL.fullmatch(word.text):
            return f"{word.text!r:.200} is not a plain http address"
    values = [value for _, value in found.options if value is not None]
    for value in values:
        if "@" in value.text:
            return f"{value.text!r:.200} can send a file, or names one"
    for names, pattern in _CURL_VALUES.items():
        for value in found.list_values(*names):
            if not pattern.fullmatch(value.text):
                return f"the value {value.text!r:.200} of {names[0]!r} can write a file or change something"
    return None


def _check_git_format(found: Arguments) -> str | None:
    """`%G?` and the field `signature` run gpg."""
    for value in found.list_values("--format", "--pretty", "--sort", "--group"):
        if _SIGNATURE.search(value.text):
            return f"{value.text!r:.200} runs gpg"
    return None


def _check_remote(found: Arguments) -> str | None:
    """A remote that is not configured is taken for a path or an address, whose repository can run programs."""
    names = [word.text for word in found.operands]
    if names and names[0] not in _REMOTES:
        return f"{names[0]!r:.200} may be another repository than those of this one"
    wrong = [name for name in names[1:] if "::" in name or name.startswith("+")]
    return f"{wrong[0]!r:.200} may overwrite a branch" if wrong else None


def _check_push(found: Arguments) -> str | None:
    names = [word.text for word in found.operands]
    if names and names[0] not in _REMOTES:
        return f"{names[0]!r:.200} may be another repository than those of this one"
    wrong = [name for name in names[1:] if name.startswith(("+", ":"))]
    return f"{wrong[0]!r:.200} overwrites or deletes a branch" if wrong else None


def _check_audit(found: Arguments) -> str | None:
    """`npm audit fix`, `mocha init` and `vitest init` change files."""
    wrong = [word.text for word in found.operands if word.text in ("fix", "init")]
    return f"{wrong[0]!r} changes files" if wrong else None


def _check_cloud(found: Arguments) -> str | None:
    """Values that name a file or an address are read from there."""
    words = [*found.operands, *[value for _, value in found.options if value is not None]]
    wrong = [
        word.text
        for word in words
        if word.text.startswith("@") or ("://" in word.text and not word.text.startswith(("s3://", "gs://")))
    ]
    return f"{wrong[0]!r:.200} can send a file, or names one" if wrong else None


def _check_chmod(found: Arguments) -> str | None:
    mode = found.operands[0].text if found.operands else ""
    return None if _MODE.fullmatch(mode) else f"the mode {mode!r:.200} is not a plain one"


Check: TypeAlias = Callable[[Arguments], str | None]
CHECKS: dict[str, Check] = {
    "sed": _check_sed,
    "printf": _check_printf,
    "date": _check_date,
    "ps": _check_ps,
    "curl": _check_curl,
    "gitformat": _check_git_format,
    "remote": _check_remote,
    "push": _check_push,
    "audit": _check_audit,
    "aws": _check_cloud,
    "chmod": _check_chmod,
}
"""The checks by the name that the tables use; each explains what needs approval, or returns `None`."""
