"""The environment variables that every command gets, so that programs wait for no input and run nothing by default."""

from __future__ import annotations

# Tells programs that there is no terminal, so that none waits for input.
_QUIET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1"}
_GIT_SETTINGS = (
    # Plain files in the workspace (HEAD, config) would else be a repository, whose settings `git status` runs.
    ("safe.bareRepository", "explicit"),
    # Where there is no remote of that name, git takes a folder of the project for it, and a push runs its hooks.
    ("url.no-such-remote://.insteadOf", "origin"),
    ("url.no-such-remote://.insteadOf", "upstream"),
)
# As `git -c` hands them on. Other variables for settings are newer than git 2.30.
_GIT_ENVIRONMENT = {
    "GIT_CONFIG_PARAMETERS": " ".join(f"'{key}={value}'" for key, value in _GIT_SETTINGS),
    # An editor would take commands from a pipe. This one changes nothing, and git does not even start it.
    "GIT_EDITOR": ":",
    "GIT_SEQUENCE_EDITOR": ":",
}
_NPM_ENVIRONMENT = {"npm_config_update_notifier": "false"}  # it sends a token through a proxy of the project

COMMAND_ENVIRONMENT = _QUIET | _GIT_ENVIRONMENT | _NPM_ENVIRONMENT
"""Variables of every command; what the program passes as `env` comes on top."""
