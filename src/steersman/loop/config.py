"""`AgentLoopConfig`, the options of a run, and the checks of their values."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec

from steersman.context.compaction.config import ContextConfig
from steersman.context.convert import default_convert_to_llm
from steersman.loop.option_checks import CHECKED, check_config
from steersman.loop.option_names import SPELLINGS, drop_replaced, read_options
from steersman.loop.transforms import Transform, bind_transform
from steersman.policy.filters import InputFilter
from steersman.policy.hooks import POLICY_SEAMS, SEAMS, Policy, Seams
from steersman.policy.limits import ExecutionLimits, RepeatedCalls
from steersman.provider.models.presets import PRESETS
from steersman.provider.models.registry import complete_model, get_model
from steersman.provider.streaming.retry_strategy import Retry, RetryStrategy
from steersman.types.continuation import TurnTrigger
from steersman.types.events import LoopConfigSnapshot
from steersman.types.guards import is_instance
from steersman.types.messages import AgentMessage, Message, MessageLike
from steersman.types.model import Model, StreamFn, StreamOptions, ThinkingLevel, ToolChoice

if TYPE_CHECKING:
    from steersman.policy.approval import Approval, Approved

_Config = TypeVar("_Config")


def _accept_spellings(cls: type[_Config]) -> type[_Config]:
    """Let both spellings be given, read and replaced, and suggest the nearest option for an unknown one."""
    initialise = cls.__init__
    known = dict.fromkeys(field.name for field in fields(cast(Any, cls)) if field.init)

    @wraps(initialise)
    def __init__(self: _Config, **options: Any) -> None:
        if len(options) > len(known):
            options = drop_replaced(options, known)
        initialise(self, **read_options(options, known, "AgentLoopConfig"))

    cls.__init__ = __init__
    for short, name in SPELLINGS.items():
        setattr(cls, short, property(attrgetter(name), doc=f"The other spelling of `{name}`."))
    return cls


ConvertToLlmFn: TypeAlias = Callable[[Sequence[AgentMessage]], Sequence[Message] | Awaitable[Sequence[Message]]]
TransformContextFn: TypeAlias = Callable[..., Sequence[AgentMessage]]
AsyncContextTransformer: TypeAlias = Callable[..., Awaitable[Sequence[AgentMessage]]]
ContextTransformer = TransformContextFn
GetApiKeyFn: TypeAlias = Callable[..., Awaitable[str | None] | str | None]
GetMessagesFn: TypeAlias = Callable[[], Awaitable[Sequence[MessageLike] | None] | Sequence[MessageLike] | None]
ApproveFn: TypeAlias = "Callable[..., bool | Approved | Awaitable[bool | Approved]]"
SteeringPolicy: TypeAlias = Literal["skip", "cancel", "wait"]
QueueMode: TypeAlias = Literal["one-at-a-time", "all"]


class MessageProvider(Protocol):
    """A source of messages while a run goes on; the other spelling of the two `get_..._messages` callbacks."""

    def poll_steering(self) -> Awaitable[Sequence[MessageLike] | None] | Sequence[MessageLike] | None:
        """Messages for the start of the next turn."""
        ...

    def poll_follow_up(self) -> Awaitable[Sequence[MessageLike] | None] | Sequence[MessageLike] | None:
        """Messages for when the agent would stop."""
        ...


class Batched(msgspec.Struct, frozen=True):
    """Run tool calls in groups of `size`, one group after another."""

    size: int

    def __post_init__(self) -> None:
        if is_instance(self.size, bool) or not is_instance(self.size, int) or self.size < 1:
            raise ValueError(f"batched(n) takes a whole number from 1 on, got {self.size!r}.")


def batched(n: int) -> Batched:
    """Tool calls in groups of `n`: `tool_execution=batched(4)`."""
    return Batched(n)


ToolExecution: TypeAlias = Literal["parallel", "sequential"] | Batched


@_accept_spellings
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLoopConfig:
    """Everything a run needs besides its context. Callables may be sync or async.

    `None` switches off what has a default, such as `retry_strategy`. `limits` is `execution_limits`, and `retry` is
    `retry_strategy`.
    """

    model: Model
    stream_fn: StreamFn | None = None
    thinking_level: ThinkingLevel = "off"
    tool_choice: ToolChoice = "auto"
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: Sequence[str] | None = None
    seed: int | None = None
    output_schema: dict[str, Any] | None = None
    output_instruction: str = ""
    # Anything that the tools need: their `ctx.deps`. Sub-agents without their own get it too.
    deps: Any = None
    # When something was, in seconds since 1970, and what makes ids. With the same two, a run repeats itself exactly.
    clock: Callable[[], float] | None = None
    new_id: Callable[[str], str] | None = None

    convert_to_llm: ConvertToLlmFn = default_convert_to_llm
    transform_context: TransformContextFn | None = None
    async_transform_context: AsyncContextTransformer | None = None
    get_api_key: GetApiKeyFn | None = None
    get_steering_messages: GetMessagesFn | None = None
    get_follow_up_messages: GetMessagesFn | None = None
    message_provider: MessageProvider | None = None

    context_config: ContextConfig | None = None
    execution_limits: ExecutionLimits | None = None
    retry_strategy: RetryStrategy | None = Retry()
    fallbacks: Sequence[Model | str] = ()
    repeated_calls: RepeatedCalls | None = RepeatedCalls()
    first_turn_trigger: TurnTrigger = "user"

    tool_execution: ToolExecution = "parallel"
    tool_timeout: float | None = None
    max_tool_calls: int = 256
    cancel_grace: float = 0.25
    # Bounds gates before a tool call; also the hooks after a cancel, and the wait for the journal at the end of a run.
    gate_timeout: float | None = 60.0
    steering: SteeringPolicy = "skip"
    length_policy: Literal["run_complete", "fail_all"] = "run_complete"
    approval: Approval | None = None
    approve: ApproveFn | Literal["wait"] | None = None
    approve_timeout: float | None = None

    # Events that are only emitted for those who ask: "request" for `turn_request`.
    events: Sequence[Literal["request"]] = ()
    input_filters: Sequence[InputFilter] = ()
    hooks: Sequence[object] = ()
    pre_turn_policies: Sequence[Policy | object] = ()
    pre_dispatch_policies: Sequence[Policy | object] = ()
    post_turn_policies: Sequence[Policy | object] = ()
    post_loop_policies: Sequence[Policy | object] = ()
    before_loop: Callable[..., Any] | None = None
    before_turn: Callable[..., Any] | None = None
    before_compaction_start: Callable[..., Any] | None = None
    after_compaction_end: Callable[..., Any] | None = None
    before_tool_execution: Callable[..., Any] | None = None
    after_tool_execution: Callable[..., Any] | None = None
    after_turn: Callable[..., Any] | None = None
    before_follow_up: Callable[..., Any] | None = None
    on_error: Callable[..., Any] | None = None
    after_loop: Callable[..., Any] | None = None

    seams: Seams = field(init=False, repr=False, compare=False)
    transforms: tuple[Transform, ...] = field(init=False, repr=False, compare=False)

    if TYPE_CHECKING:  # the short spellings, which `_accept_spellings` adds
        limits: ExecutionLimits | None = None
        retry: RetryStrategy | None = None

    def __post_init__(self) -> None:
        # The cost is by the list price of an id, whether a name or a `Model` gave it.
        _set(self, "model", complete_model(get_model(self.model)))
        if isinstance(self.fallbacks, str | Model):
            raise TypeError(
                f"fallbacks come as a list, such as fallbacks=['provider:model-id'], got {self.fallbacks!r}."
            )
        _set(self, "fallbacks", tuple([complete_model(self._find_fallback(model)) for model in self.fallbacks]))
        _set(self, "convert_to_llm", self.convert_to_llm or default_convert_to_llm)
        self._check()
        _set(self, "transforms", self._bind_transforms())
        _set(self, "seams", _build_seams(self))

    def _find_fallback(self, fallback: Model | str) -> Model:
        """The fallback; a name of the same provider is asked at the same URL, with the same key.

        Else what is said to a server of one's own would go to the provider's, just because the first answer failed.
        """
        found, first = get_model(fallback), self.model
        if found is fallback or found.provider != first.provider:
            return found
        return get_model(fallback, base_url=first.base_url, api_key=first.api_key)

    def _bind_transforms(self) -> tuple[Transform, ...]:
        names = ("async_transform_context", "transform_context")
        return tuple([bind_transform(name, found) for name in names if (found := getattr(self, name)) is not None])

    def _check(self) -> None:
        mode: Any = self.tool_execution
        if mode not in ("parallel", "sequential") and not isinstance(mode, Batched):
            raise ValueError(f"tool_execution is 'parallel', 'sequential' or batched(n), got {mode!r}.")
        check_config(self, _USUAL)
        if self.top_p is not None or self.stop is not None or self.seed is not None:
            self._check_sampling()

    def _check_sampling(self) -> None:
        from steersman.provider.wires.sampling import check_seed, check_stop, check_top_p, find_refusal

        check_top_p(self.top_p)
        check_stop(self.stop)
        check_seed(self.seed)
        _set(self, "stop", tuple(self.stop or ()))
        if self.stream_fn is not None:
            return
        options = StreamOptions(
            thinking_level=self.thinking_level,
            temperature=self.temperature,
            top_p=self.top_p,
            stop=self.stop or (),
            seed=self.seed,
        )
        for model in (self.model, *cast(Sequence[Model], self.fallbacks)):
            preset = PRESETS.get(model.provider)
            refusal = None if preset is None else find_refusal(preset.protocol, model, options)
            if refusal is not None:
                raise ValueError(refusal)

    def snapshot(self, tools: Sequence[str]) -> LoopConfigSnapshot:
        """The configuration as plain values: no key, no callable."""
        limits, context = self.execution_limits, self.context_config
        return LoopConfigSnapshot(
            model=self.model.name,
            thinking_level=self.thinking_level,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            stop=self.stop or (),
            seed=self.seed,
            tools=tools,
            tool_execution=self.tool_execution
            if isinstance(self.tool_execution, str)
            else f"batched({self.tool_execution.size})",
            steering=self.steering,
            limits=None if limits is None else {name: getattr(limits, name) for name in limits.__slots__},
            context=None if context is None else {"max_context_tokens": context.find_size(self.model, self.max_tokens)},
            fallbacks=[cast(Model, model).name for model in self.fallbacks],
        )


_usual = {field.name: field.default for field in fields(AgentLoopConfig)}
_USUAL = tuple([_usual[name] for name in CHECKED])
_NO_SEAMS = Seams((), {}, {})
_HOOKS = ("hooks", *SEAMS, *POLICY_SEAMS)
_read_hooks = attrgetter(*_HOOKS)
_NO_HOOKS = tuple([_usual[name] for name in _HOOKS])


def _build_seams(config: AgentLoopConfig) -> Seams:
    """Agents without hooks share one empty set of seams."""
    if all(map(is_, _read_hooks(config), _NO_HOOKS)):
        return _NO_SEAMS
    hooks = config.hooks if isinstance(config.hooks, list | tuple) else (config.hooks,)
    single = {seam: getattr(config, seam) for seam in SEAMS}
    policies = {name: getattr(config, name) for name in POLICY_SEAMS}
    if not hooks and not any(single.values()) and not any(policies.values()):
        return _NO_SEAMS
    return Seams(cast(Sequence[object], hooks), single, policies)


def _set(config: AgentLoopConfig, name: str, value: object) -> None:
    object.__setattr__(config, name, value)


async def resolve(value: Any) -> Any:
    """The value, awaited if it is awaitable."""
    return await cast(Awaitable[Any], value) if isinstance(value, Awaitable) else value


def can_take(function: Callable[..., Any], count: int) -> bool:
    """Whether a callable accepts that many positional arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # some built-ins have no signature
        return count == 1
    return True
