"""What of a transcript is meant for a model."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.types.messages import AgentMessage, ExtensionMessage, Message


def default_convert_to_llm(messages: Sequence[AgentMessage]) -> list[Message]:
    """All messages but the application's own."""
    return [message for message in messages if not isinstance(message, ExtensionMessage)]
