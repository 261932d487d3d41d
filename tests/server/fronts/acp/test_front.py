"""ACP over its raw messages: sessions, prompts, permissions, cancels, malformed input (server.md 5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.server.fronts.acp.kit import NO, YES, Editor, ScriptedFolders, open_editor

from steersman import Agent, Approval
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import builtin_tools

pytestmark = pytest.mark.real_time


async def test_initialize_tells_what_is_supported() -> None:
    async with open_editor() as editor:
        result = await editor.call("initialize", protocolVersion=99)
    assert result["protocolVersion"] == 1
    assert result["agentCapabilities"]["loadSession"]
    assert set(result["agentCapabilities"]["sessionCapabilities"]) == {"list", "resume", "fork", "close", "delete"}
    assert result["agentCapabilities"]["promptCapabilities"]["image"]


async def test_text_and_thinking_come_as_chunks_of_one_message(tmp_path: Path) -> None:
    async with open_editor() as editor:
        reason = await editor.say(await editor.start(tmp_path), "think")
    assert reason == "end_turn"
    assert (editor.join("agent_thought_chunk"), editor.join("agent_message_chunk")) == ("Hmm.", "Thought.")
    assert len({one["messageId"] for one in editor.updates if one["sessionUpdate"].endswith("_chunk")}) == 1
    assert "result" in editor.messages[-1], "nothing comes after the response"


async def test_the_folder_of_the_session_is_that_of_the_agent(tmp_path: Path) -> None:
    """Section 5: cwd is honoured (a peer ignored it): files are written there, and each session has its own."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with open_editor() as editor:
        for name in ("a", "b"):
            session = await editor.start(tmp_path / name)
            assert await editor.say(session, "write") == "end_turn"
            assert (tmp_path / name / "new.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("cwd", ["relative", "/no/such/folder", "", "/etc/passwd", "\0"])
async def test_a_folder_that_is_none_is_refused(cwd: str) -> None:
    async with open_editor() as editor:
        answer = await editor.wait_for_answer(editor.ask("session/new", cwd=cwd, mcpServers=[]))
    assert answer["error"]["code"] == -32602


async def test_a_change_is_shown_as_a_diff_with_its_place(tmp_path: Path) -> None:
    """Section 5: tool_call and tool_call_update have diffs and locations, in the question as well."""
    (tmp_path / "old.txt").write_text("a\nb\nc\n")
    (tmp_path / "new.txt").write_text("zero\none\n")
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        await editor.say(session, "edit")
        await editor.say(session, "write")
    edit, write = [one for one in editor.updates if one.get("status") == "completed"]
    path = str(tmp_path / "old.txt")
    diff = {"type": "diff", "path": path, "oldText": "b", "newText": "B"}
    assert edit["content"][0] == diff
    assert editor.questions[0]["toolCall"]["content"][0] == diff
    assert editor.questions[0]["toolCall"]["locations"] == [{"path": path}]
    assert editor.questions[0]["toolCall"]["kind"] == "edit"
    assert write["content"][0]["oldText"] == "zero\none\n"
    assert write["content"][0]["newText"] == "one\ntwo\n"
    assert (tmp_path / "old.txt").read_text() == "a\nB\nc\n"


async def test_a_question_is_answered_yes_or_no(tmp_path: Path) -> None:
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        await editor.say(session, "deploy")
        assert list(editor.last_statuses.values()) == ["completed"]
        editor.answer = lambda _: NO
        await editor.say(session, "deploy")
    assert list(editor.last_statuses.values()) == ["completed", "failed"]
    assert editor.join("agent_message_chunk").endswith("Not done.")
    kinds = [option["kind"] for option in editor.questions[0]["options"]]
    assert kinds == ["allow_once", "allow_always", "reject_once", "reject_always"]


@pytest.mark.parametrize(("option", "status"), [("allow_always", "completed"), ("reject_always", "failed")])
async def test_always_holds_for_the_same_call_of_the_session(tmp_path: Path, option: str, status: str) -> None:
    async with open_editor() as editor:
        editor.answer = lambda _: {"outcome": {"outcome": "selected", "optionId": option}}
        session = await editor.start(tmp_path)
        await editor.say(session, "deploy")
        await editor.say(session, "deploy")
    assert len(editor.questions) == 1
    assert list(editor.last_statuses.values()) == [status] * 2


async def test_a_client_that_cannot_answer_is_asked_once_and_denied_at_once(tmp_path: Path) -> None:
    """S8: never a silent wait; in a peer it cost 60 s for each edit."""
    async with open_editor() as editor:
        editor.answer = lambda _: {"code": -32601, "message": "Method not found"}
        session = await editor.start(tmp_path)
        assert await editor.say(session, "deploy") == "end_turn"
        assert await editor.say(session, "write") == "end_turn"
    assert len(editor.questions) == 1
    assert set(editor.last_statuses.values()) == {"failed"}
    assert not (tmp_path / "new.txt").exists()


async def test_a_question_about_a_file_shows_which_one_and_what_it_loses(tmp_path: Path) -> None:
    """approval.md, preview: the arguments alone look like a new file, and `..` behind a link leads elsewhere."""
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "a.txt").write_text("old\n")
    (tmp_path / "docs").symlink_to("src/deep")
    script = ScriptedModel(answer(call("write", path="docs/../a.txt", content="new\n")), "Done.")

    def make_agent(cwd: Path) -> Agent[Any]:
        return Agent(script.model, tools=builtin_tools(cwd), approval=Approval(workspace=cwd))

    async with open_editor(ScriptedFolders(make_agent)) as editor:
        editor.answer = lambda _: NO
        await editor.say(await editor.start(tmp_path), "Go.")
    shown = editor.questions[0]["toolCall"]["content"]
    assert shown[-1]["content"]["text"] == "```diff\nsrc/a.txt\n@@ -1 +1 @@\n-old\n+new\n```"


async def test_a_question_about_a_command_hides_nothing_of_it(tmp_path: Path) -> None:
    """Editors show texts as Markdown, in which a comment is not seen, and a line goes on in the next one."""
    command = ": '<!--'\nrm -r src\n: '-->' ````\u202e"
    script = ScriptedModel(answer(call("bash", command=command)), "Done.")

    def make_agent(cwd: Path) -> Agent[Any]:
        return Agent(script.model, tools=builtin_tools(cwd), approval=Approval(workspace=cwd))

    async with open_editor(ScriptedFolders(make_agent)) as editor:
        editor.answer = lambda _: NO
        await editor.say(await editor.start(tmp_path), "Go.")
    asked = editor.questions[0]["toolCall"]
    seen = command.replace("\u202e", "\\u{202e}")
    assert asked["title"] == seen.replace("\n", " \u240a ")
    assert asked["content"][-1]["content"]["text"] == f"`````\n{seen}\n`````"
    assert asked["rawInput"] == {"command": command}


@pytest.mark.parametrize("result", [None, {}, {"outcome": {"outcome": "cancelled"}}, {"outcome": "x"},
                                    {"outcome": {"outcome": "selected", "optionId": "other"}}])  # fmt: skip
async def test_an_answer_that_is_not_understood_is_a_denial(tmp_path: Path, result: Any) -> None:
    async with open_editor() as editor:
        editor.answer = None
        session = await editor.start(tmp_path)
        prompt = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "deploy"}])
        question = await editor.wait_for(lambda one: one.get("method") == "session/request_permission")
        editor.send({"id": question["id"], "result": result})
        editor.send({"id": question["id"], "result": YES})  # a second answer counts for nothing
        await editor.wait_for_answer(prompt)
    assert list(editor.last_statuses.values()) == ["failed"]


@pytest.mark.parametrize("decision", [YES, NO])
async def test_a_sub_agents_question_is_asked_and_its_call_ends(tmp_path: Path, decision: Any) -> None:
    """Section 5: in a peer a sub-agent's permission hung."""
    async with open_editor() as editor:
        editor.answer = lambda _: decision
        reason = await editor.say(await editor.start(tmp_path), "delegate")
    assert reason == "end_turn"
    assert [one["toolCall"]["name"] for one in editor.questions] == ["deploy"]
    told = [one["toolCallId"] for one in editor.updates if one["sessionUpdate"] == "tool_call"]
    assert editor.questions[0]["toolCall"]["toolCallId"] in told
    statuses = list(editor.last_statuses.values())
    assert statuses == ["completed", "completed" if decision is YES else "failed"]
    results = [one["rawOutput"]["text"] for one in editor.updates if "rawOutput" in one]
    assert ("deployed to live" in results) == (decision is YES)


async def test_cancel_ends_the_turn_and_keeps_what_was_seen(tmp_path: Path) -> None:
    """Section 5: stop reason cancelled; the text that the user saw is in the history."""
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        prompt = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "slow"}])
        await editor.wait_for_update("agent_message_chunk")
        editor.send({"method": "session/cancel", "params": {"sessionId": session}})
        again = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hello"}])
        assert (await editor.wait_for_answer(prompt))["result"] == {"stopReason": "cancelled"}
        seen = editor.join("agent_message_chunk").partition("You")[0]
        assert (await editor.wait_for_answer(again))["result"] == {"stopReason": "end_turn"}
        before = len(editor.messages)
        await editor.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
    history = [one["params"]["update"] for one in editor.messages[before:] if "params" in one]
    texts = [one["content"]["text"] for one in history if one["sessionUpdate"] == "agent_message_chunk"]
    assert texts[0] == seen


async def test_cancel_right_behind_the_prompt_is_heard(tmp_path: Path) -> None:
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        prompt = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "slow"}])
        editor.send({"method": "session/cancel", "params": {"sessionId": session}})
        assert (await editor.wait_for_answer(prompt))["result"] == {"stopReason": "cancelled"}


async def test_a_prompt_that_waits_for_the_end_of_another_can_be_cancelled(tmp_path: Path) -> None:
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        cancel = {"method": "session/cancel", "params": {"sessionId": session}}
        first = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "slow"}])
        editor.send(cancel)
        second = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "slow"}])
        editor.send(cancel)
        for prompt in (first, second):
            assert (await editor.wait_for_answer(prompt))["result"] == {"stopReason": "cancelled"}


async def test_cancel_resolves_an_open_question(tmp_path: Path) -> None:
    async with open_editor() as editor:
        editor.answer = None
        session = await editor.start(tmp_path)
        prompt = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "deploy"}])
        question = await editor.wait_for(lambda one: one.get("method") == "session/request_permission")
        editor.send({"method": "session/cancel", "params": {"sessionId": session}})
        editor.send({"id": question["id"], "result": {"outcome": {"outcome": "cancelled"}}})
        assert (await editor.wait_for_answer(prompt))["result"] == {"stopReason": "cancelled"}
    assert list(editor.last_statuses.values()) == ["failed"]


async def test_close_waits_for_the_end(tmp_path: Path) -> None:
    """Section 5: in a peer, close left work running."""
    folders = ScriptedFolders()
    async with open_editor(folders) as editor:
        session = await editor.start(tmp_path)
        prompt = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "slow"}])
        await editor.wait_for_update("agent_message_chunk")
        await editor.call("session/close", sessionId=session)
        assert folders.stopped == [tmp_path]
        assert (await editor.wait_for_answer(prompt))["result"] == {"stopReason": "cancelled"}
        assert editor.messages[-1]["result"] == {}
        refused = await editor.wait_for_answer(editor.ask("session/prompt", sessionId=session, prompt=[]))
    assert refused["error"]["code"] == -32002


async def test_an_error_is_a_json_rpc_error_and_the_session_goes_on(tmp_path: Path) -> None:
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        prompt = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "fail"}])
        failed = await editor.wait_for_answer(prompt)
        assert await editor.say(session, "hello") == "end_turn"
    assert failed["error"]["code"] == -32603
    assert failed["error"]["data"] == {"kind": "invalid_request"}


@pytest.mark.parametrize(("words", "reason"), [("long", "max_tokens"), ("refuse", "refusal")])
async def test_stop_reasons(tmp_path: Path, words: str, reason: str) -> None:
    async with open_editor() as editor:
        assert await editor.say(await editor.start(tmp_path), words) == reason


async def test_a_limit_of_turns_is_max_turn_requests(tmp_path: Path) -> None:
    from steersman.policy.limits import ExecutionLimits

    def make(_: Path) -> Agent:
        model = ScriptedModel(answer(call("nothing")), repeat_last=True).model
        return Agent(model, limits=ExecutionLimits(max_turns=2), repeated_calls=None)

    async with open_editor(ScriptedFolders(make)) as editor:
        assert await editor.say(await editor.start(tmp_path), "go") == "max_turn_requests"


async def test_load_replays_and_resume_does_not(tmp_path: Path) -> None:
    """Section 5: load replays, resume does not; both know the conversation."""
    folders = ScriptedFolders()
    async with open_editor(folders) as first:
        session = await first.start(tmp_path)
        await first.say(session, "deploy")
    async with open_editor(folders) as second:
        await second.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        assert second.join("user_message_chunk") == "deploy"
        assert second.join("agent_message_chunk") == first.join("agent_message_chunk")
        assert second.last_statuses == first.last_statuses
        before = len(second.updates)
        await second.call("session/resume", sessionId=session, cwd=str(tmp_path))
        kinds = [one["sessionUpdate"] for one in second.updates[before:]]
        assert set(kinds) <= {"available_commands_update"}
        await second.say(session, "hello")
    assert second.join("agent_message_chunk").endswith("that is prompt 2.")


async def test_a_fork_goes_its_own_way(tmp_path: Path) -> None:
    """Section 5: fork = branch; the first session does not hear of it."""
    async with open_editor() as editor:
        first = await editor.start(tmp_path)
        await editor.say(first, "one")
        forked = (await editor.call("session/fork", sessionId=first, cwd=str(tmp_path)))["sessionId"]
        assert forked != first
        await editor.say(forked, "two")
        await editor.say(first, "three")
        texts = editor.join("agent_message_chunk")
        listed = (await editor.call("session/list", cwd=str(tmp_path)))["sessions"]
    assert texts.count("that is prompt 2.") == 2
    assert {one["sessionId"] for one in listed} == {first, forked}
    assert {one["cwd"] for one in listed} == {str(tmp_path)}


async def test_delete_and_unknown_sessions(tmp_path: Path) -> None:
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        await editor.say(session, "one")
        await editor.call("session/delete", sessionId=session)
        listed = await editor.call("session/list")
        for method in ("session/load", "session/resume", "session/fork"):
            asked = editor.ask(method, sessionId=session, cwd=str(tmp_path), mcpServers=[])
            assert (await editor.wait_for_answer(asked))["error"]["code"] == -32002
    assert listed == {"sessions": []}


async def test_a_session_without_messages_is_not_kept(tmp_path: Path) -> None:
    folders = ScriptedFolders()
    async with open_editor(folders) as editor:
        await editor.start(tmp_path)
    assert folders.store.list() == []


async def test_modes_and_models_can_be_chosen(tmp_path: Path) -> None:
    async with open_editor() as editor:
        state = await editor.call("session/new", cwd=str(tmp_path), mcpServers=[])
        session = state["sessionId"]
        assert [mode["id"] for mode in state["modes"]["availableModes"]] == ["ask", "accept-edits", "plan", "bypass"]
        await editor.call("session/set_mode", sessionId=session, modeId="accept-edits")
        await editor.say(session, "write")
        assert editor.questions == []
        changed = await editor.call("session/set_config_option", sessionId=session, configId="mode", value="plan")
        await editor.say(session, "deploy")
        await editor.call("session/set_config_option", sessionId=session, configId="model", value="scripted:echo")
        await editor.say(session, "cuckoo")
        for option, value in (("mode", "x"), ("model", "openai:gpt"), ("nothing", "x"), ("model", True)):
            asked = editor.ask("session/set_config_option", sessionId=session, configId=option, value=value)
            assert (await editor.wait_for_answer(asked))["error"]["code"] == -32602
    assert {one["id"]: one["currentValue"] for one in changed["configOptions"]}["mode"] == "plan"
    assert [one["sessionUpdate"] for one in editor.updates].count("current_mode_update") == 1
    assert list(editor.last_statuses.values()) == ["completed", "failed"]
    assert "cuckoo" in editor.join("agent_message_chunk")


async def test_the_command_compact_is_no_prompt(tmp_path: Path) -> None:
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        offered = await editor.wait_for_update("available_commands_update")
        assert await editor.say(session, "/compact") == "end_turn"
    assert [one["name"] for one in offered["availableCommands"]] == ["compact"]


async def test_images_and_resources_reach_the_model(tmp_path: Path) -> None:
    blocks = [
        {"type": "text", "text": "Look: "},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"},
        {"type": "resource", "resource": {"uri": "file:///b.py", "text": "x = 1", "mimeType": "text/x-python"}},
        {"type": "resource", "resource": {"uri": "file:///c.png", "blob": "aGk=", "mimeType": "image/png"}},
    ]
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        await editor.call("session/prompt", sessionId=session, prompt=blocks)
        await editor.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        audio = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "audio", "data": "", "mimeType": "x"}])
        empty = editor.ask("session/prompt", sessionId=session, prompt=[])
        assert (await editor.wait_for_answer(audio))["error"]["code"] == -32602
        assert (await editor.wait_for_answer(empty))["error"]["code"] == -32602
    said = [one["content"] for one in editor.updates if one["sessionUpdate"] == "user_message_chunk"]
    assert [one["type"] for one in said] == ["text", "image", "text", "text", "image"]
    assert "x = 1" in said[3]["text"]
    assert "a.py" in said[2]["text"]


async def test_a_message_that_came_too_late_for_the_run_is_answered_in_the_same_turn(tmp_path: Path) -> None:
    """A program may steer the session as well: what it starts is told, and asked about, before the response."""
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        live = editor.front.sessions[session].live

        def steer_at_the_end(event: Any) -> None:
            if event.type == "agent_end" and len(editor.questions) == 0:
                live.agent.follow_up("deploy")

        live.agent.subscribe(steer_at_the_end)
        assert await editor.say(session, "hello") == "end_turn"
    assert len(editor.questions) == 1
    assert editor.join("agent_message_chunk").endswith("Done.")


async def test_a_second_prompt_is_refused_while_one_is_answered(tmp_path: Path) -> None:
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        first = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "slow"}])
        second = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hello"}])
        assert (await editor.wait_for_answer(second))["error"]["code"] == -32600
        editor.send({"method": "$/cancel_request", "params": {"requestId": first}})
        assert (await editor.wait_for_answer(first))["result"] == {"stopReason": "cancelled"}


async def _refuse(editor: Editor, line: bytes | None) -> Any:
    before = len(editor.messages)
    editor.front.receive(line)
    return (await editor.wait_for(lambda one: "error" in one, before))["error"]["code"]


async def test_what_is_malformed_is_answered_and_changes_nothing(tmp_path: Path) -> None:
    async with open_editor() as editor:
        session = await editor.start(tmp_path)
        assert await _refuse(editor, b"{nonsense") == -32700
        assert await _refuse(editor, b'"\xff"') == -32700
        assert await _refuse(editor, b"[" * 100_000) == -32700
        assert await _refuse(editor, None) == -32600
        assert await _refuse(editor, b"[]") == -32600
        assert await _refuse(editor, b"{}") == -32600
        assert await _refuse(editor, b'{"id": {}, "method": "x"}') == -32600
        assert await _refuse(editor, b'{"id": 1, "method": "x", "params": []}') == -32602
        assert await _refuse(editor, b'{"id": 1, "method": "session/nothing"}') == -32601
        assert await _refuse(editor, b'{"id": 1, "method": "session/prompt", "params": {}}') == -32602
        before = len(editor.messages)
        for line in (
            b"",
            b'{"method": "session/cancel", "params": {"sessionId": "none"}}',
            b'{"method": "session/cancel"}',
            b'{"method": "session/unknown"}',
            b'{"id": "none", "result": {}}',
            b'{"id": 7, "error": {}}',
        ):
            editor.front.receive(line)
        editor.send({"method": "session/cancel", "params": {"sessionId": session}})  # there is no prompt
        assert await editor.say(session, "hello") == "end_turn"
    assert not [one for one in editor.messages[before:] if "error" in one]


async def test_a_run_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    """Never a hang: the configuration of the agent is wrong, and the prompt gets its answer."""

    class Broken:
        ready = True

        @property
        def tools(self) -> list[Any]:
            if not self.ready:
                raise RuntimeError("these tools are broken")
            return []

    broken = Broken()

    def make(_: Path) -> Agent:
        return Agent(ScriptedModel("Hello.").model, tools=[broken])

    async with open_editor(ScriptedFolders(make)) as editor:
        session = await editor.start(tmp_path)
        broken.ready = False
        asked = editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
        assert (await editor.wait_for_answer(asked))["error"]["code"] == -32603
