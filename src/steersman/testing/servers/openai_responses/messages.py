"""Checks input items as the OpenAI Responses API does: their fields, and which of them belong together."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, cast

import msgspec

from steersman.testing.servers.openai_responses.request import (
    Fault,
    Json,
    check_array,
    check_id,
    check_name,
    check_text,
    check_type,
    check_value,
    require,
)

_ROLES = ("assistant", "system", "developer", "user")
_SHOWN = ("input_text", "input_image", "input_file")
_SAID = ("output_text", "refusal")
_CALLS = {"function_call": "fc", "custom_tool_call": "ctc"}
_OUTPUTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
# Items of the server's own tools: they are accepted unchanged.
_OTHERS = frozenset(
    ("apply_patch_call", "code_interpreter_call", "compaction", "computer_call", "file_search_call",
     "image_generation_call", "local_shell_call", "mcp_approval_request", "mcp_call", "mcp_list_tools", "shell_call",
     "tool_search_call", "web_search_call")
)  # fmt: skip
_IMAGE = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,([A-Za-z0-9+/]+={0,2})|https?://\S+")
_SEAL = "gAAAAA"
_CHECK = 16


def seal(id: str, words: str, mark: str | None = None) -> str:
    """Return encrypted content; this server can open it and detects any change."""
    held = base64.urlsafe_b64encode(msgspec.json.encode([id, words, mark])).decode()
    return f"{_SEAL}{held}{sha256(held.encode()).hexdigest()[:_CHECK]}"


def unseal(content: str) -> str | None:
    """Return the id of the reasoning item of this encrypted content, or `None` if it is invalid."""
    held, check = content[len(_SEAL) : -_CHECK], content[-_CHECK:]
    if not content.startswith(_SEAL) or sha256(held.encode("utf-8", "replace")).hexdigest()[:_CHECK] != check:
        return None
    try:
        return cast(str, msgspec.json.decode(base64.urlsafe_b64decode(held))[0])
    except (msgspec.DecodeError, binascii.Error, TypeError, IndexError):
        return None


class InputChecker:
    """Checks the items of one request; `after` maps an item to the reasoning item it followed."""

    def __init__(self, *, store: bool, after: Mapping[str, str]) -> None:
        self._store = store
        self._after = after
        self._ids: set[str] = set()
        self._calls: dict[str, str] = {}
        self._answered: set[str] = set()
        # Reasoning items that still need a following item, the nearest last.
        self._open: list[str] = []

    def check(self, items: list[Json]) -> None:
        """Raise `Fault` for the first invalid item."""
        for number, item in enumerate(items):
            path = f"input[{number}]"
            kind = item.get("type") or ("message" if "role" in item else "item_reference" if "id" in item else None)
            self._check_id(item, path)
            if kind == "reasoning":
                self._check_reasoning(item, path)
                continue
            said = kind in _CALLS or kind in _OTHERS or (kind == "message" and item.get("role") == "assistant")
            self._check_order(item, said=said)
            if kind == "message":
                _check_message(item, path)
            elif kind in _CALLS:
                self._check_call(item, cast(str, kind), path)
            elif kind in _OUTPUTS:
                self._check_output(item, cast(str, kind), path)
            elif kind == "item_reference":
                self._raise_not_found(cast(str, item.get("id")))
            elif kind not in _OTHERS:
                check_value(kind, ("message", "reasoning", *_CALLS, *_OUTPUTS, *sorted(_OTHERS)), f"{path}.type")
        self._check_order({}, said=False)
        for call_id in self._calls:
            if call_id not in self._answered:
                raise Fault(f"No tool output found for function call {call_id}.", "input")

    def _check_id(self, item: Json, path: str) -> None:
        id = item.get("id")
        if id is None or item.get("type") == "item_reference":
            return
        kind = item.get("type") or "message"
        prefix = {"message": "msg", "reasoning": "rs", **_CALLS}.get(cast(str, kind), "")
        check_id(id, prefix, f"{path}.id")
        if id in self._ids:
            raise Fault(
                f"Duplicate item found with id {id}. Remove duplicate items from your input and try again.", "input"
            )
        self._ids.add(id)

    def _raise_not_found(self, id: str) -> None:
        raise Fault(
            f"Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with "
            "`store` set to true, or remove this item from your input.",
            "input",
            status=404,
        )

    def _check_reasoning(self, item: Json, path: str) -> None:
        for number, part in enumerate(
            cast(list[Any], check_type(require(item, "summary", path), list, f"{path}.summary"))
        ):
            check_text(
                require(check_type(part, dict, f"{path}.summary[{number}]"), "text", path),
                f"{path}.summary[{number}].text",
            )
        if "status" in item and item["status"] is None:
            raise Fault(f"Unknown parameter: '{path}.status'.", f"{path}.status", "unknown_parameter")
        id, content = cast(str | None, item.get("id")), item.get("encrypted_content")
        if content is None:
            self._raise_not_found(cast(str, id))
        of = unseal(cast(str, check_type(content, str, f"{path}.encrypted_content")))
        if of is None or (id is not None and of != id):
            shown = f"{cast(str, content)[:8]}..."
            raise Fault(
                f"The encrypted content {shown} could not be verified. Reason: Encrypted content could not be "
                "decrypted or parsed.",
                None,
                "invalid_encrypted_content",
            )
        self._open.append(of)

    def _check_order(self, item: Json, *, said: bool) -> None:
        """Check that an item of the model follows its reasoning, and that nothing else follows reasoning."""
        if self._open and not said:
            raise Fault(
                f"Item '{self._open[-1]}' of type 'reasoning' was provided without its required following item.",
                "input",
            )
        needed = self._after.get(cast(str, item.get("id")))
        if needed is not None and needed not in self._open:
            kind = item.get("type")
            raise Fault(
                f"Item '{item['id']}' of type '{kind}' was provided without its required 'reasoning' item: '{needed}'.",
                "input",
            )
        self._open.clear()

    def _check_call(self, item: Json, kind: str, path: str) -> None:
        call_id = check_text(require(item, "call_id", path), f"{path}.call_id", longest=64)
        check_name(require(item, "name", path), f"{path}.name")
        field = "arguments" if kind == "function_call" else "input"
        check_type(require(item, field, path), str, f"{path}.{field}")
        if call_id in self._calls:
            raise Fault(f"Duplicate 'call_id': {call_id}", f"{path}.call_id", "invalid_value")
        self._calls[call_id] = kind

    def _check_output(self, item: Json, kind: str, path: str) -> None:
        call_id = check_text(require(item, "call_id", path), f"{path}.call_id", longest=64)
        if self._calls.get(call_id) != _OUTPUTS[kind]:
            name = "function call" if kind == "function_call_output" else "custom tool call"
            raise Fault(f"No tool call found for {name} output with call_id {call_id}.", "input")
        if call_id in self._answered:
            raise Fault(f"Duplicate output for call_id {call_id}.", "input")
        self._answered.add(call_id)
        output = check_type(require(item, "output", path), (str, list), f"{path}.output")
        if not isinstance(output, str):
            _check_parts(output, _SHOWN, f"{path}.output")


def _check_message(item: Json, path: str) -> None:
    role = check_value(item.get("role"), _ROLES, f"{path}.role")
    content = require(item, "content", path)
    if isinstance(content, str):
        check_text(content, f"{path}.content")
    else:
        _check_parts(content, _SAID if role == "assistant" else _SHOWN, f"{path}.content")


def _check_parts(parts: object, allowed: tuple[str, ...], path: str) -> None:
    for number, part in enumerate(check_array(parts, path)):
        where = f"{path}[{number}]"
        kind = check_value(require(check_type(part, dict, where), "type", where), allowed, f"{where}.type")
        if kind in ("input_text", "output_text"):
            check_text(require(part, "text", where), f"{where}.text")
        elif kind == "refusal":
            check_text(require(part, "refusal", where), f"{where}.refusal")
        elif kind == "input_image":
            _check_image(part, where)


def _check_image(part: Json, path: str) -> None:
    url = part.get("image_url")
    if url is None and part.get("file_id") is None:
        raise Fault(
            f"Missing required parameter: '{path}.image_url'.", f"{path}.image_url", "missing_required_parameter"
        )
    if url is not None and not _IMAGE.fullmatch(cast(str, check_type(url, str, f"{path}.image_url"))):
        raise Fault(
            f"Invalid '{path}.image_url'. Expected a base64-encoded data URL with an image MIME type (e.g. "
            "'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got a value without it.",
            f"{path}.image_url",
            "invalid_value",
        )
