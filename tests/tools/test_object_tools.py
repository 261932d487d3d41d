"""Objects with `name`, `description`, `parameters` and `execute` as tools."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.loop.toolbox import told

from steersman import Agent, AgentContext, AgentLoopConfig, CancelToken, ToolContext, ToolOutput, agent_loop
from steersman.events import ToolExecutionUpdate
from steersman.testing import EventCollector, ScriptedModel, answer, call
from steersman.tools import AgentTool
from steersman.tools.table import build_tool_table

PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Base:
    """What the model is shown, as attributes and as a property."""

    name = "shout"
    description = "Say it loudly."

    @property
    def parameters(self) -> dict[str, Any]:
        return PARAMETERS


class ByDict(Base):
    async def execute(self, args: dict[str, Any]) -> str:
        return args["text"].upper()


class ByDictAndContext(Base):
    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> str:
        assert (ctx.tool_call_id, ctx.cancelled) == ("call_7", False)
        return args["text"].upper()


class ByName(Base):
    async def execute(self, text: str) -> str:
        return text.upper()


class InAThread(Base):
    def execute(self, params: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        assert threading.current_thread() is not threading.main_thread()
        return ToolOutput(params["text"].upper(), {"id": ctx.tool_call_id})


class AsInPi(Base):
    async def execute(self, tool_call_id: str, params: dict[str, Any], signal: Any, on_update: Any) -> str:
        assert (tool_call_id, signal.is_set(), signal.cancelled) == ("call_7", False, False)
        on_update({"half": "done"})
        return params["text"].upper()


class AsInPiWithDefaults(Base):
    async def execute(
        self, tool_call_id: str, args: dict[str, Any], signal: CancelToken | None = None, on_update: Any = None
    ) -> str:
        assert tool_call_id == "call_7"
        assert signal is not None
        on_update({"half": "done"})
        return args["text"].upper()


class WithSignalByName(Base):
    def execute(self, text: str, *, signal: CancelToken) -> str:
        assert not signal.cancelled
        return text.upper()


OBJECTS = [ByDict, ByDictAndContext, ByName, InAThread, AsInPi, AsInPiWithDefaults, WithSignalByName]


@pytest.mark.parametrize("kind", OBJECTS)
async def test_an_object_with_the_parts_of_a_tool_is_one(kind: type[Any]) -> None:
    """api.md, tools: any object with those four attributes (the seeds' `AgentTool`)."""
    made: AgentTool = kind()
    script = ScriptedModel(answer(call("shout", text="hi", id="call_7")), "Done.")
    agent = Agent(script.model, tools=[made])
    heard = EventCollector()
    agent.subscribe(heard)
    result = await agent.run("Go.")
    assert told(result.messages) == [("shout", "HI", False, "completed")]
    updates = [event.update for event in heard.of(ToolExecutionUpdate)]
    assert updates == ([{"half": "done"}] if "Pi" in kind.__name__ else [])


async def test_a_bare_context_takes_objects_too_and_checks_their_arguments() -> None:
    """api.md, the loop without the shell; loop.md D3: arguments are checked against the schema."""
    script = ScriptedModel(answer(call("shout", text="hi"), call("shout", words="hi")), "Done.")
    context = AgentContext(tools=[ByDict()])
    stream = agent_loop("Go.", context, AgentLoopConfig(model=script.model))
    first, second = told(await stream.result())
    assert first == ("shout", "HI", False, "completed")
    assert (second[2:], "arguments.text: missing" in second[1]) == ((True, "invalid"), True)


def test_the_settings_of_a_tool_may_be_attributes_of_the_object() -> None:
    """docs/tools: `timeout`, `access`, ... count too."""

    class Careful(ByDict):
        timeout = 5.0
        access = "read"
        sequential = True
        needs_approval = True

    made = build_tool_table([Careful()])["shout"]
    assert (made.timeout, made.access, made.sequential, made.needs_approval) == (5.0, "read", True, True)


def test_a_class_in_place_of_an_object_is_refused() -> None:
    """house.md: say what happened with the value and what to do."""
    expected = r"Tools are objects, and ByDict is a class: give an instance, ByDict\(\.\.\.\)\."
    with pytest.raises(TypeError, match=expected):
        Agent(ScriptedModel("Hi.").model, tools=[ByDict])


class Partial:
    name = "partial"

    async def execute(self, args: dict[str, Any]) -> str:
        return str(args)


class Unnamed(ByDict):
    name: Any = 3


class Greedy(Base):
    async def execute(self, tool_call_id: str, one: Any, two: Any) -> str:
        return f"{tool_call_id}{one}{two}"


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            Partial(),
            r"has name, description, parameters, execute; .*Partial.* has no 'description' and no 'parameters'",
        ),
        (Unnamed(), "A tool's name is a string, got 3"),
        (Greedy(), "The function of tool 'shout' needs 'one', 'two', which its schema does not have"),
        (3, "or an object with name, description, parameters and execute, got 3"),
    ],
)
def test_an_object_that_lacks_a_part_is_refused_where_the_agent_is_made(item: Any, expected: str) -> None:
    """house.md: a programmer's mistake raises at the call that made it."""
    with pytest.raises(TypeError, match=expected):
        Agent(ScriptedModel("Hi.").model, tools=[item])
