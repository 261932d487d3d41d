"""Compaction on request: what the model sees is made shorter without asking a model, and shown again when undone."""

from __future__ import annotations

from steersman.context.compaction.compact import ContextConfig, DefaultCompaction
from steersman.context.entries import CompactionEntry, PrunEntry
from steersman.context.log import Log
from steersman.context.replay import undone


def shorten(log: Log, config: ContextConfig | None = None) -> CompactionEntry | None:
    """Show the model less, half of it where no `config` says how much; `None` when nothing could be left out."""
    if config is None:
        config = ContextConfig(max_context_tokens=max(1, log.tokens // 2), threshold=1.0)
    visible = list(log.visible)
    shorter = list(DefaultCompaction().compact(visible, config))
    same = len(shorter) == len(visible) and all(a is b for a, b in zip(shorter, visible, strict=True))
    return None if same or not shorter else log.compact(shorter)


def show_again(log: Log, entry_id: str | None = None) -> None:
    """Let a compaction or a prun no longer count, the last one that does unless it is named."""
    if entry_id is None:
        void = undone(log.entries)
        for entry in reversed(log.entries):
            if isinstance(entry, CompactionEntry | PrunEntry) and entry.id not in void:
                entry_id = entry.id
                break
        else:
            raise ValueError("There is nothing to undo: no compaction and no prun counts here.")
    log.undo(entry_id)
