"""Errors in the shape that OpenAI's clients read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from steersman.server.http.problems import Problem

APPROVAL_REQUIRED: Final = "approval_required"
"""The code of a response whose run waits for an approval."""

_TYPES = {401: "authentication_error", 403: "permission_error", 409: "conflict_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 404: "not_found"}
# OpenAI knows no 422: a body that is wrong is a 400.
_STATUS = {422: 400}


def make_error_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """The response of an error."""
    status = _STATUS.get(status, status)
    data = msgspec.json.encode({"error": describe_error(status, detail)})
    return web.Response(status=status, body=data, content_type="application/json", headers=headers)


def describe_error(status: int, detail: str, code: str | None = None) -> dict[str, Any]:
    """The error itself."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"message": detail, "type": kind, "param": None, "code": code or _CODES.get(status)}


def is_openai_request(request: web.Request) -> bool:
    """Whether a request is for these APIs."""
    resource = request.match_info.route.resource
    return "/v1/" in (request.path if resource is None else resource.canonical)


def make_question_problem(session_id: str, questions: Sequence[Mapping[str, Any]]) -> Problem:
    """The 409 of a run that waits for an approval: these clients cannot answer, but others can."""
    # The clients repeat a 409 by themselves, which would start another run.
    return Problem(409, describe_questions(session_id, questions), headers={"x-should-retry": "false"})


def describe_questions(session_id: str, questions: Sequence[Mapping[str, Any]]) -> str:
    """What the run waits for, and where to answer."""
    asked = "; ".join(f"{one['tool_name']} ({one['approval_id']}): {one['reason']}" for one in questions)
    return (
        f"The run waits for an approval: {asked}. Answer on the page or with POST /sessions/{session_id}/approve or "
        "/deny, then ask for the response again. With the metadata {'approvals': 'deny'} such calls are denied at once."
    )
