"""`evaluate`: every run is a session, a crash is a failure, and nothing that is done is done again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from steersman import Agent, Approval, Session, tool
from steersman.evals import (
    Case,
    CaseRun,
    Cassettes,
    Dataset,
    Progress,
    Report,
    Score,
    contains,
    equals,
    evaluate,
    evaluate_sync,
    judge,
)
from steersman.session import MemoryStore
from steersman.testing import ScriptedModel, answer, call, error, replay, stall
from steersman.tools import builtin_tools
from steersman.types import Request, Usage


def echo_upper(request: Request) -> Any:
    """What was asked, in capitals; "crash" makes the model fail."""
    text = request.messages[-1].text
    if "crash" in text:
        return error("authentication")
    return answer(text.upper(), usage=Usage(input=10, output=2, cost=0.01))


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_once(request: Request) -> Any:
    return answer(call("write", path="new.txt", content="x")) if len(request.messages) == 1 else "ok"


def make_agent(script: Any = echo_upper, **options: Any) -> Agent:
    return Agent(ScriptedModel(script, repeat_last=True).model, retry=None, **options)


CASES = [Case("right", expected="RIGHT"), Case("wrong", expected="x"), Case("crash", expected="CRASH")]


async def test_a_crashed_case_is_a_failed_case_and_is_counted() -> None:
    """O6: one right, one wrong and one crashed is a third, not a half."""
    report = await evaluate(make_agent(), CASES, [contains()])
    [agent] = report.agents
    assert [run.passed for run in agent.runs] == [True, False, False]
    assert (agent.passed, agent.crashed, round(agent.rate.mean, 3)) == (1, 1, 0.333)
    assert round(agent.pass_rate["contains"].mean, 3) == 0.333
    assert agent.runs[2].crashed
    assert agent.runs[2].scores["contains"].reason == "the case crashed"
    assert agent.cost == pytest.approx(0.02)


async def test_an_agent_that_cannot_be_made_crashes_its_cases_only() -> None:
    def make() -> Agent:
        raise RuntimeError("no such thing")

    report = await evaluate({"good": make_agent(), "bad": make}, CASES[:1], [contains()])
    assert [agent.crashed for agent in report.agents] == [0, 1]
    assert report.agents[1].runs[0].crashed == "RuntimeError: no such thing"


@pytest.mark.real_time  # threads work for it
async def test_a_scorer_that_raises_fails_the_case_and_says_so() -> None:
    def broken(run: CaseRun) -> bool:
        raise KeyError(run.case.id)

    async def exiting(run: CaseRun) -> bool:
        raise SystemExit(2)

    async def cancelled(run: CaseRun) -> bool:
        raise asyncio.CancelledError("of a task inside")

    report = await evaluate(make_agent(), CASES[:1], [contains(), broken, exiting, cancelled])
    scores = [report.agents[0].runs[0].scores[name] for name in ("broken", "exiting", "cancelled")]
    assert [(score.value, score.passed) for score in scores] == [(0.0, False)] * 3
    told = ["KeyError: 'case-1'", "SystemExit: 2", "CancelledError: of a task inside"]
    assert [score.error for score in scores] == told
    assert not report.agents[0].runs[0].passed


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError("inside")])
async def test_an_agent_that_exits_while_it_is_made_is_a_crashed_case(raised: BaseException) -> None:
    def make(folder: Path) -> Agent:
        raise raised

    report = await evaluate(make, CASES[:2], [contains()])
    assert [run.crashed for run in report.agents[0].runs] == [f"{type(raised).__name__}: {raised}"] * 2


async def test_every_run_is_a_session_that_can_be_opened_replayed_and_branched() -> None:
    store = MemoryStore()

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    script = ScriptedModel(answer(call("add", a=2, b=3)), "It is 5.", "Never mind.")
    report = await evaluate(Agent(script.model, tools=[add]), [Case("2 + 3?", id="sum")], [contains("5")], store=store)
    [run] = report.agents[0].runs
    assert (run.passed, run.turns, run.tool_calls, run.session.startswith("sum.1.")) == (True, 2, 1, True)
    with Session.open(store, run.session) as session:
        assert [message.role for message in session.messages] == ["user", "assistant", "tool_result", "assistant"]
        assert (await replay(session)).messages == session.messages
        with Agent(script.model, tools=[add], session=session) as agent:
            assert (await agent.branch(0, "other", prompt="Stop.")).text == "Never mind."
    # What was done in the session since is not what was evaluated.
    again = await evaluate(Agent(script.model, tools=[add]), [Case("2 + 3?", id="sum")], [contains("5")], store=store)
    assert again.to_json() == report.to_json()
    assert script.left == 0


async def test_what_is_finished_in_the_store_is_not_run_again() -> None:
    store, asked = MemoryStore(), list[str]()

    def reply(request: Request) -> str:
        asked.append(request.messages[-1].text)
        return "yes"

    first = await evaluate(make_agent(reply), [Case("one"), Case("two")], [contains("yes")], store=store)
    second = await evaluate(
        make_agent(reply), [Case("one"), Case("two"), Case("three")], [contains("yes")], store=store
    )
    assert sorted(asked) == ["one", "three", "two"]
    assert second.agents[0].runs[:2] == first.agents[0].runs
    # Another prompt, another system prompt: other runs.
    await evaluate(make_agent(reply), [Case("one!")], [contains("yes")], store=store)
    await evaluate(make_agent(reply, system_prompt="Be brief."), [Case("one")], [contains("yes")], store=store)
    assert sorted(asked) == ["one", "one", "one!", "three", "two"]


async def test_a_run_that_was_cut_off_starts_again_from_its_prompt() -> None:
    """What the first process left stays in the session as another branch."""
    store = MemoryStore()
    agent = make_agent(stall("I am"))
    task = asyncio.ensure_future(evaluate(agent, [Case("go")], [contains("done")], store=store))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    report = await evaluate(make_agent("done"), [Case("go")], [contains("done")], store=store)
    [run] = report.agents[0].runs
    assert (run.passed, run.turns) == (True, 1)
    with Session.open(store, run.session, write=False) as session:
        assert [message.text for message in session.messages] == ["go", "done"]
        assert len(session.tree()) == 2


async def test_a_case_that_crashed_fails_without_any_scorer() -> None:
    report = await evaluate(make_agent(), CASES, [])
    assert [run.passed for run in report.agents[0].runs] == [True, True, False]


@pytest.mark.real_time  # threads work for it
async def test_a_run_that_was_cut_off_starts_again_in_a_fresh_folder(tmp_path: Path) -> None:
    def make(folder: Path) -> Agent:
        return make_agent(write_and_stall, tools=builtin_tools(folder, sandbox="off"), approval=Approval("bypass"))

    def write_and_stall(request: Request) -> Any:
        if cut_off and len(request.messages) > 1:
            written.set()
            return stall("I am")
        name = "old.txt" if cut_off else "new.txt"
        return answer(call("write", path=name, content="x")) if len(request.messages) == 1 else "ok"

    store, cut_off, case, written = MemoryStore(), True, Case("go", files={"a.txt": "1"}), asyncio.Event()
    task = asyncio.ensure_future(evaluate(make, [case], [contains("ok")], store=store, workspaces=tmp_path))
    await written.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    folder = tmp_path / list_names(tmp_path)[0]
    assert list_names(folder) == ["a.txt", "old.txt"]
    cut_off = False
    report = await evaluate(make, [case], [contains("ok")], store=store, workspaces=tmp_path)
    assert (report.agents[0].passed, list_names(folder)) == (1, ["a.txt", "new.txt"])


async def test_repeats_are_runs_of_their_own_with_an_interval() -> None:
    number = 0

    def reply(request: Request) -> str:
        nonlocal number
        number += 1
        return "yes" if number % 4 else "no"

    report = await evaluate(make_agent(reply), [Case("a"), Case("b")], [contains("yes")], repeat=4, concurrency=1)
    [agent] = report.agents
    assert [run.passed for run in agent.runs] == [True, True, True, False] * 2
    assert len({run.session for run in agent.runs}) == 8
    assert (agent.cases, agent.passed, agent.rate.mean) == (2, 6, 0.75)
    assert agent.rate.low < 0.75 < agent.rate.high


@pytest.mark.real_time  # threads work for it
async def test_each_case_has_a_folder_of_its_own() -> None:
    seen: list[tuple[str, list[str]]] = []

    @asynccontextmanager
    async def make(folder: Path) -> AsyncGenerator[Agent]:
        seen.append((folder.name, list_names(folder)))
        with make_agent(
            write_once,
            tools=builtin_tools(folder, sandbox="off"),
        ) as agent:
            yield agent

    def wrote(run: CaseRun) -> bool:
        assert run.workspace is not None
        return list_names(run.workspace) == ["a.txt", "new.txt"]

    cases = [Case("go", files={"a.txt": "1"}, id="x"), Case("go", files={"a.txt": "2"}, id="y")]
    report = await evaluate(make, cases, [wrote])
    assert [run.passed for run in report.agents[0].runs] == [True, True]
    assert [names for _, names in seen] == [["a.txt"], ["a.txt"]]
    assert len({name for name, _ in seen}) == 2


async def test_files_need_an_agent_that_is_made_for_its_folder() -> None:
    with pytest.raises(TypeError, match=r"The case 'x' has files, so the agent .* must be a function of its folder"):
        await evaluate(make_agent(), [Case("go", files={"a": "b"}, id="x")], [contains("x")])


async def test_the_judge_is_asked_once_and_its_cost_is_counted_apart() -> None:
    store = MemoryStore()
    verdict = answer('{"reason": "fine", "points": 8}', usage=Usage(input=5, output=5, cost=0.5))
    script = ScriptedModel(verdict)
    scorers = [judge("Is it polite?", script.model)]
    report = await evaluate(make_agent(), CASES[:1], scorers, store=store)
    [run] = report.agents[0].runs
    score = run.scores["judge"]
    assert (score.value, score.passed, score.reason) == (0.8, True, "fine")
    assert (run.cost, run.judge_cost, report.agents[0].judge_cost) == (0.01, 0.5, 0.5)
    asked = script.requests[0][0]
    assert '"task": "right"' in asked.messages[0].text
    assert '"answer": "RIGHT"' in asked.messages[0].text
    assert (await evaluate(make_agent(), CASES[:1], scorers, store=store)).to_json() == report.to_json()
    assert script.asked == 1


@pytest.mark.parametrize("told", ['{"reason": "x", "points": 11}', "no JSON"])
async def test_a_judge_without_a_judgement_fails_the_case_and_is_asked_again_later(told: str) -> None:
    store = MemoryStore()
    bad = judge("Fair?", ScriptedModel(told, repeat_last=True).model)
    report = await evaluate(make_agent(), CASES[:1], [bad], store=store)
    score = report.agents[0].runs[0].scores["judge"]
    assert (score.passed, score.error.startswith("JudgeFailed: ")) == (False, True)
    good = judge("Fair?", ScriptedModel('{"reason": "x", "points": 10}').model)
    report = await evaluate(make_agent(), CASES[:1], [good], store=store)
    assert report.agents[0].runs[0].passed


async def test_two_agents_are_compared_case_by_case() -> None:
    cases = [Case(f"word {number}", expected=f"WORD {number}") for number in range(12)]
    report = await evaluate({"a": make_agent(), "b": make_agent("no")}, cases, [equals()])
    passed, scored = report.comparisons
    assert (passed.agent, passed.against, passed.scorer, scored.scorer) == ("b", "a", "passed", "equals")
    assert (passed.before, passed.after, passed.verdict, passed.cases) == (1.0, 0.0, "worse", 12)
    assert passed.p_value == pytest.approx(2 / 2**12)
    assert not report.worse  # that is about a baseline


async def test_replayed_from_cassettes_it_asks_no_model_and_gives_the_same_report(tmp_path: Path) -> None:
    """O8: also with repeats that were answered differently, a judge, and several runs at once."""
    number = 0

    def reply(request: Request) -> Any:
        nonlocal number
        number += 1
        return answer(f"answer {number}", usage=Usage(input=1, output=number, cost=0.1 * number))

    script = ScriptedModel(reply, repeat_last=True)
    judging = ScriptedModel(lambda request: f'{{"reason": "r", "points": {number % 11}}}', repeat_last=True)

    async def play(mode: Any) -> Report:
        return await evaluate(
            Agent(script.model),
            [Case("a", id="a"), Case("b", id="b")],
            [contains("answer"), judge("Good?", judging.model)],
            repeat=3,
            cassettes=Cassettes(tmp_path / "tapes", mode=mode),
            clock=lambda: 0.0,
        )

    recorded = await play("once")
    asked = script.asked, judging.asked
    assert asked == (6, 6)
    first, second = await play("replay"), await play("once")
    assert first.to_json() == second.to_json() == recorded.to_json()
    assert (script.asked, judging.asked) == asked


async def test_a_run_that_differs_from_its_cassette_is_a_crash(tmp_path: Path) -> None:
    script = ScriptedModel("yes", repeat_last=True)
    await evaluate(Agent(script.model), [Case("a")], [contains("yes")], cassettes=tmp_path)
    tape = tmp_path / list_names(tmp_path)[0]
    tape.write_text(tape.read_text().replace('"text":"a"', '"text":"b"'))
    report = await evaluate(Agent(script.model), [Case("a")], [contains("yes")], cassettes=tmp_path)
    assert report.agents[0].crashed == 1
    assert script.asked == 1


async def test_structured_output_is_compared_as_a_value() -> None:
    agent = make_agent('{"total": 5}', output_type={"type": "object", "properties": {"total": {"type": "integer"}}})
    report = await evaluate(agent, [Case("sum", expected={"total": 5})], [equals()])
    assert report.agents[0].passed == 1


async def test_progress_tells_each_run() -> None:
    told: list[Progress] = []
    await evaluate(make_agent(), CASES, [contains()], progress=told.append, concurrency=2)
    assert [(news.done, news.total) for news in told] == [(1, 3), (2, 3), (3, 3)]
    assert sorted(news.run.case for news in told) == ["case-1", "case-2", "case-3"]


async def test_at_most_so_many_run_at_once() -> None:
    running = most = 0

    async def slow(run: CaseRun) -> Score:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return Score(1.0, passed=True)

    cases = [Case(f"{number}") for number in range(9)]
    assert (await evaluate(make_agent(), cases, [slow], concurrency=3)).agents[0].passed == 9
    assert most == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"repeat": 0}, "repeat is a whole number from 1 on, got 0."),
        ({"concurrency": True}, "concurrency is a whole number from 1 on, got True."),
        ({"agent": {}}, "At least one agent is needed"),
    ],
)
async def test_a_mistake_raises_before_anything_runs(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        await evaluate(arguments.pop("agent", make_agent()), CASES, [contains()], **arguments)


async def test_what_is_no_agent_or_scorer_is_refused() -> None:
    odd: Any = "gpt-5"
    with pytest.raises(TypeError, match="An agent is an Agent, or a function"):
        await evaluate(odd, CASES, [contains()])
    with pytest.raises(TypeError, match="A scorer is a function of the finished run"):
        await evaluate(make_agent(), CASES, [odd])


def test_it_runs_without_an_event_loop() -> None:
    report = evaluate_sync(make_agent(), Dataset(CASES, scorers=[contains()], name="sync"))
    assert (report.name, report.agents[0].passed) == ("sync", 1)
