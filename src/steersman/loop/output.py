"""Structured output: the last answer is a JSON value of a given type, or the model is asked again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from steersman.policy.hooks import HookError, PolicyView
from steersman.policy.verdicts import Inject
from steersman.tools.schema.from_types import build_output_codec
from steersman.types.content import TextContent
from steersman.types.messages import AgentMessage, AssistantMessage, user_message
from steersman.types.output import Absent

MAX_ATTEMPTS = 3
_KEY = "value"
# Beside these at its top, a schema is not of one kind of object, and no provider promises to keep to it.
_COMBINED = ("$ref", "allOf", "anyOf", "enum", "not", "oneOf")


class OutputForm:
    """A type as it is asked for and read: always an object, with a list, a number or a choice of types inside one."""

    __slots__ = ("_convert", "_wrapped", "schema")

    def __init__(self, output_type: Any) -> None:
        schema, self._convert = build_output_codec(output_type)
        self._wrapped = schema.get("type") != "object" or any(word in schema for word in _COMBINED)
        self.schema = _wrap_schema(schema) if self._wrapped else schema

    @property
    def instruction(self) -> str:
        """What the system prompt says about it."""
        schema = msgspec.json.encode(self.schema).decode()
        return f"Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{schema}"

    def read(self, message: AssistantMessage | None) -> Any:
        """The value of an answer; `ValueError` with words for the model where it has none."""
        if message is None or not message.text.strip():
            raise ValueError("it is empty")
        if message.stop_reason == "length":
            # What was cut may still look whole: 12 of 1234, or the first of several.
            raise ValueError("it was cut at the token limit; give a shorter one")
        problem: ValueError | None = None
        for text in _find_texts(message):
            try:
                return self._convert_value(_parse_json(text))
            except ValueError as error:
                problem = problem or error
        raise problem or ValueError("it is empty")

    def _convert_value(self, value: Any) -> Any:
        if not self._wrapped:
            return self._convert(value)
        problem: ValueError | None = None
        for candidate in _unwrap(value):
            try:
                return self._convert(candidate)
            except ValueError as error:
                problem = problem or error
        raise problem or ValueError("it is empty")


class OutputPolicy:
    """A post-loop policy that reads the output out of the last answer, one run at a time."""

    __slots__ = ("_attempts", "_read", "_value", "form")

    def __init__(self, form: OutputForm) -> None:
        self.form = form
        self.reset()

    def copy_fresh(self) -> OutputPolicy:
        """The same for another agent."""
        return OutputPolicy(self.form)

    def reset(self) -> None:
        """A new run begins."""
        self._attempts = 0
        self._read: AssistantMessage | None = None
        self._value: Any = None

    def get_value(self, messages: Sequence[AgentMessage]) -> Any:
        """The output of a run: the value of its last answer, never of an earlier one; `Absent.NOTHING` without one."""
        last = next((message for message in reversed(messages) if type(message) is AssistantMessage), None)
        return self._value if last is not None and last is self._read else Absent.NOTHING

    def __call__(self, view: PolicyView) -> Inject | None:
        """Take the output, or ask again; after too many attempts the run ends as an error."""
        try:
            self._value = self.form.read(view.message)
        except ValueError as error:
            self._attempts += 1
            if self._attempts >= MAX_ATTEMPTS:
                raise HookError(f"The answer did not fit output_type after {MAX_ATTEMPTS} attempts: {error}") from error
            text = f"That answer does not fit: {error}. Answer again with one JSON value that fits the schema."
            return Inject(user_message(text, synthetic=True))
        self._attempts = 0
        self._read = view.message
        return None


def _wrap_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """An object with the value in it; definitions stay at the top, where references look for them."""
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    outer = {"type": "object", "properties": {_KEY: inner}, "required": [_KEY], "additionalProperties": False}
    return {**outer, "$defs": schema["$defs"]} if "$defs" in schema else outer


def _unwrap(value: Any) -> Iterator[Any]:
    """What may be meant: the value in its object, or the bare value of a model that was not held to the schema."""
    if isinstance(value, dict) and value.keys() == {_KEY}:
        yield value[_KEY]
    yield value


def _find_texts(message: AssistantMessage) -> Iterator[str]:
    """The texts that may hold the value: the whole answer, or its last text block."""
    yield message.text
    texts = [block.text for block in message.content if type(block) is TextContent and block.text.strip()]
    if len(texts) > 1:
        yield texts[-1]


def _parse_json(text: str) -> Any:
    """Parse the JSON value of an answer, which may be inside a code fence."""
    inner = text.strip()
    if inner.startswith("```"):
        inner = inner.removeprefix("```").removeprefix("json").rpartition("```")[0]
    try:
        return msgspec.json.decode(inner)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise ValueError(f"it is not JSON ({error})") from error
