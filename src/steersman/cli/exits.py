"""What the command's exit codes mean: 0 done, 1 error, 2 usage, 3 limit, 4 refused, 128 and the number of a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
