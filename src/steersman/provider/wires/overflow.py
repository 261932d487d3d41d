"""Recognises context overflow in the words of a server, and tells it from throttling: both talk about tokens."""

from __future__ import annotations

import re

_TOO_FAST_STATUS = frozenset((429, 503))

_THROTTLED = re.compile(r"throttlingexception|too many tokens, please wait|tokens per min", re.IGNORECASE)
_TOO_FAST = re.compile(rf"{_THROTTLED.pattern}|rate.?limit", re.IGNORECASE)

_CODES = frozenset(
    (
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "request_too_large",
    )
)

_N = r"[\d,._]+"

_TOO_LONG = re.compile(
    "|".join(
        (
            r"prompt is too long",  # Anthropic, and servers that copied it
            r"input length and `?max_tokens`? exceed context limit",  # Anthropic
            r"input is too long for requested model",  # Bedrock
            r"exceeds the context window",  # OpenAI
            rf"maximum context length is {_N} tokens",  # OpenAI, OpenRouter, vLLM
            rf"input token count (?:\(?{_N}\)? )?exceeds the maximum number of tokens allowed",  # Gemini
            rf"maximum prompt length is {_N} but the request contains",  # xAI
            r"reduce the length of the messages",  # Groq
            rf"your prompt contains at least {_N} input tokens",  # vLLM
            rf"you passed {_N} input tokens and requested {_N} output tokens",  # vLLM
            r"exceeds the available context size",  # llama.cpp
            r"greater than the context length",  # LM Studio
            r"context window exceeds limit",  # MiniMax
            r"exceeded model token limit",  # Kimi
            rf"too large for model with {_N} maximum context length",  # Mistral
            rf"model maximum context length: {_N}",
            rf"prompt has {_N} tokens, but the configured context size is",
            *(re.escape(code) for code in sorted(_CODES)),
        )
    ),
    re.IGNORECASE,
)

# Too many bytes: proxies say this before the model sees the request.
_TOO_LARGE = re.compile(
    r"request payload size exceeds the limit|request (?:body|entity|payload) (?:is )?too large|payload too large"
    r"|request exceeds the maximum (?:allowed )?(?:size|number of bytes)|maximum content size limit|request_too_large",
    re.IGNORECASE,
)

# The tokens sent (`sent`) and the context window (`window`), for overflows caused by the limit on output tokens.
_SHARED = tuple(
    re.compile(words.replace("SENT", rf"(?P<sent>{_N})").replace("WINDOW", rf"(?P<window>{_N})"), re.IGNORECASE)
    for words in (
        rf"exceed context limit: SENT \+ {_N} > WINDOW",  # Anthropic
        rf"maximum context length is WINDOW tokens.{{0,80}}?\("
        rf"(?P<sent>{_N} (?:in the messages|of text input|in your prompt)"
        rf"(?:,? (?:and )?{_N} (?:in the functions|of \w+ input))*)",  # OpenAI, OpenRouter
        r"maximum context length is WINDOW tokens and your request has SENT input tokens",  # vLLM
        rf"you passed SENT input tokens and requested {_N} output tokens.{{0,60}}? only WINDOW",  # vLLM
    )
)
_MIN_TOKEN_BUDGET = 4096

# Copilot uses the same words for every limit, so the message must not be about anything but tokens.
_OVER_LIMIT = re.compile(r"exceeds the limit of [\d,._]+(?!\s*[kmg]i?b\b|\s*(?:bytes|characters))", re.IGNORECASE)
_NOT_TOKENS = re.compile(r"\b(?:image|file|document|tool|function|page|stop sequence|size)s?\b", re.IGNORECASE)


def is_throttled(message: str) -> bool:
    """Whether the message says that requests come too fast, whatever the status."""
    return _THROTTLED.search(message) is not None


def is_overflow(message: str, *, status: int | None = None, code: str | None = None) -> bool:
    """Whether an error says that the request does not fit the context window of the model."""
    if status in _TOO_FAST_STATUS or _TOO_FAST.search(code or "") or _TOO_FAST.search(message):
        return False
    if code in _CODES or status == 413:
        return True
    if status == 400 and not message.strip():
        return True  # Cerebras sends an empty message
    if _TOO_LONG.search(message) or _TOO_LARGE.search(message):
        return True
    return _OVER_LIMIT.search(message) is not None and _NOT_TOKENS.search(message) is None


def is_too_large(message: str, *, status: int | None = None) -> bool:
    """Whether an overflow counts bytes, not tokens: the request body is too large to be read."""
    if _TOO_LARGE.search(message):
        return True
    return status == 413 and _TOO_LONG.search(message) is None


def find_token_budget(message: str) -> int | None:
    """Return the token budget left for the answer, if the message says it and it is large enough to try."""
    for words in _SHARED:
        if (found := words.search(message)) is not None:
            # The tokens sent may be listed in parts: messages, tools, images.
            budget = _parse_number(found["window"]) - sum(map(_parse_number, re.findall(_N, found["sent"])))
            return budget if budget >= _MIN_TOKEN_BUDGET else None
    return None


def _parse_number(digits: str) -> int:
    return int("".join(filter(str.isdigit, digits)) or "0")
