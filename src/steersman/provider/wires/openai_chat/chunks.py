"""The chunks of a Chat Completions stream, as far as they are decoded, and the frame around their text.

The chunks of a text differ only in the text, so `Frame` remembers what comes before and after it and skips JSON
decoding for the chunks that match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeAlias, cast

import msgspec

from steersman.types.content import replace_lone_surrogates
from steersman.types.usage import Usage

NOTHING = msgspec.Raw()


class Function(msgspec.Struct, gc=False):
    """A piece of a call; some servers send the arguments as an object."""

    name: str | None = None
    arguments: Any = None


class CallPiece(msgspec.Struct, gc=False):
    """An entry of `tool_calls`; some servers leave out the index, some the id."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: msgspec.Raw = NOTHING


class Delta(msgspec.Struct, gc=False):
    """The new text, thinking and calls; Mistral sends the content as a list of parts."""

    content: str | list[Any] | None = None
    tool_calls: list[CallPiece] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    function_call: Function | None = None


class Choice(msgspec.Struct, gc=False):
    """An answer; a request asks for one, but some servers number it oddly."""

    index: int | None = 0
    delta: Delta | None = None
    finish_reason: Any = None
    message: Delta | None = None
    usage: msgspec.Raw = NOTHING
    error: Any = None


class Groq(msgspec.Struct, gc=False):
    """The field in which Groq sends the usage."""

    usage: msgspec.Raw = NOTHING


class Chunk(msgspec.Struct, gc=False):
    """One event of the stream, with the fields that differ from chunk to chunk."""

    choices: list[Choice] | None = None
    usage: msgspec.Raw = NOTHING
    error: Any = None
    x_groq: Groq | None = None


class ChunkHead(msgspec.Struct):
    """The fields that every chunk repeats; some servers send a number as the id."""

    id: str | int | None = None
    object: str | None = None


class _RawDelta(msgspec.Struct):
    tool_calls: list[dict[str, msgspec.Raw]] | None = None


class _RawChoice(msgspec.Struct):
    index: int | None = 0
    delta: _RawDelta | None = None
    message: _RawDelta | None = None


class _RawChunk(msgspec.Struct):
    choices: list[_RawChoice] = []


_raw_chunks = msgspec.json.Decoder(_RawChunk)
_CALL_FIELDS = frozenset(("index", "id", "type", "function"))
NO_FIELDS: dict[str, msgspec.Raw] = {}


def is_usual_call(data: str, piece: CallPiece) -> bool:
    """Whether a chunk starts one call with just the usual fields, as nearly all do."""
    function = piece.function
    if function is None:
        return False
    named = f'"function":{{"name":"{function.name}","arguments":"{function.arguments}"}}'
    return f'"tool_calls":[{{"index":{piece.index},"id":"{piece.id}","type":"function",{named}}}]' in data


def list_call_fields(data: str, choice: int) -> Sequence[dict[str, msgspec.Raw]]:
    """Return the fields of each call that are not decoded, such as `extra_content`, in which Gemini signs its calls."""
    try:
        chunk = _raw_chunks.decode(data)
        found = next(one for one in chunk.choices if (one.index or 0) == choice)
    except (msgspec.DecodeError, RecursionError, StopIteration):
        return ()
    calls = (found.delta and found.delta.tool_calls) or (found.message and found.message.tool_calls) or []
    return [
        {name: raw for name, raw in fields.items() if name not in _CALL_FIELDS and bytes(raw) != b"null"}
        for fields in calls
    ]


decode_chunk: Any = msgspec.json.Decoder(Chunk).decode
_heads = msgspec.json.Decoder(ChunkHead)


def decode_head(data: str) -> ChunkHead:
    """Decode the repeated fields of a chunk, as far as possible."""
    try:
        return _heads.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        from json import loads

        try:
            return msgspec.convert(loads(data), ChunkHead)
        except (ValueError, RecursionError):
            return ChunkHead()


def decode_leniently(data: str) -> Chunk | None:
    """Decode a chunk that the typed decoder refuses: numbers as text, lone surrogates; `None` if it is not an object.

    Raises `ValueError` when it is not JSON.
    """
    from json import dumps, loads

    try:
        plain: object = loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(plain, dict):
        return None
    fields = cast(dict[str, Any], plain)
    usage = fields.pop("usage", None)
    chunk = _convert_chunk(fields)
    if chunk is not None and usage is not None:
        chunk.usage = msgspec.Raw(dumps(usage).encode())
    return chunk


def _convert_chunk(fields: dict[str, Any]) -> Chunk | None:
    choices: object = fields.get("choices")
    for choice in cast(list[Any], choices) if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            cast(dict[str, Any], choice).pop("usage", None)
            _repair_calls(cast(dict[str, Any], choice))
    fields.pop("x_groq", None)
    try:
        return msgspec.convert(fields, Chunk, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def _repair_calls(choice: dict[str, Any]) -> None:
    """Turn numeric ids into text, and replace lone surrogates in ids and names."""
    for delta in (choice.get("delta"), choice.get("message")):
        calls: object = cast(dict[str, Any], delta).get("tool_calls") if isinstance(delta, dict) else None
        for call in cast(list[Any], calls) if isinstance(calls, list) else ():
            if isinstance(call, dict):
                _repair_call(cast(dict[str, Any], call))


def _repair_call(call: dict[str, Any]) -> None:
    id, function = call.get("id"), call.get("function")
    if isinstance(id, str | int):
        call["id"] = replace_lone_surrogates(str(id))
    if isinstance(function, dict) and isinstance(name := cast(dict[str, Any], function).get("name"), str):
        function["name"] = replace_lone_surrogates(name)


_skip = msgspec.json.Decoder(msgspec.Raw).decode


def is_json(text: str) -> bool:
    """Whether a text is valid JSON; its values are not built."""
    try:
        _skip(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


_MOST = 10**15
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=_MOST)] | None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count = None
    cache_write_tokens: _Count = None
    reasoning_tokens: _Count = None


class _Counts(msgspec.Struct, gc=False):
    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    total_tokens: _Count = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: _Count = None
    cached_tokens: _Count = None
    cost: Any = None


_NO_DETAILS = _Details()
_counts = msgspec.json.Decoder(_Counts)
_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


def decode_usage(raw: msgspec.Raw) -> Usage | None:
    """Return the usage: input without cached tokens, output including reasoning. A malformed count is unknown."""
    try:
        counts = _counts.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        counts = _decode_counts_leniently(raw)
    prompt, completion = counts.prompt_tokens, counts.completion_tokens
    if prompt is None and completion is None:
        return None
    details = counts.prompt_tokens_details or _NO_DETAILS
    cached, written = details.cached_tokens, details.cache_write_tokens
    if cached is None:
        cached = counts.prompt_cache_hit_tokens if counts.cached_tokens is None else counts.cached_tokens
    reasoning = (counts.completion_tokens_details or _NO_DETAILS).reasoning_tokens
    if completion is not None and reasoning and counts.total_tokens == (prompt or 0) + completion + reasoning:
        completion += reasoning  # xAI and others do not include it in the output
    fresh = None if prompt is None else max(0, prompt - (cached or 0) - (written or 0))
    return Usage(fresh, completion, cached, written, reasoning, cost=_decode_cost(counts.cost))


def _decode_counts_leniently(raw: msgspec.Raw) -> _Counts:
    """Decode counts of which some are malformed: they must not lose the others, or the answer."""
    try:
        return msgspec.convert(_clean_counts(msgspec.json.decode(raw)) or {}, _Counts)
    except (msgspec.DecodeError, RecursionError):
        return _Counts()


def _clean_counts(given: Any) -> dict[str, Any] | None:
    """The counts without what is malformed; some gateways send an empty list for no details."""
    if not isinstance(given, dict):
        return None
    fields = cast(dict[str, Any], given)
    counts = {name: _decode_count(value) for name, value in fields.items()}
    return {**counts, **{name: _clean_counts(fields.get(name)) for name in _DETAILS}, "cost": fields.get("cost")}


def _decode_number(value: object) -> float | None:
    """Return a number; some gateways send it as text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if 0 <= value < _MOST else None


def _decode_count(value: object) -> int | None:
    if value is None or (type(value) is int and 0 <= value < _MOST):
        return value
    number = _decode_number(value)
    return None if number is None else int(number)


def _decode_cost(value: object) -> float | None:
    """Return the cost; Perplexity sends an object with the cost of each part."""
    if value is None:
        return None
    if isinstance(value, dict):
        value = cast(dict[str, object], value).get("total_cost")
    return _decode_number(value)


_PROBE = "?"
# To try a place takes as long as to read the chunk, and a chunk of 1 MB may have the text at 250,000 of them.
_MOST_PLACES = 16
_decode_text = msgspec.json.Decoder(str).decode


class Frame:
    """The JSON before and after the text of a chunk."""

    __slots__ = ("_after", "_before", "_end", "_start")

    def __init__(self, before: str, after: str) -> None:
        self._before = before
        self._after = after
        self._start = len(before)
        self._end = -len(after)

    def read_word(self, event: tuple[str, str]) -> str:
        """Return the text of an event, or nothing if it does not match the frame or has escapes."""
        name, data = event
        word = data[self._start : self._end]
        fits = not name and data.startswith(self._before) and data.endswith(self._after) and word.isprintable()
        return word if fits and '"' not in word and "\\" not in word else ""

    def read_words(self, events: Sequence[tuple[str, str]], start: int) -> list[str]:
        """Return the texts of the events from `start` on, up to one that does not match the frame or has escapes."""
        before, after, first, last = self._before, self._after, self._start, self._end
        found: list[str] = []
        for event, data in events[start:]:
            if event or not (data.startswith(before) and data.endswith(after)):
                break
            words = data[first:last]
            if not words or not words.isprintable() or '"' in words or "\\" in words:
                break
            found.append(words)
        return found

    def read_arguments(self, events: Sequence[tuple[str, str]], start: int) -> list[str]:
        """Return the fragments of arguments of the events from `start` on, up to one that does not match the frame."""
        before, after, first, last = self._before, self._after, self._start - 1, self._end + 1 or None
        found: list[str] = []
        for event, data in events[start:]:
            if event or not (data.startswith(before) and data.endswith(after)):
                break
            try:
                words = _decode_text(data[first:last])
            except (msgspec.DecodeError, UnicodeEncodeError):
                break
            if not words:
                break
            found.append(words)
        return found


def find_frame(data: str, words: str) -> Frame | None:
    """Find the frame of a chunk with this text, or return `None`: the place where another text would be the content."""
    for head, tail in _find_places(data, f'"{words}"'):
        if _has_content(f'{head}"{words}{_PROBE}"{tail}', words + _PROBE):
            return Frame(f'{head}"', f'"{tail}')
    return None


def _find_places(data: str, quoted: str) -> Iterator[tuple[str, str]]:
    """Find what is before and after the first few places of a quoted text: a comma may occur in quotes elsewhere."""
    at = data.find(quoted)
    for _ in range(_MOST_PLACES):
        if at < 0:
            return
        yield data[:at], data[at + len(quoted) :]
        at = data.find(quoted, at + 1)


def find_argument_frame(data: str, words: str) -> Frame | None:
    """Find the frame of a chunk with this fragment of arguments, in the same way, or return `None`.

    Where the chunk has just one such member of an object, there is nothing to try.
    """
    quoted = msgspec.json.encode(words).decode()
    before, member, after = data.partition(f'"arguments":{quoted}')
    if before.endswith(("{", ",")) and member not in after:
        return Frame(f'{before}"arguments":"', f'"{after}')
    for head, tail in _find_places(data, quoted):
        if _has_arguments(f'{head}{quoted[:-1]}{_PROBE}"{tail}', words + _PROBE):
            return Frame(f'{head}"', f'"{tail}')
    return None


def _has_arguments(data: str, words: str) -> bool:
    delta = _decode_delta(data)
    calls = None if delta is None else delta.tool_calls
    function = calls[0].function if calls else None
    return function is not None and function.arguments == words


def _has_content(data: str, words: str) -> bool:
    delta = _decode_delta(data)
    return delta is not None and delta.content == words


def _decode_delta(data: str) -> Delta | None:
    try:
        chunk: Chunk = decode_chunk(data)
    except msgspec.DecodeError:
        return None
    return chunk.choices[0].delta if chunk.choices else None
