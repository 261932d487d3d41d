"""The functions to write a script with: what the scripted model answers in one turn.

    ScriptedModel(
        answer(text("Let me look."), call("read", path="a.txt")),
        error("overloaded"),
        "It says hello.",
    )

A turn is the result of one of these functions, a string, a block, a list of blocks, or a function of the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall, parse_tool_call
from steersman.types.errors import ErrorInfo, ErrorKind, ProviderError
from steersman.types.messages import StopReason
from steersman.types.model import Request
from steersman.types.usage import Usage

Block: TypeAlias = str | Content
Ending: TypeAlias = Literal["done", "cut", "stall"] | ErrorInfo | BaseException


@dataclass(frozen=True, slots=True)
class Turn:
    """One scripted turn: its content, and how it ends.

    `after` is the number of deltas before the end; `None` means all of them. A turn without any content
    (`blocks` empty, `after` `None`, not an answer) ends before its first event, as a refused connection does.
    """

    blocks: tuple[Content, ...] = ()
    ending: Ending = "done"
    stop_reason: StopReason | None = None
    raw_stop_reason: str | None = None
    usage: Usage | None = None
    deltas: int | None = None
    pace: float | None = None
    after: int | None = None
    ignored_cancels: int = 0


TurnLike: TypeAlias = Turn | Block | ErrorInfo | BaseException | Sequence[Block]
Reaction: TypeAlias = Callable[[Request], TurnLike | Awaitable[TurnLike]]
"""A turn that depends on the request."""


def text(words: str, *, signature: str | None = None) -> TextContent:
    """A text block."""
    return TextContent(words, signature)


def thinking(words: str, *, signature: str | None = None) -> ThinkingContent:
    """A thinking block."""
    return ThinkingContent(words, signature)


def call(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    /,
    *,
    id: str | None = None,
    raw: str | None = None,
    **more: Any,
) -> ToolCall:
    """A tool call; without an `id` it is numbered (`call_1`, ...); `raw` are the arguments as the exact JSON text."""
    if raw is not None:
        return parse_tool_call(id or "", name, raw)
    return ToolCall(id or "", name, {**(arguments or {}), **more})


def answer(
    *blocks: Block,
    stop_reason: StopReason | None = None,
    raw_stop_reason: str | None = None,
    usage: Usage | None = None,
    deltas: int | None = None,
    pace: float | None = None,
) -> Turn:
    """A whole answer: `deltas` pieces per block, `pace` seconds before each (0 only yields to the event loop)."""
    return Turn(_to_blocks(blocks), "done", stop_reason, raw_stop_reason, usage, deltas, pace)


def error(
    what: ErrorKind | ErrorInfo | Exception,
    *blocks: Block,
    after: int | None = None,
    usage: Usage | None = None,
    deltas: int | None = None,
    pace: float | None = None,
) -> Turn:
    """An answer that fails with an `error` event, at once or after some deltas."""
    return _build_broken_turn(_to_error_info(what), blocks, after=after, usage=usage, deltas=deltas, pace=pace)


def raises(exception: BaseException, *blocks: Block, after: int | None = None, pace: float | None = None) -> Turn:
    """An answer whose stream raises, at once or after some deltas."""
    return _build_broken_turn(exception, blocks, after=after, pace=pace)


def stall(*blocks: Block, after: int | None = None, pace: float | None = None, ignored_cancels: int = 0) -> Turn:
    """An answer that never ends; it ignores the first `ignored_cancels` cancels."""
    return _build_broken_turn("stall", blocks, after=after, pace=pace, ignored_cancels=ignored_cancels)


def cut(*blocks: Block, after: int | None = None, pace: float | None = None) -> Turn:
    """An answer whose stream ends without its terminal event."""
    return _build_broken_turn("cut", blocks, after=after, pace=pace)


def to_turn(value: TurnLike) -> Turn:
    """A turn from any of the forms that a script accepts."""
    match value:
        case Turn():
            return value
        case ErrorInfo():
            return error(value)
        case BaseException():
            return raises(value)
        case str() | TextContent() | ThinkingContent() | ToolCall():
            return answer(value)
        case Sequence():
            return answer(*value)
        case _:
            raise TypeError(f"A turn must be an answer(...), a string, a block or a list of these, got {value!r}.")


def _build_broken_turn(
    ending: Ending,
    blocks: Sequence[Block],
    *,
    after: int | None,
    usage: Usage | None = None,
    deltas: int | None = None,
    pace: float | None = None,
    ignored_cancels: int = 0,
) -> Turn:
    shown = _to_blocks(blocks)
    if after and not shown:
        shown, deltas = (TextContent("partial " * after),), after
    return Turn(shown, ending, None, None, usage, deltas, pace, after, ignored_cancels)


def _to_blocks(blocks: Sequence[Block]) -> tuple[Content, ...]:
    return tuple(TextContent(block) if isinstance(block, str) else block for block in blocks)


def _to_error_info(what: ErrorKind | ErrorInfo | Exception) -> ErrorInfo:
    match what:
        case ErrorInfo():
            return what
        case ProviderError():
            return what.info
        case Exception():
            return ErrorInfo("internal", f"{type(what).__name__}: {what}")
        case _ if what in get_args(ErrorKind):
            return ErrorInfo(what, f"scripted error: {what}")
        case _:
            raise ValueError(f"No error kind {what!r}. Kinds: {', '.join(get_args(ErrorKind))}.")
