"""An agent is made of options and settings, and what is wrong with them is told before anything is started."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command import Place, environment

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.setup.budget import MAX_TURNS
from steersman.cli.setup.startup import UNKNOWN_WINDOW, start_agent
from steersman.policy.limits import ExecutionLimits
from steersman.provider.models.presets import PRESETS
from steersman.session.session import Session
from steersman.testing import answer, call
from steersman.testing.servers import OpenAIChatServer
from steersman.types.errors import SteersmanError
from steersman.types.model import Model

pytestmark = pytest.mark.real_time
MODEL = "openai-chat:gpt-x"


@pytest.fixture(autouse=True)
def here(place: Place, server: OpenAIChatServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment of the command, for code in this very process."""
    for name, value in environment(place, server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.project)
    known = dict(PRESETS)
    yield
    PRESETS.clear()
    PRESETS.update(known)


def _configure(place: Place, text: str) -> None:
    folder = place.home / "config/steersman"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text)


async def _start(options: Options, told: list[str] | None = None) -> dict[str, object]:
    """What an outfit has, after it was taken off again."""
    async with start_agent(options, approve=None, notify=(told if told is not None else []).append) as started:
        agent = started.agent
        return {
            "model": started.model.name,
            "why": started.why,
            "tools": [*agent.tool_table.read(agent.tools)],
            "prompt": agent.context.system_prompt,
            "limits": agent.config.execution_limits,
            "approval": repr(agent.config.approval),
            "thinking": agent.config.thinking_level,
            "fallbacks": [getattr(model, "name", model) for model in agent.config.fallbacks],
            "window": None if agent.config.context_config is None else agent.config.context_config.max_context_tokens,
        }


async def test_without_a_word_it_has_all_tools_and_asks_before_it_changes_anything(place: Place) -> None:
    told: list[str] = []
    started = await _start(Options(model=MODEL), told)
    prompt = str(started.pop("prompt"))
    assert prompt.startswith(f"You are an agent at work in the folder '{place.project}' on the user's machine")
    assert started == {
        "model": MODEL,
        "why": f"Using {MODEL} (--model).",
        "tools": ["read", "write", "edit", "list", "glob", "search", "bash", "fetch", "task", "todo"],
        "limits": ExecutionLimits(max_turns=MAX_TURNS, max_total_tokens=None, max_duration=None),
        "approval": "Approval('ask')",
        "thinking": "off",
        "fallbacks": [],
        "window": UNKNOWN_WINDOW,
    }
    assert told == []


async def test_flags_count_before_the_settings(place: Place) -> None:
    _configure(
        place,
        f"""
        model = "{MODEL}"
        thinking = "low"
        tools = ["read"]
        system_prompt = "From the settings."
        max_turns = 3
        max_duration = 5
        fallbacks = ["openai-chat:other"]
        [approval]
        mode = "accept-edits"
        allow = ["bash(ls:*)"]
        ask = ["fetch"]
        deny = ["bash(rm:*)"]
        """,
    )
    started = await _start(Options())
    assert started == {
        "model": MODEL,
        "why": f"Using {MODEL} (from ~/config/steersman/config.toml).",
        "tools": ["read"],
        "prompt": "From the settings.",
        "limits": ExecutionLimits(max_turns=3, max_total_tokens=None, max_duration=5),
        "approval": "Approval('accept-edits', deny=['bash(rm:*)'], ask=['fetch'], allow=['bash(ls:*)'])",
        "thinking": "low",
        "fallbacks": ["openai-chat:other"],
        "window": UNKNOWN_WINDOW,
    }
    options = Options(
        model="openai-chat:mine",
        thinking="high",
        tools=("search", "list"),
        system_prompt="Mine.",
        max_turns=9,
        max_duration=1,
        allowed_tools=("edit(*.md)",),
    )
    changed = await _start(options)
    assert changed == {
        **started,
        "model": "openai-chat:mine",
        "why": "Using openai-chat:mine (--model).",
        "tools": ["list", "search"],
        "prompt": "Mine.",
        "limits": ExecutionLimits(max_turns=9, max_total_tokens=None, max_duration=1),
        "approval": "Approval('accept-edits', deny=['bash(rm:*)'], ask=['fetch'], allow=['bash(ls:*)', 'edit(*.md)'])",
        "thinking": "high",
    }


async def test_a_rule_for_a_program_whose_options_are_not_known_is_told(place: Place) -> None:
    told: list[str] = []
    await _start(Options(model=MODEL, allowed_tools=("bash(frobnicate:*)", "bash(git log:*)")), told)
    assert [text.partition(" is not a program")[0] for text in told] == [
        "The rule 'bash(frobnicate:*)' in allow: 'frobnicate'"
    ]


async def test_instructions_and_skills_of_the_project_are_read(place: Place) -> None:
    (place.project / "AGENTS.md").write_text("Use tabs.")
    skill = place.project / ".steersman/skills/release"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: release\ndescription: How to release.\n---\nPush.")
    (place.project / ".steersman/skills/broken").mkdir()
    told: list[str] = []
    started = await _start(Options(model=MODEL, tools=("read",)), told)
    assert started["tools"] == ["read", "skill"]
    assert "Use tabs." in str(started["prompt"])
    assert "- release: How to release." in str(started["prompt"])
    assert [line.partition(" is no skill")[1] for line in told] == [" is no skill"]
    started = await _start(Options(model=MODEL, tools=()), told)
    assert started["tools"] == []
    assert "Use tabs." in str(started["prompt"])
    assert "release" not in str(started["prompt"])


async def test_each_model_has_its_own_words_and_what_is_wrong_with_the_project_is_told_once(place: Place) -> None:
    """The embedded model has a prompt of its own and little room: with another one the usual words come back."""
    (place.project / "AGENTS.md").write_bytes(b"Use tabs. \xff")
    told: list[str] = []
    async with start_agent(Options(model=MODEL, tools=("read",)), approve=None, notify=told.append) as started:
        usual = started.agent.context.system_prompt
        assert "Use tabs." in usual
        assert started.get_system_prompt(Model("local", "qwen2.5-coder-0.5b")) == ""
        assert started.get_system_prompt(Model("local", "/models/big.gguf")) == usual
        assert started.get_system_prompt(Model("anthropic", "claude")) == usual
    assert [line.partition(" is not all UTF-8")[1] for line in told] == [" is not all UTF-8"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            Options(model=MODEL, tools=("raed",)),
            "No tool named 'raed'. Did you mean 'read'? Available tools: read, write,",
        ),
        (Options(model=MODEL, allowed_tools=("bash(python:*)",)), "The rule 'bash(python:*)' in allow cannot be used"),
        (Options(model=MODEL, json_schema=Path("none.json")), "Cannot read the schema 'none.json': No such file"),
        (
            Options(model=MODEL, json_schema=Path("list.json")),
            "Cannot use the schema 'list.json': a JSON Schema must be an object.",
        ),
        (Options(model=MODEL, json_schema=Path("bad.json")), "Cannot use the schema 'bad.json': "),
        (Options(model=MODEL, json_schema=Path("odd.json")), "Cannot use the schema 'odd.json': "),
        (Options(model=MODEL, json_schema=Path("fifo")), "Cannot use the schema 'fifo': "),
        (Options(model=MODEL, json_schema=Path("/dev/zero")), "'/dev/zero': it has more than 1,048,576 bytes."),
        (Options(model=MODEL, mcp_config=Path("none.json")), "none.json' cannot be read: No such file"),
        (
            Options(model=MODEL, max_budget_usd=1.0),
            f"The prices of {MODEL} are unknown, so a budget cannot be enforced",
        ),
    ],
)
async def test_what_is_wrong_is_told_and_leaves_no_session(options: Options, says: str, place: Place) -> None:
    (place.project / "list.json").write_text("[]")
    (place.project / "bad.json").write_text("{")
    (place.project / "odd.json").write_text('{"type": "objekt"}')
    os.mkfifo(place.project / "fifo")
    with pytest.raises(UserError) as caught:
        await _start(options)
    assert says in str(caught.value)
    assert caught.value.code == 2
    assert place.sessions == []


async def test_a_budget_of_the_settings_that_cannot_be_kept_is_told(place: Place) -> None:
    _configure(place, "max_budget_usd = 1")
    told: list[str] = []
    started = await _start(Options(model=MODEL), told)
    assert told == [f"The prices of {MODEL} are unknown, so a budget cannot be enforced."]
    assert started["limits"] == ExecutionLimits(
        max_turns=MAX_TURNS, max_total_tokens=None, max_duration=None, max_cost=1
    )


async def test_a_budget_holds_for_the_models_that_stand_in_too(place: Place, server: OpenAIChatServer) -> None:
    _configure(place, 'fallbacks = ["openai-chat:gpt-4.1"]')
    server.say(*[reply for _ in range(2) for reply in (server.refusal(404, "No such model."), call("list", path="."))])
    options = Options(model="openai-chat:gpt-4o", max_budget_usd=0.00001)
    async with start_agent(options, approve=None, notify=print) as started:
        result = await started.agent.run("Go.")
    assert result.end_reason == "limit"
    assert [request["model"] for request in server.requests] == ["gpt-4o", "gpt-4.1"]
    _configure(place, f'fallbacks = ["{MODEL}"]')
    with pytest.raises(UserError, match=f"The prices of {MODEL} are unknown, so a budget"):
        await _start(options)


async def test_an_answer_is_held_to_a_schema_from_a_file(place: Place, server: OpenAIChatServer) -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    (place.project / "schema.json").write_text(json.dumps(schema))
    server.say('{"name": "Ada"}', '{"name": "Ada", "age": 36}')
    async with start_agent(
        Options(model=MODEL, json_schema=Path("schema.json")), approve=None, notify=print
    ) as started:
        result = await started.agent.run("Who?")
    assert (result.end_reason, result.output) == ("done", {"name": "Ada", "age": 36})
    assert started.output_schema == {name: value for name, value in schema.items() if name != "$schema"}


async def test_what_would_be_asked_about_is_denied_where_no_user_can_be_asked(
    place: Place, server: OpenAIChatServer
) -> None:
    server.say(answer(call("write", path="x.txt", content="x")), "I could not.")
    async with start_agent(Options(model=MODEL), approve=None, notify=print) as started:
        result = await started.agent.run("Write x.")
    assert result.text == "I could not."
    assert not (place.project / "x.txt").exists()
    server.say(answer(call("write", path="x.txt", content="x")), "I could.")
    async with start_agent(
        Options(model=MODEL, allowed_tools=("write(*.txt)",)), approve=None, notify=print
    ) as started:
        await started.agent.run("Write x.")
    assert (place.project / "x.txt").read_text() == "x"


async def test_the_model_is_told_before_anything_is_fetched_or_started(place: Place) -> None:
    heard: list[str] = []
    options = Options(model="local:/nowhere/model.gguf")
    with pytest.raises(SteersmanError, match=r"/nowhere/model\.gguf"):
        async with start_agent(options, approve=None, notify=print, chosen=lambda choice: heard.append(choice.why)):
            pass
    assert heard == ["Using local:/nowhere/model.gguf (--model)."]


async def test_a_folder_that_is_gone_is_told(place: Place) -> None:
    place.project.rmdir()
    with pytest.raises(UserError, match="The current folder no longer exists"):
        await _start(Options(model=MODEL))


async def test_a_session_is_kept_unless_nothing_was_said(place: Place, server: OpenAIChatServer) -> None:
    await _start(Options(model=MODEL))
    assert [Session.list(file) for file in place.sessions] == [[]]
    server.say("Hello.")
    async with start_agent(Options(model=MODEL), approve=None, notify=print) as started:
        await started.agent.run("Hi.")
    assert [[kept.title for kept in Session.list(file)] for file in place.sessions] == [["Hi."]]


async def test_where_no_session_can_be_kept_the_run_goes_on_with_a_notice(
    place: Place, server: OpenAIChatServer
) -> None:
    (place.project / "file").write_text("")
    server.say("Hello.")
    told: list[str] = []
    options = Options(model=MODEL, session_dir=place.project / "file")
    async with start_agent(options, approve=None, notify=told.append) as started:
        assert started.agent.session is None
        assert (await started.agent.run("Hi.")).text == "Hello."
    assert len(told) == 1
    assert told[0].startswith("This session is not saved: ")
