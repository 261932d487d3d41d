"""An agent can be changed, between runs and while it runs: a change counts from the next turn on."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.rows import each_row

from steersman import (
    Agent,
    AgentBusy,
    AgentContext,
    AgentEvent,
    AgentLoopConfig,
    ContextConfig,
    ExecutionLimits,
    Model,
    RunResult,
    Session,
    TextContent,
    Tool,
    Usage,
    UserMessage,
    agent_loop,
    get_model,
    run_branches,
    tool,
)
from steersman.testing import ScriptedModel, answer, call, error
from steersman.types import AgentMessage


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def said(result: RunResult) -> list[str]:
    return [message.text for message in result.messages]


class Changes:
    """Does something to an agent when a tool of its first turn has ended."""

    def __init__(self, change: Callable[[Agent[Any]], object]) -> None:
        self.agent: Agent[Any] | None = None
        self._change: Callable[[Agent[Any]], object] | None = change

    def __call__(self, event: AgentEvent) -> None:
        if event.type == "tool_execution_end" and self._change is not None and self.agent is not None:
            change, self._change = self._change, None
            change(self.agent)


def watched(agent: Agent[Any], change: Callable[[Agent[Any]], object]) -> Agent[Any]:
    changes = Changes(change)
    changes.agent = agent
    agent.subscribe(changes)
    return agent


# Between runs


async def test_the_model_can_be_changed() -> None:
    """api.md: `agent.model = ...` takes a string or a `Model`."""
    first, second = ScriptedModel("one"), ScriptedModel("two")
    agent = Agent(first.model)
    assert (await agent.run("Hi")).text == "one"
    agent.model = second.model
    assert agent.model == second.model
    assert (await agent.run("Hi")).text == "two"
    assert len(second.requests[0][0].messages) == 3
    agent.model = "openai:gpt-5.5"
    assert agent.model.name == "openai:gpt-5.5"


def test_a_model_of_the_same_provider_keeps_url_and_key() -> None:
    """api.md, rulings: it keeps `base_url` and `api_key` only while the provider stays the same."""
    place = {"base_url": "http://127.0.0.1:1/v1", "api_key": "secret"}
    agent = Agent("openai-chat:one", **cast(Any, place))
    agent.model = "openai-chat:two"
    assert (agent.model.id, agent.model.base_url, agent.model.api_key) == ("two", *place.values())
    agent.model = Model("openai-chat", "three")
    assert (agent.model.id, agent.model.base_url, agent.model.api_key) == ("three", *place.values())
    agent.model = "anthropic:claude-haiku-4-5"
    assert (agent.model.base_url, agent.model.api_key) == (None, None)
    agent.model = "openai-chat:four"
    assert (agent.model.base_url, agent.model.api_key) == (None, None)


def test_the_key_of_one_server_is_not_sent_to_another() -> None:
    """A `Model` that says where it is keeps nothing of the one before it."""
    agent = Agent("openai-chat:one", base_url="http://127.0.0.1:1/v1", api_key="secret")
    agent.model = get_model("openai-chat:two", base_url="http://127.0.0.1:2/v1")
    assert (agent.model.base_url, agent.model.api_key) == ("http://127.0.0.1:2/v1", None)


def test_url_and_key_can_be_changed_and_removed() -> None:
    """api.md: `configure` takes any option of the constructor."""
    agent = Agent("openai-chat:one", api_key="secret")
    agent.configure(base_url="http://127.0.0.1:1/v1")
    assert (agent.model.base_url, agent.model.api_key) == ("http://127.0.0.1:1/v1", "secret")
    agent.configure(base_url=None, api_key=None)
    assert (agent.model.base_url, agent.model.api_key) == (None, None)
    agent.configure(model="anthropic:claude-haiku-4-5", api_key="other")
    assert (agent.model.provider, agent.model.base_url, agent.model.api_key) == ("anthropic", None, "other")


async def test_prompt_tools_and_thinking_can_be_changed() -> None:
    """api.md: `agent.system_prompt`, `agent.tools` and `agent.thinking_level` can be assigned."""
    script = ScriptedModel("one", "two")
    agent = Agent(script.model, tools=[echo], system_prompt="Be brief.")
    await agent.run("Hi")
    agent.system_prompt, agent.tools, agent.thinking_level = "Be long.", [shout], "high"
    await agent.run("Hi")
    asked = [
        (request.system_prompt, [spec.name for spec in request.tools], options.thinking_level)
        for request, options in script.requests
    ]
    assert asked == [("Be brief.", ["echo"], "off"), ("Be long.", ["shout"], "high")]
    assert (agent.system_prompt, agent.tools, agent.thinking_level) == ("Be long.", [shout], "high")


async def test_the_tools_of_the_context_are_those_of_the_agent() -> None:
    """api.md: `agent.context.tools` is the same thing as `agent.tools`."""
    script = ScriptedModel("one", "two", "three")
    agent = Agent(script.model, tools=[echo])
    assert agent.context.tools is agent.tools
    agent.tools.append(shout)
    assert [*agent.context.tools] == [echo, shout]
    await agent.run("Hi")
    agent.context.tools = (shout,)
    assert agent.tools == [shout]
    assert agent.context.tools is agent.tools
    await agent.run("Hi")
    agent.tools.clear()
    await agent.run("Hi")
    shown = [[spec.name for spec in request.tools] for request, _ in script.requests]
    assert shown == [["echo", "shout"], ["shout"], []]


async def test_a_plain_function_becomes_a_tool_also_when_it_is_appended() -> None:
    """api.md: tools are functions or tools."""

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    script = ScriptedModel(answer(call("add", a=2, b=3)), "5", "ok")
    agent = Agent(script.model)
    cast(Any, agent.tools).append(add)
    assert [message.text for message in (await agent.run("Hi")).tool_results] == ["5"]
    agent.tools = [add]
    assert [type(one) for one in agent.tools] == [Tool]


@pytest.mark.parametrize("wrong", [echo, "echo", [3], [echo, echo], [Agent("scripted:x")]])
def test_wrong_tools_are_refused_where_they_are_assigned(wrong: Any) -> None:
    """api.md: checked like in the constructor."""
    agent = Agent(ScriptedModel("x").model, tools=[shout])
    with pytest.raises((TypeError, ValueError)):
        agent.tools = wrong
    assert agent.tools == [shout]


async def test_wrong_tools_that_were_appended_are_refused_by_the_next_prompt() -> None:
    """A programmer's mistake raises."""
    agent = Agent(ScriptedModel("x").model)
    cast(Any, agent.tools).append(3)
    with pytest.raises(TypeError, match="got 3"):
        await agent.run("Hi")
    assert not agent.is_running


async def test_messages_can_be_assigned() -> None:
    """api.md: `agent.messages` reads the transcript and can be assigned."""
    script = ScriptedModel("one", "two")
    agent = Agent(script.model)
    await agent.run("Hi")
    assert [message.text for message in agent.messages] == ["Hi", "one"]
    agent.messages = ["Once upon", {"role": "assistant", "content": "a time"}]
    await agent.run("and then?")
    assert [message.text for message in script.requests[1][0].messages] == ["Once upon", "a time", "and then?"]
    agent.messages += ["More."]
    assert [message.text for message in agent.messages][-2:] == ["two", "More."]
    with pytest.raises(TypeError):
        agent.messages = cast(Any, 3)
    assert len(agent.messages) == 5


@pytest.mark.parametrize("one", ["Hi", {"role": "user", "content": "Hi"}, UserMessage([TextContent("Hi")])], ids=repr)
def test_a_single_message_counts_as_a_list(one: Any) -> None:
    """As where a run is given its prompts, and as `AgentContext` takes them."""
    agent = Agent("scripted:echo", messages=one)
    assert [message.text for message in agent.messages] == ["Hi"]
    agent.messages = one
    assert [message.text for message in agent.messages] == ["Hi"]


async def test_reset_empties_conversation_and_queues() -> None:
    """api.md: `agent.reset()` empties conversation and queues."""
    script = ScriptedModel("one", "two")
    agent = Agent(script.model, system_prompt="Be brief.", tools=[echo])
    await agent.run("Hi")
    receipt = agent.follow_up("And then?")
    agent.reset()
    assert (list(agent.messages), agent.queued.follow_up, receipt.status) == ([], [], "returned")
    with pytest.raises(ValueError, match="nothing to continue"):
        agent.continue_()
    await agent.run("Again")
    request = script.requests[1][0]
    assert ([m.text for m in request.messages], request.system_prompt, len(request.tools)) == (
        ["Again"],
        "Be brief.",
        1,
    )


async def test_usage_and_cost_are_totals_over_the_life_of_the_agent() -> None:
    """api.md: `agent.usage` and `agent.cost` are totals over the agent's life, and outlive a reset."""
    one = Usage(input=10, output=5, cost=0.5)
    script = ScriptedModel(answer("a", usage=one), answer("b", usage=one), answer("c", usage=one))
    agent = Agent(script.model)
    assert (agent.usage, agent.cost) == (Usage(), None)
    await agent.run("Hi")
    agent.reset()
    at_the_end: list[float | None] = []
    agent.subscribe(lambda event: at_the_end.append(agent.cost) if event.type == "agent_end" else None)
    await agent.run("Hi")
    assert (agent.usage.total, agent.cost, at_the_end) == (30, 1.0, [1.0])
    await run_branches(agent, ["this way"])
    assert (agent.usage.total, agent.cost) == (45, 1.5)


@each_row(
    ("changes", "wrong"),
    [
        ({"system_prompt": "New.", "tools": [shout], "thinking_level": "extreme"}, "thinking_level"),
        ({"tools": [shout], "system_prompt": 3}, "system_prompt"),
        ({"system_prompt": "New.", "tools": [3]}, "tool"),
        ({"system_prompt": "New.", "steering_mode": "some"}, "steering_mode"),
        ({"system_prompt": "New.", "messages": 3}, "Messages"),
        ({"system_prompt": "New.", "session": 3}, "session"),
        ({"system_prompt": "New.", "limits": 3}, "limits is an ExecutionLimits"),
        ({"system_prompt": "New.", "model": "nonsense"}, "provider:model-id"),
    ],
)
def test_configure_changes_all_or_nothing(changes: dict[str, Any], wrong: str) -> None:
    """api.md: `configure` checks like the constructor."""
    agent = Agent(ScriptedModel("x").model, tools=[echo], system_prompt="Old.", messages=["Hi"])
    config = agent.config
    with pytest.raises((TypeError, ValueError), match=wrong):
        agent.configure(**cast(Any, changes))
    assert (agent.config, agent.system_prompt, agent.tools, len(agent.messages)) == (config, "Old.", [echo], 1)
    assert agent.config is config


async def test_configure_takes_every_kind_of_option() -> None:
    """api.md: `configure(**changes)` for any option of the constructor."""
    script = ScriptedModel('{"index": 3}', "one", "two")
    agent = Agent(script.model)
    agent.configure(
        output_type=dict[str, int], temperature=0.5, limits=None, steering_mode="all", messages=["Hi"], max_tokens=9
    )
    result = await agent.run("Which?")
    assert result.output == cast(Any, {"index": 3})
    assert (script.requests[0][1].temperature, script.requests[0][1].max_tokens) == (0.5, 9)
    agent.configure(output_type=None)
    assert (await agent.run("Hello")).output == "one"
    assert script.requests[1][1].output_schema is None


# While it runs


async def test_changes_during_a_run_count_from_the_next_turn_on() -> None:
    """api.md: also while it runs; it counts from the next turn."""

    def change(agent: Agent) -> None:
        agent.system_prompt, agent.tools, agent.thinking_level = "Be long.", [shout], "low"
        agent.configure(temperature=0.25)

    script = ScriptedModel(
        answer(call("echo", text="a"), call("echo", text="b")), answer(call("shout", text="c")), "done"
    )
    agent = watched(Agent(script.model, tools=[echo], system_prompt="Be brief."), change)
    result = await agent.run("Hi")
    asked = [
        (request.system_prompt, [spec.name for spec in request.tools], options.thinking_level, options.temperature)
        for request, options in script.requests
    ]
    assert asked == [
        ("Be brief.", ["echo"], "off", None),
        ("Be long.", ["shout"], "low", 0.25),
        ("Be long.", ["shout"], "low", 0.25),
    ]
    assert [message.text for message in result.tool_results] == ["a", "b", "C"]


async def test_the_model_can_be_changed_during_a_run() -> None:
    """api.md: also while it runs; it counts from the next turn."""
    first, second = ScriptedModel(answer(call("echo", text="a"))), ScriptedModel("from the second")

    def change(agent: Agent) -> None:
        agent.model = second.model

    result = await watched(Agent(first.model, tools=[echo]), change).run("Hi")
    assert (result.text, first.asked, second.asked) == ("from the second", 1, 1)


@pytest.mark.parametrize(
    "place", ["turn_start", "message_end", "before_turn", "pre_turn_policies", "transform_context"]
)
async def test_a_change_at_the_beginning_of_a_turn_counts_from_the_next_one(place: str) -> None:
    """api.md: it counts from the next turn, and a turn begins before its `turn_start`."""
    first = ScriptedModel(answer(call("echo", text="a")))
    second = ScriptedModel("from the second")
    agent = Agent(first.model, tools=[echo, shout], system_prompt="Be brief.")

    def change(*_: object) -> None:
        agent.model, agent.system_prompt, agent.tools, agent.thinking_level = second.model, "Be long.", [echo], "low"

    def on_event(event: AgentEvent) -> None:
        if event.type == place:
            change()

    def transform(messages: list[Any]) -> list[Any]:
        change()
        return messages

    agent.subscribe(on_event)
    if place == "before_turn":
        agent.configure(before_turn=change)
    elif place == "pre_turn_policies":
        agent.configure(pre_turn_policies=[change])
    elif place == "transform_context":
        agent.configure(transform_context=transform)
    assert (await agent.run("Hi")).text == "from the second"
    asked = [
        (request.system_prompt, [spec.name for spec in request.tools], options.thinking_level)
        for request, options in [*first.requests, *second.requests]
    ]
    assert asked == [("Be brief.", ["echo", "shout"], "off"), ("Be long.", ["echo"], "low")]


@pytest.mark.parametrize("place", ["before_loop", "agent_start"])
async def test_a_change_before_the_first_turn_counts_in_it(place: str) -> None:
    """As above: the next turn is the first one."""
    second = ScriptedModel("from the second")
    agent = Agent(ScriptedModel("from the first").model)

    def change(*_: object) -> None:
        agent.model, agent.system_prompt = second.model, "Be long."

    def on_event(event: AgentEvent) -> None:
        if event.type == place:
            change()

    agent.subscribe(on_event)
    if place == "before_loop":
        agent.configure(before_loop=change)
    assert (await agent.run("Hi")).text == "from the second"
    assert [request.system_prompt for request, _ in second.requests] == ["Be long."]


async def test_a_list_of_tools_may_be_changed_in_place_during_a_run() -> None:
    """api.md: `agent.context.tools` is the same thing as `agent.tools`."""
    script = ScriptedModel(answer(call("echo", text="a")), answer(call("shout", text="b")), "done")
    agent = watched(Agent(script.model, tools=[echo]), lambda agent: cast(list[Any], agent.context.tools).append(shout))
    assert [message.text for message in (await agent.run("Hi")).tool_results] == ["a", "B"]


async def test_limits_hooks_and_retry_can_be_changed_during_a_run() -> None:
    """api.md: `configure` for any option, also while it runs."""
    calls = [answer(call("echo", text=str(number))) for number in range(9)]
    asked: list[int] = []

    def note(_: object, turn: int) -> None:
        asked.append(turn)

    def change(agent: Agent) -> None:
        agent.configure(limits=ExecutionLimits(max_turns=3), before_turn=note, retry=None)

    agent = watched(Agent(ScriptedModel(*calls).model, tools=[echo]), change)
    result = await agent.run("Hi")
    assert (result.end_reason, result.detail, asked) == ("limit", "Max turns reached (3/3)", [1, 2])


async def test_a_new_duration_is_kept_to_during_a_run() -> None:
    """api.md: it counts from the next turn."""

    @tool
    async def rest() -> str:
        """Take a hundred seconds."""
        rested = asyncio.Event()
        asyncio.get_running_loop().call_later(100, rested.set)
        await rested.wait()
        return "rested"

    def make(before: ExecutionLimits, after: ExecutionLimits | None) -> Agent[Any]:
        script = ScriptedModel(answer(call("echo", text="a")), answer(call("rest")), "done")
        return watched(
            Agent(script.model, tools=[echo, rest], limits=before), lambda agent: agent.configure(limits=after)
        )

    short, usual = ExecutionLimits(max_duration=5), ExecutionLimits()
    assert (await make(usual, short).run("Hi")).end_reason == "limit"
    assert (await make(short, usual).run("Hi")).text == "done"
    assert (await make(short, None).run("Hi")).text == "done"


async def test_queues_and_sources_can_be_changed_during_a_run() -> None:
    """api.md: `configure` for any option, also while it runs."""
    more = [["one more thing"]]
    script = ScriptedModel(answer(call("echo", text="a")), "done", "and that")
    agent = watched(
        Agent(script.model, tools=[echo]),
        lambda agent: agent.configure(get_follow_up_messages=lambda: more.pop() if more else None),
    )
    assert said(await agent.run("Hi"))[-2:] == ["one more thing", "and that"]


async def test_what_cannot_be_changed_during_a_run_says_so() -> None:
    """api.md, rulings: `reset()` and assigning `messages` during a run raise `AgentBusy`."""
    raised: list[str] = []

    def assign(agent: Agent) -> None:
        agent.messages = []

    def change(agent: Agent) -> None:
        for attempt in (agent.reset, lambda: assign(agent), lambda: agent.configure(session="x.db", temperature=1.0)):
            try:
                attempt()
            except AgentBusy as error:
                raised.append(type(error).__name__)

    agent = watched(Agent(ScriptedModel(answer(call("echo", text="a")), "done").model, tools=[echo]), change)
    result = await agent.run("Hi")
    assert (result.text, len(agent.messages), raised, agent.config.temperature) == ("done", 4, ["AgentBusy"] * 3, None)


CHANGES: dict[str, Callable[[Any], object]] = {
    "append": lambda messages: messages.append("x"),
    "extend": lambda messages: messages.extend(["x"]),
    "+=": lambda messages: messages.__iadd__(["x"]),
    "insert": lambda messages: messages.insert(0, "x"),
    "del": lambda messages: messages.__delitem__(0),
    "set": lambda messages: messages.__setitem__(0, "x"),
    "sort": lambda messages: messages.sort(key=id),
    "pop": lambda messages: messages.pop(),
    "clear": lambda messages: messages.clear(),
}


@each_row("change", CHANGES)
@each_row("of", ["agent", "context"])
async def test_the_list_of_messages_cannot_be_changed_during_a_run(change: str, of: str) -> None:
    """api.md, rulings: as assigning them, and reading is free."""
    heard: list[object] = []

    def attempt(agent: Agent) -> None:
        messages = agent.messages if of == "agent" else agent.context.messages
        heard.append(len(messages))
        try:
            CHANGES[change](messages)
        except AgentBusy as error:
            heard.append(str(error))

    agent = watched(Agent(ScriptedModel(answer(call("echo", text="a")), "done").model, tools=[echo]), attempt)
    result = await agent.run("Hi")
    words = (
        "The messages cannot be changed during a run. Use agent.steer() or agent.follow_up(), or wait: "
        "await agent.wait_for_idle()."
    )
    assert (result.text, [message.role for message in agent.messages], heard) == (
        "done",
        ["user", "assistant", "tool_result", "assistant"],
        [2, words],
    )
    CHANGES[change](agent.messages)


async def test_the_list_of_messages_can_be_changed_between_runs() -> None:
    """api.md: `agent.messages` is what the next run goes on from."""
    script = ScriptedModel("one", "two")
    agent = Agent(script.model)
    await agent.run("first")
    del agent.messages[1:]
    agent.messages.insert(0, "Once upon a time.")
    agent.messages[1] = "second"
    agent.messages.append({"role": "assistant", "content": "Yes?"})
    await agent.run("third")
    sent = [message.text for message in script.requests[1][0].messages]
    assert sent == ["Once upon a time.", "second", "Yes?", "third"]


async def test_messages_of_a_bare_loop_stay_the_callers_list() -> None:
    """The loop without the shell has no steering: a tool may add to the messages."""
    context = AgentContext(tools=[])

    @tool
    async def note() -> str:
        """Note something."""
        context.messages.append("noted")
        return "ok"

    context.tools = [note]
    script = ScriptedModel(answer(call("note")), "done")
    result = await agent_loop("Hi", context, AgentLoopConfig(model=script.model))
    assert (result.text, "noted" in [message.text for message in context.messages]) == ("done", True)


async def test_a_wrong_change_during_a_run_raises_and_the_run_goes_on() -> None:
    """A programmer's mistake raises at the call that made it."""
    raised: list[BaseException] = []

    def change(agent: Agent) -> None:
        try:
            agent.model = "unheard-of:model"
        except NotImplementedError as error:
            raised.append(error)

    agent = watched(Agent(ScriptedModel(answer(call("echo", text="a")), "done").model, tools=[echo]), change)
    assert ((await agent.run("Hi")).text, len(raised)) == ("done", 1)


async def test_tools_broken_in_place_end_the_run_as_an_error() -> None:
    """A run always comes to its end."""
    agent = watched(
        Agent(ScriptedModel(answer(call("echo", text="a")), "done").model, tools=[echo]),
        lambda agent: cast(list[Any], agent.context.tools).append(3),
    )
    result = await agent.run("Hi")
    assert result.end_reason == "error"
    assert "got 3" in result.detail


def test_a_change_between_a_prompt_and_its_first_use_counts() -> None:
    """A stream that waits for an event loop starts with what is set then."""
    script, other = ScriptedModel("one"), ScriptedModel(error("overloaded"), "two")
    agent = Agent(script.model)
    stream = agent.prompt("Hi")
    agent.configure(model=other.model, retry=None)

    async def read() -> RunResult:
        return await stream

    assert (asyncio.run(read()).end_reason, script.asked, other.asked) == ("error", 0, 1)


async def test_the_key_of_a_new_model_is_redacted_in_the_same_run(tmp_path: Path) -> None:
    """What a run used as a key is not in its session."""
    first = ScriptedModel(answer(call("echo", text="a")))
    second = ScriptedModel("The key is sk-very-secret-key.")
    keyed = get_model(second.model, api_key=lambda: "sk-very-secret-key")

    def change(agent: Agent) -> None:
        agent.model = keyed

    with Session.create(tmp_path / "s.db") as session:
        result = await watched(Agent(first.model, tools=[echo], session=session), change).run("Hi")
        assert result.end_reason == "done"
        assert not [record for record in session.records() if "sk-very-secret-key" in repr(record)]


# Sessions


async def test_a_reset_begins_a_new_branch_of_the_session(tmp_path: Path) -> None:
    """Nothing of what was said is lost."""
    path = tmp_path / "s.db"
    script = ScriptedModel("one", "two")
    with Agent(script.model, session=path) as agent:
        await agent.run("first")
        agent.reset()
        await agent.run("second")
    with Session.open(path, write=False) as session:
        assert [message.text for message in session.messages] == ["second", "two"]
        assert len(session.tree()) == 2
        other = next(branch for branch in session.tree() if branch.leaf != session.log.entries[-1].id)
        texts = [cast(Any, entry).message.text for entry in session.entries(other.leaf)]
        assert texts == ["first", "one"]


async def test_a_reset_is_there_after_the_program_ends(tmp_path: Path) -> None:
    """A session goes on where it was."""
    path = tmp_path / "s.db"
    with Agent(ScriptedModel("one").model, session=path) as agent:
        await agent.run("first")
        agent.follow_up("later")
        agent.reset()
    with Agent(ScriptedModel("two").model, session=path) as agent:
        assert (list(agent.messages), agent.queued.follow_up) == ([], [])


async def test_assigned_messages_are_a_branch_of_the_session(tmp_path: Path) -> None:
    """Nothing of what was said is lost."""
    path = tmp_path / "s.db"
    with Agent(ScriptedModel("one").model, session=path) as agent:
        await agent.run("first")
        agent.messages = ["other", {"role": "assistant", "content": "words"}]
    with Session.open(path, write=False) as session:
        assert [message.text for message in session.messages] == ["other", "words"]
        assert len(session.tree()) == 2


async def test_edited_messages_are_a_branch_of_the_session(tmp_path: Path) -> None:
    """As above, for a change in place."""
    path = tmp_path / "s.db"
    with Agent(ScriptedModel("one").model, session=path) as agent:
        await agent.run("first")
        agent.messages.append("more")
        del agent.messages[1]
    with Session.open(path, write=False) as session:
        assert [message.text for message in session.messages] == ["first", "more"]
        assert len(session.tree()) == 2


async def test_a_session_can_be_given_later_and_taken_away(tmp_path: Path) -> None:
    """api.md: `configure` for any option of the constructor."""
    agent = Agent(ScriptedModel("one", "two", "three").model)
    await agent.run("first")
    agent.configure(session=tmp_path / "s.db")
    await agent.run("second")
    agent.configure(session=None)
    assert agent.session is None
    await agent.run("third")
    assert len(agent.messages) == 6
    with Session.open(tmp_path / "s.db", write=False) as session:
        assert [message.text for message in session.messages] == ["first", "one", "second", "two"]


async def test_a_variant_has_its_own_tools_and_leaves_the_agent_as_it_is() -> None:
    """Sub-agents are variants."""
    agent = Agent(ScriptedModel("x").model, tools=[echo], messages=["Hi"], context_config=ContextConfig())
    other = agent.variant(steering_mode="all", messages=["Bye"])
    other.tools.append(shout)
    assert (agent.tools, other.tools, [message.text for message in other.messages]) == ([echo], [echo, shout], ["Bye"])


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, list], ids=["copy", "deepcopy", "list"])
@pytest.mark.parametrize("kept", [False, True], ids=["memory", "session"])
async def test_a_copy_of_the_messages_stays_as_it_is(tmp_path: Path, kept: bool, duplicate: Callable[..., Any]) -> None:
    """api.md: `agent.messages` reads the transcript and can be assigned: what was copied can be put back."""
    script = ScriptedModel("One.", "Two.", "Three.")
    with Agent(script.model, session=tmp_path / "s.db" if kept else None) as agent:
        await agent.run("First")
        before: list[AgentMessage] = duplicate(agent.messages)
        assert isinstance(before, list)
        await agent.run("Second")
        before.append(UserMessage("Mine"))
        assert [message.text for message in agent.messages] == ["First", "One.", "Second", "Two."]
        agent.messages = before
        assert [message.text for message in agent.messages] == ["First", "One.", "Mine"]
