"""Finds what a shell command may destroy, for a warning beside the question; no rule is offered for such a command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from steersman.policy.patterns import MAX_TEXT_LENGTH
from steersman.policy.shell.command_view import CommandView
from steersman.policy.shell.forbidden import ForbiddenCommand, parse_forbidden_command

_EFFECTS: Mapping[str, tuple[str, ...]] = {
    "deletes folders with everything in them": ("rm -r", "rm --recursive", "find -delete"),
    "deletes files": ("rm", "unlink", "shred", "rclone delete", "rsync --delete"),
    "replaces commits of the remote repository": (
        "git push --force",
        "git push -f",
        "git push --force-with-lease",
        "git push --mirror",
    ),
    "deletes a branch of the remote repository": ("git push --delete", "git push -d"),
    "discards changes that are not committed": (
        "git reset --hard",
        "git checkout --",
        "git checkout -f",
        "git checkout --force",
        "git checkout .",
        "git restore",
        "git switch --discard-changes",
        "git switch -f",
        "hg update -C",
        "svn revert",
    ),
    "deletes files that git does not track": ("git clean -f", "git clean --force"),
    "deletes commits that may be nowhere else": ("git branch -D", "git stash drop", "git stash clear"),
    "rewrites the history of the repository": ("git filter-branch", "git filter-repo", "git reflog expire"),
    "overwrites a disk or a file": ("dd", "mkfs*", "wipefs", "fdisk", "parted", "truncate"),
    "changes the permissions of a whole folder": ("chmod -R", "chmod --recursive", "chown -R", "chown --recursive"),
    "stops the machine": ("shutdown", "reboot", "poweroff", "halt"),
    "deletes containers, volumes or resources": (
        "docker system prune",
        "docker volume rm",
        "docker volume prune",
        "kubectl delete",
        "helm uninstall",
        "terraform destroy",
        "aws s3 rm",
        "aws s3 rb",
        "gh repo delete",
        "gh release delete",
    ),
    "deletes a database or what is in it": ("dropdb", "redis-cli flushall", "redis-cli flushdb"),
    "publishes a package, which cannot be undone": ("npm publish", "cargo publish", "twine upload", "uv publish"),
}
# Texts that follow one another in a simple command. A command of many words has many beginnings, so each text is looked
# for once, from where the one before it was first found: if there is a match behind a later one, there is one here too.
_TEXTS: Mapping[str, tuple[re.Pattern[str], ...]] = {
    effect: tuple([re.compile(text) for text in texts])
    for effect, texts in {
        "replaces commits of the remote repository": (r"\bgit\s", r"\bpush\s", r"\s\+\w"),
        "deletes a branch of the remote repository": (r"\bgit\s", r"\bpush\s", r"\s:\w"),
        "deletes a database or what is in it": (r"\b(?:drop|truncate)\s+(?:table|database|schema)\b",),
        "overwrites a disk or a file": (r">\s*/dev/(?:sd|nvme|vd|hd|mmcblk|disk)",),
    }.items()
}
_END = re.compile(r"[|;&\n]")

_TOO_LONG = "is too long to say what it destroys"
_MAX_PARTS = 200


def find_destructive_effects(command: str) -> list[str]:
    """What a command may destroy, each as the rest of a sentence such as `deletes files`; empty where nothing is known.

    A command that is not understood counts if it has the words in it.
    """
    if len(command) > MAX_TEXT_LENGTH:
        return [_TOO_LONG]
    view = CommandView(command)
    if len(view.parsed.parts) > _MAX_PARTS:
        return [_TOO_LONG]
    found = dict.fromkeys(_iterate_effects(view))
    if "deletes folders with everything in them" in found:
        found.pop("deletes files", None)
    return list(found)


def _iterate_effects(view: CommandView) -> Iterator[str]:
    for effect, rules in _parse_table():
        if any(_matches(rule, view) for rule in rules) or _has_texts(_TEXTS.get(effect, ()), view.folded):
            yield effect


def _has_texts(patterns: Sequence[re.Pattern[str]], command: str) -> bool:
    """Whether texts like these follow one another in a simple command; a single one may reach across several."""
    if len(patterns) < 2:
        return any(pattern.search(command) for pattern in patterns)
    return any(_follow(patterns, part) for part in _END.split(command))


def _follow(patterns: Sequence[re.Pattern[str]], text: str) -> bool:
    place = 0
    for pattern in patterns:
        match = pattern.search(text, place)
        if match is None:
            return False
        place = match.end()
    return True


def _matches(rule: ForbiddenCommand, view: CommandView) -> bool:
    match rule.match(view):
        case "yes":
            return True
        case "maybe":
            return all(_has_word(word, view.folded) for word in rule.words)
        case _:
            return False


def _has_word(word: str, text: str) -> bool:
    if re.fullmatch("-[a-z]", word):
        # Several letters may share one dash.
        return re.search(rf"(?<![\w-])-[a-z]*{word[1]}", text) is not None
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text) is not None


@cache
def _parse_table() -> tuple[tuple[str, tuple[ForbiddenCommand, ...]], ...]:
    return tuple(
        [(effect, tuple([parse_forbidden_command(rule) for rule in rules])) for effect, rules in _EFFECTS.items()]
    )
