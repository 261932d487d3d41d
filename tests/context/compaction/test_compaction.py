from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.context.transcripts import (
    CHAOS,
    MODEL,
    PROVIDER,
    answer,
    call,
    conversations,
    result,
    turn,
    user,
    valid,
)
from tests.rows import each_row

from steersman.context.compaction.config import CompactionConfig, ContextConfig
from steersman.context.compaction.steps import MARKER
from steersman.context.compaction.strategies import DefaultCompaction, halve_limit, subtract_overhead
from steersman.context.log import Log
from steersman.context.repair import repair
from steersman.context.tokens import estimate_tokens, estimate_total_tokens
from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import AgentMessage, ExtensionMessage, ToolResultMessage, UserMessage, user_message

CONFIGS = st.builds(
    ContextConfig,
    max_context_tokens=st.integers(1, 3_000),
    threshold=st.sampled_from([0.5, 0.8, 1.0]),
    keep_first=st.integers(1, 2),
    keep_recent=st.integers(0, 8),
    old_output_chars=st.sampled_from([0, 5, 100, 2_000]),
)
TINY = st.builds(
    ContextConfig,
    max_context_tokens=st.integers(1, 200),
    keep_recent=st.integers(0, 4),
    old_output_chars=st.integers(0, 60),
)


def compacted(messages: Sequence[AgentMessage], config: ContextConfig) -> Sequence[AgentMessage]:
    return DefaultCompaction().compact(messages, config)


def limited(tokens: int, **settings: Any) -> ContextConfig:
    return ContextConfig(max_context_tokens=tokens, threshold=1.0, **settings)


def identities(messages: Sequence[AgentMessage]) -> list[int]:
    return [id(message) for message in messages]


def last_start(messages: Sequence[AgentMessage]) -> int:
    """Where the last answer begins, or the users' messages after it."""
    answers = [index for index, message in enumerate(messages) if message.role == "assistant"]
    if messages[-1].role == "user":
        spoken = [index for index, message in enumerate(messages) if message.role != "user" or message.synthetic]
        return max(spoken, default=-1) + 1
    return answers[-1]


@given(conversations(), CONFIGS)
def test_no_call_is_split_from_its_result(messages: list[AgentMessage], config: ContextConfig) -> None:
    """loop.md C3; failures.md I1: what remains needs no repair but an end."""
    shown = compacted(messages, config)
    repaired = repair(shown, provider=PROVIDER, model=MODEL)
    assert len(repaired) - len(shown) == (shown[-1].role == "assistant")
    # Only an output that was cut to nothing still needs a word.
    pairs = [pair for pair in zip(shown, repaired, strict=False) if pair[0] is not pair[1]]
    assert [before.text for before, _ in pairs] == [""] * len(pairs)


@given(CHAOS, TINY)
def test_whatever_was_said_it_can_be_sent_after_compaction(messages: list[AgentMessage], config: ContextConfig) -> None:
    """failures.md I1"""
    assert valid(compacted(messages, config))


@given(st.one_of(conversations(), CHAOS), st.one_of(CONFIGS, TINY))
def test_compacting_is_deterministic_and_the_second_time_nothing_changes(
    messages: list[AgentMessage], config: ContextConfig
) -> None:
    """loop.md C3"""
    shown = compacted(messages, config)
    assert compacted(messages, config) == shown
    assert compacted(shown, config) is shown


@given(conversations(), CONFIGS)
def test_the_task_and_the_last_word_stay(messages: list[AgentMessage], config: ContextConfig) -> None:
    """loop.md C3"""
    shown = compacted(messages, config)
    assert shown[0] is messages[0]
    if isinstance(messages[-1], ToolResultMessage):
        assert isinstance(shown[-1], ToolResultMessage)
        assert shown[-1].tool_call_id == messages[-1].tool_call_id
    else:
        assert shown[-1] is messages[-1]


@given(conversations(), CONFIGS)
def test_everything_shown_is_as_it_was_or_shorter(messages: list[AgentMessage], config: ContextConfig) -> None:
    """loop.md C3"""
    shown = compacted(messages, config)
    assert estimate_total_tokens(shown) <= estimate_total_tokens(messages)
    known = set(identities(messages))
    for message in shown:
        assert id(message) in known or message.synthetic or isinstance(message, ToolResultMessage)


@given(conversations(), CONFIGS)
def test_what_fits_is_left_alone_and_what_does_not_is_made_to_fit_if_it_can(
    messages: list[AgentMessage], config: ContextConfig
) -> None:
    """loop.md C3: one threshold for trigger and target."""
    shown = compacted(messages, config)
    if estimate_total_tokens(messages) <= config.limit:
        assert shown is messages
    elif estimate_total_tokens(shown) > config.limit:
        before = shown[: last_start(shown)]
        tasks = [message for message in before if message.role == "user" and not message.synthetic][: config.keep_first]
        assert estimate_total_tokens(before) - estimate_total_tokens(tasks) <= estimate_tokens(MARKER)
        assert all(len(message.text) <= config.old_output_chars for message in shown if message.role == "tool_result")


def test_first_only_long_old_outputs_are_shortened() -> None:
    """loop.md C3"""
    messages = [user(), *turn("a", "A" * 4_000 + "Z" * 4_000), *turn("b"), *turn("c", "c" * 4_000)]
    shown = compacted(messages, limited(1_800, keep_recent=2, old_output_chars=400))
    note = "\n[... 8000 characters, shortened to save space ...]\n"
    assert [message for index, message in enumerate(shown) if index != 2] == [*messages[:2], *messages[3:]]
    assert identities(shown[3:]) == identities(messages[3:])
    assert shown[2].text.startswith("A" * 200)
    assert note in shown[2].text
    assert shown[2].text.endswith("Z" * 100)
    assert len(shown[2].text) == 400


def test_old_pictures_are_left_out_with_long_outputs() -> None:
    screen = ToolResultMessage([TextContent("screen"), ImageContent("aGk=")], tool_call_id="a", tool_name="read")
    messages: list[AgentMessage] = [user(), answer(call("a")), screen, *turn("b")]
    shown = compacted(messages, limited(500, keep_recent=2))
    assert shown[2] == result("a", "screen\n[image left out]")


def test_then_old_turns_become_short_summaries_and_users_stay() -> None:
    """loop.md C3"""
    messages = [
        user(),
        answer("I will look. " + "x" * 400, call("a"), call("b"), call("c", "write")),
        result("a"),
        result("b", "no such file", is_error=True),
        result("c", name="write"),
        user("steer"),
        answer("no", stop_reason="error"),
        answer("ok"),
        *turn("d"),
    ]
    shown = compacted(messages, limited(120, keep_recent=2))
    excerpt = ("I will look. " + "x" * 400)[:197] + "..."
    summary = user_message(f"[Earlier turn] {excerpt} Tools used: read x2, write (1 failed).", synthetic=True)
    assert shown == [user(), summary, user("steer"), answer("ok"), *turn("d")]
    assert identities(shown[3:]) == identities(messages[7:])


def test_at_last_one_constant_marker_stands_for_the_middle() -> None:
    """loop.md C3"""
    middle = [message for number in range(30) for message in [*turn(f"m{number}"), user(f"steer {number}")]]
    messages = [user(), *middle, *turn("end")]
    config = limited(60, keep_recent=2)
    shown = compacted(messages, config)
    assert shown == [user(), MARKER, *turn("end")]
    grown = [*shown, *[message for number in range(30) for message in turn(f"n{number}")], *turn("last")]
    assert compacted(grown, config) == [user(), MARKER, *turn("last")]


def test_steering_without_end_is_dropped_from_the_middle_too() -> None:
    """failures.md S12"""
    steering = [user(f"steer {number} " + "x" * 400) for number in range(100)]
    shown = compacted([user("task"), *steering, answer("ok"), user("last")], limited(500, keep_recent=2))
    assert shown == [user("task"), MARKER, answer("ok"), user("last")]


def test_a_tail_too_long_by_itself_shrinks_to_its_last_group() -> None:
    """loop.md C3"""
    messages = [user(), *turn("a", "x" * 900), *turn("b", "x" * 900), *turn("c", "x" * 900)]
    shown = compacted(messages, limited(300, keep_recent=10))
    assert estimate_total_tokens(shown) <= 300
    assert shown[0] is messages[0]
    assert identities(shown[-2:]) == identities(messages[-2:])


def test_what_the_user_just_said_stays_whole() -> None:
    said = [user("one " + "x" * 400), user("two " + "x" * 400)]
    shown = compacted([user("task"), *turn("a", "x" * 900), answer("done"), *said], limited(240, keep_recent=3))
    assert identities(shown[-2:]) == identities(said)
    assert shown[0] == user("task")


def test_outputs_of_the_last_group_are_shortened_when_nothing_else_helps() -> None:
    messages: list[AgentMessage] = [user(), answer(call("a"), call("b")), result("a", "x" * 90_000), result("b")]
    shown = compacted(messages, limited(1_000))
    assert estimate_total_tokens(shown) <= 1_000
    assert identities(shown[:2]) == identities(messages[:2])
    assert shown[3] is messages[3]
    assert len(shown[2].text) == 2_000


def test_one_message_larger_than_the_window_frees_nothing_and_says_so_by_returning_it() -> None:
    """failures.md I2: the same objects come back, so the loop can tell and need not try again every turn."""
    messages = [user("x" * 1_200_000)]
    assert compacted(messages, ContextConfig()) is messages
    more = [*messages, answer("ok"), user("next")]
    assert compacted(more, ContextConfig()) is more


def test_more_first_messages_can_be_kept() -> None:
    messages = [user("one"), user("two"), *turn("a", "x" * 900), user("three"), *turn("b")]
    shown = compacted(messages, limited(40, keep_first=2, keep_recent=2))
    assert shown == [user("one"), user("two"), MARKER, *turn("b")]


def test_a_transcript_without_a_task_at_its_start_is_compacted_too() -> None:
    """failures.md I1"""
    messages = [*turn("a", "x" * 900), *turn("b", "x" * 900), user("task"), *turn("c")]
    shown = compacted(messages, limited(40, keep_recent=2))
    assert shown == [user("task"), MARKER, *turn("c")]
    assert compacted([], limited(1)) == []
    answers = [answer("x" * 900), answer("y" * 900)]
    summary = user_message(f"[Earlier turn] {'x' * 197}...", synthetic=True)
    assert compacted(answers, limited(1)) == [summary, answer("y" * 900)]


def test_an_applications_own_messages_survive_summaries() -> None:
    note = ExtensionMessage([], kind="note")
    messages: list[AgentMessage] = [user(), answer("x" * 900, call("a")), note, result("a"), *turn("b")]
    shown = compacted(messages, limited(150, keep_recent=2))
    assert [message.role for message in shown] == ["user", "user", "extension", "assistant", "tool_result"]


def test_the_prefix_before_the_first_change_keeps_its_objects() -> None:
    """loop.md C3: providers cache prefixes."""
    messages = [user(), *turn("a"), *turn("b"), *turn("c", "x" * 9_000), *turn("d")]
    shown = compacted(messages, limited(800, keep_recent=2, old_output_chars=100))
    assert identities(shown[:6]) == identities(messages[:6])
    assert shown[6] != messages[6]


@given(conversations(), CONFIGS)
def test_a_compaction_of_a_log_can_be_undone(messages: list[AgentMessage], config: ContextConfig) -> None:
    """loop.md C1, C3"""
    log = Log(messages)
    entry = log.compact(compacted(log.visible, config))
    assert valid(log.visible)
    assert compacted(log.visible, config) == log.visible
    log.undo(entry.id)
    assert identities(log.visible) == identities(messages)


def only_answers(message: AgentMessage) -> int:
    return 1 if message.role == "assistant" else 0


def test_the_estimator_is_pluggable() -> None:
    """loop.md C4"""
    messages = [user(), *turn("a"), *turn("b")]
    assert compacted(messages, limited(2, keep_recent=2, estimator=only_answers)) is messages
    summary = user_message("[Earlier turn] calling a Tools used: read.", synthetic=True)
    assert compacted(messages, limited(1, keep_recent=2, estimator=only_answers)) == [user(), summary, *turn("b")]


@each_row(
    ("settings", "text"),
    [
        ({"max_context_tokens": 0}, "ContextConfig.max_context_tokens is a whole number, at least 1, got 0."),
        ({"max_context_tokens": -5}, "ContextConfig.max_context_tokens is a whole number, at least 1, got -5."),
        ({"max_context_tokens": 1.5}, "ContextConfig.max_context_tokens is a whole number, at least 1, got 1.5."),
        ({"keep_recent": -1}, "ContextConfig.keep_recent is a whole number, at least 0, got -1."),
        ({"keep_first": 0}, "ContextConfig.keep_first is a whole number, at least 1, got 0."),
        ({"old_output_chars": True}, "ContextConfig.old_output_chars is a whole number, at least 0, got True."),
        (
            {"threshold": 0.0},
            "ContextConfig.threshold is a fraction of the window, above 0 and at most 1, got 0.0.",
        ),
        (
            {"threshold": float("nan")},
            "ContextConfig.threshold is a fraction of the window, above 0 and at most 1, got nan.",
        ),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is compared below
        ContextConfig(**settings)
    assert str(caught.value) == text


def test_the_configuration_has_one_limit() -> None:
    """loop.md C3"""
    assert ContextConfig().limit == 160_000
    assert ContextConfig(max_context_tokens=1_000, threshold=0.5).limit == 500
    assert ContextConfig().compaction == CompactionConfig(in_memory_strategy=None)


def test_after_an_overflow_half_of_it_has_to_do() -> None:
    """loop.md C5"""
    config = ContextConfig(max_context_tokens=200_000, keep_recent=10)
    assert (halve_limit(config).limit, halve_limit(config).keep_recent) == (80_000, 5)
    assert halve_limit(config, tokens=20_000).limit == 10_000
    assert halve_limit(config, tokens=900_000).limit == 80_000
    assert halve_limit(ContextConfig(max_context_tokens=1, keep_recent=0)).max_context_tokens == 1
    assert replace(halve_limit(config), max_context_tokens=200_000, keep_recent=10) == config


@given(conversations(), st.integers(0, 9_000))
def test_what_the_estimator_misses_makes_the_window_smaller(messages: list[AgentMessage], tokens: int) -> None:
    """loop.md C4: a context that is too long by its real usage is too long for the strategy as well."""
    config = limited(2_000)
    fitting = subtract_overhead(config, messages, tokens)
    estimate = estimate_total_tokens(messages)
    if tokens <= estimate:
        assert fitting is config
    elif tokens > config.limit:
        assert estimate > min(fitting.limit, estimate - 1)
        assert fitting.limit <= max(1, config.limit - (tokens - estimate))


def test_a_user_is_a_user_whatever_is_kept() -> None:
    shown = compacted([user("x" * 40), *turn("a", "x" * 9_000), user("next")], limited(40, keep_recent=1))
    assert [type(message) for message in shown] == [UserMessage, UserMessage, UserMessage]
