"""The second of two steps: the answer, from the question and what the tools gave. No tool is in the prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence

from steersman.provider.local.prompting.view import Step, Turn, cut, shared
from steersman.provider.local.serving.slots import Said

_INSTRUCTIONS = 200
_HISTORY = 300
_TURNS = 4
_REASON = 150

_HEAD = """\
You tell the user what was found. The answer is in the results: say it in one to three plain sentences, with the names \
and numbers as they stand there. If it is not there, say so. Do not invent anything. Without results, answer from what \
you know."""
_ASK = "What came of it?"
_FAILED = "That did not work."
_WANTING_TO_KNOW = (
    "describe", "explain", "find", "give", "list", "open", "print", "read", "show", "summarise", "summarize", "tell",
)  # fmt: skip

_EXAMPLES: tuple[tuple[str, tuple[tuple[str, str, str], ...], str], ...] = (
    (
        "Is it raining in Oslo?",
        (("weather", '{"city":"Oslo"}', "Oslo: light rain, 6 degrees, wind from the west"),),
        "Yes, there is light rain in Oslo, at 6 degrees.",
    ),
    (
        "Count the chairs in the hall.",
        (("count", '{"what":"chairs","room":"hall"}', "error: hall is locked; the key is in the kitchen"),),
        "That did not work: the hall is locked. The key is in the kitchen.",
    ),
    ("Hello!", (), "Hello! What can I do for you?"),
    (
        "Which fruit costs the most?",
        (("note", '{"name":"shop"}', "fruit,price\napples,1.20\nbread,3.10\npears,2.45\nplums,1.95\n"),),
        "Pears cost the most: 2.45. Apples cost 1.20 and plums 1.95.",
    ),
    (
        "Wind the clocks.",
        (("clocks", '{"action":"wind"}', "2 clocks wound\nhall: 9:15\nkitchen: 9:14"),),
        "2 clocks were wound. The one in the hall shows 9:15, the one in the kitchen 9:14.",
    ),
)


def answer_prefix(instructions: str) -> list[Said]:
    """The part of the prompt that is the same for every answer under these instructions, byte for byte."""
    own = cut(instructions, _INSTRUCTIONS)
    said: list[Said] = [{"role": "system", "content": f"{_HEAD}\n\n{own}" if own else _HEAD}]
    for asked, steps, answer in _EXAMPLES:
        said += _turn(Turn([asked], [Step(*step) for step in steps], answer), 200)
    return said


def answer_question(turns: Sequence[Turn], tokens: int) -> list[Said]:
    """The last turns as they were said, and the one to be answered with its results."""
    earlier = [Turn(turn.asked, [], turn.answer) for turn in turns[-1 - _TURNS : -1] if turn.answer]
    said = [message for turn in earlier for message in _turn(turn, _HISTORY)]
    return [*said, *_turn(turns[-1], tokens)]


def failure(turn: Turn) -> str:
    """What is so where every call of a turn failed or was denied, in our own words; empty where one did not.

    The model is not asked: having seen nothing, it would answer the question all the same, with something made up.
    """
    if not turn.steps or not all(step.failed for step in turn.steps):
        return ""
    lines = cut("\n".join(dict.fromkeys(map(_reason, turn.steps))), _REASON).splitlines()
    # Indented, what a command wrote stays as it is, whatever marks are in it.
    return _FAILED + (f" {lines[0]}" if len(lines) == 1 else "\n\n" + "\n".join(f"    {line}" for line in lines))


def _reason(step: Step) -> str:
    told = step.result.strip() or f"{step.name} gave no reason."
    # What follows a denial is advice for a model.
    return re.split(r"(?<=\.)\s", told, maxsplit=1)[0] if told.startswith("Denied") else told


def _turn(turn: Turn, tokens: int) -> list[Said]:
    asked = cut("\n".join(turn.asked), tokens)
    results = shared([step.shown for step in turn.steps], tokens)
    shown = [
        f"Result of {step.name} {cut(step.arguments, 40)}:\n{result}\n"
        for step, result in zip(turn.steps, results, strict=True)
    ]
    # What is last counts most: a question as it was asked, but of an order only what came of it.
    # Where the call failed, a question would be answered all the same, with something made up.
    known = bool(turn.steps) and not turn.steps[-1].failed
    parts = (*shown, f"Question: {asked}") if known and _is_question(asked) else (f"Request: {asked}\n", *shown, _ASK)
    content = "\n".join(parts) if shown else asked
    said: list[Said] = [{"role": "user", "content": content}]
    if turn.answer:
        said.append({"role": "assistant", "content": cut(turn.answer, tokens)})
    return said


def _is_question(asked: str) -> bool:
    """Whether the user wants to know what the results say, rather than that something was done."""
    return asked.endswith("?") or asked.lower().partition(" ")[0] in _WANTING_TO_KNOW
