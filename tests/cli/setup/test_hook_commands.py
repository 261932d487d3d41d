"""Hooks of the settings: real commands decide, and one that fails in any way has said no."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.cli.command import Place, environment

from steersman import Agent
from steersman.cli.arguments import parse
from steersman.cli.exits import UserError
from steersman.cli.setup.hook_commands import HookCommands, parse_answer
from steersman.cli.setup.hook_process import HookFailed, run_hook
from steersman.cli.setup.settings import HookSettings, Seam, find_config_file
from steersman.cli.setup.settings_parser import parse_settings
from steersman.cli.setup.startup import start_agent
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import tool
from steersman.tools.confine.sandbox import confinement
from steersman.types.messages import ToolResultMessage

pytestmark = pytest.mark.real_time


@tool
def greet(name: str) -> str:
    """Greet."""
    return f"Hello {name}, secret"


async def _run(folder: Path, *hooks: HookSettings, told: list[str] | None = None) -> tuple[str, list[str], str]:
    """How a run with one call of `greet` ends, what its model reads of the call, and what was told."""
    commands = HookCommands(hooks, folder, (told if told is not None else []).append)
    model = ScriptedModel(answer(call("greet", name="Ann")), "Done.")
    agent = Agent("scripted:echo", stream_fn=model, tools=[greet], **commands.get_agent_options())
    agent.subscribe(commands.tell)
    result = await agent.prompt("Say hello.")
    await commands.close()
    read = [message.text for message in result.messages if isinstance(message, ToolResultMessage)]
    return result.end_reason, read, result.detail


def _hook(at: Seam, command: str, *tools: str, timeout: float = 30.0) -> HookSettings:
    return HookSettings(at, command, tools, timeout, sandbox=False)


async def test_a_hook_before_a_tool_denies_changes_or_lets_pass(tmp_path: Path) -> None:
    assert (await _run(tmp_path, _hook("before_tool", "echo fine; sleep 78 &")))[1] == ["Hello Ann, secret"]
    assert (await _run(tmp_path, _hook("before_tool", "echo not now >&2; exit 2")))[1] == [
        "Denied by the hook 'echo not now >&2; exit 2': not now"
    ]
    assert (await _run(tmp_path, _hook("before_tool", "exit 2", "other")))[1] == ["Hello Ann, secret"]
    assert "Denied" in (await _run(tmp_path, _hook("before_tool", "exit 2", "other", "Greet")))[1][0]
    change = _hook("before_tool", """sed 's/.*/{"arguments": {"name": "Bob"}}/'""")
    assert (await _run(tmp_path, change))[1] == ["Hello Bob, secret"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("exit 3", "it ended with exit code 3"),
        ("no-such-program-here 2>/dev/null", "it ended with exit code 127"),
        ("kill -9 $$", "it ended with exit code -9"),
        ("echo '{'", "its answer is not valid JSON: Input data was truncated"),
        ("""echo '{"allow": true}'""", "its answer has 'allow', and may have at before_tool: arguments, deny"),
        ("""echo '{"deny": 1}'""", "its answer has a value of the wrong type"),
        ("sleep 77", "it gave no answer within 0.2 s"),
        ("head -c 2000000 /dev/zero", "it wrote more than 1,000,000 bytes"),
        ("yes", "it wrote more than 1,000,000 bytes"),
        ("yes >&2", "it wrote more than 1,000,000 bytes"),
    ],
)
async def test_a_hook_that_fails_denies(tmp_path: Path, command: str, why: str) -> None:
    limit = 0.2 if "0.2 s" in why else 30.0
    _, read, _ = await _run(tmp_path, _hook("before_tool", command, timeout=limit))
    assert read == [f"Denied by the hook {command!r:.100}: {why}"]


async def test_a_hook_after_a_tool_replaces_adds_or_withholds_what_the_model_reads(tmp_path: Path) -> None:
    redact = _hook("after_tool", """echo '{"output": "Hello.", "add": "Checked."}'""")
    assert (await _run(tmp_path, redact))[1] == ["Hello.\nChecked."]
    for command in ("exit 2", "exit 1"):
        (read,) = (await _run(tmp_path, _hook("after_tool", command)))[1]
        assert "secret" not in read
        assert read.startswith(f"The hook {command!r} said no: ")


async def test_a_hook_on_prompts_refuses_or_adds(tmp_path: Path) -> None:
    end, read, detail = await _run(tmp_path, _hook("prompt", "echo 'no such words' >&2; exit 2"))
    assert (end, read) == ("rejected", [])
    assert "no such words" in detail
    assert (await _run(tmp_path, _hook("prompt", "exit 7")))[0] == "rejected"
    assert (await _run(tmp_path, _hook("prompt", """echo '{"add": "Be brief."}'""")))[0] == "done"


async def test_a_hook_is_told_as_json_with_a_clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    told: list[str] = []
    names = ("before_tool", "after_tool", "prompt", "end")
    await _run(tmp_path, *(_hook(name, f"cat > {name}; env > env") for name in names), told=told)
    heard = {name: json.loads((tmp_path / name).read_text()) for name in names}
    about = {"folder": os.fspath(tmp_path), "tool": "greet", "arguments": {"name": "Ann"}}
    assert heard == {
        "before_tool": {"at": "before_tool", **about},
        "after_tool": {"at": "after_tool", **about, "output": "Hello Ann, secret", "is_error": False},
        "prompt": {"at": "prompt", "folder": os.fspath(tmp_path), "prompt": "Say hello."},
        "end": {"at": "end", "folder": os.fspath(tmp_path), "end_reason": "done", "detail": ""},
    }
    assert "sk-very-secret" not in (tmp_path / "env").read_text()
    assert told == []


async def test_a_hook_that_only_is_told_changes_nothing_when_it_fails(tmp_path: Path) -> None:
    told: list[str] = []
    end, read, _ = await _run(tmp_path, _hook("end", "printf '\\033[2Jbad' >&2; exit 1"), told=told)
    assert (end, read) == ("done", ["Hello Ann, secret"])
    (line,) = told
    assert line.endswith("it ended with exit code 1: \u241b[2Jbad")


async def test_many_hooks_leave_nothing_open(tmp_path: Path) -> None:
    before: set[int] = set()
    for _ in range(20):
        assert await run_hook(HookSettings("end", "cat; setsid sleep 1 & exit 0"), b"x", tmp_path) == (0, "x", "")
        before = before or {len(os.listdir("/proc/self/fd"))}
    assert {len(os.listdir("/proc/self/fd"))} == before


def test_what_a_hook_may_answer_depends_on_its_seam() -> None:
    wrong: dict[Seam, str] = {"prompt": '{"output": "x"}', "end": '{"deny": "x"}', "before_tool": '{"add": "x"}'}
    for seam, said in wrong.items():
        with pytest.raises(HookFailed):
            parse_answer(seam, 0, said, "")
    for mark in ("", "\ufeff"):  # some programs begin with a byte order mark
        assert parse_answer("before_tool", 0, f'{mark}{{"deny": "x"}}', "").denied == "x"


@pytest.mark.parametrize(
    "text",
    ["hooks = 1", "[[hooks]]\nat = 'sometimes'\ncommand = 'x'", "[[hooks]]\nat = 'end'", "[[hooks]]\ncommand = 'x'",
     "[[hooks]]\nat = 'end'\ncommand = 'x'\ntimeout = 0", "[[hooks]]\nat = 'end'\ncommand = 'x'\nwhen = 'y'"],
)  # fmt: skip
def test_hooks_that_are_wrong_are_told_with_their_file(text: str) -> None:
    with pytest.raises(UserError, match="hooks"):
        parse_settings(text.encode(), Path("config.toml"))


def test_hooks_of_a_project_come_before_those_of_the_user_who_judges_last() -> None:
    own = parse_settings(b"[[hooks]]\nat = 'end'\ncommand = 'mine'", Path("a"))
    project = parse_settings(b"[[hooks]]\nat = 'prompt'\ncommand = 'theirs'\ntimeout = 2", Path("b"), project=True)
    assert own.tighten(project).hooks == (HookSettings("prompt", "theirs", (), 2, True), HookSettings("end", "mine"))


@pytest.mark.parametrize("sandbox", ["true", "false"])
async def test_what_a_hook_makes_of_an_edit_is_undone_with_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    if sandbox == "true" and confinement().kind == "none":
        pytest.skip("there is no sandbox on this machine")
    for name, value in environment(place).items():
        monkeypatch.setenv(name, value)
    settings = find_config_file()
    settings.parent.mkdir(parents=True, exist_ok=True)
    command = "echo tidy >> a; echo new > b"
    settings.write_text(f'[[hooks]]\nat = "after_tool"\ncommand = "{command}"\nsandbox = {sandbox}\n')
    changed = place.project / "a"
    changed.write_text("before\n")
    options = parse(["-p", "Go.", "--model", "scripted:echo", "--permission-mode", "accept-edits"])
    edit = call("edit", path="a", edits=[{"old": "after", "new": "later"}])
    model = ScriptedModel(answer(call("write", path="a", content="after\n")), answer(edit), "Done.")
    async with start_agent(options, approve=None, notify=print, workspace=place.project) as started:
        started.agent.configure(stream_fn=model)
        await started.agent.prompt("Go.")
        assert changed.read_text() == "later\ntidy\ntidy\n"
        assert started.files is not None
        points = started.files.require()
        plan = points.plan({at.id: False for at in points.list()})
        assert dict(plan.conflicts) == {}
        points.apply(plan)
    assert changed.read_text() == "before\n"
    assert not (place.project / "b").exists()
