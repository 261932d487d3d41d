"""Where programs are that a command may run and read: folders of the system, of PATH, and of toolchains at home.

Never a home folder, also not one that is in a folder of the system, as that of a service in /opt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from steersman.tools.confine.launch import DEFAULT_PATH

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
    .rbenv/version .rbenv/versions .rustup/settings.toml .rustup/toolchains .rustup/update-hashes .sdkman/candidates
    .volta/bin .volta/layout.v4 .volta/tools go/bin
"""
# What makes up a virtual environment; its folder may hold a project as well, after `python -m venv .`.
_ENVIRONMENT = ("bin", "include", "lib", "lib64", "pyvenv.cfg", "share")


def find_system_folders() -> list[str]:
    """List the folders of the system with programs, without the home folders in them, and parts of /etc."""
    fixed = {os.path.realpath(path) for path in (*_SYSTEM.split(), *DEFAULT_PATH.split(os.pathsep))}
    hidden = _list_homes() - fixed
    found = [part for path in _SYSTEM.split() for part in leave_out(path, hidden)]
    java = map(str, Path("/etc").glob("java-*"))
    return [*found, *(f"/etc/{name}" for name in _CONFIGURATION.split()), *java]


def find_program_folders(environment: Mapping[str, str]) -> list[str]:
    """List the folders of PATH, this Python, and the toolchains at home; never a folder that contains a home folder."""
    home, homes = os.path.expanduser("~"), _list_homes()
    found = [*environment.get("PATH", "").split(os.pathsep), sys.prefix, sys.base_prefix]
    found += [environment[name] for name in ("JAVA_HOME", "GOROOT", "VIRTUAL_ENV") if name in environment]
    narrow = [path for path in found if os.path.isabs(path) and not _contains_any(os.path.realpath(path), homes)]
    parts = [part for path in narrow for part in _list_parts(path)]
    return [*parts, *(os.path.join(home, name) for name in _TOOLCHAINS.split() if os.path.isabs(home))]


def _list_homes() -> set[str]:
    return {os.path.realpath(path) for path in (os.path.expanduser("~"), "/home", "/root", "/Users")}


def _list_parts(folder: str) -> list[str]:
    """List what a command needs of a folder: of a virtual environment its parts, of another one all."""
    if os.path.isfile(os.path.join(folder, "pyvenv.cfg")):
        return [os.path.join(folder, name) for name in _ENVIRONMENT]
    return [folder]


def leave_out(folder: str, hidden: Collection[str], top: str = "") -> Iterator[str]:
    """Yield a folder, or what is in it besides the hidden folders where one of them is in it.

    No link that leads out of `top`, the folder of the first call: given as a whole, it would not give that either.
    """
    top = top or os.path.realpath(folder)
    if not _contains_any(os.path.realpath(folder), hidden):
        yield folder
        return
    try:
        names = os.listdir(folder)
    except OSError:
        return  # not readable for us and so for the command
    for path in (os.path.join(folder, name) for name in names):
        real = os.path.realpath(path)
        if os.path.islink(path) and (
            not _contains_any(top, [real])
            or _contains_any(real, hidden)
            or any(_contains_any(home, [real]) for home in hidden)
        ):
            continue  # it leads out, to a hidden folder, or to one around it
        if real not in hidden:
            yield from leave_out(path, hidden, top)


def _contains_any(folder: str, paths: Iterable[str]) -> bool:
    return any(os.path.commonpath((folder, path)) == folder for path in paths)
