"""The append-only log of a conversation, and its read-only views; what the model sees is kept up to date."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import repeat
from typing import TYPE_CHECKING

from steersman.context.entries import (
    CompactionEntry,
    Entry,
    Live,
    MessageEntry,
    Pruned,
    PrunEntry,
    UndoEntry,
    make_part_id,
)
from steersman.context.tokens import Estimator, estimate_tokens, estimate_total_tokens
from steersman.context.visible import (
    VisibleMessages,
    apply_prun,
    choose_groups,
    compute_visible,
    find_group_end,
    find_last_question,
    list_inrun,
    list_undo_targets,
)
from steersman.types.content import ToolCall
from steersman.types.frozen import View
from steersman.types.guards import is_instance
from steersman.types.ids import new_id
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    ExtensionMessage,
    ToolResultMessage,
    UserMessage,
)
from steersman.types.state import State

if TYPE_CHECKING:
    from steersman.types.artifacts import Artifacts


class MessageView(View[AgentMessage]):
    """Messages, in log order."""

    __slots__ = ()


_MESSAGES = (UserMessage, AssistantMessage, ToolResultMessage, ExtensionMessage)
_making = threading.Lock()


class Log:
    """All messages in order, and the view of them that the model gets after compaction and prun."""

    __slots__ = (
        "_artifacts", "_call_ids", "_counted", "_entries", "_estimator", "_ids", "_is_measured", "_messages", "_state",
        "_tokens", "_usage_from", "_visible", "_visible_ids", "listener", "loops", "mint", "parent",
    )  # fmt: skip

    def __init__(self, messages: Iterable[AgentMessage] = (), *, estimator: Estimator = estimate_tokens) -> None:
        self.parent: tuple[Log, str] | None = None
        # Called with every entry after it was added, for a session; it must not raise.
        self.listener: Callable[[Entry], None] | None = None
        # The runs that added to it, each with the index of its first entry.
        self.loops: list[tuple[int, str]] = []
        # Makes the id of an entry; a replay returns the recorded one.
        self.mint: Callable[[str], str] = new_id
        self._estimator = estimator
        self._entries: list[Entry] = []
        self._state: State | None = None
        self._artifacts: Artifacts | None = None
        self._messages: list[AgentMessage] = []
        self._ids: list[str] = []
        # Until something is hidden from the model the two views are one list, and appending is one append.
        self._visible = self._messages
        self._visible_ids = self._ids
        # A dict, because an empty set takes three times the memory, and every agent has a log.
        self._call_ids: dict[str, None] = {}
        self._tokens = 0
        self._counted = 0
        self._is_measured = False
        self._usage_from = 0
        for message in messages:
            self.append(message)

    @classmethod
    def from_entries(cls, entries: Iterable[Entry], *, estimator: Estimator = estimate_tokens) -> Log:
        """The log that these entries make, as a session file or another log holds them."""
        log = cls(estimator=estimator)
        for entry in entries:
            log._entries.append(entry)
            if type(entry) is MessageEntry:
                log._add_message(entry.id, entry.message)
        log._rebuild_visible()
        return log

    def append(self, message: AgentMessage) -> str:
        """Add a message and give its entry id."""
        if type(message) not in _MESSAGES:
            _check_message(message)
        entry_id = self.mint("entry")
        entry = MessageEntry(entry_id, message)
        self._entries.append(entry)
        self._add_message(entry_id, message)
        if self.listener is not None:
            self.listener(entry)
        return entry_id

    def append_results(self, results: Sequence[ToolResultMessage]) -> None:
        """Add the results of tool calls; all in one step, unless a listener is told of each."""
        if self.listener is not None:
            for result in results:
                self.append(result)
            return
        ids = [*map(self.mint, repeat("entry", len(results)))]
        self._entries += map(MessageEntry, ids, results)
        self._messages += results
        self._ids += ids
        if self._visible is not self._messages:
            self._visible += results
            self._visible_ids += ids

    @property
    def entries(self) -> View[Entry]:
        """All entries, in order."""
        return View(self._entries)

    @property
    def messages(self) -> MessageView:
        """All messages, in order."""
        return MessageView(self._messages)

    @property
    def visible(self) -> MessageView:
        """What the model may see: `messages` after compaction and prun."""
        return MessageView(self._visible)

    @property
    def call_ids(self) -> Set[str]:
        """The ids of all tool calls in the log."""
        return self._call_ids.keys()

    @property
    def state(self) -> State:
        """What the conversation keeps for its tools; made at first use, since most conversations keep nothing."""
        if self._state is None:
            with _making:  # two threads get the same one
                if self._state is None:
                    self._state = State(self._entries)
        return self._state

    @state.setter
    def state(self, value: State) -> None:
        self._state = value

    @property
    def artifacts(self) -> Artifacts:
        """The files that the conversation keeps; made at first use."""
        if self._artifacts is None:
            from steersman.types.artifacts import Artifacts  # most conversations keep no files

            with _making:
                if self._artifacts is None:
                    self._artifacts = Artifacts(self._entries)
        return self._artifacts

    @artifacts.setter
    def artifacts(self, value: Artifacts) -> None:
        self._artifacts = value

    @property
    def tokens(self) -> int:
        """About how many tokens `visible` has: the last usage a provider reported, and estimates since."""
        visible = self._visible
        if self._counted == len(visible):
            return self._tokens
        tokens = self._tokens
        for index in range(self._counted, len(visible)):
            message = visible[index]
            # A usage from before the view changed belongs to another context.
            if (
                index >= self._usage_from
                and type(message) is AssistantMessage
                and (known := _get_reported_tokens(message))
            ):
                tokens = known
                self._is_measured = True
            else:
                tokens += self._estimator(message)
        self._tokens = tokens
        self._counted = len(visible)
        return tokens

    @property
    def is_measured(self) -> bool:
        """Whether `tokens` begins with what a provider reported: it counts the system prompt and the tools too."""
        _ = self.tokens  # counts what is new
        return self._is_measured

    @property
    def estimator(self) -> Estimator:
        """What `tokens` and `prun` measure with; assigning another counts anew."""
        return self._estimator

    @estimator.setter
    def estimator(self, value: Estimator) -> None:
        if value is not self._estimator:
            self._estimator = value
            self._forget_count()

    def find_loop(self, at: str | int | None = None) -> str | None:
        """The run that an entry belongs to, the last one without `at`; `None` if no run has added it."""
        place = len(self._entries) - 1 if at is None else self._find_entry(at)
        return next((loop_id for start, loop_id in reversed(self.loops) if start <= place), None)

    @property
    def user_context(self) -> list[UserMessage]:
        """Prompts, steering and follow-ups; not what the loop itself said."""
        return [message for message in self._messages if type(message) is UserMessage and not message.synthetic]

    @property
    def inrun_context(self) -> list[Live | Pruned]:
        """What the model and its tools said, and whether the model still wants to see it."""
        return list_inrun(self._entries, self._messages, self._ids)

    def visible_id(self, index: int) -> str:
        """The id of `visible[index]`."""
        return _get_id(self._visible_ids, index, "visible")

    def entry_id_of(self, index: int) -> str:
        """The entry id of `messages[index]`."""
        return _get_id(self._ids, index, "messages")

    def prun(self, tokens: int, *, memo: str | None = None, spare: str | None = None) -> PrunEntry | None:
        """Hide the model's most recent work, whole groups at a time, until `tokens` are freed; `None` if there is none.

        The group whose assistant message has the id `spare` stays, and so do the groups after it.
        """
        visible = self._visible
        end = len(visible) if spare is None else self._find_spared_index(spare)
        taken, freed = choose_groups(visible, end, tokens, self._estimator)
        if not taken:
            return None
        note = memo.strip() if memo else ""
        hidden = [self._visible_ids[index] for index in taken]
        entry = PrunEntry(self.mint("entry"), hidden, freed, note or None)
        self._set_visible(apply_prun(entry, visible, self._visible_ids))
        self._add_entry(entry)
        return entry

    def compact(self, replacement: Sequence[AgentMessage]) -> CompactionEntry:
        """Show the model `replacement` for all it saw so far; messages it shares with `visible` keep their ids."""
        visible = list(replacement)
        if not visible and self._visible:
            raise ValueError("A compaction would leave the model nothing. Keep at least the first user message.")
        places: dict[int, list[int]] = {}
        for index in range(len(self._visible) - 1, -1, -1):
            places.setdefault(id(self._visible[index]), []).append(index)
        entry_id = self.mint("entry")
        items: list[str | AgentMessage] = []
        ids: list[str] = []
        for number, message in enumerate(visible):
            _check_message(message)
            same = places.get(id(message))
            kept = self._visible_ids[same.pop()] if same else None
            ids.append(kept or make_part_id(entry_id, number))
            items.append(kept or message)
        entry = CompactionEntry(entry_id, items, self.tokens, estimate_total_tokens(visible, self._estimator))
        self._set_visible(VisibleMessages(visible, ids, len(visible)))
        self._add_entry(entry)
        return entry

    def undo(self, entry_id: str) -> None:
        """Undo a compaction or a prun; the log keeps both it and the undo."""
        entry = next((entry for entry in self._entries if entry.id == entry_id), None)
        if entry is None:
            raise ValueError(f"No entry {entry_id!r} in this log. The ids are in log.entries.")
        if not isinstance(entry, CompactionEntry | PrunEntry):
            raise ValueError(
                f"Only a compaction or a prun can be undone, and {entry_id!r} is of type {entry.type!r}. "
                "To go back to an earlier message use log.fork(at)."
            )
        if entry_id in list_undo_targets(self._entries):
            raise ValueError(f"The {entry.type} {entry_id!r} is already undone.")
        self._add_entry(UndoEntry(self.mint("entry"), entry_id))
        self._rebuild_visible()

    def fork(self, at: str | int) -> Log:
        """A new log up to `at`, an entry id or a message index, and the rest of the tool group there."""
        if is_instance(at, bool) or not is_instance(at, str | int):
            raise TypeError(f"Fork at an entry id or a message index, got {at!r}.")
        place = self._find_entry(at)
        end = find_group_end(self._entries, place)
        log = Log.from_entries(self._entries[:end], estimator=self._estimator)
        log.parent = (self, self._entries[end - 1].id)
        log.loops = [(start, loop_id) for start, loop_id in self.loops if start < end]
        log.copy_state_and_artifacts(self, end)
        return log

    def copy_state_and_artifacts(self, log: Log, end: int | None = None) -> None:
        """Copy the state and the artifacts of another log, as they are after its first `end` entries."""
        most = len(log.entries) if end is None else end
        self.state.restore(change for change in log.state.changes if change[0] <= most)
        self.artifacts.contents = log.artifacts.contents
        self.artifacts.restore(change for change in log.artifacts.changes if change[0] <= most)

    def rewind(self, at: str | int | None = None) -> Log:
        """A new log that ends with what the answer at `at` was given to: a user's message, or tool results.

        Without `at` it is the last thing a user said.
        """
        place = len(self._entries) - 1 if at is None else self._find_entry(at)
        question = find_last_question(self._entries, place, spoken_only=at is None)
        if question is None:
            raise ValueError("There is nothing to rerun: no user message in the conversation so far. Use prompt().")
        return self.fork(self._entries[question].id)

    def _add_entry(self, entry: Entry) -> None:
        self._entries.append(entry)
        if self.listener is not None:
            self.listener(entry)

    def _add_message(self, entry_id: str, message: AgentMessage) -> None:
        self._messages.append(message)
        self._ids.append(entry_id)
        if self._visible is not self._messages:
            self._visible.append(message)
            self._visible_ids.append(entry_id)
        if type(message) is AssistantMessage:
            for block in message.content:
                if type(block) is ToolCall:
                    self._call_ids[block.id] = None

    def _set_visible(self, seen: VisibleMessages) -> None:
        """Set new lists, so that views of the old ones stay as they were."""
        self._visible = seen.messages
        self._visible_ids = seen.ids
        self._usage_from = seen.usage_from
        self._forget_count()

    def _forget_count(self) -> None:
        self._tokens = self._counted = 0
        self._is_measured = False

    def _rebuild_visible(self) -> None:
        seen = compute_visible(self._entries)
        if len(seen.ids) == len(self._ids) and seen.ids == self._ids:
            seen.messages, seen.ids = self._messages, self._ids
        self._set_visible(seen)

    def _find_spared_index(self, spare: str) -> int:
        for index in range(len(self._visible_ids) - 1, -1, -1):
            if self._visible_ids[index] == spare:
                return index
        raise ValueError(
            f"No visible entry {spare!r} to spare. Give the id that append() returned for the assistant message."
        )

    def _find_entry(self, at: str | int) -> int:
        entry_id = self.entry_id_of(at) if isinstance(at, int) else at
        # A message that a compaction or a prun brought lives in the entry its id begins with.
        for wanted in (entry_id, entry_id.rpartition(".")[0]):
            for place, entry in enumerate(self._entries):
                if entry.id == wanted:
                    return place
        raise ValueError(f"No entry {entry_id!r} to fork at. Give an id from log.entries or a message index.")


def _check_message(message: object) -> None:
    if not isinstance(message, _MESSAGES):
        raise TypeError(f"A log takes messages, got {message!r}. Convert it with to_message(value) first.")


def _get_reported_tokens(message: AssistantMessage) -> int | None:
    return None if message.failed else message.usage.total


def _get_id(ids: list[str], index: int, name: str) -> str:
    if not -len(ids) <= index < len(ids):
        raise IndexError(f"There is no message {index!r} in log.{name}, which has {len(ids)}.")
    return ids[index]
