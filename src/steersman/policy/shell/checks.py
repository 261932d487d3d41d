"""Checks of programs for which a list of options is not enough: scripts, formats, addresses and remotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
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
_PS_LETTERS = re.compile(r"[aufxwlrTjvsmHZXhSc]+|[0-9,]+")
_PS_FORMAT = re.compile(r"[a-z0-9_,=:%+-]+")
_PS_NUMBERS = re.compile(r"[0-9,]+")
_PS_SELECT = tuple([f"-{letter}" for letter in "CGgnpqstUu"]) + tuple(
    [f"--{name}" for name in ("Group", "group", "pid", "ppid", "quick-pid", "sid", "tty", "User", "user")]
)
_SETS = re.compile(r"%[-#'+ 0-9*.hjlLtz$?]*n")
_OTHER_PROTOCOLS = re.compile(r"(?:ftp|dict|ldap|imap|smtp|pop3)\.", re.IGNORECASE)
_REGISTRY = re.compile(r"(?:@[A-Za-z0-9_.-]+/)?[^/:\\]*")
# What a wildcard in the middle becomes begins with no address and ends with no `|`.
_IN_FOLDER = re.compile(r"[^*?\[]*/.*[A-Za-z0-9]", re.DOTALL)
# In a revset, a template or a pattern of files, functions open other repositories, whose settings run programs.
_HG_FUNCTION = re.compile(r"\(|\\[^nt]|revset", re.IGNORECASE)
# Documents that include files, by their format and by the end of their name.
_INCLUDES = re.compile(r"rst|latex|org|typst|t2t|texinfo|muse|docbook[45]?|asciidoc|mdoc|man", re.IGNORECASE)
_INCLUDING = re.compile(r".*\.(?:rst|tex|latex|ltx|org|typ|t2t|texi|texinfo|muse|adoc|asciidoc|[1-9])", re.IGNORECASE)
_READS = re.compile(r"load|eval", re.IGNORECASE)
_FORMULA = re.compile(r"[A-Za-z0-9@+_-]+(?:\.[0-9]+)*")
_LOOKS = frozenset(("--check", "--stat", "--numstat", "--summary"))
_PLAIN = re.compile(r"[A-Za-z0-9_./:@=,+%^~-]*")
_CODE_HOST = re.compile(r"https://github\.com/.*|(?:(?!https?:|ssh:|git:|git\+)[A-Za-z0-9-]+:)?[^@:]*", re.IGNORECASE)
_ADDRESS_OF_HOST = re.compile(r".*://.*|(?:https?|ssh|git|git\+[a-z]+):.*|[^/]*@.*", re.IGNORECASE | re.DOTALL)
_THREE_STEPS = re.compile(r"[^/]+\.[^/]+/[^/]+/[^/]+")
_CHANGING = frozenset(
    ("fix", "init", "installGitPreCommitHook", "installGitPrePushHook", "generateEditorConfig", "applyToIDEA")
)
_MODE = re.compile(r"[ugoa]*[-+=][rwxX]+|0?[0-7]{3}")
_REMOTES = frozenset(("origin", "upstream"))


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
    words = found.operands[1:] if found.operands and found.operands[0].text == "--" else found.operands
    if not words:
        return None
    first = words[0].text
    if words is found.operands and first.startswith("-"):
        return f"the option {first!r:.200} sets a variable"
    sets = words[0].wild >= 0 or _SETS.search(first.replace("%%", ""))
    return f"the format {first!r:.200} may set a variable" if sets else None


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


def _check_remote(found: Arguments) -> str | None:
    """A remote that is not configured is taken for a path or an address, whose repository can run programs."""
    names = [word.text for word in found.operands]
    if names and names[0] not in _REMOTES:
        return f"{names[0]!r:.200} may be another repository than those of this one"
    # With `--prune`, a refspec with a wildcard deletes every branch that it could name.
    wrong = [name for name in names[1:] if "::" in name or name.startswith("+") or ("*" in name and ":" in name)]
    return f"{wrong[0]!r:.200} may overwrite a branch" if wrong else None


def _check_push(found: Arguments) -> str | None:
    names = [word.text for word in found.operands]
    if names and names[0] not in _REMOTES:
        return f"{names[0]!r:.200} may be another repository than those of this one"
    wrong = [name for name in names[1:] if name.startswith(("+", ":"))]
    return f"{wrong[0]!r:.200} overwrites or deletes a branch" if wrong else None


def _check_audit(found: Arguments) -> str | None:
    """`npm audit fix`, `mocha init`, `vitest init` and some words of ktlint change files."""
    wrong = [
        word.text
        for word in found.operands
        if word.text in _CHANGING or (word.wild >= 0 and any(fnmatchcase(name, word.text) for name in _CHANGING))
    ]
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


def _check_script(found: Arguments) -> str | None:
    """Older package managers put the arguments of a script into a command for a shell, some without quotes."""
    wrong = [word.text for word in found.operands if word.wild >= 0 or not _PLAIN.fullmatch(word.text)]
    return f"{wrong[0]!r:.200} may be expanded by a shell" if wrong else None


def _check_registry(found: Arguments) -> str | None:
    """What is not a name in the registry is a folder, an address or a repository, which is cloned."""
    wrong = [word.text for word in found.operands if not _REGISTRY.fullmatch(word.text)]
    return f"{wrong[0]!r:.200} is not the plain name of a package" if wrong else None


def _check_media(found: Arguments) -> str | None:
    """Some programs run what follows `|` in the name of a file, and open addresses."""
    wrong = [
        word.text
        for word in (*found.operands, *found.list_values("-i"))
        if "|" in word.text or ":" in word.text or (word.wild >= 0 and not _IN_FOLDER.fullmatch(word.text))
    ]
    return f"{wrong[0]!r:.200} may be a command or an address" if wrong else None


def _check_hg(found: Arguments) -> str | None:
    words = [*found.operands, *[value for _, value in found.options if value is not None]]
    wrong = [word.text for word in words if _HG_FUNCTION.search(word.text)]
    wrong += [word.text for word in found.list_values("-T", "--template") if "/" in word.text]
    return f"{wrong[0]!r:.200} may open another repository" if wrong else None


def _check_pandoc(found: Arguments) -> str | None:
    """Some formats include any file that the document names."""
    formats = [re.split("[+-]", value.text)[0] for value in found.list_values("-f", "--from", "--read")]
    wrong = [name for name in formats if _INCLUDES.fullmatch(name)]
    wrong += [word.text for word in found.operands if not formats and (word.wild >= 0 or _INCLUDING.match(word.text))]
    return f"{wrong[0]!r:.200} may include other files" if wrong else None


def _check_yq(found: Arguments) -> str | None:
    """`load` reads another file, and `eval` runs an expression that is put together or comes from a file."""
    words = [*found.operands, *found.list_values("--expression")]
    wrong = [word.text for word in words if _READS.search(word.text) and word.text not in ("eval", "eval-all")]
    return f"{wrong[0]!r:.200} may read another file" if wrong else None


def _check_code_host(found: Arguments) -> str | None:
    """An address or host/owner/repository sends the request, perhaps with a token, to another host."""
    wrong = [
        word.text
        for word in found.operands
        if not _CODE_HOST.fullmatch(word.text)
        or _THREE_STEPS.fullmatch(word.text)
        or (word.wild >= 0 and "/" in word.text)
    ]
    return f"{wrong[0]!r:.200} may be on another host" if wrong else None


def _check_own_repository(found: Arguments) -> str | None:
    """An address leads to any repository, and sends the text there."""
    wrong = [word.text for word in found.operands if _ADDRESS_OF_HOST.fullmatch(word.text)]
    return f"{wrong[0]!r:.200} may be in another repository" if wrong else None


def _check_formula(found: Arguments) -> str | None:
    """A path, an address or user/tap/name is Ruby code that is run."""
    wrong = [word.text for word in found.operands if word.wild >= 0 or not _FORMULA.fullmatch(word.text)]
    return f"{wrong[0]!r:.200} is not the plain name of a formula" if wrong else None


def _check_settings(found: Arguments) -> str | None:
    """After `--` stand settings of the test run, such as a folder with other adapters."""
    wrong = [word.text for word in found.operands if word.wild >= 0 or "=" in word.text]
    return f"{wrong[0]!r:.200} is a setting of the test run, or could become one" if wrong else None


def _check_apply(found: Arguments) -> str | None:
    """A patch can make a link to anywhere, which later commands follow."""
    names = {name for name, _ in found.options}
    return None if names & _LOOKS and "--apply" not in names else "a patch can make links to other places"


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
    "script": _check_script,
    "registry": _check_registry,
    "media": _check_media,
    "yq": _check_yq,
    "hg": _check_hg,
    "pandoc": _check_pandoc,
    "codehost": _check_code_host,
    "ownrepository": _check_own_repository,
    "formula": _check_formula,
    "apply": _check_apply,
    "settings": _check_settings,
}
"""The checks by the name that the tables use; each explains what needs approval, or returns `None`."""
