"""What decides about permissions is not changed by tools: session stores, settings, trust."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.tools.confine.rooms import Room

from steersman.session.session import Session
from steersman.tools import Workspace
from steersman.tools.confine.path_errors import ProtectedPath
from steersman.tools.confine.sandbox import Confinement
from steersman.tools.mcp.trust import Pins, Trust

INSERT = "INSERT INTO queue (session, key, data, checksum) VALUES (1, 'x', x'00', 0)"


@pytest.mark.parametrize("name", ["s.db", "s.db-wal", "s.db-shm", "s.db-lock", "s.db-journal"])
def test_the_file_tools_write_to_no_session_store(tmp_path: Path, name: str) -> None:
    """docs/security.md: tools cannot write to the session stores of the program."""
    with Session.create(tmp_path / "s.db", id="one"):
        with pytest.raises(ProtectedPath, match="protected by"):
            Workspace(tmp_path).replace(name, b"")
        Workspace(tmp_path).replace(f"{name}.txt", b"")


def test_a_command_queues_nothing_into_a_session_of_the_program(room: Room, whole: Confinement) -> None:
    """docs/security.md: a command that wrote to the store could answer the questions about its own calls."""
    store = room.root / "s.db"
    with Session.create(store, id="one"):
        (room.root / "x.py").write_text(
            f"import sqlite3\nc = sqlite3.connect('s.db')\nc.execute({INSERT!r})\nc.commit()"
        )
        assert "readonly database" in room.run(whole, f"{sys.executable} x.py 2>&1")[0]
        room.run(whole, "echo undo > s.db-journal; rm -f s.db s.db-wal s.db-lock; echo x > s.db")
        assert not (room.root / "s.db-journal").exists()
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT count(*) FROM queue").fetchone() == (0,)


def test_lists_of_trusted_files_and_tools_are_protected(room: Room, whole: Confinement) -> None:
    """docs/mcp.md: a changed tool is held back until the user accepts it, and a file starts nothing until trusted."""
    pins, trust = room.root / "pins.json", room.root / "trust" / "list.json"
    Trust(trust).add(room.root / "elsewhere" / ".mcp.json", "0" * 64)
    Pins(pins)
    pins.write_text("{}")
    for name in ("pins.json", "trust/list.json"):
        with pytest.raises(ProtectedPath, match="protected by"):
            Workspace(room.root).replace(name, b"")
        assert room.run(whole, f"echo x > {name}")[1] != 0
    assert pins.read_text() == "{}"


@pytest.mark.parametrize(
    ("variable", "path"), [("XDG_CONFIG_HOME", ".config"), ("XDG_STATE_HOME", ".local/state"), ("", ".config")]
)
def test_settings_and_trust_are_protected_in_a_home_folder(
    room: Room, whole: Confinement, monkeypatch: pytest.MonkeyPatch, variable: str, path: str
) -> None:
    """docs/security.md: nothing that a model says can change a permission, also if the workspace is a home folder."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable or "HOME", str(room.root / path if variable else room.root))
    settings = room.root / path / "steersman"
    settings.mkdir(parents=True)
    workspace = Workspace(room.root)
    for name in ("config.toml", "trust.json"):
        with pytest.raises(ProtectedPath, match="protected by"):
            workspace.replace(f"{path}/steersman/{name}", b"")
    workspace.replace(f"{path}/other/config.toml", b"")
    assert room.run(whole, f"echo x > {path}/steersman/config.toml")[1] != 0
    assert not (settings / "config.toml").exists()
