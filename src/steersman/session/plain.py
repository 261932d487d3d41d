"""What goes into a record: plain JSON values, and in none of them a key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from steersman.context.entries import Entry, MessageEntry
from steersman.types.messages import ExtensionMessage
from steersman.types.secrets import hidden


def plain(value: object) -> Any:
    """A value as JSON has it; what JSON does not have is given in words."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)


def entry_fields(entry: Entry) -> dict[str, Any]:
    """The fields of an entry, without those that a record has of its own."""
    try:
        fields = plain(entry)
    except (TypeError, ValueError):
        # An application's own data may be anything.
        assert isinstance(entry, MessageEntry)
        assert isinstance(entry.message, ExtensionMessage)
        words = repr(entry.message.data)
        fields = plain(msgspec.structs.replace(entry, message=msgspec.structs.replace(entry.message, data=words)))
    del fields["id"], fields["type"]
    return fields


def without(value: Any, secrets: Iterable[str]) -> Any:
    """The same without the secrets, wherever in it they are."""
    if isinstance(value, str):
        return hidden(value, *secrets)
    if isinstance(value, dict):
        return {without(key, secrets): without(item, secrets) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [without(item, secrets) for item in cast(list[Any], value)]
    return value
