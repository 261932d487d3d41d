"""Checks of programs for which a list of options is not enough: scripts, formats, addresses and remotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from steersman.policy.shell.arguments import Arguments

# To BSD sed, a delimiter in a bracket expression is part of it, to GNU sed it is not: none may be there.
_BRACKET = r"\[\^?+\]?+(?:\[(?!{mark}):[a-z]+:\]|\\[A-Za-z]|(?!{mark})[^\]\[\\\n])*\]"
_REGEX = rf"/(?:[^/\\\n\[]|\\[^\n]|{_BRACKET.format(mark='/')})+/[IM]*"
_ADDRESS = rf"(?:[0-9]+(?:~[0-9]+)?|\$|{_REGEX})"
_PLACE = rf"(?:{_ADDRESS}(?:,(?:{_ADDRESS}|[+~][0-9]+))?[ \t]*(?:![ \t]*)?)?"
_SED_MANY = re.compile(
    rf"(?:[ \t]*{_PLACE}(?:[pd=l]|[qQ][0-9]*|s(?P<mark>[/|,#:@%+])(?:(?!(?P=mark))[^\\\n\[]|\\[^\n]|"
    rf"{_BRACKET.format(mark='(?P=mark)')})*(?P=mark)(?:(?!(?P=mark))[^\\\n]|\\[^\n])*(?P=mark)[gpiImM0-9]*)"
    r"[ \t]*(?:[;\n]|\Z))+"
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
_PS_LETTERS = re.compile(r"[auxfwl]+|[0-9,]+")
_PS_FULL = frozenset(("-f", "-F", "-l"))
_PS_FORMAT = re.compile(r"[a-z0-9_,=:%+-]+")
# Arguments of numbers are expressions to some shells, `%n` sets a variable, and `%(` is a date.
_PRINTF = re.compile(r"(?:[^%\\]|\\[nrt\\0]|%%|%-?[0-9]*(?:\.[0-9]+)?s)*")
_OTHER_PROTOCOLS = re.compile(r"(?:ftp|dict|ldap|imap|smtp|pop3)\.", re.IGNORECASE)
_MESSAGES = frozenset(("-m", "--message", "-F", "--file"))
# With these, git commit takes a message that there is already, or makes no commit.
_NO_EDITOR = _MESSAGES | {
    "-C",
    "--reuse-message",
    "--no-edit",
    "--fixup",
    "--dry-run",
    "--short",
    "--porcelain",
    "--long",
}
_LOOKS = frozenset(("--check", "--stat", "--numstat", "--summary"))
_PLAIN = re.compile(r"[A-Za-z0-9_./:@,+%^~-]*")
_MODE = re.compile(r"[ugoa]*[-+=][rwxX]+|0?[0-7]{3}")
# Databases that getent reads from files of this machine, or from the server that knows its users.
_DATABASES = frozenset(("passwd", "group", "services", "protocols"))
_REMOTES = frozenset(("origin", "upstream"))
# A folder, a package whose name is no host, or a file.
_GO_PACKAGE = re.compile(r"\.(?:/.*)?|[A-Za-z0-9_-]+(?:/.*)?|[^/]+\.go")


def _check_sed(found: Arguments) -> str | None:
    """Allow only printing, deleting and replacing lines of the output: a script can run commands and write files."""
    scripts = found.list_values("-e", "--expression") or found.operands[:1]
    harmless = all(
        script.wild < 0 and (_SED_MANY.fullmatch(script.text) or _SED_REPLACE.fullmatch(script.text))
        for script in scripts
    )
    if scripts and harmless:
        return None
    return "only sed scripts that print, delete or replace lines of the output are known to be harmless"


def _check_printf(found: Arguments) -> str | None:
    """`-v` and `%n` set a variable, such as HOME or PATH for the commands that follow."""
    if not found.operands:
        return None
    first = found.operands[0]
    harmless = first.wild < 0 and not first.text.startswith("-") and _PRINTF.fullmatch(first.text)
    return None if harmless else f"the format {first.text!r:.200} may set a variable"


def _check_date(found: Arguments) -> str | None:
    wrong = [word.text for word in found.operands if not word.text.startswith("+")]
    return f"{wrong[0]!r:.200} sets the clock" if wrong else None


def _check_ps(found: Arguments) -> str | None:
    """BSD options have no dash, and `e` shows the environment variables of other processes.

    Where options contradict each other (`-eHT`, `-ef -o args`), ps reads them again as BSD options, also those with a
    dash.
    """
    formats = found.list_values("-o", "-O", "--format", "--sort")
    names = {name for name, _ in found.options}
    if "-e" in names and _count_ps_formats(names, found) > 1:
        return "with several formats, '-e' may show the environment of other processes"
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
    return None


def _count_ps_formats(names: set[str], found: Arguments) -> int:
    """Count the formats that are asked for: `-f` and its like, `-o`, and BSD options."""
    bsd = any(not word.text[:1].isdigit() for word in found.operands)
    return (not names.isdisjoint(_PS_FULL)) + (not names.isdisjoint(("-o", "--format"))) + bsd


def _check_curl(found: Arguments) -> str | None:
    """`@` before a name sends that file, `{}` and `[]` make several addresses of one, and `file:` reads a file."""
    for word in found.operands:
        start = word.text[: word.wild] if word.wild >= 0 else word.text
        # `fil?:///x` and `fil??/x` become `file:///x` and `file:/x` where the folder `file:` exists.
        rest = word.text[len(start) :]
        unsure = "/" not in start and (":" in rest or "/" in rest)
        if unsure or not _URL.fullmatch(word.text) or _OTHER_PROTOCOLS.match(word.text):
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


def _check_commit(found: Arguments) -> str | None:
    """Without a message, git opens an editor, and that takes commands from a pipe: `echo ':!x' | git commit`."""
    silent = not _NO_EDITOR.isdisjoint([name for name, _ in found.options])
    if silent and not any(":" in value.text for value in found.list_values("--fixup")):
        return None
    return "without a message, it opens an editor, which can run other programs"


def _check_tag(found: Arguments) -> str | None:
    names = {name for name, _ in found.options}
    if names & {"-a", "--annotate"} and not names & _MESSAGES:
        return "without a message, it opens an editor, which can run other programs"
    return _check_git_format(found)


def _check_remote(found: Arguments) -> str | None:
    """A remote that is not configured is taken for a path or an address, whose repository can run programs."""
    if (why := _check_git_format(found)) is not None:
        return why
    names = [word.text for word in found.operands]
    if names and names[0] not in _REMOTES:
        return f"{names[0]!r:.200} may be another repository than those of this one"
    wrong = [word.text for word in found.operands[1:] if word.wild >= 0 or _may_overwrite(word.text)]
    return f"{wrong[0]!r:.200} may overwrite a branch" if wrong else None


def _may_overwrite(refspec: str) -> bool:
    """With `--prune`, a refspec with a wildcard deletes every branch that it could name; a file may be named so."""
    return "::" in refspec or refspec.startswith("+") or ("*" in refspec and ":" in refspec)


def _check_remotes(found: Arguments) -> str | None:
    """Every operand is a remote, and one that is not configured is an address to connect to."""
    wrong = [word.text for word in found.operands if word.text not in _REMOTES]
    return f"{wrong[0]!r:.200} may be another repository than those of this one" if wrong else None


def _check_push(found: Arguments) -> str | None:
    names = [word.text for word in found.operands]
    if names and names[0] not in _REMOTES:
        return f"{names[0]!r:.200} may be another repository than those of this one"
    wrong = [name for name in names[1:] if name.startswith(("+", ":"))]
    return f"{wrong[0]!r:.200} overwrites or deletes a branch" if wrong else None


def _check_script(found: Arguments) -> str | None:
    """Older package managers put the arguments of a script into a command for a shell, some without quotes.

    A script that ends with make takes `SHELL=x` for the shell it is to use.
    """
    wrong = [word.text for word in found.operands if word.wild >= 0 or not _PLAIN.fullmatch(word.text)]
    return f"{wrong[0]!r:.200} may be expanded by a shell, or set a variable" if wrong else None


def _check_apply(found: Arguments) -> str | None:
    """A patch can make a link to anywhere, which later commands follow."""
    names = {name for name, _ in found.options}
    return None if names & _LOOKS and "--apply" not in names else "a patch can make links to other places"


def _check_clean(found: Arguments) -> str | None:
    """A setting of git decides whether it deletes files without `--force`."""
    names = {name for name, _ in found.options}
    return None if names & {"-n", "--dry-run"} else "without -n, it may delete files"


def _check_lsof(found: Arguments) -> str | None:
    """A name of a host after `@` is looked up, which tells it to the server of its domain; a file may be named so."""
    values = [value for _, value in found.options if value is not None]
    wrong = [word.text for word in (*values, *found.operands) if "@" in word.text or word.wild >= 0]
    return f"{wrong[0]!r:.200} may name a host, which is looked up" if wrong else None


def _check_getent(found: Arguments) -> str | None:
    """A name of a host that is looked up is told to the server of its domain."""
    names = [word.text for word in found.operands]
    harmless = len(names) < 2 or names[0] in _DATABASES
    return None if harmless else f"{names[1]!r:.200} may be looked up in the network"


def _check_kubectl_get(found: Arguments) -> str | None:
    """Secrets are keys and passwords in plain text; where there is a wildcard, a file may have their name."""
    for word in found.operands:
        if word.wild >= 0 or any(kind.startswith("secret") for kind in word.text.casefold().split(",")):
            return f"{word.text!r:.200} may show secrets of the cluster"
    return None


def _check_go(found: Arguments) -> str | None:
    """Before version 1.16, go downloads a package that is named and not required yet, and tests or builds it."""
    wrong = [word.text for word in found.operands if not _GO_PACKAGE.fullmatch(word.text)]
    return f"{wrong[0]!r:.200} may be a package of another project, which is downloaded" if wrong else None


def _check_go_list(found: Arguments) -> str | None:
    """With `-m`, go asks the server of any module that is named."""
    wrong = [word.text for word in found.operands if word.text != "all"]
    if wrong and any(name == "-m" for name, _ in found.options):
        return f"{wrong[0]!r:.200} may be a module that is not one of this project"
    if any("module" in value.text for value in found.list_values("-f")):
        return "a template with `module` asks the server of any module that it names"
    return _check_go(found)


def _check_pip_list(found: Arguments) -> str | None:
    """Older versions of pip ask for their newest one, and run rustc for it: a file of the project may say which."""
    names = {name for name, _ in found.options}
    return None if "--disable-pip-version-check" in names else "without --disable-pip-version-check, pip may run rustc"


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
    "commit": _check_commit,
    "tag": _check_tag,
    "remote": _check_remote,
    "remotes": _check_remotes,
    "push": _check_push,
    "clean": _check_clean,
    "lsof": _check_lsof,
    "getent": _check_getent,
    "kubectl": _check_kubectl_get,
    "go": _check_go,
    "golist": _check_go_list,
    "piplist": _check_pip_list,
    "chmod": _check_chmod,
    "script": _check_script,
    "apply": _check_apply,
}
"""The checks by the name that the tables use; each explains what needs approval, or returns `None`."""
