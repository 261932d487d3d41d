"""What hooks of the user run from the workspace, outside the sandbox: nothing that tools wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rows import each_row

from steersman import Agent
from steersman.cli.exits import UserError
from steersman.cli.setup.hook_commands import HookCommands
from steersman.cli.setup.hook_files import MAX_FILES, HookFiles
from steersman.cli.setup.hook_process import run_hook
from steersman.cli.setup.settings import HookSettings
from steersman.cli.setup.settings_parser import parse_settings
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import builtin_tools
from steersman.tools.confine.workspace import Workspace
from steersman.types.messages import ToolResultMessage

pytestmark = pytest.mark.real_time
CHECK = "#!/bin/sh\n. scripts/words.sh\necho ran >> log\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {"scripts/check.sh": CHECK, "scripts/words.sh": "", "src/a.py": "", "Makefile": "all:\n"}.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return tmp_path / "project"


def _hook(command: str) -> HookSettings:
    return HookSettings("before_tool", command)


async def test_a_hook_that_a_tool_has_rewritten_does_not_run_and_closes_its_gate(project: Path) -> None:
    told: list[str] = []
    commands = HookCommands([_hook("sh scripts/check.sh")], project, told.append)
    model = ScriptedModel(
        answer(call("write", path="src/b.py", content="")),
        answer(call("write", path="scripts/words.sh", content="touch escaped")),
        answer(call("list")),
        answer(call("list")),
        "Done.",
    )
    tools = [tool for tool in builtin_tools(project) if tool.name in ("list", "write")]
    agent = Agent("scripted:echo", stream_fn=model, tools=tools, **commands.get_agent_options())
    result = await agent.prompt("Go.")
    read = [message.text for message in result.messages if isinstance(message, ToolResultMessage)]
    why = (
        "is not run, because 'scripts/words.sh' was changed, and it would run outside the sandbox. Look at it, then "
        "start `steersman` again, which takes it as it is"
    )
    assert read[2:] == [f"Denied by the hook 'sh scripts/check.sh': it {why}"] * 2
    assert told == [f"The hook 'sh scripts/check.sh' {why}."]
    assert (project / "log").read_text() == "ran\nran\n"
    assert not (project / "escaped").exists()


def _edit(name: str) -> Callable[[Path], object]:
    return lambda project: Workspace(project).replace(name, b"touch escaped")


def _turn_into_link(project: Path) -> None:
    (project / "scripts").rename(project / "old")
    (project / "scripts").symlink_to("old")
    Workspace(project).replace("src/a.py", b"")


def _remove_script(project: Path) -> None:
    (project / "scripts/check.sh").unlink()
    Workspace(project).replace("src/a.py", b"")


def _link_log(project: Path) -> None:
    (project / "log").symlink_to(project.parent / "profile")
    (project / "logs").symlink_to(project.parent)
    Workspace(project).replace("src/a.py", b"")


@pytest.mark.parametrize(
    ("command", "change", "runs"),
    [
        ("{}/scripts/check.sh", _edit("src/a.py"), True),
        ("{}/scripts/check.sh", _edit("scripts/check.sh"), False),
        ("{}/scripts/check.sh", _edit("scripts/more/new.sh"), False),
        ("{}/scripts/check.sh", _turn_into_link, False),
        ("{}/scripts/check.sh", _remove_script, False),
        ('sh "$PWD/scripts/check.sh"', _edit("scripts/check.sh"), False),
        ("cd scripts && ./check.sh", _edit("scripts/check.sh"), False),
        ("test ! -x ci/later.sh || ci/later.sh", _edit("ci/later.sh"), False),
        ("ruff check src > report.txt", _edit("src/a.py"), True),
        ("make all", _edit("Makefile"), True),
        ("cat >> log", _edit("src/a.py"), True),
        ("cat >> log", _link_log, False),
        ("cat >> 'logs/log'", _link_log, False),
    ],
)
def test_what_counts_as_a_change_of_what_a_hook_runs(
    project: Path, command: str, change: Callable[[Path], object], *, runs: bool
) -> None:
    hook = _hook(command.format(project))
    files = HookFiles([hook], project)
    assert files.explain_change(hook) is None
    change(project)
    assert (files.explain_change(hook) is None) is runs


def test_hooks_of_the_user_run_what_the_user_changes_and_not_what_tools_change(project: Path) -> None:
    script, make = _hook(f"{project}/scripts/check.sh"), _hook("make all")
    logging = _hook("cat >> log")
    files = HookFiles([script, make, logging], project)
    (project / "scripts/check.sh").write_text("exit 0")
    assert files.explain_change(script) is None
    Workspace(project).replace("src/a.py", b"")
    assert "was changed" in str(files.explain_change(script))
    assert files.explain_change(make) is None
    assert files.explain_change(logging) is None
    _link_log(project)
    assert "it writes to 'log', which leads elsewhere" in str(files.explain_change(logging))


def test_a_later_session_of_the_program_does_not_take_for_trusted_what_tools_changed(project: Path) -> None:
    script = _hook(f"{project}/scripts/check.sh")
    HookFiles([script], project)
    Workspace(project).replace("scripts/check.sh", b"touch escaped")
    files = HookFiles([script], project)
    assert "'scripts/check.sh' was changed" in str(files.explain_change(script))
    other = _hook(f"sh {project}/scripts/check.sh")
    assert "tools may have changed what it runs" in str(HookFiles([other], project).explain_change(other))


async def test_a_hook_finds_no_program_in_the_workspace(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{project}/bin:/usr/bin:/bin")
    (project / "bin").mkdir()
    for name in ("tidy", "cat"):
        (project / "bin" / name).write_text("#!/bin/sh\necho escaped")
        (project / "bin" / name).chmod(0o755)
    assert (await run_hook(_hook("tidy"), b"", project))[0] == 127
    assert await run_hook(_hook("cat"), b"told", project) == (0, "told", "")


def test_a_folder_with_more_files_than_are_watched_closes_the_hook(project: Path) -> None:
    for number in range(MAX_FILES):
        (project / f"scripts/{number}").touch()
    hook = _hook(f"{project}/scripts/check.sh")
    Workspace(project).replace("src/a.py", b"")
    assert "more than 200 files" in str(HookFiles([hook], project).explain_change(hook))


def test_a_script_is_found_however_its_path_is_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project.parent))
    (project / "check.py").touch()
    runs = ["$HOME/project/scripts/check.sh", 'sh "${HOME}/project/scripts/check.sh"', "$PWD/scripts/check.sh",
            "~/'project'/scripts/check.sh", "python3 ~/project/scripts", "python3 ~/project/check.py"]  # fmt: skip
    looks = "ls scripts; grep -c all Makefile; git -C ~/project status"
    hooks = [_hook(command) for command in (*runs, looks)]
    files = HookFiles(hooks, project)
    Workspace(project).replace("scripts/words.sh", b"more")
    assert [hook.command for hook in hooks if files.explain_change(hook) is None] == [looks]


def test_an_output_is_found_however_its_path_is_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project.parent))
    targets = ["log", "$PWD/log", '"${PWD}/log"', "$HOME/project/log", "~/'project'/log", "~/project/log"]
    hooks = [_hook(f"cat >> {target}") for target in targets]
    files = HookFiles(hooks, project)
    Workspace(project).replace("src/a.py", b"")
    assert [hook.command for hook in hooks if files.explain_change(hook) is not None] == []
    (project / "log").symlink_to(project.parent / "elsewhere")
    assert [hook.command for hook in hooks if files.explain_change(hook) is None] == []


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


async def test_a_hook_of_the_user_takes_no_module_of_python_from_the_folder(project: Path) -> None:
    (project / "json").mkdir()
    for name in ("__init__.py", "tool.py"):
        (project / "json" / name).write_text("open('escaped', 'w')")
    for command in ("python3 -m json.tool", "cat | python3 -B -c 'import json'"):
        code, _, errors = await run_hook(HookSettings("end", command), b"{}", project)
        assert code == 0, errors
    assert not (project / "escaped").exists()


@each_row("name", ["mcp:*", "bash(rm:*)", "read,write", ""])
def test_a_hook_for_a_pattern_of_tools_which_would_never_run_is_refused(name: str) -> None:
    text = f"[[hooks]]\nat = 'before_tool'\ncommand = '/x'\ntools = ['bash', '{name}']".encode()
    with pytest.raises(UserError, match="tools"):
        parse_settings(text, Path("config.toml"))
