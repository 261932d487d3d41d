"""Which programs run others by their nature: no beginning of theirs can stand for what comes after it."""

from __future__ import annotations

import re
from collections.abc import Sequence


def words_of(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


RUNNERS: dict[str, str] = {
    name: why
    for why, names in {
        "runs code it is given": """
            python python2 python3 pypy pypy3 ipython bpython ptpython jython pdb coverage jupyter ipykernel streamlit
            node nodejs deno bun bunx ts-node tsx npx nodemon perl raku ruby irb php lua luajit tclsh wish expect
            Rscript R julia swift ghc ghci runghc runhaskell stack elixir iex erl groovy scala kotlin java jshell sbcl
            clisp guile racket ocaml dart zig crystal nim tcc osascript gawk mawk nawk awk bc dc sqlite3 psql mysql
            mariadb mongo mongosh redis-cli duckdb octave gnuplot m4 gdb lldb flask django-admin uvicorn gunicorn celery
            alembic airflow""",
        "is a shell": "sh bash dash zsh ksh mksh ash fish csh tcsh rbash busybox toybox pwsh powershell nu xonsh",
        "runs other commands": """
            env xargs parallel sudo doas su runuser pkexec gosu sshpass nohup timeout nice ionice chrt taskset stdbuf
            setsid setpriv setarch linux32 linux64 i386 x86_64 uname26 unshare nsenter chroot fakeroot eatmydata
            faketime unbuffer chronic run-parts git-shell strace ltrace valgrind perf hyperfine script watch watchexec
            time entr flock at batch cgexec ldd invoke inv fab doit xdg-open
            crontab systemd-run start-stop-daemon runcon sg newgrp proot bwrap firejail capsh prlimit numactl
            catchsegv rlwrap ssh scp sftp rsync mosh telnet nc ncat netcat socat screen tmux dbus-run-session
            xvfb-run make gmake ninja cmake ant gradle gradlew mvn mvnw sbt bazel meson scons rake just task tox nox
            pre-commit hatch poetry pipenv pipx pdm uv uvx rye conda mamba pip pip3 nvm fnm volta asdf mise direnv
            pyenv rbenv corepack pnpx gem bundle bundler composer docker-compose vagrant ansible ansible-playbook
            terraform helm apt apt-get aptitude brew dnf yum rpm dpkg apk pacman snap flatpak nx
            turbo lerna tar zip unzip cpio 7z dd install logrotate split csplit gcc g++ cc c++ clang clang++ ld
            as rustc javac""",
        "can run other commands from inside": """
            vi vim nvim ex ed view vimdiff emacs emacsclient code subl nano pico joe micro
            less more most man info pager ftp lftp gpg gpg2
            openssl mail mutt lynx links w3m elinks""",
        "changes what later commands mean": """
            . source eval exec command builtin alias unalias set unset shopt export declare typeset local readonly
            trap enable hash read mapfile readarray let getopts wait bind complete compgen compopt fc history test [
            umask ulimit caller coproc return shift""",
        "changes the folder in which later commands run": "cd pushd popd chdir",
        "writes what it loads to files": "wget aria2c",
    }.items()
    for name in names.split()
}  # fmt: skip
"""Programs that no prefix may stand for, and why."""

# What comes after these names is a version or a build: `python3.12`, `python3-dbg`, `perl5.36-x86_64-linux-gnu`.
_FAMILIES = re.compile(r"(python|pypy|ipython|perl|ruby|php|lua|node|bash|dash|zsh|ksh)[-_.0-9].*")
_LINKER = re.compile(r"ld(-|\.so|.*\.so\.).*")


def runs_others(program: str) -> str | None:
    """Why no prefix may stand for a program that runs others, however it is called; `None` where it is not known to."""
    name = program.rpartition("/")[2]
    why = RUNNERS.get(name) or RUNNERS.get(re.sub(r"[-0-9.]+$", "", name))
    if why is None and (family := _FAMILIES.fullmatch(name)):
        why = RUNNERS[family[1]]
    return why or ("runs other commands" if _LINKER.fullmatch(name) else None)


_GIT = """
    config bisect rebase submodule filter-branch difftool mergetool hook daemon instaweb web--browse send-email p4
    svn cvsserver clone archive format-patch bundle fast-import fast-export am maintenance credential shell gui
    citool help init worktree for-each-repo upload-pack receive-pack remote-ext replay var merge-index lfs annex"""
_NPM = """
    exec x dlx init create explore config set edit install i add ci update up upgrade link rebuild start stop
    restart publish pack unpack import global plugin node"""
_CONTAINER = "run exec build buildx compose create cp commit load import plugin swarm stack context start attach"
SUBCOMMANDS: dict[str, frozenset[str]] = {
    "git": words_of(_GIT),
    "npm": words_of(_NPM),
    "pnpm": words_of(_NPM),
    "yarn": words_of(_NPM),
    "cargo": words_of("run install bench fix publish package new init add"),
    "go": words_of("run generate tool install get env fix mod work"),
    "dotnet": words_of("run exec tool script new add"),
    "docker": words_of(_CONTAINER),
    "podman": words_of(_CONTAINER),
    "kubectl": words_of("exec run cp debug edit attach apply create patch plugin port-forward proxy config kustomize"),
    "gh": words_of("api alias extension codespace config auth browse"),
    "ip": words_of("netns vrf"),
    "systemctl": words_of("edit link enable"),
    "hg": words_of("config serve extdiff histedit archive init clone debugshell"),
    "jj": words_of("config util run fix git"),
    "svn": words_of("checkout co export update up switch relocate"),
}
"""Programs for which a rule has to name the subcommand too, with the ones that no prefix may stand for."""

SCRIPTS = frozenset(("run", "run-script", "rum", "urn"))
"""Subcommands that run a script of the project by its name."""

_NOT_TEXT = frozenset(("changes the folder in which later commands run", "writes what it loads to files"))
_CHANGES = "changes what later commands mean"
_EVALUATE = words_of(". source eval exec command builtin alias trap bind complete compgen fc enable")


def takes_commands(words: Sequence[str]) -> bool:
    """Whether a command could take a text for a command: from its arguments, or from what is piped into it."""
    name = words[0].rpartition("/")[2]
    why = runs_others(name)
    if why == _CHANGES:
        return name in _EVALUATE
    if why is not None:
        return why not in _NOT_TEXT
    if any(word.startswith("!") or "=!" in word for word in words[1:]):
        return True
    return name in SUBCOMMANDS and len(words) > 1 and (words[1].startswith("-") or words[1] in SUBCOMMANDS[name])
