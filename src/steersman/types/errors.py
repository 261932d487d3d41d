"""Errors, as values (`ErrorInfo`) and as exceptions.

A model's failure is a message, a tool's failure is a result that the model reads; only a programmer's mistake raises.

    SteersmanError
      AgentBusy               a second prompt while one runs
      RunFailed               raised by `result.output` and `result.raise_for_error()`, never by the run itself
      UnknownApproval         an answer to a question that was never asked
      MissingExtra            a feature whose optional dependency is not installed
      ToolError               raised by a tool: its text is the error result the model reads
        OutcomeUnknown        what the tool began elsewhere was lost: it may have had its effect
      ProviderError           raised inside a StreamFn: becomes the error message of the answer
        AuthenticationError   the key is missing or wrong
        QuotaError            the account has no budget left
        RateLimitError        too many requests; `retry_after` says how long to wait
        OverloadedError       the server is over capacity or failed
        ContextOverflowError  the request is longer than the model's window
        InvalidRequestError   the server rejected the request
        RefusedError          the model or its content filter refused
        NetworkError          the connection failed
        StalledError          no bytes for too long
        IncompleteStreamError the stream ended before its terminal event
        ProtocolError         the server violated its protocol
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from steersman.types.result import RunResult

ErrorKind: TypeAlias = Literal[
    "authentication",
    "quota",
    "rate_limit",
    "overloaded",
    "context_overflow",
    "invalid_request",
    "refused",
    "network",
    "stalled",
    "incomplete",
    "protocol",
    "internal",
]

RETRYABLE: frozenset[ErrorKind] = frozenset(("rate_limit", "overloaded", "network", "stalled", "incomplete"))


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider's failure, classified so that retry, fallback and overflow recovery can act on it.

    `retryable` is what the server said about retrying; where it is `None`, the kind decides.
    """

    kind: ErrorKind
    message: str
    provider: str | None = None
    status: int | None = None
    request_id: str | None = None
    retry_after: float | None = None
    retryable: bool | None = None
    body: str | None = None

    @property
    def should_retry(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE if self.retryable is None else self.retryable


def describe_exception(error: BaseException) -> str:
    """Describe an exception in one line: its type, and its text where it has one."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # an exception that cannot even be printed must not raise a second one
        return f"{name} (which has no text: its __str__ raised)"
    return f"{name}: {text}" if text else name


class SteersmanError(Exception):
    """The base class of all exceptions of this library."""


class AgentBusy(SteersmanError, RuntimeError):
    """A run is already going on; steer it, queue a follow-up, or wait for it."""


class UnknownApproval(SteersmanError, LookupError):
    """The agent has asked no question with this id; the id is the `approval_id` of an `approval_requested` event."""


class RunFailed(SteersmanError):
    """A run did not end well, and its caller asked for what it does not have; `result` says how it ended."""

    def __init__(self, message: str, result: RunResult[Any] | None = None) -> None:
        super().__init__(message)
        self.result = result


class MissingExtra(SteersmanError, ImportError):
    """A feature needs an optional dependency; the message names the extra to install."""


class ToolError(SteersmanError):
    """Raised by a tool to answer the model with an error text of its own."""


class OutcomeUnknown(ToolError):
    """Raised by a tool whose work was begun elsewhere and lost: it may have had its effect, and the result says so."""


class ProviderError(SteersmanError):
    """A failure of the provider; `info` holds what is known about it."""

    kind: ClassVar[ErrorKind] = "internal"

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        retryable: bool | None = None,
        body: str | None = None,
    ) -> None:
        super().__init__(message)
        self.info = ErrorInfo(self.kind, message, provider, status, request_id, retry_after, retryable, body)


class AuthenticationError(ProviderError):
    """The key is missing or wrong."""

    kind = "authentication"


class QuotaError(ProviderError):
    """The account has no budget left."""

    kind = "quota"


class RateLimitError(ProviderError):
    """Too many requests; `info.retry_after` says how long to wait."""

    kind = "rate_limit"


class OverloadedError(ProviderError):
    """The server is over capacity or failed."""

    kind = "overloaded"


class ContextOverflowError(ProviderError):
    """The request is longer than the model's window."""

    kind = "context_overflow"


class InvalidRequestError(ProviderError):
    """The server rejected the request."""

    kind = "invalid_request"


class RefusedError(ProviderError):
    """The model or its content filter refused."""

    kind = "refused"


class NetworkError(ProviderError):
    """The connection failed."""

    kind = "network"


class StalledError(ProviderError):
    """No bytes for too long."""

    kind = "stalled"


class IncompleteStreamError(ProviderError):
    """The stream ended before its terminal event."""

    kind = "incomplete"


class ProtocolError(ProviderError):
    """The server violated its protocol."""

    kind = "protocol"


EXCEPTIONS: dict[ErrorKind, type[ProviderError]] = {
    error.kind: error for error in (ProviderError, *ProviderError.__subclasses__())
}
"""The exception class of each error kind."""


def to_exception(info: ErrorInfo) -> ProviderError:
    """Build the exception for an `ErrorInfo`; the exception carries it as `info`."""
    error = EXCEPTIONS[info.kind](info.message)
    error.info = info
    return error
