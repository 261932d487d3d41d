"""Requests of the Anthropic Messages API, as the bytes that are sent."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
from tests.context.transcripts import CHAOS, PROVIDER
from tests.context.transcripts import MODEL as ACME
from tests.provider.wires.anthropic.kit import MODEL, body_of

from steersman.context.log import MessageView
from steersman.context.repair import Repairer, repair
from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.provider.wires.anthropic.wire import WIRE
from steersman.provider.wires.anthropic.written_blocks import encode_call_id
from steersman.testing.servers.anthropic.messages import Fault
from steersman.testing.servers.anthropic.request import check_request
from steersman.tools.tool import Tool, tool
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, Message, ToolResultMessage, UserMessage
from steersman.types.messages import user_message as user
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.usage import Usage

PNG = "iVBORw0KGgo="
MARK = {"cache_control": {"type": "ephemeral"}}
PLAIN = Model("anthropic", "claude-sonnet-4-5", settings={"cache": False})


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def assistant(*blocks: Any, **more: Any) -> AssistantMessage:
    content = [TextContent(block) if isinstance(block, str) else block for block in blocks]
    return AssistantMessage(content, provider="anthropic", model="claude-sonnet-4-5", **more)


def result(id: str, *blocks: Any, **more: Any) -> ToolResultMessage:
    content = [TextContent(block) if isinstance(block, str) else block for block in blocks]
    return ToolResultMessage(content, tool_call_id=id, tool_name="add", **more)


CONVERSATION: list[Message] = [
    UserMessage([TextContent("What is this?"), ImageContent(PNG)]),
    assistant(
        ThinkingContent("Hm.", "c2ln"),
        ThinkingContent("", "ZW5j", redacted=True),
        "Let me see.",
        ToolCall("t1", "add", {"a": 2, "b": 3}),
        ToolCall("t2", "add", {"a": 4, "b": 5}),
    ),
    result("t1", "5"),
    result("t2", "Broken.", is_error=True),
    user("Hurry up."),
]

GOLDEN = (
    b'{"model":"claude-sonnet-4-5","stream":true,'
    b'"tools":[{"name":"add","description":"Add two numbers.","input_schema":{"type":"object","properties":'
    b'{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"],"additionalProperties":false},'
    b'"cache_control":{"type":"ephemeral"}}],'
    b'"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],'
    b'"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image","source":'
    b'{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="},"cache_control":{"type":"ephemeral"}}]},'
    b'{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"c2ln"},'
    b'{"type":"redacted_thinking","data":"ZW5j"},{"type":"text","text":"Let me see."},'
    b'{"type":"tool_use","id":"t1","name":"add","input":{"a":2,"b":3}},'
    b'{"type":"tool_use","id":"t2","name":"add","input":{"a":4,"b":5}}]},'
    b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"5"}]},'
    b'{"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"Broken."}]},'
    b'{"type":"text","text":"Hurry up.","cache_control":{"type":"ephemeral"}}]}],"max_tokens":32000}'
)


def test_a_request_with_everything_in_it() -> None:
    """failures.md A6: results first, then what was said meanwhile."""
    sent = WIRE.request(MODEL, Request("Be brief.", CONVERSATION, [add]), StreamOptions(), "the-key")
    assert sent.body == GOLDEN
    assert sent.url == "https://api.anthropic.com/v1/messages"
    assert sent.headers == {
        "accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
        "x-api-key": "the-key",
    }
    assert "the-key" not in repr(sent)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/messages"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/messages"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/messages"),
        ("https://host/anthropic/v1/messages", "https://host/anthropic/v1/messages"),
    ],
)
def test_a_base_address_may_end_in_all_the_ways_people_write_it(base: str, url: str) -> None:
    model = Model("anthropic", "m", base_url=base)
    assert WIRE.request(model, Request("", [user("Hi")]), StreamOptions(), None).url == url


def test_version_betas_and_headers_are_configuration() -> None:
    settings = {"anthropic_version": "2026-10-21", "betas": ["a-1", "b-2"]}
    model = Model("anthropic", "m", settings=settings, headers={"X-Team": "x", "Anthropic-Version": "2027-01-01"})
    assert WIRE.request(model, Request("", [user("Hi")]), StreamOptions(), None).headers == {
        "accept": "text/event-stream",
        "anthropic-version": "2027-01-01",
        "anthropic-beta": "a-1,b-2",
        "content-type": "application/json",
        "x-team": "x",
    }


def test_messages_of_one_side_in_a_row_are_one() -> None:
    body = body_of("One.", "Two.", assistant("Three."), assistant("Four."), "Five.", model=PLAIN)
    assert [(message["role"], [block["text"] for block in message["content"]]) for message in body["messages"]] == [
        ("user", ["One.", "Two."]),
        ("assistant", ["Three.", "Four."]),
        ("user", ["Five."]),
    ]


def test_pictures_of_a_failed_tool_follow_the_results() -> None:
    """The API takes text alone in an error, and results before everything else."""
    calls = assistant(ToolCall("t1", "add"), ToolCall("t2", "add"))
    shot = result("t1", "Broken.", ImageContent("/9j/4AAQ", "image/jpg"), is_error=True)
    body = body_of("Hi", calls, shot, result("t2", ImageContent(PNG)), tools=[add], model=PLAIN)
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    jpeg = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ"}}
    assert body["messages"][-1]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "is_error": True,
            "content": [{"type": "text", "text": "Broken."}],
        },
        {"type": "tool_result", "tool_use_id": "t2", "content": [picture]},
        jpeg,
    ]


def test_an_error_that_is_a_picture_says_so() -> None:
    """The API refuses an error without a text."""
    body = body_of("Hi", assistant(ToolCall("t1", "add")), result("t1", ImageContent(PNG), is_error=True), model=PLAIN)
    told, picture = body["messages"][-1]["content"]
    assert told["content"] == [{"type": "text", "text": "(see the image)"}]
    assert picture["type"] == "image"
    check_request(body, issued=lambda thinking, signature: True, prefill=False)


def test_thinking_without_its_signature_is_left_out() -> None:
    """failures.md D5, D8: the API takes none without."""
    body = body_of("Hi", assistant(ThinkingContent("Hm."), ThinkingContent("Ah.", ""), "Yes."), "Go on.", model=PLAIN)
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Yes."}]


def test_thinking_whose_text_was_left_out_goes_back_as_it_came() -> None:
    body = body_of("Hi", assistant(ThinkingContent("", "c2ln"), "Yes."), "Go on.", model=PLAIN)
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "", "signature": "c2ln"}


def test_an_opaque_block_goes_back_byte_for_byte() -> None:
    """failures.md D16."""
    raw = '{"type": "new_thing",  "payload": {"b": 1}}'
    message = assistant(ThinkingContent("", raw, redacted=True, field=OPAQUE), "Yes.")
    request = Request("", [user("Hi"), message, user("Go on.")])
    assert raw.encode() in WIRE.request(MODEL, request, StreamOptions(), None).body


@hypothesis.given(st.lists(st.text(max_size=80), unique=True))
def test_ids_on_the_wire_are_legal_and_as_different_as_ours(ids: list[str]) -> None:
    """failures.md A9: an id is written the same way in every request, whatever the others are."""
    legal = [encode_call_id(id) for id in ids if id]
    assert all(all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in id) for id in legal)
    assert all(len(id) <= 64 for id in legal)
    assert len(set(legal)) == len(legal)


@pytest.mark.parametrize("id", ["toolu_01", "call-1", "a"])
def test_a_legal_id_stays_as_it_is(id: str) -> None:
    assert encode_call_id(id) == id


def test_foreign_ids_still_pair() -> None:
    body = body_of("Hi", assistant(ToolCall("call|x:1", "add")), result("call|x:1", "5"), tools=[add])
    call, answer = body["messages"][1]["content"][0], body["messages"][2]["content"][0]
    assert call["id"] == answer["tool_use_id"] == "x-63616c6c7c783a31"


@pytest.mark.parametrize(
    ("choice", "sent"), [("auto", None), ("none", {"type": "none"}), ("required", {"type": "any"})]
)
def test_tool_choice(choice: Any, sent: object) -> None:
    assert body_of("Hi", tools=[add], options=StreamOptions(tool_choice=choice)).get("tool_choice") == sent
    assert "tool_choice" not in body_of("Hi", options=StreamOptions(tool_choice=choice))


def test_a_transcript_with_calls_declares_their_tools_even_when_none_may_be_used() -> None:
    body = body_of("Hi", assistant(ToolCall("t", "gone")), result("t", "5"), model=PLAIN)
    assert body["tools"] == [{"name": "gone", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


def test_alternatives_at_the_top_of_a_schema_are_told_in_words() -> None:
    """failures.md C15: nothing of the meaning is lost."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "anyOf": [{"required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}],
    }
    sent = body_of("Hi", tools=[Tool("t", "Does it.", schema, dict[str, str])], model=PLAIN)["tools"][0]
    assert sent["input_schema"]["properties"] == {"b": {"type": "string"}, "a": {"type": "integer"}}
    assert "anyOf" not in sent["input_schema"]
    assert sent["description"].startswith("Does it.\n\nThe arguments must also fit this JSON Schema: {")
    assert '"required":["b"]' in sent["description"]


def test_extra_fields_are_sent_and_tools_of_the_server_are_added() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    settings = {"cache": False, "extra_body": {"tools": [search], "service_tier": "auto", "max_tokens": 5}}
    body = body_of("Hi", tools=[add], model=Model("anthropic", "m", settings=settings))
    assert [tool["name"] for tool in body["tools"]] == ["add", "web_search"]
    assert (body["service_tier"], body["max_tokens"]) == ("auto", 5)


def marks(body: Any) -> int:
    return msgspec.json.encode(body).count(b'"cache_control"')


def test_there_are_never_more_than_four_cache_marks() -> None:
    messages = [message for _ in range(9) for message in ("Hi", assistant("Yes."))]
    assert marks(body_of(*messages, "Bye.", system="Be brief.", tools=[add])) == 4
    assert marks(body_of(*messages, "Bye.")) == 2
    assert marks(body_of("Hi")) == 1
    assert marks(body_of("Hi", system="Be brief.", model=PLAIN)) == 0


def test_cache_marks_may_last_an_hour() -> None:
    body = body_of("Hi", model=Model("anthropic", "m", settings={"cache": "1h"}))
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_an_unknown_cache_lifetime_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="The setting 'cache' must be False, True, '5m' or '1h', got '2h'"):
        body_of("Hi", model=Model("anthropic", "m", settings={"cache": "2h"}))


def test_the_last_mark_of_a_request_stands_in_the_next_one_too() -> None:
    """What the server kept at that mark is found again, to the byte."""
    first = WIRE.request(MODEL, Request("S", [user("Go.")], [add]), StreamOptions(), None).body
    messages = [user("Go."), assistant(ToolCall("t", "add")), result("t", "5")]
    second = WIRE.request(MODEL, Request("S", messages, [add]), StreamOptions(), None).body
    assert second.startswith(first[: first.index(b'],"max_tokens"')])


@hypothesis.given(CHAOS)
def test_any_repaired_transcript_is_one_the_api_takes(messages: list[AgentMessage]) -> None:
    """failures.md A1: whatever was left behind, and thinking of this model goes back as it is."""
    repaired = repair(messages, provider=PROVIDER, model=ACME)
    if repaired:
        check_request(body_of(*repaired, tools=[add]), issued=lambda thinking, signature: True, prefill=False)
        assert repaired[0].role == "user"


@hypothesis.given(CHAOS, st.integers(1, 4))
def test_a_repaired_transcript_that_grows_is_sent_as_one_that_was_there_at_once(
    messages: list[AgentMessage], step: int
) -> None:
    repairer = Repairer(PROVIDER, ACME)
    log: list[AgentMessage] = []
    for at in range(0, len(messages), step):
        log.extend(messages[at : at + step])
        shown = repairer.apply(MessageView(log))
        if shown:
            request = Request("", shown, [add])
            whole = Request("", list(shown), [add])
            options = StreamOptions(thinking_level="low")
            assert WIRE.request(MODEL, request, options, None).body == WIRE.request(MODEL, whole, options, None).body


def test_the_server_would_not_take_it_otherwise() -> None:
    """The judge of the tests above does judge."""
    orphan = body_of("Hi", assistant(ToolCall("t", "add")), "Go on.", tools=[add])
    with pytest.raises(Fault, match="`tool_use` ids were found without `tool_result` blocks immediately after: t"):
        check_request(orphan, issued=lambda thinking, signature: True, prefill=False)


def test_usage_of_a_message_is_not_sent() -> None:
    assert "usage" not in str(body_of("Hi", assistant("Yes.", usage=Usage(input=1, output=2)), "Go."))
