"""The strict server refuses what the Gemini API refuses, in its words."""

from __future__ import annotations

import copy
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.provider.wires.google.streams import any_signature
from tests.rows import each_row

from steersman.testing import answer, call, error, text, thinking
from steersman.testing.servers import GoogleServer, Reply
from steersman.testing.servers.google.messages import (
    CALL_TURN,
    COUNT,
    LAST_TURN,
    RESPONSE_TURN,
    UNSIGNED,
)
from steersman.testing.servers.google.request import find_request_fault
from steersman.types.errors import ErrorInfo
from steersman.types.usage import Usage

Json = dict[str, Any]


def user(*parts: Json | str) -> Json:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def model(*parts: Json | str) -> Json:
    return {**user(*parts), "role": "model"}


def asked(name: str = "add", id: str | None = None, **more: Any) -> Json:
    return {"functionCall": {"name": name, "args": {}, **({} if id is None else {"id": id})}, **more}


def told(name: str = "add", id: str | None = None) -> Json:
    return {"functionResponse": {"name": name, "response": {"output": "1"}, **({} if id is None else {"id": id})}}


GOOD: list[Json] = [
    {"contents": [user("Hi")]},
    {"contents": [user("Hi"), model("Hello"), user("More")]},
    {"contents": [user("Hi"), model(asked(), asked("sub")), user(told(), told("sub"))]},
    {"contents": [user("Hi"), model(asked(id="a")), user(told(id="a")), user("Steer"), model("Ok"), user("Go")]},
    {"contents": [user({"inlineData": {"mimeType": "image/png", "data": "aGk="}})], "systemInstruction": user("Be")},
    {"contents": [user("Hi"), model({"text": "", "thoughtSignature": "c2ln"}, asked()), user(told())]},
    {"contents": [user("Hi"), model("a"), model(asked(id="a")), model(""), user(told())]},
    {"contents": [user("Hi")], "generation_config": {"max_output_tokens": 5}},
]


@each_row("body", GOOD)
def test_a_good_request_is_taken(body: Json) -> None:
    assert find_request_fault(body, "gemini-2.5-flash", any_signature) is None


ONE_OF = "required oneof field 'data' must have one initialized field"
BAD: list[tuple[Json | None, str]] = [
    (None, "Invalid JSON payload received"),
    ({}, "contents is not specified"),
    ({"contents": []}, "contents is not specified"),
    ({"contents": [user("Hi")], "messages": []}, 'Unknown name "messages": Cannot find field.'),
    ({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "Please use a valid role: user, model."),
    ({"contents": [{"role": "user", "parts": []}]}, "contents[0].parts: contents.parts must not be empty."),
    ({"contents": [user("")]}, ONE_OF),
    ({"contents": [user({})]}, ONE_OF),
    ({"contents": [user({"text": "a", "inlineData": {}})]}, "oneof field 'data' is already set"),
    ({"contents": [user("Hi")], "systemInstruction": user("")}, ONE_OF),
    ({"contents": [user({"inlineData": {"mimeType": "", "data": "aGk="}})]}, "Unsupported MIME type"),
    ({"contents": [user({"inlineData": {"mimeType": "image/png", "data": "a"}})]}, "Base64 decoding failed"),
    ({"contents": [model("Hi"), user("x")]}, "begin with a user role"),
    ({"contents": [user("Hi"), model("Hello")]}, LAST_TURN),
    ({"contents": [model(asked()), user(told())]}, CALL_TURN),
    ({"contents": [user("Hi"), user(told())]}, RESPONSE_TURN),
    ({"contents": [user("Hi"), model(asked()), user(told()), user(told())]}, RESPONSE_TURN),
    ({"contents": [user("Hi"), model(asked())]}, COUNT),
    ({"contents": [user("Hi"), model(asked()), user("never mind")]}, COUNT),
    ({"contents": [user("Hi"), model(asked(), asked()), user(told())]}, COUNT),
    ({"contents": [user("Hi"), model(asked(), asked()), user(told()), user(told())]}, COUNT),
    ({"contents": [user("Hi"), model(asked("a"), asked("b")), user(told("b"), told("a"))]}, "match the function call"),
    ({"contents": [user("Hi"), model(asked(id="a")), user(told(id="b"))]}, "match the function call"),
    (
        {"contents": [user("Hi"), model(asked(id="a")), user(told(id="a")), model(asked(id="a")), user(told(id="a"))]},
        "Duplicate function call id: a.",
    ),
    ({"contents": [user("Hi"), model(asked("")), user(told(""))]}, "function_call.name: Name cannot be empty."),
    ({"contents": [user("Hi"), model({"functionCall": {"name": "f", "args": "{}"}}), user(told("f"))]}, "Struct"),
    (
        {"contents": [user("Hi"), model(asked()), user({"functionResponse": {"name": "add", "response": "1"}})]},
        "Struct",
    ),
    ({"contents": [user(asked())]}, CALL_TURN),
    ({"contents": [user("Hi"), model(told()), user("x")]}, RESPONSE_TURN),
    ({"contents": [user("Hi"), model({"text": "x", "thoughtSignature": "!"}), user("x")]}, "thought_signature"),
]


@each_row(("body", "words"), BAD)
def test_a_bad_conversation_is_refused(body: Json | None, words: str) -> None:
    """failures.md A1, A7, A13, C7."""
    assert words in str(find_request_fault(body, "gemini-2.5-flash", any_signature))


def declared(schema: Any = None, name: str = "f", **more: Any) -> Json:
    one = {"name": name, "description": "x", **more}
    if schema is not None:
        one["parametersJsonSchema"] = schema
    return {"contents": [user("Hi")], "tools": [{"functionDeclarations": [one]}]}


def configured(**config: Any) -> Json:
    return {"contents": [user("Hi")], "generationConfig": config}


OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}
SETTINGS: list[tuple[Json, str, str | None]] = [
    (declared(), "m", None),
    (declared(OBJECT), "m", None),
    (declared(parameters={"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}}), "m", None),
    (declared(name="1st"), "m", "Invalid function name"),
    (declared(name="x" * 65), "m", "Invalid function name"),
    ({**declared(), "tools": declared()["tools"] * 2}, "m", "Duplicate function declaration found: f"),
    (declared(OBJECT, parameters=OBJECT), "m", "mutually exclusive"),
    (declared(OBJECT, strict=True), "m", 'Unknown name "strict"'),
    (declared({"type": "string"}), "m", "must describe an object"),
    (declared({"type": "object", "properties": {"a-b": {}}}), "m", "Invalid parameter name 'a-b'"),
    (declared({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}), "m", "undefined schema: #/$defs/A"),
    (
        declared({"type": "object", "properties": {"a": {"$ref": "#/$defs/A", "title": "x"}}, "$defs": {"A": {}}}),
        "m",
        "a schema with $ref must not have other properties",
    ),
    (declared(parameters={"type": "object", "properties": {}}), "m", "should be non-empty for OBJECT type"),
    (
        declared(parameters={"type": "object", "properties": {"a": {"const": 1}}}),
        "m",
        "Unknown name \"const\" at 'tools[0].function_declarations[0].parameters[0]': Cannot find field.",
    ),
    (
        declared(parameters={"type": "object", "properties": {"a": {"type": ["string", "null"]}}}),
        "m",
        "Proto field is not repeating, cannot start list.",
    ),
    (declared(parameters={"type": "thing"}), "m", '"thing"'),
    (
        {"contents": [user("Hi")], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
        "m",
        "Function calling config is set without function_declarations.",
    ),
    ({**declared(), "toolConfig": {"functionCallingConfig": {"mode": "SOME"}}}, "m", '"SOME"'),
    (configured(temperature=3), "m", "must be in the range [0.0, 2.0]"),
    (configured(maxOutputTokens=0), "m", "max_output_tokens must be positive"),
    (configured(maxTokens=1), "m", 'Unknown name "maxTokens"'),
    (configured(max_output_tokens=5), "m", None),
    (configured(responseJsonSchema={}), "m", "response_mime_type is application/json"),
    (configured(responseJsonSchema={}, responseMimeType="application/json"), "m", None),
    (
        {**declared(), **configured(responseMimeType="application/json")},
        "gemini-2.5-flash",
        "Function calling with a response mime type: 'application/json' is unsupported",
    ),
    ({**declared(), **configured(responseMimeType="application/json")}, "gemini-3-pro", None),
    (configured(thinkingConfig={"thinkingBudget": 0}), "gemini-2.5-pro", "This model only works in thinking mode."),
    (configured(thinkingConfig={"thinkingBudget": 0}), "gemini-2.5-flash", None),
    (configured(thinkingConfig={"thinkingLevel": "LOW"}), "gemini-2.5-pro", "Thinking level is not supported"),
    (configured(thinkingConfig={"thinkingLevel": "low"}), "gemini-3-pro", None),
    (
        configured(thinkingConfig={"thinkingLevel": "MINIMAL"}),
        "gemini-3-pro",
        "Thinking level MINIMAL is not supported",
    ),
    (configured(thinkingConfig={"thinkingLevel": "LOW", "thinkingBudget": 1}), "gemini-3-pro", "only one of thinking"),
    (configured(thinkingConfig={"thinkingBudget": 1}), "gemini-2.0-flash", "Thinking is not enabled"),
    (configured(thinkingConfig={"budget": 1}), "gemini-3-pro", 'Unknown name "budget"'),
]


@each_row(("body", "id", "words"), SETTINGS)
def test_tools_and_settings_are_judged(body: Json, id: str, words: str | None) -> None:
    """failures.md C14 and C15."""
    fault = find_request_fault(body, id, any_signature)
    assert fault is None if words is None else words in str(fault)


STEPS = [
    user("Hi"),
    model(asked("a")),
    user(told("a")),
    user("Again"),
    model(asked("b"), asked("c")),
    user(told("b"), told("c")),
]


@pytest.mark.parametrize(
    ("id", "marks", "words"),
    [
        ("gemini-2.5-pro", [None, None], None),
        ("gemini-3-pro", ["c2ln", "QUJD"], None),
        ("gemini-3-pro", [None, UNSIGNED], None),
        ("gemini-3-pro", ["c2ln", None], "call `default_api:b`, position 5."),
        ("gemini-4-argon", [None, None], "Function call is missing a thought_signature in functionCall parts."),
    ],
)
def test_calls_of_the_current_turn_need_their_signature(id: str, marks: list[str | None], words: str | None) -> None:
    """failures.md D9."""
    contents = copy.deepcopy(STEPS)
    for position, mark in zip((1, 4), marks, strict=True):
        if mark is not None:
            contents[position]["parts"][0]["thoughtSignature"] = mark
    fault = find_request_fault({"contents": contents}, id, any_signature)
    assert fault is None if words is None else words in str(fault)


async def ask(
    server: GoogleServer, *contents: Json, id: str = "gemini-3-pro", **options: Any
) -> tuple[int, str, bytes]:
    url = f"{server.url}/models/{id}:streamGenerateContent"
    settings: Json = {"params": {"alt": "sse"}, "headers": {"x-goog-api-key": "test-key"}, **options}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json={"contents": contents}, **settings) as response,
    ):
        return response.status, response.content_type, await response.read()


def message(body: bytes) -> Any:
    return msgspec.json.decode(body)["error"]


@pytest.mark.real_time
async def test_a_signature_is_taken_on_its_own_part_and_for_its_own_model() -> None:
    """failures.md D7 and D9."""
    async with GoogleServer(answer(call("add", id="a"), text("x", signature="c2ln")), "ok", "ok", "ok") as server:
        await ask(server, user("Hi"))
        signed = {"text": "x", "thoughtSignature": "c2ln"}
        assert (await ask(server, user("Hi"), model(signed), user("y")))[0] == 200
        moved = {"text": "xy", "thoughtSignature": "c2ln"}
        status, _, body = await ask(server, user("Hi"), model(moved), user("y"))
        assert (status, message(body)["message"]) == (400, "Corrupted thought signature.")
        status, _, body = await ask(server, user("Hi"), model(signed), user("y"), id="gemini-3-flash")
        assert (status, message(body)["message"]) == (400, "Corrupted thought signature.")
        server.signatures.add("Zm9v")
        assert (await ask(server, user("Hi"), model({"text": "z", "thoughtSignature": "Zm9v"}), user("y")))[0] == 200
        assert server.left == 1


@pytest.mark.real_time
async def test_keys_are_checked_as_the_api_does() -> None:
    async with GoogleServer("ok") as server:
        status, _, body = await ask(server, user("Hi"), headers={})
        assert (status, message(body)["status"]) == (403, "PERMISSION_DENIED")
        status, _, body = await ask(server, user("Hi"), headers={"x-goog-api-key": "wrong"})
        assert (status, message(body)["message"]) == (400, "API key not valid. Please pass a valid API key.")
        assert message(body)["details"][0]["reason"] == "API_KEY_INVALID"
        status, _, _ = await ask(server, user("Hi"), headers={}, params={"alt": "sse", "key": "test-key"})
        assert status == 200
        url = server.url.replace("/v1beta", "/v2")
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/models/m:streamGenerateContent") as response,
        ):
            assert (response.status, (await response.json())["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.real_time
async def test_an_answer_is_written_as_the_api_writes_it() -> None:
    turn = answer(
        thinking("Hm."),
        text("Hello", signature="c2ln"),
        call("add", a=1),
        deltas=2,
        usage=Usage(input=6, output=5, cache_read=4, reasoning=2),
    )
    failing = error("overloaded", "Hi", after=1)
    limited = error(ErrorInfo("rate_limit", "Slow.", retry_after=2))
    async with GoogleServer(turn, answer("a", deltas=1), failing, limited) as server:
        _, kind, body = await ask(server, user("Hi"))
        assert kind == "text/event-stream"
        chunks = [msgspec.json.decode(line[6:]) for line in body.split(b"\r\n\r\n") if line]
        assert [one["candidates"][0]["content"]["parts"] for one in chunks] == [
            [{"text": "H", "thought": True}],
            [{"text": "m.", "thought": True}],
            [{"text": "Hello", "thoughtSignature": "c2ln"}],
            [{"functionCall": {"id": "call_1", "name": "add", "args": {"a": 1}}}],
            [{"text": ""}],
        ]
        assert [one["candidates"][0].get("finishReason") for one in chunks] == [None] * 4 + ["STOP"]
        assert chunks[0]["usageMetadata"] == {
            "promptTokenCount": 10,
            "cachedContentTokenCount": 4,
            "totalTokenCount": 10,
        }
        assert chunks[-1]["usageMetadata"] == {
            "promptTokenCount": 10,
            "cachedContentTokenCount": 4,
            "thoughtsTokenCount": 2,
            "candidatesTokenCount": 3,
            "totalTokenCount": 15,
        }
        _, kind, body = await ask(server, user("Hi"), params={})
        assert (kind, len(msgspec.json.decode(body))) == ("application/json", 2)
        _, _, body = await ask(server, user("Hi"))
        assert body.split(b"data: ")[-1] == (
            b'{"error":{"code":503,"message":"scripted error: overloaded","status":"UNAVAILABLE"}}\n\n'
        )
        status, _, body = await ask(server, user("Hi"))
        assert (status, message(body)) == (429, {"code": 429, "message": "Slow.", "status": "RESOURCE_EXHAUSTED"})


@pytest.mark.real_time
async def test_arguments_that_are_no_json_end_an_answer_as_gemini_ends_it() -> None:
    async with GoogleServer(answer(call("add", raw='{"a": ')), Reply(418, "tea")) as server:
        _, _, body = await ask(server, user("Hi"))
        assert b'"finishReason":"MALFORMED_FUNCTION_CALL"' in body
        assert (await ask(server, user("Hi")))[::2] == (418, b"tea")
