"""The first of two steps: the prompt and schema for a decision, the next tool call or none.

The examples use tools that do not exist, so that they teach when to call and when to stop, not what to call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import msgspec

from steersman.provider.local.prompting.answer import Step, Turn
from steersman.provider.local.prompting.excerpt import truncate, truncate_together
from steersman.provider.local.serving.slots import ChatMessage
from steersman.types.model import ToolSpec

RESPOND = "respond"
"""The choice beside the tools: call nothing, answer the user."""

_DEPTH = 6
_MAX_PARTS = 1_000
_CHARACTERS_PER_PART = 20
_KEPT = ("type", "enum", "const")
_TYPES = frozenset(("string", "integer", "number", "boolean", "object", "array", "null"))


def build_decision_schema(parameters: Mapping[str, Mapping[str, Any]], *, respond: bool) -> dict[str, Any]:
    """The schema for one tool with its arguments, or `respond`; `parameters` are the schemas by tool name."""
    choices = [_build_choice(name, build_arguments_schema(schema)) for name, schema in parameters.items()]
    if respond:
        choices.append(_build_choice(RESPOND, None))
    return {"anyOf": choices}


def build_arguments_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the parameters that a small model fills in: the required ones, or the first if none is required."""
    properties = _as_mapping(parameters.get("properties"))
    wanted = list_wanted_parameters(parameters)
    defs = _as_mapping(parameters.get("$defs") or parameters.get("definitions"))
    simplifier = _Simplifier(defs)
    kept = {name: simplifier.simplify(_as_mapping(properties.get(name)), _DEPTH) for name in wanted}
    return {"type": "object", "properties": kept, "required": list(kept), "additionalProperties": False}


def list_wanted_parameters(parameters: Mapping[str, Any]) -> list[str]:
    """The names of the parameters that a small model fills in, in their order."""
    properties = _as_mapping(parameters.get("properties"))
    named = {name for name in parameters.get("required") or () if isinstance(name, str)}
    return [name for name in properties if name in named] or list(properties)[:1]


def _build_choice(name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"tool": {"const": name}}
    if arguments is not None:
        fields["arguments"] = arguments
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


class _Simplifier:
    """Simplifies the schemas of one tool, as far as `_MAX_PARTS`: one that refers to itself would have no end."""

    def __init__(self, defs: Mapping[str, Any]) -> None:
        self._defs = defs
        self._left = _MAX_PARTS

    def simplify(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """The part of a schema that the engine's grammar supports; {} if it is too deep or unknown."""
        self._left -= 1
        if self._left < 0:
            return {}
        schema = _resolve_reference(schema, self._defs)
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(options, list) and depth > 0:
            return self._simplify_options([_as_mapping(option) for option in cast(list[Any], options)], depth)
        kept = {name: schema[name] for name in _KEPT if name in schema}
        kind = kept.get("type")
        if isinstance(kind, list):
            named = [{"type": name} for name in cast(list[Any], kind)]
            return self._simplify_options(named, depth)
        if "enum" in kept or "const" in kept:
            values = {name: value for name, value in kept.items() if name != "type"}
            self._left -= len(repr(values)) // _CHARACTERS_PER_PART
            return values
        if kind == "object" and schema.get("properties") and depth > 0:
            return self._simplify_object(schema, depth)
        if kind == "array" and depth > 0:
            items = self.simplify(_as_mapping(schema.get("items")), depth - 1)
            return {"type": "array", "items": items, "minItems": 1 if schema.get("minItems") else 0}
        return kept if kind in _TYPES else {}

    def _simplify_object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = _as_mapping(schema.get("properties"))
        names = list_wanted_parameters(schema)
        kept = {name: self.simplify(_as_mapping(properties.get(name)), depth - 1) for name in names}
        return {"type": "object", "properties": kept, "required": names, "additionalProperties": False}

    def _simplify_options(self, options: Sequence[Mapping[str, Any]], depth: int) -> dict[str, Any]:
        real = [self.simplify(option, depth - 1) for option in options if option.get("type") != "null"]
        return real[0] if len(real) == 1 else {"anyOf": real} if real else {"type": "null"}


def _resolve_reference(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind a `$ref`; a chain of them is followed a few steps."""
    for _ in range(_DEPTH):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = _as_mapping(defs.get(reference.rpartition("/")[2]))
    return {}


def _as_mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


MAX_STEPS = 12
"""After this many calls for one task, the user gets an answer."""

_LINE = 110
_HISTORY = 100
_ARGUMENTS = 60
_PATH = re.compile(r"(?<!\S)/[^\s,;]+?(?=[.,;:]?(?:\s|$))")

_HEAD = """\
You choose the next step for a request: one of the tools with its arguments, or respond. You write one JSON object. \
What everybody knows needs no tool. What is said about the things at hand has to be looked up with a tool first. Copy \
names and texts from the request exactly."""
_RESPOND = "respond(): Answer: small talk, common knowledge, or the results have what was asked for.\n"

# The built-in tools as a small model understands them best: a plain name, and words that users use.
_USUAL = {
    "read(path)": ("read_file", "Read a file. README.md says what a project is; pyproject.toml what it needs."),
    "write(path, content)": ("write_file", "Make a new file, or replace all of a file."),
    "edit(path, edits)": ("edit_file", "Change a text in a file: old becomes new."),
    "list(path)": ("list_folder", 'Show what is in one folder; "." is this folder.'),
    "glob(pattern)": ("find_files", 'Find all files of a kind: "*.py", "*.md", "*.js", "*test*".'),
    "search(pattern)": ("search_text", "Where is a name defined or used? Which files mention a word?"),
    "bash(command)": (
        "run_command",
        "Run a command with bash: wc -l FILE, git log -3, git branch, date, free -h, pytest.",
    ),
    "fetch(url)": ("fetch_url", "Get a web page by its address."),
}

Example: TypeAlias = tuple[str, tuple[tuple[str, str, str], ...], str]
"""A request, its calls with their results, and the next decision."""

# About a house instead of a computer, so that no example tool is a real one.
_TOOLS_OF_EXAMPLES = """\
look_into(place): Show what is in a room or a cupboard.
open_paper(name): Read a letter or a book.
seek_word(word): Where is somebody or something mentioned in the letters?
give_order(order): Have something done: lamps, doors, clock, counting, cooking.
"""
_EXAMPLES: tuple[Example, ...] = (
    ("What does the letter from Ada say?", (), '{"tool": "open_paper", "arguments": {"name": "letter from Ada"}}'),
    (
        "What does the letter from Ada say?",
        (("open_paper", '{"name": "letter from Ada"}', "Dear Ben, I come on Monday at nine. Ada"),),
        '{"tool": "respond"}',
    ),
    ("Hi, how are you?", (), '{"tool": "respond"}'),
    ("Where is the garden mentioned?", (), '{"tool": "seek_word", "arguments": {"word": "garden"}}'),
    ("What is the longest river of Africa?", (), '{"tool": "respond"}'),
    ("How many chairs are there?", (), '{"tool": "give_order", "arguments": {"order": "count the chairs"}}'),
    ("What is in the kitchen?", (), '{"tool": "look_into", "arguments": {"place": "kitchen"}}'),
    (
        "What is in the kitchen?",
        (("look_into", '{"place": "kitchen"}', "a table, two pans, bread"),),
        '{"tool": "respond"}',
    ),
)

# Examples for the built-in tools. Each is used only if all of its tools are there.
_USUAL_EXAMPLES: tuple[Example, ...] = (
    ("What is this program for?", (), '{"tool": "read_file", "arguments": {"path": "README.md"}}'),
    (
        "What is this program for?",
        (("read_file", '{"path": "README.md"}', "# Clockwork\n\nClockwork rings a bell every hour."),),
        '{"tool": "respond"}',
    ),
    ("Who was Plato?", (), '{"tool": "respond"}'),
    ("Thanks a lot!", (), '{"tool": "respond"}'),
    ("Where is load_user defined?", (), '{"tool": "search_text", "arguments": {"pattern": "load_user"}}'),
    ("Are there any images?", (), '{"tool": "find_files", "arguments": {"pattern": "*.png"}}'),
    ("What time is it?", (), '{"tool": "run_command", "arguments": {"command": "date"}}'),
    ("How do I sort a list in Java?", (), '{"tool": "respond"}'),
    ("What is the biggest animal?", (), '{"tool": "respond"}'),
    ("What needs to be installed for it?", (), '{"tool": "read_file", "arguments": {"path": "pyproject.toml"}}'),
    ("How long is lib/a.c?", (), '{"tool": "run_command", "arguments": {"command": "wc -l lib/a.c"}}'),
    (
        "How long is lib/a.c?",
        (("run_command", '{"command": "wc -l lib/a.c"}', "120 lib/a.c"),),
        '{"tool": "respond"}',
    ),
    ("Who changed it last?", (), '{"tool": "run_command", "arguments": {"command": "git log -1"}}'),
    ("What is 6 * 7?", (), '{"tool": "respond"}'),
    ("Which row of lib/c.csv is the largest?", (), '{"tool": "read_file", "arguments": {"path": "lib/c.csv"}}'),
    ("Which files are in lib/core?", (), '{"tool": "list_folder", "arguments": {"path": "lib/core"}}'),
    ("What is here?", (), '{"tool": "list_folder", "arguments": {"path": "."}}'),
    (
        "In b.txt, write 5 instead of 4.",
        (),
        '{"tool": "edit_file", "arguments": {"path": "b.txt", "edits": [{"old": "4", "new": "5"}]}}',
    ),
    ("What is the longest river of Africa?", (), '{"tool": "respond"}'),
)


@dataclass(frozen=True, slots=True)
class Decision:
    """A tool and its arguments; `None` as the tool means to answer."""

    tool: str | None
    arguments: dict[str, Any]


class _Written(msgspec.Struct):
    tool: str
    arguments: dict[str, Any] = {}


def build_decision_prefix(tools: Sequence[ToolSpec]) -> list[ChatMessage]:
    """The part of the prompt that is the same for every decision among these tools, byte for byte.

    It may end within a message, which `build_decision_prompt` continues.
    """
    names = {get_alias(tool) for tool in tools}
    known = [tool for tool in tools if _format_signature(tool) in _USUAL]
    usual = [example for example in _USUAL_EXAMPLES if known and _list_tools(example) <= names]
    listed = "".join(map(_format_tool, tools)) + _RESPOND + "\n"
    said: list[ChatMessage] = [{"role": "system", "content": _HEAD}]
    if len(known) == len(tools):
        return [*said, *_format_examples("Tools:\n" + listed, usual)]
    said += _format_examples(f"Tools:\n{_TOOLS_OF_EXAMPLES}{_RESPOND}\n", _EXAMPLES)
    return [*said, *_format_examples("Now there are other tools:\n" + listed, usual)]


def build_decision_prompt(
    prefix: Sequence[ChatMessage], tools: Sequence[ToolSpec], turns: Sequence[Turn], tokens: int
) -> list[ChatMessage]:
    """The prefix with the task, its results so far, and the turn before."""
    names = {tool.name: get_alias(tool) for tool in tools}
    before = ""
    if len(turns) > 1:
        earlier = turns[-2]
        words = (truncate("\n".join(earlier.asked), _HISTORY), truncate(earlier.answer, _HISTORY))
        before = "Before, the user asked: {}\nThe answer was: {}\n\n".format(*words)
    asked = before + _format_situation(turns[-1], tokens, names)
    if prefix[-1]["role"] == "user":
        return [*prefix[:-1], {"role": "user", "content": prefix[-1]["content"] + asked}]
    return [*prefix, {"role": "user", "content": asked}]


def _format_examples(listed: str, examples: Sequence[Example]) -> list[ChatMessage]:
    """The list of tools and the examples; the list is put before the first example, or stands alone."""
    said: list[ChatMessage] = []
    for asked, steps, choice in examples:
        turn = Turn([asked], [Step(*step) for step in steps])
        said.append({"role": "user", "content": listed + _format_situation(turn, 200)})
        said.append({"role": "assistant", "content": choice})
        listed = ""
    return said or [{"role": "user", "content": listed}]


def _list_tools(example: Example) -> set[str]:
    written = msgspec.json.decode(example[2], type=_Written).tool
    return {written, *(step[0] for step in example[1])} - {RESPOND}


def parse_decision(text: str, tools: Sequence[ToolSpec]) -> Decision | None:
    """The decision in the model's JSON; `None` if that is malformed."""
    try:
        written = msgspec.json.decode(text, type=_Written)
    except (msgspec.DecodeError, UnicodeError):
        return None
    name = next((tool.name for tool in tools if get_alias(tool) == written.tool), None)
    return Decision(name, written.arguments)


def get_alias(tool: ToolSpec) -> str:
    """The name of a tool in the prompt of a small model."""
    usual = _USUAL.get(_format_signature(tool))
    return tool.name if usual is None else usual[0]


def list_usual_tools(tools: Sequence[ToolSpec]) -> frozenset[str]:
    """The names of those tools that are the built-in ones, whose results can be read back."""
    return frozenset(tool.name for tool in tools if _format_signature(tool) in _USUAL)


def _format_signature(tool: ToolSpec) -> str:
    return f"{tool.name}({', '.join(list_wanted_parameters(tool.parameters))})"


def is_repeated(decision: Decision, turn: Turn) -> bool:
    """Whether the same call was already made for this task."""
    written = msgspec.json.encode(decision.arguments, order="sorted").decode()
    return any(step.name == decision.tool and step.arguments == written for step in turn.steps)


def _format_situation(turn: Turn, tokens: int, names: Mapping[str, str] = MappingProxyType({})) -> str:
    asked = truncate("\n".join(turn.asked), tokens)
    if not turn.steps:
        return f"Request: {asked}\nResults: none yet\nNext step:"
    # That there is a result matters more here than its text, and each word takes time to read.
    results = truncate_together([step.shown for step in turn.steps], tokens // 2)
    lines = [
        f"{names.get(step.name, step.name)} {truncate(step.arguments, _ARGUMENTS)} gave: {result}"
        for step, result in zip(turn.steps, results, strict=True)
    ]
    return "\n".join((f"Request: {asked}", "Results:", *lines, "Next step:"))


def _format_tool(tool: ToolSpec) -> str:
    """A tool in one line; without absolute paths, so that the prompt is the same in every folder."""
    parameters = ", ".join(list_wanted_parameters(tool.parameters))
    words = _PATH.sub("this folder", " ".join(tool.description.split()))
    usual = _USUAL.get(_format_signature(tool))
    sentence = re.split(r"(?<=[.!?]) ", words, maxsplit=1)[0][:_LINE] if usual is None else usual[1]
    return f"{get_alias(tool)}({parameters}): {sentence}\n"
