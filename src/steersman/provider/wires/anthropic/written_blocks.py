"""Encodes the content blocks of a conversation for the Messages API; what the server made goes back unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from typing import Any, TypeGuard

import msgspec

from steersman.provider.wires.anthropic.decode import PAUSED
from steersman.provider.wires.anthropic.events import OPAQUE, split_fields
from steersman.provider.wires.pictures import fit_picture
from steersman.provider.wires.protocol import encode_json
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FOREIGN_ID = "x-"
_PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_STRICT = (".anthropic.com", ".googleapis.com", ".amazonaws.com", ".azure.com")


class CallIds:
    """The ids of calls on the wire. A server gets back the ids that it made, unless it is known to refuse them.

    Behind a gateway, another model may be on another server.
    """

    __slots__ = ("_any", "_maker", "_own", "_wire", "model")

    def __init__(self, model: Model) -> None:
        self.model = model
        self._maker = (model.provider, model.id)
        self._any = _takes_any_id(model)
        self._own = False
        self._wire: dict[str, str] = {}

    def are_for(self, model: Model) -> bool:
        """Whether these are the ids for this model too."""
        return self._maker == (model.provider, model.id) and self._any is _takes_any_id(model)

    def begin_answer(self, message: AssistantMessage) -> None:
        """Note who made the calls that follow."""
        self._own = self._any and (message.provider, message.model) == self._maker

    def add(self, call_id: str) -> str:
        """Return the id of a call on the wire, and remember it for the result."""
        wire = self._wire[call_id] = call_id if self._own and call_id else encode_call_id(call_id)
        return wire

    def find(self, call_id: str) -> str:
        """Return the id on the wire of the call that a result answers."""
        return self._wire.get(call_id) or encode_call_id(call_id)


def _takes_any_id(model: Model) -> bool:
    """Whether the server takes any id of its own; Anthropic itself and the clouds that run Claude do not."""
    return model.base_url is not None and not _is_strict(model.base_url)


@lru_cache(maxsize=64)
def _is_strict(base_url: str) -> bool:
    from urllib.parse import urlsplit

    return f".{urlsplit(base_url).hostname or ''}".endswith(_STRICT)


def encode_call_id(call_id: str) -> str:
    """Return a legal id for a call: the same id if it is legal, else its hexadecimal form, or a hash of a long one."""
    if _ID.fullmatch(call_id) and not call_id.startswith(_FOREIGN_ID):
        return call_id
    raw = call_id.encode("utf-8", "surrogatepass")
    if len(raw) <= 24:
        return _FOREIGN_ID + raw.hex()
    from hashlib import sha256

    return _FOREIGN_ID + sha256(raw).hexdigest()[:60]


class _ServerBlock(msgspec.Struct):
    """What a block says of a call to one of the server's own tools, or of its result."""

    type: str = ""
    id: str = ""
    tool_use_id: str = ""


class _Caller(msgspec.Struct):
    tool_id: str = ""


class _CalledByCode(msgspec.Struct):
    caller: _Caller | None = None


_decode_server_block = msgspec.json.Decoder(_ServerBlock).decode
_decode_caller = msgspec.json.Decoder(_CalledByCode).decode
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")


class ServerCalls:
    """The calls to the server's own tools, such as its web search, which it takes back only with their results.

    A call may wait while nothing but results of other calls follows: then the server still runs it. Once something else
    follows, the result never comes. `given_up` are the ids of such calls; they are left out.
    """

    __slots__ = ("_waiting", "given_up", "is_late")

    def __init__(self, given_up: Set[str] = frozenset()) -> None:
        self.given_up = given_up
        # Whether one was given up that is written already.
        self.is_late = False
        self._waiting: set[str] = set()

    def select(self, content: Sequence[Content]) -> Sequence[Content]:
        """Return the blocks of an answer without the calls that are given up, and without results of no call."""
        if not self.given_up and not any([type(block) is ThinkingContent and _is_opaque(block) for block in content]):
            return content
        return [
            self._detach(block) if type(block) is ToolCall else block
            for block in content
            if not _is_opaque(block) or self._follow(block)
        ]

    def give_up(self) -> None:
        """Note that something else follows than results: what has no result yet gets none."""
        if self._waiting:
            self.given_up = self.given_up | self._waiting
            self._waiting = set()
            self.is_late = True

    def _follow(self, block: ThinkingContent) -> bool:
        """Note what a block of the server's own says; return whether it goes back."""
        try:
            said = _decode_server_block(block.signature or "")
        except (msgspec.DecodeError, UnicodeError):
            return True
        if said.type in _SERVER_CALLS and said.id:
            if said.id in self.given_up:
                return False
            self._waiting.add(said.id)
        elif said.type.endswith("_tool_result") and said.tool_use_id:
            if said.tool_use_id not in self._waiting:
                return False
            self._waiting.remove(said.tool_use_id)
        return True

    def _detach(self, call: ToolCall) -> ToolCall:
        """Return a call without its caller if that is code of a call that is given up."""
        if not self.given_up or call.signature is None or "caller" not in call.signature:
            return call
        try:
            caller = _decode_caller(call.signature).caller
        except (msgspec.DecodeError, UnicodeError):
            return call
        if caller is None or caller.tool_id not in self.given_up:
            return call
        fields = {name: raw for name, raw in split_fields(call.signature).items() if name not in _OF_CALLER}
        return msgspec.structs.replace(call, signature=msgspec.json.encode(fields).decode() if fields else None)


_OF_CALLER = frozenset(("caller", "container"))


def _is_opaque(block: Content) -> TypeGuard[ThinkingContent]:
    return type(block) is ThinkingContent and block.field == OPAQUE


def drop_trailing_thinking(message: AssistantMessage, content: Sequence[Content]) -> Sequence[Content]:
    """Drop thinking from the end of the blocks of an answer: the API refuses a message that ends with it.

    A paused answer goes back unchanged.
    """
    end = len(content)
    while end and _is_thinking(content[end - 1]) and message.raw_stop_reason != PAUSED:
        end -= 1
    return content if end == len(content) else content[:end]


def _is_thinking(block: Content) -> bool:
    """Whether the block is thinking or blank text; a block of an unknown type is neither."""
    if type(block) is TextContent:
        return not block.text or block.text.isspace()
    return type(block) is ThinkingContent and block.field != OPAQUE


def build_block(block: Content) -> dict[str, Any] | None:
    """Build text or an image; blank text is left out, because the API refuses it."""
    if type(block) is ImageContent:
        block = fit_picture(block, _PICTURES)
        if type(block) is ImageContent:
            source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
            return {"type": "image", "source": source}
    if type(block) is TextContent:
        text, signature = block.text, block.signature
        if not text or text.isspace():
            return None
        if signature is not None and signature.startswith("["):
            return {"type": "text", "text": text, "citations": msgspec.Raw(signature.encode("utf-8", "replace"))}
        return {"type": "text", "text": text}
    return None


def encode_blocks(content: Iterable[Content]) -> list[bytes]:
    """Encode texts and images."""
    return [encode_json(built) for built in map(build_block, content) if built is not None]


def encode_thinking(block: ThinkingContent) -> bytes | None:
    """Encode thinking unchanged; the API refuses thinking without its signature."""
    if not block.signature:
        return None
    if block.field == OPAQUE:
        return block.signature.encode("utf-8", "replace")
    if block.redacted:
        return encode_json({"type": "redacted_thinking", "data": block.signature})
    return encode_json({"type": "thinking", "thinking": block.thinking, "signature": block.signature})


def build_call(call: ToolCall, wire_id: str, name: str) -> tuple[dict[str, Any], str | None]:
    """Build a call with the fields that the server gave it, such as `caller`; also return the container it waits in."""
    written = call.arguments if call.raw_arguments is None else {"_raw": call.raw_arguments}
    fields: dict[str, Any] = {"type": "tool_use", "id": wire_id, "name": name, "input": written}
    if call.signature is None or not call.signature.startswith("{"):
        return fields, None
    more = split_fields(call.signature)
    container = more.pop("container", None)
    return {**fields, **more}, None if container is None else str(msgspec.json.decode(container))
