"""The agents that `steersman eval` evaluates: that of this folder, with one model or several, in a case's folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from steersman.agent.agent import Agent
from steersman.cli.arguments import Options
from steersman.cli.exits import USAGE, UserError
from steersman.cli.setup.startup import start_agent
from steersman.cli.terminal.stderr import StderrMessages


@dataclass(frozen=True, slots=True)
class _FolderAgent:
    """Makes the agent of the command for the folder of a case; nothing that would need approval is approved."""

    options: Options
    model: str
    notify: Callable[[str], None]

    @asynccontextmanager
    async def __call__(self, folder: Path) -> AsyncGenerator[Agent[Any]]:
        async with start_agent(
            self.options, approve=None, notify=self.notify, keep_session=False, workspace=folder
        ) as started:
            yield started.agent


class FolderAgents:
    """Starts the agents once, so that a missing key or a wrong setting is told before any case runs."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stderr = StderrMessages(verbose=options.verbose)
        self._stack = AsyncExitStack()
        self._told: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        await self._stderr.close()

    async def start(self, models: Sequence[str]) -> dict[str, Any]:
        """The agents by the names of their models; the usual one if none is named."""
        found: dict[str, Any] = {}
        for model in models or [self._options.model]:
            options = replace(self._options, model=model)
            started = await self._stack.enter_async_context(
                start_agent(
                    options,
                    approve=None,
                    notify=self._notify,
                    progress=self._stderr.show_progress,
                    chosen=lambda choice: self._notify(choice.why),
                    keep_session=False,
                )
            )
            # The model is known now, and every case gets this one.
            name = started.model.name
            if name in found:
                raise UserError(f"{name!r} is named twice. --repeat N runs each case several times.", code=USAGE)
            found[name] = _FolderAgent(options, name, self._notify)
        return found

    def _notify(self, text: str) -> None:
        """Tells each notice once, and not for every case again."""
        if text not in self._told:
            self._told.add(text)
            self._stderr.notify(text)
