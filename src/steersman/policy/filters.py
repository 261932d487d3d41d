"""Input filters check the text that is about to enter the transcript, and may add a warning or reject it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

import msgspec

from steersman.policy.verdicts import FilterVerdict, Pass, Reject, Warn
from steersman.types.content import TextContent
from steersman.types.errors import describe_exception
from steersman.types.messages import AgentMessage, UserMessage, user_message

InputFilter: TypeAlias = Callable[[str], FilterVerdict | Awaitable[FilterVerdict]]
"""A callable of one text, or an object with a `filter(text)` method; sync or async."""


class FilterResult(msgspec.Struct, frozen=True):
    """The accepted messages with their warnings, or none and the reason."""

    messages: list[AgentMessage]
    rejected: str | None = None


async def apply_filters(filters: Sequence[InputFilter], messages: Sequence[AgentMessage]) -> FilterResult:
    """Ask each filter in order about the joined text of the user messages; the first `Reject` wins."""
    if not filters:
        return FilterResult(list(messages))
    text = "\n".join([message.text for message in messages if type(message) is UserMessage])
    warnings: list[str] = []
    for input_filter in filters:
        verdict = await _ask_filter(input_filter, text)
        if type(verdict) is Reject:
            return FilterResult([], verdict.reason or f"{_name_filter(input_filter)} gave no reason")
        if type(verdict) is Warn:
            warnings.append(verdict.text)
    return FilterResult(_add_warnings(messages, warnings))


async def _ask_filter(input_filter: InputFilter, text: str) -> FilterVerdict:
    try:
        # A filter may be an object with a `filter` method too; its type, a callable, does not say so.
        method = None if callable(input_filter) else getattr(input_filter, "filter")  # noqa: B009  # hence by name
        ask = cast(InputFilter, method or input_filter)
        verdict: object = ask(text)
        if isinstance(verdict, Awaitable):
            verdict = await cast(Awaitable[object], verdict)
    except Exception as error:  # noqa: BLE001  # a guard that broke must not count as one that agreed
        return Reject(f"{_name_filter(input_filter)} raised {describe_exception(error)}")
    if isinstance(verdict, Pass | Warn | Reject):
        return verdict
    return Reject(f"{_name_filter(input_filter)} gave {verdict!r}; return Pass(), Warn(text) or Reject(reason)")


def _add_warnings(messages: Sequence[AgentMessage], warnings: Sequence[str]) -> list[AgentMessage]:
    """Add the warnings to a copy of the last user message; the caller's objects are not changed."""
    result = list(messages)
    if not warnings:
        return result
    text = " ".join([f"[Warning: {warning}]" for warning in warnings])
    for index in range(len(result) - 1, -1, -1):
        message = result[index]
        if type(message) is UserMessage:
            result[index] = msgspec.structs.replace(message, content=[*message.content, TextContent(text)])
            return result
    result.append(user_message(text))
    return result


def _name_filter(input_filter: object) -> str:
    name = getattr(input_filter, "__name__", None)
    return f"input filter {name if isinstance(name, str) else type(input_filter).__name__!s}"
