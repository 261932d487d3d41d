"""What a run looks like, event by event."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.cli.render.runs import (
    Clock,
    a_show,
    answer_end,
    answer_start,
    answered,
    end,
    heard,
    plain,
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

from steersman import Agent
from steersman.cli.render import RunDisplay, compare_texts, describe_cost, render_diff
from steersman.testing import ScriptedModel, answer, call
from steersman.types.content import TextContent
from steersman.types.errors import ErrorInfo
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    ApprovalRequested,
    ApprovalResolved,
    CompactionEnded,
    CompactionStarted,
    CustomEvent,
    InputRejected,
    ModelFallback,
    RetryScheduled,
)
from steersman.types.messages import AssistantMessage, EndReason, user_message
from steersman.types.stream import Reset, TextEnd, ThinkingDelta, ThinkingEnd, ToolCallDelta, ToolCallStart
from steersman.types.usage import Usage

HEAD = ("run", 0, 0.0)
CHANGES = "--- a/poem\n+++ b/poem\n@@ -1,2 +1,2 @@\n roses\n-red\n+blue\n"


def test_a_whole_run() -> None:
    clock = Clock()
    show = a_show(clock=clock)
    show.say("user", "Make it blue.")
    heard(
        show,
        [
            start("gpt-x"),
            turn(0),
            *said(user_message("Make it blue.")),
            *answered(ThinkingDelta("It is a poem."), ThinkingEnd(), "Let me look.", TextEnd()),
            tool_start("read", {"path": "/home/me/project/poem"}),
            tool_end(
                "read", {"path": "/home/me/project/poem"}, "roses\nred\n", first_line=1, last_line=2, total_lines=2
            ),
            tool_start("edit", {"path": "poem"}),
            tool_end("edit", {"path": "poem"}, "Edited.", diff=CHANGES, duration=0.25),
            tool_start("bash", {"command": "make test"}),
            tool_end(
                "bash", {"command": "make test"}, "1 failed\n\n[exit code 2]", error=True, exit_code=2, duration=75
            ),
            turn(1),
            *said(user_message("And the violets?")),
            *answered("It is **blue** now.\n", model="gpt-x-2026"),
        ],
    )
    clock.now = 81.0
    show.show_event(end(usage=Usage(input=200, output=1234, cache_read=1000, cost=0.0123)))
    assert show.take_finished(60) == (
        "❯ Make it blue.\n"  # noqa: RUF001
        "\n"
        "  It is a poem.\n"
        "\n"
        "Let me look.\n"
        "\n"
        "✓ read  poem · 2 lines\n"
        "✓ edit  poem · +1 −1 · 0.2 s\n"  # noqa: RUF001
        "  @@ -1,2 +1,2 @@\n"
        "   roses\n"
        "  -red\n"
        "  +blue\n"
        "✗ bash  make test · exit 2 · 1 min 15 s\n"
        "  1 failed\n"
        "\n"
        "❯ And the violets?\n"  # noqa: RUF001
        "\n"
        "It is blue now.\n"
        "\n"
        "1,200 in (1,000 cached) · 1,234 out · $0.012 · 1 min 21 s ·\n"
        "gpt-x-2026\n"
    )
    assert show.take_finished(60) == ""
    assert show.render_live(60, 10) == ""
    assert not show.changed


def test_what_changes_is_live_and_what_is_done_is_finished() -> None:
    clock = Clock()
    show = heard(a_show(clock=clock), [start(), answer_start()])
    assert (show.take_finished(40), show.render_live(40, 9)) == ("", "⠋ waiting for the model · 0 s")
    heard(
        show,
        update(
            ThinkingDelta(
                "Hm, let me think about this for quite a while, and then for a while, and then for a while longer. "
            )
        ),
    )
    assert show.render_live(40, 9) == (
        "  a while, and then for a while, and\n  then for a while longer.\n\n⠋ thinking · 0 s"
    )
    heard(show, update("First.\n\nSec", "ond"))
    assert show.take_finished(40) == (
        "  Hm, let me think about this for quite\n  a while, and then for a while, and…\n\nFirst.\n"
    )
    clock.now = 2.35
    assert show.render_live(40, 9) == "\nSecond\n\n⠸ answering · 2 s"
    heard(show, update(TextEnd(), ToolCallStart(1, "c1", "write"), ToolCallDelta("x" * 3000, 1)))
    assert show.take_finished(40) == "\nSecond\n"
    assert show.render_live(40, 9) == ("\n⠸ write  (3,000 characters so far)\n\n⠸ waiting for the model · 2 s")
    heard(show, [answer_end(), tool_start("bash", {"command": "seq 9"})])
    heard(show, [tool_update("bash", {"type": "output", "text": "".join(f"{n}\n" for n in range(9))})])
    clock.now = 4.0
    assert show.render_live(40, 9) == ("\n⠋ bash  seq 9 · 1 s\n  4\n  5\n  6\n  7\n  8\n\n⠋ working · 4 s")
    assert show.render_live(40, 3) == "  8\n\n⠋ working · 4 s"
    assert show.render_live(40, 1) == "⠋ working · 4 s"
    assert show.render_live(40, 0) == ""


def test_it_has_changed_when_something_happened_or_the_spinner_went_on() -> None:
    clock = Clock()
    show = a_show(clock=clock)
    assert not show.changed
    show.show_event(start())
    assert show.changed
    show.render_live(40, 9)
    assert not show.changed
    clock.now = 0.1
    assert show.changed
    show.render_live(40, 9)
    heard(show, [answer_start(), *update("word")])
    assert show.changed


def test_an_answer_that_begins_again_says_so_where_some_of_it_was_printed() -> None:
    show = heard(a_show(), [start(), answer_start(), *update("One.\n\nTwo")])
    assert show.take_finished(40) == "One.\n"
    heard(show, [retry(), *update(Reset())])
    assert show.take_finished(40) == "\n(the answer starts over)\n↻ retrying in 3 s: overloaded\n"
    assert show.render_live(40, 9) == "\n⠋ retrying in 3 s: overloaded · 0 s"
    heard(show, update("Three."))
    assert show.render_live(40, 9) == "\nThree.\n\n⠋ answering · 0 s"


def test_an_answer_that_begins_again_unseen_leaves_nothing() -> None:
    show = heard(a_show(), [start(), answer_start(), *update(ThinkingDelta("Hm."), "On", Reset(), "Two.", TextEnd())])
    assert show.take_finished(40) == "Two.\n"


def test_what_is_said_in_the_middle_of_an_answer_is_shown_between_its_blocks() -> None:
    show = heard(a_show(), [start(), answer_start(), *update("One.\n\nTwo")])
    assert show.take_finished(40) == "One.\n"
    show.say("notice", "By the way.")
    show.say("error", "And this failed.")
    assert show.take_finished(40) == "\nBy the way.\n✗ And this failed.\n"
    assert show.render_live(40, 9) == "\nTwo\n\n⠋ answering · 0 s"


READ: dict[str, Any] = {"first_line": 5, "last_line": 9, "total_lines": 1000}
CALLS: dict[str, AgentEvent] = {
    "✓ todo  look · 0 of 1 done.": tool_end("todo", {"items": [{"text": "look"}]}, "0 of 1 done."),
    "✓ todo · 1 of 1 done.": tool_end("todo", {"items": [{"text": "look", "status": "done"}]}, "1 of 1 done."),
    "✓ list  . · 2 entries": tool_end("list", {"path": "."}, "a\nb", entries=2),
    "✓ search  x in src · 1 match in 1 file": tool_end("search", {"pattern": "x", "path": "src"}, matches=1, files=1),
    "✓ search  x · 0 matches": tool_end("search", {"pattern": "x"}, matches=0, files=9),
    "✓ read  a · lines 5 to 9 of 1,000": tool_end("read", {"path": "a"}, **READ),
    "✓ read  a · empty": tool_end("read", {"path": "a"}, total_lines=0),
    "✓ write  a · created, +1\n  +x": tool_end("write", {"path": "a", "content": "x"}, created=True, diff="+x\n"),
    "✓ write  a · nothing changed": tool_end("write", {"path": "a", "content": "x"}, created=False, diff=""),
    '✓ add  "a":1,"b":2 · 3': tool_end("add", {"a": 1, "b": 2}, "3"),
    "✓ now": tool_end("now"),
    "✓ fetch  http://a.example · 3 lines\n  a\n  b\n  c": tool_end("fetch", {"url": "http://a.example"}, "a\nb\nc"),
    "✗ bash  x · timed out · 0.0 s": tool_end("bash", {"command": "x"}, exit_code=None, timed_out=True, error=True),
    "⊘ bash  x · denied\n  No.": tool_end("bash", {"command": "x"}, "No.", error=True, status="denied"),
    "✗ x · not a valid call\n  Unknown.": tool_end("x", {}, "Unknown.", error=True, status="invalid"),
    "⊘ x · interrupted": tool_end("x", error=True, status="interrupted"),
    "✗ bash  a␊b · exit 1 · 0.0 s\n  red": tool_end(
        "bash", {"command": "a\nb"}, "\x1b[31mred\x1b[0m", error=True, exit_code=1
    ),
}


@each_row(("line", "event"), CALLS.items())
def test_a_call_is_one_line_and_what_matters(line: str, event: AgentEvent) -> None:
    assert heard(a_show(), [event]).take_finished(60) == f"{line}\n"


def test_colours_tell_what_went_well_from_what_did_not() -> None:
    show = heard(
        a_show(color=True), [tool_end("a"), tool_end("b", error=True), tool_end("c", error=True, status="denied")]
    )
    assert show.take_finished(60) == (
        "\x1b[32m✓\x1b[0m \x1b[1ma\x1b[0m\n"
        "\x1b[31m✗\x1b[0m \x1b[1mb\x1b[0m\n"
        "\x1b[33m⊘\x1b[0m \x1b[1mc\x1b[0m\x1b[2m · denied\x1b[0m\n"
    )


def test_a_long_diff_is_cut() -> None:
    changes = "--- a/x\n+++ b/x\n@@ -0,0 +1,42 @@\n" + "".join(f"+line {number}\n" for number in range(42))
    lines = render_diff(changes, width=40, color=True).split("\n")
    assert lines[:2] == ["\x1b[2m@@ -0,0 +1,42 @@\x1b[0m", "\x1b[32m+line 0\x1b[0m"]
    assert lines[-2:] == ["\x1b[32m+line 28\x1b[0m", "\x1b[2m… 13 more lines\x1b[0m"]
    assert len(lines) == 31
    assert len(render_diff(changes, width=40, color=False, max_lines=None).split("\n")) == 43


def test_two_texts_are_compared() -> None:
    assert render_diff(compare_texts("a\nb\n", "a\nc"), width=40, color=False) == "@@ -1,2 +1,2 @@\n a\n-b\n+c"


@pytest.mark.parametrize(
    ("reason", "detail", "shown"),
    [
        ("done", "", ""),
        ("error", "The key is wrong.", "✗ Failed: The key is wrong.\n"),
        ("limit", "3 turns", "⊘ Stopped at a limit: 3 turns\n"),
        ("aborted", "operation aborted", "⊘ Interrupted\n"),
        ("rejected", "not this", "⊘ Refused: not this\n"),
    ],
)
def test_how_it_ended_is_said_where_it_matters(reason: EndReason, detail: str, shown: str) -> None:
    assert heard(a_show(), [end(reason, detail)]).take_finished(60) == shown


def test_a_prompt_that_is_refused_is_told_once() -> None:
    refused, queued = (InputRejected("loop", 1, 0.0, "not this", source) for source in ("prompt", "steering"))
    show = heard(a_show(), [start(), refused, end("rejected", "not this")])
    assert show.take_finished(60) == "⊘ Refused: not this\n\n0.0 s · gpt-x\n"
    assert heard(a_show(), [start(), queued]).take_finished(60) == "⊘ Input rejected: not this\n"


def test_a_no_of_the_user_is_not_explained_to_them() -> None:
    refused = tool_end(
        "bash", {"command": "rm x"}, "Denied: not approved. Do not repeat it.", error=True, status="denied"
    )
    for by, shown in (("function", ""), ("ada", "  Denied: not approved. Do not repeat it.\n")):
        asked = ApprovalRequested(*HEAD, "a1", "c1", "bash", {}, "", "why", None)
        show = heard(a_show(), [start(), asked, ApprovalResolved(*HEAD, "a1", "denied", by, ""), refused])
        assert show.take_finished(60).endswith(f"⊘ bash  rm x · denied\n{shown}")


def test_a_hook_is_not_waited_for_as_for_a_model() -> None:
    show, seen = a_show(clock=Clock()), list[str]()
    for event in (start(), turn(0), *answered(ToolCallStart(0, "c1", "bash")), turn(1)):
        heard(show, [event])
        seen.append(show.render_live(40, 2).split("\n")[-1])
    assert [line[2:] for line in dict.fromkeys(seen)] == ["working · 0 s", "waiting for the model · 0 s"]
    assert (seen[0], seen[-2]) == ("⠋ working · 0 s",) * 2


def test_a_run_that_is_interrupted_leaves_what_it_had_said() -> None:
    show = heard(a_show(), [start(), answer_start(), *update("Half a sen"), tool_start("bash"), end("aborted")])
    assert show.take_finished(60) == "Half a sen\n\n⊘ Interrupted\n\n0.0 s · gpt-x\n"
    assert show.render_live(60, 9) == ""


def test_an_answer_without_text_is_told_as_empty() -> None:
    """A run that ends without a word looks as if something had got lost."""
    ends = [AgentEnd(*HEAD, [AssistantMessage([TextContent(text)])], Usage(), "done", "") for text in (" \n", "Said.")]
    shown = [heard(a_show(), [start(), end]).take_finished(60) for end in ends]
    assert shown == ["The answer of the model is empty.\n\n0.0 s · gpt-x\n", "0.0 s · gpt-x\n"]


def test_retries_other_models_and_compaction_are_told() -> None:
    events: list[AgentEvent] = [
        ModelFallback(*HEAD, "a", "b", ErrorInfo("rate_limit", "slow down")),
        CompactionEnded(*HEAD, 9, 3, 9000, 3000, reduced=True),
        CompactionEnded(*HEAD, 9, 9, 9000, 9000, reduced=False, error="no model"),
        CustomEvent(*HEAD, "session_degraded", {"reason": "the disk is full"}),
        *answered("x", stop_reason="length"),
        *said(user_message("The prompt itself is not repeated.")),
        turn(1),
        *said(user_message("You are repeating yourself.", synthetic=True)),
    ]
    assert heard(a_show(), events).take_finished(80) == (
        "↻ a failed (rate limit); asking b instead\n"
        "The conversation was compacted: 9,000 to 3,000 tokens\n"
        "The conversation could not be compacted: no model\n"
        "The session cannot be saved at the moment: the disk is full\n"
        "\n"
        "x\n"
        "\n"
        "The answer was truncated: it reached its token limit.\n"
        "You are repeating yourself.\n"
    )
    show = heard(a_show(), [start(), CompactionStarted(*HEAD, 9000, 9)])
    assert show.render_live(80, 9) == "⠋ compacting the conversation (9 messages) · 0 s"


def test_a_call_shows_the_end_of_its_output_and_all_of_it_when_asked(tmp_path: Path) -> None:
    """The count is that of what the tool wrote, not of what the model got."""
    whole = tmp_path / "output"
    whole.write_text("".join(f"{number}\n" for number in range(1, 3001)))
    got = "1\n[... shortened ...]\n" + "".join(f"{number}\n" for number in range(2990, 3001))
    events = [
        tool_end("bash", {"command": "true"}, "(no output)", exit_code=0, lines=0),
        tool_end("bash", {"command": "seq 1 3000"}, got, exit_code=0, lines=3000, output_file=str(whole)),
    ]
    show = heard(a_show(), events)
    assert show.take_finished(60) == (
        "✓ bash  true · exit 0 · 0.0 s\n"
        "✓ bash  seq 1 3000 · exit 0 · 0.0 s · 3,000 lines\n"
        "  … 2,995 lines above\n  2996\n  2997\n  2998\n  2999\n  3000\n"
    )
    show.expand()
    lines = show.take_finished(60).split("\n")
    assert lines[:3] == ["", "✓ bash  seq 1 3000 · exit 0 · 0.0 s · 3,000 lines", "  1"]
    assert lines[-2:] == ["  3000", ""]
    show.expand()
    both = show.take_finished(60)
    assert both.startswith("✓ bash  true · exit 0 · 0.0 s\n  (no output)\n✓ bash  seq 1 3000")
    whole.unlink()  # it goes with the session; then there is what the model got
    show.expand()
    assert show.take_finished(60) == "\nThere is no more output to show.\n"
    heard(show, [tool_end("bash", {"command": "x"}, "\x1b[31ma\x1b[0m\x1b]0;b\x07\rc", exit_code=0, lines=1)])
    show.take_finished(60)
    show.expand()
    assert show.take_finished(60).endswith("\n  a␛]0;b␇\n  c\n")


def test_a_wait_is_counted_down_and_a_server_that_failed_is_not_called_overloaded() -> None:
    clock = Clock()
    show = a_show(clock=clock)
    failed = ErrorInfo("overloaded", "The server had an error.", status=500)
    heard(show, [start(), RetryScheduled(*HEAD, 1, 2.5, failed)])
    assert show.take_finished(80) == "↻ retrying in 2.5 s: server error (HTTP 500)\n"
    for now, left in ((0.0, 3), (1.0, 2), (2.4, 1), (9.0, 0)):
        clock.now = now
        assert f"retrying in {left} s: server error (HTTP 500)" in show.render_live(80, 9)
    heard(show, update("Back."))
    assert "retrying" not in show.render_live(80, 9)
    # Inside a stream there is no status: the words of the server say whether it is overloaded.
    for words, body, told in (
        ("The server had an error (server_error)", None, "server error"),
        ("The model crashed.", '{"error":{"type":"server_error","message":"The model crashed."}}', "server error"),
        ("Overloaded", None, "overloaded"),
        ("Try again later.", '{"error":{"type":"overloaded_error","message":"Try again later."}}', "overloaded"),
    ):
        heard(show, [RetryScheduled(*HEAD, 1, 2.5, ErrorInfo("overloaded", f"x:y: {words}", body=body))])
        assert show.take_finished(80).endswith(f"retrying in 2.5 s: {told}\n")


def test_answers_that_came_from_elsewhere_are_told() -> None:
    """server.md S7: the user of the terminal has not seen them."""
    events: list[AgentEvent] = [
        ApprovalResolved(*HEAD, "1", "approved", "function", ""),
        ApprovalResolved(*HEAD, "2", "denied", "loop", "operation aborted"),
        ApprovalResolved(*HEAD, "3", "expired", "loop", "no answer within 5s"),
        ApprovalResolved(*HEAD, "4", "approved", "ada", ""),
        ApprovalResolved(*HEAD, "5", "denied", "ada\x1b[31m", "not today"),
    ]
    assert heard(a_show(), events).take_finished(80) == (
        "⊘ Denied: no answer within 5s\nApproved by ada\nDenied by ada␛[31m: not today\n"
    )


def test_everything_is_shown_to_who_asks_for_it() -> None:
    events = [*answered(ThinkingDelta("word " * 40)), tool_end("bash", {}, "a\nb\nc", exit_code=0), retry()]
    show = heard(a_show(verbose=True), events)
    assert show.take_finished(80) == (
        "  word word word word word word word word word word word word word word word\n"
        "  word word word word word word word word word word word word word word word\n"
        "  word word word word word word word word word word\n"
        "\n"
        "✓ bash · exit 0 · 0.0 s\n"
        "  a\n"
        "  b\n"
        "  c\n"
        "\n"
        "↻ retrying in 3 s: overloaded (too many of us)\n"
    )


async def test_a_sub_agent_is_shown_one_step_further_in() -> None:
    helper = Agent(ScriptedModel(answer(call("look", {"path": "a"})), "Found it.").model, tools=[look])
    agent = Agent(ScriptedModel(answer(call("helper", prompt="Find it.")), "Thanks.").model, tools=[
        helper.as_tool("helper", "Finds things.")
    ])  # fmt: skip
    show = a_show()
    live: list[str] = []
    async for event in agent.prompt("Go."):
        show.show_event(event)
        live.append(show.render_live(60, 20))
    assert show.take_finished(60).split("\n\n")[0] == (
        "↳ helper  Find it.\n  ✓ look  a · a thing\n✓ helper  Find it. · Found it."
    )
    assert any("⠋ helper  Find it.\n  ⠋ look  a\n" in text for text in live)
    assert any("⠋ helper  Find it.\n  Found it.\n" in text for text in live)


def look(path: str) -> str:
    """Look at something."""
    return "a thing"


@given(st.text(), st.text(), st.integers(20, 60), st.booleans())
@example("fourteen wide!", "", 20, False)
@example("thirteen wide", "\n" * 9, 20, False)
def test_no_line_is_wider_than_the_window(name: str, text: str, width: int, verbose: bool) -> None:
    show: RunDisplay = a_show(verbose=verbose)
    events: list[Any] = [
        start(),
        tool_start(name, {"path": text}),
        tool_update(name, {"type": "output", "text": text}),
        tool_end(name, {"path": text}, text, error=True),
        tool_end(name, {"path": text}, text, diff=f"+{text}", duration=3.3),
        *answered(ThinkingDelta(text)),
        retry(),
        end("error", text),
    ]
    for event in events:
        show.show_event(event)
        for line in [*show.render_live(width, 12).split("\n"), *show.take_finished(width).split("\n")]:
            assert cell_len(line) <= width, line


@pytest.mark.parametrize(
    ("usage", "line"),
    [
        (Usage(), "gpt-x"),
        (Usage(input=10, output=5), "10 in · 5 out · gpt-x"),
        (Usage(input=10, output=5, cost=12.5), "10 in · 5 out · $12.50 · gpt-x"),
        (Usage(input=10, output=5, cost=0.00012, partial=True), "10 in · 5 out · at least $0.00012 · gpt-x"),
        (Usage(input=1, output=5, cache_write=1000), "1,001 in · 5 out · gpt-x"),
    ],
)
def test_what_a_run_took_in_one_line(usage: Usage, line: str) -> None:
    assert describe_cost(usage, model="gpt-x") == line


def test_the_name_of_a_model_is_text_as_any_other() -> None:
    assert describe_cost(Usage(), seconds=125, model="a\x1b[2J\nb") == "2 min 5 s · a␛[2J␊b"


def test_colours_add_nothing_but_colours() -> None:
    events = [start(), *answered("# a\n\nb `c`"), tool_end("edit", {"path": "x"}, "", diff=CHANGES), end("error", "no")]
    coloured, bare = heard(a_show(color=True), events).take_finished(50), heard(a_show(), events).take_finished(50)
    assert plain(coloured) == bare.replace("# a", "a").replace("`c`", "c")
    assert "\x1b" not in bare


def test_a_very_long_answer_is_taken_in_steps_and_what_follows_it_comes_last() -> None:
    show = a_show()
    show.say("answer", "Some words of a very long answer.\n\n" * 10_000)
    show.say("notice", "And that is all.")
    steps: list[str] = []
    while show.page.waiting:
        steps.append(show.take_finished(80))
    whole = "".join(steps)
    assert (len(steps) > 20, max(map(len, steps)) < 40_000) == (True, True)
    assert whole == "Some words of a very long answer.\n\n" * 10_000 + "And that is all.\n"
    assert (show.take_finished(80), show.changed) == ("", True)
    show.render_live(80, 10)
    assert not show.changed


def test_a_very_long_thought_is_taken_in_steps() -> None:
    thought = "Hm, but is it?\n" * 10_000
    show = heard(a_show(verbose=True), [start(), *answered(ThinkingDelta(thought), ThinkingEnd())])
    steps: list[str] = []
    while show.page.waiting:
        steps.append(show.take_finished(80))
    assert (len(steps) > 5, max(map(len, steps)) < 60_000) == (True, True)
    assert "".join(steps) == "  Hm, but is it?\n" * 10_000


def test_a_very_long_name_or_progress_costs_no_frame_much() -> None:
    """Each frame would measure all of it."""
    long = "\u6f22" * 300_000
    arriving = heard(a_show(), [start(), turn(0), *update(ToolCallStart(0, "c0", long))])
    told = tool_update("t", {"type": "progress", "text": long})
    for show in (
        arriving,
        heard(a_show(), [start(), tool_start(long)]),
        heard(a_show(), [start(), tool_start("t"), told]),
    ):
        tracemalloc.start()
        try:
            shown = show.render_live(80, 10)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (len(shown) < 400, peak < 300_000) == (True, True)


def test_a_very_long_call_is_expanded_in_steps() -> None:
    many = 60_000
    written = tool_end("bash", {}, "word\n" * many, exit_code=0)
    changed = tool_end("write", {"path": "a"}, "ok", diff=f"@@ -0,0 +1,{many} @@\n" + "+word\n" * many)
    for event in (written, changed):
        show = heard(a_show(), [start(), event])
        show.take_finished(80)
        show.expand()
        steps: list[str] = []
        while show.page.waiting:
            steps.append(show.take_finished(80))
        assert (len(steps) > 5, max(map(len, steps)) < 100_000) == (True, True)
        assert "".join(steps).count("word\n") == many


def test_a_thought_that_is_half_drawn_ends_there_when_the_answer_starts_over() -> None:
    thought = "\u6f22" * 15_000
    show = heard(a_show(verbose=True), [start(), answer_start(), *update(ThinkingDelta(thought), ThinkingEnd())])
    first = show.take_finished(4)
    heard(show, update(Reset(), "Two.", TextEnd()))
    rest = ""
    while show.page.waiting:
        rest += show.take_finished(80)
    assert first == "  \u6f22\n" * 10_000
    assert rest == "\n(the answer starts over)\n\nTwo.\n"
