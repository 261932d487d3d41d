"""The allow-list of paths for a sandboxed command: programs can be read, the workspace written, the rest is hidden.

Home folders and /etc hold secrets, so only the named parts of them are visible.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steersman.tools.confine.protected_paths import Git, ProtectedPaths, find_repositories, protect_paths

# Whole folders with programs and their data.
_SYSTEM = """
    /usr /bin /sbin /lib /lib32 /lib64 /libx32 /opt /nix/store /gnu/store /snap /proc /sys/devices/system
    /sys/fs/cgroup /sys/kernel/mm /home/linuxbrew/.linuxbrew
"""
# The parts of /etc that any program may read; no passwords, keys or connection settings.
_CONFIGURATION = """
    alternatives ca-certificates ca-certificates.conf debian_version default/locale fonts gai.conf gitattributes
    gitconfig group host.conf hostname hosts ld.so.cache ld.so.conf ld.so.conf.d locale.alias locale.conf
    localtime login.defs lsb-release magic magic.mime manpath.config mime.types networks nsswitch.conf
    os-release passwd perl pki/ca-trust pki/tls/cert.pem pki/tls/certs pki/tls/openssl.cnf protocols python3
    redhat-release resolv.conf rpc services shells ssl/cert.pem ssl/certs ssl/openssl.cnf static terminfo
    timezone
"""
# Toolchains in the home folder: only the parts with programs, because some of them keep passwords next to those.
_TOOLCHAINS = """
    .asdf/asdf.sh .asdf/bin .asdf/installs .asdf/lib .asdf/plugins .asdf/shims .bun/bin .cargo/bin .deno/bin
    .fnm/aliases .fnm/node-versions .local/bin .local/lib .local/pipx/venvs .local/share/fnm/aliases
    .local/share/fnm/node-versions .local/share/mise/installs .local/share/mise/shims .local/share/pipx/py
    .local/share/pipx/shared .local/share/pipx/venvs .local/share/uv/python .local/share/uv/tools .nvm/alias
    .nvm/nvm-exec .nvm/nvm.sh .nvm/versions .pyenv/bin .pyenv/libexec .pyenv/plugins .pyenv/pyenv.d .pyenv/shims
    .pyenv/version .pyenv/versions .rbenv/bin .rbenv/libexec .rbenv/plugins .rbenv/rbenv.d .rbenv/shims
    .rbenv/version .rbenv/versions .rustup/settings.toml .rustup/toolchains .sdkman/candidates .volta/bin
    .volta/layout.v4 .volta/tools go/bin
"""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True)
class SandboxPaths:
    """The paths that a command may read, write and use as devices, and those it must not change (`protected`)."""

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    devices: tuple[str, ...] = _DEVICES
    protected: ProtectedPaths = field(default_factory=ProtectedPaths)


def find_sandbox_paths(
    root: str,
    scratch: Iterable[str],
    environment: Mapping[str, str],
    *,
    readable: Iterable[str] = (),
    writable: Iterable[str] = (),
    own: Iterable[str] = (sys.prefix, sys.base_prefix),
    git: Git = "read-only",
    inner: Iterable[str] | None = None,
) -> SandboxPaths:
    """Find the paths for a command in the workspace `root`, with its own temporary folders (`scratch`).

    `own` are the folders of the Python we run from; inside the workspace they are protected unless `writable` lists
    them. `inner` are the repositories below the root's own; `None` searches for them.
    """
    java = map(str, Path("/etc").glob("java-*"))
    read = (
        *_SYSTEM.split(),
        *(f"/etc/{name}" for name in _CONFIGURATION.split()),
        *java,
        *_find_program_folders(environment),
        *readable,
    )
    if inner is None:
        inner = find_repositories(root) if git == "read-only" else ()
    allowed = [os.path.realpath(path) for path in writable]
    write = (root, *scratch, *writable)
    return SandboxPaths(
        tuple(sorted({path for path in read if os.path.exists(path)})),
        tuple(dict.fromkeys(path for path in write if os.path.exists(path))),
        tuple(path for path in _DEVICES if os.path.exists(path)),
        protect_paths(root, repositories=inner, own=own, allowed=allowed, git=git),
    )


def _find_program_folders(environment: Mapping[str, str]) -> list[str]:
    """List the folders of PATH, this Python, and the toolchains at home; never a folder that contains a home folder."""
    home = os.path.expanduser("~")
    found = [*environment.get("PATH", "").split(os.pathsep), sys.prefix, sys.base_prefix]
    found += [environment[name] for name in ("JAVA_HOME", "GOROOT", "VIRTUAL_ENV") if name in environment]
    homes = {os.path.realpath(path) for path in (home, "/home", "/root", "/Users")}
    narrow = [path for path in found if os.path.isabs(path) and not _contains_any(os.path.realpath(path), homes)]
    return [*narrow, *(os.path.join(home, name) for name in _TOOLCHAINS.split() if os.path.isabs(home))]


def _contains_any(folder: str, paths: Iterable[str]) -> bool:
    return any(os.path.commonpath((folder, path)) == folder for path in paths)
