"""What is offered for what is typed, and what is kept of it."""

from __future__ import annotations

import os
from pathlib import Path

from steersman.cli.chat import input as history
from steersman.cli.chat.commands import is_command, unescape_text
from steersman.cli.chat.input import Suggestion, list_model_names, suggest, suggest_paths
from steersman.types.model import Model

MODELS = ("openai:gpt-x", "local:tiny", "evil:\x1b[2J")


def texts(before: str, workspace: Path) -> list[str]:
    return [found.text for found in suggest(before, workspace, lambda: MODELS)]


def made(workspace: Path, *names: str) -> None:
    for name in names:
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_commands_models_and_levels_are_offered_by_how_they_begin(tmp_path: Path) -> None:
    assert texts("/t", tmp_path) == ["/thinking ", "/tools", "/tree", "/theme "]
    assert texts("/model o", tmp_path) == ["openai:gpt-x"]
    assert texts("/model ", tmp_path) == ["openai:gpt-x", "local:tiny"]
    assert texts("/thinking m", tmp_path) == ["minimal", "medium"]


def test_paths_are_offered_inside_the_workspace_and_hidden_ones_when_asked_for(tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    made(workspace, "src/main.py", "src/made.py", ".env", "setup.cfg")
    made(tmp_path, "secret.txt")
    (workspace / "out").symlink_to(tmp_path)
    assert texts("look at @s", workspace) == ["setup.cfg", "src/"]
    assert texts("look at src/ma", workspace) == ["made.py", "main.py"]
    assert list(suggest_paths("@src/mai", workspace)) == [Suggestion("main.py", 3)]
    assert texts("@.", workspace) == [".env"]
    assert texts("@", workspace) == ["out/", "setup.cfg", "src/"]
    for outside in ("@../", "@../s", "@out/s", f"@{tmp_path}/s", "@~/", "@src/../../s", "@\x00/"):
        assert texts(outside, workspace) == []


def test_a_name_that_shows_something_else_than_it_is_is_not_offered(tmp_path: Path) -> None:
    made(tmp_path, "a\x1b[2J", "a\u202etxt", "a\u200b", "a\nb", "plain")
    assert texts("@", tmp_path) == ["plain"]


def test_the_model_there_is_comes_first() -> None:
    names = list_model_names(Model("openai-chat", "gpt-x"))
    assert names[0] == "openai-chat:gpt-x"
    assert "local:qwen2.5-coder-0.5b" in names
    assert len(names) == len(set(names))


def test_a_slash_is_a_command_unless_it_is_a_path_or_doubled() -> None:
    assert [is_command(text) for text in ("/help", "/", "/nope x/y", "//help", "/usr/bin is long", "a /help")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert unescape_text("//etc") == "/etc"
    assert unescape_text("plain") == "plain"


def test_history_is_for_its_owner_alone_and_keeps_lines_whole(tmp_path: Path) -> None:
    file = tmp_path / "history"
    assert history.load_history(file) == []
    for text in ("one", "two\nlines", "dr\u202eei"):
        history.add_to_history(file, text)
    with file.open("ab") as source:
        source.write(b'no json\n{"a": 1}\n\xff\n"last"\n')
    assert history.load_history(file) == ["one", "two\nlines", "dr\u202eei", "last"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_history_that_is_no_history_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text("[" * 100_000 + '\n"kept"\n')
    assert history.load_history(tmp_path / "deep") == ["kept"]
    os.mkfifo(tmp_path / "fifo")
    for file in (tmp_path / "fifo", tmp_path, tmp_path / "deep/below"):
        history.add_to_history(file, "lost")
        assert history.load_history(file) == []


def test_a_history_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch()
    (tmp_path / "history").symlink_to(target)
    history.add_to_history(tmp_path / "history", "text")
    assert target.read_bytes() == b""
