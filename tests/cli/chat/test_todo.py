"""The list of the tool `todo` on the screen: whole, or as one line; kept with the session; only ever text."""

from __future__ import annotations

import pytest
from tests.cli.chat.kit import READY, SIZES, chatting
from tests.cli.chat.test_injection import FORMS, strange
from tests.cli.command import Place

from steersman.cli.chat.todo_list import render_todo
from steersman.testing import answer, call
from steersman.testing.servers import OpenAIChatServer
from steersman.tools import TodoItem
from steersman.tools.builtin.todo import MAX_TEXT


def split_corpus() -> list[dict[str, str]]:
    """All forms of hostile text, in as few items as their largest size allows."""
    texts = [""]
    for number, form in enumerate(FORMS):
        word = f"form{number}:{form} "
        texts = [*texts[:-1], texts[-1] + word] if len(texts[-1] + word) <= MAX_TEXT else [*texts, word]
    return [{"text": text} for text in texts]


HOSTILE = split_corpus()


def test_a_long_list_shows_what_is_next_and_a_finished_one_nothing() -> None:
    items = [TodoItem(f"step {number}", "done" if number < 5 else "pending") for number in range(12)]
    assert render_todo(items, 40, 24) == [
        "todo 5/12",
        "  ✓ step 4",
        "  ○ step 5",
        "  ○ step 6",
        "  ○ step 7",
        "  and 8 more",
    ]
    assert render_todo(items, 14, 15) == ["todo 5/12 ○ s…"]
    assert render_todo([TodoItem("a", "done")], 40, 24) == []


@pytest.mark.real_time
def test_a_finished_list_leaves_the_screen_and_its_call_says_so(place: Place, server: OpenAIChatServer) -> None:
    steps = [{"text": text, "status": "pending"} for text in ("look around", "change it")]
    with chatting(place, server, columns=120, rows=40) as terminal:
        for number, (columns, rows) in enumerate(SIZES, 1):
            terminal.resize(columns, rows)
            server.say(
                answer(call("todo", items=[{**steps[0], "status": "in_progress"}, steps[1]])), f"Begun {number}."
            )
            terminal.enter(f"Begin {number}.")
            terminal.wait_for(f"Begun {number}.")
            rows_of_list = "todo 0/2\n  ▸ look around\n  ○ change it\n" if rows > 20 else "todo 0/2 ▸ look around\n"
            terminal.wait_for(rows_of_list)
            server.say(answer(call("todo", items=[{**step, "status": "done"} for step in steps])), f"Ended {number}.")
            terminal.enter(f"End {number}.")
            terminal.wait_for(f"Ended {number}.")
            terminal.wait_for(READY)
            assert terminal.everything.count(f"\n\u276f End {number}.\n\n✓ todo · 2 of 2 done.\n") == 1
            assert [line for line in terminal.lines if line.startswith("todo ")] == []


@pytest.mark.real_time
def test_the_list_is_on_the_screen_and_again_after_continuing(place: Place, server: OpenAIChatServer) -> None:
    first = [{"text": "look", "status": "done"}, {"text": "change", "status": "in_progress"}, *HOSTILE]
    server.say(answer(call("todo", items=first)), "Begun.", answer(call("todo", items=[])), "Emptied.")
    count = f"todo 1/{len(first)}"
    # Wide and high enough for every text to be shown to its end.
    with chatting(place, server, columns=MAX_TEXT * 6, rows=4 * len(first) + 8) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for("Begun.")
        assert f"✓ todo  change · 1 of {len(first)} done." in terminal.shown
        terminal.wait_for(f"{count}\n  ✓ look\n  ▸ change\n  ○ form0:")
        terminal.wait_for(READY)
        assert [number for number in range(len(FORMS)) if f"form{number}:" not in terminal.shown] == []
        terminal.resize(120, 40)
        terminal.wait_for(lambda at: "▸ change\n  ○ form0:" in at.shown and at.screen.columns == 120)
        terminal.resize(40, 15)
        terminal.wait_for(f"\n{count} ▸ change\n")
        terminal.press("ctrl+d")
        terminal.ended()
        assert strange(bytes(terminal.raw)) == []
    with chatting(place, server, "-c") as terminal:
        assert "% full" in terminal.shown
        terminal.wait_for(f"{count}\n  ✓ look\n  ▸ change\n  ○ form0:")
        terminal.enter("/clear")
        terminal.wait_for(lambda at: "▸ change" not in at.shown and "% full" not in at.shown)
        terminal.enter("/tree")
        terminal.wait_for("○")
        assert strange(bytes(terminal.raw)) == []
    assert server.requests[0]["tools"][-1]["function"]["name"] == "todo"
