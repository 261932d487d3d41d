"""The answer so far: `event.message` of a `message_update`."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests.loop.play import said

from steersman import Agent, Model, tool
from steersman.events import MessageEnd, MessageUpdate
from steersman.testing import ScriptedModel, answer, call, cut
from steersman.types import (
    AssistantMessage,
    Done,
    PartialMessage,
    StreamEvent,
    TextContent,
    TextDelta,
    ThinkingContent,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    decode,
    encode,
)

CONTENT = 'import os\n\nprint("é", os.sep)\n' * 3


@tool
def write(path: str, content: str) -> str:
    """Write a file."""
    return "ok"


async def test_the_partial_of_a_growing_write_call_shows_the_file_as_it_grows() -> None:
    """api.md, details: tool calls grow in the partial answer."""
    script = ScriptedModel(answer("Now.", call("write", path="a.py", content=CONTENT), deltas=40), "done")
    agent = Agent(script.model, tools=[write])
    files: list[str] = []
    raw: list[str] = []
    complete: list[bool] = []
    async for event in agent.prompt("go"):
        if event.type == "message_update" and event.message is not None and event.message.tool_calls:
            (growing,) = event.message.tool_calls
            assert (growing.name, event.message.text, event.message.stop_reason) == ("write", "Now.", None)
            files.append(growing.arguments.get("content", ""))
            complete.append(growing.complete)
            if not growing.complete:
                raw.append(growing.raw_arguments or "")
    sent = json.dumps({"path": "a.py", "content": CONTENT}, ensure_ascii=False, separators=(",", ":"))
    assert files == sorted(files, key=len)
    assert len(set(files)) > 25
    assert all(CONTENT.startswith(file) for file in files)
    assert (files[-1], raw[-1]) == (CONTENT, sent)
    assert all(sent.startswith(text) for text in raw)
    assert complete == [False] * (len(complete) - 1) + [True]


async def test_text_and_thinking_grow_delta_by_delta() -> None:
    script = ScriptedModel(answer(ThinkingContent("let me see"), "Hello world", deltas=2))
    seen: list[str] = []
    async for event in Agent(script.model).prompt("go"):
        if event.type == "message_update":
            assert type(event.message) is PartialMessage
            assert isinstance(event.message, AssistantMessage)
            blocks = [block.thinking if isinstance(block, ThinkingContent) else "" for block in event.message.content]
            seen.append("|".join([*filter(None, blocks), event.message.text]))
    assert seen == [
        *("", "let m|", "let me see|", "let me see|"),
        *("let me see|", "let me see|Hello", "let me see|Hello world", "let me see|Hello world"),
    ]


async def test_a_partial_goes_to_json_and_back() -> None:
    """api.md, details: `stop_reason` None until the end, `complete` False while a call grows; `encode` and `decode`."""
    script = ScriptedModel(answer("Now.", call("write", path="a.py", content=CONTENT), deltas=4), "done")
    growing: list[dict[str, Any]] = []
    async for event in Agent(script.model, tools=[write]).prompt("go"):
        if event.type == "message_update" and event.message is not None:
            kept = copy.copy(event.message)
            back = decode(encode(kept))
            assert (type(back), back) == (PartialMessage, kept)
            growing += [block for block in json.loads(encode(kept))["content"] if block["type"] == "tool_call"]
    assert [set(block) for block in growing[:-1]] == [
        {"type", "id", "name", "arguments", "raw_arguments", "complete"} for _ in growing[:-1]
    ]
    assert [block["complete"] for block in growing[:-1]] == [False] * (len(growing) - 1)
    assert set(growing[-1]) == {"type", "id", "name", "arguments"}


async def test_the_last_partial_is_the_answer_but_for_its_end() -> None:
    script = ScriptedModel(answer(ThinkingContent("hm"), "Hello", call("write", path="a", content="b"), "ok"), "done")
    last: PartialMessage | None = None
    whole: AssistantMessage | None = None
    async for event in Agent(script.model, tools=[write]).prompt("go"):
        if event.type == "message_update" and whole is None:
            last = event.message
        elif event.type == "message_end" and whole is None and isinstance(event.message, AssistantMessage):
            whole = event.message
    assert last is not None
    assert whole is not None
    assert (last.content, last.model, last.provider) == (whole.content, whole.model, whole.provider)
    assert (last.stop_reason, whole.stop_reason) == (None, "tool_use")


async def test_a_reset_begins_a_new_partial_and_the_old_one_stays() -> None:
    agent = Agent(ScriptedModel(cut("Hello wor"), "Bye.").model)
    updates = [event async for event in agent.prompt("go") if isinstance(event, MessageUpdate)]
    messages = [event.message for event in updates]
    texts = ["" if message is None else message.text for message in messages]
    reset = [event.delta.type for event in updates].index("reset")
    assert set(texts[:reset]) == {"Hello wor"}
    assert (texts[reset], texts[-1]) == ("Bye.", "Bye.")
    assert messages[reset - 1] is messages[0]
    assert messages[reset] is messages[-1] is not messages[0]
    assert [event.message for event in updates] == messages


async def test_a_partial_grows_after_it_was_read_and_a_copy_does_not() -> None:
    """api.md, rulings: the partial message is read-only and may grow after it was read; copy it to keep it."""
    script = ScriptedModel(answer("ab", call("write", path="a", content="b" * 40), deltas=2), "done")
    kept: list[PartialMessage] = []
    same: list[PartialMessage] = []
    async for event in Agent(script.model, tools=[write]).prompt("go"):
        if event.type == "message_update" and event.message is not None and len(kept) < 6:
            same.append(event.message)
            kept.append(copy.copy(event.message))
    assert all(message is same[0] for message in same)
    assert [message.text for message in kept] == ["", "a", "ab", "ab", "ab", "ab"]
    assert [[len(one.arguments.get("content", "")) for one in message.tool_calls] for message in kept[3:]] == [
        [],
        [0],
        [9],
    ]
    assert copy.deepcopy(same[0]) == same[0]


async def test_a_partial_is_read_only() -> None:
    script = ScriptedModel(answer(call("write", path="a", content="b"), deltas=3), "done")
    async for event in Agent(script.model, tools=[write]).prompt("go"):
        if event.type == "message_update" and event.message is not None and event.message.tool_calls:
            message: Any = event.message
            for change in (
                lambda message=message: message.content.append(TextContent("x")),
                lambda message=message: message.tool_calls[0].arguments.update(path="x"),
                lambda message=message: setattr(message, "model", "x"),
                lambda message=message: setattr(message.tool_calls[0], "name", "x"),
            ):
                with pytest.raises((TypeError, AttributeError)):
                    change()


async def test_a_partial_is_no_part_of_a_conversation() -> None:
    agent = Agent(ScriptedModel("Hello").model)
    partials = [event.message async for event in agent.prompt("go") if isinstance(event, MessageUpdate)]
    partial = partials[0]
    assert partial is not None
    with pytest.raises(ValueError, match="take the message of its message_end"):
        agent.prompt([partial])


async def test_a_partial_can_be_encoded_and_a_decoded_event_has_none() -> None:
    script = ScriptedModel(answer(call("write", path="a", content="b" * 9), deltas=4), "done")
    lines: list[str] = []
    async for event in Agent(script.model, tools=[write]).prompt("go"):
        if event.type == "message_update" and event.message is not None:
            assert getattr(decode(encode(event)), "message") is None  # noqa: B009  # any event
            lines.append(encode(event.message).decode())
    assert '"stop_reason":null' in lines[2]
    assert '"complete":false' in lines[2]


async def test_blocks_stand_in_the_order_in_which_they_began() -> None:
    events: list[StreamEvent] = [
        ToolCallStart(1, "c1", "write"),
        TextDelta("later", 2),
        ToolCallDelta('{"path": "a', 1),
        ToolCallStart(3, "c2", "write"),
        ToolCallEnd(3),
        ToolCallDelta("never begun", 7),
        ToolCallEnd(1, ToolCall("c1", "write", {"path": "a"})),
        Done(AssistantMessage([TextContent("later")])),
    ]

    async def stream_fn(*_: object) -> Any:
        for event in events:
            yield event

    shapes: list[list[str]] = []
    agent = Agent(Model("own", "own"), stream_fn=stream_fn)
    async for event in agent.prompt("go"):
        if event.type == "message_update" and event.message is not None:
            shapes.append(
                [
                    f"{block.id} {dict(block.arguments)} {block.complete}"
                    if isinstance(block, ToolCall)
                    else getattr(block, "text", "")
                    for block in event.message.content
                ]
            )
    assert shapes == [
        ["c1 {} False"],
        ["c1 {} False", "later"],
        ["c1 {'path': 'a'} False", "later"],
        ["c1 {'path': 'a'} False", "later", "c2 {} False"],
        ["c1 {'path': 'a'} False", "later", "c2 {} True"],
        ["c1 {'path': 'a'} False", "later", "c2 {} True"],
        ["c1 {'path': 'a'} True", "later", "c2 {} True"],
    ]


async def test_two_readers_see_the_same_partial() -> None:
    agent = Agent(ScriptedModel(answer("Hello world", deltas=11)).model)
    ahead: list[str] = []
    behind: list[str] = []

    def watch(event: object) -> None:
        if isinstance(event, MessageUpdate) and event.message is not None:
            ahead.append(event.message.text)

    agent.subscribe(watch)
    async for event in agent.prompt("go"):
        if event.type == "message_update" and event.message is not None:
            behind.append(event.message.text)
        if isinstance(event, MessageEnd) and event.message.role == "assistant":
            assert said([event.message]) == ["assistant: Hello world"]
    assert ahead[1:-1] == ["Hello world"[:count] for count in range(1, 12)]
    assert all(text.startswith(early) for text, early in zip(behind, ahead, strict=True))
