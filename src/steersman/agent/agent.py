"""`Agent`: a model, its tools and a conversation; each prompt starts a run of the loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from steersman import loop
from steersman.agent.options import (
    ChangeableOptions,
    MoreOptions,
    check_entry,
    check_named_models,
    copy_output_policy,
    make_output,
    read_changes,
    remove_output_policy,
)
from steersman.agent.settings import AgentSettings
from steersman.context.compaction.config import ContextConfig
from steersman.context.context import AgentContext
from steersman.loop.config import AgentLoopConfig, ApproveFn, QueueMode, SteeringPolicy, ToolExecution
from steersman.loop.inbox import Inbox
from steersman.loop.option_names import SPELLINGS
from steersman.policy.filters import InputFilter
from steersman.policy.limits import ExecutionLimits
from steersman.provider.models.registry import get_model
from steersman.provider.streaming.retry_strategy import Retry, RetryStrategy
from steersman.tools.table import ToolLike, read_tools
from steersman.types.continuation import Branch, ContinuationKind, Default, Initial, Rerun
from steersman.types.guards import UNSET
from steersman.types.messages import AgentMessage, MessageLike, UserMessage
from steersman.types.model import Model, StreamFn, ThinkingLevel
from steersman.types.output import OutputT

if TYPE_CHECKING:
    from steersman.agent.images import ImageLike
    from steersman.events.stream import Channel, EventStream
    from steersman.loop.entry import PromptLike, Start
    from steersman.policy.approval import Approval
    from steersman.server import McpServer
    from steersman.session.session import Session
    from steersman.tools.output import ToolContext
    from steersman.tools.tool import Tool
    from steersman.types.cancel import CancelToken
    from steersman.types.journal import Journal
    from steersman.types.result import RunResult

NewOutputT = TypeVar("NewOutputT")


class Agent(AgentSettings, Generic[OutputT]):
    """The object most programs use: one conversation, one run at a time. Steer it, queue follow-ups, abort it, go on.

    `options` are the other options of `AgentLoopConfig`: `convert_to_llm`, `before_turn`, `post_loop_policies`, ...
    For a type checker an agent with `output_type=Report` is an `Agent[Report]`, and one without is an `Agent[str]`.
    """

    __slots__ = ()

    def __init__(
        self,
        model: str | Model,
        *,
        tools: Sequence[ToolLike] = (),
        system_prompt: str = "",
        output_type: type[OutputT] | None = None,
        deps: Any = None,
        base_url: str | None = None,
        api_key: str | Callable[[], str | Awaitable[str]] | None = None,
        thinking_level: ThinkingLevel = "off",
        max_tokens: int | None = None,
        temperature: float | None = None,
        hooks: Sequence[object] = (),
        input_filters: Sequence[InputFilter] = (),
        approval: Approval | None = None,
        approve: ApproveFn | Literal["wait"] | None = None,
        limits: ExecutionLimits | None = ExecutionLimits(),
        context_config: ContextConfig | None = ContextConfig(),
        retry: RetryStrategy | None = Retry(),
        fallbacks: Sequence[str | Model] = (),
        tool_execution: ToolExecution = "parallel",
        steering: SteeringPolicy = "skip",
        steering_mode: QueueMode = "one-at-a-time",
        follow_up_mode: QueueMode = "one-at-a-time",
        stream_fn: StreamFn | None = None,
        messages: Sequence[MessageLike] = (),
        session: Session | str | PathLike[str] | None = None,
        **options: Unpack[MoreOptions],
    ) -> None:
        own = {"limits": limits, "retry": retry}
        given = read_changes({**options, **_leave_out_defaults(own, options)}, "Agent")
        config = AgentLoopConfig(
            model=get_model(model, base_url=base_url, api_key=api_key),
            stream_fn=stream_fn,
            deps=deps,
            thinking_level=thinking_level,
            max_tokens=max_tokens,
            temperature=temperature,
            hooks=hooks,
            input_filters=input_filters,
            approval=approval,
            approve=approve,
            context_config=context_config,
            fallbacks=fallbacks,
            tool_execution=tool_execution,
            steering=steering,
            **given,
        )
        inbox = Inbox(steering_mode=steering_mode, follow_up_mode=follow_up_mode)
        context = AgentContext(system_prompt, messages, read_tools(tools))
        check_named_models(config, model, *fallbacks)
        self._assemble(config, make_output(output_type), context, inbox)
        if session is not None:
            self._replace_session(session)
            assert self._session_link is not None
            self._session_link.listen()

    @classmethod
    def from_config(
        cls,
        config: AgentLoopConfig,
        *,
        tools: Sequence[ToolLike] = (),
        system_prompt: str = "",
        messages: Sequence[MessageLike] = (),
    ) -> Agent[Any]:
        """An agent with this configuration; its queues deliver all messages at once, not one at a time."""
        agent = object.__new__(cls)
        output = copy_output_policy(config)
        config = config if output is None else remove_output_policy(config)
        agent._assemble(config, output, AgentContext(system_prompt, messages, read_tools(tools)), Inbox())
        return agent

    @overload
    def variant(self, *, output_type: type[NewOutputT], **changes: Unpack[ChangeableOptions]) -> Agent[NewOutputT]: ...
    @overload
    def variant(self, *, output_type: None, **changes: Unpack[ChangeableOptions]) -> Agent[str]: ...
    @overload
    def variant(self, **changes: Unpack[ChangeableOptions]) -> Agent[OutputT]: ...
    def variant(self, **changes: Any) -> Agent[Any]:
        """A copy with an empty conversation; keyword arguments change options of `Agent`."""
        agent: Agent[Any] = object.__new__(type(self))
        config, output = self.config, self._output
        if output is not None:
            config, output = remove_output_policy(config), output.copy_fresh()
        context = AgentContext(self.context.system_prompt, tools=self.context.tools)
        agent._assemble(config, output, context, self.inbox.copy_empty())
        agent._change(changes, "variant()")
        return agent

    # Prompts and queued messages

    def prompt(self, x: PromptLike, images: Sequence[ImageLike] = (), *, deps: Any = UNSET) -> EventStream[OutputT]:
        """Start a run with a string, a message, a dict, a list of content blocks, or a list of these.

        Iterate over the stream, await it, or both. `images` are paths, bytes or `ImageContent`. `deps` is what tools
        get as `ctx.deps` in this run, in place of the agent's own; `None` too.
        """
        prompts = loop.read_prompts(x) if not images else _read_illustrated(x, images)
        if self.context.running or self._session_link is not None:
            self._check_idle()
        return loop.start_run(self, loop.Start(prompts, Initial(), deps=deps))

    async def run(self, x: PromptLike, images: Sequence[ImageLike] = (), *, deps: Any = UNSET) -> RunResult[OutputT]:
        """Run a prompt to its end. A failed model, tool or hook does not raise: `end_reason` says so."""
        prompts = loop.read_prompts(x) if not images else _read_illustrated(x, images)
        if self.context.running or self._session_link is not None:
            self._check_idle()
        return await loop.start_run(self, loop.Start(prompts, Initial(), silent=True, deps=deps))

    def run_sync(self, x: PromptLike, images: Sequence[ImageLike] = (), *, deps: Any = UNSET) -> RunResult[OutputT]:
        """The same without an event loop."""
        import asyncio  # loaded with the first run, as the loop is

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.run(x, images, deps=deps))
        raise RuntimeError("run_sync() cannot be used inside a running event loop. Use `await agent.run(...)` there.")

    # Continuing, rerunning, branching

    def continue_(self, kind: ContinuationKind | None = None, *, deps: Any = UNSET) -> EventStream[OutputT]:
        """Go on from where the conversation is: after an error, an abort, or with what was queued since."""
        self._check_idle()
        conversion = loop.check_answerable(self.context.log, self.config, queued=len(self.inbox) > 0)
        kind = Default() if kind is None or type(kind) is Initial else kind
        return loop.start_run(self, loop.Start((), kind, deps=deps, conversion=conversion))

    def rerun(self, tag: str | None = None, *, at: str | int | None = None) -> EventStream[OutputT]:
        """Repeat the last answer, or the one at the entry `at`.

        With a session the entry may be of any branch, given by its id, its label, or its index in `messages`.
        """
        self._check_idle()
        check_entry(tag, at)
        link = self._session_link
        log = self.context.log if link is None or at is None else link.find_log_with(at)
        place = at if link is None else link.resolve_entry(at)
        return loop.start_run(self, loop.Start((), Rerun(tag), log.rewind(place), parent_loop_id=log.find_loop(place)))

    def branch(
        self, at: str | int, tag: str | None = None, *, prompt: PromptLike | None = None
    ) -> EventStream[OutputT]:
        """Go another way from an earlier entry, given as for `rerun`, with a new prompt where one is needed.

        The way taken before is not lost: `agent.context.log.parent` leads back to it, and so does a session's `tree()`.
        """
        self._check_idle()
        check_entry(tag, at)
        link = self._session_link
        log = self.context.log.fork(at) if link is None else link.find_log_with(at).fork(link.resolve_entry(at))
        prompts = [] if prompt is None else loop.read_prompts(prompt)
        conversion = None if prompts else loop.check_answerable(log, self.config, queued=len(self.inbox) > 0)
        return loop.start_run(self, loop.Start(prompts, Branch(tag), log, conversion=conversion))

    def compact(self, config: ContextConfig | None = None) -> bool:
        """Shorten what the model sees without asking a model; returns whether anything became shorter."""
        self._prepare_edit()
        from steersman.context.compaction.strategies import compact_log  # used by hand, and seldom

        return compact_log(self.context.log, config) is not None

    def undo(self, entry_id: str | None = None) -> None:
        """Undo a compaction or a prun, the last one unless it is named."""
        self._prepare_edit()
        from steersman.context.compaction.strategies import undo_change

        undo_change(self.context.log, entry_id)

    def _prepare_edit(self) -> None:
        self._check_idle()
        if self._session_link is not None:
            self._session_link.sync_session()

    # As a tool of another agent

    def as_tool(self, name: str, description: str, **settings: Any) -> Tool:
        """This agent as a tool of another: a fresh conversation per call, the caller's limits, guards and cancel.

        `settings` are those of a `Tool`: `timeout`, `access`, `needs_approval`, ...
        """
        from steersman.loop.sub_agent import build_tool  # only sub-agents need it

        return build_tool(self.run_for, name, description, settings)

    def as_mcp_server(self, **settings: Any) -> McpServer:
        """This agent as a tool of other programs: `await agent.as_mcp_server().serve_stdio()`. See `McpServer`."""
        from steersman.server import McpServer  # a front door, which only programs that serve need

        return McpServer(self, **settings)

    async def run_for(self, ctx: ToolContext, x: PromptLike, *, name: str | None = None) -> RunResult[OutputT]:
        """Run a prompt in a fresh conversation, on behalf of a tool call and as a part of its run.

        Shares limits, guards, cost and cancel with that run; its subscribers get the events as updates of the call.
        Raises `ToolError` where that run may have no more sub-agents.
        """
        from steersman.loop.sub_agent import run_sub_agent  # as above

        return await run_sub_agent(self.make_sub_agent(), ctx, loop.read_prompts(x), name or ctx.tool_name)

    def make_sub_agent(self, **changes: Unpack[ChangeableOptions]) -> Agent[OutputT]:
        """The copy that works on behalf of a tool call; keyword arguments change options of `Agent`."""
        child = self.variant(**{"first_turn_trigger": "sub_agent", **changes})
        # A conversation is fresh, an approval for good is not.
        child.context.approved_calls = self.context.get_approved_calls()
        return child

    # Hosting a run

    def begin(self, start: Start, token: CancelToken, channel: Channel) -> Journal | None:
        """Get ready for a run; the loop calls it. Raises `AgentBusy` while another one goes on."""
        if self.context.running or self._session_link is not None:
            self._check_idle()
        context, parent = self.context, start.inherited.parent
        tools = self.tool_table.read(context.tools, new_run=True)
        context.continuation_kind = start.continuation_kind
        if start.log is not None:
            context.log = start.log
        context.parent_loop_id = start.parent_loop_id if parent is None else parent.loop_id
        if context.parent_loop_id is None and type(start.continuation_kind) is not Initial:
            # A continuation and a branch go on from the run that the last entry of their log belongs to.
            context.parent_loop_id = context.log.find_loop()
        link = self._session_link
        if link is not None and link.is_abort_due(start.continuation_kind):
            token.cancel()
        journal = None if link is None else link.begin(self.config, tools.values())
        self._token, self._channel = token, channel
        if self._output is not None:
            self._output.reset()
        return journal

    def conclude(self, result: RunResult[Any]) -> RunResult[Any]:
        """Take the result of a run; the loop calls it. From here on the agent is idle."""
        self._token = self._channel = None
        self._usage = self._usage + result.usage
        if self._idle:
            self._wake_waiters()
        return result if self._output is None else result.with_output(self._output.get_value(result.messages))


def _read_illustrated(x: PromptLike, images: Sequence[ImageLike]) -> list[AgentMessage]:
    from steersman.agent.images import add_images  # most prompts have none

    # Images say enough: there may be no text beside them.
    prompts = [UserMessage()] if isinstance(x, str) and not x.strip() else loop.parse_prompts(x)
    return loop.read_prompts(add_images(prompts, images))


def _leave_out_defaults(own: dict[str, Any], options: Collection[str]) -> dict[str, Any]:
    """The options under their short names, without those at their defaults whose other spelling was given."""
    usual = Agent.__init__.__kwdefaults__ or {}
    return {name: value for name, value in own.items() if SPELLINGS[name] not in options or value is not usual[name]}
