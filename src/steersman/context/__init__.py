"""The conversation: one append-only log of entries; what the model sees is a view of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.context.compaction.config import CompactionConfig, CompactionStrategy, ContextConfig
    from steersman.context.compaction.strategies import DefaultCompaction, SummaryCompaction
    from steersman.context.context import AgentContext
    from steersman.context.convert import default_convert_to_llm
    from steersman.context.entries import CompactionEntry, Entry, MessageEntry, PrunEntry, UndoEntry
    from steersman.context.instructions import Instructions, find_instructions
    from steersman.context.log import Log
    from steersman.context.tokens import estimate_tokens

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "compaction.config": "CompactionConfig CompactionStrategy ContextConfig",
        "compaction.strategies": "DefaultCompaction SummaryCompaction",
        "context": "AgentContext",
        "convert": "default_convert_to_llm",
        "entries": "CompactionEntry Entry MessageEntry PrunEntry UndoEntry",
        "instructions": "Instructions find_instructions",
        "log": "Log",
        "tokens": "estimate_tokens",
    },
)

__all__ = [
    "AgentContext",
    "CompactionConfig",
    "CompactionEntry",
    "CompactionStrategy",
    "ContextConfig",
    "DefaultCompaction",
    "Entry",
    "Instructions",
    "Log",
    "MessageEntry",
    "PrunEntry",
    "SummaryCompaction",
    "UndoEntry",
    "default_convert_to_llm",
    "estimate_tokens",
    "find_instructions",
]
