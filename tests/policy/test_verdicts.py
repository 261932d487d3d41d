from __future__ import annotations

from typing import Any, cast

import pytest

from steersman.policy.verdicts import Inject, Reject, Rewrite, Skip, Stop, Warn
from steersman.types.messages import user_message


def test_inject_takes_a_string_a_message_a_dict_or_several() -> None:
    hello = user_message("hello")

    assert Inject("hello") == Inject(hello) == Inject([{"role": "user", "content": "hello"}])
    assert list(Inject(["hello", hello]).messages) == [hello, hello]


def test_inject_keeps_its_messages_when_the_list_it_was_given_changes() -> None:
    given = ["hello"]
    verdict = Inject(given)
    given.append("more")

    assert list(verdict.messages) == [user_message("hello")]


def test_inject_refuses_what_is_no_message() -> None:
    with pytest.raises(TypeError, match="got 3"):
        Inject(cast(Any, 3))


def test_rewrite_copies_its_arguments_and_refuses_what_is_no_dict() -> None:
    given = {"path": "a"}
    verdict = Rewrite(given)
    given["path"] = "b"

    assert verdict == Rewrite({"path": "a"})
    with pytest.raises(TypeError, match=r"as a dict, got \['a'\]"):
        Rewrite(cast(Any, ["a"]))


def test_skip_always_has_something_to_tell_the_model() -> None:
    assert Skip().text == "Skipped by a policy."
    with pytest.raises(ValueError, match="so say why; got ' '"):
        Skip(" ")


@pytest.mark.parametrize("verdict", [Stop, Skip, Warn, Reject])
def test_a_verdict_of_words_refuses_anything_else(verdict: Any) -> None:
    with pytest.raises(TypeError, match=rf"{verdict.__name__}\(\w+\) takes a string, got 7"):
        verdict(7)
