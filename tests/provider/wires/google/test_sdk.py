"""Google's own client and our decoder read the same bytes; the strict server takes what that client sends.

Where we differ on purpose the test says so: the client loses data, or takes a broken stream for a whole one.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from tests.provider.wires.google.streams import (
    GEMINI_3,
    MODEL,
    Json,
    call,
    chunk,
    events_of,
    silent,
    stream,
    streams,
    text,
    thought,
)

from steersman.provider.wires.google.wire import WIRE
from steersman.testing import answer, thinking
from steersman.testing import call as script_call
from steersman.testing import text as script_text
from steersman.testing.servers import Delivery, GoogleServer, Received, Reply
from steersman.testing.servers.google.request import to_camel_case
from steersman.tools.tool import Tool
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import IncompleteStreamError, ProviderError
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage, user_message
from steersman.types.model import Request, StreamOptions

genai = pytest.importorskip("google.genai")
types = genai.types

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore"),  # of the client's own making
]


class Client:
    """Google's client, which asks a server that says what it is told to."""

    def __init__(self) -> None:
        self.server = GoogleServer(self.say, repeat_last=True, strict=False)
        self.written = b""
        self.client: Any = None

    def say(self, _: Received) -> Delivery:
        return Delivery(self.written)

    def read(self, written: bytes) -> list[Any]:
        """The chunks that the client makes of these bytes."""
        self.written = written
        return list(self.client.models.generate_content_stream(model="gemini-2.5-flash", contents="Hi"))


@contextmanager
def client_for(server: GoogleServer) -> Generator[Any]:
    root = server.url.removesuffix("/v1beta")
    client = genai.Client(api_key="test-key", http_options=types.HttpOptions(base_url=root))
    try:
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    opened = Client()
    with opened.server, client_for(opened.server) as opened.client:
        yield opened


def escaped(*chunks: Json) -> bytes:
    """A stream in ASCII, since Google's client breaks lines at characters that are no line ends."""
    return b"".join(b"data: " + json.dumps(item).encode() + b"\r\n\r\n" for item in chunks)


def folded(chunks: list[Any]) -> Json:
    """What the client's chunks amount to, by the rule that a part with a signature is a block of its own."""
    blocks: list[tuple[Any, ...]] = []
    reason: Any = None
    counts: dict[str, int] = {}
    for one in chunks:
        if one.usage_metadata is not None:
            counts |= {name: value for name, value in one.usage_metadata.model_dump().items() if value is not None}
        candidates: list[Any] = one.candidates or []
        for candidate in candidates:
            parts: list[Any] = (candidate.content and candidate.content.parts) or []
            for part in parts:
                _fold(part, blocks)
            reason = candidate.finish_reason.value if candidate.finish_reason else reason
    return {"blocks": blocks, "reason": reason, "usage": _usage(counts)}


def _fold(part: Any, blocks: list[tuple[Any, ...]]) -> None:
    signature = None if part.thought_signature is None else b64encode(part.thought_signature).decode()
    if part.function_call is not None:
        asked = part.function_call
        blocks.append(("call", asked.name, asked.args or {}, asked.id, signature))
    elif part.text or signature:
        kind = "thinking" if part.thought else "text"
        if signature is None and blocks and blocks[-1][0] == kind and blocks[-1][2] is None:
            blocks[-1] = (kind, blocks[-1][1] + part.text, None)
        else:
            blocks.append((kind, part.text or "", signature))


def _usage(counts: dict[str, int]) -> tuple[Any, ...]:
    prompt, cached = counts.get("prompt_token_count"), counts.get("cached_content_token_count")
    output, thoughts = counts.get("candidates_token_count"), counts.get("thoughts_token_count")
    if prompt is not None:
        prompt = prompt - (cached or 0) + counts.get("tool_use_prompt_token_count", 0)
    if thoughts is not None:
        output = thoughts + (output or 0)
    return prompt, output, cached, thoughts


def ours(written: bytes) -> Json:
    """What our decoder makes of these bytes, in the same form."""
    message = events_of(written)[1]
    blocks: list[tuple[Any, ...]] = []
    for block in message.content:
        if isinstance(block, ToolCall):
            id = block.provider_id or (None if block.id.startswith("call_") else block.id)
            blocks.append(("call", block.name, block.arguments, id, block.signature))
        elif isinstance(block, ThinkingContent):
            blocks.append(("thinking", block.thinking, block.signature))
        else:
            assert isinstance(block, TextContent)
            blocks.append(("text", block.text, block.signature))
    usage = message.usage
    counted = (usage.input, usage.output, usage.cache_read, usage.reasoning)
    return {"blocks": blocks, "reason": message.raw_stop_reason, "usage": counted}


REASONS = ["STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "MALFORMED_FUNCTION_CALL", "OTHER", "LANGUAGE", "SPII"]


@pytest.mark.parametrize("reason", REASONS)
def test_the_same_bytes_are_the_same_message(client: Client, reason: str) -> None:
    written = escaped(
        chunk(thought("Grüße "), usage={"promptTokenCount": 7, "cachedContentTokenCount": 2}),
        chunk(thought("日本"), thought("", "c2ln"), text("a")),
        chunk(text("b 🙂"), text("c", "QUJD"), text("d")),
        chunk(call("add", {"a": 1, "b": [None, 1.5, "\u2028"]}, "x", "Zm9v")),
        chunk(call("add", None)),
        chunk(
            text(""), finish=reason, usage={"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": 2}
        ),
    )
    assert ours(written) == folded(client.read(written))


@given(streams())
def test_generated_streams_are_the_same_message(client: Client, chunks: list[Json]) -> None:
    written = escaped(*chunks)
    assert ours(written) == folded(client.read(written))


def test_a_blocked_prompt_is_the_same(client: Client) -> None:
    written = escaped(
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 4}}
    )
    (one,) = client.read(written)
    message = events_of(written)[1]
    assert (one.prompt_feedback.block_reason.value, one.usage_metadata.prompt_token_count) == (
        message.raw_stop_reason,
        message.usage.input,
    )


def test_errors_have_the_same_status_and_words() -> None:
    body = [{"error": {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED"}}]
    failing = pytest.raises(genai.errors.ClientError)
    with GoogleServer(Reply(429, body)) as server, client_for(server) as client, failing as theirs:
        list(client.models.generate_content_stream(model="m", contents="Hi"))
    mine: ProviderError = WIRE.error(MODEL, 429, {}, msgspec.json.encode(body))
    assert (mine.info.status, mine.info.message) == (theirs.value.code, f"{MODEL.name}: {theirs.value.message}")


def test_where_we_differ_an_end_without_a_finish_reason_is_no_success(client: Client) -> None:
    written = escaped(chunk(text("Hel")))
    assert folded(client.read(written))["reason"] is None  # the client says nothing about it
    with pytest.raises(IncompleteStreamError):
        ours(written)


@pytest.mark.parametrize(
    "written",
    [
        stream(chunk(text("a\u2028b"), finish="STOP")),
        stream(chunk(text("a\u0085b"), finish="STOP")),
        b"\xef\xbb\xbf" + escaped(chunk(text("a"), finish="STOP")),
        escaped(chunk(text("a"), finish="STOP")).replace(b"data: ", b"data:"),
        b": ping\n\n" + escaped(chunk(text("a"), finish="STOP")),
    ],
    ids=["line separator", "next line", "byte order mark", "no space", "comment"],
)
def test_where_we_differ_what_the_standard_allows_is_read(client: Client, written: bytes) -> None:
    assert ours(written)["reason"] == "STOP"
    with pytest.raises(Exception, match=r"."):  # not even one type of them
        client.read(written)


def test_where_we_differ_an_unknown_reason_is_no_success(client: Client) -> None:
    written = escaped(chunk(text("a"), finish="NEW_REASON"))
    assert folded(client.read(written))["reason"] == "NEW_REASON"  # left to the caller to notice
    assert events_of(written)[1].stop_reason == "error"


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ADD = Tool("add", "Add.", SCHEMA, silent)
PICTURE = "iVBORw0KGgo="


def test_the_same_conversation_is_sent_in_the_same_form() -> None:
    """Ids of calls are sent by both; the client's own marks are spelled otherwise, which the API takes too."""
    messages: list[Message] = [
        UserMessage([TextContent("What?"), ImageContent(PICTURE)]),
        AssistantMessage(
            [
                ThinkingContent("Hm.", "c2ln"),
                TextContent("Well."),
                ToolCall("1", "add", {"a": 1}, signature="QUJD"),
                ToolCall("2", "add", {"a": 2}),
            ],
            model=GEMINI_3.id,
            provider="google",
        ),
        ToolResultMessage([TextContent("1")], tool_call_id="1", tool_name="add"),
        ToolResultMessage([TextContent("no")], tool_call_id="2", tool_name="add", is_error=True),
        user_message("Go on."),
    ]  # fmt: skip
    options = StreamOptions(max_tokens=100, temperature=0.5, thinking_level="low", tool_choice="required")
    mine = msgspec.json.decode(WIRE.request(GEMINI_3, Request("Be brief.", messages, [ADD]), options, None).body)
    part = types.Part
    contents = [
        types.Content(
            role="user", parts=[part(text="What?"), part.from_bytes(data=b64decode(PICTURE), mime_type="image/png")]
        ),
        types.Content(
            role="model",
            parts=[
                part(text="Hm.", thought=True, thought_signature=b64decode("c2ln")),
                part(text="Well."),
                part(
                    function_call=types.FunctionCall(id="1", name="add", args={"a": 1}),
                    thought_signature=b64decode("QUJD"),
                ),
                part(function_call=types.FunctionCall(id="2", name="add", args={"a": 2})),
            ],
        ),
        types.Content(
            role="user",
            parts=[
                part(function_response=types.FunctionResponse(id="1", name="add", response={"output": "1"})),
                part(function_response=types.FunctionResponse(id="2", name="add", response={"error": "no"})),
            ],
        ),
        types.Content(role="user", parts=[part(text="Go on.")]),
    ]
    with GoogleServer("Fine.", signatures=["c2ln", "QUJD"]) as server, client_for(server) as client:
        answered = list(client.models.generate_content_stream(model=GEMINI_3.id, contents=contents, config=CONFIG))
    assert "".join(one.text or "" for one in answered) == "Fine."
    theirs = to_camel_case(server.requests[0])
    del theirs["systemInstruction"]["role"]
    assert theirs == mine


DECLARED = types.FunctionDeclaration(name="add", description="Add.", parameters_json_schema=SCHEMA)
CONFIG = types.GenerateContentConfig(
    system_instruction="Be brief.",
    temperature=0.5,
    max_output_tokens=100,
    tools=[types.Tool(function_declarations=[DECLARED])],
    tool_config=types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="ANY")),
    thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_level="LOW"),
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)  # fmt: skip


def test_the_strict_server_takes_a_chat_of_googles_client() -> None:
    """Signatures, thoughts, parallel calls and a picture, sent back chunk by chunk as the client does."""
    first = msgspec.structs.replace(script_call("add", a=1), signature="QUJD")
    script = [
        answer(thinking("Hm."), script_text("Let me.", signature="c2ln"), first, script_call("add", a=2)),
        answer("It is 3.", script_text("", signature="Zm9v")),
        "Bye.",
    ]
    part = types.Part
    with GoogleServer(*script) as server, client_for(server) as client:
        chat = client.chats.create(model=GEMINI_3.id, config=CONFIG)
        list(
            chat.send_message_stream([part(text="Go"), part.from_bytes(data=b64decode(PICTURE), mime_type="image/png")])
        )
        results = [part.from_function_response(name="add", response={"output": number}) for number in "12"]
        list(chat.send_message_stream(results))
        last = list(chat.send_message_stream("Thanks."))
    assert "".join(one.text or "" for one in last) == "Bye."
    assert len(server.requests) == 3


def test_the_strict_server_takes_a_schema_for_the_answer_of_googles_client() -> None:
    config = types.GenerateContentConfig(response_mime_type="application/json", response_json_schema=SCHEMA)
    with GoogleServer('{"a": 1}') as server, client_for(server) as client:
        answered = client.models.generate_content_stream(model="gemini-2.5-flash", contents="Hi", config=config)
        assert "".join(one.text for one in answered) == '{"a": 1}'
