"""The connection of an agent with its session: the session records the runs, and both have the same log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import msgspec

from steersman.context.context import AgentContext
from steersman.context.log import Log
from steersman.events.dispatch import Dispatcher
from steersman.loop.config import AgentLoopConfig
from steersman.loop.inbox import Inbox, QueuedMessage, Receipt
from steersman.loop.questions import Answer, Questions
from steersman.provider.models.registry import find_known_keys
from steersman.session.records import CONFIGURED, to_json_value
from steersman.session.stores.store import SessionTaken
from steersman.tools.tool import Tool
from steersman.types.artifacts import MemoryContents
from steersman.types.continuation import ContinuationKind, Default
from steersman.types.errors import AgentBusy, SteersmanError
from steersman.types.guards import is_instance
from steersman.types.journal import Journal
from steersman.types.messages import UserMessage, require_content
from steersman.types.model import Model

if TYPE_CHECKING:
    from steersman.session.journal import JournalWriter
    from steersman.session.orders import Order
    from steersman.session.relay import Relay
    from steersman.session.session import Session

_log = logging.getLogger("steersman")


class SessionLink:
    """The session of an agent. The agent continues its conversation; a session belongs to one agent at a time."""

    __slots__ = (
        "__weakref__", "_cancel", "_closed", "_configure", "_context", "_dispatcher", "_inbox", "_is_listening",
        "_opened", "_questions", "_subscription", "session",
    )  # fmt: skip

    def __init__(
        self,
        where: Session | str | PathLike[str],
        context: AgentContext,
        inbox: Inbox,
        dispatcher: Dispatcher,
        config: AgentLoopConfig,
        questions: Questions,
        cancel: WeakMethod[Callable[[str], bool]],
        configure: WeakMethod[Callable[[Mapping[str, Any]], None]],
    ) -> None:
        from steersman.session.session import Session

        if not is_instance(where, Session | str | PathLike):
            raise TypeError(f"session is a Session or the path of a file, got {where!r}.")
        self.session = where if isinstance(where, Session) else Session.at(where)
        self._context = context
        self._inbox = inbox
        self._dispatcher = dispatcher
        self._questions = questions
        self._cancel = cancel
        self._configure = configure
        self._opened = self.session is not where
        self._closed = self._is_listening = False
        try:
            self._attach(config)
        except BaseException:
            if self._opened:
                self.session.close()
            raise
        self._subscription = dispatcher.subscribe(self.session.recorder.record_event)

    def is_abort_due(self, kind: ContinuationKind | None) -> bool:
        """Whether a run of this kind is to be aborted at once: it goes on with one that was aborted after a crash."""
        return type(kind) is Default and self.session.listening.abort_due

    def begin(self, config: AgentLoopConfig, tools: Iterable[Tool]) -> Journal:
        """Prepare the session for a run: move it to the current log, and redact every key that the run may use."""
        recorder = self.session.recorder
        self.sync_session()
        self.add_keys(config)
        recorder.use_sources(config.clock, config.new_id)
        recorder.details.set_prompt(self._context.system_prompt, tools)
        self._context.recovery = self.session.recovery
        return recorder

    def sync_session(self) -> None:
        """Move the session to the log of the context, which may have been replaced."""
        self.session.move_to(self._context.log)

    def find_log_with(self, at: str | int) -> Log:
        """Find a log that contains this entry, which may be on another branch."""
        if not isinstance(at, str):
            return self._context.log
        self.sync_session()
        return self.session.find_log_with(at)

    def resolve_entry(self, at: str | int | None) -> Any:
        """The entry id for a label or an id."""
        return self.session.resolve_entry(at) if isinstance(at, str) else at

    def check_open(self) -> None:
        """Raise `SteersmanError` if the session is closed."""
        if self._closed or self.session.closed:
            raise SteersmanError("The session of this agent is closed. Make another agent with it, or without one.")
        if self.session.taken is not None:
            raise SessionTaken(self.session.taken)

    def close(self, *, running: bool = False) -> None:
        """Release the session, and close it if the agent opened it; `AgentBusy` during a run, unless `running`."""
        if not self._closed:
            if self._context.running and not running:
                raise AgentBusy(
                    "The agent is running, and the rest of the run would not be saved. Wait for it: await "
                    "agent.wait_for_idle(); agent.abort() stops it."
                )
            self._closed = True
            self._inbox.listener = None
            self.session.release()
            if self._opened:
                self.session.close()

    def detach(self) -> None:
        """Close, and record nothing more: the agent goes on without this session."""
        if not self.session.closed:
            self._context.log.artifacts.move_to(MemoryContents())
        self.close()
        self._dispatcher.unsubscribe(self._subscription)
        log = self._context.log
        self._context.log = Log.from_entries(log.entries, estimator=log.estimator)
        self._context.log.copy_state_and_artifacts(log)

    def _attach(self, config: AgentLoopConfig) -> None:
        context, session = self._context, self.session
        given = context.log.messages
        session.reserve(self._is_busy, self._set_log)
        if given and session.log.messages:
            session.release()
            raise ValueError("The session has messages already: leave messages=() to go on with them.")
        self.add_keys(config)
        session.recorder.use_sources(config.clock, config.new_id)
        for message in given:
            session.log.append(message)
        context.log, context.session_id = session.log, session.id
        context.agent_id, context.last_loop_id = session.agent_id, session.last_loop_id
        self._inbox.restore(
            [
                QueuedMessage(item.kind, item.message, Receipt(item.message, "next_run"), item.mode, item.id, item.key)
                for item in session.waiting
            ],
            {key: Receipt(message, "delivered") for key, message in session.delivered_keys.items()},
        )
        self._inbox.listener = session.recorder
        for order in session.listening.answers:
            self._answer(order)
        dispatcher, journal = self._dispatcher, session.recorder.journal
        session.listening.set_feed(lambda relay: _feed_relay(relay, dispatcher, journal))

    def listen(self) -> None:
        """Hear what other processes queue, first what waits already; once is enough."""
        if not self._is_listening:
            self._is_listening = True
            self.session.listening.start(self._hear, self._end_run)

    def _hear(self, order: Order) -> None:
        """Do what another process has queued, in any thread."""
        recorder = self.session.recorder
        if order.kind == "steering" or order.kind == "follow_up":
            kind, message = order.kind, require_content(order.message or UserMessage())
            recorder.accept_order(
                order, lambda: self._inbox.add(kind, message, mode=order.mode, key=order.key, id=order.id)
            )
        elif order.kind == "configure":
            self._change_settings(order)
        else:
            recorder.record_order(order)
        if order.kind == "abort" and not self._cancel_run("aborted"):
            self.session.listening.note_abort()
        elif order.kind in ("approve", "deny"):
            self._answer(order)

    def _change_settings(self, order: Order) -> None:
        """Change what another process wants changed, and keep it; a refusal is logged and recorded.

        The order is recorded last: after a crash in between it is heard again, which changes nothing.
        """
        changes, configure = to_json_value(order.settings or {}), self._configure()
        title = changes.pop("title", None)
        try:
            if changes and configure is not None:
                configure(changes)
                self.session.recorder.add(CONFIGURED, changes)
            if title is not None:
                self.session.set_title(title)
        except (TypeError, ValueError, SteersmanError) as error:
            _log.error("What was to be changed of the session %r was refused: %s", self.session.id, error)
            order = msgspec.structs.replace(order, reason=str(error))
        self.session.recorder.record_order(order)

    def _answer(self, order: Order) -> None:
        decision = "approved" if order.kind == "approve" else "denied"
        answer = Answer(decision, order.by, order.reason, order.remember)
        self._questions.answer_or_keep(order.approval_id, answer)

    def _end_run(self, reason: str) -> None:
        self._cancel_run(reason)

    def _cancel_run(self, reason: str) -> bool:
        """Cancel the run, if there is one; returns whether there is."""
        cancel = self._cancel()
        return cancel is not None and cancel(reason)

    def add_keys(self, config: AgentLoopConfig) -> None:
        """Redact all keys that a run may use. Called before each run, because the environment may change."""
        others = [model for model in config.fallbacks if isinstance(model, Model)]
        self.session.recorder.add_keys(find_known_keys(config.model, *others))

    def _is_busy(self) -> bool:
        return self._context.running

    def _set_log(self, log: Log) -> None:
        """Follow the session to another log."""
        self._context.log = log


def _feed_relay(relay: Relay, dispatcher: Dispatcher, journal: JournalWriter | None) -> Callable[[], None]:
    """Give a relay the events of an agent and what its journal saves; returns a function that ends this."""
    subscription = dispatcher.subscribe(relay.add_event)
    if journal is not None:
        journal.on_saved = relay.note_saved

    def stop() -> None:
        dispatcher.unsubscribe(subscription)
        if journal is not None:
            journal.on_saved = None

    return stop
