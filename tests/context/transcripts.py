"""Transcripts for the tests of this room, good and bad, and a judge of what a provider would accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from steersman.context.repair import repair
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    ExtensionMessage,
    ToolResultMessage,
    UserMessage,
    user_message,
)
from steersman.types.usage import Usage

PROVIDER = "acme"
MODEL = "acme-1"


def user(text: str = "Hello") -> UserMessage:
    return user_message(text)


def call(call_id: str, name: str = "read", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, arguments)


def answer(*blocks: Content | str, **fields: Any) -> AssistantMessage:
    content = [TextContent(block) if isinstance(block, str) else block for block in blocks]
    made: dict[str, Any] = {"provider": PROVIDER, "model": MODEL, **fields}
    return AssistantMessage(content, **made)


def result(call_id: str, text: str = "done", *, name: str = "read", **fields: Any) -> ToolResultMessage:
    return ToolResultMessage([TextContent(text)], tool_call_id=call_id, tool_name=name, **fields)


def memo(text: str) -> UserMessage:
    return user_message(f"[Memo: {text}]", synthetic=True)


def turn(name: str, text: str = "done") -> list[AgentMessage]:
    return [answer(f"calling {name}", call(name)), result(name, text)]


def valid(messages: Sequence[AgentMessage]) -> bool:
    """Whether the messages can be sent once they are repaired."""
    return faults(repair(messages, provider=PROVIDER, model=MODEL)) == []


def faults(messages: Sequence[Any], provider: str = PROVIDER, model: str = MODEL) -> list[str]:
    """What a strict provider would say about a request: nothing, if it is a valid one."""
    found = _pair_faults(messages)
    for message in messages:
        own = message.role == "assistant" and (message.provider, message.model) == (provider, model)
        found += _block_faults(message, own=own)
        if message.role == "assistant" and message.stop_reason in ("error", "aborted", "refusal"):
            found.append("a failed answer is replayed")
    if messages and messages[0].role != "user":
        found.append("the first message is not a user's")
    if messages and messages[-1].role == "assistant":
        found.append("the last message is the model's")
    return found


def _pair_faults(messages: Sequence[Any]) -> list[str]:
    found: list[str] = []
    expected: list[str] = []
    ids: list[str] = []
    for message in messages:
        if message.role == "tool_result":
            if not expected or message.tool_call_id != expected.pop(0):
                found.append(f"result {message.tool_call_id!r} is not the one that comes next")
            continue
        if expected:
            found.append(f"calls without results directly after: {expected}")
        expected = [block.id for block in message.content if block.type == "tool_call"]
        ids += expected
    if expected:
        found.append(f"calls without results at the end: {expected}")
    if len(set(ids)) != len(ids) or "" in ids:
        found.append(f"tool_use ids must be unique: {ids}")
    return found


def _block_faults(message: Any, *, own: bool) -> list[str]:
    found: list[str] = []
    allowed = {
        "user": {"text", "image"},
        "tool_result": {"text", "image"},
        "assistant": {"text", "image", "thinking", "tool_call"},
    }.get(message.role, set[str]())
    if not any(block.type != "thinking" for block in message.content):
        found.append(f"{message.role} message must not be empty")
    for block in message.content:
        if block.type not in allowed:
            found.append(f"{block.type} in a {message.role} message")
        if block.type == "text" and not block.text.strip() and not (own and block.signature):
            found.append("text content blocks must be non-empty")
        if block.type == "image" and not block.data:
            found.append("empty image")
        if block.type == "thinking" and not own:
            found.append("thinking of another model")
        if block.type in ("text", "tool_call") and block.signature and not own:
            found.append("signature of another model")
        if block.type == "tool_call" and block.raw_arguments is not None:
            found.append("tool_use.input: Input should be a valid dictionary")
    return found


TEXTS = st.sampled_from(["", " \n", "hi", "Grüße", "a longer text " * 5])
SIGNATURES = st.sampled_from([None, "sig"])
IDS = st.sampled_from(["a", "b", "a_2", "a_2_2", ""])
SAYING: st.SearchStrategy[Content] = st.one_of(
    st.builds(TextContent, TEXTS, SIGNATURES),
    st.builds(ImageContent, st.sampled_from(["", "aGk="])),
)
CALLS = st.builds(
    ToolCall,
    IDS,
    st.sampled_from(["read", "write"]),
    st.just({"n": 1}),
    st.sampled_from([None, None, "[1", "x"]),
    SIGNATURES,
)
ANSWERING: st.SearchStrategy[Content] = st.one_of(
    SAYING, CALLS, st.builds(ThinkingContent, st.sampled_from(["", "hm"]), SIGNATURES)
)
ANSWERS = st.builds(
    AssistantMessage,
    st.lists(ANSWERING, max_size=4),
    stop_reason=st.sampled_from(["stop", "tool_use", "length", "error", "aborted", "refusal"]),
    model=st.sampled_from([MODEL, MODEL, "other"]),
    provider=st.sampled_from([PROVIDER, PROVIDER, "other"]),
    usage=st.sampled_from([Usage(), Usage(input=100, output=20), Usage(input=0, output=0)]),
)
USERS = st.builds(UserMessage, st.lists(SAYING, max_size=2), synthetic=st.booleans())
ANY_MESSAGE: st.SearchStrategy[AgentMessage] = st.one_of(
    USERS,
    ANSWERS,
    ANSWERS,
    st.builds(
        ToolResultMessage, st.lists(SAYING, max_size=2), tool_call_id=IDS, tool_name=st.sampled_from(["", "read"])
    ),
    st.builds(ToolResultMessage, st.lists(SAYING, max_size=1), tool_call_id=IDS),
    st.builds(ExtensionMessage, st.just(()), kind=st.just("note")),
)
CHAOS = st.lists(ANY_MESSAGE, max_size=14)
"""Messages in any order with anything in them."""


@st.composite
def conversations(draw: st.DrawFn, max_turns: int = 8) -> list[AgentMessage]:
    """Messages as a loop appends them: turns with any number of calls, results after them, now and then a user."""
    sizes = st.sampled_from([0, 3, 40, 400, 3_000])
    messages: list[AgentMessage] = [user("Do it. " + "x" * draw(sizes))]
    for turn in range(draw(st.integers(0, max_turns))):
        calls = [call(f"c{turn}_{number}", path="y" * draw(sizes)) for number in range(draw(st.integers(0, 3)))]
        messages.append(answer(f"Turn {turn} " + "z" * draw(sizes), *calls))
        messages += [result(one.id, "o" + "o" * draw(sizes)) for one in calls]
        if not calls or draw(st.booleans()):
            messages.append(user(f"Go on {turn} " + "u" * draw(sizes)))
    return messages
