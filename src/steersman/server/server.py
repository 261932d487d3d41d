"""`Server`: agents behind HTTP, with a page; `serve` runs one until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from time import monotonic
from typing import Final, TypeAlias

from aiohttp import web

from steersman.agent.named import Agents
from steersman.server.fronts import a2a_route, agui_route, mcp_route
from steersman.server.fronts.a2a_card import CARD
from steersman.server.fronts.openai import chat_route, responses_route
from steersman.server.fronts.openai.errors import is_openai_request, make_error_response
from steersman.server.http.about import ABOUT_ROUTES, About
from steersman.server.http.access import ANY_ADDRESS, COOKIE, Access, Authenticate, current_user
from steersman.server.http.api import Api
from steersman.server.http.bodies import BODY_SECONDS, BODY_TIME
from steersman.server.http.connections import REQUEST_SECONDS, Connections, listen
from steersman.server.http.page_files import read_page
from steersman.server.http.problems import Problem, describe_problem, find_status, make_response
from steersman.server.http.routes import ROUTES, Respond
from steersman.server.hub import RING_BYTES
from steersman.server.sessions import Sessions
from steersman.server.supervised import Supervisor
from steersman.session.opening import open_store
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import Store
from steersman.types.errors import describe_exception

MAX_BODY: Final = 16 << 20
"""The most bytes of a request's body."""
GRACE: Final = 30.0
"""Seconds that runs may go on when the server is told to stop."""

# Seconds between two looks for what other programs have written to sessions that are watched here.
_LOOK = 2.0
# Every so many looks, each watcher gets a sign of life, and sessions without use are closed.
_BEAT = 5
# What is counted for a client that left before it had its answer.
_LEFT = 499
# Where a server listens on all addresses, and how it is reached from the same machine.
_ALL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# For sites that `origins` names. They send the token: cookies of this server are for its own page.
_CORS_HEADERS = {
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Access-Control-Expose-Headers": "Steersman-Position, Retry-After, Mcp-Session-Id",
}
_PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Mcp-Session-Id, Mcp-Protocol-Version, "
        "Traceparent, Tracestate"
    ),
    "Access-Control-Max-Age": "600",
}

_log = logging.getLogger("steersman.server")

EnterRequest: TypeAlias = Callable[[Mapping[str, str]], AbstractContextManager[object]]
"""Gives a context manager that is entered with the headers of a request, while it is responded to."""


class Server:
    """Agents behind HTTP. `app` is an `aiohttp.web.Application`, to run or to mount in another one.

    `agents` is an agent, a function that makes one, or a dict of these by name. Sessions are kept in `store`, in memory
    by default; of each that runs, about `ring_bytes` of recent events are in memory, for watchers that come back.
    Without `authenticate`, a function from the request to the name of its user or `None`, there is one user, who has
    the `token`. With a `supervisor`, such as a `steersman.durable.Client`, sessions are run by workers. `enter_request`
    is entered around each request of a user, such as `steersman.telemetry.continue_trace`.
    """

    def __init__(
        self,
        agents: Agents,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        token: str | None = None,
        authenticate: Authenticate | None = None,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        models: Collection[str] = (),
        approval_timeout: float | None = None,
        supervisor: Supervisor | None = None,
        enter_request: EnterRequest | None = None,
        max_body: int = MAX_BODY,
        max_watchers: int = 10_000,
        ring_bytes: int = RING_BYTES,
        max_connections: int | None = None,
        request_seconds: float = REQUEST_SECONDS,
        body_seconds: float = BODY_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.token = secrets.token_urlsafe(24) if token is None else token
        if not self.token:
            raise ValueError("token must not be empty: leave it out for a random one.")
        where = MemoryStore() if store is None else find_store(store)
        self.sessions = Sessions(
            agents,
            where,
            models=tuple(models),
            approval_timeout=approval_timeout,
            supervisor=supervisor,
            ring_bytes=ring_bytes,
        )
        self.access = Access(self.token, authenticate=authenticate, hosts=hosts, origins=origins)
        self.connections = Connections(most=max_connections, request_seconds=request_seconds)
        self._enter_request = enter_request or nullcontext
        self._about = About(self.sessions, self.connections, clock)
        self.app = self._build_app(Api(self.sessions, max_watchers=max_watchers), max_body)
        self.app[BODY_TIME] = body_seconds

    async def close(self, grace: float = 0.0) -> None:
        """Stop: no new runs, up to `grace` seconds for those that go on, then they are cut and can be resumed."""
        await self.sessions.drain(grace)
        await self.sessions.close()

    # The application

    def _build_app(self, api: Api, max_body: int) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=max_body)
        for route in ROUTES:
            app.router.add_route(route.method, route.pattern, partial(route.respond, api))
        for route in ABOUT_ROUTES:
            app.router.add_get(route.path, getattr(self._about, route.respond.__name__))
        app.router.add_get("/", self._show_page)
        app.router.add_get("/page/{version}/{name:.+}", self._show_file)
        for front in (agui_route, responses_route, chat_route, a2a_route):
            front.add_routes(app.router, self.sessions)
        mcp_clients = mcp_route.add_routes(app.router, self.sessions)
        app.on_response_prepare.append(self._add_headers)
        app.on_shutdown.append(lambda _: mcp_clients.close())
        app.on_shutdown.append(lambda _: api.end_watches())
        app.cleanup_ctx.append(self._keep_time)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Respond) -> web.StreamResponse:
        """Check who asks, and answer errors as problems."""
        make = make_error_response if is_openai_request(request) else make_response
        self.connections.begin(request)
        try:
            response = await self._respond(request, handler)
        except Problem as problem:
            response = make(problem.status, problem.detail, problem.headers)
            if problem.status == 408:
                response.force_close()
        except web.HTTPException as error:
            if error.status < 400:
                raise
            response = make(error.status, error.text or error.reason, _keep_allow(error))
        except ConnectionResetError:
            response = web.Response(status=_LEFT)
        except Exception as error:  # noqa: BLE001  # whatever a handler raises, the client gets an answer
            response = make(*_judge(request, error))
        finally:
            self.connections.end(request)
        self._about.count_response(response.status)
        return response

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the security headers, and for a site of `origins` those that let it read the response (CORS)."""
        response.headers.update(_SECURITY_HEADERS)
        origin = request.headers.get("Origin")
        if origin is not None and origin in self.access.origins:
            response.headers.update({**_CORS_HEADERS, "Access-Control-Allow-Origin": origin})
            response.headers.add("Vary", "Origin")

    async def _respond(self, request: web.Request, handler: Respond) -> web.StreamResponse:
        self.access.check_address(request)
        if request.method == "OPTIONS" and request.headers.get("Origin") in self.access.origins:
            return web.Response(status=204, headers=_PREFLIGHT_HEADERS)
        if not self._is_open(request):
            current_user.set(await self.access.find_user(request, by_query=mcp_route.is_local(request)))
        with self._enter_request(request.headers):
            return await handler(request)

    def _is_open(self, request: web.Request) -> bool:
        """Whether the request needs no user. By its route and not its path, since the application may be mounted."""
        route = request.match_info.route
        handler = request.match_info.handler
        if route.resource is not None and route.resource.canonical.endswith(CARD):
            return True
        return handler in (self._show_page, self._show_file, self._about.show_health)

    async def _keep_time(self, _: web.Application) -> AsyncGenerator[None]:
        """While the application runs: signs of life for watchers, and unused sessions are closed."""
        task = asyncio.get_running_loop().create_task(self._beat())
        yield
        task.cancel()
        await asyncio.wait([task])
        await self.close()

    async def _beat(self) -> None:
        for tick in count(1):
            await asyncio.sleep(_LOOK)
            try:
                await self.sessions.refresh()
                if tick % _BEAT == 0:
                    self.sessions.beat()
                    await self.sessions.close_idle()
            except Exception as error:  # noqa: BLE001  # such as a store that fails: the next look may find it well
                _log.error("Sessions could not be looked after: %s", describe_exception(error))

    # The routes beside the API

    async def _show_page(self, request: web.Request) -> web.StreamResponse:
        """The page; with `?token=` it logs in first, and the token leaves the address bar."""
        if (token := request.query.get("token")) is not None:
            if not self.access.is_token(token):
                raise Problem(401, "The token is wrong. Open the URL that the server printed.")
            found = web.HTTPSeeOther(request.path)
            secure = request.secure
            found.set_cookie(COOKIE, self.access.cookie, httponly=True, samesite="Strict", path="/", secure=secure)
            raise found
        return read_page().show_index(request)

    async def _show_file(self, request: web.Request) -> web.Response:
        return read_page().show_file(request)


async def serve(
    agents: Agents,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    authenticate: Authenticate | None = None,
    approval_timeout: float | None = None,
    supervisor: Supervisor | None = None,
    enter_request: EnterRequest | None = None,
    max_connections: int | None = None,
    grace: float = GRACE,
    started: Callable[[Server, str], object] | None = None,
) -> None:
    """Serve agents until SIGTERM, SIGINT or a cancel; `started` gets the server and its URL once it listens.

    Then runs have `grace` seconds to end; a second signal cuts them at once.
    """
    if not host:
        raise ValueError("host must not be empty: '127.0.0.1' is this machine, '0.0.0.0' are all its addresses.")
    hosts = (ANY_ADDRESS,) if host in _ALL_ADDRESSES else (host,)
    server = Server(
        agents,
        store=store,
        token=token,
        authenticate=authenticate,
        hosts=hosts,
        approval_timeout=approval_timeout,
        supervisor=supervisor,
        enter_request=enter_request,
        max_connections=max_connections,
    )
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    async with listen(server.app, server.connections, host, port) as address:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: hurry.set() if stop.is_set() else stop.set())
        try:
            (started or _print_url)(server, f"http://{_format_host(host)}:{address[1]}/?token={server.token}")
            await stop.wait()
            first = [loop.create_task(server.sessions.drain(grace)), loop.create_task(hurry.wait())]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            for task in first:
                task.cancel()
            await server.close()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def find_store(where: Store | str | os.PathLike[str]) -> Store:
    """The store of a path, a PostgreSQL URL, or the store itself."""
    if isinstance(where, str) and where.startswith(("postgres://", "postgresql://")):
        from steersman.session.stores.postgres.store import PostgresStore

        return PostgresStore(where)
    return open_store(where)


def _print_url(_: Server, url: str) -> None:
    print(f"Steersman is at {url}", flush=True)


def _format_host(host: str) -> str:
    host = _ALL_ADDRESSES.get(host, host)
    return f"[{host}]" if ":" in host else host


def _judge(request: web.Request, error: Exception) -> tuple[int, str]:
    """The status and the words for an error; what is not the client's mistake is logged."""
    status = find_status(error)
    if status is None or status >= 500:
        bug = error if status is None else None
        _log.error("%s %s failed: %s", request.method, request.path, describe_exception(error), exc_info=bug)
    if status is None:
        return 500, "The server has a bug; its log says more."
    return status, describe_problem(error, status)


def _keep_allow(error: web.HTTPException) -> dict[str, str] | None:
    allow = error.headers.get("Allow")
    return None if allow is None else {"Allow": allow}
