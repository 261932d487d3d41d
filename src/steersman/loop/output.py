"""Structured output: the last answer is a JSON value of a given type, or the model is asked again."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.policy.hooks import HookError, PolicyView
from steersman.policy.verdicts import Inject
from steersman.tools.schema import output_codec
from steersman.types.messages import user_message

MAX_ATTEMPTS = 3


class OutputPolicy:
    """A post-loop policy that reads the output out of the last answer, one run at a time."""

    __slots__ = ("_attempts", "_convert", "_type", "schema", "value")

    def __init__(self, output_type: Any) -> None:
        self._type = output_type
        self.schema, self._convert = output_codec(output_type)
        self.value: Any = None
        self._attempts = 0

    def fresh(self) -> OutputPolicy:
        """The same for another agent."""
        return OutputPolicy(self._type)

    def reset(self) -> None:
        """A new run begins."""
        self.value = None
        self._attempts = 0

    @property
    def instruction(self) -> str:
        """What the system prompt says about it."""
        schema = msgspec.json.encode(self.schema).decode()
        return f"Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{schema}"

    def __call__(self, view: PolicyView) -> Inject | None:
        """Take the output, or ask again; after too many attempts the run ends as an error."""
        try:
            self.value = self._convert(_json_in("" if view.message is None else view.message.text))
        except ValueError as error:
            self._attempts += 1
            if self._attempts >= MAX_ATTEMPTS:
                raise HookError(f"The answer did not fit output_type after {MAX_ATTEMPTS} attempts: {error}") from error
            text = f"That answer does not fit: {error}. Answer again with one JSON value that fits the schema."
            return Inject(user_message(text, synthetic=True))
        return None


def _json_in(text: str) -> Any:
    """The JSON value of an answer, which may stand in a code fence."""
    inner = text.strip()
    if inner.startswith("```"):
        inner = inner.removeprefix("```").removeprefix("json").rpartition("```")[0]
    try:
        return msgspec.json.decode(inner)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from error
