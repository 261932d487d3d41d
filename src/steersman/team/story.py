"""Reads the transcript of a pattern: what was asked for, what its parts answered, what was said meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from steersman.types.content import ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one call of a part; `is_old` says that an earlier run made it, which this run continues."""

    name: str
    prompt: str
    message: ToolResultMessage
    is_old: bool

    @property
    def ok(self) -> bool:
        """Whether the part came to a good end."""
        return not self.message.is_error

    @property
    def text(self) -> str:
        """The answer of the part, or why there is none."""
        return self.message.text

    @property
    def is_interrupted(self) -> bool:
        """Whether the call was cancelled or never started."""
        return self.message.details.get("status") in ("interrupted", "not_started")


@dataclass(slots=True)
class Story:
    """One request and everything that was done for it. `unheard` is what was said since and no part has heard."""

    request: list[UserMessage] = field(default_factory=list[UserMessage])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    unheard: list[UserMessage] = field(default_factory=list[UserMessage])

    @property
    def text(self) -> str:
        """The text of the request."""
        return join_texts(self.request)

    @property
    def last(self) -> Outcome | None:
        """The latest outcome."""
        return self.outcomes[-1] if self.outcomes else None

    def should_repeat(self, outcome: Outcome) -> bool:
        """Whether a part that failed is called again: in a run that continues, or because steering interrupted it."""
        return not outcome.ok and (outcome.is_old or (outcome.is_interrupted and bool(self.unheard)))

    def add_unheard(self, prompt: str) -> str:
        """The prompt, followed by what no part has heard yet."""
        return "\n\n".join([prompt, *(message.text for message in self.unheard)])


def join_texts(messages: Sequence[AgentMessage]) -> str:
    """The texts of the messages, with a blank line between two."""
    return "\n\n".join(message.text for message in messages if message.text)


def read_story(messages: Sequence[AgentMessage], first: int | None, run_start: int) -> Story:
    """The story of the latest request.

    `first` is where the request stands, if that is known: else it follows the last complete answer. What stands before
    `run_start` was said in earlier runs.
    """
    story, is_answered = Story(), False
    calls: dict[str, ToolCall] = {}
    heard: list[str] = []
    for index in range(find_request(messages) if first is None else first, len(messages)):
        message = messages[index]
        if type(message) is UserMessage:
            if message.synthetic and index < run_start:
                continue  # the notice of a limit that ended an earlier run
            if is_answered and not message.synthetic:
                story, calls, is_answered = Story(), {}, False  # a follow-up: a request of its own
            if not calls:
                story.request.append(message)
            elif message.text in heard:
                heard.remove(message.text)
            else:
                story.unheard.append(message)
        elif type(message) is AssistantMessage and not message.failed:
            is_answered = not message.tool_calls
            if message.tool_calls:
                calls.update((call.id, call) for call in message.tool_calls)
                story.unheard.clear()
                heard.clear()
        elif type(message) is ToolResultMessage and (call := calls.get(message.tool_call_id)) is not None:
            prompt = str(call.arguments.get("prompt", ""))
            story.outcomes.append(Outcome(call.name, prompt, message, index < run_start))
            heard.extend(text for text in message.details.get("heard", ()) if text not in heard)
    return story


def find_request(messages: Sequence[AgentMessage]) -> int:
    """The index of the first message after the last complete answer that something was said after."""
    for index in range(len(messages) - 2, -1, -1):
        message = messages[index]
        if type(message) is AssistantMessage and not message.failed and not message.tool_calls:
            return index + 1
    return 0
