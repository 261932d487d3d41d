"""Checks contents as the Gemini API does: parts, pairing of calls and results, signatures."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

Json: TypeAlias = dict[str, Any]
Known: TypeAlias = Callable[[str, Json], bool]
"""Whether a signature was issued for exactly this part."""

UNSIGNED = "skip_thought_signature_validator"

_DATA = frozenset(
    (
        "text",
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
        "executableCode",
        "codeExecutionResult",
        "toolCall",
        "toolResponse",
    )
)
_MARKS = frozenset(("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"))
_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_MIME = re.compile(r"(?:image|audio|video|text|application)/[\w.+-]+")

_PICTURES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")

CALL_TURN = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
RESPONSE_TURN = "Please ensure that function response turn comes immediately after a function call turn."
COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
LAST_TURN = "Please ensure that multiturn requests end with a user role or a function response."
SIGNATURE = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, "
    "and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:{name}`, position {position}. Please refer to "
    "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
)


def parse_version(model: str) -> tuple[int, int]:
    """Return the version of a model; (0, 0) if its name has none."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def find_unknown_field(fields: Json, known: frozenset[str], at: str) -> str | None:
    """Return the fault for an unknown field, or `None`."""
    for name in fields:
        if name not in known:
            where = f" at '{at}'" if at else ""
            return f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.'
    return None


def find_contents_fault(contents: Any, model: str, known: Known) -> str | None:
    """Find a fault in the conversation."""
    if not isinstance(contents, list) or not contents:
        return "* GenerateContentRequest.contents: contents is not specified\n"
    turns = cast(list[Json], contents)
    for number, content in enumerate(turns):
        fault = _find_content_fault(f"contents[{number}]", content, known)
        if fault is not None:
            return fault
    turns = _merge_turns(turns)
    return _find_order_fault(turns) or _find_ids_fault(turns) or _find_signature_fault(turns, model)


def _merge_turns(contents: Sequence[Json]) -> list[Json]:
    """Merge consecutive contents of the model: Google's own client sends every chunk back as one content."""
    turns: list[Json] = []
    for content in contents:
        if turns and content["role"] == "model" == turns[-1]["role"]:
            turns[-1] = {"role": "model", "parts": [*list_parts(turns[-1]), *list_parts(content)]}
        else:
            turns.append(content)
    return turns


def list_parts(content: Json) -> list[Json]:
    """Return the parts of a content."""
    return cast(list[Json], content.get("parts") or [])


def _find_content_fault(at: str, content: Any, known: Known) -> str | None:
    if not isinstance(content, dict):
        return f"Invalid value at '{at}' (type.googleapis.com/google.ai.generativelanguage.v1beta.Content)"
    turn = cast(Json, content)
    if turn.get("role") not in ("user", "model"):
        return "Please use a valid role: user, model."
    if not list_parts(turn):
        return f"* GenerateContentRequest.{at}.parts: contents.parts must not be empty.\n"
    fault = find_unknown_field(turn, frozenset(("role", "parts")), at)
    for number, part in enumerate(list_parts(turn)):
        fault = fault or _find_part_fault(f"{at}.parts[{number}]", part, turn["role"], known)
    return fault


def _find_part_fault(at: str, part: Json, role: str, known: Known) -> str | None:
    fault = find_unknown_field(part, _DATA | _MARKS, at)
    if fault is not None:
        return fault
    data = [name for name in _DATA if part.get(name) is not None]
    signature = part.get("thoughtSignature")
    if len(data) > 1:
        return f"Invalid value at '{at}' (oneof), oneof field 'data' is already set. Cannot set '{sorted(data)[1]}'"
    if not data or (part.get("text") == "" and not signature and role == "user"):
        return f"* GenerateContentRequest.{at}.data: required oneof field 'data' must have one initialized field\n"
    if signature is not None and not _is_base64(signature):
        return f"Invalid value at '{at}.thought_signature' (TYPE_BYTES), Base64 decoding failed for \"{signature}\""
    if signature is not None and signature != UNSIGNED and not known(signature, part):
        return "Corrupted thought signature."
    if role == "user" and ("functionCall" in part or part.get("thought")):
        return CALL_TURN
    if role == "model" and "functionResponse" in part:
        return RESPONSE_TURN
    return _find_data_fault(at, part)


def _find_data_fault(at: str, part: Json) -> str | None:
    if "inlineData" in part:
        return _find_blob_fault(f"{at}.inline_data", part["inlineData"])
    for name, proto, fields, payload in (
        ("functionCall", "function_call", ("name", "args", "id"), "args"),
        ("functionResponse", "function_response", ("name", "response", "id", "parts"), "response"),
    ):
        if name in part:
            value = cast(Json, part[name])
            fault = find_unknown_field(value, frozenset(fields), f"{at}.{proto}")
            if fault is None and not value.get("name"):
                return f"* GenerateContentRequest.{at}.{proto}.name: Name cannot be empty.\n"
            if fault is None and not isinstance(value.get(payload, {}), dict):
                return f"Invalid value at '{at}.{proto}.{payload}' (type.googleapis.com/google.protobuf.Struct)"
            for number, inner in enumerate(list_parts(value)):
                blob = f"{at}.{proto}.parts[{number}].inline_data"
                fault = fault or _find_blob_fault(blob, inner.get("inlineData"))
            return fault
    return None


def _find_blob_fault(at: str, blob: Any) -> str | None:
    fields = cast(Json, blob) if isinstance(blob, dict) else {}
    kind = str(fields.get("mimeType", ""))
    if not _MIME.fullmatch(kind) or (kind.startswith("image/") and kind not in _PICTURES):
        return f"Unsupported MIME type: {fields.get('mimeType', '')}"
    if not fields.get("data") or not _is_base64(fields["data"]):
        return f"Invalid value at '{at}.data' (TYPE_BYTES), Base64 decoding failed for \"{fields.get('data', '')}\""
    return find_unknown_field(fields, frozenset(("mimeType", "data", "displayName")), at)


def _is_base64(text: Any) -> bool:
    try:
        b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, AttributeError, ValueError):
        return False
    return True


def _find_order_fault(turns: Sequence[Json]) -> str | None:
    """Find a fault in the order: as many results follow each turn of calls, in the same order."""
    calls: list[Json] = []
    before: Json | None = None
    for turn in turns:
        results = [cast(Json, part["functionResponse"]) for part in list_parts(turn) if "functionResponse" in part]
        if calls:
            if len(results) != len(calls) or len(list_parts(turn)) != len(results):
                return COUNT  # older models count whatever stands beside the results, too
            if not all(map(_answers, calls, results)):
                return "Please ensure that the function response parts match the function call parts of the call turn."
        elif results:
            return RESPONSE_TURN
        calls = [cast(Json, part["functionCall"]) for part in list_parts(turn) if "functionCall" in part]
        if calls and before is None:
            return CALL_TURN
        before = turn
    if calls:
        return COUNT
    if turns[0]["role"] != "user":
        return "Please ensure that multiturn requests begin with a user role."
    return LAST_TURN if turns[-1]["role"] == "model" else None


def _answers(call: Json, result: Json) -> bool:
    """Whether a result answers a call; it may leave out the id."""
    ids = {call["id"], result["id"]} if "id" in call and "id" in result else set[str]()
    return call["name"] == result["name"] and len(ids) <= 1


def _find_ids_fault(turns: Sequence[Json]) -> str | None:
    seen: set[str] = set()
    for turn in turns:
        for part in list_parts(turn):
            call_id = cast(Json, part.get("functionCall") or {}).get("id")
            if call_id in seen:
                return f"Duplicate function call id: {call_id}."
            if call_id is not None:
                seen.add(call_id)
    return None


def _find_signature_fault(turns: Sequence[Json], model: str) -> str | None:
    """Find a missing signature: since Gemini 3 the first call of every step of the current turn needs one."""
    if parse_version(model) < (3, 0):
        return None
    begun = max((at for at, turn in enumerate(turns) if turn["role"] == "user" and _has_text(turn)), default=-1)
    for position, turn in enumerate(turns):
        first = next((part for part in list_parts(turn) if "functionCall" in part), None)
        if position > begun and first is not None and not first.get("thoughtSignature"):
            return SIGNATURE.format(name=first["functionCall"]["name"], position=position + 1)
    return None


def _has_text(turn: Json) -> bool:
    return any("text" in part for part in list_parts(turn))


def find_signed_parts(chunks: Sequence[Mapping[str, Any]]) -> Iterator[Json]:
    """Yield the parts with a signature among the chunks of a stream."""
    for chunk in chunks:
        for candidate in cast(list[Json], chunk.get("candidates") or []):
            for part in list_parts(cast(Json, candidate.get("content") or {})):
                if part.get("thoughtSignature"):
                    yield part
