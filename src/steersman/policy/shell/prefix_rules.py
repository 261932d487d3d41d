"""Decides whether a prefix rule such as `git status:*` may cover the arguments of a command; in doubt, it may not."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from steersman.policy.shell.arguments import NeedsApproval, is_outside, read_arguments
from steersman.policy.shell.checks import CHECKS
from steersman.policy.shell.programs import SCRIPTS, SUBCOMMANDS, explain_runner, explain_unsafe_option
from steersman.policy.shell.syntax import Word
from steersman.policy.shell.table import find_entry, find_program

_PROCESSES = re.compile(r"(?:^|/)proc(?:/|$)")
_ROOT = re.compile(r"(?:^|(?<=[=@:,]))/")
_DESCRIPTOR = re.compile(r"std(in|out|err)|fd(/[0-9]+)?")
_MANY = 20
_READERS = frozenset(("sort", "uniq", "strings"))  # what they read from a file is text to them


def explain_unsafe_prefix(words: Sequence[str]) -> str | None:
    """Explain why a rule must not allow every command with this prefix; `None` where it may."""
    program = words[0]
    entry = find_entry(words)
    if entry is None:
        return _explain_unlisted_prefix(words)
    try:
        found = read_arguments(entry, [Word(word) for word in words[len(entry.key.split()) :]], partial=True)
    except NeedsApproval as error:
        return str(error)
    if entry.check == "script" and words[1] in SCRIPTS and not found.operands:
        return f"'{program} {words[1]}' runs any script: name the script as well"
    return None


def _explain_unlisted_prefix(words: Sequence[str]) -> str | None:
    program = words[0]
    name = program.rpartition("/")[2]
    if (why := explain_runner(program)) is not None:
        return f"{program!r} {why}"
    if find_program(program) is None:
        return _find_unsafe_word([Word(word) for word in words[1:]])
    if len(words) < 2 or words[1].startswith("-"):
        return f"{program!r} does quite different things: name the subcommand as well, such as `{name} status:*`"
    if words[1] in SUBCOMMANDS.get(name, ()):
        return f"'{program} {words[1]}' can run other commands or change what later ones do"
    return f"{' '.join(words)!r} is not among the commands of {name!r} that are known to be harmless"


def explain_unknown_program(words: Sequence[str]) -> str | None:
    """Explain what a prefix rule for a program without a table means; `None` for a program with one."""
    if find_program(words[0]) is not None:
        return None
    return (
        f"{words[0]!r} is not a program whose options are known: apart from options that look dangerous, every command "
        f"that begins like this runs without approval, also one that runs another program or writes a file"
    )


def explain_unsafe_arguments(words: Sequence[Word]) -> str | None:
    """Explain why a command may run another program, write a file or reveal secrets; `None` if it does not."""
    for word in words[1:]:
        if _reaches_processes(word):
            return f"{word.text!r:.200} may hold what other processes know"
        if word.wild >= 0 and "$?" in word.text and words[0].text != "echo":
            return f"the exit status in {word.text!r:.200} is not understood here"
    entry = find_entry([word.text for word in words])
    if entry is None:
        return _explain_runner(words[0].text) or _find_unsafe_word(words[1:])
    try:
        found = read_arguments(entry, words[len(entry.key.split()) :])
    except NeedsApproval as error:
        return str(error)
    return CHECKS[entry.check](found) if entry.check else None


def explain_unsafe_inputs(words: Sequence[Word], paths: Sequence[str]) -> str | None:
    """Explain why a command must not read these files as its input; `None` for files of the folder."""
    entry = find_entry([word.text for word in words])
    if paths and (entry is None or not ("plain" in entry.flags or entry.key in _READERS)):
        return f"it reads {paths[0]!r:.200}, and what {words[0].text!r:.200} does with it is not known"
    wrong = [path for path in paths if is_outside(path) or _reaches_processes(Word(path))]
    return f"it reads {wrong[0]!r:.200}, which is outside the folder" if wrong else None


def explain_program_folders(words: Sequence[Word], folders: Sequence[str]) -> str | None:
    """Explain that a command changes a folder of `PATH` in the workspace, or one around it; `None` if it does not.

    What is put there runs under the name of its program. The folders are relative to the workspace.
    """
    entry = find_entry([word.text for word in words]) if folders else None
    if entry is None or entry.operands != "write":
        return None
    places = [word.text for word in words[len(entry.key.split()) :] if not word.text.startswith("-")]
    into = [posixpath.join(places[-1], posixpath.basename(place.rstrip("/"))) for place in places[:-1]]
    for place in (*places, *into):
        path = posixpath.normpath(place)
        if any(folder in (".", path) or _is_below(path, folder) or _is_below(folder, path) for folder in folders):
            return f"{place!r:.200} is in the PATH, or holds a folder that is"
    return None


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def explain_unsafe_pipe(words: Sequence[Word]) -> str | None:
    """Explain why a rule for exactly this command does not cover it behind a pipe; `None` where it does.

    What `sh`, `python -`, `xargs rm` or `psql` does is in what it reads. A command that is known to be harmless,
    whatever it is given, may read anything.
    """
    harmless = find_entry([word.text for word in words]) is not None and explain_unsafe_arguments(words) is None
    name = words[0].text
    return None if harmless else f"what {name!r:.200} does may depend on what it reads from the pipe"


def _explain_runner(program: str) -> str | None:
    """Explain why no rule by prefix covers a program; the rule itself was refused before."""
    why = explain_runner(program)
    return None if why is None else f"{program!r:.200} {why}"


def drop_global_options(words: Sequence[Word]) -> Sequence[Word]:
    """Drop `--no-pager` between git and its subcommand, so that a rule for the subcommand covers the command."""
    texts = [word.text for word in words[:2]]
    return (words[0], *words[2:]) if texts == ["git", "--no-pager"] else words


def _find_unsafe_word(words: Sequence[Word]) -> str | None:
    """Find what looks dangerous in the arguments of a program without a table."""
    for word in words:
        option = word.text.startswith("-") and word.text != "-"
        name, equals, _ = word.text.partition("=")
        if option and word.wild >= 0 and (not equals or word.wild <= len(name)):
            return f"{word.text!r:.200} could become any option"
        if not option and word.wild == 0:
            return f"{word.text!r:.200} could become an option"
        if option and (why := explain_unsafe_option(word.text)) is not None:
            return why
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
    if wild:
        # Older shells expand `.*` to `..` as well.
        steps = [".." if step.startswith(".") and _could_be(step, "..") else step for step in steps]
    back = ".." in steps
    if not steps:
        return False
    if back and "dev" in steps:
        return True
    if path.startswith("/") and steps[0] == "dev" and len(steps) > 1 and steps[1].startswith(("fd", "std", "core")):
        # Symlinks into /proc/self/fd, and so a way to the other processes; /dev/core is the memory.
        return _DESCRIPTOR.fullmatch("/".join(steps[1:])) is None
    return wild and _could_lead_to_proc(steps, absolute=path.startswith("/"), back=back)


def _could_lead_to_proc(steps: Sequence[str], *, absolute: bool, back: bool) -> bool:
    """Whether a path with wildcards may lead to /proc."""
    wild = [place for place, step in enumerate(steps) if "*" in step]
    first = steps[0] if 0 in wild else ""
    if absolute:
        unsure = (
            _could_be(first, "proc") or _could_be(first, "dev") or (steps[0] == "dev" and 1 in wild and len(steps) > 2)
        )
    else:
        # With a folder `--files0-from=`, `*/*/1/environ` becomes an option whose value is /proc/1/environ.
        option = first.startswith("*") and len(steps) > 3 and _could_be(steps[1], "proc")
        unsure = option or (len(steps) > 1 and first.strip("*") != "" and _could_be(first, "proc"))
    if unsure or not back:
        return unsure
    last = len(steps) - 1 - [*reversed(steps)].index("..")
    return any(place < last or _could_be(steps[place], "proc") for place in wild)


def _could_be(step: str, name: str) -> bool:
    return bool(step) and fnmatchcase(name, step)
