"""`steersman sessions` on files that a real agent wrote: found by little, shown harmlessly, removed only when meant."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.cli.command import Done, Place, assert_calm, command_line, environment, run_command
from tests.cli.pty_terminal import Terminal

from steersman import Agent, Session, ToolError, tool
from steersman.cli.sessions.printing import format_cost, format_time
from steersman.cli.sessions.saved import Tally
from steersman.testing import ScriptedModel, answer, call
from steersman.testing.servers import OpenAIChatServer
from steersman.types.usage import Usage

STEERING = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202edlrow"


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a < 0:
        raise ToolError("No negative numbers here.")
    return a + b


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for sessions."""
    return tmp_path / "kept"


async def keep(folder: Path, id: str, *prompts: str, turns: Sequence[Any]) -> Path:
    """A session of this id with these prompts, answered with these turns."""
    path = folder / "sessions.db"
    with Session.create(path, id) as session, Agent(ScriptedModel(*turns).model, tools=[add], session=session) as agent:
        for prompt in prompts:
            await agent.run(prompt)
    return path


def steersman(args: Sequence[str], place: Place, folder: Path | None = None, **more: Any) -> Done:
    where = [] if folder is None else ["--session-dir", str(folder)]
    done = run_command(["sessions", *args, *where], place=place, **more)
    assert_calm(done)
    return done


async def test_the_sessions_of_a_folder_are_listed_with_the_last_used_first(place: Place, folder: Path) -> None:
    await keep(folder, "session_aaaa1111_1", "What is 2 + 3?", turns=[answer(call("add", a=2, b=3)), "It is 5."])
    await keep(folder, "session_bbbb2222_1", f"{STEERING}\nHello", turns=["Hi."])
    done = steersman(["list"], place, folder)
    lines = done.text.splitlines()
    assert (done.code, done.errors) == (0, "")
    assert lines[0].split() == ["ID", "WHEN", "MESSAGES", "TURNS", "COST", "TITLE"]
    assert lines[1].split()[:2] == ["bbbb2222", "today"]
    assert lines[2].split()[:2] + lines[2].split()[3:6] == ["aaaa1111", "today", "4", "2", "?"]
    assert lines[2].endswith("  What is 2 + 3?")
    assert not set("\x1b\x07\x9b\u202e") & set(done.text)

    listed = steersman(["list", "--json"], place, folder).json
    assert [item["id"] for item in listed] == ["session_bbbb2222_1", "session_aaaa1111_1"]
    assert {name: listed[1][name] for name in ("title", "messages", "turns", "ended", "problems")} == {
        "title": "What is 2 + 3?",
        "messages": 4,
        "turns": 2,
        "ended": True,
        "problems": [],
    }


async def test_a_folder_without_sessions_says_so_and_all_finds_those_of_others(place: Place, tmp_path: Path) -> None:
    empty = steersman([], place)
    assert (empty.code, empty.text) == (
        0,
        "No saved sessions for this folder yet; --all lists those of every folder.\n",
    )
    kept = place.home / "state" / "steersman" / "sessions"
    mark = hashlib.sha256(os.fsencode(place.project)).hexdigest()[:8]
    for name, id in ((f"project-{mark}.db", "session_aaaa1111_1"), ("other-12345678.db", "session_bbbb2222_1")):
        Session.create(kept / name, id).close()
    own = steersman(["list", "--json"], place).json
    every = steersman(["list", "--all"], place)
    assert [item["id"] for item in own] == ["session_aaaa1111_1"]
    rows = [line.split() for line in every.text.splitlines()[1:]]
    assert sorted((row[0], row[1]) for row in rows) == [("aaaa1111", "project"), ("bbbb2222", "other")]


async def test_a_conversation_is_shown_with_its_tools_branches_and_nothing_that_steers_a_terminal(
    place: Place, folder: Path
) -> None:
    """failures.md L15: what a model, a tool or a user said is shown, not sent."""
    path = folder / "sessions.db"
    turns = [answer(f"Let me see. {STEERING}", call("add", a=2, b=3)), "It is 5.", "Well.", "Fünf.", "Again 5."]
    session = Session.create(path, "session_aaaa1111_1")
    with session, Agent(ScriptedModel(*turns).model, tools=[add], session=session) as agent:
        await agent.run("What is 2 + 3?")
        await agent.run("Sure?")
        await agent.branch(3, "german", prompt="Auf Deutsch?")
    done = steersman(["show", "aaaa"], place, folder)
    assert (done.code, done.errors) == (0, "")
    assert not set("\x1b\x07\x9b\u202e") & set(done.text)
    heads = [re.sub(r" [0-9a-f]+-[0-9a-f]+ ", " ", line) for line in done.text.splitlines() if line.startswith("#")]
    assert heads == [
        "#0 user",
        "#1 assistant (script)",
        "#2 add: completed",
        "#3 assistant (script)",
        "#4 user",
        "#5 assistant (script)",
    ]
    assert "  -> add(a=2, b=3)\n" in done.text
    assert "  Fünf.\n" in done.text
    assert "  >> another branch from here: " in done.text
    other = next(branch["leaf"] for branch in _shown(place, folder)["branches"] if not branch["current"])
    assert "  Well.\n" in steersman(["show", "aaaa", "--at", other], place, folder).text
    assert steersman(["show", "german"], place, folder).text == done.text
    # The id that is shown is one that is taken, and never the number of another message.
    (shown,) = re.findall(r"#1 ([0-9a-f]+-[0-9a-f]+) assistant", done.text)
    assert steersman(["show", "aaaa", "--at", shown], place, folder).text.count("  -> add(") == 1
    assert "It is 5." not in steersman(["show", "aaaa", "--at", shown], place, folder).text


def _shown(place: Place, folder: Path) -> dict[str, Any]:
    return cast(dict[str, Any], steersman(["show", "aaaa", "--json"], place, folder).json)


async def test_what_is_meant_by_an_id_is_told_apart_or_asked_for(place: Place, folder: Path) -> None:
    await keep(folder, "session_abcd0001_1", "First", turns=["1"])
    await keep(folder, "session_abcd0002_1", "Second", turns=["2"])
    both = steersman(["show", "abcd"], place, folder)
    assert (both.code, both.text, both.errors) == (
        1,
        "",
        "steersman: 'abcd' could mean 2 sessions: abcd0002 (Second), abcd0001 (First). Give more of the id.\n",
    )
    none = steersman(["show", "abcd00x1"], place, folder)
    assert (none.code, none.errors.splitlines()[0]) == (
        1,
        "steersman: No session 'abcd00x1' here. Similar: abcd0001 (First), abcd0002 (Second).",
    )
    assert steersman(["show", ""], place, folder).code == 1
    nowhere = steersman(["show", "abcd0001", "--at", "99"], place, folder)
    assert nowhere.errors == "steersman: No message 99 in this session; the last one is 1.\n"


async def test_an_export_can_be_imported_and_markdown_can_be_read(place: Place, folder: Path, tmp_path: Path) -> None:
    await keep(folder, "session_aaaa1111_1", "What is 2 + 3?", turns=[answer(call("add", a=2, b=3)), "It is ```5```."])
    piped = steersman(["export", "aaaa"], place, folder)
    target = tmp_path / "said.jsonl"
    assert steersman(["export", "aaaa", "-"], place, folder) == piped
    written = steersman(["export", "aaaa", str(target)], place, folder)
    assert (piped.code, written.code, written.text) == (0, 0, "")
    assert target.read_bytes() == piped.stdout
    with Session.import_(target, tmp_path / "new.db") as session:
        assert [message.text for message in session.messages] == ["What is 2 + 3?", "", "5", "It is ```5```."]

    again = steersman(["export", "aaaa", str(target)], place, folder)
    assert (again.code, again.errors) == (2, f"steersman: {str(target)!r} exists already; --force overwrites it.\n")
    page = tmp_path / "said.md"
    assert steersman(["export", "aaaa", str(page), "--format", "markdown"], place, folder).code == 0
    assert page.stat().st_mode & 0o777 == 0o600
    assert page.read_text() == (
        "# What is 2 + 3?\n\n## user\n\nWhat is 2 + 3?\n\n## assistant (script)\n\nCalls `add`:\n\n"
        '```json\n{"a":2,"b":3}\n```\n\n## add: completed\n\n```\n5\n```\n\n## assistant (script)\n\nIt is ```5```.\n'
    )


@pytest.mark.parametrize("ending", ["jsonl", "markdown", "html"])
async def test_an_export_makes_no_file_where_a_link_leads(
    place: Place, folder: Path, tmp_path: Path, ending: str
) -> None:
    """security.md: a project may bring a link, also to a file of the user that is not there yet."""
    await keep(folder, "session_aaaa1111_1", "First", turns=["1"])
    link, elsewhere = tmp_path / f"said.{ending}", tmp_path / "profile"
    link.symlink_to(elsewhere)
    refused = steersman(["export", "aaaa", str(link), "--format", ending], place, folder)
    assert (refused.code, refused.errors) == (2, f"steersman: {str(link)!r} exists already; --force overwrites it.\n")
    assert not elsewhere.exists()
    assert link.is_symlink()


async def test_sessions_are_removed_only_when_that_is_said(place: Place, folder: Path) -> None:
    path = await keep(folder, "session_aaaa1111_1", "First", turns=["1"])
    await keep(folder, "session_bbbb2222_1", "Second", turns=["2"])
    unsaid = steersman(["rm", "aaaa"], place, folder)
    assert (unsaid.code, unsaid.errors) == (
        2,
        "steersman: Removing needs confirmation, and there is no terminal to ask on; use --yes.\n",
    )
    with Session.open(path, "session_bbbb2222_1"):
        done = steersman(["rm", "aaaa", "bbbb", "--yes"], place, folder)
    assert (done.code, done.text, done.errors) == (
        1,
        "Removed aaaa1111  First\n",
        "steersman: bbbb2222 is in use by another program and was not removed; end that program first.\n",
    )
    assert [summary.id for summary in Session.list(path)] == ["session_bbbb2222_1"]


async def test_a_damaged_file_shows_what_can_be_read_and_says_what_cannot(place: Place, folder: Path) -> None:
    path = await keep(folder, "session_aaaa1111_1", "Before.", "After.", turns=["One.", "Two."])
    data = path.read_bytes()
    at = data.index(b"One.")
    path.write_bytes(data[:at] + bytes(4) + data[at + 4 :])
    done = steersman(["show", "aaaa"], place, folder)
    assert done.code == 0
    assert [line.strip() for line in done.text.splitlines() if line.startswith("  ")] == ["Before.", "After.", "Two."]
    assert "Lost when the file was damaged." in done.errors
    assert path.read_bytes()[at : at + 4] == bytes(4)

    (folder / "sessions.db").write_bytes(b"no database at all, but some bytes " * 400)
    ruined = steersman(["list"], place, folder)
    assert (ruined.code, ruined.text) == (1, "")
    assert ruined.errors.startswith(f"steersman: The file {str(path)!r} ")


@pytest.mark.real_time
async def test_an_answer_is_asked_for_again_and_another_way_is_taken(
    place: Place, folder: Path, server: OpenAIChatServer
) -> None:
    path = folder / "sessions.db"
    server.say("Blue.", "Dark blue.", "Red, rather.", "Leaf green.")
    with Session.create(path, "session_aaaa1111_1") as session, Agent(server.model("gpt-x"), session=session) as agent:
        await agent.run("Name a colour.")
        await agent.run("A darker one.")
    model = ["--model", "openai-chat:gpt-x"]
    again = steersman(["rerun", "aaaa", *model, "--at", "1", "--tag", "warm"], place, folder, server=server)
    other = steersman(["branch", "aaaa", *model, "--at", "warm", "Like", "leaves?"], place, folder, server=server)
    assert (again.code, again.text, other.code, other.text) == (0, "Red, rather.\n", 0, "Leaf green.\n")
    with Session.open(path, write=False) as session:
        ways = [[entry.message.text for entry in session.entries(branch.leaf)] for branch in session.tree()]  # pyright: ignore
    assert ways == [
        ["Name a colour.", "Blue.", "A darker one.", "Dark blue."],
        ["Name a colour.", "Red, rather.", "Like leaves?", "Leaf green."],
    ]


def test_times_and_costs_are_told_as_people_say_them() -> None:
    now = 1_763_208_000.0
    assert [format_time(now - back, now).split()[0] for back in (0, 86_400)] == ["today", "yesterday"]
    assert len(format_time(now - 400 * 86_400, now)) == len("2024-10-11")
    costs = [Usage(), Usage(cost=0.01234), Usage(cost=1234.5), Usage(cost=0.5, partial=True)]
    assert [format_cost(Tally(turns=1, usage=usage)) for usage in costs] == [
        "?",
        "$0.012",
        "$1,234.50",
        "at least $0.500",
    ]
    assert format_cost(Tally()) == "-"


async def test_on_a_narrow_terminal_nothing_breaks_and_removing_asks_first(place: Place, folder: Path) -> None:
    """failures.md L15, L23: a title with wide letters, line breaks and control characters stays in its line."""
    path = await keep(
        folder, "session_aaaa1111_1", f"長い題名がここにあります、とても長い {STEERING}", turns=["はい。" * 40]
    )
    command = [*command_line(["sessions"]), "--session-dir", str(folder)]
    with Terminal([*command, "list"], columns=40, env=environment(place), cwd=place.project) as listing:
        assert listing.ended() == 0
        assert listing.lines[0].startswith("aaaa1111 長い題名がここにあります、")
        assert listing.lines[1].startswith("  today ")
        assert listing.lines[2:4] == ["", ""]
    with Terminal([*command, "show", "aaaa"], columns=40, env=environment(place), cwd=place.project) as showing:
        assert showing.ended() == 0
        assert b"\x1b]0;" not in showing.raw
        assert b"\x1b[2J" not in showing.raw
        assert "".join(showing.everything.split()).count("はい。") == 40
    for said, code, left in (("\x03", 130, 1), ("n\n", 1, 1), ("y\n", 0, 0)):
        with Terminal([*command, "rm", "aaaa"], columns=40, env=environment(place), cwd=place.project) as removing:
            removing.wait_for("permanently? [y/N]")
            removing.type(said)
            assert removing.ended() == code
        assert len(Session.list(path)) == left
