"""What hooks run from the workspace, outside the sandbox: only what the user has seen, and nothing that tools wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.command import Place, environment
from tests.rows import each_row

from steersman import Agent
from steersman.cli.arguments import parse
from steersman.cli.exits import UserError
from steersman.cli.setup.hook_commands import HookCommands, run_hook
from steersman.cli.setup.hook_files import MAX_FILES, HookFiles
from steersman.cli.setup.settings import HookSettings
from steersman.cli.setup.settings_parser import parse_settings
from steersman.cli.setup.startup import start_agent
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


def _hook(command: str, *, of_project: bool = True) -> HookSettings:
    return HookSettings("before_tool", command, of_project=of_project)


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
        "is not run, because 'scripts/words.sh' was changed, and it would run outside the sandbox. To see and trust it "
        "as it is now, start `steersman` again in this folder, on a terminal"
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


def _remove_script(project: Path) -> None:
    (project / "scripts/check.sh").unlink()


def _edit_in_subfolder(project: Path) -> None:
    Workspace(project / "src").replace("a.mk", b"")


def _link_log(project: Path) -> None:
    (project / "log").symlink_to(project.parent / "profile")
    (project / "logs").symlink_to(project.parent)
    Workspace(project).replace("src/a.py", b"")


@pytest.mark.parametrize(
    ("command", "change", "runs"),
    [
        ("scripts/check.sh", _edit("src/a.py"), True),
        ("scripts/check.sh", _edit("scripts/check.sh"), False),
        ("scripts/check.sh", _edit("scripts/more/new.sh"), False),
        ("scripts/check.sh", _turn_into_link, False),
        ("scripts/check.sh", _remove_script, False),
        ('sh "$PWD/scripts/check.sh"', _edit("scripts/check.sh"), False),
        ("cd scripts && ./check.sh", _edit("scripts/check.sh"), False),
        ("test ! -x ci/later.sh || ci/later.sh", _edit("ci/later.sh"), False),
        ("ruff check src > report.txt", _edit("src/a.py"), True),
        ("make all", _edit("src/a.py"), False),
        ("python3 -m checks", _edit("src/a.py"), False),
        ("test -e Makefile && make all", _edit("src/a.py"), False),
        ("pytest scripts/check.sh", _edit("src/a.py"), False),
        ("eslint src", _edit("src/a.py"), False),
        ("python3.12 -m checks scripts/check.sh", _edit("src/a.py"), False),
        ("python3 Makefile", _edit("src/a.py"), False),
        ('python3 -u "$PWD/scripts/check.sh" --all', _edit("src/a.py"), True),
        ("cat", _edit("src/a.py"), True),
        ("jq -e .tool > /dev/null || exit 2", _edit("src/a.py"), True),
        ("test -e scripts/check.sh && sh -e scripts/check.sh", _edit("src/a.py"), True),
        ("git diff --quiet", _edit("src/a.py"), False),
        ("sh lint", _edit("lint"), False),
        ("cd -- scripts && ./check.sh", _edit("scripts/check.sh"), False),
        ("env --chdir=scripts ./check.sh", _edit("scripts/check.sh"), False),
        ("stylelint src", _edit("stylelint.config.js"), False),
        ("bash -c 'for each in *; do sh $each; done'", _edit("evil"), False),
        ("ma''ke all", _edit("Makefile"), False),
        ("./Makefile", _edit("json.py"), False),
        ("sh scripts/check.sh *", _edit("-c"), False),
        ("test -v *", _edit("a[$(touch escaped)]"), False),
        ("make all", _edit_in_subfolder, False),
        ("cat >> log", _edit("src/a.py"), True),
        ("cat >> log", _link_log, False),
        ("cat >> 'logs/log'", _link_log, False),
    ],
)
def test_what_counts_as_a_change_of_what_a_hook_runs(
    project: Path, command: str, change: Callable[[Path], object], *, runs: bool
) -> None:
    hook = _hook(command)
    files = HookFiles([hook], project)
    assert files.explain_change(hook) is None
    change(project)
    assert (files.explain_change(hook) is None) is runs


def test_hooks_of_the_user_run_what_the_user_changes_and_not_what_tools_change(project: Path) -> None:
    script, make = _hook(f"{project}/scripts/check.sh", of_project=False), _hook("make all", of_project=False)
    logging = _hook("cat >> log", of_project=False)
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
    script, make = _hook(f"{project}/scripts/check.sh", of_project=False), _hook("make all")
    HookFiles([script, make], project)
    Workspace(project).replace("scripts/check.sh", b"touch escaped")
    files = HookFiles([script, make], project)
    assert "'scripts/check.sh' was changed" in str(files.explain_change(script))
    assert "may run them outside the sandbox" in str(files.explain_change(make))
    other = _hook(f"sh {project}/scripts/check.sh", of_project=False)
    assert "tools may have changed what it runs" in str(HookFiles([other], project).explain_change(other))


async def test_a_program_of_path_in_the_workspace_and_a_large_one_are_watched(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{project}/bin:/usr/bin:/bin")
    tool = project / "bin/tidy"
    tool.parent.mkdir()
    tool.write_bytes(b"#!/bin/sh\n" + b"#" * 200_000)
    tool.chmod(0o755)
    (project / "bin/python3").symlink_to("/usr/bin/python3")
    hook, python = _hook("tidy"), _hook("python3 scripts/check.sh")
    files = HookFiles([hook, python], project)
    (project / "bin/other").write_text("")
    assert files.explain_change(hook) is None
    tool.write_bytes(b"#!/bin/sh\n" + b"#" * 199_999 + b"\n")
    assert "'bin/tidy' was changed" in str(files.explain_change(hook))
    assert files.explain_change(python) is None
    Workspace(project).replace("lib/evil.pth", b"")
    assert "may run them outside the sandbox" in str(files.explain_change(python))
    # A hook of the user finds nothing there at all, whenever it was put there.
    (project / "bin/cat").write_text("#!/bin/sh\necho escaped")
    (project / "bin/cat").chmod(0o755)
    assert (await run_hook(_hook("tidy", of_project=False), b"", project))[0] == 127
    assert await run_hook(_hook("cat", of_project=False), b"told", project) == (0, "told", "")


def test_a_folder_with_more_files_than_are_watched_closes_the_hook(project: Path) -> None:
    for number in range(MAX_FILES):
        (project / f"scripts/{number}").touch()
    hook = _hook("scripts/check.sh")
    assert "more than 200 files" in str(HookFiles([hook], project).explain_change(hook))


async def test_what_a_hook_of_a_project_runs_is_shown_and_trusted_with_that_content(
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

    async def prompt(*, asks: bool) -> tuple[str, str]:
        options = parse(["-p", "Hello.", "--model", "scripted:echo"])
        ask = agree if asks else None
        async with start_agent(options, approve=None, notify=print, trust=ask, workspace=place.project) as started:
            result = await started.agent.prompt("Hello.")
        return result.end_reason, result.detail

    assert (await prompt(asks=True))[0] == "done"
    shown = (f"Trust {settings} (files of its hooks)?", "--- scripts/check.sh (6 bytes)\nexit 0")
    assert asked == [(f"Trust {settings}?", settings.read_text()), shown]
    assert (await prompt(asks=False))[0] == "done"
    script.write_text("exit 0 # changed")
    end, detail = await prompt(asks=False)
    assert end == "rejected"
    assert "the files that it runs are not trusted" in detail
    assert (await prompt(asks=True))[0] == "done"
    assert len(asked) == 3
    (script.parent / "words").write_text("exit 1")
    assert (await prompt(asks=True))[0] == "done"
    script.write_text(f"{script.read_text()}\n--- scripts/words\n{(script.parent / 'words').read_text()}")
    (script.parent / "words").unlink()
    assert (await prompt(asks=False))[0] == "rejected"  # the same text, in other files


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
