"""Saved sessions as text: the list, a conversation, and the Markdown export."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from steersman.cli.sessions.saved import SavedSession, Tally
from steersman.cli.terminal.columns import Canvas, align_table, truncate, wrap
from steersman.cli.terminal.numbers import format_count, format_money
from steersman.cli.terminal.sanitize import sanitize, sanitize_line
from steersman.context.entries import Entry, MessageEntry
from steersman.session.describe import describe_author, describe_change, encode_json
from steersman.session.tree import Branch
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage

_NARROW = 68


_MOST_LINES = 12
_LONGEST_ARGUMENT = 200
_FENCE = re.compile("`{3,}")


def render_list(tallies: Sequence[tuple[SavedSession, Tally]], canvas: Canvas, *, every: bool) -> list[str]:
    """Renders the list of sessions; two lines each in a narrow window."""
    if not tallies:
        more = "" if every else "; --all lists those of every folder"
        return wrap(f"No saved sessions for this folder yet{more}.", canvas.width)
    now = time.time()
    rows: list[list[str]] = []
    for saved, tally in tallies:
        folder = [sanitize_line(saved.folder)] if every else []
        title = sanitize_line(saved.summary.title) or "(no text yet)"
        row = [saved.short, *folder, format_time(saved.summary.updated, now), str(tally.messages), str(tally.turns)]
        rows.append([*row, format_cost(tally), title + ("" if tally.ended else "  [did not finish]")])
    if canvas.width is not None and canvas.width < _NARROW:
        return _render_stacked(rows, canvas)
    heads = ["ID", *(["FOLDER"] if every else []), "WHEN", "MESSAGES", "TURNS", "COST", "TITLE"]
    first = len(heads) - 4
    laid = align_table([heads, *rows], width=canvas.width, right=range(first, first + 3))
    head = canvas.style("".join(laid[0]).rstrip(), "dim")
    return [head, *(canvas.style(row[0], "bold") + "".join(row[1:]).rstrip() for row in laid[1:])]


def _render_stacked(rows: Sequence[Sequence[str]], canvas: Canvas) -> list[str]:
    """Renders the list for a narrow window: the title first, the rest below it."""
    assert canvas.width is not None
    lines: list[str] = []
    for id, *middle, messages, _, cost, title in rows:
        lines.append(f"{canvas.style(id, 'bold')} {truncate(title, max(4, canvas.width - len(id) - 1))}")
        below = f"  {', '.join(middle)}, {format_count(int(messages), 'message')}, {_describe_cost(cost)}"
        lines += [canvas.style(line, "dim") for line in wrap(below.strip(), canvas.width, indent="  ")]
    return lines


def summarize(saved: SavedSession, tally: Tally) -> dict[str, Any]:
    """Returns everything known about a session, for JSON."""
    summary = saved.summary
    return {
        "id": saved.id,
        "short": saved.short,
        "title": summary.title,
        "file": str(saved.path),
        "created": summary.created,
        "updated": summary.updated,
        "messages": tally.messages,
        "turns": tally.turns,
        "model": tally.model,
        "usage": msgspec.to_builtins(tally.usage),
        "ended": tally.ended,
        "problems": tally.problems,
    }


def render_head(saved: SavedSession, tally: Tally, canvas: Canvas) -> list[str]:
    """Renders the lines above a conversation."""
    now = time.time()
    facts = [
        f"started {format_time(saved.summary.created, now)}",
        f"last used {format_time(saved.summary.updated, now)}",
        format_count(tally.messages, "message"),
        format_count(tally.turns, "turn"),
        _describe_cost(format_cost(tally)),
        *([] if tally.ended else ["the last run did not finish"]),
    ]
    title = sanitize_line(saved.summary.title)
    lines = wrap(f"{saved.short}  {title}".rstrip(), canvas.width)
    return [
        *(canvas.style(line, "bold") for line in lines),
        *(canvas.style(line, "dim") for line in wrap(", ".join(facts), canvas.width)),
        "",
    ]


def _describe_cost(told: str) -> str:
    return "cost unknown" if told == "?" else "no cost" if told == "-" else told


def format_time(moment: float, now: float) -> str:
    """Formats a time: the hour for today and yesterday, the day for this year, otherwise the date."""
    then, today = time.localtime(moment), time.localtime(now)
    clock = time.strftime("%H:%M", then)
    if then[:3] == today[:3]:
        return f"today {clock}"
    if then[:3] == time.localtime(now - 86_400)[:3]:
        return f"yesterday {clock}"
    return time.strftime("%d %b %H:%M" if then.tm_year == today.tm_year else "%Y-%m-%d", then)


def format_cost(tally: Tally) -> str:
    """Formats the cost of a session; a lower bound says so, and an unknown cost is `?`, not 0."""
    cost = tally.usage.cost
    if cost is None:
        return "?" if tally.turns else "-"
    return ("at least " if tally.usage.partial else "") + format_money(cost)


def render_conversation(
    entries: Sequence[Entry],
    ways: Mapping[str, Sequence[Branch]],
    short: Mapping[str, str],
    canvas: Canvas,
    *,
    numbered: bool,
    whole: bool,
) -> Iterator[str]:
    """Renders a conversation. `ways` are the other branches that start at an entry, `short` the names of entries.

    With `numbered`, messages also show their numbers. With `whole`, tool results are not truncated.
    """
    number = 0
    for entry in entries:
        if isinstance(entry, MessageEntry):
            name = short.get(entry.id, entry.id)
            mark = f"#{number} {name}" if numbered else name
            number += 1
            yield from _render_message(entry.message, mark, canvas, whole=whole)
        else:
            yield canvas.style(f"-- {describe_change(entry)} --", "dim")
        for way in ways.get(entry.id, ()):
            label = f" {sanitize_line(way.label)!r}" if way.label else ""
            yield canvas.style(
                f"  >> another branch from here{label}: {short.get(way.leaf, way.leaf)} ({way.length} entries)", "warn"
            )
        yield ""


def export_markdown(title: str, entries: Sequence[Entry]) -> str:
    """Exports a conversation as a Markdown document; texts are not changed."""
    parts = [f"# {sanitize_line(title) or 'A session'}"]
    for entry in entries:
        if isinstance(entry, MessageEntry):
            parts.append(_export_message(entry.message))
        else:
            parts.append(f"*{describe_change(entry)}*")
    return "\n\n".join(parts) + "\n"


def format_call(call: ToolCall) -> str:
    """Formats a tool call on one line; long arguments are truncated."""
    if call.raw_arguments is not None:
        given = _shorten(call.raw_arguments)
    else:
        given = ", ".join(
            f"{sanitize_line(name)}={_shorten(encode_json(value))}" for name, value in call.arguments.items()
        )
    return f"{sanitize_line(call.name)}({given})"


def _render_message(message: AgentMessage, mark: str, canvas: Canvas, *, whole: bool) -> Iterator[str]:
    who, style = describe_author(message)
    yield f"{canvas.style(mark, 'dim')} {canvas.style(who, style)}"
    if isinstance(message, ToolResultMessage):
        yield from _truncate_lines(wrap(sanitize(_extract_text(message)), canvas.width, indent="  "), whole=whole)
        return
    for block in message.content:
        match block:
            case TextContent(text=text) if text.strip():
                yield from wrap(sanitize(text), canvas.width, indent="  ")
            case ThinkingContent(thinking=text) if text.strip():
                shown = _truncate_lines(wrap(sanitize(text), canvas.width, indent="  ~ "), whole=whole)
                yield from (canvas.style(line, "dim") for line in shown)
            case ToolCall():
                yield from wrap(f"-> {format_call(block)}", canvas.width, indent="  ")
            case ImageContent(mime_type=kind):
                yield f"  [an image, {sanitize_line(kind)}]"
            case _:
                pass
    if isinstance(message, AssistantMessage) and message.error_message:
        for line in wrap(f"! {sanitize(message.error_message)}", canvas.width, indent="  "):
            yield canvas.style(line, "bad")


def _extract_text(message: AgentMessage) -> str:
    images = sum(isinstance(block, ImageContent) for block in message.content)
    return message.text + ("\n[an image]" * images)


def _truncate_lines(lines: list[str], *, whole: bool) -> list[str]:
    if whole or len(lines) <= _MOST_LINES:
        return lines
    left = len(lines) - _MOST_LINES + 1
    return [*lines[: _MOST_LINES - 1], f"  ... {left} more lines (--full shows them)"]


def _shorten(text: str) -> str:
    line = sanitize_line(text)
    return line if len(line) <= _LONGEST_ARGUMENT else line[:_LONGEST_ARGUMENT] + "…"


def _export_message(message: AgentMessage) -> str:
    who, _ = describe_author(message)
    parts = [f"## {who}"]
    if isinstance(message, ToolResultMessage):
        return "\n\n".join([*parts, _fence(_extract_text(message))])
    for block in message.content:
        match block:
            case TextContent(text=text) if text.strip():
                parts.append(text.strip("\n"))
            case ThinkingContent(thinking=text) if text.strip():
                parts.append("\n".join(f"> {line}".rstrip() for line in text.strip().split("\n")))
            case ToolCall():
                given = block.raw_arguments
                shown = encode_json(block.arguments) if given is None else given
                parts += [f"Calls `{sanitize_line(block.name).replace('`', ' ')}`:", _fence(shown, "json")]
            case ImageContent():
                parts.append("*(an image)*")
            case _:
                pass
    if isinstance(message, AssistantMessage) and message.error_message:
        parts.append(f"**Error:** {sanitize_line(message.error_message)}")
    return "\n\n".join(parts)


def _fence(text: str, kind: str = "") -> str:
    """Fences a text with more backticks than it contains."""
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"
