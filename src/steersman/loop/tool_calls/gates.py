"""The gates of a tool call, in order: known, complete, valid, allowed, approved. A gate that raises denies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from steersman.loop.run import Run, Turn
from steersman.loop.tool_calls.execution import Slot, settle
from steersman.policy.answers import admit
from steersman.tools.schema.validation import InvalidArguments
from steersman.tools.table import describe_unknown_tool
from steersman.tools.tool import Tool
from steersman.types.frozen import freeze, thaw
from steersman.types.tools import ToolOutput

if TYPE_CHECKING:
    from steersman.loop.tool_calls.approval import Denial

INCOMPLETE = "error: tool call was incomplete due to max tokens reached"


def check_call(run: Run, turn: Turn, slot: Slot, *, now: bool = True) -> bool:
    """Find the tool and check the arguments; returns whether the call can run. If not, it is settled.

    Without `now`, a policy judges the call later, with its gates.
    """
    asked = slot.call
    if asked.raw_arguments is not None:
        problem = INCOMPLETE if asked.is_truncated else _describe_non_object(asked.raw_arguments)
    elif run.config.length_policy == "fail_all" and _is_cut(turn):
        problem = INCOMPLETE
    elif (tool := run.tools.get(asked.name)) is None:
        problem = describe_unknown_tool(asked.name, run.tools)
    else:
        slot.tool, slot.is_alone = tool, tool.sequential
        problem = _check_arguments(slot, tool, asked.arguments)
        if problem is None:
            guards = run.guards
            if not (guards.pre_dispatch_policies or guards.before_tool_execution or tool.needs_approval):
                slot.admitted = not guards.has_policy or (now and _is_allowed(run, slot, tool))
            return True
    settle(run, slot, problem, status="invalid")
    return False


def _is_cut(turn: Turn) -> bool:
    """Whether the answer broke off at the limit of its tokens."""
    return turn.message is not None and turn.message.stop_reason == "length"


def judge_again(run: Run, slot: Slot) -> None:
    """Judge a call again that was admitted and has not started: the mode is another one since.

    One that was approved is not asked about twice, but a mode that denies it wins.
    """
    if not slot.admitted or slot.answer is not None:
        return
    if slot.gate is None:
        slot.admitted = _is_allowed(run, slot, cast(Tool, slot.tool))
        return
    from steersman.loop.tool_calls.approval import find_objection  # as below

    objection = find_objection(run, slot, cast(Tool, slot.tool))
    if objection is True:
        # Its hooks have said yes to it, and are not asked again.
        slot.admitted, slot.gate, slot.passed = False, None, True
    elif objection is not False:
        _settle_denied(run, slot, objection)


def list_modes(run: Run) -> list[str]:
    """List the modes of all policies that judge the calls of a run, which the user may change meanwhile."""
    modes: list[str] = []
    if not run.guards.has_policy:
        return modes
    level: Run | None = run
    while level is not None:
        if level.config.approval is not None:
            modes.append(level.config.approval.mode)
        level = level.parent
    return modes


def _is_allowed(run: Run, slot: Slot, tool: Tool) -> bool:
    from steersman.loop.tool_calls.approval import is_allowed  # only a run with a policy pays for it

    slot.args = freeze(slot.args)
    return is_allowed(run, slot, tool)


def _describe_non_object(raw: str) -> str:
    """What to tell the model about arguments that are JSON and not an object."""
    return f"error: tool arguments must be a JSON object, got {msgspec.json.decode(raw)!r:.200}."


def _check_arguments(slot: Slot, tool: Tool, arguments: dict[str, Any]) -> str | None:
    try:
        if tool.fits(arguments):
            slot.args, slot.given = arguments, {**arguments}
        else:
            slot.args = slot.given = tool.check(arguments)
        if tool.keys is not None:
            slot.keys = frozenset(map(str, tool.keys(thaw(slot.args))))
    except InvalidArguments as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  # the tool's own `keys` function: its failure is the tool's
        return f"{type(error).__name__} in the keys of tool {tool.name!r}: {error}"
    return None


async def ask_gates(run: Run, turn: Turn, slot: Slot) -> None:
    """Ask the policies, the hooks and the approver: the call is admitted, or settled with the reason."""
    tool = cast(Tool, slot.tool)
    config = run.config
    if not slot.passed and (run.guards.pre_dispatch_policies or run.guards.before_tool_execution):
        asked = msgspec.structs.replace(slot.call, arguments=slot.args)
        admission = await admit(
            asked,
            run.guards.pre_dispatch_policies,
            run.guards.before_tool_execution,
            view=lambda call: run.view(turn, call),
            timeout=config.gate_timeout,
        )
        if admission.stop is not None:
            run.ending.finish("stopped", admission.stop.reason or "a gate said no")
        if admission.denied is not None:
            settle(run, slot, admission.denied, status="denied")
            return
        if (
            admission.call is not asked
            and (problem := _check_arguments(slot, tool, admission.call.arguments)) is not None
        ):
            settle(run, slot, problem, status="invalid")
            return
        if admission.output is not None:
            slot.answer = admission.output
            slot.admitted = (
                True  # it only looks like a call from here on: the tool is not run, so no approval is needed
            )
            return
    if run.guards.has_policy or tool.needs_approval:
        from steersman.loop.tool_calls.approval import approve_call  # as above

        denial = await approve_call(run, slot, tool)
        if isinstance(denial, ToolOutput):
            slot.answer = denial  # the tool is not run: it would fail
        elif denial is not None:
            _settle_denied(run, slot, denial)
            return
    slot.admitted = True


def _settle_denied(run: Run, slot: Slot, denial: Denial) -> None:
    settle(run, slot, denial.text, status="denied", details=None if denial.rule is None else {"rule": denial.rule})
