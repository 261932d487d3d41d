"""A model, a request to it, and `StreamFn`, the callable type of every provider and wrapper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from steersman.types.frozen import FrozenDict
from steersman.types.messages import AgentMessage, Message
from steersman.types.stream import StreamEvent
from steersman.types.usage import Prices

ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high"]
ToolChoice: TypeAlias = Literal["auto", "none", "required"]


_NOTHING = FrozenDict()


def _share_nothing() -> FrozenDict:
    """The headers and settings of all models that have none; a dataclass takes no dict as a default."""
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Model:
    """A model: its provider and id, its URL and key, its context window and prices."""

    provider: str
    id: str
    base_url: str | None = None
    api_key: str | Callable[[], str | Awaitable[str]] | None = field(default=None, repr=False)
    context_window: int | None = None
    max_output_tokens: int | None = None
    prices: Prices | None = None
    headers: Mapping[str, str] = field(default_factory=_share_nothing, repr=False)
    settings: Mapping[str, Any] = field(default_factory=_share_nothing, repr=False)

    @property
    def name(self) -> str:
        """`provider:id`, as users type it."""
        return f"{self.provider}:{self.id}"

    def __repr__(self) -> str:
        # A URL may hold a password, and other fields hold keys.
        return f"Model({self.name!r})"


class ToolSpec(Protocol):
    """The name, description and schema of a tool, as a model gets them."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a model: a valid transcript, ready to send.

    `tokens` is the estimated size of the messages, where the caller has counted them. `source_messages` are the
    messages before they were converted for this model: a fallback to another model converts them again, because what
    is left out for one model may be the other model's own thinking. Providers get requests without them.
    """

    system_prompt: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    tokens: int | None = field(default=None, compare=False)
    source_messages: Sequence[AgentMessage] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a request."""

    api_key: str | None = field(default=None, repr=False)
    thinking_level: ThinkingLevel = "off"
    max_tokens: int | None = None
    temperature: float | None = None
    tool_choice: ToolChoice = "auto"
    output_schema: Mapping[str, Any] | None = None
    session_id: str | None = None
    top_p: float | None = None
    stop: Sequence[str] = ()
    seed: int | None = None


StreamResponse: TypeAlias = AsyncIterator[StreamEvent]


class StreamFn(Protocol):
    """Asks a model: an async generator function, or a coroutine function that gives an async iterator."""

    def __call__(
        self, model: Model, request: Request, options: StreamOptions, /
    ) -> StreamResponse | Awaitable[StreamResponse]: ...
