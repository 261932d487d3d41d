"""An answer is made of what was looked at: what occurs nowhere there does not get through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from steersman.provider.local.prompting.answer import Step, Turn
from steersman.provider.local.prompting.grounding import SentenceGate, collect_evidence, find_invention

CONFIG = Step("read", '{"path":"config.json"}', '{"host": "localhost", "port": 8099, "limit": 1,000}')
FOUND = Step("search", '{"pattern":"port|server"}', "src/a.py\n3: RETRIES = 30\n\nsrc/b.py\n9: server_port = 4180")


@pytest.mark.parametrize(
    ("sentence", "invention"),
    [
        ("The port in config.json is 8099.", None),
        ("The host is `localhost`, and 1000 is the limit.", None),
        ("The port is 8080.", "8080"),
        ("It is set in settings.py.", "settings.py"),
        ("It is read by load_config.", "load_config"),
        ("The host is `example`.", "example"),
        ("It was written by Ada Lovelace.", "Ada"),
        ("Elephants usually wander across distant savannas together.", "elephants"),
    ],
)
def test_a_name_or_a_number_that_was_not_read_is_an_invention(sentence: str, invention: str | None) -> None:
    evidence = collect_evidence([Turn(["Which port is set in config.json?"], [CONFIG])])
    assert find_invention(sentence, evidence) == invention


def test_of_an_order_only_names_and_numbers_are_checked() -> None:
    ran = Step("bash", '{"command":"git status"}', "nothing to commit, working tree clean")
    evidence = collect_evidence([Turn(["Run the command git status."], [ran])])
    told = ["Everything is fine, because there are no pending modifications.", "There are 3 pending modifications."]
    assert [find_invention(sentence, evidence) for sentence in told] == [None, "3"]


def test_a_number_has_to_stand_near_a_word_of_the_question() -> None:
    evidence = collect_evidence([Turn(["Which port does the server use?"], [FOUND])])
    assert (find_invention("It is 4180.", evidence), find_invention("It is 30.", evidence)) == (None, "30")


def test_what_was_said_before_counts_as_known() -> None:
    turns = [Turn(["Hi, I am Marta."], [], "Hello, Marta!"), Turn(["And the port?"], [CONFIG])]
    assert find_invention("The port is 8099, dear Marta.", collect_evidence(turns)) is None


def feed(gate: SentenceGate, pieces: list[str]) -> list[str]:
    return [shown for piece in pieces for shown in gate.feed(piece)] + gate.finish()


def test_an_answer_is_shown_up_to_the_first_invention() -> None:
    gate = SentenceGate(collect_evidence([Turn(["Which port is set in config.json?"], [CONFIG])]))
    shown = feed(gate, ["The port", " is 8099", ". It", " is used by", " serve.py", ". More", " text."])
    assert ("".join(shown), gate.refused) == ("The port is 8099. ", "serve.py")
    whole = SentenceGate(collect_evidence([Turn(["Which port is set in config.json?"], [CONFIG])]))
    assert feed(whole, ["It is 8080."]) == []
    assert (whole.released, whole.refused) == ("", "8080")


@given(some.lists(some.sampled_from(["the port ", "is", " 8099", ".", ". ", "\n", "localhost", " "])))
def test_what_is_true_gets_through_whole_in_whatever_pieces(pieces: list[str]) -> None:
    gate = SentenceGate(collect_evidence([Turn(["Which port is set in config.json?"], [CONFIG])]))
    shown = "".join(feed(gate, pieces))
    assert (shown, gate.released) == ("".join(pieces), "".join(pieces)) or gate.refused is not None


def test_a_sentence_that_only_repeats_the_question_is_no_answer() -> None:
    turns = [Turn(["And the tests?"], [FOUND])]
    gate = SentenceGate(collect_evidence(turns))
    assert feed(gate, ["And the ", "tests?"]) == []
    assert gate.refused == "And the tests?"
