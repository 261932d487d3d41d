"""An audit log: what a run did, as lines that are only appended and hold together by their hashes.

It fails closed: a call whose line cannot be written does not run, and an output that cannot be recorded is withheld.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import msgspec

from steersman.policy.ready.audit_chain import FIRST_HASH, MAX_LINE, AuditAnchor, AuditError, build_line, parse_line
from steersman.tools.threads import call_in_thread
from steersman.types.content import ToolCall, join_text_blocks
from steersman.types.messages import AgentMessage, AssistantMessage, UserMessage
from steersman.types.secrets import redact, redact_key_patterns
from steersman.types.tools import ToolOutput
from steersman.types.usage import Usage

FsyncPolicy: TypeAlias = Literal["always", "run", "never"]
_LONGEST_DATA = MAX_LINE // 2
_LONGEST_KIND = 200


class AuditLog:
    """Appends a line for each prompt, tool call, tool result, answer, error and end of a run; put it last in `hooks`.

    `fsync` is "always" (after each line), "run" (at the end of a run) or "never". `secrets` and everything that looks
    like a key is redacted, and `redact_text` may redact more, such as `PiiRedaction().redact`. Texts are cut to
    `max_text` characters. `key` makes the hashes an HMAC. Several processes may write to one log.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: bytes | None = None,
        fsync: FsyncPolicy = "always",
        secrets: Iterable[str] = (),
        redact_text: Callable[[str], str] | None = None,
        max_text: int = 2_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if fsync not in get_args(FsyncPolicy):
            raise ValueError(f"fsync is one of {', '.join(map(repr, get_args(FsyncPolicy)))}, got {fsync!r}.")
        self.path = Path(path)
        self._key, self._fsync, self._secrets = key, fsync, tuple(secrets)
        self._redact_text, self._max_text, self._clock = redact_text, max_text, clock
        self._lock = threading.Lock()
        # The last line that is known here, where it ends, and whether there may be something after it.
        self._last, self._end, self._must_look = AuditAnchor(0, FIRST_HASH), 0, True
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file: int | None = os.open(self.path, flags, 0o600)
        try:
            os.fchmod(self._file, 0o600)
            self._sync_folder()
            with self._lock:
                self._write(self._file, ())
        except BaseException:
            self.close()
            raise

    @property
    def anchor(self) -> AuditAnchor:
        """The last line written here; keep it elsewhere to notice later that the end of the log is missing."""
        return self._last

    def append(self, kind: str, data: Any) -> AuditAnchor:
        """Append a line of your own, redacted like all others; raises `AuditError` if it cannot be written."""
        return self._append(kind, data, sync=self._fsync == "always")

    def close(self) -> None:
        """Close the file; a run that goes on then fails closed."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    async def before_loop(self, messages: Sequence[AgentMessage], turn_index: int) -> None:
        """Record the prompt."""
        said = [message.text for message in messages[-1:] if isinstance(message, UserMessage)]
        await self._record("run_start", {"messages": len(messages), "prompt": "".join(said)})

    async def before_tool_execution(self, call: ToolCall) -> None:
        """Record a call before it runs."""
        await self._record("tool_call", {"id": call.id, "tool": call.name, "arguments": dict(call.arguments)})

    async def after_tool_execution(self, call: ToolCall, output: ToolOutput) -> None:
        """Record the output of a call."""
        text = output.content if isinstance(output.content, str) else join_text_blocks(output.content)
        data = {"id": call.id, "tool": call.name, "is_error": output.is_error, "text": text, "length": len(text)}
        await self._record("tool_result", data)

    async def after_turn(self, messages: Sequence[AgentMessage], usage: Usage) -> None:
        """Record the model's answer and what it cost."""
        answers = [message for message in reversed(messages) if isinstance(message, AssistantMessage)][:1]
        said = {"text": answers[0].text, "model": answers[0].model} if answers else {}
        await self._record("answer", {**said, "tokens": usage.total, "cost": usage.cost})

    async def on_error(self, text: str) -> None:
        """Record an error."""
        await self._record("error", {"text": text})

    async def after_loop(self, messages: Sequence[AgentMessage], usage: Usage) -> None:
        """Record the end of a run."""
        data = {"messages": len(messages), "tokens": usage.total, "cost": usage.cost}
        await call_in_thread(self._append, "run_end", data, sync=self._fsync != "never")

    async def _record(self, kind: str, data: dict[str, Any]) -> None:
        await call_in_thread(self._append, kind, data, sync=self._fsync == "always")

    def _append(self, kind: str, data: Any, *, sync: bool) -> AuditAnchor:
        kind = str(self._redact(kind))[:_LONGEST_KIND]
        clean = self._shorten(self._redact(msgspec.to_builtins(data, enc_hook=repr)))
        with self._lock:
            if self._file is None:
                raise AuditError(f"The audit log {self.path} is closed.")
            try:
                self._write(self._file, ((kind, clean),))
                if sync:
                    os.fsync(self._file)
            except OSError as error:
                self._must_look = True  # how much of it is in the file is not known
                raise AuditError(f"The audit log {self.path} cannot be written: {error}.") from error
            return self._last

    def _write(self, file: int, records: Iterable[tuple[str, Any]]) -> None:
        """Append lines under a lock that other processes respect, after what they wrote."""
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            if self._must_look or os.fstat(file).st_size != self._end:
                self._catch_up(file)
            for kind, data in records:
                self._write_line(file, kind, data)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _write_line(self, file: int, kind: str, data: Any) -> None:
        raw, anchor = build_line(self._last, self._clock(), kind, data, self._key)
        if os.write(file, raw) != len(raw):
            raise OSError("only a part of the line was written")
        self._last, self._end = anchor, os.fstat(file).st_size

    def _catch_up(self, file: int) -> None:
        """Find the last line. Bytes after it were torn by a crash: they are cut off, and a line says so."""
        size = os.fstat(file).st_size
        self._check_known(file, size)
        tail = os.pread(file, 2 * MAX_LINE + 2, max(0, size - 2 * MAX_LINE - 2))
        body, _, torn = tail.rpartition(b"\n")
        if len(torn) > MAX_LINE:
            raise AuditError(f"{self.path} is not an audit log: its last line is too long.")
        self._last = self._read_last(body) if body else AuditAnchor(0, FIRST_HASH)
        self._end = size - len(torn)
        self._must_look = False
        if torn:
            os.ftruncate(file, self._end)
            self._write_line(file, "recovered", {"torn_bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()})

    def _check_known(self, file: int, size: int) -> None:
        """Raise if the last line that is known here is no longer in its place: lines after it would hide that."""
        start = max(0, self._end - MAX_LINE - 1)
        raw = os.pread(file, self._end - start, start) if size >= self._end else b""
        try:
            if self._end == 0 or parse_line(raw[:-1].rpartition(b"\n")[2], self._key).hash == self._last.hash:
                return
        except ValueError:  # also what msgspec raises
            pass
        raise AuditError(
            f"The audit log {self.path} was changed: line {self._last.seq}, which was there before, is no longer in "
            "its place. Keep the file as it is, and begin another one."
        )

    def _read_last(self, body: bytes) -> AuditAnchor:
        try:
            line = parse_line(body.rpartition(b"\n")[2], self._key)
        except ValueError as error:
            raise AuditError(f"The last line of {self.path} is damaged, or the key is another one: {error}.") from error
        return AuditAnchor(line.seq, line.hash)

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            text = redact(value, *self._secrets)
            text = text if self._redact_text is None else self._redact_text(text)
            return redact_key_patterns(text, max(4, self._max_text)).encode("utf-8", "replace").decode()
        if isinstance(value, dict):
            items = cast(dict[Any, Any], value).items()
            return {str(self._redact(str(name))): self._redact(item) for name, item in items}
        if isinstance(value, list | tuple):
            return [self._redact(item) for item in cast(Sequence[Any], value)]
        return value

    def _shorten(self, data: Any) -> Any:
        raw = msgspec.json.encode(data)
        if len(raw) <= _LONGEST_DATA:
            return msgspec.json.decode(raw)
        return {"omitted_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}

    def _sync_folder(self) -> None:
        folder = os.open(self.path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
