"""The table of routes. The routes of the application and `/openapi.json` both come from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from steersman.server.http import bodies
from steersman.server.http.api import Api
from steersman.session.settings import Configure

Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """One route: `body` is the type of its request body, `status` that of its usual answer.

    `respond` is a method of the `Api`, or of the server; `needs_user` is false for what is told to anyone.
    """

    method: str
    path: str
    respond: Callable[[Any, web.Request], Awaitable[web.StreamResponse]]
    status: int = 200
    body: type[msgspec.Struct] | None = None
    query: tuple[str, ...] = ()
    content: str = "application/json"
    needs_user: bool = True

    @property
    def pattern(self) -> str:
        """The path for the router, whose names have no braces unless it is told so."""
        return self.path.replace("{name}", "{name:[^/]+}")

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (self.respond.__doc__ or "").strip()


ROUTES: tuple[Route, ...] = (
    Route("POST", "/sessions", Api.create_session, 201, bodies.NewSession),
    Route("GET", "/sessions", Api.list_sessions, query=("limit", "cursor", "q")),
    Route("GET", "/sessions/{id}", Api.show_session),
    Route("DELETE", "/sessions/{id}", Api.delete_session, 204),
    Route("GET", "/sessions/{id}/tree", Api.show_tree),
    Route("GET", "/sessions/{id}/artifacts", Api.list_artifacts),
    Route(
        "GET",
        "/sessions/{id}/artifacts/{name}",
        Api.load_artifact,
        query=("version",),
        content="application/octet-stream",
    ),
    Route("GET", "/sessions/{id}/events", Api.stream_events, query=("after", "last"), content="text/event-stream"),
    Route("POST", "/sessions/{id}/prompt", Api.prompt, 202, bodies.Say),
    Route("POST", "/sessions/{id}/steer", Api.steer, 202, bodies.Steer),
    Route("POST", "/sessions/{id}/follow_up", Api.follow_up, 202, bodies.Say),
    Route("POST", "/sessions/{id}/abort", Api.abort, 202, bodies.Nothing),
    Route("POST", "/sessions/{id}/continue", Api.resume, 202, bodies.Resume),
    Route("POST", "/sessions/{id}/branch", Api.branch, 202, bodies.BranchAt),
    Route("POST", "/sessions/{id}/rerun", Api.rerun, 202, bodies.RerunAt),
    Route("POST", "/sessions/{id}/approve", Api.approve, 202, bodies.Decision),
    Route("POST", "/sessions/{id}/deny", Api.deny, 202, bodies.Decision),
    Route("POST", "/sessions/{id}/configure", Api.configure, 202, Configure),
)


def describe_api(more: Sequence[Route] = ()) -> dict[str, Any]:
    """The OpenAPI description of the routes, and of those that the server has beside them."""
    kinds = [route.body for route in ROUTES if route.body is not None]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in (*ROUTES, *more):
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_route(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Steersman", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM, "Receipt": _RECEIPT},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _describe_route(route: Route, schema_of: dict[Any, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [{"name": name, "in": "query", "schema": _TEXT} for name in route.query]
    in_path = [name for name in ("id", "name") if f"{{{name}}}" in route.path]
    parameters[:0] = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in in_path]
    if route.status in (201, 202):
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": _TEXT})
    schema: Any = {"$ref": "#/components/schemas/Receipt"} if route.status == 202 else {}
    done: dict[str, Any] = {"description": route.summary}
    if route.status != 204:
        done["content"] = {route.content: {"schema": schema}}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    described: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.respond.__name__.strip("_"),
        "parameters": parameters,
        "responses": {str(route.status): done, "default": {"description": "A problem.", "content": problem}},
    }
    if not route.needs_user:
        described["security"] = []
    if route.body is not None:
        described["requestBody"] = {"content": {"application/json": {"schema": schema_of[route.body]}}}
    return described


_TEXT = {"type": "string"}
_RECEIPT = {"type": "object", "required": ["id", "status"], "properties": {"id": _TEXT, "status": _TEXT}}
_PROBLEM = {
    "type": "object",
    "properties": {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT},
}
