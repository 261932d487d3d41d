"""Things are kept where the user's environment says, and other users cannot look at them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from steersman.cli.exits import UserError
from steersman.cli.setup.settings import (
    find_config_file,
    find_history_file,
    find_session_file,
    find_state_folder,
    make_private_folder,
)
from steersman.provider.local.weights.cache import find_cache_folder
from steersman.tools.mcp.trust import Trust
from steersman.types.errors import SteersmanError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path


def test_the_usual_places_are_in_the_home_folder(home: Path) -> None:
    assert find_config_file() == home / ".config/steersman/config.toml"
    assert find_state_folder() == home / ".local/state/steersman"


def test_the_environment_names_other_places_unless_they_are_relative(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "c"))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert find_config_file() == home / "c/steersman/config.toml"
    assert find_state_folder() == home / ".local/state/steersman"


def test_a_relative_home_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a project would bring along the user's own settings and trust, with hooks that have no sandbox."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", ".")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for find in (find_config_file, find_state_folder, find_cache_folder, Trust):
        with pytest.raises((UserError, SteersmanError), match=r"There is no home folder.*; set"):
            find()


def test_each_folder_has_a_file_of_sessions_and_a_link_to_it_has_the_same(home: Path) -> None:
    (home / "a b").mkdir()
    (home / "other").mkdir()
    (home / "other/a b").mkdir()
    (home / "link").symlink_to(home / "a b")
    file = find_session_file(None, home / "a b")
    assert file.parent == find_state_folder() / "sessions"
    assert file.name.startswith("a-b-")
    assert len(file.stem) == len("a-b-") + 8
    assert find_session_file(None, home / "link") == file
    assert find_session_file(None, home / "other/a b") != file
    assert find_session_file(None, Path("/")).name.startswith("root-")


def test_a_folder_of_the_users_own_has_one_file(home: Path) -> None:
    assert find_session_file(Path("~/mine"), Path("/")) == home / "mine/sessions.db"


def test_what_is_made_belongs_to_its_owner_alone() -> None:
    before = os.umask(0)
    try:
        make_private_folder(find_state_folder() / "sessions")
    finally:
        os.umask(before)
    state = find_history_file().parent
    for folder in (state, state / "sessions", state.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_without_a_home_it_is_said_what_to_set() -> None:
    """As for a user of a container whom its system does not know."""
    code = """
import os, pwd
from steersman.cli.setup.settings import find_state_folder
from steersman.cli.exits import UserError
os.setuid(54321)
try:
    find_state_folder()
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True)
    assert done.stdout == "There is no home folder; set the environment variable HOME.\n"
