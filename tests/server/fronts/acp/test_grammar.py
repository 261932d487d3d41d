"""The grammar of ACP over generated runs: errors, cuts, cancels and questions anywhere (server.md 5)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.fronts.acp.kit import NO, YES, Editor, Message, ScriptedFolders, open_editor
from tests.server.fronts.plays import GRAMMAR, Script, scripts_with_sub_agent

from steersman.types.messages import user_message

pytestmark = pytest.mark.real_time
FINAL = ("completed", "failed")
_ANSWERS = [YES, NO, {"outcome": {"outcome": "cancelled"}}, {"code": -32000, "message": "no"}]


_PLACES = st.none() | st.integers(1, 30)


@GRAMMAR
@given(scripts_with_sub_agent(), st.lists(st.sampled_from(_ANSWERS), min_size=1, max_size=4), _PLACES, _PLACES)
async def test_every_prompt_has_one_response_and_every_call_ends_before_it(
    script: Script, answers: list[Any], cancel_at: int | None, steer_at: int | None
) -> None:
    """Exactly one response per request, nothing after it, and what was told live is what load tells."""
    async with open_editor(ScriptedFolders(lambda _: script.make_agent())) as editor:
        session = await editor.start(Path("/"))
        given = list(answers)
        editor.answer = lambda _: given.pop(0) if len(given) > 1 else given[0]
        for number in range(2):
            before = len(editor.messages)
            prompt = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Go."}])
            if steer_at is not None and number == 0:
                await editor.wait_for(partial(is_time, editor, before + steer_at, prompt), before)
                live = editor.front.sessions[session].live
                if live.agent.is_running:
                    await live.steer(user_message("Left."))
            if cancel_at is not None and number == 0:
                await editor.wait_for(partial(is_time, editor, before + cancel_at, prompt), before)
                editor.send({"method": "session/cancel", "params": {"sessionId": session}})
            await editor.wait_for_answer(prompt)
            check_turn(editor.messages[before:], prompt, cancelled=cancel_at is not None and number == 0)
        before = len(editor.messages)
        load = editor.ask("session/load", sessionId=session, cwd="/", mcpServers=[])
        await editor.wait_for_answer(load)
        check_turn(editor.messages[before:], load, cancelled=False)
        check_statuses(editor)


def is_time(editor: Editor, at: int, prompt: int, message: Message) -> bool:
    """Whether enough messages have come, or the last one."""
    return len(editor.messages) >= at or message.get("id") == prompt


def check_turn(messages: list[Message], request: int, *, cancelled: bool) -> None:
    """One response at the end; a tool call is announced once, before its updates, and ends before the response."""
    responses = [at for at, one in enumerate(messages) if one.get("id") == request and "method" not in one]
    assert responses == [len(messages) - 1]
    response = messages[-1]
    if "result" in response and "stopReason" in response["result"]:
        assert response["result"]["stopReason"] in ("end_turn", "cancelled", "max_tokens", "refusal")
    if not cancelled and "result" in response:
        assert response["result"].get("stopReason") != "cancelled"
    open_calls: dict[str, str] = {}
    for one in messages[:-1]:
        if one["method"] == "session/request_permission":
            assert one["params"]["toolCall"]["toolCallId"] in open_calls
            continue
        update = one["params"]["update"]
        if update["sessionUpdate"] == "tool_call":
            assert update["toolCallId"] not in open_calls, "announced twice"
            open_calls[update["toolCallId"]] = update["status"]
        elif update["sessionUpdate"] == "tool_call_update":
            assert open_calls[update["toolCallId"]] not in FINAL, "an update after its end"
            open_calls[update["toolCallId"]] = update.get("status", open_calls[update["toolCallId"]])
    assert set(open_calls.values()) <= set(FINAL), "a call without an end"


def check_statuses(editor: Editor) -> None:
    """No call has two ends that differ, live or replayed."""
    ends: dict[str, set[str]] = {}
    for one in editor.updates:
        if one.get("status") in FINAL:
            ends.setdefault(one["toolCallId"], set()).add(one["status"])
    assert all(len(found) == 1 for found in ends.values()), ends
