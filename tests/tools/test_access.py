from __future__ import annotations

from typing import Any

import pytest

from steersman import Agent, Tool, prun, prun_with_memo, tool
from steersman.testing import ScriptedModel


def test_a_tool_may_do_anything_unless_it_says_less() -> None:
    @tool
    def plain() -> None:
        """Do."""

    @tool(access="read")
    def reads() -> None:
        """Look."""

    class Desk:
        @tool(access="edit")
        def edits(self) -> None:
            """Change."""

    assert [item.access for item in (plain, reads, Desk.edits, Desk().edits)] == ["full", "read", "edit", "edit"]
    assert Tool("x", "", {"type": "object"}, lambda: None, access="edit").access == "edit"


def test_a_sub_agent_and_what_drops_messages_change_nothing_themselves() -> None:
    child = Agent(ScriptedModel().model)
    assert [item.access for item in (prun, prun_with_memo, child.as_tool("a", ""))] == ["read"] * 3
    assert child.as_tool("a", "", access="full").access == "full"


@pytest.mark.parametrize("access", ["", "Read", "write", None, True, ["read"]])
def test_another_access_is_refused(access: Any) -> None:
    with pytest.raises(ValueError, match=r"The access of tool 'x' is 'read', 'edit' or 'full', got"):
        Tool("x", "", {"type": "object"}, lambda: None, access=access)
    with pytest.raises(ValueError, match="got"):
        tool(name="x", access=access)(lambda: None)
