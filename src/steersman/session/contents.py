"""`SessionContents`: the contents of artifacts, kept as records of a session, each once, under their SHA-256."""

from __future__ import annotations

import base64
import binascii
import threading
from hashlib import sha256

from steersman.session.index import Index
from steersman.session.reader import Lines
from steersman.session.recorder import Recorder
from steersman.session.records import CONTENT, decode, make_content_id
from steersman.session.stores.store import make_read_only_error
from steersman.types.artifacts import ArtifactNotFound, check_room


class SessionContents:
    """Keeps contents in the journal of a session and reads them from its store; known keys are redacted."""

    def __init__(self, session_id: str, source: Lines, recorder: Recorder, index: Index) -> None:
        self._session_id = session_id
        self._source = source
        self._recorder = recorder
        self._index = index
        self._lock = threading.Lock()

    def put(self, data: bytes, /) -> tuple[str, int]:
        """Record a content, unless the session has it."""
        if self._recorder.journal is None:
            raise make_read_only_error(self._session_id)
        data = self._recorder.redact_bytes(data)
        digest = sha256(data).hexdigest()
        with self._lock:
            if digest not in self._index.contents:
                check_room(sum(size for _, size in self._index.contents.values()), len(data))
                payload = {"data": base64.b64encode(data).decode("ascii")}
                record = self._recorder.journal.add(CONTENT, payload, id=make_content_id(digest))
                self._index.contents[digest] = record.seq, len(data)
        return digest, len(data)

    def get(self, digest: str, /) -> bytes:
        """Read a content and check its hash. It blocks."""
        seq, _ = self._index.contents.get(digest, (0, 0))
        data = None if seq == 0 else self._read(seq)
        if data is None or sha256(data).hexdigest() != digest:
            raise ArtifactNotFound(
                f"The content of this artifact is missing or damaged in session {self._session_id!r}."
            )
        return data

    def _read(self, seq: int) -> bytes | None:
        lines = self._source.lines(seq - 1)
        try:
            number, line = next(iter(lines), (0, b""))
            return base64.b64decode(decode(line).payload["data"], validate=True) if number == seq else None
        except (ValueError, KeyError, TypeError, binascii.Error):
            return None
