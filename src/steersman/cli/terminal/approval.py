"""Asks a person whether a tool call may run: shows its whole effect, and only a clear yes approves it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from steersman.cli.exits import UserError
from steersman.cli.setup.settings import find_config_file
from steersman.cli.setup.settings_file import add_allow_rules
from steersman.cli.terminal.columns import Canvas, Style, measure_widest, split_cells, wrap
from steersman.cli.terminal.descriptors import STDERR, STDIN, count_columns, is_terminal
from steersman.cli.terminal.highlight import color_diff, find_language_of_file
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.cli.terminal.spans import paint, slice_spans
from steersman.cli.terminal.stdin import TerminalLines
from steersman.policy.approval import Approved, Says
from steersman.policy.destructive import find_destructive_effects
from steersman.policy.preview import Kind, Part, describe_call
from steersman.policy.proposals import NO_PROPOSAL, Proposal, explain_refusal, propose_rules
from steersman.policy.rules import SHELL
from steersman.tools.threads import call_in_thread
from steersman.types.content import ToolCall
from steersman.types.visible import escape_invisible

if TYPE_CHECKING:
    from steersman.agent.agent import Agent

Scope: TypeAlias = Literal["once", "session", "always"]

CAPITAL = (
    "A capital A means always, and writes the rule into your settings, for every folder. s means for this session."
)
NO_RULE = "No rule can say this, so it cannot be allowed for good. s allows this exact call for this session."
EVERY_TIME = "This is asked about every time, for the reason above. y allows it once."
SETTLING = 0.3
"""Seconds during which a new question accepts no answer, so that keys typed before it was shown do not answer it."""

_RUNS_PROJECT = "That lets it run code that is not judged, such as the project's, as it is by then."
_BAR, _FOLD = "  │ ", "  ┆ "
_INDENT = "    "  # more than before the bar, so that a quoted bar does not look like ours
_MANY_LINES = 12  # with less, the question is still on the smallest screen
_LONGEST_REASON = 400  # it quotes the call, and all of that is shown above
_STYLES: dict[Kind, Style] = {"path": "bold", "added": "good", "removed": "bad", "note": "dim"}


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """A person's answer: yes or no, how long a yes holds, and text for the model instead."""

    yes: bool
    scope: Scope = "once"
    words: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that needs approval: why, what it would do if its tool can say so, and rules that would allow it."""

    call: ToolCall
    why: str = ""
    effect: str | None = None
    proposal: Proposal = NO_PROPOSAL

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that would allow the call."""
        return self.proposal.rules

    @property
    def choices(self) -> str:
        """The possible answers, on one line."""
        longer = "s this exact call, for this session · "
        if self.rules:
            longer = "s yes, for this session · A yes, always · "
        elif self.proposal.refusal:
            longer = ""
        return f"y yes, once · {longer}n no · or type what to do instead"

    def judge(self, agent: Agent) -> Says:
        """What the policy says about the call now."""
        tool = agent.tool_table.read(agent.context.tools).get(self.call.name)
        approval = agent.config.approval
        if tool is None or approval is None:
            return "ask"
        says = approval.judge(tool, self.call.arguments).says
        return "ask" if says == "allow" and tool.needs_approval else says


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A question that is not about a tool call: only a clear yes is one."""

    choices: str = "y yes · n no"

    def judge(self, agent: Agent) -> Says:
        """No policy answers it."""
        del agent
        return "ask"


async def prepare_request(call: ToolCall, why: str, agent: Agent) -> ApprovalRequest:
    """Finds out what a call would do, and which rules would allow it."""
    tool = agent.tool_table.read(agent.context.tools).get(call.name)
    approval = agent.config.approval
    if tool is not None and approval is not None:
        proposal = propose_rules(approval, tool, call.arguments)
    else:
        proposal = Proposal(
            refusal=explain_refusal(call.arguments.get("command")) if call.name.lower() == SHELL else ""
        )
    if tool is None:  # a sub-agent's own
        return ApprovalRequest(call, why, proposal=proposal)
    effect = None
    if tool.preview is not None:
        try:
            effect = await call_in_thread(tool.preview, call.arguments, None)
        except Exception:  # noqa: BLE001  # such as a file that was removed just now: the arguments are shown
            effect = None
    return ApprovalRequest(call, why, effect, proposal)


def parse_answer(line: str, request: ApprovalRequest | Confirmation) -> ApprovalAnswer | str:
    """Parses a typed line; an empty one means no. Returns a text if the answer is not clear, and the question stays."""
    word = line.strip()
    if isinstance(request, Confirmation):
        return ApprovalAnswer(yes=word.lower() in ("y", "yes"))
    match word.lower():
        case "y" | "yes":
            return ApprovalAnswer(yes=True)
        case "s" | "a" | "always" if request.proposal.refusal:
            return EVERY_TIME
        case "s":
            return ApprovalAnswer(yes=True, scope="session")
        case "a" | "always":
            return CAPITAL if word == "a" else ApprovalAnswer(yes=True, scope="always") if request.rules else NO_RULE
        case "" | "n" | "no":
            return ApprovalAnswer(yes=False)
        case _:
            return ApprovalAnswer(yes=False, words=word)


def apply_answer(answer: ApprovalAnswer, request: ApprovalRequest, agent: Agent) -> tuple[bool | Approved, str]:
    """Does what the answer says beyond this call; returns the verdict for the call, and a line about it."""
    if not answer.yes:
        return False, f"You said no: {answer.words}" if answer.words else "You said no."
    approval = agent.config.approval
    if answer.scope == "once" or request.proposal.refusal:
        return True, "You said yes."
    if approval is None or not request.rules:
        return Approved(remember=True), "You said yes: this exact call, for this session."
    approval.add_allow_rules(*request.rules)
    rules = ", ".join(request.rules)
    if answer.scope == "session":
        return True, f"You said yes, for this session: {rules}"
    file = find_config_file()
    try:
        add_allow_rules(file, request.rules)
    except UserError as error:
        return True, f"You said yes. It holds for this session only: {error}"
    return True, f"You said always: {rules} is now in {file}, for every folder"


def describe_effect(request: ApprovalRequest, workspace: Path, width: int, *, color: bool) -> str:
    """Describes what a call would do, in lines of at most `width` columns; nothing is truncated or invisible.

    Text from the model stands behind a bar, or inside a sentence of ours, so that it cannot imitate our own lines.
    """
    call, why = request.call, request.why
    canvas = Canvas(width, color)
    lines = [canvas.style(line, "bold") for line in _tell(f"May the agent {_describe_action(call, workspace)}", width)]
    lines += _render_parts(list(describe_call(call.name, call.arguments, request.effect)), canvas, width)
    for effect in _find_destruction(call):
        lines += [canvas.style(line, "bad") for line in _wrap(f"Warning: it {effect}.", width)]
    where = f"In {sanitize_line(escape_invisible(str(workspace)))}." if call.name == "bash" else ""
    because = f"Needs approval: {_quote_reason(why)}." if why else ""
    for told in (where, because):
        lines += [canvas.style(line, "dim") for line in _tell(told, width) if told]
    if request.rules:
        added = "this rule" if len(request.rules) == 1 else "these rules"
        heading = f"s adds {added}; A in every folder:"
        shown = [*_wrap(heading, width), *[line for rule in request.rules for line in _bar_lines(rule, width)]]
        shown += _wrap(_RUNS_PROJECT, width) if request.proposal.runs_project else []
        lines += [canvas.style(line, "dim") for line in shown]
    elif refusal := request.proposal.refusal:
        told = f"Asked about every time: {_quote_reason(refusal)}."
        lines += [canvas.style(line, "dim") for line in _tell(told, width)]
    return "\n".join(lines)


async def describe_in_thread(request: ApprovalRequest, workspace: Path, width: int, *, color: bool) -> str:
    """Describes what a call would do while the event loop goes on: of a long text, every line is measured."""
    return await call_in_thread(describe_effect, request, workspace, width, color=color)


async def describe_question(request: ApprovalRequest, workspace: Path, width: int, *, color: bool) -> str:
    """Describes a question for a terminal that is not drawn on: what a call would do, and the possible answers.

    After many lines it says how many there are: their beginning may have scrolled away, and with it what the call does.
    """
    shown = await describe_in_thread(request, workspace, width, color=color)
    lines = shown.count("\n") + 1
    again = _wrap(f"All {lines:,} lines above are about this call.", width) if lines > _MANY_LINES else []
    return "\n".join([shown, *again, *wrap(request.choices, width)])


def _render_parts(parts: Sequence[Part], canvas: Canvas, width: int) -> list[str]:
    """Renders what a call would do; the lines of a diff are coloured by the language of their file too."""
    path = parts[0].text if canvas.color and parts and parts[0].kind == "path" else ""
    if find_language_of_file(path) is None or any("\n" in part.text for part in parts):
        return [
            canvas.style(line, style) if (style := _STYLES.get(part.kind)) else line
            for part in parts
            for line in _bar_lines(part.text, width)
        ]
    head = [canvas.style(line, "bold") for line in _bar_lines(path, width)]
    shown = [escape_invisible(part.text).expandtabs(4) for part in parts[1:]]
    room = max(1, width - measure_widest(_BAR))
    for text, spans in zip(shown, color_diff(shown, path), strict=True):
        start, bar = 0, _BAR
        for piece in split_cells(text, room, measure_widest):
            found = next(slice_spans(spans, [(start, start + len(piece))]))
            head.append(bar + paint(found, color=True))
            start, bar = start + len(piece), _FOLD
    return head


def _find_destruction(call: ToolCall) -> list[str]:
    command = call.arguments.get("command")
    return find_destructive_effects(command) if call.name == "bash" and isinstance(command, str) else []


def _describe_action(call: ToolCall, workspace: Path) -> str:
    match call.name:
        case "bash":
            return "run this command?"
        case "edit":
            return "change this file?"
        case "write":
            there = _exists(workspace, call.arguments.get("path"))
            return "overwrite this file?" if there else "create this file?"
        case "fetch":
            return "fetch this URL?"
        case _:
            return f"call the tool {sanitize_line(escape_invisible(call.name))}?"


def _exists(workspace: Path, path: object) -> bool:
    try:
        return isinstance(path, str) and os.path.lexists(workspace / path)
    except ValueError:  # not a valid path
        return False


def _quote_reason(text: str) -> str:
    shown = sanitize_line(escape_invisible(text))
    return shown if len(shown) <= _LONGEST_REASON else f"{shown[: _LONGEST_REASON - 1]}…"


def _wrap(text: str, width: int) -> list[str]:
    return wrap(text, width, measure=measure_widest)


def _tell(text: str, width: int) -> list[str]:
    """Wraps a sentence that quotes text of others: its other rows are indented, so that none looks like a new line."""
    if "\n" not in text and measure_widest(text) <= width:
        return [text]
    first, *others = _wrap(text, max(1, width - len(_INDENT)))
    return [first, *[_INDENT + line for line in others]]


def _bar_lines(text: str, width: int) -> Iterator[str]:
    """Yields lines behind a bar; none is wider than its row in any terminal, as its rest would be without the bar."""
    room = max(1, width - measure_widest(_BAR))
    for line in escape_invisible(text).split("\n"):
        first, *others = split_cells(line.expandtabs(4), room, measure_widest)
        yield _BAR + first
        for piece in others:
            yield _FOLD + piece


async def ask_on_terminal(call: ToolCall, why: str, *, agent: Agent, workspace: Path, color: bool) -> bool | Approved:
    """Asks on the terminal, line by line; what the person typed instead of an answer steers the run.

    The question goes to standard error. The answer is read from the keyboard, even if standard input is a pipe.
    """
    width = count_columns(STDERR) or 80
    request = await prepare_request(call, why, agent)
    text = await describe_question(request, workspace, width, color=color)
    answer: ApprovalAnswer | str = ""
    while isinstance(answer, str):
        line = await _ask_for_line(text)
        answer = ApprovalAnswer(yes=False) if line is None else parse_answer(line, request)
        text = "\n".join(_wrap(answer, width)) if isinstance(answer, str) else ""
    if answer.words:
        agent.steer(answer.words)
    verdict, said = apply_answer(answer, request, agent)
    if answer.scope != "once":
        sys.stderr.write(f"{sanitize_line(escape_invisible(said))}\n")
        sys.stderr.flush()
    return verdict


async def ask_trust_on_terminal(question: str, content: str) -> bool:
    """Asks whether to trust a file of the project, and shows all of it; only a clear yes counts."""
    text = describe_confirmation(question, content, count_columns(STDERR) or 80)
    line = await _ask_for_line(f"{text}\n{Confirmation().choices}")
    return line is not None and line.strip().lower() in ("y", "yes")


def describe_confirmation(question: str, content: str, width: int) -> str:
    """Describes a question and all that it is about; both are sanitized here.

    After many lines the question is repeated: its beginning may have scrolled away, and with it what is asked.
    """
    asked = sanitize_line(escape_invisible(question))
    about = [*_bar_lines(content, width)] if content else []
    again = _tell(f"The {len(about):,} lines above are about this: {asked}", width) if len(about) > _MANY_LINES else []
    return "\n".join([*_tell(asked, width), *about, *again])


async def _ask_for_line(text: str) -> str | None:
    """Shows a text and returns the line typed after it; `None` if there is no terminal."""
    try:
        piped = not is_terminal(STDIN)
        source = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY) if piped else STDIN
    except OSError:
        return None
    try:
        with TerminalLines(source) as lines:
            sys.stderr.write(f"\n{text}\n")
            sys.stderr.flush()
            await asyncio.sleep(SETTLING)
            lines.discard_typed()
            sys.stderr.write("? ")
            sys.stderr.flush()
            return await lines.next()
    finally:
        if piped:
            os.close(source)
