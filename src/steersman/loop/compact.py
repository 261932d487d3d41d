"""Making the context shorter: when it is over its threshold, when a run asks for it, or after an overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from steersman.context.compaction.compact import (
    CompactionConfig,
    CompactionStrategy,
    ContextConfig,
    DefaultCompaction,
    halve_limit,
    subtract_overhead,
)
from steersman.context.compaction.levels import ImageCompaction, count_image_bytes
from steersman.context.tokens import BYTES_PER_TOKEN, estimate_total_tokens
from steersman.loop.config import resolve, takes
from steersman.loop.request import make_options
from steersman.loop.run import Run
from steersman.policy.hooks import HookError, call, decide
from steersman.policy.verdicts import Skip, Stop
from steersman.provider.streaming.normalize import events_of, info_of
from steersman.types.content import TextContent, ToolCall
from steersman.types.continuation import Compaction
from steersman.types.errors import ContextOverflowError, ErrorInfo, ProviderError, describe_exception, to_exception
from steersman.types.events import CompactionEnded, CompactionStarted
from steersman.types.messages import AgentMessage, AssistantMessage, Message, user_message
from steersman.types.model import Request
from steersman.types.stream import Done, Failed, FallbackNotice, RetryNotice

_SHORTEN = "shorten the conversation."
_FEWER_IMAGES = "send fewer or smaller images, or shorten the conversation."

STUCK = " Compaction could free nothing more: " + _SHORTEN
STUCK_HEAVY = " Compaction could free nothing more: " + _FEWER_IMAGES
STILL_HEAVY = " It is still too large after compaction: " + _FEWER_IMAGES
STILL_FULL = " There is no room for an answer, also after compaction: " + _SHORTEN
"""What is added to the words of a provider."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """Why an answer is asked for again: `heavy` where it is bytes that were too many, `empty` where it says nothing.

    `sent` is what the bill says was sent, and `window` that of the model that answered, where these are known.
    """

    heavy: bool = False
    empty: bool = False
    sent: int = 0
    window: int | None = None

    def leaves(self, message: AssistantMessage) -> bool:
        """Whether there is an answer, if perhaps to less than all of the request."""
        return not (message.failed or self.empty)

    def hopeless(self, message: AssistantMessage, *, freed: bool) -> AssistantMessage:
        """The answer as the failure it is, with what can be done about it."""
        words = message.error_message or "The request is longer than the model's context window."
        if not freed:
            words += STUCK_HEAVY if self.heavy else STUCK
        elif self.heavy:
            words += STILL_HEAVY
        elif self.empty:
            words += STILL_FULL
        return msgspec.structs.replace(message, stop_reason="error", error_message=words, error_kind="context_overflow")


def overflow_of(message: AssistantMessage, error: ErrorInfo | None, window: int | None) -> Overflow | None:
    """Whether the provider said that the request was too long, or silently cut it, or had no room left to answer."""
    if message.error_kind == "context_overflow":
        from steersman.provider.wires.overflow import is_too_large  # only a failure pays for it

        status = None if error is None else error.status
        return Overflow(heavy=is_too_large(message.error_message or "", status=status), window=window)
    if window is None or message.failed:
        return None
    usage = message.usage
    sent = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    # Some gateways fill the window with what fits of the request, and call the answer cut.
    full = message.stop_reason == "length" and sent * 100 >= window * 99
    if not full and sent <= window:
        return None
    empty = not message.tool_calls and not message.text.strip()
    return Overflow(empty=empty, sent=sent, window=window) if empty or sent > window else None


_PROMPT = (
    "You write summaries of conversations between a user, an assistant and its tools. Keep what the assistant needs to "
    "go on: what was asked, what was found out and decided, names, numbers and paths, and what is still to be done. "
    "Answer with the summary alone."
)


async def summarise(run: Run, messages: Sequence[Message]) -> str:
    """What matters of these messages, in the model's words; raises when it gave none.

    A model that failed is the `ProviderError` that it was, so that a strategy can tell a wrong key from a full window.
    """
    request = Request(_PROMPT, [user_message("\n\n".join(map(_told, messages)))])
    final = await _asked(run, request)
    message = final.message
    run.add_usage(message.usage)
    if isinstance(final, Failed):
        info = info_of(final)
        info = msgspec.structs.replace(info, provider=info.provider or run.config.model.provider)
        raise to_exception(run.redacted_info(info))
    if message.failed or message.stop_reason != "stop":
        raise ValueError(message.error_message or f"the summary ended with {message.stop_reason!r}")
    return message.text


async def _asked(run: Run, request: Request) -> Done | Failed:
    options = make_options(run, "none", output_schema=None)
    async with aclosing(events_of(run.stream_fn, run.config.model, request, options)) as events:
        async for event in events:
            if isinstance(event, Done | Failed):
                return event
            if isinstance(event, RetryNotice | FallbackNotice) and event.usage is not None:
                run.add_usage(event.usage)
    raise ValueError("the model gave no summary")  # cannot be: the normal form has a terminal event


def _told(message: Message) -> str:
    """A message as a line of a report: what is quoted cannot be mistaken for a conversation to go on with."""
    parts: list[str] = []
    for block in message.content:
        if type(block) is TextContent:
            parts.append(block.text)
        elif type(block) is ToolCall:
            parts.append(f"(calls {block.name} with {msgspec.json.encode(block.arguments).decode()})")
    return f"[{message.role}] {' '.join(parts)}"


_STANDARD = DefaultCompaction()
_IMAGES = ImageCompaction()
# A pass that freed nothing is tried again only when the context has grown by this much.
_GROWTH = 1.1


def may_compact(run: Run) -> bool:
    """Whether the run has a threshold, or was started to compact."""
    return run.config.context_config is not None or _is_forced(run)


def _is_forced(run: Run) -> bool:
    return run.turn_index == 0 and type(run.context.continuation_kind) is Compaction


async def compact_if_needed(run: Run) -> None:
    """Compact when the estimate is over the threshold, or the run was started to compact."""
    config = run.config.context_config or ContextConfig()
    forced = _is_forced(run)
    log = run.context.log
    if not forced and (log.tokens <= config.limit or log.tokens < run.compaction_stuck * _GROWTH):
        return
    if not await _allowed(run):
        return
    _, error = await compact(run, halve_limit(config, log.tokens) if forced and log.tokens <= config.limit else config)
    if log.tokens > config.max_context_tokens:
        if isinstance(error, ProviderError):
            raise error  # a wrong key is not cured by a shorter context
        raise ContextOverflowError(
            f"The context has about {log.tokens} tokens, more than max_context_tokens={config.max_context_tokens}, and "
            "compaction can free no more: shorten what the user said or raise the limit."
        )


def is_hopeless(run: Run, found: Overflow) -> bool:
    """Whether the hardest pass was made already for a request that was no shorter, and freed too little."""
    return found.sent < run.overbilled * _GROWTH


async def make_room(run: Run, found: Overflow) -> bool:
    """Compact harder after the provider found the request too long for its window; whether anything was freed.

    Where it had too many bytes and those are images, it is old ones that go, and nothing else.
    """
    if not await _allowed(run):
        return False
    config = run.config.context_config or ContextConfig()
    log = run.context.log
    if found.heavy and _images_weigh(log.visible, config):
        await compact(run, replace(config, compaction=CompactionConfig(_IMAGES)))
        return True
    freed, _ = await compact(run, halve_limit(config, min(log.tokens, found.window or config.max_context_tokens)))
    return freed


def _images_weigh(messages: Sequence[AgentMessage], config: ContextConfig) -> bool:
    """Whether most of the bytes are images, and some of them can go."""
    weight = count_image_bytes(messages)
    if weight <= BYTES_PER_TOKEN * estimate_total_tokens(messages, config.estimator):
        return False
    return count_image_bytes(_IMAGES.compact(messages, config)) < weight


async def compact(run: Run, config: ContextConfig) -> tuple[bool, Exception | None]:
    """One compaction with its events; whether it freed anything, and what the strategy raised.

    A strategy that fails leaves the context as it was.
    """
    log = run.context.log
    messages_before, tokens_before = len(log.visible), estimate_total_tokens(log.visible, config.estimator)
    run.emit(CompactionStarted, estimated_tokens=log.tokens, message_count=messages_before)
    error: Exception | None = None
    told: str | None = "cancelled"
    try:
        error = await _attempt(run, subtract_overhead(config, log.visible, log.tokens))
        told = None if error is None else describe_exception(error)
    finally:
        messages_after, tokens_after = len(log.visible), estimate_total_tokens(log.visible, config.estimator)
        reduced = tokens_after < tokens_before
        run.compaction_stuck = -1 if reduced else log.tokens
        run.overbilled = -1 if reduced else run.overbilled
        run.emit(
            CompactionEnded,
            messages_before=messages_before,
            messages_after=messages_after,
            tokens_before=tokens_before,
            tokens_after=tokens_after,
            reduced=reduced,
            error=told,
        )
    after = run.config.seams.after_compaction_end
    if after:
        arguments = (messages_before, messages_after, tokens_before, tokens_after)
        run.heed(await decide(after, arguments, seam="after_compaction_end"), "after_compaction_end")
    return reduced, error


async def _attempt(run: Run, config: ContextConfig) -> Exception | None:
    """Let the strategy replace what the model sees; what it raised comes back."""
    log = run.context.log
    strategy = config.compaction.in_memory_strategy or _STANDARD
    visible: Sequence[AgentMessage] = log.visible
    try:
        replacement: Sequence[AgentMessage] = await resolve(_started(run, strategy, visible, config))
        if len(replacement) != len(visible) or any(a is not b for a, b in zip(replacement, visible, strict=True)):
            log.compact(replacement)
    except Exception as error:  # noqa: BLE001  # a caller's strategy that broke is reported, and the context stays
        return error
    return None


def _started(run: Run, strategy: CompactionStrategy, visible: Sequence[AgentMessage], config: ContextConfig) -> Any:
    """What a strategy gives; one that takes a third argument may ask the run's own model."""
    work: Callable[..., Any] = strategy.compact
    return work(visible, config, partial(summarise, run)) if takes(work, 3) else work(visible, config)


async def _allowed(run: Run) -> bool:
    """Whether every `before_compaction_start` hook lets it happen; a `Stop` ends the run as well."""
    arguments = (run.context.log.tokens, len(run.context.log.visible))
    for hook in run.config.seams.before_compaction_start:
        said = await call(hook, arguments, seam="before_compaction_start")
        if isinstance(said, Stop):
            run.finish("stopped", said.reason or "before_compaction_start said no")
        if said is False or isinstance(said, Stop | Skip):
            return False
        if said is not None and said is not True:
            raise HookError(f"before_compaction_start gave {said!r}; return None, True, False, Skip or Stop")
    return True
