"""Temporary folders: private, gone with their owner, and removed by the next one where the owner was killed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from tests.tools.confine.rooms import open_files

from steersman.tools.confine.scratch import Scratch

KILLED = """
import os
from steersman.tools.confine.scratch import Scratch
scratch = Scratch()
open(scratch.make_folder("tmp") + "/file", "w").close()
os.kill(os.getpid(), 9)
"""
DEEP = """
os.chdir(scratch.make_folder("tmp"))
for _ in range(1500):
    os.mkdir("d")
    os.symlink({mine!r}, "link")
    os.chdir("d")
os.makedirs("closed/inside")
open("closed/inside/file", "w").close()
os.chmod("closed/inside", 0)
os.chmod("closed", 0)
"""
LIVING = """
import sys
from steersman.tools.confine.scratch import Scratch
scratch = Scratch()
print(scratch.make_folder("tmp"), flush=True)
sys.stdin.read()
"""


def command(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_what_a_killed_program_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    (tmp_path / "steersman-mine").mkdir()  # of the user, or of another program that has a similar name
    (tmp_path / "steersman-mine" / "lock").touch()
    (tmp_path / "steersman-file").touch()
    (tmp_path / "steersman-link").symlink_to(tmp_path)
    others = {"steersman-mine", "steersman-file", "steersman-link"}
    killed = subprocess.run(command(KILLED), env=environment, timeout=60, check=False)
    assert killed.returncode == -9
    [stale] = {path.name for path in tmp_path.iterdir()} - others
    with subprocess.Popen(command(LIVING), env=environment, stdin=-1, stdout=-1, text=True) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        base = Path(first.stdout.readline().strip()).parent
        assert {path.name for path in tmp_path.iterdir()} - others == {base.name}
        assert base.name != stale
        with subprocess.Popen(command(LIVING), env=environment, stdin=-1, stdout=-1, text=True) as second:
            assert second.stdin is not None
            assert second.stdout is not None
            second.stdout.readline()
            assert base.is_dir()
            second.stdin.close()
        first.stdin.close()
    assert {path.name for path in tmp_path.iterdir()} == others


def test_folders_are_deleted_however_deep_and_closed_they_are(tmp_path: Path) -> None:
    """A command chooses what is in its temporary folder: the next program has to get rid of it."""
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    code = f"{KILLED.rpartition('os.kill')[0]}{DEEP.format(mine=str(tmp_path / 'mine'))}os.kill(os.getpid(), 9)"
    assert subprocess.run(command(code), env=environment, timeout=60, check=False).returncode == -9
    assert len([*(tmp_path / "tmp").iterdir()]) == 1
    unprivileged = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    done = subprocess.run(
        [*unprivileged, *command(LIVING)], env=environment, input="", capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [*(tmp_path / "tmp").iterdir()] == []
    assert (tmp_path / "mine/file").exists()


def test_a_folder_is_private_and_goes_when_it_is_closed() -> None:
    scratch = Scratch()
    folder = Path(scratch.make_folder("tmp"))
    base = folder.parent
    assert [stat.S_IMODE(path.stat().st_mode) for path in (base, folder)] == [0o700, 0o700]
    assert scratch.make_folder("tmp") == str(folder)
    assert [target for _, target in open_files() if target.startswith(f"{base}/")] == [f"{base}/lock"]
    scratch.close()
    assert not base.exists()
    assert not [target for _, target in open_files() if target.startswith(f"{base}/")]
    again = Path(scratch.make_folder("tmp"))
    assert again != folder
    del scratch
    assert not again.exists()
