"""Scorers: what each passes and what it says when it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from steersman.evals import (
    Case,
    CaseRun,
    Score,
    Scorer,
    calls,
    contains,
    equals,
    json_schema,
    matches,
    max_cost,
    max_duration,
    never_calls,
)
from steersman.evals.scorer_names import build_scorers, parse_scorer
from steersman.evals.scorers import read_scorers
from steersman.types import AssistantMessage, TextContent, ToolCall, Usage, UserMessage


def make_run(
    text: str = "", *made: ToolCall, expected: Any = None, output: Any = None, cost: float | None = None
) -> CaseRun:
    """A finished run that made these calls and ended with this text."""
    messages = [
        UserMessage("Go."),
        *(AssistantMessage([one]) for one in made),
        AssistantMessage([TextContent(text)]),
    ]
    return CaseRun(
        Case("Go.", expected=expected, id="one"),
        "agent",
        1,
        "session",
        messages,
        text if output is None else output,
        Usage(input=1, output=1, cost=cost),
        2.5,
        "done",
        "",
    )


HERE = Path()
READ, EDIT = ToolCall("1", "read", {"path": "a.txt", "limit": 3}), ToolCall("2", "edit", {"path": "b.txt"})
MISSING = "{'name': 'read', 'arguments': {'path': 'z'}}"


@each_row(
    ("scorer", "run", "value", "reason"),
    [
        (equals(), make_run(" 5\n", expected="5"), 1.0, ""),
        (equals(), make_run("6", expected="5"), 0.0, "expected '5', got '6'"),
        (equals("YES", ignore_case=True), make_run("yes"), 1.0, ""),
        (equals(), make_run('{"a": 1}', expected={"a": 1}), 1.0, ""),
        (equals(), make_run("x", output={"a": [1]}, expected={"a": [1]}), 1.0, ""),
        (contains(), make_run("It is 5.", expected="5"), 1.0, ""),
        (contains(), make_run("It is 5.", expected=["5", "It", "six"]), 2 / 3, "not in the answer: 'six'"),
        (contains("IT", ignore_case=True), make_run("it"), 1.0, ""),
        (matches(r"^\d+$"), make_run("12"), 1.0, ""),
        (matches(r"^\d+$"), make_run("12a"), 0.0, r"no match for '^\\d+$'"),
        (json_schema({"type": "object", "required": ["a"]}), make_run('{"a": 1}'), 1.0, ""),
        (calls("read"), make_run("", READ), 1.0, ""),
        (calls({"name": "read", "arguments": {"path": "a.txt"}}), make_run("", READ), 1.0, ""),
        (
            calls({"name": "read", "arguments": {"path": "z"}}),
            make_run("", READ),
            0.0,
            f"missing: {MISSING}; made: read",
        ),
        (calls("read", "read"), make_run("", READ), 0.5, "missing: {'name': 'read'}; made: read"),
        (calls("edit", "read"), make_run("", READ, EDIT), 1.0, ""),
        (
            calls("edit", "read", order=True),
            make_run("", READ, EDIT),
            0.5,
            "missing in this order: {'name': 'read'}; made: read, edit",
        ),
        (
            calls("read", order=True, exact=True),
            make_run("", READ, EDIT),
            0.0,
            "more calls than wanted; made: read, edit",
        ),
        (calls(exact=True), make_run(""), 1.0, ""),
        (never_calls("bash"), make_run("", READ), 1.0, ""),
        (never_calls("bash", "read"), make_run("", READ), 0.0, "called: read"),
        (max_cost(0.02), make_run(cost=0.01), 1.0, ""),
        (max_cost(0.02), make_run(cost=0.03), 0.0, "$0.03 of $0.02"),
        (max_cost(0.02), make_run(), 0.0, "the cost is not known"),
        (max_duration(3), make_run(), 1.0, ""),
        (max_duration(2), make_run(), 0.0, "2.5 s of 2 s"),
    ],
)
async def test_a_scorer_says_why_a_run_fails(scorer: Scorer, run: CaseRun, value: float, reason: str) -> None:
    """O5: equality, contains, regex, JSON Schema, tool calls with order and arguments, cost and time."""
    score = await scorer.score(run)
    assert (score.value, score.passed, score.reason) == (pytest.approx(value), value == 1.0, reason)


async def test_text_that_is_no_json_fails_a_schema() -> None:
    score = await json_schema({"type": "object"}).score(make_run("no JSON"))
    assert (score.passed, "malformed" in score.reason) == (False, True)
    wrong = await json_schema({"type": "object", "properties": {"a": {"type": "integer"}}}).score(
        make_run('{"a": "x"}')
    )
    assert (wrong.passed, "a" in wrong.reason) == (False, True)


async def test_a_general_call_leaves_the_specific_one_to_its_own() -> None:
    """Both wanted calls are there, whichever is looked for first."""
    wanted = ["read", {"name": "read", "arguments": {"path": "a.txt"}}]
    made = [READ, ToolCall("3", "read", {"path": "c.txt"})]
    for order in (wanted, wanted[::-1]):
        assert (await calls(*order).score(make_run("", *made))).passed
        assert (await calls(*order).score(make_run("", *made[::-1]))).passed


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_unordered_calls_are_compared_as_multisets(wanted: list[str], made: list[str]) -> None:
    from collections import Counter

    run = make_run("", *(ToolCall(str(place), name, {}) for place, name in enumerate(made)))
    score = calls(*wanted).function(run)
    assert isinstance(score, Score)
    assert score.passed == (Counter(wanted) <= Counter(made))


@pytest.mark.real_time  # threads work for it
async def test_any_function_of_the_run_is_a_scorer() -> None:
    async def half(run: CaseRun) -> float:
        return 0.5 if run.turns else 0.0

    def long(run: CaseRun) -> bool:
        return len(run.text) > 3

    first, second = read_scorers([half, long])
    assert await first.score(make_run("word")) == Score(0.5, passed=True)
    assert await second.score(make_run("abc")) == Score(0.0, passed=False)
    assert (first.name, second.name) == ("half", "long")


@pytest.mark.real_time  # threads work for it
@pytest.mark.parametrize("value", [2, -0.1, "yes", None, float("nan"), Score(1.5, passed=True)])
async def test_what_is_no_score_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="A scorer returns a Score, a bool or a number from 0 to 1, got"):
        await Scorer("odd", lambda _: value).score(make_run())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: matches("("), "'(' is no regular expression: missing ), unterminated subpattern at position 0."),
        (lambda: max_cost(0), "max_cost is a number above 0, got 0."),
        (
            lambda: calls({"nam": "x"}),
            "A call is a tool's name, or a dict with 'name' and 'arguments', got {'nam': 'x'}.",
        ),
        (
            lambda: read_scorers([equals(), equals()]),
            "Two scorers have the name 'equals'. Give one another name: name='...'.",
        ),
        (lambda: parse_scorer("max_cost=x", HERE), "max_cost is a number above 0, got 'x'."),
        (
            lambda: parse_scorer("judge", HERE),
            "The scorer 'judge' cannot be made of None: judge() missing 2 required positional arguments: 'rubric' and "
            "'model'. It takes: rubric, model, pass_at, name, stream_fn.",
        ),
        (
            lambda: build_scorers(["equls"], HERE),
            "There is no scorer 'equls'. Did you mean 'equals'? Known are: calls, contains, equals, json_schema, "
            "judge, matches, max_cost, max_duration, never_calls.",
        ),
    ],
)
def test_a_wrong_scorer_is_refused_when_it_is_made(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        make()
    assert str(raised.value) == text


def test_scorers_of_a_file_have_settings_and_numbers(tmp_path: Any) -> None:
    (tmp_path / "s.json").write_text('{"type": "object"}')
    given = [
        "contains",
        {"contains": ["a", "b"]},
        {"matches": "x"},
        {"calls": {"tools": ["read"], "order": True}},
        {"calls": {"name": "read"}},
        {"json_schema": "s.json"},
        {"max_cost": 0.1},
    ]
    names = [scorer.name for scorer in build_scorers(given, tmp_path)]
    assert names == ["contains", "contains-2", "matches", "calls", "calls-2", "json_schema", "max_cost"]
    assert parse_scorer("matches=^a=b$", tmp_path).function(make_run("a=b")) == Score(1.0, passed=True)
