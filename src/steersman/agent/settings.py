"""What can be read from an agent and changed about it. During a run a change counts from the next turn on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakMethod

from steersman.agent.controls import AgentControls
from steersman.agent.options import (
    AgentOptions,
    add_output_policy,
    apply_changes,
    check_named_models,
    make_output,
    read_changes,
    remove_output_policy,
)
from steersman.context.context import AgentContext, Transcript
from steersman.loop.config import AgentLoopConfig
from steersman.loop.output import OutputPolicy
from steersman.provider.models.registry import find_stream_fn
from steersman.tools.table import ToolLike, Toolset, read_tools
from steersman.tools.tool import Tool
from steersman.types.guards import is_instance
from steersman.types.messages import MessageLike
from steersman.types.model import Model, ThinkingLevel
from steersman.types.state import State
from steersman.types.usage import Usage

if TYPE_CHECKING:
    from steersman.session.session import Session
    from steersman.types.artifacts import Artifacts

_AT_REST = ("messages", "session")
_UNCHANGED: Any = object()


class AgentSettings(AgentControls):
    """The settings of an agent as attributes, and `configure` for every option of its constructor."""

    __slots__ = ()

    @property
    def model(self) -> Model:
        """The model; assign a name or a `Model`. It keeps URL and key only while the provider stays the same."""
        return self.config.model

    @model.setter
    def model(self, value: str | Model) -> None:
        self.configure(model=value)

    @property
    def system_prompt(self) -> str:
        """The system prompt."""
        return self.context.system_prompt

    @system_prompt.setter
    def system_prompt(self, value: str) -> None:
        self.configure(system_prompt=value)

    @property
    def tools(self) -> list[Tool | Toolset]:
        """The tools; assign a list or change this one. It is the same list as `context.tools`."""
        tools = self.context.tools
        if not isinstance(tools, list):
            tools = self.context.tools = list(tools)
        return tools

    @tools.setter
    def tools(self, value: Sequence[ToolLike]) -> None:
        self.configure(tools=value)

    @property
    def thinking_level(self) -> ThinkingLevel:
        """How much the model thinks before it answers."""
        return self.config.thinking_level

    @thinking_level.setter
    def thinking_level(self, value: ThinkingLevel) -> None:
        self.configure(thinking_level=value)

    @property
    def deps(self) -> Any:
        """What tools get as `ctx.deps`. A change during a run counts from the next turn on; a run may have its own."""
        return self.config.deps

    @deps.setter
    def deps(self, value: Any) -> None:
        self.configure(deps=value)

    @property
    def messages(self) -> Transcript:
        """Everything that was said, in order: a list to read at any time, and to change or assign between runs.

        During a run a change raises `AgentBusy`. With a session other messages are a new branch from the beginning, and
        so is every change but appending: nothing of what was said before is lost. A single message counts as a list.
        """
        link = self._session_link
        return self.context.messages if link is None else Transcript(self.context, link.sync_session)

    @messages.setter
    def messages(self, value: Sequence[MessageLike]) -> None:
        # `agent.messages += [...]` has already added them and hands the same transcript back.
        if not (isinstance(value, Transcript) and value.log is self.context.log):
            self.configure(messages=value)

    @property
    def state(self) -> State:
        """What the conversation keeps, as tools have it in `ctx.state`: JSON values by name, to read and to change.

        A branch begins with the state of the entry it begins at; `reset()` and other messages begin with none.
        """
        return self.context.log.state

    @property
    def artifacts(self) -> Artifacts:
        """The files that the conversation keeps, as tools have them in `ctx.artifacts`: to save, load and list.

        A branch begins with the versions of the entry it begins at.
        """
        return self.context.log.artifacts

    @property
    def usage(self) -> Usage:
        """The usage of all runs of this agent together, the present one included."""
        run = self.current_run
        return self._usage if run is None else self._usage + run.usage

    @property
    def cost(self) -> float | None:
        """US dollars over the agent's life, `None` when no price is known."""
        return self.usage.cost

    def add_usage(self, usage: Usage) -> None:
        """Count what others did for this agent, such as its branches, in `usage` and `cost`."""
        self._usage = self._usage + usage

    def reset(self) -> None:
        """Empty the conversation and both queues; options, tools and totals stay.

        With a session a new branch begins; what was said before stays in its `tree()`. Raises `AgentBusy` during a run.
        """
        self._check_idle()
        self.clear_queue()
        self._replace_conversation(())
        context = self.context
        context.last_loop_id = context.parent_loop_id = context.continuation_kind = context.recovery = None

    def configure(self, **changes: Unpack[AgentOptions]) -> None:
        """Change options of the constructor, checked as there: all of them, or none if one is wrong.

        `messages` and `session` can only be changed between runs, else `AgentBusy` is raised.
        """
        self._change(changes, "configure()")

    def _change(self, changes: Mapping[str, Any], owner: str) -> None:
        given = read_changes(changes, owner)
        if any(name in given for name in _AT_REST):
            self._check_idle()
        prompt, tools = given.pop("system_prompt", _UNCHANGED), given.pop("tools", _UNCHANGED)
        messages, session = given.pop("messages", _UNCHANGED), given.pop("session", _UNCHANGED)
        modes = {kind: given.pop(f"{kind}_mode") for kind in ("steering", "follow_up") if f"{kind}_mode" in given}
        # Whatever is wrong raises in this part, before anything has changed.
        if prompt is not _UNCHANGED:
            check_system_prompt(prompt)
        if tools is not _UNCHANGED:
            tools = read_tools(tools)
        if messages is not _UNCHANGED:
            AgentContext(messages=messages)
        self.inbox.copy_empty().set_modes(**modes)
        config, output = self._build_config(given)
        if session is not _UNCHANGED:
            self._replace_session(session)
        # Nothing below raises.
        self.inbox.set_modes(**modes)
        self.config, self._output = config, output
        if prompt is not _UNCHANGED:
            self.context.system_prompt = prompt
        if tools is not _UNCHANGED:
            self.context.tools = tools
        if messages is not _UNCHANGED:
            self._replace_conversation(messages)
        if self._session_link is not None:
            self._session_link.add_keys(config)
            # Only now: what is queued may change the options too.
            self._session_link.listen()

    def _build_config(self, changes: dict[str, Any]) -> tuple[AgentLoopConfig, OutputPolicy | None]:
        """The configuration with these changes, and what reads the output with it."""
        output, config = self._output, self.config
        if "output_type" in changes or output is not None:
            config = config if output is None else remove_output_policy(config)
        if "output_type" in changes:
            output = make_output(changes.pop("output_type"))
        config = apply_changes(config, changes)
        check_named_models(config, changes.get("model"), *changes.get("fallbacks", ()))
        if self.context.running and config.stream_fn is None:
            find_stream_fn(config.model)  # raises now for an unknown provider, not in the middle of the run
        return (config if output is None else add_output_policy(config, output)), output

    def _replace_conversation(self, messages: Sequence[MessageLike]) -> None:
        self.context.messages = messages
        if self._session_link is not None:
            self._session_link.sync_session()

    def _replace_session(self, session: Session | str | PathLike[str] | None) -> None:
        from steersman.agent.session_link import SessionLink  # only who has a session pays for it

        old, context = self._session_link, self.context
        if old is not None:
            old.detach()
            self._session_link = None
        if session is not None:
            cancel, configure = WeakMethod(self._cancel_run), WeakMethod(self._configure_from_outside)
            self._session_link = SessionLink(
                session, context, self.inbox, self.dispatcher, self.config, self.questions, cancel, configure
            )

    def _configure_from_outside(self, changes: Mapping[str, Any]) -> None:
        """Change what another process has queued for the session."""
        from steersman.agent.outside import change_settings

        change_settings(self, changes)


def check_system_prompt(value: object) -> None:
    """Raise `TypeError` unless it is a string."""
    if not is_instance(value, str):
        raise TypeError(f"system_prompt is a string, got {value!r}.")
