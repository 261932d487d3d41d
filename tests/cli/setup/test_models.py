"""`steersman models`: names and prices, never a key; whom the command would ask, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.cli.command import Place, assert_calm, command_line, environment, run_command
from tests.cli.pty_terminal import Terminal

from steersman.cli.setup.inventory import check_connection, is_local_url, redact_base_url
from steersman.cli.terminal.numbers import format_price, format_size, format_window
from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
from steersman.provider.models.catalogue import describe, find_facts, list_known_models
from steersman.types.usage import Prices

CANARY = "sk-canary-0123456789"
NOWHERE = {
    "OLLAMA_BASE_URL": "http://127.0.0.1:9/v1",
    "LMSTUDIO_BASE_URL": "http://127.0.0.1:9/v1",
    "LLAMACPP_BASE_URL": "http://127.0.0.1:9/v1",
    "VLLM_BASE_URL": "http://127.0.0.1:9/v1",
}
"""So that what runs on the machine of the tests is not found."""


def test_a_key_is_told_by_the_name_of_its_variable_alone(place: Place) -> None:
    """failures.md L13: neither a key nor a password in an address is shown, in no form of the output."""
    env = {**NOWHERE, "ANTHROPIC_API_KEY": CANARY, "GROQ_BASE_URL": f"https://me:{CANARY}@groq.example/v1?key={CANARY}"}
    shown = run_command(["models"], place=place, env=env)
    as_json = run_command(["models", "--json"], place=place, env=env)
    for done in (shown, as_json):
        assert_calm(done)
        assert (done.code, done.errors) == (0, "")
        assert CANARY not in done.text
    assert shown.text.splitlines()[0] == "Now: Using anthropic:claude-sonnet-5-5 (ANTHROPIC_API_KEY is set)."
    rows = [line.split() for line in shown.text.splitlines()]
    assert ["anthropic", "key", "set", "(ANTHROPIC_API_KEY)", "https://api.anthropic.com"] in rows
    assert ["groq", "no", "key", "(GROQ_API_KEY)", "https://groq.example/v1"] in rows
    told: dict[str, Any] = as_json.json
    assert told["chosen"]["model"] == "anthropic:claude-sonnet-5-5"
    anthropic = next(provider for provider in told["providers"] if provider["name"] == "anthropic")
    sonnet = next(model for model in anthropic["models"] if model["name"] == "anthropic:claude-sonnet-4-5")
    assert (anthropic["key_set"], anthropic["key_variables"]) == ("ANTHROPIC_API_KEY", ["ANTHROPIC_API_KEY"])
    assert (sonnet["context_window"], sonnet["prices"]["input"]) == (200_000, 3.0)


def test_models_are_found_by_a_part_of_their_name(place: Place) -> None:
    found = run_command(["models", "sonnet-4-5"], place=place, env=NOWHERE)
    assert found.code == 0
    assert "  anthropic:claude-sonnet-4-5 " in found.text
    assert all("sonnet-4" in line for line in found.text.splitlines()[1:])
    none = run_command(["models", "no-such-model"], place=place, env=NOWHERE)
    assert (none.code, none.text) == (
        1,
        "No known model has 'no-such-model' in its name. You can still use it, as provider:model-id.\n",
    )


@pytest.mark.real_time
async def test_a_server_on_this_machine_and_the_embedded_models_are_there(place: Place) -> None:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "nomic-embed-text"}]})

    import asyncio

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    whole = place.home / "cache" / "steersman" / "models" / LOCAL_MODELS[DEFAULT_LOCAL_MODEL].file
    whole.parent.mkdir(parents=True)
    with whole.open("wb") as file:
        file.truncate(LOCAL_MODELS[DEFAULT_LOCAL_MODEL].size)
    env = {**NOWHERE, "OLLAMA_BASE_URL": f"http://127.0.0.1:{port}/v1"}
    try:
        done = await asyncio.to_thread(run_command, ["models"], place=place, env=env)
    finally:
        await runner.cleanup()
    assert done.text.startswith(f"Now: Using ollama:qwen3:8b (Ollama answers on 127.0.0.1:{port}).\n")
    assert f"  Ollama at 127.0.0.1:{port}: qwen3:8b\n" in done.text
    assert f"  local:{DEFAULT_LOCAL_MODEL}  491 MB, Apache-2.0, on disk\n" in done.text
    assert "  local:smollm2-135m  98 MB, Apache-2.0, downloaded on first use\n" in done.text


def test_in_a_narrow_window_every_line_fits(place: Place) -> None:
    with Terminal(
        command_line(["models"]), columns=40, env=environment(place, None, NOWHERE), cwd=place.project
    ) as seen:
        assert seen.ended() == 0
        lines = bytes(seen.raw).replace(b"\x1b[1m", b"").replace(b"\x1b[2m", b"").replace(b"\x1b[0m", b"").splitlines()
    assert len(lines) > 40
    assert [line for line in lines if len(line.decode()) > 40] == []


def test_prices_windows_and_sizes_are_told_in_short() -> None:
    assert [format_price(amount) for amount in (None, 0.0, 0.0375, 0.15, 3.0)] == [
        "?",
        "$0.00",
        "$0.0375",
        "$0.15",
        "$3.00",
    ]
    assert [format_window(tokens) for tokens in (None, 512, 8192, 200_000, 1_048_576)] == [
        "?",
        "512",
        "8.19k",
        "200k",
        "1.05M",
    ]
    assert [format_size(count) for count in (491_400_064, 75_300_000_000)] == ["491 MB", "75.3 GB"]


def test_what_is_described_is_among_the_known_models() -> None:
    describe("deepseek:my-own", context_window=1000, prices=Prices(1.0, 2.0))
    assert "my-own" in list_known_models("deepseek")
    assert find_facts("deepseek", "my-own").context_window == 1000
    assert list_known_models("ollama") == ()


def test_an_address_is_shown_without_what_may_be_secret() -> None:
    addresses = ["https://me:pw@a.example:8443/v1?k=1#f", "http://[::1]:8080/v1", "https://a.example:port/", "/x"]
    assert [redact_base_url(url) for url in addresses] == [
        "https://a.example:8443/v1",
        "http://[::1]:8080/v1",
        "(not a URL)",
        "/x",
    ]
    near = ["http://127.0.0.1:1/v1", "http://localhost:1", "http://[::1]/", "http://10.0.0.1/", "https://a.example", ""]
    assert [is_local_url(url) for url in near] == [True, True, True, False, False, False]


@pytest.mark.real_time
async def test_an_address_can_be_reached_or_not(tmp_path: Path) -> None:
    import asyncio

    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await check_connection(f"http://127.0.0.1:{port}/v1") is None
        secure = await check_connection(f"https://127.0.0.1:{port}/v1")
    assert secure is not None
    assert (
        await check_connection(f"http://127.0.0.1:{port}/v1")
        == f"Cannot connect to 127.0.0.1:{port}: Connection refused."
    )
