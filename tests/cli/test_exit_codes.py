"""Exit codes: 0 done, 1 error, 2 usage, 3 limit, 4 refused or denied, and those of signals."""

from __future__ import annotations

from typing import get_args

import pytest
from tests.cli.command import Place, assert_calm, run_command

from steersman.cli.exits import get_exit_code
from steersman.provider.scripted.script import answer, call, error, text
from steersman.testing.servers import OpenAIChatServer
from steersman.types.content import TextContent
from steersman.types.errors import ErrorKind
from steersman.types.messages import AssistantMessage, EndReason, StopReason, ToolResultMessage
from steersman.types.result import RunResult
from steersman.types.usage import Usage


def test_every_end_of_a_run_has_its_code() -> None:
    codes = {reason: get_exit_code(RunResult([], Usage(), reason)) for reason in get_args(EndReason)}
    assert codes == {
        "done": 0,
        "terminated": 0,
        "limit": 3,
        "stopped": 3,
        "vetoed": 4,
        "rejected": 4,
        "aborted": 130,
        "error": 1,
    }


@pytest.mark.parametrize(
    ("stop_reason", "kind", "code"),
    [("refusal", None, 4), ("error", "refused", 4), ("error", "authentication", 1), ("error", None, 1)],
)
def test_a_model_that_declines_is_no_error_of_ours(stop_reason: StopReason, kind: ErrorKind | None, code: int) -> None:
    said = AssistantMessage([TextContent("No.")], stop_reason=stop_reason, error_kind=kind)
    assert get_exit_code(RunResult([said], Usage(), "error")) == code


def test_a_refusal_that_was_got_over_does_not_count() -> None:
    declined = AssistantMessage([TextContent("No.")], stop_reason="refusal")
    answered = AssistantMessage([TextContent("Yes.")])
    assert get_exit_code(RunResult([declined, answered], Usage(), "done")) == 0


def test_a_run_that_stops_at_a_denied_call_is_denied_and_one_that_goes_on_is_done() -> None:
    def show_result(id: str) -> ToolResultMessage:
        return ToolResultMessage([TextContent("...")], tool_call_id=id, tool_name="bash")

    asked, said = AssistantMessage([]), AssistantMessage([TextContent("I may not.")])
    stopped = RunResult([asked, show_result("a"), show_result("b"), said], Usage(), "done")
    went_on = RunResult([asked, show_result("a"), asked, show_result("b"), said], Usage(), "done")
    assert [get_exit_code(stopped, denied) for denied in ({"a"}, {"b"}, set[str]())] == [4, 4, 0]
    assert [get_exit_code(went_on, denied) for denied in ({"a"}, {"b"}, {"a", "b"})] == [0, 4, 4]
    assert get_exit_code(RunResult([said], Usage(), "done"), {"a"}) == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [([], 4), (["--allowed-tools", "bash"], 0), (["--permission-mode", "plan"], 0)],
    ids=["denied", "allowed", "plan"],
)
def test_the_command_says_by_its_code_that_a_call_was_denied(
    place: Place, server: OpenAIChatServer, options: list[str], code: int
) -> None:
    server.say(answer(call("bash", command="touch made")), "So be it.")
    done = run_command(["-p", "Make it.", *options], place=place, server=server)
    assert (done.code, done.text) == (code, "So be it.\n")
    assert ("To allow it: --allowed-tools 'bash(touch made)'" in done.errors) is (code == 4)
    assert (place.project / "made").exists() is (options == ["--allowed-tools", "bash"])


def test_a_line_says_how_each_run_went_and_the_code_how_the_last_did(place: Place, server: OpenAIChatServer) -> None:
    server.say(error("refused"), answer(text("Now"), call("list", path=".")), answer("Cut of", stop_reason="length"))
    server.say(error("authentication"))
    orders = b"".join(b'{"type":"prompt","content":"%d"}\n' % number for number in range(4))
    options = ["-p", "--input-format", "stream-json", "--max-turns", "1"]
    done = run_command(options, place=place, server=server, stdin=orders)
    _, refused, limit, cut, failed = done.errors.splitlines()
    assert "scripted error: refused" in refused
    assert limit.startswith("steersman: a limit was reached: ")
    assert "cut at the token limit" in cut
    assert "scripted error: authentication" in failed
    # What was said on the way to a tool is no answer.
    assert (done.code, done.text) == (1, "Cut of\n")
    assert_calm(done)


def test_a_budget_is_kept_by_the_prices_a_model_usually_has(place: Place, server: OpenAIChatServer) -> None:
    spent = Usage(input=1_000_000, output=1_000)
    server.say(answer(call("list", path="."), usage=spent), "Never said.")
    options = ["-p", "Look around.", "--model", "openai-chat:gpt-4o", "--max-budget-usd", "0.10"]
    done = run_command(options, place=place, server=server)
    assert done.code == 3
    assert "a limit was reached: " in done.errors
    assert done.stdout == b""
