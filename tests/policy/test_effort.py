"""How much work a judgement is, counted in function calls: it grows with the command, and with the rules beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import process_time
from types import FrameType
from typing import TypeVar

import pytest
from tests.policy.toolbox import judge, says, tool_of

from steersman.policy.approval import Approval
from steersman.policy.destructive import find_destructive_effects
from steersman.policy.proposals import propose_exact_rules, propose_rules

DENY = """
    rm; rm -rf; git push --force; git push -f; git reset --hard; git clean -f; git branch -D; git stash drop; curl; wget
    dd; mkfs*; shutdown; reboot; docker system prune; kubectl delete; terraform destroy; npm publish; cargo publish; ssh
    twine upload; chmod -R; chown -R; scp; sudo; su; aws s3 rm; gh repo delete; dropdb; redis-cli flushall
"""
RULES = [f"bash({rule.strip()})" for line in DENY.strip().splitlines() for rule in line.split(";")]
PIECES = [f"bash(*{number}x*{number}*)" for number in range(30)]
ALLOW = ["bash(ls:*)", "bash(cat:*)", "bash(sort:*)", "bash(find:*)", "bash(echo:*)"]
LONGEST = 9_900
BASH = tool_of("bash")
_Result = TypeVar("_Result")


def _count_calls(policy: Approval, command: str) -> tuple[int, str]:
    """How many functions are called to judge a command, and what is decided."""
    calls, judgement = _count(lambda: policy.judge(BASH, {"command": command}))
    return calls, judgement.says


def _count(work: Callable[[], _Result]) -> tuple[int, _Result]:
    """How many functions are called for some work, and what it returns."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return calls, result


COMMANDS = {
    "the same part": ("a;", "ask"),
    "the same part, allowed": ("ls;", "allow"),
    "parts": ("ls a{};", "allow"),
    "parts of other programs": ("p{};", "ask"),
    "parts of a program with rules": ("git push a{};", "ask"),
    "parts that run others": ("xargs a{};", "ask"),
    "parts with wildcards": ("ls a{}*;", "allow"),
    "parts for a shell": ("sh -c 'a b';", "ask"),
    "lines": ("ls a{}\n", "allow"),
    "words": ("a{} ", "ask"),
    "options": ("git push --x{};", "ask"),
    "inputs": ("cat <a{};", "allow"),
    "outputs": ("ls >a{};", "ask"),
    "variables": ("CI=1 ls a{};", "allow"),
    "substitutions": ("$(", "ask"),
    "reserved words": ("if ", "ask"),
    "a text in lines": ("x <<E\na\n", "ask"),
}


@pytest.mark.parametrize("rules", [RULES, PIECES], ids=["words", "pieces"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_work_grows_with_the_length_of_a_command(name: str, rules: list[str]) -> None:
    """failures.md F16: whatever a model writes, the loop is not held up."""
    piece, says = COMMANDS[name]
    policy = Approval(deny=rules, allow=ALLOW)
    whole = "".join(piece.format(number) for number in range(LONGEST // len(piece.format(""))))
    half, _ = _count_calls(policy, whole[: LONGEST // 2].rpartition(piece[-1])[0])
    most, decided = _count_calls(policy, whole[:LONGEST].rpartition(piece[-1])[0])
    assert decided == says
    assert most <= 2.2 * half + 2_000
    assert most <= 30 * LONGEST


SHELLS_OF_TEXTS = " ".join(['"a;b"'] * 30)
QUESTIONS = {
    "parts for a shell": f"bash -c '{'a;' * 4_900}'",
    "wildcards for a shell": f"bash -c '{'ls * ' * 1_960}'",
    "texts for a shell": "sh " + '"a;b;c;d" ' * 980,
    "shells with texts": "sh " + f"'sh {SHELLS_OF_TEXTS}' " * 49,
    "words behind sudo": f"sudo {'git ' * 49}{'a ' * 4_800}",
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_work_for_a_question_is_bounded(name: str) -> None:
    """failures.md F16: before a person is asked, warnings are looked for and rules are proposed, in the event loop."""
    command = QUESTIONS[name]
    assert len(command) <= 10_000
    policy = Approval(deny=RULES)
    propose_rules(policy, BASH, {"command": "sh -c 'ls -l'; ls -l"})  # reads the tables
    warnings, _ = _count(lambda: find_destructive_effects(command))
    proposals, _ = _count(lambda: propose_rules(policy, BASH, {"command": command}))
    assert max(warnings, proposals) <= 300 * LONGEST


BLESSING = "\ufdfa"  # to a rule, which looks for look-alikes, this is a text of 18 characters


@pytest.mark.parametrize(
    "command",
    [
        f"echo '{'git ' * 1_240}{BLESSING * 4_990} push x'",
        f"echo '{'git push ' * 620}{BLESSING * 4_300} push x'",
        f"{'git ' * 2_400}push x",
    ],
)
def test_a_warning_takes_little_time_where_a_text_has_many_beginnings(command: str) -> None:
    """failures.md F16: patterns count as one call each, so this is the time of the processor."""
    find_destructive_effects("git push origin +main")  # reads the tables
    began = process_time()
    assert find_destructive_effects(command) == []
    assert process_time() - began < 0.25


def _add_rules(deny: str, allow: str, command: str) -> float:
    """The calls for each of 900 more rules."""
    few, many = (
        Approval(
            "bypass" if deny else "ask",
            deny=[f"bash({deny.format(number)})" for number in range(size) if deny],
            allow=[f"bash({allow.format(number)})" for number in range(size) if allow],
        )
        for size in (100, 1_000)
    )
    (before, said), (after, says_later) = _count_calls(few, command), _count_calls(many, command)
    assert said == says_later
    return (after - before) / 900


@pytest.mark.parametrize(
    ("deny", "allow", "piece"),
    [
        ("git x{} --force", "", "git push a{};"),
        ("x{}", "", "ls a{};"),
        ("x{}", "", "xargs a{};"),
        ("x{}", "", "find a{}*;"),
        ("*x{}*y*", "", "ls a{};"),
        ("", "ls a{}:*", "ls a7 {};"),
    ],
)
def test_a_rule_about_something_else_is_not_compared_with_each_part(deny: str, allow: str, piece: str) -> None:
    command = "".join(piece.format(number) for number in range(600))
    assert _add_rules(deny, allow, command) < 100


def test_so_many_places_at_which_a_rule_may_begin_count_as_the_command() -> None:
    policy = Approval("bypass", deny=["bash(git push)"])
    assert says(policy, "bash", command="env " + "git x " * 60) == "deny"
    assert says(policy, "bash", command="env " + "git x " * 40) == "allow"


def test_no_rule_is_looked_for_where_a_path_is_too_long_for_one() -> None:
    path = "a/" * 500_000
    began = process_time()
    assert propose_exact_rules(Approval(), tool_of("edit"), {"path": path, "edits": []}) == ()
    assert process_time() - began < 0.25


def test_a_rule_of_options_only_may_be_about_any_program() -> None:
    policy = Approval("bypass", deny=["bash(-a -b)"])
    assert says(policy, "bash", command="ls x") == "allow"
    assert judge(policy, "bash", command="ls -ab").why == "the rule 'bash(-a -b)' may match it"
