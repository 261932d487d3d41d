"""Draws the spans of a real run, which needs no network, as a picture: python -m docs.spans [--output FILE]."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, cast

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from steersman import Agent, AgentEvent, Retry, Usage, tool
from steersman.telemetry import instrument
from steersman.testing import ScriptedModel, answer, call, error

PICTURE = Path(__file__).parent / "images" / "spans.svg"
WIDTH, NAMES, RIGHT, LINE, TOP, MARGIN = 1000, 330, 150, 30, 64, 20
INK, FAINT, PAPER, GRID = "#e6e6e6", "#9aa0ab", "#1d2026", "#2b2f37"
COLOURS = {"invoke_agent": "#7aa2f7", "chat": "#9ece6a", "execute_tool": "#e0af68"}
FAILED = "#f7768e"
_FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"


class Bar(NamedTuple):
    """A span in the picture: how deep it is, its name, its seconds, what is written beside it, and its events."""

    depth: int
    name: str
    began: float
    ended: float
    note: str
    failed: bool
    events: tuple[tuple[float, str], ...]


@tool
async def search(query: str) -> str:
    """Search the documents."""
    await asyncio.sleep(0.25)
    return "three pages"


@tool
async def read_page(page: int) -> str:
    """Read a page."""
    await asyncio.sleep(0.15)
    return "High water is at 4:12."


async def record_spans() -> Sequence[ReadableSpan]:
    """Run an agent with a sub-agent, a retry and steering; returns its spans."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    pace = 0.05
    helper = Agent(
        ScriptedModel(
            answer(call("read_page", page=2), usage=Usage(input=240, output=18), pace=pace),
            answer("High water is at 4:12.", usage=Usage(input=280, output=11), pace=pace),
            id="small-model",
        ).model,
        tools=[read_page],
    )
    script = ScriptedModel(
        error("overloaded", "Let me", pace=pace),
        answer(
            call("search", query="tides"),
            call("researcher", prompt="When is high water?"),
            usage=Usage(input=410, output=52),
            pace=pace,
        ),
        answer("High water is at 4:12 in the morning, in Dover.", usage=Usage(input=620, output=34), pace=pace),
        id="large-model",
    )
    tools = [search, helper.as_tool("researcher", "Looks things up.")]
    agent = Agent(script.model, tools=tools, retry=Retry(base_delay=0.2, jitter=0))

    def steer(event: AgentEvent) -> None:
        if event.type == "tool_execution_end" and event.tool_name == "search":
            agent.steer("For Dover, please.", mode="wait")

    agent.subscribe(steer)
    instrument(agent, provider, name="tides")
    await agent.run("When can we sail tomorrow?")
    return exporter.get_finished_spans()


def lay_out(spans: Sequence[ReadableSpan]) -> list[Bar]:
    """The bars of these spans from top to bottom: each below the span it belongs to."""
    start = min(_seconds(span.start_time) for span in spans)
    ids = {_id_of(span) for span in spans}

    def walk(parent: int | None, depth: int) -> Iterator[Bar]:
        for span in sorted(spans, key=lambda one: one.start_time or 0):
            above = None if span.parent is None or span.parent.span_id not in ids else span.parent.span_id
            if above == parent:
                yield _to_bar(span, depth, start)
                yield from walk(_id_of(span), depth + 1)

    return list(walk(None, 0))


def _to_bar(span: ReadableSpan, depth: int, start: float) -> Bar:
    found: dict[str, Any] = dict(span.attributes or {})
    note = cast(str, found.get("error.type", ""))
    if not note and "gen_ai.usage.input_tokens" in found:
        note = f"{found['gen_ai.usage.input_tokens']:,} in, {found['gen_ai.usage.output_tokens']:,} out"
    return Bar(
        depth,
        span.name,
        _seconds(span.start_time) - start,
        _seconds(span.end_time) - start,
        note,
        "error.type" in found,
        tuple((_seconds(event.timestamp) - start, event.name) for event in span.events),
    )


def _seconds(nanoseconds: int | None) -> float:
    return (nanoseconds or 0) / 1e9


def _id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return 0 if context is None else context.span_id


def render_svg(bars: Sequence[Bar]) -> str:
    """Renders the bars over a scale of seconds."""
    height = TOP + LINE * len(bars) + MARGIN
    whole = max(bar.ended for bar in bars)
    body = "\n".join([*_draw_scale(whole, height), *(_draw(number, bar, whole) for number, bar in enumerate(bars))])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="The spans of one run">\n<rect width="{WIDTH}" height="{height}" rx="9" fill="{PAPER}"/>\n'
        f'<g font-family="{_FONT}" font-size="13">\n{body}\n</g>\n</svg>\n'
    )


def _place(seconds: float, whole: float) -> float:
    return NAMES + seconds / whole * (WIDTH - NAMES - RIGHT)


def _draw_scale(whole: float, height: int) -> Iterator[str]:
    yield f'<text x="{MARGIN}" y="28" fill="{FAINT}">span</text>'
    yield f'<text x="{WIDTH - MARGIN}" y="28" fill="{FAINT}" text-anchor="end">tokens</text>'
    for step in range(5):
        seconds = whole * step / 4
        x = _place(seconds, whole)
        yield f'<path d="M{x:.1f} 38V{height - MARGIN}" stroke="{GRID}"/>'
        yield f'<text x="{x:.1f}" y="28" fill="{FAINT}" text-anchor="middle">{seconds:.2f} s</text>'


def _draw(number: int, bar: Bar, whole: float) -> str:
    y = TOP + LINE * number
    x, end = _place(bar.began, whole), _place(bar.ended, whole)
    colour = FAILED if bar.failed else COLOURS.get(bar.name.split()[0], FAINT)
    drawn = [
        f'<text x="{MARGIN + bar.depth * 18}" y="{y + 4}" fill="{INK}">{escape(bar.name)}</text>',
        f'<rect x="{x:.1f}" y="{y - 8}" width="{max(end - x, 2):.1f}" height="16" rx="3" fill="{colour}"/>',
        f'<text x="{WIDTH - MARGIN}" y="{y + 4}" fill="{FAILED if bar.failed else FAINT}" text-anchor="end">'
        f"{escape(bar.note)}</text>",
    ]
    for seconds, name in bar.events:
        at = _place(seconds, whole)
        drawn.append(f'<path d="M{at:.1f} {y - 8}v16" stroke="{PAPER}" stroke-width="2"/>')
        drawn.append(
            f'<text x="{at + 5:.1f}" y="{y + 4}" fill="{PAPER}" font-size="11">{escape(name.rpartition(".")[2])}</text>'
        )
    return "".join(drawn)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the agent and writes the picture."""
    parser = argparse.ArgumentParser(prog="python -m docs.spans", description="Draws the spans of a run.")
    parser.add_argument("--output", type=Path, default=PICTURE)
    options = parser.parse_args(arguments)
    bars = lay_out(asyncio.run(record_spans()))
    options.output.write_text(render_svg(bars), encoding="utf-8")
    sys.stdout.write(f"{options.output}: {len(bars)} spans\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
