"""Who gets in: tokens, cookies, Host, Origin, users and ids (server.md 3 and 6; S6)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.server.kit import Client, make_agent, run_server

from steersman.server.http.access import ANY_ADDRESS

pytestmark = pytest.mark.real_time


async def get(client: Client, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    options: dict[str, Any] = {"headers": names, "allow_redirects": False}
    async with client.http.request(method, client.url + path, **options) as response:
        return response.status, await response.text(), response.headers


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer wrong", "Basic {token}", "Bearer {token}x", "bearer  "])
async def test_without_the_token_nothing_is_told(value: str) -> None:
    async with run_server(make_agent("Yes.")) as client:
        id = await client.create()
        sent = value.format(token=client.token)
        for path in ("/sessions", f"/sessions/{id}", f"/sessions/{id}/events", "/metrics", "/openapi.json"):
            status, text, headers = await get(client, path, Authorization=sent)
            assert (status, headers["Content-Type"]) == (401, "application/problem+json")
            assert id not in text


async def test_the_url_logs_the_page_in_with_a_cookie() -> None:
    """Section 6: exchanged for an HttpOnly cookie, and removed from the address bar."""
    async with run_server(make_agent("Yes.")) as client:
        wrong, _, _ = await get(client, "/?token=wrong")
        status, _, headers = await get(client, f"/?token={client.token}")
        cookie = headers["Set-Cookie"]
        value = cookie.partition(";")[0]
        listed, _, _ = await get(client, "/sessions", Cookie=value)
        foreign, _, _ = await get(client, "/sessions", method="POST", Cookie=value)
        elsewhere, _, _ = await get(client, "/sessions", method="POST", Cookie=value, Origin="http://evil.example")
        own, _, _ = await get(client, "/sessions", method="POST", Cookie=value, Origin=client.url)
    assert (wrong, status, headers["Location"]) == (401, 303, "/")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.token not in cookie
    assert (listed, foreign, elsewhere, own) == (200, 403, 403, 201)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "[::2]", ""])
async def test_another_name_is_refused(host: str) -> None:
    """DNS rebinding: the browser sends the name it believes in."""
    async with run_server(make_agent("Yes.")) as client:
        port = client.url.rpartition(":")[2]
        status, _, _ = await get(
            client, "/sessions", Authorization=f"Bearer {client.token}", Host=host.format(port=port)
        )
    assert status in (400, 403)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost.evil.example"]
)
async def test_another_site_is_refused(origin: str) -> None:
    async with run_server(make_agent("Yes.")) as client:
        status, _, headers = await get(client, "/sessions", Authorization=f"Bearer {client.token}", Origin=origin)
    assert status == 403
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "id", ["..%2f..%2fetc%2fpasswd", "a%00b", "%ff", "a" * 200, "x'--", "u0000000000000000.x", "nope"]
)
async def test_an_id_that_is_none_is_not_found(id: str) -> None:
    async with run_server(make_agent("Yes.")) as client:
        for path in ("", "/events", "/tree"):
            status, _, _ = await get(client, f"/sessions/{id}{path}", Authorization=f"Bearer {client.token}")
            assert status in (400, 404)


async def test_a_session_of_another_user_does_not_exist() -> None:
    """S6: 404, not 403, and it is in no list."""

    async def find_user(request: web.Request) -> str | None:
        return request.headers.get("X-User")

    async with run_server(make_agent("Yes."), authenticate=find_user) as client:
        _, body = await client.send("POST", "/sessions", X_User="ann")
        id = body["id"]
        mine = await client.send("GET", f"/sessions/{id}", X_User="ann")
        theirs = [
            (await client.send(method, f"/sessions/{id}{path}", {} if method == "POST" else None, X_User="bob"))[0]
            for method, path in (
                ("GET", ""), ("GET", "/events"), ("GET", "/tree"), ("DELETE", ""), ("POST", "/abort"),
                ("POST", "/continue"),
            )
        ]  # fmt: skip
        lists = [(await client.send("GET", "/sessions", X_User=user))[1]["sessions"] for user in ("ann", "bob")]
        unknown, _ = await client.send("GET", "/sessions")
    assert mine[0] == 200
    assert theirs == [404] * 6
    assert [len(found) for found in lists] == [1, 0]
    assert unknown == 401


async def test_a_session_of_another_user_does_not_exist_at_another_server_either(tmp_path: Path) -> None:
    """S6: what is open elsewhere is neither heard, watched nor answered for another user."""

    async def find_user(request: web.Request) -> str | None:
        return request.headers.get("X-User")

    store = tmp_path / "sessions.db"
    first = run_server(store=store, authenticate=find_user)
    async with first as a, run_server(store=store, authenticate=find_user) as b:
        _, body = await a.send("POST", "/sessions", X_User="ann")
        path = f"/sessions/{body['id']}"
        await a.send("POST", f"{path}/prompt", {"content": "Deploy."}, X_User="ann")
        shown: Any = {}
        while shown.get("status") != "waiting":
            _, shown = await b.send("GET", path, X_User="ann")
        words, answer = {"content": "Hi."}, {"id": shown["approvals"][0]["approval_id"]}
        said = {"prompt": words, "steer": words, "follow_up": words, "approve": answer, "deny": answer}
        theirs = [
            (await b.send("POST", f"{path}/{action}", said.get(action, {}), X_User="bob"))[0]
            for action in (*said, "abort", "continue", "rerun", "configure")
        ]
        theirs += [(await b.send("GET", f"{path}{more}", X_User="bob"))[0] for more in ("", "/events", "/tree")]
        _, after = await b.send("GET", path, X_User="ann")
        _, theirs_listed = await b.send("GET", "/sessions", X_User="bob")
        await b.send("POST", f"{path}/abort", {}, X_User="ann")
    assert set(theirs) == {404}
    assert (after["status"], after["queued"], theirs_listed["sessions"]) == ("waiting", [], [])


async def test_a_body_that_is_too_large_or_no_json_is_refused() -> None:
    async with run_server(make_agent("Yes."), max_body=1000) as client:
        id = await client.create()
        headers = {"Authorization": f"Bearer {client.token}"}
        statuses: list[int] = []
        for data, kind in (
            (b"x" * 2000, "application/json"),
            (b"{", "application/json"),
            (b"\xff", "application/json"),
            (b'{"content": "Hi"}', "text/plain"),
            (b"content=Hi", "application/x-www-form-urlencoded"),
            (b"[" * 900, "application/json"),
        ):
            sent = {**headers, "Content-Type": kind}
            async with client.http.post(f"{client.url}/sessions/{id}/prompt", data=data, headers=sent) as response:
                statuses.append(response.status)
                assert response.content_type == "application/problem+json"
    assert statuses == [413, 400, 400, 415, 415, 422]


async def test_every_answer_has_the_security_headers() -> None:
    async with run_server(make_agent("Yes.")) as client:
        for path in ("/", "/healthz", "/sessions", "/nothing", f"/?token={client.token}"):
            _, _, headers = await get(client, path)
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in headers["Content-Security-Policy"]
        id, token = await client.create(), {"Authorization": f"Bearer {client.token}"}
        async with client.http.get(f"{client.url}/sessions/{id}/events", headers=token) as response:
            assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_site_that_is_named_may_read_responses() -> None:
    """Section 3: no CORS unless configured; a preflight has no token."""
    site, other = "https://app.example", "https://evil.example"
    async with run_server(make_agent("Yes."), origins=[site]) as client:
        found: list[tuple[int, str | None]] = []
        for origin in (site, other):
            for method, headers in (
                ("OPTIONS", {"Access-Control-Request-Method": "POST"}),
                ("POST", {"Authorization": f"Bearer {client.token}"}),
                ("POST", {}),
            ):
                sent = {"Origin": origin, **headers}
                async with client.http.request(method, f"{client.url}/sessions", headers=sent) as response:
                    found.append((response.status, response.headers.get("Access-Control-Allow-Origin")))
                    if method == "OPTIONS" and origin == site:
                        assert "Idempotency-Key" in response.headers["Access-Control-Allow-Headers"]
    assert found == [(204, site), (201, site), (401, site), (403, None), (403, None), (403, None)]


async def test_a_site_that_is_named_sends_the_token_and_not_the_cookie() -> None:
    """docs/serve.md: a browser sends the cookie along where that site is on another port of this address."""
    site = "http://127.0.0.1:3000"
    async with run_server(make_agent("Yes."), origins=[site]) as client:
        async with client.http.get(f"{client.url}/?token={client.token}", allow_redirects=False) as response:
            cookie = response.cookies["steersman"].value
        found: list[int] = []
        for origin in (site, client.url):
            sent = {"Origin": origin, "Cookie": f"steersman={cookie}"}
            async with client.http.post(f"{client.url}/sessions", headers=sent) as response:
                found.append(response.status)
    assert found == [403, 201]


async def test_an_error_names_no_file_of_the_server(tmp_path: Path) -> None:
    async with run_server(make_agent("Yes."), store=tmp_path / "s.db") as client:
        await client.create()
        for path in ("/sessions/nope/tree", "/sessions/nope/events", "/sessions/nope"):
            status, problem = await client.send("GET", path)
            assert status == 404
            assert str(tmp_path) not in problem["detail"]


async def test_a_body_that_cannot_be_unpacked_is_refused() -> None:
    async with run_server(make_agent("Yes.")) as client:
        id = await client.create()
        token = {"Authorization": f"Bearer {client.token}", "Content-Type": "application/json"}
        sent = {**token, "Content-Encoding": "gzip"}
        async with client.http.post(f"{client.url}/sessions/{id}/prompt", data=b"no gzip", headers=sent) as response:
            assert response.status == 400
            assert response.content_type == "application/problem+json"


@pytest.mark.parametrize(("host", "status"), [("192.0.2.7", 200), ("[2001:db8::7]:80", 200), ("evil.example", 403)])
async def test_a_server_on_all_addresses_may_be_called_by_any_of_them(host: str, status: int) -> None:
    """Section 3: Host is checked against DNS rebinding, which needs a name."""
    async with run_server(make_agent("Yes."), hosts=[ANY_ADDRESS]) as client:
        found, _, _ = await get(client, "/healthz", Host=host)
    assert found == status


async def test_the_token_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with run_server(make_agent("Yes.")) as client:
        await get(client, f"/?token={client.token}")
        await get(client, "/sessions", Authorization=f"Bearer {client.token}")
        token = client.token
    await asyncio.sleep(0)
    assert token not in caplog.text


async def test_the_application_can_be_mounted_under_a_path() -> None:
    from aiohttp import ClientSession

    from steersman.server import Server

    server, app = Server(make_agent("Yes.")), web.Application()
    app.add_subapp("/agents/", server.app)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession() as http:
        client = Client(http, f"http://127.0.0.1:{runner.addresses[0][1]}/agents", server.token)
        id = await client.create()
        await client.act(id, "prompt", {"content": "Hi"})
        events = await client.collect(id)
        health, _, _ = await get(client, "/healthz")
        login, _, headers = await get(client, f"/?token={client.token}")
    await runner.cleanup()
    assert events[-1][1]["end_reason"] == "done"
    assert (health, login, headers["Location"]) == (200, 303, "/agents/")


async def test_there_are_at_most_so_many_watchers() -> None:
    async with run_server(make_agent("Yes."), max_watchers=1) as client:
        id = await client.create()
        async with client.watch(id):
            refused, problem = await client.send("GET", f"/sessions/{id}/events")
        assert (refused, problem["title"]) == (503, "Service Unavailable")
