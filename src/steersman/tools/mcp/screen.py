"""Screens a server's lists before the SDK parses them: malformed tools are dropped, and lists are bounded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from steersman.tools.text import strip_invisible

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams

_MAX_BLOCKS = 1_000
# The other fields of a block, such as annotations and icons, are ignored; there may be thousands of them.
_BLOCK = ("type", "text", "data", "mimeType", "name", "uri", "description", "resource")

OnRefused = Callable[[str | None, str], None]


@asynccontextmanager
async def screen_transport(
    transport: AbstractAsyncContextManager[TransportStreams], most: int, refused: OnRefused
) -> AsyncGenerator[TransportStreams, None]:
    """Wrap a transport: drop malformed tools and those beyond `most`, and call `refused(tool, why)` for them."""
    async with transport as (read, write):
        yield _ScreenedStream(read, most, refused), write


class _ScreenedStream:
    """A read stream that screens each message."""

    __slots__ = ("_most", "_read", "_refused")

    def __init__(self, read: ReadStream[SessionMessage | Exception], most: int, refused: OnRefused) -> None:
        self._read = read
        self._most = most
        self._refused = refused

    @property
    def last_context(self) -> Any:
        """The context that the SDK's own streams keep for a message."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._screen(await self._read.receive())

    async def aclose(self) -> None:
        await self._read.aclose()

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._screen(await self._read.__anext__())

    async def __aenter__(self) -> Self:
        await self._read.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._read.__aexit__(exc_type, exc_val, exc_tb)

    def _screen(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCResponse):
            result = message.result
            if isinstance(result.get("tools"), list):
                result["tools"] = self._filter_tools(cast(list[Any], result["tools"]))
            if isinstance(result.get("content"), list):
                result["content"] = _limit_blocks(cast(list[Any], result["content"]))
        return item

    def _filter_tools(self, tools: list[Any]) -> list[dict[str, Any]]:
        if len(tools) > self._most:
            self._refused(None, f"it lists {len(tools):,} tools; only the first {self._most:,} are looked at")
        kept: list[dict[str, Any]] = []
        for tool in tools[: self._most]:
            problem = _find_problem(tool)
            if problem is None:
                # Titles, hints, icons and output schemas are not used, so errors in them do not matter.
                kept.append({key: tool[key] for key in ("name", "description", "inputSchema") if key in tool})
            else:
                self._refused(_read_name(tool), problem)
        return kept


def _limit_blocks(blocks: list[Any]) -> list[Any]:
    """Limit the number of blocks of a result, and keep only the fields that are used."""
    kept: list[Any] = [
        {key: block[key] for key in _BLOCK if key in block} if isinstance(block, dict) else block
        for block in blocks[:_MAX_BLOCKS]
    ]
    if len(blocks) > _MAX_BLOCKS:
        kept.append(
            {"type": "text", "text": f"[{len(blocks) - _MAX_BLOCKS:,} more blocks were sent; they are left out]"}
        )
    return kept


def _read_name(tool: Any) -> str | None:
    name: Any = cast(dict[str, Any], tool).get("name") if isinstance(tool, dict) else None
    return strip_invisible(name, 128, lines=False) if isinstance(name, str) else None


def _find_problem(tool: Any) -> str | None:
    """Say why this is not a tool, by its structure; `None` where it may be one."""
    if not isinstance(tool, dict):
        return "it is not an object"
    found = cast(dict[str, Any], tool)
    if not isinstance(found.get("name"), str):
        return "it has no name"
    if not isinstance(found.get("description") or "", str):
        return "its description is not a text"
    return _find_schema_problem(found.get("inputSchema"))


def _find_schema_problem(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return "it has no schema for its arguments"
    found = cast(dict[str, Any], schema)
    properties: Any = found.get("properties", {})
    required: Any = found.get("required", [])
    if found.get("type") != "object":
        return "its schema is not of type 'object'"
    if not isinstance(properties, dict) or not all(
        isinstance(item, dict | bool) for item in cast(dict[str, Any], properties).values()
    ):
        return "the properties in its schema are not schemas"
    if not isinstance(required, list) or not all(isinstance(item, str) for item in cast(list[Any], required)):
        return "'required' in its schema is not a list of names"
    return None if isinstance(found.get("$schema", ""), str) else "'$schema' in its schema is not a text"
