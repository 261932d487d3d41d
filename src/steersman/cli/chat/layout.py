"""What is drawn below the scrollback, from top to bottom: the run, what waits, the input or a question, the state."""

from __future__ import annotations

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

MARK = "\u276f "

if TYPE_CHECKING:
    from steersman.cli.chat.screen import Screen


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
