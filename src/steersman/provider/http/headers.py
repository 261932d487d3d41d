"""What the headers of a response say beside its body, whoever sent it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from steersman.provider.wires.retry_after import parse_retry_after
from steersman.types.errors import ProviderError
from steersman.types.secrets import redact

_REQUEST_IDS = ("request-id", "x-request-id", "x-goog-request-id", "x-amzn-requestid", "apim-request-id", "cf-ray",
                "x-cloud-trace-context")  # fmt: skip
# Nothing is there, or nothing that takes a POST.
_NOT_THERE = frozenset((404, 405))
_ELSEWHERE = frozenset(("incomplete", "protocol"))


def find_request_id(headers: Mapping[str, str]) -> str | None:
    """The name the server gave to the request, for its operator to find it by."""
    given = _lower_names(headers)
    return next((given[name] for name in _REQUEST_IDS if given.get(name)), None)


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """The server's own word on whether to ask again, or `None`."""
    return {"true": True, "false": False}.get(_lower_names(headers).get("x-should-retry", "").strip().lower())


def may_be_wrong_server(error: ProviderError) -> bool:
    """Whether what answered may be something else than what was asked; a page in its body gives that away."""
    info = error.info
    return info.kind in _ELSEWHERE or info.status in _NOT_THERE or (info.body or "").lstrip().startswith("<")


def add_sentences(error: ProviderError, *sentences: str) -> None:
    """Add to what an error says."""
    text = error.info.message
    for sentence in filter(None, sentences):
        text = f"{text} {sentence}" if text.endswith((".", "!", "?")) else f"{text}. {sentence}"
    error.info = msgspec.structs.replace(error.info, message=text)
    error.args = (text,)


def complete_error(
    error: ProviderError,
    *,
    provider: str,
    headers: Mapping[str, str] | None = None,
    status: int | None = None,
    keys: Iterable[str] = (),
    place: str | None = None,
    clock: Callable[[], float] = time.time,
) -> ProviderError:
    """The same error with what it left unsaid taken from the response, and the keys, should they be quoted, hidden.

    `place` is what was asked, and is told where what answered may be something else.
    """
    if place is not None and place not in error.info.message and may_be_wrong_server(error):
        add_sentences(error, f"Tried: POST {place}{'.' if 'base_url' in error.info.message else ', as base_url says.'}")
    info = error.info
    headers = headers or {}
    wait = info.retry_after
    if wait is None:
        wait = parse_retry_after(headers, clock=clock, limited=info.kind == "rate_limit")
    message, body, named = (
        _name_provider(info.message, provider),
        info.body,
        info.request_id or find_request_id(headers),
    )
    message = redact(message, *keys)
    body = None if body is None else redact(body, *keys)
    named = None if named is None else redact(named, *keys)
    info = msgspec.structs.replace(
        info,
        message=message,
        body=body,
        provider=info.provider or provider,
        status=status if info.status is None else info.status,
        request_id=named,
        retry_after=wait,
        retryable=should_retry(headers) if info.retryable is None else info.retryable,
    )
    if info.message != error.info.message:
        error.args = (info.message,)
    error.info = info
    return error


def _name_provider(message: str, provider: str) -> str:
    """An error says whose it is."""
    return message if provider.lower() in message.lower() else f"{provider}: {message}"


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
