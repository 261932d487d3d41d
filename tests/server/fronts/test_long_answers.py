"""Long answers: what a piece costs does not grow with the answer (S4)."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from steersman.server.fronts import a2a, agui
from steersman.server.fronts.openai import chat, responses

START: dict[str, Any] = {"type": "message_start", "loop_id": "run", "message": {"role": "assistant"}}


def translate(translator: Any) -> None:
    piece = {"type": "text_delta", "content_index": 0, "delta": "x" * 10_000}
    translator.translate({"type": "message_update", "loop_id": "run", "delta": piece})


def count_bytes(translator: Any, pieces: int) -> int:
    """The bytes that are allocated for one piece after so many others."""
    translator.translate(START)
    for _ in range(pieces):
        translate(translator)
    tracemalloc.start()
    try:
        translate(translator)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "make",
    [lambda: a2a.Translator("task", "context"), lambda: agui.Translator("thread", "run"), chat.Translator,
     lambda: responses.Translator({"id": "resp_1"})],
    ids=["a2a", "agui", "chat", "responses"],
)  # fmt: skip
def test_a_piece_of_a_long_answer_costs_as_much_as_one_of_a_short_answer(make: Any) -> None:
    """Where the text so far is copied for each piece, it is many times as much."""
    assert count_bytes(make(), 1_000) < 3 * count_bytes(make(), 10)
