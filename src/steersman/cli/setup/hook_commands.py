"""The hooks of the settings: commands that are told as JSON what happens, and whose exit code or answer decides.

A gate (`before_tool`, `after_tool`, `prompt`) whose command fails in any way says no. `end` and `waiting` only tell. A
hook runs in the sandbox of `bash`, whatever tools have written there, unless the user's own settings say otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from steersman.cli.setup.file_history import FileHistory
from steersman.cli.setup.hook_process import HookFailed, run_hook
from steersman.cli.setup.hook_sandbox import HookSandbox, explain_sandbox, is_confined
from steersman.cli.setup.settings import HookSettings, Seam
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.policy.hooks import HookError
from steersman.policy.patterns import fold_lookalikes
from steersman.policy.verdicts import FilterVerdict, Pass, Reject, Rewrite, Skip, Warn
from steersman.types.content import TextContent, ToolCall
from steersman.types.errors import ToolError
from steersman.types.events import AgentEnd, AgentEvent, ApprovalRequested
from steersman.types.tools import ToolOutput

DENIED = 2
"""The exit code that says no; every other one than 0 is a failure, which says no as well."""

_SHOWN = 500
_ANSWERS: Mapping[Seam, frozenset[str]] = {
    "before_tool": frozenset(("deny", "arguments")),
    "after_tool": frozenset(("deny", "output", "add")),
    "prompt": frozenset(("deny", "add")),
    "end": frozenset[str](),
    "waiting": frozenset[str](),
}


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What a command said: no, with a reason, or what to change."""

    denied: str | None = None
    arguments: dict[str, Any] | None = None
    output: str | None = None
    added: str = ""


class HookCommands:
    """The commands of the settings at the seams of an agent; an agent takes it as a hook and as an input filter."""

    def __init__(
        self,
        hooks: Sequence[HookSettings],
        workspace: Path,
        notify: Callable[[str], None],
        sandbox: HookSandbox | None = None,
        files: FileHistory | None = None,
    ) -> None:
        self._hooks = hooks
        self._sandbox = HookSandbox(workspace) if sandbox is None else sandbox
        self._history = files
        self._advised: set[HookSettings] = set()
        self._workspace = workspace
        self._notify = notify
        self._tasks: set[asyncio.Task[None]] = set()

    def get_agent_options(self) -> dict[str, Any]:
        """The options with which an agent asks the commands; its gates wait as long as all of them may take."""
        longest = sum((hook.timeout for hook in self._hooks), start=60.0)
        return {"hooks": [self], "input_filters": [self.filter], "gate_timeout": longest}

    async def before_tool_execution(self, call: ToolCall) -> Skip | Rewrite | None:
        """Asks the commands before a tool; they may deny the call, or change its arguments."""
        arguments = dict(call.arguments)
        for hook in self._select("before_tool", call.name):
            answer = await self._ask(hook, {"tool": call.name, "arguments": arguments})
            if answer.denied is not None:
                return Skip(f"Denied by the hook {hook.command!r:.100}: {answer.denied}")
            arguments = arguments if answer.arguments is None else answer.arguments
        return None if arguments == call.arguments else Rewrite(arguments)

    async def after_tool_execution(self, call: ToolCall, output: ToolOutput) -> ToolOutput | None:
        """Asks the commands after a tool; they may withhold its output, replace it, or add to it."""
        changed: ToolOutput | None = None
        for hook in self._select("after_tool", call.name):
            text = _get_text(changed or output)
            told = {"tool": call.name, "arguments": call.arguments, "output": text, "is_error": output.is_error}
            answer = await self._ask(hook, told)
            if answer.denied is not None:
                raise HookError(f"The hook {hook.command!r:.100} said no: {answer.denied}")
            if answer.output is not None:
                changed = msgspec.structs.replace(changed or output, content=answer.output)
            if answer.added:
                changed = _add_text(changed or output, answer.added)
        return changed

    async def filter(self, text: str) -> FilterVerdict:
        """Asks the commands about a prompt; they may refuse it, or add something that the model reads with it."""
        added: list[str] = []
        for hook in self._select("prompt"):
            answer = await self._ask(hook, {"prompt": text})
            if answer.denied is not None:
                return Reject(f"the hook {hook.command!r:.100} said no: {answer.denied}")
            added += [answer.added] if answer.added else []
        return Warn("\n".join(added)) if added else Pass()

    def tell(self, event: AgentEvent) -> None:
        """Tells the commands that a run has ended, or that it waits for approval; does not wait for them."""
        match event:
            case AgentEnd():
                self._tell("end", {"end_reason": event.end_reason, "detail": event.detail})
            case ApprovalRequested():
                self._tell("waiting", {"tool": event.tool_name, "arguments": event.args}, event.tool_name)
            case _:
                return

    async def close(self) -> None:
        """Waits for the commands that were told something."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _select(self, seam: Seam, tool: str | None = None) -> list[HookSettings]:
        # As in rules that deny: a hook for `bash` is one for `Bash`, and a server may offer `Delete` beside `delete`.
        name = None if tool is None else fold_lookalikes(tool)
        return [
            hook
            for hook in self._hooks
            if hook.at == seam and (not hook.tools or name in [fold_lookalikes(each) for each in hook.tools])
        ]

    def _tell(self, seam: Seam, told: Mapping[str, object], tool: str | None = None) -> None:
        for hook in self._select(seam, tool):
            task = asyncio.get_running_loop().create_task(self._run_untold(hook, told))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run_untold(self, hook: HookSettings, told: Mapping[str, object]) -> None:
        if (denied := (await self._ask(hook, told)).denied) is not None:
            self._notify(sanitize_line(f"The hook {hook.command!r:.100} failed: {denied}"))

    async def _ask(self, hook: HookSettings, told: Mapping[str, object]) -> HookAnswer:
        """Runs a command; a failure of any kind is a no."""
        told = {"at": hook.at, "folder": os.fspath(self._workspace), **told}
        code, errors = 0, ""
        try:
            data = msgspec.json.encode(told, enc_hook=repr)
            if self._history is None or hook.at != "after_tool":
                code, said, errors = await self._run(hook, data)
            else:
                # One that formats what a tool wrote changes files for the same prompt.
                code, said, errors = await self._history.record(lambda: self._run(hook, data))
            answer = parse_answer(hook.at, code, said, errors)
            if answer.denied is None:
                return answer
            return self._refuse(hook, answer.denied, explain_sandbox(hook, code, errors))
        except HookFailed as error:
            return self._refuse(hook, str(error), error.advice or explain_sandbox(hook, code, errors))
        except (ToolError, OSError, ValueError, TypeError, RecursionError) as error:
            return HookAnswer(denied=f"it could not be asked: {error}")

    async def _run(self, hook: HookSettings, told: bytes) -> tuple[int, str, str]:
        if is_confined(hook):
            return await self._sandbox.run(hook, told)
        return await run_hook(hook, told, self._workspace)

    def _refuse(self, hook: HookSettings, why: str, advice: str) -> HookAnswer:
        """A no. The user is told of the advice once for each gate, as a long reason is not shown in full."""
        if advice and hook not in self._advised and hook.at not in ("end", "waiting"):
            self._advised.add(hook)
            self._notify(sanitize_line(f"The hook {hook.command!r:.100} said no: {why:.200} ({advice})."))
        return HookAnswer(denied=f"{why} ({advice})" if advice else why)


def parse_answer(seam: Seam, code: int, said: str, errors: str) -> HookAnswer:
    """Reads the answer of a command; raises `HookFailed` for one that means nothing at the seam.

    Output that does not begin with `{` is for people, and is no answer.
    """
    if code == DENIED:
        return HookAnswer(denied=_shorten(errors) or _shorten(said) or "it gave no reason")
    if code:
        raise HookFailed(f"it ended with exit code {code}{f': {_shorten(errors)}' if errors.strip() else ''}")
    said = said.removeprefix("\ufeff")
    if not said.lstrip().startswith("{"):
        return HookAnswer()
    try:
        found = msgspec.json.decode(said, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise HookFailed(f"its answer is not valid JSON: {error}") from error
    unknown = sorted(found.keys() - _ANSWERS[seam])
    if unknown:
        known = ", ".join(sorted(_ANSWERS[seam])) or "nothing"
        raise HookFailed(f"its answer has {unknown[0]!r:.50}, and may have at {seam}: {known}")
    arguments = found.get("arguments")
    texts = [found.get(key) for key in ("deny", "output", "add")]
    if not all(text is None or isinstance(text, str) for text in texts) or not isinstance(arguments, dict | None):
        raise HookFailed("its answer has a value of the wrong type")
    deny, output, add = cast(list[str | None], texts)
    return HookAnswer(deny, cast("dict[str, Any] | None", arguments), output, add or "")


def _get_text(output: ToolOutput) -> str:
    if isinstance(output.content, str):
        return output.content
    return "\n".join(part.text for part in output.content if isinstance(part, TextContent))


def _add_text(output: ToolOutput, text: str) -> ToolOutput:
    content = output.content
    whole = f"{content}\n{text}" if isinstance(content, str) else [*content, TextContent(text)]
    return msgspec.structs.replace(output, content=whole)


def _shorten(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 1]}…"
