"""The options of an agent: typed, with one meaning of `None`, and refused with a hint when they are not known."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from functools import partial
from typing import Any, cast

import pytest

from steersman import (
    Agent,
    AgentLoopConfig,
    ContextConfig,
    ExecutionLimits,
    Retry,
    Tool,
    ToolResultMessage,
    UserMessage,
    get_model,
    tool,
)
from steersman.agent.options import AgentOptions, ChangeableOptions, MoreOptions
from steersman.policy import RepeatedCalls
from steersman.testing import ScriptedModel, error

NAMED = {
    name
    for name, parameter in inspect.signature(Agent.__init__).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY or name == "model"
}
FIELDS = {field.name for field in fields(AgentLoopConfig) if field.init}
SPELLED = {"execution_limits", "retry_strategy"}


def test_the_types_of_the_options_follow_the_configuration() -> None:
    """api.md: what is behind `**options` is every option of `AgentLoopConfig` that the signature does not name."""
    assert set(MoreOptions.__annotations__) == FIELDS - NAMED
    assert FIELDS - set(MoreOptions.__annotations__) | SPELLED == FIELDS & NAMED | SPELLED
    assert set(AgentOptions.__annotations__) == set(MoreOptions.__annotations__) | NAMED
    assert set(AgentOptions.__annotations__) - set(ChangeableOptions.__annotations__) == {"output_type"}
    assert MoreOptions.__required_keys__ == frozenset()


def test_an_option_has_the_same_type_in_the_configuration() -> None:
    """api.md: an editor completes it and a type checker refuses a wrong one."""
    of_config = {field.name: str(field.type) for field in fields(AgentLoopConfig)}
    typed = {name: hint.__forward_arg__ for name, hint in MoreOptions.__annotations__.items()}
    assert typed == {name: of_config[name] for name in typed}


def test_the_defaults_stand_in_the_signature_as_values() -> None:
    """api.md: the defaults stand in the signature as values."""
    usual = inspect.signature(Agent.__init__).parameters
    assert (usual["limits"].default, usual["retry"].default) == (ExecutionLimits(), Retry())
    assert usual["context_config"].default == ContextConfig()
    agent = Agent(ScriptedModel("x").model)
    assert (agent.config.execution_limits, agent.config.retry_strategy) == (ExecutionLimits(), Retry())


@pytest.mark.parametrize("short", ["limits", "retry", "context_config"])
def test_none_switches_off(short: str) -> None:
    """api.md: one meaning of `None`, on `Agent` and on `AgentLoopConfig` alike."""
    model = ScriptedModel("x").model
    name = {"limits": "execution_limits", "retry": "retry_strategy"}.get(short, short)
    for spelling in {short, name}:
        off: Any = {spelling: None}
        assert getattr(Agent(model, **off).config, name) is None
        assert getattr(AgentLoopConfig(model=model, **off), name) is None
        assert getattr(Agent(model).variant(**off).config, name) is None
        agent = Agent(model)
        agent.configure(**off)
        assert getattr(agent.config, name) is None


async def test_without_retry_a_failure_is_final() -> None:
    """api.md: `retry=None` switches it off."""
    script = ScriptedModel(error("overloaded"), "Hello.")
    assert (await Agent(script.model, retry=None).run("Hi")).end_reason == "error"
    assert script.asked == 1


def test_a_configuration_has_no_limits_and_no_context_unless_given_but_retries() -> None:
    """api.md, rulings: `AgentLoopConfig` is the seeds'."""
    config = AgentLoopConfig(model=ScriptedModel("x").model)
    assert (config.execution_limits, config.context_config, config.retry_strategy) == (None, None, Retry())


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"limits": ExecutionLimits(max_turns=2)}, "execution_limits", ExecutionLimits(max_turns=2)),
        ({"execution_limits": ExecutionLimits(max_turns=2)}, "execution_limits", ExecutionLimits(max_turns=2)),
        ({"retry": Retry(max_attempts=9)}, "retry_strategy", Retry(max_attempts=9)),
        ({"retry_strategy": Retry(max_attempts=9)}, "retry_strategy", Retry(max_attempts=9)),
    ],
)
def test_both_spellings_are_taken(given: dict[str, Any], name: str, value: object) -> None:
    """api.md: the seeds' names and the short ones are taken by both."""
    model = ScriptedModel("x").model
    assert getattr(Agent(model, **given).config, name) == value
    assert getattr(AgentLoopConfig(model=model, **given), name) == value


@pytest.mark.parametrize(
    "both",
    [
        {"limits": ExecutionLimits(), "execution_limits": None},
        {"limits": None, "execution_limits": ExecutionLimits()},
        {"retry": Retry(), "retry_strategy": Retry()},
    ],
)
def test_both_spellings_at_once_are_an_error_that_names_the_two(both: dict[str, Any]) -> None:
    """api.md: giving both spellings is an error that names the two."""
    short, name = both
    model = ScriptedModel("x").model
    agent = Agent(model)
    calls: list[Any] = [partial(Agent, model), partial(AgentLoopConfig, model=model), agent.configure, agent.variant]
    for call in calls:
        with pytest.raises(TypeError, match=f"'{short}' and '{name}'"):
            call(**both)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("befor_turn", "before_turn"),
        ("exection_limits", "execution_limits"),
        ("limit", "limits"),
        ("max_token", "max_tokens"),
        ("tool_timout", "tool_timeout"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(wrong: str, meant: str) -> None:
    """api.md: every unknown option gets "did you mean"."""
    model = ScriptedModel("x").model
    agent = Agent(model)
    bad: Any = {wrong: None}
    for owner, call in (
        ("Agent", lambda: Agent(model, **bad)),
        ("AgentLoopConfig", lambda: AgentLoopConfig(model=model, **bad)),
        (r"configure\(\)", lambda: agent.configure(**bad)),
        (r"variant\(\)", lambda: agent.variant(**bad)),
    ):
        with pytest.raises(TypeError, match=f"{owner} has no option '{wrong}'. Did you mean '{meant}'?"):
            call()


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ("max_turns", "limits=ExecutionLimits(max_turns=...)"),
        ("max_attempts", "retry=Retry(max_attempts=...)"),
        ("max_context_tokens", "context_config=ContextConfig(max_context_tokens=...)"),
    ],
)
def test_an_option_of_a_value_says_which_value(wrong: str, place: str) -> None:
    """Bad input gets a clear error."""
    bad: Any = {wrong: 3}
    with pytest.raises(TypeError) as raised:
        Agent("scripted:x", **bad)
    assert place in str(raised.value)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("tools", "AgentContext(tools=...)"),
        ("system_prompt", "AgentContext(system_prompt=...)"),
        ("messages", "AgentContext(messages=...)"),
        ("api_key", "get_model('provider:model-id', api_key=...)"),
        ("output_type", "Agent(..., output_type=...)"),
    ],
)
def test_a_configuration_says_where_an_option_of_an_agent_belongs(name: str, place: str) -> None:
    """api.md, the loop without the shell: the context has the tools, the system prompt and the messages."""
    bad: Any = {name: ()}
    with pytest.raises(TypeError) as raised:
        AgentLoopConfig(model=ScriptedModel("x").model, **bad)
    assert str(raised.value) == f"AgentLoopConfig has no option {name!r}. It belongs elsewhere: {place}."


@pytest.mark.parametrize("name", ["limits", "execution_limits", "retry", "retry_strategy"])
def test_a_wrong_value_is_refused_under_the_name_the_caller_wrote(name: str) -> None:
    """api.md: both spellings are taken."""
    model, bad = ScriptedModel("x").model, {name: 3}
    calls: list[Any] = [partial(Agent, model), partial(AgentLoopConfig, model=model), Agent(model).configure]
    for call in calls:
        with pytest.raises(TypeError, match=f"^{name} is an? (ExecutionLimits|Retry).* or None, got 3"):
            call(**bad)


@pytest.mark.parametrize(
    ("kind", "wrong", "meant"),
    [
        (ExecutionLimits, "max_turn", "max_turns"),
        (Retry, "maxAttempts", "max_attempts"),
        (ContextConfig, "max_tokens", "max_context_tokens"),
        (RepeatedCalls, "nudge", "nudge_after"),
        (UserMessage, "contents", "content"),
        (ToolResultMessage, "toolCallId", "tool_call_id"),
    ],
)
def test_an_unknown_field_of_a_value_is_refused_with_the_nearest(kind: Any, wrong: str, meant: str) -> None:
    """api.md: did you mean, also for the values that options take."""
    with pytest.raises(TypeError, match=f"^{kind.__name__} takes no '{wrong}'. Did you mean '{meant}'?"):
        kind(**{wrong: 3})


@pytest.mark.parametrize(("wrong", "meant"), [("time_out", "timeout"), ("needsApproval", "needs_approval")])
def test_an_unknown_setting_of_a_tool_is_refused_with_the_nearest(wrong: str, meant: str) -> None:
    """As above: of `@tool`, of `Tool` and of a sub-agent."""
    bad: Any = {wrong: True}

    def look() -> str:
        """Look."""
        return ""

    agent = Agent(ScriptedModel("x").model)
    for call in (
        lambda: tool(**bad)(look),
        lambda: Tool("look", "Look.", {"type": "object"}, look, **bad),
        lambda: agent.as_tool("a", "An agent.", **bad),
    ):
        with pytest.raises(TypeError, match=f"^Tool takes no '{wrong}'. Did you mean '{meant}'?"):
            call()


@pytest.mark.parametrize("kind", [ExecutionLimits, Retry, ContextConfig, RepeatedCalls, Tool])
def test_the_signature_of_a_value_stays_readable(kind: Any) -> None:
    """An editor and `help` show it."""
    assert not {"values", "options"} & set(inspect.signature(kind).parameters)


def test_an_option_that_resembles_none_gets_the_list() -> None:
    """Bad input gets a clear error."""
    bad: Any = {"zzz": 3}
    with pytest.raises(TypeError, match=r"The options are: after_compaction_end, .*, tools?_"):
        AgentLoopConfig(model=ScriptedModel("x").model, **bad)


def test_a_context_config_may_say_no_size() -> None:
    """api.md: `ContextConfig()` takes its size from elsewhere, and works where no window is known."""
    assert Agent(ScriptedModel("x", "y").model, context_config=ContextConfig()).run_sync("Hi").text == "x"


@pytest.mark.parametrize(("short", "long"), [("limits", "execution_limits"), ("retry", "retry_strategy")])
def test_both_spellings_can_be_read_and_replaced(short: str, long: str) -> None:
    """api.md: the seeds' names and the short ones are taken alike."""
    old: Any = ExecutionLimits(max_turns=1) if short == "limits" else Retry(max_attempts=1)
    new: Any = ExecutionLimits(max_turns=2) if short == "limits" else Retry(max_attempts=2)
    for given in (short, long):
        config = AgentLoopConfig(**cast(Any, {"model": "scripted:echo", given: old}))
        assert getattr(config, short) is getattr(config, long) is old
        for changed in (short, long):
            for value in (new, None):
                found = replace(config, **cast(Any, {"temperature": 0.5, changed: value}))
                assert getattr(found, short) is getattr(found, long) is value
                assert (found.temperature, found.model) == (0.5, config.model)
        assert getattr(replace(config, temperature=1.0), short) is old
        for both in ({short: new, long: new}, {"model": config.model, long: new, short: new}):
            with pytest.raises(TypeError, match=f"got '{short}' and '{long}', which are the same option"):
                replace(config, **cast(Any, both))
        every = {name: getattr(config, name) for name in FIELDS}
        with pytest.raises(TypeError, match="which are the same option"):
            AgentLoopConfig(**cast(Any, {**every, short: new}))


def test_both_options_can_be_replaced_at_once_by_their_short_names() -> None:
    """As above."""
    config = AgentLoopConfig(model=get_model("scripted:echo"), limits=ExecutionLimits(), retry=None)
    found = replace(config, limits=None, retry=Retry(max_attempts=7))
    assert (found.execution_limits, found.retry_strategy) == (None, Retry(max_attempts=7))


async def test_any_provider_will_do_where_there_is_a_function_to_ask() -> None:
    """api.md: `stream_fn` takes the place of the model's provider."""
    script = ScriptedModel("hello", "again")
    agent = Agent("nowhere:x", stream_fn=script, fallbacks=["elsewhere:y"])
    assert (await agent.run("Hi")).text == "hello"
    agent.configure(model="somewhere:z")
    assert (await agent.run("Hi")).text == "again"
