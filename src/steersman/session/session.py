"""`Session`: one conversation that outlives the program. It records what an agent does and restores what was said.

One agent at a time uses a session. To look at one that is in use, open it with `write=False`: that blocks no writer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self
from weakref import WeakMethod, finalize

from steersman.context.compaction.config import ContextConfig
from steersman.context.compaction.strategies import compact_log, undo_change
from steersman.context.entries import Entry
from steersman.context.log import Log
from steersman.context.repair import Recovery
from steersman.provider.models.registry import find_known_keys
from steersman.session.contents import SessionContents
from steersman.session.index import Index
from steersman.session.journal import JournalWriter
from steersman.session.listening import Listening
from steersman.session.open_journals import close_in_thread
from steersman.session.opening import (
    Where,
    create_handle,
    open_handle,
    open_last,
    open_or_create,
    open_store,
    take_over_handle,
    writers,
)
from steersman.session.reader import SessionReader
from steersman.session.recorder import Recorder
from steersman.session.records import HEADER, Record, make_header
from steersman.session.restore import WaitingMessage, find_recovery, read_message, read_waiting
from steersman.session.stores.store import (
    Handle,
    Problem,
    SessionBusy,
    SessionError,
    Store,
    Summary,
    check_format,
    is_shared,
)
from steersman.session.tree import Branch, Difference
from steersman.types.artifacts import Artifacts
from steersman.types.guards import is_instance
from steersman.types.ids import new_id
from steersman.types.messages import AgentMessage


class Session:
    """An open session. Give it to an agent, `Agent(..., session=session)`, or read it."""

    def __init__(
        self, handle: Handle, *, clock: Callable[[], float] = time.time, new_id: Callable[[str], str] = new_id
    ) -> None:
        self.id = handle.session_id
        self.closed = False
        self._handle = handle
        self._index = Index()
        self._found: list[Problem] = []
        self._log: Log | None = None
        self._owner: tuple[WeakMethod[Callable[[], bool]], WeakMethod[Callable[[Log], None]]] | None = None
        try:
            self._index.read(handle.lines())
            check_format(self._index.header, self.id)
        except BaseException:
            handle.close()
            raise
        self._found.extend(Problem("", text) for text in self._index.problems)
        journal = JournalWriter(handle, clock=clock, new_id=new_id) if handle.writable else None
        self.recorder = Recorder(journal, self._index)
        self.recorder.add_keys(find_known_keys())
        source = handle if journal is None else journal
        self._contents = SessionContents(self.id, source, self.recorder, self._index)
        self._reader = SessionReader(source, self._index.tree, self._contents, self._found.append)
        self.listening = Listening(handle, journal, self._index, self._found.append)
        # Not of this object: a log alone goes on writing, and every recorder holds the index.
        self._finalizer = finalize(self._index, close_in_thread, journal or handle)
        self._finalizer.atexit = False  # journals have an exit function of their own
        if handle.last_seq == 0:
            self.recorder.add(HEADER, make_header(self.id, clock()))

    # Opening and closing

    @classmethod
    def create(cls, where: Where, id: str | None = None) -> Self:
        """A new session in a file or a store."""
        store = open_store(where)
        return cls(create_handle(store, id))._register_writer(store)

    @classmethod
    def open(
        cls, where: Where, id: str | None = None, *, write: bool = True, create: bool = False, take_over: bool = False
    ) -> Self:
        """An existing session: the one with this id, or the one used last. With `create`, a new one if there is none.

        If two programs do this at once, one creates the session, and the other opens it or raises `SessionBusy`.
        `take_over` opens it although another one writes to it: the store refuses whatever that one still writes.
        """
        store = open_store(where)
        if take_over:
            return cls(take_over_handle(store, id))._register_writer(store)
        if create:
            if not write:
                raise ValueError("A session that is opened with write=False cannot be created: leave one of them out.")
            return cls(open_or_create(store, id))._register_writer(store)
        handle = open_last(store, write=write) if id is None else open_handle(store, id, write=write)
        return cls(handle)._register_writer(store)

    @classmethod
    def at(cls, where: Where) -> Self:
        """The session used last in a file or a store, or a new one: the same as `open` with `create=True`."""
        return cls.open(where, create=True)

    @classmethod
    def list(cls, where: Where) -> Sequence[Summary]:
        """The sessions of a file or a store, the most recently used first."""
        return open_store(where).list()

    @classmethod
    def import_(cls, file: str | os.PathLike[str], where: Where, id: str | None = None) -> Self:
        """A new session from a file that `export` wrote; tool calls that are open in it are not run here."""
        from steersman.session.stores.jsonl import import_jsonl

        store = open_store(where)
        imported = import_jsonl(file, store, session_id=id)
        session = cls(store.open(imported.session_id))
        session._found.extend(imported.problems)
        return session

    def export(self, file: str | os.PathLike[str]) -> int:
        """Write all records to a text file, one a line; returns their number."""
        from steersman.session.stores.jsonl import export_jsonl

        self.flush()
        # With what the store refused, which is only in memory.
        journal = self.recorder.journal
        return export_jsonl(self._handle, file, lines=None if journal is None else journal.lines())

    def close(self) -> None:
        """Write what is left and close; closing twice does nothing. Raises `SessionBusy` while its agent runs."""
        if not self.closed:
            self._check_not_running()
            self._close_now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Also during a run, which goes on in memory: an error that ends the block must not be hidden by another.
        if not self.closed:
            self._close_now()

    async def save(self) -> bool:
        """Wait until everything so far is saved, or the store has refused it; whether it is saved."""
        return self.recorder.journal is None or await self.recorder.journal.wait_until_saved()

    def flush(self) -> bool:
        """The same as `save` for callers without an event loop: it blocks."""
        return self.recorder.journal is None or self.recorder.journal.flush()

    # Reading

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self.recorder.journal is not None

    @property
    def problems(self) -> Sequence[Problem]:
        """What was found damaged, and what was done about it."""
        return [*self._handle.problems, *self._found]

    @property
    def degraded(self) -> str | None:
        """Why the latest records are only in memory; `None` when they are saved."""
        return self.recorder.degraded

    @property
    def taken(self) -> str | None:
        """Why nothing more is written: another writer has taken the session over. `None` while this is the owner."""
        return None if self.recorder.journal is None else self.recorder.journal.taken

    @property
    def epoch(self) -> int:
        """The number of this owner of the session: one that takes it over has a higher one."""
        return self._handle.epoch if is_shared(self._handle) else 0

    @property
    def log(self) -> Log:
        """The log of the current branch; what is appended to it is recorded."""
        if self._log is None:
            self._attach(self._reader.build_log(None))
        assert self._log is not None
        return self._log

    @property
    def messages(self) -> Sequence[AgentMessage]:
        """The messages of the current branch."""
        return self.log.messages

    @property
    def artifacts(self) -> Artifacts:
        """The files that the current branch keeps."""
        return self.log.artifacts

    @property
    def agent_id(self) -> str | None:
        """The agent that ran last."""
        return self._index.agent_id

    @property
    def last_loop_id(self) -> str | None:
        """The id of the last run."""
        return self._index.loop_id

    @property
    def recovery(self) -> Recovery | None:
        """What is known about the tool calls that a crash left open at the end of the log; `None` if there are none."""
        return find_recovery(self.log, self._index.tree, self._reader.read_after)

    @property
    def waiting(self) -> Sequence[WaitingMessage]:
        """The messages that are queued and not delivered yet, in order."""
        found = [read_waiting(id, fields) for id, fields in self._index.waiting.items()]
        return [item for item in found if item is not None]

    @property
    def delivered_keys(self) -> dict[str, AgentMessage]:
        """The delivered messages that were queued under a key, by that key."""
        found = {key: read_message(fields.get("message")) for key, fields in self._index.delivered_keys.items()}
        return {key: message for key, message in found.items() if message is not None}

    def tree(self) -> Sequence[Branch]:
        """The branches of the conversation; the one with the latest entry comes last."""
        return self._index.tree.list_branches()

    def diff(self, left: str, right: str) -> Difference:
        """What two branches share and how they differ; a branch is named by an entry id or a label."""
        tree = self._index.tree
        return tree.compare(tree.resolve(left), tree.resolve(right))

    def entries(self, leaf: str | None = None) -> Sequence[Entry]:
        """The entries from the beginning to a leaf, named by id or label, or to the current entry."""
        return self._reader.read_entries(leaf)

    def records(self, after: int = 0) -> Iterator[Record]:
        """The records after a number, in order: everything that happened, on every branch."""
        return self._reader.read_after(after)

    # Changing

    def label(self, target: str, text: str | None) -> None:
        """Label an entry, which is named by its id or its old label; `None` removes the label."""
        self._check_writable()
        if text is not None and not is_instance(text, str):
            raise TypeError(f"A label is a string, or None to remove it, got {text!r}.")
        tree = self._index.tree
        node, text = tree.find_node(tree.resolve(target)), self.recorder.redact_value(text)
        self._index.set_label(node.id, text)
        self.recorder.add("label", {"target": node.id, "text": text})

    def set_title(self, title: str) -> None:
        """Set the title that lists show; until then they show the first words of the user."""
        self._check_writable()
        if not is_instance(title, str):
            raise TypeError(f"A title is a string, got {title!r}.")
        self.flush()
        self._handle.set_title(self.recorder.redact_value(title))

    def branch(self, at: str | int) -> Log:
        """Go back to an entry of any branch, by id, label or message index: what comes next is a new branch."""
        self._check_idle()
        log = self.find_log_with(at).fork(self.resolve_entry(at))
        self.move_to(log)
        if (moved := self._get_moved_callback()) is not None:
            moved(log)
        return log

    def find_log_with(self, at: str | int) -> Log:
        """Find a log that contains this entry: the current one, or that of the most recently used branch with it."""
        if not isinstance(at, str) or self._is_on_current_branch(self.resolve_entry(at)):
            return self.log
        return self._reader.build_log(self._index.tree.find_last_below(self.resolve_entry(at)))

    def resolve_entry(self, at: Any) -> Any:
        """The entry id for a label; an id or a message index stays as it is."""
        return self._index.tree.resolve(at) if isinstance(at, str) else at

    def move_to(self, log: Log) -> None:
        """Continue with this log; entries that are new to the session are recorded."""
        if log is self._log:
            return
        self._check_writable()
        tree = self._index.tree
        entries = log.entries
        shared = tree.count_shared([entry.id for entry in entries])
        parent, rest = entries[shared - 1].id if shared else None, entries[shared:]
        if any(entry.id in tree.nodes for entry in rest):
            raise SessionError(
                "This log has entries of the session in another order. To go on from them as if they were new, assign "
                "the messages: agent.context.messages = [...]."
            )
        if parent != tree.tip or rest:
            self._index.move_to(parent)
            self.recorder.add("leaf", {"target": parent})
        self._attach(log)
        self.recorder.record_state_and_artifacts(log, shared, self._reader.read_changes(None))
        for place, entry in enumerate(rest, shared + 1):
            self.recorder.record_entry(entry)
            self.recorder.record_changes_at(log, place)

    def compact(self, config: ContextConfig | None = None) -> bool:
        """Shorten what the model sees without asking a model; returns whether anything became shorter."""
        self._check_idle()
        return compact_log(self.log, config) is not None

    def undo(self, entry_id: str | None = None) -> None:
        """Undo a compaction or a prun, the last one unless it is named."""
        self._check_idle()
        undo_change(self.log, entry_id)

    # For the agent

    def reserve(self, busy: Callable[[], bool], moved: Callable[[Log], None]) -> None:
        """Reserve the session for an agent: `busy` says whether it runs, and `moved` is called with another log."""
        self._check_writable()
        if self._get_moved_callback() is not None:
            raise SessionBusy(
                f"An agent uses the session {self.id!r} already. Close that agent, or give this one its own session."
            )
        self._owner = WeakMethod(busy), WeakMethod(moved)

    def release(self) -> None:
        """Free the session for another agent."""
        self._owner = None
        self.listening.stop()

    # Internals

    def _register_writer(self, store: Store) -> Self:
        if self.writable:
            writers[self] = store
        return self

    def _close_now(self) -> None:
        self.closed = True
        self._finalizer.detach()
        writers.pop(self, None)
        if self.recorder.journal is not None:
            self.recorder.journal.close()
        else:
            self._handle.close()

    def _get_moved_callback(self) -> Callable[[Log], None] | None:
        return None if self._owner is None else self._owner[1]()

    def _check_writable(self) -> None:
        if self.closed:
            raise SessionError(f"The session {self.id!r} is closed.")
        if not self.writable:
            raise SessionError(f"The session {self.id!r} was opened with write=False: it can be read, not changed.")

    def _check_idle(self) -> None:
        self._check_writable()
        self._check_not_running()

    def _check_not_running(self) -> None:
        busy = None if self._owner is None else self._owner[0]()
        if busy is not None and busy():
            raise SessionBusy(
                "The session's agent is running. Wait for it: await agent.wait_for_idle(); agent.abort() stops it."
            )

    def _is_on_current_branch(self, id: str) -> bool:
        wanted = self._index.tree.find_node(id).id
        return any(entry.id == wanted for entry in self.log.entries)

    def _attach(self, log: Log) -> None:
        if self._log is not None:
            self._log.listener = self._log.state.listener = self._log.artifacts.listener = None
        self._log = log
        if self.writable:
            log.artifacts.move_to(self._contents)
            log.listener, log.state.listener = self.recorder.record_entry, self.recorder.record_change
            log.artifacts.listener = self.recorder.record_save
