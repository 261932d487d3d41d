"""`ctx.emit` and `agent.emit`: the application's own events, in the order and with the ids of the run."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from steersman.loop.ending import Phase
from steersman.loop.run import Run
from steersman.tools.threads import is_running_in
from steersman.types.events import CustomEvent


def emit_custom(run: Run, name: str, data: Any) -> None:
    """Emit a `custom` event, from any thread; raises `RuntimeError` if the run has ended.

    The data is copied at once, as JSON values: the caller may go on changing what it gave.
    """
    _check_name(name)
    if run.ending.is_closing:
        raise RuntimeError(
            f"emit({name!r}) comes too late: its run has ended, and an event belongs to a run. "
            "Emit it between agent_start and agent_end."
        )
    copied = msgspec.to_builtins(data, enc_hook=repr)
    loop = None if run.task is None else run.task.get_loop()
    if loop is None or is_running_in(loop):
        _emit_in_order(run, name, copied)
    else:
        run.post(partial(run.emit, CustomEvent, name=name, data=copied))


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"The name of a custom event is a string, got {name!r}.")
    if not name.strip():
        raise ValueError(f"A custom event needs a name, got {name!r}.")


def _emit_in_order(run: Run, name: str, data: Any) -> None:
    """Emit the event, after `agent_start` and after the event that is being dispatched."""
    if run.ending.phase is Phase.NEW or run.dispatcher.dispatching:
        run.held.append((name, data))
        run.dispatcher.has_held_events = run.dispatcher.dispatching
    else:
        run.emit(CustomEvent, name=name, data=data)
