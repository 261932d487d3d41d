"""Calls the hooks and policies of a seam, and reads their answers; the laws are in `hooks`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec

from steersman.policy.hooks import OBSERVERS, PROCEED, TOOL_GATES, Decision, HookError, PolicyView
from steersman.policy.verdicts import Inject, Rewrite, Skip, Stop, Verdict
from steersman.tools.threads import call_in_thread
from steersman.types.content import ToolCall
from steersman.types.errors import describe_exception
from steersman.types.messages import AgentMessage
from steersman.types.tools import ToolOutput


async def decide(callables: Sequence[Callable[..., Any]], arguments: tuple[Any, ...], *, seam: str) -> Decision:
    """Call all hooks of a loop or turn seam; raise `HookError` when one raises or returns an invalid verdict."""
    inject: list[AgentMessage] = []
    for hook in callables:
        answer = _check_verdict(await call(hook, arguments, seam=seam), hook, seam)
        if type(answer) is Stop:
            return Decision(answer, inject)
        if type(answer) is Inject:
            inject.extend(answer.messages)
        elif answer is not None:
            raise HookError(
                f"{seam} hook {_name_hook(hook)} gave {answer!r}, which means nothing here; use Stop or Inject."
            )
    return Decision(None, inject) if inject else PROCEED


async def observe(callables: Sequence[Callable[..., Any]], arguments: tuple[Any, ...], *, seam: str) -> None:
    """Call all hooks of a seam where nothing is decided; raise `HookError` when one raises."""
    for hook in callables:
        await call(hook, arguments, seam=seam)


async def call_within(
    hook: Callable[..., Any], arguments: tuple[Any, ...], *, seam: str, seconds: float | None, threaded: bool = False
) -> object:
    """Call one hook; raise `TimeoutError` when it does not return within `seconds`."""
    async with asyncio.timeout(seconds) as limit:
        answer = await call(hook, arguments, seam=seam, threaded=threaded)
        # A hook that blocks the event loop also blocks the timeout, so the time is checked here.
        late = seconds is not None and asyncio.get_running_loop().time() > cast(float, limit.when())
    if late or limit.expired():
        raise TimeoutError  # it ignored the cancellation, or blocked: either way its answer is too late
    return answer


async def call(hook: Callable[..., Any], arguments: tuple[Any, ...], *, seam: str, threaded: bool = False) -> object:
    """Call one hook and await its answer where it is async; with `threaded` in a thread, where it may block."""
    try:
        answer: object = await call_in_thread(hook, *arguments) if threaded else hook(*arguments)
        if isinstance(answer, Awaitable):
            answer = await cast(Awaitable[object], answer)
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        raise HookError(f"{seam} hook {_name_hook(hook)} raised CancelledError") from None
    except HookError:
        raise  # it already says what is wrong
    except Exception as error:
        raise HookError(f"{seam} hook {_name_hook(hook)} raised {describe_exception(error)}") from error
    return answer


class Admission(msgspec.Struct, frozen=True):
    """Whether a tool call may run, and with which arguments; with an `output` this is its result in place of a run."""

    call: ToolCall
    denied: str | None = None
    stop: Stop | None = None
    output: ToolOutput | None = None


async def admit(
    tool_call: ToolCall,
    policies: Sequence[Callable[..., Any]],
    hooks: Sequence[Callable[..., Any]],
    *,
    view: Callable[[ToolCall], PolicyView],
    timeout: float | None,
) -> Admission:
    """Call every gate; one that raises, times out or returns an invalid verdict denies the call."""
    gates = [("pre_dispatch_policies", gate) for gate in policies] + [("before_tool_execution", gate) for gate in hooks]
    for seam, gate in gates:
        argument = view(tool_call) if seam == "pre_dispatch_policies" else tool_call
        try:
            said = await call_within(gate, (argument,), seam=seam, seconds=timeout)
            if isinstance(said, ToolOutput):
                return Admission(tool_call, output=said)
            answer = (
                Skip(f"Denied: {_name_hook(gate)} did not allow it.")
                if said is False
                else _check_verdict(said, gate, seam)
            )
        except TimeoutError:
            return Admission(tool_call, f"Denied: {seam} gate {_name_hook(gate)} gave no answer within {timeout}s.")
        except HookError as error:
            return Admission(tool_call, f"Denied: {error}.")
        match answer:
            case None:
                pass
            case Skip(text):
                return Admission(tool_call, text)
            case Rewrite(args):
                tool_call = msgspec.structs.replace(tool_call, arguments=dict(args), raw_arguments=None)
            case Stop(reason):
                return Admission(tool_call, f"Denied: the run was stopped. {reason}".strip(), answer)
            case Inject():
                return Admission(tool_call, f"Denied: {seam} gate {_name_hook(gate)} cannot inject messages.")
    return Admission(tool_call)


async def revise(
    callables: Sequence[Callable[..., Any]], tool_call: ToolCall, output: ToolOutput
) -> tuple[ToolOutput, Decision]:
    """Let each `after_tool_execution` hook replace the output with a `ToolOutput` or a string, or stop the run.

    Raises `HookError` when one raises, or says no to the output with `False`.
    """
    decision = PROCEED
    for hook in callables:
        answer = await call(hook, (tool_call, output), seam="after_tool_execution")
        if isinstance(answer, ToolOutput):
            output = answer
        elif isinstance(answer, str):
            output = ToolOutput(answer, output.details, output.is_error, output.terminate, output.effects)
        elif answer is False:
            raise HookError(f"after_tool_execution hook {_name_hook(hook)} did not allow the output")
        elif isinstance(answer, Stop):
            decision = Decision(decision.stop or answer, decision.inject)
        elif isinstance(answer, Inject):
            decision = Decision(decision.stop, [*decision.inject, *answer.messages])
        elif isinstance(answer, Skip | Rewrite):
            raise HookError(
                f"after_tool_execution hook {_name_hook(hook)} gave {answer!r}, which means nothing here; return a "
                "ToolOutput, a string, Stop or Inject"
            )
    return output, decision


def _check_verdict(answer: object, hook: Callable[..., Any], seam: str) -> Verdict | None:
    if answer is None or answer is True:
        return None
    if answer is False:
        return Stop()
    if isinstance(answer, Stop | Inject | Skip | Rewrite):
        return answer
    if seam in OBSERVERS:
        return None
    verdicts = "Stop, Skip, Rewrite or a ToolOutput" if seam in TOOL_GATES else "Stop or Inject"
    raise HookError(f"{seam} hook {_name_hook(hook)} gave {answer!r}; return None, True, False, {verdicts}")


def _name_hook(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", None) or repr(hook)
