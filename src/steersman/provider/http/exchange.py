"""One HTTP request and its response: sent, redirected, checked, and read with time limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec
from aiohttp import ClientError, ClientTimeout

from steersman.provider.http.errors import (
    build_content_encoding_error,
    build_credentials_in_url_error,
    build_network_error,
    build_redirect_error,
    build_stalled_error,
    build_stream_error,
    build_unusable_proxy_error,
    has_credentials,
    is_same_origin,
    is_still_encoded,
    redact_url,
    resolve_redirect,
)
from steersman.provider.http.headers import complete_error
from steersman.provider.http.pool import find_pool, find_proxy, open_pool
from steersman.provider.http.response import Response, TakeBytes
from steersman.provider.http.sse import MAX_PIECE, EventReader, SseDecoder, is_event_stream
from steersman.provider.http.watchdog import ResponseLimits, ResponseWatchdog, parse_limits
from steersman.provider.models.presets import PRESETS, find_base_url
from steersman.provider.models.registry import find_key, find_secret_headers, get_given_key
from steersman.provider.wires.dialects import add_url_advice
from steersman.provider.wires.protocol import Wire, memoize_by_identity
from steersman.types.errors import ProtocolError, ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.secrets import redact

_MAX_ERROR_BODY = 1024 * 1024
_MAX_REDIRECTS = 2
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
# The end of a body comes right behind its last event, if it comes at all: worth this wait to keep the connection.
_END_SECONDS = 0.02
# Usage and the like may follow a complete answer, after a moment, but not after a timeout.
_TRAILING_SECONDS = 2.0
_USUAL_START = (b"data: {", b"event: ")


def _resolve_model(model: Model) -> tuple[Model, ResponseLimits]:
    """The model with its provider's base URL and settings where it has none of its own, and its limits."""
    known = _resolve_cached(model)
    if model.base_url is None and known[0].base_url != find_base_url(model.provider):
        return _resolve(model)  # its base URL comes from the environment, which has changed
    return known


def _resolve(model: Model) -> tuple[Model, ResponseLimits]:
    preset = PRESETS.get(model.provider)
    settings: Mapping[str, Any] = {} if preset is None else preset.settings
    limits = parse_limits(model.settings, settings)
    url = find_base_url(model.provider, model.base_url)
    if settings or url != model.base_url:
        model = replace(model, base_url=url, settings={**settings, **model.settings})
    return model, limits


_resolve_cached = memoize_by_identity(_resolve)


class Exchange(msgspec.Struct, eq=False):
    """One request and its response."""

    _wire: Wire
    model: Model
    _limits: ResponseLimits
    reader: EventReader
    # Whether the last bytes held content, not only comments and pings.
    has_content: bool = True
    # How many tokens the request allows; a wire may send another number than the caller gave.
    max_tokens: int | None = None
    # Those of the pool, once the request is to be sent.
    _watchdog: ResponseWatchdog | None = None
    _watchdogs: list[ResponseWatchdog] = []
    _key: str | None = None
    _url: str = ""
    _response: Response | None = None
    # What was read and not passed on yet.
    _ahead: list[bytes] = []
    _received: int = 0
    # When the wait for more behind a complete answer is over, once it has begun.
    _trailing_until: float | None = None

    def __repr__(self) -> str:
        return f"Exchange({self.model.name!r})"  # without the key

    async def send(self, request: Request, options: StreamOptions) -> None:
        """Send the request as the wire writes it, wait for the head of its response, and follow redirects."""
        self._key = get_given_key(self.model, options) or await find_key(self.model, options)
        call = self._wire.request(self.model, request, options, self._key)
        self.max_tokens = call.max_tokens if isinstance(call.max_tokens, int) else None
        url: str | None = call.url
        self._url = call.url
        pool = find_pool() or await open_pool()
        self._watchdogs = pool.watchdogs
        watchdog = self._watchdog = pool.watchdogs.pop() if pool.watchdogs else ResponseWatchdog()
        watchdog.begin(self._limits)
        hops = 0
        while url is not None:
            proxy = self._find_proxy(url)
            watchdog.arm_for_first_byte()
            try:
                # No variable here holds the headers: a traceback that shows variables would show the key.
                self._response = await pool.post(
                    url,
                    call.headers,
                    self.model.headers,
                    call.body,
                    proxy=proxy,
                    timeout=_make_timeout(self._limits.connect_timeout),
                )
            except asyncio.CancelledError:
                if watchdog.disarm():
                    raise build_stalled_error(self.model, *watchdog.name_limit()) from None
                raise
            except (ClientError, OSError, ValueError) as error:
                # Without its cause: aiohttp's exceptions hold the headers, and so the key.
                raise build_network_error(self.model, url, error) from None
            finally:
                watchdog.disarm()
            url = self._find_redirect(self._response, url, hops) if self._response.status in _REDIRECTS else None
            hops += 1

    def _find_proxy(self, url: str) -> str | None:
        proxy = self.model.settings.get("proxy") or find_proxy(url)
        if proxy is not None and not proxy.startswith(("http://", "https://")):
            raise build_unusable_proxy_error(self.model, proxy)
        if "@" in url and has_credentials(url):
            raise build_credentials_in_url_error(self.model, url)
        return proxy

    def _find_redirect(self, response: Response, url: str, hops: int) -> str | None:
        """Where a redirect sends the request, or `None`; raises for a redirect that is not followed."""
        if hops == _MAX_REDIRECTS:
            raise build_redirect_error(self.model, self._url, response.status, url)
        location = response.headers.get("location")
        if not location:
            return None
        target = resolve_redirect(url, location)
        if target is None or response.status not in (307, 308) or not is_same_origin(url, target):
            raise build_redirect_error(self.model, url, response.status, target or "")
        response.close()
        return target

    async def require_event_stream(self) -> bytes:
        """Return the first bytes of the stream; raise what a response that is not a stream of events means."""
        response = self._response
        assert response is not None
        first = b""
        if 200 <= response.status < 300:
            first = await self.read()
            self.has_content = False
            if first.startswith(_USUAL_START):
                return first
            encoding = response.headers.get("content-encoding", "")
            if is_still_encoded(encoding, first):
                raise build_content_encoding_error(self.model, self._url, f"content-encoding {encoding!r}")
            kind = response.headers.get("content-type", "")
            # Some protocols have other framings: an array of Gemini, the binary frames of Bedrock.
            select = getattr(self._wire, "select_reader", None)
            reader = select and select(kind, first, max_event_bytes=self._limits.max_event_bytes)
            self.reader = reader or self.reader
            if reader is not None or is_event_stream(kind, first):
                return first
        body = await self._read_error_body(first)
        if secrets := self._find_secrets():
            # Before the body is truncated anywhere: a part of a key would not be found.
            body = redact(body.decode("utf-8", "replace"), *secrets).encode()
        error = self._wire.error(self.model, response.status, _lower_names(response), body)
        raise add_url_advice(error, self.model, self._wire.name, body)

    async def read(self, take: TakeBytes | None = None, *, is_trailing: bool = False) -> bytes:
        """The next bytes, b"" at the end. Behind a complete answer (`is_trailing`) the wait for more is short.

        With `take`, bytes that come while it waits may be given to that function, which calls `note_bytes`; after
        `wake` there may be none.
        """
        response, watchdog = self._response, self._watchdog
        assert response is not None
        assert watchdog is not None
        if self.has_content:
            watchdog.note_content()
        if self._ahead:
            await asyncio.sleep(0)
            return self._ahead.pop()
        try:
            chunk = response.read_nowait()
            if not chunk and not response.is_complete:
                self._begin_wait(watchdog, is_trailing=is_trailing)
                chunk = await response.read(take)
                watchdog.disarm()
        except asyncio.CancelledError:
            if watchdog.disarm():
                if is_trailing:
                    return b""
                raise build_stalled_error(self.model, *watchdog.name_limit()) from None
            raise
        except Exception as error:  # noqa: BLE001  # whatever aiohttp raises here means that the response broke off
            watchdog.disarm()
            raise build_stream_error(self.model, error, self._received) from None
        self._count(len(chunk))
        if len(chunk) > MAX_PIECE:
            # The other pieces are for later turns of the event loop.
            self._ahead = [chunk[at : at + MAX_PIECE] for at in range(0, len(chunk), MAX_PIECE)][::-1]
            chunk = self._ahead.pop()
        return chunk

    def _begin_wait(self, watchdog: ResponseWatchdog, *, is_trailing: bool) -> None:
        """Begin to wait for bytes; behind a complete answer, pings do not make the wait longer."""
        if not self._received:
            watchdog.arm_for_first_byte()
        elif not is_trailing:
            watchdog.arm_for_next_bytes()
        else:
            now = asyncio.get_running_loop().time()
            if self.has_content or self._trailing_until is None:
                self._trailing_until = now + _TRAILING_SECONDS
            watchdog.arm_for_next_bytes(self._trailing_until - now)

    def note_bytes(self, size: int, events: int) -> None:
        """Count bytes, and the events in them, that were taken while `read` waits: it waits for more from now on."""
        if self._watchdog is not None:
            self._watchdog.extend_for_next_bytes(events)
        self._count(size)

    def wake(self) -> None:
        """End the wait of `read`, because of what was taken."""
        if self._response is not None:
            self._response.wake()

    def _count(self, size: int) -> None:
        self._received += size
        if self._received > self._limits.max_response_bytes:
            raise ProtocolError(
                f"The answer of {self.model.provider!r} is longer than {self._limits.max_response_bytes:,} bytes "
                "(max_response_bytes in the model's settings)."
            )

    async def _read_error_body(self, first: bytes) -> bytes:
        """The body of a response that is not a stream, as much as an error needs, even if it breaks off."""
        parts = [first]
        size = len(first)
        try:
            while size < _MAX_ERROR_BODY and (chunk := await self.read()):
                parts.append(chunk)
                size += len(chunk)
        except ProviderError:
            pass
        return b"".join(parts)[:_MAX_ERROR_BODY]

    @property
    def is_complete(self) -> bool:
        """Whether the whole response has arrived."""
        return self._response is not None and self._response.is_complete

    @property
    def is_over(self) -> bool:
        """Whether the whole response has arrived, was read and was passed on."""
        return not self._ahead and self._response is not None and self._response.is_read

    def release_if_complete(self) -> bool:
        """Return the connection to the pool if the whole response has arrived; whether it has."""
        response = self._response
        assert response is not None
        if not response.is_complete:
            return False
        response.release()
        self._response = None
        return True

    async def wait_and_release(self) -> None:
        """Return the connection to the pool if the end of the response arrives within a moment."""
        response = self._response
        assert response is not None
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        response.on_complete(lambda: None if ended.done() else ended.set_result(None))
        timer = loop.call_later(_END_SECONDS, lambda: None if ended.done() else ended.set_result(None))
        try:
            await ended
        finally:
            timer.cancel()
        self.release_if_complete()

    def complete_error(self, error: ProviderError) -> None:
        """Add to an error what the response says beside its body, and redact the key."""
        headers = {} if self._response is None else _lower_names(self._response)
        url = redact_url(self._url) if self._url else None
        complete_error(error, provider=self.model.provider, headers=headers, keys=self._find_secrets(), url=url)

    def redact_stop(self, message: AssistantMessage) -> AssistantMessage:
        """The answer without the keys that the server may quote in why it stopped."""
        raw, words, secrets = message.raw_stop_reason, message.error_message, self._find_secrets()
        return msgspec.structs.replace(
            message,
            raw_stop_reason=None if raw is None else redact(raw, *secrets),
            error_message=None if words is None else redact(words, *secrets),
        )

    def _find_secrets(self) -> list[str]:
        """What was sent and must not be shown."""
        own: tuple[str, ...] = getattr(self._wire, "secrets", ())
        return [*([self._key] if self._key else ()), *own, *find_secret_headers(self.model)]

    def close(self) -> None:
        """Close the connection, unless it was released."""
        if self._watchdog is not None:
            self._watchdogs.append(self._watchdog)
            self._watchdog = None
        if self._response is not None:
            self._response.close()


def begin_exchange(wire: Wire, model: Model) -> Exchange:
    """An exchange with the server of a model."""
    model, limits = _resolve_model(model)
    return Exchange(wire, model, limits, SseDecoder(max_event_bytes=limits.max_event_bytes))


@lru_cache(maxsize=16)
def _make_timeout(connect: float | None) -> ClientTimeout:
    return ClientTimeout(total=None, connect=connect)


def _lower_names(response: Response) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}
