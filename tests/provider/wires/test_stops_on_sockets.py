"""Why answers stop, over real sockets: only an end is one, and what stopped otherwise runs nothing.

Each answer comes in the bytes of its protocol, and the strict server takes the prompt that follows.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.provider.wires.anthropic import kit as anthropic
from tests.provider.wires.bedrock import kit as bedrock
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_responses import kit as responses
from tests.provider.wires.protocols import SERVERS
from tests.provider.wires.speech import Call, Talk, Text, Thought, items_in, split_events, spoken, talk
from tests.rows import each_row

from steersman import AssistantMessage, Retry
from steersman.testing.servers.exchange import sse

pytestmark = pytest.mark.real_time

AGAIN = Retry(base_delay=0.0, jitter=0.0)
BEFORE: dict[str, tuple[Any, ...]] = {
    "at the start": (),
    "after words": (Text("I ", "will"),),
    "after thinking": (Thought("Hm."),),
    "after a call": (Text("I will."), Call('{"path":"a"}')),
}


def alone(name: str, got: Talk) -> None:
    """Of the answer nothing is sent back: both prompts, and nothing between that is empty or cut."""
    assert len(got.server.requests) == 2
    sent = list(items_in(name, got.server.requests[1]))
    assert len(sent) == 2, sent
    assert all(item.get("role", "user") == "user" for item in sent)


@each_row("place", BEFORE)
@each_row("name", SERVERS)
async def test_a_refusal_ends_the_run_wherever_it_comes(name: str, place: str) -> None:
    """failures.md D1, A7: not asked again, no call is run, and nothing of it goes back."""
    got = await talk(name, spoken(name, *BEFORE[place], end="refusal"), retry=AGAIN)
    assert (got.result.end_reason, got.result.error_kind, got.answer.stop_reason) == ("error", "refused", "refusal")
    assert (got.ran, got.told) == ([], [])
    alone(name, got)


WORDED = {
    "bedrock": bedrock.begun() + bedrock.said(0, "Too ", "risky.") + bedrock.ended("guardrail_intervened"),
    "anthropic": anthropic.begun()
    + anthropic.said(0, "I cannot.")
    + anthropic.ended("refusal", stop_details={"type": "refusal", "category": "bio", "explanation": "Too risky."}),
    "google": google.stream({"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "Too risky."}}),
    "openai": chat.said("Too ", "risky.", field="refusal") + chat.chunk(None, "stop") + chat.DONE,
    "responses": responses.begun()
    + responses.done(0, "message", id="msg_0", role="assistant", content=[{"type": "refusal", "refusal": "Too risky."}])
    + responses.ended(),
}


@pytest.mark.parametrize("name", SERVERS)
async def test_a_refusal_in_the_servers_own_form_says_why(name: str) -> None:
    """failures.md D1: also where the server calls it a success."""
    got = await talk(name, WORDED[name], retry=AGAIN)
    assert (got.result.end_reason, got.result.error_kind) == ("error", "refused")
    assert "Too risky." in got.result.detail
    alone(name, got)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_key_in_the_reason_of_a_stop_is_shown_nowhere(name: str) -> None:
    """Some gateways tell what went wrong there. The strict server takes the key `test-key`."""
    got = await talk(name, spoken(name, Text("Well."), reason="The key test-key is wrong."))
    assert got.answer.raw_stop_reason == "The key [redacted] is wrong."
    assert "test-key" not in f"{got.result} {got.result.error}"


# To Gemini `null` is no reason: without one its answer is not complete. The Responses API gives a reason only where an
# answer is incomplete, and then that is all there is to keep.
WORDS = ("model_length", "eos", 7, None)
UNKNOWN = [(name, word) for name in SERVERS for word in WORDS if (name, word) != ("google", None)]


@each_row(("name", "word"), UNKNOWN)
@each_row("blocks", [(Text("Well."),), (Call('{"path":"a"}'),)], ids=["words", "call"])
async def test_an_unknown_stop_reason_is_no_success(name: str, word: Any, blocks: tuple[Any, ...]) -> None:
    """failures.md D2: kept as it was said, not asked again, and no call is run."""
    got = await talk(name, spoken(name, *blocks, reason=word), retry=AGAIN)
    kept = str(word) if word is not None else "incomplete" if name == "responses" else None
    assert (got.result.end_reason, got.result.error_kind) == ("error", "protocol")
    assert (got.answer.stop_reason, got.answer.raw_stop_reason, got.ran) == ("error", kept, [])
    alone(name, got)


@pytest.mark.parametrize("name", SERVERS)
async def test_words_that_the_limit_cut_are_kept_and_are_no_full_window(name: str) -> None:
    """failures.md D4: nothing is compacted and the model is not asked again; the words go back."""
    got = await talk(name, spoken(name, Text("Once upon "), end="length"), retry=AGAIN)
    assert (got.result.text, got.answer.stop_reason, got.answer.error_kind) == ("Once upon ", "length", None)
    assert len(got.server.requests) == 2
    assert len(list(items_in(name, got.server.requests[1]))) == 3


FULL = {
    "bedrock": bedrock.begun() + bedrock.said(0, "Half") + bedrock.ended("model_context_window_exceeded"),
    "anthropic": anthropic.begun() + anthropic.said(0, "Half") + anthropic.ended("model_context_window_exceeded"),
    # The others have no such reason to stop: they say it in an error, in the midst of the stream.
    "google": google.stream(google.chunk(google.text("Half")))
    + sse(
        {"error": {"code": 400, "message": "The input token count (9) exceeds the maximum number of tokens allowed"}}
    ),
    "openai": chat.said("Half") + sse({"error": {"message": "Too long.", "code": "context_length_exceeded"}}),
    "responses": responses.begun()
    + responses.words(0, "Half")
    + responses.event(
        "response.failed",
        response={"status": "failed", "error": {"code": "context_length_exceeded", "message": "Too long."}},
    ),
}


@pytest.mark.parametrize("name", SERVERS)
async def test_a_window_that_is_full_is_made_room_in_and_asked_once_more(name: str) -> None:
    """failures.md D4, E6: what was shown of the half answer is not part of the whole one."""
    rounds = [spoken(name, Text("x" * 4_000), Call(f'{{"n":{n}}}', id=f"c{n}")) for n in range(12)]
    got = await talk(name, *rounds, FULL[name], retry=AGAIN)
    assert (got.result.end_reason, got.result.text, len(got.ran)) == ("done", "Fine.", 12)
    assert len(got.server.requests) == 15
    assert len(got.server.raw[13].body) < len(got.server.raw[12].body)


NOTHING = {
    "anthropic": anthropic.begun() + anthropic.ended(),
    "anthropic white": anthropic.begun() + anthropic.said(0) + anthropic.said(1, " \n") + anthropic.ended(),
    "google": google.stream(google.chunk(finish="STOP")),
    "google white": google.stream(google.chunk(google.text(""), google.text(" \n"), finish="STOP")),
    "openai": chat.chunk({"role": "assistant", "content": None}) + chat.chunk(None, "stop") + chat.DONE,
    "openai white": chat.said("", " \n") + chat.chunk(None, "stop") + chat.DONE,
    "responses": responses.begun() + responses.ended(output=[]),
    "responses white": responses.begun() + responses.said(0, "") + responses.said(1, " \n") + responses.ended(),
}


@each_row("form", NOTHING)
async def test_an_answer_that_says_nothing_is_never_sent_back(form: str) -> None:
    """failures.md A7."""
    name = form.split()[0]
    got = await talk(name, NOTHING[form])
    assert (got.result.end_reason, got.result.text.strip()) == ("done", "")
    alone(name, got)


USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
TOKENS = {"promptTokenCount": 7, "candidatesTokenCount": 3}
ASIDE = {
    "openai": [
        sse({"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
        sse({"choices": [], "usage": USAGE}),
        sse({"choices": None, "usage": USAGE}),
        sse({"choices": [{"index": 0, "delta": {}, "finish_reason": None}], "usage": USAGE}),
    ],
    "google": [
        sse({"candidates": [], "usageMetadata": TOKENS}),
        sse({"candidates": None, "usageMetadata": TOKENS}),
        sse({"usageMetadata": TOKENS}),
        sse({"candidates": [{"index": 0}], "usageMetadata": TOKENS}),
        sse({"candidates": [{"content": {"role": "model"}}], "usageMetadata": TOKENS}),
    ],
}


@each_row("place", ["first", "amid", "last", "everywhere"])
@each_row("name", ASIDE)
async def test_a_chunk_without_an_answer_in_it_is_read_for_its_usage_alone(name: str, place: str) -> None:
    """failures.md B19. The other two tell usage in events that have nothing else in them."""
    end = chat.DONE if name == "openai" else b""
    for aside in ASIDE[name]:
        first, last, amid = (aside if place in (where, "everywhere") else b"" for where in ("first", "last", "amid"))
        words, call = spoken(name, Text("Now.")), spoken(name, Call('{"path":"a"}'))
        # Words without their end, then what is beside them, then the call with an end.
        begun = words[: words.rindex(b"data: ", 0, words.rindex(b"finish"))]
        got = await talk(name, first + begun + amid + call.removesuffix(end) + last + end)
        assert (got.result.end_reason, got.answer.text, got.ran) == ("done", "Now.", [{"path": "a"}]), aside
        counted = b"prompt_filter" not in aside
        assert (got.answer.usage.input, got.answer.usage.output) == ((7, 3) if counted else (None, None)), aside


@pytest.mark.parametrize("name", SERVERS)
async def test_an_answer_that_stopped_for_no_reason_is_kept_out_of_what_follows(name: str) -> None:
    """failures.md D2, S5: without its reason an answer is not whole, and its call is not run."""
    whole = spoken(name, Text("Now."), Call('{"path":"a"}'))
    cut = b"".join(split_events(name, whole)[: -{"google": 1, "responses": 1}.get(name, 2)])
    got = await talk(name, cut)
    assert (got.result.end_reason, got.result.error_kind, got.ran, got.told) == ("error", "incomplete", [], [])
    assert isinstance(got.result.messages[-1], AssistantMessage)
    assert got.result.messages[-1].text == "Now."
    alone(name, got)
