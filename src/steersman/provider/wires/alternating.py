"""The encoded messages of an API that wants the roles to alternate: consecutive messages of one role become one.

One user message holds all tool results of a turn, then the user's own text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

from steersman.types.content import Content, ThinkingContent
from steersman.types.frozen import MemoList
from steersman.types.messages import AssistantMessage, Message

USER = b'{"role":"user","content":['
ASSISTANT = b'{"role":"assistant","content":['
END = b"]}"
_MOST_DONE = 4
"""A wire marks the last two user messages anew in each request: they are among so many, and the last one."""


class AlternatingMessages:
    """The encoded messages of a conversation; `extend` adds new ones and keeps the rest."""

    __slots__ = (
        "_answered", "_blocks", "_done", "_first", "_last", "_last_size", "_results", "_role", "count", "earlier",
        "used",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0
        # The tools that were called: the API wants declarations for them.
        self.used: dict[str, None] = {}
        # The JSON of the messages before the last few, each with a comma behind it.
        self.earlier = bytearray()
        # That of the last few, without the last one.
        self._done: list[bytes] = []
        self._role = b""
        self._results: list[bytes] = []
        self._blocks: list[bytes] = []
        # The JSON of the last message, and how many blocks it has.
        self._last = b""
        self._last_size = 0
        # The first block of the answers since the last prompt, and whether results followed the last answer.
        self._first: Content | None = None
        self._answered = False

    @property
    def works_without_thinking(self) -> bool:
        """Whether the current tool calls began without thinking, because of another model or with thinking off.

        With a thinking budget, Claude wants the answers since the last prompt to begin with signed thinking.
        """
        first = self._first
        # A block of an unknown type, such as a call of the server's own tools, is kept as thinking with a `field`.
        return self._answered and not (type(first) is ThinkingContent and first.signature and first.field is None)

    def extend(self, messages: Iterable[Message]) -> None:
        """Encode more messages."""
        raise NotImplementedError

    def list_last(self) -> list[bytes]:
        """Return the JSON of each of the last messages, those behind `earlier`; the last one may still grow."""
        last = self._encode_open_message()
        return [*self._done, last] if last else list(self._done)

    def _begin_answer(self, message: AssistantMessage) -> None:
        if not self._answered:
            self._first = message.content[0] if message.content else None
        self._answered = False

    def _switch_role(self, role: bytes) -> None:
        if role is self._role:
            return
        if last := self._encode_open_message():
            self._done.append(last)
            if len(self._done) > _MOST_DONE:
                self.earlier += self._done.pop(0) + b","
        self._role = role
        self._results = []
        self._blocks = []
        self._last, self._last_size = b"", 0

    def _encode_open_message(self) -> bytes:
        size = len(self._results) + len(self._blocks)
        if size != self._last_size:
            self._last = b"".join((self._role, b",".join(self._results + self._blocks), END))
            self._last_size = size
        return self._last


Encoded = TypeVar("Encoded", bound=AlternatingMessages)


def encode_new_messages(
    messages: Sequence[Message], memo: str, make: Callable[[], Encoded], is_current: Callable[[Encoded], bool]
) -> Encoded:
    """Encode the messages; of a conversation that only grew, encode just the new ones.

    `memo` is the key under which a conversation keeps them. All are encoded again unless what is kept `is_current`.
    """
    base: object = getattr(messages, "base", None)
    if not isinstance(base, MemoList):
        fresh = make()
        fresh.extend(messages)
        return fresh
    grown = cast(MemoList[Message], base)
    known: Encoded | None = grown.memo.get(memo)
    if known is None or not is_current(known):
        known = grown.memo[memo] = make()
    elif known.count > len(messages):
        known = make()  # an older request again: the memo is for the newer ones
    known.extend(grown[known.count : len(messages)])
    return known
