"""Structured output: the last answer of a run is a JSON value of the client's schema, and nothing else is told of it.

A run has several answers, and those before the last are words. So no text is told while it arrives: the value comes at
the end, as one piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from steersman.loop.output import OutputForm
from steersman.server.fronts.openai.responses import Frame
from steersman.server.http.bodies import check_schemas
from steersman.server.http.problems import Problem
from steersman.tools.schema.checks import ForeignSchema
from steersman.types.messages import AssistantMessage

_COMPLETE = ("done", "terminated", "stopped")


def read_schema(name: str, given: Mapping[str, Any] | None) -> ForeignSchema | None:
    """The JSON Schema of an output format; `None` for text. Raises a problem for what cannot be promised."""
    if given is None or given.get("type") == "text":
        return None
    about: Any = given.get("json_schema", given)
    schema: Any = cast(dict[str, Any], about).get("schema") if isinstance(about, dict) else None
    if given.get("type") != "json_schema" or not isinstance(schema, dict):
        raise Problem(
            400,
            f"{name} is of the type 'text', or 'json_schema' with a schema, got {given!r:.100}. Give the schema of the "
            "object that you want.",
        )
    found = ForeignSchema(cast(dict[str, Any], schema))
    try:
        check_schemas([found])
        OutputForm(found)
    except (ValueError, TypeError, RecursionError) as error:
        raise Problem(400, f"{name} has a schema that cannot be used: {error}") from error
    return found


class ValueOnly:
    """Takes the texts out of the events of a run, and puts the value of its last answer before its end."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._form = OutputForm(schema)
        self._last: Frame | None = None

    def read(self, event: Frame) -> list[Frame]:
        """The events to tell for an event."""
        match event:
            case {"type": "message_update", "delta": {"type": "text_start" | "text_delta" | "text_end"}}:
                return []
            case {"type": "message_end", "message": {"role": "assistant"} as message}:
                self._last = message
                return [{**event, "message": _remove_texts(message)}]
            case {"type": "snapshot", "message": message}:
                return [{**event, "message": _remove_texts(message)}]
            case {"type": "agent_end", "end_reason": reason} if reason in _COMPLETE and self._last is not None:
                return self._end(event, self._last)
            case _:
                return [event]

    def _end(self, event: Frame, last: Frame) -> list[Frame]:
        try:
            value = self._form.read(msgspec.convert(last, AssistantMessage))
        except ValueError as error:
            return [{**event, "end_reason": "error", "detail": f"The answer does not fit the schema: {error}."}]
        text = {"type": "text", "text": msgspec.json.encode(value).decode()}
        # Its tokens are counted already.
        return [{"type": "message_end", "message": {**last, "content": [text], "usage": {}}}, event]


def _remove_texts(message: Frame) -> Frame:
    content = [{**block, "text": ""} if block["type"] == "text" else block for block in message["content"]]
    return {**message, "content": content}
