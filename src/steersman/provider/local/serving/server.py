"""The child processes that serve local models: one per file and settings, shared, ended with the last event loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import ClientError

from steersman.provider.http.pool import get_session
from steersman.provider.local.serving.child import ChildOptions, Ready
from steersman.safe_start import EXECUTABLE, clean_environment
from steersman.types.errors import IncompleteStreamError, NetworkError, ProviderError
from steersman.types.secrets import redact

_MAX_STDERR = 8 * 1024
_MAX_SHOWN = 400
_LOADING_ERROR = re.compile(r"error loading model: (.+)")
# What a program needs to run at all. The API keys of providers are not passed on.
_PASSED = (
    "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR",
    "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV",
)  # fmt: skip
_NEEDED = ("steersman", "msgspec", "xllamacpp")
# The folders in its arguments come last on its path, so that nothing in them takes the place of another module.
_PROGRAM = """
import sys
sys.path += sys.argv[1:]
from steersman.provider.local.serving.child import main
main()
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """Which file is served and how; equal settings share one child process."""

    path: Path
    context: int
    threads: int
    parallel: int = 2
    batch: int = 256
    gpu_layers: int | None = None
    slots: Path = field(default_factory=Path)


class Child:
    """One child process. `ready` gives its URL, `ended` how it ended; a thread of its own sets both."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.key = secrets.token_urlsafe(32)
        self.ready: Future[str] = Future()
        self.ended: Future[str] = Future()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._words: deque[bytes] = deque()
        # The kernel kills the child with the thread that started it, so that thread lives as long as the child.
        threading.Thread(target=self._run_guarded, name="steersman-local", daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The process id, once there is one."""
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it may still answer."""
        return not self.ended.done() and not self._closed

    def close(self) -> None:
        """Kill it now; it has nothing to finish."""
        self._closed = True
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def make_error(self) -> IncompleteStreamError:
        """The error for an answer that was cut off by the end of the process."""
        how = self.ended.result() if self.ended.done() else "it does not respond"
        return IncompleteStreamError(
            f"The process of the local model ended in the middle of an answer: {how}.", provider="local"
        )

    def _run_guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001  # a thread has no caller; those who wait for the futures get the error
            self._finish(f"{type(error).__name__}: {error}")

    def _run(self) -> None:
        process = self._process = subprocess.Popen(
            # -P: not from the current folder, where a project could have modules with the names of ours. -s: nor from
            # the user's packages, of which Python runs some whenever it starts; see `list_places`.
            [EXECUTABLE, "-P", "-s", "-c", _PROGRAM, *list_places()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.settings.slots,
            env=build_environment(os.environ),
            # Ctrl-C in a terminal must not reach the child.
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        listening = threading.Thread(target=self._read_stderr, args=(process,), daemon=True)
        listening.start()
        try:
            process.stdin.write(msgspec.json.encode(self._build_options()) + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if line and not self._closed:
                self.ready.set_result(msgspec.json.decode(line, type=Ready).url)
        except (OSError, msgspec.DecodeError):
            process.kill()
        if self._closed:
            process.kill()
        code = process.wait()
        listening.join(1)
        # Only now: closing its standard input ends the child.
        process.stdin.close()
        process.stdout.close()
        self._finish(self._describe_end(code), code)

    def _build_options(self) -> ChildOptions:
        given = self.settings
        return ChildOptions(
            path=str(given.path),
            key=self.key,
            slots=str(given.slots),
            context=given.context,
            parallel=given.parallel,
            threads=given.threads,
            batch=given.batch,
            parent=os.getpid(),
            gpu_layers=given.gpu_layers,
        )

    def _read_stderr(self, process: subprocess.Popen[bytes]) -> None:
        """Keep the last part of its standard error."""
        assert process.stderr is not None
        kept = 0
        with process.stderr as stderr:
            while said := os.read(stderr.fileno(), 4096):
                self._words.append(said)
                kept += len(said)
                while kept - len(self._words[0]) >= _MAX_STDERR:
                    kept -= len(self._words.popleft())

    def _describe_end(self, code: int) -> str:
        words = b"".join(self._words).decode("utf-8", "replace")
        cause = _LOADING_ERROR.search(words)
        last = " ".join(redact(cause[1] if cause else words, self.key).split())[-_MAX_SHOWN:]
        ending = f"it was killed by {_get_signal_name(-code)}" if code < 0 else f"it exited with code {code}"
        return f"{ending} and the message {last!r}" if last else f"{ending}, without a message"

    def _finish(self, how: str, code: int = 1) -> None:
        if not self.ready.done():
            text = f"The process of the local model ended before it was ready: {how}."
            if code > 0:
                file = str(self.settings.path)
                text = f"{text} Check the file {file!r}: it may be damaged, or of a kind that cannot be run here."
            # An exit of its own will happen again; a signal may not, so only that is worth a retry.
            error = NetworkError if code < 0 else ProviderError
            self.ready.set_exception(error(text, provider="local"))
        self.ended.set_result(how)


def build_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of the child: what it needs to start. No PYTHONPATH; see `list_places`."""
    return clean_environment({name: given[name] for name in _PASSED if name in given})


def list_places() -> list[str]:
    """List the folders in which the packages of the child are, unless its Python has them itself.

    PYTHONPATH would come first there: a folder of the user's in which a model has written a `json.py`, for instance.
    """
    own = tuple(prefix.rstrip(os.sep) + os.sep for prefix in (sys.prefix, sys.base_prefix))
    found = [os.path.dirname(folder) for name in _NEEDED for folder in _find_package(name)]
    return [place for place in dict.fromkeys(found) if os.path.isabs(place) and not f"{place}{os.sep}".startswith(own)]


def _find_package(name: str) -> list[str]:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []  # it is not installed, and the child says so
    return [] if spec is None or spec.origin is None else [*(spec.submodule_search_locations or ())]


def _get_signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


NO_KEEPALIVE: Mapping[str, str] = {"connection": "close"}
"""After a stream the server closes its connection although it says keep-alive: no connection is used twice."""

_lock = threading.Lock()
_servers: dict[Settings, Server] = {}


class Server:
    """A running child, what its slots hold, and the event loops that use it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.child = Child(settings)
        self.url = ""
        self.props: Mapping[str, Any] = {}
        self.held: dict[int, str] = {}
        self.keepers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """POST `body` as JSON; the status and the JSON of the response."""
        return await self._request("POST", path, body)

    async def get(self, path: str) -> tuple[int, Any]:
        """GET `path`; the status and the JSON of the response."""
        return await self._request("GET", path, None)

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {self.child.key}", **NO_KEEPALIVE}
        try:
            client = await get_session()
            async with client.request(method, self.url + path, json=body, headers=headers) as response:
                return response.status, await response.json(content_type=None)
        except (ClientError, OSError, ValueError) as error:
            raise NetworkError(f"The local model does not respond: {error}.", provider="local") from None

    async def explain_error(self, error: ProviderError) -> ProviderError:
        """The error itself, or the end of the child process if that caused it."""
        if error.info.kind not in ("network", "incomplete"):
            return error
        # The connection breaks a moment before the process ends.
        await asyncio.to_thread(wait, [self.child.ended], 1)
        return error if self.child.alive else self.child.make_error()


async def get_or_start_server(settings: Settings) -> Server:
    """The running server for these settings; started if there is none."""
    loop = asyncio.get_running_loop()
    _forget_closed_loops()
    with _lock:
        server = _servers.get(settings)
        if server is None or not server.child.alive:
            server = _servers[settings] = Server(settings)
    if loop not in server.keepers:
        keeper = server.keepers[loop] = _keep_open(server, loop)
        # Once started, the generator is known to the loop, which closes it at its end, and the child with it.
        await anext(keeper)
    ready = asyncio.wrap_future(server.child.ready)
    ready.add_done_callback(lambda future: future.cancelled() or future.exception())
    # Shielded: others may wait for the same child, so a cancel of one waiter must not reach them.
    server.url = await asyncio.shield(ready)
    if not server.props:
        status, props = await server.get("/props")
        server.props = props if status == 200 else {"total_slots": settings.parallel}
    return server


async def _keep_open(server: Server, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if _release(server, loop):
            await asyncio.wrap_future(server.child.ended)


def _release(server: Server, loop: asyncio.AbstractEventLoop) -> bool:
    """Remove a loop; kill the child with the last one, and return whether it was."""
    with _lock:
        server.keepers.pop(loop, None)
        if server.keepers:
            return False
        if _servers.get(server.settings) is server:
            del _servers[server.settings]
    server.child.close()
    return True


def _forget_closed_loops() -> None:
    """Remove loops that were closed without shutting down their async generators."""
    with _lock:
        gone = [(server, loop) for server in _servers.values() for loop in server.keepers if loop.is_closed()]
    for server, loop in gone:
        _release(server, loop)


def _close_all() -> None:
    for server in list(_servers.values()):
        server.child.close()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    # A forked process must not kill its parent's children.
    os.register_at_fork(after_in_child=_servers.clear)
