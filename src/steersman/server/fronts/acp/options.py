"""What an editor may choose for a session: the mode of its approvals, the model, and how much it thinks."""

from __future__ import annotations

from typing import Any, Final, cast, get_args

from steersman.policy.approval import Mode
from steersman.server.fronts.acp.editor_sessions import OpenSession
from steersman.server.fronts.json_rpc import INVALID_PARAMS, RpcError

THINKING: Final = ("off", "minimal", "low", "medium", "high")
_MODES: dict[Mode, tuple[str, str]] = {
    "ask": ("Ask", "Reading is allowed; everything else is asked about."),
    "accept-edits": ("Accept edits", "Changes of files in the folder are allowed as well."),
    "plan": ("Plan", "Nothing may be changed."),
    "bypass": ("Bypass", "Everything is allowed except what a rule denies."),
}


def describe_modes(session: OpenSession) -> dict[str, Any] | None:
    """The modes and the current one; `None` for an agent without a policy."""
    if session.approval is None:
        return None
    modes = [{"id": id, "name": name, "description": text} for id, (name, text) in _MODES.items()]
    return {"currentModeId": session.approval.mode, "availableModes": modes}


def describe_options(session: OpenSession) -> list[dict[str, Any]]:
    """The options and their current values."""
    agent = session.live.agent
    models = list(dict.fromkeys([agent.model.name, *session.place.models]))
    options = [
        _make_select("model", "Model", "model", agent.model.name, [(name, name, "") for name in models]),
        _make_select(
            "thinking", "Thinking", "thought_level", agent.thinking_level, [(one, one, "") for one in THINKING]
        ),
    ]
    if session.approval is not None:
        values = [(id, name, text) for id, (name, text) in _MODES.items()]
        options.insert(0, _make_select("mode", "Mode", "mode", session.approval.mode, values))
    return options


def set_mode(session: OpenSession, mode: str) -> None:
    """Change the mode; raises `RpcError` for one that does not exist."""
    if session.approval is None or mode not in get_args(Mode):
        raise RpcError(INVALID_PARAMS, f"There is no mode {mode!r:.100} here.")
    session.approval.mode = cast(Mode, mode)


def apply_option(session: OpenSession, name: str, value: str | bool) -> None:
    """Change an option; raises `RpcError` for a value that is not offered."""
    option = next((one for one in describe_options(session) if one["id"] == name), None)
    if option is None or value not in [one["value"] for one in option["options"]]:
        raise RpcError(INVALID_PARAMS, f"The option {name!r:.100} has no value {value!r:.100}.")
    match name:
        case "mode":
            set_mode(session, str(value))
        case "model":
            session.live.agent.configure(model=str(value))
        case _:
            session.live.agent.configure(thinking_level=cast(Any, value))


def _make_select(id: str, name: str, category: str, value: str, options: list[tuple[str, str, str]]) -> dict[str, Any]:
    offered = [{"value": one, "name": shown, **({"description": text} if text else {})} for one, shown, text in options]
    return {"id": id, "name": name, "category": category, "type": "select", "currentValue": value, "options": offered}
