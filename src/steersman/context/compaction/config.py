"""How much of a conversation the model is shown, and what makes it shorter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from steersman.context.tokens import Estimator, estimate_tokens, find_context_size
from steersman.types.guards import suggest_options
from steersman.types.messages import AgentMessage, Message
from steersman.types.model import Model

Compacted: TypeAlias = Sequence[AgentMessage]
Summarise: TypeAlias = Callable[[Sequence[Message]], Awaitable[str]]
"""Writes what matters of these messages."""


class CompactionStrategy(Protocol):
    """Gives the messages to show instead; those it keeps stay the same objects.

    A strategy that takes a third argument is given a `Summarise` that asks the run's own model.
    """

    def compact(
        self, messages: Sequence[AgentMessage], config: ContextConfig, /
    ) -> Compacted | Awaitable[Compacted]: ...


@suggest_options
@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """How the context is made shorter; `None` means `DefaultCompaction`."""

    in_memory_strategy: CompactionStrategy | None = None


# For a compaction by hand, where no model is known.
_USUAL_WINDOW = 200_000


@suggest_options
@dataclass(frozen=True, slots=True)
class ContextConfig:
    """How much the model is shown.

    `max_context_tokens` is for a whole request: system prompt, tool schemas and messages. `None` takes it from the
    context window of the model, less the token budget of the answer; without a known window nothing is compacted before
    the provider reports an overflow.

    One threshold is both trigger and target: above `limit` tokens the context is compacted until it is below. The first
    `keep_first` user messages always stay, the last `keep_recent` messages as long as they fit. Tool outputs outside of
    these are cut to `old_output_chars`; every tool output is capped by bytes and lines when it comes in.
    """

    max_context_tokens: int | None = None
    threshold: float = 0.8
    keep_first: int = 1
    keep_recent: int = 10
    old_output_chars: int = 2_000
    max_tool_output_bytes: int = 50_000
    max_tool_output_lines: int = 2_000
    output_directory: str | None = None
    estimator: Estimator = estimate_tokens
    compaction: CompactionConfig = field(default_factory=CompactionConfig)

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value: object = getattr(self, name)
            if value is None and name == "max_context_tokens":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"ContextConfig.{name} is a whole number, at least {least}, got {value!r}.")
        if not 0 < self.threshold <= 1:
            raise ValueError(
                f"ContextConfig.threshold is a fraction of the window, above 0 and at most 1, got {self.threshold!r}."
            )

    @property
    def size(self) -> int:
        """`max_context_tokens`, or a usual context window; a strategy in a run gets a config that says its size."""
        return _USUAL_WINDOW if self.max_context_tokens is None else self.max_context_tokens

    @property
    def limit(self) -> int:
        """The most tokens that are sent without compaction."""
        return int(self.size * self.threshold)

    def find_size(self, model: Model, max_tokens: int | None = None) -> int | None:
        """The most tokens of a request to this model with an answer of `max_tokens`; `None` if it is not known."""
        window = model.context_window
        if self.max_context_tokens is not None or window is None:
            return self.max_context_tokens
        return find_context_size(window, model.max_output_tokens, max_tokens)


_LEAST = {
    "max_context_tokens": 1,
    "keep_first": 1,
    "keep_recent": 0,
    "old_output_chars": 0,
    "max_tool_output_bytes": 1,
    "max_tool_output_lines": 1,
}
