"""`/compact`: the model summarizes the conversation, and goes on with the summary in place of most of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steersman.agent.agent import Agent
from steersman.cli.chat.conversation import Conversation
from steersman.cli.sessions.saved import ASIDE
from steersman.cli.terminal.numbers import format_count
from steersman.context.compaction.config import ContextConfig
from steersman.context.compaction.strategies import SummaryCompaction
from steersman.context.tokens import estimate_total_tokens
from steersman.loop.compact import SUMMARY_PROMPT, quote_message
from steersman.policy.filters import apply_filters
from steersman.session.records import to_json_value
from steersman.types.events import AgentEnd, AgentEvent, AgentStart, CompactionStarted, ModelFallback, RetryScheduled
from steersman.types.messages import AgentMessage, AssistantMessage, Message, user_message
from steersman.types.usage import Usage

if TYPE_CHECKING:
    from steersman.cli.chat.commands import Chat

_KEEP_RECENT = 2
"""How many of the last messages stay as they are: usually a question and its answer."""

_SHOWN = (AgentStart, AgentEnd, RetryScheduled, ModelFallback)
_STAYS = "The conversation stays as it is"


def compact(chat: Chat, focus: str) -> None:
    """Compacts the conversation: the model summarizes it, with a focus if there is one."""
    agent = chat.conversation.agent
    if agent.config.model.provider == "local":
        # A small model would lose more than it keeps, and has no room for the conversation twice.
        shorter = agent.compact()
        chat.conversation.recount()
        chat.say("notice", "The conversation was compacted." if shorter else "There is nothing to compact yet.")
        return
    chat.conversation.begin_task(lambda: _compact(chat, focus))


async def _compact(chat: Chat, focus: str) -> bool:
    """Compacts, and says what it saved; returns whether what was queued meanwhile may be sent."""
    conversation = chat.conversation
    done = await summarize(conversation, focus)
    if done.problem is None:
        conversation.recount()
        count = format_count(done.messages, "message")
        saved = f"{done.before:,} to {done.after:,} tokens, {done.before - done.after:,} saved"
        chat.say("notice", f"The model summarized {count}: about {saved}.")
    elif done.problem:
        chat.say("notice", done.problem)
    return done.problem is None


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did, in messages and estimated tokens; `problem` says why it did nothing."""

    messages: int = 0
    before: int = 0
    after: int = 0
    problem: str | None = None


async def summarize(conversation: Conversation, focus: str) -> Compaction:
    """Lets the model summarize everything but the first prompt and the last exchange; an abort changes nothing."""
    agent, problems = conversation.agent, list[str]()
    log = agent.context.log
    visible, before = list(log.visible), estimate_total_tokens(log.visible, log.estimator)
    with agent.reserve() as token:
        judged = await apply_filters(agent.config.input_filters, [user_message(focus)] if focus else [])
        if judged.rejected is not None:
            return Compaction(problem=f"{_STAYS}: {judged.rejected}.")
        writer = _make_writer(agent, "\n".join(message.text for message in judged.messages))
        forget = token.on_cancel(writer.abort)

        async def write(messages: Sequence[Message]) -> str:
            return await _write_summary(writer, messages, conversation.show_event)

        strategy = SummaryCompaction(write, _Unchanged(), on_fallback=problems.append)
        try:
            shown = list(await strategy.compact(visible, _make_config(agent, before)))
        finally:
            forget()
            _count_usage(conversation, writer.usage)
    if token.cancelled:
        return Compaction(problem=f"{_STAYS}.")
    if problems or not visible:
        return Compaction(problem=_describe_problem(writer, *problems))
    if agent.session is not None:
        agent.session.move_to(log)
    log.compact(shown)
    return Compaction(len(visible) - len(shown) + 1, before, estimate_total_tokens(shown, log.estimator))


def _describe_problem(writer: Agent, why: str = "") -> str:
    if not writer.messages:
        return "There is nothing to compact yet."
    last = writer.messages[-1]
    answered = isinstance(last, AssistantMessage) and not last.failed
    # Why a run failed is on the screen already.
    return f"{_STAYS}: {why}." if answered else f"{_STAYS}."


class _Unchanged:
    """Compacts nothing: where the model gives no summary, the user decides what to do."""

    def compact(self, messages: Sequence[AgentMessage], config: ContextConfig, /) -> Sequence[AgentMessage]:
        del config
        return messages


def _make_writer(agent: Agent, focus: str) -> Agent:
    """An agent with the same model that only writes summaries."""
    about = f" The user asks to keep above all: {focus}" if focus else ""
    # No filters: what it reads is the conversation, which they have judged, as they have the focus.
    return agent.variant(tools=[], system_prompt=f"{SUMMARY_PROMPT}{about}", input_filters=[], output_type=None)


def _make_config(agent: Agent, tokens: int) -> ContextConfig:
    """Pieces as large as the window takes, and any saving is enough."""
    config, model = agent.config.context_config or ContextConfig(), agent.config.model
    size = max(tokens, config.find_size(model, agent.config.max_tokens) or config.size)
    least = max(1, tokens - 1)
    return replace(config, max_context_tokens=size, threshold=(least + 0.5) / size, keep_recent=_KEEP_RECENT)


async def _write_summary(writer: Agent, messages: Sequence[Message], show: Callable[[AgentEvent], None]) -> str:
    writer.reset()
    stream = writer.prompt("\n\n".join(map(quote_message, messages)))
    async for event in stream:
        if isinstance(event, _SHOWN):
            show(event)
        if isinstance(event, AgentStart):
            at = (event.loop_id, event.seq, event.timestamp)
            show(CompactionStarted(*at, estimated_tokens=0, message_count=len(messages)))
    result = await stream
    if result.end_reason != "done":
        raise ValueError(result.detail or result.end_reason)
    return result.text


def _count_usage(conversation: Conversation, usage: Usage) -> None:
    """Counts what the summary cost, also in the saved session."""
    conversation.agent.add_usage(usage)
    session = conversation.agent.session
    if session is not None and usage.known:
        session.recorder.add(ASIDE, {"usage": to_json_value(usage)})
