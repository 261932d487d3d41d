from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.context.transcripts import user

from steersman.context.log import MessageView, View
from steersman.types.messages import AgentMessage

A, B, C = user("a"), user("b"), user("c")


def test_a_view_stays_as_it_was_when_its_list_grows() -> None:
    base = [1, 2]
    view = View(base)
    base.append(3)
    assert view == [1, 2]
    assert [list(view), list(reversed(view)), len(view), 3 in view] == [[1, 2], [2, 1], 2, False]


def test_a_view_equals_any_sequence_with_the_same_items() -> None:
    items: list[AgentMessage] = [A, B]
    view = MessageView(items)
    assert view == [A, B]
    assert items == view
    assert view == (A, B)
    assert view == MessageView([A, B, C], 2)
    assert view != [A]
    assert view != [B, A]
    assert view != "ab"
    assert View(["a", "b"]) != "ab"
    assert view != 5


def test_a_view_is_made_without_copying() -> None:
    base: list[AgentMessage] = [A, B]
    assert MessageView(base).base is base


def test_a_view_can_be_added_to_lists_and_shown() -> None:
    view, more = View([1]), [2]
    assert (view + more, more + view) == ([1, 2], [2, 1])
    assert repr(view) == "View([1])"


def test_a_view_is_as_unhashable_as_a_list() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(View([1]))


@pytest.mark.parametrize("index", [2, -3])
def test_an_index_outside_of_the_view_is_refused_although_the_list_is_longer(index: int) -> None:
    with pytest.raises(IndexError, match=f"no item {index} among 2"):
        View([1, 2, 3], 2)[index]


@given(st.lists(st.integers(), max_size=6), st.integers(0, 6), st.slices(6), st.integers(-6, 5))
def test_a_view_is_indexed_and_sliced_like_the_list_it_was(
    base: list[int], length: int, part: slice, index: int
) -> None:
    length = min(length, len(base))
    view, copy = View(base, length), base[:length]
    assert view[part] == copy[part]
    if -length <= index < length:
        assert view[index] == copy[index]
