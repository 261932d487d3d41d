"""What was typed on the command line, as values. Nothing here loads an agent, a model or a terminal library."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, TypeAlias, cast

from steersman.cli.run.stdin_orders import piped

Command: TypeAlias = Literal["run", "chat", "sessions", "models", "doctor"]
OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]
InputFormat: TypeAlias = Literal["text", "stream-json"]

SUBCOMMANDS = {
    "sessions": "list, show, export, rerun, branch and remove what was said before",
    "models": "providers, which keys are set, prices, context windows",
    "doctor": "what works on this machine and what is missing",
}
THINKING = ("off", "minimal", "low", "medium", "high")


# The modules that add a command's own options: loaded only for that command.
_MODULES = {
    "doctor": "steersman.cli.setup.doctor",
    "models": "steersman.cli.setup.models",
    "sessions": "steersman.cli.sessions.commands",
}


@dataclass(frozen=True, slots=True)
class Options:
    """What the command was asked for; `None` where nothing was said and the settings decide."""

    command: Command = "run"
    prompt: str | None = None
    print_only: bool = False
    model: str | None = None
    thinking: str | None = None
    system_prompt: str | None = None
    tools: tuple[str, ...] | None = None
    allowed_tools: tuple[str, ...] = ()
    max_turns: int | None = None
    max_budget_usd: float | None = None
    max_duration: float | None = None
    output_format: OutputFormat = "text"
    input_format: InputFormat = "text"
    json_schema: Path | None = None
    continue_: bool = False
    resume: str | None = None
    fork_session: bool = False
    session_dir: Path | None = None
    mcp_config: Path | None = None
    verbose: bool = False
    arguments: argparse.Namespace | None = None


# What may stand before a command's word, and whether a value follows it.
_BEFORE = {"--verbose": False, "--session-dir": True, "--model": True, "--thinking": True, "--system-prompt": True}
_OF_SUBCOMMANDS = ("session_dir", "verbose", "model", "thinking", "system_prompt", "max_turns", "max_budget_usd",
                   "max_duration", "output_format", "allowed_tools", "tools")  # fmt: skip

_EXAMPLES = """\
examples:
  steersman "What does this project do?"           one answer, streamed
  steersman                                         chat; type while it works to steer it
  git diff | steersman "Review this."               what is piped in comes after the prompt
  steersman -p "..." --output-format stream-json    the events, one JSON object a line
  steersman -c "And the tests?"                     go on with the last session of this folder

commands:
  steersman sessions list|show|export|rerun|branch|rm
  steersman models                                  {models}
  steersman doctor                                  {doctor}

exit codes: 0 done, 1 error, 2 usage, 3 limit reached, 4 refused or denied, 130 interrupted
""".format(**SUBCOMMANDS)


def parse(argv: Sequence[str]) -> Options:
    """The options of a command line; a mistake in it is told on stderr and exits with 2.

    Piped input is read here, unless it is the one of `--input-format stream-json`.
    """
    at = _subcommand(argv)
    if at is not None:
        return _of_subcommand(argv[at], [*argv[:at], *argv[at + 1 :]])
    parser = _parser()
    # What stands behind `--` are words, whatever they begin with; argparse forgets that where words and flags mix.
    end = argv.index("--") if "--" in argv else len(argv)
    found = parser.parse_intermixed_args(argv[:end])
    options = _options(found)
    _check(parser, options)
    return _with_prompt(parser, options, [*cast(list[str], found.prompt), *argv[end + 1 :]])


def add_common(parser: argparse.ArgumentParser) -> None:
    """Flags that every command takes, also behind its own words."""
    missing = argparse.SUPPRESS  # what stands before a subcommand's word must not be undone by its default
    parser.add_argument(
        "--session-dir", type=Path, metavar="DIR", default=missing, help="keep and find sessions in this folder"
    )
    parser.add_argument("--verbose", action="store_true", default=missing, help="show more, and tracebacks of errors")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Flags that say which model answers and how."""
    missing = argparse.SUPPRESS
    parser.add_argument("--model", metavar="PROVIDER:ID", default=missing, help="which model, such as openai:gpt-5")
    parser.add_argument("--thinking", choices=THINKING, default=missing, help="how much the model thinks first")
    parser.add_argument("--system-prompt", metavar="TEXT", default=missing, help="instead of the command's own words")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="steersman",
        usage="steersman [options] [prompt]\n       steersman sessions|models|doctor ...",
        description="An agent for this folder. Without a prompt, on a terminal: a chat.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("prompt", nargs="*", help="what to do; '-' waits for piped input to its end")
    parser.add_argument("--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="show the version")
    run = parser.add_argument_group("the run")
    run.add_argument("-p", "--print", action="store_true", dest="print_only", help="answer and leave, ask nothing")
    add_model_options(cast(Any, run))
    tools = parser.add_argument_group("tools")
    tools.add_argument("--tools", type=_words, metavar="NAMES", help="only these built-in tools, as in read,search")
    tools.add_argument("--no-tools", action="store_const", const=(), dest="tools", help="no tools at all")
    tools.add_argument(
        "--allowed-tools",
        type=_rules,
        action="extend",
        default=[],
        metavar="RULES",
        help="what needs no approval, as in 'edit,bash(git status:*)'",
    )
    tools.add_argument("--mcp-config", type=Path, metavar="FILE", help="MCP servers, as in a .mcp.json")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-turns", type=_count, metavar="N", help="how often the model may be asked")
    limits.add_argument("--max-budget-usd", type=_amount, metavar="USD", help="how much it may cost")
    limits.add_argument("--max-duration", type=_amount, metavar="SECONDS", help="how long it may take")
    forms = parser.add_argument_group("input and output")
    forms.add_argument("--output-format", choices=("text", "json", "stream-json"), default="text", help="of stdout")
    forms.add_argument("--input-format", choices=("text", "stream-json"), default="text", help="of stdin")
    forms.add_argument("--json-schema", type=Path, metavar="FILE", help="the answer is JSON that fits this schema")
    sessions = parser.add_argument_group("sessions")
    sessions.add_argument("-c", "--continue", action="store_true", dest="continue_", help="go on with the last one")
    sessions.add_argument("-r", "--resume", metavar="ID", help="go on with this one; the beginning of its id is enough")
    sessions.add_argument("--fork-session", action="store_true", help="with -c or -r: go on in a copy")
    add_common(cast(Any, sessions))
    return parser


def _options(found: argparse.Namespace) -> Options:
    given = {name: value for name, value in vars(found).items() if name != "prompt"}
    given["allowed_tools"] = tuple(given["allowed_tools"])
    return Options(**given)


def _check(parser: argparse.ArgumentParser, options: Options) -> None:
    if options.continue_ and options.resume is not None:
        parser.error("-c goes on with the last session, -r with the one you name; give one of them")
    if options.fork_session and not options.continue_ and options.resume is None:
        parser.error("--fork-session needs a session to copy: give -c or -r ID with it")


def _with_prompt(parser: argparse.ArgumentParser, options: Options, words: list[str]) -> Options:
    wait = "-" in words
    text = " ".join(word for word in words if word != "-").strip()
    if options.input_format == "stream-json":
        if wait:
            parser.error("'-' reads a prompt from stdin, which --input-format stream-json reads already")
        return replace(options, command="run", prompt=text or None)
    terminal = _is_terminal(sys.stdin)
    if terminal and wait:
        parser.error("'-' reads a prompt from stdin, and stdin is a terminal; type the prompt instead")
    if not terminal:
        try:
            given = piped(patient=wait or not text)
        except OSError as error:
            parser.error(f"stdin cannot be read: {error.strerror}")
        text = "\n\n".join(part for part in (text, given.strip()) if part)
    if text:
        return replace(options, command="run", prompt=text)
    if options.print_only or not terminal:
        parser.error("there is no prompt: give one, or pipe one in")
    if not _is_terminal(sys.stdout):
        parser.error("a chat needs a terminal, and stdout is none; give a prompt")
    if options.output_format != "text" or options.json_schema is not None:
        parser.error("a chat has no --output-format and no --json-schema; give a prompt")
    return replace(options, command="chat")


def _is_terminal(stream: IO[str] | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _subcommand(argv: Sequence[str]) -> int | None:
    """Where the first word is, when it is a command; flags that all commands take may stand before it."""
    at = 0
    while at < len(argv):
        name, equals, _ = argv[at].partition("=")
        if name in SUBCOMMANDS and not equals:
            return at
        if name not in _BEFORE:
            return None
        at += 1 if equals or not _BEFORE[name] else 2
    return None


def _of_subcommand(word: str, argv: Sequence[str]) -> Options:
    from importlib import import_module

    parser = _Parser(
        prog=f"steersman {word}",
        description=f"{SUBCOMMANDS[word]}.".capitalize(),
        conflict_handler="resolve",  # a command may say more about a flag that all of them take
        allow_abbrev=False,
    )
    add_common(parser)
    add_model_options(parser)
    import_module(_MODULES[word]).configure(parser)
    found = parser.parse_args(argv)
    known = {name: value for name in _OF_SUBCOMMANDS if (value := getattr(found, name, None)) is not None}
    return Options(command=cast(Command, word), arguments=found, **known)


class _Parser(argparse.ArgumentParser):
    """A parser that quotes what was typed without letting it steer a terminal."""

    def error(self, message: str) -> NoReturn:
        from steersman.cli.exits import UserError, line_of

        super().error(line_of(UserError(message)))


class _Version(argparse.Action):
    """Shows the version; only who asks for it pays for finding it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"steersman {version('steersman')}")
        except PackageNotFoundError:
            print("steersman (not installed as a package)")
        parser.exit()


def _words(text: str) -> tuple[str, ...]:
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    if not found:
        raise argparse.ArgumentTypeError("names of tools with commas between them, as in read,search; or --no-tools")
    return found


def _rules(text: str) -> list[str]:
    """Rules with commas between them; one inside parentheses belongs to its rule."""
    found, depth, start = list[str](), 0, 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
        if character == "," and not depth:
            found.append(text[start:place])
            start = place + 1
    if depth:
        raise argparse.ArgumentTypeError(f"the parentheses do not match in {text!r}")
    return [rule.strip() for rule in [*found, text[start:]] if rule.strip()]


def _count(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on, got {text!r}")
    return value


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"a number above 0, got {text!r}")
    return value
