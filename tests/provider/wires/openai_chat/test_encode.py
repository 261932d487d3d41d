"""Requests as bytes: what is sent, how servers want it otherwise, and what stays the same as a conversation grows."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.provider.wires.openai_chat.chat import Spec, settings, tools
from tests.rows import each_row

from steersman.context.log import MessageView
from steersman.provider.wires.openai_chat.encode import encode_call_id, encode_short_call_id, encode_tools
from steersman.provider.wires.openai_chat.quirks import CHAT_PRESETS, find_quirks
from steersman.provider.wires.openai_chat.wire import WIRE
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.frozen import MemoList
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage, user_message
from steersman.types.model import Model, Request, StreamOptions

OPENAI = Model("openai-chat", "gpt-5")
LOCAL = Model("openai-chat", "qwen3", base_url="http://127.0.0.1:8000/v1")
ADD = Spec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
PNG = ImageContent("aGk=", "image/png")


def body(
    messages: Sequence[Message], model: Model = LOCAL, *, system: str = "", specs: Sequence[Spec] = (), **options: Any
) -> dict[str, Any]:
    return json.loads(raw(messages, model, system=system, specs=specs, **options))


def raw(
    messages: Sequence[Message], model: Model = LOCAL, *, system: str = "", specs: Sequence[Spec] = (), **options: Any
) -> bytes:
    return WIRE.request(model, Request(system, messages, specs), StreamOptions(**options), None).body


def sent(*messages: Message, model: Model = LOCAL) -> list[dict[str, Any]]:
    return body(messages, model)["messages"]


def result(id: str, *content: Any, name: str = "add") -> ToolResultMessage:
    return ToolResultMessage(content or (TextContent("4"),), tool_call_id=id, tool_name=name)


TALK: list[Message] = [
    user_message("What is 2 + 2?"),
    AssistantMessage([TextContent("Let me add."), ToolCall("c1", "add", {"a": 2, "b": 2})]),
    result("c1"),
    AssistantMessage([TextContent("It is 4.")]),
    user_message("Thanks."),
]


def test_a_conversation_is_written_in_full() -> None:
    assert raw(TALK, system="Be brief.", specs=[ADD]).decode() == (
        '{"model":"qwen3","stream":true,"stream_options":{"include_usage":true},'
        '"tools":[{"type":"function","function":{"name":"add","description":"Add two numbers.",'
        '"parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}}],'
        '"messages":[{"role":"system","content":"Be brief."},'
        '{"role":"user","content":"What is 2 + 2?"},'
        '{"role":"assistant","content":"Let me add.","tool_calls":'
        '[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\\"a\\":2,\\"b\\":2}"}}]},'
        '{"role":"tool","tool_call_id":"c1","content":"4"},'
        '{"role":"assistant","content":"It is 4."},'
        '{"role":"user","content":"Thanks."}]}'
    )


def test_the_request_goes_to_the_address_with_the_key() -> None:
    request = WIRE.request(LOCAL, Request("", TALK[:1]), StreamOptions(), "sk-secret")
    assert request.url == "http://127.0.0.1:8000/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-secret"
    assert request.headers["content-type"] == "application/json"
    assert "sk-secret" not in repr(request)


def test_without_a_key_there_is_no_authorization() -> None:
    assert "authorization" not in WIRE.request(LOCAL, Request("", TALK[:1]), StreamOptions(), None).headers


def test_headers_of_the_model_are_sent_too() -> None:
    model = Model("openai-chat", "m", headers={"api-key": "k"})
    assert WIRE.request(model, Request("", TALK[:1]), StreamOptions(), None).headers["api-key"] == "k"


@pytest.mark.parametrize(
    ("base", "url"),
    [
        (None, "https://api.openai.com/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        (
            "https://h/openai/deployments/d?api-version=1",
            "https://h/openai/deployments/d/chat/completions?api-version=1",
        ),
    ],
)
def test_a_base_address_becomes_the_address(base: str | None, url: str) -> None:
    assert (
        WIRE.request(Model("openai-chat", "m", base_url=base), Request("", TALK[:1]), StreamOptions(), None).url == url
    )


@each_row("provider", sorted(CHAT_PRESETS))
def test_a_preset_knows_where_its_server_is(provider: str) -> None:
    url = WIRE.request(Model(provider, "m"), Request("", TALK[:1]), StreamOptions(), None).url
    assert url == f"{CHAT_PRESETS[provider].base_url}/chat/completions"


@each_row(
    ("model", "options", "fields"),
    [
        (OPENAI, {"max_tokens": 9}, {"max_completion_tokens": 9}),
        (LOCAL, {"max_tokens": 9}, {"max_tokens": 9}),
        (
            Model("openai-chat", "m", base_url="https://x.openai.azure.com/openai/v1"),
            {"max_tokens": 9},
            {"max_completion_tokens": 9},
        ),
        (Model("openai-chat", "gpt-5", base_url="http://gateway/v1"), {"max_tokens": 9}, {"max_completion_tokens": 9}),
        (
            Model("openai-chat", "o3-mini", base_url="http://gateway/v1"),
            {"max_tokens": 9},
            {"max_completion_tokens": 9},
        ),
        (settings(max_tokens_field="max_tokens"), {"max_tokens": 9}, {"max_tokens": 9}),
        (Model("vllm", "m", max_output_tokens=7), {"max_tokens": 9}, {"max_tokens": 7}),
        (Model("vllm", "m", max_output_tokens=7), {}, {}),
        (LOCAL, {"temperature": 0.0}, {"temperature": 0.0}),
        (LOCAL, {"thinking_level": "off"}, {}),
        (LOCAL, {"thinking_level": "high"}, {"reasoning_effort": "high"}),
        (OPENAI, {"thinking_level": "minimal"}, {"reasoning_effort": "minimal"}),
        (Model("openrouter", "m"), {"thinking_level": "low"}, {"reasoning": {"effort": "low"}}),
        (Model("deepseek", "m"), {"thinking_level": "low"}, {"thinking": {"type": "enabled"}}),
        (
            Model("vllm", "m"),
            {"thinking_level": "low"},
            {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "low"},
        ),
        (Model("mistral", "m"), {"thinking_level": "low"}, {}),
        (LOCAL, {"tool_choice": "required"}, {}),
        (LOCAL, {"session_id": "s"}, {}),
        (OPENAI, {"session_id": "s"}, {"prompt_cache_key": "s"}),
        (settings(extra_body={"top_k": 1, "stream_options": None}), {}, {"top_k": 1, "stream_options": None}),
    ],
    ids=range(20),
)
def test_options_are_written_as_the_server_knows_them(
    model: Model, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    usual: dict[str, Any] = {
        "model": model.id,
        "stream": True,
        "messages": [{"role": "user", "content": "What is 2 + 2?"}],
    }
    if model.provider != "mistral":
        usual["stream_options"] = {"include_usage": True}
    assert body(TALK[:1], model, **options) == {**usual, **fields}


@pytest.mark.parametrize(
    ("model", "choice", "fields"),
    [
        (LOCAL, "auto", {}),
        (LOCAL, "none", {"tool_choice": "none"}),
        (LOCAL, "required", {"tool_choice": "required"}),
        (Model("mistral", "m"), "required", {"tool_choice": "any"}),
        (settings(parallel_tool_calls=False), "auto", {"parallel_tool_calls": False}),
    ],
    ids=range(5),
)
def test_a_choice_of_tools_is_only_sent_with_tools(model: Model, choice: Any, fields: dict[str, Any]) -> None:
    given = body(TALK[:1], model, specs=[ADD], tool_choice=choice)
    assert {name: given[name] for name in ("tool_choice", "parallel_tool_calls") if name in given} == fields
    without = body(TALK[:1], model, tool_choice=choice)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(without)


CLOSED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        (
            {
                "type": "object",
                "properties": {"x": {"type": "object"}},
                "required": ["x"],
                "additionalProperties": False,
            },
            False,
        ),
        ({**CLOSED, "properties": {"n": {"type": "array", "items": CLOSED}}}, True),
        ({**CLOSED, "properties": {"n": {"anyOf": [{"type": "null"}, {**CLOSED, "required": []}]}}}, False),
        ({**CLOSED, "properties": {"n": {"type": "integer", "default": 1}}}, False),
    ],
    ids=range(7),
)
def test_a_schema_is_enforced_where_the_server_can(schema: Mapping[str, Any], strict: bool) -> None:
    form = body(TALK[:1], output_schema=schema)["response_format"]
    assert form == {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": schema, **({"strict": True} if strict else {})},
    }


def test_a_server_without_schemas_is_asked_for_json_or_nothing() -> None:
    assert body(TALK[:1], Model("deepseek", "m"), output_schema=CLOSED)["response_format"] == {"type": "json_object"}
    assert "response_format" not in body(TALK[:1], settings(output_format="none"), output_schema=CLOSED)


def test_texts_are_joined_and_pictures_make_parts() -> None:
    text = UserMessage([TextContent("a"), TextContent("b")])
    picture = UserMessage([TextContent("See:"), PNG])
    assert sent(text, picture) == [
        {"role": "user", "content": "a\nb"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ],
        },
    ]


def test_pictures_of_results_follow_all_results_of_their_turn() -> None:
    calls = AssistantMessage([ToolCall("c1", "add"), ToolCall("c2", "add")])
    messages = [user_message("Look."), calls, result("c1", PNG), result("c2", TextContent("words"), PNG)]
    given = sent(*messages)
    assert [message["role"] for message in given] == ["user", "assistant", "tool", "tool", "user"]
    assert given[2]["content"] == "(The result is the picture that follows.)"
    assert [part["type"] for part in given[4]["content"]] == ["text", "image_url", "image_url"]
    answer = AssistantMessage([TextContent("A cat.")])
    assert sent(*messages, answer, user_message("And?"))[:5] == given


@pytest.mark.parametrize(("form", "content"), [("null", {"content": None}), ("empty", {"content": ""}), ("omit", {})])
def test_an_answer_of_calls_only_is_written_as_the_server_wants_it(form: str, content: dict[str, Any]) -> None:
    """failures.md A7."""
    given = sent(
        user_message("x"), AssistantMessage([ToolCall("c1", "add")]), result("c1"), model=settings(empty_content=form)
    )[1]
    assert {name: value for name, value in given.items() if name == "content"} == content


def test_a_system_prompt_may_have_another_role() -> None:
    assert body(TALK[:1], settings(system_role="developer"), system="Hi.")["messages"][0] == {
        "role": "developer",
        "content": "Hi.",
    }


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(ValueError, match="empty_content"):
        body(TALK[:1], settings(empty_content="nothing"))


@pytest.mark.parametrize("id", ["c1", "call_" + "x" * 60, "call|fc_1", "", "ü", "a b"])
def test_ids_are_made_legal_the_same_way_everywhere(id: str) -> None:
    for model, legal in ((LOCAL, encode_call_id), (Model("mistral", "m"), encode_short_call_id)):
        given = sent(user_message("x"), AssistantMessage([ToolCall(id, "add")]), result(id), model=model)
        assert given[1]["tool_calls"][0]["id"] == given[2]["tool_call_id"] == legal(id)


@given(st.lists(st.text(), unique=True, max_size=50))
def test_legal_ids_are_unique_and_legal(ids: list[str]) -> None:
    nine, plain = [encode_short_call_id(id) for id in ids], [encode_call_id(id) for id in ids]
    assert len(set(nine)) == len(set(plain)) == len(ids)
    assert all(len(id) == 9 and id.isascii() and id.isalnum() for id in nine)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,40}", id) for id in plain)
    assert [encode_short_call_id(id) for id in nine] == nine


def test_mistral_has_its_own_ways() -> None:
    """An assistant between results and the next user message, and the tool's name with its result."""
    messages = [user_message("x"), AssistantMessage([ToolCall("c1", "add")]), result("c1"), user_message("Stop.")]
    given = sent(*messages, model=Model("mistral", "m"))
    assert [message["role"] for message in given] == ["user", "assistant", "tool", "assistant", "user"]
    assert given[2]["name"] == "add"


def grown(count: int) -> MemoList[Message]:
    base: MemoList[Message] = MemoList()
    base.append(user_message("Begin."))
    for number in range(count):
        picture = [PNG] if number % 3 == 0 else []
        base.append(
            AssistantMessage([ThinkingContent("Hm.", field="reasoning"), ToolCall(f"c{number}", "add", {"a": number})])
        )
        base.append(result(f"c{number}", TextContent(str(number)), *picture))
    return base


@pytest.mark.parametrize("model", [LOCAL, OPENAI, Model("mistral", "m")], ids=lambda model: model.provider)
def test_a_longer_conversation_extends_the_same_bytes(model: Model) -> None:
    """failures.md I11: what was sent is a prefix of what is sent next, whatever is appended."""
    base = grown(12)
    views: list[Any] = [MessageView(base, length) for length in range(1, len(base) + 1, 2)]  # pyright: ignore[reportArgumentType]  # the base of a repaired view is one of messages
    bodies = [raw(view, model, system="Be brief.", specs=[ADD]) for view in views]
    for before, after in itertools.pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}"))


def test_each_form_of_a_conversation_is_kept_apart() -> None:
    base = grown(3)
    view: Any = MessageView(base)  # pyright: ignore[reportArgumentType]
    for model in (LOCAL, Model("mistral", "m"), LOCAL):
        assert raw(view, model) == raw(list(base), model)
    assert len(base.memo) == 2
    for specs in ([ADD], [], [Spec("add.two")]):
        assert raw(view, specs=specs) == raw(list(base), specs=specs)


def test_the_same_tools_are_encoded_once() -> None:
    specs = tools("a", "b")
    assert encode_tools(specs) is encode_tools(tuple(specs))
    assert encode_tools(tools("a", "b")) is not encode_tools(specs)


@each_row("id", ["mistralai/devstral-small", "Mistral-Small-3.2-24B", "ministral-3:8b"])
@each_row("provider", ["openrouter", "vllm", "openai-chat"])
def test_models_of_mistral_say_a_word_after_a_tool_on_any_server(provider: str, id: str) -> None:
    """failures.md A6: they refuse a user message behind a tool result, and every later request with it."""
    base = "http://127.0.0.1:8000/v1"
    assert find_quirks(Model(provider, id, base_url=base)).assistant_after_tool
    assert not find_quirks(Model(provider, "qwen3", base_url=base)).assistant_after_tool
    own = Model(provider, id, base_url=base, settings={"assistant_after_tool": False})
    assert not find_quirks(own).assistant_after_tool


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.moonshot.cn/v1", "moonshot"),
        ("https://api.moonshot.ai/v1", "moonshot"),
        ("https://api.mistral.ai/v1", "mistral"),
    ],
)
def test_a_server_that_refuses_the_plain_form_is_known_by_its_address(url: str, name: str) -> None:
    assert find_quirks(Model("openai-chat", "m", base_url=url)) is CHAT_PRESETS[name].quirks


@pytest.mark.parametrize(
    ("provider", "id", "between"),
    [
        ("llamacpp", "Devstral-2-24B", True),
        ("vllm", "google/gemma-3-12b-it", True),
        ("vllm", "qwen3", False),
        ("mistral", "devstral-medium", False),
    ],
)
def test_roles_alternate_where_a_chat_template_demands_it(provider: str, id: str, between: bool) -> None:
    """The answer to the first prompt was stopped, and is not sent."""
    messages = [user_message("Find it."), user_message("No, fix it."), AssistantMessage([TextContent("Done.")])]
    roles = [message["role"] for message in sent(*messages, user_message("Thanks."), model=Model(provider, id))]
    assert roles == ["user", *["assistant"] * between, "user", "assistant", "user"]


def test_a_grown_conversation_is_not_taken_from_another_kind_of_template() -> None:
    """The messages are encoded again for a template of another kind."""
    messages: MemoList[Any] = MemoList([user_message("a"), user_message("b")])
    view = MessageView(messages)
    counts = [len(sent_view(view, Model("vllm", id))) for id in ("qwen3", "gemma-3", "qwen3")]
    assert counts == [2, 3, 2]


def sent_view(view: Any, model: Model) -> list[dict[str, Any]]:
    return json.loads(WIRE.request(model, Request("", view), StreamOptions(), None).body)["messages"]
