"""`steersman serve` as a real process: the URL it prints, its token, its log, and what it refuses to start with."""

from __future__ import annotations

import json
import re
import signal
import socket
import stat
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPErrorProcessor, Request, build_opener

import pytest
from tests.cli.command import Place, make_place, run_command, spawn

SERVE = ["serve", "--model", "scripted:echo", "--port", "0"]


class _NoRedirect(HTTPErrorProcessor):
    def http_response(self, request: Request, response: object) -> object:
        return response


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """The status and the body of a response, redirects as they are."""
    request = Request(url, method=method, headers=headers, data=b"" if method == "POST" else None)
    try:
        with build_opener(_NoRedirect).open(request, timeout=30) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_url_it_prints_logs_in_and_stays_good_after_a_restart(place: Place, host: str) -> None:
    """Section 6: the first URL carries the token, which is kept in a file for its user alone."""
    urls: list[str] = []
    for _ in range(2):
        with spawn([*SERVE, "--host", host], place=place) as command:
            command.wait_for("\n")
            url = command.said("stdout").decode().strip()
            urls.append(url)
            page, _ = ask(url)
            name, _ = ask(url, Host="evil.example")
            command.signal(signal.SIGTERM)
            done = command.wait()
        assert (page, name, done.code) == (303, 403, 0)
    tokens = {url.partition("?token=")[2] for url in urls}
    (file,) = place.home.rglob("server-token")
    assert tokens == {file.read_text().strip()}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_error_of_the_server_is_on_stderr_and_not_in_the_response(place: Place, tmp_path: Path) -> None:
    """Section 3: paths are for the log; the response says that there is one."""
    store = tmp_path / "s.db"
    with spawn([*SERVE, "--store", str(store)], place=place) as command:
        command.wait_for("\n")
        url, _, token = command.said("stdout").decode().strip().partition("/?token=")
        store.mkdir()
        status, body = ask(f"{url}/sessions", "POST", Authorization=f"Bearer {token}")
        command.wait_for(str(store), "stderr")
        command.signal(signal.SIGTERM)
        done = command.wait()
    assert (status, json.loads(body)["title"]) == (503, "Service Unavailable")
    assert str(tmp_path) not in body
    assert token not in done.errors


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--store", "{tmp}"], 1, "is not a regular file"),
        (["--store", "{tmp}/text.db"], 1, "is no file of sessions"),
        (["--store", "postgresql://user:secret@127.0.0.1:x/y"], 1, "The connection string cannot be read"),
        (["--store", "mysql://x/y"], 1, "mysql:/x' for the sessions: make it"),
        (["--port", "{port}"], 1, "Choose another one with --port"),
        (["--approval-timeout", "-1"], 2, "--approval-timeout"),
        (["--approval-timeout", "nan"], 2, "--approval-timeout"),
        (["--host", ""], 1, "host must not be empty"),
    ],
)
def test_what_cannot_work_is_told_at_once(place: Place, tmp_path: Path, words: list[str], code: int, said: str) -> None:
    (tmp_path / "text.db").write_text("no sessions\n" * 100)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        filled = [word.format(tmp=tmp_path, port=taken.getsockname()[1]) for word in words]
        done = run_command([*SERVE, *filled], place=place)
    assert (done.code, done.stdout) == (code, b"")
    assert re.search(re.escape(said), done.errors), done.errors
    assert "Traceback" not in done.errors
    assert "This is a bug" not in done.errors
    assert "secret" not in done.errors
