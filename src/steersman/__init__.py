"""Steersman: the agent loop, done right.

The rooms of the house, from the front door down:

    cli         the command `steersman`
    team        agents together: sub-agents for tasks, branches of one conversation, patterns
    agent       Agent, the stateful shell most people use
    session     what is remembered between runs
    loop        the loop itself: only here a run is changed and its events are emitted
    policy      what a caller may decide: hooks, verdicts, filters, limits, approval
    context     what has been said and what the model is shown
    events      how events leave a run
    provider    talking to a model: everything is, or wraps, a StreamFn
    tools       what the model can do
    types       plain values
    testing     a scripted model, a virtual clock, and checkers for what must always hold
"""

import sys

if (getattr(sys, "argv", None) or [""])[0].rpartition("/")[2] in ("-m", "steersman"):
    # The command: before any other import, not even `__future__`, which the working folder may have too.
    from steersman.safe_start import refuse_foreign_modules

    refuse_foreign_modules()

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.agent.agent import Agent
    from steersman.context.compaction.config import ContextConfig
    from steersman.context.compaction.strategies import SummaryCompaction
    from steersman.context.context import AgentContext
    from steersman.context.convert import default_convert_to_llm
    from steersman.events.stream import EventStream, create_agent_stream
    from steersman.loop.config import AgentLoopConfig, batched
    from steersman.loop.entry import agent_loop, agent_loop_continue, stream_assistant_response
    from steersman.policy.approval import Approval, Approved, fingerprint
    from steersman.policy.hooks import Hooks
    from steersman.policy.limits import ExecutionLimits, RepeatedCalls
    from steersman.policy.verdicts import Inject, Pass, Reject, Rewrite, Skip, Stop, Warn
    from steersman.provider.models.registry import get_model, stream_simple
    from steersman.provider.streaming.retry_strategy import Retry
    from steersman.session.session import Session
    from steersman.team.branches import Branching, run_branches
    from steersman.team.task import TaskKind, task_tool
    from steersman.tools.builtin.prun import prun, prun_with_memo
    from steersman.tools.output import ToolContext
    from steersman.tools.tool import Tool, tool
    from steersman.types.cancel import CancelToken
    from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
    from steersman.types.continuation import Branch, Compaction, Default, Initial, Rerun
    from steersman.types.errors import AgentBusy, ProviderError, RunFailed, SteersmanError, ToolError
    from steersman.types.events import AgentEvent
    from steersman.types.messages import (
        AgentMessage,
        AssistantMessage,
        ExtensionMessage,
        ToolResultMessage,
        UserMessage,
    )
    from steersman.types.model import Model, Request, StreamFn, StreamOptions
    from steersman.types.result import RunResult
    from steersman.types.stream import STREAM_UPDATE_EVENTS
    from steersman.types.tools import Prun, ToolOutput
    from steersman.types.usage import Prices, Usage

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "agent.agent": "Agent",
        "context.compaction.config": "ContextConfig",
        "context.compaction.strategies": "SummaryCompaction",
        "context.context": "AgentContext",
        "context.convert": "default_convert_to_llm",
        "events.stream": "EventStream create_agent_stream",
        "loop.config": "AgentLoopConfig batched",
        "loop.entry": "agent_loop agent_loop_continue stream_assistant_response",
        "policy.approval": "Approval Approved fingerprint",
        "policy.hooks": "Hooks",
        "policy.limits": "ExecutionLimits RepeatedCalls",
        "policy.verdicts": "Inject Pass Reject Rewrite Skip Stop Warn",
        "provider.models.registry": "get_model stream_simple",
        "provider.streaming.retry_strategy": "Retry",
        "session.session": "Session",
        "team.branches": "Branching run_branches",
        "team.task": "TaskKind task_tool",
        "tools.builtin.prun": "prun prun_with_memo",
        "tools.output": "ToolContext",
        "tools.tool": "Tool tool",
        "types.cancel": "CancelToken",
        "types.content": "ImageContent TextContent ThinkingContent ToolCall",
        "types.continuation": "Branch Compaction Default Initial Rerun",
        "types.errors": "AgentBusy ProviderError RunFailed SteersmanError ToolError",
        "types.events": "AgentEvent",
        "types.messages": "AgentMessage AssistantMessage ExtensionMessage ToolResultMessage UserMessage",
        "types.model": "Model Request StreamFn StreamOptions",
        "types.result": "RunResult",
        "types.stream": "STREAM_UPDATE_EVENTS",
        "types.tools": "Prun ToolOutput",
        "types.usage": "Prices Usage",
    },
)

__all__ = [
    "Agent",
    "AgentBusy",
    "AgentContext",
    "AgentEvent",
    "AgentLoopConfig",
    "AgentMessage",
    "Approval",
    "Approved",
    "AssistantMessage",
    "Branch",
    "Branching",
    "CancelToken",
    "Compaction",
    "ContextConfig",
    "Default",
    "EventStream",
    "ExecutionLimits",
    "ExtensionMessage",
    "Hooks",
    "ImageContent",
    "Initial",
    "Inject",
    "Model",
    "Pass",
    "Prices",
    "ProviderError",
    "Prun",
    "Reject",
    "RepeatedCalls",
    "Request",
    "Rerun",
    "Retry",
    "Rewrite",
    "RunFailed",
    "RunResult",
    "STREAM_UPDATE_EVENTS",
    "Session",
    "Skip",
    "SteersmanError",
    "Stop",
    "StreamFn",
    "StreamOptions",
    "SummaryCompaction",
    "TaskKind",
    "TextContent",
    "ThinkingContent",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolResultMessage",
    "Usage",
    "UserMessage",
    "Warn",
    "agent_loop",
    "agent_loop_continue",
    "batched",
    "create_agent_stream",
    "default_convert_to_llm",
    "fingerprint",
    "get_model",
    "prun",
    "prun_with_memo",
    "run_branches",
    "stream_assistant_response",
    "stream_simple",
    "task_tool",
    "tool",
]
