"""What goes wrong for people: one or two sentences, an exit code, and no traceback unless they ask for one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
    from steersman.cli.safe import one_line
    from steersman.types.errors import SteersmanError
    from steersman.types.secrets import redacted

    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename!r}: " if isinstance(error.filename, str) else ""
        text = f"{where}{error.strerror}."
    elif isinstance(error, UserError | SteersmanError | NotImplementedError | ValueError) and str(error):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return one_line(" ".join(redacted(without_keys(text), 4_000).split()))


def without_keys(text: str) -> str:
    """The text without any key that the environment holds for a provider."""
    from steersman.provider.keys import known_keys
    from steersman.types.secrets import hidden

    for key in known_keys():
        text = hidden(text, key)
    return text


def keyless() -> Callable[[str], str]:
    """What takes keys out of an answer, since answers end up in logs: only long ones, for short ones are words.

    Servers of one's own are often given a word such as "ollama" for a key, and an answer may well have to say it.
    """
    from steersman.provider.keys import known_keys
    from steersman.types.secrets import hidden

    keys = [key for key in known_keys() if len(key) >= _LONG_KEY]

    def without(text: str) -> str:
        for key in keys:
            text = hidden(text, key)
        return text

    return without
