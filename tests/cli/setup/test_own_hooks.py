"""Hooks of the user's own settings: in the sandbox of `bash` too, unless the settings say `sandbox = false`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.rows import each_row

from steersman import Agent
from steersman.cli.exits import UserError
from steersman.cli.setup.hook_commands import HookCommands
from steersman.cli.setup.hook_sandbox import HookSandbox
from steersman.cli.setup.settings import HookSettings, Seam, find_config_folder
from steersman.cli.setup.settings_parser import parse_settings
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import builtin_tools
from steersman.tools.confine.changed_folders import note_command
from steersman.tools.confine.sandbox import Confinement, confinement
from steersman.types.content import ToolCall
from steersman.types.messages import ToolResultMessage

pytestmark = pytest.mark.real_time
OUTSIDE = "`sandbox = false` beside it in your settings runs it as you, without a sandbox"
HINT = f" (it ran in the sandbox of `bash`, which may be why: {OUTSIDE})"
needs_sandbox = pytest.mark.skipif(confinement().kind == "none", reason="there is no sandbox on this machine")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project beneath a home folder, which also has scripts of the user, and a file that is none."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{sys.base_prefix}/bin:/usr/bin:/bin")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in ("project/scripts", "bin", ".config/steersman/hooks"):
        (home / name).mkdir(parents=True)
    for folder in ("bin", ".config/steersman/hooks", "project/scripts"):
        (home / folder / "check").write_text("#!/bin/sh\n. ${0%/*}/words\necho $ran ran >> log\n")
        (home / folder / "check").chmod(0o755)
        (home / folder / "words").write_text(f"ran={folder.partition('/')[0]}\n")
    (home / "notes").write_text("secret")
    return home / "project"


async def _run(project: Path, hooks: list[HookSettings], *calls: ToolCall, told: list[str] | None = None) -> list[str]:
    """What the model reads of these calls."""
    commands = HookCommands(hooks, project, (told if told is not None else []).append)
    model = ScriptedModel(*(answer(each) for each in calls), "Done.")
    tools = [tool for tool in builtin_tools(project) if tool.name in ("list", "write")]
    agent = Agent("scripted:echo", stream_fn=model, tools=tools, **commands.get_agent_options())
    agent.subscribe(commands.tell)
    result = await agent.prompt("Go.")
    await commands.close()
    return [message.text for message in result.messages if isinstance(message, ToolResultMessage)]


def _hook(command: str, at: Seam = "before_tool", *, sandbox: bool = True) -> HookSettings:
    return HookSettings(at, command, sandbox=sandbox)


@needs_sandbox
@pytest.mark.parametrize(
    "command",
    [
        "~/project/scripts/check",
        'sh "$HOME/pro"ject/scripts/check',
        "where=scripts; cd $where && exec ./check",
        "sh $(ls -d scr*/check)",
        "sh link/check",
        "eval 'sh scripts'/check",
    ],
)
async def test_what_a_tool_wrote_runs_confined_however_a_hook_names_it(project: Path, command: str) -> None:
    (project / "link").symlink_to("scripts")
    evil = f"echo tried >> {project}/log; touch {project.parent}/escaped; cat {project.parent}/notes >> {project}/log"
    wrote = call("write", path="scripts/words", content=evil)
    await _run(project, [_hook(f"({command}) 2> errors; true")], wrote, call("list"))
    assert "tried\n" in (project / "log").read_text()
    assert "secret" not in (project / "log").read_text()
    assert not (project.parent / "escaped").exists()


@needs_sandbox
async def test_scripts_of_the_user_are_found_and_the_rest_of_the_home_folder_is_not(project: Path) -> None:
    scripts = ["~/bin/check", '"$HOME/bin/check"', "~/.config/steersman/hooks/check"]
    assert await _run(project, [_hook(script) for script in scripts], call("list")) != []
    assert (project / "log").read_text() == "bin ran\nbin ran\n.config ran\n"
    for command in ("cat ~/notes", "echo x > ~/bin/check", "cd ~/.config && echo x > steersman/y"):
        (read,) = await _run(project, [_hook(command)], call("list"))
        assert read.startswith(f"Denied by the hook {command!r}: ")
        assert read.endswith(HINT)
    assert not (find_config_folder() / "y").exists()


@needs_sandbox
async def test_usual_hooks_work_in_the_sandbox(project: Path) -> None:
    (project / "a.py").write_text("x  =  1\n")
    tidy = "sed -i 's/  */ /g' a.py && cat a.py >&2"
    grep = """grep -q '"prompt":"Go' && echo '{"add": "Be brief."}'"""
    cache = 'mkdir -p "$XDG_CACHE_HOME/x" && test -w "$TMPDIR" && python3 -c "import json, sys; json.load(sys.stdin)"'
    hooks = [_hook(tidy, "after_tool"), _hook(grep, "prompt"), _hook(cache)]
    assert await _run(project, hooks, call("list")) == ["scripts/\na.py (8 bytes)"]
    assert (project / "a.py").read_text() == "x = 1\n"


@needs_sandbox
@each_row(
    ("command", "why", "is_due_to_sandbox"),
    [
        ("exit 3", "it ended with exit code 3", False),
        ("echo no such words >&2; exit 2", "no such words", False),
        ("no-such-program 2>&-", "it ended with exit code 127", True),
        ("echo Permission denied >&2; exit 1", "it ended with exit code 1: Permission denied", True),
        ("echo 'Read-only file system' >&2; exit 2", "Read-only file system", True),
    ],
)
async def test_a_failure_that_may_be_due_to_the_sandbox_says_what_to_do(
    project: Path, command: str, why: str, *, is_due_to_sandbox: bool
) -> None:
    told: list[str] = []
    read = await _run(project, [_hook(command)], call("list"), call("list", path="."), told=told)
    assert read == [f"Denied by the hook {command!r}: {why}{HINT if is_due_to_sandbox else ''}"] * 2
    assert told == ([f"The hook {command!r} said no: {why}{HINT}."] if is_due_to_sandbox else [])
    (outside,) = await _run(project, [_hook(command, sandbox=False)], call("list"), told=told)
    assert outside == f"Denied by the hook {command!r}: {why}"
    assert len(told) == is_due_to_sandbox


@needs_sandbox
async def test_a_hook_that_only_tells_and_fails_in_the_sandbox_says_what_to_do(project: Path) -> None:
    told: list[str] = []
    await _run(project, [_hook("exit 1", "end"), _hook("exit 1", "end", sandbox=False)], told=told)
    failed = "The hook 'exit 1' failed: it ended with exit code 1"
    assert sorted(told) == [failed, failed + HINT]


async def test_a_hook_without_sandbox_runs_as_the_user_and_one_of_a_project_never_does(project: Path) -> None:
    nothing = HookSandbox(project, lambda: Confinement("none", "Nothing is installed."))
    command = "cat ~/notes > ~/read"
    denied = "no sandbox works on this machine, and hooks run in one; `steersman doctor` says what is missing ("
    for hook, why in (
        (_hook(command), denied + OUTSIDE),
        (HookSettings("before_tool", command, of_project=True, sandbox=False), denied + "only in your own settings"),
    ):
        answer = await HookCommands([hook], project, print, nothing).before_tool_execution(call("list"))
        assert f"Denied by the hook {command!r}: {why}" in str(answer)
        assert not (project.parent / "read").exists()
    own = HookCommands([_hook(command, sandbox=False)], project, print, nothing)
    assert await own.before_tool_execution(call("list")) is None
    assert (project.parent / "read").read_text() == "secret"


@needs_sandbox
async def test_a_folder_that_cannot_be_confined_closes_the_gate_and_says_what_to_do(project: Path) -> None:
    answer = await HookCommands([_hook("true")], Path("/"), print).before_tool_execution(call("list"))
    assert "it could not be run in the sandbox: The whole file system" in str(answer)
    assert OUTSIDE in str(answer)
    outside = HookCommands([_hook("true", sandbox=False)], project, print)
    assert await outside.before_tool_execution(call("list")) is None


@pytest.mark.parametrize("sandbox", [pytest.param(True, marks=needs_sandbox), False])
async def test_a_hook_finds_no_program_in_the_workspace(
    project: Path, monkeypatch: pytest.MonkeyPatch, *, sandbox: bool
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([f"{project}/bin", f"{project.parent}/bin", "/usr/bin", "/bin"]))
    (project / "bin").mkdir()
    for name in ("tidy", "cat"):
        (project / "bin" / name).write_text("#!/bin/sh\ntouch escaped")
        (project / "bin" / name).chmod(0o755)
    (read,) = await _run(project, [_hook("tidy", sandbox=sandbox)], call("list"))
    assert "it ended with exit code 127" in read
    assert "Denied" not in (await _run(project, [_hook("cat >&2 && check", sandbox=sandbox)], call("list")))[0]
    assert (project / "log").read_text() == "bin ran\n"
    assert not (project / "escaped").exists()


async def test_a_hook_finds_no_program_in_another_workspace_of_the_program(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an editor has the agent work in several folders."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tidy").write_text("#!/bin/sh\ntouch escaped")
    (tmp_path / "other" / "tidy").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/other:/usr/bin:/bin")
    note_command(str(tmp_path / "other"))
    assert "it ended with exit code 127" in (await _run(project, [_hook("tidy", sandbox=False)], call("list")))[0]
    assert not (project / "escaped").exists()


@pytest.mark.parametrize("sandbox", [pytest.param(True, marks=needs_sandbox), False])
async def test_a_hook_takes_no_module_of_python_from_the_folder(project: Path, *, sandbox: bool) -> None:
    (project / "json").mkdir()
    for name in ("__init__.py", "tool.py"):
        (project / "json" / name).write_text("open('escaped', 'w')")
    hooks = [_hook("python3 -m json.tool", sandbox=sandbox), _hook("cat | python3 -c 'import json'", sandbox=sandbox)]
    (read,) = await _run(project, [hooks[1]], call("list"))
    assert "Denied" not in read
    (read,) = await _run(project, [hooks[0]], call("list"))
    assert "its answer has 'arguments'" in read or "its answer has 'at'" in read
    assert not (project / "escaped").exists()


@each_row(
    "command",
    ["python3 -mbase64 -h", "python3 -W ignore -c 'import base64'", "python3 -X dev -mbase64 -h",
     "echo 'import base64' | python3", "echo 'import base64' | python3 -",
     "python3 -ubc 'import base64'", "python3 ~/ok.py; python3 -c 'import base64'", "${PYTHON:-python3} -mbase64 -h",
     "~/bin/decide", "sh ~/bin/decide", "decide"],
)  # fmt: skip
async def test_a_hook_takes_no_module_of_python_from_the_folder_however_python_is_started(
    project: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "escaped").unlink(missing_ok=True)  # of the row before
    (project / "base64.py").write_text("open('escaped', 'w')")
    (project.parent / "ok.py").touch()
    monkeypatch.setenv("PATH", f"{project.parent}/bin{os.pathsep}{os.environ['PATH']}")
    (project.parent / "bin/decide").write_text("#!/bin/sh\npython3 -c 'import base64'\n")
    (project.parent / "bin/decide").chmod(0o755)
    (read,) = await _run(project, [_hook(f"({command}) >&2", sandbox=False)], call("list"))
    assert "Denied" not in read
    assert not (project / "escaped").exists()


@each_row(
    "command",
    ["python3 ~/own/check.py", "python3 -u -W ignore '{home}/own/check.py'", "python3 -X dev $HOME/own/check.py",
     "python3 ~/own/check.py; python3 -c ''", "sh -c 'exec ~/own/check'", "{home}/own/check"],
)  # fmt: skip
async def test_a_script_of_python_in_a_hook_finds_the_modules_beside_it(project: Path, command: str) -> None:
    folder = project.parent / "own"
    folder.mkdir(exist_ok=True)
    (folder / "check.py").write_text("import words; print(words.__file__, file=open('log', 'w'))")
    (folder / "words.py").touch()
    (folder / "check").write_text(f"#!{sys.executable}\n" + (folder / "check.py").read_text())
    (folder / "check").chmod(0o755)
    command = command.replace("{home}", str(project.parent))
    await _run(project, [_hook(command, sandbox=False)], call("list"))
    assert (project / "log").read_text() == f"{folder}/words.py\n"


def test_only_the_settings_of_the_user_run_a_hook_without_the_sandbox() -> None:
    text = b"[[hooks]]\nat = 'end'\ncommand = 'x'\nsandbox = false"
    assert parse_settings(text, Path("config.toml")).hooks == (HookSettings("end", "x", sandbox=False),)
    why = "hooks 1: sandbox.*only your own settings may set this, not a project's: its hooks run in the sandbox"
    with pytest.raises(UserError, match=why):
        parse_settings(text, Path("config.toml"), project=True)
    confined = text.replace(b"false", b"true")
    assert parse_settings(confined, Path("config.toml"), project=True).hooks[0].sandbox
    with pytest.raises(UserError, match=r"hooks 1: sandbox.*expected true or false"):
        parse_settings(text.replace(b"false", b"'off'"), Path("config.toml"))


@each_row(
    "command",
    ["./check", "scripts/check", "FOO=1 bin/x --all", "true && ./x", "sh check.sh", "bash -e ci/x.sh", "/bin/sh x.sh",
     "python3 tools/x.py", ". ./env", "cat | ./x", "timeout 5 ./x",
     "exec env -i nice -n 5 ./x", "if ! ./x; then exit 2; fi", "{ ./x; }", "env python3 x.py"],
)  # fmt: skip
def test_a_relative_program_in_the_settings_of_the_user_is_refused(command: str) -> None:
    text = f"[[hooks]]\nat = 'end'\ncommand = '''{command}'''".encode()
    with pytest.raises(UserError, match="is a relative path"):
        parse_settings(text, Path("config.toml"))
    assert parse_settings(text, Path("config.toml"), project=True).hooks[0].command == command


@each_row(
    "command",
    ["~/bin/check", "/opt/check a/b", "sh ~/x.sh", "sh -c 'echo a/b'", "notify-send a/b", "cat > log/x", "$HOME/bin/x",
     "python3 -m json.tool", "jq -e .tool"],
)  # fmt: skip
def test_other_commands_in_the_settings_of_the_user_are_taken(command: str) -> None:
    text = f"[[hooks]]\nat = 'end'\ncommand = '''{command}'''".encode()
    assert parse_settings(text, Path("config.toml")).hooks == (HookSettings("end", command),)


@each_row("name", ["mcp:*", "bash(rm:*)", "read,write", ""])
def test_a_hook_for_a_pattern_of_tools_which_would_never_run_is_refused(name: str) -> None:
    text = f"[[hooks]]\nat = 'before_tool'\ncommand = '/x'\ntools = ['bash', '{name}']".encode()
    with pytest.raises(UserError, match="tools"):
        parse_settings(text, Path("config.toml"))
