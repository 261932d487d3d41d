"""The kept sessions as people read them: one line each where there is room, two where there is little."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from steersman.cli.sessions.saved import Kept, Tally
from steersman.cli.terminal.columns import Paper, counted, cut, table, wrapped
from steersman.cli.terminal.sanitize import one_line

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
