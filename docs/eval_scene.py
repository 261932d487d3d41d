"""The evaluation whose report is a picture of the documents: scripted models, a fixed clock, always the same."""

from __future__ import annotations

import random
from collections.abc import Callable

from steersman import Agent
from steersman.evals import Case, Dataset, contains, evaluate, judge, matches
from steersman.session import MemoryStore
from steersman.testing import ScriptedModel, Turn, answer, error
from steersman.types import Request, Usage

FACTS = {
    "capital of France": "Paris",
    "capital of Peru": "Lima",
    "product of 17 and 23": "391",
    "largest planet": "Jupiter",
    "author of Faust": "Goethe",
    "boiling point of water": "100",
    "root of 144": "12",
    "symbol of gold": "Au",
    "year of the moon landing": "1969",
    "formula of salt": "NaCl",
    "longest river of Europe": "Volga",
    "currency of Japan": "yen",
}


def make_agent(name: str, skill: float, price: float) -> Agent:
    """An agent that knows a share of the facts."""
    source = random.Random(name)

    def reply(request: Request) -> Turn:
        fact = next(value for key, value in FACTS.items() if key in request.messages[0].text)
        drawn = source.random()
        if drawn > 0.97:
            return error("overloaded")
        words = f"It is {fact}." if drawn < skill else "I am not sure."
        return answer(words, usage=Usage(input=300, output=40, cost=price * (0.6 + source.random())))

    return Agent(ScriptedModel(reply, repeat_last=True, id=name).model, retry=None)


def give_points(request: Request) -> Turn:
    """A judge that likes answers."""
    points = 9 if "It is" in request.messages[0].text else 3
    told = f'{{"reason": "{"To the point" if points > 5 else "It answers nothing"}", "points": {points}}}'
    return answer(told, usage=Usage(input=50, output=20, cost=0.0004))


def make_clock() -> Callable[[], float]:
    """A clock that goes on a little with each look at it."""
    source, now = random.Random(5), 0.0

    def read() -> float:
        nonlocal now
        now += source.random() / 8
        return now

    return read


async def write_report() -> str:
    """The report as HTML."""
    store = MemoryStore()
    cases = [Case(f"What is the {key}?", expected=value, id=key.replace(" ", "-")) for key, value in FACTS.items()]
    agents = {name: make_agent(name, *of) for name, of in {"large": (0.9, 0.004), "small": (0.6, 0.0012)}.items()}
    judging = judge("Does it answer the question?", ScriptedModel(give_points, repeat_last=True).model)
    report = await evaluate(
        agents,
        Dataset(cases, name="General knowledge"),
        [contains(), matches(r"\.$", name="full stop"), judging],
        repeat=3,
        concurrency=1,
        store=store,
        clock=make_clock(),
    )
    return report.to_html(store)
