"""The key bindings of the chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.application.current import get_app
from prompt_toolkit.filters import Condition, has_completions, has_focus, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from steersman.cli.terminal.approval import Answer
from steersman.cli.terminal.sanitize import sanitize

if TYPE_CHECKING:
    from steersman.cli.chat.screen import Screen


def build_key_bindings(screen: Screen) -> KeyBindings:
    """Builds the key bindings, on top of prompt_toolkit's own."""
    keys = KeyBindings()
    _bind_input(keys, screen)
    _bind_stopping(keys, screen)
    _bind_answer(keys, screen)

    # Ctrl-C closes an open search, as in every line editor, unless there is a run to stop.
    @keys.add("c-c", filter=~is_searching | Condition(lambda: screen.conversation.running))
    def _(_: KeyPressEvent) -> None:
        screen.interrupt_or_leave()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return keys


def _bind_input(keys: KeyBindings, screen: Screen) -> None:
    """Binds sending and line breaks."""
    typing = has_focus(screen.input)
    choosing = Condition(_is_choosing)

    def send(*, later: bool) -> None:
        text = screen.input.text
        screen.input.reset(append_to_history=bool(text.strip()))
        screen.submit(text, later=later)

    @keys.add("enter", filter=typing)
    def _(_: KeyPressEvent) -> None:
        if screen.input.document.text_before_cursor.endswith("\\"):
            screen.input.delete_before_cursor()
            screen.input.newline(copy_margin=False)
        else:
            send(later=False)

    @keys.add("enter", filter=typing & has_completions & choosing)
    def _(_: KeyPressEvent) -> None:
        # Enter accepts the completion. A completed command is sent; a path may need more text.
        screen.input.complete_state = None
        if screen.input.text.startswith("/") and not screen.input.text.endswith(" "):
            send(later=False)

    @keys.add("escape", "enter", filter=typing)
    def _(_: KeyPressEvent) -> None:
        if screen.conversation.running:
            send(later=True)
        else:
            screen.input.newline(copy_margin=False)

    @keys.add("c-j", filter=typing)
    def _(_: KeyPressEvent) -> None:
        screen.input.newline(copy_margin=False)

    @keys.add(Keys.Any, filter=typing)
    @keys.add(Keys.BracketedPaste, filter=typing)
    def _(event: KeyPressEvent) -> None:
        # Control characters become visible symbols, so the user sees what is sent.
        screen.note_typing()
        screen.input.insert_text(sanitize(event.data.replace("\r\n", "\n").replace("\r", "\n")) * event.arg)


def _bind_stopping(keys: KeyBindings, screen: Screen) -> None:
    """Binds interrupting and leaving."""
    typing = has_focus(screen.input)
    running = Condition(lambda: screen.conversation.running or screen.preparing)
    empty = Condition(lambda: not screen.input.text)

    @keys.add("escape", filter=typing & running & ~has_completions)
    def _(_: KeyPressEvent) -> None:
        screen.interrupt()

    @keys.add("escape", filter=typing & has_completions)
    def _(_: KeyPressEvent) -> None:
        screen.input.cancel_completion()

    @keys.add("c-d", filter=typing & empty)
    def _(_: KeyPressEvent) -> None:
        screen.leave()


def _is_choosing() -> bool:
    state = get_app().current_buffer.complete_state
    return state is not None and state.current_completion is not None


def _bind_answer(keys: KeyBindings, screen: Screen) -> None:
    asked = has_focus(screen.answer)
    unsettled = Condition(lambda: screen.question is not None and not screen.question.settled)

    @keys.add(Keys.Any, filter=asked & unsettled, eager=True)
    def _(_: KeyPressEvent) -> None:
        """Ignores keys typed before the question could be read."""

    @keys.add("escape", filter=asked, eager=True)
    def _(_: KeyPressEvent) -> None:
        screen.interrupt()

    @keys.add("enter", filter=asked)
    @keys.add("c-j", filter=asked)
    def _(_: KeyPressEvent) -> None:
        if screen.question is not None:
            screen.question.answer_with(screen.answer.text)

    @keys.add("c-d", filter=asked)
    def _(_: KeyPressEvent) -> None:
        if screen.question is not None:
            screen.question.resolve(Answer(yes=False))

    @keys.add(Keys.BracketedPaste, filter=asked & ~unsettled)
    def _(event: KeyPressEvent) -> None:
        if screen.question is not None:
            screen.question.pasted = True
            screen.answer.insert_text(sanitize(" ".join(event.data.split())))

    @keys.add(Keys.Any, filter=asked & ~unsettled)
    def _(event: KeyPressEvent) -> None:
        screen.answer.insert_text(sanitize(event.data))
