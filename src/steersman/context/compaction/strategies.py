"""Compaction strategies: what the model sees instead when the context grows too long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from steersman.context.compaction.config import (
    Compacted,
    CompactionStrategy,
    ContextConfig,
    Summarise,
)
from steersman.context.compaction.steps import (
    drop_middle,
    find_last_group,
    find_tail,
    list_middle,
    replace_middle,
    shorten_outputs,
    summarise_turns,
)
from steersman.context.convert import default_convert_to_llm
from steersman.context.entries import CompactionEntry, PrunEntry
from steersman.context.log import Log
from steersman.context.tokens import estimate_total_tokens
from steersman.context.visible import list_undo_targets
from steersman.types.messages import AgentMessage, Message, UserMessage, user_message


class DefaultCompaction:
    """Shortens without asking a model, and always in the same way.

    First long tool outputs, then old turns, then the whole middle; if the recent tail is too long by itself, all but
    its last group in the same way; at last the outputs in that group. Each step is taken whole, and only while it is
    needed: a prefix that a provider has cached changes seldom. The task, the first user message, always stays.
    """

    __slots__ = ()

    def compact(self, messages: Sequence[AgentMessage], config: ContextConfig, /) -> Sequence[AgentMessage]:
        """The messages to show instead; the same ones when there is nothing to do."""
        estimator = config.estimator
        shown: Sequence[AgentMessage] = messages
        for step in _STEPS:
            if estimate_total_tokens(shown, estimator) <= config.limit:
                break
            shown = step(shown, config)
        return messages if _is_same(shown, messages) else shown


class SummaryCompaction:
    """Lets a model write a summary of everything between the task and the tail: `summarise`, or the run's own model.

    What is too long to be summarised at once is summarised piece by piece, each with the summary so far. When it fails,
    says nothing or too much, the `fallback` does the work and `on_fallback` is told why.
    """

    __slots__ = ("_fallback", "_on_fallback", "_summarise")

    def __init__(
        self,
        summarise: Summarise | None = None,
        fallback: CompactionStrategy | None = None,
        *,
        on_fallback: Callable[[str], None] | None = None,
    ) -> None:
        self._summarise = summarise
        self._fallback: CompactionStrategy = fallback or DefaultCompaction()
        self._on_fallback = on_fallback

    async def compact(
        self, messages: Sequence[AgentMessage], config: ContextConfig, ask: Summarise | None = None, /
    ) -> Sequence[AgentMessage]:
        """The task, the summary, the tail; the same messages when there is nothing to do."""
        if estimate_total_tokens(messages, config.estimator) <= config.limit:
            return messages
        tail = find_tail(messages, config.keep_recent)
        if estimate_total_tokens(messages[tail:], config.estimator) > config.limit:
            tail = find_last_group(messages)
        middle = default_convert_to_llm(list_middle(messages, tail, config.keep_first))
        try:
            summary = _make_summary_message(await self._write_summary(middle, config, self._summarise or ask))
        except _NoSummary as error:
            return await self._fall_back(messages, config, str(error))
        except Exception as error:  # noqa: BLE001  # whatever a summariser raises, the run goes on with the fallback
            return await self._fall_back(messages, config, f"the summary failed: {type(error).__name__}: {error}")
        shown = replace_middle(messages, tail, config.keep_first, summary)
        tokens = estimate_total_tokens(shown, config.estimator)
        if tokens > config.limit or config.estimator(summary) >= estimate_total_tokens(middle, config.estimator):
            return await self._fall_back(
                messages, config, f"the summary was too long ({tokens} > {config.limit} tokens)"
            )
        return shown

    async def _write_summary(
        self, middle: Sequence[Message], config: ContextConfig, summarise: Summarise | None
    ) -> str:
        if summarise is None:
            raise _NoSummary("there is no model to ask; give SummaryCompaction a function")
        if len(middle) < 2:
            raise _NoSummary("there is nothing between the task and the tail to summarise")
        text = ""
        for piece in _split_to_fit(middle, config):
            text = (await summarise([_make_summary_message(text), *piece] if text else piece)).strip()
            if not text:
                raise _NoSummary("the summary was empty")
        return text

    async def _fall_back(self, messages: Sequence[AgentMessage], config: ContextConfig, why: str) -> Compacted:
        if self._on_fallback is not None:
            self._on_fallback(why)
        shown = self._fallback.compact(messages, config)
        return await shown if isinstance(shown, Awaitable) else shown


class _NoSummary(Exception):
    """There is no summary; the text says why."""


def _make_summary_message(text: str) -> UserMessage:
    return user_message(f"[Summary of earlier messages]\n{text}", synthetic=True)


def _split_to_fit(messages: Sequence[Message], config: ContextConfig) -> list[list[Message]]:
    """The messages in pieces that each fit the window, unless one alone does not."""
    pieces: list[list[Message]] = [[]]
    size = 0
    for message in messages:
        tokens = config.estimator(message)
        if pieces[-1] and size + tokens > config.size:
            pieces.append([])
            size = 0
        pieces[-1].append(message)
        size += tokens
    return pieces


def subtract_overhead(config: ContextConfig, messages: Sequence[AgentMessage], tokens: int) -> ContextConfig:
    """A config with a window smaller by what the estimate misses of the real `tokens`, such as the system prompt."""
    missed = tokens - estimate_total_tokens(messages, config.estimator)
    if missed <= 0:
        return config
    return _with_limit(config, config.limit - missed)


def halve_limit(config: ContextConfig, tokens: int | None = None) -> ContextConfig:
    """Half the limit and a smaller tail, for after a provider said that the context is too long.

    With `tokens`, what was sent, it is half of that if that is less: a window may be smaller than its configuration.
    """
    limit = config.limit if tokens is None else min(config.limit, tokens)
    return replace(_with_limit(config, limit // 2), keep_recent=max(1, config.keep_recent // 2))


def _with_limit(config: ContextConfig, limit: int) -> ContextConfig:
    return replace(config, max_context_tokens=max(1, int(limit / config.threshold)))


def _shorten_old(messages: Sequence[AgentMessage], config: ContextConfig) -> Sequence[AgentMessage]:
    return shorten_outputs(messages, find_tail(messages, config.keep_recent), config.old_output_chars)


def _summarise_old(messages: Sequence[AgentMessage], config: ContextConfig) -> Sequence[AgentMessage]:
    return summarise_turns(messages, find_tail(messages, config.keep_recent), config.estimator)


def _drop_old(messages: Sequence[AgentMessage], config: ContextConfig) -> Sequence[AgentMessage]:
    return drop_middle(messages, find_tail(messages, config.keep_recent), config.keep_first, config.estimator)


def _shorten_recent(messages: Sequence[AgentMessage], config: ContextConfig) -> Sequence[AgentMessage]:
    return shorten_outputs(messages, find_last_group(messages), config.old_output_chars)


def _summarise_recent(messages: Sequence[AgentMessage], config: ContextConfig) -> Sequence[AgentMessage]:
    return summarise_turns(messages, find_last_group(messages), config.estimator)


def _drop_recent(messages: Sequence[AgentMessage], config: ContextConfig) -> Sequence[AgentMessage]:
    return drop_middle(messages, find_last_group(messages), config.keep_first, config.estimator)


def _shorten_all(messages: Sequence[AgentMessage], config: ContextConfig) -> Sequence[AgentMessage]:
    return shorten_outputs(messages, len(messages), config.old_output_chars)


_STEPS = (
    _shorten_old,
    _summarise_old,
    _drop_old,
    _shorten_recent,
    _summarise_recent,
    _drop_recent,
    _shorten_all,
)


def _is_same(a: Sequence[AgentMessage], b: Sequence[AgentMessage]) -> bool:
    return len(a) == len(b) and all(left is right for left, right in zip(a, b, strict=True))


def compact_log(log: Log, config: ContextConfig | None = None) -> CompactionEntry | None:
    """Compact a log, to half its size without a `config`; `None` if nothing could be left out."""
    if config is None:
        config = ContextConfig(max_context_tokens=max(1, log.tokens // 2), threshold=1.0)
    visible = list(log.visible)
    shorter = list(DefaultCompaction().compact(visible, config))
    return None if _is_same(shorter, visible) or not shorter else log.compact(shorter)


def undo_change(log: Log, entry_id: str | None = None) -> None:
    """Undo a compaction or a prun, the last one unless it is named."""
    if entry_id is None:
        void = list_undo_targets(log.entries)
        for entry in reversed(log.entries):
            if isinstance(entry, CompactionEntry | PrunEntry) and entry.id not in void:
                entry_id = entry.id
                break
        else:
            raise ValueError("There is nothing to undo: no compaction and no prun is in effect.")
    log.undo(entry_id)
