"""Runs several branches of one conversation concurrently and chooses one; the others can still be read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec

from steersman.agent.agent import Agent
from steersman.context.log import Log
from steersman.loop.entry import Inherited, Start, check_answerable, start_run
from steersman.loop.run import Run
from steersman.loop.sub_agent import enter_sub_agent, wrap_event
from steersman.policy.limits import ExecutionTracker
from steersman.provider.models.registry import find_stream_fn
from steersman.team.choice import BranchOutcome, ChoiceResult, ChooseFn, choose_branch, first_good
from steersman.tools.output import ToolContext
from steersman.types.cancel import CancelToken
from steersman.types.continuation import Branch
from steersman.types.errors import ToolError
from steersman.types.guards import is_instance
from steersman.types.ids import new_id
from steersman.types.messages import AgentMessage, MessageLike, require_content, to_messages
from steersman.types.result import RunResult
from steersman.types.usage import Usage

# The queues and callbacks of the agent are for its own runs; a branch must not take messages from them.
_NO_QUEUES: dict[str, None] = {"get_follow_up_messages": None, "get_steering_messages": None, "message_provider": None}


class Branching:
    """A branch to run: its prompt, which may be left out if there is something to answer, and the options it changes.

    Other options are those of `Agent`: `model`, `system_prompt`, `temperature`, `tools`, `output_type`, `limits`, ...
    """

    __slots__ = ("options", "prompt", "tag")

    def __init__(
        self, prompt: MessageLike | Sequence[MessageLike] | None = None, *, tag: str | None = None, **options: Any
    ) -> None:
        self.prompt = prompt
        self.tag = tag
        self.options = options

    def __repr__(self) -> str:
        return f"Branching({self.prompt!r:.80}{''.join(f', {name}=...' for name in self.options)})"


BranchLike: TypeAlias = MessageLike | Sequence[MessageLike] | Branching


@dataclass(frozen=True, slots=True)
class BranchesResult:
    """All branches in their order, the one that was chosen, and what they cost together, the judge included.

    `detail` is the judge's reason, or why nothing was chosen.
    """

    branches: Sequence[BranchOutcome]
    chosen: BranchOutcome | None
    usage: Usage
    detail: str = ""
    judgement: RunResult | None = None

    @property
    def text(self) -> str:
        """The text of the chosen branch."""
        return "" if self.chosen is None else self.chosen.text

    @property
    def output(self) -> Any:
        """The validated value of the chosen branch."""
        return None if self.chosen is None else self.chosen.output

    @property
    def cost(self) -> float | None:
        """US dollars, `None` when no price is known."""
        return self.usage.cost


async def run_branches(
    agent: Agent[Any],
    branches: Sequence[BranchLike],
    *,
    choose: ChooseFn | Agent[Any] = first_good,
    at: str | int | None = None,
    max_at_once: int = 4,
    ctx: ToolContext | None = None,
) -> BranchesResult:
    """Run several branches from the agent's conversation, or from an earlier entry, and continue on the chosen one.

    A function, sync or async, or another agent chooses. The branches and the judge share the agent's limits, and those
    of the run of `ctx` where they work for a tool call. A branch that fails is a result among the others. If none can
    be chosen, nothing is raised: `chosen` is `None`, `detail` says why, and the agent keeps its conversation.
    """
    _check_options(choose, max_at_once)
    with agent.reserve() as token:
        ways = _prepare_branches(agent, branches, at, ctx)
        budget = _make_budget(agent, ctx)
        room = asyncio.Semaphore(max_at_once)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run_branch(way, room, token, budget, ctx)) for way in ways]
        outcomes = [task.result() for task in tasks]
        chosen = await choose_branch(outcomes, choose, token, _build_inherited(ctx, budget))
        if chosen.branch is not None:
            _adopt_branch(agent, ways[chosen.branch.index])
    usage = _sum_usage(outcomes, chosen)
    agent.add_usage(usage)
    return BranchesResult(outcomes, chosen.branch, usage, chosen.detail, chosen.judgement)


@dataclass(frozen=True, slots=True)
class _PreparedBranch:
    """A branch that is ready to run."""

    index: int
    tag: str
    prompts: list[AgentMessage]
    agent: Agent[Any]


def _prepare_branches(
    agent: Agent[Any], branches: Sequence[BranchLike], at: str | int | None, ctx: ToolContext | None
) -> list[_PreparedBranch]:
    """Prepare all branches; an error in one of them is raised before any runs."""
    if is_instance(branches, str | Mapping) or not is_instance(branches, Sequence):
        raise TypeError(f"Branches come as a list of prompts or Branching(...), got {branches!r}.")
    if not branches:
        raise ValueError("run_branches() needs at least one branch, got an empty list.")
    context = agent.context
    mint = agent.config.new_id or new_id
    context.agent_id = context.agent_id or mint("agent")
    context.session_id = context.session_id or mint("session")
    ways = [_prepare_branch(agent, index, branch, at) for index, branch in enumerate(branches)]
    for way in ways:
        _forward_events(way, agent, ctx)
    return ways


def _prepare_branch(agent: Agent[Any], index: int, branch: BranchLike, at: str | int | None) -> _PreparedBranch:
    given = branch if isinstance(branch, Branching) else Branching(branch)
    prompts = [] if given.prompt is None else [require_content(message) for message in to_messages(given.prompt)]
    log = _fork(agent.context.log, at)
    own, context = agent.variant(**cast(Any, {**_NO_QUEUES, **given.options})), agent.context
    if not prompts:
        check_answerable(log, own.config, queued=False)
    if own.config.stream_fn is None:
        find_stream_fn(own.config.model)  # raises now for an unknown provider
    own.context.log = log
    own.context.agent_id, own.context.session_id = context.agent_id, context.session_id
    own.context.last_loop_id = context.last_loop_id
    return _PreparedBranch(index, given.tag or str(index), prompts, own)


def _forward_events(way: _PreparedBranch, agent: Agent[Any], ctx: ToolContext | None) -> None:
    """Forward the events of a branch to the agent's subscribers, and with `ctx` as updates of the tool call.

    The agent's `approve` and `deny` answer the questions of its branches.
    """
    way.agent.questions = agent.questions
    if ctx is None:
        way.agent.dispatcher = agent.dispatcher
    else:
        way.agent.subscribe(lambda event: agent.dispatcher.dispatch(event) and None)
        way.agent.subscribe(lambda event: ctx.update(wrap_event(way.tag, event)))


def _fork(log: Log, at: str | int | None) -> Log:
    if at is not None:
        return log.fork(at)
    if len(log.entries):
        return log.fork(log.entries[-1].id)
    empty = Log(estimator=log.estimator)
    empty.copy_state_and_artifacts(log)
    return empty


def _make_budget(agent: Agent[Any], ctx: ToolContext | None) -> ExecutionTracker:
    """Make the budget that the branches share: the agent's limits, counted once for all of them."""
    parent = _find_parent_run(ctx)
    return ExecutionTracker(
        agent.config.execution_limits,
        clock=asyncio.get_running_loop().time,
        parent=None if parent is None else parent.tracker,
        depth=0 if parent is None else parent.tracker.depth + 1,
    )


async def _run_branch(
    way: _PreparedBranch, room: asyncio.Semaphore, token: CancelToken, budget: ExecutionTracker, ctx: ToolContext | None
) -> BranchOutcome:
    async with room:
        result = await _start_branch(way, token, budget, ctx)
    return BranchOutcome(way.index, way.tag, way.prompts, result, way.agent.context.log)


async def _start_branch(
    way: _PreparedBranch, token: CancelToken, budget: ExecutionTracker, ctx: ToolContext | None
) -> RunResult:
    start = Start(way.prompts, Branch(way.tag), inherited=Inherited(budget=budget), signal=token, silent=True)
    if ctx is None:
        return await start_run(way.agent, start)
    try:
        with enter_sub_agent(ctx) as inherited:
            inherited = msgspec.structs.replace(inherited, budget=budget)
            return await start_run(way.agent, msgspec.structs.replace(start, inherited=inherited))
    except ToolError as error:
        return RunResult([], Usage(), "error", str(error))


def _build_inherited(ctx: ToolContext | None, budget: ExecutionTracker) -> Inherited:
    return Inherited(_find_parent_run(ctx), None if ctx is None else ctx.tool_call_id, budget)


def _find_parent_run(ctx: ToolContext | None) -> Run | None:
    return ctx.scope if ctx is not None and isinstance(ctx.scope, Run) else None


def _adopt_branch(agent: Agent[Any], way: _PreparedBranch) -> None:
    """Continue the agent from the end of the branch; the log of the branch names the old one as its parent."""
    taken, context = way.agent.context, agent.context
    context.log = taken.log
    context.last_loop_id = taken.last_loop_id
    context.continuation_kind = taken.continuation_kind


def _sum_usage(outcomes: Sequence[BranchOutcome], chosen: ChoiceResult) -> Usage:
    usage = sum((outcome.result.usage for outcome in outcomes), Usage())
    return usage if chosen.judgement is None else usage + chosen.judgement.usage


def _check_options(choose: object, max_at_once: object) -> None:
    if not callable(choose) and not isinstance(choose, Agent):
        raise TypeError(f"choose is a function of the branches or an Agent that judges them, got {choose!r}.")
    if not isinstance(max_at_once, int) or isinstance(max_at_once, bool) or max_at_once < 1:
        raise ValueError(f"max_at_once is a whole number from 1 on, got {max_at_once!r}.")
