"""Budgets per user and day: across runs, restarts, processes, midnights and broken files."""

from __future__ import annotations

import multiprocessing
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from steersman import Agent
from steersman.policy import BudgetError, DailyBudget, Spent
from steersman.testing import ScriptedModel
from steersman.types import Prices, Usage

NOON = datetime(2026, 3, 1, 12, tzinfo=ZoneInfo("UTC")).timestamp()
PRICES = Prices(input=1_000_000, output=0)


def script_of(*answers: str, cost: bool = True) -> ScriptedModel:
    return ScriptedModel(*answers, usage=Usage(input=1, output=1), prices=PRICES if cost else None, repeat_last=True)


def ask(budget: DailyBudget, script: ScriptedModel, *, hook: bool = True) -> tuple[str, str]:
    result = Agent(script.model, stream_fn=budget.wrap(script), hooks=[budget] if hook else []).run_sync("Hello")
    return result.end_reason, result.detail


def test_a_user_stops_at_the_budget_and_others_go_on(tmp_path: Path) -> None:
    user = ContextVar("user", default="ada")
    budget = DailyBudget(tmp_path / "budget.json", user.get, max_cost=2.0, clock=lambda: NOON)
    script = script_of("Hi.")

    assert [ask(budget, script)[0] for _ in range(2)] == ["done", "done"]
    assert ask(budget, script) == ("vetoed", "The budget of 'ada' for today is used up: $2.0000 of $2.0000.")
    end, detail = ask(budget, script, hook=False)
    assert (end, "used up" in detail, script.asked) == ("error", True, 2)
    user.set("bob")
    assert (ask(budget, script)[0], budget.get_spent()) == ("done", Spent(1.0, 2, 0))


def test_it_survives_a_restart_and_begins_anew_at_midnight_of_its_zone(tmp_path: Path) -> None:
    path, zone = tmp_path / "budget.json", ZoneInfo("Asia/Tokyo")
    now = datetime(2026, 3, 1, 23, 59, 59, tzinfo=zone).timestamp()

    def make(moment: float) -> DailyBudget:
        return DailyBudget(path, "ada", max_tokens=2, zone="Asia/Tokyo", clock=lambda: moment)

    assert ask(make(now), script_of("Hi."))[0] == "done"
    assert ask(make(now), script_of("Hi."))[0] == "vetoed"
    assert ask(make(now + 1), script_of("Hi."))[0] == "done"
    assert ask(make(now - 86_400), script_of("Hi."))[0] == "vetoed"  # a clock set back gives no second budget
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_cost_that_is_not_known_uses_up_a_budget_in_dollars(tmp_path: Path) -> None:
    budget = DailyBudget(tmp_path / "budget.json", "ada", max_cost=100, clock=lambda: NOON)
    script = script_of("Hi.", cost=False)
    assert ask(budget, script)[0] == "done"
    assert ask(budget, script) == (
        "vetoed",
        "The budget of 'ada' cannot be held today: the cost of 1 requests is not known.",
    )


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"day":"2026-03-01","spent":{"ada":{"cost":"x"}}}', b"\xff"])
def test_a_file_that_cannot_be_read_lets_nothing_through(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "budget.json"
    path.write_bytes(content)
    budget = DailyBudget(path, "ada", max_cost=1, clock=lambda: NOON)
    script = script_of("Hi.")
    assert {ask(budget, script)[0], ask(budget, script, hook=False)[0]} == {"error"}
    assert script.asked == 0
    with pytest.raises(BudgetError, match="cannot be read"):
        budget.get_spent()


def test_a_folder_that_is_gone_lets_nothing_through(tmp_path: Path) -> None:
    script = script_of("Hi.")
    assert ask(DailyBudget(tmp_path / "gone" / "budget.json", "ada", max_cost=1), script)[0] == "error"
    assert ask(DailyBudget(tmp_path / "budget.json", lambda: "", max_cost=1), script)[0] == "error"
    assert script.asked == 0


async def test_an_answer_that_is_cut_off_counts_by_an_estimate(tmp_path: Path) -> None:
    budget = DailyBudget(tmp_path / "budget.json", "ada", max_tokens=1_000, clock=lambda: NOON)
    script = ScriptedModel("A long answer.", pace=1.0)
    agent = Agent(script.model, stream_fn=budget.wrap(script))
    async for event in (stream := agent.prompt("Hello there, tell me everything.")):
        if event.type == "message_update":
            agent.abort()
    assert (await stream).end_reason == "aborted"
    assert 0 < budget.get_spent().tokens < 50


def spend_many(path: str) -> None:
    budget = DailyBudget(path, "ada", max_cost=1_000, clock=lambda: NOON)
    for _ in range(25):
        budget.spend(Usage(input=1, cost=1.0))


def test_several_processes_lose_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "budget.json"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=spend_many, args=(str(path),)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert DailyBudget(path, "ada", max_cost=1, clock=lambda: NOON).get_spent() == Spent(50.0, 50, 0)


def test_a_budget_without_a_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_cost"):
        DailyBudget(tmp_path / "x", "ada")


@pytest.mark.parametrize("most", [float("nan"), -1, "5"])
@pytest.mark.parametrize("name", ["max_cost", "max_tokens"])
def test_a_budget_that_could_not_be_held_is_refused(tmp_path: Path, name: str, most: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is a number from 0 on"):
        DailyBudget(tmp_path / "budget.json", "ada", **{name: most})


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc", "Europe"])
def test_a_time_zone_that_does_not_exist_is_refused(zone: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"There is no time zone {zone!r}"):
        DailyBudget(tmp_path / "spent.json", "ada", max_tokens=1, zone=zone)
