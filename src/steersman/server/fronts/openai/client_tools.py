"""Tools that a client declares: the agent calls them, the client runs them, and the run waits for their results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from steersman.server.live import LiveSession
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.events import AgentEnd, AgentEvent
from steersman.types.messages import AssistantMessage, ToolResultMessage

PATIENCE: Final = 3600.0
"""Seconds that a run waits for a result of the client; then it is stopped."""


class ClientTool(Tool):
    """A tool whose calls the client runs. The client checks the arguments itself."""

    __slots__ = ()

    def check(self, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
        """The arguments as they are."""
        return dict(arguments or {})


class ClientTools:
    """The client's tools in one session, and the results that calls wait for."""

    def __init__(self, live: LiveSession) -> None:
        self._live = live
        agent = live.agent
        self._own_tools = list(agent.tools)
        self._own_prompt = agent.system_prompt
        self._own_limits: dict[str, Any] = {
            "max_tokens": agent.config.max_tokens,
            "temperature": agent.config.temperature,
        }
        # Of an agent with an output type of its own no other one is asked for.
        self._has_form = agent.config.output_schema is not None
        if not self._has_form:
            self._own_limits["output_type"] = None
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._early: dict[str, str] = {}
        self.expected: list[str] = []
        self._is_set_up = False
        agent.subscribe(self._follow_event)

    def prepare(
        self,
        tools: Sequence[Mapping[str, Any]],
        instructions: Sequence[str],
        limits: Mapping[str, Any],
        schema: Mapping[str, Any] | None = None,
    ) -> Callable[[], None]:
        """What gives the agent the client's tools, words and limits for its next run.

        With a schema, its last answer is a JSON value that fits it. Raises `ValueError` for what is wrong, before
        anything has changed.
        """
        if schema is not None and self._has_form:
            raise ValueError("The agent has an output type of its own. Leave the format out: its answer is JSON.")
        made = [self._make_tool(tool) for tool in tools]
        names = {tool.name for tool in self._own_tools if isinstance(tool, Tool)}
        if taken := [tool.name for tool in made if tool.name in names]:
            raise ValueError(f"The agent has a tool {taken[0]!r} of its own. Give yours another name.")
        prompt = "\n\n".join(text for text in (self._own_prompt, *instructions) if text)
        wanted: dict[str, Any] = {**limits, "output_type": schema}
        given = {name: value for name, value in wanted.items() if value is not None}
        settings: dict[str, Any] = {**self._own_limits, **given, "system_prompt": prompt}

        def set_up() -> None:
            self._live.agent.configure(tools=[*self._own_tools, *made], **settings)
            self._is_set_up = True

        set_up()  # the agent says what is wrong
        self.clear()
        return set_up

    @contextmanager
    def take_back_if_refused(self) -> Generator[None]:
        """Leave nothing of what a request has set up to the next run, if none starts with it."""
        was_set_up = self._is_set_up
        try:
            yield
        except BaseException:
            if self._is_set_up and not was_set_up:
                self.clear()
            raise

    def _follow_event(self, event: AgentEvent) -> None:
        if isinstance(event, AgentEnd):
            self.clear()  # also if no client follows the run any more: what others say next has nothing of this one

    def clear(self) -> None:
        """Take everything back."""
        self.expected, self._is_set_up = [], False
        self._early.clear()
        self._live.agent.configure(tools=self._own_tools, system_prompt=self._own_prompt, **self._own_limits)

    def expect(self, calls: Sequence[str]) -> None:
        """Expect the results of calls that a client was told of, if the run waits for them.

        A client that sends a request again is told again of calls that may have their results by now.
        """
        open_calls: set[str] = set()
        answered: set[str] = set()
        for message in reversed(self._live.agent.messages):
            if isinstance(message, AssistantMessage):
                open_calls = {call.id for call in message.tool_calls} - answered
                break
            if isinstance(message, ToolResultMessage):
                answered.add(message.tool_call_id)
        if calls and open_calls.issuperset(calls):
            self.expected = list(calls)

    def give(self, outputs: Mapping[str, str]) -> None:
        """Give results of the client to the calls that wait for them."""
        self.expected = []
        for id, output in outputs.items():
            waiting = self._waiting.get(id)
            if waiting is None:
                self._early[id] = output  # the call is about to start
            elif not waiting.done():
                waiting.set_result(output)

    def _make_tool(self, given: Mapping[str, Any]) -> Tool:
        fields = given.get("function", given)
        match fields:
            case {"name": str(name)}:
                # It asks for no approval: what it does is in the client's hands. A call that a restart has cut is made
                # again, because the client has not seen its answer used.
                return ClientTool(
                    name,
                    fields.get("description") or name,
                    fields.get("parameters") or {"type": "object", "properties": {}},
                    self._wait_for_output,
                    idempotent=True,
                    access="read",
                )
            case _:
                raise ValueError(f"A tool is a function with a name and parameters, got {dict(given)!r:.200}.")

    async def _wait_for_output(self, arguments: dict[str, Any], ctx: ToolContext) -> str:
        id = ctx.tool_call_id
        if id in self._early:
            return self._early.pop(id)
        waiting = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(PATIENCE):
                return await waiting
        except TimeoutError:
            self._live.agent.abort()
            return "The client gave no result."
        finally:
            del self._waiting[id]


def find_client_tools(live: LiveSession) -> ClientTools:
    """The client's tools in a session."""
    found = live.beside.get("client_tools")
    if found is None:
        found = live.beside["client_tools"] = ClientTools(live)
    return found


def list_functions(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools that the client runs; raises `ValueError` for tools of OpenAI's servers."""
    for tool in tools:
        if tool.get("type") != "function":
            raise ValueError(f"Only tools of the type 'function' can be declared here, got {tool.get('type')!r:.100}.")
    return [dict(tool) for tool in tools]


def list_names(tools: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The names of declared tools."""
    return frozenset(str(tool.get("function", tool).get("name")) for tool in tools)
