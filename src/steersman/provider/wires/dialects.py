"""Detects which of the protocols a server uses, from the shape of its JSON.

A server with another protocol than the configured one gives no usable answer; the error then names the right provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from steersman.provider.http.errors import is_html_page
from steersman.provider.http.headers import add_sentences, may_be_wrong_server
from steersman.provider.models.presets import Protocol
from steersman.types.errors import IncompleteStreamError, ProtocolError, ProviderError
from steersman.types.model import Model
from steersman.types.secrets import redact_key_patterns

_NAMES: dict[str, str] = {
    "anthropic": "Anthropic Messages",
    "openai": "OpenAI Responses",
    "openai-chat": "Chat Completions",
    "google": "Gemini",
    "bedrock": "Bedrock Converse",
}
_ANTHROPIC = frozenset(
    (
        "content_block_delta",
        "content_block_start",
        "content_block_stop",
        "message",
        "message_delta",
        "message_start",
        "message_stop",
    )
)
_GOOGLE = ("candidates", "promptFeedback", "usageMetadata")
_SHOWN = 200
_PAGE = 120
_KEPT = 4


def detect_protocols(text: str | bytes) -> tuple[Protocol, ...]:
    """Return the protocols that an event, a whole answer or an error may belong to; empty if its shape does not say."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return ()
    if isinstance(value, list) and value:
        value = cast(list[object], value)[0]
    if not isinstance(value, dict):
        return ()
    fields = cast(dict[str, Any], value)
    error = fields.get("error")
    if isinstance(error, dict):
        return _detect_from_error(fields, cast(dict[str, Any], error))
    kind = fields.get("type")
    if isinstance(kind, str) and (kind in _ANTHROPIC or kind.startswith("response.")):
        return ("anthropic",) if kind in _ANTHROPIC else ("openai",)
    if fields.get("object") == "response":
        return ("openai",)
    if "stopReason" in fields and "output" in fields:
        return ("bedrock",)
    if isinstance(fields.get("choices"), list):
        return ("openai-chat",)
    return ("google",) if any(name in fields for name in _GOOGLE) else ()


def _detect_from_error(fields: Mapping[str, Any], error: Mapping[str, Any]) -> tuple[Protocol, ...]:
    if error.get("code") == "model_not_found":
        return ()  # the URL is right, the model id is wrong
    if fields.get("type") == "error":
        return ("anthropic",)
    if isinstance(error.get("code"), int) and isinstance(error.get("status"), str):
        return ("google",)
    return ("openai-chat", "openai") if "param" in error and "type" in error else ()


def suggest_protocol(model: Model, own: str, texts: Sequence[str | bytes]) -> str:
    """Say which provider to use, if the texts are or may be of another protocol than `own`; else ""."""
    detected = next((found for text in texts if (found := detect_protocols(text))), ())
    others = [name for name in detected if name != own]
    if not others or own not in _NAMES:  # the shape of a custom protocol is not known
        return ""
    names = " or ".join(_NAMES[name] for name in others)
    models = " or ".join(f"'{name}:{model.id}'" for name in others)
    looks = "It looks like" if len(others) == len(detected) else "It may be"
    return f"{looks} {names}: use {models} with base_url=..."


def keep_unknown_event(unknown: list[str], data: str) -> None:
    """Keep the first few events of an unknown type; `build_incomplete_error` shows one."""
    if len(unknown) < _KEPT:
        unknown.append(data)


def build_incomplete_error(model: Model, own: str, end: str, unknown: Sequence[str]) -> ProviderError:
    """Build the error for a stream without its terminal event; `unknown` holds events if all were unknown.

    Another protocol is a `ProtocolError`, which is not retried; any other stream may have been cut and is retried.
    """
    name = _NAMES.get(own, own)
    if advice := suggest_protocol(model, own, unknown):
        shown = redact_key_patterns(unknown[0], _SHOWN)
        text = f"{model.name} sent a stream that is not {name}: {shown!r}. {advice}"
        return ProtocolError(text, provider=model.provider, body=shown)
    text = f"{model.name}: the stream ended before {end}, so the answer is not complete."
    if unknown:
        shown = redact_key_patterns(unknown[0], _SHOWN)
        text += f" The server sent something that is not {name}, such as {shown!r}; check base_url."
    return IncompleteStreamError(text, provider=model.provider)


def add_url_advice(error: ProviderError, model: Model, own: str, body: bytes) -> ProviderError:
    """Add advice about `base_url` to an error that suggests a wrong URL."""
    if may_be_wrong_server(error):
        check = "" if "base_url" in error.info.message else _describe_page(body) or "Check the model's id and base_url."
        add_sentences(error, check, suggest_protocol(model, own, (body,)))
    return error


def _describe_page(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    if not is_html_page(text):
        return ""
    shown = redact_key_patterns(" ".join(text.split()), _PAGE)
    return f"It came with an HTML page instead of an API error: {shown!r}. Check base_url, and any proxy on the way."
