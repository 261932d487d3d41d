"""The approval policy: what goes through, what is asked about, what is refused, and what cannot change any of it."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policy.shell.bypasses import ALLOW, CORPUS, USABLE
from tests.policy.shell.shells import SHELLS, Bench
from tests.policy.toolbox import judge, says, tool_of
from tests.rows import each_row

from steersman.policy.approval import Approval, Approved, Judgement, Mode, fingerprint

USUAL = Approval(allow=ALLOW)
EDITS = Approval("accept-edits", allow=ALLOW)
PLAN = Approval("plan", allow=ALLOW)
BASH = tool_of("bash")


def test_the_corpus_is_large_and_has_nothing_twice() -> None:
    assert len(CORPUS) == len(set(CORPUS)) >= 350
    assert len(USABLE) == len(set(USABLE)) >= 70
    assert not set(CORPUS) & set(USABLE)


@each_row("command", CORPUS)
def test_no_command_gets_past_the_rules(command: str) -> None:
    """failures.md L4, L5: not one of them goes through unasked."""
    assert [says(policy, BASH, command=command) for policy in (USUAL, EDITS, PLAN)] == ["ask", "ask", "deny"]


@each_row("command", USABLE)
def test_ordinary_commands_go_through(command: str) -> None:
    assert judge(USUAL, "bash", command=command) == Judgement("allow")
    assert says(USUAL, "bash", command=command, timeout=5) == "allow"


@each_row("command", USABLE)
def test_an_ordinary_command_beside_another_does_not_take_it_along(command: str) -> None:
    """failures.md L4"""
    for form in ("{}; evil", "evil; {}", "{} && evil", "{} | evil", "evil || {}", "{}\nevil", "{} $(evil)", "{} > f"):
        assert says(USUAL, "bash", command=form.format(command.strip("& \n"))) == "ask"


def test_other_arguments_of_the_shell_are_not_allowed_along_with_its_command() -> None:
    """A folder or an environment would change what the command means."""
    for extra in ({"cwd": "/tmp/evil"}, {"env": {"PATH": "."}}, {"shell": "evil"}):
        assert says(USUAL, "bash", command="ls", **extra) == "ask"
    for command in (None, 5, ["ls"]):
        assert says(USUAL, "bash", command=command) == "ask"


def test_the_forms_of_a_prefix_mean_the_same() -> None:
    for rule in ("bash(git status:*)", "bash(git status*)", "Bash(git status *)", "BASH( git  status :* )"):
        policy = Approval(allow=[rule])
        outcomes = [says(policy, "bash", command=f"git {rest}") for rest in ("status", "status -s", "statusx", "log")]
        assert outcomes == ["allow", "allow", "ask", "ask"]


def test_a_rule_without_a_star_allows_that_very_command() -> None:
    policy = Approval(allow=["bash(make build > log.txt)", "bash(git commit -m 'a b')"])
    assert says(policy, "bash", command="make build > log.txt") == "allow"
    assert says(policy, "bash", command=" make build > log.txt\n") == "allow"
    assert says(policy, "bash", command="make build > log.txt2") == "ask"
    assert says(policy, "bash", command="make build") == "ask"
    assert says(policy, "bash", command='git commit -m "a b"') == "allow"
    assert says(policy, "bash", command="git commit -m a b") == "ask"


# What the random commands are made of: allowed ones, others, and what shells join and hide commands with.
ALLOWED = st.sampled_from(("git status", "git status -s", "ls", "ls -l a", "cat 'x y'", "grep -n x f"))
OTHERS = st.sampled_from(("evil", "rm -rf x", "./ls", "git push", "git -c a=b status", "sh -c ls", "X=1 ls", "env ls"))
GLUE = st.sampled_from((";", " ; ", "&&", " && ", "||", " || ", "|", " | ", "\n", " & ", " &\n", "&&\n"))
FEW = Approval(allow=["bash(git status:*)", "bash(ls:*)", "bash(cat:*)", "bash(grep:*)"])


@given(
    parts=st.lists(st.tuples(ALLOWED, st.just(True)) | st.tuples(OTHERS, st.just(False)), min_size=1, max_size=5),
    data=st.data(),
)
def test_a_compound_command_goes_through_when_every_part_does(
    parts: list[tuple[str, bool]], data: st.DataObject
) -> None:
    """failures.md L4"""
    text = parts[0][0]
    for part, _ in parts[1:]:
        text += data.draw(GLUE) + part
    assert says(FEW, "bash", command=text) == ("allow" if all(allowed for _, allowed in parts) else "ask")


TRICKS = st.sampled_from(
    (
        "evil", " evil", "evil ", ";", "&", "&&", "|", "||", "\n", " ", "\t", "$(evil)", "`evil`", "$(", ")", "`", "'",
        '"', "\\", "\\\n", "${x}", "$x", "$IFS", "{", "}", "{evil,}", "(", "<(evil)", ">(evil)", "> f", ">> f", "<f",
        "<<E", "<<<", "2>&1", ">&f", "&>f", ">/dev/null", "*", "?", "[a]", "~", "#", "# evil", "!", "!!", "=",
        "X=evil ", "eval ", "exec ", "command ", "env ", "if ", "then ", "time ", "function ", "() ", "\r", "\x00",
        "\x0b", "\u00a0", "\u200b", "\u2028", "\uff1b", "-c", "--output=f", "--exec=evil", "--", "-o f", "\x1b[1m",
        "\u00e9", "alias ls=evil\n",
    )
)  # fmt: skip


@pytest.mark.skipif(not SHELLS, reason="there is no shell to try it with")
@given(before=st.lists(TRICKS, max_size=2), command=ALLOWED, after=st.lists(TRICKS, max_size=5))
def test_whatever_stands_around_an_allowed_command_nothing_else_runs(
    bench: Bench, before: list[str], command: str, after: list[str]
) -> None:
    """failures.md L4: where the policy lets a text through, real shells run nothing but what the rules name."""
    text = "".join((*before, command, *after))
    if says(FEW, "bash", command=text) != "allow":
        return
    for shell in SHELLS:
        calls = bench.ran(shell, text)
        assert [call for call in calls if call[0] == "evil" or (call[0] == "git" and call[1:2] != ["status"])] == []
        assert list(bench.cwd.iterdir()) == []


# Modes

TOOLS = {"read": "read", "write": "edit", "deploy": "full"}


@pytest.mark.parametrize(
    ("mode", "outcomes"),
    [
        ("ask", ["allow", "ask", "ask"]),
        ("accept-edits", ["allow", "allow", "ask"]),
        ("plan", ["allow", "deny", "deny"]),
        ("bypass", ["allow", "allow", "allow"]),
    ],
)
def test_the_mode_decides_where_no_rule_does(mode: Mode, outcomes: list[str]) -> None:
    policy = Approval(mode)
    assert [says(policy, tool_of(name, cast(Any, access))) for name, access in TOOLS.items()] == outcomes


@pytest.mark.parametrize("mode", ["ask", "accept-edits", "plan", "bypass"])
def test_a_denied_call_is_denied_in_every_mode(mode: Mode) -> None:
    policy = Approval(mode, deny=["read", "write", "deploy"], ask=["read"], allow=["read", "write", "deploy"])
    for name, access in TOOLS.items():
        judged = judge(policy, tool_of(name, cast(Any, access)))
        assert (judged.says, judged.rule) == ("deny", name)
        assert judged.why.startswith(f"Denied by the rule {name!r}. Do not try to reach the same in another way.")


@pytest.mark.parametrize(
    ("mode", "outcomes"),
    [
        ("ask", ["ask", "ask", "ask"]),
        ("accept-edits", ["ask", "ask", "ask"]),
        ("plan", ["ask", "deny", "deny"]),
        ("bypass", ["allow", "allow", "allow"]),
    ],
)
def test_a_rule_that_asks_wins_over_one_that_allows(mode: Mode, outcomes: list[str]) -> None:
    policy = Approval(mode, ask="read,write,deploy", allow="read,write,deploy")
    assert [says(policy, tool_of(name, cast(Any, access))) for name, access in TOOLS.items()] == outcomes


def test_a_rule_that_allows_wins_over_the_mode_but_not_over_plan() -> None:
    deploy = tool_of("deploy")
    assert says(Approval(allow=["deploy"]), deploy) == "allow"
    assert says(Approval("plan", allow=["deploy"]), deploy) == "deny"


def test_plan_mode_tells_the_model_to_plan() -> None:
    judged = judge(Approval("plan"), "write", path="a")
    assert judged == Judgement(
        "deny",
        "Denied: 'write' can change things. This is plan mode: nothing may be changed yet. Look around with the tools "
        "that only read, then answer with a plan of what you would do.",
    )


def test_the_reason_to_ask_is_said() -> None:
    policy = Approval(deny=["bash(rm:*)"], ask=["bash(git push:*)"], allow=["bash(ls:*)"])
    assert judge(policy, "deploy") == Judgement("ask", "'deploy' can change things and no rule allows it")
    assert judge(policy, "write", path="a") == Judgement("ask", "'write' changes files and no rule allows it")
    assert judge(Approval(), "bash", command="ls") == Judgement("ask", "'bash' runs commands and no rule allows it")
    assert judge(policy, "bash", command="ls; cat a") == Judgement("ask", "no rule allows 'cat a'")
    assert judge(policy, "bash", command="ls > f") == Judgement("ask", "it is redirected to or from 'f'")
    assert judge(policy, "bash", command="git push") == Judgement(
        "ask", "the rule 'bash(git push:*)' requires approval", "bash(git push:*)"
    )
    assert judge(policy, "bash", command="ls $x") == Judgement(
        "ask", "the rule 'bash(rm:*)' may match it", "bash(rm:*)"
    )


@pytest.mark.parametrize("mode", ["", "yolo", "Ask", None, 5, ["ask"]])
def test_there_are_four_modes(mode: Any) -> None:
    with pytest.raises(ValueError, match="mode is one of 'ask', 'accept-edits', 'plan', 'bypass', got"):
        Approval(mode)


# Approvals that are remembered

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(max_size=5), JSON, max_size=4)


def test_a_fingerprint_is_a_hash_over_the_name_and_the_arguments() -> None:
    assert fingerprint("bash", {"b": 1, "a": "x"}) == hashlib.sha256(b'["bash",{"a":"x","b":1}]').hexdigest()


@given(tool=st.text(max_size=5), arguments=ARGUMENTS)
def test_a_fingerprint_does_not_depend_on_the_order_of_the_arguments(tool: str, arguments: dict[str, Any]) -> None:
    assert fingerprint(tool, arguments) == fingerprint(tool, dict(reversed(arguments.items())))


def spelled(value: Any) -> str:
    """A value with its types: 1, 1.0 and True are three different things."""
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        return "{" + ",".join(f"{key!r}:{spelled(fields[key])}" for key in sorted(fields)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(spelled, cast(list[Any], value))) + "]"
    return repr(value)


@given(first=st.tuples(st.text(max_size=3), ARGUMENTS), second=st.tuples(st.text(max_size=3), ARGUMENTS))
def test_different_calls_have_different_fingerprints(first: Any, second: Any) -> None:
    same = first[0] == second[0] and spelled(first[1]) == spelled(second[1])
    assert (fingerprint(*first) == fingerprint(*second)) == same


@each_row(
    ("first", "second"),
    [
        ({"n": 1}, {"n": 1.0}),
        ({"n": 1}, {"n": True}),
        ({"n": 1}, {"n": "1"}),
        ({"n": None}, {}),
        ({"n": []}, {"n": {}}),
        ({"n": "e\u0301"}, {"n": "\u00e9"}),
        ({"n": "a"}, {"N": "a"}),
        ({"n": "a "}, {"n": "a"}),
    ],
)
def test_near_calls_have_different_fingerprints(first: Any, second: Any) -> None:
    assert fingerprint("t", first) != fingerprint("t", second)
    assert fingerprint("t", first) != fingerprint("T", first)


def test_a_remembered_call_goes_through_and_no_other() -> None:
    policy = Approval(ask=["deploy"])
    assert says(policy, "deploy", target="x") == "ask"
    policy.remember("deploy", {"target": "x"})
    assert says(policy, "deploy", target="x") == "allow"
    for other in ({"target": "y"}, {"target": "x", "force": True}, {}, {"target": ["x"]}):
        assert says(policy, "deploy", **other) == "ask"
    assert says(policy, "deploy2", target="x") == "ask"
    assert says(policy, "Deploy", target="x") == "ask"


def test_a_remembered_call_is_still_denied_by_a_rule_and_in_plan_mode() -> None:
    mark = fingerprint("deploy", {})
    assert says(Approval(remembered=[mark]), "deploy") == "allow"
    assert says(Approval(remembered=[mark], deny=["deploy"]), "deploy") == "deny"
    assert says(Approval("plan", remembered=[mark]), "deploy") == "deny"


def test_what_is_remembered_can_be_kept_and_given_again() -> None:
    policy = Approval()
    policy.remember("deploy", {"target": "x"})
    assert policy.remembered == {fingerprint("deploy", {"target": "x"})}
    assert says(Approval(remembered=policy.remembered), "deploy", target="x") == "allow"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: 2, "1": 3}, b"x"])
def test_arguments_that_are_no_json_are_never_remembered(value: Any) -> None:
    policy = Approval()
    with pytest.raises((TypeError, ValueError)):
        policy.remember("deploy", {"x": value})
    policy.remember("deploy", {"x": None})
    assert says(policy, "deploy", x=value) == "ask"


@pytest.mark.parametrize("marks", ["abc", b"abc", 5, ["abc"], [5], [None]])
def test_what_is_given_as_remembered_is_checked(marks: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="remembered"):
        Approval(remembered=marks)


@pytest.mark.parametrize("remember", [None, 1, "yes"])
def test_an_approval_that_says_something_else_than_true_or_false_is_refused(remember: Any) -> None:
    with pytest.raises(TypeError, match="remember"):
        Approved(remember=remember)


@given(arguments=ARGUMENTS)
def test_any_arguments_are_judged(arguments: dict[str, Any]) -> None:
    policy = Approval(
        deny="bash(rm:*),read(x/**),fetch(domain:x.example),pay(to=x)",
        ask="bash(a*b),write(y)",
        allow="bash(ls:*),edit(z/**)",
        remembered=["0" * 64],
    )
    for name in ("bash", "read", "write", "edit", "search", "fetch", "pay", "mcp:a:b"):
        for values in (arguments, {"command": arguments.get("command"), **arguments}):
            assert says(policy, name, **values) in ("allow", "ask", "deny")
