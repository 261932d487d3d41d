"""Warnings about commands that destroy something."""

from __future__ import annotations

from tests.rows import each_row

from steersman.policy.destructive import find_destructive_effects

FOLDERS, FILES = "deletes folders with everything in them", "deletes files"
REMOTE, CHANGES = "replaces commits of the remote repository", "discards changes that are not committed"


@each_row(
    ("command", "effects"),
    [
        ("rm -rf build", [FOLDERS]),
        ("sudo rm -fr /", [FOLDERS]),
        ("bash -c 'rm -r x'", [FOLDERS]),
        ("FOO=1 rm --recursive x", [FOLDERS]),
        ("ls | xargs rm -rf", [FOLDERS]),
        ("for f in *; do rm -rf $f; done", [FOLDERS]),
        ("rm x", [FILES]),
        ("echo 'rm -rf x' | sh", [FOLDERS]),
        ("find . -delete", [FOLDERS]),
        ("find . -exec rm {} +", [FILES]),
        ("git push --force", [REMOTE]),
        ("git push -f origin main", [REMOTE]),
        ("git push origin +main", [REMOTE]),
        ("git push --force-with-lease", [REMOTE]),
        ("git -C sub reset --hard HEAD~1", [CHANGES]),
        ("git checkout -- .", [CHANGES]),
        ("git clean -fdx", ["deletes files that git does not track"]),
        ("dd if=/dev/zero of=x", ["overwrites a disk or a file"]),
        ("mkfs.ext4 /dev/sda1", ["overwrites a disk or a file"]),
        ("psql -c 'DROP TABLE users'", ["deletes a database or what is in it"]),
        ("npm publish", ["publishes a package, which cannot be undone"]),
        ("rm -rf a && git push --force", [FOLDERS, REMOTE]),
        ("echo " + "x" * 20_000, ["is too long to say what it destroys"]),
        ("x;" * 4_000, ["is too long to say what it destroys"]),
        ("git push a " * 200 + "  +main", [REMOTE]),
    ],
)
def test_what_a_command_destroys_is_named(command: str, effects: list[str]) -> None:
    assert find_destructive_effects(command) == effects


@each_row(
    "command",
    ["ls -la", "git push", "git reset x", "git checkout main", "git commit -m 'rm -rf'", "cp -r a b", "grep -rf pat .",
     "npm run format", "make clean", "docker ps", "python m.py --rm", "git diff -- .",
     # With every `push` tried after every `git`, this would take more than a minute.
     "git push " * 1_100],
)  # fmt: skip
def test_what_destroys_nothing_is_not_warned_about(command: str) -> None:
    """A warning that is always there is not read."""
    assert find_destructive_effects(command) == []
