"""What the headers of a response say beside its body: request id, retry advice; and adding that to an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from steersman.provider.wires.retry_after import parse_retry_after
from steersman.types.errors import ProviderError
from steersman.types.secrets import redact

_REQUEST_IDS = ("request-id", "x-request-id", "x-goog-request-id", "x-amzn-requestid", "apim-request-id", "cf-ray",
                "x-cloud-trace-context")  # fmt: skip
# There is nothing at this URL, or nothing that takes a POST.
_NOT_THERE = frozenset((404, 405))
_ELSEWHERE = frozenset(("incomplete", "protocol"))


def find_request_id(headers: Mapping[str, str]) -> str | None:
    """The id that the server gave the request; its operator can look it up."""
    given = _lower_names(headers)
    return next((given[name] for name in _REQUEST_IDS if given.get(name)), None)


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """Whether the server says that a retry helps (`x-should-retry`), or `None`."""
    return {"true": True, "false": False}.get(_lower_names(headers).get("x-should-retry", "").strip().lower())


def may_be_wrong_server(error: ProviderError) -> bool:
    """Whether another server than the model's may have answered; an HTML page in the body is a sign of that."""
    info = error.info
    return info.kind in _ELSEWHERE or info.status in _NOT_THERE or (info.body or "").lstrip().startswith("<")


def add_sentences(error: ProviderError, *sentences: str) -> None:
    """Add sentences to the message of an error."""
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
    url: str | None = None,
    clock: Callable[[], float] = time.time,
) -> ProviderError:
    """Fill the gaps of an error from the response, and redact the keys that it may quote.

    `url` is where the request went; it is named if another server may have answered.
    """
    if url is not None and url not in error.info.message and may_be_wrong_server(error):
        add_sentences(error, f"Tried: POST {url}{'.' if 'base_url' in error.info.message else ', as base_url says.'}")
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
    """The message with the name of the provider."""
    return message if provider.lower() in message.lower() else f"{provider}: {message}"


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
