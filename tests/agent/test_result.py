"""The result of a run: its output, and `RunFailed` where there is none."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest

import steersman
from steersman import Agent, RunFailed, RunResult, SteersmanError, Usage, tool
from steersman.testing import ScriptedModel, answer, call, error
from steersman.tools import ToolOutput
from steersman.types import AuthenticationError, errors


@dataclass
class Report:
    """A report."""

    words: int


@tool
def finish() -> ToolOutput:
    """End the run."""
    return ToolOutput("bye", terminate=True)


async def test_without_output_type_the_output_is_the_text() -> None:
    """api.md, rulings: `result.output` is the text for `str`."""
    result = await Agent(ScriptedModel("Hello.").model).run("Hi")
    assert (result.output, result.has_output, result.raise_for_error()) == ("Hello.", True, result)


async def test_with_output_type_the_output_is_the_value() -> None:
    """api.md: `result.output` is one, validated."""
    result = await Agent(ScriptedModel('{"words": 3}').model, output_type=Report).run("Hi")
    assert (result.output, result.text) == (Report(3), '{"words": 3}')
    assert result.raise_for_error().output == Report(3)


@pytest.mark.parametrize("output_type", [None, Report])
async def test_a_failed_run_has_no_output_and_a_text(output_type: Any) -> None:
    """api.md, rulings: reading it from a run that has none raises `RunFailed`; `result.text` never raises."""
    script = ScriptedModel(error("authentication"))
    result = await Agent(script.model, output_type=output_type).run("Hi")
    with pytest.raises(RunFailed, match="'error': scripted error: authentication") as raised:
        _ = result.output
    assert raised.value.result is result
    assert isinstance(raised.value, SteersmanError)
    assert isinstance(raised.value.__cause__, AuthenticationError)
    with pytest.raises(RunFailed, match="'error': scripted error: authentication"):
        result.raise_for_error()
    assert (result.text, result.has_output) == ("", False)


async def test_a_run_that_a_tool_ended_ended_well() -> None:
    """`raise_for_error` raises unless the run ended well."""
    script = ScriptedModel(answer("So.", call("finish")), answer(call("finish")))
    result = await Agent(script.model, tools=[finish]).run("Hi")
    assert (result.end_reason, result.output, result.raise_for_error()) == ("terminated", "So.", result)
    typed = await Agent(script.model, tools=[finish], output_type=Report).run("Hi")
    assert typed.raise_for_error() is typed
    with pytest.raises(RunFailed, match="'terminated'"):
        _ = typed.output


@pytest.mark.parametrize("reason", ["limit", "vetoed", "stopped", "rejected", "aborted", "error"])
def test_any_other_end_is_no_good_one(reason: Any) -> None:
    """`raise_for_error` raises unless the run ended well."""
    result = RunResult([], Usage(), reason, "because")
    for read in (result.raise_for_error, lambda: result.output):
        with pytest.raises(RunFailed, match=f"'{reason}': because"):
            read()


async def test_an_output_may_be_none() -> None:
    """A value is a value."""
    optional: Any = int | None
    result = await Agent(ScriptedModel('{"value": null}').model, output_type=optional).run("Hi")
    assert (result.has_output, result.output) == (True, None)


async def test_results_can_be_copied_pickled_compared_and_replaced() -> None:
    """A result is a value."""
    script = ScriptedModel('{"words": 3}', error("authentication"), "Hello.")
    agent = Agent(script.model, output_type=Report)
    good, bad = await agent.run("Hi"), await agent.run("Hi")
    text = await agent.variant(output_type=None).run("Hi")
    for result in (good, bad, text):
        for same in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result), replace(result)):
            assert same == result
            assert same.has_output == result.has_output
            assert repr(same) == repr(result)
    assert replace(good, detail="x").output == Report(3)
    assert replace(text, end_reason="error").has_output is False
    failed = RunFailed("no", bad)
    assert pickle.loads(pickle.dumps(failed)).result == bad


def test_the_error_is_where_a_user_looks_for_it() -> None:
    """api.md: `steersman` and `steersman.types`."""
    assert steersman.RunFailed is errors.RunFailed


async def test_a_result_can_get_another_output() -> None:
    """A program may put its own value in: for tests, and after checking it once more."""
    result = await Agent(ScriptedModel('{"words": 3}').model, output_type=Report).run("Hi")
    for value in (Report(4), None, "text"):
        changed = result.with_output(value)
        assert (changed.output, changed.has_output, changed.messages) == (value, True, result.messages)
        assert replace(changed, detail="more").output == value
        assert pickle.loads(pickle.dumps(copy.copy(changed))) == changed
    assert result.output == Report(3)
    made: RunResult[int] = RunResult([], Usage(), "done").with_output(5)
    assert made.output == 5
