"""What is looked at for a question, with the real tools in a small project, and what the rules reply."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.tools.builtin.looking import call

from steersman import tool
from steersman.provider.local.prompting.answer import Step, Turn
from steersman.provider.local.prompting.decide import Decision
from steersman.provider.local.prompting.plan import COMPOSE, look_first, must_look, plan_next, simplify_pattern
from steersman.provider.local.prompting.question import parse_question
from steersman.provider.local.prompting.reply import Reply, describe_unknown, format_code
from steersman.tools.builtin import builtin_tools

FILES = {
    "README.md": "# Lantern\n\nLantern dims the lamps of a town.\n",
    "src/lamp.rs": "pub const BRIGHTEST: u8 = 100;\n\npub struct Lamp {\n    id: u32,\n}\n\npub fn dim_all() {}\n",
    "src/main.rs": "mod lamp;\n\n// TODO: more\nfn main() {\n    lamp::dim_all();\n}\n",
    "config/town.yaml": "town: Skagen\nstreets: 48\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


async def follow(project: Path, prompt: str, *steps: Step) -> tuple[list[str], str]:
    """The calls that the rules make, and their reply: the text, or what the model has to do."""
    tools = {tool.name: tool for tool in builtin_tools(project)}
    turn = Turn([prompt], list(steps))
    while True:
        planned = plan_next([turn], list(tools.values()))
        if not isinstance(planned, Decision) or planned.tool is None:
            words = planned.text if isinstance(planned, Reply) else "compose" if planned == COMPOSE else "decide"
            return [f"{step.name} {step.arguments}" for step in turn.steps[len(steps) :]], words
        assert len(turn.steps) < 6
        output = await call(tools[planned.tool], **planned.arguments)
        written = msgspec.json.encode(planned.arguments, order="sorted").decode()
        turn.steps.append(Step(planned.tool, written, str(output.content), output.is_error))


async def test_where_a_name_is_defined_is_quoted(project: Path) -> None:
    assert await follow(project, "Where is dim_all defined?") == (
        ['search {"pattern":"dim_all"}'],
        "`dim_all` is defined in `src/lamp.rs`, line 7:\n\n    pub fn dim_all() {}",
    )
    assert (await follow(project, "What is BRIGHTEST set to?"))[1] == (
        "`BRIGHTEST` is set in `src/lamp.rs`, line 1:\n\n    pub const BRIGHTEST: u8 = 100;"
    )


async def test_what_is_not_found_is_looked_for_once_more_and_then_not_made_up(project: Path) -> None:
    assert await follow(project, "Where is the function dimOne defined?") == (
        ['search {"pattern":"dimOne"}', 'search {"ignore_case":true,"pattern":"dim[_ -]?one"}'],
        "I did not find `dimOne` here. I looked for `dimOne` and for `dim[_ -]?one`.",
    )
    assert (await follow(project, "Is there a function called DimAll?"))[1] == (
        "No. I did not find `DimAll` here. I looked for `DimAll` and for `dim[_ -]?all`. These lines are similar:\n\n"
        "    src/lamp.rs:7: pub fn dim_all() {}\n    src/main.rs:5: lamp::dim_all();"
    )


async def test_a_count_is_a_tools(project: Path) -> None:
    replies = [
        (await follow(project, prompt))[1].partition(".\n")[0]
        for prompt in (
            "How many Rust files are there?",
            "How many lines has src/lamp.rs?",
            "How many TODO comments are in the code?",
            "How many files mention dim_all?",
            "How many structs are there?",
            "How many Go files are there?",
        )
    ]
    assert replies == [
        "There are 2 Rust files: `src/lamp.rs`, `src/main.rs`.",
        "`src/lamp.rs` has 7 lines.",
        "There is 1 TODO, in 1 file. Counted were the lines that match `TODO`.",
        "There are 2 files with `dim_all`: `src/lamp.rs`, `src/main.rs`.",
        "There is 1 struct, in 1 file. Counted were the lines that match `^\\s*(pub |typedef )*struct +\\w+`.",
        "I did not find any Go files: no file matches `*.go`.",
    ]


async def test_files_that_mention_a_name_are_all_listed(project: Path) -> None:
    assert (await follow(project, "Which files use dim_all?"))[1] == (
        "2 files have `dim_all`: `src/lamp.rs`, `src/main.rs`."
    )


async def test_a_topic_is_searched_for_before_the_model_speaks(project: Path) -> None:
    calls, words = await follow(project, "How many streets are there?")
    assert (calls, words) == (['search {"context":1,"ignore_case":true,"pattern":"street"}'], "compose")
    calls, words = await follow(project, "Which database does it use?")
    assert calls[1:] == ['glob {"pattern":"*database*"}']
    assert words.startswith("I don't know. I searched for `database|sql|mongo|redis` and looked for files named")


async def test_a_name_of_the_question_that_occurs_nowhere_is_not_talked_about(project: Path) -> None:
    """The lines that have only the other words say nothing about it."""
    assert (await follow(project, "Which Redis town is used here?"))[1].startswith("I don't know.")


async def test_a_file_that_is_not_there_is_looked_for_by_its_name(project: Path) -> None:
    assert await follow(project, "What does main.rs do?") == (
        ['read {"path":"main.rs"}', 'glob {"pattern":"*main*"}', 'read {"path":"src/main.rs"}'],
        "compose",
    )
    assert (await follow(project, "What does src/radio.rs do?"))[1] == (
        "I did not find `src/radio.rs`: there is no such file. No file has a similar name."
    )


async def test_a_file_that_may_not_be_read_is_not_called_missing(project: Path) -> None:
    for prompt in ("What does src/main.rs do?", "How many lines has src/main.rs?"):
        denied = Step("read", '{"path":"src/main.rs"}', "Denied by the rule 'read'.", failed=True)
        assert await follow(project, prompt, denied) == ([], "decide")


async def test_an_overview_is_read_from_what_there_is(project: Path) -> None:
    assert await follow(project, "What does this project do?") == (
        ['glob {"pattern":"README*"}', 'read {"path":"README.md"}'],
        "compose",
    )
    (project / "README.md").unlink()
    calls, words = await follow(project, "What does this project do?")
    assert (calls[-1], words) == ('list {"path":"."}', "compose")


async def test_a_search_of_the_model_that_found_nothing_is_repeated_once(project: Path) -> None:
    empty = Step("search", '{"pattern":"class BrightLamp"}', "No line in '.' matches 'class BrightLamp'.")
    calls, words = await follow(project, "Look for the class of bright lamps.", empty)
    assert calls == ['search {"ignore_case":true,"pattern":"class[_ -]?bright[_ -]?lamp"}']
    assert words.startswith("I did not find it here. I looked for `class BrightLamp` and for `class[_ -]?bright")
    none = Step("glob", '{"pattern":"*.lamps.toml"}', "No file in '.' matches '*.lamps.toml'.")
    assert (await follow(project, "Show the lamps.", none))[0] == ['glob {"pattern":"*lamps*"}']


async def test_where_the_model_looked_at_something_else_the_words_of_the_question_are_searched_for(
    project: Path,
) -> None:
    clock = Step("bash", '{"command":"date"}', "Tue Nov 17 04:00:00 UTC 2026")
    calls, words = await follow(project, "Name the town?", clock)
    assert (calls[:1], words) == (['search {"context":1,"ignore_case":true,"pattern":"name|town"}'], "decide")


def test_nothing_is_answered_from_the_head_where_something_can_be_looked_at(project: Path) -> None:
    tools = builtin_tools(project)
    assert must_look([Turn(["Which files are in the folder src?"])], tools)
    assert not must_look([Turn(["Hello!"])], tools)
    assert look_first([Turn(["When is it dark in town?"])], tools) == Decision(
        "search", {"pattern": "dark|town", "ignore_case": True, "context": 1}
    )
    for prompt in ("Hello!", "What is the capital of France?", "Thanks a lot!"):
        assert look_first([Turn([prompt])], tools) is None


def test_tools_of_another_kind_are_left_to_the_model() -> None:
    @tool
    def search(word: str) -> str:
        """Look for a word in the letters."""
        return word

    assert plan_next([Turn(["Where is load_user defined?"])], [search]) is None
    assert not must_look([Turn(["Which licence has it?"])], [search])


def test_a_simpler_pattern_has_the_words_alone() -> None:
    assert simplify_pattern(r"^def\s+loadUser\b") == {"pattern": "def[_ -]?load[_ -]?user", "ignore_case": True}
    assert simplify_pattern("^$") is None


def test_what_was_looked_at_in_vain_is_told_with_the_nearest_lines() -> None:
    question = parse_question("Which port does the server use?")
    found = Step("search", '{"pattern":"port"}', "a.py\n3: import x\n7: the server port\n[2 matches in 1 file.]")
    assert describe_unknown(question, [found, Step("read", '{"path":"b.py"}', "")]) == (
        "I don't know. I searched for `port` and read `b.py`, and did not find the answer there. The nearest lines:\n\n"
        "    a.py:7: the server port\n    a.py:3: import x"
    )


def test_a_name_with_backticks_stays_code() -> None:
    """What files and users write does not become markup."""
    assert [format_code(text) for text in ("a b", "a`b", "``a\n")] == ["`a b`", "`` a`b ``", "``` ``a ```"]


def test_a_question_about_what_was_said_is_left_to_the_model(project: Path) -> None:
    tools = builtin_tools(project)
    before = Turn(["What does dim_all do?"], [], "It dims all lamps.")
    for prompt in ("Which default does it have?", "What is this for?"):
        assert plan_next([before, Turn([prompt])], tools) is None
        assert not must_look([before, Turn([prompt])], tools)
        assert plan_next([Turn([prompt])], tools) is not None
    assert look_first([before, Turn(["When is that dark?"])], tools) is None
    assert plan_next([before, Turn(["Where is Lamp defined?"])], tools) == Decision("search", {"pattern": "Lamp"})
