"""Parses rules such as `read`, `bash(git status:*)`, `write(src/**)` and `mcp:server:*`, and matches calls with them.

A rule in `allow` must match surely. A rule in `deny` or `ask` also matches a call that only may be meant.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from steersman.policy.patterns import (
    Argument,
    Domain,
    Match,
    PathForms,
    PathPattern,
    fold_lookalikes,
    parse_argument,
    parse_domain,
    parse_path_pattern,
)
from steersman.policy.shell.command_view import CommandView
from steersman.policy.shell.commands import AllowedCommand, AllowedCommands, parse_allowed_command
from steersman.policy.shell.forbidden import ForbiddenCommand, parse_forbidden_command
from steersman.tools.tool import Tool

RulesLike: TypeAlias = str | Iterable[str]
_Subject: TypeAlias = AllowedCommand | ForbiddenCommand | PathPattern | Domain | Argument

SHELL = "bash"
_PATHS = frozenset(("read", "write", "edit", "list", "glob", "search"))
# These look at what is below the path too.
_DEEP = frozenset(("glob", "search"))
# Anything else could change what a command means, such as a folder to run it in.
_SHELL_ARGUMENTS = frozenset(("command", "timeout"))
_MAX_PROPOSAL = 200
_MCP = "mcp:"
_RULE = re.compile(r"([^\s(),]+)\s*(?:\((.*)\))?", re.DOTALL)
# What is in the outermost parentheses of `bash(rm:*),bash(mv:*)`, which are two rules.
_SEVERAL = re.compile(r"[^()]*\)\s*,.*\([^()]*", re.DOTALL)


class Call:
    """A tool call as the rules see it: the tool, its arguments, and its shell command, parsed once."""

    __slots__ = ("_inputs", "_view", "arguments", "name", "tool")

    def __init__(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        self.tool = tool
        self.name = tool.name
        self.arguments = arguments
        self._view: CommandView | None = None
        self._inputs: dict[tuple[str, ...], list[PathForms]] = {}

    @property
    def command(self) -> str | None:
        """The command of a call to the shell."""
        command = self.arguments.get("command")
        return command if isinstance(command, str) else None

    @property
    def view(self) -> CommandView:
        """The command, parsed strictly, and what it may run."""
        if self._view is None:
            self._view = CommandView(self.command or "")
        return self._view

    def list_inputs(self, roots: tuple[str, ...]) -> list[PathForms]:
        """List the files that the command is redirected from, each once, as patterns with these roots see them."""
        if roots not in self._inputs:
            paths = dict.fromkeys(path for part in self.view.parsed.parts for path in part.inputs)
            self._inputs[roots] = [PathForms(path, roots) for path in paths]
        return self._inputs[roots]

    def get_argument(self, name: str) -> object:
        """Get an argument, or its default where the schema has one."""
        if name in self.arguments:
            return self.arguments[name]
        properties: object = self.tool.parameters.get("properties")
        field: object = cast(Mapping[str, Any], properties).get(name) if isinstance(properties, Mapping) else None
        return cast(Mapping[str, Any], field).get("default") if isinstance(field, Mapping) else None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the tools it applies to, and the pattern for their arguments. `given` is the name as it was written."""

    text: str
    name: str
    subject: _Subject | None
    given: str

    def is_about_tool(self, tool: str, *, strictly: bool) -> bool:
        """Whether the rule applies to a tool of that name."""
        wanted, name = self.name, tool.lower() if tool.isascii() else tool if strictly else fold_lookalikes(tool)
        if strictly and tool.startswith(_MCP):
            # A server may offer `Status` beside `status`, or later in its place: that is another tool.
            wanted, name = self.given, tool
        if wanted == "*":
            return True
        return name.startswith(wanted[:-1]) and len(name) >= len(wanted) if wanted.endswith(":*") else name == wanted

    def allows(self, call: Call) -> bool:
        """Whether the rule surely allows a call that is not a shell command."""
        subject = self.subject
        if not self.is_about_tool(call.name, strictly=True):
            return False
        if subject is None:
            return True
        if isinstance(subject, PathPattern):
            return subject.allows(call.get_argument("path"))
        if isinstance(subject, Domain):
            return subject.allows(call.get_argument("url"))
        return isinstance(subject, Argument) and subject.allows(call.get_argument(subject.name))

    @property
    def names_paths(self) -> bool:
        """Whether the rule has a pattern for paths."""
        return isinstance(self.subject, PathPattern)

    def covers_path(self, tool: str, path: str) -> bool:
        """Whether the rule is about a tool and a real, absolute path."""
        return isinstance(self.subject, PathPattern) and self.name == tool and self.subject.covers(path)

    @property
    def names_hosts(self) -> bool:
        """Whether the rule has a pattern for hosts."""
        return isinstance(self.subject, Domain)

    def covers_host(self, url: str) -> bool:
        """Whether the rule is about the host of a URL, or may be."""
        return isinstance(self.subject, Domain) and self.subject.match(url) != "no"

    def forbids_input(self, call: Call) -> bool:
        """Whether a rule for `read` may match a file that a shell command is redirected from."""
        if self.name != "read" or not isinstance(self.subject, PathPattern) or call.name.lower() != SHELL:
            return False
        subject = self.subject
        return any(subject.match_forms(forms, below=False) != "no" for forms in call.list_inputs(subject.roots))

    def match(self, call: Call) -> Match:
        """Whether the rule matches a call, or may match."""
        subject = self.subject
        if not self.is_about_tool(call.name, strictly=False):
            return "no"
        if subject is None:
            return "yes"
        if isinstance(subject, ForbiddenCommand):
            return "maybe" if call.command is None else subject.match(call.view)
        if isinstance(subject, PathPattern):
            return subject.match(call.get_argument("path"), below=call.name.lower() in _DEEP)
        if isinstance(subject, Domain):
            return subject.match(call.get_argument("url"))
        return subject.match(call.get_argument(subject.name)) if isinstance(subject, Argument) else "maybe"


class AllowRules:
    """All rules of `allow` together: different rules may allow the parts of a compound command."""

    __slots__ = ("_commands", "_others", "program_folders", "texts", "warnings")

    def __init__(self, rules: Sequence[Rule], roots: tuple[str, ...]) -> None:
        self.texts = tuple([rule.text for rule in rules])
        commands = [rule.subject for rule in rules if isinstance(rule.subject, AllowedCommand)]
        self.program_folders = _find_program_folders(roots) if commands else ()
        self._commands = AllowedCommands(commands, self.program_folders) if commands else None
        self._others = tuple([rule for rule in rules if not isinstance(rule.subject, AllowedCommand)])
        found = [(rule.text, rule.subject.warning) for rule in rules if isinstance(rule.subject, AllowedCommand)]
        self.warnings = tuple([f"The rule {text!r} in allow: {warning}." for text, warning in found if warning])

    def explain_missing(self, call: Call) -> str | None:
        """Explain why no rule allows a call; `None` where one does, an empty text where there is nothing to add."""
        if any(rule.allows(call) for rule in self._others):
            return None
        if call.name.lower() != SHELL or self._commands is None:
            return ""
        if call.command is None or not _SHELL_ARGUMENTS.issuperset(call.arguments):
            return "it has arguments that no rule covers"
        return self._commands.explain_uncovered(call.command, call.view.parsed)


def parse_allow_rules(rules: RulesLike, roots: tuple[str, ...]) -> AllowRules:
    """Parse the rules of `allow`."""
    return AllowRules([_parse_rule(text, "allow", roots) for text in split_rules(rules, "allow")], roots)


def parse_deny_or_ask_rules(rules: RulesLike, name: Literal["deny", "ask"], roots: tuple[str, ...]) -> tuple[Rule, ...]:
    """Parse the rules of `deny` or `ask`."""
    return tuple([_parse_rule(text, name, roots) for text in split_rules(rules, name)])


def propose_command_rule(command: object) -> str | None:
    """Propose the rule that allows exactly this shell command, never its beginning; `None` where no rule can."""
    if not isinstance(command, str) or not command.isprintable() or len(command) > _MAX_PROPOSAL:
        return None
    rule = f"{SHELL}({command.strip()})"
    try:
        (allowed,) = [
            parsed.subject for parsed in [_parse_rule(text, "allow", ()) for text in split_rules(rule, "allow")]
        ]
    except ValueError:
        return None
    return rule if isinstance(allowed, AllowedCommand) and not allowed.prefix else None


def resolve_roots(workspace: str | os.PathLike[str]) -> tuple[str, ...]:
    """Resolve the workspace to absolute paths: as given, and with symlinks resolved."""
    return tuple(dict.fromkeys((os.path.abspath(workspace), os.path.realpath(workspace))))


def _find_program_folders(roots: tuple[str, ...]) -> tuple[str, ...]:
    """Find the folders of `PATH` that are in the workspace, relative to it."""
    found: dict[str, None] = {}
    for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if not os.path.isabs(entry):  # relative to the folder in which a command runs
            found[os.path.normpath(entry or ".")] = None
            continue
        for folder in (os.path.normpath(entry), os.path.realpath(entry)):
            for root in roots:
                if folder == root or folder.startswith(f"{root.rstrip('/')}/"):
                    found[os.path.relpath(folder, root)] = None
    return tuple(found)


def split_rules(rules: object, name: str) -> Iterator[str]:
    """Split rules: a list, or one text with commas."""
    if isinstance(rules, str):
        yield from _split_text(rules, name)
        return
    if not isinstance(rules, Iterable) or isinstance(rules, Mapping | bytes):
        raise TypeError(
            f"{name} takes rules as a list or as one text, such as 'read,bash(git status:*)', got {rules!r}."
        )
    for text in cast(Iterable[object], rules):
        if not isinstance(text, str):
            raise TypeError(f"A rule is a text such as 'bash(git status:*)', got {text!r} in {name}.")
        yield text


def _split_text(text: str, name: str) -> Iterator[str]:
    depth, start = 0, 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
        if character == "," and not depth:
            yield text[start:place]
            start = place + 1
    if depth:
        raise ValueError(f"The parentheses in {name} do not match: {text!r}. A list takes each rule as it is.")
    if text.strip():
        yield text[start:]


def _parse_rule(text: str, use: Literal["allow", "deny", "ask"], roots: tuple[str, ...]) -> Rule:
    match = _RULE.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError("a rule is the name of a tool, with a pattern in parentheses: bash(git status:*)")
        name = _parse_tool_name(match[1], use)
        if match[2] is not None and _SEVERAL.fullmatch(match[2]):
            raise ValueError("in a list, each rule is a text of its own")
        subject = None if match[2] is None else _parse_subject(name, match[2], use, roots)
        return Rule(text.strip(), name, subject, match[1])
    except ValueError as error:
        raise ValueError(f"The rule {text!r} in {use} cannot be used: {error}.") from None


def _parse_tool_name(text: str, use: str) -> str:
    name = fold_lookalikes(text)
    if name == "*":
        if use == "allow":
            raise ValueError("it would allow everything; mode='bypass' says so by its name")
        return name
    if name.startswith(_MCP):
        server, _, tool = name[4:].partition(":")
        if name != "mcp:*" and (not server or not tool or "*" in server or ("*" in tool and tool != "*")):
            raise ValueError("MCP tools are named mcp:server:tool, and all tools of a server mcp:server:*")
    elif "*" in name:
        raise ValueError("`*` cannot stand for part of a tool's name")
    return name


def _parse_subject(name: str, pattern: str, use: str, roots: tuple[str, ...]) -> _Subject:
    argument, equals, value = [part.strip() for part in pattern.partition("=")]
    unnamed = "command" if name == SHELL else "path" if name in _PATHS else None
    if equals and argument.lower() == unnamed:
        raise ValueError(f"a rule for {name} has the {unnamed} itself in parentheses: {name}({value})")
    if name == SHELL:
        return parse_allowed_command(pattern) if use == "allow" else parse_forbidden_command(pattern)
    if name in _PATHS:
        return parse_path_pattern(pattern, roots)
    return parse_domain(pattern) if name == "fetch" else parse_argument(pattern)
