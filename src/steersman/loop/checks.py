"""What a configuration may hold. Whoever wrote a wrong one hears of it where they wrote it, not in the run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from steersman.context.compaction.compact import ContextConfig
from steersman.policy.hooks import POLICY_SEAMS
from steersman.policy.limits import ExecutionLimits
from steersman.policy.repetition import RepeatedCalls

# How each callable is called; the longest form first.
_CALLS: dict[str, tuple[tuple[str, ...], ...]] = {
    "stream_fn": (("model", "request", "options"),),
    "convert_to_llm": (("messages",),),
    "transform_context": (("messages", "overflow"), ("messages",)),
    "async_transform_context": (("messages", "overflow"), ("messages",)),
    "get_api_key": (("provider",), ()),
    "get_steering_messages": ((),),
    "get_follow_up_messages": ((),),
    "approve": (("call", "reason"), ("call",)),
}
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


def check_config(config: Any) -> None:
    """Raise `TypeError` or `ValueError` for the first setting that cannot be meant."""
    for name, allowed in _ONE_OF.items():
        check_one_of(name, getattr(config, name), allowed)
    for name in (*_SECONDS, *_COUNTS):
        _check_amount(name, getattr(config, name))
    _check_kinds(config)
    for name in ("input_filters", *POLICY_SEAMS):
        _check_list(name, getattr(config, name))
    for name in _CALLS:
        check_callable(name, getattr(config, name))
    for item in config.input_filters:
        if not callable(item) and not hasattr(item, "filter"):
            raise TypeError(f"input_filters takes functions of one text, got {item!r}.")
        _check_signature("input_filters", item if callable(item) else item.filter, (("text",),))


def check_one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """A word out of a few."""
    if value not in allowed:
        raise ValueError(f"{name} is one of {', '.join(map(repr, allowed))}, got {value!r}.")


def check_callable(name: str, value: object) -> None:
    """A function that can be called as it will be called, or nothing."""
    if value is None:
        return
    if not callable(value):
        raise TypeError(f"{name} takes a function, got {value!r}.")
    _check_signature(name, value, _CALLS[name])


def _check_signature(name: str, function: Callable[..., Any], calls: Sequence[tuple[str, ...]]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-ins do not tell
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
        raise TypeError(f"{name} is a {kind.__name__}(...) or None, got {value!r}.")


def _check_kinds(config: Any) -> None:
    temperature: object = config.temperature
    if temperature is not None and (not isinstance(temperature, int | float) or isinstance(temperature, bool)):
        raise TypeError(f"temperature is a number or None, got {temperature!r}.")
    for name, kind in (
        ("execution_limits", ExecutionLimits),
        ("context_config", ContextConfig),
        ("repeated_calls", RepeatedCalls),
    ):
        _check_kind(config, name, kind)
    if config.approval is not None:
        from steersman.policy.approval import Approval  # only who has one pays for it

        _check_kind(config, "approval", Approval)
    for name, methods in (
        ("retry_strategy", ("should_retry", "delay")),
        ("message_provider", ("poll_steering", "poll_follow_up")),
    ):
        value = getattr(config, name)
        if value is not None and not all(callable(getattr(value, method, None)) for method in methods):
            raise TypeError(f"{name} has the methods {' and '.join(methods)}, got {value!r}.")
