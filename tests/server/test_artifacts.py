"""Artifacts over HTTP: listed and downloaded, and never a page of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from tests.server.kit import Client, make_agent, run_server

from steersman import ToolContext, tool
from steersman.server.fronts.acp.editor_sessions import copy_session
from steersman.session import MemoryStore, Session, SqliteStore
from steersman.testing import answer, call
from steersman.types.messages import UserMessage

pytestmark = pytest.mark.real_time

HOSTILE = '<img src=x onerror=alert(1)> "quoted"; {é}%2e%2e.html'


@tool
def keep(name: str, text: str, mime_type: str, ctx: ToolContext) -> str:
    """Keep a text."""
    return str(ctx.artifacts.save(name, text, mime_type))


def _keep(name: str, text: str, mime_type: str = "text/plain") -> Any:
    return answer(call("keep", name=name, text=text, mime_type=mime_type))


async def _load(client: Client, path: str, **headers: str) -> tuple[int, bytes, Any]:
    sent = {"Authorization": f"Bearer {client.token}", **headers}
    async with client.http.get(client.url + path, headers=sent) as response:
        return response.status, await response.read(), response.headers


async def test_artifacts_are_listed_and_downloaded() -> None:
    script = (_keep("a.csv", "1,2", "text/csv"), _keep("a.csv", "1,3", "text/csv"), _keep("b", "x"), "Done.")
    async with run_server(make_agent(*script, tools=[keep])) as client:
        id = await client.create()
        _, none = await client.send("GET", f"/sessions/{id}/artifacts")
        await client.act(id, "prompt", {"content": "Go."})
        events = [event for _, event in await client.collect(id)]
        status, listed = await client.send("GET", f"/sessions/{id}/artifacts")
        last = await _load(client, f"/sessions/{id}/artifacts/a.csv")
        first = await _load(client, f"/sessions/{id}/artifacts/a.csv?version=1")
        missing = [
            (await client.send("GET", f"/sessions/{id}/artifacts/{path}"))[0]
            for path in ("c", "a.csv?version=3", "..%2fa.csv", "%00", "a.csv?version=0", "a.csv?version=x")
        ]
        nowhere, _ = await client.send("GET", "/sessions/nope/artifacts")
    assert none == {"artifacts": []}
    assert status == 200
    shown = [{name: one[name] for name in ("name", "version", "size", "versions")} for one in listed["artifacts"]]
    assert shown == [
        {"name": "a.csv", "version": 2, "size": 3, "versions": [1, 2]},
        {"name": "b", "version": 1, "size": 1, "versions": [1]},
    ]
    assert (last[0], last[1], first[1]) == (200, b"1,3", b"1,2")
    assert last[2]["Content-Type"] == "text/csv"
    assert missing == [404, 404, 404, 404, 400, 400]
    assert nowhere == 404
    # Watchers hear of a save, and do not get the content.
    saved = [event["saved"][0] for event in events if event["type"] == "artifact"]
    assert [(one["name"], one["version"]) for one in saved] == [("a.csv", 1), ("a.csv", 2), ("b", 1)]
    contents = [event for event in events if event["type"] == "artifact_content"]
    assert len(contents) == 3
    assert not any("data" in event for event in contents)
    told = [event["data"]["name"] for event in events if event["type"] == "custom"]
    assert told == ["a.csv", "a.csv", "b"]


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript"])
async def test_a_page_that_was_saved_is_a_download_and_no_page_of_the_server(kind: str) -> None:
    script = (_keep(HOSTILE, "<script>alert(1)</script>", kind), "Done.")
    async with run_server(make_agent(*script, tools=[keep])) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Go."})
        await client.collect(id)
        status, data, headers = await _load(client, f"/sessions/{id}/artifacts/{quote(HOSTILE, safe='')}")
    assert (status, data) == (200, b"<script>alert(1)</script>")
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    disposition = headers["Content-Disposition"]
    assert disposition.startswith('attachment; filename="')
    assert disposition.endswith(f"; filename*=UTF-8''{quote(HOSTILE, safe='')}")
    assert disposition.count('"') == 2


async def test_the_artifacts_of_another_user_are_not_there() -> None:
    async def authenticate(request: web.Request) -> str | None:
        return request.headers.get("X-User")

    script = (_keep("a", "x"), "Done.")
    async with run_server(make_agent(*script, tools=[keep]), authenticate=authenticate) as client:
        _, made = await client.send("POST", "/sessions", X_User="ann")
        id = made["id"]
        await client.send("POST", f"/sessions/{id}/prompt", {"content": "Go."}, X_User="ann")
        async with client.http.get(f"{client.url}/sessions/{id}/events", headers={"X-User": "ann"}) as response:
            async for line in response.content:
                if b"agent_end" in line:
                    break
        statuses = {
            user: [
                (await _load(client, f"/sessions/{id}/artifacts{path}", **({"X-User": user} if user else {})))[0]
                for path in ("", "/a")
            ]
            for user in ("ann", "bob", "")
        }
    assert statuses == {"ann": [200, 200], "bob": [404, 404], "": [401, 401]}


async def test_the_artifacts_of_the_current_branch_are_shown() -> None:
    store = MemoryStore()
    with Session.create(store, "s") as session:
        session.artifacts.save("a", "1")
    script = (_keep("a", "2"), "Done.")
    async with run_server(make_agent(*script, tools=[keep]), store=store) as client:
        _, before = await client.send("GET", "/sessions/s/artifacts")
        await client.act("s", "prompt", {"content": "Go."})
        await client.collect("s")
        _, after = await client.send("GET", "/sessions/s/artifacts")
    assert [one["versions"] for one in before["artifacts"]] == [[1]]
    assert [one["versions"] for one in after["artifacts"]] == [[1, 2]]


def test_a_copy_of_a_session_has_its_artifacts(tmp_path: Path) -> None:
    """As an editor makes it when it forks a session."""
    store = SqliteStore(tmp_path / "sessions.db")
    with Session.create(store, "s") as session:
        session.artifacts.save("a", "1")
        session.log.append(UserMessage("Go."))
        session.artifacts.save("a", "2")
    copy = copy_session(store, "s")
    store.delete("s")
    with Session.open(store, copy, write=False) as session:
        assert [session.artifacts.load("a", version) for version in (1, 2)] == [b"1", b"2"]
