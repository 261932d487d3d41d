"""The slash commands of the chat, such as `/model`; the model does not see them.

To add a command, write a function that takes the chat and the rest of the line, and add it to `COMMANDS` below.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from steersman.agent.agent import Agent
from steersman.cli.chat.compacting import compact
from steersman.cli.chat.conversation import Conversation, Kind
from steersman.cli.chat.copy_command import copy
from steersman.cli.chat.custom_commands import CustomCommand, run_custom_command
from steersman.cli.chat.export_command import export
from steersman.cli.chat.mcp_command import run_mcp_command
from steersman.cli.chat.model_commands import change_mode_by_name, change_model, change_thinking
from steersman.cli.chat.tree import render_tree
from steersman.cli.chat.undo_command import list_checkpoints, offer_files, redo, undo
from steersman.cli.chat.window_use import render_window_use
from steersman.cli.exits import describe_error, suggest_nearest
from steersman.cli.sessions.artifacts import render_artifacts
from steersman.cli.sessions.entry_names import find_entry, list_entry_ids, shorten_ids
from steersman.cli.terminal.columns import make_canvas
from steersman.cli.terminal.numbers import count_input_tokens, format_money
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.cli.terminal.theme import THEMES, get_theme, use_theme
from steersman.policy.approval import Mode
from steersman.types.messages import UserMessage
from steersman.types.model import Model
from steersman.types.usage import Usage

if TYPE_CHECKING:
    from steersman.cli.setup.file_history import FileHistory
    from steersman.cli.setup.mcp_files import McpFiles
    from steersman.cli.setup.settings import Settings
    from steersman.session.session import Session


KEYS: Mapping[str, str] = {
    "Enter": "send; during a run: steer it",
    "Alt+Enter": "during a run: queue a follow-up; otherwise: a new line",
    "Ctrl-J, or \\ Enter": "a new line; Shift+Enter too, in terminals that send it",
    "Esc, Ctrl-C": "interrupt the run",
    "Ctrl-O": "show all output of the last tool call; again: of all calls of the run",
    "Ctrl-R, ↑ ↓": "earlier input",
    "Shift+Tab": "change the mode: ask, accept-edits, plan",
    "Tab": "complete a command, a model or a path",
    "@path": "attach a file; it is completed as you type, by any letters of its path",
    "!command": "run a command yourself; the model reads its output. \\! begins a text",
    "Ctrl-D": "quit",
}


_WIDEST_HEAD = 22


class Chat(Protocol):
    """What a command works on; the screen chat and the line chat implement it."""

    @property
    def conversation(self) -> Conversation:
        """The agent and its runs."""
        ...

    def say(self, kind: Kind, text: str) -> None:
        """Shows lines."""
        ...

    def leave(self, code: int = 0) -> None:
        """Ends the chat."""
        ...

    def change_mode(self, mode: Mode) -> None:
        """Changes what needs approval, from the next call on."""
        ...

    async def prepare(self, model: Model) -> None:
        """Downloads and loads a model, if it needs that."""
        ...

    def get_system_prompt(self, model: Model) -> str:
        """Returns the system prompt for a model."""
        ...

    @property
    def mcp(self) -> McpFiles | None:
        """The MCP servers of the agent; `None` if it has no tools."""
        ...

    @property
    def workspace(self) -> Path:
        """The folder of the agent."""
        ...

    @property
    def files(self) -> FileHistory | None:
        """What the runs changed in files; `None` if the chat is not saved."""
        ...

    def send_control(self, sequence: str) -> None:
        """Sends a control sequence of the chat's own to the terminal."""
        ...

    async def confirm(self, question: str, content: str = "") -> bool:
        """Asks for a yes, and shows what it is about."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings of the user and of the project."""
        ...

    def toggle_vim(self) -> None:
        """Changes between the keys of vi and those of Emacs."""
        ...

    @property
    def custom(self) -> Mapping[str, CustomCommand]:
        """The commands that files of the user and of the project add."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its help text, its function, its arguments, and whether it has to wait for the end of a run."""

    summary: str
    run: Callable[[Chat, str], None] | Callable[[Chat, str], Awaitable[None]]
    arguments: str = ""
    only_when_idle: bool = False


def is_command(text: str) -> bool:
    """Whether a text is a command; a path, or a text that starts with two slashes, is not.

    A few words that are commands of most programs are commands alone, without a slash.
    """
    if text in _WORDS:
        return True
    if not text.startswith("/") or text.startswith("//"):
        return False
    word = text[1:].split(maxsplit=1)[0] if text[1:].strip() else ""
    return "/" not in word


def is_own_command(text: str) -> bool:
    """Whether a text is a command that the user runs, outside the sandbox."""
    return text.startswith("!") and bool(text[1:].strip())


def unescape_text(text: str) -> str:
    r"""Removes what says that a text is not a command: the first of two slashes, or the backslash of `\!`."""
    return text[1:] if text.startswith(("//", "\\!")) else text


def escape_text(text: str) -> str:
    r"""Marks a text that was not typed as a command, such as a paste, so that Enter does not run it: `\!`, `//`."""
    text = text.lstrip()
    if text.startswith(("!", "\\!")):
        return f"\\{text}"
    return f"/{text}" if text.startswith("//") or (text.startswith("/") and is_command(text)) else text


async def run_command(chat: Chat, text: str) -> None:
    """Runs a command; shows errors in the chat."""
    word, _, rest = _WORDS.get(text, text)[1:].strip().partition(" ")
    word = _resolve_name(word, chat.custom)
    command = COMMANDS.get(word)
    if command is None and (custom := chat.custom.get(word)) is not None:
        command = Command(custom.summary, partial(run_custom_command, custom))
    if command is None:
        near = suggest_nearest(word, [*COMMANDS, *ALIASES, *chat.custom])
        chat.say("error", f"No command /{sanitize_line(word)}.{near} /help lists the commands; // sends a slash.")
        return
    if command.only_when_idle:
        await chat.conversation.wait_for_end()
    if command.only_when_idle and chat.conversation.running:
        chat.say("error", f"/{word} needs the run to end first; Ctrl-C interrupts it.")
        return
    try:
        done = command.run(chat, rest.strip())
        if done is not None:
            await done
    except Exception as error:  # noqa: BLE001  # such as an unknown model or a busy session: shown, and the chat goes on
        chat.say("error", describe_error(error))


def _resolve_name(word: str, custom: Mapping[str, CustomCommand]) -> str:
    """Resolves a name, an alias or a unique beginning of a name."""
    if word in COMMANDS or word in ALIASES or word in custom:
        return ALIASES.get(word, word)
    begun = [name for name in (*COMMANDS, *custom) if word and name.startswith(word)]
    return begun[0] if len(begun) == 1 else word


def list_commands(custom: Mapping[str, CustomCommand]) -> dict[str, tuple[str, str]]:
    """Lists the commands with their arguments and help texts, those of files last; all is safe to print."""
    own = {name: (command.arguments, command.summary) for name, command in COMMANDS.items()}
    return own | {name: (command.arguments, command.summary) for name, command in custom.items()}


def _show_help(chat: Chat, _: str) -> None:
    heads = {f"/{name} {words}".rstrip(): says for name, (words, says) in list_commands(chat.custom).items()}
    width = min(_WIDEST_HEAD, max(map(len, heads)))
    lines = [f"{head:<{width}}  {says}" for head, says in heads.items()]
    keys = [f"{key:<{width}}  {says}" for key, says in KEYS.items()]
    chat.say("notice", "\n".join([*lines, "", *keys]))


def _list_tools(chat: Chat, _: str) -> None:
    agent = chat.conversation.agent
    tools = agent.tool_table.read(agent.context.tools)
    if not tools:
        chat.say("notice", "There are no tools.")
        return
    means = {"read": "reads", "edit": "edits", "full": "asks"}
    width = min(24, max(map(len, tools)))
    chat.say(
        "notice",
        "\n".join(
            f"{sanitize_line(name):<{width}}  {means.get(tool.access, tool.access):<5}  "
            f"{_take_first_sentence(tool.description)}"
            for name, tool in tools.items()
        ),
    )


def _take_first_sentence(text: str) -> str:
    sentence = sanitize_line(text.strip().split("\n", 1)[0]).split(". ", 1)[0].rstrip(".")
    return sentence if len(sentence) <= 100 else sentence[:99] + "…"


def _show_tree(chat: Chat, _: str) -> None:
    agent = chat.conversation.agent
    lines = render_tree(_require_session(agent), cleared=not agent.messages)
    chat.say("notice", "\n".join(lines) if lines else "The conversation is empty.")


async def _branch(chat: Chat, rest: str) -> None:
    agent = chat.conversation.agent
    name, _, prompt = rest.partition(" ")
    if not name:
        chat.say("error", "/branch needs an ID from /tree, and optionally a prompt.")
        return
    session = _require_session(agent)
    at = find_entry(session, name)
    log = session.find_log_with(at).fork(at)
    await offer_files(chat, {entry.id for entry in log.entries})
    if prompt.strip():
        chat.conversation.begin(lambda: agent.branch(at, prompt=prompt.strip()))
    elif log.messages and isinstance(log.messages[-1], UserMessage):
        chat.conversation.begin(lambda: agent.branch(at))
    else:
        session.branch(at)
        chat.conversation.recount()
        short = shorten_ids(list_entry_ids(session)).get(at, at)
        chat.say("notice", f"You are at {sanitize_line(short)}. The next prompt continues from there.")


def _require_session(agent: Agent) -> Session:
    if agent.session is None:
        raise ValueError("There is no saved session, so there are no branches.")
    return agent.session


async def _rerun(chat: Chat, name: str) -> None:
    agent = chat.conversation.agent
    at = find_entry(_require_session(agent), name) if name else None
    if agent.session is not None:
        log = agent.context.log if at is None else agent.session.find_log_with(at)
        await offer_files(chat, {entry.id for entry in log.rewind(at).entries})
    chat.conversation.begin(lambda: agent.rerun(at=at))


def _continue(chat: Chat, _: str) -> None:
    chat.conversation.begin(chat.conversation.agent.continue_)


def _clear(chat: Chat, _: str) -> None:
    agent = chat.conversation.agent
    agent.context.messages = []
    if agent.session is not None:
        # Saved too, so that a later `-c` does not send the cleared part again.
        agent.session.move_to(agent.context.log)
    chat.conversation.drop_notes()
    chat.conversation.recount()
    chat.say("notice", "The model no longer sees the conversation so far. /tree leads back to it.")


def _show_cost(chat: Chat, _: str) -> None:
    chat.say("notice", describe_usage_so_far(chat.conversation.usage))


def describe_usage_so_far(usage: Usage) -> str:
    """Describes the usage of all runs of the chat, the present one included."""
    if not usage.known:
        return "No usage yet, or the provider does not report it."
    cached = [f"{usage.cache_read:,} read from the cache"] if usage.cache_read else []
    cached += [f"{usage.cache_write:,} written to the cache"] if usage.cache_write else []
    of_these = f" ({', '.join(cached)})" if cached else ""
    parts = [f"{count_input_tokens(usage):,} tokens in{of_these}", f"{usage.output or 0:,} out"]
    money = "price unknown" if usage.cost is None else format_money(usage.cost)
    least = "at least " if usage.partial else ""
    return f"This chat: {least}{', '.join(parts)}; {money}."


def _show_context(chat: Chat, _: str) -> None:
    conversation = chat.conversation
    chat.say(
        "notice", "\n".join(render_window_use(conversation.agent, conversation.counted, make_canvas().width or 80))
    )


def _list_artifacts(chat: Chat, _: str) -> None:
    agent = chat.conversation.agent
    lines = render_artifacts(agent.artifacts.list(), make_canvas())
    if agent.session is not None and agent.artifacts.list():
        lines.append(f"steersman sessions artifacts {agent.session.id} NAME -o FILE writes one to a file.")
    chat.say("notice", "\n".join(lines))


def _change_theme(chat: Chat, name: str) -> None:
    themes = {**THEMES, **chat.settings.themes}
    if not name:
        chat.say("notice", f"The theme is {get_theme().name}. Themes: {sanitize_line(', '.join(themes))}.")
    elif name not in themes:
        chat.say("error", f"No theme {sanitize_line(name)!r}.{suggest_nearest(name, themes)} /theme lists them.")
    else:
        use_theme(themes[name])
        chat.say("notice", f"From now on the theme is {sanitize_line(name)}; theme in the settings keeps it.")


def _toggle_vim(chat: Chat, _: str) -> None:
    chat.toggle_vim()


def _quit(chat: Chat, _: str) -> None:
    chat.leave()


COMMANDS: Mapping[str, Command] = {
    "help": Command("list commands and keys", _show_help),
    "model": Command("show the model, or change it from the next run on", change_model, "[NAME]"),
    "thinking": Command("how much the model thinks: off, minimal, low, medium, high", change_thinking, "[LEVEL]"),
    "mode": Command("what needs approval: ask, accept-edits, plan or bypass", change_mode_by_name, "[MODE]"),
    "tools": Command("list the tools, and which need approval", _list_tools),
    "mcp": Command("show the MCP servers; restart or trust one", run_mcp_command, "[restart NAME | trust [NAME]]"),
    "cost": Command("tokens and cost of this chat", _show_cost),
    "context": Command("what fills the context window of the model", _show_context),
    "compact": Command("let the model summarize the conversation", compact, "[FOCUS]", only_when_idle=True),
    "copy": Command("copy the last answer, or its code block N", copy, "[N]"),
    "export": Command("write the conversation to a file: .md, .jsonl or .html", export, "FILE"),
    "undo": Command("take back what the last prompt changed in files", undo, "[CHECKPOINT]", only_when_idle=True),
    "redo": Command("make the changes again that were undone last", redo, only_when_idle=True),
    "checkpoints": Command("list what each prompt changed in files", list_checkpoints),
    "artifacts": Command("list the files that the conversation keeps", _list_artifacts),
    "tree": Command("show the branches of this conversation, with IDs", _show_tree),
    "branch": Command("continue from an earlier point in a new branch", _branch, "ID [PROMPT]", only_when_idle=True),
    "rerun": Command("ask for the last answer again, or for an earlier one", _rerun, "[ID]", only_when_idle=True),
    "continue": Command("continue after an error or an interruption", _continue, only_when_idle=True),
    "clear": Command("start over; the session keeps everything", _clear, only_when_idle=True),
    "theme": Command("show the themes, or change the colours", _change_theme, "[NAME]"),
    "vim": Command("type with the keys of vi, or no longer", _toggle_vim),
    "quit": Command("leave the chat", _quit),
}
ALIASES: Mapping[str, str] = {"exit": "quit", "q": "quit", "?": "help", "new": "clear"}
_WORDS: Mapping[str, str] = {"exit": "/quit", "quit": "/quit", ":q": "/quit", "help": "/help"}
