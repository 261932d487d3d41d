"""Scorers: functions that judge the finished run of a case. A run that crashed is not judged: it has failed."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import msgspec

from steersman.evals.case_run import CaseRun
from steersman.tools.schema.validation import InvalidArguments, compile_schema
from steersman.types.content import ToolCall
from steersman.types.guards import is_instance
from steersman.types.model import StreamFn
from steersman.types.usage import Usage

_SHOWN = 200
_FROM_CASE: Any = object()


class Score(msgspec.Struct, frozen=True):
    """What a scorer says of a run: `value` is from 0 to 1. `usage` is what the judging itself used."""

    value: float
    passed: bool
    reason: str = ""
    usage: Usage | None = None


Verdict: TypeAlias = "Score | bool | float"
PlayFn: TypeAlias = (
    "Callable[[CaseRun, Callable[[StreamFn | None], AbstractContextManager[StreamFn]]], Awaitable[Score]]"
)
ScoreFn: TypeAlias = Callable[[CaseRun], "Verdict | Awaitable[Verdict]"]


@dataclass(frozen=True, slots=True)
class Scorer:
    """A scorer with a name.

    A function returns a `Score`, a bool, or a number from 0 to 1, which passes from `pass_at` on. With `keep`, its
    score is kept in the session under `key` and not asked for again when an evaluation goes on.
    """

    name: str
    function: ScoreFn
    pass_at: float = field(default=0.5, kw_only=True)
    keep: bool = field(default=False, kw_only=True)
    key: str = field(default="", kw_only=True)
    quick: bool = field(default=False, kw_only=True)
    """Whether it is called in the event loop; a sync function that may block is called in a thread."""
    play: PlayFn | None = field(default=None, kw_only=True)
    """For a scorer that asks a model: the same with a function that puts a cassette around the model."""

    async def score(self, run: CaseRun) -> Score:
        """Judge a run. What the function raises is raised."""
        if self.quick or inspect.iscoroutinefunction(self.function):
            found = self.function(run)
        else:
            found = await asyncio.to_thread(self.function, run)
        value: Any = await found if inspect.isawaitable(found) else found
        return self._read(value)

    def _read(self, value: Any) -> Score:
        if isinstance(value, Score) and 0 <= value.value <= 1:
            return value
        if isinstance(value, bool):
            return Score(float(value), value)
        if isinstance(value, int | float) and 0 <= value <= 1:
            return Score(float(value), value >= self.pass_at)
        raise TypeError(f"A scorer returns a Score, a bool or a number from 0 to 1, got {value!r:.100}.")


ScorerLike: TypeAlias = "Scorer | ScoreFn"


def read_scorers(scorers: Sequence[ScorerLike]) -> list[Scorer]:
    """The scorers, each with a name of its own; raises `TypeError` or `ValueError` for what is none."""
    found: list[Scorer] = []
    for scorer in scorers:
        if not isinstance(scorer, Scorer) and not callable(scorer):
            raise TypeError(
                f"A scorer is a function of the finished run, or one of steersman.evals, got {scorer!r:.100}."
            )
        name = scorer.name if isinstance(scorer, Scorer) else getattr(scorer, "__name__", type(scorer).__name__)
        found.append(scorer if isinstance(scorer, Scorer) else Scorer(name, scorer))
    names = [scorer.name for scorer in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"Two scorers have the name {twice!r}. Give one another name: name='...'.")
    if "passed" in names:
        raise ValueError("No scorer has the name 'passed', which stands for all of them together.")
    return found


def equals(expected: Any = _FROM_CASE, *, ignore_case: bool = False, name: str = "equals") -> Scorer:
    """The answer equals what is expected: texts without blanks at their ends, other values as JSON."""

    def judge(run: CaseRun) -> Score:
        wanted = _choose(expected, run, name)
        given = run.text if isinstance(wanted, str) else _read_value(run)
        if isinstance(wanted, str):
            wanted, given = (
                _fold(wanted.strip(), ignore_case=ignore_case),
                _fold(cast(str, given).strip(), ignore_case=ignore_case),
            )
        return _decide(_plain(given) == _plain(wanted), f"expected {_show(wanted)}, got {_show(given)}")

    return Scorer(name, judge, quick=True)


def contains(*texts: str, ignore_case: bool = False, name: str = "contains") -> Scorer:
    """The answer contains these texts, or the expected one, or each of a list of expected ones."""

    def judge(run: CaseRun) -> Score:
        wanted = texts or _choose(_FROM_CASE, run, name)
        parts = [wanted] if isinstance(wanted, str) else [*cast(Sequence[Any], wanted)]
        if not parts or not all(isinstance(part, str) for part in parts):
            raise TypeError(f"{name} needs a text or a list of texts to look for, got {wanted!r:.100}.")
        given = _fold(run.text, ignore_case=ignore_case)
        missing = [part for part in parts if _fold(part, ignore_case=ignore_case) not in given]
        share = 1 - len(missing) / len(parts)
        return Score(share, not missing, f"not in the answer: {', '.join(map(_show, missing))}" if missing else "")

    return Scorer(name, judge, quick=True)


def matches(pattern: str, *, name: str = "matches") -> Scorer:
    """A regular expression is found in the answer. Raises `ValueError` for one that is wrong."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r:.100} is no regular expression: {error}.") from error

    def judge(run: CaseRun) -> Score:
        return _decide(compiled.search(run.text) is not None, f"no match for {_show(pattern)}")

    return Scorer(name, judge, quick=True)


def json_schema(schema: Mapping[str, Any] | bool, *, name: str = "json_schema") -> Scorer:
    """The answer is JSON that fits a JSON Schema. Raises `ValueError` for a schema that is wrong."""
    check = compile_schema(schema, name="answer", coerce=False)

    def judge(run: CaseRun) -> Score:
        try:
            check(_read_value(run))
        except (InvalidArguments, msgspec.DecodeError) as error:
            return Score(0.0, False, str(error))
        return Score(1.0, True)

    return Scorer(name, judge, quick=True)


def calls(*tools: str | Mapping[str, Any], order: bool = False, exact: bool = False, name: str = "calls") -> Scorer:
    """The model made these tool calls; each is a name, or `{"name": ..., "arguments": {...}}` with some arguments.

    With `order` in this order, others may lie between. With `exact` no others at all.
    """
    wanted = [_read_call(call) for call in tools]

    def judge(run: CaseRun) -> Score:
        made = run.tool_calls
        missing = _find_missing(wanted, made, in_order=order)
        told = f"made: {', '.join(call.name for call in made) or 'none'}"
        if missing:
            share = 1 - len(missing) / len(wanted)
            return Score(share, False, f"missing{' in this order' if order else ''}: {_show(missing[0])}; {told}")
        return _decide(not exact or len(made) == len(wanted), f"more calls than wanted; {told}")

    return Scorer(name, judge, quick=True)


def never_calls(*tools: str, name: str = "never_calls") -> Scorer:
    """The model called none of these tools."""

    def judge(run: CaseRun) -> Score:
        made = [call.name for call in run.tool_calls if call.name in tools]
        return _decide(not made, f"called: {', '.join(made)}")

    return Scorer(name, judge, quick=True)


def max_cost(usd: float, *, name: str = "max_cost") -> Scorer:
    """The run cost at most so many US dollars. A cost that is not known fails."""
    _check_limit(usd, name)

    def judge(run: CaseRun) -> Score:
        if run.cost is None:
            return Score(0.0, False, "the cost is not known")
        return _decide(run.cost <= usd, f"${run.cost:.6g} of ${usd:.6g}")

    return Scorer(name, judge, quick=True)


def max_duration(seconds: float, *, name: str = "max_duration") -> Scorer:
    """The run took at most so many seconds."""
    _check_limit(seconds, name)

    def judge(run: CaseRun) -> Score:
        return _decide(run.duration <= seconds, f"{run.duration:.3g} s of {seconds:.6g} s")

    return Scorer(name, judge, quick=True)


def _decide(passed: bool, reason: str) -> Score:
    return Score(float(passed), passed, "" if passed else reason)


def _choose(given: Any, run: CaseRun, name: str) -> Any:
    wanted = run.case.expected if given is _FROM_CASE else given
    if wanted is None and given is _FROM_CASE:
        raise ValueError(f"The case {run.case.id!r} has nothing that is 'expected', and {name} compares with that.")
    return wanted


def _read_value(run: CaseRun) -> Any:
    """The structured output, or the text of the answer read as JSON."""
    return msgspec.json.decode(run.output) if isinstance(run.output, str) else run.output


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=repr)


def _fold(text: str, *, ignore_case: bool) -> str:
    return text.casefold() if ignore_case else text


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _check_limit(value: object, name: str) -> None:
    if not is_instance(value, int | float) or isinstance(value, bool) or not cast(float, value) > 0:
        raise ValueError(f"{name} is a number above 0, got {value!r:.100}.")
    if not math.isfinite(cast(float, value)):
        raise ValueError(f"{name} is a finite number, got {value!r}.")


def _read_call(call: object) -> dict[str, Any]:
    if isinstance(call, str):
        return {"name": call}
    fields = dict(cast(Mapping[Any, Any], call)) if isinstance(call, Mapping) else {}
    arguments = fields.get("arguments", {})
    if (
        not isinstance(fields.get("name"), str)
        or not isinstance(arguments, Mapping)
        or set(fields) - {"name", "arguments"}
    ):
        raise ValueError(f"A call is a tool's name, or a dict with 'name' and 'arguments', got {call!r:.100}.")
    return fields


def _find_missing(wanted: list[dict[str, Any]], made: list[ToolCall], *, in_order: bool) -> list[dict[str, Any]]:
    """The wanted calls that were not made; each made call counts once."""
    missing: list[dict[str, Any]] = []
    if in_order:
        left = iter(made)
        for call in wanted:
            if not any(_fits(call, one) for one in left):
                missing.append(call)
        return missing
    taken: dict[int, int] = {}  # which wanted call each made call stands for
    for number, call in enumerate(wanted):
        if not _match_call(number, wanted, made, taken, set()):
            missing.append(call)
    return missing


def _match_call(
    number: int, wanted: list[dict[str, Any]], made: list[ToolCall], taken: dict[int, int], tried: set[int]
) -> bool:
    """Match a wanted call with a made one, moving earlier matches where that makes place for it (Kuhn's algorithm)."""
    for place, call in enumerate(made):
        if place not in tried and _fits(wanted[number], call):
            tried.add(place)
            if place not in taken or _match_call(taken[place], wanted, made, taken, tried):
                taken[place] = number
                return True
    return False


def _fits(wanted: Mapping[str, Any], call: ToolCall) -> bool:
    given = _plain(call.arguments)
    arguments = _plain(wanted.get("arguments", {}))
    return call.name == wanted["name"] and all(
        name in given and given[name] == value for name, value in arguments.items()
    )
