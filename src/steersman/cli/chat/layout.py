"""What is drawn below the scrollback, from top to bottom: the run, what waits, the input or a question, the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenuControl
from prompt_toolkit.layout.processors import BeforeInput, HighlightIncrementalSearchProcessor, TabsProcessor
from prompt_toolkit.widgets import SearchToolbar

from steersman.cli.chat.conversation import Conversation
from steersman.cli.terminal.columns import cut
from steersman.cli.terminal.sanitize import one_line

if TYPE_CHECKING:
    from steersman.cli.chat.screen import Screen


_MOST_WAITING = 4


def waiting_lines(waiting: Sequence[tuple[str, str]], width: int) -> list[str]:
    """What waits to be heard, a line each, the first few of it."""
    lines = [cut(f"{name}: {one_line(' '.join(text.split()))}", width) for name, text in waiting[:_MOST_WAITING]]
    more = len(waiting) - _MOST_WAITING
    return [*lines, cut(f"and {more} more", width)] if more > 0 else lines


def state_line(conversation: Conversation, hint: str, width: int) -> str:
    """The line at the bottom: a hint where there is one, else the model and what it has used."""
    if hint:
        return cut(one_line(hint), width)
    usage = conversation.usage
    parts = [one_line(conversation.agent.config.model.name)]
    if conversation.running:
        parts.append("Esc interrupts")
    if usage.known:
        parts.append(f"{_short(usage.input)} in {_short(usage.output)} out")
    if usage.cost is not None:
        parts.append(f"${usage.cost:.4f}" if usage.cost < 1 else f"${usage.cost:.2f}")
    if conversation.waiting:
        parts.append(f"{len(conversation.waiting)} queued")
    if not conversation.running:
        parts.append("/help")
    return cut(" · ".join(parts), width)


def _short(tokens: int | None) -> str:
    count = tokens or 0
    return f"{count}" if count < 1000 else f"{count / 1000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.2f}M"


MARK = "\u276f "


def layout(screen: Screen) -> Layout:
    """The layout of a chat; the input has the focus."""
    asked = Condition(lambda: screen.question is not None)
    search = SearchToolbar(ignore_case=True)
    typed = Window(
        BufferControl(
            screen.input,
            search_buffer_control=search.control,
            input_processors=[
                HighlightIncrementalSearchProcessor(),
                TabsProcessor(char1=" ", char2=" "),
                BeforeInput(MARK, "class:mark"),
            ],
            preview_search=True,
        ),
        wrap_lines=True,
        dont_extend_height=True,
        height=lambda: Dimension(min=1, max=max(1, screen.output.get_size().rows // 3)),
    )
    answered = Window(
        BufferControl(screen.answer, input_processors=[BeforeInput(lambda: screen.answer_mark, "class:mark")]),
        wrap_lines=True,
        dont_extend_height=True,
    )
    question = HSplit(
        [
            Window(FormattedTextControl(lambda: [("bold", screen.choices)]), wrap_lines=True, dont_extend_height=True),
            answered,
        ]
    )
    roomy = Condition(lambda: not screen.live and screen.output.get_size().rows > 10)
    menu = Window(CompletionsMenuControl(), dont_extend_height=True, height=Dimension(min=1, max=6))
    shown = HSplit(
        [
            _when_filled(lambda: ANSI(screen.live), lambda: bool(screen.live)),
            _when_filled(lambda: _dim(screen.waiting()), lambda: bool(screen.waiting())),
            ConditionalContainer(Window(height=1), roomy),
            ConditionalContainer(question, asked),
            ConditionalContainer(typed, ~asked),
            ConditionalContainer(search, is_searching),
            ConditionalContainer(menu, has_completions & ~asked),
            Window(FormattedTextControl(lambda: _dim([screen.state()])), height=1, dont_extend_height=True),
        ],
        align=VerticalAlign.TOP,
    )
    return Layout(shown, focused_element=typed)


def _when_filled(text: object, filled: object) -> ConditionalContainer:
    control = FormattedTextControl(text)  # pyright: ignore[reportArgumentType]
    return ConditionalContainer(Window(control, dont_extend_height=True), Condition(filled))  # pyright: ignore[reportArgumentType]


def _dim(lines: list[str]) -> StyleAndTextTuples:
    return [("class:dim", "\n".join(lines))]
