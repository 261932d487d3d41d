"""Checks a request as the Converse API does."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias, cast

Json: TypeAlias = dict[str, Any]
Issued: TypeAlias = Callable[[str, str], bool]
"""Whether this server issued the signature for the reasoning."""

_FIELDS = frozenset(
    ("additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig", "inferenceConfig",
     "messages", "outputConfig", "performanceConfig", "promptVariables", "requestMetadata", "serviceTier", "system",
     "toolConfig")
)  # fmt: skip
_INFERENCE = {"maxTokens", "temperature", "topP", "stopSequences"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_FORMATS = ("png", "jpeg", "gif", "webp")
_USER = {"text", "image", "document", "toolResult", "cachePoint", "guardContent", "searchResult"}
_ASSISTANT = {"text", "toolUse", "toolResult", "reasoningContent", "citationsContent", "cachePoint"}
_MAX_CACHE_POINTS = 4


class Fault(Exception):
    """The reason why a request is refused."""


def check_request(body: Any, issued: Issued) -> None:
    """Raise `Fault` with the error of the real API."""
    if not isinstance(body, dict):
        raise Fault("The request body is not valid JSON.")
    fields = cast(Json, body)
    if unknown := sorted(set(fields) - _FIELDS):
        raise Fault(f"extraneous key [{unknown[0]}] is not permitted")
    if unknown := sorted(set(fields.get("inferenceConfig") or {}) - _INFERENCE):
        raise Fault(f"extraneous key [{unknown[0]}] is not permitted")
    messages: list[Json] = fields.get("messages") or []
    _check_roles(messages)
    for number, message in enumerate(messages):
        _check_message(number, message, issued)
    _check_pairs(messages)
    _check_tools(fields.get("toolConfig"), messages)
    if any(not block.get("text", "x").strip() for block in fields.get("system") or ()):
        raise Fault("The text field in the ContentBlock object at system.0 is blank. Add text to the text field.")
    marks = str(fields).count("'cachePoint'")
    if marks > _MAX_CACHE_POINTS:
        raise Fault(f"A maximum of {_MAX_CACHE_POINTS} cache checkpoints is allowed. Found {marks}.")


def _check_roles(messages: list[Json]) -> None:
    if not messages:
        raise Fault("A conversation must start with a user message. Try again with a conversation that starts so.")
    if messages[0].get("role") != "user":
        raise Fault("A conversation must start with a user message. Try again with a conversation that starts so.")
    for earlier, later in pairwise(messages):
        if earlier.get("role") == later.get("role"):
            raise Fault("A conversation must alternate between user and assistant roles. Make sure it does.")


def _check_message(number: int, message: Json, issued: Issued) -> None:
    if set(message) != {"role", "content"} or message["role"] not in ("user", "assistant"):
        raise Fault(f"messages.{number}: a message has a role and content")
    if not message["content"]:
        raise Fault(
            f"The content field in the Message object at messages.{number} is empty. Add a ContentBlock object."
        )
    for index, block in enumerate(message["content"]):
        at = f"messages.{number}.content.{index}"
        if len(block) != 1 or not set(block) <= (_USER if message["role"] == "user" else _ASSISTANT):
            raise Fault(
                f"The value at {at} is not a block that a message of the {message['role']} may have: {set(block)}"
            )
        _check_block(at, block, issued)
    last = message["content"][-1]
    if message["role"] == "assistant" and "reasoningContent" in last:
        raise Fault(f"messages.{number}: The final block in an assistant message cannot be `thinking`.")


def _check_block(at: str, block: Json, issued: Issued) -> None:
    kind, value = next(iter(block.items()))
    match kind:
        case "text":
            if not isinstance(value, str) or not value.strip():
                raise Fault(f"The text field in the ContentBlock object at {at} is blank. Add text to the text field.")
        case "image":
            _check_image(at, value)
        case "toolUse":
            _check_id(at, value)
            if not _NAME.fullmatch(value["name"]) or not isinstance(value["input"], dict):
                raise Fault(f"The format of the value at {at}.toolUse is invalid. Provide a json object for the field.")
        case "toolResult":
            _check_result(at, value, issued)
        case "reasoningContent":
            _check_reasoning(at, value, issued)
        case _:
            pass


def _check_result(at: str, value: Json, issued: Issued) -> None:
    _check_id(at, value)
    if not value["content"]:
        raise Fault(f"The content field at {at}.toolResult is empty.")
    if value.get("status") == "error" and any("text" not in inner for inner in value["content"]):
        raise Fault(f"{at}: all content must be type `text` if `is_error` is true")
    for inner in value["content"]:
        _check_block(at, inner, issued)


def _check_id(at: str, value: Json) -> None:
    if not isinstance(value.get("toolUseId"), str) or not _ID.fullmatch(value["toolUseId"]):
        raise Fault(f"Value at {at}.toolUseId failed to satisfy constraint: must match [a-zA-Z0-9_.:-]+, 1 to 64")


def _check_image(at: str, value: Json) -> None:
    if value.get("format") not in _FORMATS:
        raise Fault(f"Value at {at}.image.format failed to satisfy constraint: Member must satisfy enum {_FORMATS}")
    try:
        good = bool(base64.b64decode(value["source"]["bytes"], validate=True))
    except (binascii.Error, ValueError, KeyError):
        good = False
    if not good:
        raise Fault(f"The image at {at} has no bytes in base64.")


def _check_reasoning(at: str, value: Json, issued: Issued) -> None:
    text: Json = value.get("reasoningText") or {}
    signature = value.get("redactedContent") or text.get("signature")
    if not signature or not issued(text.get("text", ""), signature):
        raise Fault(f"{at}: Invalid `signature` in `thinking` block")


def _check_pairs(messages: list[Json]) -> None:
    waiting: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            waiting = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
            if len(set(waiting)) < len(waiting):
                raise Fault(f"messages.{number}: duplicate Ids: toolUse ids must be unique")
            continue
        answered = [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]
        if len(answered) > len(waiting):
            raise Fault(
                f"The number of toolResult blocks at messages.{number}.content exceeds the number of toolUse blocks of "
                "previous turn."
            )
        if sorted(answered) != sorted(waiting):
            raise Fault(f"Expected toolResult blocks at messages.{number}.content for the following Ids: {waiting}")
        waiting = []
    if waiting:
        raise Fault(f"Expected toolResult blocks at messages.{len(messages)}.content for the following Ids: {waiting}")


def _check_tools(config: Json | None, messages: list[Json]) -> None:
    used = any({"toolUse", "toolResult"} & set(block) for message in messages for block in message["content"])
    if config is None:
        if used:
            raise Fault("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
        return
    names: list[str] = []
    for tool in config["tools"]:
        if "cachePoint" in tool:
            continue
        spec: Json = tool["toolSpec"]
        names.append(spec["name"])
        if not _NAME.fullmatch(spec["name"]):
            raise Fault(f"Value {spec['name']!r} at toolConfig failed to satisfy constraint: [a-zA-Z0-9_-]+, 1 to 64")
        if "description" in spec and not spec["description"]:
            raise Fault("Value at toolConfig.description failed to satisfy constraint: length at least 1")
        if spec["inputSchema"]["json"].get("type") != "object":
            raise Fault("The value at toolConfig.inputSchema.json.type must be one of the following: object.")
    if not names:
        raise Fault("Value at toolConfig.tools failed to satisfy constraint: length at least 1")
    if len(set(names)) < len(names):
        raise Fault(f"The tool names are not unique: {names}")
