"""Decides whether a prefix rule such as `git status:*` may cover the arguments of a command; in doubt, it may not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from steersman.policy.shell.programs import (
    KNOWN,
    SCRIPTS,
    SUBCOMMANDS,
    UNKNOWN,
    Program,
    explain_runner,
    read_short_options,
)
from steersman.policy.shell.syntax import Word

_PROCESSES = re.compile(r"(?:^|/)proc(?:/|$)")
_ROOT = re.compile(r"(?:^|(?<=[=@:,]))/")
_WILD = re.compile(r"[*?\[]")
_DESCRIPTOR = re.compile(r"std(in|out|err)|fd(/[0-9]+)?")
_MANY = 20


def explain_unsafe_prefix(words: Sequence[str]) -> str | None:
    """Explain why a rule must not allow every command with this prefix; `None` where it may."""
    program = words[0]
    name = program.rpartition("/")[2]
    if (why := explain_runner(program)) is not None:
        return f"{program!r} {why}"
    if name in SUBCOMMANDS:
        if len(words) < 2 or words[1].startswith("-"):
            return f"{program!r} does quite different things: name the subcommand as well, such as `{name} status:*`"
        if words[1] in SUBCOMMANDS[name]:
            return f"'{program} {words[1]}' can run other commands or change what later ones do"
        if words[1] in SCRIPTS and len(words) < 3:
            return f"'{program} {words[1]}' runs any script: name the script as well"
    return _find_unsafe_word(KNOWN.get(program, UNKNOWN), [Word(word) for word in words[1:]])


def explain_unsafe_arguments(program: str, words: Sequence[Word]) -> str | None:
    """Explain why these arguments may run another program, write a file or reveal secrets; `None` if not."""
    for word in words:
        if _reaches_processes(word):
            return f"{word.text!r} may hold what other processes know"
    known = KNOWN.get(program, UNKNOWN)
    if known.is_harmless:
        return None
    if (why := _find_unsafe_word(known, words)) is not None:
        return why
    texts = [word.text for word in words]
    if known.operands is not None:
        operands = _list_operands(words)
        if len(operands) >= known.operands or any(word.wild >= 0 for word in operands):
            return f"{program!r} writes to its last operand"
    return None if known.check is None else known.check(texts)


def _list_operands(words: Sequence[Word]) -> list[Word]:
    """List the operands: `-` is one, and so is everything after `--`."""
    texts = [word.text for word in words]
    end = texts.index("--") if "--" in texts else len(texts)
    before = [word for word in words[:end] if not word.text.startswith("-") or word.text == "-"]
    return [*before, *words[end + 1 :]]


def _find_unsafe_word(known: Program, words: Sequence[Word]) -> str | None:
    for word in words:
        option = word.text.startswith("-") and word.text != "-"
        if (why := _check_option(known, word) if option else _check_operand(known, word)) is not None:
            return why
    return None


def _check_option(known: Program, word: Word) -> str | None:
    text = word.text
    name, equals, _ = text.partition("=")
    if word.wild >= 0 and (not equals or word.wild <= len(name)):
        return f"{text!r} could become any option"
    if known.only is not None:
        return None if _is_one_of(known.only, text) else f"the option {text!r} is not among those known to be harmless"
    if text.startswith(known.words) and known.words:
        return f"{text!r} runs another program or writes"
    if known.bare and "/" in text:
        return f"the option {text!r} names a file"
    name = name.casefold()
    if text.startswith("--"):
        # Long options may be abbreviated: `--outp` is `--output` where no other option begins like that.
        wrong = text != "--" and any(option.startswith(name[2:]) for option in known.names)
    else:
        wrong = name[1:] in known.names or not set(known.letters).isdisjoint(read_short_options(text, known.valued))
    return f"the option {text!r} can run another program or write a file" if wrong else None


def _is_one_of(options: frozenset[str], text: str) -> bool:
    if text.startswith("--") or text in options:
        return text.partition("=")[0] in options
    for letter in text[1:]:
        if f"-{letter}:" in options:
            return True
        if f"-{letter}" not in options:
            return False
    return True


def _check_operand(known: Program, word: Word) -> str | None:
    text = word.text
    if word.wild == 0:
        return f"{text!r} could become an option"
    if known.inside and (text.startswith("/") or ".." in text.split("/") or "://" in text):
        return f"{text!r} is outside the folder"
    if any(mark in text for mark in known.marks):
        return f"{text!r} can run another program"
    return None


def _reaches_processes(word: Word) -> bool:
    """Whether a word may lead to /proc, which shows the environment variables of other processes, with their keys."""
    if _PROCESSES.search(word.text):
        return True
    if "/" not in word.text:
        return False
    paths = [*_find_paths(word.text)]
    return len(paths) > _MANY or any(_leads_to_proc(path, wild=word.wild >= 0) for path in paths)


def _find_paths(text: str) -> Iterator[str]:
    """Find the possible paths in a word: all of it, and what begins with a slash after a name or an option's letter."""
    yield text
    starts = [match.start() for match in _ROOT.finditer(text)]
    if text.startswith("-"):
        starts.append(text.index("/"))
    for start in starts:
        if start:
            yield text[start:]


def _leads_to_proc(path: str, *, wild: bool) -> bool:
    steps = [step for step in path.split("/") if step not in ("", ".")]
    back = ".." in steps
    if not steps:
        return False
    if back and "dev" in steps:
        return True
    if path.startswith("/") and steps[0] == "dev" and len(steps) > 1 and steps[1].startswith(("fd", "std")):
        # Symlinks into /proc/self/fd, and so a way to the other processes.
        return _DESCRIPTOR.fullmatch("/".join(steps[1:])) is None
    return wild and _could_lead_to_proc(steps, absolute=path.startswith("/"), back=back)


def _could_lead_to_proc(steps: Sequence[str], *, absolute: bool, back: bool) -> bool:
    """Whether a path with wildcards may lead to /proc."""
    wild = [place for place, step in enumerate(steps) if _WILD.search(step)]
    first = steps[0] if 0 in wild else ""
    if absolute:
        unsure = (
            _could_be(first, "proc") or _could_be(first, "dev") or (steps[0] == "dev" and 1 in wild and len(steps) > 2)
        )
    else:
        unsure = len(steps) > 1 and first.strip("*?") != "" and _could_be(first, "proc")
    if unsure or not back:
        return unsure
    last = len(steps) - 1 - [*reversed(steps)].index("..")
    return any(place < last or _could_be(steps[place], "proc") for place in wild)


def _could_be(step: str, name: str) -> bool:
    """Whether a name with wildcards may match `name`; a bracket expression may match anything."""
    shape = re.sub(r"\*+", "*", re.sub(r"\[.*", "*", step, flags=re.DOTALL))
    if len(shape.replace("*", "")) > len(name):
        return False
    pattern = re.escape(shape).replace(r"\*", ".*").replace(r"\?", ".")
    return bool(step) and re.fullmatch(pattern, name) is not None
