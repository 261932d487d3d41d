"""The HTTP of every wire: an exchange gives the bytes, the decoders make events of them, and nothing is left open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urljoin

import msgspec

from steersman.provider.http.errors import (
    broken_stream_error,
    content_encoding_error,
    credentials_in_url_error,
    has_credentials,
    is_same_origin,
    is_still_encoded,
    network_error,
    redact_url,
    redirect_error,
    stalled_error,
    unusable_proxy_error,
)
from steersman.provider.http.headers import complete_error
from steersman.provider.http.pool import aclose_http, find_pool, find_proxy, open_pool
from steersman.provider.http.response import Response
from steersman.provider.http.sse import Event, SseDecoder
from steersman.provider.http.watchdog import Watch, resolve_model
from steersman.provider.models.keys import find_key, find_secret_headers, get_given_key
from steersman.provider.streaming.batches import Batched, Batches
from steersman.provider.wires.dialects import add_url_advice
from steersman.provider.wires.protocol import Decoder, HttpRequest, Wire, feed_all
from steersman.types.errors import IncompleteStreamError, ProtocolError, ProviderError, StalledError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.secrets import redact
from steersman.types.stream import Done, StreamEvent, StreamStart

if TYPE_CHECKING:
    from aiohttp import ClientTimeout


_ERROR_BODY = 1024 * 1024
_REDIRECTS = 2
_REDIRECT = frozenset((301, 302, 303, 307, 308))
# The end of a body comes right behind its last event, where it comes at all: worth this wait to keep the connection.
_END_WAIT = 0.02
# Usage and the like may follow the end of an answer, after a moment and not after a timeout.
_REST_WAIT = 2.0
_BLANK = b" \t\r\n\xef\xbb\xbf"
_NOT_EVENTS = (b"{", b"[", b"<")
_USUAL = (b"data: {", b"event: ")
_EVENTS = (b"data:", b"event:", b"id:", b"retry:", b":")


class Exchange:
    """One request and its response."""

    __slots__ = (
        "_bounds", "_first", "_key", "_loop", "_received", "_response", "_url", "_watch", "_wire",
        "max_tokens", "model", "reader",
    )  # fmt: skip

    def __init__(self, wire: Wire, model: Model) -> None:
        self.model, self._bounds = resolve_model(model)
        self.reader: Any = SseDecoder(max_event_bytes=self._bounds.max_event_bytes)
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._watch = Watch(self._loop, self._bounds)
        self._key: str | None = None
        self._url = ""
        self._response: Response | None = None
        self._first = b""
        self._received = 0
        # How many tokens the model was allowed, which is not always what the caller said.
        self.max_tokens: int | None = None

    async def send(self, request: Request, options: StreamOptions) -> None:
        """Send the request; raises what a response that is not a stream of events means."""
        model = self.model
        self._key = get_given_key(model, options) or await find_key(model, options)
        call = self._wire.request(model, request, options, self._key)
        self._url = call.url
        self.max_tokens = call.max_tokens if isinstance(call.max_tokens, int) else None
        response = await self._send(call.url, call)
        if response.status in _REDIRECT:
            response = await self._follow(response, call)
        if 200 <= response.status < 300:
            self._first = await self.read(fresh=True)
            if self._first.startswith(_USUAL):
                return
            encoding = response.headers.get("content-encoding", "")
            if is_still_encoded(encoding, self._first):
                raise content_encoding_error(model, call.url, f"content-encoding {encoding!r}")
            if _is_event_stream(response.headers.get("content-type", ""), self._first):
                return
            array = getattr(self._wire, "array", None)
            if array is not None and self._first.lstrip(_BLANK).startswith(b"["):
                # Gemini's answer where a proxy has dropped `alt=sse`.
                self.reader = array(max_event_bytes=self._bounds.max_event_bytes)
                return
        body = await self._read_error_body()
        if secrets := self._find_secrets():
            # Before anybody cuts it: half a key is no longer found.
            body = redact(body.decode("utf-8", "replace"), *secrets).encode()
        error = self._wire.error(model, response.status, _lower_names(response), body)
        raise add_url_advice(error, model, self._wire.name, body)

    def read(self, *, fresh: bool, decoder: Decoder | None = None) -> Awaitable[bytes]:
        """The next bytes, b"" at the end; `fresh` says that there was content in the last ones.

        Once the decoder has the whole answer, nobody waits long for more.
        """
        return self._read(fresh=fresh) if decoder is None or not decoder.complete else self._read_trailing(fresh=fresh)

    async def _read_trailing(self, *, fresh: bool) -> bytes:
        try:
            async with asyncio.timeout(_REST_WAIT):
                return await self._read(fresh=fresh)
        except (StalledError, TimeoutError):
            return b""

    async def _read(self, *, fresh: bool) -> bytes:
        if self._first:
            chunk, self._first = self._first, b""
            return chunk
        response = self._response
        assert response is not None
        watch = self._watch
        if fresh:
            watch.heard()
        try:
            chunk = response.read_nowait()
            if not chunk and not response.is_complete:
                watch.begin(response, first=not self._received)
                chunk = await response.read()
        except Exception as error:  # noqa: BLE001  # whatever the client raises here means that the answer broke off
            if watch.fired is None:
                raise broken_stream_error(self.model, error, self._received) from None
            chunk = b""
        finally:
            watch.waiting = False
        if watch.fired is not None:
            raise stalled_error(self.model, *watch.fired)
        self._received += len(chunk)
        if self._received > self._bounds.max_response_bytes:
            raise ProtocolError(
                f"The answer of {self.model.provider!r} is longer than {self._bounds.max_response_bytes:,} bytes "
                "(max_response_bytes in the model's settings)."
            )
        return chunk

    @property
    def is_complete(self) -> bool:
        """Whether all of the response has come."""
        return self._response is not None and self._response.is_complete

    def release_if_complete(self) -> bool:
        """Give the connection back if the response is over; whether it is."""
        response = self._response
        assert response is not None
        if not response.is_complete:
            return False
        response.release()
        self._response = None
        return True

    async def wait_and_release(self) -> None:
        """Give the connection back if the response is over in a moment."""
        response = self._response
        assert response is not None
        ended = self._loop.create_future()
        response.on_complete(lambda: None if ended.done() else ended.set_result(None))
        timer = self._loop.call_later(_END_WAIT, lambda: None if ended.done() else ended.set_result(None))
        try:
            await ended
        finally:
            timer.cancel()
        self.release_if_complete()

    def complete_error(self, error: ProviderError) -> None:
        """Put into an error what the response says beside its body, and take the key out of it."""
        headers = {} if self._response is None else _lower_names(self._response)
        tried = redact_url(self._url) if self._url else None
        complete_error(error, provider=self.model.provider, headers=headers, keys=self._find_secrets(), place=tried)

    def _find_secrets(self) -> list[str]:
        """What was sent and nobody may see again."""
        return [*([self._key] if self._key else ()), *find_secret_headers(self.model)]

    def close(self) -> None:
        """Close the connection unless it was given back."""
        self._watch.close()
        if self._response is not None:
            self._response.close()

    async def _follow(self, response: Response, call: HttpRequest) -> Response:
        url = call.url
        for _ in range(_REDIRECTS):
            location = response.headers.get("location")
            if response.status not in _REDIRECT or not location:
                return response
            target = _resolve_redirect(url, location)
            if target is None or response.status not in (307, 308) or not is_same_origin(url, target):
                raise redirect_error(self.model, url, response.status, target or "")
            response.close()
            url = target
            response = await self._send(url, call)
        if response.status in _REDIRECT:
            raise redirect_error(self.model, call.url, response.status, url)
        return response

    async def _send(self, url: str, call: HttpRequest) -> Response:
        proxy = self.model.settings.get("proxy") or find_proxy(url)
        if proxy is not None and not proxy.startswith(("http://", "https://")):
            raise unusable_proxy_error(self.model, proxy)
        if "@" in url and has_credentials(url):
            raise credentials_in_url_error(self.model, url)
        pool = find_pool() or await open_pool()
        timeout = _make_timeout(self._bounds.connect_timeout)
        watch = self._watch
        watch.head()
        try:
            # No variable here holds the headers: a traceback that shows the variables would show the key.
            self._response = response = await pool.post(
                url, _merge_headers(call.headers, self.model.headers), call.body, proxy=proxy, timeout=timeout
            )
        except asyncio.CancelledError:
            if watch.headed() and watch.fired is not None:
                raise stalled_error(self.model, *watch.fired) from None
            raise
        except Exception as error:
            if not _is_network_error(error):
                raise
            # Without its cause: the client's exceptions hold the headers, and so the key.
            raise network_error(self.model, url, error) from None
        watch.headed()
        return response

    async def _read_error_body(self) -> bytes:
        """The body of a response that is not a stream, as much of it as an error needs, even if it breaks off."""
        parts = [self._first]
        size = len(self._first)
        self._first = b""
        try:
            while size < _ERROR_BODY and (chunk := await self.read(fresh=False)):
                parts.append(chunk)
                size += len(chunk)
        except ProviderError:
            pass
        return b"".join(parts)[:_ERROR_BODY]


@lru_cache(maxsize=16)
def _make_timeout(connect: float | None) -> ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=None, connect=connect)


def _merge_headers(given: Mapping[str, str], own: Mapping[str, str]) -> Mapping[str, str]:
    """What a wire sends, and what the model's settings put over it and over what every request has."""
    return {name.lower(): value for part in (given, own) for name, value in part.items()}


def _is_network_error(error: Exception) -> bool:
    """Whether this is what the client raises when the network or the address is at fault."""
    from aiohttp import ClientError

    return isinstance(error, ClientError | OSError | ValueError)


def _lower_names(response: Response) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _resolve_redirect(url: str, location: str) -> str | None:
    """Where a redirect leads; `None` where it is no address."""
    try:
        target = urljoin(url, location)
        is_same_origin(url, target)
    except ValueError:
        return None
    return target


def _is_event_stream(content_type: str, first: bytes) -> bool:
    """Whether a body is a stream of events; servers mislabel both errors and streams."""
    head = first.lstrip(_BLANK)[:8]
    kind = content_type.partition(";")[0].strip().lower()
    if kind in ("text/event-stream", ""):
        return not head.startswith(_NOT_EVENTS)
    return bool(head) and any(head.startswith(field) or field.startswith(head) for field in _EVENTS)


__all__ = ["aclose_http", "http_stream"]


class EventReader(Protocol):
    """Turns the bytes of a response into the names and data of its events, as `SseDecoder` does."""

    def feed(self, chunk: bytes, /) -> Sequence[Event]: ...
    def finish(self) -> Sequence[Event]: ...


def http_stream(wire: Wire) -> Batched:
    """The `StreamFn` that speaks this protocol over HTTP; it raises `ProviderError`s and never asks twice.

    The bounds of time and size are in `Model.settings`, see `provider.bounds`.
    """

    def stream(model: Model, request: Request, options: StreamOptions, /) -> Batches:
        return _stream_batches(wire, model, request, options)

    return Batched(stream)


async def _stream_batches(wire: Wire, model: Model, request: Request, options: StreamOptions) -> Batches:
    exchange = Exchange(wire, model)
    started = done = fresh = False
    # What was read and is not passed on yet.
    told: list[StreamEvent] = []
    try:
        await exchange.send(request, options)
        decoder = wire.decoder(exchange.model, request)
        sse = exchange.reader
        while not done and (chunk := await exchange.read(fresh=fresh, decoder=decoder)):
            feed_all(decoder, sse.feed(chunk), told)
            done = decoder.done
            fresh = bool(told)
            # What comes with the end of the response is passed on together with it.
            if fresh and not (done and exchange.is_complete):
                batch, told = told, []
                yield batch if started else _prepend_start(batch)
                started = True
        if not done:
            told += _decode_leftover(sse, decoder, exchange.model)
        final = Done(
            _correct_stop_reason(
                decoder.finish(), options.max_tokens if exchange.max_tokens is None else exchange.max_tokens
            )
        )
        if not exchange.release_if_complete():
            await exchange.wait_and_release()
        batch, told = [*told, final], []
        yield batch if started else _prepend_start(batch)
    except Exception as error:
        if isinstance(error, ProviderError):
            exchange.complete_error(error)
        if told:
            yield told if started else _prepend_start(told)
        raise
    finally:
        exchange.close()


def _correct_stop_reason(message: AssistantMessage, max_tokens: int | None) -> AssistantMessage:
    """The answer as cut, where it used all the tokens it was allowed and the server calls that a stop."""
    used = message.usage.output
    if max_tokens is None or used is None or used < max_tokens or message.stop_reason != "stop":
        return message
    return msgspec.structs.replace(message, stop_reason="length")


def _prepend_start(events: list[StreamEvent]) -> list[StreamEvent]:
    """The first events of an answer, after its `start` if the protocol has no such thing."""
    return events if type(events[0]) is StreamStart else [StreamStart(), *events]


def _decode_leftover(sse: EventReader, decoder: Decoder, model: Model) -> Sequence[StreamEvent]:
    """What a last event without its blank line means, if it is whole; the standard would have it dropped."""
    events: list[StreamEvent] = []
    for name, data in sse.finish():
        try:
            events.extend(decoder.feed(name, data))
        except ProtocolError:
            raise IncompleteStreamError(
                f"The stream of {model.provider!r} ended in the middle of an event.", provider=model.provider
            ) from None
    return events
