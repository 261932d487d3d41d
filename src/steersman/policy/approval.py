"""Decides which tool calls are allowed, which need approval, and which are denied.

The decision depends on the settings, on earlier approvals and on the call, never on the text of the conversation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from steersman.tools.tool import Tool
from steersman.types.guards import is_instance

if TYPE_CHECKING:
    import os

    from steersman.policy.rules import Call, Rule, RulesLike

_log = logging.getLogger("steersman")

Mode: TypeAlias = Literal["ask", "accept-edits", "plan", "bypass"]
Says: TypeAlias = Literal["allow", "ask", "deny"]

_GO_ON = (
    "Do not try to reach the same in another way. Go on without it, or tell the user what you wanted to do and why."
)
_PLAN = (
    "This is plan mode: nothing may be changed yet. Look around with the tools that only read, "
    "then answer with a plan of what you would do."
)


@dataclass(frozen=True, slots=True)
class Approved:
    """Approves a call; with `remember`, also the same call with the same arguments later on."""

    remember: bool = False

    def __post_init__(self) -> None:
        if not is_instance(self.remember, bool):
            raise TypeError(f"Approved(remember) is True or False, got {self.remember!r}.")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The decision about a call, the reason, and the rule that decided, if any."""

    says: Says
    why: str = ""
    rule: str | None = None


_ALLOWED = Judgement("allow")


def fingerprint(tool: str, arguments: Mapping[str, Any]) -> str:
    """Compute the hash that an approval is bound to: the tool's name and its exact arguments, in any order."""
    import hashlib
    import json

    text = json.dumps([tool, arguments], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Approval:
    """A policy over tool calls: `deny` wins over `ask`, `ask` over `allow`, and the mode decides about the rest.

    `mode` is "ask" (tools that only read are allowed, the rest needs approval), "accept-edits" (tools that only change
    files of the workspace are allowed too), "plan" (tools that do more than read are denied) or "bypass" (everything
    is allowed except what `deny` matches). Paths in rules are relative to `workspace`.
    """

    __slots__ = ("_allow", "_ask", "_deny", "_remembered", "_roots", "mode")

    def __init__(
        self,
        mode: Mode = "ask",
        *,
        deny: RulesLike = (),
        ask: RulesLike = (),
        allow: RulesLike = (),
        workspace: str | os.PathLike[str] = ".",
        remembered: Iterable[str] = (),
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode is one of {', '.join(map(repr, get_args(Mode)))}, got {mode!r}.")
        # Imported late: the parser of rules is only needed with a policy.
        from steersman.policy.rules import parse_allow_rules, parse_deny_or_ask_rules, resolve_roots

        self._roots = roots = resolve_roots(workspace)
        self.mode: Mode = mode
        self._deny = parse_deny_or_ask_rules(deny, "deny", roots)
        self._ask = parse_deny_or_ask_rules(ask, "ask", roots)
        self._allow = parse_allow_rules(allow, roots)
        for text in self._allow.warnings:
            _log.warning("%s", text)
        self._remembered = _check_fingerprints(remembered)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know about the rules of `allow`: those for programs whose options are not known. Also logged."""
        return self._allow.warnings

    @property
    def remembered(self) -> frozenset[str]:
        """The fingerprints of the calls that were approved with `remember`, to be saved and passed in again."""
        return frozenset(self._remembered)

    def copy(self) -> Approval:
        """A policy with the same rules and approvals, which changes independently of this one."""
        other = object.__new__(type(self))
        for name in ("_allow", "_ask", "_deny", "_roots", "mode"):
            setattr(other, name, getattr(self, name))
        other._remembered = set(self._remembered)
        return other

    def add_allow_rules(self, *rules: str) -> None:
        """Add rules to `allow`, also during a run: they count from the next call on. A bad one raises `ValueError`."""
        from steersman.policy.rules import parse_allow_rules

        self._allow = parse_allow_rules([*self._allow.texts, *rules], self._roots)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The rules of `allow`."""
        return self._allow.texts

    def remember(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Allow this exact call from now on, unless a rule denies it."""
        self._remembered.add(fingerprint(tool, arguments))

    def remembers(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether this exact call was approved with `remember`."""
        if not self._remembered:
            return False
        try:
            return fingerprint(tool, arguments) in self._remembered
        except (TypeError, ValueError, RecursionError):  # arguments that are not JSON were never approved
            return False

    def judge(self, tool: Tool, arguments: Mapping[str, Any]) -> Judgement:
        """Decide about a call: the tool, and the arguments it would run with."""
        from steersman.policy.rules import Call

        call = Call(tool, arguments)
        doubt = None
        for rule in self._deny:
            match = rule.match(call)
            if match == "yes":
                return Judgement("deny", f"Denied by the rule {rule.text!r}. {_GO_ON}", rule.text)
            if match == "maybe" and doubt is None:
                doubt = rule
        if self.mode == "plan" and tool.access != "read":
            return Judgement("deny", f"Denied: {tool.name!r} can change things. {_PLAN}")
        if self.mode == "bypass" and doubt is None:
            return _ALLOWED
        return self._weigh(call, doubt)

    def find_path_denial(self, tool: str, path: str) -> str:
        """Find the rule of `deny` that names a tool and matches a real, absolute path; an empty text where none does.

        The file tools ask it about what they open and list, because `judge` does not know where a symlink leads.
        """
        return next((rule.text for rule in self._deny if rule.covers_path(tool, path)), "")

    def find_path_question(self, tool: str, path: str) -> str:
        """Find the rule of `ask` that names a tool and matches a real, absolute path; an empty text where none does."""
        return next((rule.text for rule in self._ask if rule.covers_path(tool, path)), "")

    @property
    def names_hosts(self) -> bool:
        """Whether a rule of `deny` or `ask` names hosts."""
        return any(rule.names_hosts for rule in (*self._deny, *self._ask))

    def holds_host(self, url: str) -> bool:
        """Whether a rule of `deny` or `ask` is about the host of a URL, to which a call may be redirected."""
        return any(rule.covers_host(url) for rule in (*self._deny, *self._ask))

    @property
    def denies_paths(self) -> bool:
        """Whether a rule of `deny` names paths."""
        return any(rule.names_paths for rule in self._deny)

    def _weigh(self, call: Call, doubt: Rule | None) -> Judgement:
        """Decide about a call that is not denied."""
        if self.remembers(call.name, call.arguments):
            return _ALLOWED
        if doubt is not None:
            return Judgement("ask", f"the rule {doubt.text!r} may match it", doubt.text)
        for rule in self._ask:
            if rule.match(call) != "no":
                return Judgement("ask", f"the rule {rule.text!r} requires approval", rule.text)
        access = call.tool.access
        if access == "read" or (access == "edit" and self.mode == "accept-edits"):
            return _ALLOWED
        missing = self._allow.explain_missing(call)
        if missing is None and (rule := next((rule for rule in self._deny if rule.forbids_input(call)), None)):
            return Judgement("ask", f"it reads a file that the rule {rule.text!r} is about", rule.text)
        if missing is None:
            return _ALLOWED
        from steersman.policy.rules import SHELL

        what = (
            "runs commands"
            if call.name.lower() == SHELL
            else "changes files"
            if access == "edit"
            else "can change things"
        )
        return Judgement("ask", missing or f"{call.name!r} {what} and no rule allows it")

    def __repr__(self) -> str:
        rules = {"deny": [rule.text for rule in self._deny], "ask": [rule.text for rule in self._ask]}
        rules["allow"] = list(self._allow.texts)
        shown = "".join([f", {name}={texts!r}" for name, texts in rules.items() if texts])
        return f"Approval({self.mode!r}{shown})"


def _check_fingerprints(remembered: object) -> set[str]:
    if isinstance(remembered, str | bytes) or not isinstance(remembered, Iterable):
        raise TypeError(f"remembered is a list of fingerprints, got {remembered!r}.")
    found: set[Any] = set(cast(Iterable[Any], remembered))
    for mark in found:
        if not isinstance(mark, str) or len(mark) != 64:
            raise ValueError(f"remembered takes what fingerprint() or Approval.remembered gave, got {mark!r}.")
    return found
