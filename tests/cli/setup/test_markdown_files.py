"""Files of sub-agents and commands: the user's own count, a project's only after trust, and none gives more rights."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.cli.command import Place, environment
from tests.cli.setup.test_trust import Person

from steersman import Agent
from steersman.cli.chat.custom_commands import load_custom_commands
from steersman.cli.setup.agent_files import AgentFiles, load_agent_files, make_task_tool
from steersman.cli.setup.markdown_files import MAX_FILE_BYTES, load_project_files
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.builtin import builtin_tools
from steersman.tools.front_matter import BadFrontMatter, parse_front_matter
from steersman.tools.read_budget import ReadBudget

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def here(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(place).items():
        monkeypatch.setenv(name, value)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_list_in_front_matter_is_read_in_every_way_it_is_written() -> None:
    for text in ("read, search", "[read, 'search']", "\n  - read\n  - search", '"read, search"'):
        head, body = parse_front_matter(f"---\ntools: {text}\n---\nbody", lists=("tools",))
        assert (head, body) == ({"tools": "read, search"}, "body")
    assert parse_front_matter("---\ntools:\n---\n", lists=("tools",))[0] == {"tools": ""}
    with pytest.raises(BadFrontMatter):
        parse_front_matter("---\ntools: {a: b}\n---\n", lists=("tools",))


def test_front_matter_ends_within_bounds_and_the_text_after_it_may_be_long() -> None:
    head = "---\nname: x\n"
    body = "y\n" * 20_000 + "---\nz"
    assert parse_front_matter(f"{head}---\n{body}") == ({"name": "x"}, body)
    assert parse_front_matter(f"{head}{'#' * 8_000}\n---\n{body}") == ({"name": "x"}, body)
    many = "a:\n" * 300
    for text in (f"{head}{many}---\n{body}", f"{head}{'#' * 9_000}\n---\n", f"---\n{'#' * 8_184}\n----"):
        with pytest.raises(BadFrontMatter, match="no end, a second line '---', in its first 256 lines and 8,192 char"):
            parse_front_matter(text)
    with pytest.raises(BadFrontMatter, match=r"no end, a second line '---'$"):
        parse_front_matter(head)


async def test_files_that_cannot_be_used_are_named_and_of_very_many_the_number_is_told(place: Place) -> None:
    for number in range(300):
        _write(place.project / f".claude/commands/no name {number}.md", "x")
    told: list[str] = []
    assert not await load_project_files(place.project, (".claude/commands",), ask=None, notify=told.append)
    assert len(told) == 21
    assert told[0].startswith("no name 0.md is left out: its name may have")
    assert told[-1] == f"{place.project}/.claude/commands: 280 more are left out for such reasons."


async def test_the_files_of_all_folders_share_one_budget(place: Place) -> None:
    for folder in ("agents", "commands"):
        for number in range(3):
            _write(place.project / f".steersman/{folder}/x{number}.md", "---\ndescription: d\n---\nx")
    told: list[str] = []
    budget, person = ReadBudget(files=7), Person(agrees=True)
    agents = await load_agent_files(place.project, ask=person, notify=told.append, budget=budget)
    commands = await load_custom_commands(place.project, (), ask=person, notify=told.append, budget=budget)
    assert ([file.name for file in agents.project], [*commands]) == (["x0", "x1", "x2"], ["x0", "x1"])
    assert told == ["x2.md is left out: at most 7 files and folders are opened."]


async def test_a_user_is_not_asked_to_trust_more_than_can_be_looked_at(place: Place) -> None:
    """To show the megabytes that a folder may have would take many seconds, before anything is trusted."""
    for name in ("a", "b", "c"):
        _write(place.project / f".claude/commands/{name}.md", "x\n" * (MAX_FILE_BYTES // 2))
    told: list[str] = []
    agreeing = Person(agrees=True)
    found = await load_project_files(place.project, (".claude/commands",), ask=agreeing, notify=told.append)
    assert (found, agreeing.asked) == ([], [])
    (notice,) = told
    assert notice.startswith(f"{place.project}/.claude/commands is ignored: there is too much to look at before")
    assert notice.endswith("bytes; at most 262,144).")
    # Nor than a terminal keeps: the beginning would be gone by the end.
    for name in ("b", "c"):
        (place.project / f".claude/commands/{name}.md").unlink()
    _write(place.project / ".claude/commands/a.md", "!evil" + "\n" * 6_000)
    assert not await load_project_files(place.project, (".claude/commands",), ask=agreeing, notify=told.append)
    assert agreeing.asked == []
    assert told[-1].endswith("(6,002 lines; at most 5,000).")


async def test_a_command_of_thousands_of_empty_lines_does_not_hold_up_the_start(place: Place) -> None:
    _write(place.home / "config/steersman/commands/long.md", f"x{chr(10) * 99_000}y")
    began = time.process_time()
    (command,) = (await load_custom_commands(place.project, (), ask=None, notify=print)).values()
    assert command.not_obeyed == ""
    assert time.process_time() - began < 2  # 7 seconds where all that follow an empty line are looked at again


async def test_files_of_a_project_count_after_a_yes_and_only_with_that_content(place: Place) -> None:
    file = _write(place.project / ".claude/commands/fix.md", "Fix it. \u202e")
    _write(place.project / ".claude/commands/git/commit.md", "Commit.")
    (place.home / "secret.md").write_text("secret")
    (place.project / ".claude/commands/link.md").symlink_to(place.home / "secret.md")
    told: list[str] = []
    agreeing = Person(agrees=True)

    async def load(ask: Person | None) -> list[str]:
        return [
            f.name for f in await load_project_files(place.project, (".claude/commands",), ask=ask, notify=told.append)
        ]

    assert await load(None) == []
    assert await load(Person(agrees=False)) == []
    assert await load(agreeing) == ["fix", "git:commit"]
    assert agreeing.asked == [
        (
            f"Trust {file.parent}?",
            "--- fix.md (11 bytes)\nFix it. \\u{202e}\n--- git/commit.md (7 bytes)\nCommit.",
        )
    ]
    assert await load(None) == ["fix", "git:commit"]
    file.write_text("Do something else.")
    assert await load(None) == []
    assert "secret" not in "".join(told).replace("secret.md", "")


async def test_a_command_never_takes_the_name_of_another_and_says_what_it_does_not_obey(place: Place) -> None:
    own = place.home / "config/steersman/commands"
    _write(
        own / "review.md", "---\ndescription: Review \x1b[2J it\nargument-hint: '[file]'\n---\nReview $1 of $ARGUMENTS."
    )
    _write(own / "help.md", "Not the help.")
    _write(own / "bad name.md", "x")
    _write(own / "long.md", "x" * (MAX_FILE_BYTES + 1))
    _write(own / "empty.md", "---\nmodel: x\n---\n")
    _write(place.project / ".steersman/commands/review.md", "Of the project.")
    _write(
        place.project / ".claude/commands/run.md", "---\nallowed-tools: [Bash]\nmodel: x\n---\n# Run\n!`git status`\n"
    )
    told: list[str] = []
    found = await load_custom_commands(place.project, ("help",), ask=Person(agrees=True), notify=told.append)
    assert {name: (one.arguments, one.summary) for name, one in found.items()} == {
        "review": ("[file]", "Review [2J it"),
        "run": ("", "Run"),
    }
    assert found["run"].not_obeyed == (
        "allowed-tools, model of its front matter has no effect here. "
        "Its lines with ! are not run: the model reads them as text."
    )
    assert found["review"].expand("'a b' c") == "Review a b of 'a b' c."
    assert found["review"].expand("") == "Review  of ."
    assert found["run"].expand("more").endswith("\n\nmore")
    left_out = [line.partition(" is left out: ")[2] for line in told]
    assert [words.partition(" in /")[0] for words in left_out] == [
        "its name may have letters, digits, '.', '_' and '-'.",
        f"'long.md' is too large: more than {MAX_FILE_BYTES:,} bytes.",
        "it has no text.",
        "there is a /help of the chat itself.",
        "there is a /review",
    ]


async def test_agents_have_a_description_and_never_more_than_their_parent(place: Place) -> None:
    own, project = place.home / "config/steersman/agents", place.project / ".steersman/agents"
    _write(own / "tester.md", "---\ndescription: Runs tests\ntools: bash\n---\nYou test.")
    _write(project / "reviewer.md", "---\nname: critic\ndescription: Re\x1b[2Jviews\ntools: [read]\n---\nYou review.")
    _write(project / "mute.md", "You have no description.")
    _write(project / "empty.md", "---\ndescription: d\n---\n")
    _write(project / "general.md", "---\ndescription: d\n---\nI am general.")
    _write(project / "filed.md", "---\ndescription: d\nmodel: local:/tmp/x.gguf\n---\nx")
    told: list[str] = []
    files = await load_agent_files(place.project, ask=Person(agrees=True), notify=told.append)
    task = await make_task_tool(files, builtin_tools(place.project), has_budget=False, notify=told.append)
    assert task.parameters["properties"]["kind"]["enum"] == ["general", "explore", "tester", "critic"]
    assert "- critic: Re [2Jviews" in task.description
    assert task.access == "read"
    assert sorted(line.partition(" is left out: ")[2] for line in told) == [
        "it has no description, so the model would not know when to use it.",
        "it has no text, which would be its system prompt.",
        "its model is a file; only your own agents may name one.",
        "there is another agent 'general'.",
    ]


async def test_explore_only_reads(place: Place) -> None:
    tools = builtin_tools(place.project)
    task = await make_task_tool(AgentFiles(), tools, has_budget=False, notify=print)
    changes = [call("write", path="a", content="x"), call("bash", command="touch b"), call("list")]
    model = ScriptedModel(answer(call("task", prompt="Look.", kind="explore")), answer(*changes), "Tried.", "Done.")
    agent = Agent("scripted:echo", stream_fn=model, tools=[*tools, task])
    assert (await agent.prompt("Go.")).text == "Done."
    assert list(place.project.iterdir()) == []
    seen = [sorted(tool.name for tool in request.tools) for request, _ in model.requests]
    assert {"write", "edit", "bash"} <= set(seen[0])
    assert seen[1] == ["glob", "list", "read", "search"]
