"""Thinking over real sockets: what a model thought goes back as it came, to the model that made it, or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_responses import kit as responses
from tests.provider.wires.protocols import SERVERS
from tests.provider.wires.speech import SIGNATURES, Call, Text, Thought, items_in, split_events, spoken, talk
from tests.rows import each_row

from steersman import Agent, Approval, ContextConfig, Retry, tool
from steersman.testing import answer, call, thinking
from steersman.testing.servers import AnthropicServer, Delivery, OpenAIChatServer, OpenAIResponsesServer
from steersman.testing.servers.anthropic.request import sign
from steersman.testing.servers.google.messages import UNSIGNED
from steersman.testing.servers.openai_responses.messages import seal
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.wire import decode, encode

pytestmark = pytest.mark.real_time

ONCE = Retry(max_attempts=1)


@tool(name="act")
async def ACT() -> str:
    """Act."""
    return "acted"


def thoughts(messages: Any) -> list[str]:
    return [block.thinking for message in messages for block in message.content if isinstance(block, ThinkingContent)]


def reasoned(at: int, words: str) -> dict[str, Any]:
    """A reasoning item as the Responses API gives it and wants it back."""
    summary = [{"type": "summary_text", "text": words}]
    return {"type": "reasoning", "id": f"rs_{at}", "summary": summary, "encrypted_content": seal(f"rs_{at}", words)}


TWO = {
    "bedrock": [
        {"reasoningContent": {"reasoningText": {"text": words, "signature": sign(words)}}}
        for words in ("Grüße 🙂", "Then.")
    ],
    "anthropic": [{"type": "thinking", "thinking": words, "signature": sign(words)} for words in ("Grüße 🙂", "Then.")],
    "google": [
        {"text": "Grüße 🙂", "thought": True, "thoughtSignature": SIGNATURES[0]},
        {"text": "Then.", "thought": True, "thoughtSignature": SIGNATURES[1]},
    ],
    "responses": [reasoned(0, "Grüße 🙂"), reasoned(2, "Then.")],
}


@pytest.mark.parametrize("name", TWO)
async def test_two_thoughts_before_a_call_go_back_in_their_places_with_their_signatures(name: str) -> None:
    """failures.md D5, D11: Chat Completions has one field for all thinking of an answer (D12)."""
    stream = spoken(name, Thought("Grüße 🙂", 0), Text("So."), Thought("Then.", 1), Call('{"path":"a"}'))
    got = await talk(name, stream, spoken(name, Call('{"path":"b"}', id="c2")))
    assert (got.result.end_reason, got.result.detail, got.result.text) == ("done", "", "Fine.")
    assert thoughts(got.result.messages) == ["Grüße 🙂", "Then."]
    for sent in got.server.requests[1:]:
        first, words, second, *_ = list(items_in(name, sent))[1:]
        assert [first, second] == TWO[name]
        assert "So." in repr(words)
    # Byte for byte the same in every request.
    for piece in map(msgspec.json.encode, TWO[name]):
        assert [received.body.count(piece) for received in got.server.raw] == [0, 1, 1, 1]


async def test_hidden_thinking_goes_back_as_it_came() -> None:
    """failures.md D5: Anthropic alone hides it; with an empty text, signed, and as data."""
    told = answer(ThinkingContent("", "ZW5j", redacted=True), ThinkingContent("", "c2ln"), call("act"))
    async with AnthropicServer(told, "Fine.") as server:
        result = await Agent(server.model(), tools=[ACT], retry=ONCE).run("Go.")
    assert (result.end_reason, result.detail) == ("done", "")
    assert server.requests[1]["messages"][1]["content"][:2] == [
        {"type": "redacted_thinking", "data": "ZW5j"},
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
    ]


@pytest.mark.parametrize("name", SERVERS)
async def test_a_thought_that_breaks_off_is_not_sent_back(name: str) -> None:
    """failures.md D8, D11: after every event before the end, unsigned and signed, nothing of the answer is."""
    events = split_events(name, spoken(name, Thought("Hm."), Text("So."), Call()))
    known = len(events) - {"anthropic": 2, "bedrock": 2, "openai": 2}.get(name, 1)
    for count in range(1, known + 1):
        got = await talk(name, b"".join(events[:count]))
        assert (got.result.end_reason, got.result.error_kind, got.ran) == ("error", "incomplete", [])
        assert len(list(items_in(name, got.server.requests[1]))) == 2


@pytest.mark.parametrize("name", SERVERS)
async def test_a_thought_alone_is_no_answer_to_send_back(name: str) -> None:
    """failures.md D11, A7: reasoning without what should follow it is left out."""
    got = await talk(name, spoken(name, Thought("Let me see."), end="stop"))
    assert (got.result.end_reason, thoughts(got.result.messages)) == ("done", ["Let me see."])
    assert len(list(items_in(name, got.server.requests[1]))) == 2


AFTER: dict[str, tuple[tuple[Any, ...], str]] = {
    "words": ((Text("So."), Thought("Hm.")), "stop"),
    "words that were cut": ((Text("So."), Thought("Hm.")), "length"),
    "a call": ((Call('{"path":"a"}'), Thought("Hm.")), "calls"),
}
# Gemini takes its thoughts in any place; the reasoning of Chat Completions is beside the rest and has none.
ENDS_WITH_IT = {"google": 1, "openai": 0, "anthropic": 0, "bedrock": 0, "responses": 0}


@each_row("before", AFTER)
@each_row("name", SERVERS)
async def test_a_thought_at_the_end_of_an_answer_does_not_spoil_the_next_request(name: str, before: str) -> None:
    """failures.md D5, D11: Anthropic takes no answer that ends with thinking, and OpenAI no reasoning without more."""
    blocks, end = AFTER[before]
    got = await talk(name, spoken(name, *blocks, end=end))
    assert (got.result.end_reason, thoughts(got.result.messages)) == ("done", ["Hm."])
    for request in got.server.requests[1:]:
        sent = [repr(item) for item in items_in(name, request)]
        assert "So." in sent[1] or "'act'" in sent[1]
        assert sum("'Hm.'" in item for item in sent[2:]) == ENDS_WITH_IT[name]


async def agreed(asked: ToolCall, reason: str) -> bool:
    del asked, reason
    return True


@pytest.mark.parametrize("policy", [None, Approval(ask=["act"])], ids=["at once", "after approval"])
async def test_gemini_gets_its_signatures_back_on_the_parts_that_had_them(policy: Approval | None) -> None:
    """failures.md D9, A13: of parallel calls the first, of calls one after the other each, and the last empty text."""
    first = google.stream(
        google.chunk(google.thought("Hm.")),
        google.chunk(google.call("act", {"n": 1}, "c1", SIGNATURES[0])),
        google.chunk(google.call("act", {"n": 2}, "c2"), google.call("act", {"n": 3}, "c3"), finish="STOP"),
    )
    second = google.stream(google.chunk(google.call("act", {"n": 4}, "c4", SIGNATURES[1]), finish="STOP"))
    third = google.stream(google.chunk(google.text("So.")), google.chunk(google.text("", SIGNATURES[2]), finish="STOP"))
    got = await talk("google", first, second, third, approval=policy, approve=agreed)
    assert (got.result.end_reason, got.result.detail, len(got.ran)) == ("done", "", 4)
    contents = got.server.requests[-1]["contents"]
    marks = [[part.get("thoughtSignature") for part in content["parts"]] for content in contents]
    assert marks == [
        *([None], [None, SIGNATURES[0], None, None], [None, None, None], [SIGNATURES[1]]),
        *([None], [None, SIGNATURES[2]], [None]),
    ]
    assert [len(content["parts"]) for content in contents if "functionResponse" in content["parts"][0]] == [3, 1]


async def test_gemini_gets_the_mark_for_a_call_that_came_without_a_signature() -> None:
    """failures.md D9: in the current turn it takes none without; older turns stay as they are."""
    got = await talk("google", spoken("google", Call()), spoken("google", Call(id="c2")))
    assert (got.result.end_reason, got.result.detail, len(got.ran)) == ("done", "", 2)
    calls = [part for part in items_in("google", got.server.requests[2]) if "functionCall" in part]
    assert [part["thoughtSignature"] for part in calls] == [UNSIGNED, UNSIGNED]


async def test_reasoning_items_in_a_row_go_back_in_a_row() -> None:
    """failures.md D11."""
    stream = spoken("responses", Thought("One."), Thought("Two."), Call())
    got = await talk("responses", stream)
    assert (got.result.end_reason, got.result.detail, len(got.ran)) == ("done", "", 1)
    assert got.server.requests[1]["input"][1:3] == [reasoned(0, "One."), reasoned(1, "Two.")]


@pytest.mark.parametrize("encrypted", [None, ""])
async def test_reasoning_that_the_server_did_not_hand_out_is_not_named_to_it(encrypted: str | None) -> None:
    """failures.md D11: without its encrypted content it is only an id, of something that was not stored."""
    stream = responses.begun() + responses.thought(0, "Hm.", encrypted=encrypted)
    got = await talk("responses", stream + responses.called(1, "c1", "act", "{}") + responses.ended())
    assert (got.result.end_reason, got.result.detail, thoughts(got.result.messages)) == ("done", "", ["Hm."])
    kinds = [item.get("type", "message") for item in got.server.requests[1]["input"]]
    assert kinds == ["message", "function_call", "function_call_output"]


@pytest.mark.parametrize("keep", range(1, 7))
async def test_a_compaction_between_reasoning_and_its_call_leaves_neither_alone(keep: int) -> None:
    """failures.md D11: wherever it cuts, the server takes what is left."""
    rounds = [answer(thinking(f"Hm {n}."), "x" * 400, call("act")) for n in range(8)]
    small = ContextConfig(max_context_tokens=1_200, threshold=0.5, keep_recent=keep)
    async with OpenAIResponsesServer(*rounds, "Fine.") as server:
        result = await Agent(server.model(), tools=[ACT], retry=ONCE, context_config=small).run("Go.")
    assert (result.end_reason, result.detail, result.text) == ("done", "", "Fine.")
    kept = [sum(item.get("type") == "reasoning" for item in request["input"]) for request in server.requests]
    assert 1 < max(kept) < len(rounds)


FIELDS = ("reasoning_content", "reasoning", "reasoning_text")


def thinks(field: str, *words: str) -> bytes:
    return chat.said(*words, field=field)


def calls(id: str = "c1") -> bytes:
    return chat.calls(chat.piece(0, id, "act", "{}")) + chat.chunk(None, "tool_calls") + chat.DONE


@pytest.mark.parametrize("field", FIELDS)
async def test_reasoning_goes_back_with_its_calls_also_from_a_file(field: str) -> None:
    """failures.md D12: under the name it came by, after a session was written and read again."""
    async with OpenAIChatServer(
        Delivery(thinks(field, "Let me ", "see.") + calls()), Delivery(calls("c2")), "Fine.", "Fine.", "Fine."
    ) as server:
        agent = Agent(server.model(), tools=[ACT], retry=ONCE)
        await agent.run("Go.")
        kept: list[Any] = [decode(encode(message)) for message in agent.messages]
        resumed = Agent(server.model(), tools=[ACT], retry=ONCE, messages=kept)
        assert (await resumed.run("Go on.")).text == "Fine."
    said = [message for message in server.requests[-1]["messages"] if message["role"] == "assistant"]
    assert [message.get(field) for message in said] == ["Let me see.", None, None]


BOTH = {
    "the same": [{"reasoning_content": "Hm.", "reasoning": "Hm."}],
    "others": [{"reasoning_content": "Hm.", "reasoning": "Something else."}],
    "one empty": [{"reasoning_content": "", "reasoning": "Hm."}],
    "one null": [{"reasoning_content": None, "reasoning": "Hm.", "reasoning_text": None}],
    "in pieces": [{"reasoning": "H", "reasoning_text": "H"}, {"reasoning": "m.", "reasoning_text": "m."}],
    "with details": [
        {"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "index": 0}]}
    ],
}


@pytest.mark.parametrize("form", BOTH)
async def test_a_thought_under_two_names_is_thought_once(form: str) -> None:
    """failures.md D13. The other protocols have one name for it."""
    got = await talk("openai", b"".join(map(chat.chunk, BOTH[form])) + calls())
    assert (got.result.end_reason, got.result.detail, thoughts(got.result.messages)) == ("done", "", ["Hm."])


async def test_reasoning_that_is_told_twice_is_shown_once() -> None:
    """failures.md D13: a summary and the reasoning itself, of the Responses API."""
    told = {**reasoned(0, "Hm."), "content": [{"type": "reasoning_text", "text": "Hm!"}]}
    stream = (
        responses.begun()
        + responses.added(0, "reasoning", id="rs_0", summary=[])
        + responses.summary(0, "Hm.")
        + responses.event("response.reasoning_text.delta", item_id="rs_0", output_index=0, content_index=0, delta="Hm!")
        + responses.event("response.output_item.done", output_index=0, item=told)
        + responses.called(1, "c1", "act", "{}")
        + responses.ended()
    )
    got = await talk("responses", stream)
    assert (got.result.end_reason, got.result.detail, thoughts(got.result.messages)) == ("done", "", ["Hm."])


@pytest.mark.parametrize("pieces", [("<think>Hm.</think>Hi.",), ("<thi", "nk>H", "m.</", "think>", "\n\nHi.")])
@pytest.mark.parametrize("on", [True, False])
async def test_tags_of_thinking_are_told_apart_where_that_is_asked_for(pieces: tuple[str, ...], on: bool) -> None:
    """failures.md D15. The other protocols have a kind of block for it."""
    got = await talk("openai", spoken("openai", Text(*pieces), end="stop"), settings={"think_tags": on})
    words = [ThinkingContent("Hm.", field="<think>"), TextContent("Hi.")] if on else [TextContent("".join(pieces))]
    assert (got.result.end_reason, got.answer.content) == ("done", words)
