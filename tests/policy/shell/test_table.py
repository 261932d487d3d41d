"""The tables of programs: every option of the usual manuals is classified, and nothing else is let through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policy.shell.attacks import ATTACKS
from tests.policy.toolbox import judge, says
from tests.rows import each_row

from steersman.policy.approval import Approval
from steersman.policy.rules import propose_command_rule
from steersman.policy.shell.checks import CHECKS
from steersman.policy.shell.prefix_rules import (
    explain_program_folders,
    explain_unsafe_arguments,
    explain_unsafe_prefix,
)
from steersman.policy.shell.programs import RUNNERS
from steersman.policy.shell.syntax import Word, parse_command
from steersman.policy.shell.table import Entry, list_keys, read_entry

FOLDER = Path(__file__).parent
KEYS = [key for key in list_keys() if not key.startswith("+")]
EXACT = [key for key in KEYS if "exact" in read_entry(key).flags]
STRICT = [key for key in KEYS if "free" not in read_entry(key).flags]

USUAL = (
    "git log", "git diff", "git status", "git show", "git branch", "git commit", "git add", "git push", "ls", "cat",
    "grep", "rg", "find", "sed", "head", "tail", "wc", "sort", "uniq", "cut", "jq", "diff", "file", "stat", "du", "df",
    "ps", "pytest", "npm test", "npm run", "cargo build", "cargo test", "go build", "go test", "make -n", "docker ps",
    "kubectl get", "gh pr view", "tree",
)  # fmt: skip


def read_manuals() -> dict[str, list[str]]:
    """The option names of each manual."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in (FOLDER / "manuals.txt").read_text().splitlines():
        if line.startswith("  "):
            names += line.split()
        elif not line.startswith("#"):
            names = found[line] = []
    return found


def read_sections() -> dict[str, list[str]]:
    """The ordinary commands, by what the policy answers."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / "ordinary.txt").read_text().splitlines():
        if line.startswith("## "):
            found[line[3:]] = []
        elif not line.startswith("#"):
            found[[*found][-1]].append(line)
    return found


MANUALS = read_manuals()
SECTIONS = read_sections()
ORDINARY = Approval(allow=(FOLDER / "ordinary_rules.txt").read_text().splitlines())


def explain(key: str, *arguments: str) -> str | None:
    """Why a command with these arguments needs approval under a rule for its beginning."""
    return explain_unsafe_arguments([Word(word) for word in (*key.split(), *arguments)])


@each_row("key", MANUALS)
def test_every_option_of_a_manual_is_classified(key: str) -> None:
    entry = read_entry(key)
    assert [name for name in MANUALS[key] if name not in entry.options] == []


def test_the_usual_programs_have_a_manual_and_the_tables_have_many_more() -> None:
    assert [key for key in USUAL if not MANUALS.get(key)] == []
    assert read_entry("python -m pytest").options == read_entry("pytest").options
    assert len({key.split()[0] for key in KEYS}) > 150


@each_row("key", list_keys())
def test_an_entry_is_consistent(key: str) -> None:
    entry = read_entry(key)
    assert not entry.check or entry.check in CHECKS
    assert entry.operands in ("any", "none", "names", "inside", "write", "target") or entry.operands.isdecimal()
    assert entry.flags <= {"plain", "free", "words", "equals", "double", "deep", "exact", "sends", "changes"}
    assert entry.after in ("", "ask") or entry.after in list_keys()
    assert all(name.startswith("-") for name in entry.options)


@each_row("key", KEYS)
def test_what_runs_others_has_an_entry_only_for_a_harmless_form(key: str) -> None:
    """A rule for the program alone is refused."""
    program = key.split()[0]
    if program in RUNNERS and key != program:
        assert explain_unsafe_prefix([program]) is not None
    assert key not in RUNNERS


@each_row(("rules", "command"), ATTACKS)
def test_no_attack_gets_past_a_rule_for_the_program(rules: str, command: str) -> None:
    """An option or an operand that runs code or writes needs approval, whatever its spelling."""
    try:
        policy = Approval(allow=rules)
    except ValueError:
        return  # the rule itself is refused
    assert parse_command(command).problem is None
    judged = judge(policy, "bash", command=command)
    assert judged.says == "ask"
    assert not judged.why.startswith("no rule allows")


@pytest.mark.parametrize("section", SECTIONS)
def test_ordinary_use_is_not_asked_about(section: str) -> None:
    wanted = "ask" if section.startswith("asked") else "allow"
    assert [command for command in SECTIONS[section] if says(ORDINARY, "bash", command=command) != wanted] == []


def test_ordinary_use_is_asked_about_less_than_with_lists_of_unsafe_options() -> None:
    counts = {section: len(commands) for section, commands in SECTIONS.items()}
    allowed, gained, understood, lost, asked = counts.values()
    assert allowed + gained + understood + lost + asked >= 300
    assert lost + asked < gained + asked
    assert lost <= 3


# Options that no table has, in every spelling


def flags_of(entry: Entry) -> list[str]:
    return [name for name, option in entry.options.items() if option.harmless and not option.arity]


@st.composite
def unknown_options(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A command and arguments with an option that its table does not have as harmless."""
    key = draw(st.sampled_from(STRICT))
    entry = read_entry(key)
    flags = flags_of(entry)
    before = draw(st.lists(st.sampled_from(flags), max_size=2)) if flags else []
    names = [name for name, option in entry.options.items() if not option.harmless]
    fresh = st.from_regex(r"--[a-z][a-z-]{0,10}[a-z]", fullmatch=True)
    shortened = st.sampled_from(sorted(entry.options) or ["--none"]).flatmap(
        lambda name: st.integers(3, max(3, len(name) - 1)).map(lambda size: name[:size])
    )
    name = draw((st.sampled_from(names) | fresh | shortened) if names else fresh | shortened)
    known = entry.options.get(name)
    if known is not None and known.harmless:
        name = "--no-such-option"
    if not name.startswith("--") and "words" not in entry.flags:
        letters = [flag[1] for flag in flags if len(flag) == 2]
        together = "".join(draw(st.lists(st.sampled_from(letters), max_size=3))) if letters else ""
        if not (name[1:2] and f"-{name[1]}" in entry.options and entry.options[f"-{name[1]}"].harmless):
            name = f"-{together}{name[1:]}"
    form = draw(st.sampled_from(("{}", "{}=x", "{} x", "{}=/x", "x {}", "{} --", "- {}")))
    return key, [*before, *form.format(name).split(" ")]


@given(unknown_options())
def test_an_option_that_is_not_known_to_be_harmless_never_gets_through(drawn: tuple[str, list[str]]) -> None:
    key, arguments = drawn
    option = next(word for word in arguments if word.startswith("-") and word not in ("-", "--"))
    entry = read_entry(key)
    cluster = not option.startswith("--") and "words" not in entry.flags
    if cluster and all(f"-{letter}" in entry.options for letter in option[1:]):
        # A shortened name may be a cluster of harmless letters; then it is what it says.
        return
    if len(key.split()) < 4 and " ".join((key, arguments[0])) in KEYS:
        return
    assert explain(key, *arguments) is not None


@each_row("key", STRICT)
def test_the_options_that_need_approval_need_it_in_every_spelling(key: str) -> None:
    entry = read_entry(key)
    for name, option in entry.options.items():
        if option.harmless:
            continue
        assert explain(key, name, "x") is not None
        assert explain(key, f"{name}=x") is not None
        assert explain(key, "x", name) is not None
        if not name.startswith("--") and "words" not in entry.flags:
            letters = [flag[1] for flag in flags_of(entry) if len(flag) == 2][:5]
            assert [letter for letter in letters if explain(key, f"-{letter}{name[1:]}x") is None] == []


@pytest.mark.parametrize("key", [key for key in KEYS if read_entry(key).operands.isdecimal() and key not in EXACT])
def test_a_dash_and_what_follows_two_dashes_are_operands(key: str) -> None:
    for arguments in ("- f", "-- a b", "-- - -f", "- -- f", "a b", "-- -a -b"):
        assert explain(key, *arguments.split()) is not None
    assert explain(key, "-") is None


def test_a_rule_for_a_program_without_a_table_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    policy = Approval(allow=["bash(frobnicate:*)", "bash(git log:*)", "bash(frobnicate -v)", "read"])
    assert [text.partition(":*)")[0] for text in policy.warnings] == ["The rule 'bash(frobnicate"]
    assert [record.getMessage() for record in caplog.records] == list(policy.warnings)
    assert says(policy, "bash", command="frobnicate --all x") == "allow"


@pytest.mark.parametrize("program", ["/usr/bin/sort", "sort-9", "sort9.1"])
def test_the_table_counts_for_any_name_of_a_program(program: str) -> None:
    policy = Approval(allow=[f"bash({program}:*)"])
    assert policy.warnings == ()
    assert says(policy, "bash", command=f"{program} -u f") == "allow"
    assert says(policy, "bash", command=f"{program} -of f") == "ask"


@each_row("program", ["./jq", "bin/jq", "/tmp/jq", "/home/ada/bin/jq"])
def test_a_program_elsewhere_is_not_the_one_of_the_table(program: str) -> None:
    assert Approval(allow=[f"bash({program}:*)"]).warnings != ()
    assert says(Approval(allow=["bash(jq:*)"]), "bash", command=f"{program} . x") == "ask"


@each_row("program", ["exiftool", "hg log", "jj log", "dotnet test", "pandoc", "yq", "unzip", "7za l"])
def test_a_rule_for_a_program_with_options_that_run_others_is_refused(program: str) -> None:
    """A program that left the tables is not taken for one that is unknown, whose arguments are hardly looked at."""
    with pytest.raises(ValueError, match="cannot be allowed by how it begins"):
        Approval(allow=[f"bash({program}:*)"])


@each_row("word", ["@x", "+x", "../x", "/x", "a*", "a b", "x=y", "x:y", "--", "a|b", "$(x)", "~x", ""])
def test_programs_known_from_their_manual_take_plain_words_only(word: str) -> None:
    got_through = [key for key in EXACT if explain_unsafe_arguments(read_words(key, word)) is None]
    assert [key for key in got_through if word != "--" or not read_entry(key).after] == []


@each_row(
    "command",
    [
        "git rm --pathspec-from-file=x", "git rm --pathspec-from-file x", "git restore --pathspec-from-file=-",
        "git checkout --pathspec-from-file=x", "git add --pathspec-from-file=x", "git reset --pathspec-from-file=x",
        "git commit -m x --pathspec-from-file=x", "git rm -r x", "git rm -r .", "git stash -a", "git stash push --all",
        "git merge -Xsubtree=.venv/bin x", "git pull --strategy-option=subtree=x", "git cherry-pick -X subtree=.venv x",
        "git revert -X subtree=env x", "git merge -X subtree x", "git pull -Xsubtree",
        "git merge --strategy-option=subtree x",
    ],
)  # fmt: skip
def test_no_option_of_a_writer_brings_names_that_the_command_does_not_show(command: str) -> None:
    assert explain_unsafe_arguments([Word(word) for word in command.split()]) is not None


def test_a_merge_may_prefer_one_side() -> None:
    assert explain_unsafe_arguments([Word("git"), *map(Word, ("merge", "-X", "theirs", "-Xours", "x"))]) is None


def read_words(key: str, word: str) -> list[Word]:
    return [*map(Word, key.split()), Word(word, word.find("*"))]


@pytest.mark.parametrize("program", ["id3", "w3"])
def test_a_number_that_is_no_version_makes_another_program(program: str) -> None:
    assert Approval(allow=[f"bash({program}:*)"]).warnings != ()


def test_the_tables_are_read_when_a_rule_needs_them() -> None:
    program = (
        "import sys, steersman; from steersman import Approval; Approval(allow=['read', 'write(src/**)']);"
        "print([name for name in sys.modules if '.shell.tables' in name])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@each_row(
    ("command", "harmless"),
    [
        ("cp git tools/bin/git", False), ("cp git tools/bin", False), ("mv x/tools .", False),
        ("mv x/bin tools", False), ("mv x/tools . -v", False), ("mv -v -- x/tools .", False),
        ("touch ./tools//bin/ls", False), ("mkdir -p tools/bin/x", False),
        ("git checkout x -- tools", False),
        ("rm tools/bin/ls", False), ("mv tools x", False),
        ("cp a b", True), ("cp a tools.txt", True), ("mkdir bin", True), ("git add .", True), ("ls tools/bin", True),
    ],
)  # fmt: skip
def test_a_folder_of_the_path_is_not_changed_by_a_rule_for_a_beginning(command: str, harmless: bool) -> None:
    words = [Word(word) for word in command.split()]
    assert explain_unsafe_arguments(words) is None
    assert (explain_program_folders(words, ("tools/bin",)) is None) == harmless
    assert explain_program_folders(words, ()) is None
    everywhere = explain_program_folders(words, (".",))
    assert (everywhere is None) == command.startswith("ls")


def test_the_folders_of_the_path_are_those_in_the_workspace_and_relative_ones(tmp_path: Path) -> None:
    program = (
        "import sys; from steersman.policy.rules import parse_allow_rules, resolve_roots;"
        "print(parse_allow_rules('bash(cp:*)', resolve_roots(sys.argv[1])).program_folders)"
    )
    here, link = tmp_path / "here", tmp_path / "link"
    link.symlink_to(here / "linked")
    path = f"/usr/bin:{here}/tools/bin/:{here}x/bin:{link}:node_modules/.bin:"
    env = {**os.environ, "PATH": path}
    run = subprocess.run([sys.executable, "-c", program, here], capture_output=True, text=True, check=True, env=env)
    assert run.stdout == "('tools/bin', 'linked', 'node_modules/.bin', '.')\n"


@each_row(
    ("script", "harmless"),
    [
        ("1,20p", True), ("$p", True), ("5q", True), ("/a/,/b/p", True), ("1p;3p", True), ("/^#/d", True),
        ("s/a/b/g", True), ("s|a/b|c|", True), ("1,5s/x/y/", True), ("/x/!d", True), ("2~3p", True),
        ("/[a-z]x/p", True), ("s/a/b/; s/c/d/", True), ("s/[[:space:]]*$//;/^$/d", True), ("s/[]a]x/y/g;p", True),
        ("s/a/b/\ns|c/x|d|g", True), ("s/a/b/;s/[^,]*,/;w f/", True),
        ("s/a/b/e", False), ("s/a/b/w f", False), ("1e rm x", False), ("w f", False), ("1w f", False), ("r f", False),
        ("1p;e rm", False), ("s/a/b/;e", False), ("/[/]e;/p", False), ("s/[/]/w f/p", False), ("1{p;e rm}", False),
        ("s/a/b/\ne rm", False), ("s/a/b\\", False), ("e", False), ("1!e", False), ("p e", False), ("s/a/b/pe", False),
        # Where a bracket expression hides a delimiter, what looks like a pattern is a command.
        ("s/[/]x/g;s/w f/y/", False), ("s/[[:a:]/]x/g;s/w f/y/", False), ("s/[]/]x/g;s/w f/y/", False),
        ("s/[^]/]x/g;s/w f/y/", False), ("/[[:a:]/p;s/]/w f/g", False), ("s/a/b/;w f", False),
        ("s/[\\]/]x/g;s/w f/y/", False), ("s:[[:a:]]:x:;p", False), ("s/a/b/;s/c/d/w f", False),
        ("\\%a%e", False), ("a\\", False), ("W f", False), ("R f", False), ("F", False), ("y/a/b/", False),
    ],
)  # fmt: skip
def test_which_sed_scripts_only_print(script: str, harmless: bool) -> None:
    assert (explain("sed", "-n", script, "f") is None) == harmless
    assert (explain("sed", "-e", script, "f") is None) == harmless


@each_row(
    ("command", "rule"),
    [
        ("frobnicate --all x", "bash(frobnicate --all x)"),
        (" git log -1 ", "bash(git log -1)"),
        ("echo 'a, b' && ls", "bash(echo 'a, b' && ls)"),
        ("ls *.py", None),
        ("echo ')'", None),
        ("ls\nrm x", None),
        ("ls \x1b[2K", None),
        ("", None),
        ("x" * 300, None),
        (None, None),
    ],
)
def test_the_rule_that_is_proposed_allows_the_exact_command_and_no_other(command: object, rule: str | None) -> None:
    assert propose_command_rule(command) == rule
    if rule is not None:
        policy = Approval(allow=rule)
        assert says(policy, "bash", command=command) == "allow"
        assert says(policy, "bash", command=f"{command} y") == "ask"
