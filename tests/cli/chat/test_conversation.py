"""What is typed at any moment of a run is heard or given back: failures.md I4, I5."""

from __future__ import annotations

from collections.abc import Callable

from steersman import Agent
from steersman.cli.chat.conversation import Conversation, Kind, truncate_lines
from steersman.policy.verdicts import FilterVerdict, Pass, Reject
from steersman.testing import ScriptedModel, answer, error
from steersman.types.content import TextContent
from steersman.types.events import AgentEvent
from steersman.types.messages import UserMessage
from steersman.types.usage import Usage


class Seen:
    """A front that keeps what it is shown, and does something at the first event of a type."""

    def __init__(self, at: str = "", do: Callable[[], None] = lambda: None) -> None:
        self.said: list[tuple[Kind, str]] = []
        self.back: list[str] = []
        self.at = at
        self.do = do

    def show_event(self, event: AgentEvent) -> None:
        if event.type == self.at:
            self.at = ""
            self.do()

    def say(self, kind: Kind, text: str) -> None:
        self.said.append((kind, text))

    def put_back(self, text: str) -> None:
        self.back.append(text)

    def refresh(self) -> None: ...


def talking(*script: object, at: str) -> tuple[Conversation, Seen]:
    """A conversation in which "More." is typed at the first event of a type."""
    seen = Seen(at)
    conversation = Conversation(Agent(ScriptedModel(*script).model, retry=None), seen)  # pyright: ignore[reportArgumentType]
    seen.do = lambda: conversation.send("More.")
    return conversation, seen


def refuse_secrets(text: str) -> FilterVerdict:
    return Reject("no") if "secret" in text else Pass()


async def test_what_is_typed_as_a_run_ends_begins_the_next_one() -> None:
    conversation, seen = talking("One.", "Two.", at="agent_end")
    conversation.send("Begin.")
    await conversation.wait_until_idle()
    assert [message.text for message in conversation.agent.messages] == ["Begin.", "One.", "More.", "Two."]
    assert seen.said == [("user", "Begin."), ("user", "More.")]
    assert seen.back == []
    assert conversation.waiting == []


async def test_what_is_typed_as_a_run_fails_is_given_back() -> None:
    conversation, seen = talking(error("authentication"), "Two.", at="agent_end")
    conversation.send("Begin.")
    await conversation.wait_until_idle()
    assert seen.back == ["More."]
    assert conversation.waiting == []
    assert not conversation.running


async def test_a_prompt_that_a_filter_refuses_is_given_back_and_its_notes_wait_for_the_next_one() -> None:
    """So does what a command said that the user ran during a run, once that run is interrupted."""
    seen, model = Seen("turn_start"), ScriptedModel("One.", "Two.")

    conversation = Conversation(Agent(model.model, input_filters=[refuse_secrets]), seen)
    note = UserMessage([TextContent("I ran `ls` myself. Its output:"), TextContent("a.txt")])
    conversation.add_note(note)
    conversation.send("Tell a secret.")
    await conversation.wait_until_idle()
    assert (seen.back, seen.said) == (["Tell a secret."], [])

    def interrupt() -> None:
        conversation.add_note(UserMessage("Undone."))
        conversation.send("More.")
        conversation.interrupt()

    seen.do = interrupt
    conversation.send("Tell.")
    await conversation.wait_until_idle()
    assert seen.back == ["Tell a secret.", "More."]
    conversation.send("Go on.")
    await conversation.wait_until_idle()
    told = [message.text for message in conversation.agent.messages if message.role == "user"]
    assert told == ["I ran `ls` myself. Its output:a.txt", "Tell.", "Undone.", "Go on."]
    assert seen.said == [("user", "Tell."), ("user", "Go on.")]


async def test_what_a_filter_refuses_of_what_was_typed_during_a_run_is_given_back_at_once() -> None:
    seen, model = Seen("turn_start"), ScriptedModel("One.", "Two.", "Three.")
    conversation = Conversation(Agent(model.model, input_filters=[refuse_secrets]), seen)

    def type_two() -> None:
        conversation.send("A secret.")
        conversation.follow_up("Another secret.")

    seen.do = type_two
    conversation.send("Begin.")
    await conversation.wait_until_idle()
    assert ("\n".join(seen.back), conversation.waiting) == ("A secret.\nAnother secret.", [])
    conversation.send("Go on.")
    await conversation.wait_until_idle()
    conversation.return_queued_texts()
    assert "\n".join(seen.back) == "A secret.\nAnother secret."
    assert seen.said == [("user", "Begin."), ("user", "Go on.")]


async def test_a_note_that_is_refused_does_not_hold_up_all_that_is_typed_later() -> None:
    seen, model = Seen(), ScriptedModel("One.")
    conversation = Conversation(Agent(model.model, input_filters=[refuse_secrets]), seen)
    conversation.add_note(UserMessage([TextContent("I ran `cat key` myself. Its output:"), TextContent("secret")]))
    for text in ("Begin.", "Begin!", "Do begin!"):
        conversation.send(text)
        await conversation.wait_until_idle()
    assert seen.back == ["Begin.", "Begin!"]
    assert [kind for kind, _ in seen.said] == ["notice", "user"]
    assert [message.text for message in conversation.agent.messages] == ["Do begin!", "One."]


async def test_a_front_that_breaks_ends_the_run_and_not_the_chat() -> None:
    conversation, seen = talking("One.", "Two.", at="message_update")

    def broken() -> None:
        raise IndexError("nothing there")

    seen.do = broken
    conversation.send("Begin.")
    await conversation.wait_until_idle()
    assert seen.said[-1] == ("error", "IndexError: nothing there")
    assert not conversation.agent.is_running
    conversation.send("Again.")
    await conversation.wait_until_idle()
    assert conversation.agent.messages[-1].text == "Two."


async def test_the_sum_is_right_when_the_run_is_shown_as_over() -> None:
    """What the line of the run says is part of it already: `/cost` may be typed at once."""
    conversation, seen = talking(answer("One.", usage=Usage(input=12, output=7)), at="agent_end")
    sums: list[Usage] = []
    seen.do = lambda: sums.append(conversation.usage)
    conversation.send("Begin.")
    await conversation.wait_until_idle()
    assert [(usage.input, usage.output) for usage in [*sums, conversation.usage]] == [(12, 7), (12, 7)]


async def test_the_sum_grows_with_every_answer_of_a_run() -> None:
    """A run may be long: `/cost` and the status line say what it has cost so far."""
    conversation, seen = talking(answer("One.", usage=Usage(input=12, output=7)), at="turn_end")
    sums: list[Usage] = []
    seen.do = lambda: sums.append(conversation.usage)
    conversation.send("Begin.")
    await conversation.wait_until_idle()
    assert [(usage.input, usage.output) for usage in sums] == [(12, 7)]


async def test_a_prompt_that_cannot_be_sent_is_told() -> None:
    conversation, seen = talking("One.", at="")
    conversation.begin(conversation.agent.continue_)
    assert [kind for kind, _ in seen.said] == ["error"]
    assert not conversation.running
    run = conversation.agent.prompt("First.")
    conversation.send("Too early.")
    await run
    assert ([kind for kind, _ in seen.said], seen.back) == (["error", "error"], ["Too early."])


def test_a_long_prompt_is_shown_by_its_first_lines() -> None:
    assert truncate_lines("\n".join(map(str, range(24)))) == "\n".join(map(str, range(24)))
    assert truncate_lines("\n".join(map(str, range(100)))).split("\n")[22:] == ["22", "... and 77 more lines"]
    assert truncate_lines("a\n" * 100).endswith("a\n... and 77 more lines")
