"""Signature Version 4 of AWS: signs a POST request with an access key. Pure: the time is given.

Of the headers only `host` and those made here are signed, so that others may be added on the way.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from urllib.parse import parse_qsl, quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """An access key; a temporary one has a session token."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown."""
        return tuple(filter(None, (self.secret_key, self.session_token, self.access_key)))


def sign_request(
    credentials: AwsCredentials, url: str, body: bytes, *, region: str, service: str, now: datetime
) -> dict[str, str]:
    """The headers that sign a POST request; `now` is a time in UTC."""
    parts = urlsplit(url)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    digest = sha256(body).hexdigest()
    headers = {"x-amz-content-sha256": digest, "x-amz-date": stamp}
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    signed = {"host": _find_host(url), **headers}
    names = ";".join(sorted(signed))
    # The path is encoded once more than it is sent.
    canonical = "\n".join(
        (
            "POST",
            quote(parts.path or "/", safe="/-_.~"),
            _encode_query(parts.query),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            digest,
        )
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = "\n".join((_ALGORITHM, stamp, scope, sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _find_host(url: str) -> str:
    """The `Host` header as it is sent: without the usual port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if parts.port in (None, _PORTS.get(parts.scheme)) else f"{host}:{parts.port}"


def _encode_query(query: str) -> str:
    given = parse_qsl(query, keep_blank_values=True)
    # Sorted by name, then by value; not as joined texts, in which a name may be the beginning of another.
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in given)
    return "&".join(f"{name}={value}" for name, value in pairs)
