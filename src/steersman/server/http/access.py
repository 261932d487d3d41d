"""Who may use the server: checks Host and Origin, and finds the user of a request.

Without `authenticate` there is one user, who has the token: as a bearer token, or as a cookie that the page got in
exchange for it. A browser sends cookies along with requests of other sites, so with a cookie the origin must be ours.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from aiohttp import web

from steersman.server.http.problems import Problem

Authenticate: TypeAlias = Callable[[web.Request], "str | Awaitable[str | None] | None"]

COOKIE: Final = "steersman"
ANY_ADDRESS: Final = "*ip"
"""In `hosts`: any IP address. A hostile site can make a name lead here (DNS rebinding), but not an address."""
current_user: ContextVar[str | None] = ContextVar("current_user")
"""The user of the request that is being handled; `None` for the one user of a token."""
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))


class Access:
    """The rules of one server. `hosts` are further names it may be called by; `origins` are other sites it serves."""

    def __init__(
        self,
        token: str,
        *,
        authenticate: Authenticate | None = None,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> None:
        self.token = token
        self.origins = frozenset(origins)
        self._authenticate = authenticate
        self._hosts = frozenset(host.lower() for host in hosts)
        self._cookie = hashlib.sha256(b"steersman cookie " + token.encode()).hexdigest()

    @property
    def cookie(self) -> str:
        """The value of the cookie that stands for the token."""
        return self._cookie

    def check_address(self, request: web.Request) -> None:
        """Raise a 403 if the request is for another host (DNS rebinding) or comes from another site."""
        host = _get_host_name(request.headers.get("Host", ""))
        if host not in _LOOPBACK and not self._is_host(host):
            raise Problem(403, f"This server is not called {host!r:.200}. Name it in hosts=, or use --host.")
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self.origins and not self.is_own_origin(request, origin):
            raise Problem(403, f"Requests from the site {origin!r:.200} are not allowed.")

    def _is_host(self, host: str) -> bool:
        if host in self._hosts or "*" in self._hosts:
            return True
        return ANY_ADDRESS in self._hosts and _is_address(host)

    def is_own_origin(self, request: web.Request, origin: str) -> bool:
        """Whether a page of this server sent the request."""
        try:
            return urlsplit(origin).netloc.lower() == request.headers.get("Host", "").lower()
        except ValueError:
            return False

    def is_token(self, value: str) -> bool:
        """Whether this is the token, compared in constant time."""
        return hmac.compare_digest(value.encode("utf-8", "surrogateescape"), self.token.encode())

    async def find_user(self, request: web.Request, *, by_query: bool = False) -> str | None:
        """The user of a request, `None` for the one user of a token; raises a 401 or 403 for anyone else.

        `by_query` says that the token may come in the URL.
        """
        if self._authenticate is not None:
            found = self._authenticate(request)
            user = await found if inspect.isawaitable(found) else found
            if not isinstance(user, str) or not user:
                raise Problem(401, "Log in first.")
            return user
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if value:
            if scheme.lower() == "bearer" and self.is_token(value.strip()):
                return None
            raise Problem(401, "The token is wrong.", headers={"WWW-Authenticate": "Bearer"})
        if by_query and self.is_token(request.query.get("token", "")):
            return None
        cookie = request.cookies.get(COOKIE, "")
        if not hmac.compare_digest(cookie.encode("utf-8", "surrogateescape"), self._cookie.encode()):
            raise Problem(
                401,
                "Send the token as 'Authorization: Bearer ...', or open the URL that the server printed.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        self._check_cookie_origin(request)
        return None

    def _check_cookie_origin(self, request: web.Request) -> None:
        if request.method in _SAFE_METHODS:
            return
        origin = request.headers.get("Origin")
        own = origin is not None and self.is_own_origin(request, origin)
        if not own and request.headers.get("Sec-Fetch-Site") != "same-origin":
            raise Problem(403, "With a cookie, only this server's own page may change things.")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _get_host_name(value: str) -> str:
    """The name in a Host header, without the port and the brackets of an IPv6 address."""
    if value.startswith("["):
        return value[1:].partition("]")[0].lower()
    return value.rpartition(":")[0].lower() if ":" in value else value.lower()
