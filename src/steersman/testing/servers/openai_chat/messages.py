"""Checks messages as Chat Completions servers do; a `Fault` carries the words of the error."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import msgspec

Flavour: TypeAlias = Literal["openai", "mistral", "moonshot", "deepseek", "llamacpp"]
Json: TypeAlias = dict[str, Any]

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_DATA_URL = re.compile(r"data:image/(png|jpeg|gif|webp);base64,(.*)", re.DOTALL)
_MESSAGE_FIELDS: Mapping[str, frozenset[str]] = {
    "system": frozenset(("role", "content", "name")),
    "developer": frozenset(("role", "content", "name")),
    "user": frozenset(("role", "content", "name")),
    "assistant": frozenset(("role", "content", "name", "refusal", "tool_calls", "audio", "function_call")),
    "tool": frozenset(("role", "content", "tool_call_id")),
    "function": frozenset(("role", "content", "name")),
}
_OTHER_PARTS: Mapping[object, str] = {"refusal": "assistant", "input_audio": "user", "file": "user"}
_REASONING = frozenset(("reasoning_content", "reasoning", "reasoning_text", "reasoning_details"))


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why a request is refused."""

    message: str
    param: str | None = None
    code: str | None = None
    status: int = 400


def find_message_faults(at: str, message: object, flavour: Flavour) -> Iterator[Fault]:
    """Yield the faults of one message."""
    if not isinstance(message, dict):
        yield Fault(f"Invalid type for '{at}': expected an object.", at, "invalid_type")
        return
    fields = cast(Json, message)
    role = fields.get("role")
    if role not in ROLES:
        shown = ", ".join(f"'{name}'" for name in ROLES[:-1])
        yield build_value_fault(f"{at}.role", role, f"{shown}, and '{ROLES[-1]}'")
        return
    allowed = _MESSAGE_FIELDS[cast(str, role)]
    if role == "assistant":
        allowed |= _REASONING
    if flavour == "mistral":
        allowed = (allowed - _REASONING) | {"name", "prefix"}
    for name in fields:
        if name not in allowed:
            status = 422 if flavour == "mistral" else 400
            yield Fault(f"Unknown parameter: '{at}.{name}'.", f"{at}.{name}", "unknown_parameter", status)
    yield from _find_content_faults(at, fields, flavour)
    if "tool_calls" in fields:
        yield from _find_call_faults(at, fields["tool_calls"], flavour)
    if role == "tool" and not isinstance(fields.get("tool_call_id"), str):
        name = f"{at}.tool_call_id"
        yield Fault(f"Missing required parameter: '{name}'.", name, "missing_required_parameter")


def _find_content_faults(at: str, message: Json, flavour: Flavour) -> Iterator[Fault]:
    content = message.get("content")
    assistant = message["role"] == "assistant"
    if assistant and message.get("tool_calls"):
        yield from _find_faults_beside_calls(at, message, flavour)
        if content is None:
            return
    elif content is None:
        if not message.get("refusal"):
            yield Fault("Invalid value for 'content': expected a string, got null.", f"{at}.content", "invalid_type")
        return
    if isinstance(content, str):
        if not content and not (assistant and message.get("tool_calls")):
            yield _build_empty_fault(at, message["role"])
        return
    if not isinstance(content, list) or not content:
        yield build_empty_array_fault(f"{at}.content")
        return
    for number, part in enumerate(cast(list[Json], content)):
        yield from _find_part_faults(f"{at}.content[{number}]", part, message["role"])


def _find_faults_beside_calls(at: str, message: Json, flavour: Flavour) -> Iterator[Fault]:
    if flavour == "moonshot" and message.get("content") == "":
        yield _build_empty_fault(at)
    if flavour == "deepseek" and "content" not in message:
        yield Fault(f"Failed to deserialize the JSON body into the target type: {at}: missing field `content`")


def _find_part_faults(at: str, part: Json, role: str) -> Iterator[Fault]:
    kind = part.get("type")
    if kind == "text":
        if not isinstance(part.get("text"), str) or not part["text"]:
            yield Fault(f"Invalid '{at}.text': empty string. Expected a string with minimum length 1.", at)
    elif kind == "image_url":
        if role != "user":
            yield Fault(
                f"Image URLs are only allowed for messages with role 'user', but this message with role '{role}' "
                "contains an image URL.",
                at,
                "invalid_value",
            )
        yield from _find_image_faults(at, cast(Json, part.get("image_url") or {}).get("url"))
    elif kind not in _OTHER_PARTS or role != _OTHER_PARTS[kind]:
        yield build_value_fault(f"{at}.type", kind, "'text', 'image_url', 'input_audio', 'refusal', and 'file'")


def _find_image_faults(at: str, url: object) -> Iterator[Fault]:
    if isinstance(url, str) and url.startswith("https://"):
        return
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        yield Fault(
            f"Invalid '{at}.image_url.url'. Expected a valid URL, but got a value with an invalid format.",
            f"{at}.image_url.url",
            "invalid_value",
        )
        return
    try:
        base64.b64decode(found[2], validate=True)
    except binascii.Error:
        yield Fault("Invalid base64 image_url.", f"{at}.image_url.url", "invalid_base64")


def _find_call_faults(at: str, calls: object, flavour: Flavour) -> Iterator[Fault]:
    if not isinstance(calls, list) or not calls:
        yield build_empty_array_fault(f"{at}.tool_calls")
        return
    for number, call in enumerate(cast(list[Json], calls)):
        where = f"{at}.tool_calls[{number}]"
        yield from _find_id_faults(f"{where}.id", call.get("id"), flavour)
        if call.get("type") != "function":
            yield build_value_fault(f"{where}.type", call.get("type"), "'function' and 'custom'")
        function: Json = call.get("function") or {}
        yield from find_name_faults(f"{where}.function.name", function.get("name"))
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            yield Fault(
                f"Invalid type for '{where}.function.arguments': expected a string, but got an object instead.",
                f"{where}.function.arguments",
                "invalid_type",
            )
        elif not _is_object(arguments):
            # OpenAI accepts it; servers that fill a chat template with the arguments do not.
            yield Fault("Failed to parse tool call arguments as JSON", f"{where}.function.arguments", None, 500)


def _find_id_faults(at: str, id: object, flavour: Flavour) -> Iterator[Fault]:
    if not isinstance(id, str) or not id:
        yield Fault(f"Invalid type for '{at}': expected a string, but got null instead.", at, "invalid_type")
    elif flavour == "mistral" and not _NINE.fullmatch(id):
        yield Fault(
            f"Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.", at, "invalid_function_call", 400
        )
    elif len(id) > 40:
        yield Fault(
            f"Invalid '{at}': string too long. Expected a string with maximum length 40, but got a string with length "
            f"{len(id)} instead.",
            at,
            "string_above_max_length",
        )


def find_pairing_faults(messages: list[Json], flavour: Flavour) -> Iterator[Fault]:
    """Yield the faults in the order of messages: exactly one result follows every call."""
    waiting: list[str] = []
    seen: set[str] = set()
    last = ""
    for number, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            id = message.get("tool_call_id")
            if id not in waiting:
                yield Fault(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    f"messages.[{number}].role",
                )
                return
            waiting.remove(cast(str, id))
        else:
            if waiting:
                yield _build_unanswered_fault(waiting, number)
                return
            if flavour == "mistral" and role == "user" and last == "tool":
                yield Fault("Unexpected role 'user' after role 'tool'", code="invalid_request_message_order")
            ids = [cast(str, call.get("id")) for call in message.get("tool_calls") or ()]
            for id in ids:
                if id in seen:
                    yield Fault(f"Duplicate value for 'tool_call_id' of '{id}'", f"messages.[{number}].tool_calls")
                seen.add(id)
            waiting = ids
        last = role
    if waiting:
        yield _build_unanswered_fault(waiting, len(messages))
    elif last == "assistant":
        yield Fault("Cannot continue from an assistant message: the last message must be from a user or a tool.")


def find_replay_faults(messages: list[Json], thought: Mapping[str, Set[str]]) -> Iterator[Fault]:
    """Yield a fault for each call that came with reasoning and is sent back without it."""
    for number, message in enumerate(messages):
        ids = {cast(str, call.get("id")) for call in message.get("tool_calls") or ()}
        for field, calls in thought.items():
            if ids & calls and not message.get(field):
                yield Fault(f"Missing `{field}` field in the assistant message at message index {number}.")


def find_thinking_faults(messages: list[Json]) -> Iterator[Fault]:
    """Yield a fault for each answer without `reasoning_content`, which DeepSeek requires, if only a space."""
    for number, message in enumerate(messages):
        if message.get("role") == "assistant" and not message.get("reasoning_content"):
            yield Fault(f"Missing `reasoning_content` field in the assistant message at message index {number}.")


def _build_unanswered_fault(ids: list[str], number: int) -> Fault:
    return Fault(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(ids)}",
        f"messages.[{number}].role",
    )


def _build_empty_fault(at: str, role: str = "assistant") -> Fault:
    number = at.removeprefix("messages[").removesuffix("]")
    return Fault(f"the message at position {number} with role '{role}' must not be empty", at)


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        return False


def find_name_faults(at: str, name: object) -> Iterator[Fault]:
    """Yield the faults in the name of a function or a schema."""
    if not isinstance(name, str) or not name:
        yield Fault(f"Missing required parameter: '{at}'.", at, "missing_required_parameter")
    elif not _NAME.fullmatch(name):
        yield Fault(
            f"Invalid '{at}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            at,
            "invalid_value",
        )
    elif len(name) > 64:
        yield Fault(
            f"Invalid '{at}': string too long. Expected a string with maximum length 64, but got a string with length "
            f"{len(name)} instead.",
            at,
            "string_above_max_length",
        )


def build_empty_array_fault(at: str) -> Fault:
    """Build the fault for an empty array."""
    return Fault(
        f"Invalid '{at}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        at,
        "empty_array",
    )


def build_value_fault(at: str, value: object, choices: str) -> Fault:
    """Build the fault for an unsupported value."""
    return Fault(f"Invalid value: {value!r}. Supported values are: {choices}.", at, "invalid_value")
