"""The input line and its key bindings, the history of earlier chats, and completion of commands, models and paths."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from prompt_toolkit.application.current import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import (
    Condition,
    emacs_insert_mode,
    has_completions,
    has_focus,
    is_searching,
    vi_insert_mode,
)
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys

from steersman.cli.chat.commands import ALIASES, escape_text, list_commands
from steersman.cli.chat.custom_commands import CustomCommand
from steersman.cli.chat.file_search import FileIndex
from steersman.cli.chat.model_commands import list_modes, list_thinking_levels
from steersman.cli.setup.settings import make_private_folder
from steersman.cli.setup.startup import StartedAgent
from steersman.cli.terminal.approval import ApprovalAnswer
from steersman.cli.terminal.sanitize import sanitize, sanitize_line
from steersman.provider.local.weights.cache import LOCAL_MODELS
from steersman.provider.models.catalogue import list_known_models
from steersman.provider.models.presets import PRESETS
from steersman.types.model import Model
from steersman.types.visible import escape_invisible

if TYPE_CHECKING:
    from steersman.cli.chat.screen import Screen


def build_key_bindings(screen: Screen) -> KeyBindings:
    """Builds the key bindings, on top of prompt_toolkit's own."""
    keys = KeyBindings()
    _bind_input(keys, screen)
    _bind_text(keys, screen)
    _bind_stopping(keys, screen)
    _bind_answer(keys, screen)

    # Ctrl-C closes an open search, as in every line editor, unless there is a run to stop.
    @keys.add("c-c", filter=~is_searching | Condition(lambda: screen.conversation.running))
    def _(_: KeyPressEvent) -> None:
        screen.interrupt_or_leave()

    @keys.add("s-tab", filter=~has_completions & ~is_searching)
    def _(_: KeyPressEvent) -> None:
        screen.cycle_mode()

    @keys.add("c-o", filter=~is_searching)
    def _(_: KeyPressEvent) -> None:
        screen.expand()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        screen.output.end_bracketed_paste()
        event.app.suspend_to_background()

    return keys


def _bind_input(keys: KeyBindings, screen: Screen) -> None:
    """Binds sending and line breaks."""
    typing = has_focus(screen.input)
    choosing = Condition(_is_choosing)

    def send(*, later: bool) -> None:
        text = screen.input.text
        screen.input.reset()
        screen.app.vi_state.input_mode = InputMode.INSERT
        if text.strip():
            # With what was pasted: a placeholder means nothing in a later chat.
            whole = screen.pastes.expand(text)
            is_typed = whole.lstrip()[:1] == text.lstrip()[:1]
            screen.input.history.append_string(whole if is_typed else escape_text(whole))
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


def _bind_text(keys: KeyBindings, screen: Screen) -> None:
    """Binds letters and pastes."""
    typing = has_focus(screen.input)

    # In the normal mode of vi, letters are commands.
    @keys.add(Keys.Any, filter=typing & (vi_insert_mode | emacs_insert_mode))
    def _(event: KeyPressEvent) -> None:
        # Control characters become visible symbols, so the user sees what is sent.
        screen.note_typing()
        screen.input.insert_text(sanitize(event.data.replace("\r\n", "\n").replace("\r", "\n")) * event.arg)

    @keys.add(Keys.BracketedPaste, filter=typing)
    def _(event: KeyPressEvent) -> None:
        screen.note_typing()
        text = sanitize(event.data.replace("\r\n", "\n").replace("\r", "\n"))
        shown = screen.pastes.shorten(text)
        if shown.lstrip().startswith("!") and not screen.input.document.text_before_cursor.strip():
            # Much text begins so, such as a picture in Markdown; only a typed ! runs what follows.
            shown = escape_text(shown)
        screen.input.insert_text(shown)


def _bind_stopping(keys: KeyBindings, screen: Screen) -> None:
    """Binds interrupting and leaving."""
    typing = has_focus(screen.input)
    running = Condition(lambda: screen.busy)
    empty = Condition(lambda: not screen.input.text)

    @keys.add("escape", filter=typing & running & ~has_completions & ~vi_insert_mode)
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
    asked = has_focus(screen.questions.answer)
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
        screen.questions.enter_answer()

    @keys.add("c-d", filter=asked)
    def _(_: KeyPressEvent) -> None:
        if screen.question is not None:
            screen.question.resolve(ApprovalAnswer(yes=False))

    @keys.add(Keys.BracketedPaste, filter=asked & ~unsettled)
    def _(event: KeyPressEvent) -> None:
        if screen.question is not None:
            screen.question.pasted = True
            screen.questions.answer.insert_text(sanitize(" ".join(event.data.split())))

    @keys.add(Keys.Any, filter=asked & ~unsettled)
    def _(event: KeyPressEvent) -> None:
        screen.questions.answer.insert_text(sanitize(event.data))


MAX_HISTORY = 2000
_TAIL = 1 << 20
# Non-blocking: a FIFO in place of the history file must not block the chat.
_OPEN = os.O_NONBLOCK | os.O_CLOEXEC


MAX_FOUND = 30
MAX_COMPLETIONS = 200
"""The most completions offered at once."""

_MAX_SCANNED = 5000


def load_history(file: Path) -> list[str]:
    """Loads the history, the oldest entry first; skips malformed lines."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | _OPEN), "rb") as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - _TAIL))
            lines = source.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    texts = [text for line in lines if (text := _decode_line(line))]
    return texts[-MAX_HISTORY:]


def add_to_history(file: Path, text: str) -> None:
    """Appends one entry; a failed write must not stop the chat."""
    try:
        make_private_folder(file.parent)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | _OPEN, 0o600)
        with os.fdopen(descriptor, "ab") as target:
            target.write(json.dumps(text).encode() + b"\n")
    except OSError:
        return


def _decode_line(line: str) -> str | None:
    try:
        text = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(text, str) else None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text for the last `length` characters before the cursor, and a note about it."""

    text: str
    length: int
    note: str = ""


def suggest(
    before: str,
    workspace: Path,
    models: Callable[[], Iterable[str]],
    files: FileIndex | None = None,
    custom: Mapping[str, CustomCommand] = MappingProxyType({}),
) -> Iterator[Suggestion]:
    """Suggests completions for the text before the cursor."""
    if before.startswith("/") and "\n" not in before:
        word, space, rest = before[1:].partition(" ")
        if not space and "/" not in word:
            yield from _suggest_commands(word, custom)
            return
        yield from _suggest_arguments(ALIASES.get(word, word), rest.lstrip(), models)
        if space and word in ("model", "thinking", "mode"):
            return
    word = _take_last_word(before)
    yield from suggest_paths(word, workspace)
    if files is not None and len(word) > 1 and word.startswith("@"):
        yield from [Suggestion(path, len(word) - 1) for path in files.find(word[1:], MAX_FOUND) if _is_plain(path)]


def list_model_names(current: Model) -> list[str]:
    """Lists models to choose from: the current one, embedded ones, and those of providers with a key."""
    names = [current.name, *(f"local:{name}" for name in LOCAL_MODELS)]
    for provider, preset in PRESETS.items():
        if provider == current.provider or any(os.environ.get(variable) for variable in preset.keys):
            names += [f"{provider}:{id}" for id in list_known_models(provider)] or [f"{provider}:"]
    return list(dict.fromkeys(names))


def is_path_word(before: str) -> bool:
    """Whether the word before the cursor starts with `@`, so that paths are completed without Tab."""
    return _take_last_word(before).startswith("@")


def _suggest_commands(word: str, custom: Mapping[str, CustomCommand]) -> Iterator[Suggestion]:
    for name, (arguments, summary) in list_commands(custom).items():
        if name.startswith(word):
            yield Suggestion(f"/{name}{' ' if arguments else ''}", len(word) + 1, summary)


def _suggest_arguments(command: str, rest: str, models: Callable[[], Iterable[str]]) -> Iterator[Suggestion]:
    known = {"model": models, "thinking": list_thinking_levels, "mode": list_modes}.get(command, tuple)()
    for name in known:
        if name.startswith(rest) and _is_plain(name):
            yield Suggestion(name, len(rest))


def _take_last_word(before: str) -> str:
    return "" if not before or before[-1].isspace() else before.split()[-1]


def suggest_paths(word: str, workspace: Path) -> Iterator[Suggestion]:
    """Suggests files and folders inside the workspace; hidden ones only after a dot, and those with `!` only after it.

    Names with invisible characters are not offered, because the user could not see them.
    """
    typed = word.removeprefix("@")
    folder, _, begun = typed.rpartition("/")
    if typed.startswith(("/", "~")) or "\0" in typed:
        return
    root = Path(os.path.realpath(workspace))
    place = Path(os.path.realpath(root / folder))
    if not place.is_relative_to(root):
        return
    for name, is_folder in _list_names(place, begun):
        yield Suggestion(f"{name}{'/' if is_folder else ''}", len(begun))


def _list_names(place: Path, begun: str) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(place) as entries:
            for number, entry in enumerate(entries):
                if number >= _MAX_SCANNED:
                    break
                name = entry.name
                if name.startswith(begun) and (begun or not name.startswith((".", "!"))) and _is_plain(name):
                    found.append((entry.name, entry.is_dir()))
    except (OSError, ValueError):  # not a folder, not readable, or not a valid name
        return []
    return sorted(found)[:MAX_COMPLETIONS]


def _is_plain(name: str) -> bool:
    return sanitize_line(escape_invisible(name)) == name and "\t" not in name


class ChatHistory(History):
    """The input history of this chat and earlier ones, stored in a file that only its owner can read."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Returns the history, the newest entry first."""
        return [sanitize(text) for text in reversed(load_history(self._file))]

    def store_string(self, string: str) -> None:
        """Appends one entry."""
        add_to_history(self._file, string)


class ChatCompleter(Completer):
    """Completes commands, and paths after `@`, while typing; everything else on Tab."""

    def __init__(self, started: StartedAgent, custom: Mapping[str, CustomCommand]) -> None:
        self._started = started
        self._custom = custom
        self._files = FileIndex(started.workspace)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yields the completions."""
        before = document.text_before_cursor
        if not (complete_event.completion_requested or before.startswith("/") or is_path_word(before)):
            return
        model = self._started.agent.config.model
        seen: set[str] = set()
        models = partial(list_model_names, model)
        for found in suggest(before, self._started.workspace, models, self._files, self._custom):
            # A file may be found by its folder and by its letters.
            whole = before[: len(before) - found.length] + found.text
            if whole not in seen:
                seen.add(whole)
                yield Completion(found.text, -found.length, display_meta=found.note)
