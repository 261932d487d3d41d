from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from steersman.provider.wires.protocol import ToolNames

PATTERNS = {
    "anthropic": (r"[a-zA-Z0-9_-]+", 128),
    "openai": (r"[a-zA-Z0-9_-]+", 64),
    "google": (r"[a-zA-Z_][a-zA-Z0-9_.:-]*", 64),
}
AWKWARD = [
    "calendar.list", "calendar_list", "calendar list", "x" * 200, "x" * 199 + "y", "1st", "café", "日本語", "a b", "",
    ".", "-", "_", "tool:run", "a/b", "new\nline", "\ud83d",
]  # fmt: skip


@pytest.mark.parametrize("provider", PATTERNS)
def test_names_become_legal_and_distinct_and_come_back(provider: str) -> None:
    """failures.md C14."""
    pattern, longest = PATTERNS[provider]
    names = ToolNames(AWKWARD, pattern, longest)

    written = [names.to_wire(name) for name in AWKWARD]

    assert [name for name in written if not re.fullmatch(pattern, name) or len(name) > longest] == []
    assert len(set(written)) == len(AWKWARD)
    assert [names.from_wire(name) for name in written] == AWKWARD


def test_a_legal_name_stays_as_it_is_also_if_another_would_become_it() -> None:
    taken = ToolNames(["a.b"]).to_wire("a.b")
    names = ToolNames(["a.b", taken])

    assert names.to_wire(taken) == taken
    assert names.to_wire("a.b") not in ("a.b", taken)
    assert [names.from_wire(names.to_wire(name)) for name in ("a.b", taken)] == ["a.b", taken]


def test_a_name_is_written_the_same_way_among_any_tools() -> None:
    """The bytes of a request do not change because a tool was added."""
    alone = ToolNames(["calendar.list"]).to_wire("calendar.list")

    assert ToolNames(["other", "calendar_list", "calendar.list"]).to_wire("calendar.list") == alone
    assert ToolNames([]).to_wire("calendar.list") == alone


def test_a_name_the_model_made_up_is_left_to_be_refused() -> None:
    assert ToolNames(["read"]).from_wire("reed") == "reed"


@given(st.lists(st.text(max_size=90), max_size=20), st.sampled_from(sorted(PATTERNS)))
def test_any_names_are_written_legally_and_read_back(given_names: list[str], provider: str) -> None:
    pattern, longest = PATTERNS[provider]
    names = ToolNames(given_names, re.compile(pattern), longest)
    written = {name: names.to_wire(name) for name in given_names}

    assert all(re.fullmatch(pattern, name) and len(name) <= longest for name in written.values())
    assert len(set(written.values())) == len(written)
    assert {name: names.from_wire(there) for name, there in written.items()} == {name: name for name in written}
