"""One run without a chat, or many ordered by another program: the answer on stdout, everything else on stderr.

Formats: text (plain, or drawn on a terminal), json (one object at the end) and stream-json (the events). In every
case the run ends, its session is saved, and the exit code says how it ended. A tool call that needs approval is asked
about on the terminal, or by an event if both formats are stream-json; else it is denied, and a message says how to
allow it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from steersman.cli.arguments import Options
from steersman.cli.exits import DONE, ERROR, USAGE, describe_error, get_exit_code
from steersman.cli.run.output import JsonResult, PlainText, StreamJson
from steersman.cli.run.stdin_orders import OrderDriver, RunView
from steersman.cli.setup.settings import find_theme
from steersman.cli.setup.startup import start_agent
from steersman.cli.terminal.approval import ask_on_terminal, ask_trust_on_terminal
from steersman.cli.terminal.columns import allows_color
from steersman.cli.terminal.descriptors import STDERR, STDIN, STDOUT, is_terminal
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.cli.terminal.signals import StopRequest, catch_signals
from steersman.cli.terminal.stderr import StderrMessages
from steersman.cli.terminal.stdout import OutputWriter
from steersman.cli.terminal.theme import use_theme
from steersman.types.errors import MissingExtra
from steersman.types.events import AgentEvent, ApprovalRequested, ApprovalResolved, ToolExecutionEnd
from steersman.types.messages import EndReason
from steersman.types.result import RunResult

if TYPE_CHECKING:
    from steersman.agent.agent import Agent
    from steersman.cli.render import RunDisplay, TerminalView
    from steersman.cli.setup.model_choice import Choice
    from steersman.cli.setup.startup import StartedAgent
    from steersman.events.stream import EventStream
    from steersman.loop.config import ApproveFn
    from steersman.policy.approval import Approved
    from steersman.types.content import ToolCall


_MAX_ADVICE = 5
_REASONS: dict[EndReason, str] = {"limit": "a limit was reached: ", "vetoed": "refused: ", "rejected": "refused: "}


class TerminalOutput:
    """Draws runs on a terminal, with notices between."""

    def __init__(self, show: RunDisplay, view: TerminalView, stderr: StderrMessages) -> None:
        self._show = show
        self._view = view
        self._stderr = stderr

    async def show(self, stream: EventStream) -> RunResult:
        """Draws a run until it ends."""
        self._stderr.redirect = self._show_notice
        try:
            return await self._view.show(stream)
        finally:
            self._stderr.redirect = None

    async def settle(self) -> None:
        """Draws all that is finished."""
        await self._view.settle()

    def pause(self) -> AbstractContextManager[None]:
        """Draws nothing while a question is open."""
        return self._view.pause()

    def _show_notice(self, text: str) -> None:
        self._show.say("notice", text)


class TerminalQuestions:
    """Asks the person at the terminal for approval and trust.

    `settle` waits until earlier output is written. `pause` stops drawing while the question is open.
    """

    def __init__(self, stderr: StderrMessages) -> None:
        self._stderr = stderr
        self.settle: Callable[[], Awaitable[None]] | None = None
        self.pause: Callable[[], AbstractContextManager[None]] = nullcontext
        self._started: StartedAgent | None = None
        self._color = allows_color()

    def attach(self, started: StartedAgent) -> None:
        """Sets the agent whose calls need approval."""
        self._started = started

    async def ask(self, call: ToolCall, reason: str) -> bool | Approved:
        """Asks for approval; text typed instead of an answer steers the run."""
        started = self._started
        if started is None:
            return False
        if self.settle is not None:
            await self.settle()
        # What was told before must not stand between the question and its answer.
        await self._stderr.flush()
        with self.pause():
            return await ask_on_terminal(
                call, reason, agent=started.agent, workspace=started.workspace, color=self._color
            )

    async def trust(self, question: str, content: str) -> bool:
        """Asks whether to trust a file of the project."""
        # As above: what was told about the file before comes first.
        await self._stderr.flush()
        return await ask_trust_on_terminal(question, content)


def make_terminal_output(stderr: StderrMessages, workspace: Path, *, verbose: bool) -> TerminalOutput | None:
    """Returns the view for a terminal; `None` if it is not installed, or the terminal supports only text."""
    if os.environ.get("TERM", "") in ("", "dumb"):
        return None
    try:
        from steersman.cli.render import RunDisplay, TerminalView, wants_color

        show = RunDisplay(color=wants_color(STDOUT), verbose=verbose, workspace=workspace)
        return TerminalOutput(show, TerminalView(show, fd=STDOUT), stderr)
    except MissingExtra:
        return None


class _ProgramOutput(Protocol):
    """An output for programs, which also reports that no run took place."""

    def report_no_run(self, reason: EndReason, detail: str, /) -> None: ...


async def run_once(options: Options, *, start: Callable[[Agent], EventStream] | None = None) -> int:
    """Does what the command line asks for, without a chat; returns the exit code. `start` replaces `agent.prompt`."""
    stopping, stderr = StopRequest(), StderrMessages(verbose=options.verbose or _is_watched(options))
    with catch_signals(stopping.request) as signals:
        try:
            code = await _Invocation(options, stopping, stderr, start).run()
        finally:
            await stderr.close()
    if signals.code is not None:
        return signals.code
    return code if stopping.code is None else stopping.code


class _Invocation:
    """One call of the command: its parts and its outcome."""

    def __init__(
        self,
        options: Options,
        stopping: StopRequest,
        stderr: StderrMessages,
        start: Callable[[Agent], EventStream] | None = None,
    ) -> None:
        self._options = options
        self._start = start
        self._stopping = stopping
        self._stderr = stderr
        self._writer = stopping.writer = OutputWriter(STDOUT, on_failure=stopping.fail)
        self._format: _ProgramOutput | None = _make_program_output(options, self._writer)
        self._agent: Agent | None = None
        self._advised: set[str] = set()
        # The calls of open questions, and those that were answered.
        self._questions: dict[str, str] = {}
        self._answered: set[str] = set()
        self._denied: set[str] = set()
        self._began = self._drawn = False

    async def run(self) -> int:
        """Runs, and writes the last output; JSON formats also report a failure before the run."""
        try:
            return await self._start_and_run()
        except asyncio.CancelledError as cancel:
            if not self._stopping.consume_cancel(cancel):
                raise
            self._report_no_run("aborted", "operation aborted")
            return ERROR
        except Exception as error:
            self._report_no_run("error", describe_error(error))
            raise
        finally:
            self._stopping.finish()
            await self._writer.drain()
            self._writer.close()
            self._report_write_failure()

    async def _start_and_run(self) -> int:
        options, stderr = self._options, self._stderr
        asking = TerminalQuestions(self._stderr) if _can_ask(options) else None
        approve: ApproveFn | None = None if asking is None else asking.ask
        async with AsyncExitStack() as stack:
            started = await stack.enter_async_context(
                start_agent(
                    options,
                    approve=approve,
                    notify=stderr.notify,
                    progress=stderr.show_progress,
                    trust=None if asking is None else asking.trust,
                    chosen=self._report_choice,
                )
            )
            use_theme(find_theme(started.settings))
            view = self._choose_view(started, asking)
            self._agent = started.agent
            started.agent.subscribe(self._advise_on_denial)
            self._began = True
            return await self._run_agent(started, view)

    def _report_choice(self, choice: Choice) -> None:
        if self._options.output_format == "text" or self._stderr.shows_work:
            self._stderr.notify(choice.why)

    async def _run_agent(self, started: StartedAgent, view: RunView) -> int:
        options, agent = self._options, started.agent
        if options.input_format == "stream-json":
            answers = options.output_format == "stream-json"
            driver = OrderDriver(agent, view, self._stderr.notify, self._report_end, answers=answers)
            with self._stopping.call_on_stop(driver.stop):
                await driver.drive(STDIN, first=options.prompt)
            self._report_undelivered(agent)
            if driver.last is None:
                return USAGE if driver.misread else DONE
            return get_exit_code(driver.last, self._denied)
        stream = agent.prompt(options.prompt or "") if self._start is None else self._start(agent)
        with self._stopping.call_on_stop(agent.abort):
            result = await view.show(stream)
        self._report_end(result)
        return get_exit_code(result, self._denied)

    def _report_undelivered(self, agent: Agent) -> None:
        queued = agent.queued
        if count := len(queued.steering) + len(queued.follow_up):
            self._stderr.notify(f"not sent to the model: {count} queued; the next run of this session sends it")

    def _choose_view(self, started: StartedAgent, asking: TerminalQuestions | None) -> RunView:
        form = self._format
        if isinstance(form, JsonResult):
            form.attach(started)
        if isinstance(form, StreamJson | JsonResult):
            return form
        if asking is not None:
            asking.attach(started)
        structured = self._options.json_schema is not None
        drawn = None
        if is_terminal(STDOUT) and not structured:
            drawn = make_terminal_output(self._stderr, started.workspace, verbose=self._options.verbose)
        if drawn is not None:
            self._drawn = True
            if asking is not None:
                asking.settle, asking.pause = drawn.settle, drawn.pause
            return drawn
        streaming = is_terminal(STDOUT) or not started.agent.tools or _is_watched(self._options)
        plain = PlainText(self._writer, self._stderr, streaming=streaming, structured=structured)
        if asking is not None:
            asking.settle, asking.pause = plain.wait_until_written, plain.pause
        return plain

    def _report_end(self, result: RunResult) -> None:
        """Reports how the run ended, unless the view has shown it."""
        interrupted = result.end_reason == "aborted" and self._stopping.requested
        if self._options.output_format == "text" and result.detail and not interrupted and not self._drawn:
            self._stderr.notify(f"{_REASONS.get(result.end_reason, '')}{result.detail}")

    def _advise_on_denial(self, event: AgentEvent) -> None:
        """Notes a call that was denied without a question, and says how to allow it: once for each rule."""
        if type(event) is ApprovalRequested:
            self._questions[event.approval_id] = event.tool_call_id
        elif type(event) is ApprovalResolved and event.by != "loop":
            self._answered.add(self._questions.get(event.approval_id, ""))
        if type(event) is not ToolExecutionEnd or event.result.details.get("status") != "denied":
            return
        if event.tool_call_id in self._answered or self._agent is None:
            return
        approval = self._agent.config.approval
        if approval is None or approval.mode != "plan":  # a plan needs no change that it describes
            self._denied.add(event.tool_call_id)
        if _can_ask(self._options):
            return
        advice = _advise(self._agent, event.tool_name, event.args)
        if advice and advice not in self._advised and len(self._advised) < _MAX_ADVICE:
            self._advised.add(advice)
            self._stderr.notify(advice)

    def _report_no_run(self, reason: EndReason, detail: str) -> None:
        if self._format is not None and not self._began:
            self._format.report_no_run(reason, detail)

    def _report_write_failure(self) -> None:
        """Reports why standard output failed, unless the reader just closed it."""
        failure = self._stopping.failure
        if failure is not None and self._stopping.code == ERROR:
            self._stderr.notify(f"cannot write to standard output: {failure.strerror}.")


def _can_ask(options: Options) -> bool:
    """Whether a person is there to give approval."""
    return _is_watched(options) and is_terminal(STDERR)


def _is_watched(options: Options) -> bool:
    """Whether a person follows the work and not only its result; `-p` asks for the result alone."""
    return options.output_format == "text" and options.input_format == "text" and not options.print_only


def _make_program_output(options: Options, writer: OutputWriter) -> _ProgramOutput | None:
    match options.output_format:
        case "stream-json":
            return StreamJson(writer, on_terminal=is_terminal(STDOUT))
        case "json":
            return JsonResult(writer, on_terminal=is_terminal(STDOUT))
        case _:
            return None


def _advise(agent: Agent, name: str, arguments: Mapping[str, Any]) -> str:
    """Says which rule would let this very call through; empty if a rule or the mode denies it anyway."""
    import shlex

    from steersman.policy.proposals import explain_refusal, propose_exact_rules
    from steersman.policy.rules import SHELL

    shown, approval = sanitize_line(name), agent.config.approval
    tool = agent.tool_table.read(agent.context.tools).get(name)
    if tool is None or approval is None or approval.judge(tool, arguments).says != "ask":
        return ""
    rules = ",".join(propose_exact_rules(approval, tool, arguments))
    if not rules and name == SHELL:
        why = explain_refusal(arguments.get("command")) or "no rule can say exactly this"
        return f"bash was denied because it needs approval, and no rule is offered for it: {sanitize_line(why)}."
    if not rules:
        every = f"To allow every call of it: --allowed-tools {shlex.quote(shown)}"
        return f"{shown} was denied because it needs approval, and no rule can allow just this call. {every}"
    return f"{shown} was denied because it needs approval. To allow it: --allowed-tools {shlex.quote(rules)}"
