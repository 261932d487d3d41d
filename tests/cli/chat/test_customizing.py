"""What a user adds to the chat, at three sizes: commands, agents, hooks, themes, keys; all of it is only text."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.cli.chat.kit import READY, SIZES, WAITING, below, chatting, go, heard
from tests.cli.chat.test_injection import FORMS, strange
from tests.cli.command import Place
from tests.cli.pty_terminal import Terminal

from steersman.cli.chat.attention import BELL, DONE, WAITS, Attention, build_call
from steersman.cli.chat.layout import MARK
from steersman.cli.render.show import SPINNER
from steersman.testing import answer, call
from steersman.testing.servers import OpenAIChatServer

pytestmark = pytest.mark.real_time
EVIL = " ".join(f"form{number}:{form}" for number, form in enumerate(FORMS)).replace("\n", " ").replace("\0", "")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def unwrap(terminal: Terminal) -> str:
    return " ".join(terminal.everything.split())


def _wait_for_question(terminal: Terminal, count: int) -> None:
    """Wait until so many questions have taken an answer, or take one."""
    terminal.wait_for(lambda at: sum(line.startswith("?") for line in at.everything.split("\n")) >= count)


def _answer_yes(terminal: Terminal, count: int) -> None:
    """Answer a question with yes, once it takes answers; it is the one of this number."""
    _wait_for_question(terminal, count)
    terminal.type("y")
    terminal.wait_for(lambda at: at.cursor_line == "? y")
    terminal.press("enter")


def test_files_and_settings_add_to_the_chat(place: Place, server: OpenAIChatServer) -> None:
    project = place.project
    _write(project / "a.py", "def f():\n    return 1\n")
    agent = f"---\nname: critic\ndescription: Reviews {EVIL[:400]}\ntools: read\n---\nYou review. {EVIL}"
    _write(project / ".steersman/agents/critic.md", agent)
    command = f"---\ndescription: Fix {EVIL[:60]}\nallowed-tools: Bash{EVIL[:50]}\n---\nFix $1 ($ARGUMENTS).\n!`ls`\n"
    _write(project / ".claude/commands/fix-it.md", command)
    _write(project / ".steersman/commands/help.md", EVIL)
    _write(place.home / "said", f"not this one {EVIL}")
    hook = '[[hooks]]\nat = "before_tool"\ntools = ["list"]\ncommand = "cat $HOME/said >&2; exit 2"\nsandbox = false\n'
    _write(place.home / "config/steersman/config.toml", f'vim = true\ntheme = "light"\nnotify = "off"\n{hook}')
    for number in (1, 2, 3):
        server.say(
            answer(call("list", path="."), call("task", prompt="Look.", kind="critic")),
            answer(call("read", path="a.py"), call("bash", command="ls")),
            f"It is fine {number}.",
            answer(call("edit", path="a.py", edits=[{"old": f"return {number}", "new": f"return {number + 1} + 'x'"}])),
            f"```python\ndef g{number}():\n    return None\n```\nDone.",
        )
    line = ["--allowed-tools", "bash(true)"]
    with chatting(place, server, *line, columns=40, rows=15, ready="y yes · n no") as terminal:
        for count in (1, 2, 3):
            _answer_yes(terminal, count)
        terminal.wait_for("insert · ask")
        for number, (columns, rows) in enumerate(((40, 15), (80, 24), (120, 40)), 1):
            terminal.resize(columns, rows)
            terminal.type("/fi")
            terminal.wait_for("/fix-it")
            terminal.type(f"x-it {number}2 now")
            terminal.wait_for(f"{number}2 now")
            terminal.press("enter")
            terminal.wait_for(lambda at: at.cursor_line == "?")
            _answer_yes(terminal, 1)
            terminal.wait_for(lambda at, number=number: at.everything.count("s · gpt-x") == number)
            shown = " ".join(terminal.everything.split())
            assert shown.count("not this one") == number
            assert shown.count("lines with ! are not run") == number
            assert shown.count("✓ read a.py") == number
            terminal.type("abc")
            terminal.wait_for(f"{MARK}abc")
            terminal.press("esc")
            terminal.wait_for("normal · ask")
            terminal.type("0x")
            terminal.wait_for(f"{MARK}bc")
            terminal.type("dd")
            terminal.wait_for(lambda at: f"{MARK}bc" not in at.shown)
            terminal.type("i")
            terminal.wait_for("insert · ask")
        terminal.type("/vim")
        terminal.wait_for(f"{MARK}/vim")
        terminal.press("enter")
        terminal.wait_for("those of Emacs")
        terminal.enter("/theme plain")
        terminal.wait_for("the theme is plain")
        terminal.press("ctrl+d")
        assert terminal.ended() == 0
        raw = bytes(terminal.raw)
    assert strange(raw) == []
    assert [bool(re.search(rb"\x1b\[38;5;90mdef\x1b\[0m[^\n]*g%d" % number, raw)) for number in (1, 2, 3)] == [True] * 3
    assert b"48;5;194" in raw
    assert [heard(server, number)[-1] for number in (0, 5, 10)] == [
        ("user", f"Fix {number}2 ({number}2 now).\n!`ls`") for number in (1, 2, 3)
    ]
    kinds = {tool["function"]["name"]: tool for tool in server.requests[0]["tools"]}["task"]["function"]["parameters"]
    assert kinds["properties"]["kind"]["enum"] == ["general", "explore", "critic"]
    assert [tool["function"]["name"] for tool in server.requests[1]["tools"]] == ["read"]
    assert server.requests[1]["messages"][0]["content"].startswith("You review.")
    results = [text for who, text in heard(server, 3) if who == "tool"]
    assert "not this one" in results[0]
    assert "It is fine 1." in results[1]
    assert (project / "a.py").read_text() == "def f():\n    return 4 + 'x' + 'x' + 'x'\n"


def test_sub_agents_show_what_they_do_below_their_call(place: Place, server: OpenAIChatServer) -> None:
    """Asked for by a command of the project."""
    _write(place.project / "a.py", "one = 1\n")
    review = "---\ndescription: Review a file\nargument-hint: FILE\n---\nReview $1 with care.\n"
    _write(place.project / ".steersman/commands/review.md", review)
    with chatting(place, server, columns=120, rows=40, ready="y yes · n no") as terminal:
        _answer_yes(terminal, 1)
        terminal.wait_for(READY)
        for number, (columns, rows) in enumerate(SIZES, 1):
            terminal.resize(columns, rows)
            (place.project / "go").unlink(missing_ok=True)
            server.say(
                answer(call("task", prompt="Look around.", kind="explore")),
                answer(call("read", path="a.py"), call("write", path="b.py", content="two = 2\n")),
                "It is one.",
                answer(call("task", prompt="Do it.", kind="general")),
                answer(call("bash", command=WAITING)),
                "It is done.",
                f"Finished {number}.",
            )
            terminal.type("/rev")
            terminal.wait_for("\n /review ")
            terminal.press("tab")
            terminal.type(f"a{number}.py")
            terminal.wait_for(f"/review a{number}.py")
            terminal.press("enter")
            row = rf"\n[{SPINNER}] task  Do it\.[^\n]*\n  [{SPINNER}] bash  {WAITING}[^\n]*\n    started\n"
            terminal.wait_for(lambda at, row=row: re.search(row, at.shown))
            go(place)
            terminal.wait_for(f"Finished {number}.")
            terminal.wait_for(READY)
            told = below(terminal, f"\u276f /review a{number}.py\n")
            assert told.startswith(
                f"\u276f Review a{number}.py with care. ↳ task Look around. ✗ write b.py · not a valid"
            )
            order = (
                "✓ read a.py",
                "✓ task Look",
                f"↳ task Do it. ✓ bash {WAITING}",
                " over ✓ task Do it. · 38 tokens",
            )
            places = [told.index(words) for words in order]
            assert places == sorted(places), told
    assert not (place.project / "b.py").exists()
    explored = {tool["function"]["name"] for tool in server.requests[1]["tools"]}
    assert ("read" in explored, "write" in explored, "bash" in explored) == (True, False, False)


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_nothing_of_a_project_counts_before_trust(
    place: Place, server: OpenAIChatServer, columns: int, rows: int
) -> None:
    _write(place.project / ".steersman/agents/critic.md", "---\ndescription: d\n---\nYou review.")
    _write(place.project / ".claude/commands/fix.md", "Fix it.")
    _write(place.project / ".steersman/config.toml", '[[hooks]]\nat = "prompt"\ncommand = "touch ran"\n')
    server.say("Hello.")
    with chatting(place, server, columns=columns, rows=rows, ready="command = ") as terminal:
        for count in (1, 2, 3):
            _wait_for_question(terminal, count)
            terminal.type("n")
            terminal.wait_for(lambda at: at.cursor_line == "? n")
            terminal.press("enter")
        terminal.wait_for(READY)
        # What is told about a file stands above the question about the next one.
        assert terminal.everything.count("y yes · n no\n? n\n") == 3
        assert unwrap(terminal).count("is not trusted, so it is ignored. You are asked again at the next start.") == 3
        terminal.enter("/fix")
        terminal.wait_for("No command /fix")
        terminal.enter("Hello?")
        terminal.wait_for("Hello.")
    assert not (place.project / "ran").exists()
    kinds = {tool["function"]["name"]: tool for tool in server.requests[0]["tools"]}["task"]["function"]["parameters"]
    assert kinds["properties"]["kind"]["enum"] == ["general", "explore"]


def test_a_hook_on_prompts_says_no_once_and_gives_the_prompt_back(place: Place, server: OpenAIChatServer) -> None:
    """One that fails says no as well."""
    said = 'sed \'s/.*"prompt":"/Not /; s/".*//\' >said; cat said >&2; grep -q word said && exit 2; exit 7\n'
    _write(place.home / "check", said)
    hook = '[[hooks]]\nat = "prompt"\ncommand = ". ~/check"\nsandbox = false\n'
    _write(place.home / "config/steersman/config.toml", hook)
    with chatting(place, server, columns=120, rows=40) as terminal:
        for number, (columns, rows) in enumerate(SIZES, 1):
            terminal.resize(columns, rows)
            for typed, why in ((f"word{number}", ""), (f"break{number}", "it ended with exit code 7: ")):
                terminal.enter(typed)
                terminal.wait_for(lambda at, typed=typed: f"Not {typed}" in unwrap(at))
                terminal.wait_for(lambda at, typed=typed: at.cursor_line == f"{MARK}{typed}")
                assert unwrap(terminal).count(f"the hook '. ~/check' said no: {why}Not {typed}") == 1
                assert unwrap(terminal).count(f"Not {typed}") == 1
                terminal.press("ctrl+c")
                terminal.wait_for(lambda at: at.cursor_line == MARK.strip())
            # A long paste comes back as what it was shown as.
            terminal.paste(f"paste{number} is long\n" * 30)
            mark = f"[pasted #{number}: 30 lines]"
            terminal.wait_for(mark)
            terminal.press("enter")
            terminal.wait_for(lambda at, number=number: f"Not paste{number}" in unwrap(at))
            terminal.wait_for(lambda at, mark=mark: at.cursor_line == f"{MARK}{mark}")
            terminal.press("ctrl+c")
            terminal.wait_for(lambda at: at.cursor_line == MARK.strip())
    assert server.requests == []


def test_a_hook_that_gives_no_answer_in_time_says_no(place: Place, server: OpenAIChatServer) -> None:
    """While a hook is waited for, the chat does not say that it waits for the model."""
    late = '[[hooks]]\nat = "before_tool"\ntools = ["list"]\ncommand = "sleep 60"\ntimeout = 0.5\n'
    held = '[[hooks]]\nat = "prompt"\ncommand = "until [ -e go ]; do sleep 0.05; done"\n'
    _write(place.home / "config/steersman/config.toml", late + held)
    with chatting(place, server, columns=120, rows=40) as terminal:
        for number, (columns, rows) in enumerate(SIZES, 1):
            terminal.resize(columns, rows)
            (place.project / "go").unlink(missing_ok=True)
            server.say(answer(call("list", path=".")), f"I may not {number}.")
            terminal.enter(f"Look {number}.")
            terminal.wait_for(" working · 1 s")
            assert "waiting for the model" not in terminal.shown
            assert "Esc interrupts" in terminal.shown
            (place.project / "go").touch()
            terminal.wait_for(f"I may not {number}.")
            terminal.wait_for(READY)
            told = below(terminal, f"\u276f Look {number}.")
            assert "⊘ list . · denied Denied by the hook 'sleep 60': it gave no answer within 0.5 s" in told


def test_a_user_who_looks_elsewhere_is_called(place: Place, server: OpenAIChatServer) -> None:
    _write(place.home / "config/steersman/config.toml", "notify_after = 0\n")
    server.say(*[answer(call("bash", command="ls")), "Done."] * 3)
    with chatting(place, server, columns=120, rows=40, env={"TERM_PROGRAM": "WezTerm"}) as terminal:
        for number, (columns, rows) in enumerate(SIZES, 1):
            terminal.resize(columns, rows)
            terminal.enter(f"Look {number}.")
            terminal.wait_for(lambda at, number=number: at.raw.count(f"\x1b]9;{WAITS}\x07".encode()) == number)
            terminal.wait_for(lambda at: at.cursor_line == "?")
            _answer_yes(terminal, 1)
            terminal.wait_for(lambda at, number=number: at.raw.count(f"\x1b]9;{DONE}\x07".encode()) == number)
    server.say(*["Done."] * 3)
    with chatting(place, server, columns=120, rows=40) as terminal:
        for number, (columns, rows) in enumerate(SIZES, 1):
            terminal.resize(columns, rows)
            terminal.enter(f"Tell {number}.")
            terminal.wait_for(lambda at, number=number: at.raw.count(BELL.encode()) == number)
            terminal.wait_for(READY)


def test_how_a_user_is_called_depends_on_the_terminal() -> None:
    assert build_call("auto", DONE, {"TERM": "xterm-256color"}) == BELL
    assert build_call("auto", DONE, {"TERM": "xterm-kitty"}) == f"\x1b]9;{DONE}{BELL}"
    assert build_call("auto", DONE, {"TERM": "foot"}) == f"\x1b]777;notify;Steersman;{DONE}{BELL}"
    assert build_call("auto", DONE, {"TERM": "xterm-kitty", "TMUX": "/tmp/x"}) == BELL
    assert build_call("osc", DONE, {"TERM": "xterm"}) == f"\x1b]9;{DONE}{BELL}"
    assert build_call("bell", DONE, {"TERM": "xterm-kitty"}) == BELL
    assert build_call("off", DONE, {"TERM": "xterm"}) == ""
    assert [build_call("auto", DONE, {"TERM": name}) for name in ("dumb", "")] == ["", ""]


async def test_a_user_who_types_is_not_called_and_an_answered_question_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    sent: list[str] = []
    attention = Attention("bell", 0.05, sent.append)
    attention.note_key()
    attention.call_when_done()
    attention.call_while(lambda: False)
    assert sent == []
    waited = asyncio.Event()

    def note(text: str) -> None:
        sent.append(text)
        waited.set()

    attention = Attention("bell", 0.05, note)
    attention.note_key()
    attention.call_while(lambda: True)
    assert sent == []
    await waited.wait()
    assert sent == [BELL]
