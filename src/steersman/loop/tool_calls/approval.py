"""The approval of a tool call: the policies of its run and of all runs above it must agree.

One that denies wins, then one that asks; so a sub-agent has no more rights than its parents. No answer means no.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast, get_args

import msgspec

from steersman.loop.run import Run
from steersman.loop.tool_calls.execution import Slot
from steersman.policy.approval import Approval, Approved, Judgement, Says
from steersman.policy.hooks import HookError, call_within
from steersman.tools.calling import is_async
from steersman.tools.tool import Tool
from steersman.types.errors import describe_exception
from steersman.types.frozen import freeze, thaw

_INSTEAD = "Do not repeat it; do something else, or ask the user what they want."


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a call does not run, in words for the model, and the rule that denies it, if it is a rule."""

    text: str
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class _Question:
    """A question about a call: the run whose approver is asked, why, and the policies that remember the answer."""

    owner: Run | None
    why: str
    keepers: tuple[Approval, ...]

    @property
    def advice(self) -> str:
        """What to say to a no where a policy asked."""
        return f" It was asked about because {self.why}. {_INSTEAD}" if self.keepers else ""


def is_allowed(run: Run, slot: Slot, tool: Tool) -> bool:
    """Whether every policy allows a call, so that it needs no approval."""
    try:
        return all(_ask_policy(approval, tool, slot).says == "allow" for _, approval in _iterate_policies(run))
    except Exception:  # noqa: BLE001  # a broken policy has not agreed; the denial says what it raised
        return False


async def approve_call(run: Run, slot: Slot, tool: Tool) -> Denial | None:
    """Ask the policies of this run and of all runs above it; returns the denial, or `None` when they approve."""
    slot.args = freeze(slot.args)
    question = _find_question(run, slot, tool)
    if not isinstance(question, _Question):
        return question
    owner = question.owner
    if owner is None:
        advice = f" {_INSTEAD}" if question.keepers else ""
        return Denial(f"Denied: {question.why} and there is no approver.{advice}")
    # Parallel sub-agents may all need approval: an approver gets one question at a time.
    lock = owner.approval_lock = owner.approval_lock or asyncio.Lock()
    waited = lock.locked()
    async with lock:
        if waited:
            # The answer to the question before may have been the answer to this one.
            question = _find_question(run, slot, tool)
            if not isinstance(question, _Question):
                return question
        return await _ask_approver(owner, slot, question)


def _iterate_policies(run: Run) -> Iterator[tuple[Run, Approval]]:
    """The policies a run is under, its own first."""
    level: Run | None = run
    while level is not None:
        if level.config.approval is not None:
            yield level, level.config.approval
        level = level.parent


def _ask_policy(approval: Approval, tool: Tool, slot: Slot) -> Judgement:
    judgement = cast(object, approval.judge(tool, slot.args))
    if not isinstance(judgement, Judgement) or judgement.says not in get_args(Says):
        raise TypeError(f"{approval!r} gave {judgement!r}, which is no judgement")
    return judgement


def _find_question(run: Run, slot: Slot, tool: Tool) -> _Question | Denial | None:
    """The question to ask about a call; or why it is denied, or `None` if it may run."""
    asking: list[tuple[Run, Approval, str]] = []
    try:
        policies = list(_iterate_policies(run))
        for level, approval in policies:
            judgement = _ask_policy(approval, tool, slot)
            if judgement.says == "deny":
                return Denial(judgement.why, judgement.rule)
            if judgement.says == "ask":
                asking.append((level, approval, judgement.why))
        wanted = _needs_approval(tool, slot) and not any(
            policy.remembers(tool.name, slot.args) for _, policy in policies
        )
    except Exception as error:  # noqa: BLE001  # a policy, or the tool's own question: one that broke must not count as a no
        return Denial(f"Denied: whether it needs approval raised {describe_exception(error)}")
    if not asking and not wanted:
        return None
    reasons = [why for *_, why in asking] + [f"tool {tool.name!r} needs approval"] * wanted
    # The approver is that of the run that asks, or of one above it: never that of a sub-agent below.
    start = asking[-1][0] if asking else run
    keepers = [approval for _, approval, _ in asking] or [policy for _, policy in policies[:1]]
    return _Question(_find_approver(start), "; ".join(dict.fromkeys(reasons)), tuple(keepers))


def _needs_approval(tool: Tool, slot: Slot) -> bool:
    if not tool.needs_approval or tool.needs_approval is True:
        return bool(tool.needs_approval)
    return bool(cast(Callable[..., Any], tool.needs_approval)(thaw(slot.args)))


def _find_approver(run: Run) -> Run | None:
    """The nearest run, from this one up, that has an approver."""
    level: Run | None = run
    while level is not None and level.config.approve is None:
        level = level.parent
    return level


async def _ask_approver(owner: Run, slot: Slot, question: _Question) -> Denial | None:
    approve, seconds = cast(Callable[..., Any], owner.config.approve), owner.config.approve_timeout
    # A copy: the approver cannot change the arguments that run.
    shown = msgspec.structs.replace(slot.call, arguments=thaw(slot.args))
    arguments = (shown, question.why) if _takes_reason(approve) else (shown,)
    try:
        # A plain function runs in a thread: a person takes long to answer, and the run goes on meanwhile.
        threaded = not is_async(approve)
        answer = await call_within(approve, arguments, seam="approve", seconds=seconds, threaded=threaded)
    except TimeoutError:
        return Denial(f"Denied: no answer within {seconds:g}s.{question.advice}")
    except HookError as error:
        return Denial(f"Denied: {error}.")
    if isinstance(answer, Approved):
        if answer.remember:
            _remember(question, slot)
        return None
    return None if answer is True else Denial(f"Denied: not approved.{question.advice}")


def _remember(question: _Question, slot: Slot) -> None:
    for approval in question.keepers:
        try:
            approval.remember(slot.call.name, slot.args)
        except (TypeError, ValueError, RecursionError):
            return  # arguments that are no JSON have no fingerprint: the yes is for this once


def _takes_reason(approve: Callable[..., Any]) -> bool:
    """Whether the function takes the reason: a second argument that is required, or named `reason`."""
    try:
        signature = inspect.signature(approve)
    except ValueError:  # some built-ins have no signature
        return False
    positional = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(positional) > 1 and (positional[1].name == "reason" or positional[1].default is inspect.Parameter.empty)
