"""The execution of a tool call, from its slot to its one result: a task of its own, a timeout, truncated output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any, cast, get_args

import msgspec

from steersman.context.compaction.config import ContextConfig
from steersman.context.repair import UNKNOWN
from steersman.loop.custom_events import emit_custom
from steersman.loop.run import Run
from steersman.policy.answers import revise
from steersman.policy.hooks import HookError
from steersman.tools.output import ToolContext, normalize_output, truncate_output
from steersman.tools.threads import call_in_thread, is_running_in
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.content import Content, TextContent, ToolCall, join_text_blocks
from steersman.types.errors import OutcomeUnknown, ToolError, describe_exception
from steersman.types.events import AgentEvent, CustomEvent, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate
from steersman.types.frozen import FrozenDict, FrozenList, freeze, thaw
from steersman.types.guards import is_instance
from steersman.types.messages import ToolResultMessage, ToolStatus
from steersman.types.tools import Effect, Prun, ToolOutput

ABORTED = "tool call cancelled: operation aborted"
_NO_KEYS: frozenset[str] = frozenset()
# What the results of calls have in common, by how the call ended.
_RESULTS: dict[ToolStatus, ToolResultMessage] = {
    status: ToolResultMessage(synthetic=status in ("not_started", "interrupted"), details={"status": status})
    for status in get_args(ToolStatus)
}


class Slot(msgspec.Struct, eq=False):
    """A tool call on its way to its result; `args` are the arguments that the tool really gets."""

    call: ToolCall
    index: int
    args: dict[str, Any]
    result: ToolResultMessage | None = None
    tool: Tool | None = None
    # A copy of the arguments for the tool alone, which may change them.
    given: dict[str, Any] | None = None
    # What else may run beside it: nothing, or no call with one of these keys.
    is_alone: bool = False
    keys: frozenset[str] = _NO_KEYS
    # Hooks have said yes; the agent of a run has; it may run.
    passed: bool = False
    approver: Run | None = None
    admitted: bool = False
    # A gate's answer, which takes the place of the tool's.
    answer: ToolOutput | None = None
    intended: bool = False
    started: bool = False
    began: float = 0.0
    # What subscribers have set for this call alone when it started, such as the current span.
    context: Context | None = None
    token: CancelToken | None = None
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    stopping: str | None = None
    effects: tuple[Effect, ...] = ()
    terminate: bool = False
    # Its gates are asked in this task; once it only waits for an answer, those of other calls can be asked.
    gate: asyncio.Task[None] | None = None
    waits: bool = False

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended."""
        return self.started and self.result is None

    @property
    def uninterruptible(self) -> bool:
        """Whether steering lets it finish."""
        return self.tool is not None and self.tool.uninterruptible

    def stop(self, text: str) -> None:
        """Cancel a running call; its result will have this text."""
        if self.result is None and self.task is not None:
            self.stopping = self.stopping or text
            if self.token is not None:
                self.token.cancel(text)
            self.task.cancel()


def emit_start(run: Run, slot: Slot) -> None:
    """Emit `tool_execution_start`, with the effective arguments."""
    _start(slot, asyncio.get_running_loop().time())
    if run.is_wanted(ToolExecutionStart):
        call = slot.call
        run.show(ToolExecutionStart(run.loop_id, run.seq, run.clock(), call.id, call.name, slot.args))
        if run.dispatcher.callbacks:
            slot.context = copy_context()


def emit_starts(run: Run, slots: Sequence[Slot]) -> None:
    """Emit the starts of several calls to just a reader: all at once, with one look at each clock."""
    loop_id, now, seq, began = run.loop_id, run.clock(), run.seq, asyncio.get_running_loop().time()
    events: list[AgentEvent] = []
    for slot in slots:
        _start(slot, began)
        call = slot.call
        events.append(ToolExecutionStart(loop_id, seq, now, call.id, call.name, slot.args))
        seq += 1
    run.seq = seq
    run.channel.push_all(events)


def _start(slot: Slot, now: float) -> None:
    slot.started = True
    slot.began = now
    if type(slot.args) is not FrozenDict:
        slot.args = freeze(slot.args)


def report_late_output(run: Run, slot: Slot, outcome: ToolOutput | BaseException) -> None:
    """Emit the output of a call that was already settled, as an event; never as a second message."""
    text = repr(outcome) if isinstance(outcome, BaseException) else _describe(outcome)
    data = {"tool_call_id": slot.call.id, "tool_name": slot.call.name, "output": text[:1000]}
    run.emit(CustomEvent, name="late_tool_result", data=data)


def settle_output(run: Run, slot: Slot, output: ToolOutput) -> None:
    """Settle a call with the output of its tool; the output of a call that was stopped comes too late."""
    if slot.stopping is not None:
        if slot.result is not None or not output.is_error:
            report_late_output(run, slot, output)
        return settle(run, slot, slot.stopping, status="interrupted")
    slot.effects = tuple(output.effects)
    slot.terminate = output.terminate
    return settle(run, slot, output.content, status="completed", is_error=output.is_error, details=output.details)


def settle(
    run: Run,
    slot: Slot,
    content: str | Sequence[Content],
    *,
    status: ToolStatus,
    is_error: bool = True,
    details: dict[str, Any] | None = None,
) -> None:
    """Give a call its one result; the first one stays."""
    if slot.result is not None:
        return
    if run.outside:
        run.flush_outside()  # what a thread of the tool reported before comes before the result
    if slot.timer is not None:
        slot.timer.cancel()
    if run.host.questions.open:
        run.host.questions.close_call(run, slot.call.id)
    if not slot.started:
        emit_start(run, slot)
    call, now = slot.call, run.clock()
    result = msgspec.structs.replace(
        _RESULTS[status],
        content=FrozenList((TextContent(content),)) if isinstance(content, str) else content,
        timestamp=now,
        tool_call_id=call.id,
        tool_name=call.name,
        is_error=is_error,
    )
    if details:
        result = msgspec.structs.replace(result, details={**details, "status": status})
    slot.result = result
    if run.is_wanted(ToolExecutionEnd):
        seconds = asyncio.get_running_loop().time() - slot.began
        event = ToolExecutionEnd(
            run.loop_id,
            run.seq,
            now,
            call.id,
            call.name,
            slot.args,
            result=result,
            is_error=is_error,
            duration=seconds,
        )
        run.show(event)
    if run.on_wake is not None:
        run.on_wake()


def _describe(output: ToolOutput) -> str:
    return output.content if isinstance(output.content, str) else join_text_blocks(output.content)


_LIMITS = ContextConfig()
_NO_CONTEXT = ToolContext("", "", CancelToken())
if sys.version_info >= (3, 12):
    _make_task = partial(asyncio.Task[None], eager_start=True)
else:
    _make_task = asyncio.Task[None]
# Beyond this many characters the capping of an output is work for a thread.
_LARGE = 1_000_000


def begin_calls(run: Run, slots: Sequence[Slot]) -> None:
    """Run calls that have started, each in a task of its own, with its timeout.

    From Python 3.12 on, each takes its first step at once.
    """
    loop, usual_timeout = asyncio.get_running_loop(), run.config.tool_timeout
    is_usual = isinstance(loop, asyncio.BaseEventLoop) and loop.get_task_factory() is None
    for slot in slots:
        tool = slot.tool
        assert tool is not None
        work = _execute(run, slot, tool)
        if is_usual:
            slot.task = _make_task(work, loop=loop, name=tool.name, context=slot.context)
        else:  # the loop makes its tasks in its own way
            slot.task = loop.create_task(work, name=tool.name, context=slot.context)
        timeout = usual_timeout if tool.timeout is None else tool.timeout
        if timeout is not None and slot.result is None:
            text = f"Tool {tool.name!r} timed out after {timeout:g}s."
            slot.timer = loop.call_later(timeout, _expire, run, slot, text)


def _expire(run: Run, slot: Slot, text: str) -> None:
    slot.stop(text)
    if slot.result is None:
        slot.timer = asyncio.get_running_loop().call_later(run.config.cancel_grace, abandon, run, slot, text)


def abandon(run: Run, slot: Slot, text: str) -> None:
    """Go on without a call that does not stop; it is counted, reported and cancelled once more."""
    if slot.result is not None or slot.task is None:
        return
    _settle_abandoned(run, slot, text)
    run.abandoned.add(slot.task)
    slot.task.add_done_callback(run.abandoned.discard)
    slot.task.cancel()


def _settle_abandoned(run: Run, slot: Slot, text: str) -> None:
    settle(run, slot, text, status="interrupted", details={"abandoned": True})
    run.emit(CustomEvent, name="tool_abandoned", data={"tool_call_id": slot.call.id, "tool_name": slot.call.name})


async def _execute(run: Run, slot: Slot, tool: Tool) -> None:
    """Run the tool, and settle the call with its output."""
    try:
        try:
            output = await _call_tool(run, slot, tool) if slot.answer is None else normalize_output(slot.answer)
        except BaseException as error:  # noqa: BLE001  # a tool that raises, even SystemExit, is an error result and no more
            output = _explain_failure(run, slot, tool, error)
        if run.guards.after_tool_execution:
            output = await _revise_output(run, slot, output)
        if not _is_small(run, output):
            output = await _truncate(run, output)
        if output.details or output.effects != ():
            output = _check_output(output)
    except asyncio.CancelledError:
        settle(run, slot, slot.stopping or ABORTED, status="interrupted")
        return
    except OutcomeUnknown:
        settle(run, slot, UNKNOWN, status="interrupted")
        return
    except HookError as error:
        settle(run, slot, f"{error}. The output is withheld.", status="denied")
        return
    except Exception as error:  # noqa: BLE001  # an output the loop can do nothing with is the tool's failure
        output = _build_failure(error)
    settle_output(run, slot, output)


def _call_tool(run: Run, slot: Slot, tool: Tool) -> Awaitable[ToolOutput]:
    """Call the tool with arguments that it may change."""
    context = _build_tool_context(run, slot) if tool.takes_context else _NO_CONTEXT
    if run.guards.has_policy:
        from steersman.loop.tool_calls.held_rules import hold_rules_of  # only a run with a policy pays for it

        hold_rules_of(run, tool)
    given = slot.given
    return tool.call(thaw(slot.args) if given is None else given, context)


def _explain_failure(run: Run, slot: Slot, tool: Tool, error: BaseException) -> ToolOutput:
    """The output of a tool that raised; raises again what does not come from the tool, such as a cancel by the run."""
    if isinstance(error, asyncio.CancelledError):
        if slot.stopping is None:
            return ToolOutput("CancelledError: the tool was cancelled, and not by the run.", is_error=True)
        if tool.threaded and slot.result is None:
            # A thread cannot be stopped: it is abandoned.
            _settle_abandoned(run, slot, slot.stopping)
        raise error
    if isinstance(error, OutcomeUnknown | KeyboardInterrupt):
        raise error
    if isinstance(error, ToolError):
        return ToolOutput(str(error) or "ToolError", is_error=True)
    return _build_failure(error)


def _build_failure(error: BaseException) -> ToolOutput:
    return ToolOutput(describe_exception(error), is_error=True)


async def _revise_output(run: Run, slot: Slot, output: ToolOutput) -> ToolOutput:
    asked = msgspec.structs.replace(slot.call, arguments=slot.args)
    output, decision = await revise(run.guards.after_tool_execution, asked, output)
    run.apply(decision, "after_tool_execution")
    return output


def _check_output(output: ToolOutput) -> ToolOutput:
    """Check the effects and turn the details into JSON values; raises `TypeError` for wrong types."""
    details = cast(object, output.details or {})
    if not isinstance(details, dict):
        raise TypeError(f"ToolOutput.details is a dict, got {details!r}.")
    if not all(is_instance(effect, Prun) for effect in output.effects):
        raise TypeError(f"ToolOutput.effects are effects such as Prun(tokens), got {output.effects!r}.")
    if not details:
        return output
    return msgspec.structs.replace(output, details=msgspec.json.decode(msgspec.json.encode(details, enc_hook=repr)))


def _build_tool_context(run: Run, slot: Slot) -> ToolContext:
    home = asyncio.get_running_loop()

    def show(value: Any) -> None:
        # Updates are dropped while the reader is behind.
        if slot.result is None and not run.channel.is_full:
            call = slot.call
            run.emit(ToolExecutionUpdate, tool_call_id=call.id, tool_name=call.name, args=slot.args, update=value)

    def update(value: Any) -> None:
        # A snapshot at once: the tool may go on changing what it showed.
        value = msgspec.to_builtins(value, enc_hook=repr)
        if is_running_in(home):
            show(value)
        else:
            run.post(partial(show, value))

    slot.token = CancelToken()
    return ToolContext(
        slot.call.id,
        slot.call.name,
        slot.token,
        idempotency_key=build_idempotency_key(run, slot),
        deps=run.deps,
        on_update=update,
        on_emit=partial(emit_custom, run),
        on_late=lambda outcome: report_late_output(run, slot, outcome),
        scope=run,
        state=run.context.log.state,
        artifacts=run.context.log.artifacts,
    )


def build_idempotency_key(run: Run, slot: Slot) -> str:
    """The same key each time this call runs, and for no other call: call ids may recur on another branch."""
    answer = "" if run.turn is None else run.turn.entry_id
    return f"{run.context.session_id}:{answer}:{slot.call.id}"


def _count_characters(content: str | Sequence[Content]) -> int:
    return len(content) if isinstance(content, str) else sum([len(getattr(block, "text", "")) for block in content])


def _is_small(run: Run, output: ToolOutput) -> bool:
    """Whether an output is within its limits even if each character has four bytes."""
    config, content = run.config.context_config or _LIMITS, output.content
    size = len(content) if isinstance(content, str) else _count_characters(content)
    return size * 4 <= config.max_tool_output_bytes and size < config.max_tool_output_lines


async def _truncate(run: Run, output: ToolOutput) -> ToolOutput:
    """Truncate the output to the limits of bytes and lines."""
    config = run.config.context_config or _LIMITS
    work = partial(
        truncate_output,
        output,
        max_bytes=config.max_tool_output_bytes,
        max_lines=config.max_tool_output_lines,
        directory=config.output_directory,
    )
    return await call_in_thread(work) if _count_characters(output.content) > _LARGE else work()
