"""The presets: base URL, wire protocol and environment variables of each provider known by name.

get_model("groq:llama-3.3-70b-versatile")                            # reads GROQ_API_KEY, and GROQ_BASE_URL if set
add_preset("acme", Preset("openai-chat", "https://llm.acme.example/v1", ("ACME_API_KEY",)))
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from steersman.provider.wires.openai_chat import quirks as chat

Protocol: TypeAlias = Literal["anthropic", "bedrock", "google", "openai", "openai-chat"]


class Preset(msgspec.Struct, frozen=True):
    """A provider. `keys` and `addresses` are the environment variables for its key and its base URL, in order.

    `key_required`: a request without a key cannot succeed. `settings` are defaults for the settings of a model.
    `hosts` are ends of the host names under which the provider itself answers, where every customer has a URL of their
    own. `secrets` are environment variables that hold secrets beside the key; like keys, they are never shown.
    `sign_in` names the credentials that are used where there is no key.
    """

    protocol: Protocol
    base_url: str
    keys: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    key_required: bool = True
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    sign_in: str | None = None

    def is_own_url(self, url: str | None) -> bool:
        """Whether a URL is one of the provider itself; `None` is its default."""
        if url is None or url.rstrip("/") == self.base_url:
            return True
        return bool(self.hosts) and f".{_find_host(url)}".endswith(self.hosts)


def _find_host(url: str) -> str:
    from urllib.parse import urlsplit

    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


# A model on the user's own machine may need minutes to read a long prompt.
_PATIENT = {"first_byte_timeout": 1800.0, "idle_timeout": 600.0}
# Servers on loopback need no key.
_LOCAL = ("ollama", "vllm", "llamacpp", "lmstudio", "sglang")

# Chat Completions servers that need no flags; those that do are in `CHAT_PRESETS` of `wires/openai_chat/quirks.py`.
_WITHOUT_QUIRKS = {
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "huggingface": ("https://router.huggingface.co/v1", "HF_TOKEN"),
    "nvidia": ("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "perplexity": ("https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    "sambanova": ("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    "sglang": ("http://127.0.0.1:30000/v1", "SGLANG_API_KEY"),
    "zai": ("https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
}


_AZURE = Preset(
    "openai",
    "",
    ("AZURE_OPENAI_API_KEY",),
    ("AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"),
    hosts=(".azure.com", ".azure.us", ".azure.cn"),
    secrets=("AZURE_OPENAI_AD_TOKEN", "AZURE_CLIENT_SECRET"),
)
_VERTEX = Preset(
    "google",
    "https://aiplatform.googleapis.com",
    ("GOOGLE_CLOUD_API_KEY",),
    ("VERTEX_BASE_URL",),
    hosts=(".googleapis.com",),
    secrets=("CLOUDSDK_AUTH_ACCESS_TOKEN",),
    sign_in="application default credentials",
)
_BEDROCK = Preset(
    "bedrock",
    "https://bedrock-runtime.us-east-1.amazonaws.com",  # every region has its own
    ("AWS_BEARER_TOKEN_BEDROCK",),
    ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
    hosts=(".amazonaws.com", ".amazonaws.com.cn", ".api.aws"),
    secrets=("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"),
    sign_in="credentials of AWS",
)


def _build_presets() -> dict[str, Preset]:
    known = {
        "anthropic": Preset("anthropic", "https://api.anthropic.com", ("ANTHROPIC_API_KEY",), ("ANTHROPIC_BASE_URL",)),
        "openai": Preset("openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)),
        "google": Preset(
            "google",
            "https://generativelanguage.googleapis.com/v1beta",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            ("GEMINI_BASE_URL", "GOOGLE_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
        ),
    }
    places = {name: (preset.base_url, preset.keys) for name, preset in chat.CHAT_PRESETS.items()}
    places |= {name: (url, (key,)) for name, (url, key) in _WITHOUT_QUIRKS.items() if name not in places}
    for name, (url, keys) in places.items():
        local = name in _LOCAL
        address = "OPENAI_BASE_URL" if name == "openai-chat" else f"{name.upper()}_BASE_URL"
        settings = _PATIENT if local else {}
        known[name] = Preset("openai-chat", url, keys, (address,), key_required=not local, settings=settings)
    known["azure"] = _AZURE
    known["azure-chat"] = msgspec.structs.replace(_AZURE, protocol="openai-chat")
    known["bedrock"] = _BEDROCK
    known["vertex"] = _VERTEX
    return known


PRESETS: dict[str, Preset] = _build_presets()
"""The presets by provider name."""


def add_preset(name: str, preset: Preset) -> None:
    """Add or replace a provider; `name:model-id` then uses it."""
    PRESETS[name] = preset


CREDENTIALS_ADVICE = (
    "Give a key as api_key=..., or what else the server asks for as headers={'authorization': 'Basic ...'}."
)
"""What to do instead of putting a password into a URL, where logs and proxies would show it."""


def find_base_url(provider: str, given: str | None = None) -> str | None:
    """The base URL of a provider, without a slash at the end: `given`, the environment's, or its default."""
    preset = PRESETS.get(provider)
    url = given
    if not url and preset is not None:
        url = next((value for name in preset.addresses if (value := os.environ.get(name, "").strip())), preset.base_url)
    return url.strip().rstrip("/") if url else None
