"""An editor drives the command: questions about tool calls come out as events, answers go in as lines."""

from __future__ import annotations

import json
from subprocess import PIPE
from typing import Any

import pytest
from tests.cli.command import Done, Place, Started, run_command, spawn

from steersman.provider.scripted.script import answer, call
from steersman.testing.servers import OpenAIChatServer
from steersman.types.events import ApprovalRequested, ApprovalResolved, ToolExecutionEnd

DRIVEN = ["-p", "--input-format", "stream-json", "--output-format", "stream-json"]


def questions(started: Started, count: int) -> list[dict[str, Any]]:
    """The questions so far, once there are that many."""
    heard = started.wait_for('"type":"approval_requested"', times=count)
    lines = [json.loads(line) for line in heard.split(b"\n")[:-1] if line]
    found = [line for line in lines if line["type"] == "approval_requested"]
    # The last line may not be complete yet.
    return found if len(found) >= count else questions(started, count)


def statuses(done: Done) -> list[str]:
    """What became of the calls, in the order in which they ended."""
    return [event.result.details["status"] for event in done.events if isinstance(event, ToolExecutionEnd)]


def resolutions(done: Done) -> list[tuple[str, str, str]]:
    """The answers, as they were told."""
    return [(event.decision, event.by, event.reason) for event in done.events if isinstance(event, ApprovalResolved)]


TWO = "two\n@@ -0,0 +1 @@\n+2\n\\ No newline at end of file"


def test_an_editor_approves_one_call_and_denies_another(place: Place, server: OpenAIChatServer) -> None:
    """server.md S7; api.md, Rulings: the command is asked by events and answered by lines."""
    server.say(answer(call("bash", command="echo one > one"), call("write", path="two", content="2")), "As you like.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send_line(type="prompt", content="Go")
        (first,) = questions(started, 1)
        assert (first["tool_name"], first["preview"]) == ("bash", "echo one > one")
        started.send_line(type="approve", id=first["approval_id"])
        _, second = questions(started, 2)  # a command runs alone, so the next call is asked about after it
        assert (second["tool_name"], second["preview"], second["deadline"]) == ("write", TWO, None)
        assert second["args"] == {"path": "two", "content": "2"}
        started.send_line(type="deny", id=second["approval_id"], reason="Not that one")
        started.wait_for('"agent_end"')
        started.hang_up()
        done = started.wait()
    assert (done.code, done.stderr) == (0, b"")
    assert resolutions(done) == [("approved", "stdin", ""), ("denied", "stdin", "Not that one")]
    assert ((place.project / "one").read_text(), (place.project / "two").exists()) == ("one\n", False)
    results = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "tool"]
    assert str(results[1]).startswith("Denied: Not that one. ")


def test_questions_about_calls_side_by_side_are_open_at_once(place: Place, server: OpenAIChatServer) -> None:
    """server.md S7: an editor shows them all, and answers in any order."""
    server.say(answer(*[call("write", path=name, content=name) for name in "abc"]), "Done.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send_line(type="prompt", content="Go")
        asked = questions(started, 3)
        for question in reversed(asked):
            kind = "deny" if question["args"]["path"] == "b" else "approve"
            started.send_line(type=kind, id=question["approval_id"])
        started.wait_for('"agent_end"')
        started.hang_up()
        done = started.wait()
    assert sorted(statuses(done)) == ["completed", "completed", "denied"]
    assert sorted(path.name for path in place.project.iterdir() if len(path.name) == 1) == ["a", "c"]


def test_an_answer_for_good_ends_the_questions_about_that_call(place: Place, server: OpenAIChatServer) -> None:
    server.say(call("bash", command="true"), call("bash", command="true"), "Done.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send_line(type="prompt", content="Go")
        (asked,) = questions(started, 1)
        started.send_line(type="approve", id=asked["approval_id"], remember=True)
        started.wait_for('"agent_end"')
        started.hang_up()
        done = started.wait()
    assert (statuses(done), len(resolutions(done))) == (["completed", "completed"], 1)


def test_a_question_without_an_answer_expires_where_the_caller_sets_a_limit(
    place: Place, server: OpenAIChatServer
) -> None:
    """server.md S8: never a silent wait; the `approve_timeout` of the library."""
    server.say(call("bash", command="echo one > one"), "So be it.")
    with spawn([*DRIVEN, "--approval-timeout", "0.05"], place=place, server=server, stdin=PIPE) as started:
        started.send_line(type="prompt", content="Go")
        (asked,) = questions(started, 1)
        started.wait_for('"agent_end"')
        started.hang_up()
        done = started.wait()
    assert asked["deadline"] <= asked["timestamp"] + 0.05
    assert (statuses(done), resolutions(done)) == (["denied"], [("expired", "loop", "no answer within 0.05s")])
    assert not (place.project / "one").exists()


def test_at_the_end_of_the_input_open_and_later_questions_are_denied(place: Place, server: OpenAIChatServer) -> None:
    """server.md S8: never a silent wait."""
    server.say(call("bash", command="true"), call("write", path="a", content=""), "So be it.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send_line(type="prompt", content="Go")
        questions(started, 1)
        started.hang_up()
        done = started.wait()
    assert (done.code, statuses(done)) == (4, ["denied", "denied"])
    assert resolutions(done) == [
        ("denied", "loop", "the last subscriber that could answer has gone"),
        ("denied", "loop", "there is no approver"),
    ]
    assert "bash was denied because it needs approval. To allow it: --allowed-tools" in done.errors


@pytest.mark.parametrize(
    "options",
    [
        ["-p", "Go", "--output-format", "stream-json"],
        ["-p", "Go"],
        ["-p", "Go", "--input-format", "stream-json"],
        ["-p", "Go", "--input-format", "stream-json", "--output-format", "json"],
    ],
    ids=["text in", "text in and out", "text out", "json out"],
)
def test_what_cannot_be_answered_is_denied_at_once(place: Place, server: OpenAIChatServer, options: list[str]) -> None:
    """api.md, Rulings: only with stream-json on both sides; else who should answer would not see the question."""
    server.say(call("bash", command="true"), "So be it.")
    with spawn(options, place=place, server=server, stdin=PIPE) as started:
        started.wait_for("needs approval", "stderr")
        started.hang_up()
        done = started.wait()
    assert (done.code, "bash was denied because it needs approval" in done.errors) == (4, True)
    if options[-1] == "stream-json" and "--input-format" not in options:
        assert [type(event) for event in done.events if "approval" in event.type] == [
            ApprovalRequested,
            ApprovalResolved,
        ]


def test_an_abort_takes_a_question_back_and_a_late_answer_is_ignored(place: Place, server: OpenAIChatServer) -> None:
    """loop.md T12"""
    server.say(call("bash", command="true"), "Never heard.")
    with spawn(DRIVEN, place=place, server=server, stdin=PIPE) as started:
        started.send_line(type="prompt", content="Go")
        (asked,) = questions(started, 1)
        started.send_line(type="abort")
        started.wait_for('"agent_end"')
        started.send_line(type="approve", id=asked["approval_id"])
        started.hang_up()
        done = started.wait()
    assert (done.code, resolutions(done)) == (130, [("denied", "loop", "operation aborted")])
    asked_id = asked["approval_id"]
    assert done.errors == f"steersman: ignored an answer: the question {asked_id!r} is already resolved\n"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no id": ({"type": "approve"}, "malformed line of the input: 'approve' needs 'id': the 'approval_id' of an"),
    "an empty id": ({"type": "deny", "id": ""}, "malformed line of the input: 'deny' needs 'id'"),
    "a number as id": ({"type": "approve", "id": 3}, "malformed line of the input: Expected `str | null`, got `int`"),
    "no text as reason": ({"type": "deny", "id": "x", "reason": 3}, "malformed line of the input: Expected `str`"),
    "an unknown id": ({"type": "approve", "id": "x"}, "ignored an answer: there is no question with the id 'x'"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_answer_that_cannot_be_used_is_told_and_changes_nothing(
    place: Place, server: OpenAIChatServer, name: str
) -> None:
    server.say("Hello.")
    order, words = BAD[name]
    stdin = json.dumps(order).encode() + b'\n{"type":"prompt","content":"Go"}\n'
    done = run_command(DRIVEN, place=place, server=server, stdin=stdin)
    assert (done.code, done.errors.count("\n")) == (0, 1)
    assert words in done.errors
