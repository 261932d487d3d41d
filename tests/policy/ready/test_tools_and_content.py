"""The allow-list of tools and the content filter, by function and by model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from steersman import Agent, AgentMessage, tool
from steersman.policy import ContentFilter, ModelJudge, ToolAllowList
from steersman.testing import ScriptedModel, answer, call, error
from steersman.types import Prices, Usage

ran: list[str] = []


@tool
def look() -> str:
    """Look."""
    return "a red house"


@tool
def remove() -> str:
    """Remove it."""
    ran.append("remove")
    return "removed"


def test_tools_that_are_not_allowed_now_are_hidden_and_denied() -> None:
    ran.clear()

    def allowed(messages: Sequence[AgentMessage]) -> Iterable[str]:
        return ["look", "re*"] if any("please" in message.text for message in messages) else ["look"]

    tools = ToolAllowList(allowed)
    script = ScriptedModel(answer(call("remove"), call("look")), "Done.", repeat_last=True)
    agent = Agent(script.model, tools=[look, remove], pre_dispatch_policies=[tools], stream_fn=tools.wrap(script))
    result = agent.run_sync("Remove it.")

    assert [spec.name for spec in script.requests[0][0].tools] == ["look"]
    assert [message.text for message in result.tool_results] == [
        "Denied: the tool 'remove' is not available here.",
        "a red house",
    ]
    assert ran == []
    agent.run_sync("Remove it, please.")
    assert [spec.name for spec in script.requests[-1][0].tools] == ["look", "remove"]


@pytest.mark.parametrize("says", ["look", None, RuntimeError("no database")])
def test_an_allow_list_that_fails_denies(says: object) -> None:
    ran.clear()

    def allowed(messages: Sequence[AgentMessage]) -> Iterable[str]:
        if isinstance(says, Exception):
            raise says
        return says  # pyright: ignore[reportReturnType]  # a text, or nothing, in place of names

    script = ScriptedModel(answer(call("remove")), "Done.")
    tools = ToolAllowList(allowed)
    result = Agent(script.model, tools=[remove], pre_dispatch_policies=[tools]).run_sync("Go.")
    assert (ran, result.tool_results[0].details["status"]) == ([], "denied")
    hidden = Agent(script.model, tools=[remove], stream_fn=tools.wrap(script), retry=None).run_sync("Go.")
    assert hidden.end_reason == "error"


def refuse_red(text: str) -> str | None:
    return "it is red" if "red" in text else None


def test_a_function_refuses_prompts_results_and_answers() -> None:
    content = ContentFilter(refuse_red)
    script = ScriptedModel(answer(call("look")), "It is red.", "Never said.")
    agent = Agent(script.model, tools=[look], hooks=[content], input_filters=[content.filter])
    rejected = agent.run_sync("Is it red?")
    assert (rejected.end_reason, rejected.detail) == ("rejected", "it is red")
    result = agent.run_sync("Which colour?")
    assert result.tool_results[0].text == "Withheld by a content filter: it is red"
    assert (result.end_reason, result.detail) == ("stopped", "A content filter refused the answer: it is red")


def test_only_the_places_of_choice_are_judged() -> None:
    content = ContentFilter(refuse_red, places=["tool_result"])
    script = ScriptedModel(answer(call("look")), "It is red.")
    agent = Agent(script.model, tools=[look], hooks=[content], input_filters=[content.filter])
    assert agent.run_sync("Is it red?").end_reason == "done"
    with pytest.raises(ValueError, match="places"):
        ContentFilter(refuse_red, places=["everywhere"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="ContentFilter takes a function of a text"):
        ContentFilter("red")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("says", [RuntimeError("down"), True, False, 0])
def test_a_judge_that_fails_refuses(says: object) -> None:
    def judge(text: str) -> str | None:
        if isinstance(says, Exception):
            raise says
        return says  # pyright: ignore[reportReturnType]  # neither None nor a reason

    content = ContentFilter(judge)
    script = ScriptedModel(answer(call("look")), "Done.")
    assert Agent(script.model, input_filters=[content.filter]).run_sync("Hello").end_reason == "rejected"
    result = Agent(script.model, tools=[look], hooks=[ContentFilter(judge, places=["tool_result"])]).run_sync("Go.")
    assert "red house" not in result.tool_results[0].text


def judge_with(*said: object) -> tuple[ModelJudge, ScriptedModel, list[Usage]]:
    reported: list[Usage] = []
    script = ScriptedModel(*said, usage=Usage(input=10, output=2), prices=Prices(input=1e6, output=0))  # pyright: ignore[reportArgumentType]
    judge = ModelJudge(script.model, "No colours.", stream_fn=script, report_usage=reported.append)
    return judge, script, reported


async def test_a_model_judges_with_structured_output_and_its_cost_counts() -> None:
    judge, script, reported = judge_with('{"allowed": true, "reason": ""}', '{"allowed": false, "reason": "a colour"}')
    assert (await judge("a house"), await judge("a red house")) == (None, "a colour")
    assert (judge.usage.cost, [usage.cost for usage in reported]) == (20.0, [10.0, 10.0])
    request, options = script.requests[0]
    assert "No colours." in request.system_prompt
    assert options.output_schema is not None
    assert "\na house\n" in request.messages[0].text


@pytest.mark.parametrize(
    "said",
    ["I think it is fine.", "{}", '{"allowed": "yes", "reason": ""}', '{"allowed": true, "reason": "", "x": 1}',
     error("invalid_request", "no"), answer('{"allowed": true, "reason": ""}', stop_reason="length")],
    ids=["prose", "empty", "text", "more", "error", "length"],
)  # fmt: skip
async def test_a_model_without_a_judgement_refuses(said: object) -> None:
    judge, script, _ = judge_with(said)
    agent = Agent(ScriptedModel("Never said.").model, input_filters=[ContentFilter(judge).filter])
    result = await agent.run("a house")
    assert (result.end_reason, "gave no judgement" in result.detail, script.asked) == ("rejected", True, 1)


async def test_a_model_that_takes_too_long_refuses() -> None:
    script = ScriptedModel('{"allowed": true, "reason": ""}', pace=100.0)
    judge = ModelJudge(script.model, "No colours.", stream_fn=script, timeout=5)
    agent = Agent(ScriptedModel("Never said.").model, input_filters=[ContentFilter(judge).filter])
    result = await agent.run("a house")
    assert (result.end_reason, "within 5s" in result.detail) == ("rejected", True)
