"""The run's own model as the writer of a summary: no tools, a valid request, and its usage counted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from steersman.loop.request import make_options
from steersman.loop.run import Run
from steersman.provider.streaming.normalize import events_of, info_of
from steersman.types.content import TextContent, ToolCall
from steersman.types.errors import exception_of
from steersman.types.messages import Message, user_message
from steersman.types.model import Request
from steersman.types.stream import Done, Failed, FallbackNotice, RetryNotice

_PROMPT = (
    "You write summaries of conversations between a user, an assistant and its tools. Keep what the assistant needs to "
    "go on: what was asked, what was found out and decided, names, numbers and paths, and what is still to be done. "
    "Answer with the summary alone."
)


async def summarise(run: Run, messages: Sequence[Message]) -> str:
    """What matters of these messages, in the model's words; raises when it gave none.

    A model that failed is the `ProviderError` that it was, so that a strategy can tell a wrong key from a full window.
    """
    request = Request(_PROMPT, [user_message("\n\n".join(map(_told, messages)))])
    final = await _asked(run, request)
    message = final.message
    run.add_usage(message.usage)
    if isinstance(final, Failed):
        info = info_of(final)
        info = msgspec.structs.replace(info, provider=info.provider or run.config.model.provider)
        raise exception_of(run.redacted_info(info))
    if message.failed or message.stop_reason != "stop":
        raise ValueError(message.error_message or f"the summary ended with {message.stop_reason!r}")
    return message.text


async def _asked(run: Run, request: Request) -> Done | Failed:
    options = make_options(run, "none", output_schema=None)
    async with aclosing(events_of(run.stream_fn, run.config.model, request, options)) as events:
        async for event in events:
            if isinstance(event, Done | Failed):
                return event
            if isinstance(event, RetryNotice | FallbackNotice) and event.usage is not None:
                run.add_usage(event.usage)
    raise ValueError("the model gave no summary")  # cannot be: the normal form has a terminal event


def _told(message: Message) -> str:
    """A message as a line of a report: what is quoted cannot be mistaken for a conversation to go on with."""
    parts: list[str] = []
    for block in message.content:
        if type(block) is TextContent:
            parts.append(block.text)
        elif type(block) is ToolCall:
            parts.append(f"(calls {block.name} with {msgspec.json.encode(block.arguments).decode()})")
    return f"[{message.role}] {' '.join(parts)}"
