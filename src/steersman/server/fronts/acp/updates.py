"""From the events of a run to updates of a session: a pure function, whose state is what the client was told.

Every tool call that was told reaches `completed` or `failed` before the end. Text is told once: what a client has of an
answer is counted, so that a snapshot or the finished message adds only what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from steersman.server.fronts.acp.tool_views import Fields, describe_call, find_kind, make_diffs, show_content

SHOWN_OUTPUT: Final = 4_000
"""The most characters of a running tool's output in one update: its end."""

_TICKS = re.compile("`+")
_FAILED = ("error", "aborted", "refusal")
_CHUNKS = {"text": "agent_message_chunk", "thinking": "agent_thought_chunk"}
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking"}


class Updates:
    """Translates the events of one run, or of a history. `context_window` is for the share of it that is used."""

    def __init__(self, cwd: str, *, context_window: int | None = None, echo: bool = False) -> None:
        self._cwd = cwd
        self._window = context_window
        self._echo = echo
        self._answers = 0
        # How many characters of the current answer were told, of each kind.
        self._told = dict.fromkeys(_CHUNKS, 0)
        # The calls of the current answer, and all that have no result yet, with the call that they work for.
        self._arriving: list[str] = []
        self._open: dict[str, str | None] = {}
        self._known: dict[str, Fields] = {}
        self._output: dict[str, str] = {}
        self._questions: dict[str, str] = {}
        self._nested: dict[tuple[str, Any], str] = {}
        self.last_answer: Mapping[str, Any] = {}

    def read(self, event: Mapping[str, Any]) -> Iterator[Fields]:
        """The updates of one event."""
        match event["type"]:
            case "message_update":
                yield from self._read_delta(event)
            case "snapshot":
                yield from self._tell_rest(event, event["message"])
            case "message_end":
                yield from self._read_message(event)
            case "tool_execution_start":
                yield from self._show_call(event["tool_call_id"], event["tool_name"], event["args"], "in_progress")
            case "tool_execution_update":
                yield from self._read_progress(event)
            case "tool_execution_end":
                yield from self._read_result(event["result"], event["args"])
            case "approval_requested":
                yield from self._read_question(event)
            case "approval_resolved":
                yield from self._read_decision(event)
            case "agent_end":
                yield from self.finish()
            case _:
                pass

    def go_on_after(self, history: Updates) -> None:
        """Take over the calls of a history that have no result: they are known, and have yet to end."""
        self._open |= history._open
        self._known |= {id: history._known[id] for id in history._open}

    def finish(self) -> Iterator[Fields]:
        """Close what is open: nothing more will be heard of it."""
        for id in list(self._open):
            yield self._close(id, "failed")
        self._told = dict.fromkeys(_CHUNKS, 0)

    def describe_question(self, event: Mapping[str, Any]) -> Fields:
        """The tool call of a question, as a request for permission shows it."""
        call = describe_call(self._cwd, event["tool_name"], event["args"])
        if event.get("preview"):
            # Also beside a diff of the arguments: only the preview knows what a write removes and where a link leads.
            language = "diff" if call["kind"] == "edit" else ""
            call["content"] = [*call.get("content", ()), _make_code(event["preview"], language)]
        return {"toolCallId": _name_asked_call(event), "status": "pending", **call}

    # Answers

    def _read_delta(self, event: Mapping[str, Any]) -> Iterator[Fields]:
        delta = event["delta"]
        kind = _DELTAS.get(delta["type"])
        if kind is not None:
            self._told[kind] += len(delta["delta"])
            if delta["delta"]:
                yield self._make_chunk(event, _CHUNKS[kind], {"type": "text", "text": delta["delta"]})
        elif delta["type"] == "tool_call_start" and delta.get("id") and delta["id"] not in self._known:
            self._arriving.append(delta["id"])
            yield self._announce(delta["id"], {"title": delta["name"] or "tool", "name": delta["name"],
                                               "kind": find_kind(delta["name"])})  # fmt: skip
        elif delta["type"] == "reset":
            yield from self._drop_answer(())

    def _read_message(self, event: Mapping[str, Any]) -> Iterator[Fields]:
        message = event["message"]
        match message["role"]:
            case "assistant":
                yield from self._tell_rest(event, message)
                yield from self._end_answer(message)
            case "user" if self._echo and not message.get("synthetic"):
                for content in show_content(message["content"]):
                    id = event.get("entry_id")
                    more = {} if id is None else {"messageId": id}
                    yield {"sessionUpdate": "user_message_chunk", "content": content, **more}
            case "tool_result":
                yield from self._read_result(message, {})
            case _:
                pass

    def _tell_rest(self, event: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[Fields]:
        """What the client does not have yet of an answer."""
        told = dict(self._told)
        for block in message["content"]:
            if block["type"] not in _CHUNKS:
                continue
            text = block[block["type"]]
            rest = text[told[block["type"]] :]
            told[block["type"]] = max(0, told[block["type"]] - len(text))
            if rest:
                self._told[block["type"]] += len(rest)
                yield self._make_chunk(event, _CHUNKS[block["type"]], {"type": "text", "text": rest})

    def _end_answer(self, message: Mapping[str, Any]) -> Iterator[Fields]:
        self.last_answer = message
        calls = [block for block in message["content"] if block["type"] == "tool_call"]
        for call in calls:
            yield from self._show_call(call["id"], call["name"], call.get("arguments") or {}, "pending")
        kept = () if message.get("stop_reason") in _FAILED else {call["id"] for call in calls}
        for call in calls:
            if call["id"] not in kept and call["id"] not in self._arriving:
                self._arriving.append(call["id"])
        yield from self._drop_answer(kept)
        yield from self._show_usage(message.get("usage") or {})

    def _drop_answer(self, kept: Any) -> Iterator[Fields]:
        """End an answer; its calls that are not kept will never run."""
        for id in self._arriving:
            if id not in kept and id in self._open:
                yield self._close(id, "failed")
        self._arriving = []
        self._told = dict.fromkeys(_CHUNKS, 0)
        self._answers += 1

    def _make_chunk(self, event: Mapping[str, Any], kind: str, content: Fields) -> Fields:
        id = event.get("entry_id") if self._echo else f"{event.get('loop_id')}.{self._answers}"
        return {"sessionUpdate": kind, "content": content, "messageId": id}

    def _show_usage(self, usage: Mapping[str, Any]) -> Iterator[Fields]:
        used = usage.get("total")
        if self._window and isinstance(used, int):
            yield {"sessionUpdate": "usage_update", "used": used, "size": self._window}

    # Tool calls

    def _announce(self, id: str, fields: Fields, status: str = "pending", parent: str | None = None) -> Fields:
        self._open[id] = parent
        self._known[id] = fields
        return {"sessionUpdate": "tool_call", "toolCallId": id, "status": status, **fields}

    def _show_call(self, id: str, name: str, arguments: Mapping[str, Any], status: str) -> Iterator[Fields]:
        """Announce a call, or tell what has changed about it."""
        fields = describe_call(self._cwd, name, arguments)
        known = self._known.get(id)
        if known is None:
            yield self._announce(id, fields, status)
        elif id in self._open:
            self._known[id] = fields
            new = {key: value for key, value in fields.items() if known.get(key) != value}
            if new or status != "pending":
                yield _make_update(id, status=status, **new)

    def _read_progress(self, event: Mapping[str, Any]) -> Iterator[Fields]:
        id, update = event["tool_call_id"], _read_object(event.get("update"))
        if id not in self._open:
            return
        if update.get("type") == "output" and isinstance(text := update.get("text"), str):
            self._output[id] = (self._output.get(id, "") + text)[-SHOWN_OUTPUT:]
            yield _make_update(id, content=[_make_text(self._output[id])])
        elif update.get("type") == "agent_event":
            yield from self._read_nested(id, _read_object(update.get("event")))

    def _read_nested(self, parent: str, event: Mapping[str, Any]) -> Iterator[Fields]:
        """Of a sub-agent's calls only those are told that were asked about."""
        told = self._nested.get((parent, event.get("tool_call_id")))
        if event.get("type") == "tool_execution_end" and told is not None:
            yield from self._read_result({**event["result"], "tool_call_id": told}, event.get("args") or {})
        elif event.get("type") == "tool_execution_update":
            inner = _read_object(event.get("update"))
            if inner.get("type") == "agent_event":
                yield from self._read_nested(parent, _read_object(inner.get("event")))

    def _read_result(self, result: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[Fields]:
        id, name = result["tool_call_id"], result["tool_name"]
        if id not in self._known:
            yield self._announce(id, describe_call(self._cwd, name, arguments))
        if id not in self._open:
            return
        failed = bool(result.get("is_error"))
        details = _read_object(result.get("details"))
        shown = [{"type": "content", "content": content} for content in show_content(result["content"])]
        diffs: list[Fields] = []
        if not failed:
            given = arguments or self._known[id].get("rawInput") or {}
            diffs = make_diffs(self._cwd, name, given, details.get("diff"))
        text = "".join([block.get("text", "") for block in result["content"]])
        more = {"content": [*diffs, *shown], "rawOutput": {"text": text, "details": details}}
        yield from self._close_children(id, "failed" if failed else "completed")
        yield self._close(id, "failed" if failed else "completed", **more)

    def _close_children(self, parent: str, status: str) -> Iterator[Fields]:
        for id in [id for id, above in self._open.items() if above == parent]:
            yield from self._close_children(id, status)
            yield self._close(id, status)

    def _close(self, id: str, status: str, **more: Any) -> Fields:
        self._open.pop(id, None)
        self._output.pop(id, None)
        return _make_update(id, status=status, **more)

    # Questions

    def _read_question(self, event: Mapping[str, Any]) -> Iterator[Fields]:
        id, parent = _name_asked_call(event), event.get("parent_tool_call_id")
        self._questions[event["approval_id"]] = id
        if parent is not None:
            self._nested[parent, event["tool_call_id"]] = id
        if id not in self._known:
            yield self._announce(id, describe_call(self._cwd, event["tool_name"], event["args"]), parent=parent)

    def _read_decision(self, event: Mapping[str, Any]) -> Iterator[Fields]:
        """A sub-agent's call is told by its question alone; those of the run itself have events of their own."""
        id = self._questions.pop(event["approval_id"], "")
        if self._open.get(id) is not None:
            if event["decision"] == "approved":
                yield _make_update(id, status="in_progress")
            else:
                yield self._close(id, "failed", content=[_make_text(event.get("reason") or event["decision"])])


def _name_asked_call(event: Mapping[str, Any]) -> str:
    """The id of a call that is asked about. The ids of a sub-agent's calls are its own: the run may use them too."""
    parent = event.get("parent_tool_call_id")
    return event["tool_call_id"] if parent is None else f"{parent}/{event['approval_id']}"


def _read_object(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _make_update(id: str, **fields: Any) -> Fields:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, **fields}


def _make_text(text: str) -> Fields:
    return {"type": "content", "content": {"type": "text", "text": text}}


def _make_code(text: str, language: str) -> Fields:
    """A text that is shown as it is: editors take others for Markdown, which hides comments and joins lines."""
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return _make_text(f"{fence}{language}\n{text}\n{fence}")


def read_stop_reason(end: Mapping[str, Any], answer: Mapping[str, Any]) -> str | None:
    """Why a prompt's turn ended; `None` for an error."""
    if answer.get("stop_reason") == "refusal":
        return "refusal"
    match end["end_reason"]:
        case "aborted":
            return "cancelled"
        case "limit":
            return "max_tokens" if "token" in str(end.get("detail", "")) else "max_turn_requests"
        case "rejected":
            return "refusal"
        case "error":
            return "max_tokens" if answer.get("stop_reason") == "length" else None
        case _:
            return "max_tokens" if answer.get("stop_reason") == "length" else "end_turn"
