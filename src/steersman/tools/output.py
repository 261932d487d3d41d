"""What a tool gets, its `ToolContext`, and what it returns: normalized to a `ToolOutput`, long output truncated."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec

from steersman.tools.artifacts import ToolArtifacts
from steersman.tools.text import format_value
from steersman.types.cancel import CancelToken
from steersman.types.content import (
    Content,
    ImageContent,
    TextContent,
    replace_lone_surrogates,
    replace_surrogates_in_json,
)
from steersman.types.state import State
from steersman.types.tools import ToolOutput

if TYPE_CHECKING:
    # Only a type checker knows defaults of type parameters before Python 3.13: `ToolContext` alone has any `deps`.
    from typing_extensions import TypeVar  # noqa: TID251  # nothing imports it when a program runs

    from steersman.types.artifacts import Artifacts

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")


def drop_update(*_: Any) -> None:
    """Drop an update that has no reader."""


class ToolContext(Generic[Deps]):
    """One tool call: its ids, the `deps` of its run, whether it is cancelled, and ways to report to subscribers.

    `state` and `artifacts` are what the conversation keeps. `scope` belongs to the caller that runs the tool. `on_late`
    gets the outcome of an abandoned `def` tool.
    """

    __slots__ = (
        "_artifacts", "deps", "idempotency_key", "on_emit", "on_late", "on_update", "scope", "state", "token",
        "tool_call_id", "tool_name",
    )  # fmt: skip

    def __init__(
        self,
        tool_call_id: str,
        tool_name: str,
        token: CancelToken,
        *,
        idempotency_key: str = "",
        deps: Any = None,
        on_update: Callable[[Any], None] = drop_update,
        on_emit: Callable[[str, Any], None] = drop_update,
        on_late: Callable[[ToolOutput | BaseException], None] | None = None,
        scope: Any = None,
        state: State | None = None,
        artifacts: Artifacts | None = None,
    ) -> None:
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.token = token
        self.idempotency_key = idempotency_key
        self.deps: Deps = deps
        self.on_update = on_update
        self.on_emit = on_emit
        self.on_late = on_late
        self.scope = scope
        self.state = State() if state is None else state
        self._artifacts = artifacts

    @property
    def artifacts(self) -> ToolArtifacts:
        """The files that the conversation keeps: `save`, `load` and `list` them. Safe from any thread."""
        if self._artifacts is None:
            from steersman.types.artifacts import Artifacts  # most conversations keep no files

            self._artifacts = Artifacts()
        return ToolArtifacts(self._artifacts, self.on_emit)

    @property
    def cancelled(self) -> bool:
        """Whether the tool should stop; a long-running `def` tool should check this regularly."""
        return self.token.cancelled

    def update(self, value: Any) -> None:
        """Report partial output, a number or any JSON value to the subscribers of the run. Safe from any thread."""
        self.on_update(value)

    def progress(self, text: str) -> None:
        """Report a line of progress."""
        self.on_update({"type": "progress", "text": text})

    def emit(self, name: str, data: Any = None) -> None:
        """Send a `custom` event of the application to the subscribers of the run. Safe from any thread.

        `data` is any JSON value; what has no JSON form is shown by its `repr`. Raises `RuntimeError` after the run.
        """
        self.on_emit(name, data)

    def __repr__(self) -> str:
        return f"ToolContext({self.tool_call_id!r}, {self.tool_name!r})"


_NUMBERS = frozenset((bool, int, float))
_BLOCK_KEYS = {"text": frozenset(("type", "text")), "image": frozenset(("type", "data", "mime_type"))}


def normalize_output(value: Any) -> ToolOutput:
    """Convert a tool's return value to a `ToolOutput`; `TypeError` for anything but text, blocks and JSON-able data."""
    if type(value) is str:
        return ToolOutput(_clean_text(value))
    if value is None:
        return ToolOutput()
    if type(value) in _NUMBERS:
        return ToolOutput(_encode(value))
    if isinstance(value, ToolOutput):
        content = _to_content(value.content)
        return value if content is value.content else msgspec.structs.replace(value, content=content)
    return ToolOutput(_to_content(value))


def _to_content(value: Any) -> str | Sequence[Content]:
    if isinstance(value, str):
        return _clean_text(value)
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray | memoryview):
        return _clean_text(bytes(cast(bytes, value)).decode("utf-8", "replace"))
    if isinstance(value, TextContent | ImageContent):
        return [_to_block(value)]
    if isinstance(value, list | tuple) and value and _are_blocks(cast(Sequence[Any], value)):
        return [_to_block(item) for item in cast(Sequence[Any], value)]
    return _clean_text(_to_json(value))


def _are_blocks(items: Sequence[Any]) -> bool:
    """Whether a list is content: only blocks, or texts among blocks. A list of texts alone is data."""
    blocks = [item for item in items if not isinstance(item, str)]
    return bool(blocks) and all(
        isinstance(item, TextContent | ImageContent) or _is_plain_block(item) for item in blocks
    )


def _is_plain_block(item: Any) -> bool:
    if not isinstance(item, Mapping):
        return False
    fields = cast(Mapping[str, Any], item)
    kind = fields.get("type")
    keys = _BLOCK_KEYS.get(kind) if isinstance(kind, str) else None
    if keys is None or not keys.issuperset(fields):
        return False
    return isinstance(fields.get("text" if kind == "text" else "data"), str)


def _to_block(item: Any) -> Content:
    if isinstance(item, str):
        return TextContent(_clean_text(item))
    if isinstance(item, Mapping):
        return _to_block(msgspec.convert(dict(cast(Mapping[str, Any], item)), TextContent | ImageContent))
    if isinstance(item, TextContent) and (text := _clean_text(item.text)) is not item.text:
        return TextContent(text)
    return item


def _to_json(value: Any) -> str:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(replace_surrogates_in_json(msgspec.to_builtins(value, enc_hook=_to_plain)))
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise TypeError(
            "A tool returns text, JSON-able data, content blocks or a ToolOutput, "
            f"but this one gave {format_value(value)} ({error})."
        ) from error


def _encode(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=_to_plain).decode()


def _to_plain(value: Any) -> Any:
    """Convert types that msgspec does not know."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, os.PathLike):
        return str(cast(Any, value))
    if isinstance(value, Mapping):
        return dict(cast(Mapping[Any, Any], value))
    if isinstance(value, range):
        return list(value)
    raise TypeError(f"{type(value).__name__!r} objects have no JSON form")


def _clean_text(text: str) -> str:
    """Remove lone surrogates, and NUL, which ends the text in many programs."""
    return replace_lone_surrogates(text).replace("\x00", "") if "\x00" in text else replace_lone_surrogates(text)


def truncate_output(output: ToolOutput, *, max_bytes: int, max_lines: int, directory: str | None = None) -> ToolOutput:
    """Truncate long output to its beginning and end, with a note about what is left out and where the full output is.

    Only text counts; images stay. Writes a file, so call it in a thread for long outputs.
    """
    text = _join_texts(output)
    if not _is_too_long(text, max_bytes, max_lines):
        return output
    path, failure = _save(text, directory)
    where = f"full output: {path}" if path else f"the full output could not be saved: {failure}"
    short = _shorten(text, max_bytes, max_lines, where)
    details = {"lines": _count_lines(text), **output.details, "full_output": path} if path else output.details
    if isinstance(output.content, str):
        return msgspec.structs.replace(output, content=short, details=details)
    images = [block for block in output.content if not isinstance(block, TextContent)]
    return msgspec.structs.replace(output, content=[TextContent(short), *images], details=details)


def _join_texts(output: ToolOutput) -> str:
    if isinstance(output.content, str):
        return output.content
    texts = [block.text for block in output.content if isinstance(block, TextContent)]
    return texts[0] if len(texts) == 1 else "\n".join(texts)


def _is_too_long(text: str, max_bytes: int, max_lines: int) -> bool:
    # A character takes at most four bytes, so most texts need not be encoded to be found short.
    if len(text) * 4 > max_bytes and len(text.encode("utf-8", "replace")) > max_bytes:
        return True
    return _count_lines(text) > max_lines


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _shorten(text: str, max_bytes: int, max_lines: int, where: str) -> str:
    """Return head, note and tail, together within both limits."""
    room = max(0, max_bytes - len(_describe_omission(len(text) * 4, len(text), where).encode("utf-8", "replace")))
    lines = max(0, max_lines - 1)
    data = text.encode("utf-8", "replace")
    head = _take_head(data, room - room // 2, lines - lines // 2)
    tail = _take_tail(data[len(head) :], room // 2, lines // 2)
    left_out = data[len(head) : len(data) - len(tail)]
    note = _describe_omission(len(left_out), left_out.count(b"\n") + (not left_out.endswith(b"\n")), where)
    start, end = head.decode().rstrip("\n"), tail.decode()
    return f"{start}\n{note}\n{end}" if start else f"{note}\n{end}"


def _describe_omission(size: int, lines: int, where: str) -> str:
    return f"[... {size:,} bytes in {lines:,} {'line' if lines == 1 else 'lines'} left out; {where} ...]"


def _take_head(data: bytes, room: int, lines: int) -> bytes:
    """Return the first lines that fit; part of a line only where whole lines would use less than half of the limit."""
    end = 0
    for _ in range(lines):
        found = data.find(b"\n", end)
        end = len(data) if found < 0 else found + 1
        if found < 0 or end > room:
            break
    if lines == 0 or end <= room:
        return data[:end]
    cut = data[:room]
    line_end = cut.rfind(b"\n") + 1
    return cut[:line_end] if line_end > room // 2 else cut.decode("utf-8", "ignore").encode()


def _take_tail(data: bytes, room: int, lines: int) -> bytes:
    """Return the last lines that fit, by the same rule."""
    if lines == 0 or room == 0:
        return b""
    start = len(data)
    for _ in range(lines):
        start = data.rfind(b"\n", 0, max(0, start - 1)) + 1
        if start == 0 or len(data) - start > room:
            break
    if len(data) - start <= room:
        return data[start:]
    cut = data[-room:]
    line_start = cut.find(b"\n") + 1
    return cut[line_start:] if 0 < line_start < room // 2 else cut.decode("utf-8", "ignore").encode()


def _save(text: str, directory: str | None) -> tuple[str | None, str]:
    # Imported here because only long output needs it.
    import tempfile

    try:
        if directory is not None:
            os.makedirs(directory, mode=0o700, exist_ok=True)
        # mkstemp makes a name that cannot be guessed, readable only by its owner.
        handle, path = tempfile.mkstemp(prefix="tool-output-", suffix=".txt", dir=directory)
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
    except OSError as error:
        return None, str(error)
    return path, ""
