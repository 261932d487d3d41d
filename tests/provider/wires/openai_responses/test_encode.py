"""Requests to the OpenAI Responses API: what is sent for which conversation, and that it is encoded only once."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from tests.provider.wires.openai_responses.kit import (
    MODEL,
    begun,
    body_of,
    called,
    done,
    ended,
    input_of,
    message_of,
    said,
    thought,
)
from tests.rows import each_row

from steersman.context.log import MessageView
from steersman.context.repair import repair
from steersman.provider.wires.openai_responses.encode import encode_call_id, encode_tools
from steersman.provider.wires.openai_responses.wire import WIRE
from steersman.tools.tool import Tool, tool
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.frozen import MemoList
from steersman.types.messages import AssistantMessage, ToolResultMessage, UserMessage, user_message
from steersman.types.model import Model, Request, StreamOptions

REASONING = '{"type":"reasoning","id":"rs_0","summary":[],"encrypted_content":"gAAAA"}'


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def own(*blocks: Any) -> AssistantMessage:
    return AssistantMessage(blocks, provider="openai", model="gpt-5")


def result(id: str, *blocks: Any) -> ToolResultMessage:
    return ToolResultMessage(blocks, tool_call_id=id, tool_name="add")


def test_a_plain_request_says_only_what_it_must() -> None:
    assert body_of("Hi") == {
        "model": "gpt-5",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
    }


def test_a_full_request_has_every_option_in_the_words_of_the_api() -> None:
    options = StreamOptions(
        thinking_level="high",
        max_tokens=500,
        temperature=0.5,
        tool_choice="required",
        output_schema={"type": "object", "properties": {}, "required": [], "additionalProperties": False},
        session_id="session_1",
    )
    body = body_of("Hi", system="Be brief.", tools=[add], options=options)
    del body["input"]
    assert body == {
        "model": "gpt-5",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "max_output_tokens": 500,
        "temperature": 0.5,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "output", "strict": True, "schema": options.output_schema}},
        "prompt_cache_key": "session_1",
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": "Add two numbers.",
                "parameters": add.parameters,
                "strict": False,
            }
        ],
        "tool_choice": "required",
    }


def test_the_key_is_in_a_header_and_nowhere_else() -> None:
    model = Model("openai", "gpt-5", headers={"OpenAI-Organization": "org"})
    made = WIRE.request(model, Request("", [user_message("Hi")]), StreamOptions(), "sk-secret")
    assert made.url == "https://api.openai.com/v1/responses"
    assert made.headers == {
        "accept": "text/event-stream",
        "content-type": "application/json",
        "authorization": "Bearer sk-secret",
        "openai-organization": "org",
    }
    assert b"sk-secret" not in made.body
    assert "sk-secret" not in repr(made)
    assert "authorization" not in WIRE.request(model, Request("", []), StreamOptions(), None).headers


@pytest.mark.parametrize("base", ["http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/"])
def test_the_address_is_the_one_given(base: str) -> None:
    model = Model("openai", "m", base_url=base)
    made = WIRE.request(model, Request("", [user_message("Hi")]), StreamOptions(), None)
    assert made.url == "http://127.0.0.1:8080/v1/responses"


def test_a_conversation_is_sent_item_by_item_and_in_order() -> None:
    messages = [
        UserMessage([TextContent("Look"), ImageContent("aGk=", "image/jpeg")]),
        own(ThinkingContent("Hm.", REASONING), TextContent("Let me see."), ToolCall("call_1", "add", {"a": 1, "b": 2})),
        result("call_1", TextContent("3")),
        own(ToolCall("call_2", "add", {})),
        result("call_2", TextContent("see"), ImageContent("aGk=")),
    ]
    assert body_of(*messages)["input"] == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look"},
                {"type": "input_image", "detail": "auto", "image_url": "data:image/jpeg;base64,aGk="},
            ],
        },
        {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "gAAAA"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a":1,"b":2}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "3"},
        {"type": "function_call", "call_id": "call_2", "name": "add", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "call_2",
            "output": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="},
            ],
        },
    ]


def summary(words: str) -> list[dict[str, str]]:
    return [{"type": "summary_text", "text": words}]


def test_what_was_read_goes_back_byte_for_byte() -> None:
    """failures.md D5, D16: reasoning and unknown items as they came, each before what followed it."""
    stream = begun() + thought(0, "Hm.", encrypted="gAAAA1") + thought(1, encrypted="gAAAA2")
    stream += done(2, "web_search_call", id="ws_1", action={"q": "x"}) + thought(3, "So.", encrypted="gAAAA3")
    stream += said(4, "Found.", phase="final_answer") + called(5, "call_5", "add", '{"a":1}') + ended()
    items = input_of(message_of(stream), result("call_5", TextContent("2")))
    assert items == [
        {"type": "reasoning", "id": "rs_0", "summary": summary("Hm."), "encrypted_content": "gAAAA1"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA2"},
        {"type": "web_search_call", "id": "ws_1", "action": {"q": "x"}},
        {"type": "reasoning", "id": "rs_3", "summary": summary("So."), "encrypted_content": "gAAAA3"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Found."}],
            "phase": "final_answer",
        },
        {"type": "function_call", "call_id": "call_5", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "call_5", "output": "2"},
    ]


@pytest.mark.parametrize(
    ("blocks", "kinds"),
    [
        ([ThinkingContent("Hm.", REASONING), TextContent("a")], ["reasoning", "message"]),
        ([TextContent("a"), ThinkingContent("Hm.", REASONING)], ["message"]),
        ([ThinkingContent("Hm.", REASONING)], []),
        (
            [ThinkingContent("", REASONING), ThinkingContent("", REASONING), ToolCall("c", "add")],
            ["reasoning", "reasoning", "function_call"],
        ),
        ([TextContent("a"), ThinkingContent("", REASONING), ThinkingContent("", REASONING)], ["message"]),
        ([ThinkingContent("Hm."), TextContent("a")], ["message"]),
        ([ThinkingContent("Hm.", REASONING), TextContent("", "commentary")], []),
    ],
)
def test_a_reasoning_item_that_nothing_follows_is_left_out(blocks: list[Any], kinds: list[str]) -> None:
    """failures.md D11."""
    assert [item["type"] for item in input_of(own(*blocks))] == kinds


def test_encrypted_content_alone_is_sent_as_an_item_of_its_own() -> None:
    assert input_of(own(ThinkingContent("Hm.", "gAAAA"), TextContent("a")))[0] == {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "gAAAA",
    }


def test_no_item_has_an_id_that_the_server_would_look_for() -> None:
    """failures.md D11, A12: a message or a call with an id would need the reasoning it was made after."""
    stream = begun() + thought(0, "Hm.", encrypted=None) + said(1, "a") + called(2, "call_2", "add") + ended()
    items = input_of(message_of(stream), result("call_2", TextContent("ok")))
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output"]
    assert not any("id" in item for item in items)


def test_texts_of_one_phase_are_one_message() -> None:
    items = input_of(own(TextContent("a", "commentary"), TextContent("b", "commentary"), TextContent("c")))
    assert [(item.get("phase"), [part["text"] for part in item["content"]]) for item in items] == [
        ("commentary", ["a", "b"]),
        (None, ["c"]),
    ]


def test_a_custom_tool_is_answered_as_one() -> None:
    call = ToolCall("call_0", "sql", {"input": "SELECT 1"}, signature="custom_tool_call")
    items = input_of(own(call), result("call_0", TextContent("1")))
    assert items == [
        {"type": "custom_tool_call", "call_id": "call_0", "name": "sql", "input": "SELECT 1"},
        {"type": "custom_tool_call_output", "call_id": "call_0", "output": "1"},
    ]
    foreign = repair(
        [user_message("Hi"), own(call), result("call_0", TextContent("1"))], provider="openai", model="other"
    )
    assert [item.get("type") for item in body_of(*foreign)["input"]] == [None, "function_call", "function_call_output"]


@each_row(
    ("model", "level", "reasoning"),
    [
        ("gpt-5", "off", None),
        ("gpt-5", "minimal", {"effort": "minimal", "summary": "auto"}),
        ("gpt-5-mini-2025-08-07", "minimal", {"effort": "minimal", "summary": "auto"}),
        ("gpt-5.1", "minimal", {"effort": "low", "summary": "auto"}),
        ("o3", "minimal", {"effort": "low", "summary": "auto"}),
        ("o3", "medium", {"effort": "medium", "summary": "auto"}),
        ("gpt-4o", "high", None),
        ("gpt-4.1-mini", "off", None),
    ],
)
def test_a_thinking_level_is_an_effort_the_model_knows(model: str, level: Any, reasoning: Any) -> None:
    body = body_of("Hi", model=Model("openai", model), options=StreamOptions(thinking_level=level))
    assert body.get("reasoning") == reasoning
    assert ("include" in body) == (not model.startswith("gpt-4"))


def test_more_fields_can_be_given_and_ours_taken_away() -> None:
    extra = {"service_tier": "flex", "store": True, "include": None, "tools": [{"type": "web_search"}]}
    body = body_of("Hi", model=Model("openai", "gpt-5", settings={"extra_body": extra}), tools=[add])
    assert (body["service_tier"], body["store"], "include" in body) == ("flex", True, False)
    assert [tool.get("name", tool["type"]) for tool in body["tools"]] == ["add", "web_search"]


def test_a_limit_below_the_least_the_api_takes_is_raised_to_it() -> None:
    assert body_of("Hi", options=StreamOptions(max_tokens=1))["max_output_tokens"] == 16


def test_a_choice_is_only_made_where_there_are_tools() -> None:
    assert "tool_choice" not in body_of("Hi", options=StreamOptions(tool_choice="none"))


def test_a_long_session_id_still_makes_a_key() -> None:
    keys = [body_of("Hi", options=StreamOptions(session_id=f"{'s' * 100}{n}"))["prompt_cache_key"] for n in (1, 2)]
    assert [len(key) for key in keys] == [64, 64]
    assert keys[0] != keys[1]


@given(st.text(max_size=100), st.text(max_size=100))
def test_ids_are_legal_and_as_different_as_they_were(one: str, other: str) -> None:
    """failures.md A9."""
    written = encode_call_id(one)
    assert 0 < len(written) <= 64
    assert written.replace("_", "").replace("-", "").isalnum() or set(written) <= set("_-")
    assert written.isascii()
    assert (written == encode_call_id(other)) == (one == other)


def test_names_the_api_does_not_take_are_written_in_a_way_it_does() -> None:
    """failures.md C14."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    names = ["calendar.list", "calendar_list", "x" * 200, "1st", "größe", "with space"]
    tools = [Tool(name, "", schema, lambda: "") for name in names]
    body = body_of("Hi", own(ToolCall("c", "calendar.list")), result("c", TextContent("1")), tools=tools)
    written = [entry["name"] for entry in body["tools"]]
    assert len(set(written)) == len(names)
    assert all(0 < len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in written)
    assert all(name.isascii() for name in written)
    assert written[1] == "calendar_list"
    assert body["input"][1]["name"] == written[0]


# Encoded once


def conversation(turns: int) -> list[Any]:
    messages: list[Any] = [user_message("Hi")]
    for turn in range(turns):
        messages += [
            own(ThinkingContent("", REASONING), ToolCall(f"call_{turn}", "add", {"a": turn})),
            result(f"call_{turn}", TextContent(str(turn))),
        ]
    return messages


def test_a_message_that_was_encoded_is_not_encoded_again() -> None:
    base: MemoList[Any] = MemoList(conversation(3))
    fresh = WIRE.request(MODEL, Request("", list(base), [add]), StreamOptions(), "k").body
    assert WIRE.request(MODEL, Request("", MessageView(base), [add]), StreamOptions(), "k").body == fresh  # pyright: ignore[reportArgumentType]
    encoded = base.memo["openai-responses messages"]
    before = list(encoded.starts)
    base += [own(TextContent("Done."))]
    base += [user_message("More")]
    longer = WIRE.request(MODEL, Request("", MessageView(base), [add]), StreamOptions(), "k").body  # pyright: ignore[reportArgumentType]
    assert longer == WIRE.request(MODEL, Request("", list(base), [add]), StreamOptions(), "k").body
    assert base.memo["openai-responses messages"] is encoded
    assert encoded.starts[: len(before)] == before
    assert len(encoded.starts) == len(base)
    shorter = Request("", MessageView(base, 7), [add])  # pyright: ignore[reportArgumentType]
    assert WIRE.request(MODEL, shorter, StreamOptions(), "k").body == fresh


def test_tools_that_change_in_mid_conversation_change_the_names_in_it() -> None:
    base: MemoList[Any] = MemoList([user_message("Hi"), own(ToolCall("c", "a.b")), result("c", TextContent("1"))])
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    dotted = Tool("a.b", "", schema, lambda: "")

    def names(*tools: Tool) -> list[str]:
        request = Request("", MessageView(base), tools)  # pyright: ignore[reportArgumentType]
        body = msgspec.json.decode(WIRE.request(MODEL, request, StreamOptions(), "k").body)
        return [body["input"][1]["name"], *(entry["name"] for entry in body.get("tools", ()))]

    alone = names(dotted)
    assert alone[0] == alone[1]
    taken = Tool(alone[0], "", schema, lambda: "")
    both = names(taken, dotted)
    assert both[0] == both[2] != both[1] == alone[0]
    assert names(dotted) == alone


def test_tools_are_encoded_once() -> None:
    specs: list[Tool] = [add]
    known = encode_tools(specs)
    assert encode_tools((add,)) is known
    assert encode_tools(tuple(specs)) is known
    specs.append(Tool("more", "", {"type": "object"}, lambda: ""))
    assert encode_tools(specs) is not known
    assert len(encode_tools(specs).encoded) == 2
