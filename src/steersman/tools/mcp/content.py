"""Converts results of MCP calls to tool output (texts and images for the model, structured data in the details).

Also reports the progress of a call, at a limited rate.
"""

from __future__ import annotations

import asyncio
import binascii
import math
from collections.abc import Callable, Iterator
from typing import Any

import mcp_types
import msgspec

from steersman.tools.builtin.images import MAX_IMAGE_BYTES, detect_image_type, inspect_image
from steersman.tools.text import strip_invisible
from steersman.types.content import Content, ImageContent, TextContent
from steersman.types.tools import ToolOutput

_MAX_PICTURES = 20
_MAX_LABEL_LENGTH = 500
_MAX_DETAILS_BYTES = 256 * 1024
_UPDATE_SECONDS = 0.1
_MAX_PROGRESS_LENGTH = 1_000

ProgressNote = tuple[float, float | None, str | None]


def to_output(server: str, result: mcp_types.CallToolResult) -> ToolOutput:
    """Convert the result of a call; content that a model cannot take is described in words."""
    content = _merge_texts(_convert_blocks(result))
    details: dict[str, Any] = {"mcp_server": server}
    if result.structured_content is not None:
        structured = msgspec.json.encode(result.structured_content)
        if not content:
            content = [TextContent(structured.decode())]
        if len(structured) <= _MAX_DETAILS_BYTES:
            details["structured_content"] = result.structured_content
    return ToolOutput(content or "", details, is_error=result.is_error)


def _convert_blocks(result: mcp_types.CallToolResult) -> Iterator[str | ImageContent]:
    pictures = 0
    for block in result.content:
        match block:
            case mcp_types.TextContent():
                yield block.text
            case mcp_types.ImageContent():
                pictures += 1
                yield (
                    _convert_picture(block)
                    if pictures <= _MAX_PICTURES
                    else _describe_binary("image", block.mime_type, block.data)
                )
            case mcp_types.AudioContent():
                yield _describe_binary("audio", block.mime_type, block.data)
            case mcp_types.ResourceLink():
                about = f", {_to_one_line(block.description)}" if block.description else ""
                yield f"[resource: {_to_one_line(block.name)} at {_to_one_line(block.uri)}{about}]"
            case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as inner):
                yield f"[resource: {_to_one_line(inner.uri)}]\n{inner.text}"
            case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as inner):
                yield _describe_binary(f"resource {_to_one_line(inner.uri)}", inner.mime_type, inner.blob)
            case _:
                yield "[something that cannot be shown]"


def _merge_texts(blocks: Iterator[str | ImageContent]) -> list[Content]:
    """Merge neighbouring texts into one block."""
    merged: list[Content] = []
    texts: list[str] = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
            continue
        if texts:
            merged.append(TextContent("\n".join(texts)))
            texts = []
        merged.append(block)
    if texts:
        merged.append(TextContent("\n".join(texts)))
    return merged


def _convert_picture(block: mcp_types.ImageContent) -> str | ImageContent:
    """Convert an image, or describe it where providers would reject it: it would break every later request."""
    try:
        data = binascii.a2b_base64(block.data, strict_mode=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data:
        return f"[image: {_to_one_line(block.mime_type)}, which could not be decoded]"
    # The bytes decide the type; the declared type does not matter.
    kind = detect_image_type(data)
    if kind is None or len(data) > MAX_IMAGE_BYTES:
        return _describe_binary("image", block.mime_type, block.data)
    try:
        inspect_image(data, kind)
    except ValueError as error:
        return f"[image: {kind}, not shown: {error}]"
    return ImageContent(block.data, kind)


def _describe_binary(what: str, kind: str | None, data: str) -> str:
    return f"[{what}: {_to_one_line(kind or 'of unknown type')}, about {len(data) * 3 // 4:,} bytes, not shown]"


def _to_one_line(text: str) -> str:
    return strip_invisible(text, _MAX_LABEL_LENGTH, lines=False)


class Progress:
    """The progress of one call; passes at most ten updates a second to `update`."""

    __slots__ = ("_last", "_loop", "_timer", "_update", "_waiting")

    def __init__(self, update: Callable[[Any], None]) -> None:
        self._update = update
        self._loop = asyncio.get_running_loop()
        self._last = -math.inf
        self._waiting: ProgressNote | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def show(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a progress notification of the server."""
        self._waiting = (progress, total, message)
        pause = self._last + _UPDATE_SECONDS - self._loop.time()
        if pause <= 0:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(pause, self._flush)

    def close(self) -> None:
        """End the call: pass on the last update, and nothing after it."""
        self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting is not None:
            note, self._waiting = self._waiting, None
            self._last = self._loop.time()
            self._update(_make_update(*note))


def _make_update(progress: float, total: float | None, message: str | None) -> dict[str, Any]:
    """Make an update of the call from a progress notification."""
    update: dict[str, Any] = {"type": "progress"}
    amount = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
    update["text"] = strip_invisible(message, _MAX_PROGRESS_LENGTH, lines=False) if message else amount
    if math.isfinite(progress):
        update["progress"] = progress
    if total is not None and math.isfinite(total):
        update["total"] = total
    return update
