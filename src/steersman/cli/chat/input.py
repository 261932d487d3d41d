"""What could be meant by what is typed so far: commands, models, and paths inside the workspace."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from steersman.cli.chat import input as history
from steersman.cli.chat.commands import ALIASES, COMMANDS, thinking_levels
from steersman.cli.setup.settings import made
from steersman.cli.setup.startup import Outfit
from steersman.cli.terminal.sanitize import exact, one_line, safe
from steersman.provider.local.weights.cache import LOCAL_MODELS as LOCAL_MODELS
from steersman.provider.models.catalogue import list_known_models
from steersman.provider.models.presets import PRESETS
from steersman.types.model import Model

MAX_HISTORY = 2000
_TAIL = 1 << 20
# Not blocking: a FIFO in its place must not hold up the chat.
_OPEN = os.O_NONBLOCK | os.O_CLOEXEC


def load(file: Path) -> list[str]:
    """What the file holds, the oldest first; lines that cannot be read are passed over."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | _OPEN), "rb") as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - _TAIL))
            lines = source.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    texts = [text for line in lines if (text := _text(line))]
    return texts[-MAX_HISTORY:]


def add(file: Path, text: str) -> None:
    """Keep one more; a disk that will not take it is no reason to stop a chat."""
    try:
        made(file.parent)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | _OPEN, 0o600)
        with os.fdopen(descriptor, "ab") as target:
            target.write(json.dumps(text).encode() + b"\n")
    except OSError:
        return


def _text(line: str) -> str | None:
    try:
        text = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(text, str) else None


MAX_COMPLETIONS = 200
"""The most names that are offered at once."""

_LOOKED_AT = 5000


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text for the last `length` characters before the cursor, and a few words about it."""

    text: str
    length: int
    note: str = ""


def suggestions(before: str, workspace: Path, models: Callable[[], Iterable[str]]) -> Iterator[Suggestion]:
    """What could stand where the cursor is; `before` is the text in front of it."""
    if before.startswith("/") and "\n" not in before:
        word, space, rest = before[1:].partition(" ")
        if not space and "/" not in word:
            yield from _commands(word)
            return
        yield from _arguments(ALIASES.get(word, word), rest.lstrip(), models)
        if space and word in ("model", "thinking"):
            return
    yield from paths(_last_word(before), workspace)


def model_names(current: Model) -> list[str]:
    """Models to choose from: the one there is, embedded ones, and those of providers whose key is there."""
    names = [current.name, *(f"local:{name}" for name in LOCAL_MODELS)]
    for provider, preset in PRESETS.items():
        if provider == current.provider or any(os.environ.get(variable) for variable in preset.keys):
            names += [f"{provider}:{id}" for id in list_known_models(provider)] or [f"{provider}:"]
    return list(dict.fromkeys(names))


def asks_for_paths(before: str) -> bool:
    """Whether the word before the cursor is a path by its first sign, so that no Tab is needed."""
    return _last_word(before).startswith("@")


def _commands(word: str) -> Iterator[Suggestion]:
    for name, command in COMMANDS.items():
        if name.startswith(word):
            yield Suggestion(f"/{name}{' ' if command.takes else ''}", len(word) + 1, command.says)


def _arguments(command: str, rest: str, models: Callable[[], Iterable[str]]) -> Iterator[Suggestion]:
    known = {"model": models, "thinking": thinking_levels}.get(command, tuple)()
    for name in known:
        if name.startswith(rest) and _is_plain(name):
            yield Suggestion(name, len(rest))


def _last_word(before: str) -> str:
    return "" if not before or before[-1].isspace() else before.split()[-1]


def paths(word: str, workspace: Path) -> Iterator[Suggestion]:
    """The files and folders whose names begin like this, inside the workspace; hidden ones when asked for by their dot.

    A name with anything invisible in it is not offered: nobody could see what they choose.
    """
    typed = word.removeprefix("@")
    folder, _, begun = typed.rpartition("/")
    if typed.startswith(("/", "~")) or "\0" in typed:
        return
    root = Path(os.path.realpath(workspace))
    place = Path(os.path.realpath(root / folder))
    if not place.is_relative_to(root):
        return
    for name, is_folder in _names(place, begun):
        yield Suggestion(f"{name}{'/' if is_folder else ''}", len(begun))


def _names(place: Path, begun: str) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(place) as entries:
            for number, entry in enumerate(entries):
                if number >= _LOOKED_AT:
                    break
                name = entry.name
                if name.startswith(begun) and (begun or not name.startswith(".")) and _is_plain(name):
                    found.append((entry.name, entry.is_dir()))
    except (OSError, ValueError):  # not a folder, not ours to read, or no name at all
        return []
    return sorted(found)[:MAX_COMPLETIONS]


def _is_plain(name: str) -> bool:
    return one_line(exact(name)) == name and "\t" not in name


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
