"""Tells a request that was too long for the model from one that came too fast: both talk about tokens."""

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

# Copilot's words fit any limit, so what is counted must not be something else.
_OVER_LIMIT = re.compile(r"exceeds the limit of [\d,._]+(?!\s*[kmg]i?b\b|\s*(?:bytes|characters))", re.IGNORECASE)
_NOT_TOKENS = re.compile(r"\b(?:image|file|document|tool|function|page|stop sequence|size)s?\b", re.IGNORECASE)


def is_throttled(message: str) -> bool:
    """Whether a server says in words that requests come too fast, whatever status it says so with."""
    return _THROTTLED.search(message) is not None


def classify_overflow(message: str, *, status: int | None = None, code: str | None = None) -> bool:
    """Whether a server's error says that the request is longer than the model's window."""
    if status in _TOO_FAST_STATUS or _TOO_FAST.search(code or "") or _TOO_FAST.search(message):
        return False
    if code in _CODES or status == 413:
        return True
    if status == 400 and not message.strip():
        return True  # Cerebras gives no words at all
    if _TOO_LONG.search(message):
        return True
    return _OVER_LIMIT.search(message) is not None and _NOT_TOKENS.search(message) is None
