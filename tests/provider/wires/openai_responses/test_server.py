"""The strict server refuses what the real API refuses, in its words, and takes the same request when it is mended."""

from __future__ import annotations

import copy
from typing import Any

from tests.rows import each_row

from steersman.testing.servers.openai_responses.messages import InputChecker, seal, unseal
from steersman.testing.servers.openai_responses.request import Fault, check_fields, check_input
from steersman.testing.servers.openai_responses.server import OpenAIResponsesServer

USER = {"role": "user", "content": "Hi"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
REASONING: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "encrypted_content": seal("rs_1", "Hm."),
}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
SOUND: dict[str, Any] = {
    "model": "gpt-5",
    "stream": True,
    "store": False,
    "tools": [TOOL],
    "input": [USER, REASONING, CALL, OUTPUT, REASONING | {"id": None}, ANSWER, USER],
}
LOST = (
    "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. Try again with `store` set "
    "to true, or remove this item from your input."
)


def fault(body: Any, after: dict[str, str] | None = None) -> str | None:
    try:
        check_fields(body)
        InputChecker(store=False, after=after or {}).check(check_input(body["input"]))
    except Fault as found:
        return str(found)
    return None


def test_a_sound_request_is_taken() -> None:
    assert fault(SOUND) is None
    assert fault({**SOUND, "input": "Hi"}) is None


ITEMS: list[tuple[list[Any], str]] = [
    ([USER, CALL], "No tool output found for function call call_1."),
    ([USER, OUTPUT], "No tool call found for function call output with call_id call_1."),
    ([OUTPUT, CALL], "No tool call found for function call output with call_id call_1."),
    ([USER, CALL, CALL, OUTPUT], "Duplicate 'call_id': call_1"),
    ([USER, CALL, OUTPUT, OUTPUT], "Duplicate output for call_id call_1."),
    ([USER, REASONING], "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
    ([USER, REASONING, USER], "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
    ([REASONING, OUTPUT], "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
    ([USER, {"type": "reasoning", "id": "rs_1", "summary": []}, ANSWER], LOST),
    ([USER, {"type": "item_reference", "id": "rs_1"}], LOST),
    ([USER, {**REASONING, "status": None}, ANSWER], "Unknown parameter: 'input[1].status'."),
    (
        [USER, {k: v for k, v in REASONING.items() if k != "summary"}, ANSWER],
        "Missing required parameter: 'input[1].summary'.",
    ),
    (
        [USER, {**REASONING, "encrypted_content": "sig"}, ANSWER],
        "The encrypted content sig... could not be verified. Reason: Encrypted content could not be decrypted or "
        "parsed.",
    ),
    (
        [USER, {**REASONING, "id": "rs_2"}, ANSWER],
        "The encrypted content gAAAAAWy... could not be verified. Reason: Encrypted content could not be decrypted or "
        "parsed.",
    ),
    (
        [USER, REASONING, ANSWER, REASONING, ANSWER],
        "Duplicate item found with id rs_1. Remove duplicate items from your input and try again.",
    ),
    (
        [USER, {**CALL, "id": "call_1"}, OUTPUT],
        "Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'.",
    ),
    (
        [USER, {**CALL, "id": ""}, OUTPUT],
        "Invalid 'input[1].id': ''. Expected an ID that contains letters, numbers, underscores, or dashes, but this "
        "value contained additional characters.",
    ),
    (
        [USER, {**CALL, "name": "a.b"}, OUTPUT],
        "Invalid 'input[1].name': string does not match pattern. Expected a string that matches the pattern "
        "'^[a-zA-Z0-9_-]+$'.",
    ),
    (
        [USER, {**CALL, "arguments": {"a": 1}}, OUTPUT],
        "Invalid type for 'input[1].arguments': expected a string, but got an object instead.",
    ),
    (
        [USER, {**CALL, "call_id": "x" * 65}],
        "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64, but got a string with "
        "length 65 instead.",
    ),
    ([USER, {**CALL, "call_id": None}], "Missing required parameter: 'input[1].call_id'."),
    (
        [{"role": "user", "content": []}],
        "Invalid 'input[0].content': empty array. Expected an array with minimum length 1, but got an empty array "
        "instead.",
    ),
    (
        [{"role": "user", "content": [{"type": "input_text", "text": ""}]}],
        "Invalid 'input[0].content[0].text': empty string. Expected a string with minimum length 1, but got an empty "
        "string instead.",
    ),
    (
        [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
        "Invalid value: 'input_text'. Supported values are: 'output_text', and 'refusal'.",
    ),
    (
        [{"role": "robot", "content": "x"}],
        "Invalid value: 'robot'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
    ),
    (
        [{"role": "user", "content": [{"type": "input_image", "image_url": "data:text/plain;base64,aGk="}]}],
        "Invalid 'input[0].content[0].image_url'. Expected a base64-encoded data URL with an image MIME type (e.g. "
        "'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got a value without it.",
    ),
    ([], "Invalid 'input': empty array. Expected an array with minimum length 1, but got an empty array instead."),
    (["Hi"], "Invalid type for 'input[0]': expected an object, but got a string instead."),
]


@each_row(("items", "words"), ITEMS)
def test_input_that_the_api_refuses_is_refused_in_its_words(items: list[Any], words: str) -> None:
    """failures.md A1, A9, A10, A12, D5, D7, D11, C14."""
    assert fault({**SOUND, "input": items}) == words


def test_an_item_with_an_id_needs_the_reasoning_it_was_made_after() -> None:
    """failures.md D11, the mirror case."""
    call = {**CALL, "id": "fc_1"}
    words = "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'."
    assert fault({**SOUND, "input": [USER, call, OUTPUT]}, {"fc_1": "rs_1"}) == words
    assert fault({**SOUND, "input": [USER, REASONING, call, OUTPUT]}, {"fc_1": "rs_1"}) is None
    assert fault({**SOUND, "input": [USER, CALL, OUTPUT]}, {"fc_1": "rs_1"}) is None


OPEN: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "Missing required parameter: 'model'."),
    ({"messages": []}, "Unknown parameter: 'messages'."),
    ({"input": None}, 'One of "input" or "previous_response_id" or "prompt" or "conversation" must be provided.'),
    ({"previous_response_id": "resp_1"}, "Previous response with id 'resp_1' not found."),
    (
        {"max_output_tokens": 5},
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 5 instead.",
    ),
    (
        {"max_output_tokens": "5"},
        "Invalid type for 'max_output_tokens': expected an integer, but got a string instead.",
    ),
    (
        {"temperature": 3},
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead.",
    ),
    (
        {"model": "gpt-4o", "include": ["reasoning.encrypted_content"]},
        "Encrypted content is not supported with this model.",
    ),
    (
        {"model": "gpt-4o", "reasoning": {"effort": "low"}},
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
    ),
    (
        {"reasoning": {"effort": "huge"}},
        "Invalid value: 'huge'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', and 'max'.",
    ),
    ({"tools": [], "tool_choice": "required"}, "Tool choice 'required' must be specified with 'tools' parameter."),
    ({"tool_choice": {"type": "function", "name": "x"}}, "Tool choice 'function' not found in 'tools' parameter."),
    (
        {"tools": [{**TOOL, "name": "a b"}]},
        "Invalid 'tools[0].name': string does not match pattern. Expected a string that matches the pattern "
        "'^[a-zA-Z0-9_-]+$'.",
    ),
    ({"tools": [TOOL, TOOL]}, "Duplicate tool name: 'add'."),
    (
        {"tools": [{**TOOL, "parameters": {}}]},
        "Invalid schema for function 'add': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'.",
    ),
    (
        {"tools": [{**TOOL, "parameters": {"type": "object"}}]},
        "Invalid schema for function 'add': In context=(), object schema missing properties.",
    ),
    (
        {"tools": [{**TOOL, "parameters": {"type": "object", "properties": {}, "anyOf": []}}]},
        "Invalid schema for function 'add': schema must have type 'object' and not have "
        "'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
    ),
    (
        {"tools": [{**TOOL, "strict": True}]},
        "Invalid schema for function 'add': In context=(), 'additionalProperties' is required to be supplied and to be "
        "false.",
    ),
    (
        {"tools": [{**TOOL, "strict": True, "parameters": OPEN}]},
        "Invalid schema for function 'add': In context=(), 'required' is required to be supplied and to be an array "
        "including every key in properties. Missing 'a'.",
    ),
    (
        {"prompt_cache_key": "x" * 65},
        "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64, but got a string with "
        "length 65 instead.",
    ),
]


@each_row(("change", "words"), FIELDS)
def test_fields_that_the_api_refuses_are_refused_in_its_words(change: dict[str, Any], words: str) -> None:
    """failures.md C14, C15."""
    assert fault({**copy.deepcopy(SOUND), **change}) == words


def test_encrypted_content_is_known_by_every_byte_of_it() -> None:
    content = seal("rs_1", "Hm.")
    assert unseal(content) == "rs_1"
    for at in range(len(content)):
        changed = content[:at] + ("A" if content[at] != "A" else "B") + content[at + 1 :]
        assert unseal(changed) is None, at


def test_a_server_says_which_model_it_serves() -> None:
    with OpenAIResponsesServer("Hi") as server:
        model = server.model("gpt-5")
        assert (model.provider, model.base_url, model.api_key) == ("openai", server.url, "test-key")
        assert server.url.endswith("/v1")
