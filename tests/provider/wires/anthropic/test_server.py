"""The strict server judges requests as the Anthropic Messages API does, in its words."""

from __future__ import annotations

import re
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.rows import each_row

from steersman.testing.servers import AnthropicServer
from steersman.testing.servers.anthropic.messages import Fault
from steersman.testing.servers.anthropic.request import check_request
from steersman.testing.servers.anthropic.server import sign

CALL: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
SEARCH: dict[str, Any] = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "5"}
TOOL: dict[str, Any] = {"name": "add", "input_schema": {"type": "object", "properties": {}}}
GOOD: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 4096,
    "stream": True,
    "tools": [TOOL],
    "messages": [{"role": "user", "content": "Hi"}],
}


def talk(*contents: Any) -> dict[str, Any]:
    """A request whose messages are, in turns, the user's and the model's."""
    sides = ("user", "assistant")
    return {"messages": [{"role": sides[at % 2], "content": content} for at, content in enumerate(contents)]}


def blocks(*given: dict[str, Any]) -> list[dict[str, Any]]:
    return list(given)


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk=", **source}}


def thought(thinking: str, **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thinking, **more}


MARKED = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
ANSWER = {"type": "text", "text": "Yes."}


def judged(**changes: Any) -> str | None:
    body = {**GOOD, **changes}
    try:
        check_request(
            {name: value for name, value in body.items() if value is not ...},
            issued=lambda thinking, signature: signature == sign(thinking),
            prefill=False,
        )
    except Fault as fault:
        return str(fault)
    return None


TAKEN: list[dict[str, Any]] = [
    {},
    {"system": "Be brief."},
    {"system": [MARKED]},
    {"system": ""},
    talk(blocks(image()), "Yes.", "Go on."),
    talk("Hi", blocks(CALL), blocks(RESULT)),
    talk("Hi", blocks(CALL), blocks(RESULT, ANSWER)),
    talk("Hi", blocks(SEARCH, CALL), blocks(RESULT)),
    talk("Hi", blocks(SEARCH, CALL), blocks(RESULT), blocks(FOUND, ANSWER), "Go on."),
    talk("Hi", blocks(thought("Hm.", signature=sign("Hm.")), CALL), blocks(RESULT)),
    talk("Hi", blocks(CALL), blocks({**RESULT, "content": [ANSWER, image()]})),
    {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
    {"thinking": {"type": "enabled", "budget_tokens": 1024}, "temperature": 1},
    {"model": "claude-opus-4-7", "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
    {"tool_choice": {"type": "none"}},
    {"model": "claude-3-haiku-20240307", "temperature": 0},
    talk(blocks(*[MARKED] * 4)),
]


@each_row("changes", TAKEN)
def test_a_good_request_is_taken(changes: dict[str, Any]) -> None:
    assert judged(**changes) is None


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": ...}, "model: Field required"),
    ({"max_tokens": ...}, "max_tokens: Field required"),
    ({"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
    ({"max_tokens": "many"}, "max_tokens: Input should be a valid integer"),
    ({"messages": []}, "messages: at least one message is required"),
    ({"messages": {}}, "messages: Input should be a valid array"),
    ({"stream": False}, "stream: "),
    ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
    ({"system": [{"type": "text", "text": ""}]}, "system: text content blocks must be non-empty"),
    ({"messages": [{"role": "system", "content": "x"}]}, 'messages: Unexpected role "system"'),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: Input should be 'user' or 'assistant'"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, 'messages: first message must use the "user" role'),
    ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "messages.0.name: Extra inputs are not permitted"),
    (talk("Hi", [], "x"), "messages.1: all messages must have non-empty content"),
    (talk(blocks({"type": "text", "text": ""})), "messages: text content blocks must be non-empty"),
    (talk(blocks({"type": "text", "text": " \n"})), "messages: text content blocks must contain non-whitespace text"),
    (talk("Hi", "Yes."), "This model does not support assistant message prefill."),
    (talk("Hi", blocks({**CALL, "input": []}), blocks(RESULT)), "tool_use.input: Input should be a valid dictionary"),
    (talk("Hi", blocks({**CALL, "id": "a|b"}), blocks(RESULT)), "tool_use.id: String should match pattern"),
    (talk("Hi", blocks({**CALL, "name": "a.b"}), blocks(RESULT)), "tool_use.name: String should match pattern"),
    (talk("Hi", blocks(CALL, CALL), blocks(RESULT)), "messages.1: `tool_use` ids must be unique"),
    (
        talk("Hi", blocks(CALL), blocks(RESULT), blocks(CALL), blocks(RESULT)),
        "messages.3: `tool_use` ids must be unique",
    ),
    (
        talk("Hi", blocks(CALL), "Go on."),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1. Each `tool_use` "
        "block must have a corresponding `tool_result` block in the next message.",
    ),
    (talk("Hi", blocks(CALL)), "`tool_use` ids were found without `tool_result` blocks immediately after: t1"),
    (
        talk("Hi", blocks(CALL), blocks(ANSWER, RESULT)),
        "`tool_use` ids were found without `tool_result` blocks immediately after: t1",
    ),
    (
        talk("Hi", "Yes.", blocks(RESULT)),
        "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t1. Each `tool_result` block "
        "must have a corresponding `tool_use` block in the previous message.",
    ),
    (
        talk("Hi", blocks(CALL), blocks(RESULT, RESULT)),
        "messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: ",
    ),
    (talk(blocks(CALL)), "messages.0: `tool_use` blocks can only be in `assistant` messages"),
    (talk("Hi", blocks(image()), "x"), "messages.1: `image` blocks can only be in `user` messages"),
    (
        talk("Hi", blocks(CALL), blocks({**RESULT, "is_error": True, "content": [image()]})),
        "all content must be type `text` if `is_error` is true",
    ),
    (
        talk("Hi", blocks(CALL), blocks({"type": "tool_result", "tool_use_id": "t1", "is_error": True})),
        "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
    ),
    (
        talk("Hi", blocks(SEARCH, CALL), blocks(RESULT, ANSWER)),
        "messages.1: `web_search` tool use with id `s1` was found without a corresponding `web_search_tool_result` ",
    ),
    (
        talk("Hi", blocks(FOUND, ANSWER), "Go on."),
        "messages.1.content.0: unexpected `tool_use_id` found in `web_search_tool_result` blocks: s1.",
    ),
    (
        talk(blocks(image(media_type="image/tiff"))),
        "media_type: Input should be 'image/jpeg', 'image/png', 'image/gif'",
    ),
    (talk(blocks(image(data="no!"))), "image.source.base64.data: Invalid base64 data"),
    (talk("Hi", blocks(thought("Hm."), ANSWER), "x"), "messages.1.content.0.thinking.signature: Field required"),
    (talk("Hi", blocks(thought("Hm.", signature=""), ANSWER), "x"), "Invalid `signature` in `thinking` block"),
    (
        talk("Hi", blocks(thought("Changed.", signature=sign("Hm.")), ANSWER), "x"),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    (
        talk("Hi", blocks(ANSWER, thought("Hm.", signature=sign("Hm."))), "x"),
        "messages.1: The final block in an assistant message cannot be `thinking`.",
    ),
    (talk("Hi", blocks({"type": "redacted_thinking"}, ANSWER), "x"), "redacted_thinking.data: Field required"),
    ({"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
    ({"tools": [{**TOOL, "name": "a.b"}]}, "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"),
    ({"tools": [{"name": "x"}]}, "tools.0.custom.input_schema: Field required"),
    ({"tools": [{"name": "x", "input_schema": {}}]}, "tools.0.custom.input_schema.type: Field required"),
    ({"tools": [{"name": "x", "input_schema": {"type": "string"}}]}, "input_schema.type: Input should be 'object'"),
    (
        {"tools": [{"name": "x", "input_schema": {"type": "object", "anyOf": []}}]},
        "input_schema does not support oneOf, allOf, or anyOf at the top level",
    ),
    ({"tools": ..., "tool_choice": {"type": "auto"}}, "tool_choice may only be specified while providing tools"),
    ({"tool_choice": {"type": "required"}}, "tool_choice: Input tag 'required'"),
    (
        {"tools": ..., **talk("Hi", blocks(CALL), blocks(RESULT))},
        "Requests which include `tool_use` or `tool_result` blocks must define tools.",
    ),
    (talk(blocks(*[MARKED] * 5)), "A maximum of 4 blocks with cache_control may be provided. Found 5."),
    (
        talk("Hi", blocks({**thought("Hm.", signature="x"), "cache_control": {"type": "ephemeral"}}), "x"),
        "thinking.cache_control: Extra inputs are not permitted",
    ),
    (talk(blocks({**ANSWER, "cache_control": {"type": "always"}})), "cache_control: Input should be"),
    ({"thinking": {"type": "on"}}, "thinking: Input tag 'on'"),
    ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "Input should be greater than or equal to 1024"),
    ({"thinking": {"type": "enabled", "budget_tokens": 4096}}, "`max_tokens` must be greater than"),
    ({"thinking": {"type": "enabled"}}, "thinking.enabled.budget_tokens: Field required"),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "temperature": 0.5},
        "`temperature` may only be set to 1 when thinking is enabled.",
    ),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "tool_choice": {"type": "any"}},
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    (
        {"model": "claude-opus-4-7", "thinking": {"type": "enabled", "budget_tokens": 1024}},
        '"thinking.type.enabled" is not supported for this model.',
    ),
    ({"thinking": {"type": "adaptive"}}, "adaptive thinking is not supported on this model"),
    ({"model": "claude-opus-4-7", "temperature": 1}, "`temperature` is deprecated for this model."),
    ({"temperature": 2}, "temperature: range: 0..1"),
    ({"output_config": {"effort": "some"}}, "output_config.effort: Input should be"),
    ({"output_config": {"form": 1}}, "output_config.form: Extra inputs are not permitted"),
    ({"output_config": {"format": {"type": "json"}}}, "output_config.format.type: Input should be 'json_schema'"),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        "'additionalProperties' must be explicitly set to false",
    ),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "integer", "minimum": 1}}}},
        "For 'integer' type, properties minimum are not supported",
    ),
]


@each_row(("changes", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_a_bad_request_is_refused_in_the_words_of_the_api(changes: dict[str, Any], words: str) -> None:
    assert re.search(re.escape(words), judged(**changes) or "")


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("headers", "body", "status", "kind", "words"),
    [
        ({"x-api-key": None}, GOOD, 401, "authentication_error", "x-api-key header is required"),
        ({"x-api-key": "wrong"}, GOOD, 401, "authentication_error", "invalid x-api-key"),
        ({"anthropic-version": None}, GOOD, 400, "invalid_request_error", "anthropic-version: header is required"),
        ({"content-type": "text/plain"}, GOOD, 400, "invalid_request_error", "content-type: must be application/json"),
        ({}, b"{", 400, "invalid_request_error", "The request body is not valid JSON."),
        ({}, {"model": "m"}, 400, "invalid_request_error", "max_tokens: Field required"),
    ],
)
async def test_the_server_refuses_as_the_api_does(
    headers: dict[str, str | None], body: Any, status: int, kind: str, words: str
) -> None:
    usual = {"x-api-key": "test-key", "anthropic-version": "2023-06-01", "content-type": "application/json"}
    sent = {name: value for name, value in {**usual, **headers}.items() if value is not None}
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    async with (
        AnthropicServer("Hi") as server,
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/messages", data=raw, headers=sent) as response,
    ):
        got = await response.json()
    assert (response.status, response.headers["request-id"]) == (status, "req_01")
    assert got == {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_01"}


@pytest.mark.real_time
async def test_another_path_is_not_found() -> None:
    async with (
        AnthropicServer("Hi") as server,
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/chat/completions", data=b"{}") as response,
    ):
        got = await response.json()
    assert (response.status, got["error"]) == (404, {"type": "not_found_error", "message": "Not Found"})
