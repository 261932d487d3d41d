"""The kept sessions as people read them: one line each where there is room, two where there is little."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from steersman.cli.sessions.saved import Kept, Tally
from steersman.cli.terminal.columns import Paper, counted, cut, table, wrapped
from steersman.cli.terminal.sanitize import one_line, safe
from steersman.context.entries import CompactionEntry, Entry, MessageEntry, PrunEntry, UndoEntry
from steersman.session.tree import Branch
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage

_NARROW = 68


def listed(tallies: Sequence[tuple[Kept, Tally]], paper: Paper, *, every: bool) -> list[str]:
    """The lines of a list of sessions."""
    if not tallies:
        more = "" if every else "; --all looks in every folder's"
        return wrapped(f"No sessions are kept for this folder yet{more}.", paper.width)
    now = time.time()
    rows: list[list[str]] = []
    for kept, tally in tallies:
        folder = [one_line(kept.folder)] if every else []
        title = one_line(kept.summary.title) or "(no words yet)"
        row = [kept.short, *folder, when(kept.summary.updated, now), str(tally.messages), str(tally.turns)]
        rows.append([*row, money(tally), title + ("" if tally.ended else "  [did not end]")])
    if paper.width is not None and paper.width < _NARROW:
        return _stacked(rows, paper)
    heads = ["ID", *(["FOLDER"] if every else []), "WHEN", "MESSAGES", "TURNS", "COST", "TITLE"]
    first = len(heads) - 4
    laid = table([heads, *rows], width=paper.width, right=range(first, first + 3))
    head = paper.styled("".join(laid[0]).rstrip(), "dim")
    return [head, *(paper.styled(row[0], "bold") + "".join(row[1:]).rstrip() for row in laid[1:])]


def _stacked(rows: Sequence[Sequence[str]], paper: Paper) -> list[str]:
    """For a narrow window: the title first, the rest below it."""
    assert paper.width is not None
    lines: list[str] = []
    for id, *middle, messages, _, cost, title in rows:
        lines.append(f"{paper.styled(id, 'bold')} {cut(title, max(4, paper.width - len(id) - 1))}")
        below = f"  {', '.join(middle)}, {counted(int(messages), 'message')}, {_cost(cost)}"
        lines += [paper.styled(line, "dim") for line in wrapped(below.strip(), paper.width, indent="  ")]
    return lines


def summed(kept: Kept, tally: Tally) -> dict[str, Any]:
    """All that is known of a session, for programs."""
    summary = kept.summary
    return {
        "id": kept.id,
        "short": kept.short,
        "title": summary.title,
        "file": str(kept.path),
        "created": summary.created,
        "updated": summary.updated,
        "messages": tally.messages,
        "turns": tally.turns,
        "model": tally.model,
        "usage": msgspec.to_builtins(tally.usage),
        "ended": tally.ended,
        "problems": tally.problems,
    }


def head_of(kept: Kept, tally: Tally, paper: Paper) -> list[str]:
    """What stands above a conversation."""
    now = time.time()
    facts = [
        f"begun {when(kept.summary.created, now)}",
        f"last used {when(kept.summary.updated, now)}",
        counted(tally.messages, "message"),
        counted(tally.turns, "turn"),
        _cost(money(tally)),
        *([] if tally.ended else ["the last run did not end"]),
    ]
    title = one_line(kept.summary.title)
    lines = wrapped(f"{kept.id}  {title}".rstrip(), paper.width)
    return [
        *(paper.styled(line, "bold") for line in lines),
        *(paper.styled(line, "dim") for line in wrapped(", ".join(facts), paper.width)),
        "",
    ]


def _cost(told: str) -> str:
    return "cost unknown" if told == "?" else "no cost" if told == "-" else told


def when(moment: float, now: float) -> str:
    """A time as people say it: the hour of today and yesterday, the day of this year, the year of others."""
    then, today = time.localtime(moment), time.localtime(now)
    clock = time.strftime("%H:%M", then)
    if then[:3] == today[:3]:
        return f"today {clock}"
    if then[:3] == time.localtime(now - 86_400)[:3]:
        return f"yesterday {clock}"
    return time.strftime("%d %b %H:%M" if then.tm_year == today.tm_year else "%Y-%m-%d", then)


def money(tally: Tally) -> str:
    """What a session cost; a lower bound has a mark, and what is not known is not 0."""
    cost = tally.usage.cost
    if cost is None:
        return "?" if tally.turns else "-"
    return ("more than " if tally.usage.partial else "") + (f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}")


_MOST_LINES = 12
_LONGEST_ARGUMENT = 200
_FENCE = re.compile("`{3,}")


def conversation(
    entries: Sequence[Entry], ways: Mapping[str, Sequence[Branch]], paper: Paper, *, numbered: bool, whole: bool
) -> Iterator[str]:
    """The lines of a conversation. `ways` are the branches that begin at an entry and are not this one.

    With `numbered` messages have their numbers, else their ids; with `whole` long tool results are not cut.
    """
    number = 0
    for entry in entries:
        if isinstance(entry, MessageEntry):
            mark = f"#{number}" if numbered else entry.id
            number += 1
            yield from _message(entry.message, mark, paper, whole=whole)
        else:
            yield paper.styled(f"-- {_change(entry)} --", "dim")
        for way in ways.get(entry.id, ()):
            label = f" {one_line(way.label)!r}" if way.label else ""
            yield paper.styled(f"  >> another way from here{label}: {way.leaf} ({way.length} entries)", "warn")
        yield ""


def markdown_of(title: str, entries: Sequence[Entry]) -> str:
    """A conversation as a Markdown document; its texts are as they were said."""
    parts = [f"# {one_line(title) or 'A session'}"]
    for entry in entries:
        if isinstance(entry, MessageEntry):
            parts.append(_in_markdown(entry.message))
        else:
            parts.append(f"*{_change(entry)}*")
    return "\n\n".join(parts) + "\n"


def call_line(call: ToolCall) -> str:
    """A tool call on one line, with its arguments cut where they are long."""
    if call.raw_arguments is not None:
        given = _short(call.raw_arguments)
    else:
        given = ", ".join(f"{one_line(name)}={_short(_json(value))}" for name, value in call.arguments.items())
    return f"{one_line(call.name)}({given})"


def _message(message: AgentMessage, mark: str, paper: Paper, *, whole: bool) -> Iterator[str]:
    who, style = _who(message)
    yield f"{paper.styled(mark, 'dim')} {paper.styled(who, style)}"
    if isinstance(message, ToolResultMessage):
        yield from _cut(wrapped(safe(_words(message)), paper.width, indent="  "), whole=whole)
        return
    for block in message.content:
        match block:
            case TextContent(text=text) if text.strip():
                yield from wrapped(safe(text), paper.width, indent="  ")
            case ThinkingContent(thinking=text) if text.strip():
                shown = _cut(wrapped(safe(text), paper.width, indent="  ~ "), whole=whole)
                yield from (paper.styled(line, "dim") for line in shown)
            case ToolCall():
                yield from wrapped(f"-> {call_line(block)}", paper.width, indent="  ")
            case ImageContent(mime_type=kind):
                yield f"  [a picture, {one_line(kind)}]"
            case _:
                pass
    if isinstance(message, AssistantMessage) and message.error_message:
        for line in wrapped(f"! {safe(message.error_message)}", paper.width, indent="  "):
            yield paper.styled(line, "bad")


def _who(message: AgentMessage) -> tuple[str, Any]:
    match message:
        case UserMessage(synthetic=True):
            return "steersman", "dim"
        case UserMessage():
            return "user", "bold"
        case AssistantMessage():
            named = f" ({one_line(message.model)})" if message.model else ""
            failed = f" [{message.stop_reason}]" if message.stop_reason not in ("stop", "tool_use") else ""
            return f"assistant{named}{failed}", "bold"
        case ToolResultMessage():
            status = one_line(str(message.details.get("status", "")))
            trouble = " failed" if message.is_error and status == "completed" else f" {status}" if status else ""
            return f"{one_line(message.tool_name)}:{trouble or ' done'}", "bad" if message.is_error else "good"
        case _:
            return f"note ({one_line(message.kind)})", "dim"


def _words(message: AgentMessage) -> str:
    pictures = sum(isinstance(block, ImageContent) for block in message.content)
    return message.text + ("\n[a picture]" * pictures)


def _cut(lines: list[str], *, whole: bool) -> list[str]:
    if whole or len(lines) <= _MOST_LINES:
        return lines
    left = len(lines) - _MOST_LINES + 1
    return [*lines[: _MOST_LINES - 1], f"  ... {left} more lines (--full shows them)"]


def _change(entry: Entry) -> str:
    match entry:
        case CompactionEntry():
            return f"compacted: from here on the model saw {len(entry.items)} messages for all before"
        case PrunEntry():
            memo = f"; memo: {one_line(entry.memo)}" if entry.memo else ""
            return f"the model put {len(entry.entry_ids)} messages of its work aside{memo}"
        case UndoEntry():
            return "the last compaction or prun was undone"
        case _:
            return entry.type


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST_ARGUMENT else line[:_LONGEST_ARGUMENT] + "…"


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()


def _in_markdown(message: AgentMessage) -> str:
    who, _ = _who(message)
    parts = [f"## {who}"]
    if isinstance(message, ToolResultMessage):
        return "\n\n".join([*parts, _fenced(_words(message))])
    for block in message.content:
        match block:
            case TextContent(text=text) if text.strip():
                parts.append(text.strip("\n"))
            case ThinkingContent(thinking=text) if text.strip():
                parts.append("\n".join(f"> {line}".rstrip() for line in text.strip().split("\n")))
            case ToolCall():
                given = block.raw_arguments
                shown = _json(block.arguments) if given is None else given
                parts += [f"Calls `{one_line(block.name).replace('`', ' ')}`:", _fenced(shown, "json")]
            case ImageContent():
                parts.append("*(a picture)*")
            case _:
                pass
    if isinstance(message, AssistantMessage) and message.error_message:
        parts.append(f"**Error:** {one_line(message.error_message)}")
    return "\n\n".join(parts)


def _fenced(text: str, kind: str = "") -> str:
    """A block that nothing inside it can close."""
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"
