"""How Chat Completions servers differ: one set of flags, a preset per server, and a model's settings over both.

    Model("openai-chat", "qwen3", base_url="http://127.0.0.1:8000/v1", settings={"think_tags": True})

Other fields of the request body go into `settings["extra_body"]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from steersman.provider.wires.protocol import memoize_by_identity
from steersman.types.messages import StopReason
from steersman.types.model import Model, Request, StreamOptions

if TYPE_CHECKING:
    from steersman.provider.streaming.output_tool import OutputMode

Replay: TypeAlias = Literal["tool_calls", "always", "never"]


class Quirks(msgspec.Struct, frozen=True):
    """How a server differs from most; each flag can be set in `Model.settings`."""

    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    seed_field: Literal["seed", "random_seed"] = "seed"
    call_ids: Literal["any", "forty", "nine"] = "any"
    """The ids of calls that the server takes: `any` that the same model made, at most `forty` characters (OpenAI), or
    exactly `nine` letters and digits (Mistral)."""
    empty_content: Literal["null", "empty", "omit"] = "null"
    """The content of an answer that only calls tools."""
    replay_reasoning: Replay = "tool_calls"
    """Which answers are sent back with their reasoning, in the field in which it came."""
    require_reasoning: str | None = None
    """A field that every answer sent back with reasoning must have, if only a space (DeepSeek, Kimi)."""
    thinking: Literal["effort", "openrouter", "switch", "template", "none"] = "effort"
    """Where the thinking level goes: reasoning_effort, reasoning.effort, thinking.type, or chat_template_kwargs."""
    output_format: Literal["json_schema", "json_object", "tool", "none"] = "json_schema"
    """How to ask for structured output; `tool`: with a tool that must be called, `none`: only in the system prompt."""
    output_with_tools: bool = False
    """Whether a server still calls tools when it gets an output schema; most do not."""
    stream_usage: bool = True
    """Whether the server accepts stream_options.include_usage."""
    parallel_tool_calls: bool | None = None
    required_choice: Literal["required", "any"] = "required"
    tool_result_name: bool = False
    assistant_after_tool: bool = False
    """Whether an assistant message must come between a tool result and a user message."""
    assistant_after_user: bool = False
    """Whether an assistant message must come between two user messages."""
    cache_key: bool = False
    """Whether the session's id is sent as prompt_cache_key."""
    think_tags: bool = False
    """Whether `<think>...</think>` at the start of the text is thinking."""
    finish_reasons: Mapping[str, StopReason] = {}
    """The stop reasons for the server's own finish reasons; "null" means no finish reason."""


class ChatPreset(msgspec.Struct, frozen=True):
    """A known server: its URL, the environment variables for its key, and its flags."""

    base_url: str
    keys: tuple[str, ...] = ()
    quirks: Quirks = Quirks()


OPENAI_URL = "https://api.openai.com/v1"
_OPENAI = Quirks(max_tokens_field="max_completion_tokens", call_ids="forty", cache_key=True, output_with_tools=True)
# OpenAI's models on Azure; every customer has a URL of their own. The dated API versions do not know prompt_cache_key.
_AZURE = Quirks(max_tokens_field="max_completion_tokens", output_with_tools=True)

CHAT_PRESETS: dict[str, ChatPreset] = {
    "azure-chat": ChatPreset("", ("AZURE_OPENAI_API_KEY",), _AZURE),
    "openai-chat": ChatPreset(OPENAI_URL, ("OPENAI_API_KEY",), _OPENAI),
    "openrouter": ChatPreset(
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        Quirks(thinking="openrouter", replay_reasoning="always", output_with_tools=True),
    ),
    "deepseek": ChatPreset(
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        Quirks(
            replay_reasoning="always",
            require_reasoning="reasoning_content",
            thinking="switch",
            output_format="json_object",
            output_with_tools=True,
        ),
    ),
    "groq": ChatPreset("https://api.groq.com/openai/v1", ("GROQ_API_KEY",), Quirks(replay_reasoning="never")),
    "mistral": ChatPreset(
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        Quirks(
            seed_field="random_seed",
            call_ids="nine",
            empty_content="empty",
            replay_reasoning="never",
            thinking="none",
            stream_usage=False,
            required_choice="any",
            tool_result_name=True,
            assistant_after_tool=True,
            finish_reasons={"model_length": "length"},
        ),
    ),
    "xai": ChatPreset(
        "https://api.x.ai/v1", ("XAI_API_KEY",), Quirks(replay_reasoning="never", output_with_tools=True)
    ),
    "together": ChatPreset(
        "https://api.together.xyz/v1", ("TOGETHER_API_KEY",), Quirks(finish_reasons={"eos": "stop"})
    ),
    "fireworks": ChatPreset("https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",)),
    "moonshot": ChatPreset(
        "https://api.moonshot.ai/v1",
        ("MOONSHOT_API_KEY",),
        Quirks(empty_content="omit", require_reasoning="reasoning_content"),
    ),
    "ollama": ChatPreset("http://127.0.0.1:11434/v1", (), Quirks(empty_content="empty")),
    "vllm": ChatPreset("http://127.0.0.1:8000/v1", ("VLLM_API_KEY",), Quirks(thinking="template")),
    "llamacpp": ChatPreset("http://127.0.0.1:8080/v1", ("LLAMA_API_KEY",), Quirks(thinking="template")),
    "lmstudio": ChatPreset("http://127.0.0.1:1234/v1", ()),
}
"""Servers known by name."""

_PLAIN = Quirks()
# Anthropic's own endpoint for this protocol takes the ids that its Messages API takes.
_CLAUDE = Quirks(call_ids="forty")
# Gateways forward the request unchanged, and these OpenAI models refuse `max_tokens` everywhere.
_BEHIND = Quirks(max_tokens_field="max_completion_tokens")
_NEW_LIMIT = re.compile(r"(?:openai/)?(?:o\d|gpt-5)")
# Wherever these models run, but for Mistral itself, their chat template refuses a user message behind a tool result or
# behind another one, such as one whose answer was stopped.
_MISTRAL = re.compile(r"mistral|ministral|devstral|codestral|magistral|pixtral", re.IGNORECASE)
_GEMMA = re.compile(r"gemma", re.IGNORECASE)
# Servers that refuse a conversation in the plain form, recognised also when only their address is given.
_HOSTS = {"mistral": (".mistral.ai",), "deepseek": (".deepseek.com",), "moonshot": (".moonshot.ai", ".moonshot.cn")}
_FLAGS = frozenset(Quirks.__struct_fields__)


@memoize_by_identity
def find_quirks(model: Model) -> Quirks:
    """Return the flags for a model: the preset of its provider, overridden by its settings."""
    given = {name: value for name, value in model.settings.items() if name in _FLAGS}
    quirks = _find_preset_quirks(model)
    if _MISTRAL.search(model.id) and not quirks.assistant_after_tool:
        quirks = msgspec.structs.replace(quirks, assistant_after_tool=True, assistant_after_user=True)
    elif _GEMMA.search(model.id):
        quirks = msgspec.structs.replace(quirks, assistant_after_user=True)
    return _apply_settings(quirks, given) if given else quirks


def _find_preset_quirks(model: Model) -> Quirks:
    preset = CHAT_PRESETS.get(model.provider)
    if preset is not None and (preset.quirks is not _OPENAI or _is_at(model.base_url, *_OPENAI_HOSTS)):
        return preset.quirks
    for name, hosts in _HOSTS.items():
        if _is_at(model.base_url, *hosts):
            return CHAT_PRESETS[name].quirks
    if _is_at(model.base_url, ".anthropic.com"):
        return _CLAUDE
    return _BEHIND if preset is not None and _NEW_LIMIT.match(model.id) else _PLAIN


def choose_output_mode(model: Model, request: Request, options: StreamOptions) -> OutputMode:
    """Choose how to ask this server for structured output."""
    del options
    quirks = find_quirks(model)
    if quirks.output_format == "none":
        return "words"
    apart = bool(request.tools) and not quirks.output_with_tools
    return "tool" if quirks.output_format == "tool" or apart else "schema"


# OpenAI and Azure use the newer field names.
_OPENAI_HOSTS = (".openai.com", ".azure.com")


@lru_cache(maxsize=256)
def _is_at(base_url: str | None, *hosts: str) -> bool:
    """Whether a URL is that of one of these hosts; no URL is OpenAI's."""
    from urllib.parse import urlsplit

    return f".{urlsplit(base_url or OPENAI_URL).hostname or ''}".endswith(hosts)


def _apply_settings(quirks: Quirks, given: Mapping[str, Any]) -> Quirks:
    try:
        return msgspec.convert({**msgspec.structs.asdict(quirks), **given}, Quirks)
    except msgspec.ValidationError as error:
        names = ", ".join(sorted(given))
        raise ValueError(f"Invalid setting of the model ({names}): {error}.") from error
