"""Errors as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from steersman.session.stores.store import NewerFormat, SessionBusy, SessionDamaged, SessionNotFound, StoreFailed
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
    SessionBusy: 409,
    AgentBusy: 409,
    SessionDamaged: 500,
    NewerFormat: 500,
    StoreFailed: 503,
}


def make_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """The response of an error."""
    body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    data = msgspec.json.encode({**body, "detail": detail})
    return web.Response(status=status, body=data, content_type="application/problem+json", headers=headers)


def find_status(error: Exception) -> int | None:
    """The status of an error of a session or an agent; `None` for an error that is a bug."""
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return status
    return 422 if isinstance(error, ValueError) else None
