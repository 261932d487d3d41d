"""Records the answers of a real model once and replays them later: a `StreamFn` around another one, with a file.

    with cassette("tests/cassettes/weather.jsonl") as tape:
        result = Agent("anthropic:claude-haiku-4-5", stream_fn=tape).run_sync("What is the weather?")

The file has a line for each request and each event of its answer, and no key. A request that differs from the recorded
one is told with a diff when the `with` ends, and to the agent as an error that is not tried again.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, cast

import msgspec

from steersman.provider.models.registry import find_known_keys, find_stream_fn
from steersman.provider.streaming.failures import to_error_info
from steersman.provider.streaming.normalize import ModelCall, close_stream, open_stream
from steersman.session.records import redact_values, to_json_value
from steersman.types import wire
from steersman.types.errors import ErrorInfo, InvalidRequestError, ProviderError
from steersman.types.events import UnknownEvent
from steersman.types.messages import Message
from steersman.types.model import Model, Request, StreamFn, StreamOptions

FORMAT: Final = "1.0"
"""The version of the file: one of a newer major is not played."""

Mode: TypeAlias = Literal["once", "replay", "record"]
_MODES = ("once", "replay", "record")
_LONGEST_DIFF = 60
# What a server says about an answer, or what differs each time, and no wire sends.
_USUAL_IMAGE = "image/png"
_UNSENT = frozenset(("timestamp", "usage", "response_id", "raw_stop_reason", "details", "synthetic"))


class CassetteMismatch(AssertionError):
    """What was asked is not what was recorded."""


@dataclass(slots=True)
class _Exchange:
    """One request and the lines of its answer."""

    request: dict[str, Any]
    answer: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    played: bool = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(_encode(self.request)).hexdigest()


def cassette(
    path: str | os.PathLike[str],
    stream_fn: StreamFn | None = None,
    *,
    mode: Mode = "once",
    scrub: Callable[[str], str] | None = None,
) -> Cassette:
    """A cassette in a file. "once" records where there is no file yet, "record" always, "replay" never.

    It records `stream_fn`, or the model's own provider. `scrub` is applied to every text before it is written or
    compared: for what differs each time, such as a temporary path, and for secrets that are no keys.
    """
    return Cassette(Path(path), stream_fn, mode=mode, scrub=scrub)


class Cassette:
    """A `StreamFn`. `close` it, or use it in a `with`, to write the file and to report differences."""

    def __init__(
        self, path: Path, stream_fn: StreamFn | None, *, mode: Mode, scrub: Callable[[str], str] | None
    ) -> None:
        if mode not in _MODES:
            raise ValueError(f"mode is 'once', 'replay' or 'record', got {mode!r}.")
        if mode == "replay" and not path.exists():
            raise FileNotFoundError(f"There is no cassette {str(path)!r}. Record one with mode='once'.")
        self.path = path
        self.recording = mode == "record" or not path.exists()
        self._stream_fn = stream_fn
        self._scrub = scrub
        self._exchanges: list[_Exchange] = [] if self.recording else _read(path)
        self._faults: list[str] = []
        self._secrets: set[str] = set()

    def __call__(self, model: Model, request: Request, options: StreamOptions, /) -> AsyncGenerator[Any, None]:
        """Ask the model and write down what it says, or say what is written down."""
        self._secrets |= find_known_keys(model) | ({options.api_key} if options.api_key else set())
        asked = cast(dict[str, Any], self._clean(_make_plain_request(model, request, options)))
        if not self.recording:
            return self._play(asked, model)
        return self._record(asked, ModelCall(self._stream_fn or find_stream_fn(model), model, request, options))

    def close(self) -> None:
        """Write the file if it was recorded; raise `CassetteMismatch` if what was asked is not what it holds."""
        if self.recording:
            self._write()
            return
        left = [exchange for exchange in self._exchanges if not exchange.played]
        if left and not self._faults:
            self._faults.append(f"{len(left)} of {len(self._exchanges)} recorded requests were not made.")
        if self._faults:
            raise CassetteMismatch(f"{str(self.path)!r}: " + "\n".join(self._faults) + f"\n{_ADVICE}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A test that failed is not recorded. If a difference made it fail, the difference is reported.
        if error is None or (self._faults and not self.recording):
            self.close()

    async def _record(self, asked: dict[str, Any], ask: ModelCall) -> AsyncGenerator[Any, None]:
        exchange = _Exchange(asked)
        self._exchanges.append(exchange)
        source = None
        try:
            source = await open_stream(ask)
            async for event in source:
                exchange.answer.append({"event": self._clean(_make_plain_event(event))})
                yield event
        except Exception as error:
            exchange.answer.append({"raised": self._clean(to_json_value(to_error_info(error)))})
            raise
        finally:
            await close_stream(source)

    async def _play(self, asked: dict[str, Any], model: Model) -> AsyncGenerator[Any, None]:
        exchange = self._find(asked)
        if exchange is None:
            raise InvalidRequestError(self._faults[-1], provider=model.provider)
        exchange.played = True
        for line in exchange.answer:
            if "raised" in line:
                raise _make_error(line["raised"])
            yield _parse_event(line["event"])

    def _find(self, asked: dict[str, Any]) -> _Exchange | None:
        """The first recorded exchange with this request; requests that are made at once may come in another order."""
        waiting = [exchange for exchange in self._exchanges if not exchange.played]
        for exchange in waiting:
            if exchange.request == asked:
                return exchange
        number = len(self._exchanges) - len(waiting) + 1
        if waiting:
            self._faults.append(f"Request {number} is not the recorded one:\n{_make_diff(waiting[0].request, asked)}")
        else:
            self._faults.append(f"Request {number} was made, and {number - 1} are recorded.")
        return None

    def _clean(self, value: Any) -> Any:
        """Redact keys in JSON values, and apply `scrub`."""
        value = redact_values(value, self._secrets)
        return value if self._scrub is None else _scrub_values(value, self._scrub)

    def _write(self) -> None:
        lines = [_encode({"cassette": FORMAT})]
        for exchange in self._exchanges:
            lines.append(_encode({"request": exchange.request, "digest": exchange.digest}))
            lines += map(_encode, _join_deltas(exchange.answer, self._clean))
        # An early exchange may contain a key that was used only later.
        text = redact_values(b"\n".join(lines).decode(), self._secrets)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        beside.write_text(f"{text}\n", encoding="utf-8", newline="\n")
        beside.replace(self.path)


_ADVICE = "If that is as it should be, delete the file and record it again."


def _make_plain_request(model: Model, request: Request, options: StreamOptions) -> dict[str, Any]:
    """What a model is asked as plain values, without what differs each time and without keys."""
    ids: dict[str, str] = {}
    return {
        "model": model.name,
        "system_prompt": request.system_prompt,
        "messages": [_make_plain_message(message, ids) for message in request.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": to_json_value(tool.parameters)}
            for tool in request.tools
        ],
        "options": {
            "thinking_level": options.thinking_level,
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "tool_choice": options.tool_choice,
            "output_schema": to_json_value(options.output_schema),
            **_make_plain_sampling(options),
        },
    }


def _make_plain_sampling(options: StreamOptions) -> dict[str, Any]:
    """The options that few requests have; a record is the same as ever without them."""
    fields = {"top_p": options.top_p, "stop": [*options.stop] or None, "seed": options.seed}
    return {name: value for name, value in fields.items() if value is not None}


def _make_plain_message(message: Message, ids: dict[str, str]) -> dict[str, Any]:
    """A message; its calls are numbered, because an id may have been made here and not by the server."""
    defaults = _get_defaults(type(message))
    fields = {
        name: value
        for name, value in to_json_value(message).items()
        if name not in _UNSENT and (name not in defaults or value != defaults[name])
    }
    if "tool_call_id" in fields:
        fields["tool_call_id"] = _number(fields["tool_call_id"], ids)
    for block in fields.get("content", ()):
        if block["type"] == "tool_call":
            block["id"] = _number(block["id"], ids)
            block.pop("provider_id", None)
        elif block["type"] == "image" and block["mime_type"] == _USUAL_IMAGE:
            del block["mime_type"]
    return fields


@cache
def _get_defaults(kind: type[Message]) -> dict[str, Any]:
    """The fields of an empty message: a cassette leaves them out."""
    return {name: value for name, value in to_json_value(kind()).items() if name != "role"}


def _number(id: str, ids: dict[str, str]) -> str:
    return ids.setdefault(id, f"call {len(ids) + 1}")


def _make_plain_event(event: object) -> Any:
    """An event as JSON; the `repr` of an unknown one."""
    return to_json_value(cast(object, event)) if isinstance(event, msgspec.Struct | dict) else repr(event)


def _parse_event(fields: Any) -> Any:
    """Decode an event; an unknown one is returned as it is."""
    try:
        event = wire.decode(msgspec.json.encode(fields))
    except ValueError:
        return fields
    return fields if isinstance(event, UnknownEvent) else event


def _join_deltas(answer: Sequence[dict[str, Any]], clean: Callable[[str], str]) -> list[dict[str, Any]]:
    """The same lines, the deltas of a block as one where their text has to be cleaned: a key may come in pieces."""
    texts: dict[tuple[str, int], list[str]] = {}
    for line in answer:
        if (place := _get_delta_key(line)) is not None:
            texts.setdefault(place, []).append(line["event"]["delta"])
    changed: dict[tuple[str, int], str | None] = {
        place: whole for place, parts in texts.items() if (whole := clean("".join(parts))) != "".join(parts)
    }
    joined: list[dict[str, Any]] = []
    for line in answer:
        place = _get_delta_key(line)
        if place is None or place not in changed:
            joined.append(line)
        elif changed[place] is not None:
            joined.append({"event": {**line["event"], "delta": changed[place]}})
            changed[place] = None
    return joined


def _get_delta_key(line: dict[str, Any]) -> tuple[str, int] | None:
    """The block that a delta belongs to."""
    event: Any = line.get("event")
    if not isinstance(event, dict) or not isinstance(cast(dict[str, Any], event).get("delta"), str):
        return None
    fields = cast(dict[str, Any], event)
    return str(fields.get("type")), int(fields.get("content_index", 0))


def _make_error(fields: dict[str, Any]) -> ProviderError:
    info = msgspec.convert(fields, ErrorInfo)
    error = ProviderError(info.message)
    error.info = info
    return error


def _read(path: Path) -> list[_Exchange]:
    exchanges: list[_Exchange] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ValueError(f"Line {number} of the cassette {str(path)!r} is no JSON object: {error}.") from error
        if "cassette" in fields:
            _check_format(str(fields["cassette"]), path)
        elif "request" in fields:
            exchanges.append(_Exchange(fields["request"]))
        elif exchanges and ("event" in fields or "raised" in fields):
            exchanges[-1].answer.append(fields)
    return exchanges


def _check_format(written: str, path: Path) -> None:
    if written.partition(".")[0] != FORMAT.partition(".")[0]:
        raise ValueError(f"The cassette {str(path)!r} has format {written}, and this version plays {FORMAT}.")


def _make_diff(recorded: object, asked: object) -> str:
    lines = list(
        difflib.unified_diff(_format_lines(recorded), _format_lines(asked), "recorded", "asked", n=2, lineterm="")
    )
    more = len(lines) - _LONGEST_DIFF
    return "\n".join([*lines[:_LONGEST_DIFF], *([f"... and {more} more lines"] if more > 0 else [])])


def _format_lines(value: object) -> Sequence[str]:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode().splitlines()


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _scrub_values(value: Any, scrub: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {scrub(str(key)): _scrub_values(item, scrub) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_scrub_values(item, scrub) for item in cast(Sequence[Any], value)]
    return value
