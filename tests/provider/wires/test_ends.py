"""How answers end, in every protocol: stop reasons, refusals, errors inside a stream, and usage; no sockets."""

from __future__ import annotations

from typing import Any

import pytest
from tests.provider.wires.anthropic import kit as anthropic
from tests.provider.wires.bedrock import kit as bedrock
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_responses import kit as responses
from tests.provider.wires.protocols import READINGS, SERVERS
from tests.provider.wires.speech import ENDS, Call, Text, Thought, spoken
from tests.rows import each_row

from steersman.testing.servers.exchange import sse
from steersman.types.errors import ErrorKind, IncompleteStreamError, ProviderError, RateLimitError
from steersman.types.usage import Usage


def rows(table: dict[str, Any], show: int = 1) -> list[Any]:
    """The rows of a table by protocol, as cases; the first `show` fields of a row are part of its name."""
    return [
        pytest.param(name, *row, id="-".join([name, str(at), *(str(field)[:40] for field in row[:show])]))
        for name, of_name in table.items()
        for at, row in enumerate(of_name)
    ]


# What the server calls it, what it is here, and what kind of error.
REASONS: dict[str, list[tuple[str, str, ErrorKind | None]]] = {
    "bedrock": [
        ("end_turn", "stop", None),
        ("stop_sequence", "stop", None),
        ("tool_use", "stop", None),
        ("max_tokens", "length", None),
        ("content_filtered", "refusal", "refused"),
        ("guardrail_intervened", "refusal", "refused"),
        ("malformed_model_output", "error", "incomplete"),
        ("malformed_tool_use", "error", "incomplete"),
        ("model_context_window_exceeded", "error", "context_overflow"),
    ],
    "anthropic": [
        ("end_turn", "stop", None),
        ("stop_sequence", "stop", None),
        ("tool_use", "stop", None),
        ("max_tokens", "length", None),
        ("refusal", "refusal", "refused"),
        # Its usage is kept, for it was paid for (D4).
        ("model_context_window_exceeded", "error", "context_overflow"),
    ],
    "google": [
        ("STOP", "stop", None),
        ("MAX_TOKENS", "length", None),
        ("SAFETY", "refusal", "refused"),
        ("RECITATION", "refusal", "refused"),
        ("LANGUAGE", "refusal", "refused"),
        ("BLOCKLIST", "refusal", "refused"),
        ("PROHIBITED_CONTENT", "refusal", "refused"),
        ("SPII", "refusal", "refused"),
        ("IMAGE_SAFETY", "refusal", "refused"),
        ("IMAGE_PROHIBITED_CONTENT", "refusal", "refused"),
        ("IMAGE_RECITATION", "refusal", "refused"),
        ("MALFORMED_FUNCTION_CALL", "error", "incomplete"),
        ("MALFORMED_RESPONSE", "error", "incomplete"),
        ("UNEXPECTED_TOOL_CALL", "error", "incomplete"),
        ("TOO_MANY_TOOL_CALLS", "error", "protocol"),
        ("OTHER", "error", "protocol"),
        ("IMAGE_OTHER", "error", "protocol"),
        ("NO_IMAGE", "error", "protocol"),
        ("CONTINUATION", "error", "protocol"),
        ("FINISH_REASON_UNSPECIFIED", "error", "protocol"),
    ],
    "openai": [
        ("stop", "stop", None),
        ("length", "length", None),
        ("tool_calls", "stop", None),
        ("function_call", "stop", None),
        ("content_filter", "refusal", "refused"),
    ],
    "responses": [
        ("completed", "stop", None),
        ("max_output_tokens", "length", None),
        ("content_filter", "refusal", "refused"),
    ],
}


@each_row(("name", "word", "reason", "kind"), rows(REASONS))
def test_a_stop_reason_has_its_meaning_and_is_kept(name: str, word: str, reason: str, kind: ErrorKind | None) -> None:
    """failures.md D1, D4."""
    message = READINGS[name].message_of(spoken(name, Text("Part", "ly"), reason=word))
    assert (message.stop_reason, message.raw_stop_reason, message.error_kind) == (reason, word, kind)
    assert (message.error_message is None) == (kind is None)
    assert message.text == "Partly"


# What is said of a reason that is not known.
NO_SUCCESS = {
    "bedrock": "The server stopped with an unknown stopReason: ",
    "anthropic": "The server stopped with an unknown stop_reason: ",
    "google": "Gemini ended the answer with ",
    "openai": "The server ended its answer with ",
    "responses": "The response ended as 'incomplete' for an unknown reason: ",
}
# To Gemini `null` is no reason: without one its answer is not complete.
UNKNOWN = ("eos", "model_length", "error", "max_messages", "steered", "new_reason", 7, True, None)


@each_row("word", UNKNOWN, ids=repr)
@each_row("name", SERVERS)
def test_a_reason_that_is_not_known_is_never_a_stop(name: str, word: Any) -> None:
    """failures.md D2: it is named and kept, and so are the words."""
    stream = spoken(name, Text("Part", "ly"), reason=word)
    if (name, word) == ("google", None):
        with pytest.raises(IncompleteStreamError, match="before its finishReason"):
            READINGS[name].read(stream)
        return
    message = READINGS[name].message_of(stream)
    kept = str(word).lower() if word is not None else "incomplete" if name == "responses" else "none"
    assert (message.stop_reason, str(message.raw_stop_reason).lower()) == ("error", kept)
    assert (message.error_kind, message.text) == ("protocol", "Partly")
    assert message.error_message is not None
    assert message.error_message.startswith(NO_SUCCESS[name])
    assert word is None or repr(str(word)).strip("'").lower() in message.error_message.lower()


STOPS = {
    "bedrock": ("end_turn", "stop_sequence", "tool_use"),
    "anthropic": ("end_turn", "stop_sequence", "tool_use"),
    "google": ("STOP",),
    "openai": ("stop", "tool_calls"),
    "responses": ("completed",),
}
WITH_CALLS: dict[str, list[tuple[str, str]]] = {
    name: [
        *((word, "tool_use") for word in STOPS[name]),
        (ENDS[name]["length"], "length"),
        (ENDS[name]["refusal"], "refusal"),
    ]
    for name in SERVERS
}


@each_row(("name", "word", "reason"), rows(WITH_CALLS))
def test_calls_decide_what_a_stop_means_and_nothing_else(name: str, word: str, reason: str) -> None:
    """failures.md C11, D1: a refusal with a call in it stays a refusal."""
    message = READINGS[name].message_of(spoken(name, Call("{}"), reason=word))
    assert (message.stop_reason, message.raw_stop_reason) == (reason, word)


BEFORE = {"nothing": (), "words": (Text("I can"),), "thinking": (Thought("Hm."),), "call": (Call("{}"),)}
WITHHELD = {
    "bedrock": "The model or its filter refused to answer (content_filtered).",
    "anthropic": "The model refused to answer.",
    "google": "Gemini's filter stopped the answer: SAFETY.",
    "openai": "The answer was withheld (finish_reason 'content_filter').",
    "responses": "The provider's filter stopped the answer (content_filter).",
}


@each_row("before", BEFORE)
@each_row("name", SERVERS)
def test_a_withheld_answer_is_a_refusal_wherever_it_stops(name: str, before: str) -> None:
    """failures.md D1."""
    message = READINGS[name].message_of(spoken(name, *BEFORE[before], end="refusal"))
    assert (message.stop_reason, message.error_kind, message.failed) == ("refusal", "refused", True)
    assert message.error_message == WITHHELD[name]


AT = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
DETAILS = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
# An answer that is a refusal in the form of its server, what is told of it, and its words.
REFUSALS: dict[str, list[tuple[str, str, bytes]]] = {
    "bedrock": [
        (
            "A guardrail refused the prompt or the answer (guardrail_intervened). Not this.",
            "Not this.",
            bedrock.begun() + bedrock.said(0, "Not ", "this.") + bedrock.ended("guardrail_intervened"),
        )
    ],
    "anthropic": [
        (
            "The model refused to answer (cyber). Not this.",
            text,
            anthropic.begun() + before + anthropic.ended("refusal", stop_details=DETAILS),
        )
        for text, before in {
            "": b"",
            "I can": anthropic.said(0, "I can"),
            "I will": anthropic.said(0, "I will") + anthropic.called(1, "t", "rm", "{}"),
        }.items()
    ],
    "google": [("Gemini blocked the prompt: OTHER.", "", google.stream({"promptFeedback": {"blockReason": "OTHER"}}))],
    "openai": [
        ("I cannot.", "I cannot.", chat.said("I can", "not.", field="refusal") + chat.chunk(None, "stop") + chat.DONE),
    ],
    "responses": [
        (
            "I cannot.",
            "I cannot.",
            responses.begun()
            + responses.added(0, "message", id="msg_0", role="assistant", content=[])
            + responses.event("response.refusal.delta", **AT, delta="I can")
            + responses.event("response.refusal.delta", **AT, delta="not.")
            + responses.event("response.refusal.done", **AT, refusal="I cannot.")
            + responses.done(0, "message", id="msg_0", content=[{"type": "refusal", "refusal": "I cannot."}])
            + responses.called(1, "call_1", "add", "{}")
            + responses.ended(),
        ),
        (
            "No.",
            "No.",
            responses.begun() + responses.event("response.refusal.delta", **AT, delta="No.") + responses.ended(),
        ),
    ],
}  # fmt: skip


@each_row(("name", "told", "text", "stream"), rows(REFUSALS))
def test_a_refusal_in_the_servers_own_form_says_why(name: str, told: str, text: str, stream: bytes) -> None:
    """failures.md D1: also where the server calls it a success."""
    message = READINGS[name].message_of(stream)
    assert (message.stop_reason, message.error_kind, message.failed) == ("refusal", "refused", True)
    assert (message.error_message, message.text) == (told, text)


# What comes before the end of an answer, and is none without it.
UNENDED: dict[str, list[tuple[bytes]]] = {
    "bedrock": [
        (b"",),
        (bedrock.begun(),),
        (bedrock.begun() + bedrock.said(0, "Hi"),),
        (bedrock.begun() + bedrock.said(0, "Hi") + bedrock.framed("metadata", {"usage": {"inputTokens": 1}}),),
        (bedrock.begun() + bedrock.said(0, "Hi") + bedrock.ended()[:40],),
    ],
    "anthropic": [
        (b"",),
        (b": comment\n\n",),
        (anthropic.begun(),),
        (anthropic.begun() + anthropic.said(0, "Hi"),),
        (anthropic.begun() + anthropic.said(0, "Hi") + anthropic.event("message_stop"),),
    ],
    "google": [
        (b"",),
        (b": comment\n\n",),
        (google.stream({"usageMetadata": {"promptTokenCount": 4}}),),
        (google.stream(google.chunk(google.text("Hello"))),),
        (google.stream(google.chunk(google.text("Hello")), {"usageMetadata": {"promptTokenCount": 4}}),),
    ],
    "openai": [
        (b"",),
        (b": comment\n\n",),
        (chat.DONE,),
        (chat.counted(prompt_tokens=1),),
        (chat.said("Hel", "lo."),),
        (chat.said("Hel", "lo.") + chat.counted(prompt_tokens=1),),
    ],
    "responses": [
        (b"",),
        (b": comment\n\n",),
        (responses.begun(),),
        (responses.begun() + responses.said(0, "Hi"),),
        (responses.begun() + responses.said(0, "Hi") + chat.DONE,),
    ],
}


@each_row(("name", "stream"), rows(UNENDED, 0))
def test_a_stream_without_its_end_is_incomplete(name: str, stream: bytes) -> None:
    """failures.md B17."""
    with pytest.raises(IncompleteStreamError) as caught:
        READINGS[name].read(stream)
    assert caught.value.info.should_retry


def openai(code: Any, message: str | None, **more: Any) -> Any:
    return {"code": code, "message": message, **more}


WINDOW = "Your input exceeds the context window of this model. Please adjust your input and try again."
PEG = "does not match the expected peg-native format"
OVERLOADED = anthropic.event("error", error={"type": "overloaded_error", "message": "Overloaded"}, request_id="req_1")
OPENED = anthropic.begun() + anthropic.start(0, "text", text="") + anthropic.delta(0, "text_delta", text="a")
# How a response fails; the event that says so has several forms.
FAILURES: list[tuple[ErrorKind, int | None, Any]] = [
    ("overloaded", None, openai("server_error", "Oops")),
    ("overloaded", 500, openai(500, PEG, type="server_error")),
    ("rate_limit", None, openai("rate_limit_exceeded", "Please try again in 1.5s.")),
    ("quota", None, openai("insufficient_quota", "You exceeded your current quota.")),
    ("refused", None, openai("invalid_prompt", "Flagged.")),
    ("refused", None, openai("bio_policy", "Flagged.")),
    ("refused", None, openai("misalignment_policy_violation", "Flagged.")),
    ("overloaded", None, openai("vector_store_timeout", "Slow.")),
    ("invalid_request", None, openai("invalid_image", "No image.")),
    ("invalid_request", None, openai("data_residency_mismatch", "Elsewhere.")),
    ("context_overflow", None, openai("context_length_exceeded", WINDOW)),
    ("context_overflow", None, openai(None, WINDOW)),
    ("overloaded", None, openai(None, None)),
]
# A failure in a field of the stream itself, which no standard knows; the last one lacks its blank line.
FIELDS: list[tuple[ErrorKind, int | None, str, bytes]] = [
    ("overloaded", None, "could not decode", b'error: {"detail":"x","error":{"message":"could not decode"}}\n\n'),
    ("overloaded", None, "could not decode", b"error: could not decode\n\n"),
    ("overloaded", None, "could not decode", b"id: 7\nerror:could not decode\n"),
]
# An error inside a stream: its kind, the status that it tells, a part of its words, and its bytes.
INSIDE: dict[str, list[tuple[ErrorKind, int | None, str, bytes]]] = {
    "bedrock": [
        ("rate_limit", 429, "Too many requests", bedrock.thrown("throttlingException", "Too many requests")),
        ("overloaded", 503, "busy", bedrock.thrown("serviceUnavailableException", "busy")),
        ("overloaded", 500, "Oh no", bedrock.thrown("internalServerException")),
        ("overloaded", 424, "Oh no", bedrock.thrown("modelStreamErrorException", originalStatusCode=500)),
        ("stalled", 408, "Oh no", bedrock.thrown("modelTimeoutException")),
        ("invalid_request", 400, "bad", bedrock.thrown("validationException", "bad")),
        (
            "context_overflow",
            400,
            "Input is too long for requested model",
            bedrock.thrown("validationException", "Input is too long for requested model."),
        ),
        (
            "context_overflow",
            400,
            "prompt is too long",
            bedrock.thrown(
                "modelStreamErrorException", "prompt is too long: 9 tokens > 8 maximum", originalStatusCode=400
            ),
        ),
        ("overloaded", 500, "Oh no", bedrock.thrown("newException")),
    ],
    "anthropic": [
        *(("overloaded", None, "Overloaded", before + OVERLOADED) for before in (b"", anthropic.begun(), OPENED)),
        ("rate_limit", 429, "slow", sse({"error": openai(429, "slow", type="rate_limit_error")})),
        ("overloaded", 500, PEG, sse({"error": openai(500, PEG, type="server_error")})),
        ("overloaded", None, "New", anthropic.event("error", error={"type": "new_error", "message": "New"})),
        ("overloaded", None, "upstream went away", b"event: error\ndata: upstream went away\n\n"),
        ("overloaded", None, "upstream went away", b'event: error\ndata: {"detail":"upstream went away"}\n\n'),
        *FIELDS,
    ],
    "google": [
        ("overloaded", 503, "busy", sse({"error": openai(503, "busy", status="UNAVAILABLE")})),
        ("overloaded", 500, PEG, sse({"error": openai(500, PEG)})),
        ("rate_limit", 429, "Slow.", sse([{"error": openai(429, "Slow.", details=[{"retryDelay": "34.07s"}])}])),
        ("invalid_request", 400, "bad", sse({"error": openai(400, "bad")})),
        ("authentication", 401, "no key", sse({"error": openai(401, "no key")})),
        *(("overloaded", 500, words, data) for _, _, words, data in FIELDS),
    ],
    "openai": [
        ("overloaded", 503, "busy", sse({"error": openai(503, "busy", type="server_error")})),
        ("overloaded", 502, "busy", sse({"error": openai("502", "busy")})),
        ("overloaded", 500, PEG, sse({"error": openai(500, PEG, type="server_error")})),
        ("rate_limit", 429, "slow down", sse({"error": openai(429, "slow down")})),
        ("rate_limit", None, "slow down", sse({"error": openai("rate_limit_exceeded", "slow down")})),
        ("quota", 429, "no money", sse({"error": openai(429, "no money", type="insufficient_quota")})),
        ("authentication", 401, "no key", sse({"error": openai(401, "no key")})),
        ("invalid_request", None, "bad", sse({"error": openai("x", "bad", type="invalid_request_error")})),
        ("context_overflow", None, WINDOW, sse({"error": openai("context_length_exceeded", WINDOW)})),
        ("overloaded", None, "words only", sse({"error": "words only"})),
        ("overloaded", None, "openai-chat:m", sse({"error": {"message": None}})),
        ("overloaded", None, "busy", b'event: error\ndata: {"message": "busy"}\n\n'),
        ("overloaded", None, "busy", b"event: error\ndata: busy\n\n"),
        ("overloaded", 503, "busy", sse({"object": "error", "message": "busy", "code": 503})),
        ("overloaded", 502, "busy", chat.chunk({"content": ""}, "error", error=openai(502, "busy"))),
        ("overloaded", 502, "busy", sse({"choices": [{"finish_reason": "error", "error": openai(502, "busy")}]})),
        ("overloaded", None, "insufficient_system_resource", chat.chunk(None, "insufficient_system_resource")),
        ("network", None, "network_error", chat.chunk(None, "network_error")),
        ("incomplete", None, "no call", sse({"error": openai("tool_use_failed", "no call")})),
        ("context_overflow", 400, WINDOW, sse({"error": openai(400, "No.", metadata={"raw": WINDOW})})),
        *FIELDS,
    ],
    "responses": [
        *FIELDS,
        *(
        (kind, status, error["message"] or "without a message", last)
        for kind, status, error in FAILURES
        for last in (
            responses.ended("failed", error=error),
            responses.event("error", **{**error, "type": "error"}, param=None, sequence_number=3),
            responses.event("error", error=error),
            sse({"error": error}),
        )
        ),
    ],
}  # fmt: skip


@each_row("before", ["first", "later"])
@each_row(("name", "kind", "status", "words", "event"), rows(INSIDE))
def test_an_error_inside_a_stream_says_what_it_is(
    name: str, kind: ErrorKind, status: int | None, words: str, event: bytes, before: str
) -> None:
    """failures.md B11, E6: by the code, then by the words; as the first event and after words."""
    spoken_before = b"" if before == "first" else words_of(name)
    with pytest.raises(ProviderError, match=words) as caught:
        READINGS[name].read(spoken_before + event)
    info = caught.value.info
    assert (info.kind, info.status, info.provider) == (kind, status, READINGS[name].model.provider)
    assert info.should_retry is (kind in ("overloaded", "rate_limit", "network", "incomplete", "stalled"))


def words_of(name: str) -> bytes:
    """The beginning of an answer."""
    return {
        "anthropic": anthropic.begun() + anthropic.said(0, "Hi"),
        "bedrock": bedrock.begun() + bedrock.said(0, "Hi"),
        "google": google.stream(google.chunk(google.text("Hi"))),
        "openai": chat.said("Hel", "lo."),
        "responses": responses.begun() + responses.said(0, "Hi"),
    }[name]


# An error inside a stream that says how long to wait, or which request it was.
WAITING: dict[str, tuple[bytes, float, str | None]] = {
    "bedrock": (bedrock.thrown("throttlingException", "Please try again in 1.5s."), 1.5, None),
    "anthropic": (
        anthropic.event("error", error={"type": "rate_limit_error", "message": "Retry in 1.5s."}, request_id="req_1"),
        1.5,
        "req_1",
    ),
    "google": (sse({"error": openai(429, "Slow.", details=[{"retryDelay": "34.07s"}])}), 34.07, None),
    "openai": (sse({"error": openai(429, "Please try again in 1.5s.")}), 1.5, None),
    "responses": (
        responses.ended("failed", error=openai("rate_limit_exceeded", "Please try again in 1.5s.")),
        1.5,
        None,
    ),
}


@pytest.mark.parametrize("name", SERVERS)
def test_an_error_inside_a_stream_says_how_long_to_wait(name: str) -> None:
    """failures.md E1."""
    event, wait, request = WAITING[name]
    with pytest.raises(RateLimitError) as caught:
        READINGS[name].read(words_of(name) + event)
    info = caught.value.info
    assert (info.retry_after, info.request_id, info.should_retry) == (wait, request, True)


def anthropic_counts(first: dict[str, Any], last: dict[str, Any]) -> bytes:
    return anthropic.begun(**first) + anthropic.said(0, "Hi") + anthropic.ended(usage=last)


def google_counts(*counts: Any) -> bytes:
    return google.stream(*(google.chunk(google.text("x"), usage=one) for one in counts), google.chunk(finish="STOP"))


def openai_counts(counts: Any) -> bytes:
    return chat.said("Hi") + chat.chunk(None, "stop") + sse({"choices": [], "usage": counts}) + chat.DONE


def openai_end(*last: bytes) -> bytes:
    return b"".join((chat.said("Hi"), *last, chat.DONE))


def responses_counts(counts: Any) -> bytes:
    return responses.begun() + responses.said(0, "Hi") + responses.ended(usage=counts)


ODD_COSTS: list[Any] = [{}, {"total_cost": None}, [], "free", -1]
IN_OUT = {"prompt_tokens": 10, "completion_tokens": 5}
TOLD_LATE = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": IN_OUT}]}
# What came from a cache is apart from the input, and reasoning is inside the output. Later counts replace earlier ones.
USAGES: dict[str, list[tuple[Usage, bytes]]] = {
    "bedrock": [
        (Usage(input=10, output=5), bedrock.begun() + bedrock.said(0, "Hi") + bedrock.ended()),
        (
            Usage(input=10, output=5, cache_read=7, cache_write=3),
            bedrock.begun()
            + bedrock.said(0, "Hi")
            + bedrock.ended(cacheReadInputTokens=7, cacheWriteInputTokens=3, totalTokens=25),
        ),
        # The usage never came, and the answer is whole without it.
        (
            Usage(),
            bedrock.begun() + bedrock.said(0, "Hi") + bedrock.framed("messageStop", {"stopReason": "end_turn"}),
        ),
        (Usage(output=5), bedrock.begun() + bedrock.said(0, "Hi") + bedrock.ended(inputTokens="many")),
    ],
    "anthropic": [
        (Usage(input=9, output=5), anthropic_counts({"input_tokens": 9, "output_tokens": 1}, {})),
        (
            Usage(input=9, output=5, cache_read=4, cache_write=3),
            anthropic_counts(
                {"input_tokens": 9, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4},
                {"cache_read_input_tokens": None},
            ),
        ),
        (
            Usage(input=10, output=5, cache_read=90),
            anthropic_counts(
                {"input_tokens": 100, "cache_read_input_tokens": 90, "output_tokens": 1},
                {"input_tokens": 10, "cache_read_input_tokens": 90},
            ),
        ),
        (
            Usage(input=9, output=5, reasoning=4),
            anthropic_counts({"input_tokens": 9}, {"output_tokens_details": {"thinking_tokens": 4}}),
        ),
        (Usage(output=5), anthropic_counts({"input_tokens": "many"}, {"cache_read_input_tokens": -1})),
        (Usage(input=9, output=5), anthropic_counts({"input_tokens": 9.0}, {})),
        (
            Usage(),
            anthropic.event("message_start", message={"id": "m"})
            + anthropic.said(0, "Hi")
            + anthropic.event("message_delta", delta={"stop_reason": "end_turn"})
            + anthropic.event("message_stop"),
        ),
    ],
    "google": [
        (Usage(), google_counts()),
        (Usage(input=10), google_counts({"promptTokenCount": 10})),
        (
            Usage(input=6, output=5, cache_read=4, reasoning=2, total=15),
            google_counts(
                {
                    "promptTokenCount": 10,
                    "cachedContentTokenCount": 4,
                    "candidatesTokenCount": 3,
                    "thoughtsTokenCount": 2,
                }
            ),
        ),
        (
            Usage(input=10, output=3),
            google_counts({"promptTokenCount": 10, "candidatesTokenCount": 1}, {"candidatesTokenCount": 3}),
        ),
        (
            Usage(input=15, output=1),
            google_counts({"promptTokenCount": 10, "toolUsePromptTokenCount": 5, "candidatesTokenCount": 1}),
        ),
        (
            Usage(input=10, output=8, reasoning=8),
            google_counts({"promptTokenCount": 10, "thoughtsTokenCount": 8}),
        ),
    ],
    "openai": [
        (Usage(10, 5), openai_counts(IN_OUT)),
        (Usage(6, 5, 4), openai_counts({**IN_OUT, "prompt_tokens_details": {"cached_tokens": 4}})),
        (Usage(6, 5, 4), openai_counts({**IN_OUT, "prompt_cache_hit_tokens": 4})),
        (Usage(6, 5, 4), openai_counts({**IN_OUT, "cached_tokens": 4})),
        (
            Usage(3, 5, 4, 3),
            openai_counts({**IN_OUT, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}}),
        ),
        (
            Usage(10, 5, reasoning=2),
            openai_counts({**IN_OUT, "total_tokens": 15, "completion_tokens_details": {"reasoning_tokens": 2}}),
        ),
        (
            Usage(10, 7, reasoning=2),
            openai_counts({**IN_OUT, "total_tokens": 17, "completion_tokens_details": {"reasoning_tokens": 2}}),
        ),
        (Usage(0, 5, 4), openai_counts({**IN_OUT, "prompt_tokens": 3, "cached_tokens": 4})),
        (Usage(10, 5), openai_counts({**IN_OUT, "prompt_tokens_details": None})),
        (Usage(10, 5), openai_counts({**IN_OUT, "prompt_tokens": "10"})),
        (Usage(10, 5, cost=0.25), openai_counts({**IN_OUT, "cost": 0.25})),
        (Usage(10, 5, cost=0.25), openai_counts({**IN_OUT, "cost": {"input_tokens_cost": 0.05, "total_cost": 0.25}})),
        (Usage(10, 5, cost=0.25), openai_counts({**IN_OUT, "cost": "0.25"})),
        *((Usage(10, 5), openai_counts({**IN_OUT, "cost": odd})) for odd in ODD_COSTS),
        (Usage(10, None), openai_counts({"prompt_tokens": 10, "completion_tokens": {"text": 5}})),
        (Usage(), openai_counts({})),
        (Usage(), openai_counts({"prompt_tokens": "many"})),
        (Usage(), openai_counts([])),
        (
            Usage(10, 3),
            openai_end(
                *(chat.chunk({"content": "a"}, usage={**IN_OUT, "completion_tokens": count}) for count in (1, 2, 3)),
                chat.chunk(None, "stop", usage=None),
            ),
        ),
        (Usage(10, 5), openai_end(chat.chunk(None, "stop", usage=IN_OUT))),
        (Usage(10, 5), openai_end(chat.chunk(None, "stop", x_groq={"id": "r", "usage": IN_OUT}))),
        (Usage(10, 5), openai_end(sse(TOLD_LATE))),
        (Usage(10, 5), openai_end(chat.chunk(None, "stop"), sse({"choices": None, "usage": IN_OUT}))),
        (Usage(10, 5), openai_end(chat.counted(**IN_OUT), chat.chunk(None, "stop"))),
    ],
    "responses": [
        (Usage(10, 5), responses_counts({"input_tokens": 10, "output_tokens": 5})),
        (
            Usage(input=0, output=1, cache_read=9),
            responses_counts(
                {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 9}, "output_tokens": 1},
            ),
        ),
        (Usage(), responses_counts({})),
        (Usage(), responses_counts(None)),
        (
            Usage(),
            responses.begun() + responses.said(0, "Hi") + responses.event("response.completed", response={}),
        ),
    ],
}


@each_row(("name", "usage", "stream"), rows(USAGES, 0))
def test_usage_has_one_normal_form(name: str, usage: Usage, stream: bytes) -> None:
    """failures.md B19, I7, I8: what was not told is not known."""
    told = READINGS[name].message_of(stream).usage
    assert (told, told.known) == (usage, usage != Usage())
