"""The approval policy and the built-in tools: real files, a real shell, and nothing happens that was not allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.loop.tool_calls.test_approval import Person
from tests.loop.toolbox import agent_of, told
from tests.policy.shell.bypasses import ALLOW, CORPUS

from steersman import Approval
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.builtin import builtin_tools

pytestmark = pytest.mark.real_time


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


async def statuses(workspace: Path, *calls: Any, **options: Any) -> list[str]:
    tools = builtin_tools(workspace, sandbox="off")
    agent, _ = agent_of(ScriptedModel(answer(*calls), "ok"), tools, **options)
    return [status for *_, status in told((await agent.run("go")).messages)]


async def test_only_what_is_allowed_changes_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "a.txt").write_text("one")
    policy = Approval(allow="write(src/**),bash(cat:*),bash(echo:*)", deny="read(secret.txt)", workspace=tmp_path)
    person = Person(*[False] * 9)
    outcomes = await statuses(
        tmp_path,
        call("read", path="a.txt"),
        call("read", path="./secret.txt"),
        call("write", path="src/new.txt", content="new"),
        call("write", path="src/../a.txt", content="changed"),
        call("edit", path="a.txt", edits=[{"old": "one", "new": "two"}]),
        call("bash", command="cat a.txt | cat && echo done"),
        call("bash", command="cat a.txt > b.txt"),
        call("bash", command="cat a.txt; touch c.txt"),
        call("bash", command="echo $(touch d.txt)"),
        approval=policy,
        approve=person,
    )
    assert outcomes == ["completed", "denied", "completed", "denied", "denied", "completed", *["denied"] * 3]
    assert files(tmp_path) == {"a.txt": "one", "src/new.txt": "new"}
    assert [name for name, *_ in person.asked] == ["write", "edit", "bash", "bash", "bash"]


async def test_what_only_reads_goes_through_in_plan_mode_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    outcomes = await statuses(
        tmp_path,
        call("read", path="a.txt"),
        call("list", path="."),
        call("glob", pattern="*.txt"),
        call("search", pattern="one"),
        call("write", path="b.txt", content="x"),
        call("edit", path="a.txt", edits=[{"old": "one", "new": "two"}]),
        call("bash", command="cat a.txt"),
        call("fetch", url="https://example.com/"),
        approval=Approval("plan", allow="bash(cat:*)", workspace=tmp_path),
        approve=Person(*[True] * 9),
    )
    assert outcomes == ["completed"] * 4 + ["denied"] * 4
    assert files(tmp_path) == {"a.txt": "one"}


async def test_of_the_whole_corpus_nothing_is_run(tmp_path: Path) -> None:
    """failures.md L4, L5: without an approver, each of them is answered and none of them starts."""
    calls = [call("bash", command=command) for command in CORPUS if command.strip()]
    outcomes = await statuses(
        tmp_path, *calls, approval=Approval(allow=ALLOW, workspace=tmp_path), max_tool_calls=len(calls)
    )
    assert outcomes == ["denied"] * len(calls)
    assert files(tmp_path) == {}
