"""The arguments of `Agent`: checks their names and values, and builds the configuration from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from steersman.loop.config import AgentLoopConfig
from steersman.loop.output import OutputPolicy
from steersman.policy.limits import ExecutionLimits
from steersman.provider.models.registry import get_model
from steersman.provider.streaming.retry import Retry

DEFAULT_LIMITS = ExecutionLimits()
DEFAULT_RETRY = Retry()
# Two options of AgentLoopConfig have a shorter name in Agent.
_OWN_NAMES = {"execution_limits": "limits", "retry_strategy": "retry"}


def check_options(names: Iterable[str]) -> None:
    """Raise `TypeError` for the first name that is not an option of `Agent`."""
    known = {field.name for field in fields(AgentLoopConfig) if field.init}
    for name in names:
        if name in _OWN_NAMES:
            raise TypeError(
                f"Agent() has no option {name!r}. Use {_OWN_NAMES[name]!r}: Agent(..., {_OWN_NAMES[name]}=...)."
            )
        if name not in known:
            raise TypeError(f"Agent() has no option {name!r}. The options are those of Agent and AgentLoopConfig.")


def apply_changes(config: AgentLoopConfig, changes: Mapping[str, Any]) -> AgentLoopConfig:
    """The configuration with some options of an agent changed."""
    given = dict(changes)
    place = {name: given.pop(name, None) for name in ("base_url", "api_key")}
    model = get_model(given.pop("model", config.model), **place)
    renamed = {name: given.pop(own) for name, own in _OWN_NAMES.items() if own in given}
    check_options(given)
    for name, usual in (("execution_limits", DEFAULT_LIMITS), ("retry_strategy", DEFAULT_RETRY)):
        if name in renamed and renamed[name] is None:
            renamed[name] = usual
    return replace(config, model=model, **given, **renamed)


def copy_output_policy(config: AgentLoopConfig) -> OutputPolicy | None:
    """A fresh copy of the output policy in this configuration, if it has one: each agent needs its own."""
    found = next((policy for policy in config.post_loop_policies if isinstance(policy, OutputPolicy)), None)
    return None if found is None else found.copy_fresh()


def add_output_policy(config: AgentLoopConfig, output: OutputPolicy) -> AgentLoopConfig:
    """The configuration with an output policy: the agent answers with a JSON value of its type."""
    return replace(
        config,
        output_schema=output.form.schema,
        output_instruction=output.form.instruction,
        post_loop_policies=[*config.post_loop_policies, output],
    )


def remove_output_policy(config: AgentLoopConfig) -> AgentLoopConfig:
    """The configuration without an output policy: the agent answers with text."""
    others = [policy for policy in config.post_loop_policies if not isinstance(policy, OutputPolicy)]
    return replace(config, output_schema=None, output_instruction="", post_loop_policies=others)


def check_entry(tag: object, at: object) -> None:
    """Raise `TypeError` unless these can be the tag of a continuation and the entry it goes on from."""
    if tag is not None and not isinstance(tag, str):
        raise TypeError(f"A tag is a string, got {tag!r}. An entry is given as at=...")
    if at is not None and (isinstance(at, bool) or not isinstance(at, str | int)):
        raise TypeError(f"An entry is given by its id, its label or its index in messages, got {at!r}.")
