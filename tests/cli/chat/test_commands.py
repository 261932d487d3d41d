"""What begins with a slash, in a real chat."""

from __future__ import annotations

import fcntl
import re
from pathlib import Path

import pytest
from tests.cli.chat.kit import READY, WAITING, chatting, go, heard
from tests.cli.command import Place

from steersman import Agent
from steersman.cli.chat.commands import run_command
from steersman.cli.chat.conversation import Conversation, Kind
from steersman.cli.chat.custom_commands import CustomCommand
from steersman.cli.setup.file_history import FileHistory
from steersman.cli.setup.mcp_files import McpFiles
from steersman.cli.setup.settings import Settings
from steersman.cli.setup.startup import UNKNOWN_WINDOW, make_context_config
from steersman.context.compaction.config import ContextConfig
from steersman.policy.approval import Mode
from steersman.policy.limits import ExecutionLimits
from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
from steersman.testing import answer, call
from steersman.testing.servers import OpenAIChatServer
from steersman.types.events import AgentEvent
from steersman.types.model import Model
from steersman.types.usage import Prices

pytestmark = pytest.mark.real_time


def test_commands_look_around_and_a_wrong_one_offers_the_nearest(place: Place, server: OpenAIChatServer) -> None:
    server.say("One.", "Two.")
    with chatting(place, server, columns=100, rows=40) as terminal:
        terminal.enter("/hlep")
        terminal.wait_for("No command /hlep. Did you mean 'help'?")
        terminal.enter("/help")
        terminal.wait_for("/quit")
        for word in ("/model [NAME]", "/tools", "/compact", "/tree", "/branch ID [PROMPT]", "/rerun", "/cost", "/quit"):
            assert word in terminal.shown
        terminal.enter("/tools")
        terminal.wait_for("bash")
        terminal.enter("Say one.")
        terminal.wait_for("One.")
        terminal.wait_for(READY)
        terminal.enter("/cost")
        terminal.wait_for("This chat: 12 tokens in, 7 out; price unknown.")
        terminal.enter("/model nobody:x")
        terminal.wait_for("No provider is named 'nobody'")
        terminal.enter("/model openai-chat:gpt-y")
        terminal.wait_for("Now the model is openai-chat:gpt-y (window unknown; price unknown).")
        terminal.enter("/thinking huge")
        terminal.wait_for("Thinking is one of off, minimal, low, medium, high")
        terminal.enter("Say two.")
        terminal.wait_for("Two.")
        terminal.wait_for("openai-chat:gpt-y · 24 in 14 out · 0% full · /help")
    assert [request["model"] for request in server.requests] == ["gpt-x", "gpt-y"]
    assert heard(server, 1) == [("user", "Say one."), ("assistant", "One."), ("user", "Say two.")]


def test_the_tree_shows_where_to_branch_and_a_branch_goes_on_from_there(place: Place, server: OpenAIChatServer) -> None:
    server.say("It is red.", "It is round.", "It is sweet.", "It is sour.")
    with chatting(place, server, rows=50) as terminal:
        for words, reply in (("Colour?", "red"), ("Form?", "round")):
            terminal.enter(words)
            terminal.wait_for(f"It is {reply}.")
            terminal.wait_for(READY)
        terminal.enter("/tree")
        terminal.wait_for("●")
        points = dict(re.findall(r"[○●] ([\w-]+)  (\w+)\?", terminal.shown))
        first = next(point for point, words in points.items() if words == "Colour")
        terminal.enter(f"/branch {first} Taste?")
        terminal.wait_for("It is sweet.")
        terminal.wait_for(READY)
        terminal.enter("/rerun")
        terminal.wait_for("It is sour.")
        terminal.wait_for(READY)
        terminal.enter("/branch nowhere")
        terminal.wait_for("'nowhere' is not an entry of this session.")
        terminal.enter("/tree")
        terminal.wait_for(lambda at: at.shown.count("branch from") == 3)
        assert terminal.shown.count("you are here") == 1
    begin = [("user", "Colour?"), ("assistant", "It is red.")]
    assert heard(server, 2) == [*begin, ("user", "Taste?")]
    assert heard(server, 3) == [*begin, ("user", "Taste?")]


class Room:
    """Where commands work without a window."""

    def __init__(self, agent: Agent) -> None:
        self.said: list[tuple[Kind, str]] = []
        self.conversation = Conversation(agent, self)
        self.mcp: McpFiles | None = None
        self.files: FileHistory | None = None
        self.workspace = Path()
        self.settings = Settings()
        self.custom: dict[str, CustomCommand] = {}

    def say(self, kind: Kind, text: str) -> None:
        self.said.append((kind, text))

    def show_event(self, event: AgentEvent) -> None: ...
    def put_back(self, text: str) -> None: ...
    def refresh(self) -> None: ...
    def send_control(self, sequence: str) -> None: ...
    def toggle_vim(self) -> None: ...
    def leave(self, code: int = 0) -> None: ...
    def change_mode(self, mode: Mode) -> None: ...
    async def prepare(self, model: Model) -> None: ...
    async def confirm(self, question: str, content: str = "") -> bool:
        return False

    def get_system_prompt(self, model: Model) -> str:
        return f"You are {model.id}."


async def test_another_model_has_its_own_window_and_does_not_undo_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    known = Model("openai", "gpt-k", context_window=1000, prices=Prices(input=1, output=2))
    room = Room(Agent(known, context_config=make_context_config(known), limits=ExecutionLimits(max_cost=1)))
    await run_command(room, "/model openai:gpt-nobody-knows")
    assert room.said == [
        (
            "error",
            "The prices of openai:gpt-nobody-knows are unknown, so a budget cannot be enforced. "
            "The model stays openai:gpt-k.",
        )
    ]
    assert room.conversation.agent.config.model == known
    room = Room(Agent(known, context_config=make_context_config(known)))
    await run_command(room, "/model openai:gpt-nobody-knows")
    assert room.conversation.agent.config.model.id == "gpt-nobody-knows"
    assert room.conversation.agent.config.context_config == ContextConfig(max_context_tokens=UNKNOWN_WINDOW)


@pytest.mark.real_time
async def test_another_model_gets_its_own_words_from_the_next_turn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with OpenAIChatServer("One.", "Two.") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        room = Room(Agent("openai-chat:gpt-x", system_prompt="You are gpt-x."))
        conversation = room.conversation
        conversation.send("Begin.")
        await conversation.wait_until_idle()
        conversation.send("Go on.")
        await run_command(room, "/model openai-chat:gpt-y")
        await conversation.wait_until_idle()
    heard_by = [(request["model"], request["messages"][0]["content"]) for request in server.requests]
    assert heard_by == [("gpt-x", "You are gpt-x."), ("gpt-y", "You are gpt-y.")]


def test_a_model_that_is_being_fetched_is_given_up_for_another_one_and_by_esc(
    place: Place, server: OpenAIChatServer
) -> None:
    """It may take minutes, and would come over the model that was asked for since."""
    folder = place.home / "cache" / "steersman" / "models"
    folder.mkdir(parents=True)
    fetching = "Waiting for another process that downloads"
    with (
        chatting(place, server, columns=100) as terminal,
        (folder / f"{LOCAL_MODELS[DEFAULT_LOCAL_MODEL].file}.lock").open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        terminal.enter("/model local")
        terminal.wait_for(fetching)
        terminal.enter("/model openai-chat:gpt-y")
        terminal.wait_for("Now the model is openai-chat:gpt-y")
        terminal.wait_for("openai-chat:gpt-y · /help")
        terminal.enter("/model local")
        terminal.wait_for(fetching)
        terminal.press("esc")
        terminal.wait_for("The model stays openai-chat:gpt-y.")
        terminal.wait_for("openai-chat:gpt-y · /help")
        assert "Now the model is local" not in terminal.everything


def test_what_changes_the_conversation_waits_for_the_run(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("bash", command=WAITING)), "Done.", "New.")
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for("started")
        terminal.enter("/compact")
        terminal.wait_for("/compact needs the run to end first")
        go(place)
        terminal.wait_for("Done.")
        terminal.wait_for(READY)
        terminal.enter("/clear")
        terminal.wait_for("no longer sees the conversation so far")
        terminal.enter("/tree")
        terminal.wait_for("● the beginning, after /clear")
        assert terminal.shown.count("●") == 1
        terminal.enter("Who are you?")
        terminal.wait_for("New.")
        terminal.wait_for(READY)
        terminal.enter("/tree")
        terminal.wait_for(lambda at: re.search("you are here\n● [0-9a-f-]+  Who are you\\?", at.shown) is not None)
    assert heard(server, 2) == [("user", "Who are you?")]


def test_commands_and_paths_are_completed(place: Place, server: OpenAIChatServer) -> None:
    (place.project / "source").mkdir()
    (place.project / "source" / "main.py").touch()
    server.say("Read.")
    with chatting(place, server) as terminal:
        terminal.type("/mo")
        terminal.wait_for("show the model")
        terminal.press("tab")
        terminal.wait_for("\n\u276f /model")
        terminal.press("ctrl+c")
        terminal.wait_for("\n\u276f\n")
        terminal.type("/co")
        terminal.wait_for("tokens and cost")
        terminal.press("tab", "enter")
        terminal.wait_for("No usage yet")
        terminal.type("Read @so")
        terminal.wait_for("source/")
        terminal.press("tab")
        terminal.wait_for("Read @source/")
        terminal.type("m")
        # The menu of before names it too: what is offered now stands below what was typed.
        terminal.wait_for("Read @source/m\n main.py")
        terminal.press("tab")
        terminal.wait_for("Read @source/main.py")
        terminal.press("enter")
        terminal.wait_for(lambda at: at.lines[-2] != "main.py")
        terminal.press("enter")
        terminal.wait_for("Read.")
    attached = "The file 'source/main.py', attached by the user:\n"
    assert heard(server, 0) == [("user", f"Read @source/main.py\n{attached}")]
