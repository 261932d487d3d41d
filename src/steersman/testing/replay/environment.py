"""The environment of a replayed run: the loop is real; model, tools, hooks and clock give what was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import dropwhile, islice
from typing import Any, cast

import msgspec

from steersman.context.compaction.config import ContextConfig
from steersman.context.entries import CompactionEntry, PrunEntry
from steersman.context.repair import Recovery, find_open_calls
from steersman.loop.compact import REFUSED, STILL_TOO_MANY_BYTES, STUCK, STUCK_BYTES
from steersman.loop.tool_calls.execution import Slot
from steersman.policy.verdicts import Inject, Stop
from steersman.provider.wires.overflow import find_token_budget
from steersman.testing.replay.cursor import RecordCursor
from steersman.testing.replay.recorded import (
    Item,
    RecordedCall,
    RecordedEntry,
    RecordedEvent,
    get_limit,
    get_message,
    order_call_events,
)
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo
from steersman.types.events import (
    ApprovalRequested,
    ApprovalResolved,
    InputRejected,
    LoopDetected,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import (
    Done,
    Failed,
    FallbackNotice,
    RetryNotice,
    StreamEvent,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from steersman.types.tools import Prun

_TOO_LARGE = 413
_NO_LIMIT = 2**62


def make_notice(item: Item) -> RetryNotice | FallbackNotice | None:
    """The notice of a retry or a fallback, if the item is one."""
    if not isinstance(item, RecordedEvent) or item.type not in ("retry_scheduled", "model_fallback"):
        return None
    fields = item.fields
    error = msgspec.convert(fields["error"], ErrorInfo)
    if item.type == "retry_scheduled":
        return RetryNotice(fields["attempt"], fields["delay"], error)
    return FallbackNotice(fields["from_model"], fields["to_model"], error)


def make_refusal(notice: RetryNotice | FallbackNotice) -> Failed | None:
    """The failure behind a notice, if the loop itself asked again for a shorter answer."""
    error = notice.error
    if type(notice) is not RetryNotice or error.kind != "context_overflow" or find_token_budget(error.message) is None:
        return None
    return Failed(AssistantMessage(stop_reason="error", error_message=error.message, error_kind=error.kind), error)


def make_overflow(answer: AssistantMessage | None) -> Failed:
    """The failure that made the loop compact; it is recorded only if the run ended with it."""
    if answer is not None and is_stuck(answer):
        return make_failure(answer)
    words = "The context is too long."
    return Failed(AssistantMessage(stop_reason="error", error_message=words, error_kind="context_overflow"))


def is_stuck(answer: AssistantMessage | None) -> bool:
    """Whether the loop gave up on this answer because nothing more could be freed."""
    return answer is not None and (answer.error_message or "").endswith((STUCK, STUCK_BYTES))


def is_refused(answer: AssistantMessage) -> bool:
    """Whether the loop gave up on this answer because a hook refused to compact."""
    return (answer.error_message or "").endswith(REFUSED)


def make_failure(message: AssistantMessage) -> Failed:
    """The failed answer as the provider reported it, without the text that the loop added."""
    words = message.error_message or ""
    added = next((text for text in (STUCK, STUCK_BYTES, REFUSED, STILL_TOO_MANY_BYTES) if words.endswith(text)), None)
    if message.error_kind != "context_overflow" or added is None:
        return Failed(message)
    own = words.removesuffix(added)
    error = ErrorInfo("context_overflow", own, status=None if added in (STUCK, REFUSED) else _TOO_LARGE)
    return Failed(msgspec.structs.replace(message, error_message=own), error)


def make_deltas(message: AssistantMessage) -> Iterator[StreamEvent]:
    """The deltas of an answer, one for each block."""
    for index, block in enumerate(message.content):
        match block:
            case TextContent():
                yield from (TextStart(index), TextDelta(block.text, index), TextEnd(index))
            case ThinkingContent():
                yield from (ThinkingStart(index), ThinkingDelta(block.thinking, index), ThinkingEnd(index))
            case ToolCall():
                written = block.raw_arguments or msgspec.json.encode(block.arguments).decode()
                yield ToolCallStart(index, block.id, block.name)
                yield from (ToolCallDelta(written, index), ToolCallEnd(index, block))
            case _:
                continue


class ReplayEnvironment(RecordCursor):
    """Replaces everything in a run except the loop: the model, the tools, the user, the hooks and the clock."""

    # The user

    async def get_steering(self) -> Sequence[AgentMessage]:
        """The messages that were delivered before the next turn."""
        while (item := self._next) is not None and item.type == "input_rejected":
            fields = cast(RecordedEvent, item).fields
            self.run.emit(InputRejected, reason=fields["reason"], source=fields["source"])
        heard = self._collect_input()
        if self._is_cut:
            await self._stop()
        if not heard and self._is_over_between_turns():
            self._finish()
        return heard

    def _is_over_between_turns(self) -> bool:
        """Whether the run ended between turns although there was more to do."""
        end = self.part.end
        if get_limit(self._next) is not None:
            return self._at == len(self.part.items) - 1
        return end is not None and end["end_reason"] != "done" and self._next is None and self._is_last_turn

    # The clock

    def find_limit(self) -> str | None:
        """The limit at which the run stops in this turn."""
        return get_limit(self._next)

    # The hooks

    async def before_turn(self, messages: object, turn_index: object) -> Stop | None:
        """Stop the run if the model was not asked in this turn."""
        return await self._check_model_call()

    async def pre_turn(self, view: object) -> Inject | Stop | None:
        """Inject the messages that were recorded after a compaction."""
        heard = self._collect_input()
        if not heard:
            return await self._check_model_call()
        self._end_after(len(heard))
        return Inject(heard)

    async def _check_model_call(self) -> Stop | None:
        if self._next is not None:
            return None
        if self.part.end is not None and self.part.end["end_reason"] in ("done", "terminated"):
            self._report_mismatch(self.part.end, "the model is asked")
        if self._is_cut or self.mismatch is not None:
            await self._stop()
        self._finish()
        return Stop()

    def post_turn(self, view: object) -> None:
        """Emit the recorded `loop_detected`, if there is one."""
        item = self._next
        if isinstance(item, RecordedEvent) and item.type == "loop_detected":
            fields = {name: item.fields[name] for name in ("tool_names", "repetitions", "action")}
            self.run.emit(LoopDetected, **fields)

    def before_loop(self, messages: object, turn_index: object) -> Stop | None:
        """Veto the run if the recorded one was vetoed: then it has no start."""
        return Stop(str((self.part.end or {}).get("detail", ""))) if self.part.start is None else None

    # Compaction

    @property
    def limit(self) -> int:
        """-1 if a compaction comes next, so that the loop compacts; otherwise a number that is never reached."""
        if not self._is_compaction_next():
            return _NO_LIMIT
        answer = self._find_answer()
        if answer is None or answer.error_kind != "context_overflow" or is_refused(answer):
            return -1
        # The loop compacted after the overflow, whether that helped or not: so the model was asked before it.
        compactions = [item for item in self._iterate_ahead() if item.type == "compaction_started"]
        return -1 if len(compactions) > 1 else _NO_LIMIT

    def before_compaction(self, estimated_tokens: object, message_count: object) -> bool:
        """Whether the recorded run compacted here."""
        return self._is_compaction_next()

    def find_recorded_estimate(self, estimated_tokens: int) -> int:
        """How many tokens there were by the estimate of that time; how they are estimated may have changed since."""
        item = self._next
        if isinstance(item, RecordedEvent) and item.type == "compaction_started":
            return item.fields.get("estimated_tokens", estimated_tokens)
        return estimated_tokens

    def _is_compaction_next(self) -> bool:
        item = self._next
        return isinstance(item, RecordedEvent) and item.type == "compaction_started"

    async def compact(self, messages: Sequence[AgentMessage], config: ContextConfig, /) -> Sequence[AgentMessage]:
        """Return the messages that the recorded compaction left, or raise its error."""
        item = self._next
        if self._is_cut:
            await self._stop()
        if isinstance(item, RecordedEntry) and isinstance(item.entry, CompactionEntry):
            log = self.context.log
            ids = {log.visible_id(index): message for index, message in enumerate(log.visible)}
            return [ids[kept] if isinstance(kept, str) else kept for kept in item.entry.items]
        error: str | None = item.fields.get("error") if isinstance(item, RecordedEvent) else None
        if error == "cancelled":
            self._finish()
            self.run.token.cancel()
            raise asyncio.CancelledError
        if error is not None:
            name, _, text = error.partition(": ")
            raise type(name, (Exception,), {})(text)
        return messages

    # The model

    async def answer(self, model: Model, request: Request, options: StreamOptions, /) -> AsyncGenerator[Any, None]:
        """Play the recorded answer, after the retries and fallbacks before it."""
        yield (StreamStart(),)
        while (item := self._next) is not None and (notice := make_notice(item)) is not None:
            if (refusal := make_refusal(notice)) is not None:
                yield (refusal,)
                return
            yield (notice,)
        if self._is_cut:
            await self._stop()
        message = get_message(self._next)
        if self._is_compaction_next():
            final = self._find_answer()
            if is_stuck(final):
                self.requests.append(request)
                self._finish_early(failed=True)
            yield (make_overflow(final),)
        elif type(message) is AssistantMessage:
            self.requests.append(request)
            self._finish_early(failed=message.failed)
            yield (*make_deltas(message), make_failure(message) if message.failed else Done(message))
        else:
            self._report_mismatch(self._next, "the model is asked")
            await self._stop()

    def _finish_early(self, *, failed: bool) -> None:
        """End the run before the end of the turn if a cancel or the deadline cut it short."""
        end = self.part.end
        if end is None:
            early = failed and any(get_limit(item) is not None for item in self._iterate_after_answer())
        else:
            # A failed answer ends the run as an error, unless a hook stopped the run before, during the compaction.
            reasons = ("aborted", "limit", "stopped") if failed else ("aborted", "limit")
            early = end["end_reason"] in reasons and self._is_last_turn
        if early and all(
            item.type in ("prun", "loop_detected") or _is_closing(item) for item in self._iterate_after_answer()
        ):
            self._finish()

    def _iterate_after_answer(self) -> Iterator[Item]:
        return islice(
            dropwhile(lambda item: type(get_message(item)) is not AssistantMessage, self._iterate_ahead()), 1, None
        )

    # The tools

    @property
    def recovery(self) -> Recovery | None:
        """The recorded results of calls that an earlier program left open and this run settled."""
        left = find_open_calls(self.context.log.messages)
        given = _collect_results(self.part.items)
        if left is None or not any(call.id in given for call in left.calls):
            return None
        return Recovery({id: result for id, result in given.items() if id not in self.part.calls})

    async def answer_calls(self, slots: Sequence[Slot]) -> None:
        """Emit the recorded events of the calls, and set their results."""
        open_slots = {slot.call.id: slot for slot in slots if slot.result is None}
        known = [(slot.call, self.part.calls[id]) for id, slot in open_slots.items() if id in self.part.calls]
        ended = sorted(known, key=lambda pair: pair[1].seq)
        for moment in order_call_events(ended, self.part.find_questions(open_slots)):
            if isinstance(moment, RecordedEvent):
                self._emit_question(moment)
            else:
                begins, asked, call = moment
                self._emit_call(open_slots[asked.id], call, begins=begins)
        given = _collect_results(self._iterate_ahead())
        for slot in slots:
            slot.result = slot.result or given.get(slot.call.id)
        if any(slot.result is None for slot in slots):
            if self.part.end is not None:
                self._report_mismatch(self._next, f"the calls {[slot.call.id for slot in slots]} are answered")
            await self._stop()
        self._apply_effects(slots)
        if self.run.ending.reason is None and not any(
            type(get_message(item)) is AssistantMessage for item in self._iterate_ahead()
        ):
            self._settle_end()

    def _emit_call(self, slot: Slot, call: RecordedCall, *, begins: bool) -> None:
        arguments = slot.call.arguments if call.arguments is None else call.arguments
        about = {"tool_call_id": slot.call.id, "tool_name": slot.call.name, "args": arguments}
        slot.started = True
        if begins:
            self.run.emit(ToolExecutionStart, **about)
        elif call.result is not None:
            slot.result = call.result
            self.run.emit(ToolExecutionEnd, **about, result=call.result, is_error=call.result.is_error)

    def _emit_question(self, event: RecordedEvent) -> None:
        kind = ApprovalRequested if event.type == "approval_requested" else ApprovalResolved
        self.run.emit(kind, **{name: value for name, value in event.fields.items() if name not in ("type", "seq")})

    def _apply_effects(self, slots: Sequence[Slot]) -> None:
        """Set the effects of the calls, as far as they were applied."""
        effects: list[Prun] = []
        for item in self._iterate_ahead():
            if isinstance(item, RecordedEntry) and isinstance(item.entry, PrunEntry):
                effects.append(Prun(item.entry.tokens_removed, item.entry.memo))
            elif type(get_message(item)) is not ToolResultMessage:
                break
        slots[0].effects = tuple(effects)
        terminated = self._is_last_turn and (self.part.end or {}).get("end_reason") == "terminated"
        for slot in slots:
            slot.terminate = terminated

    def _settle_end(self) -> None:
        """End the run if a limit ended it in a turn that only settled old calls."""
        end = self.part.end
        if end is not None and end["end_reason"] == "limit" and self._is_last_turn:
            self._finish()


def _is_closing(item: Item) -> bool:
    return get_limit(item) is not None or type(get_message(item)) is ToolResultMessage


def _collect_results(items: Iterable[Item]) -> dict[str, ToolResultMessage]:
    """The tool results before the next answer, by the ids of their calls."""
    given: dict[str, ToolResultMessage] = {}
    for item in items:
        message = get_message(item)
        if type(message) is AssistantMessage:
            break
        if type(message) is ToolResultMessage:
            given.setdefault(message.tool_call_id, message)
    return given
