"""The strict server says what the real ones say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.rows import each_row

from steersman.testing.servers.exchange import Received
from steersman.testing.servers.openai_chat.messages import Flavour
from steersman.testing.servers.openai_chat.request import find_request_fault

USER: dict[str, Any] = {"role": "user", "content": "Hi."}
IMAGE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def call(id: Any = "c1", name: Any = "add", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def asks(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def gives(id: Any = "c1", content: Any = "4") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def tool(name: Any = "add", parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters or {"type": "object"}}}


def fault(body: Any, flavour: Flavour = "openai", headers: Mapping[str, str] | None = None) -> tuple[int, str] | None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    parsed = None if isinstance(body, bytes) else body
    given = {"content-type": "application/json"} if headers is None else headers
    found = find_request_fault(
        Received("POST", "/v1", {}, {}, given, raw, parsed, 1), flavour, {"reasoning_content": {"r1"}}
    )
    return None if found is None else (found.status, found.message)


def talk(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": list(messages), **fields}


GOOD: dict[str, dict[str, Any]] = {
    "text": talk(USER),
    "system": talk({"role": "system", "content": "Be brief."}, USER),
    "developer": talk({"role": "developer", "content": "Be brief."}, USER),
    "calls": talk(USER, asks(call(), call("c2")), gives("c2"), gives("c1"), tools=[tool()]),
    "image": talk({"role": "user", "content": [{"type": "text", "text": "See:"}, IMAGE]}),
    "steered": talk(USER, asks(call()), gives(), USER),
    "reasoning": talk(USER, asks(call("r1"), reasoning_content="Hm."), gives("r1")),
    "schema": talk(
        USER, response_format={"type": "json_schema", "json_schema": {"name": "o", "schema": {"type": "object"}}}
    ),
    "choice": talk(USER, tools=[tool()], tool_choice="required", parallel_tool_calls=False),
    "a refusal": talk(USER, {"role": "assistant", "content": None, "refusal": "No."}, USER),
    "a refusal as a part": talk(USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, USER),
    "a file": talk({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}),
    "a tool of another kind": talk(USER, tools=[{"type": "custom", "custom": {"name": "sql"}}]),
    "numbers": talk(USER, max_tokens=1, temperature=2, reasoning_effort="low", n=1, stop=["x"]),
}


@each_row("name", GOOD)
def test_what_is_right_is_taken(name: str) -> None:
    assert fault(GOOD[name]) is None


BAD: list[tuple[Any, int, str]] = [
    (talk({"role": "user", "content": [{"type": "refusal", "refusal": "No."}]}), 400, "Invalid value: 'refusal'."),
    (
        talk(USER, tools=[{"type": "custom", "custom": {"name": "a b"}}]),
        400,
        "Invalid 'tools[0].custom.name': string does not match pattern.",
    ),
    (b"{", 400, "We could not parse the JSON body of your request."),
    ({"stream": True, "messages": [USER]}, 400, "you must provide a model parameter"),
    ({"model": "m", "stream": True}, 400, "Missing required parameter: 'messages'."),
    (talk(), 400, "Invalid 'messages': empty array."),
    ({**talk(USER), "stream": False}, 400, "This server only streams"),
    (talk(USER, foo=1), 400, "Unrecognized request argument supplied: foo"),
    (
        talk({"role": "robot", "content": "x"}),
        400,
        "Invalid value: 'robot'. Supported values are: 'system', 'assistant'",
    ),
    (talk({"role": "user", "content": None}), 400, "Invalid value for 'content': expected a string, got null."),
    (talk({"role": "user", "content": ""}), 400, "the message at position 0 with role 'user' must not be empty"),
    (talk({"role": "user", "content": []}), 400, "Invalid 'messages[0].content': empty array."),
    (
        talk({"role": "user", "content": [{"type": "text", "text": ""}]}),
        400,
        "Invalid 'messages[0].content[0].text': empty string.",
    ),
    (talk({"role": "user", "content": [{"type": "picture"}]}), 400, "Invalid value: 'picture'."),
    (talk({"role": "user", "content": "x", "color": 1}), 400, "Unknown parameter: 'messages[0].color'."),
    (
        talk(USER, {"role": "assistant", "content": None}, USER),
        400,
        "Invalid value for 'content': expected a string, got null.",
    ),
    (
        talk(USER, {"role": "assistant", "content": ""}, USER),
        400,
        "the message at position 1 with role 'assistant' must not be empty",
    ),
    (talk(USER, {"role": "assistant", "content": "x"}), 400, "Cannot continue from an assistant message"),
    (talk(USER, asks(content="x")), 400, "Invalid 'messages[1].tool_calls': empty array."),
    (
        talk(USER, asks(call()), USER),
        400,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        "The following tool_call_ids did not have response messages: c1",
    ),
    (talk(USER, asks(call(), call("c2")), gives()), 400, "An assistant message with 'tool_calls' must be followed"),
    (
        talk(USER, gives()),
        400,
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message",
    ),
    (
        talk(USER, asks(call()), gives(), gives()),
        400,
        "Invalid parameter: messages with role 'tool' must be a response",
    ),
    (talk(USER, asks(call()), gives(), asks(call()), gives()), 400, "Duplicate value for 'tool_call_id' of 'c1'"),
    (talk(USER, asks(call(None)), gives()), 400, "Invalid type for 'messages[1].tool_calls[0].id': expected a string"),
    (
        talk(USER, asks(call("x" * 41)), gives("x" * 41)),
        400,
        "Invalid 'messages[1].tool_calls[0].id': string too long.",
    ),
    (
        talk(USER, asks(call(name="a.b")), gives()),
        400,
        "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern.",
    ),
    (
        talk(USER, asks(call(arguments={})), gives()),
        400,
        "Invalid type for 'messages[1].tool_calls[0].function.arguments'",
    ),
    (talk(USER, asks(call(arguments="[1]")), gives()), 500, "Failed to parse tool call arguments as JSON"),
    (talk(USER, asks(call(arguments='{"a')), gives()), 500, "Failed to parse tool call arguments as JSON"),
    (talk(USER, asks(call(type="other")), gives()), 400, "Invalid value: 'other'."),
    (
        talk(USER, asks(call()), {"role": "tool", "content": "4"}),
        400,
        "Missing required parameter: 'messages[2].tool_call_id'.",
    ),
    (
        talk(USER, asks(call()), gives(content=[IMAGE])),
        400,
        "Image URLs are only allowed for messages with role 'user'",
    ),
    (
        talk(USER, asks(call("r1")), gives("r1")),
        400,
        "Missing `reasoning_content` field in the assistant message at message index 1.",
    ),
    (
        talk({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/bmp;base64,aGk="}}]}),
        400,
        "Invalid 'messages[0].content[0].image_url.url'.",
    ),
    (
        talk({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,*"}}]}),
        400,
        "Invalid base64 image_url.",
    ),
    (talk(USER, tools=[]), 400, "Invalid 'tools': empty array."),
    (talk(USER, tools=[tool("a b")]), 400, "Invalid 'tools[0].function.name': string does not match pattern."),
    (talk(USER, tools=[tool("x" * 65)]), 400, "Invalid 'tools[0].function.name': string too long."),
    (talk(USER, tools=[tool(""), tool()]), 400, "Missing required parameter: 'tools[0].function.name'."),
    (talk(USER, tools=[tool(), tool()]), 400, "Invalid value: duplicate function name 'add'."),
    (
        talk(USER, tools=[tool(parameters={"type": "array"})]),
        400,
        "Invalid schema for function 'add': schema must be a JSON Schema of 'type: \"object\"'",
    ),
    (
        talk(USER, tool_choice="none"),
        400,
        "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
    ),
    (talk(USER, tools=[tool()], tool_choice="any"), 400, "Invalid value: 'any'."),
    (talk(USER, max_tokens=0), 400, "Invalid 'max_tokens': integer below minimum value."),
    (
        {**talk(USER, max_tokens=5), "model": "gpt-5"},
        400,
        "Unsupported parameter: 'max_tokens' is not supported with this model.",
    ),
    (talk(USER, temperature=3), 400, "Invalid 'temperature': decimal above maximum value."),
    (talk(USER, reasoning_effort="huge"), 400, "Invalid value: 'huge'."),
    (talk(USER, response_format={"type": "xml"}), 400, "Invalid value: 'xml'."),
    (
        talk(USER, response_format={"type": "json_schema", "json_schema": {"schema": {}}}),
        400,
        "Missing required parameter: 'response_format.json_schema.name'.",
    ),
    (
        talk(
            USER,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "o", "strict": True, "schema": {"type": "object"}},
            },
        ),
        400,
        "Invalid schema for response_format 'o'",
    ),
]


@each_row(("body", "status", "words"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_refused_in_the_real_words(body: Any, status: int, words: str) -> None:
    found = fault(body)
    assert found is not None
    assert (found[0], found[1][: len(words)]) == (status, words)


@pytest.mark.parametrize(
    ("flavour", "body", "status", "words"),
    [
        (
            "mistral",
            talk(USER, asks(call()), gives()),
            400,
            "Tool call id was c1 but must be a-z, A-Z, 0-9, with a length of 9.",
        ),
        (
            "mistral",
            talk(USER, asks(call("abcdefgh1")), gives("abcdefgh1"), USER),
            400,
            "Unexpected role 'user' after role 'tool'",
        ),
        ("mistral", talk(USER, stream_options={}), 422, "Extra inputs are not permitted"),
        ("mistral", talk(USER, tools=[tool()], tool_choice="required"), 400, "Invalid value: 'required'."),
        (
            "mistral",
            talk(USER, {"role": "assistant", "content": "x", "reasoning": "y"}, USER),
            422,
            "Unknown parameter",
        ),
        (
            "moonshot",
            talk(USER, asks(call(), content=""), gives()),
            400,
            "the message at position 1 with role 'assistant' must not be empty",
        ),
        (
            "deepseek",
            talk(USER, {"role": "assistant", "tool_calls": [call()]}, gives()),
            400,
            "Failed to deserialize the JSON body",
        ),
    ],
)
def test_other_servers_have_demands_of_their_own(flavour: Flavour, body: Any, status: int, words: str) -> None:
    found = fault(body, flavour)
    assert found is not None
    assert (found[0], found[1][: len(words)]) == (status, words)


def test_a_request_has_to_be_json() -> None:
    assert fault(GOOD["text"], headers={"content-type": "text/plain"}) == (
        415,
        "Unsupported content type: set the Content-Type header to 'application/json'.",
    )
