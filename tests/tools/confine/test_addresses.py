"""Which addresses a fetch may reach, judged without a connection; `builtin/test_fetching_guard.py` has the canaries."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from steersman.tools.confine.addresses import (
    AddressRules,
    ForbiddenAddress,
    classify_address,
    is_web_port,
    look_up_host,
)
from steersman.tools.confine.urls import InvalidUrl, ParsedUrl, parse_url
from steersman.tools.threads import call_in_thread
from steersman.types.errors import ToolError


class Names:
    """A server of names that gives its answers in order, the last one for ever, and counts the questions."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def reached(url: str, names: Names | None = None, **settings: Sequence[str]) -> tuple[str, ...]:
    rules = AddressRules(resolve=names, **settings)
    place = parse_url(url)
    rules.check(place)
    return await rules.find_addresses(place)


@each_row(
    ("url", "place"),
    [
        ("https://Example.ORG", ParsedUrl("https://example.org/", "https", "example.org", 443)),
        ("http://example.org:80/a?b=c#d", ParsedUrl("http://example.org/a?b=c", "http", "example.org", 80)),
        ("HTTP://example.org.:8080", ParsedUrl("http://example.org:8080/", "http", "example.org", 8080)),
        ("https://ü.example/ä", ParsedUrl("https://xn--tda.example/%C3%A4", "https", "xn--tda.example", 443)),
        ("http://93.184.215.14/", ParsedUrl("http://93.184.215.14/", "http", "93.184.215.14", 80)),
        ("https://[2606:2800:0:0::1]:444/x", ParsedUrl("https://[2606:2800::1]:444/x", "https", "2606:2800::1", 444)),
        (
            "https://example.org?[ö]|%20",
            ParsedUrl("https://example.org/?%5B%C3%B6%5D%7C%20", "https", "example.org", 443),
        ),
        ("  https://example.org/a@b:c  \n", ParsedUrl("https://example.org/a@b:c", "https", "example.org", 443)),
        ("https://a_b.example.org/...", ParsedUrl("https://a_b.example.org/...", "https", "a_b.example.org", 443)),
    ],
)  # fmt: skip
def test_a_url_is_read_in_one_way(url: str, place: ParsedUrl) -> None:
    assert parse_url(url) == place
    assert parse_url(place.url) == place


@given(st.text(max_size=40) | st.from_regex(r"\Ahttps?://[^/]{0,20}(:[0-9]{0,6})?/.{0,10}", fullmatch=True))
def test_whatever_is_read_as_a_url_reads_the_same_again(url: str) -> None:
    try:
        place = parse_url(url)
    except InvalidUrl:
        return
    assert parse_url(place.url) == place
    assert place.url.isascii()
    assert place.host in place.url
    assert not any(sign in place.host for sign in "@/\\?#% []")


@each_row(
    ("url", "words"),
    [
        ("https://me@example.org/", "^A URL with a user name or a password in front of its host is not fetched"),
        ("https://example.org\\@x/", r"^The URL .* has '\\\\' in it; write it percent-encoded, or leave it out\.$"),
        ("https://example.org/a b", "^The URL .* has ' ' in it"),
        ("https://example.org/a/../b", r"^The path of .* has a '\.' or '\.\.' in it; write the path it leads to\.$"),
        ("https://example.org/a/%2E%2e/b", r"^The path of .* has a '\.' or '\.\.' in it"),
        ("https://[2606:2800::1%25eth0]/", "is not an IPv6 address"),
        ("https://[2606:2800::1%eth0]/", "is not an IPv6 address"),
        ("https://[::ffff:8.8.8.08]/", "is not an IPv6 address"),
        ("https://0x5db8d70e/", "is not an IPv4 address as four decimal numbers"),
        ("https://93.184.215.014/", "is not an IPv4 address as four decimal numbers"),
        ("https://example%2eorg/", "is not the name of a host"),
        ("https://-example.org/", "is not the name of a host"),
        ("https://a..example.org/", "is not the name of a host"),
        (f"https://{'a' * 64}.example.org/", "is not the name of a host"),
        (f"https://{'ä' * 300}.example.org/", "is not the name of a host"),
        ("https://example.org:x/", "has no host that can be read"),
        ("https://:80/", "has no host that can be read"),
        ("https://example.org:65536/", "^A port is a number from 1 to 65535, got 65536"),
        ("ftp://example.org/", "^Only http:// and https:// URLs can be fetched"),
        ("https:example.org", "^Only http:// and https:// URLs can be fetched"),
        (f"https://example.org/{'a' * 8_000}", r"^The URL has 8,020 characters; at most 8,000 are allowed\.$"),
    ],
)
def test_a_url_that_is_refused_is_told_why(url: str, words: str) -> None:
    with pytest.raises(InvalidUrl, match=words):
        parse_url(url)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "https://example.org/b"),
        ("c?d", "https://example.org/a/c?d"),
        ("../e", "https://example.org/e"),
        ("//other.example/f", "https://other.example/f"),
        ("http://other.example", "http://other.example/"),
        ("?g", "https://example.org/a/b?g"),
    ],
)
def test_a_redirect_is_read_from_where_it_stands(location: str, url: str) -> None:
    assert parse_url("https://example.org/a/b").join(location).url == url


@pytest.mark.parametrize(
    "location", ["ht\ttps://x/", "/\\x", "http://[::1/", "file:///x", "http://a@b/", "\ud800", "http:///x"]
)
def test_a_redirect_that_can_be_read_in_two_ways_is_refused(location: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_url("https://example.org/a").join(location)


@each_row(
    ("address", "kind"),
    [
        ("8.8.8.8", None),
        ("93.184.215.14", None),
        ("100.63.255.255", None),
        ("100.128.0.0", None),
        ("172.15.255.255", None),
        ("172.32.0.0", None),
        ("223.255.255.255", None),
        ("2606:4700::1111", None),
        ("::ffff:8.8.8.8", None),
        ("64:ff9b::808:808", None),
        ("0.0.0.0", "an unspecified"),
        ("127.0.0.1", "a loopback"),
        ("10.1.2.3", "a private"),
        ("100.64.0.1", "a carrier's private"),
        ("169.254.1.1", "a link-local"),
        ("169.254.169.254", "a cloud metadata"),
        ("::ffff:169.254.169.254", "a cloud metadata"),
        ("64:ff9b::169.254.169.254", "a cloud metadata"),
        ("fd00:ec2::254", "a cloud metadata"),
        ("2606:4700::5efe:169.254.169.254", "a cloud metadata"),
        ("2606:4700::200:5efe:10.0.0.1", "a private"),
        ("2606:4700::200:5efe:8.8.8.8", None),
        ("224.0.0.1", "a multicast"),
        ("255.255.255.255", "a reserved"),
        ("203.0.113.1", "a documentation"),
        ("::", "an unspecified"),
        ("::1", "a loopback"),
        ("::ffff:10.0.0.1", "a private"),
        ("::10.0.0.1", "a reserved"),
        ("64:ff9b::10.0.0.1", "a private"),
        ("64:ff9b:1::1", "a reserved"),
        ("2002:808:808::1", "a tunnel"),
        ("2001::1", "a tunnel or reserved"),
        ("2001:db8::1", "a documentation"),
        ("fc00::1", "a private"),
        ("fe80::1", "a link-local"),
        ("ff02::1", "a multicast"),
        ("4000::1", "a reserved"),
    ],
)
def test_every_kind_of_address_is_known(address: str, kind: str | None) -> None:
    assert classify_address(ip_address(address)) == kind


@given(st.ip_addresses())
def test_what_counts_as_public_is_public_to_python_too(address: IPv4Address | IPv6Address) -> None:
    if classify_address(address) is None:
        assert (getattr(address, "ipv4_mapped", None) or address).is_global


async def test_a_name_is_looked_up_once_and_gives_what_was_judged() -> None:
    """failures.md L9: resolved twice, a name may lead elsewhere the second time."""
    names = Names(["93.184.215.14", "2606:2800::1", "93.184.215.14"], ["127.0.0.1"])
    assert await reached("https://example.org/", names) == ("93.184.215.14", "2606:2800::1")
    assert names.asked == [("example.org", 443)]


@each_row(
    "answer",
    [
        ["127.0.0.1"],
        ["93.184.215.14", "127.0.0.1"],
        ["127.0.0.1", "93.184.215.14"],
        ["::1", "93.184.215.14"],
        ["93.184.215.14", "fe80::1%eth0"],
        ["93.184.215.14%eth0"],
        ["2606:2800::1%eth0"],
        ["127.1"],
        ["localhost"],
        ["0x7f000001"],
        [""],
    ],
)
async def test_a_name_with_a_single_forbidden_address_is_refused(answer: list[str]) -> None:
    with pytest.raises(ForbiddenAddress):
        await reached("https://example.org/", Names(answer))


async def test_a_name_without_addresses_is_not_found() -> None:
    with pytest.raises(ToolError, match=r"^The host 'example\.org' could not be found: it has no address\.$"):
        await reached("https://example.org/", Names([]))


async def test_a_name_that_cannot_be_looked_up_is_not_found() -> None:
    async def broken(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    rules = AddressRules(resolve=broken)
    with pytest.raises(ToolError, match=r"^The host 'example\.org' could not be found \(gaierror: .*not known\)\.$"):
        await rules.find_addresses(parse_url("https://example.org/"))


async def test_the_machine_itself_has_one_meaning_and_no_server_of_names_is_asked() -> None:
    names = Names(["93.184.215.14"])
    for host in ("localhost", "a.localhost", "LOCALHOST."):
        with pytest.raises(ForbiddenAddress, match="a loopback address"):
            await reached(f"https://{host}/", names)
    assert names.asked == []


@pytest.mark.real_time
async def test_a_host_is_looked_up_on_this_machine() -> None:
    assert "127.0.0.1" in await look_up_host("127.0.0.1", 80)


@pytest.mark.real_time
async def test_a_look_up_that_hangs_can_be_left() -> None:
    """failures.md F5: a task that waits for a name is not held by the thread that looks it up."""
    asked, answered = asyncio.Event(), threading.Event()

    async def slow(host: str, port: int) -> list[str]:
        asked.set()
        await call_in_thread(answered.wait)
        return []

    task = asyncio.ensure_future(AddressRules(resolve=slow).find_addresses(parse_url("https://example.org/")))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    answered.set()


@each_row(
    ("allow", "url"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/"),
        ("127.0.0.1", "http://127.0.0.1:8000/"),
        ("127.0.0.0/8:8000", "http://127.9.9.9:8000/"),
        ("[::1]:8000", "http://[::1]:8000/"),
        ("::1", "http://[::1]:8000/"),
        ("[::1]", "http://[::1]/"),
        ("fd00::/8", "http://[fd00::1]/"),
        ("[fd00::/8]:22", "http://[fd00::1]:22/"),
        ("10.0.0.0/8", "http://10.1.2.3/"),
        ("10.0.0.1:22", "http://10.0.0.1:22/"),
        ("93.184.215.14:22", "http://93.184.215.14:22/"),
        ("127.0.0.1:8000", "http://[::ffff:127.0.0.1]:8000/"),
        ("169.254.169.254", "http://169.254.169.254/"),
        ("64:ff9b::a9fe:a9fe", "http://[64:ff9b::a9fe:a9fe]/"),
        ("64:ff9b::/96", "http://[64:ff9b::a00:1]/"),
    ],
)
async def test_the_user_can_open_an_address(allow: str, url: str) -> None:
    assert await reached(url, allow=[allow]) == (parse_url(url).host,)
    with pytest.raises(ForbiddenAddress):
        await reached(url)


@each_row(
    ("allow", "url"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8001/"),
        ("127.0.0.1:8000", "http://127.0.0.2:8000/"),
        ("127.0.0.1:8000", "http://[::1]:8000/"),
        ("127.0.0.1", "http://127.0.0.1:22/"),
        ("127.0.0.1:8000", "http://localhost:8000/"),
        ("0.0.0.0/0", "http://169.254.169.254/"),
        ("::/0", "http://[fd00:ec2::254]/"),
        ("169.254.0.0/16", "http://169.254.169.254/"),
        ("169.254.0.0/16", "http://169.254.170.23/"),
        ("169.254.0.0/16", "http://169.254.42.42/"),
        ("169.254.0.0/16", "http://169.254.0.23/"),
        ("fd00::/8", "http://[fd00:ec2::23]/"),
        ("fd00::/8", "http://[fd00:c1::a9fe:a9fe]/"),
        ("fd00::/8", "http://[fd00:42::42]/"),
        ("64:ff9b::/96", "http://[64:ff9b::a9fe:a9fe]/"),
        ("::/0", "http://[2001:db8::5efe:a9fe:a9fe]/"),
        ("::/0", "http://[2002:7f00:1::1]/"),
        ("2002::/16", "http://[2002:7f00:1::1]/"),
        ("2001::/32", "http://[2001::1]/"),
    ],
)
async def test_an_opening_is_as_wide_as_it_says(allow: str, url: str) -> None:
    with pytest.raises(ForbiddenAddress):
        await reached(url, allow=[allow])


async def test_a_name_reaches_what_was_opened_by_its_address() -> None:
    assert await reached("http://intranet:8000/", Names(["10.0.0.5"]), allow=["10.0.0.5:8000"]) == ("10.0.0.5",)
    opened = ["127.0.0.1:8000", "[::1]:8000"]
    assert await reached("http://localhost:8000/", allow=opened) == ("127.0.0.1", "::1")


@each_row(
    "entry", ["localhost:8000", "example.org", "", "127.0.0.1:0", "127.0.0.1:99999", "10.0.0.1/8", "[::1", "::1]:x"]
)
def test_a_wrong_entry_of_allow_is_a_mistake(entry: str) -> None:
    with pytest.raises(ValueError, match=r"^An entry of 'allow' is an address or a network such as"):
        AddressRules(allow=[entry])


@pytest.mark.parametrize("pattern", ["", "*.*.org", "ex*mple.org", "https://example.org", "example.org/x", "*.", "a b"])
def test_a_wrong_pattern_of_a_host_is_a_mistake(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^A host pattern is a name such as"):
        AddressRules(deny_hosts=[pattern])


@pytest.mark.parametrize("setting", ["allow", "hosts", "deny_hosts"])
def test_a_string_is_no_list(setting: str) -> None:
    with pytest.raises(TypeError, match=f"^'{setting}' is a list"):
        AddressRules(**cast(dict[str, Any], {setting: "example.org"}))


@each_row(
    ("host", "fits"),
    [
        ("example.org", True),
        ("EXAMPLE.org.", True),
        ("www.example.net", True),
        ("a.b.example.net", True),
        ("example.net", False),
        ("badexample.net", False),
        ("www.example.org", False),
        ("example.org.evil.example", False),
        ("xn--mller-kva.example", True),
        ("müller.example", True),
    ],
)
async def test_a_list_of_hosts_is_all_there_is(host: str, fits: bool) -> None:
    names, url = Names(["93.184.215.14"]), f"https://{host}/"
    hosts = ["Example.org", "*.example.net", "müller.example"]
    if fits:
        assert await reached(url, names, hosts=hosts) == ("93.184.215.14",)
        with pytest.raises(ForbiddenAddress, match="is on the list of hosts that may not be fetched"):
            await reached(url, names, hosts=hosts, deny_hosts=hosts)
    else:
        with pytest.raises(
            ForbiddenAddress, match=r"is not among those that may be fetched: \*\.example\.net, example\.org"
        ):
            await reached(url, names, hosts=hosts)
        assert names.asked == []


def test_ports_of_other_services_are_not_of_the_web() -> None:
    web = [80, 443, 1024, 3000, 5000, 8000, 8080, 8443, 9000, 65535]
    other = [
        1,
        21,
        22,
        23,
        25,
        81,
        110,
        143,
        389,
        445,
        587,
        1023,
        2049,
        2375,
        3306,
        5432,
        6000,
        6379,
        6667,
        11211,
        27017,
    ]
    assert [port for port in [*web, *other] if is_web_port(port)] == web
