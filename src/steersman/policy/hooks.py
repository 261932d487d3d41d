"""The seams of a run where a caller may decide.

Hook objects, single callables and the four policy lists are one mechanism: each seam has a tuple of callables, called
in order. The first `Stop`, `Skip` or `ToolOutput` wins, all `Inject`s are added, each `Rewrite` applies to the result
of the one before. A callable that raises ends the run or denies the call. So does a gate (`before_...`, or a policy)
that returns what means nothing at its seam; what an observer returns is ignored unless it is a verdict or `False`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from steersman.policy.verdicts import Stop, Verdict
from steersman.types.content import ToolCall
from steersman.types.errors import SteersmanError
from steersman.types.guards import to_snake_case
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage
from steersman.types.tools import ToolOutput
from steersman.types.usage import Usage

Answer: TypeAlias = Verdict | ToolOutput | bool | None
MaybeAwaitable: TypeAlias = Answer | Awaitable[Answer]

_PREFIXES = ("before_", "after_", "on_")

SEAMS: dict[str, tuple[str, ...]] = {
    "before_loop": ("messages", "turn_index"),
    "before_turn": ("messages", "turn_index"),
    "before_compaction_start": ("estimated_tokens", "message_count"),
    "after_compaction_end": ("messages_before", "messages_after", "tokens_before", "tokens_after"),
    "before_tool_execution": ("call",),
    "after_tool_execution": ("call", "output"),
    "after_turn": ("messages", "usage"),
    "before_follow_up": ("messages",),
    "on_error": ("text",),
    "after_loop": ("messages", "usage"),
}
"""Each seam with the arguments its hooks are called with."""

_SQUASHED_SEAMS = frozenset(seam.replace("_", "") for seam in SEAMS)

OBSERVERS = frozenset(("after_compaction_end", "after_tool_execution", "after_turn", "on_error", "after_loop"))
"""The seams after something happened: a function there may return anything, such as the number that `write` returns."""

TOOL_GATES = ("pre_dispatch_policies", "before_tool_execution")
"""The seams before a tool call."""

POLICY_SEAMS: dict[str, str] = {
    "pre_turn_policies": "before_turn",
    "pre_dispatch_policies": "before_tool_execution",
    "post_turn_policies": "after_turn",
    "post_loop_policies": "before_follow_up",
}
"""Each policy list with the seam whose method a policy object may have."""


class _HooksMeta(type(Protocol)):
    """Makes `isinstance(x, Hooks)` ask for at least one seam: no single method is required."""

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is not Hooks:
            return super().__instancecheck__(instance)
        return Hooks in type(instance).__mro__ or any(callable(_find_attribute(instance, seam)) for seam in SEAMS)


@runtime_checkable
class Hooks(Protocol, metaclass=_HooksMeta):
    """An object with any of the methods named in `SEAMS`, sync or async; each answers `None`, `False` or a verdict."""


class HookError(SteersmanError):
    """A hook or policy raised, or returned something that is not valid at its seam."""


class PolicyView(msgspec.Struct, frozen=True):
    """What a policy sees when it is called; read-only."""

    messages: Sequence[AgentMessage]
    turn_index: int
    usage: Usage
    agent_id: str
    session_id: str
    loop_id: str
    message: AssistantMessage | None = None
    tool_results: Sequence[ToolResultMessage] = ()
    call: ToolCall | None = None
    state: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


Policy: TypeAlias = Callable[[PolicyView], MaybeAwaitable]
PreTurnPolicy = PreDispatchPolicy = PostTurnPolicy = PostLoopPolicy = Policy


class Decision(msgspec.Struct, frozen=True):
    """The combined verdict of the callables at a seam."""

    stop: Stop | None = None
    inject: Sequence[AgentMessage] = ()


PROCEED = Decision()
_Callables: TypeAlias = tuple[Callable[..., Any], ...]


class Seams:
    """The callables at each seam, collected and checked once."""

    __slots__ = (*SEAMS, *POLICY_SEAMS)

    before_loop: tuple[Callable[..., Any], ...]
    before_turn: tuple[Callable[..., Any], ...]
    before_compaction_start: tuple[Callable[..., Any], ...]
    after_compaction_end: tuple[Callable[..., Any], ...]
    before_tool_execution: tuple[Callable[..., Any], ...]
    after_tool_execution: tuple[Callable[..., Any], ...]
    after_turn: tuple[Callable[..., Any], ...]
    before_follow_up: tuple[Callable[..., Any], ...]
    on_error: tuple[Callable[..., Any], ...]
    after_loop: tuple[Callable[..., Any], ...]
    pre_turn_policies: tuple[Callable[..., Any], ...]
    pre_dispatch_policies: tuple[Callable[..., Any], ...]
    post_turn_policies: tuple[Callable[..., Any], ...]
    post_loop_policies: tuple[Callable[..., Any], ...]

    def __init__(
        self, hooks: Sequence[object], single: Mapping[str, Any], policies: Mapping[str, Sequence[object]]
    ) -> None:
        for hook in hooks:
            _refuse_misspelt_seams(hook)
            if all(_find_attribute(hook, seam) is None for seam in SEAMS):
                raise TypeError(f"A hook has a method named after a seam ({', '.join(SEAMS)}), got {hook!r}.")
        for seam, arguments in SEAMS.items():
            found = [method for hook in hooks if (method := _find_attribute(hook, seam)) is not None]
            if single.get(seam) is not None:
                found.append(single[seam])
            setattr(self, seam, tuple([_check_signature(hook, seam, arguments) for hook in found]))
        for name, seam in POLICY_SEAMS.items():
            found = [_find_policy_function(policy, name, seam) for policy in policies.get(name, ())]
            setattr(self, name, tuple([_check_signature(policy, name, ("view",)) for policy in found]))


def _find_attribute(value: object, name: str) -> Any:
    """The attribute, or `None`; an object may raise anything when it is asked for one it does not have."""
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001  # for instance KeyError, of a dict with its keys as attributes
        return None


def _refuse_misspelt_seams(hook: object) -> None:
    """Raise `TypeError` for a public method that looks like a seam and is none: that guard would never be called."""
    for name in _list_names(hook):
        if name not in SEAMS and _looks_like_seam(name) and _is_method(hook, name):
            raise TypeError(
                f"{type(hook).__name__}.{name} looks like a seam, but there is none of that name: did you mean "
                f"{_find_nearest_seam(name)!r}? The seams are {', '.join(SEAMS)}."
            )


def _looks_like_seam(name: str) -> bool:
    """Whether it begins like a seam, or is one in another way of writing: `beforeTurn`, `afterloop`."""
    snake = to_snake_case(name)
    return snake.startswith(_PREFIXES) or (snake.replace("_", "") in _SQUASHED_SEAMS and not name.startswith("_"))


def _list_names(value: object) -> list[str]:
    try:
        return dir(value)
    except Exception:  # noqa: BLE001  # an object may list its attributes in its own way, and fail
        return dir(type(value))


def _is_method(value: object, name: str) -> bool:
    """Whether the attribute is a function; a property is not read for it, because that may do anything."""
    found = inspect.getattr_static(value, name, None)
    return callable(found) or isinstance(found, classmethod | staticmethod)


def _find_nearest_seam(name: str) -> str:
    """The seam that begins most alike; among several, the most similar one."""
    from difflib import SequenceMatcher  # only an error needs it

    name = to_snake_case(name)

    def rate(seam: str) -> tuple[int, float]:
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, seam, strict=False)))
        return alike, SequenceMatcher(None, name, seam).ratio()

    return max(SEAMS, key=rate)


class Guards(msgspec.Struct, frozen=True):
    """What decides about the tool calls of a run: its own guards first, then those of the runs above it."""

    pre_dispatch_policies: _Callables
    before_tool_execution: _Callables
    after_tool_execution: _Callables
    has_policy: bool
    """Whether the run, or one above it, has an approval policy."""


def join_guards(own: Guards, above: Guards) -> Guards:
    """The guards of a run, and after them those of the run above it."""
    return Guards(
        _join(own.pre_dispatch_policies, above.pre_dispatch_policies),
        _join(own.before_tool_execution, above.before_tool_execution),
        _join(own.after_tool_execution, above.after_tool_execution),
        own.has_policy or above.has_policy,
    )


def _join(own: _Callables, inherited: _Callables) -> _Callables:
    """Both, each once: an agent may be its own sub-agent."""
    return (*own, *[hook for hook in inherited if hook not in own])


def _find_policy_function(policy: object, name: str, seam: str) -> Any:
    _refuse_misspelt_seams(policy)
    if callable(policy):
        return policy
    for method in (seam, "evaluate"):
        if (found := _find_attribute(policy, method)) is not None:
            return found
    raise TypeError(f"{name} takes functions of one view or objects with a method {seam}(view), got {policy!r}.")


def _check_signature(hook: Any, seam: str, arguments: tuple[str, ...]) -> Callable[..., Any]:
    if not callable(hook):
        raise TypeError(f"{seam} takes a function, got {hook!r}.")
    try:
        signature = inspect.signature(hook)
    except ValueError:  # some built-ins have no signature
        return hook
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TypeError(
            f"{seam} is called as {seam}({', '.join(arguments)}), but {hook!r} does not fit: {error}."
        ) from None
    return hook
