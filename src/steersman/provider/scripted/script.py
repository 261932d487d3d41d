"""The words a script is written in: what the scripted model says in one turn.

    ScriptedModel(
        answer(text("Let me look."), call("read", path="a.txt")),
        error("overloaded"),
        "It says hello.",
    )

A turn is what these functions give, a string, a block, a list of blocks, or a function of the request that gives one.
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
    """One scripted turn: what is shown, and how it ends.

    `after` is the number of deltas shown before the end; `None` shows all of them. A turn that shows nothing at all
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
    deaf: int = 0


TurnLike: TypeAlias = Turn | Block | ErrorInfo | BaseException | Sequence[Block]
Reaction: TypeAlias = Callable[[Request], TurnLike | Awaitable[TurnLike]]
"""A turn that depends on what was asked."""


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
    """A tool call; without an `id` the script numbers it (`call_1`, ...), and `raw` is arguments exactly as written."""
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
    """A whole answer: `deltas` pieces per block, `pace` seconds before each (0 only lets others run)."""
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


def stall(*blocks: Block, after: int | None = None, pace: float | None = None, deaf: int = 0) -> Turn:
    """An answer that never ends; it takes being cancelled, after ignoring that `deaf` times."""
    return _build_broken_turn("stall", blocks, after=after, pace=pace, deaf=deaf)


def cut(*blocks: Block, after: int | None = None, pace: float | None = None) -> Turn:
    """An answer whose stream ends without its terminal event."""
    return _build_broken_turn("cut", blocks, after=after, pace=pace)


def to_turn(value: TurnLike) -> Turn:
    """A turn from whatever may stand for one."""
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
            raise TypeError(f"A turn is an answer(...), a string, a block or a list of these, got {value!r}.")


def _build_broken_turn(
    ending: Ending,
    blocks: Sequence[Block],
    *,
    after: int | None,
    usage: Usage | None = None,
    deltas: int | None = None,
    pace: float | None = None,
    deaf: int = 0,
) -> Turn:
    shown = _to_blocks(blocks)
    if after and not shown:
        shown, deltas = (TextContent("partial " * after),), after
    return Turn(shown, ending, None, None, usage, deltas, pace, after, deaf)


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
