"""Code blocks of an answer, as `/copy` and the HTML export find them."""

from __future__ import annotations

from steersman.types.code_blocks import Part, list_code_blocks, split_code


def test_fences_are_found_and_left_out() -> None:
    text = "Do:\n```python x\na = 1\n\n```\n~~~\n```\n~~~\nEnd.\n````\nb\n```\nc"
    assert list(split_code(text)) == [
        Part("Do:"),
        Part("a = 1\n", "python"),
        Part("```", ""),
        Part("End."),
        Part("b\n```\nc", ""),
    ]
    assert list_code_blocks("no code, `inline` only") == []
    assert list(split_code("")) == []
