"""What is typed, on its way to the model: pastes, files named with `@`, commands of the user."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from base64 import b64decode
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.chat.kit import READY, SIZES, WAITING, chatting, heard
from tests.cli.command import Place
from tests.cli.pty_terminal import Terminal

from steersman import Agent
from steersman.cli.chat.conversation import ChatView, Conversation
from steersman.cli.chat.drafts import MAX_FILE_BYTES, Pastes, attach_files, build_message, get_typed_text
from steersman.cli.chat.file_search import MAX_LENGTH, FileIndex, rank_path
from steersman.cli.chat.layout import render_state
from steersman.cli.chat.window_use import render_window_use
from steersman.policy.approval import Approval
from steersman.testing import ScriptedModel, answer, call
from steersman.testing.servers import OpenAIChatServer
from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import UserMessage
from steersman.types.usage import Prices, Usage

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def rests(at: Terminal) -> bool:
    status = at.lines[int(at.screen.cursor.y) + 1] if at.cursor_line.startswith("\u276f") else ""
    return status.startswith(("ask · openai", "ask · gpt-x")) and "Esc" not in status


@pytest.mark.real_time
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_commands_files_and_long_pastes_reach_the_model(
    place: Place, server: OpenAIChatServer, columns: int, rows: int
) -> None:
    (place.project / "src" / "deep").mkdir(parents=True)
    (place.project / "src" / "deep" / "module.py").write_text("answer = 42\n")
    (place.project / "pic.png").write_bytes(PNG)
    long = "".join(f"row {number} @wait.sh\n" for number in range(60))
    server.say("Seen.", "Pasted.", "Cleared.")
    with chatting(place, server, columns=columns, rows=rows, ready="\n\u276f") as terminal:
        terminal.enter("!seq 8; exit 3")
        terminal.wait_for(lambda at: "\n  8\n" in at.shown and rests(at))
        assert "✗ !  seq 8; exit 3 · exit 3" in terminal.everything
        assert server.requests == []
        terminal.type("What is @mdule")
        terminal.wait_for("src/deep/module.py")
        terminal.press("tab")
        terminal.wait_for("@src/deep/module.py")
        terminal.type(" @pic")
        terminal.wait_for("\n pic.png")
        terminal.press("tab")
        terminal.wait_for("@pic.png")
        terminal.press("enter", "enter")  # the first takes the completion
        terminal.wait_for(lambda at: "Seen." in at.everything and rests(at))
        told = " ".join(terminal.everything.split())
        # What is attached stands below the prompt that named it.
        asked = "\u276f What is @src/deep/module.py @pic.png"
        assert f"{asked} Attached src/deep/module.py (1 line). Attached the image pic.png. Seen." in told
        assert "answer = 42" not in terminal.everything
        assert "I ran" not in terminal.everything  # these are words for the model
        terminal.type("Look: ")
        terminal.paste(long)
        terminal.wait_for("[pasted #1: 60 lines]")
        assert "row 30" not in terminal.everything
        terminal.press("enter")
        terminal.wait_for(lambda at: "Pasted." in at.everything and rests(at))
        assert "\n\u276f Look: [pasted #1: 60 lines]\n\nPasted." in terminal.everything
        terminal.enter("/context")
        terminal.wait_for("tool results")
        # What a bar stands for is beside it, at any width.
        terminal.wait_for(lambda at: re.search(r"^free +█+░? +12\d,\d{3}$", at.shown, re.MULTILINE))
        # What a command said belongs to the conversation that is cleared.
        terminal.enter("!echo before")
        terminal.wait_for(lambda at: "\n  before\n" in at.shown and rests(at))
        terminal.enter("/clear")
        terminal.wait_for("no longer sees the")
        terminal.enter("Anew.")
        terminal.wait_for(lambda at: "Cleared." in at.everything and rests(at))
    first, second = heard(server, 0)
    assert first[1] == "I ran `seq 8; exit 3` myself; exit code 3. Its output:\n1\n2\n3\n4\n5\n6\n7\n8\n\n[exit code 3]"
    assert second == (
        "user",
        "What is @src/deep/module.py @pic.pngThe file 'src/deep/module.py', attached by the user:\nanswer = 42\n",
    )
    picture = server.requests[0]["messages"][-1]["content"][-1]["image_url"]["url"]
    assert b64decode(picture.removeprefix("data:image/png;base64,")) == PNG
    assert heard(server, 2) == [("user", "Anew.")]
    assert heard(server, 1)[-1] == ("user", f"Look: {long}")


def test_text_that_was_not_typed_runs_nothing(place: Place, server: OpenAIChatServer) -> None:
    """command.md, the chat: a paste is text, also when it comes back from the history or from the queue."""
    short, long = "![logo](x.png); touch ran\n# Title", "! touch ran\n" * 30
    server.say("One.", "Two.", "Three.", answer(call("bash", command=WAITING)), "Five.")
    with chatting(place, server, ready="\n\u276f") as terminal:
        terminal.paste(short)
        terminal.wait_for("# Title")
        terminal.press("enter")
        terminal.wait_for(lambda at: "One." in at.everything and rests(at))
        terminal.send(b" ")  # what is sent begins with what follows
        terminal.paste(long)
        terminal.wait_for("[pasted #1")
        terminal.press("enter")
        terminal.wait_for(lambda at: "Two." in at.everything and rests(at))
        terminal.press("up")
        terminal.wait_for("touch ran")
        terminal.press("enter")
        terminal.wait_for(lambda at: "Three." in at.everything and rests(at))
        terminal.enter("Wait.")
        terminal.wait_for("started")
        terminal.paste(long)
        terminal.wait_for("[pasted #2")
        terminal.press("enter")
        terminal.wait_for("steering")
        terminal.press("esc")
        terminal.wait_for(lambda at: "Interrupted" in at.everything and READY in at.shown)
        assert terminal.cursor_line == "\u276f [pasted #2: 30 lines]"
        terminal.press("enter")
        terminal.wait_for("Five.")
    said = [text.strip() for role, text in heard(server, 4) if role == "user"]
    assert [said[0], said[1], said[2], said[-1]] == [short, long.strip(), long.strip(), long.strip()]
    assert not (place.project / "ran").exists()


def test_a_line_of_a_paste_runs_nothing_in_the_chat_by_lines(place: Place, server: OpenAIChatServer) -> None:
    """command.md, the chat: such a terminal does not tell a paste, so what runs outside the sandbox is confirmed."""
    server.say("One.", "Two.")
    with chatting(place, server, env={"TERM": "dumb"}, ready="lists the rest.") as terminal:
        terminal.send(b"!touch ran\ny\n/mode bypass\ny\n")
        terminal.wait_for("\n?")
        terminal.send(b"no\n")
        terminal.wait_for("\n>")
        terminal.send(b"/mode bypass\ny\n")
        terminal.wait_for(lambda at: at.everything.count("\n?") == 2)
        terminal.send(b"\n!echo mine\n")
        terminal.wait_for(lambda at: at.everything.count("\n?") == 3)
        terminal.send(b"y\n")
        terminal.wait_for("\n  mine")
        terminal.send(b"/mode\n")
        terminal.wait_for("The mode is ask")
    assert not (place.project / "ran").exists()


def attached(folder: Path, text: str) -> list[str]:
    return [item.about for item in attach_files(text, folder)]


def test_a_file_is_attached_once_bounded_and_only_from_the_workspace(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "outside").write_text("secret")
    (project / "a.txt").write_text("one\ntwo")
    (project / "long.txt").write_text("é" * MAX_FILE_BYTES)
    (project / "bytes").write_bytes(b"\xff\xfe\x00" * 9)
    (project / "link").symlink_to(tmp_path / "outside")
    (project / "picture.dat").write_bytes(PNG)
    os.mkfifo(project / "pipe")
    assert attached(project, "See @a.txt, @./a.txt (and @a.txt).") == ["Attached a.txt (2 lines)."]
    assert attached(project, "@../outside @link @pipe @none @ me@a.txt @" + "x" * 5000) == []
    assert attached(project, "@bytes") == ["bytes is not attached: it is neither text nor an image that fits."]
    (cut,) = attach_files("@long.txt", project)
    assert cut.about == "Attached long.txt (the beginning, 1 line)."
    assert isinstance(cut.content, TextContent)
    assert len(cut.content.text.encode()) < MAX_FILE_BYTES + 200
    (picture,) = attach_files("@picture.dat", project)
    assert isinstance(picture.content, ImageContent)
    assert picture.content.mime_type == "image/png"
    message = build_message("See @picture.dat", [picture])
    assert isinstance(message, UserMessage)
    assert get_typed_text(message) == "See @picture.dat"


def test_thousands_of_names_are_looked_up_without_a_look_at_every_file_for_a_similar_one(tmp_path: Path) -> None:
    """A program with an `@Override` in each line is pasted, or a command of a project is full of names."""
    for number in range(2_000):
        (tmp_path / f"some_module_name_{number}.py").touch()
    (tmp_path / "Real.java").write_text("real")
    text = " ".join(["@Override" for _ in range(5_000)] + [f"@some_name_{number}" for number in range(900)])
    called = Counter[str]()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: called.update([frame.f_code.co_name] if event == "call" else []))
    try:
        found = attach_files(f"{text} @Real.java", tmp_path)
    finally:
        sys.setprofile(before)
    assert [item.about for item in found] == ["Attached Real.java (1 line)."]
    assert called["get_close_matches"] == 0
    assert called["attach_files"] == 1


def test_a_file_that_a_rule_denies_is_not_attached_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("hush")
    (tmp_path / "plain").write_text("open")
    approval = Approval(deny=["read(secrets/**)"], ask=["read(plain)"], workspace=tmp_path)
    denied, attached = attach_files("See @secrets/key and @plain", tmp_path, approval)
    assert denied.about == "secrets/key is not attached: the rule read(secrets/**) denies reading it."
    assert isinstance(denied.content, TextContent)
    assert "hush" not in denied.content.text
    assert attached.about == "Attached plain (1 line)."


def test_a_link_that_is_exchanged_meanwhile_leads_to_no_file_outside(tmp_path: Path) -> None:
    """security.md, how files are confined: a command may exchange a file for a link while the user names it."""
    (tmp_path / "outside").write_text("secret")
    project = tmp_path / "project"
    project.mkdir()
    over = threading.Event()

    def exchange() -> None:
        while not over.is_set():
            (project / "a").write_text("mine")
            (project / "a").rename(project / "notes")
            (project / "b").symlink_to(tmp_path / "outside")
            (project / "b").rename(project / "notes")

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        found = [item.content for _ in range(600) for item in attach_files("@notes", project)]
    finally:
        over.set()
        thread.join()
    assert not [content for content in found if isinstance(content, TextContent) and "secret" in content.text]


@settings(max_examples=30)
@given(st.lists(st.text(max_size=60) | st.text("ab\n", min_size=4_100, max_size=4_200), max_size=4))
def test_what_was_pasted_is_what_is_sent(texts: list[str]) -> None:
    pastes = Pastes()
    shown = " and ".join(pastes.shorten(text) for text in texts)
    assert len(shown) < 4_100 * max(1, len(texts))
    assert pastes.expand(shown) == " and ".join(texts)
    assert pastes.expand(pastes.collapse(pastes.expand(shown))) == " and ".join(texts)


def test_paths_of_thousands_of_characters_are_looked_at_up_to_a_bound(tmp_path: Path) -> None:
    """They are ranked again at each key."""
    folder = tmp_path.joinpath(*["d" * 200] * 12)
    folder.mkdir(parents=True)
    for number in range(1_500):
        (folder / f"f{number}").touch()
    assert 0 < len("".join(FileIndex(tmp_path).find("f", 10_000))) < MAX_LENGTH + 5_000


def test_files_are_found_by_any_letters_of_their_paths(tmp_path: Path) -> None:
    for name in ("src/deep/module.py", "module.txt", "docs/mod.md", ".hidden/module.py", "node_modules/module.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    index = FileIndex(tmp_path)
    assert index.find("module", 9) == ["module.txt", "src/deep/module.py"]
    assert index.find("sdmod", 9) == ["src/deep/module.py"]
    assert index.find("MOD.M", 9) == ["docs/mod.md"]
    assert rank_path("a/b", "x") is None


def test_the_bars_show_what_fills_the_window() -> None:
    agent = Agent(ScriptedModel("A").model, system_prompt="x" * 4000)
    lines = render_window_use(agent, 1234, 80)
    assert [line.split("  ")[0] for line in lines[:5]] == [
        "system prompt",
        "tools",
        "your messages",
        "answers",
        "tool results",
    ]
    assert lines[0].count("█") == 20 or "free" in lines[5]
    assert lines[-1].endswith("The provider counted 1,234 for the last answer.")
    assert max(len(line) for line in render_window_use(agent, None, 30)[:-1]) <= 30


def test_the_status_line_says_how_full_the_window_is() -> None:
    model = replace(ScriptedModel("A").model, context_window=2000)
    conversation = Conversation(Agent(model), cast(ChatView, None))
    assert "full" not in render_state(conversation, "", 80)
    conversation.filled = 1234
    assert " · 61% full · " in render_state(conversation, "", 80)


def test_a_narrow_status_line_leaves_out_what_is_needed_least() -> None:
    model = replace(ScriptedModel("A").model, context_window=2000, prices=Prices(input=1, output=2))
    conversation = Conversation(Agent(model), cast(ChatView, None))
    conversation.filled = 1234
    conversation.agent.add_usage(Usage(input=1200, output=300, cost=0.105))
    assert [render_state(conversation, "", width) for width in (80, 60, 50, 40, 20)] == [
        "bypass · scripted:script · 1.2k in 300 out · $0.105 · 61% full · /help",
        "bypass · scripted:script · $0.105 · 61% full · /help",
        "bypass · script · $0.105 · 61% full · /help",
        "bypass · script · $0.105 · 61% full",
        "bypass · script",
    ]


def test_very_long_names_are_words_and_hold_up_nothing(tmp_path: Path) -> None:
    """Each folder in a name is opened, and a file of a project may have a thousand names of four kilobytes."""
    tmp_path.joinpath("a").mkdir()
    tmp_path.joinpath("real.txt").write_text("real")
    text = " ".join(f"@{'a/../' * 700}{'./' * number}a" for number in range(200))
    began = time.process_time()
    (found,) = attach_files(f"{text} @real.txt", tmp_path)
    assert "real.txt" in found.about
    assert time.process_time() - began < 0.3
