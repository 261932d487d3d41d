"""The checks of the values of `AgentLoopConfig`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from math import isfinite
from operator import attrgetter, is_
from typing import Any, Final

from steersman.context.compaction.config import ContextConfig
from steersman.context.convert import default_convert_to_llm
from steersman.policy.hooks import POLICY_SEAMS
from steersman.policy.limits import RepeatedCalls

# How each callable is called; the longest form first.
_CALLS: dict[str, tuple[tuple[str, ...], ...]] = {
    "stream_fn": (("model", "request", "options"),),
    "convert_to_llm": (("messages",),),
    "get_api_key": (("provider",), ()),
    "get_steering_messages": ((),),
    "get_follow_up_messages": ((),),
    "approve": (("call", "reason"), ("call",)),
    "clock": ((),),
    "new_id": (("kind",),),
}
WAIT: Final = "wait"
"""The value of `approve` that says: the application answers, by `agent.approve()` and `agent.deny()`."""

_ONE_OF: dict[str, tuple[str, ...]] = {
    "steering": ("skip", "cancel", "wait"),
    "length_policy": ("run_complete", "fail_all"),
    "first_turn_trigger": ("user", "sub_agent", "continuation", "branch"),
    "tool_choice": ("auto", "none", "required"),
    "thinking_level": ("off", "minimal", "low", "medium", "high"),
}
_SECONDS = ("tool_timeout", "gate_timeout", "approve_timeout", "cancel_grace")
_COUNTS = ("max_tokens", "max_tool_calls")
_NEEDED = ("cancel_grace", "max_tool_calls")
CHECKED = (
    *_ONE_OF, *_SECONDS, *_COUNTS, *POLICY_SEAMS, *_CALLS,
    "temperature", "repeated_calls", "approval", "message_provider", "input_filters", "events",
)  # fmt: skip
_read_checked = attrgetter(*CHECKED)


def check_config(config: Any, usual: Sequence[object]) -> None:
    """Raise `TypeError` or `ValueError` for the first wrong value; those of `CHECKED` need no look if all are usual."""
    _check_kind(config, "context_config", ContextConfig)
    if not all(map(is_, _read_checked(config), usual)):
        _check_all(config)


def _check_all(config: Any) -> None:
    for name, allowed in _ONE_OF.items():
        check_one_of(name, getattr(config, name), allowed)
    for name in (*_SECONDS, *_COUNTS):
        _check_amount(name, getattr(config, name))
    _check_kinds(config)
    for name in ("input_filters", *POLICY_SEAMS):
        _check_list(name, getattr(config, name))
    for name in _CALLS:
        if (call := getattr(config, name)) is not None:
            check_callable(name, call)
    _check_list("events", config.events)
    for name in config.events:
        check_one_of("events", name, ("request",))
    for item in config.input_filters:
        if not callable(item) and not hasattr(item, "filter"):
            raise TypeError(f"input_filters takes functions of one text, got {item!r}.")
        _check_signature("input_filters", item if callable(item) else item.filter, (("text",),))


def check_one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise `ValueError` unless the value is one of the allowed words."""
    if value not in allowed:
        raise ValueError(f"{name} is one of {', '.join(map(repr, allowed))}, got {value!r}.")


def check_callable(name: str, value: object) -> None:
    """Raise `TypeError` unless the value is `None` or a function that takes the arguments it will get."""
    if value is None or value is default_convert_to_llm:
        return
    if name == "approve" and value == WAIT:
        return
    if not callable(value):
        either = f", {WAIT!r} or None" if name == "approve" else ""
        raise TypeError(f"{name} takes a function{either}, got {value!r}.")
    _check_signature(name, value, _CALLS[name])


def _check_signature(name: str, function: Callable[..., Any], calls: Sequence[tuple[str, ...]]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-ins have no signature
        return
    problem = ""
    for arguments in calls:
        try:
            signature.bind(*arguments)
        except TypeError as error:
            problem = problem or str(error)
        else:
            return
    raise TypeError(f"{name} is called with ({', '.join(calls[0])}), but {function!r} does not fit: {problem}.")


def _check_amount(name: str, value: object) -> None:
    if value is None and name not in _NEEDED:
        return
    kinds = (int,) if name in _COUNTS else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or not isfinite(value) or value < 0:
        raise ValueError(f"{name} is a {'whole ' if name in _COUNTS else ''}number from 0 on, got {value!r}.")


def _check_list(name: str, value: object) -> None:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name} comes as a list, such as {name}=[first, second], got {value!r}.")


def _check_kind(config: Any, name: str, kind: type) -> None:
    value = getattr(config, name)
    if value is not None and not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{name} is {article} {kind.__name__}(...) or None, got {value!r}.")


def _check_kinds(config: Any) -> None:
    temperature: object = config.temperature
    if temperature is not None and (not isinstance(temperature, int | float) or isinstance(temperature, bool)):
        raise TypeError(f"temperature is a number or None, got {temperature!r}.")
    _check_kind(config, "repeated_calls", RepeatedCalls)
    if config.approval is not None:
        from steersman.policy.approval import Approval  # only who has one pays for it

        _check_kind(config, "approval", Approval)
    provider, methods = config.message_provider, ("poll_steering", "poll_follow_up")
    if provider is not None and not all(callable(getattr(provider, method, None)) for method in methods):
        raise TypeError(f"message_provider has the methods {' and '.join(methods)}, got {provider!r}.")
