"""`SessionContents`: the contents of artifacts, kept as records of a session, each once, under their SHA-256."""

from __future__ import annotations

import base64
import binascii
import threading
from contextlib import suppress
from hashlib import sha256

from steersman.session.index import Index
from steersman.session.reader import Lines
from steersman.session.recorder import Recorder
from steersman.session.records import CONTENT, decode, make_content_id
from steersman.session.stores.store import make_read_only_error
from steersman.types.artifacts import ArtifactNotFound, check_room
from steersman.types.ids import new_id


class SessionContents:
    """Keeps contents in the journal of a session and reads them from its store; known keys are redacted."""

    def __init__(self, session_id: str, source: Lines, recorder: Recorder, index: Index) -> None:
        self._session_id = session_id
        self._source = source
        self._recorder = recorder
        self._index = index
        self._lock = threading.Lock()
        # The hashes of contents that were recorded here, or read and found whole.
        self._whole: set[str] = set()

    def put(self, data: bytes, /) -> tuple[str, int]:
        """Record a content, unless the session has it. One from before is read once, as it may be damaged."""
        if self._recorder.journal is None:
            raise make_read_only_error(self._session_id)
        data = self._recorder.redact_bytes(data)
        digest = sha256(data).hexdigest()
        with self._lock:
            if not self._is_whole(digest):
                check_room(sum(size for _, size in self._index.contents.values()), len(data))
                payload = {"data": base64.b64encode(data).decode("ascii")}
                again = new_id("again") if digest in self._index.contents else ""
                record = self._recorder.journal.add(CONTENT, payload, id=make_content_id(digest, again))
                self._index.contents[digest] = record.seq, len(data)
                self._whole.add(digest)
        return digest, len(data)

    def get(self, digest: str, /) -> bytes:
        """Read a content and check its hash. It blocks."""
        seq, _ = self._index.contents.get(digest, (0, 0))
        data = None if seq == 0 else self._read(seq)
        if data is None or sha256(data).hexdigest() != digest:
            raise ArtifactNotFound(
                f"The content of this artifact is missing or damaged in session {self._session_id!r}."
            )
        self._whole.add(digest)
        return data

    def _is_whole(self, digest: str) -> bool:
        if digest in self._index.contents and digest not in self._whole:
            with suppress(ArtifactNotFound):
                self.get(digest)
        return digest in self._whole

    def _read(self, seq: int) -> bytes | None:
        lines = self._source.lines(seq - 1)
        try:
            number, line = next(iter(lines), (0, b""))
            return base64.b64decode(decode(line).payload["data"], validate=True) if number == seq else None
        except (ValueError, KeyError, TypeError, binascii.Error):
            return None
