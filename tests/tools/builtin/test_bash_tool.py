"""`bash`: what a command gives back, what it is told it may not do, and what is shown while it runs."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.tools.builtin.shells import run, text

from steersman import Agent, Tool
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.builtin import builtin_tools
from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.confine.sandbox import confinement
from steersman.types.events import ToolExecutionEnd, ToolExecutionUpdate
from steersman.types.messages import ToolResultMessage

pytestmark = pytest.mark.real_time
QUIET: dict[str, Any] = {"timed_out": False, "truncated": False, "output_file": None, "ended": []}


@pytest.fixture
def bash(tmp_path: Path) -> Tool:
    return bash_tool(tmp_path, sandbox="off")


@pytest.mark.parametrize(
    ("command", "content", "code"),
    [
        ("echo hi", "hi\n", 0),
        ("true", "(no output)", 0),
        ("printf 'one\\n'; printf 'two\\n' >&2; echo three", "one\ntwo\nthree\n", 0),
        ("echo oh; exit 3", "oh\n\n[exit code 3]", 3),
        ("exit 3", "[exit code 3]", 3),
        ("no-such-program-here 2>/dev/null", "[exit code 127]", 127),
        ("echo bye; kill -9 $$", "bye\n\n[killed by signal 9 (SIGKILL)]", 137),
        ("kill -35 $$", "[killed by signal 35 (unknown)]", 163),
        ("[[ 5 -gt 3 ]] && echo bash", "bash\n", 0),
        ('echo \'quoted $HOME\' "and \\"nested\\""', 'quoted $HOME and "nested"\n', 0),
        ("cat <<EOF\na\nb\nEOF", "a\nb\n", 0),
        ("cat <(echo sub)", "sub\n", 0),
    ],
)
async def test_a_command_gives_its_output_and_how_it_ended(bash: Tool, command: str, content: str, code: int) -> None:
    output = await run(bash, command)
    assert output.content == content
    assert output.is_error == (code != 0)
    expected = {**QUIET, "exit_code": code, "duration": 0, "sandbox": "off"}
    written = content.partition("\n\n[")[0].strip() if content[:1] not in ("[", "(") else ""
    assert {**output.details, "duration": 0} == {**expected, "lines": len(written.splitlines())}
    assert output.details["duration"] > 0


@pytest.mark.parametrize(("command", "lines"), [("seq 1 3000", 3000), ("printf 'a\\nb'", 2), ("true", 0)])
async def test_the_number_of_lines_is_that_of_the_whole_output(bash: Tool, command: str, lines: int) -> None:
    """Also where the model gets only its beginning and its end."""
    assert (await run(bash, command)).details["lines"] == lines


async def test_it_runs_in_the_workspace_and_each_call_is_a_new_shell(bash: Tool, tmp_path: Path) -> None:
    assert (await run(bash, "cd /; X=1; pwd")).content == "/\n"
    assert (await run(bash, "pwd; echo $X")).content == f"{tmp_path}\n\n"


async def test_npm_is_told_not_to_look_for_a_newer_version(bash: Tool, tmp_path: Path) -> None:
    """docs/bash.md: it would send a token through a proxy that the project names."""
    assert (await run(bash, "printenv npm_config_update_notifier")).content == "false\n"
    mine = bash_tool(tmp_path, sandbox="off", env={"npm_config_update_notifier": "true"})
    assert (await run(mine, "printenv npm_config_update_notifier")).content == "true\n"


async def test_git_gets_its_settings_as_older_versions_read_them(bash: Tool, tmp_path: Path) -> None:
    """docs/bash.md: no folder of the name `upstream` is a remote; git 2.30 does not know GIT_CONFIG_COUNT."""
    command = "unset GIT_CONFIG_COUNT; git config --get-all url.no-such-remote://.insteadOf"
    assert (await run(bash, command)).content == "origin\nupstream\n"
    mine = bash_tool(tmp_path, sandbox="off", env={"GIT_CONFIG_PARAMETERS": ""})
    assert (await run(mine, command)).content == "[exit code 1]"


async def test_git_opens_no_editor(bash: Tool, tmp_path: Path) -> None:
    """docs/bash.md: an editor would take commands from a pipe; a setting of the repository chooses none either."""
    settings = "git config core.editor 'touch opened;'; git config sequence.editor 'touch opened;'"
    await run(bash, f"git init -q; {settings}")
    assert (await run(bash, "git var GIT_EDITOR; printenv GIT_SEQUENCE_EDITOR")).content == ":\n:\n"
    output = await run(bash, "git -c user.name=x -c user.email=x@x.example commit --allow-empty")
    assert output.is_error
    assert not (tmp_path / "opened").exists()
    mine = bash_tool(tmp_path, sandbox="off", env={"GIT_EDITOR": "ed"})
    assert (await run(mine, "git var GIT_EDITOR")).content == "ed\n"


@pytest.mark.parametrize("command", ["cat", "read x; echo got $?", "python3 -c 'input()' 2>/dev/null; echo got 1"])
async def test_standard_input_is_empty(bash: Tool, command: str) -> None:
    """A program that waits for a user to type gets the end of its input instead."""
    output = await run(bash, command, timeout=20)
    assert text(output) in ("(no output)", "got 1\n")


async def test_git_takes_no_folder_of_files_for_a_repository(bash: Tool, tmp_path: Path) -> None:
    """Files named HEAD and config, which any tool may write, must not decide what `git status` runs."""
    for name in ("objects", "refs"):
        (tmp_path / name).mkdir()
    (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    settings = "repositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch PWNED"
    (tmp_path / "config").write_text(f"[core]\n\t{settings}\n")
    output = await run(bash, "git status")
    assert not (tmp_path / "PWNED").exists()
    assert "bare" in text(output)
    assert "branch" in text(await run(bash, "git init -q project && cd project && git status"))


async def test_standard_input_is_nothing_to_search(bash: Tool) -> None:
    """Programs that search their input when it is a pipe, and the folder when it is not, search the folder."""
    assert (await run(bash, "readlink /proc/self/fd/0")).content == "/dev/null\n"


async def test_there_is_no_terminal(bash: Tool) -> None:
    """failures.md K9: nothing can be asked there, and nothing typed into it."""
    output = await run(
        bash, "test -t 0 || test -t 1 || test -t 2 || echo none; (: < /dev/tty) 2>/dev/null || echo none"
    )
    assert output.content == "none\nnone\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"command": ""}, "The command is empty. Give a shell command to run."),
        ({"command": " \n "}, "The command is empty. Give a shell command to run."),
        ({"command": "echo a\0b"}, "The command has a NUL character, which a shell cannot accept."),
        (
            {"command": "x" * 200_000},
            "The command has 200,000 bytes, more than the 131,071 that can be passed to a shell. "
            "Write it to a file in the workspace and run that.",
        ),
        ({"command": "true", "timeout": 0}, "The timeout is more than 0 and at most 600 seconds, got 0."),
        ({"command": "true", "timeout": 601}, "The timeout is more than 0 and at most 600 seconds, got 601."),
        ({"command": "true", "timeout": -1.5}, "The timeout is more than 0 and at most 600 seconds, got -1.5."),
    ],
    ids=["empty", "blank", "NUL", "too long", "no time", "too much time", "less than no time"],
)
async def test_what_cannot_be_run_is_an_error_the_model_can_act_on(
    bash: Tool, arguments: dict[str, Any], told: str
) -> None:
    output = await run(bash, **arguments)
    assert (output.content, output.is_error) == (told, True)


async def test_the_longest_command_is_run(bash: Tool) -> None:
    command = "echo done #"
    output = await run(bash, command + "x" * (131_071 - len(command)))
    assert output.content == "done\n"


@pytest.mark.parametrize("sandbox", ["off", "auto"])
async def test_a_workspace_that_is_gone_is_told(tmp_path: Path, sandbox: Any) -> None:
    """failures.md K8, K9: the folder of the commands was deleted."""
    root = tmp_path / "root"
    root.mkdir()
    bash = bash_tool(root, sandbox=sandbox)
    shutil.rmtree(root)
    output = await run(bash, "pwd")
    told = f"The workspace {str(root)!r} no longer exists, so no command can run in it."
    assert (output.content, output.is_error) == (told, True)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"sandbox": "jail"}, "sandbox is one of 'auto', 'bubblewrap', 'landlock', 'off', got 'jail'."),
        ({"timeout": 0}, "timeout is a number of seconds above 0, got 0."),
        ({"max_timeout": float("inf")}, "max_timeout is a number of seconds above 0, got inf."),
        ({"timeout": 700}, r"timeout is at most max_timeout \(600\), got 700.0."),
    ],
)
def test_wrong_settings_are_told_where_they_are_made(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"^{told}$"):
        bash_tool(**settings)


def test_the_model_is_told_what_it_may_do(tmp_path: Path) -> None:
    bash = bash_tool(tmp_path, timeout=5, max_timeout=10)
    assert bash.description == (
        f"Run a command with bash in {tmp_path}. Standard output and standard error come back together. "
        "It is ended after 5 seconds, or after `timeout` seconds (at most 10). "
        "Standard input is empty. When the command returns, whatever it left running in the background is ended. "
        "Each call is a new shell: folder and variables are not kept. "
        "Only this folder and $TMPDIR can be written and there is no network; $HOME is empty in each call. "
        "Git repositories can be read but not written, so there are no commits."
    )
    assert "commits" not in bash_tool(tmp_path, git="read-write").description
    assert "commits" not in bash_tool(tmp_path, sandbox="off").description
    assert (bash.name, bash.access, bash.sequential, list(bash.parameters["properties"])) == (
        "bash",
        "full",
        True,
        ["command", "timeout"],
    )


async def test_output_is_shown_while_the_command_runs(bash: Tool, tmp_path: Path) -> None:
    """The first piece arrives before the command is done: it only goes on once that piece has been seen."""
    script = ScriptedModel(
        answer(call("bash", command="echo one; until test -e go; do sleep 0.01; done; echo two")), "Done."
    )
    agent = Agent(script.model, tools=[bash])
    shown: list[Any] = []
    async for event in agent.prompt("Go."):
        if isinstance(event, ToolExecutionUpdate):
            shown.append(event.update)
            (tmp_path / "go").touch()
        if isinstance(event, ToolExecutionEnd):
            shown.append(event.result.text)
    assert shown == [{"type": "output", "text": "one\n"}, {"type": "output", "text": "two\n"}, "one\ntwo\n"]


async def test_a_flood_is_shown_in_few_pieces(bash: Tool) -> None:
    shown: list[Any] = []
    output = await run(bash, "yes | head -c 50M", on_update=shown.append)
    assert 1 <= len(shown) <= 3 + output.details["duration"] * 10
    assert max(len(update["text"]) for update in shown) <= 4_000


async def test_the_event_loop_goes_on_while_a_command_floods(bash: Tool, tmp_path: Path) -> None:
    """failures.md F16: the flood only ends once the loop has done other things during it."""
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    flood = "until test -e go; do yes | head -c 1M; done"
    task = asyncio.ensure_future(run(bash, flood, on_update=lambda _: loop.call_soon_threadsafe(begun.set)))
    await begun.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    (tmp_path / "go").touch()
    assert not (await task).is_error


async def test_calls_of_one_answer_run_one_after_another(bash: Tool) -> None:
    """A command may change any file, so the next call waits for it."""
    calls = [
        call("bash", command=f"test ! -e busy && touch busy && sleep 0.05 && rm busy && echo {n}") for n in range(4)
    ]
    result = await Agent(ScriptedModel(answer(*calls), "Done.").model, tools=[bash]).run("Go.")
    results = [message.text for message in result.messages if isinstance(message, ToolResultMessage)]
    assert results == ["0\n", "1\n", "2\n", "3\n"]


async def test_all_built_in_tools_come_together(tmp_path: Path) -> None:
    tools = builtin_tools(tmp_path, sandbox="off")
    assert [tool.name for tool in tools] == ["read", "write", "edit", "list", "glob", "search", "bash", "fetch"]
    assert (await run(tools[6], "pwd")).content == f"{tmp_path}\n"


def test_a_single_tool_is_for_the_current_folder() -> None:
    from steersman.tools import builtin
    from steersman.tools.builtin import bash, read

    assert (bash.name, read.name) == ("bash", "read")
    assert builtin.bash is bash
    assert f"in {Path.cwd()}." in bash.description
    with pytest.raises(AttributeError, match="has no attribute 'sudo'"):
        _ = builtin.sudo


def test_a_star_brings_the_tools_and_leaves_pythons_own_list() -> None:
    found: dict[str, Any] = {}
    exec("from steersman.tools.builtin import *", found)
    assert sorted(set(found) - {"__builtins__"}) == [
        "bash", "builtin_tools", "edit", "fetch", "glob", "read", "search", "write",
    ]  # fmt: skip
    from steersman.tools import builtin
    from steersman.tools.builtin import list as list_tool

    assert list_tool.name == "list"
    assert "list" in dir(builtin)


def test_all_tools_together_may_commit_if_that_is_wanted(tmp_path: Path) -> None:
    told = [builtin_tools(tmp_path, git=git)[6].description for git in ("read-only", "read-write")]
    assert ["commits" in words for words in told] == [True, False]


async def test_the_sandbox_is_on_unless_it_is_waived(tmp_path: Path) -> None:
    output = await run(bash_tool(tmp_path), "echo hi")
    walls = confinement()
    if walls.kind == "none":
        assert (output.content, output.is_error) == (f"Commands are not run here: {walls.reason}", True)
    else:
        assert (output.content, output.details["sandbox"]) == ("hi\n", walls.kind)
