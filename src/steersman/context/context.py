"""What a run works on: a system prompt, tools, and the log of what has been said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Never, cast, overload

from steersman.context.entries import Live, Pruned
from steersman.context.log import Log
from steersman.context.repair import Repairer
from steersman.context.tokens import HeadSize
from steersman.types.continuation import ContinuationKind
from steersman.types.guards import is_instance
from steersman.types.messages import AgentMessage, MessageLike, UserMessage, to_message, to_messages

if TYPE_CHECKING:
    from steersman.context.repair import Recovery


class Transcript(Sequence[AgentMessage]):
    """The messages of a context, always up to date. It grows like a list and refuses every other change."""

    __slots__ = ("_log",)

    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride]  # equal to lists, so as unhashable as they are

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def log(self) -> Log:
        """The log behind it."""
        return self._log

    def append(self, message: MessageLike) -> None:
        """Add a message, a text or a dict such as `{"role": "user", "content": "Hello"}`."""
        self._log.append(to_message(message))

    def extend(self, messages: Iterable[MessageLike]) -> None:
        """Add several, or none if one of them is no message."""
        for message in _parse_messages(messages):
            self._log.append(message)

    def copy(self) -> list[AgentMessage]:
        """A plain list of the messages."""
        return list(self)

    def __iadd__(self, messages: Iterable[MessageLike]) -> Transcript:
        self.extend(messages)
        return self

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

    def _refuse(self, *_: object, **__: object) -> Never:
        raise TypeError(
            "Messages in a transcript cannot be changed. To go on from an earlier point use context.log.fork(at); "
            "to start from other messages assign a new list: context.messages = [...]."
        )

    __setitem__ = __delitem__ = insert = pop = remove = clear = sort = reverse = __imul__ = _refuse


class AgentContext:
    """A conversation that runs read and add to; reusing one continues it."""

    __slots__ = (
        "agent_id",
        "continuation_kind",
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
        self.log = Log(_parse_messages(messages))
        self.tools: Sequence[Any] = list(tools)
        self.undelivered: list[Any] = []
        self.running = False
        self.head = HeadSize()
        self.repairer: Repairer | None = None
        self.recovery: Recovery | None = None
        self.agent_id = agent_id
        self.session_id = session_id
        self.loop_id = loop_id
        self.last_loop_id = last_loop_id
        self.parent_loop_id = parent_loop_id
        self.continuation_kind = continuation_kind

    @property
    def messages(self) -> Transcript:
        """Everything that was said; append to it, or assign other messages to begin a new log."""
        return Transcript(self.log)

    @messages.setter
    def messages(self, value: Iterable[MessageLike]) -> None:
        # `context.messages += [...]` has already added them and hands the same transcript back.
        if not (isinstance(value, Transcript) and value.log is self.log):
            self.log = Log(_parse_messages(value))

    def get_repairer(self, provider: str, model: str) -> Repairer:
        """The repairer of this context, which repairs only new messages as long as the model stays the same."""
        if self.repairer is None or (self.repairer.provider, self.repairer.model) != (provider, model):
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
