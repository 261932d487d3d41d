"""The measurements of the wire compare like with like: all sides are asked the same and get the same answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.mock import ANSWER, Mock
from bench.wire import calls_job, prompt_job, slope, text_job, tool_job, words, work_job
from bench.wire_child import crowd
from bench.wire_work import Play, Watch, done, floor, sdk, steersman


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Mock() as mock:
        yield mock.url


@pytest.mark.parametrize("play", [steersman, floor], ids=["steersman", "floor"])
def test_each_side_does_the_job_and_sees_every_delta(play: Play, url: str) -> None:
    jobs = (text_job(url)(20), tool_job(url)(3), work_job(url)(2), calls_job(url)(4), prompt_job(url)(2))
    done_ = [done(play, job) for job in jobs]
    assert [one.answer for one in done_] == [words(20), ANSWER, ANSWER, ANSWER, words(4)]
    assert [one.deltas for one in done_] == [20, 3 * 2 + 4, 2 * 42 + 4, 4 * 2 + 4, 8]


@pytest.mark.parametrize("watch", ["reader", "nobody"])
def test_it_does_not_matter_who_watches(watch: Watch, url: str) -> None:
    assert done(steersman, text_job(url, watch)(5)).answer == words(5)


def test_a_paced_answer_is_the_same_answer(url: str) -> None:
    assert done(steersman, text_job(url, kind="paced")(5)).answer == words(5)


def test_the_sdk_reads_the_same_text(url: str) -> None:
    assert done(sdk, prompt_job(url)(2)).answer == words(4)


def test_a_marked_job_reads_the_clock_at_each_turn(url: str) -> None:
    for play in (steersman, floor):
        turns = done(play, tool_job(url, marked=True)(3)).turns
        assert (len(turns), turns) == (4, sorted(turns))


def test_a_wrong_answer_is_no_measurement(url: str) -> None:
    with pytest.raises(RuntimeError, match="Expected 'nothing'"):
        slope(floor, text_job(url), 1, 2, lambda _: "nothing")


@pytest.mark.real_time
@pytest.mark.parametrize("side", ["steersman", "floor"])
async def test_every_agent_of_a_crowd_gets_its_answer(side: str, url: str) -> None:
    from steersman.provider.http.client import aclose_http

    assert (await crowd(side, url, "5"))["right"] == 5
    await aclose_http()
