"""Hooks of a project: they run after edits too, in the sandbox of `bash`, and can do no more than a command of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.command import Place, environment

from steersman import Agent
from steersman.cli.arguments import parse
from steersman.cli.exits import UserError
from steersman.cli.setup.hook_commands import HookCommands
from steersman.cli.setup.hook_process import HookFailed
from steersman.cli.setup.hook_sandbox import HookSandbox
from steersman.cli.setup.settings import HookSettings, Seam, Settings
from steersman.cli.setup.settings_parser import parse_settings
from steersman.cli.setup.startup import start_agent
from steersman.team.task import task_tool
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import builtin_tools
from steersman.tools.confine.sandbox import Confinement, confinement
from steersman.types.content import ToolCall
from steersman.types.messages import ToolResultMessage

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def _need_sandbox() -> None:
    if not confinement().holds_names:
        pytest.skip("the sandbox of this machine does not protect .steersman, or there is none")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in (".git", ".steersman/hooks"):
        (folder / name).mkdir(parents=True)
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")
    return folder


def _hook(at: Seam, command: str, *tools: str, timeout: float = 30.0) -> HookSettings:
    return HookSettings(at, command, tools, timeout, of_project=True)


async def _run(project: Path, commands: HookCommands, *calls: ToolCall) -> list[str]:
    """What the model reads of these calls."""
    model = ScriptedModel(*(answer(each) for each in calls), "Done.")
    tools = [tool for tool in builtin_tools(project) if tool.name in ("list", "write", "bash")]
    agent = Agent("scripted:echo", stream_fn=model, tools=tools, **commands.get_agent_options())
    agent.subscribe(commands.tell)
    result = await agent.prompt("Go.")
    await commands.close()
    return [message.text for message in result.messages if isinstance(message, ToolResultMessage)]


async def test_after_an_edit_a_hook_runs_what_is_there_and_that_is_confined(project: Path) -> None:
    reached: list[bool] = []

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(True)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    outside = project.parent / "escaped"
    places = [outside, ".git/config", ".steersman/hooks/new", ".steersman/config.toml", ".mcp.json", "sub/.mcp.json"]
    lint = f"""echo ran >> log
        mkdir -p sub; for each in {" ".join(map(str, places))} $HOME/.profile; do (echo evil > $each); done
        bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'; test $HOME != {os.environ["HOME"]} && echo own home >> log"""
    told: list[str] = []
    commands = HookCommands([_hook("after_tool", "(. ./lint.sh) 2> errors", "write")], project, told.append)
    async with server:
        wrote = call("write", path="lint.sh", content="echo linted >> log")
        read = await _run(project, commands, wrote, call("write", path="lint.sh", content=lint))
    assert read[0].startswith("Created"), read
    assert "it may have changed what is protected" in read[1]
    assert (project / "log").read_text() == "linted\nran\nown home\n"
    assert not outside.exists()
    assert reached == []
    assert [each for each in places[1:] if (project / each).exists()] == []
    assert told == []


async def test_a_gate_among_the_settings_decides_after_edits_and_tools_cannot_change_it(project: Path) -> None:
    gate = project / ".steersman/hooks/check"
    gate.write_text("""#!/bin/sh\ngrep -q '"tool":"list"' && { echo not that >&2; exit 2; }\nexit 0\n""")
    gate.chmod(0o755)
    commands = HookCommands([_hook("before_tool", ".steersman/hooks/check")], project, print)
    read = await _run(
        project,
        commands,
        call("write", path="a", content=""),
        call("write", path=".steersman/hooks/check", content="exit 0"),
        call("bash", command="echo exit 0 > .steersman/hooks/check; rm -rf .steersman; mv .steersman old"),
        call("list"),
    )
    assert read[0].startswith("Created")
    assert "protected" in read[1]
    assert "Read-only" in read[2] or "denied" in read[2] or "busy" in read[2]
    assert read[3] == "Denied by the hook '.steersman/hooks/check': not that"
    assert "not that" in gate.read_text()


async def test_the_hooks_judge_the_calls_of_sub_agents(project: Path) -> None:
    commands = HookCommands([_hook("before_tool", "cat >> told; echo >> told", "list")], project, print)
    model = ScriptedModel(answer(call("task", prompt="Look.")), answer(call("list")), "Seen.", "Done.")
    tools = [*builtin_tools(project), task_tool()]
    agent = Agent("scripted:echo", stream_fn=model, tools=tools, **commands.get_agent_options())
    assert (await agent.prompt("Go.")).text == "Done."
    assert json.loads((project / "told").read_text())["tool"] == "list"


async def test_a_gate_of_the_user_judges_what_a_hook_of_the_project_made_of_a_call(project: Path) -> None:
    change = """echo '{"arguments": {"path": "a", "content": "evil"}}'"""
    own = Settings(hooks=(HookSettings("before_tool", "grep -q evil && exit 2; exit 0"),))
    hooks = own.tighten(Settings(hooks=(_hook("before_tool", change),))).hooks
    (read,) = await _run(project, HookCommands(hooks, project, print), call("write", path="a", content="good"))
    assert read.startswith("Denied by the hook 'grep -q evil")
    assert not (project / "a").exists()


async def test_without_a_sandbox_a_gate_is_closed_and_the_user_is_told_of_the_others(project: Path) -> None:
    told: list[str] = []
    nothing = HookSandbox(project, lambda: Confinement("none", "Nothing is installed."))
    hooks = [_hook("before_tool", "touch ran", "list"), _hook("end", "touch ran")]
    (read,) = await _run(project, HookCommands(hooks, project, told.append, nothing), call("list"))
    why = (
        "no sandbox works on this machine, and hooks run in one; `steersman doctor` says what is missing (only in your "
        "own settings, with `sandbox = false`, it would run as you, without a sandbox)"
    )
    assert read == f"Denied by the hook 'touch ran': {why}"
    assert told == [f"The hook 'touch ran' said no: {why}.", f"The hook 'touch ran' failed: {why}"]
    assert not (project / "ran").exists()


def _list_commands() -> Sequence[bytes]:
    found: list[bytes] = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path("/proc", entry, "cmdline").read_bytes())
        except OSError:
            continue  # it ended meanwhile
    return found


async def test_what_a_hook_answers_and_how_it_fails(project: Path) -> None:
    sandbox = HookSandbox(project)
    long = f"7{os.getpid()}"
    for command, timeout, why in (
        (f"trap '' TERM; setsid sleep {long} & sleep {long}", 0.5, "it gave no answer within 0.5 s"),
        (f"sleep {long} & yes", 30.0, "it wrote more than 1,000,000 bytes"),
        ("yes >&2", 30.0, "it wrote more than 1,000,000 bytes"),
    ):
        with pytest.raises(HookFailed, match=why):
            await sandbox.run(_hook("end", command, timeout=timeout), b"{}")
    told = b'{"output": "%s"}\n' % (b"x" * 300_000)
    command = f"cat; cat /dev/stdin; echo no >&2; ls $TMPDIR $HOME; touch $TMPDIR/left ~/left; sleep {long} & exit 2"
    for _ in range(2):
        code, said, errors = await sandbox.run(_hook("end", command), told)
        assert (code, errors) == (2, "no\n")
        assert said.startswith(told.decode())
        assert "left" not in said
    assert [line for line in _list_commands() if long.encode() in line] == []


async def test_a_hook_is_trusted_with_the_settings_and_runs_what_its_script_is_now(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(place).items():
        monkeypatch.setenv(name, value)
    settings, script = place.project / ".steersman/config.toml", place.project / "scripts/check.sh"
    for path, text in ((settings, '[[hooks]]\nat = "prompt"\ncommand = "sh scripts/check.sh"\n'), (script, "exit 0")):
        path.parent.mkdir()
        path.write_text(text)
    asked: list[tuple[str, str]] = []

    async def agree(question: str, content: str) -> bool:
        asked.append((question, content))
        return True

    async def prompt() -> tuple[str, str]:
        options = parse(["-p", "Hello.", "--model", "scripted:echo"])
        async with start_agent(options, approve=None, notify=print, trust=agree, workspace=place.project) as started:
            result = await started.agent.prompt("Hello.")
        return result.end_reason, result.detail

    assert (await prompt())[0] == "done"
    warned = f"Trust {settings}, whose hooks run code of the project that is not judged, in the sandbox of bash?"
    assert asked == [(warned, settings.read_text())]
    outside = place.project.parent / "escaped"
    script.write_text(f"touch {outside} 2>/dev/null; echo not today >&2; exit 2")
    end, detail = await prompt()
    assert (end, len(asked), outside.exists()) == ("rejected", 1, False)
    assert "not today" in detail


def test_no_settings_of_a_project_switch_the_sandbox_off() -> None:
    for text in ("sandbox = 'off'", "[[hooks]]\nat = 'end'\ncommand = 'x'\nof_project = false",
                 "[[hooks]]\nat = 'end'\ncommand = 'x'\nsandbox = 'off'"):  # fmt: skip
        with pytest.raises(UserError):
            parse_settings(text.encode(), Path("config.toml"), project=True)
