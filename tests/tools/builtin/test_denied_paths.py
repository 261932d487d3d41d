"""`deny` rules with a path hold for what the tools open and list, not only for the text of the path (approval.md)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from steersman import Agent, Approval, Tool, tool
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import Workspace, builtin_tools
from steersman.tools.builtin.search_tool import search_tool
from steersman.types.content import ToolCall

SECRET = "canary-4321"
DENY = ["read(.env)", "read(vault/**)", "write(fixed.txt)", "edit(fixed.txt)"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("vault", "src", "sub"):
        (tmp_path / name).mkdir()
    for name in (".env", "sub/.env", "vault/key.txt"):
        (tmp_path / name).write_text(f"KEY={SECRET}\n")
    (tmp_path / "src/plain.txt").write_text("KEY=public\n")
    (tmp_path / "fixed.txt").write_text("as it was\n")
    links = {"way": ".env", "hop": "way", "src/door": "../vault", "there": "fixed.txt", "src/up": ".."}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


def ask(project: Path, *calls: ToolCall, tools: Sequence[Tool] = (), **settings: Any) -> list[str]:
    """What the model reads from the calls of one answer."""
    policy = Approval("bypass", deny=DENY, workspace=project)
    script = ScriptedModel(answer(*calls), "Done.")
    agent = Agent(script.model, tools=[*(tools or builtin_tools(project))], approval=policy, **settings)
    return [message.text for message in agent.run_sync("Look.").tool_results]


@pytest.mark.parametrize(
    "path",
    [".env", "way", "hop", "sub/.env", "vault/key.txt", "src/door/key.txt", "src/up/.env", "src/up/vault/key.txt"],
)
def test_what_may_not_be_read_is_not_read_through_a_link(project: Path, path: str) -> None:
    for words in ask(project, call("read", path=path), call("search", path=path, pattern="KEY")):
        assert SECRET not in words
        assert "enied by the rule 'read(" in words


def test_nor_is_it_found(project: Path) -> None:
    variants: list[dict[str, Any]] = [{}, {"ignored": True}, {"glob": ".env"}, {"path": "src/up"}]
    for settings in variants:
        [words] = ask(project, call("search", pattern="KEY", **settings))
        assert SECRET not in words
        assert "rule denies" in words
    [words] = ask(project, call("search", pattern="KEY"))
    assert "1: KEY=public" in words
    assert words.endswith("[Left out, because a rule denies to read it: 3.]")


def test_python_and_ripgrep_leave_out_the_same(project: Path) -> None:
    workspace = Workspace(project)
    found = [
        ask(project, call("search", pattern="KEY"), tools=[search_tool(workspace, ripgrep=ripgrep)])
        for ripgrep in (True, False)
    ]
    assert found[0] == found[1]


def test_nor_are_the_names_listed(project: Path) -> None:
    calls = [
        call("glob", pattern="**/*"),
        call("glob", pattern=".env"),
        call("glob", pattern="*/"),
        call("list"),
        call("list", path="sub"),
        call("list", path="vault"),
        call("list", path="src/door"),
        call("glob", pattern="*", path="vault"),
        call("read", path="."),
        call("read", path=".en"),
    ]
    for asked, words in zip(calls, ask(project, *calls), strict=True):
        named = words.replace("'read(.env)'", "").replace("'read(vault/**)'", "").replace(f"{asked.arguments}", "")
        for argument in map(str, asked.arguments.values()):
            named = named.replace(repr(argument), "")
        assert ".env" not in named, asked
        assert "vault" not in named, asked
        assert "key.txt" not in named, asked
    [words] = ask(project, call("list"))
    assert "way (a link to what a rule denies to read)" in words
    assert words.endswith("[Left out, because a rule denies to read it: 2.]")


@pytest.mark.parametrize("path", ["fixed.txt", "there", "src/up/fixed.txt", "./src/../there"])
def test_what_may_not_be_written_is_not_written_through_a_link(project: Path, path: str) -> None:
    calls = [call("write", path=path, content="new"), call("edit", path=path, edits=[{"old": "as it", "new": "AS IT"}])]
    for words in ask(project, *calls, call("read", path="fixed.txt")):
        assert "enied by the rule" in words or "as it was" in words or "needs approval" in words or "may match" in words
    assert (project / "fixed.txt").read_text() == "as it was\n"


def test_who_may_not_read_a_file_may_not_see_it_in_a_change(project: Path) -> None:
    calls = [call("edit", path="way", edits=[{"old": "KEY", "new": "X"}]), call("write", path="way", content="x")]
    for words in ask(project, *calls):
        assert "denied by the rule 'read(.env)'" in words
    assert SECRET in (project / ".env").read_text()


def test_a_link_that_is_made_between_judgement_and_call_does_not_help(project: Path) -> None:
    @tool(sequential=True)
    def link() -> str:
        """Make a link."""
        os.symlink(".env", project / "late")
        return "made"

    words = ask(project, call("link"), call("read", path="late"), tools=[link, *builtin_tools(project)])
    assert words[0] == "made"
    assert "denied by the rule 'read(.env)'" in words[1]


def test_what_is_denied_above_is_denied_to_a_sub_agent(project: Path) -> None:
    inner = Agent(ScriptedModel(call("read", path="way"), "I read nothing.").model, tools=builtin_tools(project))
    sub = inner.as_tool(name="helper", description="Help.")
    seen: list[str] = []
    script = ScriptedModel(call("helper", prompt="Read it."), "Done.")
    policy = Approval("bypass", deny=DENY, workspace=project)
    agent = Agent(script.model, tools=[sub], approval=policy)
    agent.subscribe(lambda event: seen.append(repr(event)))
    agent.run_sync("Look.")
    assert SECRET not in "".join(seen)


def test_without_such_a_rule_nothing_is_left_out(project: Path) -> None:
    script = ScriptedModel(answer(call("read", path="way"), call("list"), call("search", pattern=SECRET)), "Done.")
    agent = Agent(script.model, tools=builtin_tools(project), approval=Approval("bypass", deny=["bash(rm:*)"]))
    texts = [message.text for message in agent.run_sync("Look.").tool_results]
    assert SECRET in texts[0]
    assert ".env" in texts[1]
    assert texts[2].endswith("[3 matches in 3 files.]")
