"""Trust in `.mcp.json` files by their content, and the pinned definitions of tools.

Trusted hashes are kept in the user's own settings, never in the folder of the trusted file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import msgspec

from steersman.tools.confine.own_files import protect_file
from steersman.tools.mcp.errors import McpError
from steersman.tools.threads import call_in_thread

_VERSION = 1
_SECTION = "mcp_files"
_MAX_FILE_BYTES = 16 * 1024 * 1024


def find_config_folder() -> Path:
    """Find the folder of the user's settings: `$XDG_CONFIG_HOME/steersman`, or `~/.config/steersman`."""
    base, home = os.environ.get("XDG_CONFIG_HOME", ""), os.path.expanduser("~")
    if not os.path.isabs(base) and not os.path.isabs(home):
        raise McpError("There is no home folder for the user's settings; set the environment variable HOME.")
    return (Path(base) if os.path.isabs(base) else Path(home) / ".config") / "steersman"


class JsonFile:
    """A JSON file of sections with texts by key. Nothing is cached: changes by another process count at once."""

    __slots__ = ("path", "what")

    def __init__(self, path: str | Path, what: str) -> None:
        self.path = Path(os.path.abspath(Path(path).expanduser()))
        self.what = what
        protect_file(self.path)

    def read(self) -> dict[str, dict[str, str]]:
        """Read all entries; none where there is no file. Raises `McpError` for a damaged file."""
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise McpError(f"The {self.what} at {str(self.path)!r} cannot be read: {error.strerror}.") from error
        try:
            found: Any = msgspec.json.decode(data)
            if found["version"] != _VERSION:
                raise ValueError(f"its version is {found['version']!r}, not {_VERSION}")
            return msgspec.convert(found["entries"], dict[str, dict[str, str]])
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
            raise McpError(
                f"The {self.what} at {str(self.path)!r} is damaged ({error}). Repair it, or remove it to start again."
            ) from error

    def update(self, work: Callable[[dict[str, dict[str, str]]], None]) -> None:
        """Read, change and replace the file under a lock against other processes."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _lock_file(self.path.with_name(f".{self.path.name}.lock")):
                entries = self.read()
                work(entries)
                self._replace(msgspec.json.format(msgspec.json.encode({"version": _VERSION, "entries": entries})))
        except OSError as error:
            raise McpError(f"The {self.what} at {str(self.path)!r} cannot be written: {error.strerror}.") from error

    def _replace(self, data: bytes) -> None:
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise


class Trust:
    """The files the user has trusted, by path and content; kept in `~/.config/steersman/trust.json` or at `path`."""

    __slots__ = ("_file",)

    def __init__(self, path: str | Path | None = None) -> None:
        self._file = JsonFile(find_config_folder() / "trust.json" if path is None else path, "list of trusted files")

    @property
    def path(self) -> Path:
        """The file that holds the list."""
        return self._file.path

    def allows(self, path: str | Path, content: bytes) -> bool:
        """Whether the user has trusted this file with exactly this content."""
        named = self._resolve_path(path)
        return self._file.read().get(_SECTION, {}).get(str(named)) == hash_content(content)

    def add(self, path: str | Path, sha256: str) -> None:
        """Trust a file with the content that has this hash; a hash added before is replaced."""
        named = self._resolve_path(path)
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise McpError(f"'sha256' is the hash in UntrustedFile.sha256, got {sha256!r:.100}.")
        self._file.update(lambda entries: entries.setdefault(_SECTION, {}).update({str(named): sha256}))

    def remove(self, path: str | Path) -> None:
        """Stop trusting a file, whatever it contains."""
        named = self._resolve_path(path)

        def forget(entries: dict[str, dict[str, str]]) -> None:
            entries.get(_SECTION, {}).pop(str(named), None)

        self._file.update(forget)

    def _resolve_path(self, path: str | Path) -> Path:
        """Resolve the folder of a file. The list must not be in its folder: the author of the file could change it.

        A file that is a link keeps its own name, and so do folders `.steersman` and `.claude`: what it says counts for
        the folder of the link, so trust in the target, in another project, says nothing about it.
        """
        given = Path(os.path.abspath(Path(path).expanduser()))
        kept_names = given.parts[-2:] if given.parent.name in (".steersman", ".claude") else given.parts[-1:]
        named = Path(os.path.realpath(Path(*given.parts[: -len(kept_names)])), *kept_names)
        kept = Path(os.path.realpath(self.path))
        if any(kept.is_relative_to(folder) for folder in (named.parent, Path(os.path.realpath(named)).parent)):
            raise McpError(
                f"The list of trusted files, {str(self.path)!r}, is in the folder of {str(named)!r}, whose author "
                "could change the list. Keep it elsewhere: Trust(path)."
            )
        return named


def hash_content(content: bytes) -> str:
    """Return the SHA-256 hash of a content."""
    return sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class ChangedTool:
    """A tool whose description or schema differs from the pinned one; `pinned` and `found` are the two hashes."""

    server: str
    tool: str
    pinned: str
    found: str
    description: str
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The tool's name for agents and approval rules."""
        return f"mcp:{self.server}:{self.tool}"


class Pins:
    """The hashes of the first definitions of tools, by server and tool; in memory, or also in a file."""

    __slots__ = ("_file", "_known")

    def __init__(self, path: str | Path | None = None) -> None:
        self._file = None if path is None else JsonFile(path, "file of pinned MCP tools")
        self._known: dict[str, dict[str, str]] = {}

    async def load(self) -> None:
        """Read the file, if there is one."""
        if self._file is not None:
            self._known = await call_in_thread(self._file.read)

    def find_digest(self, server: str, tool: str) -> str | None:
        """Return the pinned hash of a tool; `None` for a new tool."""
        return self._known.get(server, {}).get(tool)

    def count(self, server: str) -> int:
        """Count the pinned tools of a server."""
        return len(self._known.get(server, {}))

    async def save(self, server: str, found: Mapping[str, str]) -> None:
        """Pin these tools to these hashes."""
        if not found:
            return
        self._known.setdefault(server, {}).update(found)
        if self._file is not None:
            await call_in_thread(self._file.update, lambda entries: entries.setdefault(server, {}).update(found))


@contextmanager
def _lock_file(path: Path) -> Generator[None, None, None]:
    """Hold a lock that ends with its process."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            import fcntl
        except ImportError:
            # Without locks the file is still replaced atomically; only two writers at a time may lose an entry.
            pass
        else:
            cast(Any, fcntl).flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
