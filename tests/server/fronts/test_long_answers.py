"""Long answers: what a piece costs does not grow with the answer (S4)."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest

from steersman.server.fronts import a2a, agui
from steersman.server.fronts.openai import chat, responses

START: dict[str, Any] = {"type": "message_start", "loop_id": "run", "message": {"role": "assistant"}}
PIECE: dict[str, Any] = {
    "type": "message_update",
    "loop_id": "run",
    "delta": {"type": "text_delta", "content_index": 0, "delta": "x" * 10_000},
}


def measure(translator: Any, pieces: int) -> float:
    """The seconds of one piece, in processor time."""
    translator.translate(START)
    start = process_time()
    for _ in range(pieces):
        translator.translate(PIECE)
    return (process_time() - start) / pieces


@pytest.mark.parametrize(
    "make",
    [lambda: a2a.Translator("task", "context"), lambda: agui.Translator("thread", "run"), chat.Translator,
     lambda: responses.Translator({"id": "resp_1"})],
    ids=["a2a", "agui", "chat", "responses"],
)  # fmt: skip
def test_a_piece_of_a_long_answer_costs_as_much_as_one_of_a_short_answer(make: Any) -> None:
    """Where the text so far is copied for each piece, it is many times as much."""
    short = max(measure(make(), 100) for _ in range(5))
    assert min(measure(make(), 2_000) for _ in range(2)) < 3 * short
