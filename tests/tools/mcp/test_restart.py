"""A server that runs from a workspace is not started again with what a model wrote there, outside the sandbox."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from pathlib import Path

import pytest
from tests.rows import each_row
from tests.tools.builtin.shells import run
from tests.tools.mcp.kit import HERE, call, entered, text

from steersman.tools import Workspace, bash_tool, confinement
from steersman.tools.confine.changed_folders import count_changes
from steersman.tools.confine.workspace import ProtectedPath
from steersman.tools.mcp import StdioServer

pytestmark = pytest.mark.real_time

PLACES = ["its program", "its folder", "a folder of its libraries", "an option"]


def make_server(place: str, project: Path, elsewhere: Path) -> StdioServer:
    """A server that runs `hook.py` of the project, found in one way or another."""
    script = str(shutil.copy(HERE / "small_server.py", project / "server.py"))
    (project / "hook.py").touch()
    (project / "boot.py").write_text("import hook, runpy; runpy.run_path('server.py', run_name='__main__')")
    (elsewhere / "boot.py").write_text(f"import hook, runpy; runpy.run_path({script!r}, run_name='__main__')")
    match place:
        case "its program":
            return StdioServer(command=sys.executable, args=[script], cwd=elsewhere)
        case "its folder":
            return StdioServer(command=sys.executable, args=["-m", "boot"], cwd=project)
        case "a folder of its libraries":
            path = f"/nowhere:{project}"
            return StdioServer(command=sys.executable, args=["boot.py"], cwd=elsewhere, env={"PYTHONPATH": path})
        case _:
            code = f"import sys; sys.path.insert(0, {str(project)!r}); exec(open('boot.py').read())"
            return StdioServer(command=sys.executable, args=["-c", code, f"--from={project}"], cwd=elsewhere)


@pytest.mark.parametrize("place", PLACES[:2])
async def test_what_a_model_wrote_is_not_run_by_starting_a_server_again(tmp_path: Path, place: str) -> None:
    """docs/mcp.md: a server whose files tools may have changed is not started again until the user asks for it."""
    project, elsewhere, mark = tmp_path / "project", tmp_path / "elsewhere", tmp_path / "ran"
    project.mkdir()
    elsewhere.mkdir()
    spec = make_server(place, project, elsewhere)
    name = "server.py" if place == "its program" else "hook.py"
    evil = f"open({str(mark)!r}, 'w').close()"
    async with entered(small=spec) as servers:
        Workspace(project).replace(name, evil.encode())
        assert text(await call(servers, "mcp:small:echo", text="still fine")) == "still fine"
        await call(servers, "mcp:small:exit")
        output = await call(servers, "mcp:small:echo", text="again")
        assert not mark.exists()
        assert output.is_error
        assert "it is not started again, because tools have changed files where it runs" in text(output)


@pytest.mark.parametrize("place", PLACES)
def test_all_that_a_server_may_run_code_from_counts(tmp_path: Path, place: str) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    places = make_server(place, project, elsewhere).list_places()
    before, other = count_changes(places), count_changes([str(elsewhere)])
    Workspace(project).replace("new", b"")
    assert count_changes(places) > before
    assert count_changes([str(elsewhere)]) == other


async def test_a_program_that_is_found_by_the_search_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own, and those that it finds there itself, as `npx` finds `node`; only a command can write there."""
    if confinement().kind == "none":
        pytest.skip(confinement().reason)
    project = tmp_path / "project"
    (project / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{project}/bin:/usr/bin")
    places = StdioServer(command="npx", cwd=tmp_path).list_places()
    before = count_changes(places)
    with pytest.raises(ProtectedPath):
        Workspace(project).replace("bin/node", b"")
    await run(bash_tool(project), "touch bin/node")
    assert count_changes(places) > before


async def test_the_user_can_start_it_again(tmp_path: Path) -> None:
    script = str(shutil.copy(HERE / "small_server.py", tmp_path / "server.py"))
    async with entered(small=StdioServer(command=sys.executable, args=[script])) as servers:
        Workspace(tmp_path).replace("other.py", b"")
        await call(servers, "mcp:small:exit")
        assert (await call(servers, "mcp:small:echo", text="no")).is_error
        await servers.refresh()
        assert text(await call(servers, "mcp:small:echo", text="yes")) == "yes"


async def test_a_command_may_have_changed_it_as_well(tmp_path: Path) -> None:
    if confinement().kind == "none":
        pytest.skip(confinement().reason)
    script = str(shutil.copy(HERE / "small_server.py", tmp_path / "server.py"))
    async with entered(small=StdioServer(command=sys.executable, args=[script])) as servers:
        await run(bash_tool(tmp_path), "echo 'raise SystemExit' > server.py")
        await call(servers, "mcp:small:exit")
        assert "not started again" in text(await call(servers, "mcp:small:echo", text="no"))


async def test_a_link_that_a_model_put_there_does_not_lead_around_it(tmp_path: Path) -> None:
    """The program was in the workspace; now a link leads from there to where only commands write."""
    project, elsewhere, outside, mark = [tmp_path / name for name in ("project", "elsewhere", "outside", "ran")]
    for folder in (project / "sub", elsewhere, outside):
        folder.mkdir(parents=True)
    script = str(shutil.copy(HERE / "small_server.py", project / "sub/server.py"))
    (outside / "server.py").write_text(f"open({str(mark)!r}, 'w').close()")
    async with entered(small=StdioServer(command=sys.executable, args=[script], cwd=elsewhere)) as servers:
        Workspace(project).replace("note", b"")
        (project / "sub").rename(project / "old")
        (project / "sub").symlink_to(outside)
        await call(servers, "mcp:small:exit")
        assert "not started again" in text(await call(servers, "mcp:small:echo", text="no"))
        assert not mark.exists()


async def test_what_is_written_while_a_start_is_put_off_counts(tmp_path: Path) -> None:
    script = str(shutil.copy(HERE / "small_server.py", tmp_path / "server.py"))
    async with entered(small=StdioServer(command=sys.executable, args=[script])) as servers:
        (tmp_path / "server.py").write_text(
            "raise SystemExit(1)"
        )  # by the user, so that it fails and the next start waits
        await call(servers, "mcp:small:exit")
        assert "it exited" in text(await call(servers, "mcp:small:echo", text="no"))
        waiting = asyncio.create_task(call(servers, "mcp:small:echo", text="no"))
        await asyncio.wait({waiting}, timeout=0.1)
        Workspace(tmp_path).replace("server.py", b"")
        assert "not started again" in text(await waiting)


async def test_more_folders_that_a_command_can_write_count(tmp_path: Path) -> None:
    if confinement().kind == "none":
        pytest.skip(confinement().reason)
    project, more = tmp_path / "project", tmp_path / "more"
    project.mkdir()
    more.mkdir()
    shutil.copy(HERE / "small_server.py", more / "server.py")
    spec = StdioServer(command="sh", args=["-c", f"exec python '{more}/server.py'"], cwd="/")
    before = count_changes(spec.list_places())
    await run(bash_tool(project, writable=[more]), "true")
    assert count_changes(spec.list_places()) > before


@each_row(
    ("words", "value"),
    [
        ("exec python ~/project/server.py", ""),
        ("exec python $HOME/project/server.py", ""),
        ('cd "${HOME}/project" && exec python server.py', ""),
        ("exec python ../project/server.py", ""),
        ("exec python $WHERE/server.py", "{home}/project"),
        ("exec python $WHERE/project/server.py", "{home}"),
        ("exec python $WHERE", "-u {home}/project/server.py"),
        ("exec node server.js", "--require={home}/project/server.js"),
        ("exec python -I~/x -I{home}/project", ""),
        ("exec python '{home}/my project/server.py'", ""),
        ('cd "$HOME/my project"; exec python server.py', ""),
        ("exec python {home}/my\\ project/server.py", ""),
        ("exec node server.js", "--require='{home}/my project/server.js'"),
    ],
)
def test_a_folder_counts_however_a_server_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, value: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / ("my project" if "my" in words + value else "project")
    for folder in (project, tmp_path / "elsewhere"):
        folder.mkdir(exist_ok=True)
    for name in ("server.py", "server.js"):
        (project / name).touch()
    words, value = words.replace("{home}", str(tmp_path)), value.replace("{home}", str(tmp_path))
    spec = StdioServer(command="sh", args=["-c", words], env={"WHERE": value}, cwd=tmp_path / "elsewhere")
    before = count_changes(spec.list_places())
    Workspace(project).replace("new", b"")
    assert count_changes(spec.list_places()) > before


def test_what_a_server_names_is_found_at_once_beside_texts_of_any_length(tmp_path: Path) -> None:
    """It runs in the event loop, and a project's file may have a megabyte."""
    env = {"LONG": "x" * 1_000, "MANY": "$LONG" * 500, "WORD": "y" * 200_000}
    spec = StdioServer(command="sh", args=["-c", f"exec python {tmp_path}/server.py"], env=env)
    (tmp_path / "server.py").touch()
    began = time.process_time()
    assert f"{tmp_path}/server.py" in spec.list_places()
    assert time.process_time() - began < 2


@pytest.mark.parametrize("quoted", ["'{}'", '"{}"', "{}"])
def test_what_a_server_names_is_found_in_a_long_command(tmp_path: Path, quoted: str) -> None:
    """docs/mcp.md: a file that its arguments name, also by a variable, however much is before it."""
    program = tmp_path / "my work" / "server.py"
    program.parent.mkdir()
    program.touch()
    named = quoted.format(str(program) if quoted != "{}" else str(program).replace(" ", "\\ "))
    for command in (f"echo {'x ' * 5_000}; python {named}", f"echo {'$SHORT ' * 200}; python $FOLDER/server.py"):
        spec = StdioServer(command="sh", args=["-c", command], env={"SHORT": "x", "FOLDER": str(program.parent)})
        assert str(program) in spec.list_places()


async def test_a_change_elsewhere_does_not_matter(tmp_path: Path) -> None:
    for name in ("project", "project2"):
        (tmp_path / name).mkdir()
    script = str(shutil.copy(HERE / "small_server.py", tmp_path / "project2/server.py"))
    async with entered(small=StdioServer(command=sys.executable, args=[script], cwd=tmp_path)) as servers:
        Workspace(tmp_path / "project").replace("server.py", b"")
        await call(servers, "mcp:small:exit")
        assert text(await call(servers, "mcp:small:echo", text="again")) == "again"
