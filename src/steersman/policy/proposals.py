"""Proposes rules that would allow a call, for the person who is asked about it. Each is tried before it is proposed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from steersman.policy.approval import Approval
from steersman.policy.destructive import find_destructive_effects, list_destructive_commands
from steersman.policy.patterns import find_host
from steersman.policy.rules import SHELL, propose_command_rule
from steersman.policy.shell.commands import explain_uncovered, parse_allowed_command
from steersman.policy.shell.programs import changes_shell
from steersman.policy.shell.syntax import Part, parse_command
from steersman.policy.shell.table import find_entry

if TYPE_CHECKING:
    from steersman.tools.tool import Tool

# How many words name what these programs do; of every other one, its name does.
_WORDS: Mapping[str, int] = {
    **dict.fromkeys(
        (
            "apt", "brew", "bundle", "cargo", "conda", "dotnet", "gh", "git", "go", "gradle", "hatch", "helm", "hg",
            "just", "kubectl", "make", "mvn", "npm", "nox", "pip", "pip3", "pnpm", "poetry", "rustup", "svn",
            "systemctl", "terraform", "uv", "yarn",
        ),
        2,
    ),
    "aws": 3, "docker": 2, "gcloud": 3,
}  # fmt: skip
# These words say what the next one names.
_THIRD = frozenset(("run", "compose", "stash", "remote", "exec"))
# A rule for one of these would let every text out that fits into an address or a name.
_SENDERS = frozenset(("curl", "dig", "host", "ping"))
# These make something new, and overwrite and delete no file.
_MAKERS = frozenset(("mkdir", "touch", "rmdir"))
_FORMATTERS = frozenset(("black", "isort", "ruff format", "cargo fmt", "terraform fmt", "go fmt"))
# These change more with other operands: a file that was not asked about, or a branch of the server.
_CHANGERS = frozenset(("git rm", "git push"))
# With these, the command only says what it would do; others that begin like it do it.
_REHEARSALS = frozenset(("-n", "--dry-run", "--check", "--check-only", "--diff", "-check", "-diff", "--noEmit"))
_REHEARSED = _FORMATTERS | {"git add", "git commit", "git fetch", "git pull", "tsc"}
_MAX_RULES = 4


def propose_rules(approval: Approval, tool: Tool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Propose rules that allow this call and others of its kind, such as `bash(pytest:*)`.

    If a rule for its kind would allow too much, they allow exactly this call; empty where no rule can.
    """
    return _find_first(approval, tool, arguments, _list_candidates(approval, tool, arguments))


def propose_exact_rules(approval: Approval, tool: Tool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Propose rules that allow this call, and as little else as a rule can say."""
    return _find_first(approval, tool, arguments, _list_exact_candidates(approval, tool, arguments))


def _find_first(
    approval: Approval, tool: Tool, arguments: Mapping[str, Any], candidates: Iterator[Sequence[str]]
) -> tuple[str, ...]:
    if tool.needs_approval:  # the tool asks for itself, whatever the rules say
        return ()
    for rules in candidates:
        trial = approval.copy()
        try:
            trial.add_allow_rules(*rules)
        except ValueError:
            continue
        # A rule that is warned about would allow more than anyone can see from it.
        if trial.warnings == approval.warnings and trial.judge(tool, arguments).says == "allow":
            return tuple(rules)
    return ()


def _list_candidates(approval: Approval, tool: Tool, arguments: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    if tool.name.lower() == SHELL:
        yield from _list_command_rules(approval, tool, arguments.get("command"))
    elif tool.name == "fetch":
        if host := find_host(arguments.get("url")):
            yield [f"fetch(domain:{host})"]
    else:
        yield [tool.name]


def _list_exact_candidates(approval: Approval, tool: Tool, arguments: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    path = arguments.get("path")
    if tool.name.lower() == SHELL:
        yield from _list_exact_command_rules(approval, tool, arguments.get("command"))
    elif isinstance(path, str) and tool.access == "edit":
        # In a rule, a path with `*` or `?` stands for other files as well.
        if not {"*", "?"}.intersection(path):
            yield [f"{tool.name}({path})"]
        return
    yield from _list_candidates(approval, tool, arguments)


def _list_command_rules(approval: Approval, tool: Tool, command: object) -> Iterator[Sequence[str]]:
    kinds = [_name_kind(part) for part in _list_open_parts(approval, tool, command)]
    if kinds and None not in kinds:
        yield [rule for rule in dict.fromkeys(kinds) if rule is not None]
    yield from _list_exact_command_rules(approval, tool, command)


def _list_exact_command_rules(approval: Approval, tool: Tool, command: object) -> Iterator[Sequence[str]]:
    if (whole := propose_command_rule(command)) is not None and not _only_changes_shell(command):
        yield [whole]
    exact = [_name_exactly(part) for part in _list_open_parts(approval, tool, command)]
    if exact and None not in exact:
        yield [rule for rule in dict.fromkeys(exact) if rule is not None]


def _list_open_parts(approval: Approval, tool: Tool, command: object) -> list[Part]:
    """The simple commands of a command that no rule allows yet; empty if it is not plain."""
    parsed = parse_command(command) if isinstance(command, str) and command.isprintable() else None
    if parsed is None or parsed.problem is not None:
        return []
    parts = [part for part in parsed.parts if approval.judge(tool, {"command": part.text}).says != "allow"]
    return parts if len(parts) <= _MAX_RULES else []


def _only_changes_shell(command: object) -> bool:
    """Whether a command does nothing but change what others mean: alone it has no effect, in a list it has any."""
    parts = parse_command(command).parts if isinstance(command, str) else ()
    return len(parts) == 1 and _changes_shell(parts[0])


def _changes_shell(part: Part) -> bool:
    words = [word.text for word in part.words]
    return changes_shell(words[0]) and find_entry(words) is None


def _name_exactly(part: Part) -> str | None:
    """The rule for exactly this command, as a part of any other.

    `None` where its text without quotes would be another one, as in `rm '*'`, and where it changes the parts after it.
    """
    plain = not any(word.quoted or word.wild >= 0 for word in part.words)
    return propose_command_rule(part.text) if plain and not _changes_shell(part) else None


def _name_kind(part: Part) -> str | None:
    """The rule for commands like this one: what they begin with, or exactly this one if those change or send more."""
    words = [word.text for word in part.words]
    sends = words[0].rpartition("/")[2] in _SENDERS
    if sends or find_destructive_effects(part.text) or _changes_files(words):
        return _name_exactly(part)
    size = _WORDS.get(words[0], 1)
    if size > 1 and len(words) > size and words[size - 1] in _THIRD:
        size += 1
    named = list(words[:size])
    # An option or a path after the name of the program names no kind.
    while len(named) > 1 and not named[-1].replace("-", "").replace(":", "").replace("_", "").isalnum():
        named.pop()
    while len(named) > 1 and named[-1].startswith("-"):
        named.pop()
    kind = f"{' '.join(named)}:*"
    return _name_exactly(part) if _lets_destroy(kind) else f"{SHELL}({kind})"


def _changes_files(words: Sequence[str]) -> bool:
    """Whether a command like this one may overwrite or delete a file or a branch that this one does not name."""
    entry = find_entry(words)
    if entry is None:
        return False
    writes = entry.operands == "write" and entry.key not in _MAKERS | _FORMATTERS
    rehearses = entry.key in _REHEARSED and not _REHEARSALS.isdisjoint(words)
    return writes or rehearses or entry.key in _CHANGERS


@cache
def _lets_destroy(kind: str) -> bool:
    """Whether a rule for a kind of command would also allow one that destroys something, as `git checkout .` does."""
    try:
        allowed = parse_allowed_command(kind)
    except ValueError:
        return False
    commands = list_destructive_commands()
    return any(explain_uncovered([allowed], command, parse_command(command)) is None for command in commands)
