"""`Pattern`: an agent whose next step is decided by a plan instead of a model; its parts are its tools.

A run of a pattern is an ordinary run with sub-agents: the same loop, the same events, the same transcript. Where an
agent asks its model, a pattern asks its plan: it reads the transcript and says which parts to call or what to answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypedDict, Unpack, cast

import msgspec

from steersman.agent.agent import Agent
from steersman.context.compaction.config import ContextConfig
from steersman.context.context import AgentContext
from steersman.events.stream import Channel
from steersman.loop.config import AgentLoopConfig, ApproveFn, ToolExecution
from steersman.loop.entry import Start
from steersman.loop.inbox import Inbox
from steersman.loop.output import OutputPolicy
from steersman.policy.approval import Approval
from steersman.policy.filters import InputFilter
from steersman.policy.limits import ExecutionLimits
from steersman.team.story import Story, read_story
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.content import Content, TextContent, ToolCall
from steersman.types.errors import ErrorInfo
from steersman.types.guards import is_instance
from steersman.types.journal import Journal
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, Failed, StreamEvent, StreamStart, TextDelta, TextEnd, TextStart, ToolCallEnd
from steersman.types.usage import Usage

PROVIDER = "steersman"
"""The provider that the answers of a pattern name: no model was asked for them."""

_NOTHING_USED = Usage(0, 0)
# Answers of parts are passed on whole; a pattern has no context window that they could overflow.
_WHOLE = ContextConfig(max_tool_output_bytes=2**40, max_tool_output_lines=2**40)


class PatternOptions(TypedDict, total=False):
    """The options that every pattern takes. They are those of `Agent`, and hold for all parts together."""

    limits: ExecutionLimits | None
    output_type: Any
    deps: Any
    hooks: Sequence[object]
    input_filters: Sequence[InputFilter]
    approval: Approval | None
    approve: ApproveFn | Any
    messages: Sequence[Any]
    session: Any
    tool_execution: ToolExecution
    post_loop_policies: Sequence[Any]
    clock: Any
    new_id: Any


@dataclass(frozen=True, slots=True)
class Part:
    """An agent as a part of a pattern, with a description for the models that choose among parts."""

    agent: Agent[Any]
    description: str = ""

    def __post_init__(self) -> None:
        if not is_instance(self.agent, Agent):
            raise TypeError(f"A part is an Agent or a pattern, got {self.agent!r}.")
        if not is_instance(self.description, str):
            raise TypeError(f"The description of a part is a string, got {self.description!r}.")


PartLike: TypeAlias = Agent[Any] | Part
Parts: TypeAlias = Sequence[PartLike] | Mapping[str, PartLike]
"""Parts by name, or in a list: then they are called `part_1`, `part_2`, ..."""


def read_parts(parts: Parts, owner: str) -> dict[str, Part]:
    """The parts by name; raises for what is no agent, and where there is none."""
    if isinstance(parts, Mapping):
        named = dict(parts)
    elif is_instance(parts, list | tuple):
        named = {f"part_{number}": part for number, part in enumerate(parts, 1)}
    else:
        raise TypeError(f"The parts of a {owner} are a list of agents, or a dict of agents by name, got {parts!r}.")
    if not named:
        raise ValueError(f"A {owner} needs at least one part.")
    return {name: part if isinstance(part, Part) else Part(part) for name, part in named.items()}


def check_count(name: str, value: object) -> None:
    """Raise `ValueError` unless it is a whole number from 1 on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is a whole number from 1 on, got {value!r}.")


@dataclass(frozen=True, slots=True)
class Call:
    """A part to call, with its prompt."""

    name: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Say:
    """The answer of the pattern."""

    text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The run fails; `result` is that of the part that is to blame, if it is one."""

    text: str
    result: ToolResultMessage | None = None


Step: TypeAlias = Sequence[Call] | Say | Fail
"""What a pattern does next: call parts, answer, or fail."""


class Plan(Protocol):
    """Decides the next step of a pattern by its transcript alone, so that a run can be continued by another process."""

    def decide(self, story: Story, messages: Sequence[AgentMessage]) -> Step: ...


class Script:
    """The `StreamFn` of a pattern: asks the plan in place of a model. Each copy of a pattern has its own."""

    __slots__ = ("_context", "_first", "_run_start", "plan")

    def __init__(self, plan: Plan, context: AgentContext | None = None) -> None:
        self.plan = plan
        self._context = context
        self._first: int | None = None
        self._run_start = 0

    def begin(self, context: AgentContext, *, has_prompts: bool) -> None:
        """Note where a run begins: with prompts it is about these, else about what was asked for before."""
        self._context = context
        self._run_start = len(context.log.messages)
        if has_prompts:
            self._first = self._run_start
        elif self._first is not None and self._first >= self._run_start:
            self._first = None  # the conversation has been replaced by a shorter one

    def read(self) -> Story:
        """The story so far of the request that this run is about."""
        return read_story(self._get_messages(), self._first, self._run_start)

    def _get_messages(self) -> Sequence[AgentMessage]:
        return () if self._context is None else self._context.log.messages

    async def __call__(self, model: Model, request: Request, options: StreamOptions, /) -> AsyncIterator[StreamEvent]:
        """Answer with the next step of the plan."""
        messages = self._get_messages()
        step = self.plan.decide(self.read(), messages)
        yield StreamStart()
        if isinstance(step, Fail):
            yield _build_failure(step, model)
            return
        if isinstance(step, Say):
            content: list[Content] = [TextContent(step.text)]
            for event in (TextStart(), TextDelta(step.text), TextEnd()):
                yield event
        else:
            number = sum(len(message.tool_calls) for message in messages if type(message) is AssistantMessage)
            content = [
                ToolCall(f"{model.id}_{number + index}", call.name, {"prompt": call.prompt})
                for index, call in enumerate(step, 1)
            ]
            for index, call in enumerate(content):
                yield ToolCallEnd(index, cast(ToolCall, call))
        yield Done(
            AssistantMessage(
                content,
                stop_reason="stop" if isinstance(step, Say) else "tool_use",
                usage=_NOTHING_USED,
                model=model.id,
                provider=model.provider,
            )
        )


def _build_failure(step: Fail, model: Model) -> Failed:
    """The failed answer that ends the run, with everything that is known about the failure of the part."""
    details = {} if step.result is None else step.result.details
    known = {"kind": details.get("error_kind", "internal"), **msgspec.to_builtins(details.get("error", {}))}
    if known["kind"] == "context_overflow":
        # Else the loop would compact the transcript of the pattern, and ask again.
        known.update(kind="incomplete", retryable=False)
    info = msgspec.convert({**known, "message": step.text}, ErrorInfo)
    message = AssistantMessage(
        stop_reason="error",
        error_message=step.text,
        error_kind=info.kind,
        usage=_NOTHING_USED,
        model=model.id,
        provider=model.provider,
    )
    return Failed(message, info)


class Pattern(Agent[Any]):
    """The base of all patterns that need no model of their own: an agent that follows a plan."""

    __slots__ = ()

    def __init__(self, kind: str, plan: Plan, tools: Sequence[Tool], **options: Unpack[PatternOptions]) -> None:
        known = PatternOptions.__annotations__
        unknown = sorted(options.keys() - known.keys())
        if unknown:
            raise TypeError(f"A {kind} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}.")
        super().__init__(
            Model(PROVIDER, kind),
            tools=tools,
            stream_fn=Script(plan),
            retry=None,
            context_config=_WHOLE,
            repeated_calls=None,
            steering="wait",
            steering_mode="all",
            **cast(Any, options),
        )

    @property
    def script(self) -> Script:
        """What answers in place of a model."""
        return cast(Script, self.config.stream_fn)

    def _assemble(
        self, config: AgentLoopConfig, output: OutputPolicy | None, context: AgentContext, inbox: Inbox
    ) -> None:
        config = replace(config, stream_fn=Script(cast(Script, config.stream_fn).plan))
        super()._assemble(config, output, context, inbox)

    def begin(self, start: Start, token: CancelToken, channel: Channel) -> Journal | None:
        """Get ready for a run; the loop calls it."""
        journal = super().begin(start, token, channel)
        self.script.begin(self.context, has_prompts=bool(start.prompts))
        return journal
