"""The embedded model as a `StreamFn`, with tool calls and text like any other model.

A small model is prompted in two steps, first for a decision and then for an answer; a bigger one by its own template.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from steersman.provider.http.client import http_stream
from steersman.provider.local.prompting.answer import (
    Turn,
    build_answer_prefix,
    build_answer_prompt,
    describe_failure,
    split_turns,
)
from steersman.provider.local.prompting.decide import (
    MAX_STEPS,
    RESPOND,
    Decision,
    build_decision_prefix,
    build_decision_prompt,
    build_decision_schema,
    get_alias,
    is_repeated,
    list_usual_tools,
    parse_decision,
)
from steersman.provider.local.prompting.grounding import SentenceGate, collect_evidence
from steersman.provider.local.prompting.plan import look_first, look_for_topic, must_look, plan_next
from steersman.provider.local.prompting.question import parse_question
from steersman.provider.local.prompting.reply import Reply, describe_unknown
from steersman.provider.local.serving import slots
from steersman.provider.local.serving.server import NO_KEEPALIVE, Server
from steersman.provider.local.serving.slots import ChatMessage
from steersman.provider.local.serving.start import choose_prompt_mode, name_as_served, start_server
from steersman.provider.local.weights.disk import Report, Reporter
from steersman.provider.streaming.batches import Events
from steersman.provider.streaming.output_tool import with_output_tool
from steersman.provider.wires.openai_chat.quirks import choose_output_mode
from steersman.provider.wires.openai_chat.wire import WIRE
from steersman.types.content import TextContent, ToolCall
from steersman.types.errors import ContextOverflowError, ProviderError
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage, user_message
from steersman.types.model import Model, Request, StreamFn, StreamOptions, ToolSpec
from steersman.types.stream import (
    Done,
    StreamEvent,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from steersman.types.usage import Usage

_DECIDING, _ANSWERING = 0, 1
_READING = "reading its instructions"
_DECISION_TOKENS = 1024
# With many tools in its prompt, a small model tends to call one, and after a result another one. By this logit bias
# an answer becomes likelier, at first and after a result that is no error.
_RESPOND_BIAS, _RESPOND_BIAS_AFTER_RESULT = 0.5, 1.5
_ANSWER_TOKENS = 512
# The token budget for the task and its results; the next one is tried if the server reports an overflow.
_DECISION_BUDGETS = (300, 150, 60)
_ANSWER_BUDGETS = (500, 250, 120)
# A small machine may need minutes to read a prompt.
_LONG_TIMEOUTS = {"first_byte_timeout": 1800.0, "idle_timeout": 600.0}

_chat = http_stream(WIRE)
_template = with_output_tool(_chat, choose_output_mode)


def stream_local() -> StreamFn:
    """The provider `local`: `local:<name>` or `local:/path/model.gguf`, run in a child process of ours."""
    return _stream_local


async def prepare(
    model: Model, *, report: Report | None = None, tools: Sequence[ToolSpec] = (), system_prompt: str = ""
) -> None:
    """Do in advance what the first request would wait for: the file, the process, and reading the fixed prompt."""
    server = await start_server(model, report)
    if choose_prompt_mode(model, server.settings, server.props) == "template":
        return
    reporter = Reporter(report)
    prompts = [(_ANSWERING, build_answer_prefix(system_prompt)), (_DECIDING, build_decision_prefix(tools))]
    wanted = prompts if tools else prompts[:1]
    for done, (slot, prefix) in enumerate(wanted):
        reporter.report(_READING, done, len(wanted))
        await _ensure_prefix(server, slot, prefix)
    reporter.report(_READING, len(wanted), len(wanted))


async def _stream_local(model: Model, request: Request, options: StreamOptions, /) -> Events:
    server = await start_server(model, None)
    try:
        yield StreamStart()
        way = choose_prompt_mode(model, server.settings, server.props)
        asking = _LocalCall(server, name_as_served(model), request, options)
        async with aclosing(asking.ask_with_template() if way == "template" else asking.ask_in_steps()) as events:
            async for event in events:
                yield event
    except ProviderError as error:
        raise await server.explain_error(error) from None


@dataclass(slots=True)
class _LocalCall:
    """One request to the model."""

    server: Server
    model: Model
    request: Request
    options: StreamOptions
    used: Usage = field(default_factory=Usage)

    async def ask_with_template(self) -> Events:
        """Send the request as it is, through the model's own chat template."""
        asked, options = self._address_server(0, {}), replace(self.options, api_key=None)
        async with aclosing(_stream_events(_template, asked, self.request, options)) as events:
            async for event in events:
                yield self._restore_name(event)

    async def ask_in_steps(self) -> Events:
        """Ask for a decision if there are tools to choose from, and for an answer if the decision is to answer."""
        turns = split_turns(self.request.messages) or [Turn([""])]
        decision = await self._decide(turns)
        if isinstance(decision, Decision) and decision.tool is not None:
            for event in self._build_tool_call(decision.tool, decision.arguments):
                yield event
            return
        text = decision.text if isinstance(decision, Reply) else self._explain_failure(turns)
        if text:
            for event in self._build_text_answer(text):
                yield event
            return
        async with aclosing(self._stream_answer(turns)) as events:
            async for event in events:
                yield event

    async def _decide(self, turns: Sequence[Turn]) -> Decision | Reply | None:
        """The next call, or a reply that rules give; `None` to answer, because there is nothing more to do."""
        tools, choice = self.request.tools, self.options.tool_choice
        if not tools or choice == "none" or (choice == "auto" and len(turns[-1].steps) >= MAX_STEPS):
            return None
        if choice == "auto":
            planned = plan_next(turns, tools)
            if isinstance(planned, Reply) and self.options.output_schema is not None:
                return None  # the answer has to be in the form that is asked for
            if isinstance(planned, Reply) or (planned is not None and not is_repeated(planned, turns[-1])):
                return planned
        decision = await self._let_model_decide(turns)
        if choice == "auto" and decision is not None and decision.tool is None:
            return look_first(turns, tools) or decision
        return decision

    async def _let_model_decide(self, turns: Sequence[Turn]) -> Decision | None:
        tools, choice = self.request.tools, self.options.tool_choice
        prefix = build_decision_prefix(tools)
        await _ensure_prefix(self.server, _DECIDING, prefix)
        decision = await self._choose(prefix, turns, tools)
        if decision is None or choice == "required" or not is_repeated(decision, turns[-1]):
            return decision
        others = [tool for tool in tools if tool.name != decision.tool]
        if not turns[-1].steps[-1].failed or not others:
            return None
        # The same call would fail again; another tool may work.
        decision = await self._choose(prefix, turns, others)
        return None if decision is None or is_repeated(decision, turns[-1]) else decision

    async def _choose(
        self, prefix: Sequence[ChatMessage], turns: Sequence[Turn], tools: Sequence[ToolSpec]
    ) -> Decision | None:
        """Let the model choose among these tools."""
        named = {get_alias(tool): tool.parameters for tool in tools}
        # A question about the project is not answered before something was looked at.
        free = self.options.tool_choice != "required" and not must_look(turns, tools)
        schema = build_decision_schema(named, respond=free)
        options = StreamOptions(max_tokens=_DECISION_TOKENS, temperature=0.0, output_schema=schema)
        steps = turns[-1].steps
        bias = _RESPOND_BIAS_AFTER_RESULT if steps and not steps[-1].failed else _RESPOND_BIAS
        for tokens in _DECISION_BUDGETS:
            try:
                prompt = build_decision_prompt(prefix, self.request.tools, turns, tokens)
                return parse_decision(await self._read_whole(prompt, options, bias), tools)
            except ContextOverflowError:
                if tokens == _DECISION_BUDGETS[-1]:
                    raise
        return None

    async def _read_whole(self, said: Sequence[ChatMessage], options: StreamOptions, bias: float) -> str:
        text = ""
        asked = self._address_server(_DECIDING, {"logit_bias": [[RESPOND, bias]]})
        async with aclosing(_stream_events(_chat, asked, _build_request(said), options)) as events:
            async for event in events:
                if isinstance(event, Done):
                    self.used += event.message.usage
                    text = event.message.text
        return text

    def _explain_failure(self, turns: Sequence[Turn]) -> str:
        """Why there is no result to answer from; empty if the user wrote something since, or asked for a schema."""
        told = self.request.messages and isinstance(self.request.messages[-1], ToolResultMessage)
        return describe_failure(turns[-1]) if told and self.options.output_schema is None else ""

    def _build_text_answer(self, text: str) -> list[StreamEvent]:
        message = AssistantMessage(
            [TextContent(text)], usage=self.used, model=self.model.id, provider=self.model.provider
        )
        return [TextStart(0), TextDelta(text, 0), TextEnd(0), Done(message)]

    def _build_tool_call(self, name: str, arguments: dict[str, Any]) -> list[StreamEvent]:
        call = ToolCall(f"call_{secrets.token_hex(8)}", name, arguments)
        message = AssistantMessage(
            [call], stop_reason="tool_use", usage=self.used, model=self.model.id, provider=self.model.provider
        )
        written = msgspec.json.encode(arguments).decode()
        return [ToolCallStart(0, call.id, name), ToolCallDelta(written, 0), ToolCallEnd(0, call), Done(message)]

    async def _stream_answer(self, turns: Sequence[Turn]) -> Events:
        prefix = build_answer_prefix(self.request.system_prompt)
        await _ensure_prefix(self.server, _ANSWERING, prefix)
        given = self.options
        options = StreamOptions(
            max_tokens=given.max_tokens or _ANSWER_TOKENS,
            temperature=given.temperature or 0.0,
            output_schema=given.output_schema,
            top_p=given.top_p,
            stop=given.stop,
            seed=given.seed,
        )
        asked = self._address_server(_ANSWERING, {"repeat_penalty": 1.05})
        checked = bool(turns[-1].steps) and given.output_schema is None
        for tokens in _ANSWER_BUDGETS:
            request = _build_request([*prefix, *build_answer_prompt(turns, tokens)])
            events = _stream_events(_chat, asked, request, options)
            try:
                async with aclosing(self._check(events, turns) if checked else events) as shown:
                    async for event in shown:
                        yield self._restore_name(event)
                return
            except ContextOverflowError:
                if tokens == _ANSWER_BUDGETS[-1]:
                    raise

    async def _check(self, events: Events, turns: Sequence[Turn]) -> Events:
        """The events of an answer, sentence by sentence, up to the first that says what was read nowhere.

        If that is the first sentence, a search for the words of the question comes instead, or "I don't know".
        """
        gate = SentenceGate(collect_evidence(turns))
        usage, begun = Usage(), False
        async with aclosing(events):
            async for event in events:
                pieces = gate.feed(event.delta) if isinstance(event, TextDelta) else []
                if isinstance(event, Done):
                    usage = event.message.usage
                if isinstance(event, TextEnd | Done):
                    pieces += gate.finish()
                for piece in pieces:
                    if not begun:
                        yield TextStart(0)
                        begun = True
                    yield TextDelta(piece, 0)
                if gate.refused is not None:
                    break
        if gate.released.strip():
            yield TextEnd(0)
            yield Done(AssistantMessage([TextContent(gate.released.strip())], usage=usage))
            return
        self.used += usage
        for event in self._look_or_admit(turns):
            yield event

    def _look_or_admit(self, turns: Sequence[Turn]) -> list[StreamEvent]:
        """What comes instead of an invented answer: one more search, or what was looked at in vain."""
        turn, tools = turns[-1], self.request.tools
        question = parse_question("\n".join(turn.asked))
        if self.options.tool_choice == "auto":
            further = look_for_topic(question, turn.steps, list_usual_tools(tools))
            if further is not None and further.tool is not None and not is_repeated(further, turn):
                return self._build_tool_call(further.tool, further.arguments)
        return self._build_text_answer(describe_unknown(question, turn.steps))

    def _restore_name(self, event: StreamEvent) -> StreamEvent:
        """The event; the final message gets the usage of both steps and the model name that the user knows."""
        if not isinstance(event, Done):
            return event
        usage = self.used + event.message.usage
        return Done(
            msgspec.structs.replace(event.message, usage=usage, model=self.model.id, provider=self.model.provider)
        )

    def _address_server(self, slot: int, extra: Mapping[str, Any]) -> Model:
        """The model with the URL, key and settings of the running server."""
        server = self.server
        body = {"id_slot": _pick_slot(server, slot), "cache_prompt": True, **extra}
        own = {name: value for name, value in self.model.settings.items() if name not in ("n_ctx", "threads", "tools")}
        settings = {
            **_LONG_TIMEOUTS,
            "empty_content": "empty",
            **own,
            "extra_body": {**body, **own.get("extra_body", {})},
        }
        return replace(
            self.model, base_url=f"{server.url}/v1", api_key=server.child.key, headers=NO_KEEPALIVE, settings=settings
        )


async def _ensure_prefix(server: Server, slot: int, prefix: Sequence[ChatMessage]) -> None:
    await slots.ensure_prefix(server, _pick_slot(server, slot), prefix)


def _pick_slot(server: Server, slot: int) -> int:
    return min(slot, server.settings.parallel - 1)


def _build_request(said: Sequence[ChatMessage]) -> Request:
    return Request(said[0]["content"], [_to_message(message) for message in said[1:]])


def _to_message(said: ChatMessage) -> Message:
    text = said["content"]
    return AssistantMessage([TextContent(text)]) if said["role"] == "assistant" else user_message(text)


async def _stream_events(stream_fn: StreamFn, model: Model, request: Request, options: StreamOptions) -> Events:
    """The events of one request, without its start; the source is closed with this."""
    given = stream_fn(model, request, options)
    async with aclosing(cast(Events, given)) as events:
        async for event in events:
            if not isinstance(event, StreamStart):
                yield event
