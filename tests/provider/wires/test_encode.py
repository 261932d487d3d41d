"""How a conversation is encoded, in every protocol: the same bytes each time, and only once; no sockets."""

from __future__ import annotations

from base64 import b64encode
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from tests.provider.wires.protocols import READINGS, SERVERS
from tests.provider.wires.speech import calls_in, results_in
from tests.rows import each_row

from steersman.context.log import MessageView
from steersman.context.repair import Repairer, repair
from steersman.tools.tool import Tool, tool
from steersman.types.content import ImageContent, TextContent, ToolCall
from steersman.types.frozen import MemoList
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    Message,
    ToolResultMessage,
    UserMessage,
    user_message,
)
from steersman.types.model import Request, StreamOptions, ToolSpec

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def encode(name: str, messages: Any, tools: Any = (add,), system: str = "Be brief.") -> bytes:
    reading = READINGS[name]
    return reading.wire.request(
        reading.model, Request(system, messages, tools), StreamOptions(session_id="s"), "k"
    ).body


def said(name: str, *blocks: Any) -> AssistantMessage:
    model = READINGS[name].model
    return AssistantMessage(list(blocks), model=model.id, provider=model.provider)


def result(id: str, *blocks: Any, tool: str = "add") -> ToolResultMessage:
    return ToolResultMessage(list(blocks), tool_call_id=id, tool_name=tool)


def conversation(name: str, turns: int = 6) -> list[Any]:
    """Parallel calls with results, at times a picture, at times something said meanwhile."""
    messages: list[Any] = [user_message("Go.")]
    for turn in range(turns):
        messages.append(
            said(name, TextContent(f"{turn}"), *(ToolCall(f"c{turn}-{n}", "add", {"a": n}) for n in (0, 1)))
        )
        picture = [ImageContent("aGk=", "image/png")] if turn % 3 == 0 else []
        messages += [result(f"c{turn}-0", TextContent("5"), *picture), result(f"c{turn}-1", TextContent("6"))]
        if turn % 2:
            messages.append(user_message("Faster."))
    return messages


def lengths(name: str) -> list[int]:
    """After how many messages of the conversation the model is asked."""
    return [
        at
        for at, (message, following) in enumerate(pairwise([*conversation(name), said(name)]), 1)
        if not isinstance(message, AssistantMessage) and isinstance(following, AssistantMessage)
    ]


def unmarked(body: bytes) -> bytes:
    """The bytes up to the end of the messages, without the cache marks of Anthropic, which move."""
    plain = body.replace(b',"cache_control":{"type":"ephemeral"}', b"")
    return plain.partition(b'],"max_tokens"')[0].removesuffix(b"]}")


@pytest.mark.parametrize("name", SERVERS)
def test_a_request_is_the_same_bytes_each_time_and_extends_those_of_the_one_before(name: str) -> None:
    """failures.md I11: what was sent stays a prefix, so that the server's cache finds it."""
    bodies = [encode(name, conversation(name)[:length]) for length in lengths(name)]
    assert bodies == [encode(name, conversation(name)[:length]) for length in lengths(name)]
    assert len(bodies) == 7
    for before, after in pairwise(map(unmarked, bodies)):
        assert after.startswith(before)


def kept(memo: dict[Any, Any]) -> Any:
    """What is remembered of the messages of a log."""
    return next(value for key, value in memo.items() if "tools" not in str(key))


@pytest.mark.parametrize("name", SERVERS)
def test_a_conversation_that_grows_is_encoded_once_and_as_if_anew(name: str) -> None:
    log: MemoList[Message] = MemoList()
    seen: Any = None
    for at, message in enumerate(conversation(name), 1):
        log.append(message)
        if at not in lengths(name):
            continue
        view: Any = MessageView(log)  # pyright: ignore[reportArgumentType]  # a list of messages that only grows
        assert encode(name, view) == encode(name, list(log))
        assert seen is None or kept(log.memo) is seen
        seen = kept(log.memo)
    for length in (4, 8, 1, len(log)):
        shorter: Any = MessageView(log, length)  # pyright: ignore[reportArgumentType]
        assert encode(name, shorter) == encode(name, list(log)[:length])


@pytest.mark.parametrize("name", SERVERS)
def test_the_repaired_transcript_of_a_run_is_one_that_remembers(name: str) -> None:
    """The transcript is repaired and encoded a message at a time, and is sent as if it had been there at once."""
    model = READINGS[name].model
    repairer = Repairer(model.provider, model.id)
    log: list[AgentMessage] = []
    shown: Any = ()
    for message in conversation(name):
        log.append(message)
        shown = repairer.apply(MessageView(log))
        assert encode(name, shown) == encode(name, list(shown))
    base = getattr(shown, "base", None)
    assert isinstance(base, MemoList)
    assert base.memo


DOTTED = Tool("a.b", "", NO_PARAMETERS, dict[str, str])


@pytest.mark.parametrize("name", SERVERS)
def test_other_tools_in_mid_conversation_are_used_at_once(name: str) -> None:
    """failures.md C14: a name is written as the tools of the request demand."""
    call = [user_message("Hi"), said(name, ToolCall("c", "a.b")), result("c", TextContent("1"), tool="a.b")]
    log: MemoList[Any] = MemoList(call)
    view: Any = MessageView(log)
    tools: list[list[ToolSpec]] = [[add], [DOTTED], [add, DOTTED], [add], []]
    for given in tools:
        assert encode(name, view, given) == encode(name, list(log), given)


@pytest.mark.parametrize("name", SERVERS)
def test_half_a_character_is_replaced_wherever_it_is(name: str) -> None:
    """failures.md C18."""
    half = "a\ud83d"
    tools = [Tool("t", half, NO_PARAMETERS, dict[str, str])]
    call = said(name, ToolCall("c", "t", {half: [half, "\ud83d\ude42"]}))
    body = encode(name, [user_message(half), call, result("c", TextContent(half), tool="t")], tools, half).decode()
    assert msgspec.json.decode(body)
    assert "\\ud83d" not in body
    # The system prompt, the description, the words, two in the arguments, and the result; a pair is one character.
    assert (body.count("a\ufffd"), body.count("🙂")) == (6, 1)
    assert results_in(name, msgspec.json.decode(body)) == ["a\ufffd"]


@each_row("id", ["c1", "call-1", "call_" + "x" * 90, "call|x:1", "gemini.call:1/", "ü", "a b"])
@each_row("name", SERVERS)
def test_an_id_of_another_provider_is_the_same_in_the_call_and_its_result(name: str, id: str) -> None:
    """failures.md A9."""
    body = msgspec.json.decode(
        encode(name, [user_message("x"), said(name, ToolCall(id, "add")), result(id, TextContent("1"))])
    )
    found = ids_in(body)
    assert len(found) == 2
    assert len(set(found)) == 1
    assert id not in ("c1", "call-1") or found[0] == id


def ids_in(value: Any) -> list[str]:
    """The ids of calls and results in a request."""
    if isinstance(value, list):
        return [found for one in value for found in ids_in(one)]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return []
    own = [one for key, one in value.items() if key in ("id", "tool_use_id", "tool_call_id", "call_id", "toolUseId")]  # pyright: ignore[reportUnknownVariableType]
    return [*own, *(found for one in value.values() for found in ids_in(one))]  # pyright: ignore[reportUnknownVariableType]


@pytest.mark.parametrize("name", SERVERS)
def test_a_call_that_could_not_be_read_goes_back_as_an_object(name: str) -> None:
    """failures.md C7."""
    model = READINGS[name].model
    messages = [
        user_message("x"),
        said(name, ToolCall("c1", "add", raw_arguments="[1")),
        result("c1", TextContent("1")),
    ]
    body = encode(name, repair(messages, provider=model.provider, model=model.id))
    assert calls_in(name, msgspec.json.decode(body)) == [("add", {"_raw": "[1"})]


def shown(name: str, *pictures: ImageContent) -> bytes:
    """A request in which the user, a tool and a failed tool show these pictures."""
    call, failed = ToolCall("c1", "add", {}), ToolCall("c2", "add", {})
    messages: list[AgentMessage] = [user_message("Look."), said(name, call, failed)]
    messages += [result("c1", TextContent("Here:"), *pictures), result("c2", *pictures)]
    messages.append(UserMessage([TextContent("Look."), *pictures]))
    model = READINGS[name].model
    return encode(name, repair(messages, provider=model.provider, model=model.id))


@pytest.mark.parametrize("name", ["anthropic", "bedrock", "google"])
@each_row("kind", ["image/svg+xml", "image/bmp", "image/tiff", "image/x-icon", "image/gif"])
def test_a_picture_of_a_type_that_the_server_refuses_is_named(name: str, kind: str) -> None:
    """It would fail every later request of the conversation."""
    body = shown(name, ImageContent("aGk=", kind))
    if kind == "image/gif" and name != "google":
        assert b"aGk=" in body
        return
    assert body.count(f"[a picture of type {kind}, which this model does not take]".encode()) == 3
    assert b"aGk=" not in body


@pytest.mark.parametrize("name", ["anthropic", "bedrock", "google"])
@each_row("kind", ["image/jpg", "image/JPEG", "image/PNG"])
def test_a_picture_goes_out_under_the_name_of_its_type_that_servers_know(name: str, kind: str) -> None:
    body = shown(name, ImageContent("aGk=", kind))
    assert body.count(b"aGk=") == 3
    assert kind.encode() not in body
    assert body.count(b"jpeg") + body.count(b"png") == 3


BYTES = {
    "image/png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1",
    "image/gif": b"GIF89a\1\0\1\0\0\0\0\0",
    "image/webp": b"RIFF\x2a\1\0\0WEBPVP8 ",
    "image/heic": b"\0\0\0\x18ftypheic\0\0\0\0",
    "image/avif": b"\0\0\0\x20ftypavif\0\0\0\0",
}


@pytest.mark.parametrize("name", ["anthropic", "bedrock", "google"])
@each_row("kind", BYTES)
@each_row("declared", ["image/png", "image/jpeg", "image/svg+xml"])
def test_the_bytes_of_a_picture_decide_its_type(name: str, kind: str, declared: str) -> None:
    """Claude refuses a picture that is declared as another type."""
    data = b64encode(BYTES[kind]).decode()
    body = shown(name, ImageContent(data, declared)).decode()
    refused = ("image/gif", "image/avif") if name == "google" else ("image/heic", "image/avif")
    if kind in refused:
        assert (body.count(f"[a picture of type {kind}, which"), body.count(data)) == (3, 0)
        return
    told = kind.partition("/")[2] if name == "bedrock" else kind
    assert (body.count(f'"{told}"'), body.count(data)) == (3, 3)


@pytest.mark.parametrize("data", ["UklGRiQAAABXQVZFZm10IA==", "aGk=", "/9"])
def test_a_picture_of_no_known_bytes_keeps_its_type(data: str) -> None:
    body = shown("anthropic", ImageContent(data, "image/webp")).decode()
    assert (body.count('"image/webp"'), body.count(data)) == (3, 3)


def test_gemini_takes_documents_as_well() -> None:
    assert b'"mimeType":"application/pdf"' in shown("google", ImageContent("aGk=", "application/pdf"))
