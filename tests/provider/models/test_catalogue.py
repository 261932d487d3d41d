from __future__ import annotations

import subprocess
import sys

import pytest

from steersman.provider.models.catalogue import Facts, describe, find_facts
from steersman.provider.models.registry import get_model
from steersman.types.model import Model
from steersman.types.usage import Prices, Usage, add_cost

SONNET = Prices(3.0, 15.0, 0.3, 3.75)


@pytest.fixture(autouse=True)
def usual_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_a_known_model_has_its_window_and_its_prices() -> None:
    pytest.importorskip("genai_prices")
    model = get_model("anthropic:claude-sonnet-4-5")
    assert (model.context_window, model.prices) == (200_000, SONNET)


def test_the_same_model_has_the_same_facts_over_both_protocols_of_openai() -> None:
    pytest.importorskip("genai_prices")
    facts = find_facts("openai", "gpt-5-mini")
    assert facts == find_facts("openai-chat", "gpt-5-mini")
    assert facts.context_window == 400_000
    assert facts.prices is not None


@pytest.mark.parametrize("name", ["anthropic:claude-nobody-made", "ollama:qwen3", "somebody:something"])
def test_an_unknown_model_works_with_unknown_cost_never_zero(name: str) -> None:
    model = get_model(name)
    assert (model.context_window, model.prices) == (None, None)
    assert add_cost(Usage(input=10, output=5), model.prices).cost is None


def test_what_is_given_goes_over_what_is_known() -> None:
    model = get_model("anthropic:claude-sonnet-4-5", context_window=1_000_000, prices=Prices(1, 2))
    assert (model.context_window, model.prices) == (1_000_000, Prices(1, 2))


def test_a_model_made_by_hand_stays_as_it_was_made() -> None:
    model = Model("anthropic", "claude-sonnet-4-5")
    assert get_model(model) is model


def test_behind_another_address_the_list_price_is_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """api.md, rulings: by the list price of the model's id, also behind a `base_url`; the window may be another."""
    listed = get_model("openai-chat:gpt-5-mini")
    behind = get_model("openai-chat:gpt-5-mini", base_url="http://127.0.0.1:8000/v1")
    assert listed.prices is not None
    assert (behind.prices, behind.context_window) == (listed.prices, None)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    assert get_model("openai-chat:gpt-5-mini").prices == listed.prices
    assert get_model("openai-chat:qwen3", base_url="http://127.0.0.1:8000/v1").prices is None


def test_own_facts_go_over_the_packages_and_leave_the_rest() -> None:
    describe("anthropic:claude-test-catalogue", context_window=7)
    describe("anthropic:claude-test-catalogue", prices=Prices(1, 2))
    assert find_facts("anthropic", "claude-test-catalogue") == Facts(7, None, Prices(1, 2))
    model = get_model("anthropic:claude-test-catalogue")
    assert (model.context_window, model.prices) == (7, Prices(1, 2))


def test_without_the_package_everything_works_and_costs_are_unknown() -> None:
    program = (
        "import sys; sys.modules['genai_prices'] = None\n"
        "from steersman import get_model\n"
        "model = get_model('anthropic:claude-sonnet-4-5')\n"
        "print(model.context_window, model.prices)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("None None", "")


def test_importing_and_naming_a_local_model_loads_neither_prices_nor_http() -> None:
    program = (
        "import sys; from steersman import get_model\n"
        "get_model('ollama:m'); get_model('vllm:m', base_url='http://127.0.0.1:1/v1')\n"
        "print([name for name in ('genai_prices', 'aiohttp', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
