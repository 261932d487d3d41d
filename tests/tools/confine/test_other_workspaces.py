"""What a command leaves in one workspace, for the tools of another one in the same program to run or to follow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.tools.builtin import looking
from tests.tools.builtin.shells import run, text
from tests.tools.confine.rooms import walls_of

from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.builtin.search_tool import search_tool
from steersman.tools.confine.changed_folders import note_command
from steersman.tools.confine.launch import build_child_environment, build_supervisor_environment
from steersman.tools.confine.protected_paths import find_sandbox_paths
from steersman.tools.confine.sandbox import Sandbox
from steersman.tools.confine.workspace import Workspace

pytestmark = pytest.mark.real_time


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return walls_of(request.param).kind  # pyright: ignore[reportReturnType]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two workspaces; a folder of PATH is in the first one."""
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "env" / "bin").mkdir(parents=True)
    second.mkdir()
    (tmp_path / "secret").write_text("canary")
    monkeypatch.setenv("PATH", f"{first}/env/bin:{os.environ['PATH']}")
    return first, second


async def test_a_program_of_another_workspace_does_not_search(places: tuple[Path, Path], sandbox: Sandbox) -> None:
    """docs/security.md: a command can run any program in a sandbox. One that it writes would run outside."""
    first, second = places
    (second / "menu").write_text("soup\n")
    script = f"#!/bin/sh\\ntouch {second}/ran\\n"
    tool = bash_tool(first, sandbox=sandbox)
    assert not (await run(tool, f"cd env/bin; printf '{script}' > rg; chmod +x rg")).is_error
    assert "1: soup" in await looking.text(search_tool(Workspace(second)), pattern="soup")
    assert os.listdir(second) == ["menu"]


async def test_a_folder_of_programs_in_another_workspace_leads_nowhere_else(
    places: tuple[Path, Path], sandbox: Sandbox
) -> None:
    """docs/bash.md: a command cannot read your other files. A command makes a folder of PATH a link to them."""
    first, second = places
    inner, outer = bash_tool(second, sandbox=sandbox), bash_tool(first, sandbox=sandbox)
    assert not (await run(outer, "cp /bin/true env/bin/fine")).is_error
    assert not (await run(inner, "fine")).is_error
    assert not (await run(outer, f"mv env/bin old; ln -s {first.parent} env/bin")).is_error
    assert "canary" not in text(await run(inner, f"cat {first}/env/bin/secret"))


def test_a_folder_that_becomes_a_link_meanwhile_is_looked_at_again(places: tuple[Path, Path]) -> None:
    first, second = places
    note_command(str(first))
    where = find_sandbox_paths(str(second), [], build_child_environment(), own=())
    assert f"{first}/env/bin" in where.readable
    assert f"{first}/env/bin" in where.list_real()


def test_no_library_of_a_workspace_is_loaded_outside_the_sandbox(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = places
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{first}/env:/usr/lib")
    assert build_supervisor_environment([str(second)])["LD_LIBRARY_PATH"] == f"{first}/env:/usr/lib"
    note_command(str(first))
    assert build_supervisor_environment([str(second)])["LD_LIBRARY_PATH"] == "/usr/lib"
