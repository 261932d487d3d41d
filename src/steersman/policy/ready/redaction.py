"""Replaces personal data by placeholders before a model or a log sees it, and puts it back for chosen tools."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import msgspec

from steersman.policy.ready.personal_data import PII_KINDS, PiiKind, find_personal_data
from steersman.policy.verdicts import Rewrite
from steersman.provider.models.registry import find_stream_fn
from steersman.tools.threads import call_in_thread
from steersman.types.content import Content, TextContent, ToolCall
from steersman.types.frozen import FrozenList, thaw
from steersman.types.messages import Message
from steersman.types.model import Model, Request, StreamFn, StreamOptions, StreamResponse
from steersman.types.tools import ToolOutput

DEFAULT_KINDS: tuple[PiiKind, ...] = tuple(kind for kind in PII_KINDS if kind != "ip")
_MAX_MEMO = 10_000
# Beyond this many characters the search is work for a thread.
_LARGE = 20_000

T = TypeVar("T")
Result = TypeVar("Result")


class PiiRedaction:
    """Redacts e-mail addresses, phone numbers, accounts, cards and national ids; use one object for each session.

    In `hooks=[pii]` it redacts tool results, and puts values back into the arguments of the tools in `restore_in`.
    With `stream_fn=pii.wrap()` it redacts everything that is sent to the model. The same value has the same
    placeholder, such as `[EMAIL_1_3f9c]`. `known` continues with the placeholders of an earlier object.
    """

    def __init__(
        self,
        kinds: Iterable[PiiKind] = DEFAULT_KINDS,
        *,
        restore_in: Iterable[str] = (),
        known: Mapping[str, str] | None = None,
        tag: str | None = None,
    ) -> None:
        self.kinds = tuple(kinds)
        for kind in self.kinds:
            if kind not in PII_KINDS:
                raise ValueError(f"kinds are {', '.join(PII_KINDS)}, got {kind!r}.")
        if isinstance(restore_in, str):
            raise TypeError(f"restore_in takes the names of tools, got {restore_in!r}; write [{restore_in!r}].")
        self._restore_in = frozenset(restore_in)
        # A text from outside cannot name a placeholder, because it does not know the tag.
        self._tag = secrets.token_hex(3) if tag is None else tag
        self._values: dict[str, str] = dict(known or {})
        self._placeholders = {value: placeholder for placeholder, value in self._values.items()}
        self._memo: dict[int, tuple[Message, Message]] = {}
        self._lock = threading.Lock()
        self._pattern = _compile_placeholders({self._tag, *map(_find_tag, self._values)})

    @property
    def known(self) -> dict[str, str]:
        """Every placeholder with its value: personal data, to be stored as such, or not at all."""
        return dict(self._values)

    def redact(self, text: str) -> str:
        """Replace personal data by placeholders."""
        parts: list[str] = []
        place = 0
        for found in find_personal_data(text, self.kinds):
            parts += (text[place : found.start], self._get_placeholder(found.kind, text[found.start : found.end]))
            place = found.end
        return "".join(parts) + text[place:] if parts else text

    def restore(self, text: str) -> str:
        """Put the values back for the placeholders of this object."""
        return self._pattern.sub(lambda match: self._values.get(match[0], match[0]), text)

    def before_tool_execution(self, call: ToolCall) -> Rewrite | None:
        """Put values back into the arguments of the tools in `restore_in`."""
        if call.name not in self._restore_in:
            return None
        restored = _map_texts(thaw(call.arguments), self.restore)
        return None if restored == call.arguments else Rewrite(cast(dict[str, Any], restored))

    async def after_tool_execution(self, call: ToolCall, output: ToolOutput) -> ToolOutput | None:
        """Redact the content and the details of a tool's output."""
        return await _do(self._redact_output, output, size=_measure([output.content, output.details]))

    def _redact_output(self, output: ToolOutput) -> ToolOutput | None:
        content = (
            self.redact(output.content) if isinstance(output.content, str) else self._redact_blocks(output.content)
        )
        details = cast(dict[str, Any], _map_texts(thaw(output.details), self.redact))
        if content == output.content and details == output.details:
            return None
        return msgspec.structs.replace(output, content=content, details=details)

    def wrap(self, stream_fn: StreamFn | None = None) -> StreamFn:
        """A `StreamFn` that redacts system prompt and messages of each request; without one, around the model's own."""

        async def ask(model: Model, request: Request, options: StreamOptions, /) -> StreamResponse:
            new = [message for message in request.messages if id(message) not in self._memo]
            size = len(request.system_prompt) + sum(_measure(message.content) for message in new)
            clean = await _do(self._redact_request, request, size=size)
            answer = (stream_fn or find_stream_fn(model))(model, clean, options)
            return await answer if isinstance(answer, Awaitable) else answer

        return ask

    def _redact_request(self, request: Request) -> Request:
        messages = [self._redact_message(message) for message in request.messages]
        return replace(
            request, system_prompt=self.redact(request.system_prompt), messages=messages, source_messages=None
        )

    def _get_placeholder(self, kind: PiiKind, value: str) -> str:
        with self._lock:  # two values that are found at once in two threads have two placeholders
            found = self._placeholders.get(value)
            if found is None:
                found = f"[{kind.upper()}_{len(self._values) + 1}_{self._tag}]"
                self._values[found] = value
                self._placeholders[value] = found
            return found

    def _redact_message(self, message: Message) -> Message:
        """Each message is redacted once: the conversation is sent again in every turn."""
        known = self._memo.get(id(message))
        if known is not None and known[0] is message:
            return known[1]
        content = self._redact_blocks(message.content)
        clean = message if content == message.content else msgspec.structs.replace(message, content=FrozenList(content))
        if len(self._memo) >= _MAX_MEMO:
            self._memo.clear()
        self._memo[id(message)] = (message, clean)
        return clean

    def _redact_blocks(self, blocks: Sequence[Content]) -> list[Content]:
        return [self._redact_block(block) for block in blocks]

    def _redact_block(self, block: Content) -> Content:
        if isinstance(block, TextContent):
            text = self.redact(block.text)
            return block if text == block.text else msgspec.structs.replace(block, text=text)
        if isinstance(block, ToolCall):
            arguments = cast(dict[str, Any], _map_texts(thaw(block.arguments), self.redact))
            return block if arguments == block.arguments else msgspec.structs.replace(block, arguments=arguments)
        return block


def _find_tag(placeholder: str) -> str:
    return placeholder.rpartition("_")[2].rstrip("]")


def _compile_placeholders(tags: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"\[[A-Z_]{{2,12}}_[0-9]{{1,9}}_(?:{'|'.join(map(re.escape, sorted(tags)))})\]")


def _map_texts(value: object, change: Callable[[str], str]) -> object:
    """The same JSON value with every text in it changed, also the keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        items = cast(dict[str, object], value).items()
        return {change(key): _map_texts(item, change) for key, item in items}
    if isinstance(value, list | tuple):
        return [_map_texts(item, change) for item in cast(Sequence[object], value)]
    return value


def _measure(value: object) -> int:
    """How many characters of text there are in a value, without keys."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, TextContent):
        return len(value.text)
    if isinstance(value, ToolCall):
        return _measure(value.arguments)
    if isinstance(value, Mapping):
        return sum(map(_measure, cast(Mapping[str, object], value).values()))
    return sum(map(_measure, cast(Sequence[object], value))) if isinstance(value, list | tuple) else 0


async def _do(work: Callable[[T], Result], given: T, *, size: int) -> Result:
    """Do some work on texts of this size, in a thread where it takes long."""
    return await call_in_thread(work, given) if size > _LARGE else work(given)
