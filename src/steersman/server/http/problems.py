"""Errors as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from steersman.server.supervised import SupervisorFailed
from steersman.session.stores.store import (
    NewerFormat,
    SessionBusy,
    SessionDamaged,
    SessionError,
    SessionExists,
    SessionNotFound,
    StoreFailed,
)
from steersman.types.artifacts import ArtifactNotFound
from steersman.types.errors import AgentBusy, UnknownApproval


class Problem(Exception):
    """An error that ends a request; `detail` says what happened and what to do."""

    def __init__(self, status: int, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


_STATUS: dict[type[Exception], int] = {
    SessionNotFound: 404,
    UnknownApproval: 404,
    ArtifactNotFound: 404,
    SessionBusy: 409,
    SessionExists: 409,
    AgentBusy: 409,
    SessionDamaged: 500,
    NewerFormat: 500,
    StoreFailed: 503,
    SupervisorFailed: 503,
    SessionError: 422,
    web.RequestPayloadError: 400,
    ValueError: 422,
}
# The words of these name the file or the database, which is for the log and not for clients.
_INTERNAL: dict[int, str] = {
    404: "There is no session with this id.",
    409: "There is a session with this id already.",
    500: "The server cannot read its sessions; its log says more.",
    503: "The server cannot use its store of sessions; its log says more. Try again later.",
}


def make_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """The response of an error."""
    body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    data = msgspec.json.encode({**body, "detail": detail})
    return web.Response(status=status, body=data, content_type="application/problem+json", headers=headers)


def find_status(error: Exception) -> int | None:
    """The status of an error of a session or an agent; `None` for an error that is a bug."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), None)


def describe_problem(error: Exception, status: int) -> str:
    """What a client is told about an error that has a status."""
    if isinstance(error, SessionError) and not isinstance(error, SessionBusy):
        return _INTERNAL.get(status, str(error))
    if isinstance(error, web.RequestPayloadError):
        return "The body could not be read: its Content-Encoding or its length is wrong."
    return str(error)
