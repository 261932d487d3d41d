"""`steersman acp` as a real process: folders, kept sessions, MCP servers of the editor, and a clean stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cli.command import environment, make_place, run_command
from tests.cli.fork_server import COMMAND


class Editor:
    """A process of the command, and the messages of its stdout: every line has to be one."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.place = make_place(folder)
        self.updates: list[Any] = []
        self._count = 0
        self._process = subprocess.Popen(
            [*COMMAND, "acp", "--model", "scripted:echo", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(self.place),
            cwd=self.place.home,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> tuple[int, str]:
        """Hang up; returns the exit code and what is on stderr."""
        _, errors = self._process.communicate(timeout=60)
        return self._process.returncode, errors.decode()

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request, or its error."""
        self._count += 1
        line = json.dumps({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        assert self._process.stdout is not None
        while True:
            message = json.loads(self._process.stdout.readline())
            if message.get("id") == self._count:
                return message.get("result", message.get("error"))
            self.updates.append(message["params"]["update"])


def test_sessions_are_those_of_the_folder_that_the_editor_names(tmp_path: Path) -> None:
    """Section 5: cwd is honoured, and what an editor said goes on in the command."""
    with Editor(tmp_path) as editor:
        project = editor.place.project
        assert editor.ask("initialize", protocolVersion=1)["protocolVersion"] == 1
        session = editor.ask("session/new", cwd=str(project), mcpServers=[])["sessionId"]
        prompt = [{"type": "text", "text": "cuckoo"}]
        assert editor.ask("session/prompt", sessionId=session, prompt=prompt) == {"stopReason": "end_turn"}
        assert editor.ask("session/list", cwd=str(editor.place.home)) == {"sessions": []}
        listed = editor.ask("session/list", cwd=str(project))["sessions"]
        code, _ = editor.end()
    assert code == 0
    assert [(one["sessionId"], one["cwd"], one["title"]) for one in listed] == [(session, str(project), "cuckoo")]
    assert "cuckoo" in "".join(one["content"]["text"] for one in editor.updates if "content" in one)
    assert session[:8] in run_command(["sessions", "list"], place=editor.place).text


def test_the_editors_mcp_servers_are_started_in_its_folder(tmp_path: Path) -> None:
    """One that does not start is told on stderr, and the session has the rest."""
    server = {"name": "my server", "command": sys.executable, "args": ["-c", "open('started', 'w')"], "env": []}
    with Editor(tmp_path) as editor:
        session = editor.ask("session/new", cwd=str(editor.place.project), mcpServers=[server])["sessionId"]
        prompt = [{"type": "text", "text": "hello"}]
        assert editor.ask("session/prompt", sessionId=session, prompt=prompt) == {"stopReason": "end_turn"}
        _, errors = editor.end()
    assert (editor.place.project / "started").exists()
    assert "my-server" in errors


def test_what_prevents_a_session_is_told_as_an_error(tmp_path: Path) -> None:
    """A problem of the user's settings is an error of the request, in its own words."""
    with Editor(tmp_path, "--model", "nothing:at-all") as editor:
        error = editor.ask("session/new", cwd=str(editor.place.project), mcpServers=[])
        code, _ = editor.end()
    assert error["code"] == -32603
    assert "nothing" in error["message"]
    assert code == 0


def test_a_prompt_that_a_hook_refuses_starts_nothing(tmp_path: Path) -> None:
    """docs/acp.md: the answer is `refusal`, and the model is not asked to go on with what was said before."""
    with Editor(tmp_path) as editor:
        settings = editor.place.home / "config/steersman/config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text("[[hooks]]\nat = 'prompt'\ncommand = 'if grep -q secret; then exit 2; fi'\n")
        session = editor.ask("session/new", cwd=str(editor.place.project), mcpServers=[])["sessionId"]
        for words, reason in (("a secret", "refusal"), ("cuckoo", "end_turn"), ("my secret", "refusal")):
            prompt = [{"type": "text", "text": words}]
            assert editor.ask("session/prompt", sessionId=session, prompt=prompt) == {"stopReason": reason}
    said = [one["content"]["text"] for one in editor.updates if one["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(said) == "cuckoo"
