"""The seams of a run where a caller may decide.

Hook objects, single callables and the four policy lists are one mechanism: each seam has a tuple of callables, called
in order. The first `Stop`, `Skip` or `ToolOutput` wins, all `Inject`s are added, each `Rewrite` applies to the result
of the one before. A callable that raises ends the run or denies the call. So does a gate (`before_...`, or a policy)
that returns what means nothing at its seam; what an observer returns is ignored unless it is a verdict or `False`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import msgspec

from steersman.policy.verdicts import Inject, Rewrite, Skip, Stop, Verdict
from steersman.tools.calling import call_in_thread
from steersman.types.content import ToolCall
from steersman.types.errors import SteersmanError, describe_exception
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

_TOOL_GATES = ("pre_dispatch_policies", "before_tool_execution")

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


@dataclass(frozen=True, slots=True)
class PolicyView:
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
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])


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


async def decide(callables: Sequence[Callable[..., Any]], arguments: tuple[Any, ...], *, seam: str) -> Decision:
    """Call all hooks of a loop or turn seam; raise `HookError` when one raises or returns an invalid verdict."""
    inject: list[AgentMessage] = []
    for hook in callables:
        answer = _check_verdict(await call(hook, arguments, seam=seam), hook, seam)
        if type(answer) is Stop:
            return Decision(answer, inject)
        if type(answer) is Inject:
            inject.extend(answer.messages)
        elif answer is not None:
            raise HookError(
                f"{seam} hook {_name_hook(hook)} gave {answer!r}, which means nothing here; use Stop or Inject."
            )
    return Decision(None, inject) if inject else PROCEED


async def observe(callables: Sequence[Callable[..., Any]], arguments: tuple[Any, ...], *, seam: str) -> None:
    """Call all hooks of a seam where nothing is decided; raise `HookError` when one raises."""
    for hook in callables:
        await call(hook, arguments, seam=seam)


async def call_within(
    hook: Callable[..., Any], arguments: tuple[Any, ...], *, seam: str, seconds: float | None, threaded: bool = False
) -> object:
    """Call one hook; raise `TimeoutError` when it does not return within `seconds`."""
    async with asyncio.timeout(seconds) as limit:
        answer = await call(hook, arguments, seam=seam, threaded=threaded)
        # A hook that blocks the event loop also blocks the timeout, so the time is checked here.
        late = seconds is not None and asyncio.get_running_loop().time() > cast(float, limit.when())
    if late or limit.expired():
        raise TimeoutError  # it ignored the cancellation, or blocked: either way its answer is too late
    return answer


async def call(hook: Callable[..., Any], arguments: tuple[Any, ...], *, seam: str, threaded: bool = False) -> object:
    """Call one hook and await its answer where it is async; with `threaded` in a thread, where it may block."""
    try:
        answer: object = await call_in_thread(hook, *arguments) if threaded else hook(*arguments)
        if isinstance(answer, Awaitable):
            answer = await cast(Awaitable[object], answer)
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        raise HookError(f"{seam} hook {_name_hook(hook)} raised CancelledError") from None
    except HookError:
        raise  # it already says what is wrong
    except Exception as error:
        raise HookError(f"{seam} hook {_name_hook(hook)} raised {describe_exception(error)}") from error
    return answer


class Admission(msgspec.Struct, frozen=True):
    """Whether a tool call may run, and with which arguments; with an `output` this is its result in place of a run."""

    call: ToolCall
    denied: str | None = None
    stop: Stop | None = None
    output: ToolOutput | None = None


async def admit(
    tool_call: ToolCall,
    policies: Sequence[Callable[..., Any]],
    hooks: Sequence[Callable[..., Any]],
    *,
    view: Callable[[ToolCall], PolicyView],
    timeout: float | None,
) -> Admission:
    """Call every gate; one that raises, times out or returns an invalid verdict denies the call."""
    gates = [("pre_dispatch_policies", gate) for gate in policies] + [("before_tool_execution", gate) for gate in hooks]
    for seam, gate in gates:
        argument = view(tool_call) if seam == "pre_dispatch_policies" else tool_call
        try:
            said = await call_within(gate, (argument,), seam=seam, seconds=timeout)
            if isinstance(said, ToolOutput):
                return Admission(tool_call, output=said)
            answer = (
                Skip(f"Denied: {_name_hook(gate)} did not allow it.")
                if said is False
                else _check_verdict(said, gate, seam)
            )
        except TimeoutError:
            return Admission(tool_call, f"Denied: {seam} gate {_name_hook(gate)} gave no answer within {timeout}s.")
        except HookError as error:
            return Admission(tool_call, f"Denied: {error}.")
        match answer:
            case None:
                pass
            case Skip(text):
                return Admission(tool_call, text)
            case Rewrite(args):
                tool_call = msgspec.structs.replace(tool_call, arguments=dict(args), raw_arguments=None)
            case Stop(reason):
                return Admission(tool_call, f"Denied: the run was stopped. {reason}".strip(), answer)
            case Inject():
                return Admission(tool_call, f"Denied: {seam} gate {_name_hook(gate)} cannot inject messages.")
    return Admission(tool_call)


async def revise(
    callables: Sequence[Callable[..., Any]], tool_call: ToolCall, output: ToolOutput
) -> tuple[ToolOutput, Decision]:
    """Let each `after_tool_execution` hook replace the output with a `ToolOutput` or a string, or stop the run.

    Raises `HookError` when one raises, or says no to the output with `False`.
    """
    decision = PROCEED
    for hook in callables:
        answer = await call(hook, (tool_call, output), seam="after_tool_execution")
        if isinstance(answer, ToolOutput):
            output = answer
        elif isinstance(answer, str):
            output = ToolOutput(answer, output.details, output.is_error, output.terminate, output.effects)
        elif answer is False:
            raise HookError(f"after_tool_execution hook {_name_hook(hook)} did not allow the output")
        elif isinstance(answer, Stop):
            decision = Decision(decision.stop or answer, decision.inject)
        elif isinstance(answer, Inject):
            decision = Decision(decision.stop, [*decision.inject, *answer.messages])
        elif isinstance(answer, Skip | Rewrite):
            raise HookError(
                f"after_tool_execution hook {_name_hook(hook)} gave {answer!r}, which means nothing here; return a "
                "ToolOutput, a string, Stop or Inject"
            )
    return output, decision


def _check_verdict(answer: object, hook: Callable[..., Any], seam: str) -> Verdict | None:
    if answer is None or answer is True:
        return None
    if answer is False:
        return Stop()
    if isinstance(answer, Stop | Inject | Skip | Rewrite):
        return answer
    if seam in OBSERVERS:
        return None
    verdicts = "Stop, Skip, Rewrite or a ToolOutput" if seam in _TOOL_GATES else "Stop or Inject"
    raise HookError(f"{seam} hook {_name_hook(hook)} gave {answer!r}; return None, True, False, {verdicts}")


def _name_hook(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", None) or repr(hook)
