"""`Artifacts`: the files that a conversation keeps, each under a name and in versions, and the changes of them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from steersman.types.errors import SteersmanError
from steersman.types.visible import UNSAFE

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_ARTIFACT_BYTES: Final = 16 << 20
"""The most that one artifact has: 16 MiB."""

MAX_CONTENT_BYTES: Final = 256 << 20
"""The most that all artifacts of a session have together, on all its branches: 256 MiB. Equal contents count once."""

MAX_VERSION: Final = 10**9
"""The highest version."""

MAX_NAME_BYTES: Final = 200
"""The longest name, in UTF-8."""

_MOST_NAMED: Final = 20
_MIME_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}", re.IGNORECASE)
# Soft hyphen, zero-width space, word joiner and byte order mark: two names with and without them look the same.
# Zero-width joiners are not among them, since words of some languages and emoji are written with them.
_INVISIBLE = re.compile("[\u00ad\u200b\u2060-\u2064\ufeff]")
# Only those that people save: the table of the system differs from machine to machine.
_BY_ENDING: Final = {
    "csv": "text/csv",
    "gif": "image/gif",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "pdf": "application/pdf",
    "png": "image/png",
    "py": "text/x-python",
    "svg": "image/svg+xml",
    "txt": "text/plain",
    "webp": "image/webp",
    "xml": "application/xml",
    "zip": "application/zip",
}


class ArtifactNotFound(SteersmanError, LookupError):
    """There is no artifact with this name or version, or its content is lost."""


class Artifact(msgspec.Struct, frozen=True):
    """One version of an artifact, without its content. Versions count from 1; `sha256` is that of the content."""

    name: str
    version: int
    size: int
    mime_type: str
    sha256: str


class ArtifactChange(msgspec.Struct, frozen=True):
    """Versions that were saved. With `reset` there are no others."""

    saved: tuple[Artifact, ...]
    reset: bool = False

    def describe(self) -> dict[str, object]:
        """The change as a record holds it."""
        fields: dict[str, object] = {"saved": [msgspec.to_builtins(artifact) for artifact in self.saved]}
        return {**fields, "reset": True} if self.reset else fields

    def check(self) -> None:
        """Raise `ValueError` for what no program saves, such as a name that leads to another folder."""
        for artifact in self.saved:
            check_name(artifact.name)
            check_mime_type(artifact.mime_type)
            if not 1 <= artifact.version <= MAX_VERSION or not 0 <= artifact.size <= MAX_ARTIFACT_BYTES:
                raise ValueError(f"version {artifact.version} with {artifact.size} bytes")


class Contents(Protocol):
    """Where contents are kept, by their SHA-256."""

    def put(self, data: bytes, /) -> tuple[str, int]:
        """Keep a content; returns the hash and the size of what is kept. Raises `ValueError` if there is no room."""
        ...

    def get(self, digest: str, /) -> bytes:
        """The content with this hash; raises `ArtifactNotFound`."""
        ...


class MemoryContents:
    """Contents in memory."""

    __slots__ = ("_kept", "_total")

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._total = 0

    def put(self, data: bytes, /) -> tuple[str, int]:
        """Keep a content."""
        from hashlib import sha256  # loads OpenSSL, and most conversations keep no files

        digest = sha256(data).hexdigest()
        if digest not in self._kept:
            check_room(self._total, len(data))
            self._kept[digest] = data
            self._total += len(data)
        return digest, len(data)

    def get(self, digest: str, /) -> bytes:
        """The content with this hash."""
        if digest not in self._kept:
            raise ArtifactNotFound(f"The content {digest!r} is not there.")
        return self._kept[digest]


class Artifacts:
    """The files that a conversation keeps for its tools and users. Safe from any thread.

    Each save makes a new version. It belongs to the entry of the log after which it was made, so a branch begins with
    the versions of the entry it begins at.
    """

    __slots__ = ("_changes", "_entries", "_lock", "_read_only", "_versions", "contents", "listener")

    def __init__(self, entries: Sized = (), contents: Contents | None = None) -> None:
        # Called with every change after it was made, for a session; it must not raise.
        self.listener: Callable[[ArtifactChange], None] | None = None
        self.contents: Contents = MemoryContents() if contents is None else contents
        self._entries = entries
        self._lock = threading.RLock()
        self._versions: dict[str, dict[int, Artifact]] = {}
        self._changes: list[tuple[int, ArtifactChange]] = []
        self._read_only = ""

    def save(self, name: str, data: bytes | str, mime_type: str | None = None) -> int:
        """Save a file, text as UTF-8, as the next version of this name; returns the number of the version.

        Without a media type the ending of the name decides. Raises `ValueError` for a name that is no plain file name,
        and for more than 16 MiB.
        """
        if self._read_only:
            raise RuntimeError(self._read_only)
        check_name(name)
        content = _encode(name, data)
        kind = check_mime_type(mime_type) if mime_type is not None else _guess_mime_type(name, data)
        with self._lock:
            version = max(self._versions.get(name, {0: None})) + 1
            if version > MAX_VERSION:
                raise ValueError(f"{name!r} has the highest version, {MAX_VERSION:,}. Use another name.")
            digest, size = self.contents.put(content)
            change = ArtifactChange((Artifact(name, version, size, kind, digest),))
            self._keep(len(self._entries), change)
            if self.listener is not None:
                self.listener(change)
        return version

    def load(self, name: str, version: int | None = None) -> bytes:
        """The content of a version, of the last one by default; raises `ArtifactNotFound`.

        A session reads it from its store, so the call blocks.
        """
        return self.contents.get(self.find(name, version).sha256)

    def find(self, name: str, version: int | None = None) -> Artifact:
        """A version, by default the last one; raises `ArtifactNotFound`."""
        versions = self.versions(name)
        if not versions:
            known = _join([repr(one.name) for one in self.list()]) or "none"
            raise ArtifactNotFound(f"No artifact named {name!r}. Artifacts here: {known}.")
        found = versions[-1] if version is None else next((one for one in versions if one.version == version), None)
        if found is None:
            numbers = _join([str(one.version) for one in versions])
            raise ArtifactNotFound(f"The artifact {name!r} has no version {version!r}. Versions: {numbers}.")
        return found

    def list(self) -> Sequence[Artifact]:
        """The last version of each name; the name that was saved first comes first."""
        with self._lock:
            return [versions[max(versions)] for versions in self._versions.values()]

    def versions(self, name: str) -> Sequence[Artifact]:
        """All versions of a name, in order; empty if there is no such artifact."""
        with self._lock:
            return [artifact for _, artifact in sorted(self._versions.get(name, {}).items())]

    def __repr__(self) -> str:
        return f"Artifacts({self.list()!r})"

    # For logs and sessions

    @property
    def changes(self) -> Sequence[tuple[int, ArtifactChange]]:
        """The changes in order, each with the number of entries that the log had."""
        with self._lock:
            return [*self._changes]

    def compute(self, place: int) -> tuple[Artifact, ...]:
        """All versions as they were when the log had so many entries."""
        past = Artifacts(contents=self.contents)
        past.restore(change for change in self.changes if change[0] <= place)
        return tuple(artifact for versions in past._versions.values() for artifact in versions.values())

    def restore(self, changes: Iterable[tuple[int, ArtifactChange]]) -> None:
        """Make changes of the past again, as a session or another log has them; the listener is not called."""
        with self._lock:
            for place, change in changes:
                self._keep(place, change)

    def move_to(self, contents: Contents) -> None:
        """Keep the contents elsewhere from now on; one that cannot be read any more stays missing."""
        with self._lock:
            if self.contents is contents:
                return
            former, self.contents = self.contents, contents
            changes, self._changes, self._versions = self._changes, [], {}
            for place, change in changes:
                moved = tuple([_move(artifact, former, contents) for artifact in change.saved])
                self._keep(place, ArtifactChange(moved, change.reset))

    def copy_read_only(self, reason: str) -> Artifacts:
        """A copy as it is now; to save in it raises `RuntimeError` with this reason."""
        copy = Artifacts(contents=self.contents)
        copy._versions = {name: dict(versions) for name, versions in self._versions.items()}
        copy._read_only = reason
        return copy

    def _keep(self, place: int, change: ArtifactChange) -> None:
        if change.reset:
            self._versions.clear()
        for artifact in change.saved:
            self._versions.setdefault(artifact.name, {})[artifact.version] = artifact
        self._changes.append((place, change))


def check_name(name: object) -> str:
    """A name for an artifact; raises for anything that is no plain file name."""
    if not isinstance(name, str):
        raise TypeError(f"The name of an artifact is a string, got {name!r}.")
    problem = (
        "it is empty"
        if not name.strip()
        else "it is the name of a folder"
        if name in (".", "..")
        else "it has a slash"
        if "/" in name or "\\" in name
        else "it has control characters"
        if UNSAFE.search(name) or "\t" in name or "\n" in name
        else "it has invisible characters"
        if _INVISIBLE.search(name)
        else "it begins or ends with a space"
        if name != name.strip()
        else f"it has more than {MAX_NAME_BYTES} bytes"
        if len(name.encode()) > MAX_NAME_BYTES
        else ""
    )
    if problem:
        raise ValueError(f"{name[:MAX_NAME_BYTES]!r} is no name for an artifact: {problem}. Use one like 'report.csv'.")
    return name


def check_mime_type(mime_type: object) -> str:
    """A media type; raises `ValueError` for anything else."""
    if not isinstance(mime_type, str) or not _MIME_TYPE.fullmatch(mime_type):
        raise ValueError(f"A media type is a text like 'text/csv', without parameters, got {mime_type!r:.200}.")
    return mime_type.lower()


def check_room(used: int, more: int) -> None:
    """Raise `ValueError` if so many more bytes are too many."""
    if used + more > MAX_CONTENT_BYTES:
        raise ValueError(
            f"The artifacts of this session have {used:,} bytes, and with {more:,} more they would have over "
            f"{MAX_CONTENT_BYTES:,}, the most. Begin another session, or keep large files elsewhere."
        )


def _join(words: Sequence[str]) -> str:
    """The words for a message, which a model may read: of many only the last."""
    more = len(words) - _MOST_NAMED
    return ", ".join(words) if more <= 0 else f"{', '.join(words[more:])}, and {more:,} before them"


def _encode(name: str, data: object) -> bytes:
    if not isinstance(data, str | bytes | bytearray):
        raise TypeError(f"The content of {name!r} is bytes or text, got a {type(data).__name__}.")
    try:
        content = data.encode() if isinstance(data, str) else bytes(data)
    except UnicodeEncodeError as error:
        raise ValueError(f"The text of {name!r} cannot be written as UTF-8: {error}.") from error
    if len(content) > MAX_ARTIFACT_BYTES:
        raise ValueError(
            f"{name!r} has {len(content):,} bytes, and {MAX_ARTIFACT_BYTES:,} is the most for an artifact. "
            "Keep large files elsewhere, and save where they are."
        )
    return content


def _guess_mime_type(name: str, data: object) -> str:
    ending = name.rpartition(".")[2].lower()
    return _BY_ENDING.get(ending, "text/plain" if isinstance(data, str) else "application/octet-stream")


def _move(artifact: Artifact, former: Contents, contents: Contents) -> Artifact:
    try:
        data = former.get(artifact.sha256)
    except SteersmanError:
        return artifact
    digest, size = contents.put(data)
    return msgspec.structs.replace(artifact, sha256=digest, size=size)
