"""The second of two steps: the prompt for the answer, from the question and the tool results. It lists no tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from steersman.provider.local.prompting.excerpt import choose_excerpt, truncate, truncate_together
from steersman.provider.local.prompting.question import Question, expand_term, parse_question
from steersman.provider.local.serving.slots import ChatMessage
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage


@dataclass(frozen=True, slots=True)
class Step:
    """A tool call and its result."""

    name: str
    arguments: str
    result: str
    failed: bool = False

    @property
    def shown(self) -> str:
        """The result as the model sees it."""
        return f"error: {self.result}" if self.failed else self.result

    def read_arguments(self) -> dict[str, Any]:
        """The arguments of the call; none if they are no JSON object."""
        try:
            return msgspec.json.decode(self.arguments, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError):
            return {}


@dataclass(slots=True)
class Turn:
    """The user messages, the tool calls, and the answer, if there is one yet."""

    asked: list[str] = field(default_factory=list[str])
    steps: list[Step] = field(default_factory=list[Step])
    answer: str = ""


def split_turns(messages: Sequence[Message]) -> list[Turn]:
    """The conversation as turns; a user message in the middle of a turn belongs to it."""
    turns: list[Turn] = []
    waiting: dict[str, tuple[str, str]] = {}
    for message in messages:
        match message:
            case UserMessage():
                if not turns or turns[-1].answer:
                    turns.append(Turn())
                turns[-1].asked.append(message.text)
            case AssistantMessage():
                turn = _get_last_turn(turns)
                for call in message.tool_calls:
                    written = call.raw_arguments or msgspec.json.encode(call.arguments, order="sorted").decode()
                    waiting[call.id] = (call.name, written)
                if not message.tool_calls:
                    turn.answer = message.text
            case ToolResultMessage():
                name, written = waiting.pop(message.tool_call_id, (message.tool_name, "{}"))
                _get_last_turn(turns).steps.append(Step(name, written, message.text, message.is_error))
    return turns


def _get_last_turn(turns: list[Turn]) -> Turn:
    if not turns:
        turns.append(Turn())
    return turns[-1]


_INSTRUCTIONS = 200
_HISTORY = 300
_TURNS = 4
_REASON = 150

_HEAD = """\
You tell the user what was found. The answer is in the results: say it in one to three plain sentences, with the names \
and numbers as they stand there. If it is not there, say so. Do not invent anything. Without results, answer from what \
you know."""
_ASK = "What came of it?"
_OVERVIEW = "What does this project do?"
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


def build_answer_prefix(instructions: str) -> list[ChatMessage]:
    """The part of the prompt that is the same for all answers with these instructions, byte for byte."""
    own = truncate(instructions, _INSTRUCTIONS)
    said: list[ChatMessage] = [{"role": "system", "content": f"{_HEAD}\n\n{own}" if own else _HEAD}]
    for asked, steps, answer in _EXAMPLES:
        said += _format_turn(Turn([asked], [Step(*step) for step in steps], answer), 200)
    return said


def build_answer_prompt(turns: Sequence[Turn], tokens: int) -> list[ChatMessage]:
    """The earlier turns, and the one to be answered with its results."""
    earlier = [Turn(turn.asked, [], turn.answer) for turn in turns[-1 - _TURNS : -1] if turn.answer]
    said = [message for turn in earlier for message in _format_turn(turn, _HISTORY)]
    return [*said, *_format_turn(turns[-1], tokens)]


def describe_failure(turn: Turn) -> str:
    """The answer if every call of a turn failed or was denied; empty if one did not.

    The model is not asked: without a result it would invent an answer.
    """
    if not turn.steps or not all(step.failed for step in turn.steps):
        return ""
    lines = truncate("\n".join(dict.fromkeys(map(_describe_step_failure, turn.steps))), _REASON).splitlines()
    # Indented, the output of a command is shown as it is, whatever Markdown is in it.
    return _FAILED + (f" {lines[0]}" if len(lines) == 1 else "\n\n" + "\n".join(f"    {line}" for line in lines))


def _describe_step_failure(step: Step) -> str:
    told = step.result.strip() or f"{step.name} gave no reason."
    # The sentences after a denial are advice for a model.
    return re.split(r"(?<=\.)\s", told, maxsplit=1)[0] if told.startswith("Denied") else told


def _format_turn(turn: Turn, tokens: int) -> list[ChatMessage]:
    asked = truncate("\n".join(turn.asked), tokens)
    question = parse_question(asked)
    steps = _list_relevant(turn.steps, question)
    results = truncate_together([_choose_lines(step, question, tokens) for step in steps], tokens)
    if question.kind == "overview" and steps:
        asked = _OVERVIEW
    shown = [
        f"Result of {step.name} {truncate(step.arguments, 40)}:\n{result}\n"
        for step, result in zip(steps, results, strict=True)
    ]
    # The last part counts most: a question goes last, but an order goes first, before what came of it.
    # After a failed call, a question at the end would get an invented answer.
    known = bool(turn.steps) and not turn.steps[-1].failed
    parts = (*shown, f"Question: {asked}") if known and _is_question(asked) else (f"Request: {asked}\n", *shown, _ASK)
    content = "\n".join(parts) if shown else asked
    said: list[ChatMessage] = [{"role": "user", "content": content}]
    if turn.answer:
        said.append({"role": "assistant", "content": truncate(turn.answer, tokens)})
    return said


def _list_relevant(steps: Sequence[Step], question: Question) -> Sequence[Step]:
    """The steps whose results have words of the question; all if none has, or if it is an order."""
    if not question.is_lookup:
        return steps
    words = [expand_term(term) for term in question.terms]
    told = [step for step in steps if any(re.search(word, step.shown, re.IGNORECASE) for word in words)]
    return told or steps


def _choose_lines(step: Step, question: Question, tokens: int) -> str:
    """The lines of a result that have words of the question, where not all fit."""
    if step.failed:
        return step.shown
    return choose_excerpt(step.name, step.result, [expand_term(term) for term in question.terms], tokens)


def _is_question(asked: str) -> bool:
    """Whether the user wants to know what the results say, not only that something was done."""
    return asked.endswith("?") or asked.lower().partition(" ")[0] in _WANTING_TO_KNOW
