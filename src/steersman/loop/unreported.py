"""The usage of answers for which the server reported none: an estimate counts against the limits of tokens and cost."""

from __future__ import annotations

from steersman.loop.run import Run
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model
from steersman.types.usage import Prices, Usage, add_cost


def count_unreported(run: Run, message: AssistantMessage, sent: int) -> None:
    """Add an estimate for an answer to a run; `sent` is about how many tokens its request had."""
    written = run.context.log.estimator(message)
    estimate = add_cost(Usage(input=sent, output=written), _find_prices(run, message))
    run.add_usage(message.usage, estimated_tokens=sent + written, estimated_cost=estimate.cost or 0.0)


def _find_prices(run: Run, message: AssistantMessage) -> Prices | None:
    """The prices of the model that gave an answer, which may be a fallback."""
    models = [run.config.model, *[model for model in run.config.fallbacks if isinstance(model, Model)]]
    asked = [model for model in models if (model.id, model.provider) == (message.model, message.provider)]
    return (asked or models)[0].prices
