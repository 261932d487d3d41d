"""The SSRF guard of fetch: only public IP addresses can be reached, and those on the user's allow-list.

The address decides, never the name. Against DNS rebinding, a name is looked up once, all of its addresses must pass,
and the connection goes to one of exactly these.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from steersman.tools.confine.urls import InvalidUrl, ParsedUrl, normalize_host
from steersman.tools.text import format_value
from steersman.tools.threads import call_in_thread
from steersman.types.errors import ToolError, describe_exception

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Resolve: TypeAlias = Callable[[str, int], Awaitable[Iterable[str]]]
"""Looks up the IP addresses of a host; called once per request with the host and the port."""

# The metadata services of clouds, which give out secrets. Allowed only by their exact address, never by a network.
METADATA: frozenset[Address] = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",
            "168.63.129.16",
            "169.254.0.23",
            "169.254.42.42",
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "192.0.0.192",
            "fd00:42::42",
            "fd00:c1::a9fe:a9fe",
            "fd00:ec2::23",
            "fd00:ec2::254",
            "fd20:ce::254",
        ),
    )
)
# IANA's special-purpose addresses that are not public. Not `is_global`, which differs between versions of Python.
_SPECIAL: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "an unspecified"),
        ("10.0.0.0/8", "a private"),
        ("100.64.0.0/10", "a carrier's private"),
        ("127.0.0.0/8", "a loopback"),
        ("169.254.0.0/16", "a link-local"),
        ("172.16.0.0/12", "a private"),
        ("192.0.0.0/24", "a reserved"),
        ("192.0.2.0/24", "a documentation"),
        ("192.88.99.0/24", "a reserved"),
        ("192.168.0.0/16", "a private"),
        ("198.18.0.0/15", "a benchmarking"),
        ("198.51.100.0/24", "a documentation"),
        ("203.0.113.0/24", "a documentation"),
        ("224.0.0.0/4", "a multicast"),
        ("240.0.0.0/4", "a reserved"),
    )
)
# The public part of IPv6, except for the networks below.
_PUBLIC_V6 = IPv6Network("2000::/3")
_SPECIAL_V6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("::/128", "an unspecified"),
        ("::1/128", "a loopback"),
        ("2001:db8::/32", "a documentation"),
        ("3fff::/20", "a documentation"),
        # Teredo and other experiments, then 6to4: they may carry an IPv4 address inside, and serve no web pages.
        ("2001::/23", "a tunnel or reserved"),
        ("2002::/16", "a tunnel"),
        ("fc00::/7", "a private"),
        ("fe80::/10", "a link-local"),
        ("ff00::/8", "a multicast"),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_TUNNELS = (IPv6Network("2001::/32"), IPv6Network("2002::/16"))  # Teredo and 6to4
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)  # before the IPv4 address in the last 32 bits
# Ports from 1024 on of other services than the web: those that browsers refuse, then databases, queues and container
# engines, which take commands from any client.
_OTHER_SERVICES = frozenset(
    (
        *(1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697, 10080),
        *(1433, 1521, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 5432, 5672, 5900, 5984, 6379, 6443, 9092, 9200, 9300),
        *(10250, 10255, 11211, 27017),
    )
)
_MAX_ADDRESSES = 16
_LOOPBACK = ("127.0.0.1", "::1")


class ForbiddenAddress(ToolError):
    """A host, address or port that must not be fetched."""


@dataclass(frozen=True, slots=True)
class _AllowedNetwork:
    """An address or network on the allow-list, for one port or for all web ports."""

    network: Network
    port: int | None

    def covers(self, address: Address, port: int) -> bool:
        if address.version != self.network.version or address not in self.network:
            return False
        if any(address in tunnel for tunnel in _TUNNELS):
            return False
        if not METADATA.isdisjoint((address, _find_inner(address))) and self.network.num_addresses > 1:
            return False
        return is_web_port(port) if self.port is None else port == self.port


class AddressRules:
    """The hosts and addresses that a fetch may reach.

    `allow` is the allow-list of addresses or networks that are not public, such as `"127.0.0.1:8000"`, `"[::1]:8000"`
    or `"10.0.0.0/8"`. `hosts` limits fetches to these names; `deny_hosts` always wins. A pattern is a name, `*.name`
    for everything below it, or `*` for every name.
    """

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        hosts: Iterable[str] | None = None,
        deny_hosts: Iterable[str] = (),
        resolve: Resolve | None = None,
    ) -> None:
        self.allowed_networks = tuple(map(_parse_allowed_network, _check_list("allow", allow)))
        self.hosts = None if hosts is None else frozenset(map(_parse_host_pattern, _check_list("hosts", hosts)))
        self.deny_hosts = frozenset(map(_parse_host_pattern, _check_list("deny_hosts", deny_hosts)))
        self.resolve = resolve or look_up_host

    def check(self, place: ParsedUrl) -> None:
        """Raise `ForbiddenAddress` for what can be refused before a name is looked up."""
        if matches_host(place.host, self.deny_hosts):
            raise ForbiddenAddress(f"The host {place.host!r} is on the list of hosts that may not be fetched.")
        if self.hosts is not None and not matches_host(place.host, self.hosts):
            known = ", ".join(sorted(self.hosts)) or "none"
            raise ForbiddenAddress(f"The host {place.host!r} is not among those that may be fetched: {known}.")
        if (literal := _parse_literal(place.host)) is not None:
            self._check_addresses([literal], place)
        elif not is_web_port(place.port) and not any(opening.port == place.port for opening in self.allowed_networks):
            raise ForbiddenAddress(_describe_port(place))

    async def find_addresses(self, place: ParsedUrl) -> tuple[str, ...]:
        """Look up the addresses to connect to, once; raise `ForbiddenAddress` if any of them must not be reached."""
        if (literal := _parse_literal(place.host)) is not None:
            found: Sequence[str] = [str(literal)]
        elif place.host == "localhost" or place.host.endswith(".localhost"):
            # This name always means the loopback interface; DNS must not give it another address.
            found = _LOOPBACK
        else:
            found = await self._look_up(place)
        addresses = [_parse_address(text, place) for text in found]
        self._check_addresses(addresses, place)
        return tuple(map(str, addresses[:_MAX_ADDRESSES]))

    async def _look_up(self, place: ParsedUrl) -> Sequence[str]:
        try:
            found = list(dict.fromkeys(map(str, await self.resolve(place.host, place.port))))
        except OSError as error:
            raise ToolError(f"The host {place.host!r} could not be found ({describe_exception(error)}).") from error
        if not found:
            raise ToolError(f"The host {place.host!r} could not be found: it has no address.")
        return found

    def _check_addresses(self, addresses: Iterable[Address], place: ParsedUrl) -> None:
        for address in addresses:
            if any(opening.covers(_unmap(address), place.port) for opening in self.allowed_networks):
                continue
            if (kind := classify_address(address)) is not None:
                raise ForbiddenAddress(
                    f"The host {place.host!r} leads to {kind} address, and only public addresses may be fetched. "
                    "Only the user can open others, with fetch_tool(allow=[...])."
                )
            if not is_web_port(place.port):
                raise ForbiddenAddress(_describe_port(place))


def classify_address(address: Address) -> str | None:
    """Classify an address that is not public, with its article: `a loopback`, `a private`; `None` for a public one."""
    address = _unmap(address)
    if isinstance(address, IPv6Address):
        return _classify_v6(address)
    if address in METADATA:
        return "a cloud metadata"
    return next((kind for network, kind in _SPECIAL if address in network), None)


def is_web_port(port: int) -> bool:
    """Whether a port may belong to a web server: 80, 443, and most from 1024 on."""
    return port in (80, 443) or (port >= 1_024 and port not in _OTHER_SERVICES)


def matches_host(host: str, patterns: Iterable[str]) -> bool:
    """Whether a host matches a pattern: a name, `*.name` for everything below it, or `*` for every host."""
    return any(pattern in ("*", host) or (pattern[:2] == "*." and host.endswith(pattern[1:])) for pattern in patterns)


async def look_up_host(host: str, port: int) -> list[str]:
    """Look up the addresses of a host with the resolver of this machine."""
    # In a thread that can be abandoned: a DNS server that does not answer must not delay a cancel or an exit.
    infos = await call_in_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


def _classify_v6(address: IPv6Address) -> str | None:
    if address in METADATA:
        return "a cloud metadata"
    inner = _find_inner(address)
    if inner != address and (address in _NAT64 or classify_address(inner) is not None):
        return classify_address(inner)
    for network, kind in _SPECIAL_V6:
        if address in network:
            return kind
    return None if address in _PUBLIC_V6 else "a reserved"


def _unmap(address: Address) -> Address:
    """Turn an IPv4-mapped IPv6 address into the IPv4 address that a connection really goes to."""
    return getattr(address, "ipv4_mapped", None) or address


def _find_inner(address: Address) -> Address:
    """Find the IPv4 address to which a gateway (NAT64) or a tunnel (ISATAP) passes on what goes to an IPv6 address."""
    if isinstance(address, IPv6Address) and (address in _NAT64 or int(address) >> 32 & 0xFFFF_FFFF in _ISATAP):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _parse_address(text: str, place: ParsedUrl) -> Address:
    """Parse an address from DNS; one with a zone (`%eth0`) is only valid on a local link and is refused."""
    try:
        if "%" not in text:
            return ip_address(text)
    except ValueError:
        pass
    raise ForbiddenAddress(f"The host {place.host!r} leads to {format_value(text)}, which is no address to connect to.")


def _parse_literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _describe_port(place: ParsedUrl) -> str:
    return f"Port {place.port} of {place.host!r} is not one of the web; those are 80, 443 and most from 1024 on."


def _check_list(setting: str, values: Iterable[str]) -> Iterable[str]:
    if isinstance(values, str):
        raise TypeError(f"{setting!r} is a list, such as {setting}=[{values!r}], got a string.")
    return values


def _parse_allowed_network(text: str) -> _AllowedNetwork:
    """Parse an entry of `allow`: an address or a network, with or without a port."""
    try:
        return _AllowedNetwork(_parse_network(text), None)
    except ValueError:
        pass
    inner, _, port = text.rpartition(":")
    try:
        if port.isascii() and port.isdigit() and 0 < int(port) < 65_536:
            return _AllowedNetwork(_parse_network(inner), int(port))
    except ValueError:
        pass
    raise ValueError(
        f"An entry of 'allow' is an address or a network such as '127.0.0.1:8000', '[::1]:8000' or '10.0.0.0/8', got "
        f"{format_value(text)}. A name cannot be allowed: its owner decides which address it has."
    )


def _parse_network(text: str) -> Network:
    return ip_network(text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text)


def _parse_host_pattern(text: str) -> str:
    if text == "*":
        return text
    star, name = ("*.", text[2:]) if text.startswith("*.") else ("", text)
    try:
        return star + (str(ip_address(name)) if ":" in name else normalize_host(name))
    except (InvalidUrl, ValueError) as error:
        raise ValueError(f"A host pattern is a name such as 'example.org' or '*.example.org', got {text!r}.") from error
