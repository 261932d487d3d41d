"""What a program does with an agent besides prompting it: queue messages, stop it, wait for it, watch it, close it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from steersman import loop
from steersman.agent.options import add_output_policy
from steersman.context.context import AgentContext
from steersman.events.dispatch import WHOLE_EVENTS, Dispatcher, Subscriber, SubscriptionId
from steersman.loop.config import AgentLoopConfig, SteeringPolicy
from steersman.loop.inbox import Inbox, Queues, Receipt
from steersman.loop.output import OutputPolicy
from steersman.loop.questions import Answer, Questions
from steersman.tools.table import ToolTable
from steersman.types.cancel import CancelToken
from steersman.types.errors import AgentBusy
from steersman.types.events import ApprovalRequested
from steersman.types.messages import AgentMessage
from steersman.types.usage import NO_USAGE

if TYPE_CHECKING:
    from asyncio import Future

    from steersman.agent.session_link import SessionLink
    from steersman.events.stream import Channel
    from steersman.loop.entry import OnePromptLike
    from steersman.loop.run import Run
    from steersman.session.session import Session


class AgentControls:
    """The state of an agent, and what works beside its runs or during one."""

    __slots__ = (
        "__weakref__", "_channel", "_idle", "_output", "_session_link", "_token", "_usage", "config", "context",
        "current_run", "dispatcher", "inbox", "questions", "tool_table",
    )  # fmt: skip

    # Queued messages

    def steer(self, x: OnePromptLike, mode: SteeringPolicy | None = None, *, key: str | None = None) -> Receipt:
        """Queue a message for the start of the next turn, or of the next run if none is going on.

        `x` is a string, a message, a dict or a list of content blocks.
        Tool calls of the running turn are skipped or cancelled, by `mode`. Safe from other threads.
        """
        if mode not in (None, "skip", "cancel", "wait"):
            raise ValueError(f"mode is 'skip', 'cancel', 'wait' or None, got {mode!r}.")
        if self._session_link is not None:
            self._session_link.check_open()
        return self.inbox.add("steering", loop.read_one_prompt(x), mode=mode, key=key)

    def follow_up(self, x: OnePromptLike, *, key: str | None = None) -> Receipt:
        """Queue a message, given as for `steer`, for when the agent would otherwise stop. Safe from other threads."""
        if self._session_link is not None:
            self._session_link.check_open()
        return self.inbox.add("follow_up", loop.read_one_prompt(x), key=key)

    @property
    def queued(self) -> Queues:
        """The queued messages: `.steering` and `.follow_up`."""
        return self.inbox.queued

    def clear_queue(self) -> list[AgentMessage]:
        """Take back all queued messages; their receipts say `returned`."""
        return self.inbox.withdraw()

    # Stopping and waiting

    def abort(self) -> None:
        """Interrupt the run, if there is one. Safe from other threads, and from any callback."""
        if self._token is not None:
            self._token.cancel()

    @property
    def is_running(self) -> bool:
        """Whether a run is going on, or other work inside `reserve()`."""
        return self.context.running

    async def wait_for_idle(self) -> None:
        """Return once no run is going on. The run may be one of another thread."""
        import asyncio  # loaded with the first run, as the loop is

        while self._has_run():
            waiter, channel = asyncio.get_running_loop().create_future(), self._channel
            self._idle.append(waiter)
            if not self._has_run():
                return  # another thread ended it meanwhile, and may not have seen the waiter
            await (waiter if channel is None else channel.wait_without_bound(waiter))

    @contextmanager
    def reserve(self) -> Generator[CancelToken]:
        """Keep the agent for other work than a run of its own: it is busy, and `abort()` cancels the token."""
        self._check_idle()
        self._token = token = CancelToken()
        self.context.running = True
        try:
            yield token
        finally:
            self.context.running = False
            self._token = None
            self._wake_waiters()

    # Watching

    def subscribe(self, callback: Subscriber, *, answers: bool = False, deltas: bool = True) -> SubscriptionId:
        """Call `callback` with every event of every run from now on.

        `answers=True` says that tool calls that need approval get an answer by `approve` and `deny`: they wait for it.
        `deltas=False` leaves out `message_update` and the events of sub-agents, which come by the thousand.
        """
        return self.dispatcher.subscribe(callback, answers=answers, kinds=None if deltas else WHOLE_EVENTS)

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """Remove a subscriber."""
        self.dispatcher.unsubscribe(subscription)

    def emit(self, name: str, data: Any = None) -> None:
        """Send a `custom` event of the application to the readers and subscribers of the run. Safe from other threads.

        `data` is any JSON value; what has no JSON form is shown by its `repr`. Raises `RuntimeError` without a run.
        """
        run = self.current_run
        if run is None or run.ending.is_closing:
            raise RuntimeError(
                f"agent.emit({name!r}) needs a run, and none is going on: an event belongs to one. "
                "Call it between agent_start and agent_end, or in a tool as ctx.emit(...)."
            )
        from steersman.loop.custom_events import emit_custom  # only applications with events of their own need it

        emit_custom(run, name, data)

    # Approval

    def approve(self, approval_id: str, *, remember: bool = False, by: str = "application") -> bool:
        """Let a tool call run that waits for approval, also one of a sub-agent. Safe from other threads.

        Returns whether this answer counts: False if the question is resolved already. Raises `UnknownApproval` for an
        id that this agent never had. `remember` approves the same call with the same arguments from now on, in this
        agent or in the policy that asked; `by` is who answers, for the `approval_resolved` event.
        """
        return self.questions.answer(approval_id, Answer("approved", by, "", remember))

    def deny(self, approval_id: str, reason: str = "", *, by: str = "application") -> bool:
        """Deny a tool call that waits for approval; the model reads the reason. Otherwise as `approve`."""
        return self.questions.answer(approval_id, Answer("denied", by, reason))

    @property
    def open_approvals(self) -> Sequence[ApprovalRequested]:
        """The questions that wait for an answer, oldest first."""
        return [question.describe() for question in list(self.questions.open.values()) if question.answer is None]

    # The session

    @property
    def session(self) -> Session | None:
        """The session that remembers the conversation, if it has one."""
        return None if self._session_link is None else self._session_link.session

    def close(self) -> None:
        """Let go of the session, and close it if the agent opened it; without a session there is nothing to do."""
        if self._session_link is not None:
            self._session_link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Also during a run: leaving by an exception must not raise another one.
        if self._session_link is not None:
            self._session_link.close(running=True)

    # Internals

    def _assemble(
        self,
        config: AgentLoopConfig,
        output: OutputPolicy | None,
        context: AgentContext,
        inbox: Inbox,
    ) -> None:
        self.config = config if output is None else add_output_policy(config, output)
        self.context = context
        context.has_agent = True
        self.tool_table = ToolTable()
        self._usage = NO_USAGE
        self.dispatcher = Dispatcher()
        self.dispatcher.questions = self.questions = Questions()
        self._session_link: SessionLink | None = None
        self._output = output
        self.inbox = inbox
        inbox.new_id = config.new_id or inbox.new_id
        self.current_run: Run | None = None
        self._token: CancelToken | None = None
        self._channel: Channel | None = None
        self._idle: list[Future[None]] = []

    def _check_idle(self) -> None:
        if self._session_link is not None:
            self._session_link.check_open()
        if self.context.running:
            raise AgentBusy("The agent is running. Use steer() or follow_up(), or wait: await agent.wait_for_idle().")

    def _cancel_run(self, reason: str) -> bool:
        """Interrupt the run for a reason; returns whether there is one."""
        token = self._token
        if token is not None:
            token.cancel(reason)
        return token is not None

    def _has_run(self) -> bool:
        return self._token is not None

    def _wake_waiters(self) -> None:
        """Wake `wait_for_idle`."""
        from steersman.tools.threads import call_soon_in, is_running_in  # with asyncio, which a waiter has loaded

        idle, self._idle = self._idle, []
        for waiter in idle:
            home = waiter.get_loop()
            if is_running_in(home):
                _end_wait(waiter)
            else:
                call_soon_in(home, _end_wait, waiter)


def _end_wait(waiter: Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
