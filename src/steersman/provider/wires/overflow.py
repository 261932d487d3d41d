"""Recognises context overflow in the words of a server, and tells it from throttling: both talk about tokens.

The words differ from server to server, so a few rules describe them instead of a list of sentences. A rule looks for
what is too long (the context window, the tokens of the prompt, the length of the messages) near words for "too much".
Limits on the output, on one field or on a file are not overflow.
"""

from __future__ import annotations

import re

from steersman.provider.wires.retry_after import LONGEST_WORDS

_TOO_FAST_STATUS = frozenset((429, 503))

_THROTTLED = re.compile(
    r"throttlingexception|too many tokens,? (?:please )?(?:wait|slow)|tokens per (?:min|day|hour)", re.IGNORECASE
)
# A limit on how much is asked for in a time; time helps, and a shorter request does not.
_TOO_FAST = re.compile(
    rf"{_THROTTLED.pattern}|rate.?limit|throttl|too many requests|\bquota|\b[tr]p[md]\b"
    r"|\bper.(?:minute|hour|day|month)\b|\b(?:daily|hourly|monthly|weekly)\b"
    r"|please wait|try again later|slow down|credit balance|billing",
    re.IGNORECASE,
)

# Of codes only the letters are compared: `context_length_exceeded` is also written ContextLengthExceeded.
_CODE = re.compile(
    r"context(?:length|window|size|limit)\w*exceed|exceed\w*context(?:length|window|size|limit)|contextoverflow"
    r"|(?:prompt|input|context|conversation|request)too(?:long|large|big)|toomany(?:prompt|input|context)?tokens"
    r"|prompttokensexceeded|tokenslimitreached"
)

_N = r"[\d,._]+"

# The rules see lower case without quotation marks, and spaces for `_` and `-`.
_MARKS = str.maketrans({"_": " ", "-": " ", "`": "", "'": "", '"': "", "\u2019": "", "*": ""})
_NEAR = r"(?:[^.\n]|\.(?=\d)){0,%d}?"
_MUCH = (
    r"(?:exceed\w*|too (?:long|large|big|many)|(?:longer|larger|greater|bigger|more) than|overflow\w*|surpass\w*|beyond"
    r"|not enough|(?:is|of) only|only supports?|not (?:fit|possible)|must (?:be|have) (?:<=|less|fewer|at most"
    r"|shorter|reduced))"
)
_WINDOW = (
    r"(?:context (?:length|window|size|limit)|(?:max(?:imum)?|models?) (?:model |context |supported |allowed )?"
    r"(?:(?:context|prompt|sequence|input) )?(?:token )?(?:len(?:gth)?|limit)|\bn ctx\b|\bkv size)"
)
_ASKED = r"\b(?:prompts?|inputs?|messages|conversation|requests?|query|history)\b"

_TOO_LONG = re.compile(
    "|".join(
        (
            rf"{_WINDOW}{_NEAR % 80}\b{_MUCH}",
            rf"{_MUCH}{_NEAR % 80}{_WINDOW}",
            rf"max(?:imum)? (?:supported )?(?:context|(?:prompt|sequence) (?:length|size))(?: length| size)?(?: limit)?"
            rf"(?: is|:| of)?(?: just| only)? {_N}",
            rf"(?:prompt|context) (?:size|length) is {_N}",
            r"context (?:the )?overflow|contextwindowexceeded|contextlengthexceeded",
            rf"\b(?:input|prompt) tokens?\b{_NEAR % 60}\b{_MUCH}",
            rf"tokens in (?:the |this |your )?request\b{_NEAR % 40}{_MUCH}",
            r"\bprompt(?: is)? too long",  # Anthropic and Ollama
            r"prompt exceeds max",  # z.ai
            rf"your prompt contains at least {_N} input tokens",  # vLLM
            rf"you passed {_N} input tokens and requested {_N} output tokens",  # vLLM
            r"range of input length should be",  # DashScope
            rf"current length is {_N} while limit is",  # Cerebras
            r"too many total text bytes",  # Bedrock
            r"input is too large to process",  # llama.cpp
        )
    )
)

# What is said of prompts is said of other things too: these rules need a message that is about nothing else.
_PROBABLY_TOO_LONG = re.compile(
    "|".join(
        (
            r"too many (?:(?:input|prompt|total|context) )*tokens(?! (?:to|for) (?:generate|output))",
            rf"\btokens?\b{_NEAR % 60}\b{_MUCH}",
            rf"{_ASKED}{_NEAR % 60}\b{_MUCH}{_NEAR % 60}\btokens?\b",
            rf"{_MUCH}{_NEAR % 40}\btokens? (?:limit|allowed|maximum)",
            r"(?:total|number of) tokens\b.{0,60}cannot exceed",
            rf"{_ASKED}(?: \w+){{0,3}} too (?:long|large|big)\b",
            r"reduce (?:the |your )?(?:(?:length|size|number) of )?(?:\w+ ){0,2}(?:prompt|input|messages|conversation"
            r"|context)\b",
            r"tokens? must be reduced",
            rf"max(?:imum)? input (?:length|size)(?: is|:| of)? {_N} tokens",
            rf"exceeds the limit of {_N}(?!\s*[kmg]i?b\b|\s*(?:bytes|characters))",  # Copilot
        )
    )
)
_OTHER_THINGS = re.compile(
    r"\b(?:images?|files?|documents?|pdf|audio|video|tools?|functions?|pages?|stop sequences?|sizes?|names?|ids?|key"
    r"|title|descriptions?|user|metadata|headers?|url|schema|label|characters|budget|cache\w*|logit bias)\b"
)
_OUTPUT = re.compile(r"\bmax (?:output |completion )?tokens\b|\b(?:output|completion|generated) tokens\b")
_PROMPT = re.compile(r"\b(?:prompts?|inputs?|messages|conversation)\b")
# The limit that a request sets for the answer is above that of the model (Groq, Bedrock): no shorter prompt helps.
_OUTPUT_LIMIT = re.compile(
    r"\bmax(?:imum)? (?:new |output |completion )?tokens(?: you requested)?"
    r" (?:must be (?:less|smaller)|exceeds|is too)\b"
)
# The limit on one text: on the prompt, if it is this large.
_TEXT_LIMIT = re.compile(r"(?:string too long.{0,60}?maximum length|expected maxlength:) (\d+)")
_LONGEST_FIELD = 100_000
# Some servers quote the request; what they say comes first.
_LONGEST_MESSAGE = 4_000

# Too many bytes: proxies say this before the model sees the request.
_TOO_LARGE = re.compile(
    r"request payload size exceeds the limit|request (?:body|entity|payload) (?:is )?too large|payload too large"
    r"|request exceeds the maximum (?:allowed )?(?:size|number of bytes)|maximum content size limit"
    r"|request_too_large|message size \d+ exceeds",
    re.IGNORECASE,
)
# A limit on the number of images, or on their size where there are many: it is met only late in a conversation.
_TOO_MANY_IMAGES = re.compile(
    r"too many (?:images|image parts)|too much media:|for many-image requests|limit-mm-per-prompt"
    r"|maximum (?:number of )?images\b|at most \d+ (?:images?\b|image\(s\)) may be provided|image_count > \d",
    re.IGNORECASE,
)
# The model reads only text.
_NO_IMAGES = re.compile(
    r"unknown variant `image_url`|unsupported content type 'image_url'|image_url is only supported by"
    r"|image inputs? (?:is|are) not|required for image input|no endpoints found that support image"
    r"|(?:does not|doesn't|not) support (?:the )?(?:images?|vision)\b|is not a multimodal model",
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


def is_throttled(message: str) -> bool:
    """Whether the message says that requests come too fast, whatever the status."""
    return _THROTTLED.search(message[:LONGEST_WORDS]) is not None


def is_overflow(message: str, *, status: int | None = None, code: str | None = None) -> bool:
    """Whether an error says that the request does not fit the context window of the model."""
    message, code = message[:LONGEST_WORDS], code and code[:LONGEST_WORDS]
    if status in _TOO_FAST_STATUS or _TOO_FAST.search(code or "") or _TOO_FAST.search(message):
        return False
    if status == 413 or (code and _CODE.search("".join(filter(str.isalpha, code.lower())))):
        return True
    if status == 400 and not message.strip():
        return True  # Cerebras sends an empty message
    if has_too_many_images(message) or takes_no_images(message):
        return True
    return _is_too_long(message) or _TOO_LARGE.search(message) is not None


def _is_too_long(message: str) -> bool:
    words = " ".join(message[:_LONGEST_MESSAGE].lower().translate(_MARKS).split())
    if _OUTPUT_LIMIT.search(words) and _PROMPT.search(words) is None:
        return False
    if _TOO_LONG.search(words):
        return True
    if (found := _TEXT_LIMIT.search(words)) is not None:
        return int(found[1]) >= _LONGEST_FIELD
    if _PROBABLY_TOO_LONG.search(words) is None or _OTHER_THINGS.search(words) is not None:
        return False
    return _OUTPUT.search(words) is None or _PROMPT.search(words) is not None


def has_too_many_images(message: str) -> bool:
    """Whether an overflow counts images: more than the server takes, or too large ones among so many."""
    return _TOO_MANY_IMAGES.search(message[:LONGEST_WORDS]) is not None


def takes_no_images(message: str) -> bool:
    """Whether the model takes no images at all: those of a tool, or of another model's turn, fail all requests."""
    return _NO_IMAGES.search(message[:LONGEST_WORDS]) is not None


def is_too_large(message: str, *, status: int | None = None) -> bool:
    """Whether an overflow counts bytes, not tokens: the request body is too large to be read."""
    if _TOO_LARGE.search(message[:LONGEST_WORDS]):
        return True
    return status == 413 and not _is_too_long(message)


def find_token_budget(message: str) -> int | None:
    """Return the token budget left for the answer, if the message says it and it is large enough to try."""
    for words in _SHARED:
        if (found := words.search(message[:LONGEST_WORDS])) is not None:
            # The tokens sent may be listed in parts: messages, tools, images.
            budget = _parse_number(found["window"]) - sum(map(_parse_number, re.findall(_N, found["sent"])))
            return budget if budget >= _MIN_TOKEN_BUDGET else None
    return None


def _parse_number(digits: str) -> int:
    return int("".join(filter(str.isdigit, digits)) or "0")
