"""One run without a chat, or as many as another program orders: the answer on stdout, everything else on stderr.

Formats: text (plain, or made for a terminal where there is one), json (one object at the end) and stream-json (the
events). Whatever happens, the run comes to its end, its session is kept, and the exit code says how it went. Where
nobody can be asked, a tool call that would have to be approved is denied, and a line says how to allow it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from steersman.cli.arguments import Options
from steersman.cli.exits import DONE, ERROR, USAGE, exit_code, line_of
from steersman.cli.run.output import Plain, StreamJson, WholeJson
from steersman.cli.run.stdin_orders import Driver, View
from steersman.cli.terminal.descriptors import STDERR, STDIN, STDOUT, is_terminal
from steersman.cli.terminal.sanitize import one_line
from steersman.cli.terminal.signals import Stopping, heard
from steersman.cli.terminal.stderr import Telling
from steersman.cli.terminal.stdout import Outlet
from steersman.types.errors import MissingExtra
from steersman.types.events import AgentEvent, ToolExecutionEnd
from steersman.types.messages import EndReason
from steersman.types.result import RunResult

if TYPE_CHECKING:
    from steersman.agent.agent import Agent
    from steersman.cli.render import Show, TerminalView
    from steersman.cli.setup.model_choice import Choice
    from steersman.cli.setup.startup import Outfit
    from steersman.events.stream import EventStream
    from steersman.loop.config import ApproveFn
    from steersman.policy.approval import Approved
    from steersman.types.content import ToolCall


class Drawn:
    """Shows runs on a terminal; what is told meanwhile is drawn among the rest."""

    def __init__(self, show: Show, view: TerminalView, telling: Telling) -> None:
        self._show = show
        self._view = view
        self._telling = telling

    async def show(self, stream: EventStream) -> RunResult:
        """Draw a run to its end."""
        self._telling.instead = self._say
        try:
            return await self._view.show(stream)
        finally:
            self._telling.instead = None

    def paused(self) -> AbstractContextManager[None]:
        """Draw nothing while somebody is asked something."""
        return self._view.paused()

    def _say(self, text: str) -> None:
        self._show.say("notice", text)


class Asking:
    """Asks the person at the terminal about a call.

    `settle` waits until what was said before is there, `pause` takes away what is drawn meanwhile, or holds it back.
    """

    def __init__(self) -> None:
        self.settle: Callable[[], Awaitable[None]] | None = None
        self.pause: Callable[[], AbstractContextManager[None]] = nullcontext
        self._outfit: Outfit | None = None
        self._color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def wear(self, outfit: Outfit) -> None:
        """Know whose calls these are."""
        self._outfit = outfit

    async def ask(self, call: ToolCall, reason: str) -> bool | Approved:
        """Ask, and let what the person wants instead be heard as steering."""
        from steersman.cli.terminal.approval import ask_on_terminal

        outfit = self._outfit
        if outfit is None:
            return False
        if self.settle is not None:
            await self.settle()
        with self.pause():
            return await ask_on_terminal(
                call, reason, workspace=outfit.workspace, color=self._color, instead=outfit.agent.steer
            )

    async def trust(self, question: str, content: str) -> bool:
        """Ask whether a file of the project may count."""
        from steersman.cli.terminal.approval import trust_on_terminal

        return await trust_on_terminal(question, content)


def on_terminal(telling: Telling, workspace: Path, *, verbose: bool) -> Drawn | None:
    """The view for a terminal; `None` where it is not installed, or the terminal can do nothing but text."""
    if os.environ.get("TERM", "") in ("", "dumb"):
        return None
    try:
        from steersman.cli.render import Show, TerminalView, wants_color

        show = Show(color=wants_color(STDOUT), verbose=verbose, workspace=workspace)
        return Drawn(show, TerminalView(show, fd=STDOUT), telling)
    except MissingExtra:
        return None


_REASONS: dict[EndReason, str] = {"limit": "a limit was reached: ", "vetoed": "refused: ", "rejected": "refused: "}


class _Format(Protocol):
    """A format that can also tell that there was no run."""

    def missed(self, reason: EndReason, detail: str, /) -> None: ...


async def once(options: Options, *, start: Callable[[Agent], EventStream] | None = None) -> int:
    """Do what the command line asks for, without a chat; the exit code. `start` begins the run in another way."""
    stopping, telling = Stopping(), Telling(verbose=options.verbose or _is_followed(options))
    with heard(stopping.ask) as signals:
        try:
            code = await _Once(options, stopping, telling, start).run()
        finally:
            await telling.close()
    if signals.code is not None:
        return signals.code
    return code if stopping.code is None else stopping.code


class _Once:
    """The parts of one call of the command, and what it came to."""

    def __init__(
        self,
        options: Options,
        stopping: Stopping,
        telling: Telling,
        start: Callable[[Agent], EventStream] | None = None,
    ) -> None:
        self._options = options
        self._start = start
        self._stopping = stopping
        self._telling = telling
        self._outlet = stopping.outlet = Outlet(STDOUT, on_failure=stopping.ask_because)
        self._format: _Format | None = _format(options, self._outlet)
        self._denied: set[str] = set()
        self._began = self._drawn = False

    async def run(self) -> int:
        """Work, and write the last of it; a failure before the run is part of an output that programs read."""
        try:
            return await self._work()
        except asyncio.CancelledError as cancel:
            if not self._stopping.was_it(cancel):
                raise
            self._missed("aborted", "operation aborted")
            return ERROR
        except Exception as error:
            self._missed("error", line_of(error))
            raise
        finally:
            self._stopping.let_finish()
            await self._outlet.drained()
            self._outlet.close()
            self._complain()

    async def _work(self) -> int:
        from steersman.cli.setup.startup import outfit

        options, telling = self._options, self._telling
        asking = Asking() if _can_ask(options) else None
        approve: ApproveFn | None = None if asking is None else asking.ask
        async with AsyncExitStack() as stack:
            worn = await stack.enter_async_context(
                outfit(
                    options,
                    approve=approve,
                    tell=telling.tell,
                    progress=telling.progress,
                    trust=None if asking is None else asking.trust,
                    chosen=self._tell_choice,
                )
            )
            view = self._view(worn, asking)
            worn.agent.subscribe(self._advise)
            self._began = True
            return await self._runs(worn, view)

    def _tell_choice(self, choice: Choice) -> None:
        if self._options.output_format == "text" or self._telling.chatty:
            self._telling.tell(choice.why)

    async def _runs(self, worn: Outfit, view: View) -> int:
        options, agent = self._options, worn.agent
        if options.input_format == "stream-json":
            driver = Driver(agent, view, self._telling.tell, self._conclude)
            with self._stopping.reaching(driver.stop):
                await driver.drive(STDIN, first=options.prompt)
            self._mention_unheard(agent)
            if driver.last is None:
                return USAGE if driver.misread else DONE
            return exit_code(driver.last)
        stream = agent.prompt(options.prompt or "") if self._start is None else self._start(agent)
        with self._stopping.reaching(agent.abort):
            result = await view.show(stream)
        self._conclude(result)
        return exit_code(result)

    def _mention_unheard(self, agent: Agent) -> None:
        queued = agent.queued
        if count := len(queued.steering) + len(queued.follow_up):
            self._telling.tell(f"not heard: {count} queued; the next run of this session hears it")

    def _view(self, worn: Outfit, asking: Asking | None) -> View:
        form = self._format
        if isinstance(form, WholeJson):
            form.wear(worn)
        if isinstance(form, StreamJson | WholeJson):
            return form
        if asking is not None:
            asking.wear(worn)
        structured = self._options.json_schema is not None
        drawn = None
        if is_terminal(STDOUT) and not structured:
            drawn = on_terminal(self._telling, worn.workspace, verbose=self._options.verbose)
        if drawn is not None:
            self._drawn = True
            if asking is not None:
                asking.pause = drawn.paused
            return drawn
        streaming = is_terminal(STDOUT) or not worn.agent.tools or _is_followed(self._options)
        plain = Plain(self._outlet, self._telling, streaming=streaming, structured=structured)
        if asking is not None:
            asking.settle, asking.pause = plain.settle, plain.paused
        return plain

    def _conclude(self, result: RunResult) -> None:
        """Say how it ended, where that was not shown."""
        interrupted = result.end_reason == "aborted" and self._stopping.asked
        if self._options.output_format == "text" and result.detail and not interrupted and not self._drawn:
            self._telling.tell(f"{_REASONS.get(result.end_reason, '')}{result.detail}")

    def _advise(self, event: AgentEvent) -> None:
        """Say once for each tool how a call could have been allowed, where nobody can be asked."""
        if type(event) is not ToolExecutionEnd or event.result.details.get("status") != "denied":
            return
        name = one_line(event.tool_name)
        if _can_ask(self._options) or name in self._denied:
            return
        self._denied.add(name)
        rule = f"{name}(git status:*)" if name == "bash" else name
        self._telling.tell(f"{name} was denied, since nobody can be asked here. To allow it: --allowed-tools '{rule}'")

    def _missed(self, reason: EndReason, detail: str) -> None:
        if self._format is not None and not self._began:
            self._format.missed(reason, detail)

    def _complain(self) -> None:
        """Say why nothing can be written, unless the reader just left."""
        failure = self._stopping.failure
        if failure is not None and self._stopping.code == ERROR:
            self._telling.tell(f"cannot write to standard output: {failure.strerror}.")


def _can_ask(options: Options) -> bool:
    """Whether there is a person who expects to be asked."""
    return _is_followed(options) and is_terminal(STDERR)


def _is_followed(options: Options) -> bool:
    """Whether somebody reads along, and wants to see the work and not its result alone: that is what -p is for."""
    return options.output_format == "text" and options.input_format == "text" and not options.print_only


def _format(options: Options, outlet: Outlet) -> _Format | None:
    match options.output_format:
        case "stream-json":
            return StreamJson(outlet)
        case "json":
            return WholeJson(outlet)
        case _:
            return None
