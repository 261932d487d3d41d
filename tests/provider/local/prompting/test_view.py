"""What a small model is shown of a conversation: `provider/local/view.py`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from steersman.provider.local.prompting.answer import Step, Turn, split_turns
from steersman.provider.local.prompting.excerpt import choose_excerpt, estimate_tokens, truncate, truncate_together
from steersman.types.content import TextContent, ToolCall
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage, user_message


def said(text: str) -> AssistantMessage:
    return AssistantMessage([TextContent(text)])


def called(name: str, **arguments: object) -> AssistantMessage:
    return AssistantMessage([ToolCall(f"id-{name}", name, dict(arguments))], stop_reason="tool_use")


def gave(name: str, text: str, *, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage([TextContent(text)], tool_call_id=f"id-{name}", tool_name=name, is_error=is_error)


def test_a_question_its_calls_and_its_answer_are_one_turn() -> None:
    messages: list[Message] = [
        user_message("What is in a.txt?"),
        called("read", path="a.txt"),
        gave("read", "No such file", is_error=True),
        said("It is not there."),
        user_message("And b.txt?"),
    ]
    assert split_turns(messages) == [
        Turn(["What is in a.txt?"], [Step("read", '{"path":"a.txt"}', "No such file", True)], "It is not there."),
        Turn(["And b.txt?"]),
    ]


def test_a_message_in_the_middle_of_a_turn_belongs_to_it() -> None:
    messages: list[Message] = [
        user_message("Read everything."),
        called("list", path="."),
        gave("list", "README.md"),
        user_message("Only the README."),
    ]
    assert split_turns(messages) == [
        Turn(["Read everything.", "Only the README."], [Step("list", '{"path":"."}', "README.md")])
    ]


def test_an_error_is_shown_as_one() -> None:
    assert [Step("read", "{}", "gone", True).shown, Step("read", "{}", "here").shown] == ["error: gone", "here"]


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    text = "begin " + "x" * 3000 + " end"
    short = truncate(text, 100)
    assert (short[:6], short[-4:], "\n[...]\n" in short) == ("begin ", " end", True)


@given(some.text(max_size=2000), some.integers(10, 300))
def test_a_cut_text_has_at_most_so_many_tokens(text: str, tokens: int) -> None:
    assert estimate_tokens(truncate(text, tokens)) <= tokens + 4


def test_characters_that_take_more_tokens_leave_fewer_of_them() -> None:
    assert len(truncate("潮" * 3000, 100)) < len(truncate("x" * 3000, 100))


def test_the_last_result_is_shown_longest() -> None:
    shown = truncate_together(["a" * 3000, "b" * 3000, "c" * 3000], 300)
    lengths = [len(text) for text in shown]
    assert lengths == sorted(lengths)
    assert sum(map(estimate_tokens, shown)) <= 310


def test_of_a_long_file_the_lines_that_matter_are_shown() -> None:
    text = "\n".join([*(f"line {number}" for number in range(300)), "the port is 8099", *(["more"] * 300)])
    shown = choose_excerpt("read", text, ["port"], 60)
    assert "the port is 8099" in shown
    assert estimate_tokens(shown) <= 70
    assert choose_excerpt("read", "short", ["port"], 60) == "short"


def test_each_hit_of_a_search_is_shown_with_its_file() -> None:
    found = "src/a.py\n3: PORT = 1\n4- x = 2\nsrc/b.py\n9: the port\n[2 matches in 2 files.]"
    assert choose_excerpt("search", found, ["port"], 200) == (
        "src/a.py:3: PORT = 1\nsrc/a.py:4: x = 2\nsrc/b.py:9: the port"
    )
