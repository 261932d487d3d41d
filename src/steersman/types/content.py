"""The blocks a message is made of.

Messages, blocks and events are made of finished values and never refer back to themselves, so they are kept out of the
garbage collector's sight (`gc=False`): in a long run there are many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeAlias, cast

import msgspec
from msgspec.structs import force_setattr

from steersman.types.frozen import FrozenDict, freeze


class TextContent(msgspec.Struct, frozen=True, tag="text", tag_field="type", omit_defaults=True, gc=False):
    """Words. `signature` is a provider's opaque mark, replayed byte for byte to the model that made it."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    signature: str | None = None

    def __post_init__(self) -> None:
        if not self.text.isascii():
            force_setattr(self, "text", replace_lone_surrogates(self.text))


class ImageContent(msgspec.Struct, frozen=True, tag="image", tag_field="type", omit_defaults=True, gc=False):
    """A picture as base64 text."""

    type: ClassVar[Literal["image"]] = "image"
    data: str
    mime_type: str = "image/png"


class ThinkingContent(msgspec.Struct, frozen=True, tag="thinking", tag_field="type", omit_defaults=True, gc=False):
    """Reasoning as the model gave it. `field` is the provider's own name for it where several exist."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    thinking: str
    signature: str | None = None
    redacted: bool = False
    field: str | None = None


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", tag_field="type", omit_defaults=True, gc=False):
    """A tool the model asks for.

    `raw_arguments` is set when what the model wrote is not a JSON object: it is kept as written and never guessed at.
    `provider_id` is the provider's own id where it could not serve as ours because it was taken.
    """

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    id: str
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=FrozenDict)
    raw_arguments: str | None = None
    signature: str | None = None
    provider_id: str | None = None

    def __post_init__(self) -> None:
        if type(self.arguments) is not FrozenDict:
            force_setattr(self, "arguments", freeze(self.arguments))

    @property
    def is_truncated(self) -> bool:
        """Whether the arguments are not whole. What is whole and no object is wrong, and not cut."""
        raw = self.raw_arguments
        if raw is None:
            return False
        try:
            # An object would be in `arguments` had the server not said that it broke off.
            return isinstance(msgspec.json.decode(raw), dict)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return True


Content: TypeAlias = TextContent | ImageContent | ThinkingContent | ToolCall


def replace_lone_surrogates(text: str) -> str:
    """The text with surrogate halves joined and lone ones replaced, so that it can be encoded anywhere."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def escape_lone_surrogates(text: str) -> str:
    """Arguments of a call with surrogate halves joined and lone ones as JSON escapes: no strict reader takes those."""
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return "".join(f"\\u{ord(one):04x}" if "\ud800" <= one <= "\udfff" else one for one in joined)
    return text


def split_trailing_surrogate(text: str) -> tuple[str, str]:
    """The text without half a surrogate pair at its end, and that half: the other may come with the next delta."""
    return (text[:-1], text[-1]) if text and "\ud800" <= text[-1] <= "\udbff" else (text, "")


def text_of(content: Sequence[Content]) -> str:
    """The text blocks, joined."""
    return "".join([block.text for block in content if type(block) is TextContent])


def parse_tool_call(
    id: str, name: str, arguments: object, *, signature: str | None = None, provider_id: str | None = None
) -> ToolCall:
    """A tool call from arguments as a server sent them: text, an object, or nothing.

    Nothing, `""` and `null` mean no arguments. What is not a JSON object stays in `raw_arguments`.
    """
    value, raw = _parse_arguments(arguments)
    return ToolCall(id, name, value, None if raw is None else escape_lone_surrogates(raw), signature, provider_id)


def _parse_arguments(arguments: object) -> tuple[dict[str, Any], str | None]:
    if arguments is None:
        return FrozenDict(), None
    if isinstance(arguments, dict):
        return cast(dict[str, Any], arguments), None
    if not isinstance(arguments, str):
        return FrozenDict(), msgspec.json.encode(arguments).decode()
    if not arguments.strip():
        return FrozenDict(), None
    if not arguments.isascii():
        # Halves of a character that came in two deltas are joined; a lone half is not guessed at, and does not parse.
        arguments = arguments.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    try:
        value: object = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return FrozenDict(), arguments
    if value is None:
        return FrozenDict(), None
    if isinstance(value, dict):
        return cast(dict[str, Any], value), None
    return FrozenDict(), arguments
