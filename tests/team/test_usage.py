"""What everything cost together is what the parent says it cost: each request once, whichever agent made it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.loop.toolbox import echo

from steersman import Agent, Branching, ExecutionLimits, Request, Retry, Usage, run_branches
from steersman.testing import ScriptedModel, answer, call, error, run_virtual
from steersman.types.usage import Prices

UNLIMITED = ExecutionLimits(
    max_turns=None,
    max_total_tokens=None,
    max_duration=None,
    max_sub_agents=None,
    max_sub_agents_at_once=None,
    max_sub_agent_depth=None,
)


class Bill:
    """Counts what the scripted servers were asked for, on their side."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.requests = 0

    def turn(self, tokens: int, turn: Any) -> Any:
        """A turn that costs so much when it is played."""
        usage = Usage(input=tokens, output=tokens + 1, cache_read=2)

        def played(request: Request) -> Any:
            del request
            self.requests += 1
            self.usage = self.usage + usage
            return turn(usage)

        return played


# A tree of agents: what each request costs, how often one fails first, and the trees below.
TREES = st.recursive(
    st.fixed_dictionaries({"tokens": st.integers(1, 500), "fails": st.integers(0, 1), "below": st.just([])}),
    lambda inner: st.fixed_dictionaries(
        {"tokens": st.integers(1, 500), "fails": st.integers(0, 2), "below": st.lists(inner, max_size=3)}
    ),
    max_leaves=8,
)


def agent_for(tree: dict[str, Any], bill: Bill, **options: Any) -> Agent:
    """An agent that asks all agents below at once, uses a tool, and answers."""
    tokens: int = tree["tokens"]
    tools = [agent_for(below, bill).as_tool(f"ask_{n}", "Ask.") for n, below in enumerate(tree["below"])]
    calls = [call(tool.name, prompt="go") for tool in tools] or [call("echo", text="x")]
    script = ScriptedModel(
        *[bill.turn(tokens, lambda usage: error("overloaded", "half", after=1, usage=usage))] * tree["fails"],  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]  # a usage
        bill.turn(tokens, lambda usage: answer(*calls, usage=usage)),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]  # as above
        bill.turn(tokens, lambda usage: answer("done", usage=usage)),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]  # as above
        prices=Prices(input=3, output=15, cache_read=0.3),
    )
    retry = Retry(max_attempts=5, base_delay=0)
    return Agent(script.model, tools=[*tools, echo], limits=UNLIMITED, retry=retry, **options)


@given(TREES)
def test_the_usage_of_a_run_is_the_sum_of_all_requests_below_it(tree: dict[str, Any]) -> None:
    """failures.md I10, S10: retries and sub-agents at any depth, each counted once."""

    async def work() -> None:
        bill = Bill()
        result = await agent_for(tree, bill).run("go")
        assert (result.end_reason, result.text) == ("done", "done")
        assert _tokens(result.usage) == _tokens(bill.usage)
        expected = (bill.usage.input or 0) * 3 + (bill.usage.output or 0) * 15 + (bill.usage.cache_read or 0) * 0.3
        assert abs((result.cost or 0) - expected / 1_000_000) < 1e-9

    run_virtual(work())


@given(st.lists(TREES, min_size=1, max_size=3), st.booleans())
def test_the_usage_of_branches_is_the_sum_of_all_requests_and_of_the_judge(
    trees: list[dict[str, Any]], judged: bool
) -> None:
    """failures.md I10"""

    async def work() -> None:
        bill = Bill()
        main = Agent(ScriptedModel().model)
        makes = [agent_for(tree, bill) for tree in trees]
        ways = [
            Branching("go", model=one.config.model, tools=one.tools, limits=UNLIMITED, retry=Retry(5, 0))
            for one in makes
        ]
        verdict = bill.turn(7, lambda usage: answer('{"index": 0}', usage=usage))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]  # a usage
        judge = Agent(ScriptedModel(verdict).model)
        result = await run_branches(main.variant(limits=UNLIMITED), ways, choose=judge if judged else _first)
        assert result.chosen is result.branches[0]
        assert _tokens(result.usage) == _tokens(bill.usage)

    run_virtual(work())


def _first(branches: Any) -> int:
    del branches
    return 0


def _tokens(usage: Usage) -> tuple[Any, ...]:
    return usage.input, usage.output, usage.cache_read, usage.total
