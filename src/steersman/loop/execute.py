"""One tool call: its gates in order, its execution in a task of its own, its one result."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast, get_args

import msgspec

from steersman.context.compaction import ContextConfig
from steersman.loop.run import Run, Turn
from steersman.policy.hooks import HookError, admit, call, revise
from steersman.tools.context import ToolContext
from steersman.tools.output import cap
from steersman.tools.threads import in_thread
from steersman.tools.tool import Tool, unknown_tool
from steersman.tools.validation import InvalidArguments
from steersman.types.cancel import CancelToken
from steersman.types.content import TextContent, ToolCall
from steersman.types.errors import ToolError, described
from steersman.types.events import CustomEvent, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate
from steersman.types.frozen import FrozenDict, FrozenList, thaw
from steersman.types.messages import ToolResultMessage, ToolStatus
from steersman.types.tools import Effect, Prun, ToolOutput

ABORTED = "tool call cancelled: operation aborted"
INCOMPLETE = "error: tool call was incomplete due to max tokens reached"
_LIMITS = ContextConfig()
_NO_CONTEXT = ToolContext("", "", CancelToken())
# Beyond this many characters the capping of an output is work for a thread.
_LARGE = 1_000_000
_STATUS = {status: FrozenDict({"status": status}) for status in get_args(ToolStatus)}


class Slot:
    """A tool call on its way to its result."""

    __slots__ = (
        "admitted", "args", "began", "call", "effects", "index", "keys", "result", "started", "stopping", "task",
        "terminate", "timer", "token", "tool",
    )  # fmt: skip

    def __init__(self, call: ToolCall, index: int) -> None:
        self.call = call
        self.index = index
        self.tool: Tool | None = None
        self.args: dict[str, Any] = call.arguments
        self.keys: frozenset[str] = frozenset()
        self.admitted = False
        self.started = False
        self.began = 0.0
        self.token: CancelToken | None = None
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.stopping: str | None = None
        self.result: ToolResultMessage | None = None
        self.effects: tuple[Effect, ...] = ()
        self.terminate = False

    @property
    def alone(self) -> bool:
        """Whether nothing else may run beside it."""
        return self.tool is not None and self.tool.sequential

    @property
    def uninterruptible(self) -> bool:
        """Whether steering lets it finish."""
        return self.tool is not None and self.tool.uninterruptible

    def stop(self, text: str) -> None:
        """Ask a running call to stop; the text is what its result will say."""
        if self.result is None and self.task is not None:
            self.stopping = self.stopping or text
            if self.token is not None:
                self.token.cancel(text)
            self.task.cancel()


def examine(run: Run, turn: Turn, slot: Slot) -> bool:
    """Find the tool and check the arguments; whether the call can be run at all. If not, it is answered why."""
    asked = slot.call
    cut = turn.message is not None and turn.message.stop_reason == "length"
    problem: str | None = None
    if asked.raw_arguments is not None:
        problem = not_an_object(asked.raw_arguments) or INCOMPLETE
    elif cut and run.config.length_policy == "fail_all":
        problem = INCOMPLETE
    elif (tool := run.tools.get(asked.name)) is None:
        problem = unknown_tool(asked.name, run.tools)
    else:
        slot.tool = tool
        seams = run.config.seams
        slot.admitted = not (seams.pre_dispatch_policies or seams.before_tool_execution or tool.needs_approval)
        problem = _checked(slot, tool, asked.arguments)
    if problem is not None:
        settle(run, slot, problem, status="invalid")
    return problem is None


def not_an_object(raw: str) -> str | None:
    """What to tell the model about arguments that are JSON and not an object; `None` when they are not even JSON."""
    try:
        value: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return f"error: tool arguments must be a JSON object, got {value!r:.200}."


def _checked(slot: Slot, tool: Tool, arguments: dict[str, Any]) -> str | None:
    try:
        slot.args = tool.check(arguments)
        slot.keys = frozenset(map(str, tool.keys(slot.args))) if tool.keys is not None else frozenset()
    except InvalidArguments as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  # the tool's own `keys` function: its failure is the tool's
        return f"{type(error).__name__} in the keys of tool {tool.name!r}: {error}"
    return None


async def admit_slot(run: Run, turn: Turn, slot: Slot) -> bool:
    """Ask the policies, the hooks and, where it is wanted, for approval; whether the call may run."""
    slot.admitted = True
    tool = cast(Tool, slot.tool)
    seams, config = run.config.seams, run.config
    if seams.pre_dispatch_policies or seams.before_tool_execution:
        asked = msgspec.structs.replace(slot.call, arguments=slot.args)
        admission = await admit(
            asked,
            seams.pre_dispatch_policies,
            seams.before_tool_execution,
            view=lambda call: run.view(turn, call),
            timeout=config.gate_timeout,
        )
        if admission.stop is not None:
            run.finish("stopped", admission.stop.reason)
        if admission.denied is not None:
            settle(run, slot, admission.denied, status="denied")
            return False
        if admission.call is not asked and (problem := _checked(slot, tool, admission.call.arguments)) is not None:
            settle(run, slot, problem, status="invalid")
            return False
    if tool.needs_approval and (denial := await _approval(run, slot, tool)) is not None:
        settle(run, slot, denial, status="denied")
        return False
    return True


async def _approval(run: Run, slot: Slot, tool: Tool) -> str | None:
    """Why the call is not approved; no answer, a broken answer and nobody to ask all mean no."""
    try:
        if tool.needs_approval is not True and not cast(Callable[..., Any], tool.needs_approval)(slot.args):
            return None
        if run.config.approve is None:
            return f"Denied: tool {tool.name!r} needs approval and there is nobody to ask."
        asked = msgspec.structs.replace(slot.call, arguments=slot.args)
        return None if await call(run.config.approve, (asked,), seam="approve") is True else "Denied: not approved."
    except HookError as error:
        return f"Denied: {error}."
    except Exception as error:  # noqa: BLE001  # the tool's own question: one that broke must not count as a no
        return f"Denied: whether it needs approval raised {described(error)}"


def start(run: Run, slot: Slot) -> None:
    """Let the call run in a task of its own, under its timeout."""
    tool = cast(Tool, slot.tool)
    _announce(run, slot)
    loop = asyncio.get_running_loop()
    slot.task = loop.create_task(_execute(run, slot, tool))
    timeout = run.config.tool_timeout if tool.timeout is None else tool.timeout
    if timeout is not None:
        slot.timer = loop.call_later(timeout, _expire, run, slot, f"Tool {tool.name!r} timed out after {timeout:g}s.")


def _announce(run: Run, slot: Slot) -> None:
    slot.started = True
    slot.began = time.monotonic()
    run.emit(ToolExecutionStart, tool_call_id=slot.call.id, tool_name=slot.call.name, args=slot.args)


def _expire(run: Run, slot: Slot, text: str) -> None:
    slot.stop(text)
    if slot.result is None:
        slot.timer = asyncio.get_running_loop().call_later(run.config.cancel_grace, abandon, run, slot, text)


def abandon(run: Run, slot: Slot, text: str) -> None:
    """Go on without a call that will not stop; it is counted, reported, and asked once more."""
    if slot.result is not None or slot.task is None:
        return
    _leave(run, slot, text)
    run.abandoned.add(slot.task)
    slot.task.add_done_callback(run.abandoned.discard)
    slot.task.cancel()


def _leave(run: Run, slot: Slot, text: str) -> None:
    settle(run, slot, text, status="interrupted", details={"abandoned": True})
    run.emit(CustomEvent, name="tool_abandoned", data={"tool_call_id": slot.call.id, "tool_name": slot.call.name})


async def _execute(run: Run, slot: Slot, tool: Tool) -> None:
    try:
        output = await _given(run, slot, tool)
        if run.config.seams.after_tool_execution:
            output = await _revised(run, slot, output)
        if not _small(run, output):
            output = await _capped(run, output)
        if output.details or output.effects != ():
            output = _sound(output)
    except asyncio.CancelledError:
        settle(run, slot, slot.stopping or ABORTED, status="interrupted")
        return
    except HookError as error:
        settle(run, slot, f"{error}. The output is withheld.", status="denied")
        return
    except Exception as error:  # noqa: BLE001  # an output the loop can do nothing with is the tool's failure
        output = _failure(error)
    if slot.stopping is None:
        settle_output(run, slot, output)
        return
    if slot.result is not None or not output.is_error:
        late(run, slot, output)
    settle(run, slot, slot.stopping, status="interrupted")


async def _given(run: Run, slot: Slot, tool: Tool) -> ToolOutput:
    """What the tool gives; what it raises is an output too, unless it was cancelled by us."""
    try:
        context = _tool_context(run, slot) if tool.takes_context else _NO_CONTEXT
        return await tool.call(thaw(slot.args), context)
    except asyncio.CancelledError:
        if slot.stopping is None:
            return ToolOutput("CancelledError: the tool was cancelled, and not by the run.", is_error=True)
        if tool.threaded and slot.result is None:
            # A thread cannot be made to stop: it was left to itself.
            _leave(run, slot, slot.stopping)
        raise
    except ToolError as error:
        return ToolOutput(str(error) or "ToolError", is_error=True)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # a tool that raises, even SystemExit, is an error result and no more
        return _failure(error)


def _failure(error: BaseException) -> ToolOutput:
    return ToolOutput(described(error), is_error=True)


async def _revised(run: Run, slot: Slot, output: ToolOutput) -> ToolOutput:
    asked = msgspec.structs.replace(slot.call, arguments=slot.args)
    return await revise(run.config.seams.after_tool_execution, asked, output)


def _sound(output: ToolOutput) -> ToolOutput:
    """The output with its details as JSON values; `TypeError` where the loop could do nothing with it."""
    details = cast(object, output.details or {})
    if not isinstance(details, dict):
        raise TypeError(f"ToolOutput.details is a dict, got {details!r}.")
    if not all(isinstance(effect, Prun) for effect in output.effects):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
        raise TypeError(f"ToolOutput.effects are effects such as Prun(tokens), got {output.effects!r}.")
    return replace(output, details=msgspec.to_builtins(details, enc_hook=repr)) if details else output


def _tool_context(run: Run, slot: Slot) -> ToolContext:
    loop, home = asyncio.get_running_loop(), threading.get_ident()

    def show(value: Any) -> None:
        # Progress is for whoever watches now: a reader that has fallen behind is spared it.
        if slot.result is None and not run.channel.full:
            run.emit(ToolExecutionUpdate, tool_call_id=slot.call.id, tool_name=slot.call.name, update=value)

    def update(value: Any) -> None:
        # A snapshot at once: the tool may go on changing what it showed.
        value = msgspec.to_builtins(value, enc_hook=repr)
        if threading.get_ident() == home:
            show(value)
        else:
            loop.call_soon_threadsafe(show, value)

    slot.token = CancelToken()
    return ToolContext(
        slot.call.id,
        slot.call.name,
        slot.token,
        idempotency_key=f"{run.context.session_id}:{slot.call.id}",
        on_update=update,
        on_late=lambda outcome: late(run, slot, outcome),
        scope=run,
    )


def _size(output: ToolOutput) -> int:
    content = output.content
    return len(content) if isinstance(content, str) else sum([len(getattr(block, "text", "")) for block in content])


def _small(run: Run, output: ToolOutput) -> bool:
    """Whether an output is within its limits whatever its characters are."""
    config = run.config.context_config or _LIMITS
    size = _size(output)
    return size * 4 <= config.max_tool_output_bytes and size < config.max_tool_output_lines


async def _capped(run: Run, output: ToolOutput) -> ToolOutput:
    """The output within its limits, so that no tool can flood the context."""
    config = run.config.context_config or _LIMITS
    work = partial(
        cap,
        output,
        max_bytes=config.max_tool_output_bytes,
        max_lines=config.max_tool_output_lines,
        directory=config.output_directory,
    )
    return await in_thread(work) if _size(output) > _LARGE else work()


def late(run: Run, slot: Slot, outcome: ToolOutput | BaseException) -> None:
    """What a call gave after it was settled: an event, never a second message."""
    text = repr(outcome) if isinstance(outcome, BaseException) else _text(outcome)
    data = {"tool_call_id": slot.call.id, "tool_name": slot.call.name, "output": text[:1000]}
    run.emit(CustomEvent, name="late_tool_result", data=data)


def settle_output(run: Run, slot: Slot, output: ToolOutput) -> None:
    """Settle a call with what the tool gave."""
    slot.effects = tuple(output.effects)
    slot.terminate = output.terminate
    settle(run, slot, output, status="completed", is_error=output.is_error, details=output.details)


def settle(
    run: Run,
    slot: Slot,
    output: ToolOutput | str,
    *,
    status: ToolStatus,
    is_error: bool = True,
    details: dict[str, Any] | None = None,
) -> None:
    """Give a call its one result; the first one stays."""
    if slot.result is not None:
        return
    if slot.timer is not None:
        slot.timer.cancel()
    if not slot.started:
        _announce(run, slot)
    content = output if isinstance(output, str) else output.content
    slot.result = result = ToolResultMessage(
        FrozenList((TextContent(content),)) if isinstance(content, str) else content,
        time.time(),
        status in ("not_started", "interrupted"),
        tool_call_id=slot.call.id,
        tool_name=slot.call.name,
        is_error=is_error,
        details={**details, "status": status} if details else _STATUS[status],
    )
    run.emit(
        ToolExecutionEnd,
        tool_call_id=slot.call.id,
        tool_name=slot.call.name,
        result=result,
        is_error=is_error,
        duration=time.monotonic() - slot.began,
    )
    run.wake()


def _text(output: ToolOutput) -> str:
    if isinstance(output.content, str):
        return output.content
    return "".join(block.text for block in output.content if type(block) is TextContent)
