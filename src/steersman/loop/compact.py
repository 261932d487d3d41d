"""Compaction in a run: when the context is over its threshold, when a run asks for it, or after an overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from steersman.context.compaction.config import CompactionConfig, CompactionStrategy, ContextConfig
from steersman.context.compaction.steps import ImageCompaction, count_image_bytes
from steersman.context.compaction.strategies import DefaultCompaction, halve_limit, subtract_overhead
from steersman.context.tokens import BYTES_PER_TOKEN, estimate_total_tokens
from steersman.loop.config import can_take, resolve
from steersman.loop.request import count_tokens, make_options
from steersman.loop.run import Run
from steersman.loop.unreported import count_unreported
from steersman.policy.answers import call, decide
from steersman.policy.hooks import HookError
from steersman.policy.verdicts import Skip, Stop
from steersman.provider.streaming.failures import get_error_info
from steersman.provider.streaming.normalize import stream_events
from steersman.types.content import TextContent, ToolCall
from steersman.types.errors import ContextOverflowError, ProviderError, describe_exception, to_exception
from steersman.types.events import CompactionEnded, CompactionStarted
from steersman.types.messages import AgentMessage, AssistantMessage, Message, user_message
from steersman.types.model import Request
from steersman.types.stream import Done, Failed, FallbackNotice, RetryNotice

_SHORTEN = "shorten the conversation."
_FEWER_IMAGES = "send fewer or smaller images, or shorten the conversation."

# Added to the provider's error message.
STUCK = " Compaction could free nothing more: " + _SHORTEN
STUCK_BYTES = " Compaction could free nothing more: " + _FEWER_IMAGES
STUCK_IMAGES = " Send no images to this model, or use another one."
REFUSED = " A before_compaction_start hook refused to compact: let it allow that, or " + _SHORTEN
STILL_TOO_MANY_BYTES = " It is still too large after compaction: " + _FEWER_IMAGES
STILL_FULL = " There is no room for an answer, also after compaction: " + _SHORTEN


@dataclass(frozen=True, slots=True)
class Overflow:
    """A request that was too long: in tokens, in bytes (`too_many_bytes`) or in images (`too_many_images`).

    `no_images`: the model takes none.
    `empty`: the answer says nothing.
    `sent` is the number of tokens on the bill, and `window` the context window of the model that answered, if known.
    """

    too_many_bytes: bool = False
    too_many_images: bool = False
    no_images: bool = False
    empty: bool = False
    sent: int = 0
    window: int | None = None

    @classmethod
    def from_refusal(cls, words: str, status: int | None, window: int | None) -> Overflow:
        """What a server's error says of it."""
        from steersman.provider.wires.overflow import has_too_many_images, is_too_large, takes_no_images

        return cls(
            too_many_bytes=is_too_large(words, status=status),
            too_many_images=has_too_many_images(words),
            no_images=takes_no_images(words),
            window=window,
        )

    def has_answer(self, message: AssistantMessage) -> bool:
        """Whether there is an answer, even if the provider dropped a part of the request."""
        return not (message.failed or self.empty)

    def to_failure(self, message: AssistantMessage, stuck: str | None = None) -> AssistantMessage:
        """The answer as a failure that says what to do; `stuck` says why nothing was freed, if nothing was."""
        words = message.error_message or "The request is longer than the model's context window."
        if stuck is not None:
            words += stuck
        elif self.too_many_bytes or self.too_many_images or self.no_images:
            words += STILL_TOO_MANY_BYTES
        elif self.empty:
            words += STILL_FULL
        return msgspec.structs.replace(message, stop_reason="error", error_message=words, error_kind="context_overflow")


SUMMARY_PROMPT = (
    "You write summaries of conversations between a user, an assistant and its tools. Keep what the assistant needs to "
    "go on: what was asked, what was found out and decided, names, numbers and paths, and what is still to be done. "
    "Answer with the summary alone."
)


async def summarise(run: Run, messages: Sequence[Message]) -> str:
    """Let the run's own model summarise these messages; raises `ValueError` when it gives no summary.

    A failed request raises its `ProviderError`, so that a strategy can tell a wrong key from a full context window.
    """
    request = Request(SUMMARY_PROMPT, [user_message("\n\n".join(map(quote_message, messages)))])
    final = await _ask_for_summary(run, request)
    message = final.message
    if message.usage.known:
        run.add_usage(message.usage)
    else:
        count_unreported(run, message, estimate_total_tokens(request.messages))
    if isinstance(final, Failed):
        info = get_error_info(final)
        info = msgspec.structs.replace(info, provider=info.provider or run.config.model.provider)
        raise to_exception(run.redact_info(info))
    if message.failed or message.stop_reason != "stop":
        raise ValueError(message.error_message or f"the summary ended with {message.stop_reason!r}")
    return message.text


async def _ask_for_summary(run: Run, request: Request) -> Done | Failed:
    options = make_options(run, "none", output_schema=None, aside=True)
    async with aclosing(stream_events(run.client.stream_fn, run.config.model, request, options)) as events:
        async for event in events:
            if isinstance(event, Done | Failed):
                return event
            if isinstance(event, RetryNotice | FallbackNotice) and event.usage is not None:
                run.add_usage(event.usage)
    raise ValueError("the model gave no summary")  # cannot happen: the normal form has a terminal event


def quote_message(message: Message) -> str:
    """A message as a quoted line: as messages, the model would go on with the conversation."""
    parts: list[str] = []
    for block in message.content:
        if type(block) is TextContent:
            parts.append(block.text)
        elif type(block) is ToolCall:
            parts.append(f"(calls {block.name} with {msgspec.json.encode(block.arguments).decode()})")
    return f"[{message.role}] {' '.join(parts)}"


_STANDARD = DefaultCompaction()
_IMAGES = ImageCompaction()
_ALL_IMAGES = ImageCompaction(all=True)
_UNSIZED = ContextConfig()
# A pass that freed nothing is tried again only when the context has grown by this much.
_GROWTH = 1.1


def _find_config(run: Run) -> ContextConfig:
    """The configuration with a size: its own, or the one it takes from the model, if that is known."""
    config = run.config.context_config or _UNSIZED
    size = config.find_size(run.config.model, run.config.max_tokens)
    return config if size is None or size == config.max_context_tokens else replace(config, max_context_tokens=size)


async def compact_before_request(run: Run, *, forced: bool) -> None:
    """Compact what is over the threshold, unless that was futile just before; `forced`, compact in any case."""
    config, tokens = _find_config(run), count_tokens(run)
    if not forced and _is_futile(run, tokens, config):
        return
    if not await _ask_hooks(run, tokens):
        return
    _, error = await compact(run, halve_limit(config, tokens) if forced and tokens <= config.limit else config)
    tokens = count_tokens(run)
    if tokens > config.limit:
        run.futile.estimated = tokens
    if tokens > config.size:
        if isinstance(error, ProviderError):
            raise error  # a shorter context does not help against a wrong key
        _report_excess(run, tokens, config)


def _is_futile(run: Run, tokens: int, config: ContextConfig) -> bool:
    """Whether compaction freed too little before, and the context has hardly grown since and not over its size."""
    before = run.futile.estimated
    return tokens < before * _GROWTH and (tokens <= config.size or before > config.size)


def _report_excess(run: Run, tokens: int, config: ContextConfig) -> None:
    """Raise for a context over the caller's own limit.

    A size taken from the model is an estimate, and no compaction helps against a system prompt that is too long: then
    the provider decides.
    """
    head, own = run.context.head.tokens, run.config.context_config
    about = f"about {tokens} tokens" + (f" ({head} of them system prompt and tool schemas)" if head else "")
    if own is not None and own.max_context_tokens is not None and head <= config.size:
        raise ContextOverflowError(
            f"The context has {about}, more than max_context_tokens={config.size}, and compaction can free no more: "
            "shorten what the user said or raise the limit."
        )
    advice = "the system prompt or the tools" if head > config.size else "what the user said"
    run.log_problem(
        f"The request has {about}, more than the {config.size} there is room for, and compaction can free no more: "
        f"shorten {advice}. It is sent as it is."
    )


def is_hopeless(run: Run, overflow: Overflow) -> bool:
    """Whether the hardest compaction freed too little before, for a request that was at most 10% shorter."""
    return overflow.sent < run.futile.billed * _GROWTH


async def compact_after_overflow(run: Run, overflow: Overflow) -> str | None:
    """Compact harder than the threshold asks for; returns why nothing was freed, `None` if something was.

    If the request had too many images, or too many bytes and most of them are images, only old images are dropped.
    """
    tokens = count_tokens(run)
    if not await _ask_hooks(run, tokens):
        return REFUSED
    config = _find_config(run)
    log = run.context.log
    counted = overflow.too_many_images or overflow.no_images
    about_images = counted or (overflow.too_many_bytes and _are_mostly_images(log.visible, config))
    strategy = _ALL_IMAGES if overflow.no_images else _IMAGES
    if about_images and _can_drop_images(strategy, log.visible, config):
        await compact(run, replace(config, compaction=CompactionConfig(strategy)))
        return None
    if counted:
        return STUCK_IMAGES if overflow.no_images else STUCK_BYTES  # a shorter conversation would have as many images
    freed, _ = await compact(run, halve_limit(config, min(tokens, overflow.window or config.size)))
    if freed:
        return None
    return STUCK_BYTES if overflow.too_many_bytes else STUCK


def _are_mostly_images(messages: Sequence[AgentMessage], config: ContextConfig) -> bool:
    return count_image_bytes(messages) > BYTES_PER_TOKEN * estimate_total_tokens(messages, config.estimator)


def _can_drop_images(strategy: ImageCompaction, messages: Sequence[AgentMessage], config: ContextConfig) -> bool:
    return count_image_bytes(strategy.compact(messages, config)) < count_image_bytes(messages)


async def compact(run: Run, config: ContextConfig) -> tuple[bool, Exception | None]:
    """Do one compaction with its events; returns whether it freed anything, and what the strategy raised.

    A strategy that raises leaves the context as it was.
    """
    log = run.context.log
    tokens = count_tokens(run)
    head = run.context.head.tokens  # counts in what is told, as it does in the limit
    messages_before, tokens_before = len(log.visible), head + estimate_total_tokens(log.visible, config.estimator)
    run.emit(CompactionStarted, estimated_tokens=tokens, message_count=messages_before)
    error: Exception | None = None
    problem: str | None = "cancelled"
    try:
        error = await _apply_strategy(run, subtract_overhead(config, log.visible, tokens))
        problem = None if error is None else describe_exception(error)
    finally:
        messages_after, tokens_after = len(log.visible), head + estimate_total_tokens(log.visible, config.estimator)
        reduced = tokens_after < tokens_before
        run.futile.estimated = -1 if reduced else tokens
        run.futile.billed = -1 if reduced else run.futile.billed
        run.emit(
            CompactionEnded,
            messages_before=messages_before,
            messages_after=messages_after,
            tokens_before=tokens_before,
            tokens_after=tokens_after,
            reduced=reduced,
            error=problem,
        )
    after = run.config.seams.after_compaction_end
    if after:
        arguments = (messages_before, messages_after, tokens_before, tokens_after)
        run.apply(await decide(after, arguments, seam="after_compaction_end"), "after_compaction_end")
    return reduced, error


async def _apply_strategy(run: Run, config: ContextConfig) -> Exception | None:
    """Let the strategy replace what the model sees; returns what the strategy raised."""
    log = run.context.log
    strategy = config.compaction.in_memory_strategy or _STANDARD
    visible: Sequence[AgentMessage] = log.visible
    try:
        replacement: Sequence[AgentMessage] = await resolve(_call_strategy(run, strategy, visible, config))
        if len(replacement) != len(visible) or any(a is not b for a, b in zip(replacement, visible, strict=True)):
            log.compact(replacement)
    except Exception as error:  # noqa: BLE001  # a broken strategy of the caller is reported, and the context stays
        return error
    return None


def _call_strategy(
    run: Run, strategy: CompactionStrategy, visible: Sequence[AgentMessage], config: ContextConfig
) -> Any:
    """Call the strategy; one that takes a third argument gets a function that asks the run's own model."""
    work: Callable[..., Any] = strategy.compact
    return work(visible, config, partial(summarise, run)) if can_take(work, 3) else work(visible, config)


async def _ask_hooks(run: Run, tokens: int) -> bool:
    """Whether every `before_compaction_start` hook allows the compaction; a `Stop` also ends the run."""
    arguments = (tokens, len(run.context.log.visible))
    for hook in run.config.seams.before_compaction_start:
        said = await call(hook, arguments, seam="before_compaction_start")
        if isinstance(said, Stop):
            run.ending.finish("stopped", said.reason or "before_compaction_start said no")
        if said is False or isinstance(said, Stop | Skip):
            return False
        if said is not None and said is not True:
            raise HookError(f"before_compaction_start gave {said!r}; return None, True, False, Skip or Stop")
    return True
