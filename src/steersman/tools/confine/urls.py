"""Parses http(s) URLs strictly: a URL that two parsers could read differently is refused, since that enables SSRF."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, urljoin

from steersman.tools.text import format_value
from steersman.types.errors import ToolError

_MAX_URL_LENGTH = 8_000
_MAX_HOST_LENGTH = 253
_PORTS = {"http": 80, "https": 443}
# White space, control characters, and the backslash, which some parsers read as a slash and others as part of a name.
_UNFIT = re.compile(r"[\x00-\x20\x7f-\xa0\\\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]")
_PARTS = re.compile(r"(https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.ASCII | re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# Resolvers read a name that ends in a number as an address, in one of half a dozen notations.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_DECIMAL = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")
_DOTS = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)
_IN_PATH = "/%:@!$&'()*+,;=-._~"
_IN_QUERY = _IN_PATH + "?"


class InvalidUrl(ToolError):
    """A URL that is malformed, ambiguous, or neither http nor https."""


@dataclass(frozen=True, slots=True)
class ParsedUrl:
    """A parsed URL: `host` in lower case and ASCII, an IPv6 address without brackets; `url` without a fragment."""

    url: str
    scheme: str
    host: str
    port: int

    def join(self, location: str) -> ParsedUrl:
        """Resolve a redirect or a link relative to this URL."""
        # Before joining, because `urljoin` removes some of the characters that are refused.
        _check_characters(location)
        try:
            return parse_url(urljoin(self.url, location))
        except ValueError as error:
            raise InvalidUrl(f"{format_value(location, 200)} is not a URL ({error}).") from error


def parse_url(url: str) -> ParsedUrl:
    """Parse a URL; raise `InvalidUrl` for one that is not http or https, or that can be read in two ways."""
    url = url.strip(" \t\r\n")
    if len(url) > _MAX_URL_LENGTH:
        raise InvalidUrl(f"The URL has {len(url):,} characters; at most {_MAX_URL_LENGTH:,} are allowed.")
    _check_characters(url)
    if (parts := _PARTS.fullmatch(url)) is None:
        raise InvalidUrl(f"Only http:// and https:// URLs can be fetched, got {format_value(url, 200)}.")
    scheme, authority, path, query = parts[1].lower(), parts[2], parts[3] or "/", parts[4]
    host, port = _parse_authority(authority, url)
    if any(_DOTS.fullmatch(segment) for segment in path.split("/")):
        raise InvalidUrl(f"The path of {format_value(url, 200)} has a '.' or '..' in it; write the path it leads to.")

    shown = f"[{host}]" if ":" in host else host
    if port not in (None, _PORTS[scheme]):
        shown = f"{shown}:{port}"
    target = quote(path, safe=_IN_PATH) + ("" if query is None else f"?{quote(query, safe=_IN_QUERY)}")
    return ParsedUrl(f"{scheme}://{shown}{target}", scheme, host, _PORTS[scheme] if port is None else port)


def normalize_host(text: str) -> str:
    """Normalize a host name to lower case and ASCII without a trailing dot.

    Raises `InvalidUrl` for an invalid name, and for an IPv4 address in an unusual notation.
    """
    if not text.isascii():
        text = _encode_idna(text)
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _MAX_HOST_LENGTH or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidUrl(f"{format_value(text)} is not the name of a host.")
    if _NUMBER.fullmatch(labels[-1]):
        return _check_ipv4(name)
    return name


def _check_characters(url: str) -> None:
    if (found := _UNFIT.search(url)) is not None:
        raise InvalidUrl(
            f"The URL {format_value(url, 200)} has {found[0]!r} in it; write it percent-encoded, or leave it out."
        )


def _parse_authority(authority: str, url: str) -> tuple[str, int | None]:
    if "@" in authority:
        raise InvalidUrl(
            "A URL with a user name or a password in front of its host is not fetched; leave that part out."
        )
    if (parts := _AUTHORITY.fullmatch(authority)) is None or not (parts[1] or parts[2]):
        raise InvalidUrl(f"The URL {format_value(url, 200)} has no host that can be read.")
    host = normalize_host(parts[2]) if parts[1] is None else _parse_ipv6(parts[1])
    port = None if parts[3] is None else int(parts[3])
    if port is not None and not 0 < port < 65_536:
        raise InvalidUrl(f"A port is a number from 1 to 65535, got {port}.")
    return host, port


def _encode_idna(text: str) -> str:
    # Imported late: rarely needed, and it loads large tables. A dependency of yarl, which aiohttp needs.
    import idna

    if len(text) > _MAX_HOST_LENGTH:
        raise InvalidUrl(f"{format_value(text)} is not the name of a host.")
    try:
        return idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
    except UnicodeError as error:
        raise InvalidUrl(f"{format_value(text)} is not the name of a host ({error}).") from error


def _check_ipv4(text: str) -> str:
    try:
        if _DECIMAL.fullmatch(text):
            return str(IPv4Address(text))
    except ValueError:
        pass
    raise InvalidUrl(f"{format_value(text)} is not an IPv4 address as four decimal numbers, such as 93.184.215.14.")


def _parse_ipv6(text: str) -> str:
    try:
        if "%" not in text:
            return IPv6Address(text).compressed
    except ValueError:
        pass
    raise InvalidUrl(f"{format_value(text)} is not an IPv6 address (one with a zone, '%...', is never public).")
