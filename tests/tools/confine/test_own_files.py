"""What decides about permissions is not changed by tools: session stores, settings, trust."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.tools.builtin.shells import run, until
from tests.tools.confine.rooms import Room
from tests.tools.confine.test_sandbox_git import named

from steersman.session.session import Session
from steersman.tools import Workspace
from steersman.tools.builtin.bash_tool import bash_tool
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


def test_a_list_that_does_not_exist_yet_is_not_made_by_a_command(room: Room, whole: Confinement) -> None:
    Trust(room.root / "trust" / "list.json")
    room.run(whole, "mkdir trust; echo '{}' > trust/list.json")
    assert not (room.root / "trust").exists()
    assert "commands may not make or change" in room.ended.refused[0]


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


@pytest.mark.parametrize("there", ["", ".config", ".config/steersman"])
async def test_settings_that_do_not_exist_yet_are_not_made_by_commands(
    room: Room, whole: Confinement, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    """docs/security.md: the same in a home folder without any settings, while another command holds their name."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(room.root))
    (room.root / there).mkdir(parents=True, exist_ok=True)
    bash = bash_tool(room.root, sandbox=named(whole))
    wait = "touch {0}; until [ -e {1} ]; do sleep 0.02; done"
    first = asyncio.create_task(run(bash, wait.format("one", "go-one")))
    await until((room.root / "one").exists)
    make = "; ".join(
        f"mkdir -p {folder}/steersman; touch {folder}/steersman/config.toml" for folder in (".config", ".local/state")
    )
    second = asyncio.create_task(run(bash, f"{make}; {wait.format('two', 'go-two')}; {make}"))
    await until((room.root / "two").exists)
    (room.root / "go-one").touch()
    await first
    (room.root / "go-two").touch()
    await second
    assert not [*room.root.rglob("config.toml")]


@pytest.mark.parametrize("way", ["file", "file by another link", "missing file", "folder"])
def test_settings_that_are_links_into_the_workspace_are_protected_there(
    room: Room, whole: Confinement, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """docs/security.md: a repository with the settings of all programs is a workspace like others.

    Whatever a tool put there would be the user's own settings, whose hooks may run without a sandbox.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(room.outside / "config"))
    own, kept = room.outside / "config" / "steersman", room.root / "kept" / "steersman.toml"
    own.mkdir(parents=True)
    kept.parent.mkdir()
    if way != "missing file":
        kept.write_text("vim = true")
    target = kept
    if way == "file by another link":
        target = room.root / "current.toml"
        target.symlink_to("kept/steersman.toml")
    link = own / ("hooks" if way == "folder" else "config.toml")
    link.symlink_to(kept.parent if way == "folder" else target)
    with pytest.raises(ProtectedPath, match="protected by"):
        Workspace(room.root).replace("kept/steersman.toml", b"evil")
    Workspace(room.root).replace("beside.toml", b"")
    room.run(whole, "echo evil > kept/steersman.toml; rm -f current.toml; echo evil > current.toml; mv kept other")
    seen = own / "hooks" / "steersman.toml" if way == "folder" else own / "config.toml"
    assert seen.read_text() == "vim = true" if way != "missing file" else not seen.exists()


@pytest.mark.parametrize("way", ["file", "folder below", "folder by another link"])
def test_what_links_in_a_linked_folder_of_settings_lead_to_is_protected(
    room: Room, whole: Confinement, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """docs/security.md: the same where the folder of settings is itself a link, and what is in it is a link again."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(room.outside / "config"))
    own, kept, last = room.outside / "config" / "steersman", room.outside / "kept", room.root / "last"
    for folder in (own, kept / "more", room.outside / "others", last):
        folder.mkdir(parents=True)
    (last / "one.md").write_text("mine")
    (own / "agents").symlink_to(kept)
    (kept / "circle").symlink_to(own)
    (kept / "around").symlink_to(room.outside)  # does not make a setting of all that is in it
    (room.outside / "stray.md").symlink_to(room.root / "beside.md")
    (room.outside / "others" / "one.md").symlink_to(last / "one.md")
    link, target = {
        "file": (kept / "one.md", last / "one.md"),
        "folder below": (kept / "more" / "last", last),
        "folder by another link": (kept / "others", room.outside / "others"),
    }[way]
    link.symlink_to(target)
    with pytest.raises(ProtectedPath, match="protected by"):
        Workspace(room.root).replace("last/one.md", b"evil")
    Workspace(room.root).replace("beside.md", b"")
    room.run(whole, "echo evil > last/one.md; rm -f last/one.md; mv last other; mkdir last; echo evil > last/one.md")
    assert (last / "one.md").read_text() == "mine"


def test_links_of_settings_are_found_before_a_large_folder_that_one_of_them_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search has an end, and what is near comes first."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    own, large, root = tmp_path / "config" / "steersman", tmp_path / "large", tmp_path / "root"
    for folder in (own / "agents", large, root):
        folder.mkdir(parents=True)
    for number in range(1_100):
        (large / f"{number}").touch()
    (own / "a").symlink_to(large)
    (own / "agents" / "one.md").symlink_to(root / "one.md")
    with pytest.raises(ProtectedPath, match="protected by"):
        Workspace(root).replace("one.md", b"evil")


def test_links_of_settings_are_found_where_the_sessions_are_below_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the user's own folders may be around the other."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "config" / "steersman"))
    own, root = tmp_path / "config" / "steersman", tmp_path / "root"
    for folder in (own / "steersman", root):
        folder.mkdir(parents=True)
    (own / "one.md").symlink_to(root / "one.md")
    with pytest.raises(ProtectedPath, match="protected by"):
        Workspace(root).replace("one.md", b"evil")


def test_a_link_on_the_way_to_the_settings_is_not_replaced_by_a_command(
    room: Room, whole: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where the workspace is a home folder, whose `.config` is kept elsewhere in it."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(room.root))
    (room.root / "kept" / "steersman").mkdir(parents=True)
    (room.root / "kept" / "steersman" / "config.toml").write_text("vim = true")
    (room.root / ".config").symlink_to("kept")
    room.run(whole, "rm .config; mkdir -p .config/steersman; echo evil > .config/steersman/config.toml")
    assert (room.root / ".config" / "steersman" / "config.toml").read_text() == "vim = true"


@pytest.mark.parametrize("way", ["itself", "below", "by a link"])
def test_a_workspace_that_is_part_of_the_settings_is_read_only(
    room: Room, whole: Confinement, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """docs/security.md: the settings can be read but not written, by the file tools and by commands alike."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(room.outside if way != "itself" else room.root.parent))
    if way == "itself":
        (room.root.parent / "steersman").symlink_to(room.root)
    elif way == "below":
        (room.outside / "steersman").symlink_to(room.root.parent)
    else:
        (room.outside / "steersman").mkdir()
        (room.outside / "steersman" / "agents").symlink_to(room.root)
    (room.root / "folder" / ".git").mkdir(parents=True)
    with pytest.raises(ProtectedPath, match="protected by"):
        Workspace(room.root).replace("folder/new", b"")
    (room.root / "old").write_text("mine")
    said, code = room.run(whole, "cat old; echo x > new; echo x > folder/new; echo x > old; mv folder other; false")
    assert (said.startswith("mine"), code) == (True, 1)
    assert sorted(path.name for path in room.root.rglob("*")) == [".git", "folder", "old"]
    assert (room.root / "old").read_text() == "mine"


def test_a_link_by_which_a_store_or_a_list_is_found_is_not_replaced_by_a_command(
    room: Room, whole: Confinement
) -> None:
    """docs/security.md: the program that opens it next would believe what a command has put in its place."""
    kept, link = room.outside / "kept", room.root / "state"
    kept.mkdir()
    link.symlink_to(kept)
    Trust(link / "trust.json").add(room.root / "elsewhere" / ".mcp.json", "0" * 64)
    with Session.create(link / "s.db", id="one"):
        room.run(whole, "rm state; mkdir state; echo evil > state/s.db; echo evil > state/trust.json")
    assert link.resolve() == kept


def test_a_link_that_is_a_list_of_trusted_files_is_not_replaced_by_a_command(room: Room, whole: Confinement) -> None:
    kept = room.outside / "pins.json"
    kept.write_text("{}")
    (room.root / "pins.json").symlink_to(kept)
    Pins(room.root / "pins.json")
    room.run(whole, "rm pins.json; echo evil > pins.json")
    assert (room.root / "pins.json").resolve() == kept
