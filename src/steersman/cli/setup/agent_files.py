"""The sub-agents of the command: `explore` and `general`, and those of the files in `agents` folders.

A sub-agent has its parent's tools or fewer, and everything it does meets the rules and questions of its parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steersman.cli.exits import UserError, describe_error
from steersman.cli.setup.budget import add_usual_prices, explain_missing_budget, has_unknown_price
from steersman.cli.setup.markdown_files import MarkdownFile, load_project_files, read_own_files
from steersman.cli.setup.model_choice import resolve_model
from steersman.cli.setup.trust import AskTrust, Notify
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.provider.local.weights.cache import LOCAL_MODELS
from steersman.team.task import TaskKind, task_tool
from steersman.tools.read_budget import ReadBudget
from steersman.tools.text import to_one_line
from steersman.tools.tool import Tool
from steersman.types.errors import SteersmanError

AGENT_FOLDERS = (".steersman/agents",)
TASK = "task"
_KEYS = ("name", "description", "tools", "model")
_MAX_DESCRIPTION = 1_024
_NOT_FOR_EXPLORING = ("todo", TASK)
_GENERAL = TaskKind("For any work: it can do what you can do.")
_EXPLORE = "To look around and answer a question about the project: it reads and searches, and changes nothing."


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """The files of sub-agents that count; `own` are the user's, and come first."""

    own: Sequence[MarkdownFile] = ()
    project: Sequence[MarkdownFile] = ()


async def load_agent_files(
    workspace: Path, *, ask: AskTrust | None, notify: Notify, budget: ReadBudget | None = None
) -> AgentFiles:
    """Loads the user's agents, and those of the project that the user trusts."""
    project = await load_project_files(workspace, AGENT_FOLDERS, ask=ask, notify=notify, budget=budget)
    return AgentFiles(read_own_files("agents", notify), project)


async def make_task_tool(files: AgentFiles, tools: Iterable[Tool], *, has_budget: bool, notify: Notify) -> Tool:
    """Makes the tool `task` for an agent with these built-in tools."""
    reading = [tool.name for tool in tools if tool.access == "read" and tool.name not in _NOT_FOR_EXPLORING]
    kinds: dict[str, TaskKind] = {"general": _GENERAL}
    if reading:
        kinds["explore"] = TaskKind(_EXPLORE, tools=reading)
    found = [*((file, False) for file in files.own), *((file, True) for file in files.project)]
    for file, of_project in found:
        try:
            name, kind = await _make_kind(file, of_project=of_project, has_budget=has_budget, notify=notify)
            if name in kinds:
                raise UserError(f"there is another agent {name!r}")
            kinds[name] = kind
        except (UserError, SteersmanError, ValueError) as error:
            notify(f"The agent {sanitize_line(file.path)} is left out: {describe_error(error).removesuffix('.')}.")
    return task_tool(kinds)


async def _make_kind(file: MarkdownFile, *, of_project: bool, has_budget: bool, notify: Notify) -> tuple[str, TaskKind]:
    head = file.head
    name = to_one_line(head.get("name", "") or file.name, 64)
    description = to_one_line(head.get("description", ""), _MAX_DESCRIPTION)
    if not description:
        raise UserError("it has no description, so the model would not know when to use it")
    if not file.body:
        raise UserError("it has no text, which would be its system prompt")
    unknown = [key for key in head if key not in _KEYS]
    if unknown:
        notify(f"The agent {sanitize_line(file.path)}: {sanitize_line(', '.join(unknown))} has no effect here.")
    tools = [item.strip() for item in head["tools"].split(",") if item.strip()] if "tools" in head else None
    options: dict[str, Any] = {}
    if (model := head.get("model", "inherit")) != "inherit":
        options["model"] = await _find_model(model, of_project=of_project, has_budget=has_budget)
    return name, TaskKind(description, tools=tools, system_prompt=file.body, **options)


async def _find_model(name: str, *, of_project: bool, has_budget: bool) -> Any:
    provider, _, model_id = name.partition(":")
    if of_project and provider.strip() == "local" and model_id.strip() not in ("", *LOCAL_MODELS):
        raise UserError("its model is a file; only your own agents may name one")
    model = await resolve_model(name)
    if has_budget and has_unknown_price(model := add_usual_prices(model)):
        raise UserError(explain_missing_budget(model))
    return model
