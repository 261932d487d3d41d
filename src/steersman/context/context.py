"""What a run works on: a system prompt, tools, and the log of what has been said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast, overload

from steersman.context.entries import Live, Pruned
from steersman.context.log import Log
from steersman.context.tokens import HeadSize
from steersman.types.continuation import ContinuationKind
from steersman.types.errors import AgentBusy
from steersman.types.guards import is_instance
from steersman.types.ids import new_id
from steersman.types.messages import AgentMessage, MessageLike, UserMessage, to_message, to_messages
from steersman.types.state import StateChange

if TYPE_CHECKING:
    from steersman.context.repair import Recovery, Repairer


class Transcript(Sequence[AgentMessage]):
    """The messages of a context, always up to date. It works like a list; an agent's cannot be changed during a run.

    Appending adds to the log. The log is never rewritten: any other change begins a new one, as assigning a list does.
    """

    __slots__ = ("_context", "_log", "_on_replace")

    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride]  # equal to lists, so as unhashable as they are

    def __init__(self, context: AgentContext, on_replace: Callable[[], object] | None = None) -> None:
        self._context = context
        self._log = context.log
        # Called after another log has taken the place of this one.
        self._on_replace = on_replace

    @property
    def log(self) -> Log:
        """The log behind it."""
        return self._log

    def append(self, message: MessageLike) -> None:
        """Add a message, a text or a dict such as `{"role": "user", "content": "Hello"}`."""
        self.extend((message,))

    def extend(self, messages: Iterable[MessageLike]) -> None:
        """Add several, or none if one of them is no message."""
        if self._context.has_agent:
            self._check_idle()
        for message in _parse_messages(messages):
            self._log.append(message)

    def insert(self, index: int, message: MessageLike) -> None:
        """Put a message before the one at this index."""
        self._edit(lambda messages: messages.insert(index, to_message(message)))

    def pop(self, index: int = -1) -> AgentMessage:
        """Take a message out, the last one if no index is given."""
        return self._edit(lambda messages: messages.pop(index))

    def remove(self, message: AgentMessage) -> None:
        """Take out the first message that is equal to this one."""
        self._edit(lambda messages: messages.remove(message))

    def clear(self) -> None:
        """Take out all messages."""
        self._edit(lambda messages: messages.clear())

    def reverse(self) -> None:
        """Turn the order around."""
        self._edit(lambda messages: messages.reverse())

    def sort(self, *, key: Callable[[AgentMessage], Any], reverse: bool = False) -> None:
        """Sort by a key, such as the `timestamp`."""
        self._edit(lambda messages: messages.sort(key=key, reverse=reverse))

    def copy(self) -> list[AgentMessage]:
        """A plain list of the messages."""
        return list(self)

    def __copy__(self) -> list[AgentMessage]:
        return list(self)

    def __deepcopy__(self, memo: object) -> list[AgentMessage]:
        return list(self)  # messages cannot be changed, so there is nothing below to copy

    def __iadd__(self, messages: Iterable[MessageLike]) -> Transcript:
        self.extend(messages)
        return self

    def __imul__(self, count: int) -> Transcript:
        self._edit(lambda messages: messages.__imul__(count))
        return self

    def __setitem__(self, index: int | slice, value: Any) -> None:
        new = _parse_messages(value) if isinstance(index, slice) else to_message(value)
        self._edit(lambda messages: messages.__setitem__(index, new))

    def __delitem__(self, index: int | slice) -> None:
        self._edit(lambda messages: messages.__delitem__(index))

    def __len__(self) -> int:
        return len(self._log.messages)

    @overload
    def __getitem__(self, index: int) -> AgentMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[AgentMessage]: ...
    def __getitem__(self, index: int | slice) -> AgentMessage | list[AgentMessage]:
        return self._log.messages[index]

    def __iter__(self) -> Iterator[AgentMessage]:
        return iter(self._log.messages)

    def __eq__(self, other: object) -> bool:
        return self._log.messages == other

    def __add__(self, other: Sequence[Any]) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Sequence[Any]) -> list[Any]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(list(self))

    def _edit(self, change: Callable[[Any], Any]) -> Any:
        """Change a copy of the messages, which is the beginning of a new log."""
        self._check_idle()
        messages = list(self)
        returned = change(messages)
        is_current = self._context.log is self._log
        former, self._log = self._log, Log(messages)
        if former.state:
            self._log.state.restore([(0, StateChange(dict(former.state)))])
        self._log.artifacts.contents = former.artifacts.contents
        if saved := former.artifacts.compute(len(former.entries)):
            from steersman.types.artifacts import ArtifactChange  # most conversations keep no files

            self._log.artifacts.restore([(0, ArtifactChange(saved))])
        if is_current:
            self._context.log = self._log
            if self._on_replace is not None:
                self._on_replace()
        return returned

    def _check_idle(self) -> None:
        if self._context.log is self._log:
            self._context.check_idle()


class AgentContext:
    """A conversation that runs read and add to; reusing one continues it."""

    __slots__ = (
        "agent_id",
        "approved_calls",
        "continuation_kind",
        "has_agent",
        "head",
        "last_loop_id",
        "log",
        "loop_id",
        "parent_loop_id",
        "recovery",
        "repairer",
        "running",
        "session_id",
        "system_prompt",
        "tools",
        "undelivered",
    )

    def __init__(
        self,
        system_prompt: str = "",
        messages: Iterable[MessageLike] | str = (),
        tools: Iterable[Any] = (),
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        loop_id: str | None = None,
        last_loop_id: str | None = None,
        parent_loop_id: str | None = None,
        continuation_kind: ContinuationKind | None = None,
    ) -> None:
        if not is_instance(system_prompt, str):
            raise TypeError(f"system_prompt is a string, got {system_prompt!r}.")
        if is_instance(tools, str) or not is_instance(tools, Iterable):
            raise TypeError(f"Tools come as a list, such as tools=[read, write], got {tools!r}.")
        self.system_prompt = system_prompt
        self.log = Log() if messages == () else Log(_parse_messages(messages))
        self.tools: Sequence[Any] = list(tools)
        self.undelivered: Sequence[Any] = ()
        self.running = False
        # Whether it belongs to an `Agent`: then nothing is added to its messages from outside during a run.
        self.has_agent = False
        # The fingerprints of calls that were approved for good where no policy asked, and so none remembers them.
        # Sub-agents have the same ones.
        self.approved_calls: set[tuple[str, object]] | None = None
        self.head = HeadSize()
        self.repairer: Repairer | None = None
        self.recovery: Recovery | None = None
        self.agent_id = agent_id
        self.session_id = session_id
        self.loop_id = loop_id
        self.last_loop_id = last_loop_id
        self.parent_loop_id = parent_loop_id
        self.continuation_kind = continuation_kind

    def mint_ids(self, mint: Callable[[str], str]) -> None:
        """Make the ids that are missing for a run; its entries in the log get theirs from the same source."""
        self.loop_id = self.loop_id or mint("loop")
        self.agent_id = self.agent_id or mint("agent")
        self.session_id = self.session_id or mint("session")
        if mint is not new_id:  # a replay has set a source of its own
            self.log.mint = mint

    @property
    def messages(self) -> Transcript:
        """Everything that was said. It works like a list; assign other messages to begin a new log."""
        return Transcript(self)

    @messages.setter
    def messages(self, value: Iterable[MessageLike]) -> None:
        # `context.messages += [...]` has already added them and hands the same transcript back.
        if not (isinstance(value, Transcript) and value.log is self.log):
            if self.has_agent:
                self.check_idle()
            self.log = Log(_parse_messages(value))

    def check_idle(self) -> None:
        """Raise `AgentBusy` while a run uses the messages."""
        if self.running:
            raise AgentBusy(
                "The messages cannot be changed during a run. Use agent.steer() or agent.follow_up(), or wait: "
                "await agent.wait_for_idle()."
            )

    def get_approved_calls(self) -> set[tuple[str, object]]:
        """The approved calls, each with who asked, to add to and to share; most contexts never have any."""
        if self.approved_calls is None:
            self.approved_calls = set()
        return self.approved_calls

    def get_repairer(self, provider: str, model: str) -> Repairer:
        """The repairer of this context, which repairs only new messages as long as the model stays the same."""
        if self.repairer is None or (self.repairer.provider, self.repairer.model) != (provider, model):
            from steersman.context.repair import Repairer  # only a run needs it

            self.repairer = Repairer(provider, model)
        return self.repairer

    @property
    def user_context(self) -> list[UserMessage]:
        """Prompts, steering and follow-ups."""
        return self.log.user_context

    @property
    def inrun_context(self) -> list[Live | Pruned]:
        """What the model and its tools said, and whether the model still wants to see it."""
        return self.log.inrun_context

    def __repr__(self) -> str:
        return f"AgentContext({self.system_prompt!r}, {len(self.log.messages)} messages, {len(self.tools)} tools)"


def _parse_messages(values: Iterable[MessageLike] | MessageLike) -> list[AgentMessage]:
    one = isinstance(values, str | Sequence | Mapping) or not isinstance(values, Iterable)
    return to_messages(cast(Any, values) if one else list(cast(Iterable[MessageLike], values)))
