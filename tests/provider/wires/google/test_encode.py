"""What Gemini is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.provider.wires.google.streams import GEMINI_3, MODEL, any_signature, silent
from tests.rows import each_row

from steersman.context.log import MessageView
from steersman.context.repair import repair
from steersman.provider.wires.google.encode import UNSIGNED, build_thinking
from steersman.provider.wires.google.tools import encode_tools
from steersman.provider.wires.google.wire import WIRE
from steersman.testing.servers.google.request import find_request_fault
from steersman.tools.tool import Tool
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.frozen import MemoList
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    Message,
    ToolResultMessage,
    UserMessage,
    user_message,
)
from steersman.types.model import Model, Request, StreamOptions, ThinkingLevel

PLAIN = StreamOptions()
ADD = Tool(
    "add",
    "Add numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    silent,
)
NOW = Tool("now", "What time it is.", {"type": "object", "properties": {}}, silent)


def body(
    messages: Sequence[Message],
    *,
    model: Model = MODEL,
    tools: Sequence[Tool] = (),
    options: StreamOptions = PLAIN,
    system_prompt: str = "",
) -> Any:
    request = Request(system_prompt, messages, tools)
    return msgspec.json.decode(WIRE.request(model, request, options, None).body)


def said(*blocks: Any, model: Model = MODEL) -> AssistantMessage:
    return AssistantMessage(list(blocks), model=model.id, provider=model.provider)


def result(id: str, *blocks: Any, name: str = "add", is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(list(blocks), tool_call_id=id, tool_name=name, is_error=is_error)


def test_a_whole_request_reads_as_written_here() -> None:
    messages: list[Message] = [
        UserMessage([TextContent("What is this?"), ImageContent("aGk=", "image/jpeg")]),
        said(ThinkingContent("Hm.", "QUJD"), TextContent("Let me see."), ToolCall("c1", "add", {"a": 1})),
        result("c1", TextContent("1")),
        user_message("Go on."),
    ]
    options = StreamOptions(max_tokens=100, temperature=0.5, thinking_level="low", tool_choice="required")
    written = WIRE.request(MODEL, Request("Be brief.", messages, [ADD, NOW]), options, "secret")
    assert written.url == (
        "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    )
    assert written.headers == {"content-type": "application/json", "x-goog-api-key": "secret"}
    assert "secret" not in repr(written)
    assert written.body.decode() == (
        '{"systemInstruction":{"parts":[{"text":"Be brief."}]},'
        '"tools":[{"functionDeclarations":[{"name":"add","description":"Add numbers.","parametersJsonSchema":'
        '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}},'
        '{"name":"now","description":"What time it is."}]}],'
        '"toolConfig":{"functionCallingConfig":{"mode":"ANY"}},'
        '"generationConfig":{"temperature":0.5,"maxOutputTokens":100,'
        '"thinkingConfig":{"includeThoughts":true,"thinkingBudget":512}},'
        '"contents":[{"role":"user","parts":[{"text":"What is this?"},'
        '{"inlineData":{"mimeType":"image/jpeg","data":"aGk="}}]},'
        '{"role":"model","parts":[{"text":"Hm.","thought":true,"thoughtSignature":"QUJD"},{"text":"Let me see."},'
        '{"functionCall":{"id":"c1","name":"add","args":{"a":1}}}]},'
        '{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"add","response":{"output":"1"}}}]},'
        '{"role":"user","parts":[{"text":"Go on."}]}]}'
    )


def test_a_request_of_nothing_but_a_message_is_as_short_as_can_be() -> None:
    model = Model("google", "gemma-3")
    assert WIRE.request(model, Request("", [user_message("Hi")]), PLAIN, None).body == (
        b'{"contents":[{"role":"user","parts":[{"text":"Hi"}]}]}'
    )


@pytest.mark.parametrize(
    ("base_url", "id", "url"),
    [
        (None, "gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro"),
        ("http://h:1", "m", "http://h:1/v1beta/models/m"),
        ("http://h:1/", "m", "http://h:1/v1beta/models/m"),
        ("http://h:1/v1alpha/", "m", "http://h:1/v1alpha/models/m"),
        ("http://h:1/gateway", "tunedModels/a b", "http://h:1/gateway/v1beta/tunedModels/a%20b"),
    ],
)
def test_the_address_is_made_from_base_and_model(base_url: str | None, id: str, url: str) -> None:
    made = WIRE.request(Model("google", id, base_url=base_url), Request("", [user_message("Hi")]), PLAIN, None)
    assert made.url == f"{url}:streamGenerateContent?alt=sse"


def test_headers_of_the_model_are_sent() -> None:
    model = Model("google", "m", headers={"X-Team": "a"})
    assert WIRE.request(model, Request("", [user_message("Hi")]), PLAIN, None).headers == {
        "content-type": "application/json",
        "X-Team": "a",
    }


def test_all_results_of_a_turn_stand_in_one_content_in_the_order_of_the_calls() -> None:
    """failures.md A13."""
    calls = [ToolCall(f"c{number}", "add", {"a": number}) for number in range(3)]
    results = [result(f"c{number}", TextContent(str(number)), is_error=number == 1) for number in range(3)]
    contents = body([user_message("Go"), said(*calls), *results, user_message("Stop")])["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user", "user"]
    assert [part["functionResponse"] for part in contents[2]["parts"]] == [
        {"id": "c0", "name": "add", "response": {"output": "0"}},
        {"id": "c1", "name": "add", "response": {"error": "1"}},
        {"id": "c2", "name": "add", "response": {"output": "2"}},
    ]


def test_an_id_that_gemini_did_not_give_is_not_sent_back() -> None:
    """failures.md A9: then calls and results are told apart by their order, as Gemini does."""
    minted = "call_0123456789ab_1f"
    contents = body([user_message("Go"), said(ToolCall(minted, "add", {"a": 1})), result(minted, TextContent("1"))])[
        "contents"
    ]
    assert contents[1]["parts"] == [{"functionCall": {"name": "add", "args": {"a": 1}}}]
    assert contents[2]["parts"] == [{"functionResponse": {"name": "add", "response": {"output": "1"}}}]


def test_every_part_goes_back_with_its_own_signature() -> None:
    """failures.md D9 and D5."""
    answer = said(
        ThinkingContent("a", "c2ln"),
        ThinkingContent("", "QUJD"),
        TextContent("b"),
        TextContent("", "Zm9v"),
        ToolCall("1", "add", {"a": 1}, signature="YmFy"),
        ToolCall("2", "add", {"a": 2}),
        ThinkingContent("", '{"executableCode":{"code":"1"},"thoughtSignature":"cXV4"}', field="google_part"),
        model=GEMINI_3,
    )
    results = [result("1", TextContent("1")), result("2", TextContent("2"))]
    assert body([user_message("Go"), answer, *results], model=GEMINI_3)["contents"][1]["parts"] == [
        {"text": "a", "thought": True, "thoughtSignature": "c2ln"},
        {"text": "", "thought": True, "thoughtSignature": "QUJD"},
        {"text": "b"},
        {"text": "", "thoughtSignature": "Zm9v"},
        {"functionCall": {"id": "1", "name": "add", "args": {"a": 1}}, "thoughtSignature": "YmFy"},
        {"functionCall": {"id": "2", "name": "add", "args": {"a": 2}}},
        {"executableCode": {"code": "1"}, "thoughtSignature": "cXV4"},
    ]


@pytest.mark.parametrize(
    ("id", "marks"),
    [
        ("gemini-3-pro-preview", [UNSIGNED, None]),
        ("gemini-4-argon", [UNSIGNED, None]),
        ("gemini-flash-latest", [UNSIGNED, None]),
        ("gemini-2.5-pro", [None, None]),
        ("gemma-3", [None, None]),
    ],
)
def test_a_missing_signature_is_stood_for_where_the_model_wants_one(id: str, marks: list[str | None]) -> None:
    """failures.md D9: on the first of parallel calls, as with calls that another model made."""
    model = Model("google", id)
    messages = [
        user_message("Go"),
        said(ToolCall("1", "add"), ToolCall("2", "add"), model=model),
        result("1", TextContent("1")),
        result("2", TextContent("2")),
    ]
    parts = body(messages, model=model)["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == marks


def test_pictures_in_results_go_where_the_model_takes_them() -> None:
    messages = [
        user_message("Go"),
        said(ToolCall("1", "look"), ToolCall("2", "look")),
        result("1", ImageContent("aGk="), name="look"),
        result("2", TextContent("Here."), ImageContent("eW8=", "image/jpeg"), name="look"),
    ]
    first = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    second = {"inlineData": {"mimeType": "image/jpeg", "data": "eW8="}}
    results = [
        {"functionResponse": {"id": "1", "name": "look", "response": {"output": "(see the image)"}}},
        {"functionResponse": {"id": "2", "name": "look", "response": {"output": "Here."}}},
    ]
    # Beside the results, older models may count them as results.
    assert [content["parts"] for content in body(messages)["contents"][2:]] == [results, [first, second]]
    assert [
        part["functionResponse"].get("parts") for part in body(messages, model=GEMINI_3)["contents"][2]["parts"]
    ] == [
        [first],
        [second],
    ]


@pytest.mark.parametrize(("choice", "mode"), [("auto", None), ("none", "NONE"), ("required", "ANY")])
def test_the_choice_of_tools_has_its_mode(choice: Any, mode: str | None) -> None:
    options = StreamOptions(tool_choice=choice)
    config = body([user_message("Hi")], tools=[ADD], options=options).get("toolConfig")
    assert config == (None if mode is None else {"functionCallingConfig": {"mode": mode}})
    assert "toolConfig" not in body([user_message("Hi")], options=options)


THINKING: list[tuple[str, ThinkingLevel, int | None, Any]] = [
    ("gemini-2.5-flash", "off", None, {"thinkingBudget": 0}),
    ("gemini-2.5-pro", "off", None, {"thinkingBudget": 128}),
    ("gemini-2.5-flash", "minimal", None, {"includeThoughts": True, "thinkingBudget": 512}),
    ("gemini-2.5-flash-lite", "low", None, {"includeThoughts": True, "thinkingBudget": 2048}),
    ("gemini-2.5-pro", "medium", None, {"includeThoughts": True, "thinkingBudget": 8192}),
    ("gemini-2.5-pro", "high", None, {"includeThoughts": True, "thinkingBudget": 24576}),
    ("gemini-2.5-pro", "high", 4000, {"includeThoughts": True, "thinkingBudget": 2000}),
    ("gemini-3-pro-preview", "off", None, {"thinkingLevel": "LOW"}),
    ("gemini-3-flash", "off", None, {"thinkingLevel": "MINIMAL"}),
    ("gemini-3-pro-preview", "minimal", None, {"includeThoughts": True, "thinkingLevel": "LOW"}),
    ("gemini-3-flash", "minimal", None, {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
    ("gemini-3-pro-preview", "medium", None, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
    ("gemini-3.1-pro", "medium", None, {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
    ("gemini-flash-latest", "off", None, None),
    ("gemini-flash-latest", "high", None, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
    ("gemini-2.0-flash", "high", None, None),
    ("gemini-2.5-flash-image", "off", None, None),
    ("gemma-3", "off", None, None),
]


@each_row(("id", "level", "max_tokens", "config"), THINKING)
def test_thinking_is_asked_for_in_the_words_of_the_model(
    id: str, level: ThinkingLevel, max_tokens: int | None, config: Any
) -> None:
    options = StreamOptions(thinking_level=level, max_tokens=max_tokens)
    assert build_thinking(id, options) == config
    asked = body([user_message("Hi")], model=Model("google", id), options=options)
    assert find_request_fault(asked, id, any_signature) is None


def test_structured_output_is_asked_for_where_tools_allow_it() -> None:
    options = StreamOptions(output_schema={"type": "object", "properties": {"x-y": {"const": 1}}})
    wanted = {
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object", "properties": {"x-y": {"enum": [1]}}},
    }
    asked = body([user_message("Hi")], options=options)["generationConfig"]
    assert {name: asked[name] for name in wanted} == wanted
    assert (
        wanted.items()
        <= body([user_message("Hi")], model=GEMINI_3, tools=[ADD], options=options)["generationConfig"].items()
    )
    assert "responseMimeType" not in body([user_message("Hi")], tools=[ADD], options=options)["generationConfig"]


def test_settings_may_add_to_the_request() -> None:
    extra: dict[str, Any] = {"generationConfig": {"topK": 5, "temperature": 1.0}, "safetySettings": []}
    model = Model("google", "gemma-3", settings={"extra_body": extra})
    assert body([user_message("Hi")], model=model, options=StreamOptions(temperature=0.1)) == {
        "generationConfig": {"temperature": 1.0, "topK": 5},
        "safetySettings": [],
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    }


def test_names_of_tools_and_parameters_are_legal_unique_and_used_throughout() -> None:
    """failures.md C14."""
    odd = ["calendar.list", "calendar_list", "x" * 200, "1st", "größe", "a b", "a/b", "a:b", "a b"[:1]]
    schema = {
        "type": "object",
        "properties": {"user-id": {"type": "string"}, "user_id": {"type": "string"}, "$filter": {"type": "string"}},
        "required": ["user-id"],
    }
    tools = [Tool(name, "x", schema, silent) for name in odd]
    messages: list[Message] = [user_message("Go")]
    for number, name in enumerate(odd):
        messages += [
            said(ToolCall(f"c{number}", name, {"user-id": "u", "list": [{"$filter": 1}]})),
            result(f"c{number}", TextContent("ok"), name=name),
        ]
    sent = body(messages, tools=tools)
    assert find_request_fault(sent, MODEL.id, any_signature) is None
    declared = sent["tools"][0]["functionDeclarations"]
    assert len({tool["name"] for tool in declared}) == len(odd)
    calls = [
        part["functionCall"] for content in sent["contents"] for part in content["parts"] if "functionCall" in part
    ]
    assert [call["name"] for call in calls] == [tool["name"] for tool in declared]
    names = list(declared[0]["parametersJsonSchema"]["properties"])
    assert declared[0]["parametersJsonSchema"]["required"] == names[:1]
    assert calls[0]["args"] == {names[0]: "u", "list": [{names[2]: 1}]}
    for tool, own in zip(declared, odd, strict=True):
        assert encode_tools(tools).decode_call(tool["name"], "{}") == (own, "{}")


def conversation(turns: int) -> list[AgentMessage]:
    messages: list[AgentMessage] = [user_message("Go")]
    for number in range(turns):
        calls = [
            ToolCall(f"c{number}.{one}", "add", {"a": one}, signature="c2ln" if one == 0 else None) for one in range(2)
        ]
        messages.append(said(TextContent(f"Turn {number}"), *calls))
        messages += [result(f"c{number}.{one}", TextContent("ok")) for one in range(2)]
        messages.append(user_message(f"Steer {number}"))
    return messages


def test_a_shorter_view_another_model_or_other_tools_are_encoded_by_themselves() -> None:
    base: MemoList[Any] = MemoList(repair(conversation(3), provider="google", model=MODEL.id))
    for model in (MODEL, GEMINI_3, MODEL):
        for tools in ([ADD], [NOW], [ADD]):
            for length in (len(base), 4, len(base) - 1):
                view = MessageView(base, length)
                sent = WIRE.request(model, Request("", view, tools), PLAIN, None).body  # pyright: ignore[reportArgumentType]  # the repaired messages of a log
                assert sent == WIRE.request(model, Request("", list(base)[:length], tools), PLAIN, None).body


def unread(raw: str) -> ToolCall:
    return ToolCall("r", "add", raw_arguments=raw)


def answered(content: list[Any], stop: Any, model: str) -> AssistantMessage:
    return AssistantMessage(content, stop_reason=stop, model=model, provider="google")


def outcome(id: str) -> ToolResultMessage:
    return result(id, TextContent("r"))


blocks = st.one_of(
    st.builds(TextContent, st.sampled_from(["Hi", " ", "", "ö"]), st.none() | st.just("c2ln")),
    st.builds(ThinkingContent, st.sampled_from(["", "hm"]), st.none() | st.just("c2ln")),
    st.builds(
        ToolCall,
        st.sampled_from(["", "a", "b"]),
        st.sampled_from(["add", "gone"]),
        signature=st.none() | st.just("QUJD"),
    ),
    st.builds(unread, st.sampled_from(["", "[]", "{"])),
)
histories = st.lists(
    st.one_of(
        st.builds(UserMessage, st.lists(st.builds(TextContent, st.sampled_from(["x", ""])), max_size=2)),
        st.builds(UserMessage, st.just([ImageContent("aGk=")])),
        st.builds(
            answered,
            st.lists(blocks, max_size=4),
            st.sampled_from(["stop", "tool_use", "length", "error", "aborted", "refusal"]),
            st.sampled_from(["gemini-3-pro", "gemini-2.5-flash"]),
        ),
        st.builds(outcome, st.sampled_from(["a", "b", "r", ""])),
    ),
    max_size=8,
)


@given(histories, st.sampled_from(["gemini-3-pro", "gemini-2.5-flash"]))
@settings(max_examples=300)
def test_any_history_is_taken_once_it_is_repaired(history: list[AgentMessage], id: str) -> None:
    """failures.md A1, A7 and D7: whatever was cancelled, cut or made by another model."""
    model = Model("google", id)
    messages = repair([user_message("Hi"), *history], provider="google", model=id)
    sent = body(messages, model=model, tools=[ADD])
    assert find_request_fault(sent, id, any_signature) is None
    parts = [part for content in sent["contents"] for part in content["parts"]]
    assert all(part.get("text") != "" or "thoughtSignature" in part for part in parts)
