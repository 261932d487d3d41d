"""The errors between us and a server; each names the provider, what was tried and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from os import strerror
from urllib.parse import urljoin, urlsplit

from steersman.provider.http.headers import find_request_id, should_retry
from steersman.provider.models.presets import CREDENTIALS_ADVICE, PRESETS
from steersman.types.errors import (
    EXCEPTIONS,
    ErrorKind,
    IncompleteStreamError,
    InvalidRequestError,
    NetworkError,
    ProtocolError,
    ProviderError,
    StalledError,
)
from steersman.types.model import Model
from steersman.types.secrets import redact_key_patterns

MAX_BODY = 2_000
"""The most characters of a response that an error keeps."""

_SHOWN = 500
_UNPACKED = frozenset(("identity", "gzip", "deflate"))


def redact_url(url: str) -> str:
    """A URL as it may be shown: without user name, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no URL)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def build_network_error(model: Model, url: str, error: Exception) -> ProviderError:
    """The error for an exception of aiohttp before the first byte of a response."""
    import aiohttp
    from aiohttp.http_exceptions import ContentEncodingError

    at = f"{model.provider!r} at {redact_url(url)}"
    why = _describe(error)
    name = model.provider
    match error:
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            text = f"{redact_url(url)!r} is not a URL for {name!r}; base_url is like 'https://host/v1'."
            return InvalidRequestError(text, provider=name)
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            text = (
                f"No secure connection to {at}: {why}. Check base_url; for a certificate authority of your own set "
                "SSL_CERT_FILE."
            )
            return NetworkError(text, provider=name, retryable=False)
        case aiohttp.ClientHttpProxyError():
            text = f"The proxy on the way to {at} answered {error.status}; check HTTPS_PROXY, HTTP_PROXY and NO_PROXY."
            return NetworkError(text, provider=name, status=error.status, retryable=error.status >= 500)
        case aiohttp.ClientProxyConnectionError():
            text = f"Could not reach the proxy on the way to {at}: {why}. Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY."
            return NetworkError(text, provider=name)
        case aiohttp.ClientConnectorError():
            why = _describe_os_error(error.os_error)
            text = f"Could not reach {at}: {why}. Check that the server runs, and check base_url."
            return NetworkError(text, provider=name)
        case aiohttp.ConnectionTimeoutError():
            text = f"Could not reach {at}: {why}. Check that the server runs, and check base_url."
            return NetworkError(text, provider=name)
        case aiohttp.ClientResponseError() if _is_caused_by(error, ContentEncodingError):
            return build_content_encoding_error(model, url, error.message)
        case aiohttp.ClientResponseError():
            text = f"The server for {at} does not answer in HTTP: {why}. Check base_url."
            return ProtocolError(text, provider=name)
        case ValueError():
            text = f"The request to {at} could not be sent: {type(error).__name__}. Check the headers and base_url."
            return InvalidRequestError(text, provider=name)
        case _:
            return NetworkError(f"The connection to {at} broke before a response came: {why}.", provider=name)


def build_stream_error(model: Model, error: Exception, received: int) -> ProviderError:
    """The error for an exception of aiohttp inside a response."""
    import aiohttp
    from aiohttp.http_exceptions import ContentEncodingError

    if isinstance(error, aiohttp.ClientPayloadError) and _is_caused_by(error, ContentEncodingError):
        text = f"The answer of {model.provider!r} has a broken content-encoding: {_describe(error)}."
        return ProtocolError(text, provider=model.provider)
    text = f"The connection to {model.provider!r} broke after {received:,} bytes of the answer: {_describe(error)}."
    return IncompleteStreamError(text, provider=model.provider)


def build_stalled_error(model: Model, limit: str, seconds: float | None) -> ProviderError:
    """The error for a server that was silent for longer than a limit allows."""
    what = {
        "first_byte_timeout": "did not begin to answer within",
        "idle_timeout": "sent nothing for",
        "content_idle_timeout": "sent nothing but pings for",
        "total_timeout": "did not finish its answer within",
    }[limit]
    text = f"{model.provider!r} {what} {seconds or 0:g} s ({limit} in the model's settings)."
    return StalledError(text, provider=model.provider)


def suggest_fix(provider: str, kind: ErrorKind, body: str) -> str:
    """What to do about an error in a provider's own words; an HTML page does not come from the provider."""
    if is_html_page(body):
        return ""
    if kind == "authentication":
        known = PRESETS.get(provider)
        names = "" if known is None else " or ".join(known.keys)
        signed = f", or the {known.sign_in}" if known is not None and known.sign_in else ""
        return (
            f"Check the key: api_key=..., or the variable {names}{signed}." if names else "Check the key: api_key=..."
        )
    return "The account has no budget left for this." if kind == "quota" else ""


def build_classified_error(
    model: Model,
    kind: ErrorKind,
    text: str,
    *,
    status: int | None,
    headers: Mapping[str, str],
    retry_after: float | None,
    body: str,
) -> ProviderError:
    """The error of a kind, with what the response says: its request id, whether and when to retry, and its body."""
    return EXCEPTIONS[kind](
        text,
        provider=model.provider,
        status=status,
        request_id=find_request_id(headers),
        retry_after=retry_after,
        retryable=should_retry(headers),
        body=redact_key_patterns(body, MAX_BODY) or None,
    )


def build_malformed_error(model: Model, data: str, error: Exception) -> ProtocolError:
    """The error for an event that is not JSON or does not match its type."""
    shown = redact_key_patterns(data, MAX_BODY)
    return ProtocolError(
        f"{model.name} sent an event that does not match its protocol ({error or type(error).__name__}): "
        f"{shown[:200]!r}.",
        provider=model.provider,
        body=shown,
    )


def is_html_page(body: str) -> bool:
    """Whether a body is an HTML page, which no API sends."""
    return body.lstrip().startswith("<")


def build_not_a_stream_error(model: Model, status: int, headers: Mapping[str, str], text: str) -> ProviderError:
    """The error for a response that is neither a stream of events nor an error."""
    shown = redact_key_patterns(text, _SHOWN)
    kind = headers.get("content-type", "no content type")
    return ProtocolError(
        f"{model.name} answered {status} with {kind!r} instead of a stream of events: {shown[:120]!r}. "
        "Check base_url, and any proxy on the way.",
        provider=model.provider,
        status=status,
        request_id=find_request_id(headers),
        body=shown,
    )


def build_content_encoding_error(model: Model, url: str, how: str) -> ProviderError:
    """The error for a content-encoding that cannot be decoded here."""
    text = (
        f"The answer of {model.provider!r} at {redact_url(url)} has a content-encoding that was not "
        f"requested and cannot be decoded here ({how}). Turn it off at the server, or at the proxy on the way."
    )
    return ProtocolError(text, provider=model.provider)


def is_still_encoded(encoding: str, first: bytes) -> bool:
    """Whether bytes still have a content-encoding that aiohttp does not know and passes on as it came."""
    return bool(encoding) and encoding.lower() not in _UNPACKED and "\ufffd" in first[:64].decode("utf-8", "replace")


def has_credentials(url: str) -> bool:
    """Whether a URL holds a user name or a password."""
    try:
        return "@" in urlsplit(url).netloc
    except ValueError:
        return False  # not a URL at all, which the request will say


def build_credentials_in_url_error(model: Model, url: str) -> ProviderError:
    """The error for a URL with a user name or a password in it, which clients, logs and proxies show."""
    text = (
        f"The base_url of {model.provider!r}, {redact_url(url)}, was given with a user name or a password. "
        f"{CREDENTIALS_ADVICE}"
    )
    return InvalidRequestError(text, provider=model.provider)


def build_redirect_error(model: Model, url: str, status: int, location: str) -> ProviderError:
    """The error for a redirect that is not followed."""
    target = redact_url(urljoin(url, location))
    text = (
        f"{model.provider!r} at {redact_url(url)} redirects ({status}) to {target!r}, where the key is not sent. "
        "If that is the right URL, set it as base_url."
    )
    return InvalidRequestError(text, provider=model.provider, status=status)


def build_unusable_proxy_error(model: Model, proxy: str) -> ProviderError:
    """The error for a proxy that aiohttp cannot use, such as SOCKS."""
    text = (
        f"The proxy {redact_url(proxy)!r} on the way to {model.provider!r} is not an HTTP proxy; set HTTPS_PROXY to "
        "one that is, or leave this host out with NO_PROXY."
    )
    return NetworkError(text, provider=model.provider, retryable=False)


def resolve_redirect(url: str, location: str) -> str | None:
    """The absolute URL of a redirect; `None` where it is not a URL."""
    try:
        target = urljoin(url, location)
        is_same_origin(url, target)
    except ValueError:
        return None
    return target


def is_same_origin(url: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    return _get_origin(url) == _get_origin(other)


def _get_origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _is_caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__
    return error is not None


def _describe_os_error(error: OSError) -> str:
    """The message of the operating system; for some errors Python has its own, around the number."""
    if error.errno is not None and error.errno > 0:
        return strerror(error.errno)
    return (error.strerror or str(error)).strip().rstrip(".")


def _describe(error: Exception) -> str:
    text = " ".join(str(getattr(error, "message", "") or error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
