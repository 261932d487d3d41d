"""ACP judged by the client of its JavaScript SDK (server.md 5)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.server.fronts.node import install_packages, place_script

ROOT = Path(__file__).parents[4]


@pytest.mark.timeout(400)
def test_the_javascript_client_understands_all_of_it(tmp_path: Path) -> None:
    """Text, thinking, a tool, approvals (yes, no, unable), an error, a cancel, load, resume, fork and list."""
    folder = install_packages("@agentclientprotocol/sdk@2.4")
    script = place_script(Path(__file__).with_name("client.mjs"), folder)
    agent = [sys.executable, "-m", "tests.server.fronts.acp.program", str(tmp_path / "sessions.db")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            ["node", str(script), str(tmp_path), *agent], capture_output=True, env=env, timeout=60, check=False
        )
    finally:
        script.unlink()
    assert done.returncode == 0, done.stderr.decode()
    seen = json.loads(done.stdout)
    assert seen["reasons"] == {
        "think": "end_turn",
        "yes": "end_turn",
        "no": "end_turn",
        "unable": "end_turn",
        "cancel": "cancelled",
        "last": "end_turn",
    }
    assert seen["questions"] == 3
    ends = [one["status"] for one in seen["updates"] if one.get("status") in ("completed", "failed")]
    assert ends[:3] == ["completed", "failed", "failed"]
    assert seen["error"]["code"] == -32603
    assert seen["replayed"] == ["think", "deploy", "deploy", "deploy", "fail", "slow"]
    assert seen["listed"] == seen["expected"]
    thoughts = [one["content"]["text"] for one in seen["updates"] if one["sessionUpdate"] == "agent_thought_chunk"]
    assert "".join(thoughts).startswith("Hmm.")
