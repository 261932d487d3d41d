"""A2A 1.0: a run as a task, as a pure function of its events.

The text of each answer is an artifact; thinking, tool calls and the end are updates of the status. A question makes the
task wait for input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from steersman.server.http.bodies import check_part_count
from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import AgentMessage, UserMessage

Frame: TypeAlias = dict[str, Any]

WORKING: Final = "TASK_STATE_WORKING"
INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"
CANCELED: Final = "TASK_STATE_CANCELED"
FAILED: Final = "TASK_STATE_FAILED"
COMPLETED: Final = "TASK_STATE_COMPLETED"
BY: Final = "a2a"
"""Who gives the answers that come here."""
STOPPED: Final = "The server stopped in the middle of the run."
"""What is told of a task whose run has no end."""

_NO_ANSWER = (
    "The task waits for an answer: the text yes or no, or a data part {'approved': true or false}, and nothing else."
)
_ENDS = {"done": COMPLETED, "terminated": COMPLETED, "stopped": COMPLETED, "aborted": CANCELED}
_ROLES = {"user": "ROLE_USER", "assistant": "ROLE_AGENT"}


class Translator:
    """Turns the events of a run into updates of a task. `ended` says that it is over, or waits for input."""

    def __init__(self, task_id: str, context_id: str) -> None:
        self.state = "TASK_STATE_SUBMITTED"
        self._ids: Frame = {"taskId": task_id, "contextId": context_id}
        self._message: Frame | None = None
        # The time of the last event, and of the one that the status is from.
        self._time: float | None = None
        # The question that was told last and is not answered here; it may be over.
        self.asked = ""
        # By question: when it was asked.
        self._asked_at: dict[str, float | None] = {}
        self._told_at: float | None = None
        self._artifacts: list[Frame] = []
        self._history: list[Frame] = []
        self._messages = 0
        # What was told of the answer that is arriving; an answer that is tried again replaces it.
        self._told: list[str] = []
        self._is_begun = False
        # The arguments of calls that have begun: the log has them before their ends.
        self._arguments: dict[str, Frame] = {}

    @property
    def ended(self) -> bool:
        """Whether the stream of the task is over."""
        return self.state in (COMPLETED, CANCELED, FAILED, INPUT_REQUIRED)

    def describe(self, history_length: int | None = None) -> Frame:
        """The task as it is now."""
        history = self._history if history_length is None else self._history[-history_length:] if history_length else []
        ids = {"id": self._ids["taskId"], "contextId": self._ids["contextId"]}
        artifacts = [*self._artifacts, self._describe_answer()] if self._is_begun else list(self._artifacts)
        return {**ids, "status": self._describe_status(), "artifacts": artifacts, "history": list(history)}

    def translate(self, event: Frame) -> list[Frame]:
        """The updates for an event; none for what is not told."""
        self._note_time(event)
        match event:
            case {"type": "agent_start"}:
                return [self._tell(WORKING)]
            case {"type": "message_update", "delta": {"type": "text_delta", "delta": str(more)}} if more:
                return [self._add_text(more)]
            case {"type": "message_update", "delta": {"type": "reset"}}:
                self._told = []
                return []
            case {"type": "snapshot", "message": message}:
                return self._show_text(message)
            case {"type": "message_end", "message": message}:
                return self._end_message(event["entry_id"], message)
            case {"type": "intent", "tool_call_id": str(id), "arguments": dict()}:
                self._arguments[id] = event["arguments"]
                return []
            case {"type": "tool_execution_end"}:
                return [self._tell_tool(event)]
            case {"type": "agent_end"}:
                return self._finish(event)
            case {"type": "cut"}:
                return self.fail(STOPPED)
            case _:
                return []

    def _note_time(self, event: Frame) -> None:
        self._time = event.get("timestamp", self._time)
        if event["type"] == "approval_requested":
            self._asked_at[event["approval_id"]] = self._time
            self.asked = self.asked or event["approval_id"]
        elif event["type"] == "approval_resolved" and event["approval_id"] == self.asked and event["by"] == BY:
            self.asked = ""

    def ask(self, questions: Sequence[Frame]) -> list[Frame]:
        """The task waits for an answer to a question."""
        one = questions[0]
        self.asked = one["approval_id"]
        # The time of its record, as after a restart; the run notes another one a moment before.
        self._time = self._asked_at.get(one["approval_id"], one.get("timestamp", self._time))
        words = f"{one['tool_name']}: {one['reason']}\n{one['preview']}\nAnswer yes or no."
        data = {"approvalId": one["approval_id"], "tool": one["tool_name"], "arguments": one["args"]}
        return [self._tell(INPUT_REQUIRED, {"text": words}, {"data": data})]

    def fail(self, words: str) -> list[Frame]:
        """The task cannot go on."""
        return [self._tell(FAILED, {"text": words})]

    def _tell(self, state: str, *parts: Frame) -> Frame:
        self.state = state
        self._told_at = self._time
        self._message = self._make_message(parts) if parts else None
        return {"statusUpdate": {**self._ids, "status": self._describe_status()}}

    def _make_message(self, parts: Sequence[Frame]) -> Frame:
        self._messages += 1
        id = f"{self._ids['taskId']}-status-{self._messages}"
        return {"messageId": id, **self._ids, "role": "ROLE_AGENT", "parts": list(parts)}

    def _describe_status(self) -> Frame:
        status: Frame = {"state": self.state}
        if self._told_at is not None:
            when = datetime.fromtimestamp(self._told_at, UTC)
            status["timestamp"] = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return status if self._message is None else {**status, "message": self._message}

    # Answers

    def _add_text(self, more: str, *, last: bool = False) -> Frame:
        append = bool(self._told)
        self._is_begun = True
        self._told.append(more)
        told = self._make_artifact(more)
        return {"artifactUpdate": {**self._ids, "artifact": told, "append": append, "lastChunk": last}}

    def _describe_answer(self) -> Frame:
        return self._make_artifact("".join(self._told))

    def _make_artifact(self, text: str) -> Frame:
        id = f"{self._ids['taskId']}-{len(self._artifacts) + 1}"
        return {"artifactId": id, "name": "answer", "parts": [{"text": text}]}

    def _show_text(self, message: Frame, *, last: bool = False) -> list[Frame]:
        """Tell what is not told yet of an answer."""
        text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
        told = "".join(self._told)
        if not text.startswith(told):
            self._told, told = [], ""
        more = text[len(told) :]
        return [self._add_text(more, last=last)] if more or (last and self._is_begun) else []

    def _end_message(self, id: str, message: Frame) -> list[Frame]:
        role = message["role"]
        frames: list[Frame] = []
        if role == "assistant":
            thinking = "".join(block["thinking"] for block in message["content"] if block["type"] == "thinking")
            frames = self._show_text(message, last=True)
            if thinking:
                frames.append(self._tell(WORKING, {"text": thinking, "metadata": {"kind": "thinking"}}))
            if self._is_begun:
                self._artifacts.append(self._describe_answer())
            self._told, self._is_begun = [], False
        text = "".join(block.get("text", "") for block in message["content"] if block["type"] == "text")
        if role in _ROLES and text:
            self._history.append({"messageId": id, **self._ids, "role": _ROLES[role], "parts": [{"text": text}]})
        return frames

    def _tell_tool(self, event: Frame) -> Frame:
        arguments = event["args"] or self._arguments.pop(event["tool_call_id"], {})
        data = {"tool": event["tool_name"], "arguments": arguments, "isError": event["is_error"]}
        return self._tell(WORKING, {"data": data, "metadata": {"kind": "tool"}})

    def _finish(self, event: Frame) -> list[Frame]:
        state = _ENDS.get(event["end_reason"], FAILED)
        detail = event.get("detail") or ("The run failed." if state == FAILED else "")
        return [self._tell(state, *([{"text": detail}] if detail and state == FAILED else []))]


def read_message(parts: Sequence[Mapping[str, Any]]) -> AgentMessage:
    """The parts of a message as ours; raises `ValueError` for what cannot be read."""
    check_part_count(len(parts))
    blocks: list[TextContent | ImageContent] = []
    for part in parts:
        match part:
            case {"text": str(text)}:
                blocks.append(TextContent(text))
            case {"raw": str(data), "mediaType": str(kind)} if kind.startswith("image/"):
                blocks.append(ImageContent(data, kind))
            case _:
                raise ValueError(f"A part is text or an image as raw bytes, got {dict(part)!r:.200}.")
    return UserMessage(blocks)


def read_answer(parts: Sequence[Mapping[str, Any]]) -> tuple[bool, str]:
    """Whether a message approves, and the question that it names; raises `ValueError` for one that is no answer."""
    found: set[tuple[bool, str]] = set()
    texts: list[str] = []
    for part in parts:
        match part:
            case {"data": {"approved": bool(approved), **more}}:
                named = more.get("approvalId")
                found.add((approved, "" if named is None else str(named)))
            case {"text": str(text)}:
                texts.append(text)
            case _:
                raise ValueError(_NO_ANSWER)
    # All of it: `yes` may be the end of a sentence that says something else.
    said = "".join(texts).strip().lower().rstrip(".!")
    if not found and said in ("yes", "no"):
        return said == "yes", ""
    if len(found) != 1 or said not in ("", "yes" if next(iter(found))[0] else "no"):
        raise ValueError(_NO_ANSWER)
    return found.pop()
