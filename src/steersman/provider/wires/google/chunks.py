"""The chunks of Gemini's `streamGenerateContent`, as far as they are decoded; unknown fields are skipped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from steersman.types.usage import Usage

_MARKS = frozenset(("thought", "thoughtSignature", "partMetadata"))

_NOTHING = msgspec.Raw()
_LONGEST_COUNT = 15
_MOST_TOKENS = 10**_LONGEST_COUNT


class PartialArgument(msgspec.Struct, rename="camel"):
    """A value inside the arguments of a call, or a piece of a text that goes on with the next one."""

    json_path: str | None = None
    string_value: str | None = None
    number_value: int | float | None = None
    bool_value: bool | None = None
    will_continue: bool | None = None

    def read_value(self) -> str | int | float | bool | None:
        """The value; `None` is JSON's null."""
        for value in (self.string_value, self.number_value, self.bool_value):
            if value is not None:
                return value
        return None


class Call(msgspec.Struct, rename="camel"):
    """A function call, or a piece of one; some gateways send a number as its id."""

    name: str | None = None
    id: str | int | None = None
    args: msgspec.Raw = _NOTHING
    partial_args: list[PartialArgument] | None = None
    will_continue: bool | None = None


class Blob(msgspec.Struct, gc=False, rename="camel"):
    """An image or other data."""

    data: str = ""
    mime_type: str = ""


class Part(msgspec.Struct, gc=False, rename="camel"):
    """One part of an answer."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: Call | None = None
    inline_data: Blob | None = None


class Parts(msgspec.Struct, gc=False):
    """The content of a candidate."""

    parts: list[Part] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    """An answer; a request asks for only one."""

    content: Parts | None = None
    finish_reason: Any = None
    finish_message: str | None = None
    index: int | None = None


class Feedback(msgspec.Struct, rename="camel"):
    """Why the prompt was blocked."""

    block_reason: str | None = None
    block_reason_message: str | None = None


class Tokens(msgspec.Struct, gc=False, rename="camel"):
    """The tokens used so far; any type is accepted, so that a malformed count does not lose the answer."""

    prompt_token_count: Any = None
    cached_content_token_count: Any = None
    candidates_token_count: Any = None
    thoughts_token_count: Any = None
    tool_use_prompt_token_count: Any = None


class Chunk(msgspec.Struct, gc=False, rename="camel"):
    """One chunk."""

    candidates: list[Candidate] | None = None
    prompt_feedback: Feedback | None = None
    usage_metadata: Tokens | None = None
    response_id: str | int | None = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
_lists = msgspec.json.Decoder(list[Chunk])


class DecodedEvent(msgspec.Struct):
    """The chunks of one event; with `has_lone_surrogates` their texts have to go through `restore_surrogates`."""

    chunks: Sequence[Chunk]
    text: str
    has_lone_surrogates: bool = False
    # By the identity of a part: all its fields, read once for all parts.
    fields: dict[int, dict[str, Any]] | None = None

    def encode_part(self, part: Part) -> str | None:
        """Return the JSON of a part of an unknown type, or `None` if the part has no data."""
        if self.fields is None:
            self.fields = self._read_fields()
        fields = self.fields[id(part)]
        known = fields.keys() <= _MARKS or all(fields[key] is None for key in fields.keys() - _MARKS)
        return None if known else msgspec.json.encode(fields).decode()

    def _read_fields(self) -> dict[int, dict[str, Any]]:
        read: Any = msgspec.json.decode(self.text)
        plain_chunks = cast(list[Any], read) if isinstance(read, list) else [read]
        found: dict[int, dict[str, Any]] = {}
        for chunk, plain in zip(self.chunks, plain_chunks, strict=True):
            content = chunk.candidates[0].content if chunk.candidates else None
            for number, part in enumerate((content and content.parts) or ()):
                found[id(part)] = plain["candidates"][0]["content"]["parts"][number]
        return found


def decode_unusual_event(data: str) -> DecodedEvent:
    """Decode an array of chunks, or a chunk that `decode_chunk` refuses because of lone surrogates."""
    listed = data.lstrip().startswith("[")
    try:
        return DecodedEvent(_lists.decode(data) if listed else (decode_chunk(data),), data)
    except msgspec.DecodeError:
        if "\\u" not in data:
            raise
    shifted = _LONE.sub(_shift_surrogate, data)
    return DecodedEvent(
        _lists.decode(shifted) if listed else (decode_chunk(shifted),), shifted, has_lone_surrogates=True
    )


# JSON may hold a lone surrogate whose other half comes with the next delta. msgspec refuses lone surrogates, so they
# are decoded as characters of a private use plane and restored afterwards.
_LONE = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})")
_SHIFTED = re.compile("[\U0010d800-\U0010dfff]")


def _shift_surrogate(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else chr(0x100000 + int(found[1], 16))


def restore_surrogates(text: str) -> str:
    """Restore the lone surrogates in a text of an event with `has_lone_surrogates`."""
    return _SHIFTED.sub(lambda found: chr(ord(found[0]) - 0x100000), text)


def decode_usage(tokens: Sequence[Tokens]) -> Usage:
    """Return the usage: input without cached tokens, output including thoughts."""
    prompt, cached, output, thoughts, used = _find_last_counts(tokens)
    if thoughts is not None:
        output = thoughts + (output or 0)
    if prompt is not None:
        prompt = max(0, prompt - (cached or 0)) + (used or 0)
    return Usage(prompt, output, cached, None, thoughts)


def _find_last_counts(tokens: Sequence[Tokens]) -> list[int | None]:
    """Return the last count of each kind: counts are totals, and later chunks may leave some out."""
    last = tokens[-1] if tokens else Tokens()
    found = list(map(_decode_count, msgspec.structs.astuple(last)))
    for one in tokens[-2::-1]:
        if None not in found:
            break
        earlier = msgspec.structs.astuple(one)
        found = [_decode_count(earlier[at]) if count is None else count for at, count in enumerate(found)]
    return found


def _decode_count(value: object) -> int | None:
    """Return a count as an integer; some gateways send floats or strings."""
    if value is None or (type(value) is int and 0 <= value < _MOST_TOKENS):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _LONGEST_COUNT:
        return int(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return int(value) if 0 <= value < _MOST_TOKENS else None
