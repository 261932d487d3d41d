"""AG-UI 1.0: a run as the events that its clients show, over server-sent events.

A thread is a session, and the client's `runId` is the id of the run. A question ends the stream with an interrupt; the
run waits in the server, and a request with `resume` answers the question and follows the run from there. Exactly one of
RUN_FINISHED and RUN_ERROR ends a stream, and what is open is closed before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from steersman.server.http.bodies import ClientId
from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import AgentMessage, UserMessage, require_content

Frame: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["text", "thinking"]

INTERRUPTED: Final = "The server stopped in the middle of this run. Continue it on the page, or send a new message."
"""What is told of a run that has no end."""
_DELTAS: dict[str, Kind] = {"text_delta": "text", "thinking_delta": "thinking"}


class _Input(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Message(_Input, frozen=True):
    """A message of the client's history; the fields that other roles have are ignored."""

    id: str
    role: str
    content: str | list[dict[str, Any]] | None = None


class Resume(_Input, frozen=True):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None

    @property
    def approves(self) -> bool:
        """Whether the call may be made; what is not a clear yes is a no."""
        match self.payload:
            case True | {"approved": True}:
                return self.status == "resolved"
            case _:
                return False


class RunInput(_Input, frozen=True):
    """What a client sends to start a run, or to go on with one."""

    thread_id: ClientId
    run_id: ClientId
    messages: list[Message] = []
    resume: list[Resume] | None = None
    tools: list[dict[str, Any]] = []

    def count_parts(self) -> int:
        """How many messages, parts of messages, answers and tools there are."""
        parts = sum(len(message.content) for message in self.messages if isinstance(message.content, list))
        return len(self.messages) + parts + len(self.resume or ()) + len(self.tools)


def find_new_message(messages: Sequence[Message], is_known: Callable[[str], bool]) -> tuple[AgentMessage, str] | None:
    """What is new at the end of the client's history, as one message, and the id of its last part.

    The history before it is in the log already, so what the client sends of it does not count. A run that failed before
    it answered leaves the messages of the user next to each other: those that are known by their ids count once.
    """
    new: list[Message] = []
    for message in reversed(messages):
        if message.role != "user" or is_known(message.id):
            break
        new.append(message)
    if not new:
        return None
    blocks = [block for message in reversed(new) for block in _read_content(message.content)]
    return require_content(UserMessage(blocks)), new[0].id


def _read_content(content: str | list[dict[str, Any]] | None) -> Iterator[TextContent | ImageContent]:
    if isinstance(content, str):
        yield TextContent(content)
        return
    for part in content or ():
        match part:
            case {"type": "text", "text": str(text)}:
                yield TextContent(text)
            case {"type": "image", "source": {"type": "data", "value": str(data), "mimeType": str(kind)}}:
                yield ImageContent(data, kind)
            case _:
                raise ValueError(f"content of the type {part.get('type')!r} cannot be read: send text or image data")


class Translator:
    """Turns the events of one run into those of AG-UI. `ended` says that the stream is over."""

    def __init__(self, thread_id: str, run_id: str) -> None:
        self.ended = False
        self._ids: Frame = {"threadId": thread_id, "runId": run_id}
        # The id of the answer that is arriving; answers of a run are numbered, in all streams alike.
        self._message = ""
        self._answers: Counter[str] = Counter()
        self._attempts = 0
        # The spans that are open: the index of a block to the frame that ends it.
        self._open: dict[int, list[Frame]] = {}
        # What was told of the answer that is arriving, by the index of the block, and the ids of its text and thinking.
        self._told: dict[int, list[str]] = {}
        self._names: dict[int, str] = {}
        self._calls: set[str] = set()
        # The same for the arguments of its calls.
        self._args: dict[int, list[str]] = {}
        self.is_broken = False
        """Whether arguments that were told cannot be completed: the client needs its messages anew."""

    def skip_answers(self, loop_id: str, count: int) -> None:
        """Begin behind the first answers of a run, which other streams have told."""
        self._answers[loop_id] = count

    def start(self) -> list[Frame]:
        """The beginning of a stream."""
        return [{"type": "RUN_STARTED", **self._ids}]

    def interrupt(self, questions: Sequence[Frame]) -> list[Frame]:
        """The end of a stream whose run waits for answers."""
        found = [_describe_question(question) for question in questions]
        return self._end({"type": "RUN_FINISHED", **self._ids, "outcome": {"type": "interrupt", "interrupts": found}})

    def finish_idle(self, questions: Sequence[Frame]) -> list[Frame]:
        """The end of a stream without a run: an interrupt if questions wait for answers."""
        if questions:
            return self.interrupt(questions)
        return self._end({"type": "RUN_FINISHED", **self._ids, "outcome": {"type": "success"}})

    def fail(self, message: str, code: str = "error") -> list[Frame]:
        """The end of a stream that cannot go on."""
        return self._end({"type": "RUN_ERROR", "message": message, "code": code})

    def translate(self, event: Frame) -> list[Frame]:
        """The frames for an event; none for what AG-UI has no word for."""
        if self.ended:
            return []
        match event["type"]:
            case "message_start" if event["message"]["role"] == "assistant":
                return self._begin_answer(event["loop_id"])
            case "message_update":
                return self._update(event)
            case "snapshot":
                return self._show_rest(event["loop_id"], event["message"])
            case "message_end":
                return self._end_message(event)
            case "agent_end":
                return self._finish(event)
            case "cut":
                return self.fail(INTERRUPTED, "interrupted")
            case _:
                return []

    def _end(self, last: Frame) -> list[Frame]:
        frames = [*self._close_all(), last]
        self.ended = True
        return frames

    def _close_all(self) -> list[Frame]:
        frames = [frame for ends in self._open.values() for frame in ends]
        self._open.clear()
        return frames

    def _begin_answer(self, loop_id: str) -> list[Frame]:
        self._answers[loop_id] += 1
        self._attempts = 0
        return self._begin_message(name_answer(loop_id, self._answers[loop_id]))

    def _try_again(self, loop_id: str) -> list[Frame]:
        """A new attempt at an answer. What was shown stays with the client, so it is another message."""
        self._attempts += 1
        return self._begin_message(f"{name_answer(loop_id, self._answers[loop_id])}-again-{self._attempts}")

    def _begin_message(self, id: str) -> list[Frame]:
        frames = self._close_all()
        self._message = id
        self._told, self._names, self._args = {}, {}, {}
        return frames

    def _show_rest(self, loop_id: str, message: Frame) -> list[Frame]:
        """Tell what the client does not have yet of an answer: it is behind, or came in the middle."""
        blocks = [
            (index, block["type"], block[block["type"]])
            for index, block in enumerate(message["content"])
            if block["type"] in ("text", "thinking")
        ]
        texts = {index: text for index, _, text in blocks}
        told = {index: "".join(pieces) for index, pieces in self._told.items()}
        frames: list[Frame] = []
        if not self._message:
            frames = self._begin_answer(loop_id)
        elif any(not texts.get(index, "").startswith(text) for index, text in told.items()) or self._has_others(
            message
        ):
            frames, told = self._try_again(loop_id), {}
        for index, kind, text in blocks:
            frames += self._add_text(index, kind, text[len(told.get(index, "")) :])
        return [*frames, *self._show_rest_of_calls(message)]

    def _has_others(self, message: Frame) -> bool:
        """Whether calls are arriving that are not in this answer: they are of an attempt before."""
        ids = [block.get("id") for block in message["content"]]
        return any("toolCallId" in ends[0] and ends[0]["toolCallId"] not in ids for ends in self._open.values())

    def _show_rest_of_calls(self, message: Frame) -> list[Frame]:
        """Tell what the client does not have yet of the calls that are arriving, if it can be added to what it has."""
        frames: list[Frame] = []
        for index, block in enumerate(message["content"]):
            if block["type"] != "tool_call":
                continue
            if block.get("complete") is False and block["id"] not in self._calls:
                frames += self._open_call(index, block["id"], block["name"])
            if index not in self._open or index not in self._args:
                continue
            text, told = _write_arguments(block), "".join(self._args[index])
            if text.startswith(told):
                frames += self._add_args(index, text[len(told) :])
            else:  # the end was missed, and the log has the arguments in another form than the model wrote them
                self.is_broken = True
        return frames

    def _end_message(self, event: Frame) -> list[Frame]:
        message = event["message"]
        if message["role"] == "assistant":
            frames = [*self._show_rest(event["loop_id"], message), *self._close_all(), *self._complete_calls(message)]
            self._message, self._told, self._args = "", {}, {}
            return frames
        if message["role"] == "tool_result":
            return [self._describe_result(event["entry_id"], message)]
        return []

    def _complete_calls(self, message: Frame) -> list[Frame]:
        """Calls that came without deltas, so that each has its start, its arguments and its end."""
        frames: list[Frame] = []
        for block in message["content"]:
            if block["type"] == "tool_call" and block["id"] not in self._calls:
                text = msgspec.json.encode(block["arguments"]).decode()
                frames += self._start_call(block["id"], block["name"])
                frames += [{"type": "TOOL_CALL_ARGS", "toolCallId": block["id"], "delta": text}, _end_call(block["id"])]
        return frames

    def _open_call(self, index: int, id: str, name: str) -> list[Frame]:
        frames = self._start_call(id, name)
        self._open[index], self._args[index] = [_end_call(id)], []
        return frames

    def _add_args(self, index: int, more: str) -> list[Frame]:
        if not more:
            return []
        self._args[index].append(more)
        return [{"type": "TOOL_CALL_ARGS", "toolCallId": self._open[index][0]["toolCallId"], "delta": more}]

    def _start_call(self, id: str, name: str) -> list[Frame]:
        self._calls.add(id)
        start = {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name}
        return [{**start, "parentMessageId": self._message} if self._message else start]

    def _describe_result(self, id: str, message: Frame) -> Frame:
        text = "".join(block.get("text", "") for block in message["content"])
        ids = {"messageId": id, "toolCallId": message["tool_call_id"]}
        return {"type": "TOOL_CALL_RESULT", **ids, "content": text, "role": "tool"}

    def _update(self, event: Frame) -> list[Frame]:
        delta = event["delta"]
        index = delta.get("content_index", 0)
        match delta:
            case {"type": "text_delta" | "thinking_delta" as kind, "delta": str(more)}:
                return self._add_text(index, _DELTAS[kind], more)
            case {"type": "tool_call_start", "id": str(call), "name": str(name)} if call:
                return self._open_call(index, call, name)
            case {"type": "tool_call_delta", "delta": str(more)} if index in self._open and index in self._args:
                return self._add_args(index, more)
            case {"type": "text_end" | "thinking_end" | "tool_call_end"}:
                return self._open.pop(index, [])
            case {"type": "reset"}:
                return self._try_again(event["loop_id"])
            case _:
                return []

    def _add_text(self, index: int, kind: Kind, more: str) -> list[Frame]:
        if not more:
            return []
        frames = [] if index in self._open else self._open_block(index, kind)
        self._told.setdefault(index, []).append(more)
        name = "TEXT_MESSAGE" if kind == "text" else "REASONING_MESSAGE"
        return [*frames, {"type": f"{name}_CONTENT", "messageId": self._names[index], "delta": more}]

    def _open_block(self, index: int, kind: Kind) -> list[Frame]:
        # The first text has the id of the answer, which its tool calls name as their parent.
        is_first = kind == "text" and self._message not in self._names.values()
        id = self._names[index] = self._message if is_first else _name_block(self._message, index)
        if kind == "text":
            self._open[index] = [{"type": "TEXT_MESSAGE_END", "messageId": id}]
            return [{"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"}]
        self._open[index] = [{"type": name, "messageId": id} for name in ("REASONING_MESSAGE_END", "REASONING_END")]
        start = {"type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning"}
        return [{"type": "REASONING_START", "messageId": id}, start]

    def _finish(self, event: Frame) -> list[Frame]:
        reason, detail = event["end_reason"], event.get("detail") or ""
        if reason == "error":
            return self.fail(detail or "The run failed.", reason)
        kind = "cancelled" if reason == "aborted" else "success"
        finished: Frame = {"type": "RUN_FINISHED", **self._ids, "outcome": {"type": kind}}
        if reason not in ("done", "aborted"):
            finished["result"] = {"endReason": reason, "detail": detail}
        return self._end(finished)


def name_answer(loop_id: str, number: int) -> str:
    """The id of the message of an answer of a run."""
    return f"{loop_id}-{number}"


def _name_block(answer_id: str, index: int) -> str:
    return f"{answer_id}-{index}"


def _write_arguments(block: Frame) -> str:
    raw: str | None = block.get("raw_arguments")
    return msgspec.json.encode(block["arguments"]).decode() if raw is None else raw


def _end_call(id: str) -> Frame:
    return {"type": "TOOL_CALL_END", "toolCallId": id}


def _describe_question(question: Frame) -> Frame:
    found: Frame = {
        "id": question["approval_id"],
        "reason": "approval",
        "message": f"{question['tool_name']}: {question['reason']}\n{question['preview']}",
        "toolCallId": question["tool_call_id"],
        "responseSchema": {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]},
    }
    if question.get("deadline") is not None:
        found["expiresAt"] = datetime.fromtimestamp(question["deadline"], UTC).isoformat()
    return found


def describe_messages(messages: Sequence[Frame]) -> Frame:
    """The conversation so far as MESSAGES_SNAPSHOT; each message has an `id`, under which the client may know it."""
    return {"type": "MESSAGES_SNAPSHOT", "messages": [found for one in messages for found in _describe_message(**one)]}


def _describe_message(id: str, message: Frame) -> Iterator[Frame]:
    text = "".join(block.get("text", "") for block in message["content"] if block["type"] == "text")
    match message["role"]:
        case "tool_result":
            yield {"id": id, "role": "tool", "content": text, "toolCallId": message["tool_call_id"]}
        case "user":
            has_image = any(block["type"] == "image" for block in message["content"])
            yield {"id": id, "role": "user", "content": _describe_parts(message) if has_image else text}
        case "assistant":
            for index, block in enumerate(message["content"]):
                if block["type"] == "thinking" and block["thinking"]:
                    yield {"id": _name_block(id, index), "role": "reasoning", "content": block["thinking"]}
            calls = [_describe_call(block) for block in message["content"] if block["type"] == "tool_call"]
            if text or calls:  # an answer that failed at once has neither
                yield {"id": id, "role": "assistant", "content": text, **({"toolCalls": calls} if calls else {})}
        case _:
            pass


def _describe_parts(message: Frame) -> list[Frame]:
    """The texts and images of a message, in the form in which the client has sent them."""
    return [
        {"type": "text", "text": block["text"]}
        if block["type"] == "text"
        else {"type": "image", "source": {"type": "data", "value": block["data"], "mimeType": block["mime_type"]}}
        for block in message["content"]
        if block["type"] in ("text", "image")
    ]


def _describe_call(block: Frame) -> Frame:
    function = {"name": block["name"], "arguments": msgspec.json.encode(block["arguments"]).decode()}
    return {"id": block["id"], "type": "function", "function": function}
