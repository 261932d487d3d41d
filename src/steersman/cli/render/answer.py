"""The answer of a model while it arrives: thoughts, text, and the calls it is about to make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from steersman.cli.render.calls import entry
from steersman.cli.render.lines import CYAN, FAINT_ITALIC, count, cropped, flowed, painted, text_of
from steersman.cli.render.page import Page, Piece, Streamed
from steersman.cli.terminal.sanitize import one_line, safe
from steersman.types.stream import (
    Delta,
    Reset,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ThinkingEnd,
    ToolCallDelta,
    ToolCallStart,
)

_THINKING_LINES = 2
_MARGIN = 2
_LONG_CALL = 200
_MORE = "\u2026"


class Answer:
    """What has come of an answer; what is complete goes to the page."""

    def __init__(self, page: Page, *, verbose: bool) -> None:
        self.said = False
        self._page = page
        self._verbose = verbose
        self._text: Streamed | None = None
        self._thinking: list[str] = []
        self._calls: dict[int, list[Any]] = {}
        self._parts: list[Piece | Streamed] = []
        self._hears: Mapping[type[Any], Callable[[Any], None]] = {
            TextDelta: self._hear_text,
            TextEnd: self._end_text,
            ThinkingDelta: self._hear_thinking,
            ThinkingEnd: self._end_thinking,
            ToolCallStart: self._hear_call,
            ToolCallDelta: self._hear_arguments,
            Reset: self.void,
        }

    def hear(self, delta: Delta) -> None:
        """Take in a piece."""
        if (hear := self._hears.get(type(delta))) is not None:
            hear(delta)

    def begin(self) -> None:
        """A new answer."""
        self.close()
        self.said = False
        self._parts = []

    def end(self, text: str) -> None:
        """The answer is complete; its text, for the case that it came without pieces."""
        if not self.said and text.strip():
            self._hear_text(TextDelta(text))
        self.close()
        self._parts = []

    def close(self) -> None:
        """Nothing more will come of this answer."""
        self._end_thinking()
        self._end_text()
        self.forget_calls()

    def void(self, _delta: Reset | None = None) -> None:
        """What was shown of the answer does not count; what is printed stays, with a word about it."""
        self._thinking = []
        self.close()
        withdrawn = [self._page.withdraw(part) for part in self._parts]
        self._parts = []
        if not all(withdrawn):
            self._page.note("(the answer begins again)")

    def forget_calls(self) -> None:
        """The calls asked for are being carried out, and are shown elsewhere now."""
        self._calls = {}

    @property
    def activity(self) -> str:
        """What the model is doing, in a word or two."""
        if self._thinking:
            return "thinking"
        return "answering" if self._text is not None else "waiting for the model"

    def live_thinking(self, width: int) -> list[str]:
        """The end of the thought that is going on."""
        text = "".join(self._thinking[-400:])[-2_000:]
        return self._thought(text, width)[-_THINKING_LINES:] if text.strip() else []

    def live_text(self, width: int) -> list[str]:
        """The block of the answer that is not complete."""
        return [] if self._text is None else self._text.live(width)

    def live_calls(self, sign: str, width: int) -> list[str]:
        """The calls that are being asked for."""
        return [
            entry(
                (sign, CYAN),
                name,
                f"({count(size, 'character')} so far)" if size >= _LONG_CALL else "",
                [],
                width,
                color=self._page.color,
            )
            for name, size in self._calls.values()
        ]

    def _hear_text(self, delta: TextDelta) -> None:
        if self._text is None:
            self._end_thinking()
            self._text = self._page.stream()
            self._parts.append(self._text)
        self.said = True
        self._text.add(delta.delta)

    def _end_text(self, _delta: TextEnd | None = None) -> None:
        if self._text is not None:
            self._text.close()
            self._text = None

    def _hear_thinking(self, delta: ThinkingDelta) -> None:
        self._thinking.append(delta.delta)

    def _end_thinking(self, _delta: ThinkingEnd | None = None) -> None:
        text = "".join(self._thinking)
        self._thinking = []
        if text.strip():
            self._parts.append(self._page.put("thinking", lambda width: self._finished_thought(text, width)))

    def _hear_call(self, delta: ToolCallStart) -> None:
        self._end_thinking()
        self._end_text()
        self._calls[delta.content_index] = [one_line(delta.name), 0]

    def _hear_arguments(self, delta: ToolCallDelta) -> None:
        if delta.content_index in self._calls:
            self._calls[delta.content_index][1] += len(delta.delta)

    def _thought(self, text: str, width: int) -> list[str]:
        room = max(2, width - _MARGIN)
        return self._faint(_laid_out(text, room))

    def _finished_thought(self, text: str, width: int) -> list[str]:
        if self._verbose:
            return self._thought(text, width)
        room = max(2, width - _MARGIN)
        # Only the first lines are shown, so that only so much need be laid out.
        lines = _laid_out(text.strip()[: 8 * room], room)
        if len(lines) > _THINKING_LINES:
            *first, last = lines[:_THINKING_LINES]
            lines = [*first, f"{cropped(last, room - 1).removesuffix(_MORE)}{_MORE}"]
        return self._faint(lines)

    def _faint(self, lines: list[str]) -> list[str]:
        return [" " * _MARGIN + painted([(line, FAINT_ITALIC)], color=self._page.color) for line in lines]


def _laid_out(text: str, room: int) -> list[str]:
    lines = flowed([(safe(text.replace("\r\n", "\n")).strip(), "")], room)
    return [line for line in map(text_of, lines) if line.strip()]
