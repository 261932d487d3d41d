"""Streams of Gemini, written chunk by chunk, and what our decoder makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.provider.wires.reading import REQUEST, Reading

from steersman.provider.wires.google.wire import WIRE
from steersman.types.content import Content, ToolCall
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, ToolSpec
from steersman.types.stream import StreamEvent, StreamStart

MODEL = Model("google", "gemini-2.5-flash")
GEMINI_3 = Model("google", "gemini-3-pro-preview")
_READING = Reading(WIRE, MODEL)

Json = dict[str, Any]


def chunk(*parts: Json, finish: Any = None, usage: Json | None = None, **more: Any) -> Json:
    """One chunk, with the content of its candidate where there are parts."""
    candidate: Json = {"index": 0}
    if parts:
        candidate["content"] = {"parts": list(parts), "role": "model"}
    if finish is not None:
        candidate["finishReason"] = finish
    whole: Json = {"candidates": [candidate], "modelVersion": "gemini", **more}
    if usage is not None:
        whole["usageMetadata"] = usage
    return whole


def text(words: str, signature: str | None = None) -> Json:
    """A text part."""
    return {"text": words} if signature is None else {"text": words, "thoughtSignature": signature}


def thought(words: str, signature: str | None = None) -> Json:
    """A thought part."""
    return {**text(words, signature), "thought": True}


def call(name: str, args: Any = None, id: str | None = None, signature: str | None = None) -> Json:
    """A function call part."""
    inner: Json = {"name": name}
    if args is not None:
        inner["args"] = args
    if id is not None:
        inner["id"] = id
    return {"functionCall": inner} if signature is None else {"functionCall": inner, "thoughtSignature": signature}


def stream(*chunks: Any, end: bytes = b"\r\n") -> bytes:
    """The bytes of a stream."""
    return b"".join(b"data: " + msgspec.json.encode(item) + end + end for item in chunks)


def events_of(
    *reads: bytes, model: Model = MODEL, tools: Sequence[ToolSpec] = ()
) -> tuple[list[StreamEvent], AssistantMessage]:
    """The events and the message of a stream that came in these reads."""
    return _READING.read(reads, model=model, request=Request("", REQUEST.messages, tools))


def message_of(*chunks: Any, model: Model = MODEL, tools: Sequence[ToolSpec] = ()) -> AssistantMessage:
    """The message of a stream of these chunks."""
    return events_of(stream(*chunks), model=model, tools=tools)[1]


def content_of(*chunks: Any) -> list[Content]:
    """The blocks of a stream, with the ids that were made here left out."""
    return [without_id(block) for block in message_of(*chunks).content]


def without_id(block: Any) -> Any:
    """A block as it is in every process: ids that Gemini did not give are made anew each time."""
    if isinstance(block, ToolCall) and block.id.startswith("call_"):
        return msgspec.structs.replace(block, id="")
    return block


def plain(events: Sequence[StreamEvent]) -> list[Any]:
    """Events without the ids that were made here, and the start."""
    kept: list[Any] = []
    for event in events:
        if isinstance(event, StreamStart):
            continue
        fields = msgspec.to_builtins(event)
        if str(fields.get("id", "")).startswith("call_"):
            fields["id"] = ""
        if fields.get("tool_call"):
            fields["tool_call"]["id"] = ""
        kept.append(fields)
    return kept


def any_signature(signature: str, part: Json) -> bool:
    """Takes every signature on every part."""
    return bool(signature and part)


def silent(**_: Any) -> str:
    """A tool that does nothing."""
    return ""


def _chunk(parts: list[Json], usage: Json | None) -> Json:
    return chunk(*parts, usage=usage)


# Anything that servers write, also what other clients trip over: line separators of Unicode, and halves of lines.
words = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    ["Grüße", "日本語", "🙂", "a\u2028b", "x\u0085y", "\x0b\x0c\x1c", "\ufeff", "data: {}", "\n\n", "\\ud83d"]
)
signatures = st.none() | st.sampled_from(["c2ln", "QUJD", "Zm9v"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(words, values, max_size=3)
names = st.sampled_from(["add", "look_up", "calendar.list"])
parts = st.one_of(
    st.builds(text, words, signatures),
    st.builds(thought, words, signatures),
    st.builds(call, names, st.none() | arguments, st.none() | st.sampled_from(["a", "b", "c"]), signatures),
)
counts = st.integers(0, 10_000)
usages = st.none() | st.fixed_dictionaries(
    {"promptTokenCount": st.integers(10_000, 20_000)},
    optional={
        "cachedContentTokenCount": counts,
        "candidatesTokenCount": counts,
        "thoughtsTokenCount": counts,
        "toolUsePromptTokenCount": counts,
    },
)


@st.composite
def streams(draw: st.DrawFn, finish: st.SearchStrategy[str] | None = None) -> list[Json]:
    """Whole streams."""
    middle = draw(st.lists(st.builds(_chunk, st.lists(parts, max_size=3), usages), max_size=5))
    last = draw(st.lists(parts, max_size=2))
    reason = draw(finish or st.sampled_from(["STOP", "STOP", "MAX_TOKENS"]))
    return [*middle, chunk(*last, finish=reason, usage=draw(usages), responseId="r1")]
