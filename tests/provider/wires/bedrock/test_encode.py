"""Requests to the Converse API; botocore validates each of them against the API's own description."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from botocore import session, validate  # pyright: ignore[reportMissingTypeStubs]
from hypothesis import given
from hypothesis import strategies as st
from tests.provider.wires.bedrock.kit import CLAUDE, LLAMA, NOVA, body_of
from tests.rows import each_row

from steersman.provider.wires.bedrock.schema import choose_output_mode, find_traits
from steersman.tools.tool import Tool
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage, ToolResultMessage, UserMessage, user_message
from steersman.types.model import Model, Request, StreamOptions

SESSION: Any = session
VALIDATE: Any = validate
SHAPE: Any = SESSION.get_session().get_service_model("bedrock-runtime").operation_model("ConverseStream").input_shape
PIXEL = base64.b64encode(b"\x89PNG").decode()
POINT = {"cachePoint": {"type": "default"}}
HAIKU = Model("bedrock", "anthropic.claude-3-haiku-20240307-v1:0")
NEW = Model("bedrock", "global.anthropic.claude-opus-4-7")
PIXTRAL = Model("bedrock", "mistral.pixtral-large-2502-v1:0")
GPT = Model("bedrock", "openai.gpt-oss-120b-1:0")
NOVA_2 = Model("bedrock", "us.amazon.nova-2-lite-v1:0")
ADD = Tool("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "title": "x"}, dict[str, str])


def valid(body: Any) -> Any:
    """The body, which botocore would send as well."""
    report: Any = VALIDATE.ParamValidator().validate(_with_bytes({"modelId": "m", **body}), SHAPE)
    assert not report.has_errors(), report.generate_report()
    return body


def _with_bytes(value: Any) -> Any:
    """The request as botocore wants it: with bytes where JSON has base64."""
    if isinstance(value, dict):
        fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return {
            key: base64.b64decode(item) if key in ("bytes", "redactedContent") else _with_bytes(item)
            for key, item in fields.items()
        }
    return [_with_bytes(item) for item in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def result(id: str, *blocks: Any, error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(list(blocks), tool_call_id=id, tool_name="add", is_error=error)


@each_row("model", [CLAUDE, NOVA, LLAMA, GPT, HAIKU, NOVA_2], ids=lambda model: model.id)
@each_row("level", ["off", "low", "high"])
def test_a_whole_conversation_is_valid_for_every_family(model: Model, level: Any) -> None:
    messages = [
        UserMessage([TextContent("Look."), ImageContent(PIXEL, "image/jpg")]),
        AssistantMessage(
            [
                ThinkingContent("Hm.", "c2ln"),
                ThinkingContent("", "ZW5j", redacted=True),
                TextContent("So."),
                ToolCall("c1", "add", {"a": 1}),
                ToolCall("not legal/é", "an old tool", raw_arguments="{"),
            ]
        ),
        result("c1", TextContent("1"), ImageContent(PIXEL, "image/png")),
        result("not legal/é", TextContent("no"), ImageContent(PIXEL, "image/webp"), error=True),
        user_message("Go on."),
    ]
    options = StreamOptions(thinking_level=level, max_tokens=9_000, temperature=0.5, stop=["END"])
    body = valid(body_of(*messages, model=model, system="Be kind.", tools=[ADD], options=options))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    # The tools (not of Nova), the system prompt, and the last two messages of the user.
    points = {CLAUDE.id: 4, NOVA.id: 3, NOVA_2.id: 3}
    assert repr(body).count("cachePoint") == points.get(model.id, 0)


def test_results_come_before_the_words_and_an_error_holds_only_text() -> None:
    calls = AssistantMessage([ToolCall("c1", "add"), ToolCall("c2", "add")])
    body = valid(
        body_of(
            "Go.",
            calls,
            result("c1"),
            result("c2", TextContent("no"), ImageContent(PIXEL, "image/png"), error=True),
            "Stop.",
            tools=[ADD],
        )
    )
    first, second, image, words, point = body["messages"][2]["content"]
    assert first == {"toolResult": {"toolUseId": "c1", "content": [{"text": "(no output)"}]}}
    assert second == {"toolResult": {"toolUseId": "c2", "status": "error", "content": [{"text": "no"}]}}
    assert image == {"image": {"format": "png", "source": {"bytes": PIXEL}}}
    assert (words, point) == ({"text": "Stop."}, POINT)


@each_row("model", [CLAUDE, NOVA, LLAMA, GPT, PIXTRAL], ids=lambda model: model.id)
def test_a_picture_of_a_tool_is_where_its_model_takes_it(model: Model) -> None:
    """In a result only Claude and Nova take one; it would fail every later request."""
    calls = AssistantMessage([ToolCall("c1", "add"), ToolCall("c2", "add")])
    shot = ImageContent(PIXEL, "image/png")
    body = valid(body_of("Go.", calls, result("c1", TextContent("1"), shot), result("c2", shot), model=model))
    blocks = [block for block in body["messages"][2]["content"] if "cachePoint" not in block]
    image = {"image": {"format": "png", "source": {"bytes": PIXEL}}}
    if model in (CLAUDE, NOVA):
        assert [block["toolResult"]["content"] for block in blocks] == [[{"text": "1"}, image], [image]]
    else:
        assert [block["toolResult"]["content"] for block in blocks[:2]] == [
            [{"text": "1"}],
            [{"text": "(see the image)"}],
        ]
        assert blocks[2:] == [image, image]


def test_an_error_is_not_marked_for_models_that_do_not_know_the_mark() -> None:
    body = body_of(
        "Go.", AssistantMessage([ToolCall("c1", "add")]), result("c1", TextContent("no"), error=True), model=LLAMA
    )
    assert "status" not in repr(body)


def test_tools_without_tools_are_declared_where_the_history_has_calls() -> None:
    """The API refuses calls in the messages without a toolConfig; a call cannot be forbidden in another way."""
    history = ["Go.", AssistantMessage([ToolCall("c1", "add")]), result("c1", TextContent("1"))]
    for tools, choice in (((), "auto"), ([ADD], "none")):
        options = StreamOptions(tool_choice=choice)  # pyright: ignore[reportArgumentType]
        body = valid(body_of(*history, tools=tools, options=options))
        assert body["toolConfig"]["tools"][0] == {
            "toolSpec": {"name": "add", "inputSchema": {"json": {"type": "object"}}}
        }
    assert "toolConfig" not in valid(body_of("Go.", tools=[ADD], options=StreamOptions(tool_choice="none")))
    forced = valid(body_of("Go.", tools=[ADD], options=StreamOptions(tool_choice="required")))
    assert forced["toolConfig"]["toolChoice"] == {"any": {}}


def test_the_schema_of_a_tool_is_what_its_model_takes() -> None:
    claude = body_of("Go.", tools=[ADD])["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"]
    nova = body_of("Go.", tools=[ADD], model=NOVA)["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"]
    assert claude == ADD.parameters
    assert nova == {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_blank_texts_and_thinking_without_a_signature_are_left_out() -> None:
    body = valid(body_of("Go.", " \n", AssistantMessage([ThinkingContent("Hm."), TextContent("")]), "Now."))
    assert body["messages"] == [{"role": "user", "content": [{"text": "Go."}, {"text": "Now."}, POINT]}]


@each_row(
    ("model", "level", "fields"),
    [
        (CLAUDE, "low", {"additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 4096}}}),
        (CLAUDE, "off", {}),
        (HAIKU, "high", {}),
        (
            NEW,
            "medium",
            {
                "additionalModelRequestFields": {"thinking": {"type": "adaptive", "display": "summarized"}},
                "outputConfig": {"effort": "medium"},
            },
        ),
        (NOVA, "high", {}),
        (
            NOVA_2,
            "minimal",
            {"additionalModelRequestFields": {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}},
        ),
        (GPT, "high", {"additionalModelRequestFields": {"reasoning_effort": "high"}}),
        (LLAMA, "high", {}),
    ],
    ids=lambda value: value.id if isinstance(value, Model) else None,
)
def test_a_thinking_level_is_said_in_the_words_of_the_model(model: Model, level: Any, fields: dict[str, Any]) -> None:
    body = valid(body_of("Go.", model=model, options=StreamOptions(thinking_level=level)))
    assert {name: body[name] for name in ("additionalModelRequestFields", "outputConfig") if name in body} == fields


def test_a_model_behind_an_arn_is_what_base_model_says() -> None:
    arn = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123"
    opaque = Model("bedrock", arn)
    assert find_traits(opaque).family == "other"
    named = Model("bedrock", arn, settings={"base_model": CLAUDE.id})
    assert find_traits(named) == find_traits(CLAUDE)
    assert body_of("Go.", model=named, options=StreamOptions(thinking_level="low"))["additionalModelRequestFields"]


def test_cache_points_can_be_switched_off_and_live_longer() -> None:
    for cache, count, more in ((False, 0, {}), ("1h", 3, {"ttl": "1h"}), (True, 3, {})):
        model = Model("bedrock", CLAUDE.id, settings={"cache": cache})
        body = valid(body_of("Go.", model=model, system="Be kind.", tools=[ADD]))
        assert repr(body).count("cachePoint") == count
        if count:
            assert body["system"][1] == {"cachePoint": {"type": "default", **more}}
    with pytest.raises(ValueError, match="'cache' must be"):
        body_of("Go.", model=Model("bedrock", CLAUDE.id, settings={"cache": "2h"}))


def test_extra_fields_are_merged_with_ours() -> None:
    extra = {
        "additionalModelRequestFields": {"top_k": 5},
        "guardrailConfig": {"guardrailIdentifier": "abc", "guardrailVersion": "1"},
        "inferenceConfig": {"maxTokens": 7},
    }
    model = Model("bedrock", CLAUDE.id, settings={"extra_body": extra})
    body = valid(body_of("Go.", model=model, options=StreamOptions(thinking_level="low")))
    assert body["additionalModelRequestFields"].keys() == {"thinking", "top_k"}
    assert body["inferenceConfig"] == {"maxTokens": 7}
    assert body["guardrailConfig"]["guardrailIdentifier"] == "abc"


def test_an_output_schema_goes_as_text_format_or_as_a_tool() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    options = StreamOptions(output_schema=schema)
    body = valid(body_of("Go.", options=options))
    form = body["outputConfig"]["textFormat"]
    assert form["type"] == "json_schema"
    assert '"additionalProperties":false' in form["structure"]["jsonSchema"]["schema"]
    request = Request("", [user_message("Go.")])
    modes = [choose_output_mode(model, request, options) for model in (CLAUDE, HAIKU, NOVA, LLAMA)]
    assert modes == ["schema", "tool", "tool", "tool"]


@given(st.text(max_size=100))
def test_every_id_becomes_one_that_the_api_takes(id: str) -> None:
    calls = AssistantMessage([ToolCall(id, "add")])
    body = body_of("Go.", calls, result(id, TextContent("1")), tools=[ADD])
    sent = body["messages"][1]["content"][0]["toolUse"]["toolUseId"]
    assert sent == body["messages"][2]["content"][0]["toolResult"]["toolUseId"]
    assert 1 <= len(sent) <= 64
    valid(body)
