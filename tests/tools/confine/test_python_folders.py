"""The Python that the program runs from is not changed by tools, wherever it is and however it is found."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.tools.confine.pythons import make_python
from tests.tools.confine.rooms import Room
from tests.tools.confine.test_sandbox_git import named

from steersman.tools.confine.sandbox import Confinement

PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
PROGRAM = """
    import asyncio, os, sys
    from steersman import CancelToken, ToolContext
    from steersman.tools import builtin_tools

    sandbox, more, command, *names = sys.argv[1:]
    sys.path.append(os.path.abspath(more))
    tools = {tool.name: tool for tool in builtin_tools(".", sandbox=sandbox)}
    for name in names:
        try:
            tools["write"](path=name, content="x\\n")
        except Exception as error:
            print(type(error).__name__, name)
    asyncio.run(tools["bash"].call({"command": command}, ToolContext("call_1", "bash", CancelToken())))
"""


def run_tools(python: str, root: Path, walls: Confinement, command: str, *names: str, more: str = ".") -> list[str]:
    """Let tools of a program write files, and run a command; what was refused to the first."""
    words = [python, "-c", textwrap.dedent(PROGRAM), named(walls), more, command, *names]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def list_files(root: Path) -> dict[str, bytes]:
    found = [path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def test_an_environment_that_is_the_workspace_is_protected_in_its_parts(room: Room, whole: Confinement) -> None:
    """docs/security.md: tools cannot write to the Python that your program runs from, also after `python -m venv .`."""
    python = make_python(room.root)
    before = list_files(room.root)
    names = [f"{PACKAGES}/new.pth", f"{PACKAGES}/installed.py", "pyvenv.cfg", "bin/git"]
    tamper = f"echo x > {PACKAGES}/new.pth; echo x > {PACKAGES}/installed.py; echo x > bin/git; mv lib other; "
    tamper += "mv pyvenv.cfg old; echo x > pyvenv.cfg; echo x > by-command"
    refused = run_tools(python, room.root, whole, tamper, *names, "app.py", "lib/notes.txt")
    assert refused == [f"ProtectedPath {name}" for name in names]
    written = dict.fromkeys(("app.py", "lib/notes.txt", "by-command"), b"x\n")
    assert list_files(room.root) == before | written


def test_a_command_does_not_replace_a_link_to_the_environment(room: Room, whole: Confinement) -> None:
    """`.venv` often is a link to an environment elsewhere, and what replaces it would run the next time."""
    make_python(room.outside / "environment")
    (room.root / ".venv").symlink_to(room.outside / "environment")
    tamper = f"rm .venv; mkdir -p .venv/bin .venv/{PACKAGES}; echo evil > .venv/bin/python"
    run_tools(str(room.root / ".venv/bin/python"), room.root, whole, tamper)
    assert os.readlink(room.root / ".venv") == str(room.outside / "environment")


def test_the_packages_of_the_user_are_protected_in_a_home_folder(room: Room, whole: Confinement) -> None:
    """Where `pip install --user` puts them, they are in no environment."""
    packages = room.root / ".local" / PACKAGES
    packages.mkdir(parents=True)
    new = f".local/{PACKAGES}/new.pth"
    tamper = f"echo x > {new}; mv .local old"
    refused = run_tools(sys.executable, room.root, whole, tamper, new, more=f".local/{PACKAGES}")
    assert (refused, [*packages.iterdir()]) == ([f"ProtectedPath {new}"], [])


def test_a_command_makes_no_folder_for_packages_of_the_user(
    room: Room, whole: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of an environment, Python runs a `usercustomize.py` in it whenever it is started."""
    python = make_python(room.outside / "environment")
    settings = room.outside / "environment" / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("packages = false", "packages = true"))
    (room.root / ".local/state/steersman").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(room.root))
    new = f".local/{PACKAGES}/usercustomize.py"
    tamper = f"mkdir -p .local/{PACKAGES}; echo x > {new}"
    assert run_tools(python, room.root, whole, tamper, new) == [f"ProtectedPath {new}"]
    assert not (room.root / new).exists()
    done = subprocess.run([python, "-c", "print(1)"], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


COMPILED = """
    import asyncio, importlib.util, os, sys
    from steersman import CancelToken, ToolContext
    from steersman.tools import builtin_tools

    place = importlib.util.cache_from_source(os.path.join(os.path.dirname(os.__file__), "colorsys.py"))
    tools = {tool.name: tool for tool in builtin_tools(".", sandbox=sys.argv[1])}
    try:
        tools["write"](path=place, content="x")
    except Exception as error:
        print(type(error).__name__)
    compiled = "importlib._bootstrap_external._code_to_hash_pyc(compile('print(1)', 'x', 'exec'), b'x' * 8, False)"
    code = f"import importlib.util, sys; open(sys.argv[1], 'wb').write({compiled})"
    command = f'mkdir -p "$(dirname {place})"; {sys.executable} -c "{code}" {place}'
    asyncio.run(tools["bash"].call({"command": command}, ToolContext("call_1", "bash", CancelToken())))
    import colorsys
"""


def test_a_command_compiles_no_module_for_the_program(room: Room, whole: Confinement) -> None:
    """Python runs what PYTHONPYCACHEPREFIX has, unchecked, in place of a module of its own."""
    ran: list[str] = []
    for folder, cache in (("first", ".cache"), ("second", ".")):
        root = room.root / folder
        root.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(COMPILED), named(whole)],
            cwd=root,
            env={**os.environ, "PYTHONPYCACHEPREFIX": str((root / cache).resolve())},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        ran += done.stdout.splitlines()
    assert ran == ["ProtectedPath"] * 2


SEARCH = """
    import asyncio, os
    from steersman import CancelToken, ToolContext
    from steersman.tools import builtin_tools

    search = {tool.name: tool for tool in builtin_tools(".")}["search"]
    os.rename(".venv", "before")  # as a command can, until it is over
    os.makedirs(".venv/bin")
    with open(".venv/bin/python", "w") as file:
        file.write(f"#!/bin/sh\\n/usr/bin/touch {os.getcwd()}/ran")
    os.chmod(".venv/bin/python", 0o700)
    words = {"pattern": "needle", "path": "notes.txt"}
    print(asyncio.run(search.call(words, ToolContext("call_1", "search", CancelToken()))).content)
"""


def test_a_search_runs_no_python_by_a_link_that_a_command_has_replaced(tmp_path: Path) -> None:
    make_python(tmp_path / "environment")
    root = tmp_path / "root"
    root.mkdir()
    (root / ".venv").symlink_to(tmp_path / "environment")
    (root / "notes.txt").write_text("a needle\n")
    words = [str(root / ".venv/bin/python"), "-c", textwrap.dedent(SEARCH)]
    environment = {"PATH": str(tmp_path)}  # without ripgrep
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert ("a needle" in done.stdout, (root / "ran").exists()) == (True, False)
