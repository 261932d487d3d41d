"""The limits of a run, and whether a budget can be enforced: a price must be known for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.setup.settings import Settings
from steersman.policy.limits import ExecutionLimits
from steersman.provider.models.catalogue import find_facts
from steersman.provider.models.presets import PRESETS
from steersman.types.model import Model

MAX_TURNS = 200
"""The default limit of turns per run."""


def build_limits(
    options: Options, settings: Settings, models: Sequence[Model], notify: Callable[[str], None]
) -> ExecutionLimits:
    """Builds the limits of a run. Only turns have a default limit, because a person is there to stop a run.

    A budget must hold for each of the models, fallbacks included.
    """
    budget = options.max_budget_usd or settings.max_budget_usd
    for model in models if budget is not None else ():
        if has_unknown_price(model):
            text = explain_missing_budget(model)
            if options.max_budget_usd is not None:
                raise UserError(f"{text} Leave --max-budget-usd out.{_suggest_prices()}", code=2)
            notify(text)
    return ExecutionLimits(
        max_turns=options.max_turns or settings.max_turns or MAX_TURNS,
        max_total_tokens=None,
        max_duration=options.max_duration or settings.max_duration,
        max_cost=budget,
    )


def add_usual_prices(model: Model) -> Model:
    """Adds the provider's usual prices if those at the model's URL are unknown, so that a budget has a good guess."""
    if model.prices is not None:
        return model
    return replace(model, prices=find_facts(model.provider, model.id).prices)


def has_unknown_price(model: Model) -> bool:
    """Whether the model costs money and its price is unknown."""
    preset = PRESETS.get(model.provider)
    return model.prices is None and preset is not None and preset.key_required


def explain_missing_budget(model: Model) -> str:
    """Explains that a budget cannot be enforced for a model."""
    return f"The prices of {model.name} are unknown, so a budget cannot be enforced."


def _suggest_prices() -> str:
    missing = find_spec("genai_prices") is None
    return " Prices come with: pip install 'steersman[prices]'" if missing else ""
