"""What the command's exit codes mean: 0 done, 1 error, 2 usage, 3 limit, 4 refused, 128 and the number of a signal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from steersman.types.secrets import REDACTED, redact

if TYPE_CHECKING:
    from steersman.types.messages import EndReason
    from steersman.types.result import RunResult


DONE = 0
ERROR = 1
USAGE = 2
LIMIT = 3
REFUSED = 4
HUNG_UP = 129
INTERRUPTED = 130
PIPE = 141
TERMINATED = 143

_CODES: dict[EndReason, int] = {
    "done": DONE,
    "terminated": DONE,
    "limit": LIMIT,
    # Nobody said no: a guard, as the one against the same calls over and over, found that it was enough.
    "stopped": LIMIT,
    "vetoed": REFUSED,
    "rejected": REFUSED,
    "aborted": INTERRUPTED,
    "error": ERROR,
}


def exit_code(result: RunResult) -> int:
    """The exit code for a run.

    A run that came to its answer is done, even if some tool was denied on the way; 4 says that the run itself was
    refused, by a guard or by the model.
    """
    if result.end_reason == "error" and _declined(result):
        return REFUSED
    return _CODES.get(result.end_reason, ERROR)


def _declined(result: RunResult) -> bool:
    """Whether it was the model, or a filter before it, that would not answer."""
    for message in reversed(result.messages):
        if message.role == "assistant":
            return message.stop_reason == "refusal" or message.error_kind == "refused"
    return False


_LONG_KEY = 12


class UserError(Exception):
    """Something a user caused or can mend: what happened and what to do; `code` is the command's exit code."""

    def __init__(self, text: str, *, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def near(word: str, known: Iterable[str]) -> str:
    """The sentence that offers the nearest known word, with a space before it, or nothing."""
    # Only a mistake pays for this import.
    from difflib import get_close_matches

    found = get_close_matches(word, list(known), 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def line_of(error: BaseException) -> str:
    """An error as it is told to people: its own words where they are made for people, without keys, on one line."""
    from steersman.cli.terminal.sanitize import one_line
    from steersman.types.errors import SteersmanError
    from steersman.types.secrets import redact_key_patterns

    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename!r}: " if isinstance(error.filename, str) else ""
        text = f"{where}{error.strerror}."
    elif isinstance(error, UserError | SteersmanError | NotImplementedError | ValueError) and str(error):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return one_line(" ".join(redact_key_patterns(without_keys(text), 4_000).split()))


def without_keys(text: str) -> str:
    """The text without any key that the environment holds for a provider."""
    from steersman.provider.models.keys import find_known_keys

    return redact(text, *find_known_keys())


def keyless() -> Callable[[str], str]:
    """What takes keys out of an answer, since answers end up in logs: only long ones, for short ones are words.

    Servers of one's own are often given a word such as "ollama" for a key, and an answer may well have to say it.
    """
    return _without(_long_keys())


class Keyless:
    """Takes keys out of an answer that comes in pieces: what may be the beginning of a key waits for what follows."""

    def __init__(self) -> None:
        self._keys = _long_keys()
        self._without = _without(self._keys)
        self._held = ""

    def take(self, piece: str) -> str:
        """What can be shown with this piece."""
        text = self._held + piece
        for key in self._keys:
            text = text.replace(key, REDACTED)
        held = max((_begun(text, key) for key in self._keys), default=0)
        self._held = text[len(text) - held :]
        return self._without(text[: len(text) - held])

    def rest(self) -> str:
        """What was waiting, when nothing follows."""
        held, self._held = self._held, ""
        return self._without(held)


def _long_keys() -> list[str]:
    """The keys to look for, and before each the longer ones that begin with it."""
    from steersman.provider.models.keys import find_known_keys

    return sorted((key for key in find_known_keys() if len(key) >= _LONG_KEY), key=len, reverse=True)


def _without(keys: Sequence[str]) -> Callable[[str], str]:
    def without(text: str) -> str:
        return redact(text, *keys)

    return without


def _begun(text: str, key: str) -> int:
    """How many characters at the end of a text are the beginning of a key."""
    most = min(len(text), len(key) - 1)
    return next((length for length in range(most, 0, -1) if text.endswith(key[:length])), 0)
