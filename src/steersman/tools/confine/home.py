"""The home folder of a sandboxed command: a new one for each call, removed afterwards.

Programs run what the files of a home folder name: git its `.gitconfig`, Python its user site. What one command writes
there must not run in the next, which may be one that needs no approval.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess

from steersman.tools.confine.launch import DEFAULT_PATH
from steersman.tools.confine.scratch import Scratch, delete_tree

_NUMBERS = itertools.count(1)
_SECONDS = 5.0
_IDENTITY = ("user.name", "user.email")


def make_home(scratch: Scratch, identity: str = "") -> str:
    """Create an empty home folder; `identity` becomes its `.gitconfig`."""
    home = scratch.make_folder(f"home-{next(_NUMBERS)}")
    if identity:
        with open(os.path.join(home, ".gitconfig"), "x", encoding="utf-8") as file:
            file.write(identity)
    return home


def remove_home(home: str) -> None:
    """Remove a home folder, after every process of its command has ended."""
    delete_tree(home)


def read_git_identity(root: str) -> str:
    """Read the user's name and email address from the user's own git settings, as the text of a `.gitconfig`.

    Nothing else of these settings goes into the sandbox. Empty where there is no git or no name.
    """
    git = shutil.which("git", path=DEFAULT_PATH)
    lines = [f"\t{key.partition('.')[2]} = {_quote(value)}\n" for key in _IDENTITY if (value := _ask(git, key, root))]
    return "".join(("[user]\n", *lines)) if lines else ""


def _ask(git: str | None, key: str, root: str) -> str:
    """Ask git for a setting of the user, which may depend on the folder (`includeIf`). It runs no other program."""
    if git is None:
        return ""
    names = ("HOME", "XDG_CONFIG_HOME")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    try:
        done = subprocess.run(
            [git, "config", "--global", "--includes", "--get", key],
            cwd=root,
            env={**environment, "PATH": DEFAULT_PATH, "GIT_PAGER": "cat"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip()


def _quote(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
