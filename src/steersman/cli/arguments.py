"""Parses the command line into `Options`. Imports no agent, no model and no terminal library."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, TypeAlias, cast

from steersman.cli.flag_values import parse_amount, parse_count, parse_names, parse_rules

Command: TypeAlias = Literal[
    "run", "chat", "sessions", "models", "doctor", "init", "eval", "serve", "worker", "acp", "mcp"
]
OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]
InputFormat: TypeAlias = Literal["text", "stream-json"]

SUBCOMMANDS = {
    "sessions": "list, show, export, rerun, branch and remove saved sessions",
    "models": "list providers, the keys that are set, prices and context windows",
    "doctor": "check what works on this machine and what is missing",
    "init": "write a first AGENTS.md and project settings, by looking at the project",
    "eval": "run an agent on a file of cases and score it, against a baseline if there is one",
    "serve": "put the agent of this folder behind HTTP, with a web page",
    "worker": "run sessions that Temporal supervises, for servers with --temporal",
    "acp": "be the agent of an editor, over stdin and stdout (Agent Client Protocol)",
    "mcp": "be a tool of another program, over stdin and stdout (Model Context Protocol)",
}
MODES = ("ask", "accept-edits", "plan", "bypass")
SESSION_ACTIONS = ("list", "show", "export", "rerun", "branch", "rm")
_FLAG_WORDS = {"help": "--help", "version": "--version"}
# Commands that other programs of this kind have, and where to find the same here.
_ELSEWHERE = {
    "tools permissions": "--help lists the flags for tools and approval",
    "config settings login logout auth": "'steersman doctor' says what is set up",
    "chat start run exec ask": "'steersman' starts a chat, and with a prompt answers it",
    "resume continue history": "-c continues the last session, 'steersman sessions list' shows what -r can continue",
}
THINKING = ("off", "minimal", "low", "medium", "high")

# The modules that add a command's own options: loaded only for that command.
_SUBCOMMAND_MODULES = {
    "acp": "steersman.cli.serving.acp",
    "doctor": "steersman.cli.setup.doctor",
    "init": "steersman.cli.setup.init",
    "eval": "steersman.cli.evals.eval_command",
    "mcp": "steersman.cli.serving.mcp",
    "models": "steersman.cli.setup.models",
    "serve": "steersman.cli.serving.serve",
    "sessions": "steersman.cli.sessions.subcommand",
    "worker": "steersman.cli.serving.worker",
}


# Flags allowed before the subcommand, and whether a value follows the flag.
_BEFORE_SUBCOMMAND = {
    "--verbose": False,
    "--session-dir": True,
    "--model": True,
    "--thinking": True,
    "--system-prompt": True,
}
_SUBCOMMAND_OPTIONS = ("session_dir", "verbose", "model", "thinking", "system_prompt", "max_turns", "max_budget_usd",
               "max_duration", "output_format", "allowed_tools", "permission_mode", "tools", "mcp_config")  # fmt: skip
_EXAMPLES = (
    ('steersman "What does this project do?"', "one answer, streamed"),
    ("steersman", "a chat; type while it works to steer it"),
    ('git diff | steersman "Review this."', "piped input is added after the prompt"),
    ('steersman -p "..." --output-format stream-json', "the events, one JSON object per line"),
    ('steersman -c "How many tests are there?"', "continue the last session of this folder"),
)
_COMMAND_LINES = {
    "sessions list|show|export|rerun|branch|rm": "sessions",
    "models": "models",
    "doctor": "doctor",
    "init [--force]": "init",
    "eval FILE [--baseline REPORT]": "eval",
    "serve [--port N] [--store URL]": "serve",
    "worker --store URL --temporal HOST:PORT": "worker",
    "acp": "acp",
    "mcp": "mcp",
}
_EXIT_CODES = (
    "exit codes: 0 done, 1 error, 2 usage, 3 limit reached, 4 refused, or ended on a denied call, 130 interrupted"
)


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options; `None` means the option was not given and the settings decide."""

    command: Command = "run"
    prompt: str | None = None
    print_only: bool = False
    model: str | None = None
    thinking: str | None = None
    system_prompt: str | None = None
    tools: tuple[str, ...] | None = None
    allowed_tools: tuple[str, ...] = ()
    permission_mode: str | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    max_duration: float | None = None
    output_format: OutputFormat = "text"
    input_format: InputFormat = "text"
    approval_timeout: float | None = None
    json_schema: Path | None = None
    continue_: bool = False
    resume: str | None = None
    fork_session: bool = False
    session_dir: Path | None = None
    mcp_config: Path | None = None
    verbose: bool = False
    arguments: argparse.Namespace | None = None


def parse(argv: Sequence[str]) -> Options:
    """Parses a command line; a mistake is reported on stderr and exits with code 2.

    Reads piped input here, except with `--input-format stream-json`.
    """
    at = _find_subcommand(argv)
    if at is not None:
        return _parse_subcommand(argv[at], [*argv[:at], *argv[at + 1 :]])
    parser = _build_parser()
    # Everything after `--` is prompt text; parse_intermixed_args would read flags there.
    end = argv.index("--") if "--" in argv else len(argv)
    found = parser.parse_intermixed_args(argv[:end])
    options = _build_options(found)
    _check_combination(parser, options)
    _check_mistyped_command(parser, options, cast(list[str], found.prompt), quoted=end < len(argv))
    return _add_prompt(parser, options, [*cast(list[str], found.prompt), *argv[end + 1 :]])


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that every command takes, also after a subcommand."""
    missing = argparse.SUPPRESS  # a default must not overwrite a flag given before the subcommand
    parser.add_argument(
        "--session-dir", type=Path, metavar="DIR", default=missing, help="save and look up sessions in this folder"
    )
    parser.add_argument(
        "--verbose", action="store_true", default=missing, help="show more details, and tracebacks of errors"
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that choose the model and how it answers."""
    missing = argparse.SUPPRESS
    parser.add_argument(
        "--model", metavar="PROVIDER:ID", default=missing, help="the model to use, such as openai:gpt-5"
    )
    parser.add_argument(
        "--thinking", choices=THINKING, default=missing, help="how much the model thinks before it answers"
    )
    parser.add_argument("--system-prompt", metavar="TEXT", default=missing, help="replaces the built-in system prompt")


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="steersman",
        usage="steersman [options] [prompt]\n       steersman COMMAND ...",
        description="Runs an agent in this folder. Without a prompt, on a terminal, it starts a chat.",
        allow_abbrev=False,
    )
    parser.examples = True
    parser.add_argument("prompt", nargs="*", help="what to do; '-' reads standard input to its end")
    parser.add_argument("--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="show the version")
    run = parser.add_argument_group("run")
    run.add_argument(
        "-p",
        "--print",
        action="store_true",
        dest="print_only",
        help="print the answer and exit; never ask for approval",
    )
    add_model_options(cast(Any, run))
    add_tool_options(parser)
    add_limit_options(parser)
    _add_format_options(parser)
    _add_session_options(parser)
    return parser


def add_tool_options(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say which tools there are and what they may do."""
    tools = parser.add_argument_group("tools")
    tools.add_argument(
        "--tools", type=parse_names, metavar="NAMES", help="only these built-in tools, for example read,search"
    )
    tools.add_argument("--no-tools", action="store_const", const=(), dest="tools", help="no tools at all")
    tools.add_argument(
        "--allowed-tools",
        type=parse_rules,
        action="extend",
        default=[],
        metavar="RULES",
        help="what needs no approval, for example 'edit,bash(git status:*)'",
    )
    tools.add_argument(
        "--permission-mode",
        choices=MODES,
        help="what needs approval: all but reading (ask), commands (accept-edits), nothing may change (plan), nothing "
        "(bypass)",
    )
    tools.add_argument(
        "--mcp-config", type=Path, metavar="FILE", help="start the MCP servers of this file (same format as .mcp.json)"
    )


def add_limit_options(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that limit a run."""
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-turns", type=parse_count, metavar="N", help="the most turns of a run")
    limits.add_argument("--max-budget-usd", type=parse_amount, metavar="USD", help="the most a run may cost")
    limits.add_argument("--max-duration", type=parse_amount, metavar="SECONDS", help="the most time a run may take")


def _add_format_options(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_argument_group("input and output")
    forms.add_argument(
        "--output-format", choices=("text", "json", "stream-json"), default="text", help="format of standard output"
    )
    forms.add_argument(
        "--input-format", choices=("text", "stream-json"), default="text", help="format of standard input"
    )
    forms.add_argument(
        "--approval-timeout",
        type=parse_amount,
        metavar="SECONDS",
        help="with stream-json on both sides: deny a call that gets no answer in this time",
    )
    forms.add_argument("--json-schema", type=Path, metavar="FILE", help="the answer is JSON that matches this schema")


def _add_session_options(parser: argparse.ArgumentParser) -> None:
    sessions = parser.add_argument_group("sessions")
    sessions.add_argument(
        "-c", "--continue", action="store_true", dest="continue_", help="continue the last session of this folder"
    )
    sessions.add_argument(
        "-r", "--resume", metavar="ID", help="continue this session; the beginning of its id is enough"
    )
    sessions.add_argument("--fork-session", action="store_true", help="with -c or -r: continue in a copy")
    add_common_options(cast(Any, sessions))


def _build_options(found: argparse.Namespace) -> Options:
    given = {name: value for name, value in vars(found).items() if name != "prompt"}
    given["allowed_tools"] = tuple(given["allowed_tools"])
    return Options(**given)


def _check_combination(parser: argparse.ArgumentParser, options: Options) -> None:
    if options.continue_ and options.resume is not None:
        parser.error("-c continues the last session and -r the one you name; give only one of them")
    if options.fork_session and not options.continue_ and options.resume is None:
        parser.error("--fork-session needs a session to copy: add -c or -r ID")
    if options.approval_timeout is not None and (options.input_format, options.output_format) != ("stream-json",) * 2:
        parser.error(
            "--approval-timeout is for answers over stdin: add --input-format stream-json --output-format stream-json"
        )


def _check_mistyped_command(
    parser: argparse.ArgumentParser, options: Options, words: list[str], *, quoted: bool
) -> None:
    """Refuses a prompt that looks like a command with a slip in it; `-p` and `--` say that it is a prompt."""
    if not words or options.print_only or quoted or options.input_format != "text":
        return
    from difflib import get_close_matches

    word, *others = words
    for known, where in _ELSEWHERE.items():
        if not others and word in known.split() and not options.continue_ and options.resume is None:
            parser.error(f"{word!r} is not a command: {where}. If it is a prompt: steersman -- {word}")
    near = get_close_matches(word.lower(), [*SUBCOMMANDS, *_FLAG_WORDS], 1, 0.75)
    if not near or (others and not (near[0] == "sessions" and get_close_matches(others[0], SESSION_ACTIONS, 1, 0.7))):
        return
    meant = " ".join(["steersman", _FLAG_WORDS.get(near[0], near[0]), *others])
    how = "comes before its options" if near[0] == word and word in SUBCOMMANDS else "is not a command"
    parser.error(f"{word!r} {how}. Did you mean '{meant}'? If it is a prompt: steersman -- {' '.join(words)}")


def _add_prompt(parser: argparse.ArgumentParser, options: Options, words: list[str]) -> Options:
    wait = "-" in words
    text = " ".join(word for word in words if word != "-").strip()
    if options.input_format == "stream-json":
        if wait:
            parser.error("'-' reads the prompt from stdin, but --input-format stream-json reads stdin already")
        return replace(options, command="run", prompt=text or None)
    terminal = _is_terminal(sys.stdin)
    if terminal and wait:
        parser.error("'-' reads the prompt from stdin, but stdin is a terminal; type the prompt instead")
    if not terminal:
        from steersman.cli.terminal.stdin import read_piped_input  # imports asyncio, which --help does not need

        try:
            given = read_piped_input(patient=wait or not text)
        except OSError as error:
            parser.error(f"cannot read stdin: {error.strerror}")
        text = "\n\n".join(part for part in (text, given.strip()) if part)
    if text:
        return replace(options, command="run", prompt=text)
    if options.print_only or not terminal:
        parser.error("no prompt: give one, or pipe one in")
    if not _is_terminal(sys.stdout):
        parser.error("a chat needs a terminal, but stdout is not one; give a prompt")
    if options.output_format != "text" or options.json_schema is not None:
        parser.error("--output-format and --json-schema do not work in a chat; give a prompt")
    return replace(options, command="chat")


def _is_terminal(stream: IO[str] | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _find_subcommand(argv: Sequence[str]) -> int | None:
    """Returns the index of the subcommand, or `None`; only flags of `_BEFORE_SUBCOMMAND` may come before it."""
    at = 0
    while at < len(argv):
        name, equals, _ = argv[at].partition("=")
        if name in SUBCOMMANDS and not equals:
            return at
        if name not in _BEFORE_SUBCOMMAND:
            return None
        at += 1 if equals or not _BEFORE_SUBCOMMAND[name] else 2
    return None


def _parse_subcommand(word: str, argv: Sequence[str]) -> Options:
    parser = _Parser(
        prog=f"steersman {word}",
        description=f"{SUBCOMMANDS[word][:1].upper()}{SUBCOMMANDS[word][1:]}.",
        conflict_handler="resolve",  # a subcommand may redefine a common flag
        allow_abbrev=False,
    )
    add_common_options(parser)
    add_model_options(parser)
    import_module(_SUBCOMMAND_MODULES[word]).configure(parser)
    found = parser.parse_args(argv)
    known = {name: value for name in _SUBCOMMAND_OPTIONS if (value := getattr(found, name, None)) is not None}
    return Options(command=cast(Command, word), arguments=found, **known)


class _Parser(argparse.ArgumentParser):
    """A parser that sanitizes what it quotes in error messages, and fits what it prints into the terminal."""

    examples = False
    """Whether the help ends with examples and the commands."""

    def format_usage(self) -> str:
        from steersman.cli.help_text import fit_usage

        return fit_usage(super().format_usage(), shutil.get_terminal_size().columns)

    def format_help(self) -> str:
        from steersman.cli.help_text import fit_help, render_examples

        width = shutil.get_terminal_size().columns
        text = fit_help(super().format_help(), width)
        if not self.examples:
            return text
        commands = ((f"steersman {line}", SUBCOMMANDS[word]) for line, word in _COMMAND_LINES.items())
        lines = ["", "examples:", *render_examples(_EXAMPLES, width)]
        lines += ["", "commands:", *render_examples(commands, width), ""]
        return "\n".join([text.rstrip("\n"), *lines, *textwrap.wrap(_EXIT_CODES, width), ""])

    def error(self, message: str) -> NoReturn:
        from steersman.cli.exits import UserError, describe_error, suggest_nearest
        from steersman.cli.terminal.columns import wrap
        from steersman.cli.terminal.descriptors import STDERR, count_columns

        nearest = ""
        if match := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            nearest = suggest_nearest(match[1], [word.strip(" '") for word in match[2].split(",")])
        elif match := re.fullmatch(r"unrecognized arguments: (--[\w-]+).*", message, re.DOTALL):
            known = [flag for flag in self._option_string_actions if flag.startswith("--")]
            nearest = suggest_nearest(match[1], known)
        told = describe_error(UserError(f"{message}.{nearest}" if nearest else message))
        self.print_usage(sys.stderr)
        self.exit(2, "\n".join([*wrap(f"{self.prog}: error: {told}", count_columns(STDERR)), ""]))


class _Version(argparse.Action):
    """Prints the version; the package metadata is read only here, because that is slow."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"steersman {version('steersman')}")
        except PackageNotFoundError:
            print("steersman (not installed as a package)")
        parser.exit()
