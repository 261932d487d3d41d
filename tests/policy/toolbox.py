"""Tools and questions for the tests of the approval policy."""

from __future__ import annotations

from typing import Any

from steersman import Tool
from steersman.policy.approval import Approval, Judgement
from steersman.tools.tool import Access

ACCESS: dict[str, Access] = {
    "read": "read", "list": "read", "glob": "read", "search": "read", "write": "edit", "edit": "edit",
}  # fmt: skip


def _nothing(_: dict[str, Any]) -> None:
    pass


def tool_of(name: str, access: Access | None = None, **properties: Any) -> Tool:
    """A tool that takes anything and does nothing."""
    schema = {"type": "object", "properties": properties}
    return Tool(name, "", schema, _nothing, access=access or ACCESS.get(name.lower(), "full"))


def judge(policy: Approval, tool: str | Tool, **arguments: Any) -> Judgement:
    """What a policy says to a call."""
    return policy.judge(tool_of(tool) if isinstance(tool, str) else tool, arguments)


def says(policy: Approval, tool: str | Tool, **arguments: Any) -> str:
    """The same in one word."""
    return judge(policy, tool, **arguments).says
