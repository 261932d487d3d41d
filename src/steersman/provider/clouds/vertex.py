"""Models on Vertex AI: `vertex:gemini-...` in the Gemini protocol, `vertex:claude-...` in the Anthropic protocol.

Settings of a model, beside those of its protocol (`get_model(..., settings={...})`):
    project      the project; else `GOOGLE_CLOUD_PROJECT`, else that of the application default credentials
    location     such as "europe-west1"; else `GOOGLE_CLOUD_LOCATION`, else "global"
    api_version  the version in the URL: "v1beta1" for Gemini, as in Google's own client, "v1" for Claude
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast
from urllib.parse import quote

import msgspec

from steersman.provider.clouds.google_auth import CREDENTIALS, GoogleCredentials, MissingCredentialsError
from steersman.provider.http.client import http_stream
from steersman.provider.models.presets import PRESETS, find_base_url
from steersman.provider.models.registry import find_key
from steersman.provider.streaming.batches import BatchedStreamFn, GeneratedBatches
from steersman.provider.streaming.output_tool import OutputMode, with_output_tool
from steersman.provider.wires.anthropic.schema import choose_output_mode as choose_claude_output
from steersman.provider.wires.anthropic.wire import AnthropicWire, resume_pauses
from steersman.provider.wires.google.encode import choose_output_mode as choose_gemini_output
from steersman.provider.wires.google.errors import classify_response as classify_google_response
from steersman.provider.wires.google.wire import GoogleWire
from steersman.provider.wires.protocol import HttpRequest, encode_json
from steersman.types.errors import InvalidRequestError, ProviderError
from steersman.types.model import Model, Request, StreamFn, StreamOptions

CLAUDE_VERSION = "vertex-2023-10-16"
"""The `anthropic_version` in the body of a request."""

_PROJECT_VARIABLES = ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")
_LOCATION_VARIABLES = ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION")
# Locations of several regions have hosts of their own.
_MULTI_REGIONS = ("us", "eu")
_API_KEY = re.compile(r"AIza|AQ\.")
_VERSIONED = re.compile(r"/v\d+\w*$")
_NAME = re.compile(r"[\w.:-]+")


class VertexWire(GoogleWire):
    """The Gemini protocol on Vertex AI."""

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request."""
        url = f"{build_url(model, key, 'v1beta1')}:streamGenerateContent?alt=sse"
        call = super().request(model, request, options, None)
        return HttpRequest(url, _add_key(call.headers, key), call.body, call.max_tokens)


class VertexClaudeWire(AnthropicWire):
    """The Anthropic protocol on Vertex AI: the model is in the URL, the version of the API in the body."""

    name = "vertex"

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request."""
        url = f"{build_url(model, key, 'v1')}:streamRawPredict"
        call = super().request(model, request, options, None)
        begin = b'{"model":' + encode_json(model.id)
        assert call.body.startswith(begin)
        version = encode_json(model.settings.get("anthropic_version") or CLAUDE_VERSION)
        body = b"".join((b'{"anthropic_version":', version, memoryview(call.body)[len(begin) :]))
        headers = {name: value for name, value in call.headers.items() if name != "anthropic-version"}
        return HttpRequest(url, _add_key(headers, key), body, call.max_tokens)

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Classify a response that is not a stream; it is in the form of Google or of Anthropic."""
        if _is_of_google(body):
            return classify_google_response(model, status, headers, body)
        return super().error(model, status, headers, body)


def is_claude(model_id: str) -> bool:
    """Whether a model is one of Anthropic's."""
    return model_id.rpartition("/")[2].startswith("claude")


def build_url(model: Model, key: str | None, version: str) -> str:
    """The URL of a model, without its method; raises `InvalidRequestError` if there is no project."""
    project, location = _take_name(model, "project"), _take_name(model, "location") or "global"
    if project is None and key is not None and is_api_key(key):
        location = "global"  # express mode: the key stands for the project
    elif project is None and not model.id.startswith("projects/"):
        text = (
            f"No project for {model.name!r}. Set GOOGLE_CLOUD_PROJECT, or give get_model settings={{'project': ...}}."
        )
        raise InvalidRequestError(text, provider=model.provider)
    base = (model.base_url or "").rstrip("/")
    if not base or base == PRESETS["vertex"].base_url:
        base = f"https://{_find_host(location)}"
    if not _VERSIONED.search(base):
        base = f"{base}/{model.settings.get('api_version') or version}"
    path = _build_path(model.id)
    if project is not None and not path.startswith("projects/"):
        path = f"projects/{project}/locations/{location}/{path}"
    return f"{base}/{quote(path, safe='/@:.-_~')}"


def is_api_key(key: str) -> bool:
    """Whether a key is an API key, which express mode takes, and no access token."""
    return _API_KEY.match(key) is not None


def _find_host(location: str) -> str:
    if location == "global":
        return "aiplatform.googleapis.com"
    if location in _MULTI_REGIONS:
        return f"aiplatform.{location}.rep.googleapis.com"
    return f"{location}-aiplatform.googleapis.com"


def _build_path(model_id: str) -> str:
    """The resource of a model: a whole path, `publisher/model`, or the id of a model of Google or Anthropic."""
    if model_id.startswith(("projects/", "publishers/")):
        return model_id
    publisher, slash, name = model_id.partition("/")
    if not slash:
        publisher, name = "anthropic" if is_claude(model_id) else "google", model_id
    return f"publishers/{publisher}/models/{name}"


def _take_name(model: Model, setting: str) -> str | None:
    """A name that goes into the URL; raises `InvalidRequestError` if it would change the host or the path."""
    value: Any = model.settings.get(setting)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        text = f"The {setting} of {model.name!r} is letters, digits and hyphens, got {value!r}."
        raise InvalidRequestError(text, provider=model.provider)
    return value


def _add_key(headers: Mapping[str, str], key: str | None) -> dict[str, str]:
    """The headers with the key or the token; headers of the model that name one stay."""
    found = dict(headers)
    if key is not None and not {"authorization", "x-goog-api-key"} & {name.lower() for name in found}:
        name, value = ("x-goog-api-key", key) if is_api_key(key) else ("authorization", f"Bearer {key}")
        found[name] = value
    return found


def _is_of_google(body: bytes) -> bool:
    """Whether an error is in Google's form: with a number as `code` and a word as `status`, or in a list."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if isinstance(value, list):
        return True
    error: Any = cast(dict[str, Any], value).get("error") if isinstance(value, dict) else None
    fields = cast(dict[str, Any], error) if isinstance(error, dict) else {}
    return isinstance(fields.get("code"), int) and isinstance(fields.get("status"), str)


def stream_vertex(credentials: GoogleCredentials = CREDENTIALS) -> StreamFn:
    """The `StreamFn` of the provider `vertex`."""
    gemini = http_stream(VertexWire())
    claude = resume_pauses(http_stream(VertexClaudeWire()))

    async def stream(model: Model, request: Request, options: StreamOptions, /) -> GeneratedBatches:
        source = claude if is_claude(model.id) else gemini
        async with aclosing(source.batches(*await _sign_in(model, request, options, credentials))) as batches:
            async for batch in batches:
                yield batch

    return with_output_tool(BatchedStreamFn(stream), _choose_output_mode)


def _choose_output_mode(model: Model, request: Request, options: StreamOptions) -> OutputMode:
    choose = choose_claude_output if is_claude(model.id) else choose_gemini_output
    return choose(model, request, options)


async def _sign_in(
    model: Model, request: Request, options: StreamOptions, credentials: GoogleCredentials
) -> tuple[Model, Request, StreamOptions]:
    """The model with its project and location, and the options with its key or a token."""
    key = await find_key(model, options)
    if key is not None and is_api_key(key):
        return model, request, replace(options, api_key=key)
    project, location = _find_variable(_PROJECT_VARIABLES), _find_variable(_LOCATION_VARIABLES)
    if key is None:
        try:
            key, own = await credentials.get_token()
            project = project or own
        except MissingCredentialsError:
            # A server that is not Google's may need no key.
            if PRESETS["vertex"].is_own_url(find_base_url("vertex", model.base_url)):
                raise
    found = {"project": project, "location": location}
    settings = {**{name: value for name, value in found.items() if value}, **model.settings}
    return replace(model, settings=settings), request, replace(options, api_key=key)


def _find_variable(names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name, "").strip())), None)
