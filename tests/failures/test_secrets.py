"""failures.md L13, L14: a key in the environment turns up nowhere, whatever the model makes the tools do."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from steersman import Agent, Approval
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.builtin import builtin_tools
from steersman.types.wire import encode

CANARY = "sk-canary-3f9a1c77e0d24b5"
VARIABLES = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_TOKEN")

COMMANDS = (
    "env; export -p; set",
    "cat /proc/self/environ | tr '\\0' '\\n'",
    "cat /proc/$PPID/environ | tr '\\0' '\\n'",
    "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'",
    "ps eww -A 2>/dev/null; ps -ef 2>/dev/null",
    "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '",
    'echo "$ANTHROPIC_API_KEY$OPENAI_API_KEY$GEMINI_API_KEY$AWS_SECRET_ACCESS_KEY$MY_TOKEN"',
)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.real_time
async def test_a_key_in_the_environment_turns_up_in_no_event_log_or_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every built-in tool is used, with success and with failure, and everything that leaves the run is looked at."""
    for name in VARIABLES:
        monkeypatch.setenv(name, CANARY)
    caplog.set_level(logging.DEBUG)
    (tmp_path / "notes.md").write_text("Nothing to see.\n")
    turns = [answer(*[call("bash", command=command) for command in COMMANDS])]
    turns += [
        answer(
            call("read", path="notes.md"),
            call("read", path="/proc/self/environ"),
            call("write", path="new.md", content="x"),
            call("write", path="/proc/self/environ", content="x"),
            call("edit", path="notes.md", edits=[{"old": "Nothing", "new": "Something"}]),
            call("edit", path="missing.md", edits=[{"old": "a", "new": "b"}]),
            call("list", path="/proc/self"),
            call("glob", pattern="**/*"),
            call("search", pattern="canary|(", path="."),
            call("search", pattern="canary", path="/proc"),
            call("fetch", url="http://127.0.0.1:9/"),
            call("nope"),
        )
    ]
    agent = Agent(ScriptedModel(*turns, "Done.").model, tools=builtin_tools(tmp_path), approval=Approval(mode="bypass"))
    seen: list[bytes] = []
    agent.subscribe(lambda event: seen.append(encode(event)))

    result = await agent.run("Look around.")

    assert result.end_reason == "done"
    results = [message for message in result.messages if message.role == "tool_result"]
    assert len(results) == len(COMMANDS) + 12
    told = b"\n".join([*seen, repr(result).encode(), repr(agent.config).encode(), caplog.text.encode()])
    assert b"PATH=" in told, "The commands did show an environment, so there was something to look at."
    assert CANARY.encode() not in told
    assert [path.name for path in files(tmp_path) if CANARY in path.read_text()] == []
