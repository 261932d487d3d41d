from __future__ import annotations

import pytest

from steersman.tools.schema.records import Documentation, parse_docstring

GOOGLE = """Search the files.

Looks at text only.

Args:
    pattern (str): What to look for,
        as a regular expression.
    path: Where: a directory or a file.
    *rest: Ignored.

Returns:
    matches: not a parameter.

Raises:
    ValueError: If bad.
"""

NUMPY = """Search the files.

Looks at text only.

Parameters
----------
pattern : str
    What to look for,
    as a regular expression.
path : str, optional
    Where: a directory or a file.
*rest
    Ignored.

Returns
-------
matches : list
    Not a parameter.
"""

SPHINX = """Search the files.

Looks at text only.

:param str pattern: What to look for,
    as a regular expression.
:param path: Where: a directory or a file.
:param rest: Ignored.
:type path: str
:returns: matches
:raises ValueError: If bad.
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_three_styles_say_the_same(text: str) -> None:
    assert parse_docstring(text) == Documentation(
        "Search the files.\n\nLooks at text only.",
        {
            "pattern": "What to look for, as a regular expression.",
            "path": "Where: a directory or a file.",
            "rest": "Ignored.",
        },
    )


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_no_docstring_says_nothing(text: str | None) -> None:
    assert parse_docstring(text) == Documentation("", {})


def test_words_that_only_look_like_a_section_stay_in_the_description() -> None:
    text = "Note that args matter: see below.\n\nArgs: are only words here.\n\nNotes on returns"
    assert parse_docstring(text) == Documentation(text, {})


def test_two_names_may_share_one_numpy_description() -> None:
    text = "Add.\n\nParameters\n----------\na, b : int\n    A summand.\n"
    assert parse_docstring(text).parameters == {"a": "A summand.", "b": "A summand."}


def test_an_empty_section_is_no_harm() -> None:
    assert parse_docstring("Do it.\n\nArgs:\n\nReturns:\n    x") == Documentation("Do it.", {})
