"""The content blocks of a message, lone surrogates in text, and parsing of tool call arguments.

Messages, blocks and events hold immutable values and never refer back to themselves, so the garbage collector does not
track them (`gc=False`): a long run has many of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, cast

import msgspec
from msgspec.structs import force_setattr

from steersman.types.frozen import FrozenDict, freeze


class TextContent(msgspec.Struct, frozen=True, tag="text", tag_field="type", omit_defaults=True, gc=False):
    """Text. `signature` is the provider's opaque value, sent back unchanged to the model that made it."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    signature: str | None = None

    @property
    def citations(self) -> list[dict[str, Any]]:
        """The sources that the model cites for this text, as Anthropic describes them."""
        cited = self.signature or ""
        return msgspec.json.decode(cited) if cited.startswith("[") else []

    def __post_init__(self) -> None:
        if not self.text.isascii():
            force_setattr(self, "text", replace_lone_surrogates(self.text))


class ImageContent(msgspec.Struct, frozen=True, tag="image", tag_field="type", gc=False):
    """An image as base64 text."""

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
    """A tool call of the model.

    `raw_arguments` is set when the arguments are not a JSON object: the text is kept as written and never repaired.
    `provider_id` is the provider's own id where `id` had to be another one because that id was taken.
    While the call still arrives, `complete` is False: `arguments` is what can be read so far, `raw_arguments` the text.
    """

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    id: str
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=FrozenDict)
    raw_arguments: str | None = None
    signature: str | None = None
    provider_id: str | None = None
    complete: bool = True

    def __post_init__(self) -> None:
        if type(self.arguments) is not FrozenDict:
            force_setattr(self, "arguments", freeze(self.arguments))

    @property
    def is_truncated(self) -> bool:
        """Whether the arguments break off. Complete JSON that is not an object is malformed, and not truncated."""
        raw = self.raw_arguments
        if raw is None:
            return False
        try:
            # A complete object is here only when the server reported that the call broke off.
            return isinstance(msgspec.json.decode(raw), dict)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return True


Content: TypeAlias = TextContent | ImageContent | ThinkingContent | ToolCall


def replace_lone_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, so that the text can be encoded as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def replace_surrogates_in_json(value: Any) -> Any:
    """Replace the lone surrogates in every text of a JSON value, keys included."""
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return {replace_surrogates_in_json(key): replace_surrogates_in_json(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [replace_surrogates_in_json(item) for item in cast(Sequence[Any], value)]
    return value


def escape_lone_surrogates(text: str) -> str:
    """Join surrogate pairs and write lone surrogates as JSON escapes, for the arguments of a tool call.

    A strict JSON parser refuses such an escape, so the damage shows when the arguments are parsed.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return "".join(f"\\u{ord(one):04x}" if "\ud800" <= one <= "\udfff" else one for one in joined)
    return text


def split_trailing_surrogate(text: str) -> tuple[str, str]:
    """Split off a high surrogate at the end of the text: its low surrogate may come with the next delta."""
    return (text[:-1], text[-1]) if text and "\ud800" <= text[-1] <= "\udbff" else (text, "")


def join_text_blocks(content: Sequence[Content]) -> str:
    """Join the text blocks."""
    if len(content) == 1 and type(content[0]) is TextContent:
        return content[0].text
    return "".join([block.text for block in content if type(block) is TextContent])


def has_truncated_call(calls: Sequence[ToolCall]) -> bool:
    """Whether the arguments of one of these calls break off."""
    for call in calls:  # noqa: SIM110  # `any` with a list or a generator takes three times as long
        if call.raw_arguments is not None and call.is_truncated:
            return True
    return False


MAX_DEPTH = 128
"""Arguments that are nested more deeply are no tool's, and kept as written: who reads them has only so much stack."""


def parse_tool_call(
    id: str, name: str, arguments: object, signature: str | None = None, provider_id: str | None = None
) -> ToolCall:
    """Build a tool call from the arguments a server sent: text, an object, or nothing.

    Nothing, `""` and `null` mean no arguments. Text that is not a JSON object stays in `raw_arguments`.
    """
    try:
        value: Any = arguments
        if type(arguments) is str:
            value = _decode_json(arguments)
            if type(value) is dict and "[" not in arguments and arguments.find("{", 1) < 0:
                flat: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]  # a cast would be a call
                return ToolCall(id, name, FrozenDict(flat), None, signature, provider_id)
        if isinstance(value, dict):
            return ToolCall(id, name, _freeze_arguments(value), None, signature, provider_id)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        pass
    value, raw = _parse_unusual_arguments(arguments)
    return ToolCall(id, name, value, None if raw is None else escape_lone_surrogates(raw), signature, provider_id)


def _parse_unusual_arguments(arguments: object) -> tuple[dict[str, Any], str | None]:
    if arguments is None:
        return FrozenDict(), None
    if not isinstance(arguments, str):
        return FrozenDict(), msgspec.json.encode(arguments).decode()
    if not arguments.strip():
        return FrozenDict(), None
    if not arguments.isascii():
        # Surrogate pairs that came in two deltas are joined; a lone surrogate stays, and does not parse.
        arguments = arguments.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    try:
        value: object = _freeze_arguments(_decode_json(arguments))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return FrozenDict(), arguments
    if value is None:
        return FrozenDict(), None
    if isinstance(value, dict):
        return cast(dict[str, Any], value), None
    return FrozenDict(), arguments


_decode_json = msgspec.json.Decoder().decode
_CONTAINERS = frozenset((dict, list))


def _freeze_arguments(value: Any) -> Any:
    """Freeze what was decoded; `RecursionError` if it is nested too deeply."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [item for item in level if type(item) in _CONTAINERS]
        if not level:
            return freeze(value)
        inner: list[Iterable[Any]] = [outer.values() if type(outer) is dict else outer for outer in level]
        level = [item for items in inner for item in items]
    raise RecursionError
