"""A flame graph: stacks are sampled by a timer of CPU time, and drawn as SVG."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from html import escape
from types import FrameType
from typing import Any, Self

Stack = tuple[str, ...]
"""Functions, from the outermost to the one that ran."""

_EVERY = 0.001
_WIDTH, _LINE, _TOP = 1200, 17, 40
_LEAST = 0.004
"""The smallest share that is drawn."""

_COLOURS = ("#f6b26b", "#f9cb9c", "#ffd966", "#e69138", "#f4a582", "#fddbc7")


class Sampler:
    """Notes the stack of the main thread again and again while it is entered; only time on the CPU counts."""

    def __init__(self, shorten: Callable[[str], str]) -> None:
        self.stacks: Counter[Stack] = Counter()
        self._shorten = shorten
        self._before: Any = None

    @property
    def count(self) -> int:
        """How many stacks were seen."""
        return self.stacks.total()

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)

    def _note(self, _signal: int, frame: FrameType | None) -> None:
        stack: list[str] = []
        while frame is not None:
            code = frame.f_code
            stack.append(f"{code.co_qualname} ({self._shorten(code.co_filename)})")
            frame = frame.f_back
        self.stacks[tuple(reversed(stack))] += 1


def draw_flame(stacks: Counter[Stack], title: str) -> str:
    """The stacks as SVG: callers below, and each function as wide as its share of the samples."""
    total = stacks.total()
    shared = _count_shared(stacks)
    inner = Counter({stack[shared:]: count for stack, count in stacks.items()})
    boxes: list[str] = []
    depth = _draw_level(inner, 0, 0.0, total, boxes)
    height = _TOP + (depth + 1) * _LINE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="monospace" font-size="10">'
        f'<rect width="100%" height="100%" fill="#fff"/><text x="8" y="20" font-size="14">{escape(title)}</text>'
        f'<g transform="translate(0 {height - _LINE})">'
    )
    return "\n".join((head, *boxes, "</g></svg>", ""))


def _count_shared(stacks: Counter[Stack]) -> int:
    """How many of the outermost functions are in every stack: they say nothing."""
    shared = 0
    while len({stack[shared : shared + 1] for stack in stacks}) == 1 and all(
        len(stack) > shared + 1 for stack in stacks
    ):
        shared += 1
    return shared


def _draw_level(stacks: Counter[Stack], level: int, left: float, total: int, boxes: list[str]) -> int:
    """Draw the outermost functions of the stacks and what they call; returns the deepest level."""
    groups: dict[str, Counter[Stack]] = {}
    for stack, count in stacks.items():
        if stack:
            groups.setdefault(stack[0], Counter())[stack[1:]] += count
    deepest = level
    for name, inner in sorted(groups.items(), key=lambda item: -item[1].total()):
        share = inner.total() / total
        if share >= _LEAST:
            boxes.append(_write_box(name, level, left, share))
            deepest = max(deepest, _draw_level(inner, level + 1, left, total, boxes))
        left += share
    return deepest


def _write_box(name: str, level: int, left: float, share: float) -> str:
    x, y, width = left * _WIDTH, -level * _LINE, share * _WIDTH
    colour = _COLOURS[sum(name.encode()) % len(_COLOURS)]
    words = name.partition(" ")[0]
    room = int(width / 6.2)
    label = words if len(words) <= room else words[: room - 1] + "…" if room > 4 else ""
    text = f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(label)}</text>' if label else ""
    return (
        f'<g><title>{escape(name)}: {share:.1%}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" '
        f'height="{_LINE - 1}" fill="{colour}"/>{text}</g>'
    )
