"""Talking to a model: everything is, or wraps, a `StreamFn`. A failure is the last event of a stream, not a raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.provider.http.client import http_stream
    from steersman.provider.local.stream import prepare
    from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
    from steersman.provider.local.weights.find import WeightsError, fetch_weights
    from steersman.provider.models.catalogue import describe
    from steersman.provider.models.presets import Preset, add_preset
    from steersman.provider.models.registry import get_model, list_provider_names, register_provider, stream_simple
    from steersman.provider.scripted.model import ScriptedModel
    from steersman.provider.streaming.output_tool import with_output_tool
    from steersman.provider.streaming.retry_strategy import Retry, RetryStrategy
    from steersman.provider.wires.openai_chat.wire import OpenAIChat
    from steersman.provider.wires.protocol import Decoder, HttpRequest, Wire

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "http.client": "http_stream",
        "local.stream": "prepare",
        "local.weights.find": "WeightsError fetch_weights",
        "local.weights.cache": "DEFAULT_LOCAL_MODEL LOCAL_MODELS",
        "models.catalogue": "describe",
        "models.presets": "Preset add_preset",
        "models.registry": "get_model list_provider_names register_provider stream_simple",
        "scripted.model": "ScriptedModel",
        "streaming.output_tool": "with_output_tool",
        "streaming.retry_strategy": "Retry RetryStrategy",
        "wires.openai_chat.wire": "OpenAIChat",
        "wires.protocol": "Decoder HttpRequest Wire",
    },
)

__all__ = [
    "DEFAULT_LOCAL_MODEL",
    "Decoder",
    "HttpRequest",
    "LOCAL_MODELS",
    "OpenAIChat",
    "Preset",
    "Retry",
    "RetryStrategy",
    "ScriptedModel",
    "WeightsError",
    "Wire",
    "add_preset",
    "describe",
    "get_model",
    "http_stream",
    "prepare",
    "list_provider_names",
    "register_provider",
    "stream_simple",
    "fetch_weights",
    "with_output_tool",
]
