"""The layout below the scrollback, from top to bottom: live output, todo, queued texts, input or question, status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from prompt_toolkit.application.current import get_app
from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.key_binding.vi_state import InputMode
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
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from steersman.cli.chat.conversation import Conversation
from steersman.cli.chat.window_use import get_window
from steersman.cli.terminal.columns import measure_cells, truncate
from steersman.cli.terminal.numbers import count_input_tokens, format_money
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.cli.terminal.theme import describe_for_prompt

if TYPE_CHECKING:
    from steersman.cli.chat.screen import Screen


_MAX_WAITING = 4
_LEFT_OUT = ("tokens", "provider", "help", "queued", "window", "cost")
"""What the status line leaves out first where it is narrow; `provider` is the first part of a model's name."""


MARK = "\u276f "


def render_waiting(waiting: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Renders the queued texts, one line each, at most a few."""
    lines = [
        truncate(f"{name}: {sanitize_line(' '.join(text.split()))}", width) for name, text in waiting[:_MAX_WAITING]
    ]
    more = len(waiting) - _MAX_WAITING
    return [*lines, truncate(f"and {more} more", width)] if more > 0 else lines


def build_style() -> Style:
    """The styles of the theme for what is redrawn."""
    accent = describe_for_prompt("accent")
    return Style.from_dict({"dim": describe_for_prompt("dim"), "mark": f"bold {accent}".rstrip()})


def get_vi_mode() -> str:
    """The mode of the keys of vi."""
    return "insert" if get_app().vi_state.input_mode is InputMode.INSERT else "normal"


def render_state(conversation: Conversation, hint: str, width: int, *, vim: str = "") -> str:
    """Renders the status line: a hint if there is one, otherwise the mode, the model and its usage."""
    if hint:
        return truncate(sanitize_line(hint), width)
    usage = conversation.usage
    parts = {"vim": vim, "mode": conversation.mode, "model": sanitize_line(conversation.agent.config.model.name)}
    if conversation.running:
        parts["esc"] = "Esc interrupts"
    if usage.known:
        parts["tokens"] = f"{_format_tokens(count_input_tokens(usage))} in {_format_tokens(usage.output or 0)} out"
    if usage.cost is not None:
        parts["cost"] = format_money(usage.cost)
    window = get_window(conversation.agent)
    if conversation.filled and window:
        parts["window"] = f"{min(100, conversation.filled * 100 // window)}% full"
    if conversation.waiting:
        parts["queued"] = f"{len(conversation.waiting)} queued"
    if not conversation.running:
        parts["help"] = "/help"
    return _fit_parts(parts, width)


def _fit_parts(parts: Mapping[str, str], width: int) -> str:
    """Joins what fits into a line: the least needed parts go first, and what is left is truncated."""
    kept = {name: text for name, text in parts.items() if text}
    for name in _LEFT_OUT:
        if measure_cells(" · ".join(kept.values())) <= width:
            break
        kept.pop(name, None)
        if name == "provider":
            kept["model"] = kept["model"].partition(":")[2] or kept["model"]
    return truncate(" · ".join(kept.values()), width)


def _format_tokens(count: int) -> str:
    return f"{count}" if count < 1000 else f"{count / 1000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.2f}M"


def build_layout(screen: Screen) -> Layout:
    """Builds the layout; the input has the focus."""
    asked, questions = Condition(lambda: screen.question is not None), screen.questions
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
        BufferControl(questions.answer, input_processors=[BeforeInput(lambda: questions.answer_mark, "class:mark")]),
        wrap_lines=True,
        dont_extend_height=True,
    )
    question = HSplit(
        [
            Window(
                FormattedTextControl(lambda: [("bold", questions.choices)]), wrap_lines=True, dont_extend_height=True
            ),
            answered,
        ]
    )
    roomy = Condition(lambda: not screen.live and screen.output.get_size().rows > 10)
    menu = Window(CompletionsMenuControl(), dont_extend_height=True, height=Dimension(min=1, max=6))
    shown = HSplit(
        [
            _show_when(lambda: ANSI(screen.live), lambda: bool(screen.live)),
            _show_when(lambda: _style_dim(screen.render_todo()), lambda: bool(screen.render_todo())),
            _show_when(lambda: _style_dim(screen.render_waiting()), lambda: bool(screen.render_waiting())),
            ConditionalContainer(Window(height=1), roomy),
            ConditionalContainer(question, asked),
            ConditionalContainer(typed, ~asked),
            ConditionalContainer(search, is_searching),
            ConditionalContainer(menu, has_completions & ~asked),
            Window(
                FormattedTextControl(lambda: _style_dim([screen.render_state()])), height=1, dont_extend_height=True
            ),
        ],
        align=VerticalAlign.TOP,
    )
    return Layout(shown, focused_element=typed)


def _show_when(text: object, filled: object) -> ConditionalContainer:
    control = FormattedTextControl(text)  # pyright: ignore[reportArgumentType]
    return ConditionalContainer(Window(control, dont_extend_height=True), Condition(filled))  # pyright: ignore[reportArgumentType]


def _style_dim(lines: list[str]) -> StyleAndTextTuples:
    return [("class:dim", "\n".join(lines))]
