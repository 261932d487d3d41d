"""ACP judged by the client of its JavaScript SDK (server.md 5)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.server.judging import judge

pytestmark = pytest.mark.real_time


async def test_the_javascript_client_understands_all_of_it(tmp_path: Path) -> None:
    """Text, thinking, a tool, approvals (yes, no, unable, after a kill), an error, a cancel, load, resume and fork."""
    agent = [sys.executable, "-m", "tests.server.fronts.acp.program", str(tmp_path / "sessions.db")]
    seen = await judge("acp.mjs", str(tmp_path), *agent)
    assert seen["reasons"] == {
        "think": "end_turn",
        "yes": "end_turn",
        "no": "end_turn",
        "unable": "end_turn",
        "cancel": "cancelled",
        "last": "end_turn",
    }
    assert seen["questions"] == 5
    assert seen["lost"] == "ACP connection closed"
    statuses = [one["status"] for one in seen["reopened"] if "status" in one]
    assert (statuses[0], statuses[-1]) == ("pending", "completed")
    ends = [one["status"] for one in seen["updates"] if one.get("status") in ("completed", "failed")]
    assert ends[:3] == ["completed", "failed", "failed"]
    assert seen["error"]["code"] == -32603
    assert seen["replayed"] == ["think", "deploy", "deploy", "deploy", "fail", "slow"]
    assert seen["listed"] == seen["expected"]
    thoughts = [one["content"]["text"] for one in seen["updates"] if one["sessionUpdate"] == "agent_thought_chunk"]
    assert "".join(thoughts).startswith("Hmm.")
