"""Proposes rules that would allow a call, for the person who is asked about it. Each is tried before it is proposed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.policy.approval import Approval
from steersman.policy.command_kinds import explain_unstable_words, sort_part
from steersman.policy.patterns import MAX_TEXT_LENGTH, find_host
from steersman.policy.rules import SHELL, propose_command_rule, split_rules
from steersman.policy.shell.syntax import Part, parse_command

if TYPE_CHECKING:
    from steersman.tools.tool import Tool

_MAX_RULES = 4
_MAX_PARTS = 20


@dataclass(frozen=True, slots=True)
class Proposal:
    """Rules that would allow a call.

    `runs_project` says that they let code run that is not judged, such as the project's. `refusal` says why a command
    is asked about every time.
    """

    rules: tuple[str, ...] = ()
    runs_project: bool = False
    refusal: str = ""


NO_PROPOSAL = Proposal()
"""No rules, without a reason."""


def propose_rules(approval: Approval, tool: Tool, arguments: Mapping[str, Any]) -> Proposal:
    """Propose rules for calls of the same kind where those only read, or run the project's code, as tests do.

    For other commands they allow exactly this one, where these words mean the same the next time and neither change
    nor send something that is known. Every other command is asked about every time.
    """
    if tool.name.lower() != SHELL:
        return Proposal(_find_first(approval, tool, arguments, _list_candidates(tool, arguments)))
    found = _propose_for_command(approval, tool, arguments.get("command"))
    if not found.rules or _find_first(approval, tool, arguments, iter([found.rules])):
        return found
    return Proposal(refusal="the rules of the policy ask about it every time")


def explain_refusal(command: object) -> str:
    """Explain why a command is asked about every time; empty where a rule could allow it."""
    parsed = parse_command(command if isinstance(command, str) else "")
    if parsed.problem is not None:
        return f"the command is not understood: {parsed.problem}"
    if len(parsed.parts) > _MAX_PARTS:
        return "it has too many parts"
    return next((kind.why for kind in map(sort_part, parsed.parts) if kind.scope is None), "")


def propose_exact_rules(approval: Approval, tool: Tool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Propose rules that allow this call, and as little else as a rule can say, for a person who writes them."""
    return _find_first(approval, tool, arguments, _list_exact_candidates(tool, arguments))


def _find_first(
    approval: Approval, tool: Tool, arguments: Mapping[str, Any], candidates: Iterator[Sequence[str]]
) -> tuple[str, ...]:
    if tool.needs_approval:  # the tool asks for itself, whatever the rules say
        return ()
    for rules in candidates:
        trial = approval.copy()
        try:
            # A person may give them on as one text, in which the name of a file such as `a),bash,write(b` adds rules.
            if [*split_rules(",".join(rules), "allow")] != [*rules]:
                continue
            trial.add_allow_rules(*rules)
        except ValueError:
            continue
        # A rule that is warned about would allow more than anyone can see from it.
        if trial.warnings == approval.warnings and trial.judge(tool, arguments).says == "allow":
            return tuple(rules)
    return ()


def _propose_for_command(approval: Approval, tool: Tool, command: object) -> Proposal:
    parsed = parse_command(command if isinstance(command, str) else "")
    if parsed.problem is not None:
        return Proposal(refusal=f"the command is not understood: {parsed.problem}")
    parts = parsed.parts
    if len(parts) > _MAX_PARTS:
        return Proposal(refusal="it has too many parts")
    rules: dict[str, None] = {}
    runs_project = False
    for part in parts:
        if approval.judge(tool, {"command": part.text}).says == "allow":
            continue
        kind = sort_part(part)
        if kind.scope is None:
            return Proposal(refusal=kind.why)
        rule = _write_rule(part, kind.words, command if len(parts) == 1 else None)
        if rule is None:
            return Proposal(refusal="no rule can say exactly this")
        rules[rule] = None
        runs_project = runs_project or kind.runs_project
    if not rules or len(rules) > _MAX_RULES:
        return Proposal(refusal="it takes too many rules" if rules else "what its parts do together is not known")
    return Proposal(tuple(rules), runs_project)


def _write_rule(part: Part, words: Sequence[str], command: object) -> str | None:
    """Write the rule for a kind of command or, without words of a kind, for exactly this one.

    `None` where the text of a part without its quotes would be another command.
    """
    if words:
        return f"{SHELL}({' '.join(words)}:*)"
    if command is not None:
        return propose_command_rule(command)
    return None if any(word.quoted for word in part.words) else propose_command_rule(part.text)


def _list_candidates(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    if tool.name == "fetch":
        if host := find_host(arguments.get("url")):
            yield [f"fetch(domain:{host})"]
    else:
        yield [tool.name]


def _list_exact_candidates(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    path = arguments.get("path")
    if tool.name.lower() == SHELL:
        if (rule := _name_exactly(arguments.get("command"))) is not None:
            yield [rule]
    elif isinstance(path, str) and tool.access == "edit":
        # In a rule, a path with `*` or `?` stands for other files as well.
        if len(path) <= MAX_TEXT_LENGTH and not {"*", "?"}.intersection(path):
            yield [f"{tool.name}({path})"]
    else:
        yield from _list_candidates(tool, arguments)


def _name_exactly(command: object) -> str | None:
    """The rule for exactly this command; `None` where the same words may do something else the next time."""
    parsed = parse_command(command if isinstance(command, str) else "")
    if parsed.problem is not None or len(parsed.parts) > _MAX_PARTS:
        return None
    for part in parsed.parts:
        wild = any(word.wild >= 0 for word in part.words)
        if part.inputs or wild or explain_unstable_words(part) is not None:
            return None
        if part.piped and sort_part(part).scope != "kind":
            return None
    return propose_command_rule(command)
