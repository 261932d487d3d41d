"""What begins with a slash: commands to the chat itself, of which the model hears nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast, get_args

from steersman.agent.agent import Agent
from steersman.agent.options import changed
from steersman.cli.chat.conversation import Conversation, Kind
from steersman.cli.exits import UserError, line_of, near
from steersman.cli.setup.model_choice import named_model
from steersman.cli.setup.startup import context_for, has_unknown_price, no_budget, with_usual_prices
from steersman.cli.terminal.sanitize import one_line
from steersman.context.entries import Entry, MessageEntry
from steersman.types.messages import UserMessage
from steersman.types.model import Model, ThinkingLevel
from steersman.types.usage import Usage

if TYPE_CHECKING:
    from steersman.session.session import Session


_WORDS = 60


def tree_lines(session: Session, *, cleared: bool = False) -> list[str]:
    """Every branch, the current one last: an ID stands for where an exchange ended, the words are what began it.

    Where the conversation was `cleared` none of them is current, and what is said next begins another.
    """
    short = _short_names(session)
    lines: list[str] = []
    seen: set[str] = set()
    branches = sorted(session.tree(), key=lambda branch: (branch.current, branch.updated))
    for number, branch in enumerate(branches):
        current = branch.current and not cleared
        if len(branches) > 1:
            label = f" “{one_line(branch.label)}”" if branch.label else ""
            forked = "" if branch.fork is None else f" from {short.get(branch.fork, branch.fork)}"
            here = ", you are here" if current else ""
            lines += [""] * (number > 0) + [f"branch{label}{forked}{here}"]
        for id, words in _exchanges(session.entries(branch.leaf)):
            mark = "●" if current and id == branch.leaf else "·" if id in seen else "○"
            if id not in seen or current:
                lines.append(f"{mark} {short.get(id, id)}  {words}")
            seen.add(id)
    return [*lines, "", "● the beginning, where /clear took you"] if lines and cleared else lines


def _exchanges(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """What users said, each with the last entry before the next of it."""
    found: list[tuple[str, str]] = []
    for entry in entries:
        if isinstance(entry, MessageEntry) and type(entry.message) is UserMessage and not entry.message.synthetic:
            found.append((entry.id, _words(entry.message.text)))
        elif found:
            found[-1] = entry.id, found[-1][1]
    return found


def _words(text: str) -> str:
    line = one_line(" ".join(text[: 4 * _WORDS].split()))
    return line if len(line) <= _WORDS else line[: _WORDS - 1] + "…"


def _short_names(session: Session) -> dict[str, str]:
    """The shortest name of each entry that only it has: the number at the end of its id, or all behind the kind."""
    ids = _ids(session)
    ends = [id.rpartition("_")[2] for id in ids]
    times = Counter(ends)
    return {
        id: end if times[end] == 1 and end else id.partition("_")[2] or id for id, end in zip(ids, ends, strict=True)
    }


def _ids(session: Session) -> list[str]:
    return list(dict.fromkeys(entry.id for branch in session.tree() for entry in session.entries(branch.leaf)))


def entry_named(session: Session, name: str) -> str:
    """The entry that a short name, an id or a label means."""
    ids = _ids(session)
    named = session.resolve_entry(name)
    if named in ids:
        return named
    found = [id for id, short in _short_names(session).items() if short == name]
    found = found or [id for id in ids if id.endswith(f"_{name}")]
    if len(found) == 1:
        return found[0]
    what = "Several entries are" if found else "No entry is"
    raise UserError(f"{what} called {name!r} here. /tree shows the IDs there are.")


KEYS: Mapping[str, str] = {
    "Enter": "send; while it works: steer it",
    "Alt+Enter": "while it works: queue for afterwards; else a new line",
    "Ctrl-J, or \\ Enter": "a new line",
    "Esc, Ctrl-C": "interrupt",
    "Ctrl-R, ↑ ↓": "what was typed before",
    "Tab": "complete a command, a model or a path; @ does so as you type",
    "Ctrl-D": "leave",
}


class Room(Protocol):
    """What commands work on."""

    @property
    def conversation(self) -> Conversation:
        """The agent and its runs."""
        ...

    def say(self, kind: Kind, text: str) -> None:
        """Show lines."""
        ...

    def leave(self, code: int = 0) -> None:
        """End the chat."""
        ...

    async def prepare(self, model: Model) -> None:
        """Get a model ready that has to be fetched or started first."""
        ...

    def words_for(self, model: Model) -> str:
        """The system prompt that a model gets here."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what it takes, what it does in a few words, and whether it has to wait for a run."""

    says: str
    do: Callable[[Room, str], None] | Callable[[Room, str], Awaitable[None]]
    takes: str = ""
    idle: bool = False


def is_command(text: str) -> bool:
    """Whether a text is meant for the chat: two slashes are not, nor is a path."""
    if not text.startswith("/") or text.startswith("//"):
        return False
    word = text[1:].split(maxsplit=1)[0] if text[1:].strip() else ""
    return "/" not in word


def spoken(text: str) -> str:
    """A text as it is sent: a slash in front of a slash only says that it is no command."""
    return text[1:] if text.startswith("//") else text


async def obey(room: Room, text: str) -> None:
    """Do what a command says; what stands in its way is told."""
    word, _, rest = text[1:].strip().partition(" ")
    word = _whole(word)
    command = COMMANDS.get(word)
    if command is None:
        known = [*COMMANDS, *ALIASES]
        room.say("error", f"No command /{one_line(word)}.{near(word, known)} /help lists them; // sends a slash.")
        return
    if command.idle and room.conversation.running:
        room.say("error", f"/{word} has to wait until the run is over; Ctrl-C interrupts it.")
        return
    try:
        done = command.do(room, rest.strip())
        if done is not None:
            await done
    except Exception as error:  # noqa: BLE001  # an unknown model or id, a session that is busy: said, and the chat goes on
        room.say("error", line_of(error))


def _whole(word: str) -> str:
    """The command that is meant: by its name, by another name, or by a beginning that only one has."""
    begun = [name for name in COMMANDS if word and name.startswith(word)]
    return word if word in COMMANDS else ALIASES.get(word) or (begun[0] if len(begun) == 1 else word)


def _help(room: Room, _: str) -> None:
    width = max(len(f"/{name} {command.takes}") for name, command in COMMANDS.items())
    lines = [f"{f'/{name} {command.takes}':<{width}}  {command.says}" for name, command in COMMANDS.items()]
    keys = [f"{key:<{width}}  {says}" for key, says in KEYS.items()]
    room.say("notice", "\n".join([*lines, "", *keys]))


async def _model(room: Room, name: str) -> None:
    agent = room.conversation.agent
    if not name:
        room.say("notice", f"The model is {facts(agent.config.model)}. /model provider:model-id takes another one.")
        return
    model = await named_model(name)
    limits = agent.config.execution_limits
    budget = None if limits is None else limits.max_cost
    if budget is not None:
        model = with_usual_prices(model)
    if budget is not None and has_unknown_price(model) and not has_unknown_price(agent.config.model):
        raise UserError(f"{no_budget(model)} The model stays {agent.config.model.name}.")
    await room.prepare(model)
    agent.config = changed(agent.config, {"model": model, "context_config": context_for(model)})
    room.conversation.next_words = room.words_for(model)
    when = "From the next run on" if room.conversation.running else "Now"
    room.say("notice", f"{when} the model is {facts(model)}. The conversation goes with it.")


def facts(model: Model) -> str:
    """A model's name, with its window and its prices."""
    window = "window unknown" if model.context_window is None else f"window {model.context_window:,} tokens"
    prices = model.prices
    price = "price unknown" if prices is None else f"${prices.input:g} in, ${prices.output:g} out per million tokens"
    if model.provider == "local":
        price = "free, on this machine"
    return f"{one_line(model.name)} ({window}; {price})"


def _thinking(room: Room, level: str) -> None:
    agent = room.conversation.agent
    levels = get_args(ThinkingLevel)
    if not level:
        room.say("notice", f"Thinking is {agent.config.thinking_level}. There are {', '.join(levels)}.")
    elif level not in levels:
        room.say("error", f"Thinking is one of {', '.join(levels)}, got {one_line(level)!r}.{near(level, levels)}")
    else:
        agent.config = changed(agent.config, {"thinking_level": level})
        room.say("notice", f"From the next run on thinking is {level}.")


def _tools(room: Room, _: str) -> None:
    tools = room.conversation.agent.tools
    if not tools:
        room.say("notice", "There are no tools.")
        return
    means = {"read": "reads", "edit": "edits", "full": "asks"}
    width = min(24, max(map(len, tools)))
    room.say(
        "notice",
        "\n".join(
            f"{one_line(name):<{width}}  {means.get(tool.access, tool.access):<5}  {_first_sentence(tool.description)}"
            for name, tool in tools.items()
        ),
    )


def _first_sentence(text: str) -> str:
    sentence = one_line(text.strip().split("\n", 1)[0]).split(". ", 1)[0].rstrip(".")
    return sentence if len(sentence) <= 100 else sentence[:99] + "…"


def _compact(room: Room, _: str) -> None:
    shorter = room.conversation.agent.compact()
    room.say("notice", "The model now sees a shorter conversation." if shorter else "There is nothing to shorten yet.")


def _tree(room: Room, _: str) -> None:
    session = room.conversation.agent.session
    if session is None:
        room.say("error", "There is no session here that could have branches.")
        return
    lines = tree_lines(session, cleared=not room.conversation.agent.messages)
    room.say("notice", "\n".join(lines) if lines else "Nothing has been said yet.")


def _branch(room: Room, rest: str) -> None:
    agent = room.conversation.agent
    name, _, prompt = rest.partition(" ")
    if not name:
        room.say("error", "/branch takes an ID of /tree, and words to go on with if you like.")
        return
    at = entry_named(_session_of(agent), name)
    log = _session_of(agent).through(at).fork(at)
    if prompt.strip():
        room.conversation.begin(lambda: agent.branch(at, prompt=prompt.strip()))
    elif log.messages and isinstance(log.messages[-1], UserMessage):
        room.conversation.begin(lambda: agent.branch(at))
    else:
        _session_of(agent).branch(at)
        room.say("notice", f"You are at {one_line(name)}. What you say next goes on from there.")


def _session_of(agent: Agent) -> Any:
    if agent.session is None:
        raise ValueError("There is no session here that could have branches.")
    return agent.session


def _rerun(room: Room, name: str) -> None:
    agent = room.conversation.agent
    at = entry_named(_session_of(agent), name) if name else None
    room.conversation.begin(lambda: agent.rerun(at=at))


def _continue(room: Room, _: str) -> None:
    room.conversation.begin(room.conversation.agent.continue_)


def _clear(room: Room, _: str) -> None:
    agent = room.conversation.agent
    agent.context.messages = []
    if agent.session is not None:
        # Also for whoever goes on with it later: what was cleared is not said to a model again.
        agent.session.move_to(agent.context.log)
    room.say("notice", "From here on the model knows nothing of what was said. /tree has the way back.")


def _cost(room: Room, _: str) -> None:
    room.say("notice", cost(room.conversation.usage))


def cost(usage: Usage) -> str:
    """What all runs of the chat came to."""
    if not usage.known:
        return "Nothing was used yet, or the provider does not tell."
    parts = [f"{usage.input or 0:,} tokens in", f"{usage.output or 0:,} out"]
    parts += [f"{usage.cache_read:,} read from the cache"] if usage.cache_read else []
    parts += [f"{usage.cache_write:,} written to the cache"] if usage.cache_write else []
    money = "the price is not known" if usage.cost is None else f"${usage.cost:.4f}"
    least = "at least " if usage.partial else ""
    return f"This chat: {least}{', '.join(parts)}; {money}."


def _quit(room: Room, _: str) -> None:
    room.leave()


COMMANDS: Mapping[str, Command] = {
    "help": Command("what can be typed here", _help),
    "model": Command("which model it is, or another one from the next run on", _model, "[NAME]"),
    "thinking": Command("how much it thinks: off, minimal, low, medium, high", _thinking, "[LEVEL]"),
    "tools": Command("what it can do, and what of it is asked about", _tools),
    "cost": Command("tokens and money of this chat", _cost),
    "compact": Command("make what the model sees shorter", _compact, idle=True),
    "tree": Command("the ways this conversation went, with IDs", _tree),
    "branch": Command("go another way from there", _branch, "ID [PROMPT]", idle=True),
    "rerun": Command("ask for the last answer again, or for another one", _rerun, "[ID]", idle=True),
    "continue": Command("go on after an error or an interruption", _continue, idle=True),
    "clear": Command("begin again; nothing is lost", _clear, idle=True),
    "quit": Command("leave", _quit),
}
ALIASES: Mapping[str, str] = {"exit": "quit", "q": "quit", "?": "help", "new": "clear"}


def thinking_levels() -> tuple[str, ...]:
    """The levels of thinking there are."""
    return cast(tuple[str, ...], get_args(ThinkingLevel))
