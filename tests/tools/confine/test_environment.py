"""The environment of a child: allowed names and nothing else, so no key gets to a command, whatever it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from steersman.tools.confine.launch import (
    DEFAULT_PATH,
    build_child_environment,
    build_supervisor_environment,
    clean_search_path,
)
from steersman.tools.confine.sandbox import confinement

CANARY = "canary-7f3a9c-do-not-show"
KEYS = [
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "HF_TOKEN", "NPM_TOKEN", "SSH_AUTH_SOCK",
    "DATABASE_URL", "PGPASSWORD", "MY_OWN_SECRET", "LCX_KEY", "PATH_KEY", "http_proxy", "BASH_ENV", "ENV", "LD_PRELOAD",
    "PYTHONPATH", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "PROMPT_COMMAND", "BASH_FUNC_ls%%",
    "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR",
]  # fmt: skip
LOOKS = {
    "env": "env",
    "environ": "cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'",
    "exported": "export -p; set",
    "ps": "ps axww | grep super[v]isor",
    "arguments": "tr '\\0' ' ' < /proc/$PPID/cmdline; tr '\\0' ' ' < /proc/$$/cmdline",
    "python": "python3 -c 'import os; print(dict(os.environ))'",
}


def test_only_allowed_names_pass() -> None:
    """failures.md L14."""
    source = dict.fromkeys(KEYS, CANARY)
    plain = {
        "HOME": "/home/me",
        "USER": "me",
        "LANG": "de_DE.UTF-8",
        "LC_TIME": "C",
        "TZ": "UTC",
        "PATH": "/usr/bin:/bin",
    }
    assert build_child_environment(source=source | plain) == plain


def test_what_is_given_for_the_child_is_added() -> None:
    assert build_child_environment({"CI": "1", "LANG": "C"}, source={"PATH": "/bin", "LANG": "C.UTF-8"}) == {
        "PATH": "/bin",
        "LANG": "C",
        "CI": "1",
    }


def test_there_is_always_a_path_and_a_charset() -> None:
    """failures.md K9."""
    assert build_child_environment(source={}) == {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8"}
    assert build_child_environment(source={"PATH": "", "LC_CTYPE": "C"}) == {"PATH": DEFAULT_PATH, "LC_CTYPE": "C"}


@pytest.mark.parametrize(
    ("path", "searched"),
    [
        ("/usr/bin:/bin", "/usr/bin:/bin"),
        ("", DEFAULT_PATH),
        (":", DEFAULT_PATH),
        (".:/usr/bin:", "/usr/bin"),
        ("bin:../bin:/usr/bin::/bin", "/usr/bin:/bin"),
        ("node_modules/.bin", DEFAULT_PATH),
    ],
)
def test_the_working_folder_is_never_searched_for_programs(path: str, searched: str) -> None:
    assert clean_search_path(path) == searched


def shown(folder: Path, sandbox: str, environment: dict[str, str], looks: dict[str, str]) -> dict[str, str]:
    """What commands see when our own process has that environment."""
    program = textwrap.dedent(f"""
        import asyncio, json
        from steersman import CancelToken, ToolContext
        from steersman.tools.builtin.bash_tool import bash_tool

        async def main():
            bash = bash_tool({str(folder)!r}, sandbox={sandbox!r})
            shown, updates = {{}}, []
            ctx = ToolContext("1", "bash", CancelToken(), on_update=updates.append)
            for name, command in {looks!r}.items():
                output = await bash.call({{"command": command}}, ctx)
                shown[name] = output.content
            print(json.dumps([shown, updates]))

        asyncio.run(main())
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
        cwd="/",
    )
    assert (done.stderr, done.returncode) == ("", 0)
    commands, updates = json.loads(done.stdout)
    return {**commands, "updates": str(updates)}


@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_a_key_of_ours_is_seen_nowhere_by_a_command(tmp_path: Path, sandbox: str) -> None:
    """failures.md L14: not in `env`, not in /proc/self/environ or that of its parent, not in `ps`."""
    if confinement("off" if sandbox == "off" else "auto").kind == "none":
        pytest.skip(confinement().reason)
    ours = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **dict.fromkeys(KEYS, CANARY)}
    del ours["LD_PRELOAD"], ours["PYTHONPATH"]  # these would change the Python that is being tested
    seen = shown(tmp_path, sandbox, ours, LOOKS)
    assert [name for name, text in seen.items() if CANARY in text] == []
    assert "C.UTF-8" in seen["env"]
    assert "STEERSMAN_CALL=" in seen["environ"]
    if sandbox == "off" or confinement().kind == "landlock":  # bubblewrap has processes of its own only
        assert "supervisor" in seen["ps"]


def test_a_sandboxed_command_cannot_read_our_environment(tmp_path: Path) -> None:
    """failures.md L14: a process of the same user has /proc/<pid>/environ, unless it is confined."""
    if confinement().kind == "none":
        pytest.skip(confinement().reason)
    look = {"all": "for f in /proc/[0-9]*/environ; do tr '\\0' '\\n' < $f; done 2>/dev/null; ps axeww"}
    seen = shown(tmp_path, "auto", {"PATH": os.environ["PATH"], "OPENAI_API_KEY": CANARY}, look)
    assert "STEERSMAN_CALL=" in seen["all"]
    assert CANARY not in seen["all"]


@pytest.mark.parametrize("sandbox", ["off", "auto"])
@pytest.mark.parametrize(
    "ours", [{}, {"LANG": "C", "LC_ALL": "C"}, {"PATH": ""}, {"HOME": "/no/such/home"}, {"HOME": "", "TERM": "xterm"}]
)
def test_a_bare_environment_is_enough(tmp_path: Path, sandbox: str, ours: dict[str, str]) -> None:
    """failures.md K9: no LANG, no HOME, no PATH, no terminal."""
    if confinement("off" if sandbox == "off" else "auto").kind == "none":
        pytest.skip(confinement().reason)
    looks = {"words": "echo \u00e4\u00f6\u20ac; ls / >/dev/null 2>&1; which ls; echo $TERM; cd; echo $?"}
    seen = shown(tmp_path, sandbox, ours, looks)["words"].splitlines()
    assert seen[0] == "\u00e4\u00f6\u20ac"
    assert seen[1].endswith("/ls")
    assert seen[2] == "dumb"


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"])
def test_the_supervisor_loads_no_library_that_a_command_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """docs/security.md: a command runs in a sandbox. The supervisor runs outside of it, before each command."""
    for folder in ("root/lib", "lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "root" / "link").symlink_to("../lib")
    (tmp_path / "through").symlink_to("root/link")
    folders = [f"{tmp_path}/{folder}" for folder in ("root/lib", "lib", "root/link", "through", "root")]
    monkeypatch.setenv(name, os.pathsep.join([*folders, "", ".", "lib"]))
    assert build_supervisor_environment([str(tmp_path / "root")])[name] == str(tmp_path / "lib")
    monkeypatch.setenv(name, f"{tmp_path}/root/lib")
    assert name not in build_supervisor_environment([str(tmp_path / "root")])
