from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.provider.wires.protocols import SERVERS, played
from tests.rows import each_row

from steersman import Agent, Retry
from steersman.provider.wires.retry_after import parse_retry_after
from steersman.testing.servers import Reply

NOW = 1_000_000_000.0  # Sun, 09 Sep 2001 01:46:40 GMT


def clock() -> float:
    return NOW


@each_row(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "850"}, 0.85),
        ({"retry-after-ms": "1500.5"}, 1.5005),
        ({"retry-after": "34"}, 34.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "Sun, 09 Sep 2001 01:47:10 GMT"}, 30.0),
        ({"retry-after": "Sunday, 09-Sep-01 01:47:10 GMT"}, 30.0),
        ({"retry-after": "Sun, 09 Sep 2001 01:46:00 GMT"}, 0.0),
        ({"retry-after": "2001-09-09T01:47:10Z"}, 30.0),
        ({"x-ratelimit-reset-after": "12.5"}, 12.5),
        ({"x-ratelimit-reset": "20"}, 20.0),
        ({"x-ratelimit-reset": "1000000045"}, 45.0),
        ({"x-ratelimit-reset": "1000000045500"}, 45.5),
        ({"x-ratelimit-reset": "999999999000"}, 0.0),
        ({"x-ratelimit-reset": "6m0s"}, 360.0),
        ({"retry-after-ms": "850", "retry-after": "5", "x-ratelimit-reset": "9"}, 0.85),
        ({"retry-after": "5", "x-ratelimit-reset-after": "7", "x-ratelimit-reset": "9"}, 5.0),
        ({"retry-after": "soon", "x-ratelimit-reset-after": "7"}, 7.0),
    ],
)
def test_the_headers_are_understood(headers: dict[str, str], seconds: float) -> None:
    """failures.md E1"""
    assert parse_retry_after(headers, clock=clock) == pytest.approx(seconds)


DAY = 86_400.0
POINTS = [
    {"retry-after": "Sun, 09 Sep 2001 01:47:10 GMT"},
    {"retry-after": "2001-09-09T01:47:10Z"},
    {"x-ratelimit-reset-after": "2001-09-09T01:47:10Z"},
    {"x-ratelimit-reset": "1000000030"},
]


@each_row("step", [-DAY, 0.0, DAY])
@each_row("headers", POINTS)
def test_a_point_in_time_is_held_against_the_servers_own_date(headers: dict[str, str], step: float) -> None:
    """failures.md E14: a wait is the same whatever our clock says."""
    dated = {**headers, "date": "Sun, 09 Sep 2001 01:46:40 GMT"}
    assert parse_retry_after(dated, clock=lambda: NOW + step) == 30.0


@pytest.mark.parametrize("date", ["", "soon", "-1"])
def test_a_date_that_is_none_is_as_if_not_sent(date: str) -> None:
    assert parse_retry_after({**POINTS[0], "Date": date}, clock=clock) == 30.0


@pytest.mark.real_time
@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_whose_clock_is_years_behind_is_waited_for_as_long_as_it_asks(name: str) -> None:
    """failures.md E14: here for longer than we wait at all, which is told at once."""
    headers = {"date": "Wed, 21 Oct 2015 07:28:00 GMT", "retry-after": "Wed, 21 Oct 2015 09:28:00 GMT"}
    async with SERVERS[name](Reply(429, SERVERS[name]().build_error_body(429, "busy"), headers), "Fine.") as server:
        result = await Agent(server.model()).run("Hi.")
    assert (result.end_reason, result.error_kind, len(server.raw)) == ("error", "rate_limit", 1)
    assert "the server asks to wait 7200 s" in result.detail


@each_row("value", ["", "nan", "inf", "-5", "-inf", "1e400", "9" * 400, "9999999999999", "soon", "٣", "0x10", "1_0"])
@each_row("name", ["retry-after", "retry-after-ms", "x-ratelimit-reset-after", "x-ratelimit-reset"])
def test_what_cannot_be_a_wait_is_as_if_not_said(name: str, value: str) -> None:
    """failures.md E1"""
    assert parse_retry_after({name: value}, clock=clock) is None


@each_row(
    ("body", "seconds"),
    [
        (
            '{"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}]}}',
            34.07,
        ),
        ('{"retryDelay" : "1m2.5s"}', 62.5),
        ("Rate limited. Please retry in 850ms.", 0.85),
        ("Please retry in 34.074824224s.", 34.074824224),
        ("Rate limit reached. Please try again in 6m0s.", 360.0),
        ("Please try again in 20 seconds", 20.0),
        ("Please retry after 2 minutes.", 120.0),
        ("retry after: 1 hour", 3600.0),
        ("Please wait 500 milliseconds", 0.5),
        ("try again later", None),
        ("retry in many ways", None),
        ("I waited 5 s", None),
        ('{"retryDelay": "soon"}', None),
        ("", None),
    ],
)
def test_the_words_of_the_body_are_understood(body: str, seconds: float | None) -> None:
    """failures.md E1"""
    asked = parse_retry_after({}, clock=clock, body=body)

    assert asked is None if seconds is None else asked == pytest.approx(seconds)


def test_a_header_that_names_a_wait_outweighs_the_body_and_the_body_a_reset() -> None:
    body = "Please retry in 850ms"

    assert parse_retry_after({"retry-after": "3"}, clock=clock, body=body) == 3.0
    assert parse_retry_after({"x-ratelimit-reset": "60"}, clock=clock, body=body) == 0.85


def test_when_a_limit_begins_anew_matters_only_where_one_was_reached() -> None:
    for name in ("x-ratelimit-reset-after", "x-ratelimit-reset"):
        assert parse_retry_after({name: "60"}, clock=clock, limited=True) == 60.0
        assert parse_retry_after({name: "60"}, clock=clock, limited=False) is None
        assert parse_retry_after({name: "60", "retry-after": "3"}, clock=clock, limited=False) == 3.0


LIMITS = {"x-ratelimit-reset-after": "7200", "x-ratelimit-remaining": "900"}


@pytest.mark.real_time
@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_that_tells_its_limits_with_every_response_is_asked_again_at_once(name: str) -> None:
    """failures.md E1: it failed, and its answer was cut, for other reasons than a limit."""
    cut = played(SERVERS[name](), alt="sse")[:400]
    faults = (Reply(503, "busy", LIMITS), Reply(200, cut, {**LIMITS, "content-type": "text/event-stream"}))
    async with SERVERS[name](*faults, "Hello.") as server:
        result = await Agent(server.model(), retry=Retry(base_delay=0)).run("Hi")
    assert (result.text, len(server.raw)) == ("Hello.", 3)


@pytest.mark.real_time
@pytest.mark.parametrize("name", SERVERS)
async def test_a_limit_that_was_reached_says_when_it_begins_anew(name: str) -> None:
    """failures.md E1: longer than the longest wait, so it fails at once and says how long."""
    async with SERVERS[name](Reply(429, "slow down", LIMITS), "Hello.") as server:
        result = await Agent(server.model()).run("Hi")
    assert result.detail.endswith("(the server asks to wait 7200 s, longer than max_delay=60 s)")
    assert len(server.raw) == 1


def test_without_headers_and_words_nothing_is_said_and_the_clock_is_not_asked() -> None:
    def broken_clock() -> float:
        raise AssertionError("asked")

    assert parse_retry_after({"content-type": "text/html"}, clock=broken_clock) is None
    assert parse_retry_after({"retry-after": "3"}, clock=broken_clock) == 3.0


@given(st.text(), st.text(), st.text())
def test_no_header_or_body_makes_it_raise_or_give_a_senseless_wait(after: str, reset: str, body: str) -> None:
    """failures.md E1"""
    asked = parse_retry_after({"retry-after": after, "x-ratelimit-reset": reset}, clock=clock, body=body)

    assert asked is None or 0 <= asked <= 366 * 86_400
