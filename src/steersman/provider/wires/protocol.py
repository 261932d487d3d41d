"""The interface of a wire protocol, and what all wires share: tool names, JSON and memos. Pure: no I/O, no clock.

A wire encodes a request and decodes the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast

import msgspec

from steersman.types.content import Content, ToolCall, parse_tool_call, replace_lone_surrogates
from steersman.types.errors import ProtocolError, ProviderError
from steersman.types.messages import AssistantMessage, StopReason
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import StreamEvent

if TYPE_CHECKING:
    from steersman.types.model import ToolSpec


_TAG = 8


class ToolNames:
    """The names of one set of tools, in both directions.

    `allowed` is a regular expression that a whole legal name matches, such as `[a-zA-Z0-9_-]+`. A legal name stays as
    it is. In any other name `_` replaces each illegal character, and a hash of the name is appended, so the result does
    not depend on the other tools. Names that are not among the tools, such as those of calls in an older transcript,
    follow the same rule.
    """

    __slots__ = ("_allowed", "_back", "_max_length", "_wire")

    def __init__(
        self, tools: Iterable[ToolSpec | str], allowed: str | re.Pattern[str] = r"[a-zA-Z0-9_-]+", max_length: int = 64
    ) -> None:
        self._allowed = re.compile(allowed)
        self._max_length = max_length
        self._wire: dict[str, str] = {}
        self._back: dict[str, str] = {}
        names = [tool if isinstance(tool, str) else tool.name for tool in tools]
        # Legal names first: they stay, even if another name would be changed to the same one.
        for name in names:
            if self._is_legal(name):
                self._wire[name] = self._back[name] = name
        for name in names:
            self.to_wire(name)

    def to_wire(self, name: str) -> str:
        """Return the name that the provider accepts."""
        known = self._wire.get(name)
        if known is not None:
            return known
        legal = name
        if not self._is_legal(name) or name in self._back:
            legal = self._make_legal(name, 0)
            number = 0
            while legal in self._back:
                number += 1
                legal = self._make_legal(name, number)
        self._wire[name] = legal
        self._back[legal] = name
        return legal

    def from_wire(self, name: str) -> str:
        """Return the tool's own name; an unknown name is returned as it is."""
        return self._back.get(name, name)

    def _is_legal(self, name: str) -> bool:
        return 0 < len(name) <= self._max_length and self._allowed.fullmatch(name) is not None

    def _make_legal(self, name: str, number: int) -> str:
        from hashlib import blake2b  # two milliseconds at import, and few names need it

        tag = blake2b(f"{number}:{name}".encode("utf-8", "surrogatepass"), digest_size=_TAG // 2).hexdigest()
        cleaned = "".join([letter if self._allowed.fullmatch(f"a{letter}") else "_" for letter in name])
        if not cleaned or self._allowed.fullmatch(cleaned[0]) is None:
            cleaned = f"t_{cleaned}"
        return f"{cleaned[: self._max_length - _TAG - 1]}_{tag}"


T = TypeVar("T")
Result = TypeVar("Result")
P = ParamSpec("P")

_MAX_OBJECTS = 1024
MOST_TOKENS = 10**15
"""A larger count of tokens is nonsense."""

_encode = msgspec.json.Encoder().encode


def encode_json(value: Any) -> bytes:
    """The value as JSON; lone surrogates, which UTF-8 cannot hold, are replaced."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_replace_surrogates(value))


def encode_arguments(arguments: Any) -> str:
    """Encode the arguments of a call that came as an object."""
    try:
        return _encode(arguments).decode()
    except UnicodeEncodeError:  # a lone surrogate stays escaped: the call must not run with another character
        from json import dumps

        return dumps(arguments)


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, Mapping):
        items = cast(Mapping[str, Any], value).items()
        return {replace_lone_surrogates(key): _replace_surrogates(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [_replace_surrogates(item) for item in cast(Sequence[Any], value)]
    return value


def decode_count(value: Any) -> int | None:
    """Return a count of tokens as an integer; some servers send floats, some send nonsense."""
    if value is None or (type(value) is int and 0 <= value < MOST_TOKENS):
        return value
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS
    return int(value) if good else None


def memoize_by_identity(compute: Callable[[T], Result]) -> Callable[[T], Result]:
    """Compute the result once for each object; the objects must never change."""
    known: dict[int, tuple[T, Result]] = {}

    def look_up(value: T) -> Result:
        found = known.get(id(value))
        if found is not None:
            return found[1]
        result = compute(value)
        if len(known) >= _MAX_OBJECTS:
            known.clear()
        # The memo keeps the object alive, so that no other object can get its id.
        known[id(value)] = (value, result)
        return result

    return look_up


def memoize_by_identities(
    limit: int,
) -> Callable[[Callable[Concatenate[Sequence[T], P], Result]], Callable[Concatenate[Sequence[T], P], Result]]:
    """Compute the result once for each sequence of objects, and for each of the other arguments, if there are any.

    The oldest of more than `limit` results is dropped.
    """

    def memoize(
        compute: Callable[Concatenate[Sequence[T], P], Result],
    ) -> Callable[Concatenate[Sequence[T], P], Result]:
        known: dict[tuple[object, ...], tuple[tuple[T, ...], Result]] = {}

        def look_up(values: Sequence[T], *args: P.args, **kwargs: P.kwargs) -> Result:
            key = (*map(id, values), *args, *kwargs.values())
            found = known.get(key)
            if found is not None:
                return found[1]
            if len(known) >= limit:
                known.pop(next(iter(known)))
            result = compute(values, *args, **kwargs)
            # The memo keeps the objects alive, so that no other object can get one of their ids.
            known[key] = (tuple(values), result)
            return result

        return look_up

    return memoize


def memoize_by_members(limit: int) -> Callable[[Callable[[Sequence[T]], Result]], Callable[[Sequence[T]], Result]]:
    """Compute the result once for each sequence of objects; a tuple that was seen before is found in one step."""

    def memoize(compute: Callable[[Sequence[T]], Result]) -> Callable[[Sequence[T]], Result]:
        known: dict[int, tuple[tuple[T, ...], Result]] = {}
        find_by_members = memoize_by_identities(limit)(compute)

        def look_up(values: Sequence[T]) -> Result:
            found = known.get(id(values))
            if found is not None:
                return found[1]
            result = find_by_members(values)
            if isinstance(values, tuple):  # a list may change
                if len(known) >= limit:
                    known.pop(next(iter(known)))
                known[id(values)] = (values, result)
            return result

        return look_up

    return memoize


class HttpRequest(msgspec.Struct, frozen=True):
    """A POST request, ready to send; `headers` hold the key and never appear in `repr`.

    `max_tokens` is the limit on output tokens that the body sets, if it sets one.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes
    max_tokens: int | None = None

    def __repr__(self) -> str:
        return f"HttpRequest({self.url!r})"


class Decoder(Protocol):
    """Decodes one answer, event by event."""

    @property
    def done(self) -> bool:
        """Whether the terminal event has arrived; the rest of the stream is not read."""
        ...

    @property
    def complete(self) -> bool:
        """Whether `finish` would return the answer; the terminal event may still be missing."""
        ...

    def feed(self, event: str, data: str) -> Sequence[StreamEvent]:
        """Decode one server-sent event; raises a `ProviderError` for an error event or malformed data.

        `event` is the name of the event, "" if the server sent none. Never returns `Done`: `finish` builds the message.
        """
        ...

    def finish(self) -> AssistantMessage:
        """Return the whole answer, after the terminal event or at a clean end of the stream.

        Raises `IncompleteStreamError` when the answer is not complete.
        """
        ...


MAX_TOOL_CALLS = 1_000
"""More calls in one answer are a failure of the model or of its server, and none of them is run."""


def check_call_count(count: int) -> None:
    """Raise `ProtocolError` once an answer has too many tool calls, so that the rest of it is not even read."""
    if count > MAX_TOOL_CALLS:
        raise ProtocolError(describe_many_calls())


MAX_BLOCKS = 4_000
"""More items, parts or pieces of reasoning in one answer are a failure as well: each is compared with the others."""


def check_block_count(count: int) -> None:
    """Raise `ProtocolError` once an answer has more items, parts or pieces of reasoning than are looked at."""
    if count > MAX_BLOCKS:
        raise ProtocolError(f"The model's answer has more than {MAX_BLOCKS:,} items, parts or pieces of reasoning.")


def judge_calls(content: Iterable[Content]) -> StopReason:
    """Find the stop reason that the calls of an answer show, whatever the server says: none, cut, or to be run."""
    reason: StopReason = "stop"
    for block in content:
        if type(block) is ToolCall:
            if block.raw_arguments is not None and block.is_truncated:
                return "length"
            reason = "tool_use"
    return reason


MAX_CONTAINERS = 150_000
"""More lists and objects in the arguments of a call are a failure too: each is made, frozen and written anew."""

MAX_VALUES = 1_000_000
"""So are more values of any kind."""

_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


def parse_call(
    id: str, name: str, arguments: object, signature: str | None = None, provider_id: str | None = None
) -> ToolCall:
    """Build a tool call as `parse_tool_call` does; `ProtocolError` if its arguments have too many values."""
    if type(arguments) is str and len(arguments) <= MAX_CONTAINERS:
        return parse_tool_call(id, name, arguments, signature, provider_id)
    text = arguments if isinstance(arguments, str) else "" if arguments is None else encode_json(arguments).decode()
    # What is inside a string is no list; nearly all texts are too short, or hold too few brackets, to look at that.
    if len(text) > MAX_CONTAINERS and _has_too_many(text) and _has_too_many(_JSON_STRING.sub("", text)):
        raise ProtocolError(
            f"The arguments of a call have more than {MAX_CONTAINERS:,} lists and objects, or {MAX_VALUES:,} values."
        )
    return parse_tool_call(id, name, arguments, signature, provider_id)


def _has_too_many(text: str) -> bool:
    """Whether a JSON text has too many brackets, or too many commas, of which one is between any two values."""
    return text.count("[") + text.count("{") > MAX_CONTAINERS or text.count(",") >= MAX_VALUES


def describe_many_calls() -> str:
    """Describe an answer with too many tool calls."""
    return f"The model's answer has more than {MAX_TOOL_CALLS:,} tool calls; none of them was run."


FeedAll: TypeAlias = Callable[[Sequence[tuple[str, str]], list[StreamEvent]], None]
"""Feeds events up to the terminal one to a decoder, and appends the results to a list."""


def find_feed_all(decoder: Decoder) -> FeedAll:
    """How a decoder is fed several events: it may have a `feed_all`, which is faster than one by one."""
    own: FeedAll | None = getattr(decoder, "feed_all", None)
    return own or partial(_feed_one_by_one, decoder)


def _feed_one_by_one(decoder: Decoder, events: Sequence[tuple[str, str]], out: list[StreamEvent]) -> None:
    for name, data in events:
        out += decoder.feed(name, data)
        if decoder.done:
            return


class Wire(Protocol):
    """A protocol such as Anthropic Messages."""

    name: str

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request; messages encoded for an earlier turn of the same conversation are not encoded again."""
        ...

    def decoder(self, model: Model, request: Request) -> Decoder:
        """Return a new decoder for one answer; the request says which tool names were changed for the provider."""
        ...

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Classify a response that is not a stream: an HTTP error, a JSON error with status 200, an HTML page."""
        ...
