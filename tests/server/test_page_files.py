"""The files of the page: kept by the browser, never mixed with those of another version (server.md 3 and 4)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.server.kit import make_agent, run_server

from steersman.server import server as server_module

pytestmark = pytest.mark.real_time
FOLDER = Path(server_module.__file__).parent / "page"


async def test_the_page_names_every_script_and_nothing_outside() -> None:
    """Section 4: no build step; all scripts are named in the page, which is asked for each time."""
    async with run_server(make_agent("Hi.")) as client, client.http.get(f"{client.url}/") as response:
        html = await response.text()
    links = re.findall(r'(?:src|href)="([^"#]+)"', html)
    scripts = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.js")}
    assert response.headers["Cache-Control"] == "no-cache"
    assert {re.sub(r"^page/[0-9a-f]{12}/", "", link) for link in links if link.endswith(".js")} == scripts
    assert [link for link in links if not re.match(r"page/[0-9a-f]{12}/\w", link)] == []


async def test_files_are_kept_for_ever_and_those_of_another_version_are_not_there() -> None:
    """After an update the browser has the new files at once; a path that leads elsewhere leads nowhere."""
    async with run_server(make_agent("Hi.")) as client:
        async with client.http.get(f"{client.url}/") as response:
            script = re.findall(r'src="(page/[0-9a-f]{12}/main.js)"', await response.text())[0]
        async with client.http.get(f"{client.url}/{script}", headers={"Accept-Encoding": "identity"}) as response:
            assert await response.read() == (FOLDER / "main.js").read_bytes()
            assert "immutable" in response.headers["Cache-Control"]
            assert response.headers["Content-Type"] == "text/javascript; charset=utf-8"
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        async with client.http.get(f"{client.url}/{script}", headers={"Accept-Encoding": "gzip"}) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            assert await response.read() == (FOLDER / "main.js").read_bytes()
        version = script.split("/")[1]
        for path in ("page/0123456789ab/main.js", f"page/{version}/index.html", f"page/{version}/..%2fserver.py"):
            async with client.http.get(f"{client.url}/{path}") as response:
                assert response.status == 404, path
