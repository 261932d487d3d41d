from __future__ import annotations

import msgspec
import pytest
from tests.rows import each_row

from steersman.provider.wires.anthropic.wire import WIRE as ANTHROPIC
from steersman.provider.wires.google.wire import WIRE as GOOGLE
from steersman.provider.wires.openai_chat.wire import WIRE as CHAT
from steersman.provider.wires.openai_responses.wire import WIRE as RESPONSES
from steersman.provider.wires.overflow import (
    find_token_budget,
    has_too_many_images,
    is_overflow,
    is_throttled,
    is_too_large,
    takes_no_images,
)
from steersman.provider.wires.protocol import Wire
from steersman.provider.wires.retry_after import classify_status, parse_retry_after
from steersman.types.model import Model

WIRES: dict[str, Wire] = {"anthropic": ANTHROPIC, "google": GOOGLE, "openai-chat": CHAT, "openai": RESPONSES}

TOO_MANY_IMAGES = [
    "messages.8.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed size for "
    "many-image requests: 2000 pixels",
    "too many images and documents: 104 + 1 > 100",
    "Too much media: 0 document pages + 103 images > 100",
    "The model returned the following errors: messages: too many images: image_count > 20",
    "Exceeded maximum number of images (50) allowed in the request.",
    "At most 5 image(s) may be provided in one request.",
    "You set or defaulted to image=4 in --limit-mm-per-prompt, but passed 10 image items in the same prompt.",
    "The request contains too many images: 11 images were provided, but the model supports a maximum of 10 images.",
    "Too many images provided. This model supports up to 5 images",
]

NO_IMAGES = [
    "Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected "
    "`text` at line 1 column 679289",
    "Model only supports text input; received unsupported content type 'image_url'.",
    "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
    "No endpoints found that support image input",
    "This model doesn't support the image field for user messages. Remove image and try again.",
    "Invalid content type. image_url is only supported by certain models.",
    "/models/qwen3 is not a multimodal model",
]

TOO_LONG = [
    "prompt is too long: 213462 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 196758 + 8192 > 200000, decrease input length or `max_tokens`",
    "ValidationException: Input is too long for requested model.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "The input token count exceeds the maximum number of tokens allowed 1048576.",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "This endpoint's maximum context length is 163,840 tokens. However, you requested about 170,000 tokens",
    "you requested 0 output tokens and your prompt contains at least 40961 input tokens",
    "You passed 40961 input tokens and requested 0 output tokens. However, the model's context length is only 40960.",
    "the request exceeds the available context size, try increasing it",
    "exceed_context_size_error",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "prompt token count of 136789 exceeds the limit of 128000",
    "exceeds the limit of 128000",
    "invalid params, context window exceeds limit (2013)",
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
    "Prompt contains 200000 tokens, too large for model with 131072 maximum context length",
    "The prompt is too long: 300000, model maximum context length: 131072",
    "Prompt has 9000 tokens, but the configured context size is 8192 tokens",
    "Error code: 400 - {'code': 'context_length_exceeded'}",
    "stopped: model_context_window_exceeded",
    "The request payload size has exceed context limit.",
    "This model's maximum context length was exceeded",
    "MAXIMUM CONTEXT LENGTH IS 1024.",
    "Invalid 'messages[3].content': string too long. Expected a string with maximum length 1048576, but got 1540820.",
    "Malformed input request: expected maxLength: 2097152, actual: 3000000, please reformat your input",
    "The input exceeds the model's maximum context limit of 8192 tokens.",
    "Your prompt is longer than the model's context length of 2048.",
    "The decoder prompt (length 12345) is longer than the maximum model length of 8192.",
    "Input tokens exceed the configured limit of 272000 tokens.",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
    "`inputs` must have less than 4096 tokens. Given: 5000",
    "Current length is 132784 while limit is 131000",
    "Invalid 'input[0]': maximum input length is 8192 tokens.",
    "Too many input tokens. Max input tokens: 8192, request input token count: 9000",
    "too many tokens: total number of tokens in this request cannot exceed 4081.",
    "Prompt has too many tokens",
    "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model",
    "input or output tokens must be reduced",
    "prompt too long; exceeded max context length by 1119046 tokens",
    "The total length of all messages is too long.",
    "Input length (30000 tokens) exceeds the maximum allowed length (20000 tokens).",
    "input and output tokens exceed your context limit",
    "The estimated number of input and maximum output tokens (8193) exceeded this model context window limit (7968).",
    "too many total text bytes",
    "Unable to submit request because the input token count is 2000000 but model only supports up to 1048576.",
    "a sequence length of 8300, but the maximum supported sequence length is just 8192!",
    "Trying to keep the first 12345 tokens when context the overflows.",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    "Prompt exceeds max length",
    "tokens in request more than max tokens allowed",
    "input is too large to process. increase the physical batch size",
    "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    "total message size 10176584 exceeds limit 2097152",
    *TOO_MANY_IMAGES,
    *NO_IMAGES,
]

TOO_FAST = [
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "Too many tokens, please wait before trying again.",
    "Request too large on tokens per min (TPM): Limit 30000. Please reduce the length of the messages",
    "Rate limit reached: prompt is too long for your tier",
    "Number of request tokens has exceeded your per-minute rate limit",
    "Daily token limit exceeded",
    "You exceeded your current quota of input tokens",
    "Too many tokens, please slow down",
]

NEITHER = [
    "max_tokens: must be at least 1",
    "image exceeds the limit of 5 MB",
    "The number of tools exceeds the limit of 128",
    "file name exceeds the limit of 255 characters",
    "invalid x-api-key",
    "Overloaded",
    "The context is large, but acceptable.",
    "context deadline exceeded",
    "The long context beta is not yet available for this subscription.",
    "In context=(), 'required' is required to be supplied",
    "Invalid 'user': string too long. Expected a string with maximum length 64, but got 123 instead.",
    "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024",
    "Invalid 'tools': array too long. Expected an array with maximum length 128",
    "Invalid 'metadata': maximum input length is 512 characters.",
    "max_tokens is too large: 200000. This model supports at most 128000 completion tokens",
    "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for this model",
    "The request's max_tokens (100000) exceeds the maximum output tokens (8192)",
    "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the "
    "`context_window` for this model",
    "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is "
    "lower than 4096.",
    "thinking.budget_tokens must be less than max_tokens",
    "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
    "Input image is too large",
    "messages.7.content.2.image.source.base64.data: At least one of the image dimensions exceed max allowed size: "
    "8000 pixels",
    "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    "Cached content is too small. total_token_count=12, min_total_token_count=4096",
    "maximum number of concurrent requests exceeded",
    "The requested model is too large to load",
    "logit_bias has too many tokens",
    "",
]


@each_row("message", TOO_LONG)
def test_every_wording_of_too_long_is_known(message: str) -> None:
    """loop.md C5"""
    assert is_overflow(message)
    assert is_overflow(message.upper(), status=400)


@each_row("message", TOO_LONG)
def test_too_many_images_are_told_from_too_many_tokens(message: str) -> None:
    """failures.md E9"""
    assert has_too_many_images(message) is (message in TOO_MANY_IMAGES)
    assert takes_no_images(message) is (message in NO_IMAGES)


@each_row("message", TOO_FAST)
def test_throttling_is_not_overflow(message: str) -> None:
    """loop.md C5"""
    assert not is_overflow(message)
    assert not is_overflow(message, status=413, code="context_length_exceeded")


@each_row("message", TOO_LONG)
@each_row("status", [429, 503])
def test_a_status_of_throttling_outweighs_any_wording(message: str, status: int) -> None:
    """loop.md C5"""
    assert not is_overflow(message, status=status, code="context_length_exceeded")


@each_row("message", NEITHER)
def test_other_limits_and_errors_are_not_overflow(message: str) -> None:
    assert not is_overflow(message)


@each_row(
    "code",
    [
        "context_length_exceeded",
        "CONTEXT_LENGTH_EXCEEDED",
        "ContextWindowExceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "model_max_prompt_tokens_exceeded",
        "tokens_limit_reached",
        "too_many_prompt_tokens",
        "request_too_large",
    ],
)
def test_a_code_needs_no_words(code: str) -> None:
    assert is_overflow("Bad request", status=400, code=code)


@pytest.mark.parametrize(("code", "expected"), [("ThrottlingException", False), ("rate_limit_exceeded", False)])
def test_a_code_of_throttling_outweighs_the_words(code: str, expected: bool) -> None:
    assert is_overflow("prompt is too long", code=code) is expected


@pytest.mark.parametrize(
    ("message", "status", "expected"),
    [("", 400, True), ("  ", 413, True), ("<html>Request Entity Too Large</html>", 413, True), ("", 401, False)],
)
def test_a_body_too_large_or_an_error_without_any_words_is_overflow(message: str, status: int, expected: bool) -> None:
    assert is_overflow(message, status=status) is expected


@pytest.mark.parametrize(
    ("message", "status", "heavy"),
    [
        ("Request exceeds the maximum size", None, True),
        ("Request payload size exceeds the limit: 20971520 bytes.", 400, True),
        ("Maximum content size limit (26214400) exceeded (26226026 bytes read)", 413, True),
        ("<html>Request Entity Too Large</html>", 413, True),
        ("", 413, True),
        ("prompt is too long: 213462 tokens > 200000 maximum", 413, False),
        ("prompt is too long: 213462 tokens > 200000 maximum", 400, False),
    ],
)
def test_too_many_bytes_are_told_from_too_many_tokens(message: str, status: int | None, heavy: bool) -> None:
    """failures.md E9"""
    assert is_overflow(message, status=status)
    assert is_too_large(message, status=status) is heavy


@each_row(
    ("message", "room"),
    [
        ("input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease", 10_000),
        ("input length and `max_tokens` exceed context limit: 196758 + 8192 > 200000, decrease", None),
        ("input length and `max_tokens` exceed context limit: 210000 + 8192 > 200000", None),
        ("maximum context length is 8192 tokens. However, you requested 9000 tokens (904 in the messages, 8096", 7_288),
        ("maximum context length is 8192 tokens, however you requested 9000 tokens (904 in your prompt; 8096", 7_288),
        (
            "maximum context length is 128000 tokens. However, you requested 129000 tokens (118000 in the messages, "
            "3000 in the functions, and 8000 in the completion).",
            7_000,
        ),
        (
            "maximum context length is 200,000 tokens. However, you requested about 203,000 tokens (190,000 of text "
            "input, 5,000 of tool input, 8,000 in the output).",
            5_000,
        ),
        ("maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.", None),
        ("prompt is too long: 213462 tokens > 200000 maximum", None),
        ("exceed context limit: ., + ., > .,", None),
    ],
)
def test_the_room_that_a_server_names_is_worth_asking_for(message: str, room: int | None) -> None:
    """failures.md E10"""
    assert find_token_budget(message) == room


def kind(name: str, status: int, message: str, **more: str) -> str:
    """What the error of a server means in this protocol."""
    body = msgspec.json.encode({"error": {"message": message, **more}})
    return WIRES[name].error(Model(name, "m"), status, {}, body).info.kind


@each_row("name", WIRES)
@each_row("message", TOO_LONG)
@each_row("status", [400, 500])
def test_every_wording_is_overflow_in_every_protocol(name: str, message: str, status: int) -> None:
    """failures.md E6"""
    assert kind(name, status, message) == "context_overflow"


@each_row("name", WIRES)
@each_row("message", TOO_FAST[:3])
@each_row("status", [400, 413, 429, 503])
def test_throttling_is_a_rate_limit_in_every_protocol(name: str, message: str, status: int) -> None:
    """failures.md E6: retried, and not compacted, whatever status a gateway gives it."""
    assert kind(name, status, message) == "rate_limit"


@pytest.mark.parametrize("code", ["context_length_exceeded", "CONTEXT_LENGTH_EXCEEDED"])
@pytest.mark.parametrize("name", [name for name in WIRES if name != "google"])  # whose codes are numbers
def test_a_code_of_overflow_needs_no_words_in_any_protocol(name: str, code: str) -> None:
    """failures.md E6: structured code first, whatever its case."""
    assert kind(name, 400, "Bad request", code=code) == "context_overflow"


@each_row("name", WIRES)
@each_row("message", [message for message in NEITHER if message])
def test_other_limits_are_not_overflow_in_any_protocol(name: str, message: str) -> None:
    """failures.md E6: the negative table."""
    assert kind(name, 400, message) in ("invalid_request", "authentication")


def test_words_are_looked_for_at_the_beginning_of_a_message() -> None:
    """An event inside a stream may have millions of characters: to look through all of them takes seconds."""
    far = "1 " * 100_000
    overflow, throttled = "prompt is too long: 9 tokens > 8 maximum", "ThrottlingException"
    budget = "maximum context length is 10000 tokens and your request has 100 input tokens"
    large = "request payload size exceeds the limit"
    assert [is_overflow(overflow + far), is_throttled(throttled + far), is_too_large(large + far)] == [True] * 3
    assert [is_overflow(far + large), is_throttled(far + throttled), is_too_large(far + large)] == [False] * 3
    assert (find_token_budget(budget + far), find_token_budget(far + budget)) == (9_900, None)
    assert parse_retry_after({}, clock=lambda: 0.0, body="Please retry in 2s. " + far) == 2.0
    assert parse_retry_after({}, clock=lambda: 0.0, body=far + "Please retry in 2s. ") is None
    assert classify_status(400, far + "invalid api key") == "invalid_request"
