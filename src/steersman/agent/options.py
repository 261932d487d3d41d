"""The options of `Agent`: their types, the names they go by, and the configuration they make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from steersman.context.compaction.config import ContextConfig
from steersman.loop.config import (
    AgentLoopConfig,
    ApproveFn,
    AsyncContextTransformer,
    ConvertToLlmFn,
    GetApiKeyFn,
    GetMessagesFn,
    MessageProvider,
    QueueMode,
    SteeringPolicy,
    ToolExecution,
    TransformContextFn,
)
from steersman.loop.option_names import read_options
from steersman.loop.output import OutputForm, OutputPolicy
from steersman.policy.filters import InputFilter
from steersman.policy.hooks import Policy
from steersman.policy.limits import ExecutionLimits, RepeatedCalls
from steersman.provider.models.registry import check_provider, get_model
from steersman.provider.streaming.retry_strategy import RetryStrategy
from steersman.tools.table import ToolLike
from steersman.types.continuation import TurnTrigger
from steersman.types.messages import MessageLike
from steersman.types.model import Model, StreamFn, ThinkingLevel, ToolChoice

if TYPE_CHECKING:
    from steersman.policy.approval import Approval
    from steersman.session.session import Session


class MoreOptions(TypedDict, total=False):
    """The options of `AgentLoopConfig` that are not in the signature of `Agent`; every agent takes them too."""

    tool_choice: ToolChoice
    top_p: float | None
    stop: Sequence[str] | None
    seed: int | None
    output_schema: dict[str, Any] | None
    output_instruction: str
    clock: Callable[[], float] | None
    new_id: Callable[[str], str] | None
    convert_to_llm: ConvertToLlmFn
    transform_context: TransformContextFn | None
    async_transform_context: AsyncContextTransformer | None
    get_api_key: GetApiKeyFn | None
    get_steering_messages: GetMessagesFn | None
    get_follow_up_messages: GetMessagesFn | None
    message_provider: MessageProvider | None
    execution_limits: ExecutionLimits | None
    retry_strategy: RetryStrategy | None
    repeated_calls: RepeatedCalls | None
    first_turn_trigger: TurnTrigger
    tool_timeout: float | None
    max_tool_calls: int
    cancel_grace: float
    gate_timeout: float | None
    length_policy: Literal["run_complete", "fail_all"]
    approve_timeout: float | None
    events: Sequence[Literal["request"]]
    pre_turn_policies: Sequence[Policy | object]
    pre_dispatch_policies: Sequence[Policy | object]
    post_turn_policies: Sequence[Policy | object]
    post_loop_policies: Sequence[Policy | object]
    before_loop: Callable[..., Any] | None
    before_turn: Callable[..., Any] | None
    before_compaction_start: Callable[..., Any] | None
    after_compaction_end: Callable[..., Any] | None
    before_tool_execution: Callable[..., Any] | None
    after_tool_execution: Callable[..., Any] | None
    after_turn: Callable[..., Any] | None
    before_follow_up: Callable[..., Any] | None
    on_error: Callable[..., Any] | None
    after_loop: Callable[..., Any] | None


class ChangeableOptions(MoreOptions, total=False):
    """Every option of `Agent` but `output_type`, which also changes what kind of agent it is for a checker."""

    model: str | Model
    tools: Sequence[ToolLike]
    system_prompt: str
    deps: Any
    base_url: str | None
    api_key: str | Callable[[], str | Awaitable[str]] | None
    thinking_level: ThinkingLevel
    max_tokens: int | None
    temperature: float | None
    hooks: Sequence[object]
    input_filters: Sequence[InputFilter]
    approval: Approval | None
    approve: ApproveFn | Literal["wait"] | None
    limits: ExecutionLimits | None
    context_config: ContextConfig | None
    retry: RetryStrategy | None
    fallbacks: Sequence[str | Model]
    tool_execution: ToolExecution
    steering: SteeringPolicy
    steering_mode: QueueMode
    follow_up_mode: QueueMode
    stream_fn: StreamFn | None
    messages: Sequence[MessageLike]
    session: Session | str | PathLike[str] | None


class AgentOptions(ChangeableOptions, total=False):
    """Every option of `Agent`, for `configure`."""

    output_type: Any


def read_changes(options: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The options by one name each; `TypeError` for the first that no agent has, or that is given twice."""
    return read_options(options, AgentOptions.__annotations__, owner)


def apply_changes(config: AgentLoopConfig, changes: Mapping[str, Any]) -> AgentLoopConfig:
    """The configuration with some options changed, under the names `read_changes` gives them."""
    given = dict(changes)
    place = {name: given.pop(name) for name in ("base_url", "api_key") if name in given}
    model = _change_model(config.model, given.pop("model", config.model), place)
    return replace(config, model=model, **given) if given or model is not config.model else config


def _change_model(current: Model, wanted: str | Model, place: dict[str, Any]) -> Model:
    """The wanted model; it keeps URL and key of the current one only for the same provider.

    A `Model` with a URL or a key of its own keeps none: the key of one server is not sent to another.
    """
    if wanted is not current:
        found = get_model(wanted)
        own = isinstance(wanted, Model) and (found.base_url is not None or found.api_key is not None)
        if found.provider == current.provider and not own:
            place = {"base_url": current.base_url, "api_key": current.api_key, **place}
        wanted = wanted if place else found
    kept = {name: value for name, value in place.items() if value is not None}
    model = get_model(wanted, **kept)
    cleared = {name: None for name, value in place.items() if value is None and getattr(model, name) is not None}
    return replace(model, **cleared) if cleared else model


def make_output(output_type: Any) -> OutputPolicy | None:
    """What reads an output of this type; `None` where the text is the output."""
    return None if output_type is None else OutputPolicy(OutputForm(output_type))


def copy_output_policy(config: AgentLoopConfig) -> OutputPolicy | None:
    """A fresh copy of the output policy in this configuration, if it has one: each agent needs its own."""
    found = next((policy for policy in config.post_loop_policies if isinstance(policy, OutputPolicy)), None)
    return None if found is None else found.copy_fresh()


def add_output_policy(config: AgentLoopConfig, output: OutputPolicy) -> AgentLoopConfig:
    """The configuration with an output policy: the agent answers with a JSON value of its type."""
    return replace(
        config,
        output_schema=output.form.schema,
        output_instruction=output.form.instruction,
        post_loop_policies=[*config.post_loop_policies, output],
    )


def remove_output_policy(config: AgentLoopConfig) -> AgentLoopConfig:
    """The configuration without an output policy: the agent answers with text."""
    others = [policy for policy in config.post_loop_policies if not isinstance(policy, OutputPolicy)]
    return replace(config, output_schema=None, output_instruction="", post_loop_policies=others)


def check_named_models(config: AgentLoopConfig, *models: object) -> None:
    """Raise `NotImplementedError` for a name whose provider is not known, unless there is a `stream_fn` to ask.

    A `Model` may be of a provider that is registered later: it is checked when a run starts.
    """
    for given, model in zip(models, (config.model, *config.fallbacks), strict=False):
        if isinstance(given, str) and config.stream_fn is None:
            check_provider(cast(Model, model))


def check_entry(tag: object, at: object) -> None:
    """Raise `TypeError` unless these can be the tag of a continuation and the entry it goes on from."""
    if tag is not None and not isinstance(tag, str):
        raise TypeError(f"A tag is a string, got {tag!r}. An entry is given as at=...")
    if at is not None and (isinstance(at, bool) or not isinstance(at, str | int)):
        raise TypeError(f"An entry is given by its id, its label or its index in messages, got {at!r}.")
