"""Exit codes: 0 done, 1 error, 2 usage, 3 limit, 4 refused or denied, 128 plus the signal number; and plain errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from steersman.cli.redact import redact_keys
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.types.errors import SteersmanError
from steersman.types.secrets import redact_key_patterns

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
    # Not refused: a guard, such as the repetition guard, ended the run.
    "stopped": LIMIT,
    "vetoed": REFUSED,
    "rejected": REFUSED,
    "aborted": INTERRUPTED,
    "error": ERROR,
}


def get_exit_code(result: RunResult, denied: Collection[str] = ()) -> int:
    """Returns the exit code for a run; `denied` are the ids of tool calls that were denied without a question.

    Code 4 means that a guard or the model refused the run, or that the model stopped where a call was denied. A run
    that went on with other calls after a denial, and reached its answer, is done.
    """
    if result.end_reason == "error" and _is_refusal(result):
        return REFUSED
    if result.end_reason == "done" and _ends_on_denial(result, denied):
        return REFUSED
    return _CODES.get(result.end_reason, ERROR)


def _ends_on_denial(result: RunResult, denied: Collection[str]) -> bool:
    """Whether one of the last tool calls of a run was denied."""
    seen = False
    for message in reversed(result.messages):
        if message.role == "tool_result":
            seen = True
            if message.tool_call_id in denied:
                return True
        elif seen:
            return False
    return False


def _is_refusal(result: RunResult) -> bool:
    """Whether the model, or a content filter before it, refused to answer."""
    for message in reversed(result.messages):
        if message.role == "assistant":
            return message.stop_reason == "refusal" or message.error_kind == "refused"
    return False


class UserError(Exception):
    """An error the user caused or can fix; the text says what happened and what to do. `code` is the exit code."""

    def __init__(self, text: str, *, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def suggest_nearest(word: str, known: Iterable[str]) -> str:
    """Returns a sentence that suggests the nearest known word, with a leading space, or an empty string."""
    found = get_close_matches(word, list(known), 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def describe_error(error: BaseException) -> str:
    """Describes an error on one line, without keys; adds the class name unless the text is written for people."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename!r}: " if isinstance(error.filename, str) else ""
        text = f"{where}{error.strerror}."
    elif isinstance(error, UserError | SteersmanError | NotImplementedError | ValueError) and str(error):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return sanitize_line(" ".join(redact_key_patterns(redact_keys(text), 4_000).split()))
