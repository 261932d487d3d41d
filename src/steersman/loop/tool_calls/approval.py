"""The approval of a tool call: the policies of its run and of all runs above it must agree.

One that denies wins, then one that asks; so a sub-agent has no more rights than its parents. No answer means no.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, cast, get_args

import msgspec

from steersman.loop.question import Level, Question, can_answer
from steersman.loop.questions import BY_LOOP, Answer
from steersman.loop.run import Run
from steersman.loop.tool_calls.execution import Slot
from steersman.loop.tool_calls.held_rules import find_effect, iterate_policies
from steersman.policy.answers import call_within
from steersman.policy.approval import Approval, Approved, Judgement, Says, fingerprint
from steersman.policy.hooks import HookError
from steersman.policy.preview import MAX_PREVIEW, preview_call
from steersman.tools.calling import is_async
from steersman.tools.tool import Tool
from steersman.types.errors import describe_exception
from steersman.types.frozen import freeze, thaw
from steersman.types.tools import ToolOutput

_BY_FUNCTION = "function"
_CHANGED = "The call did not run: what it would change has changed since the user was asked. Look again, and repeat it."
_INSTEAD = "Do not repeat it; do something else, or ask the user what they want."


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a call does not run, in words for the model, and the rule that denies it, if it is a rule."""

    text: str
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class _Need:
    """Why a call needs approval: the outermost run that asks, the one whose agent is asked, and the reason.

    Also the policies a yes for good is about, each with the run it belongs to.
    """

    level: Run
    owner: Run | None
    why: str
    keepers: tuple[tuple[Run, Approval], ...]
    preview: str = ""
    is_whole: bool = True  # whether the preview is all that the tool says the call would do

    def deny(self, reason: str) -> Denial:
        """The denial for this reason; where a policy asked, the model also reads why."""
        advice = f" It was asked about because {self.why}. {_INSTEAD}" if self.keepers else ""
        return Denial(f"Denied: {reason.rstrip('. ') or 'not approved'}.{advice}")

    def deny_unasked(self) -> Denial:
        """The denial where no answer is possible."""
        return Denial(f"Denied: {self.why} and there is no approver.{f' {_INSTEAD}' if self.keepers else ''}")

    def deny_late(self) -> Denial:
        """The denial where an agent below the one to ask now has said yes."""
        return Denial(f"Denied: since it was approved, it has to be asked about elsewhere: {self.why}. Repeat it.")


def is_allowed(run: Run, slot: Slot, tool: Tool) -> bool:
    """Whether every policy allows a call, so that it needs no approval."""
    try:
        return all(_ask_policy(approval, tool, slot).says == "allow" for _, approval in iterate_policies(run))
    except Exception:  # noqa: BLE001  # a broken policy has not agreed; the denial says what it raised
        return False


async def approve_call(run: Run, slot: Slot, tool: Tool) -> Denial | ToolOutput | None:
    """Ask the policies of this run and of all runs above it; returns the denial, or `None` when they approve.

    A call that fails whatever the answer is not asked about, and one that would do something else than what was
    approved does not run: returns its output.
    """
    slot.args = freeze(slot.args)
    need = _find_need(run, slot, tool)
    if not isinstance(need, _Need):
        return need
    unsure, effect = _may_change_before(run, slot), await find_effect(run, slot, tool)
    if unsure and not _may_change_before(run, slot):
        # The earlier calls ended while the effect was looked for: it may have been looked for too early.
        unsure, effect = False, await find_effect(run, slot, tool)
    if isinstance(effect, ToolOutput) and not unsure:
        return effect
    shown = effect if isinstance(effect, str) else None
    is_whole = shown is None or len(shown) <= MAX_PREVIEW
    need = replace(need, preview=preview_call(slot.call.name, slot.args, shown), is_whole=is_whole)
    denial = await _ask(run, slot, tool, need)
    if denial is None and shown is not None:
        now = await find_effect(run, slot, tool)
        if now != shown:
            return now if isinstance(now, ToolOutput) else ToolOutput(_CHANGED, is_error=True)
    objection = denial or find_objection(run, slot, tool)
    return objection if isinstance(objection, Denial) else None


def find_objection(run: Run, slot: Slot, tool: Tool) -> Denial | bool:
    """The denial of a call that may run, or whether it must be asked about: the mode may be another one since."""
    found = _find_need(run, slot, tool)
    if not isinstance(found, _Need):
        return False if found is None else found
    if slot.approver is None:
        return True
    # A yes counts for the runs up to the one whose agent has said it, and no call is asked about twice.
    return False if _is_above(slot.approver, found.level) else found.deny_late()


async def _ask(run: Run, slot: Slot, tool: Tool, need: _Need) -> Denial | None:
    owner = need.owner
    if owner is None or not callable(owner.config.approve):
        return await _ask_by_event(run, slot, tool, need)
    # A function gets one question at a time, also where parallel sub-agents all need approval.
    lock = owner.approval_lock = owner.approval_lock or asyncio.Lock()
    waited = lock.locked()
    async with lock:
        if waited:
            # The answer to the question before may have been the answer to this one.
            again = _find_need(run, slot, tool)
            if not isinstance(again, _Need):
                return again
            need = replace(again, preview=need.preview, is_whole=need.is_whole)
        if need.owner is owner:
            return await _ask_function(run, slot, need)
    return await _ask(run, slot, tool, need)  # another agent is asked now


def _may_change_before(run: Run, slot: Slot) -> bool:
    """Whether an earlier call of the same answer may still change what this one finds."""
    slots: Sequence[Slot] = () if run.turn is None else run.turn.slots
    earlier = takewhile(lambda other: other is not slot, slots)
    return any(other.result is None and (other.tool is None or other.tool.access != "read") for other in earlier)


def _ask_policy(approval: Approval, tool: Tool, slot: Slot) -> Judgement:
    judgement = cast(object, approval.judge(tool, slot.args))
    if not isinstance(judgement, Judgement) or judgement.says not in get_args(Says):
        raise TypeError(f"{approval!r} gave {judgement!r}, which is no judgement")
    return judgement


def _find_need(run: Run, slot: Slot, tool: Tool) -> _Need | Denial | None:
    """Why a call needs approval; or why it is denied, or `None` if it may run."""
    asking: list[tuple[Run, Approval, str]] = []
    try:
        policies = list(iterate_policies(run))
        for level, approval in policies:
            judgement = _ask_policy(approval, tool, slot)
            if judgement.says == "deny":
                return Denial(judgement.why, judgement.rule)
            if judgement.says == "ask" and not _was_approved(level, slot, tool, approval):
                asking.append((level, approval, judgement.why))
        wanted = _needs_approval(tool, slot) and not _is_remembered(run, slot, tool)
    except Exception as error:  # noqa: BLE001  # a policy, or the tool's own question: one that broke must not count as a no
        return Denial(f"Denied: whether it needs approval raised {describe_exception(error)}")
    if not asking and not wanted:
        return None
    reasons = [why for *_, why in asking] + [f"tool {tool.name!r} needs approval"] * wanted
    # The approver is that of the run that asks, or of one above it: never that of a sub-agent below.
    start = asking[-1][0] if asking else run
    keepers = [(level, approval) for level, approval, _ in asking] or policies[:1]
    return _Need(start, _find_owner(start), "; ".join(dict.fromkeys(reasons)), tuple(keepers))


def _is_remembered(run: Run, slot: Slot, tool: Tool) -> bool:
    """Whether this exact call was approved for good, at this run or at one above it."""
    remembers = any(
        policy.remembers(tool.name, slot.args) or _was_approved(level, slot, tool, policy)
        for level, policy in iterate_policies(run)
    )
    return remembers or _was_approved(run, slot, tool, None)


def _was_approved(run: Run, slot: Slot, tool: Tool, asking: Approval | None) -> bool:
    """Whether the call was approved for good, here or above, when this policy asked; `None` is the tool alone."""
    level: Run | None = run
    while level is not None:
        if (approved := level.context.approved_calls) and (fingerprint(tool.name, slot.args), asking) in approved:
            return True
        level = level.parent
    return False


def _needs_approval(tool: Tool, slot: Slot) -> bool:
    if not tool.needs_approval or tool.needs_approval is True:
        return bool(tool.needs_approval)
    return bool(cast(Callable[..., Any], tool.needs_approval)(thaw(slot.args)))


def _is_above(above: Run | None, run: Run | None) -> bool:
    """Whether a run is this one, or one above it."""
    while run is not None and run is not above:
        run = run.parent
    return run is not None


def _find_owner(run: Run | None) -> Run | None:
    """The nearest run, from this one up, whose agent can answer."""
    while run is not None and not can_answer(run):
        run = run.parent
    return run


async def _ask_by_event(run: Run, slot: Slot, tool: Tool, need: _Need) -> Denial | None:
    """Ask by the event alone: subscribers or the application answer. Several such questions may be open at once."""
    levels, owner = _find_levels(run, slot), need.owner
    runs = [level.run for level in levels]
    if owner is None or owner not in runs:
        question = Question(levels, _build_fields(run, slot, need), None)
        question.decide(Answer("denied", BY_LOOP, "there is no approver"))
        question.open()
        question.close()
        return need.deny_unasked()
    answerers = runs[runs.index(owner) :]
    seconds = min((limit for each in answerers if (limit := each.config.approve_timeout) is not None), default=None)
    question = Question(levels, _build_fields(run, slot, need), seconds, answerers)
    question.is_moot = lambda: _find_need(run, slot, tool) is None
    timer = None
    if seconds is not None:
        expired = Answer("expired", BY_LOOP, f"no answer within {seconds:g}s")
        timer = asyncio.get_running_loop().call_later(seconds, question.decide, expired)
    slot.waits = True  # the gates of other calls need not wait for a person
    try:
        question.open()
        run.wake()
        answer = await question.wait()
    finally:
        slot.waits = False
        if timer is not None:
            timer.cancel()
        question.close()
    # The application talks to the outermost agent; that of a sub-agent may have many users.
    return _apply_answer(runs[-1], slot, need, answer)


async def _ask_function(run: Run, slot: Slot, need: _Need) -> Denial | None:
    """Ask the `approve` function; an answer to the event counts as well if it comes first."""
    owner, levels = cast(Run, need.owner), _find_levels(run, slot)
    question = Question(levels, _build_fields(run, slot, need), owner.config.approve_timeout)
    task: asyncio.Task[None] | None = None
    try:
        question.open()
        if question.answer is None:
            task = asyncio.get_running_loop().create_task(_call_function(owner, slot, need, question))
        answer = await question.wait()
    finally:
        question.close()
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=owner.config.cancel_grace)
    return _apply_answer(owner if answer.by == _BY_FUNCTION else levels[-1].run, slot, need, answer)


async def _call_function(owner: Run, slot: Slot, need: _Need, question: Question) -> None:
    approve, seconds = cast(Callable[..., Any], owner.config.approve), owner.config.approve_timeout
    # A copy: the approver cannot change the arguments that run.
    shown = msgspec.structs.replace(slot.call, arguments=thaw(slot.args))
    arguments = (shown, need.why) if _takes_reason(approve) else (shown,)
    answer = Answer("denied", _BY_FUNCTION)
    try:
        # A plain function runs in a thread: a person takes long to answer, and the run goes on meanwhile.
        threaded = not is_async(approve)
        given = await call_within(approve, arguments, seam="approve", seconds=seconds, threaded=threaded)
        if given is True or isinstance(given, Approved):
            answer = Answer("approved", _BY_FUNCTION, remember=isinstance(given, Approved) and given.remember)
    except TimeoutError:
        answer = Answer("expired", BY_LOOP, f"no answer within {seconds:g}s")
    except HookError as error:
        answer = Answer("denied", _BY_FUNCTION, str(error))
    finally:
        question.decide(answer)


def _find_levels(run: Run, slot: Slot) -> list[Level]:
    """The runs that tell a question about this call: this one, and those above it as long as their calls run."""
    levels, loop = [Level(run, slot.call.id)], asyncio.get_running_loop()
    while (parent := run.parent) is not None and parent.task is not None and parent.task.get_loop() is loop:
        call_id = run.start.inherited.tool_call_id
        slots: Sequence[Slot] = () if parent.turn is None else parent.turn.slots
        if call_id is None or not any(each.call.id == call_id and each.is_running for each in slots):
            break
        levels.append(Level(parent, call_id))
        run = parent
    return levels


def _build_fields(run: Run, slot: Slot, need: _Need) -> dict[str, Any]:
    before = run.host.questions.recovered.get(slot.call.id)
    now = (slot.call.name, slot.args, need.preview)
    is_same = before is not None and need.is_whole and (before.tool_name, before.args, before.preview) == now
    return {
        # A question that was open when another program ended keeps its id if it is about the exact same call, which
        # would still do what was shown: the answer may have been given before it is asked again.
        "approval_id": before.approval_id if before is not None and is_same else None,
        "tool_call_id": slot.call.id,
        "tool_name": slot.call.name,
        "args": slot.args,
        "preview": need.preview,
        "reason": need.why,
    }


def _apply_answer(keeper: Run, slot: Slot, need: _Need, answer: Answer) -> Denial | None:
    if answer.decision != "approved":
        return need.deny(answer.reason)
    slot.approver = need.owner
    if answer.remember:
        _remember(keeper, need, slot)
        keeper.host.questions.approve_moot(answer.by)
    return None


def _remember(keeper: Run, need: _Need, slot: Slot) -> None:
    """Let the policy of the agent that answered remember the call if it asked, and that agent what else asked.

    The policy of a sub-agent may be that of many conversations, each with a user of its own.
    """
    for level, approval in need.keepers or ((keeper, None),):
        if approval is not None and level is keeper:
            approval.remember(slot.call.name, slot.args)
        else:
            keeper.context.get_approved_calls().add((fingerprint(slot.call.name, slot.args), approval))


def _takes_reason(approve: Callable[..., Any]) -> bool:
    """Whether the function takes the reason: a second argument that is required, or named `reason`."""
    try:
        parameters = inspect.signature(approve).parameters.values()
    except ValueError:  # some built-ins have no signature
        return False
    given = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return len(given) > 1 and (given[1].name == "reason" or given[1].default is inspect.Parameter.empty)
