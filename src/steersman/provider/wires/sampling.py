"""Which of the options `top_p`, `stop` and `seed` a protocol or a model does not take.

An option that a server would refuse, or that could only be dropped, is refused before anything is sent. A temperature
is left out where Claude takes none, and the log says so once.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any, cast

from steersman.types.errors import InvalidRequestError
from steersman.types.model import Model, StreamOptions

_log = logging.getLogger("steersman")
_NO_SAMPLING = (4, 7)
_ONE_OF_TWO = (4, 1)
_MIN_TOP_P_WITH_THINKING = 0.95


def find_refusal(protocol: str, model: Model, options: StreamOptions) -> str | None:
    """Why one of the options cannot be sent to this model, and what to do; `None` if all of them can."""
    if options.top_p is None and not options.stop and options.seed is None:
        return None
    if model.provider == "vertex" and model.id.rpartition("/")[2].startswith("claude"):
        protocol = "anthropic"
    match protocol:
        case "anthropic":
            return _find_anthropic_refusal(model, options)
        case "bedrock":
            return _find_bedrock_refusal(model, options)
        case "openai":
            return _find_responses_refusal(model, options)
        case _:
            return None


def require_accepted(protocol: str, model: Model, options: StreamOptions) -> None:
    """Raise `InvalidRequestError` if one of the options cannot be sent to this model."""
    refusal = find_refusal(protocol, model, options)
    if refusal is not None:
        raise InvalidRequestError(refusal, provider=model.provider)


@lru_cache(maxsize=256)
def warn_of_temperature(model: str, when: str) -> None:
    """Log that a temperature is not sent, once for each model: programs set one for all models that they may ask."""
    _log.warning(
        "%s takes no temperature %s: it is left out, and the model uses its own. Leave it out, or%s use another model.",
        model,
        when,
        " set thinking_level='off' or" if when == "while it thinks" else "",
    )


def check_top_p(value: Any) -> None:
    """Raise `ValueError` unless the value is `None` or a probability."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1):
        raise ValueError(f"top_p is a number from 0 to 1 or None, got {value!r}.")


def check_stop(value: Any) -> None:
    """Raise `TypeError` or `ValueError` unless the value is `None` or a list of texts to stop at."""
    if value is None:
        return
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise TypeError(f"stop comes as a list of texts, such as stop=['END'], got {value!r}.")
    for text in cast(list[object], value):
        if not isinstance(text, str) or not text:
            raise ValueError(f"stop is a list of texts that are not empty, got {text!r} in it.")


def check_seed(value: Any) -> None:
    """Raise `TypeError` unless the value is `None` or a whole number."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"seed is a whole number or None, got {value!r}.")


def _find_anthropic_refusal(model: Model, options: StreamOptions) -> str | None:
    from steersman.provider.wires.anthropic.schema import parse_version  # only this protocol needs it

    if options.seed is not None:
        return (
            f"{model.name!r} takes no seed: the Messages API has none. Leave it out, or use a provider that has one, "
            "such as 'openai-chat' or 'google'."
        )
    blank = next((text for text in options.stop if not text.strip()), None)
    if blank is not None:
        return f"{model.name!r} takes no stop sequence of white space alone, got {blank!r}."
    if options.top_p is None:
        return None
    version = parse_version(model.id)
    if version is not None and version >= _NO_SAMPLING:
        return f"{model.name!r} takes no top_p: from Claude 4.7 on the model chooses its sampling. Leave it out."
    if options.thinking_level != "off":
        if options.top_p < _MIN_TOP_P_WITH_THINKING:
            return (
                f"{model.name!r} takes a top_p from {_MIN_TOP_P_WITH_THINKING} to 1 while it thinks, "
                f"got {options.top_p!r}. Leave it out, or set thinking_level='off'."
            )
    elif options.temperature is not None and version is not None and version >= _ONE_OF_TWO:
        return f"{model.name!r} takes temperature or top_p, not both. Leave one of them out."
    return None


def _find_bedrock_refusal(model: Model, options: StreamOptions) -> str | None:
    if options.seed is not None:
        return f"{model.name!r} takes no seed: the Converse API has none. Leave it out."
    return _find_anthropic_refusal(model, options) if "claude" in model.id else None


def _find_responses_refusal(model: Model, options: StreamOptions) -> str | None:
    name = "stop" if options.stop else "seed" if options.seed is not None else None
    if name is None:
        return None
    chat = "azure-chat" if model.provider == "azure" else "openai-chat"
    return (
        f"{model.name!r} takes no {name}: the Responses API has none. Leave it out, "
        f"or use Chat Completions: '{chat}:{model.id}'."
    )
