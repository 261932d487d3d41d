"""A small JSON file of the user's own: readable by its owner alone, replaced whole, and refused when damaged."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from steersman.tools.mcp.errors import McpError

_VERSION = 1
_LARGEST = 16 * 1024 * 1024


def user_folder() -> Path:
    """Where the user's settings are: `$XDG_CONFIG_HOME/steersman`, or `~/.config/steersman`."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "steersman"


class JsonFile:
    """Texts by key in sections, in one file. Nothing is cached: what another process wrote counts at once."""

    __slots__ = ("path", "what")

    def __init__(self, path: str | Path, what: str) -> None:
        self.path = Path(os.path.abspath(Path(path).expanduser()))
        self.what = what

    def read(self) -> dict[str, dict[str, str]]:
        """All of it; nothing where there is no file. A damaged file raises: it vouches for nothing."""
        try:
            with self.path.open("rb") as file:
                data = file.read(_LARGEST + 1)
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
                f"The {self.what} at {str(self.path)!r} is damaged ({error}). Mend it, or remove it to begin anew."
            ) from error

    def change(self, work: Callable[[dict[str, dict[str, str]]], None]) -> None:
        """Read, change and replace it, while no other process does."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(self.path.with_name(f".{self.path.name}.lock")):
                entries = self.read()
                work(entries)
                self._replace(msgspec.json.format(msgspec.json.encode({"version": _VERSION, "entries": entries})))
        except OSError as error:
            raise McpError(f"The {self.what} at {str(self.path)!r} cannot be written: {error.strerror}.") from error

    def _replace(self, data: bytes) -> None:
        import tempfile

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


@contextmanager
def _locked(path: Path) -> Generator[None, None, None]:
    """Hold a lock that dies with its process."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            import fcntl
        except ImportError:
            # Without such locks the whole file is still replaced at once; only two writers at a time may lose an entry.
            pass
        else:
            cast(Any, fcntl).flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
