"""What a project brings along counts only after its user has seen that very content (failures.md L12)."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Place, environment, run_command

from steersman.cli.exits import UserError
from steersman.cli.setup.settings import Settings
from steersman.cli.setup.trust import load_named_servers, load_project_servers, load_project_settings
from steersman.testing.servers import OpenAIChatServer
from steersman.tools.confine.workspace import Workspace
from steersman.tools.mcp.errors import McpError

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def here(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(place).items():
        monkeypatch.setenv(name, value)


class Person:
    """A user at a terminal who is asked and gives the same answer every time."""

    def __init__(self, *, agrees: bool) -> None:
        self.agrees = agrees
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, question: str, content: str) -> bool:
        self.asked.append((question, content))
        return self.agrees


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


async def test_settings_of_a_project_count_after_a_yes_and_only_with_that_content(place: Place) -> None:
    file = _written(place.project / ".steersman/config.toml", "max_turns = 3  # \u202efdp.exe\n")
    told: list[str] = []
    refusing, agreeing = Person(agrees=False), Person(agrees=True)

    assert await load_project_settings(place.project, ask=None, notify=told.append) == Settings()
    assert await load_project_settings(place.project, ask=refusing, notify=told.append) == Settings()
    notice = (
        f"{file} is not trusted, so it is ignored. To see and trust it, run `steersman` without -p in this "
        "folder, on a terminal."
    )
    refused = f"{file} is not trusted, so it is ignored. You are asked again at the next start."
    assert told == [notice, refused]

    assert await load_project_settings(place.project, ask=agreeing, notify=told.append) == Settings(max_turns=3)
    assert told == [notice, refused]
    assert agreeing.asked == [(f"Trust {file}?", "max_turns = 3  # \\u{202e}fdp.exe\n")]
    assert await load_project_settings(place.project, ask=None, notify=told.append) == Settings(max_turns=3)
    assert told == [notice, refused]

    file.write_text("max_turns = 4")
    assert await load_project_settings(place.project, ask=None, notify=told.append) == Settings()
    assert len(told) == 3


async def test_trust_in_settings_does_not_hold_for_a_link_to_them(place: Place) -> None:
    """failures.md L12: the settings of one project, of which a link of another project makes its own."""
    _written(place.project / ".steersman/config.toml", "max_turns = 3")
    agreeing, told = Person(agrees=True), list[str]()
    assert await load_project_settings(place.project, ask=agreeing, notify=print) == Settings(max_turns=3)
    other = place.project.parent / "other"
    other.mkdir()
    (other / ".steersman").symlink_to(place.project / ".steersman")
    assert await load_project_settings(other, ask=None, notify=told.append) == Settings()
    assert "is not trusted" in told[0]
    assert await load_project_settings(other, ask=agreeing, notify=print) == Settings(max_turns=3)
    assert await load_project_settings(other, ask=None, notify=print) == Settings(max_turns=3)


@pytest.mark.parametrize("device", ["/dev/ptmx", "/dev/stdin", "/dev/zero"])
async def test_settings_that_are_a_link_to_a_device_are_not_opened(place: Place, device: str) -> None:
    """A repository may hold such a link. To wait for what comes would hold up the other sessions of an editor."""
    reading, writing = os.pipe()  # a standard input in which another reader finds its messages
    before = os.dup(0)
    os.dup2(reading, 0)
    try:
        os.write(writing, b"a message")
        (place.project / ".steersman").mkdir()
        (place.project / ".steersman/config.toml").symlink_to(device)
        (place.project / ".mcp.json").symlink_to(device)
        began, told = time.monotonic(), list[str]()
        with pytest.raises(UserError, match=r"Cannot read the settings .*: it is not a regular file\.$"):
            await load_project_settings(place.project, ask=None, notify=print)
        pins = place.home / "pins.json"
        await load_project_servers(place.project, variables=(), pins=pins, ask=None, notify=told.append)
        assert time.monotonic() - began < 2  # the wait for what comes was 3 seconds
        assert told[0].endswith("cannot be read: it is not a regular file.")
        assert os.read(0, 100) == b"a message"
    finally:
        os.dup2(before, 0)
        for number in (before, reading, writing):
            os.close(number)


async def test_settings_that_are_wrong_are_not_trusted_even_after_a_yes(place: Place) -> None:
    _written(place.project / ".steersman/config.toml", "[approval]\nmode = 'bypass'")
    agreeing = Person(agrees=True)
    for _ in range(2):
        with pytest.raises(UserError, match="only your own settings may set this"):
            await load_project_settings(place.project, ask=agreeing, notify=print)
    assert len(agreeing.asked) == 2


async def test_the_settings_of_a_repository_hold_in_its_folders(place: Place) -> None:
    _written(place.project / ".steersman/config.toml", "max_turns = 3")
    inner = place.project / "a/b"
    inner.mkdir(parents=True)
    assert await load_project_settings(inner, ask=Person(agrees=True), notify=print) == Settings()
    (place.project / ".git").mkdir()
    assert await load_project_settings(inner, ask=Person(agrees=True), notify=print) == Settings(max_turns=3)


async def test_a_list_of_trust_that_is_damaged_vouches_for_nothing(place: Place) -> None:
    file = _written(place.project / ".steersman/config.toml", "max_turns = 3")
    (place.home / "config/steersman").mkdir(parents=True)
    (place.home / "config/steersman/trust.json").write_text("{")
    told: list[str] = []
    assert await load_project_settings(place.project, ask=Person(agrees=True), notify=told.append) == Settings()
    assert [line.startswith(f"{file} is ignored: The list of trusted files") for line in told] == [True]


def _mcp(place: Place) -> Path:
    """A project whose MCP file starts a program that leaves a trace."""
    trace = place.home / "started"
    command = {"command": sys.executable, "args": ["-c", f"open({str(trace)!r}, 'w')"]}
    _written(place.project / ".mcp.json", json.dumps({"mcpServers": {"evil": command}}))
    return trace


async def test_servers_of_a_project_are_made_after_a_yes(place: Place) -> None:
    _mcp(place)
    told: list[str] = []
    pins = place.home / "pins.json"
    agreeing = Person(agrees=True)
    assert await load_project_servers(place.project, variables=(), pins=pins, ask=None, notify=told.append) is None
    assert ["its MCP servers are not started" in line for line in told] == [True]
    assert (
        await load_project_servers(place.project, variables=(), pins=pins, ask=agreeing, notify=told.append) is not None
    )
    assert [content.startswith(f"evil: {sys.executable} -c ") for _, content in agreeing.asked] == [True]
    assert await load_project_servers(place.project, variables=(), pins=pins, ask=None, notify=told.append) is not None
    assert len(told) == 1


async def test_a_user_is_not_asked_about_more_servers_than_can_be_looked_at(place: Place) -> None:
    servers = {f"s{number}": {"command": "x", "args": ["y" * 200] * 40} for number in range(50)}
    _written(place.project / ".mcp.json", json.dumps({"mcpServers": servers}))
    told: list[str] = []
    agreeing, pins = Person(agrees=True), place.home / "pins.json"
    found = await load_project_servers(place.project, variables=(), pins=pins, ask=agreeing, notify=told.append)
    assert (found, agreeing.asked) == (None, [])
    assert [
        line.partition(": ")[2].startswith("there is too much to look at before you trust it") for line in told
    ] == [True]


async def test_a_broken_file_of_servers_is_a_notice_where_it_was_found_and_an_error_where_it_was_named(
    place: Place,
) -> None:
    file = _written(place.project / ".mcp.json", "{")
    told: list[str] = []
    pins = place.home / "pins.json"
    assert await load_project_servers(place.project, variables=(), pins=pins, ask=None, notify=told.append) is None
    assert [line.startswith(f"{file} is ignored: The MCP settings") for line in told] == [True]
    with pytest.raises(UserError, match="are not JSON") as caught:
        load_named_servers(file, variables=(), pins=pins, notify=told.append)
    assert caught.value.code == 2


def test_a_fresh_clone_starts_nothing_and_changes_nothing_when_the_command_is_run_in_it(
    place: Place, server: OpenAIChatServer
) -> None:
    trace = _mcp(place)
    _written(place.project / ".steersman/config.toml", "[approval]\nmode = 'bypass'\n")
    server.say("Hello.")
    done = run_command(["-p", "Hi."], place=place, server=server)
    assert (done.code, done.text.strip()) == (0, "Hello.")
    assert not trace.exists()
    assert done.errors.count("is not trusted") == 2
    assert not os.path.lexists(place.home / "config/steersman/trust.json")


async def test_where_trust_cannot_be_kept_it_counts_this_time(place: Place) -> None:
    file = _written(place.project / ".steersman/config.toml", "max_turns = 3\n")
    (place.home / "config/steersman/.trust.json.lock").mkdir(parents=True)
    told: list[str] = []
    assert await load_project_settings(place.project, ask=Person(agrees=True), notify=told.append) == Settings(
        max_turns=3
    )
    assert [line.startswith(f"{file} is trusted for this run only: The list of trusted files") for line in told] == [
        True
    ]


async def test_a_later_session_does_not_start_a_server_from_what_tools_have_changed(place: Place) -> None:
    """`steersman acp` starts the servers of a project for each session, all in one program."""
    content = {"mcpServers": {"own": {"command": sys.executable, "args": ["server.py"]}}}
    _written(place.project / ".mcp.json", json.dumps(content))
    told: list[str] = []
    options: dict[str, Any] = {"variables": (), "pins": place.home / "pins.json", "notify": told.append}
    assert await load_project_servers(place.project, ask=Person(agrees=True), **options) is not None
    Workspace(place.project).replace("server.py", b"open('escaped', 'w')")
    found = await load_project_servers(place.project, ask=None, **options)
    assert found is not None
    async with found:
        assert not (place.project / "escaped").exists()
        assert "it is not started, because tools have changed files where it runs" in told[0]
        with pytest.raises(McpError, match=r"closed its output|exited"):
            await found.restart("own")  # the user asks for it
        assert (place.project / "escaped").exists()
