"""Responses for the differential fuzz: by grammar, well formed or nearly, then mutated and cut."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import pairwise
from random import Random

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
CONTENTS = (
    EVENT, EVENT, EVENT * 3, b"data: [DONE]\n\n", b": ping\n\n", b"x", b"\r\n", b"\r", b"\n\n", b"0\r\n\r\n",
    b"5\r\nhello\r\n", b"HTTP/1.1 200 OK\r\n\r\n", "data: é日🦉\n\n".encode(), b"\0\xff\x80", b"y" * 300, b"z" * 5000,
)  # fmt: skip
STATUS = (
    b"HTTP/1.1 200 ", b"HTTP/1.1 200", b"HTTP/1.1 201 Created", b"HTTP/1.1 204 No Content",
    b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 400 Bad Request", b"HTTP/1.1 500 Oh", b"HTTP/1.1 200 \xc3\xa9\xff",
    b"HTTP/1.1 200 O\tK", b"HTTP/1.1 200\tOK", b"HTTP/1.1 200 OK", b"HTTP/1.1 0200 OK", b"HTTP/1.1 20 OK",
    b"HTTP/1.1 2000 OK", b"HTTP/1.0 200 OK", b"HTTP/2.0 200 OK", b"HTTP/1.2 200 OK", b"HTTP/0.9 200 OK",
    b"http/1.1 200 OK", b" HTTP/1.1 200 OK", b"HTTP/1.1 200 " + b"O" * 300, b"HTTP/1.1 200 " + b"O" * 9000,
    b"HTTP/1.1 200 O\0K", b"HTTP/1.1 200 O\rK", b"HTTP/1.1 101 Switching Protocols", b"HTTP/1.1 199 Odd",
    b"HTTP/11 200 OK", b"HTTP/1.1 200 OK\r\n", b"ICY 200 OK", b"",
)  # fmt: skip
HEADERS = (
    b"Content-Type: text/event-stream", b"content-type: text/event-stream; charset=utf-8",
    b"Content-Type: application/json", b"Date: Mon, 16 Nov 2026 10:00:00 GMT", b"Server: cloudflare",
    b"Cache-Control: no-cache", b"Vary: Origin", b"Vary: Accept", b"x-request-id: req_0123456789",
    b"Set-Cookie: a=b; Path=/", b"Set-Cookie: c=d", b"Alt-Svc: h3=\":443\"; ma=86400", b"Keep-Alive: timeout=5",
    b"X-Empty:", b"X-Blank: ", b"X-Tab:\ta\tb\t", b"x-long: " + b"v" * 2000, b"CF-RAY: 8c-FRA",
    b"access-control-expose-headers: X-Request-ID", b"strict-transport-security: max-age=15552000; includeSubDomains",
    b"Connection: keep-alive", b"connection: Keep-Alive", b"Connection: close", b"!#$%&'*+-.^_`|~09Az: token",
    b"Etag: \"a\"",
)  # fmt: skip
ODD_HEADERS = (
    b"no colon", b"X-Space : a", b": no name", b"X Y: a", b" leading: a", b"X: a\r\n folded", b"X: a\r\n\tfolded",
    b"X:\r\n a", b"X: a\0b", b"X: a\rb", b"X: a\x01b", b"X: a\x7fb", b"X: \xc3\xa9", b"X: \xff", b"X\xff: a",
    b"X\0: a", b"X\t: a", b"X(): a", b"X: " + b"v" * 8200, b"X: " + b"v" * 40_000, b"X: " + b"v" * 7890,
    b"X" * 300 + b": a", b"X" * 8300 + b": a", b"Connection: close", b"Connection: Close, TE",
    b"Connection: keep-alive, upgrade", b"Connection:keep-alive", b"Connection:", b"Proxy-Connection: close",
    b"Proxy-Connection: keep-alive", b"Upgrade: websocket", b"Upgrade: h2c", b"Trailer: X-End",
    b"Content-Encoding: identity", b"Content-Encoding: gzip", b"Content-Encoding: br", b"Content-Encoding: nonsense",
    b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: -1", b"Content-Length: +5", b"Content-Length: 5, 5",
    b"Content-Length: 99999999999999999999999", b"Content-Length : 5", b"Content-Length:", b"Content-Length: 5 5",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", b"Transfer-Encoding: gzip",
    b"Transfer-Encoding : chunked", b"Transfer-Encoding:", b"X: Transfer-Encoding: chunked",
    b"X-Transfer-Encoding: chunked", b"Sec-WebSocket-Key1: a", b"Content-Type: a\r\nContent-Type: b",
    b"Server: a\r\nServer: b", b"\0", b"\r", b"", b"\n", b"\x0b", b"X: a\n", b"X: a\x85",
    b"\r\n".join(b"X-%d: a" % number for number in range(98)),
    b"\r\n".join(b"X-%d: a" % number for number in range(130)), b"X: y\r\n" * 126 + b"X: y",
)  # fmt: skip
CODINGS = (
    b"Transfer-Encoding:chunked", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked ",
    b"Transfer-Encoding: Chunked", b"Transfer-Encoding: CHUNKED", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked, gzip", b"Transfer-Encoding: chunked,", b"Transfer-Encoding: ,chunked",
    b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunkedx",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"Transfer-Encoding:\r\n chunked",
    b"Transfer-Encoding: \"chunked\"", b"Transfer-Encoding: chunked;q=1", b"Transfer-Encoding: identity, chunked",
    b"Transfer-Encoding:\tchunked",
)  # fmt: skip
SIZES = (
    b"0%x", b"0000%x", b"%x ", b"%x\t", b" %x", b"0x%x", b"+%x", b"-%x", b"%xg", b"%x\0", b"%x_0", b"\xd9\xa1%x",
    b"0" * 20 + b"%x",
)  # fmt: skip
EXTENSIONS = (
    b";a", b";a=b", b';a="b"', b";a=b;c=d", b" ;a", b"; a = b", b";", b";;", b";a\0", b";a\rb", b";a\nb", b";\xff",
    b';a="b', b';a="\\""', b";" + b"e" * 300, b";" + b"e" * 8100, b";" + b"e" * 8200, b";" + b"e" * 17_000, b";a=b ",
    b" ", b"\t;a",
)  # fmt: skip
TRAILERS = (
    b"X-End: y\r\n", b"Expires: never\r\nX: y\r\n", b"no colon\r\n", b"1\r\nx\r\n", b" folded\r\n", b"X : y\r\n",
    b"X: a\0b\r\n", b"X: a\rb\r\n", b": y\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
    b"X: " + b"y" * 8300 + b"\r\n", b"X: y\n", b"\xff: y\r\n", b"X: y\r\n" * 130, b"Connection: close\r\n",
    b"X: y\r\n z\r\n", b"0\r\n", b"\0\r\n", b"\r", b"X",
)  # fmt: skip
SURPLUS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: ", b"x", b"\r\n", b"\r\n\r\n", b"\0",
    b"garbage\r\n\r\n", b"0\r\n\r\n", b"H", b"\n",
)  # fmt: skip
ENDS = (b"\n", b"\r", b"\r\r\n", b"", b" \r\n", b"\n\r", b"\r\n\r\n")
TOKENS = (
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b";", b",", b"0", b"\xff", b"\x7f", b"\x0b", b"chunked",
    b"0\r\n\r\n", b"\r\n\r\n", b"\r\n ", b"a", b"HTTP/1.1 ", b"\"", b"=", b"f", b"\x01", b"\x85",
    b"Content-Length: 3\r\n", b"\r\nConnection: close",
)  # fmt: skip


def make_response(rng: Random) -> bytes:
    """The bytes of a response, perhaps malformed, cut short, or with something behind it."""
    wire = b""
    while rng.random() < 0.05:
        wire += rng.choice((b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"))
    wire += _make_whole(rng)
    if rng.random() < 0.05:
        wire += rng.choice(SURPLUS)
    if rng.random() < 0.35:
        for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 5))):
            wire = _mutate(rng, wire)
    if rng.random() < 0.08:
        wire = wire[: rng.randrange(len(wire) + 1)]
    return wire


def split_response(rng: Random, wire: bytes) -> list[bytes]:
    """The response as the network may cut it."""
    kind = rng.random()
    if kind < 0.2:
        return [wire] if wire else []
    if kind < 0.26 and len(wire) < 700:
        return [wire[at : at + 1] for at in range(len(wire))]
    if kind < 0.55:
        # Behind the head, or in the midst of its end.
        cuts = [
            wire.find(b"\r\n\r\n") + rng.choice((1, 2, 3, 4, 4, 4)),
            *_draw_cuts(rng, wire, rng.choice((0, 0, 1, 3))),
        ]
    else:
        cuts = _draw_cuts(rng, wire, rng.choice((1, 1, 2, 3, 6, 15)))
    return cut_at(wire, cuts)


def cut_at(wire: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The bytes in parts, none of them empty."""
    places = [0, *sorted(min(max(cut, 0), len(wire)) for cut in cuts), len(wire)]
    return [wire[start:end] for start, end in pairwise(places) if start < end]


def _draw_cuts(rng: Random, wire: bytes, count: int) -> list[int]:
    ends = [at for at in range(len(wire)) if wire[at] in b"\r\n"] if len(wire) < 3000 else []
    return [
        rng.choice(ends) + rng.randrange(3) if ends and rng.random() < 0.4 else rng.randrange(len(wire) + 1)
        for _ in range(count)
    ]


def _make_whole(rng: Random) -> bytes:
    lines = [b"HTTP/1.1 200 OK" if rng.random() < 0.92 else rng.choice(STATUS)]
    headers = rng.sample(HEADERS, rng.randrange(7))
    if rng.random() < 0.15:
        headers += rng.sample(ODD_HEADERS, rng.choice((1, 1, 1, 2)))
    contents = [rng.choice(CONTENTS) for _ in range(rng.choice((0, 1, 1, 2, 3, 3, 5, 8)))]
    if rng.random() < 0.07:
        headers.append(rng.choice((b"Content-Encoding: gzip", b"content-encoding: deflate")))
        contents = [_compress(rng, b"".join(contents))]
    framing, body = _frame(rng, contents)
    headers += framing
    rng.shuffle(headers)
    lines += [_change_case(rng, header) for header in headers]
    end = b"\n" if rng.random() < 0.02 else b"\r\n"
    return b"".join([line + _draw_end(rng, end, 0.004) for line in lines]) + _draw_end(rng, end, 0.01) + body


def _frame(rng: Random, contents: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    kind = rng.random()
    if kind < 0.78:
        coding = b"Transfer-Encoding: chunked" if rng.random() < 0.93 else rng.choice(CODINGS)
        return [coding], _encode_chunks(rng, contents)
    body = b"".join(contents)
    if kind < 0.9:
        return [b"Content-Length: %d" % max(len(body) + rng.choice((0, 0, 0, 0, 1, -1)), 0)], body
    if kind < 0.93:
        return [b"Transfer-Encoding: chunked", b"Content-Length: %d" % len(body)], _encode_chunks(rng, contents)
    return rng.choice(([], [b"Connection: close"], [b"Connection: keep-alive"])), body


def _encode_chunks(rng: Random, contents: Sequence[bytes]) -> bytes:
    """The contents as plain chunks, as chunks in other forms that are legal, or as chunks that may be malformed."""
    legal, odd = rng.choice(((0.0, 0.0), (0.0, 0.0), (0.3, 0.0), (0.1, 0.06), (0.0, 0.15)))
    wire = b""
    for content in contents:
        length = len(content) + (rng.choice((-1, 1, 5)) if rng.random() < odd / 3 else 0)
        size = rng.choice((b"%x", b"%x", b"%X")) if rng.random() >= odd else rng.choice(SIZES)
        wire += size % max(length, 0)
        if rng.random() < legal + odd:
            wire += rng.choice(EXTENSIONS[:5] if rng.random() < legal else EXTENSIONS)
        wire += _draw_end(rng, b"\r\n", odd / 3) + content + _draw_end(rng, b"\r\n", odd / 3)
    wire += b"0" if rng.random() >= odd + legal else rng.choice((b"00", b"0;a", b"000000000000", b"0", b"0 ", b""))
    wire += _draw_end(rng, b"\r\n", odd / 3)
    if rng.random() < legal + odd * 2:
        wire += rng.choice(TRAILERS[:2] if rng.random() < legal * 3 else TRAILERS)
    return wire + _draw_end(rng, b"\r\n", odd / 3)


def _compress(rng: Random, body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=rng.choice((31, 31, 15, -15)))
    packed = packer.compress(body) + packer.flush()
    return packed if rng.random() < 0.8 else _mutate(rng, packed)


def _change_case(rng: Random, line: bytes) -> bytes:
    kind = rng.random()
    name, colon, value = line.partition(b":")
    if kind < 0.2:
        name = name.lower()
    elif kind < 0.25:
        name = name.upper()
    elif kind < 0.28:
        name = name.swapcase()
    return name + colon + value


def _draw_end(rng: Random, usual: bytes, odd: float) -> bytes:
    return rng.choice(ENDS) if rng.random() < odd else usual


def _mutate(rng: Random, wire: bytes) -> bytes:
    """Change the bytes in one place; half of the places are in the head."""
    head = wire.find(b"\r\n\r\n") + 4
    at = rng.randrange(min(head, len(wire)) + 1) if rng.random() < 0.5 else rng.randrange(len(wire) + 1)
    span = rng.choice((1, 1, 1, 2, 4, 20))
    match rng.randrange(6):
        case 0:
            return wire[:at] + wire[at + span :]
        case 1:
            return wire[:at] + rng.choice(TOKENS) + wire[at:]
        case 2:
            return wire[:at] + rng.choice(TOKENS) + wire[at + span :]
        case 3:
            return wire[:at] + bytes([rng.randrange(256)]) + wire[at + 1 :]
        case 4:
            return wire[:at] + wire[at : at + span] * 2 + wire[at + span :]
        case _:
            other = rng.randrange(len(wire) + 1)
            return wire[:at] + wire[other : other + span] + wire[at:]
