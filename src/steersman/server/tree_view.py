"""The tree of a conversation as a list of entries, for pages that draw it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from steersman.session.records import TREE, Payload, decode, make_title


def read_tree(lines: Iterable[tuple[int, bytes]]) -> list[Payload]:
    """The entries in the order of their records, parents first; the conversation is at the `current` one."""
    entries: dict[str, Payload] = {}
    current: str | None = None
    for _, line in lines:
        try:
            record = decode(line)
        except ValueError:
            continue  # a damaged record is left out, as everywhere
        if record.type in TREE:
            message: Any = record.payload.get("message") or {}
            entries[record.id] = {
                "id": record.id,
                "parent": record.parent,
                "type": record.type,
                "role": message.get("role"),
                "title": make_title([record]) or _describe_answer(message),
                "time": record.time,
                "label": None,
                "current": False,
            }
            current = record.id
        elif record.type == "leaf":
            current = record.payload.get("target")
        elif record.type == "label" and (found := entries.get(str(record.payload.get("target")))) is not None:
            found["label"] = record.payload.get("text")
    if current in entries:
        entries[current]["current"] = True
    return list(entries.values())


def _describe_answer(message: Any, longest: int = 80) -> str:
    """The first words of any message, or the names of the tools it calls."""
    blocks = cast(list[Payload], message.get("content") or [])
    found = [str(block.get("text") or block.get("name") or "") for block in blocks]
    words = " ".join(" ".join(found).split())
    return words if len(words) <= longest else words[: longest - 1] + "…"
