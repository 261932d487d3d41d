"""Whatever a model, a tool or a file says, only text and our own few colours leave `Show` (failures.md L15)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.render.attacks import ANY_TEXT, ATTACKS, FORMS, check_lines
from tests.cli.render.runs import (
    a_show,
    answer_end,
    answer_start,
    answered,
    end,
    heard,
    retry,
    said,
    start,
    tool_end,
    tool_start,
    tool_update,
    turn,
    update,
)
from tests.rows import each_row

from steersman.cli.render import render_diff, render_markdown
from steersman.types.errors import ErrorInfo
from steersman.types.events import (
    AgentEvent,
    ApprovalResolved,
    CompactionEnded,
    CustomEvent,
    InputRejected,
    LoopDetected,
    ModelFallback,
)
from steersman.types.messages import user_message
from steersman.types.stream import ThinkingDelta, ToolCallDelta, ToolCallStart

_HEAD = ("run", 0, 0.0)


def a_diff(text: str) -> str:
    return f"--- a/{text}\n+++ b/{text}\n@@ -1 +1 @@ {text}\n-{text}\n+{text}\n {text}\n"


def a_sub_agent(text: str) -> list[AgentEvent]:
    inner: list[dict[str, Any]] = [
        {"type": "tool_execution_start", "loop_id": "x", "seq": 0, "timestamp": 0.0, "tool_call_id": "i",
         "tool_name": text, "args": {"path": text}},
        {"type": "message_update", "loop_id": "x", "seq": 0, "timestamp": 0.0,
         "delta": {"type": "text_delta", "delta": text}},
        {"type": text},
    ]  # fmt: skip
    shown = [tool_update("helper", {"type": "agent_event", "agent": text, "event": event}) for event in inner]
    return [tool_start("helper", {"prompt": text}), *shown, tool_end("helper", {"prompt": text}, text)]


PLACES: dict[str, Callable[[str], Iterable[AgentEvent]]] = {
    "the answer": lambda text: answered(text),
    "an answer in characters": lambda text: answered(*text),
    "an answer without pieces": lambda text: [answer_start(), answer_end(text)],
    "an answer that broke off": lambda text: [answer_start(), *update(text), retry(message=text)],
    "a thought": lambda text: answered(ThinkingDelta(text)),
    "a call that is being asked for": lambda text: [
        answer_start(), *update(ToolCallStart(0, "c1", text), ToolCallDelta(text * 50))
    ],
    "the name of a tool": lambda text: [tool_start(text), tool_end(text)],
    "a command": lambda text: [tool_start("bash", {"command": text}), tool_end("bash", {"command": text}, exit_code=0)],
    "a file name": lambda text: [tool_start("read", {"path": text}), tool_end("read", {"path": text}, "x")],
    "a pattern and a folder": lambda text: [tool_end("search", {"pattern": text, "path": text}, "x", matches=1)],
    "other arguments": lambda text: [tool_end("mcp__x__y", {text: [text], "b": {text: text}}, "x")],
    "output while it runs": lambda text: [
        tool_start("bash"), tool_update("bash", {"type": "output", "text": f"a\n{text}\nb"})
    ],
    "progress": lambda text: [tool_start("x"), tool_update("x", {"type": "progress", "text": text})],
    "progress as a bare text": lambda text: [tool_start("x"), tool_update("x", text)],
    "a short result": lambda text: [tool_end("x", {}, text)],
    "a long result": lambda text: [tool_end("x", {}, f"{text}\n" * 30)],
    "an error": lambda text: [tool_end("x", {}, text, error=True)],
    "a denial": lambda text: [tool_end("x", {}, text, error=True, status="denied", rule=text)],
    "the output of a command that failed": lambda text: [tool_end("bash", {}, text, error=True, exit_code=1)],
    "details of the wrong kind": lambda text: [
        tool_end("x", {}, text, exit_code=text, matches=text, entries=text, first_line=text, usage=text, status=text)
    ],
    "a diff": lambda text: [tool_end("edit", {"path": text}, "ok", diff=a_diff(text))],
    "a diff that is none": lambda text: [tool_end("edit", {"path": text}, "ok", diff=text)],
    "a sub-agent": a_sub_agent,
    "a message on the way": lambda text: [turn(1), *said(user_message(f"hear: {text}"))],
    "a word of the loop": lambda text: [turn(1), *said(user_message(f"hear: {text}", synthetic=True))],
    "a retry": lambda text: [retry(message=text)],
    "an answer from elsewhere": lambda text: [ApprovalResolved(*_HEAD, text, "denied", text, text)],
    "another model": lambda text: [ModelFallback(*_HEAD, text, text, ErrorInfo("network", text))],
    "a compaction that failed": lambda text: [CompactionEnded(*_HEAD, 1, 1, 1, 1, False, text)],
    "a message that was not let in": lambda text: [InputRejected(*_HEAD, text, "prompt")],
    "a repetition": lambda text: [LoopDetected(*_HEAD, [text], 3, "nudge")],
    "an event of an application": lambda text: [CustomEvent(*_HEAD, text, text)],
    "a session that is not kept": lambda text: [CustomEvent(*_HEAD, "session_degraded", {"reason": text})],
    "how it ended": lambda text: [end("error", text)],
    "the name of the model": lambda text: [start(text), answer_start(), answer_end("x", model=text), end()],
}  # fmt: skip


def look(events: Iterable[AgentEvent], *, color: bool, verbose: bool, width: int) -> None:
    """Look at a run after each event, as a terminal would be shown it."""
    show = a_show(color=color, verbose=verbose)
    for event in (start(), *events, end()):
        show.show_event(event)
        check_lines(show.take_finished(width), color=color)
        check_lines(show.render_live(width, 12), color=color)
    assert show.render_live(width, 12) == ""


@each_row("place", PLACES)
def test_no_form_of_attack_gets_through_from(place: str) -> None:
    for attack in ATTACKS.values():
        look(PLACES[place](attack), color=True, verbose=True, width=80)
        look(PLACES[place](attack), color=False, verbose=False, width=24)


@each_row("form", FORMS)
def test_no_form_of_attack_gets_through_markdown(form: str) -> None:
    for attack in ATTACKS.values():
        text = FORMS[form].replace("{}", attack)
        check_lines(render_markdown(text, 40, True))
        check_lines(render_markdown(text, 20, False), color=False)


@pytest.mark.parametrize("kind", ["user", "notice", "error"])
def test_no_form_of_attack_gets_through_what_is_said_besides(kind: Any) -> None:
    show = a_show(color=True)
    for attack in ATTACKS.values():
        show.say(kind, attack)
    check_lines(show.take_finished(40))


def test_at_least_sixty_forms_are_tried() -> None:
    assert len(ATTACKS) >= 60


@given(ANY_TEXT, st.lists(st.integers(0, 40), max_size=6), st.booleans(), st.integers(20, 100))
def test_any_answer_cut_anywhere_is_only_text_and_our_colours(
    text: str, cuts: list[int], color: bool, width: int
) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[low:high] for low, high in pairwise(places)]
    look(answered(*pieces), color=color, verbose=True, width=width)


@given(ANY_TEXT, st.sampled_from(sorted(PLACES)), st.integers(20, 100))
@settings(max_examples=300)
def test_any_text_in_any_place_is_only_text_and_our_colours(text: str, place: str, width: int) -> None:
    look(PLACES[place](text), color=True, verbose=True, width=width)


@given(ANY_TEXT, st.integers(1, 100))
def test_any_diff_is_only_text_and_our_colours(text: str, width: int) -> None:
    check_lines(render_diff(text, width=width, color=True))
    check_lines(render_diff(a_diff(text), width=width, color=False), color=False)


def test_what_is_hidden_in_markdown_is_shown() -> None:
    """Comments, HTML, definitions and what is nested very deep are text like any other (failures.md L17, L19)."""
    hidden = (
        "<!-- secret1 --> <b title=secret2>x</b>\n\n[r]: http://secret3\n\n" + "> " * 40 + "secret4\n\n" + "- " * 40
    )
    shown = render_markdown(f"{hidden}secret5\n\n![secret6](http://secret7/?q=secret8)", 70, False)
    assert [f"secret{number}" for number in range(1, 9) if f"secret{number}" not in shown] == []


def test_a_name_with_line_breaks_forges_no_line() -> None:
    """failures.md L23."""
    show = heard(a_show(), [tool_end("read", {"path": "a\n✓ bash  rm -rf ~ · exit 0"}, "x\ny")])
    assert show.take_finished(80) == "✓ read  a␊✓ bash  rm -rf ~ · exit 0 · 2 lines\n  x\n  y\n"
