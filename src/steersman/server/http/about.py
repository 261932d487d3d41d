"""What the server says about itself: whether it runs, what it counts, and what it can do."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from steersman.server.http.api import reply
from steersman.server.http.connections import Connections
from steersman.server.http.routes import Route, describe_api
from steersman.server.sessions import Sessions


class About:
    """The state of a server. `clock` counts seconds."""

    def __init__(self, sessions: Sessions, connections: Connections, clock: Callable[[], float]) -> None:
        self._sessions = sessions
        self._connections = connections
        self._clock = clock
        self._started = clock()
        self._responses: dict[int, int] = {}

    def count_response(self, status: int) -> None:
        """Count a response by its status."""
        self._responses[status] = self._responses.get(status, 0) + 1

    async def show_health(self, _: web.Request) -> web.Response:
        """Say whether the server runs, or is about to stop."""
        state = "draining" if self._sessions.draining else "ok"
        return reply({"status": state, "uptime": round(self._clock() - self._started, 3)})

    async def show_openapi(self, _: web.Request) -> web.Response:
        """Describe the API."""
        return reply(describe_api(ABOUT_ROUTES))

    async def show_metrics(self, _: web.Request) -> web.Response:
        """Count sessions, runs, watchers and requests, for Prometheus."""
        sessions = self._sessions
        numbers = {
            "sessions_open": ("gauge", len(sessions.live)),
            "runs_active": ("gauge", sum(live.is_busy for live in sessions.live.values())),
            "runs_waiting": ("gauge", sum(live.status == "waiting" for live in sessions.live.values())),
            "watchers": ("gauge", sessions.count_watchers()),
            "connections": ("gauge", len(self._connections)),
            "connections_cut_total": ("counter", self._connections.cut),
            "connections_refused_total": ("counter", self._connections.refused),
        }
        lines: list[str] = []
        for name, (kind, number) in numbers.items():
            lines += [f"# TYPE {_P}{name} {kind}", f"{_P}{name} {number}"]
        lines.append(f"# TYPE {_P}http_requests_total counter")
        lines += [f'{_P}http_requests_total{{status="{code}"}} {n}' for code, n in sorted(self._responses.items())]
        return web.Response(text="\n".join(lines) + "\n", content_type="text/plain")


_P = "steersman_"
ABOUT_ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", About.show_health, needs_user=False),
    Route("GET", "/metrics", About.show_metrics, content="text/plain"),
    Route("GET", "/openapi.json", About.show_openapi),
)
"""The routes of these methods; `/openapi.json` describes them with those of the API."""
