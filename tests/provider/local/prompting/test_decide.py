"""The prompts of the two steps, and what is read out of a decision: `deciding.py` and `answering.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from steersman import tool
from steersman.provider.local.prompting.answer import (
    Step,
    Turn,
    build_answer_prefix,
    build_answer_prompt,
    describe_failure,
)
from steersman.provider.local.prompting.decide import (
    Decision,
    build_decision_prefix,
    build_decision_prompt,
    is_repeated,
    parse_decision,
)
from steersman.tools.builtin import builtin_tools


@tool
def tide(harbour: str) -> str:
    """The tide at a harbour. It is asked for at the harbour's own station, in /etc/stations or elsewhere."""
    return harbour


def test_the_prompt_is_the_same_in_every_folder(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    assert build_decision_prefix(builtin_tools(here)) == build_decision_prefix(builtin_tools(there))


def choices(prefix: Sequence[Mapping[str, str]]) -> list[str]:
    return [said["content"] for said in prefix if said["role"] == "assistant"]


def test_the_examples_show_other_tools_than_the_real_ones() -> None:
    shown = choices(build_decision_prefix([tide]))
    assert len(shown) >= 8
    assert [choice for choice in shown if "tide" in choice] == []


def test_for_the_usual_tools_what_they_are_for_is_shown(tmp_path: Path) -> None:
    tools = builtin_tools(tmp_path)
    only_reading = [tool for tool in tools if tool.name == "read"]
    shown = {json.loads(choice)["tool"] for choice in choices(build_decision_prefix(tools))}
    assert sorted(shown) == [
        "edit_file", "find_files", "list_folder", "read_file", "respond", "run_command", "search_text",
    ]  # fmt: skip
    assert {json.loads(choice)["tool"] for choice in choices(build_decision_prefix(only_reading))} == {
        "read_file",
        "respond",
    }


def test_examples_of_other_tools_stay_where_a_tool_is_not_a_usual_one(tmp_path: Path) -> None:
    shown = "".join(choices(build_decision_prefix([*builtin_tools(tmp_path), tide])))
    assert "open_paper" in shown
    assert "read_file" in shown


def test_a_tool_is_one_line_of_its_first_sentence() -> None:
    last = build_decision_prefix([tide])[-1]["content"]
    assert "tide(harbour): The tide at a harbour.\nrespond(): " in last


def test_what_is_to_be_decided_goes_on_behind_the_prefix() -> None:
    prefix = build_decision_prefix([tide])
    turns = [Turn(["Hello"], [], "Hi!"), Turn(["And Emden?"], [Step("tide", '{"harbour":"Emden"}', "gone", True)])]
    prompt = build_decision_prompt(prefix, [tide], turns, 200)
    assert prompt[:-1] == prefix[:-1]
    assert prompt[-1]["content"].removeprefix(prefix[-1]["content"]) == (
        "Before, the user asked: Hello\nThe answer was: Hi!\n\n"
        'Request: And Emden?\nResults:\ntide {"harbour":"Emden"} gave: error: gone\nNext step:'
    )


def test_a_decision_names_the_tool_behind_the_alias(tmp_path: Path) -> None:
    tools = builtin_tools(tmp_path)
    assert parse_decision('{"tool": "read_file", "arguments": {"path": "a"}}', tools) == Decision("read", {"path": "a"})
    assert parse_decision('{"tool": "respond"}', tools) == Decision(None, {})


def test_what_is_not_a_whole_decision_is_none() -> None:
    for text in ("", "{", '{"tool": "tide", "arguments": {"har', "[]", '{"arguments": {}}', '"tide"'):
        assert parse_decision(text, [tide]) is None, text


def test_a_call_that_was_made_is_known_again_in_any_order_of_its_arguments() -> None:
    turn = Turn(["?"], [Step("write", '{"content":"x","path":"a"}', "done")])
    assert is_repeated(Decision("write", {"path": "a", "content": "x"}), turn)
    assert not is_repeated(Decision("write", {"path": "b", "content": "x"}), turn)
    assert not is_repeated(Decision(None, {}), turn)


def test_an_answer_is_asked_for_with_the_results_and_without_tools() -> None:
    turns = [Turn(["Hello"], [], "Hi!"), Turn(["Tide at Emden?"], [Step("tide", '{"harbour":"Emden"}', "1.61")])]
    assert build_answer_prompt(turns, 200) == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi!"},
        {"role": "user", "content": 'Result of tide {"harbour":"Emden"}:\n1.61\n\nQuestion: Tide at Emden?'},
    ]


def test_of_an_order_it_is_asked_what_came_of_it() -> None:
    turns = [Turn(["Run the tests."], [Step("bash", '{"command":"pytest"}', "1 passed")])]
    assert build_answer_prompt(turns, 200) == [
        {
            "role": "user",
            "content": 'Request: Run the tests.\n\nResult of bash {"command":"pytest"}:\n1 passed\n\nWhat came of it?',
        }
    ]


def test_where_every_call_failed_that_is_the_answer_and_nothing_is_made_up() -> None:
    silent = Step("tide", "{}", " ", True)
    assert describe_failure(Turn(["?"], [silent])) == "That did not work. tide gave no reason."
    gone = Step("read", '{"path":"a"}', "No file 'a'. There is 'b'.", True)
    denied = Step("bash", '{"command":"wc -l a"}', "Denied: not approved. Do not repeat it.", True)
    broken = Step("bash", '{"command":"pytest"}', "# 1 failed\n\n[exit code 1]", True)
    assert [
        describe_failure(Turn(["How long is a?"], steps)) for steps in ([gone], [gone, denied, denied], [broken])
    ] == [
        "That did not work. No file 'a'. There is 'b'.",
        "That did not work.\n\n    No file 'a'. There is 'b'.\n    Denied: not approved.",
        "That did not work.\n\n    # 1 failed\n    \n    [exit code 1]",
    ]


def test_where_a_call_gave_something_the_model_answers() -> None:
    steps = [Step("read", "{}", "gone", True), Step("list", "{}", "b.txt")]
    assert [
        describe_failure(Turn(["?"], steps)),
        describe_failure(Turn(["?"], steps[::-1])),
        describe_failure(Turn(["Hello!"])),
    ] == ["", "", ""]


def test_a_long_failure_is_cut() -> None:
    assert len(describe_failure(Turn(["?"], [Step("bash", "{}", "line\n" * 5000, True)]))) < 1500


def test_of_long_instructions_a_part_is_told() -> None:
    long = "Answer in French. " + "More of it. " * 2000
    system = build_answer_prefix(long)[0]["content"]
    assert "Answer in French." in system
    assert len(system) < 1500
