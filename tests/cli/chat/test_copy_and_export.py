"""`/copy` and `/export`: the last answer in the clipboard, the conversation in a file of the user's choice."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path

import pytest
from tests.cli.chat.kit import READY, SIZES, below, chatting
from tests.cli.command import Place
from tests.cli.pty_terminal import Terminal

from steersman.cli.chat.copy_command import build_program_environment, choose_program
from steersman.testing.servers import OpenAIChatServer

ANSWER = "Run it:\n\n```sh\necho \x1b[2Jone\n```\n\nor\n\n```\ntwo\nthree\n```\n"


def find_copies(terminal: Terminal) -> list[str]:
    """What the terminal was asked to put into its clipboard."""
    return [base64.b64decode(found).decode() for found in re.findall(rb"\x1b\]52;c;([^\x07]*)\x07", terminal.raw)]


@pytest.mark.real_time
def test_answers_are_copied_and_conversations_exported(place: Place, server: OpenAIChatServer) -> None:
    """No control character is copied, and no file is replaced without a yes."""
    server.say(ANSWER)
    (place.project / "link.md").symlink_to(place.project / "there.md")
    with chatting(place, server, columns=120, rows=40) as terminal:
        terminal.enter("/copy")
        terminal.wait_for("There is no answer to copy yet.")
        terminal.enter("Tell <me>.")
        terminal.wait_for("three")
        terminal.wait_for(READY)
        for number, (columns, rows) in enumerate(SIZES):
            terminal.resize(columns, rows)
            terminal.enter("/copy")
            terminal.wait_for(lambda at, number=number: len(find_copies(at)) == 2 * number + 1)
            copied = "Copied the last answer (12 lines), if your terminal allows it (OSC 52)."
            terminal.wait_for(lambda at, copied=copied: copied in below(at, "/copy"))
            terminal.enter("/copy 2")
            terminal.wait_for(lambda at, number=number: len(find_copies(at)) == 2 * number + 2)
            terminal.wait_for("Copied code block 2 (2 lines)")
            terminal.enter("/copy 3")
            terminal.wait_for("The last answer has 2 code blocks")
            for ending in ("jsonl", "html", "md"):
                terminal.enter(f"/export out{columns}.{ending}")
                terminal.wait_for(f"The conversation is in out{columns}.{ending}")
            terminal.enter("/export out.txt")
            wrong = "✗ The ending says the format: .md, .jsonl or .html, got 'out.txt'."
            terminal.wait_for(lambda at, wrong=wrong: wrong in " ".join(at.shown.split()))
            (place.project / "there.md").write_text("mine")
            for answered, outcome in (("n", "Nothing was written."), ("y", "The conversation is in there.md")):
                terminal.enter("/export there.md")
                terminal.wait_for("'there.md' exists already. Replace it?")
                terminal.wait_for("\n?")
                terminal.type(answered)
                terminal.wait_for(f"\n? {answered}")
                terminal.press("enter")
                terminal.wait_for(lambda at, outcome=outcome: outcome in below(at, "Replace it?"))
                assert ((place.project / "there.md").read_text() == "mine") is (answered == "n")
        terminal.resize(200, 24)
        terminal.enter("/export link.md")
        terminal.wait_for(f"'link.md', which is '{place.project}/there.md', exists already. Replace it?")
        terminal.wait_for("\n?")
        terminal.type("n")
        terminal.wait_for("\n? n")
        terminal.press("enter")
        terminal.wait_for(lambda at: "Nothing was written." in below(at, "Replace it?"))
        terminal.enter("/export nowhere/x.md")
        terminal.wait_for("Cannot write 'nowhere/x.md': No such file or directory.")
        copies = find_copies(terminal)
    assert copies == [ANSWER.replace("\x1b", "").strip("\n"), "two\nthree"] * 3
    for columns, _ in SIZES:
        page, text, records = (
            (place.project / f"out{columns}.{ending}").read_text() for ending in ("html", "md", "jsonl")
        )
        assert "Tell &lt;me&gt;." in page
        assert "\x1b" not in page
        assert "echo ␛[2Jone" in page
        assert text == (place.project / "there.md").read_text()
        assert "## user\n\nTell <me>." in text
        assert '"Tell <me>."' in records
    assert [path.stat().st_mode & 0o777 for path in place.project.glob("out*")] == [0o600] * 9
    assert [path.name for path in place.project.iterdir() if path.name.startswith(".")] == []


def test_only_a_program_from_outside_the_workspace_gets_the_clipboard(tmp_path: Path) -> None:
    """A model may write a program called wl-copy."""
    workspace, outside = tmp_path / "work", tmp_path / "bin"
    for folder in (workspace, outside):
        folder.mkdir()
        for name in ("wl-copy", "xclip"):
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
    wayland, x11 = {"WAYLAND_DISPLAY": "w"}, {"DISPLAY": ":0"}
    path = f"{workspace}{os.pathsep}{outside}"
    assert choose_program({"PATH": str(outside), **wayland, **x11}, workspace) == (str(outside / "wl-copy"),)
    assert choose_program({"PATH": str(outside), **x11}, workspace) == (
        str(outside / "xclip"), "-selection", "clipboard",
    )  # fmt: skip
    assert choose_program({"PATH": path, **x11}, workspace) is None
    assert choose_program({"PATH": str(outside)}, workspace) is None
    # A link is enough: what is copied would be the input of a shell.
    (workspace / "wl-copy").unlink()
    (workspace / "wl-copy").symlink_to("/bin/sh")
    assert choose_program({"PATH": path, **wayland}, workspace) is None
    (tmp_path / "link").symlink_to(workspace)
    assert choose_program({"PATH": str(tmp_path / "link"), **wayland}, workspace) is None


def test_the_program_for_the_clipboard_gets_no_keys() -> None:
    """failures.md L14: a child has no key in its environment. This one may stay in the background."""
    display = {"DISPLAY": ":0", "WAYLAND_DISPLAY": "w", "XAUTHORITY": "/x", "XDG_RUNTIME_DIR": "/run/user/1"}
    kept = {"PATH": "/usr/bin", "HOME": "/home/ada", "LANG": "C.UTF-8", **display}
    keys = {"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-2", "GITHUB_TOKEN": "t", "LD_PRELOAD": "/tmp/x.so"}
    assert build_program_environment({**kept, **keys}) == kept
