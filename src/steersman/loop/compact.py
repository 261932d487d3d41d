"""Making the context shorter: when it is over its threshold, when a run asks for it, or after an overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from steersman.context.compaction.compact import (
    CompactionConfig,
    CompactionStrategy,
    ContextConfig,
    DefaultCompaction,
    fitted,
    tighter,
)
from steersman.context.compaction.images import ImageCompaction, image_bytes
from steersman.context.tokens import BYTES_PER_TOKEN, total_tokens
from steersman.loop.config import resolve, takes
from steersman.loop.overflow import Overflow
from steersman.loop.run import Run
from steersman.loop.summary import summarise
from steersman.policy.hooks import HookError, call, decide
from steersman.policy.verdicts import Skip, Stop
from steersman.types.continuation import Compaction
from steersman.types.errors import ContextOverflowError, ProviderError, described
from steersman.types.events import CompactionEnded, CompactionStarted
from steersman.types.messages import AgentMessage

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
    _, error = await compact(run, tighter(config, log.tokens) if forced and log.tokens <= config.limit else config)
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
    freed, _ = await compact(run, tighter(config, min(log.tokens, found.window or config.max_context_tokens)))
    return freed


def _images_weigh(messages: Sequence[AgentMessage], config: ContextConfig) -> bool:
    """Whether most of the bytes are images, and some of them can go."""
    weight = image_bytes(messages)
    if weight <= BYTES_PER_TOKEN * total_tokens(messages, config.estimator):
        return False
    return image_bytes(_IMAGES.compact(messages, config)) < weight


async def compact(run: Run, config: ContextConfig) -> tuple[bool, Exception | None]:
    """One compaction with its events; whether it freed anything, and what the strategy raised.

    A strategy that fails leaves the context as it was.
    """
    log = run.context.log
    messages_before, tokens_before = len(log.visible), total_tokens(log.visible, config.estimator)
    run.emit(CompactionStarted, estimated_tokens=log.tokens, message_count=messages_before)
    error: Exception | None = None
    told: str | None = "cancelled"
    try:
        error = await _attempt(run, fitted(config, log.visible, log.tokens))
        told = None if error is None else described(error)
    finally:
        messages_after, tokens_after = len(log.visible), total_tokens(log.visible, config.estimator)
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
