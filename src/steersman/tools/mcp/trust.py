"""Which files may name programs to start: those whose very content the user has seen and allowed.

What was allowed is kept in the user's own settings, never beside the file it vouches for.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from steersman.tools.mcp.errors import McpError
from steersman.tools.mcp.store import JsonFile, user_folder

_SECTION = "mcp_files"


class Trust:
    """What the user has trusted, by path and content; kept in `~/.config/steersman/trust.json` or where you say."""

    __slots__ = ("_file",)

    def __init__(self, path: str | Path | None = None) -> None:
        self._file = JsonFile(user_folder() / "trust.json" if path is None else path, "list of trusted files")

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return self._file.path

    def allows(self, path: str | Path, content: bytes) -> bool:
        """Whether the user has trusted this file with exactly this content."""
        real = self._vouched(path)
        return self._file.read().get(_SECTION, {}).get(str(real)) == digest(content)

    def add(self, path: str | Path, sha256: str) -> None:
        """Trust a file with the content that has this digest; what it was trusted with before no longer counts."""
        real = self._vouched(path)
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise McpError(f"'sha256' is the digest that UntrustedFile.sha256 gives, got {sha256!r:.100}.")
        self._file.change(lambda entries: entries.setdefault(_SECTION, {}).update({str(real): sha256}))

    def remove(self, path: str | Path) -> None:
        """Trust a file no longer, whatever it contains."""
        real = self._vouched(path)

        def forget(entries: dict[str, dict[str, str]]) -> None:
            entries.get(_SECTION, {}).pop(str(real), None)

        self._file.change(forget)

    def _vouched(self, path: str | Path) -> Path:
        """The real path of a file this list can vouch for: whoever supplies the file must not supply the list too."""
        real = Path(os.path.realpath(Path(path).expanduser()))
        if Path(os.path.realpath(self.path)).is_relative_to(real.parent):
            raise McpError(
                f"The list of trusted files, {str(self.path)!r}, lies in the folder of {str(real)!r} and cannot vouch "
                "for it. Keep the list elsewhere: Trust(path)."
            )
        return real


def digest(content: bytes) -> str:
    """What stands for a content."""
    return sha256(content).hexdigest()
