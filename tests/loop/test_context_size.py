"""A request that would not fit is made shorter before it is sent: system prompt, tool schemas and messages count."""

from __future__ import annotations

from typing import Any

import pytest
from tests.loop.test_compaction import history
from tests.loop.toolbox import agent_of, echo

from steersman import (
    AgentContext,
    AgentLoopConfig,
    ContextConfig,
    Model,
    Request,
    Tool,
    ToolContext,
    Usage,
    agent_loop,
)
from steersman.context.tokens import estimate_total_tokens
from steersman.testing import EventCollector, ScriptedModel, answer, call, error
from steersman.types.events import AgentStart, CompactionEnded, CompactionStarted
from steersman.types.messages import AgentMessage, user_message


def wide_tool(characters: int) -> Tool:
    """A tool whose schema has so many characters."""

    async def execute(arguments: dict[str, Any], ctx: ToolContext) -> str:
        return "done"

    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "x" * characters}}}
    return Tool("wide", "A tool with a long description.", schema, execute)


def size_of(request: Request) -> int:
    """The characters of the messages."""
    return sum(len(message.text) for message in request.messages)


async def test_the_size_is_taken_from_the_window_of_the_model() -> None:
    """api.md: `ContextConfig()` takes its size from the model and compacts before a request would not fit."""
    script = ScriptedModel("ok", context_window=4_000)
    agent, heard = agent_of(script, [echo], messages=history(12, 4_000), context_config=ContextConfig())
    result = await agent.run("go on")
    assert (result.end_reason, len(heard.of(CompactionStarted))) == ("done", 1)
    assert estimate_total_tokens(script.requests[0][0].messages) < 4_000
    snapshot = heard.of(AgentStart)[0].config_snapshot
    assert snapshot is not None
    assert snapshot.context == {"max_context_tokens": 3_500}


async def test_a_context_that_fits_the_window_is_left_alone() -> None:
    """api.md: compaction is for what would not fit."""
    script = ScriptedModel("ok", context_window=100_000)
    agent, heard = agent_of(script, [echo], messages=history(12, 4_000), context_config=ContextConfig())
    await agent.run("go on")
    assert (heard.of(CompactionStarted), size_of(script.requests[0][0]) > 48_000) == ([], True)


async def test_without_a_known_window_only_an_overflow_compacts() -> None:
    """api.md: managed when the model's window is known; loop.md C5 stays."""
    script = ScriptedModel("ok", error("context_overflow"), "yes")
    agent, heard = agent_of(script, [echo], messages=history(12, 4_000), context_config=ContextConfig())
    await agent.run("go on")
    assert (heard.of(CompactionStarted), size_of(script.requests[0][0]) > 48_000) == ([], True)
    assert ((await agent.run("more")).text, len(heard.of(CompactionStarted))) == ("yes", 1)


async def test_none_switches_it_off_and_an_overflow_still_compacts() -> None:
    """api.md: `context_config=None` switches it off; overflow recovery after a provider's refusal stays."""
    script = ScriptedModel(error("context_overflow"), "ok", context_window=4_000)
    agent, heard = agent_of(script, [echo], messages=history(12, 4_000), context_config=None)
    assert (await agent.run("go on")).text == "ok"
    assert [size_of(request) > 40_000 for request, _ in script.requests] == [True, False]
    assert len(heard.of(CompactionStarted)) == 1


async def test_a_loop_without_a_context_config_does_not_manage_the_context() -> None:
    """api.md: on `AgentLoopConfig` context management is off unless given."""
    script = ScriptedModel("ok", context_window=4_000)
    context = AgentContext(messages=history(12, 4_000), tools=[echo])
    await agent_loop("go on", context, AgentLoopConfig(model=script.model))
    assert size_of(script.requests[0][0]) > 48_000


@pytest.mark.parametrize(
    ("model", "max_tokens", "size"),
    [
        (Model("p", "m", context_window=200_000, max_output_tokens=64_000), None, 175_000),
        (Model("p", "m", context_window=200_000, max_output_tokens=4_000), None, 196_000),
        (Model("p", "m", context_window=200_000, max_output_tokens=64_000), 64_000, 136_000),
        (Model("p", "m", context_window=8_000), 100_000, 4_000),
        (Model("p", "m", context_window=8_000), None, 7_000),
        (Model("p", "m", context_window=1), None, 1),
        (Model("p", "m"), 100, None),
    ],
    ids=str,
)
def test_the_answer_keeps_a_share_of_the_window(model: Model, max_tokens: int | None, size: int | None) -> None:
    """api.md: the size is that of the model, less the token budget of the answer."""
    assert ContextConfig().find_size(model, max_tokens) == size
    assert ContextConfig(max_context_tokens=50).find_size(model, max_tokens) == 50


@pytest.mark.parametrize(
    "options",
    [{"system_prompt": "x" * 20_000}, {"tools": [echo, wide_tool(20_000)]}, {}],
    ids=["system prompt", "tool schemas", "neither"],
)
async def test_the_system_prompt_and_the_tool_schemas_count(options: dict[str, Any]) -> None:
    """api.md: the system prompt and the tool schemas are counted."""
    script = ScriptedModel("ok")
    agent, heard = agent_of(
        script,
        messages=history(4, 4_000),
        context_config=ContextConfig(max_context_tokens=8_000),
        **{"tools": [echo], **options},
    )
    result = await agent.run("go on")
    assert result.end_reason == "done"
    if not options:
        assert heard.of(CompactionStarted) == []
        return
    (started,), (ended,) = heard.of(CompactionStarted), heard.of(CompactionEnded)
    messages = [*history(4, 4_000), user_message("go on")]
    assert started.estimated_tokens >= estimate_total_tokens(messages) + 5_000
    # What is told about the compaction counts the same things as the limit.
    assert (ended.tokens_before, ended.reduced) == (started.estimated_tokens, True)
    assert 5_000 < ended.tokens_after <= 6_400


async def test_a_system_prompt_over_the_limit_compacts_what_can_be_and_is_sent(caplog: Any) -> None:
    """api.md: seen before, a 10k-token system prompt with a limit of 5,000 caused no compaction.

    No compaction helps against it: one log line says what to do, and it is tried again only when the context has grown.
    """
    script = ScriptedModel(*[answer(call("echo", text=str(number))) for number in range(8)], "ok")
    agent, heard = agent_of(
        script,
        [echo],
        system_prompt="x" * 40_000,
        messages=history(4, 4_000),
        context_config=ContextConfig(max_context_tokens=5_000, keep_recent=1),
    )
    result = await agent.run("go on")
    assert (result.end_reason, script.asked) == ("done", 9)
    assert [event.reduced for event in heard.of(CompactionEnded)] == [True]
    assert size_of(script.requests[0][0]) < 8_000
    assert caplog.text.count("shorten the system prompt or the tools") == 1


async def test_what_does_not_fit_the_window_of_a_model_is_sent_and_the_provider_decides(caplog: Any) -> None:
    """api.md: a size taken from the model is an estimate; the run is not ended because of it."""
    script = ScriptedModel("ok", context_window=4_000)
    agent, heard = agent_of(script, context_config=ContextConfig())
    result = await agent.run("x" * 40_000)
    assert (result.text, [event.reduced for event in heard.of(CompactionEnded)]) == ("ok", [False])
    assert "more than the 3500 there is room for" in caplog.text

    script = ScriptedModel(error("context_overflow"), context_window=4_000)
    agent, heard = agent_of(script, system_prompt="x" * 40_000, context_config=ContextConfig())
    result = await agent.run("go on")
    assert (result.end_reason, script.asked) == ("error", 1)


async def test_the_limit_a_caller_gave_is_kept_and_the_error_says_what_is_in_the_way() -> None:
    """loop.md C3"""
    script = ScriptedModel("never said")
    agent, _ = agent_of(
        script, system_prompt="x" * 4_000, context_config=ContextConfig(max_context_tokens=4_000, threshold=0.5)
    )
    result = await agent.run("x" * 40_000)
    assert (result.end_reason, script.asked) == ("error", 0)
    assert result.detail.startswith("The context has about 11008 tokens (1004 of them system prompt and tool schemas)")


async def test_a_usage_counts_the_head_once_and_a_longer_head_is_noticed() -> None:
    """loop.md C4: a reported usage has the system prompt and the tools in it already."""
    counted: list[int] = []

    def note(tokens: int, count: int) -> bool:
        counted.append(tokens)
        return False

    script = ScriptedModel(answer("one", usage=Usage(input=9_000, output=10)), answer("two"), answer("three"))
    agent, _ = agent_of(
        script,
        system_prompt="x" * 20_000,
        context_config=ContextConfig(max_context_tokens=8_000),
        before_compaction_start=note,
    )
    await agent.run("a")
    await agent.run("b" * 400)
    agent.context.system_prompt = "x" * 28_000
    await agent.run("c")
    assert counted == [9_010 + 104, 9_010 + 104 + 5 + 5 + 2_000]


async def test_the_head_is_measured_again_only_when_it_changes() -> None:
    """api.md: the cost of a turn does not grow."""
    measured: list[int] = []

    def estimator(message: AgentMessage) -> int:
        measured.append(len(message.text))
        return len(message.text)

    script = ScriptedModel(*[answer(call("echo", text="x")) for _ in range(3)], "ok", "ok", "ok")
    config = ContextConfig(max_context_tokens=1_000_000, estimator=estimator)
    agent, _ = agent_of(script, [echo], system_prompt="x" * 50_000, context_config=config)
    await agent.run("a")
    await agent.run("b")
    assert measured.count(50_000) == 1
    agent.context.system_prompt = "y" * 50_000
    await agent.run("c")
    assert measured.count(50_000) == 2


async def test_a_context_just_over_its_limit_is_compacted_again_before_it_is_over_its_size() -> None:
    """loop.md C3: a pass that freed too little is repeated when the context has grown by a tenth, or would not fit."""
    heard = EventCollector()
    script = ScriptedModel(*[answer(call("echo", text="y" * 300)) for _ in range(12)], "ok")
    config = ContextConfig(max_context_tokens=4_000, threshold=0.9, keep_recent=1, old_output_chars=100)
    agent, heard = agent_of(script, [echo], context_config=config)
    await agent.run("x" * 14_500)
    assert len(heard.of(CompactionEnded)) < 12
    assert max(estimate_total_tokens(request.messages) for request, _ in script.requests) <= 4_000


@pytest.mark.parametrize("known", [True, False], ids=["window of the first known", "unknown"])
async def test_the_context_is_fitted_to_a_fallback_with_a_smaller_window(known: bool) -> None:
    """api.md: it compacts before a request would not fit, also for the model that is asked in place of the first."""
    first = ScriptedModel(error("invalid_request"), error("invalid_request"), context_window=200_000 if known else None)
    second = ScriptedModel("ok", context_window=4_000)
    agent, heard = agent_of(
        first, [echo], messages=history(12, 4_000), context_config=ContextConfig(), fallbacks=[second.model]
    )
    result = await agent.run("go on")
    assert (result.end_reason, result.text, second.asked) == ("done", "ok", 1)
    assert estimate_total_tokens(second.requests[0][0].messages) < 4_000
    assert [event.reduced for event in heard.of(CompactionEnded)] == [True]


async def test_a_fallback_is_asked_as_it_is_where_the_context_is_not_managed() -> None:
    """api.md: `context_config=None` switches it off; what does not fit is the server's to refuse."""
    first, second = ScriptedModel(error("invalid_request")), ScriptedModel("ok", context_window=4_000)
    messages = history(12, 4_000)
    agent, heard = agent_of(first, [echo], messages=messages, context_config=None, fallbacks=[second.model])
    assert (await agent.run("go on")).text == "ok"
    assert (heard.of(CompactionStarted), size_of(second.requests[0][0]) > 48_000) == ([], True)
