"""A server counts as one of models only if it answers like one; what it has loaded comes first."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.cli.lists import listing, model_list

from steersman.cli.setup.model_choice import (
    SERVERS,
    FoundServer,
    find_server,
    find_server_url,
    find_servers,
    list_models_at,
)

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever listens on this machine's usual ports is not asked."""
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    for provider in SERVERS:
        monkeypatch.setenv(f"{provider.upper()}_BASE_URL", "http://127.0.0.1:1/v1")


async def test_all_servers_that_answer_are_found_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with listing({"/v1/models": model_list("a")}) as vllm, listing({"/v1/models": model_list("b")}) as ollama:
        monkeypatch.setenv("VLLM_BASE_URL", f"{vllm}/v1")
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{ollama}/v1/")
        assert await find_servers() == [
            FoundServer("ollama", f"{ollama}/v1", ("b",)),
            FoundServer("vllm", f"{vllm}/v1", ("a",)),
        ]


@pytest.mark.parametrize(
    "page",
    [
        b"<html>It works!</html>",
        b"",
        {"status": "ok"},
        {"object": "error", "data": []},
        {"data": [{"name": "no id"}]},
        {"data": ["a"]},
        {"data": [{"id": "\x1b[2J"}]},
        [],
        b"[" * 100_000,
        b'{"data": [], "object": "list", "x": "' + b"x" * 2_000_000 + b'"}',
        None,
    ],
)
async def test_a_server_of_something_else_is_none(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with listing({"/v1/models": page}) as other:
        monkeypatch.setenv("LLAMACPP_BASE_URL", f"{other}/v1")
        assert await find_servers() == []


async def test_a_server_that_never_answers_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with _silent() as port:
        monkeypatch.setenv("LLAMACPP_BASE_URL", f"http://127.0.0.1:{port}/v1")
        assert await find_server("llamacpp") is None


async def test_a_loaded_model_comes_first_and_what_cannot_chat_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("nomic-embed-text", "qwen3:8b", "bge-m3", "llama3.2", "whisper-large")
    pages = {
        "/v1/models": model_list(*names),
        "/api/ps": {"models": [{"name": "llama3.2"}, {"name": "gone"}, 7]},
        "/api/v0/models": {"data": [{"id": "llama3.2", "state": "loaded"}, {"id": "qwen3:8b", "state": "not-loaded"}]},
    }
    with listing(pages) as server:
        for provider in ("ollama", "lmstudio"):
            monkeypatch.setenv(f"{provider.upper()}_BASE_URL", f"{server}/v1")
            assert await find_server(provider) == FoundServer(provider, f"{server}/v1", ("llama3.2", "qwen3:8b"))
    found = FoundServer("ollama", "http://user:password@127.0.0.1:5/v1", ())
    assert found.host == "127.0.0.1:5"


async def test_a_key_is_sent_where_one_is_given() -> None:
    with listing({"/v1/models": model_list("a")}) as server:
        assert await list_models_at(f"{server}/v1", "key") == ["a"]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1:5", "http://127.0.0.1:5/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":5", "http://127.0.0.1:5/v1"),
        ("[::]:5", "http://127.0.0.1:5/v1"),
        ("[::1]", "http://[::1]:11434/v1"),
        ("https://gpu.example/ollama/", "https://gpu.example:443/ollama/v1"),
        ("gpu:99999999", "http://gpu:11434/v1"),
        ("http://[::1", "http://127.0.0.1:11434/v1"),
    ],
)
def test_ollamas_own_variable_names_its_address(host: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert find_server_url("ollama") == "http://127.0.0.1:1/v1"
    monkeypatch.delenv("OLLAMA_BASE_URL")
    assert find_server_url("ollama") == address
    assert find_server_url("vllm") == "http://127.0.0.1:1/v1"


@contextmanager
def _silent() -> Generator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]
