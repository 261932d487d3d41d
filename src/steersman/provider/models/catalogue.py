"""The catalogue: context windows and prices of models by name, from the package `genai-prices` if it is installed.

    pip install 'steersman[prices]'

Its data is part of the package; nothing is downloaded. A model it does not know works as well: its context window and
its prices are unknown, and so is the cost, which never counts as 0. `describe` sets facts of your own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from steersman.types.usage import Prices


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a model; `None` is unknown. Of prices that rise with the request's length, the lowest."""

    context_window: int | None = None
    max_output_tokens: int | None = None
    prices: Prices | None = None


UNKNOWN = Facts()

# Our provider names, and theirs in genai-prices. Servers on the user's own machine have no prices.
_PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "azure",
    "azure-chat": "azure",
    "bedrock": "aws",
    "cerebras": "cerebras",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "google": "google",
    "groq": "groq",
    "mistral": "mistral",
    "moonshot": "moonshotai",
    "openai": "openai",
    "openai-chat": "openai",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "together": "together",
    "vertex": "google",
    "xai": "x-ai",
    "zai": "zai",
}

# Of models with several regions, genai-prices names the prices by these; they are no ids that a server takes.
_NO_ID = ("regional.",)

_described: dict[tuple[str, str], Facts] = {}
_looked_up: dict[tuple[str, str], Facts] = {}


def describe(
    name: str,
    *,
    context_window: int | None = None,
    max_output_tokens: int | None = None,
    prices: Prices | None = None,
) -> None:
    """Set what is known about `"provider:model-id"` from now on; what is left out stays as it was."""
    provider, _, model_id = name.partition(":")
    known = find_facts(provider, model_id)
    _described[provider, model_id] = Facts(
        known.context_window if context_window is None else context_window,
        known.max_output_tokens if max_output_tokens is None else max_output_tokens,
        known.prices if prices is None else prices,
    )


def find_facts(provider: str, model_id: str) -> Facts:
    """What is known about a model at its provider's own server."""
    key = (provider, model_id)
    facts = _described.get(key) or _looked_up.get(key)
    if facts is None:
        there = _PROVIDERS.get(provider)
        facts = _looked_up[key] = UNKNOWN if there is None else _look_up(there, model_id)
    return facts


def list_known_models(provider: str) -> tuple[str, ...]:
    """The ids of the known models of a provider, sorted; empty for an unknown provider."""
    described = {model_id for name, model_id in _described if name == provider}
    priced = {id for id in _list_priced_models(_PROVIDERS.get(provider)) if not id.startswith(_NO_ID)}
    return tuple(sorted(described | priced))


def _list_priced_models(provider: str | None) -> set[str]:
    try:
        from genai_prices.data_snapshot import get_snapshot

        found = [each for each in get_snapshot().providers if each.id == provider]
        return {model.id for each in found for model in each.models if not model.deprecated}
    except ImportError:
        return set()
    except Exception:  # noqa: BLE001  # another version of the package may look different, and a list is never worth a failure
        return set()


def _look_up(provider: str, model_id: str) -> Facts:
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return UNKNOWN
    try:
        _, found = get_snapshot().find_provider_model(model_id, None, provider, None)
        return Facts(found.context_window, None, _to_prices(found.get_prices(datetime.now(UTC))))
    except LookupError:
        return UNKNOWN
    except Exception:  # noqa: BLE001  # another version of the package may look different, and prices are never worth a failure
        return UNKNOWN


def _to_prices(prices: Any) -> Prices | None:
    names = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
    given, taken, read, written = (_get_base_price(getattr(prices, name, None)) for name in names)
    return None if given is None or taken is None else Prices(given, taken, read, written)


def _get_base_price(price: Any) -> float | None:
    if price is None:
        return None
    return float(getattr(price, "base", price))
