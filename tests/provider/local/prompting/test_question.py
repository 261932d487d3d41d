"""What a question asks about a project, by patterns alone."""

from __future__ import annotations

import pytest

from steersman.provider.local.prompting.question import parse_question


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("Where is load_user defined?", "definition", "load_user"),
        ("In which file is the struct Lamp declared?", "definition", "Lamp"),
        ("Which file defines `Ticket`?", "definition", "Ticket"),
        ("Is there a function called dim_one?", "definition", "dim_one"),
        ("Where is run() defined?", "definition", "run"),
        ("And where is Agent defined?", "definition", "Agent"),
        ("OK, so what is TIMEOUT set to?", "value", "TIMEOUT"),
        ("Which files mention TIMEOUT?", "mentions", "TIMEOUT"),
        ("Where is load_user used?", "mentions", "load_user"),
        ("What is TIMEOUT set to?", "value", "TIMEOUT"),
        ("What's the value of max_size?", "value", "max_size"),
        ("What does load_user do?", "name", "load_user"),
        ("What does src/lamp.rs do?", "file", ""),
        ("Which port is set in config.json?", "file", ""),
        ("What does this project do?", "overview", ""),
        ("What is this?", "overview", ""),
        ("Which database does it use?", "topic", ""),
        ("Which HTTP library is used?", "topic", ""),
        ("How many lamps are there?", "topic", ""),
        ("Where is the Bluetooth driver?", "topic", ""),
        ("Which files are in the folder src?", "open", ""),
        ("What is the capital of France?", "open", ""),
        ("How do I sort a list in Java?", "open", ""),
        ("Who changed it last in git?", "open", ""),
        ("Run the tests.", "open", ""),
        ("Hello!", "open", ""),
        ("", "open", ""),
    ],
)
def test_a_question_is_of_one_kind(text: str, kind: str, name: str) -> None:
    found = parse_question(text)
    assert (found.kind, found.name) == (kind, name)


@pytest.mark.parametrize(
    ("text", "noun", "file", "pattern"),
    [
        ("How many lines has src/a.py?", "lines", "src/a.py", ""),
        ("How many Rust files are in the project?", "Rust files", "", "*.rs"),
        ("How many Python files are in the folder src?", "Python files", "src", "*.py"),
        ("And how many files are there?", "files", "", "*"),
        ("How many files are there?", "files", "", "*"),
        ("How many files mention lamp?", "files with it", "", ""),
        ("How many TODOs are left?", "TODOs", "", "TODO"),
    ],
)
def test_what_is_to_be_counted_is_known(text: str, noun: str, file: str, pattern: str) -> None:
    found = parse_question(text)
    assert (found.kind, found.noun, found.file, found.pattern) == ("count", noun, file, pattern)


def test_what_is_about_the_project_has_to_be_looked_up() -> None:
    about = ["Which files are in the folder src?", "Which licence has it?", "How many tests are there?"]
    others = ["What is the capital of France?", "Hi, how are you?", "What is a class in Python?", "What is 2 + 2?"]
    assert [parse_question(text).about_project for text in (*about, *others)] == [True] * 3 + [False] * 4


def test_words_that_matter_are_kept_as_stems_and_names_as_they_are() -> None:
    found = parse_question("Which Redis versions are needed for the stations?")
    assert (found.terms, found.specific) == (("redi", "version", "station"), ("Redis",))
