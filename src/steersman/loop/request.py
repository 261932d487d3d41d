"""From the log to a request: transform, convert, ask the pre-turn policies, repair; and the client that sends it."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from steersman.context.convert import default_convert_to_llm
from steersman.context.repair import Repairer, repair
from steersman.context.tokens import estimate_total_tokens, find_context_size
from steersman.loop import watching
from steersman.loop.config import AgentLoopConfig, can_take, resolve
from steersman.loop.ending import Phase
from steersman.loop.inbox import add_message
from steersman.loop.run import Run, Turn
from steersman.policy.answers import decide
from steersman.provider.models.registry import find_stream_fn
from steersman.provider.streaming.normalize import NormalizedStreamFn, stream_batches
from steersman.provider.streaming.retry import with_retry
from steersman.provider.streaming.retry_strategy import Retry
from steersman.types.errors import AuthenticationError, ContextOverflowError
from steersman.types.events import TurnRequest
from steersman.types.messages import AgentMessage, AssistantMessage, to_messages
from steersman.types.model import Model, Request, StreamFn, StreamOptions, StreamResponse, ToolChoice


async def prepare_request(run: Run, turn: Turn, *, overflow: bool) -> Request | None:
    """The request for this turn, or `None` when a policy ended the run."""
    config = run.config
    # The count of the log only holds if no function of the caller has changed the messages.
    own = not config.transforms and config.convert_to_llm is default_convert_to_llm
    messages = run.context.log.visible if own else await _transform(run, overflow=overflow)
    if config.seams.pre_turn_policies and not overflow:
        decision = await decide(config.seams.pre_turn_policies, (run.view(turn),), seam="pre_turn_policies")
        if decision.stop is not None:
            run.ending.finish("stopped", decision.stop.reason or "pre_turn_policies said no")
            return None
        # After the notice of a limit there is one last answer, and no more.
        if decision.inject and run.ending.phase < Phase.AT_LIMIT:
            for message in decision.inject:
                add_message(run, message)
            messages = await _transform(run, overflow=overflow)
    tokens = run.context.log.tokens if own and config.model.context_window is not None else None
    said = messages if config.fallbacks else None
    repairer = run.context.get_repairer(config.model.provider, config.model.id)
    request = Request(build_system_prompt(run), repairer.apply(messages), run.tool_specs, tokens, said)
    if not request.messages:
        raise ValueError("There is nothing to send to the model: no message is left after transform and conversion.")
    return request


def build_system_prompt(run: Run) -> str:
    """The system prompt of the requests: that of the run, and what an output type has to say."""
    prompt, instruction = run.system_prompt, run.config.output_instruction
    return f"{prompt}\n\n{instruction}".strip() if instruction else prompt


def count_tokens(run: Run) -> int:
    """About how many tokens the next request has: system prompt, tool schemas and messages."""
    context = run.context
    context.head.measure(build_system_prompt(run), run.tool_specs, context.log.estimator)
    return context.log.tokens + context.head.find_missing(measured=context.log.is_measured)


def exceeds_threshold(run: Run) -> bool:
    """Whether the next request is over the threshold of the context: that of its config, or of the model's window."""
    config, model = run.config.context_config, run.config.model
    if config is None:
        return False
    if config.max_context_tokens is not None:
        return count_tokens(run) > config.limit
    if model.context_window is None:
        return False
    size = find_context_size(model.context_window, model.max_output_tokens, run.config.max_tokens)
    return count_tokens(run) > int(size * config.threshold)


async def _transform(run: Run, *, overflow: bool) -> Sequence[AgentMessage]:
    """The messages for the model, before repair; copied only for a function of the caller."""
    config = run.config
    messages: Sequence[AgentMessage] = run.context.log.visible
    for transform in config.transforms:
        messages = to_messages(await resolve(transform(list(messages), run.start.signal or run.token, overflow)))
    if config.convert_to_llm is not default_convert_to_llm:  # the repair drops what the default would drop
        return (await convert(run, messages)).result
    return messages


class Conversion(NamedTuple):
    """What a `convert_to_llm` made of these messages. A continuation is judged by it, and sends it."""

    function: Callable[..., Any]
    messages: Sequence[AgentMessage]
    result: Sequence[AgentMessage]

    def is_of(self, function: Callable[..., Any], messages: Sequence[AgentMessage]) -> bool:
        """Whether it is what this function made of just these messages."""
        known = self.messages
        return self.function is function and len(known) == len(messages) and all(map(operator.is_, known, messages))


async def convert(run: Run, messages: Sequence[AgentMessage]) -> Conversion:
    """Convert the messages for the model, unless the run has just converted the same ones."""
    function, known = run.config.convert_to_llm, run.conversion
    run.conversion = None
    if known is not None and known.is_of(function, messages):
        return known
    return Conversion(function, list(messages), to_messages(await resolve(function(list(messages)))))


def emit_request(run: Run, request: Request, options: StreamOptions) -> None:
    """Emit the request that is about to be sent, without its key."""
    run.emit(
        TurnRequest,
        turn_index=run.turn_index,
        model=run.config.model.name,
        system_prompt=request.system_prompt,
        messages=request.messages,
        tools=[
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            for tool in request.tools
        ],
        options={field.name: getattr(options, field.name) for field in fields(options) if field.name != "api_key"},
    )


def get_options(run: Run, tool_choice: ToolChoice) -> StreamOptions:
    """The options of a request; in one run they only differ in the tool choice."""
    known = run.client.options
    options = known.get(tool_choice)
    if options is None:
        options = known[tool_choice] = make_options(run, tool_choice, output_schema=run.config.output_schema)
    return options


def make_options(
    run: Run, tool_choice: ToolChoice, *, output_schema: dict[str, Any] | None, aside: bool = False
) -> StreamOptions:
    """Options for an answer of the run, or for a question beside it."""
    config = run.config
    own = config.model.api_key
    return StreamOptions(
        api_key=own if isinstance(own, str) else None,
        thinking_level=config.thinking_level,
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        # A question beside the run, such as for a summary, must not be cut where an answer should end.
        stop=() if aside else config.stop or (),
        seed=config.seed,
        tool_choice=tool_choice,
        output_schema=output_schema,
        session_id=run.context.session_id,
    )


_NO_RETRY = Retry(max_attempts=1)


class ModelClient:
    """How a run asks its model: the `StreamFn` with key, retry and fallbacks, and what every request has in common.

    `own` is the caller's `StreamFn`, which sub-agents get too. `secrets` are the keys that were used: they are redacted
    from everything the run emits.
    """

    __slots__ = ("config", "options", "own", "secrets", "stream_fn")

    def __init__(
        self, config: AgentLoopConfig, stream_fn: StreamFn | None = None, secrets: set[str] | None = None
    ) -> None:
        self.config = config
        self.own = stream_fn or config.stream_fn
        self.secrets: set[str] = set() if secrets is None else secrets
        self.stream_fn = _build_stream_fn(config, self.own, self.secrets)
        self.options: dict[ToolChoice, StreamOptions] = {}


def _build_stream_fn(config: AgentLoopConfig, own: StreamFn | None, secrets: set[str]) -> StreamFn:
    """The caller's `StreamFn` or the provider's, with a key for each request, retry and fallbacks.

    Raises `NotImplementedError` for a provider that is not known. Keys that are used are added to `secrets`.
    """

    def build(model: Model) -> StreamFn:
        stream_fn = own or find_stream_fn(model)
        for watcher in watching.watchers:
            stream_fn = watcher.watch_requests(stream_fn)
        plain = _add_key(stream_fn, config, model, secrets)
        keys = config.get_api_key or (model.api_key if callable(model.api_key) else None)
        if config.retry_strategy is None and keys is None:
            return _normalize(plain)
        return with_retry(plain, config.retry_strategy or _NO_RETRY, keys=keys)

    if not config.fallbacks:
        return build(config.model)
    if own is None:
        for model in config.fallbacks:
            find_stream_fn(_require_model(model))  # raises now for a provider that is not known, not when it is needed
    from steersman.provider.streaming.fallback import with_fallback  # most runs have none

    return with_fallback(
        build(config.model), [*map(_require_model, config.fallbacks)], build, prepare=_make_refit(config)
    )


def _require_model(model: Model | str) -> Model:
    assert isinstance(model, Model)  # the config has resolved the names
    return model


def _normalize(stream_fn: StreamFn) -> StreamFn:
    return NormalizedStreamFn(lambda model, request, options: stream_batches(stream_fn, model, request, options))


def _add_key(stream_fn: StreamFn, config: AgentLoopConfig, model: Model, secrets: set[str]) -> StreamFn:
    """The `StreamFn` with a key for each request: `get_api_key` is called every time, else the model's own is used."""
    own = model.api_key if callable(model.api_key) else None
    ask: Callable[..., Any] | None = config.get_api_key or own
    if ask is None:
        return _add_own_key(stream_fn, config, model, secrets)
    named = config.get_api_key is not None and can_take(ask, 1)

    async def ask_with_key(model: Model, request: Request, options: StreamOptions, /) -> StreamResponse:
        try:
            key = await resolve(ask(model.provider) if named else ask())
        except Exception as error:  # noqa: BLE001  # only its type: its message may hold the key
            raise AuthenticationError(f"Asking for the key of {model.name} raised {type(error).__name__}.") from None
        if key is not None:
            secrets.add(key)
        # The function may have aborted the run: the cancel is seen here, before the model is asked.
        await asyncio.sleep(0)
        return await resolve(stream_fn(model, request, replace(options, api_key=key)))

    return ask_with_key


def _add_own_key(stream_fn: StreamFn, config: AgentLoopConfig, model: Model, secrets: set[str]) -> StreamFn:
    """The options of a run have the key of its model already; a fallback gets its own key here."""
    own = model.api_key
    if not isinstance(own, str):
        return stream_fn
    secrets.add(own)
    if model is config.model:
        return stream_fn
    return lambda model, request, options: stream_fn(model, request, replace(options, api_key=own))


def _make_refit(config: AgentLoopConfig) -> Callable[[Request, Model], Request]:
    """Returns a function that repairs a request for another model, which must not get the first one's thinking.

    If the context is managed and the other model has a smaller window, the function raises `ContextOverflowError`: the
    loop then compacts for that window, as after a server's refusal, and asks again.
    """
    repairers: dict[tuple[str, str], Repairer] = {}

    def refit(request: Request, model: Model) -> Request:
        if config.context_config is not None:
            _check_window(request, model)
        if request.source_messages is None:
            return replace(request, messages=repair(request.messages, provider=model.provider, model=model.id))
        # While the first model is down, every request comes here: a repairer only looks at new messages.
        repairer = repairers.setdefault((model.provider, model.id), Repairer(model.provider, model.id))
        return replace(request, messages=repairer.apply(request.source_messages), source_messages=None)

    return refit


def _check_window(request: Request, model: Model) -> None:
    """Raise `ContextOverflowError` if the messages alone are longer than the window of this model."""
    if model.context_window is not None:
        tokens = estimate_total_tokens(request.messages) if request.tokens is None else request.tokens
        if tokens > model.context_window:
            raise ContextOverflowError(
                f"The messages have about {tokens} tokens, and {model.name} has a context window of "
                f"{model.context_window}.",
                provider=model.provider,
            )


def find_window(run: Run, message: AssistantMessage, fallbacks: int) -> int | None:
    """The context window of the model that gave the answer, after so many fallbacks."""
    own = run.config.model
    if not run.config.fallbacks:
        return own.context_window
    models = [own, *(model for model in run.config.fallbacks if isinstance(model, Model))]
    # Another server may have the same model with another window: look first at those that were asked last.
    for model in (*models[fallbacks:], *models):
        if (model.id, model.provider) == (message.model, message.provider):
            return model.context_window
    return own.context_window
