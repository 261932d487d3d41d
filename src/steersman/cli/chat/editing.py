"""What the input line is edited with: the history of earlier chats, and completion."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from steersman.cli.chat import history
from steersman.cli.chat.input import asks_for_paths, model_names, suggestions
from steersman.cli.setup.startup import Outfit
from steersman.cli.terminal.sanitize import safe


class KeptHistory(History):
    """What was typed in this chat and in earlier ones."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """What is kept, the newest first."""
        return [safe(text) for text in reversed(history.load(self._file))]

    def store_string(self, string: str) -> None:
        """Keep one more."""
        history.add(self._file, string)


class ChatCompleter(Completer):
    """Commands and paths after `@` as they are typed, everything else when Tab asks for it."""

    def __init__(self, outfit: Outfit) -> None:
        self._outfit = outfit

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What could be meant."""
        before = document.text_before_cursor
        if not (complete_event.completion_requested or before.startswith("/") or asks_for_paths(before)):
            return
        model = self._outfit.agent.config.model
        for found in suggestions(before, self._outfit.workspace, lambda: model_names(model)):
            yield Completion(found.text, -found.length, display_meta=found.note)
