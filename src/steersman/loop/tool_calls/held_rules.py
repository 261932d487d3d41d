"""The policies a run is under, and what they hold a tool to that opens files or says what a call would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

from steersman.loop.run import Run
from steersman.loop.tool_calls.execution import Slot, build_idempotency_key
from steersman.policy.approval import Approval
from steersman.tools.confine.denied_paths import deny_paths
from steersman.tools.confine.held_hosts import hold_hosts
from steersman.tools.output import ToolContext
from steersman.tools.threads import call_in_thread
from steersman.tools.tool import Preview, Tool
from steersman.types.cancel import CancelToken
from steersman.types.errors import ToolError
from steersman.types.frozen import thaw
from steersman.types.tools import ToolOutput


def iterate_policies(run: Run | None) -> Iterator[tuple[Run, Approval]]:
    """The policies a run is under, its own first."""
    while run is not None:
        if run.config.approval is not None:
            yield run, run.config.approval
        run = run.parent


def hold_rules_of(run: Run, tool: Tool) -> None:
    """Let tools hold, in this task, the rules of a run and of all runs above it for where links and redirects lead."""
    policies = [policy for _, policy in iterate_policies(run) if policy.denies_paths]
    naming = [policy for _, policy in iterate_policies(run) if policy.names_hosts]

    def deny(path: str, *, writing: bool) -> str:
        name = tool.name.lower() if writing else "read"
        return next((rule for policy in policies if (rule := policy.find_path_denial(name, path))), "")

    deny_paths(deny if policies else None)
    hold_hosts((lambda url: any(policy.holds_host(url) for policy in naming)) if naming else None)


async def find_effect(run: Run, slot: Slot, tool: Tool) -> str | ToolOutput | None:
    """What the tool says that a call would do; its output if it would fail, `None` where the tool says nothing."""
    if tool.preview is None:
        return None
    return await call_in_thread(partial(_call_preview, run, slot, tool, tool.preview))


def _call_preview(run: Run, slot: Slot, tool: Tool, preview: Preview) -> str | ToolOutput | None:
    """Call the preview of a tool, under the rules for paths; `None` where it says nothing."""
    policies = [policy for _, policy in iterate_policies(run)]
    asked: list[str] = []

    def deny(path: str, *, writing: bool) -> str:
        name = tool.name.lower() if writing else "read"
        denied = next((rule for policy in policies if (rule := policy.find_path_denial(name, path))), "")
        asked.extend([path] if not writing and not denied and not _may_read(run, policies, path) else [])
        return denied

    deny_paths(deny)
    log = run.context.log
    context = ToolContext(
        slot.call.id,
        slot.call.name,
        CancelToken(),
        idempotency_key=build_idempotency_key(run, slot),
        deps=run.deps,
        state=log.state.copy_read_only("A preview may read the state, and not change it."),
        artifacts=log.artifacts.copy_read_only("A preview may read artifacts, and not save them."),
    )
    try:
        text = cast(object, preview(thaw(slot.args), context))
        return text if isinstance(text, str) else None
    except ToolError as error:
        # Its text may quote the file. Where reading it needs approval, that is for the question to decide.
        return None if asked else ToolOutput(str(error) or "ToolError", is_error=True)
    except Exception:  # noqa: BLE001  # a preview that broke is none: the question shows the arguments
        return None


def _may_read(run: Run, policies: Sequence[Approval], path: str) -> bool:
    """Whether the model may read a real, absolute path and needs no approval for it."""
    reader = run.tools.get("read")
    if reader is None or reader.needs_approval:
        return False
    return all(
        policy.judge(reader, {"path": path}).says == "allow" and not policy.find_path_question("read", path)
        for policy in policies
    )
