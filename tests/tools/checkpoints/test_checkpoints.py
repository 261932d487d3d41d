"""What checkpoints cover and what they leave alone, one case each; the property is in test_property.py."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.checkpoints.model import Room, look

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import builtin_tools
from steersman.tools.checkpoints.checkpoints import MAX_AGE, Checkpoints, remove_session
from steersman.tools.checkpoints.restore import Restorer
from steersman.tools.checkpoints.scan import Limits, Scanner
from steersman.tools.checkpoints.states import Change
from steersman.tools.checkpoints.store import Place
from steersman.tools.checkpoints.watching import WatchedTools
from steersman.tools.confine.changed_folders import count_changes
from steersman.tools.confine.path_errors import ProtectedPath
from steersman.tools.confine.workspace import Workspace
from steersman.types.content import ToolCall

ROOT = Path(__file__).parents[3]
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    """A workspace with a store beside it."""
    room = Room(tmp_path)
    yield room
    room.points.close()


def run_call(room: Room, command: str, *, same: bool = False) -> None:
    """A call that runs a command in the workspace."""
    name = room.begin(room.place(same=same))
    subprocess.run(["bash", "-c", command], cwd=room.root, check=True)
    room.points.end(name)


def unknown(room: Room) -> list[list[str]]:
    """What changed and cannot be taken back, of each checkpoint."""
    return [list(at.unknown) for at in room.points.list()]


@pytest.mark.parametrize("part", ["HEAD", "objects", "refs"])
def test_an_undo_makes_no_repository_of_what_calls_left(room: Room, part: str) -> None:
    """A repository in parts: one call leaves one of them, the next removes it and leaves the others, which stay."""
    make = {"HEAD": "echo 'ref: refs/heads/main' > x/HEAD", "objects": "mkdir x/objects", "refs": "mkdir x/refs"}
    others = [name for name in make if name != part]
    run_call(room, f"mkdir x; {make[part]}")
    run_call(room, f"rm -r x/{part}; {'; '.join(make[name] for name in others)}")
    for name in others:  # not of the calls, so that an undo leaves it
        (room.root / "x" / name / "mine").touch() if name != "HEAD" else (room.root / "x/HEAD").write_text("ref: mine")
    last = room.points.list()[-1]
    restored = room.points.apply(room.points.plan({last.id: False}))
    assert restored.failed == {f"x/{part}": "it would be part of a git repository"}
    assert not (room.root / "x" / part).exists()


def test_a_kill_at_any_step_loses_nothing(tmp_path: Path) -> None:
    """A process is killed before each fsync, rename, removal and commit of a checkpoint, an undo and a redo."""
    folder = tmp_path if MEMORY is None else MEMORY / f"steersman-{os.getpid()}-crashing"
    folder.mkdir(exist_ok=True)
    words = [sys.executable, "-m", "tests.tools.checkpoints.crashing", str(folder), "1"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=110, check=False)
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [int(count) > 15 for count in done.stdout.split()] == [True] * 3


def test_what_is_not_covered_is_named_and_never_touched(room: Room) -> None:
    """Caches, folders that .gitignore hides and large files: nothing of them is removed, whatever looked new."""
    root = room.root
    room.points.close()
    room.points = Checkpoints(root, room.store, "session", limits=Limits(file_bytes=1000))
    for name in ("node_modules/x/y.js", "build/out.o", "big.bin", "grows.txt", "src/a.py", ".env"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("before")
    (root / ".gitignore").write_text("build/\n.env\n")
    (root / "big.bin").write_bytes(b"x" * 2000)
    run_call(
        room,
        "echo more > node_modules/new.js; rm build/out.o; echo > build/other; echo y > big.bin; rm .env;"
        "head -c 3000 /dev/zero > grows.txt; head -c 3000 /dev/zero > huge.bin; echo new > src/b.py; echo z > src/a.py",
    )
    assert unknown(room) == [["big.bin", "build", "huge.bin", "node_modules"]]
    room.undo()
    files = {os.fsdecode(path): thing[2] for path, thing in look(root).items() if thing[0] == "file"}
    assert (files["src/a.py"], files[".env"]) == (b"before", b"before")
    assert "src/b.py" not in files
    assert (files["big.bin"], files["build/other"], files["node_modules/new.js"]) == (b"y\n", b"\n", b"more\n")
    assert (len(files["grows.txt"]), len(files["huge.bin"])) == (3000, 3000)


def test_more_files_than_the_limit_are_left_alone(room: Room) -> None:
    """A folder that did not fit before, and fits afterwards, does not look new: its files would be removed."""
    root = room.root
    room.points.close()
    room.points = Checkpoints(root, room.store, "session", limits=Limits(entries=9))
    for folder in ("a", "b"):
        (root / folder).mkdir()
        for number in range(5):
            (root / folder / f"{number}").write_text("precious")
    run_call(room, "rm a/1 a/2 a/3 a/4; echo new > b/new")
    room.undo()
    assert sorted(path.name for path in (root / "b").iterdir()) == ["0", "1", "2", "3", "4", "new"]
    assert sorted(path.name for path in (root / "a").iterdir()) == ["0", "1", "2", "3", "4"]


def test_rules_of_a_project_are_matched_for_a_bounded_time(room: Room, tmp_path: Path) -> None:
    """Each level of folders may have thousands of rules, and each folder is matched with all of them."""
    (room.root / "a/b").mkdir(parents=True)
    (room.root / "a/.gitignore").write_text("\n".join(f"*x{number}" for number in range(100)))
    (room.root / "a/c.txt").write_text("1")
    (room.root / "d").mkdir()
    room.points.close()
    room.points = Checkpoints(room.root, room.store, "session", limits=Limits(matching=1_000))
    run_call(room, "touch a/b/new; echo 2 > a/c.txt; echo 3 > d/e.txt")
    assert [change.path for change in room.points.list()[-1].changes] == ["a/c.txt", "d/e.txt"]
    assert unknown(room) == [["a/b"]]


def test_repositories_are_never_touched(room: Room) -> None:
    """`.git` in any folder and spelling, `.steersman`, `.mcp.json`, and a bare repository."""
    names = (".git/HEAD", "sub/.git/HEAD", ".GIT/x", ".steersman/x", ".mcp.json", "bare/refs/x")
    for name in (*names, "bare/HEAD", "bare/objects/x"):
        (room.root / name).parent.mkdir(parents=True, exist_ok=True)
        (room.root / name).write_text("before")
    run_call(
        room,
        f"for name in {' '.join(names)}; do echo after > $name; done; echo x > a; mkdir -p n/.git; echo > n/.git/y",
    )
    assert [[change.path for change in at.changes] for at in room.points.list()] == [["a", "n"]]
    room.undo()
    assert [(room.root / name).read_text() for name in names] == ["after\n"] * len(names)
    assert (room.root / "n" / ".git" / "y").exists()
    assert not (room.root / "a").exists()


def test_a_link_to_the_outside_is_restored_and_not_followed(room: Room, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("outside")
    (room.root / "d").mkdir()
    (room.root / "d" / "x").write_text("inside")
    (room.root / "to").symlink_to(outside)
    run_call(room, "echo changed > d/x; rm to")
    # The user moves the folder away, and puts a link to elsewhere in its place.
    os.rename(room.root / "d", room.root / "moved")
    (room.root / "d").symlink_to(outside)
    plan = room.points.plan({room.points.list()[0].id: False})
    assert dict(plan.conflicts) == {"d/x": "you changed it since"}
    room.undo()
    assert (outside / "x").read_text() == "outside"
    assert os.readlink(room.root / "to") == str(outside)


def test_an_edit_of_the_user_during_a_run_stays(room: Room) -> None:
    """It is the user's if it comes between two calls; what the run did to the file before cannot be taken back then."""
    file = room.root / "a"
    file.write_text("one\n")
    run_call(room, "echo two >> a; echo x > b")
    file.write_text(file.read_text() + "by the user\n")
    run_call(room, "echo three >> a", same=True)
    (room.root / "b").write_text("by the user")
    room.undo()
    assert file.read_text() == "one\ntwo\nby the user\n"
    assert (room.root / "b").read_text() == "by the user"


def test_several_checkpoints_are_taken_back_at_once_up_to_the_edit_of_the_user(room: Room) -> None:
    (room.root / "a").write_text("0")
    (room.root / "b").write_text("0")
    run_call(room, "echo 1 > a; echo 1 > b")
    (room.root / "b").write_text("by the user")
    run_call(room, "echo 2 > a; echo 2 > b")
    plan = room.points.plan({at.id: False for at in room.points.list()})
    assert dict(plan.conflicts) == {"b": "you changed it since"}
    assert room.points.apply(plan).failed == {}
    assert ((room.root / "a").read_text(), (room.root / "b").read_text()) == ("0", "by the user")


def test_a_change_between_plan_and_undo_is_not_overwritten(room: Room) -> None:
    run_call(room, "echo 1 > a; echo 1 > b")
    plan = room.points.plan({room.points.list()[0].id: False})
    (room.root / "a").write_text("by the user")
    assert room.points.apply(plan).failed == {"a": "it has changed meanwhile"}
    assert (room.root / "a").read_text() == "by the user"
    assert not (room.root / "b").exists()


def test_a_change_at_the_last_moment_is_not_overwritten(room: Room) -> None:
    """The path is looked at again right before the rename: here the user writes after the first look at all paths."""
    (room.root / "a").write_text("before")
    run_call(room, "echo after > a")
    scanner = Scanner(room.root, Limits(), lambda name, data: True)
    [change] = room.points.list()[0].changes
    reads: list[str] = []

    def read(name: str) -> bytes:
        reads.append(name)
        if len(reads) == 2:
            (room.root / "a").write_text("by the user")
        return b"before"

    restored = Restorer(scanner, read, 1).run([change.reverse()])
    assert (restored.done, restored.failed) == ([], {"a": "it has changed meanwhile"})
    assert os.listdir(room.root) == ["a"]
    assert (room.root / "a").read_text() == "by the user"


def test_a_change_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    """Of the same size, right after a look: its time stamp may be the same as before."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        room = Room(Path(folder))
        for number in range(10, 60):
            call = room.begin(room.place())
            (room.root / "a").write_text(f"{number}")
            room.points.end(call)
        assert [len(at.changes) for at in room.points.list()] == [1] * 50
        room.points.close()


def test_two_programs_use_one_store_and_neither_ends_the_calls_of_the_other(room: Room) -> None:
    (room.root / "a").write_text("0")
    call = room.begin(room.place())
    other = Checkpoints(room.root, room.store, "other")
    (room.root / "a").write_text("1")
    other.begin("x", Place("other", "run", ""), "b")
    (room.root / "b").write_text("1")
    other.end("x")
    room.points.end(call)
    assert [[change.path for change in at.changes] for at in other.list()] == [["b"]]
    assert [[change.path for change in at.changes] for at in room.points.list()] == [["a", "b"]]
    other.close()
    room.undo()
    assert os.listdir(room.root) == ["a"]
    assert (room.root / "a").read_text() == "0"


def test_what_a_killed_program_left_is_finished_also_while_another_uses_the_store(room: Room) -> None:
    (room.root / "a").write_text("0")
    other = Checkpoints(room.root, room.store, "other")
    other.begin("x", Place("other", "run", ""), "b")
    room.begin(room.place())
    room.begin(room.place(same=True), "c")
    for name in "abc":
        (room.root / name).write_text("1")
    room.points.close()  # without the ends of its calls, as after a kill
    room.reopen()
    assert [[change.path for change in at.changes] for at in room.points.list()] == [["a", "b", "c"]]
    other.end("x")
    assert [[change.path for change in at.changes] for at in other.list()] == [["b"]]
    other.close()
    room.undo()
    assert os.listdir(room.root) == ["a"]
    assert (room.root / "a").read_text() == "0"


@pytest.mark.real_time
async def test_a_store_that_cannot_be_used_is_reported_and_stops_no_call(tmp_path: Path) -> None:
    damaged = tmp_path / "c.db"
    damaged.write_bytes(b"not a database" * 100)
    (tmp_path / "work").mkdir()
    problems: list[str] = []
    watching = WatchedTools(
        lambda: Checkpoints(tmp_path / "work", damaged, "s"),
        tmp_path / "work",
        lambda: Place("s", "r", ""),
        problems.append,
    )
    script = ScriptedModel(answer(call("write", path="a", content="x"), call("write", path="b", content="x")), "Done.")
    agent = Agent(script.model, tools=[watching.watch(tool) for tool in builtin_tools(tmp_path / "work")])
    assert (await agent.run("Go.")).text == "Done."
    assert sorted(os.listdir(tmp_path / "work")) == ["a", "b"]
    assert problems == [
        f"What this run changes cannot be undone: {str(damaged)!r} cannot be used: file is not a database."
    ]


def test_a_folder_in_which_the_user_has_a_file_stays(room: Room) -> None:
    run_call(room, "mkdir -p d/e; echo x > d/e/a")
    (room.root / "d" / "mine").write_text("by the user")
    plan = room.points.plan({room.points.list()[0].id: False})
    assert [step.path for step in plan.steps] == ["d/e", "d/e/a"]
    assert room.points.apply(plan).failed == {}
    assert sorted(look(room.root)) == [b"d", b"d/mine"]


def test_modes_hard_links_and_read_only_files_come_back(room: Room) -> None:
    (room.root / "read-only").write_text("old")
    (room.root / "read-only").chmod(0o444)
    (room.root / "script").write_text("#!/bin/sh\n")
    (room.root / "script").chmod(0o755)
    os.link(room.root / "script", room.root / "other-name")
    before = look(room.root)
    run_call(room, "chmod 644 script; chmod +w read-only; echo more >> script; rm -f read-only; echo new > read-only")
    assert look(room.root) != before
    room.undo()
    assert look(room.root) == before


def test_old_checkpoints_and_those_of_a_removed_session_go(tmp_path: Path) -> None:
    now = [1_000_000.0]
    (tmp_path / "work").mkdir()
    store = tmp_path / "state" / "c.db"

    def open_session(session: str) -> Checkpoints:
        return Checkpoints(tmp_path / "work", store, session, clock=lambda: now[0])

    for number, session in enumerate(("old", "new", "other")):
        points = open_session(session)
        points.begin("call", Place(session, "run", "entry"), f"file{number}")
        (tmp_path / "work" / f"file{number}").write_text(f"content {number}")
        points.end("call")
        now[0] += MAX_AGE * 0.7
        points.close()
    now[0] -= MAX_AGE * 0.7
    for session, count in (("old", 0), ("new", 1), ("other", 1)):
        points = open_session(session)
        assert len(points.list()) == count
        points.close()
    remove_session(store, "new")
    data = store.read_bytes()
    points = open_session("other")
    assert [at.changes[0].path for at in points.list()] == ["file2"]
    points.close()
    assert b"content 2" in data
    assert store.stat().st_mode & 0o777 == 0o600
    assert store.parent.stat().st_mode & 0o777 == 0o700


def make_agent(room: Room, root: Path, problems: list[str], *calls: ToolCall) -> Agent:
    """An agent with the built-in tools, watched, that makes these calls."""
    watching = WatchedTools(lambda: room.points, root, lambda: Place("session", "run", ""), problems.append)
    tools = [watching.watch(tool) for tool in builtin_tools(root)]
    return Agent(ScriptedModel(answer(*calls), "Done.").model, tools=tools)


@pytest.mark.real_time
async def test_tools_are_watched_and_cannot_write_to_the_store(tmp_path: Path) -> None:
    """The store may be in the workspace, as in a home folder; it is not looked at, and no tool writes to it."""
    room = Room(tmp_path)
    (tmp_path / "b").write_text("before\n")
    room.points.close()
    room.points = Checkpoints(tmp_path, room.store, "session")
    with pytest.raises(ProtectedPath, match="protected by"):
        Workspace(tmp_path).replace("state/checkpoints.db", b"")
    problems: list[str] = []
    agent = make_agent(
        room,
        tmp_path,
        problems,
        call("write", path="work/new/a", content="a\n"),
        call("bash", command="echo x > state/checkpoints.db; echo after > b; cat b"),
        call("read", path="b"),
    )
    assert (await agent.run("Go.")).text == "Done."
    assert problems == []
    [point] = room.points.list()
    assert [change.path for change in point.changes] == ["b", "work/new", "work/new/a"]
    assert point.unknown == []
    room.undo()
    assert (tmp_path / "b").read_text() == "before\n"
    assert not (tmp_path / "work" / "new").exists()
    room.points.close()


@pytest.mark.real_time
async def test_what_a_call_changed_until_it_was_interrupted_is_known(room: Room) -> None:
    agent = make_agent(room, room.root, [], call("bash", command="echo x > a; echo begun; sleep 60"))
    stream = agent.prompt("Go.")
    async for event in stream:
        if event.type == "tool_execution_update":
            agent.abort()
    assert (await stream).end_reason == "aborted"
    assert [change.path for at in room.points.list() for change in at.changes] == ["a"]
    room.undo()
    assert look(room.root) == {}


def test_a_store_that_names_a_repository_changes_nothing_there(room: Room) -> None:
    """Whatever a store says: nothing that is protected is written, also in another spelling."""
    names = [".git/hooks/pre-commit", ".GIT/x", "d/.steersman/config.toml", ".mcp.json"]
    scanner = Scanner(room.root, Limits(), lambda _, __: True)
    steps: list[Change] = []
    for name in names:
        path = room.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        steps.append(Change(name, scanner.look(name), None))
    restored = Restorer(scanner, lambda _: b"evil", 1).run(steps)
    assert restored.failed == dict.fromkeys(names, "it is protected")
    assert [(room.root / name).read_text() for name in names] == ["mine"] * 4


def test_an_undo_counts_as_a_change_by_tools_for_what_runs_outside_the_sandbox(room: Room) -> None:
    run_call(room, "echo x > made")
    before = count_changes([str(room.root)])
    room.undo()
    assert not (room.root / "made").exists()
    assert count_changes([str(room.root)]) > before
