"""What is known of programs: which run others by their nature, and which options make an ordinary one run or write.

It is used to be careful, never to be generous: a program that is not known here is looked at with a general suspicion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steersman.policy.shell import Word


@dataclass(frozen=True, slots=True)
class Program:
    """The options of a program that run another one, write a file, or change where it looks.

    `letters` are short options, `names` long ones, `words` the beginnings of whole words, `marks` what no operand may
    hold. With `only`, no other option passes. From `operands` operands on, one is written to; `inside` keeps them in
    the folder.
    """

    letters: str = ""
    names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    operands: int | None = None
    inside: bool = False
    check: Callable[[Sequence[str]], str | None] | None = None

    @property
    def harmless(self) -> bool:
        """Whether no option of it matters."""
        return self == _PLAIN


_PLAIN = Program()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


RUNNERS: dict[str, str] = {
    name: why
    for why, names in {
        "runs code it is given": """
            python python2 python3 pypy pypy3 ipython node nodejs deno bun bunx ts-node tsx npx perl ruby irb php
            lua luajit tclsh wish expect Rscript R julia swift ghc runghc runhaskell stack elixir iex erl groovy
            scala kotlin java jshell sbcl clisp guile racket osascript gawk mawk nawk awk bc dc sqlite3 psql mysql
            mariadb mongo mongosh redis-cli duckdb octave gnuplot m4 gdb lldb""",
        "is a shell": "sh bash dash zsh ksh mksh ash fish csh tcsh rbash busybox toybox pwsh powershell nu xonsh",
        "runs other commands": """
            env xargs parallel sudo doas su runuser nohup timeout nice ionice chrt taskset stdbuf setsid setpriv
            unshare nsenter chroot fakeroot strace ltrace valgrind perf script watch time entr flock at batch
            crontab systemd-run start-stop-daemon runcon sg newgrp proot bwrap firejail capsh prlimit numactl
            catchsegv rlwrap ssh scp sftp rsync mosh telnet nc ncat netcat socat screen tmux dbus-run-session
            xvfb-run make gmake ninja cmake ant gradle gradlew mvn mvnw sbt bazel meson scons rake just task tox nox
            pre-commit hatch poetry pipenv pipx pdm uv uvx rye conda mamba pip pip3 nvm fnm volta asdf mise direnv
            pyenv rbenv corepack pnpx gem bundle bundler composer docker-compose vagrant ansible ansible-playbook
            terraform helm tar zip unzip cpio 7z dd install logrotate split csplit gcc g++ cc c++ clang clang++ ld
            as rustc javac""",
        "can run other commands from inside": """
            vi vim nvim ex ed view vimdiff emacs nano pico joe micro less more most man info pager ftp lftp gpg gpg2
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

_GIT = """
    config bisect rebase submodule filter-branch difftool mergetool hook daemon instaweb web--browse send-email p4
    svn cvsserver clone archive format-patch bundle fast-import fast-export am maintenance credential shell gui
    citool help init worktree for-each-repo upload-pack receive-pack remote-ext replay var"""
_NPM = """
    exec x dlx init create explore config set edit install i add ci update up upgrade link rebuild start stop
    restart publish pack unpack import global plugin node"""
_CONTAINER = "run exec build buildx compose create cp commit load import plugin swarm stack context start attach"
SUBCOMMANDS: dict[str, frozenset[str]] = {
    "git": _words(_GIT),
    "npm": _words(_NPM),
    "pnpm": _words(_NPM),
    "yarn": _words(_NPM),
    "cargo": _words("run install bench fix publish package new init add"),
    "go": _words("run generate tool install get env fix mod work"),
    "dotnet": _words("run exec tool script new add"),
    "docker": _words(_CONTAINER),
    "podman": _words(_CONTAINER),
    "kubectl": _words("exec run cp debug edit attach apply create patch plugin port-forward proxy config kustomize"),
    "gh": _words("api alias extension codespace config auth browse"),
    "systemctl": _words("edit link enable"),
}
"""Programs for which a rule has to name the subcommand too, with the ones that no prefix may stand for."""

_SCRIPTS = frozenset(("run", "run-script", "rum", "urn"))
_SECRETS = re.compile(r"(?:^|/)proc(?:/|$)")
_SED_PRINT = re.compile(r"[0-9]+(,([0-9]+|\$))?p|\$p")


def _sed(words: Sequence[str]) -> str | None:
    """Only the printing of lines: scripts of sed can run commands and write files."""
    options = [word for word in words if word.startswith("-")]
    rest = [word for word in words if not word.startswith("-")]
    if options == ["-n"] and rest and _SED_PRINT.fullmatch(rest[0]):
        return None
    return "only `sed -n 1,20p file` is known to do nothing but print"


def _ps(words: Sequence[str]) -> str | None:
    """Old options come without a dash, and `e` shows the environment of other processes."""
    shown = [word for word in words if "env" in word or (not word.startswith("-") and "e" in word.lower())]
    return f"{shown[0]!r} may show the environment of other processes" if shown else None


_TESTS = _words("-s --silent --verbose -v --no-color --color")
_NODE = Program(only=_TESTS, inside=True)
KNOWN: dict[str, Program] = {
    **dict.fromkeys(_words("""
        ls cat head tail wc grep egrep fgrep echo pwd cut tr nl tac rev paste comm cmp column expand fold fmt
        basename dirname realpath readlink stat du df free uptime uname whoami id groups true false seq sleep
        md5sum sha1sum sha256sum sha512sum cksum strings od hexdump which type whereis printenv jq
    """), _PLAIN),
    "printf": Program(letters="v"),
    "diff": Program(letters="l", names=("paginate",)),
    "file": Program(letters="CzZ", names=("compile", "uncompress", "uncompress-noreport")),
    "date": Program(letters="sf", names=("set", "file")),
    "hostname": Program(letters="Fb", names=("file", "boot"), operands=1),
    "sort": Program(letters="oT", names=("output", "compress-program", "temporary-directory")),
    "uniq": Program(operands=2),
    "xxd": Program(letters="r", operands=2),
    "tree": Program(letters="oR", names=("output",)),
    "sed": Program(check=_sed),
    "ps": Program(check=_ps),
    "find": Program(words=("-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from")),
    **dict.fromkeys(("fd", "fdfind"), Program(letters="xXl", names=("exec", "exec-batch", "list-details"))),
    "rg": Program(letters="z", names=("pre", "pre-glob", "hostname-bin", "search-zip")),
    "ag": Program(letters="z", names=("pager", "search-zip")),
    "ack": Program(names=("pager", "output", "ackrc")),
    "bat": Program(names=("pager", "paging")),
    "yq": Program(letters="is", names=("inplace", "in-place", "split-exp")),
    "curl": Program(
        letters="oOKcDTdFEJwQ",
        names=(
            "output", "output-dir", "remote-name", "remote-name-all", "remote-header-name", "config", "cookie-jar",
            "dump-header", "trace", "trace-ascii", "libcurl", "stderr", "etag-save", "hsts", "alt-svc", "upload-file",
            "data", "data-ascii", "data-binary", "data-raw", "data-urlencode", "json", "form", "form-string", "engine",
            "write-out", "quote", "unix-socket", "abstract-unix-socket", "netrc-file", "create-file-mode",
        ),
    ),
    "git": Program(
        letters="O",
        names=(
            "output", "ext-diff", "textconv", "filters", "upload-pack", "receive-pack", "exec", "exec-path", "config",
            "config-env", "open-files-in-pager", "ext-grep", "git-dir", "work-tree", "template", "edit",
            "edit-description", "extcmd", "tool", "gpg-sign", "show-signature", "help", "interactive",
            "output-directory", "index-output", "editor",
        ),
        marks=("::",),  # transports of its own, such as `ext::sh -c ...`
    ),
    **dict.fromkeys(_words("npm pnpm yarn jest mocha vitest ava tap playwright"), _NODE),
    "eslint": Program(
        letters="cfo",
        names=(
            "config", "rulesdir", "format", "plugin", "parser", "resolve-plugins-relative-to", "fix", "output-file",
            "cache-location", "cache-file", "init",
        ),
        inside=True,
    ),
    "prettier": Program(letters="w", names=("write", "plugin", "config", "parser", "cache-location"), inside=True),
    "mypy": Program(
        letters="c",
        names=(
            "config-file", "python-executable", "cache-dir", "install-types", "shadow-file", "junit-xml",
            "any-exprs-report", "cobertura-xml-report", "html-report", "linecount-report", "linecoverage-report",
            "lineprecision-report", "txt-report", "xml-report", "xslt-html-report", "xslt-txt-report",
        ),
        marks=("@",),
    ),
    "cargo": Program(
        letters="Z",
        names=("config", "manifest-path", "target-dir", "artifact-dir", "lockfile-path", "out-dir"),
        inside=True,
    ),
    "go": Program(
        words=tuple(f"{dash}{name}" for dash in ("-", "--") for name in _words("""
            o C exec toolexec vettool overlay modfile pkgdir coverprofile cpuprofile memprofile blockprofile
            mutexprofile trace ldflags gcflags asmflags fuzz test.
        """)),
        inside=True,
    ),
    "pytest": Program(
        letters="pcoW",
        names=(
            "rootdir", "confcutdir", "config-file", "override-ini", "basetemp", "junitxml", "junit-xml", "log-file",
            "resultlog", "debug", "pdbcls", "pdb", "trace", "import-mode", "pyargs", "pastebin", "cov-report",
            "cov-config", "pythonwarnings", "report-log", "html", "plugins",
        ),
        marks=("@",),  # a file with more arguments
        inside=True,
    ),
    "kubectl": Program(names=("kubeconfig", "cache-dir", "profile", "profile-output", "filename", "raw", "server")),
    "docker": Program(names=("config", "host", "output")),
    "podman": Program(names=("config", "url", "connection", "identity", "output")),
}  # fmt: skip
"""Programs whose options are known; the rest is looked at with `_UNKNOWN`."""

_UNKNOWN = Program(
    letters="ceoxX",
    names=(
        "exec", "execute", "eval", "command", "cmd", "shell", "script", "run", "pre", "preprocessor", "hook", "plugin",
        "plugins", "load", "load-plugins", "require", "import", "config", "config-file", "rcfile", "output",
        "output-file", "out", "outfile", "out-file", "log-file", "logfile", "write", "in-place", "inplace",
        "rsh", "rsh-command", "use-compress-program", "to-command", "editor", "pager", "init-file",
        "script-shell", "node-options", "prefix", "formatter", "format-file", "rulesdir",
        "resolve-plugins-relative-to", "save", "dump", "trace", "fix",
    ),
)  # fmt: skip


def no_prefix(words: Sequence[str]) -> str | None:
    """Why a prefix of these words can never stand for what comes after it; `None` where it can."""
    program = words[0]
    name = program.rpartition("/")[2]
    base = re.sub(r"[-0-9.]+$", "", name)
    why = RUNNERS.get(name) or RUNNERS.get(base)
    if why is not None:
        return f"{program!r} {why}"
    if name in SUBCOMMANDS:
        if len(words) < 2 or words[1].startswith("-"):
            return f"{program!r} does quite different things: name the subcommand as well, such as `{name} status:*`"
        if words[1] in SUBCOMMANDS[name]:
            return f"'{program} {words[1]}' can run other commands or change what later ones do"
        if words[1] in _SCRIPTS and len(words) < 3:
            return f"'{program} {words[1]}' runs any script: name the script as well"
    return _telling(KNOWN.get(program, _UNKNOWN), [Word(word) for word in words[1:]])


def suspicious(program: str, words: Sequence[Word]) -> str | None:
    """Why these arguments may make a program run another, write a file or tell secrets; `None` where they do not."""
    for word in words:
        if _SECRETS.search(word.text):
            return f"{word.text!r} may hold what other processes know"
    known = KNOWN.get(program, _UNKNOWN)
    if known.harmless:
        return None
    if (why := _telling(known, words)) is not None:
        return why
    texts = [word.text for word in words]
    if known.operands is not None:
        operands = [word for word in words if not word.text.startswith("-")]
        if len(operands) >= known.operands or any(word.wild >= 0 for word in operands):
            return f"{program!r} writes to its last operand"
    return None if known.check is None else known.check(texts)


def _telling(known: Program, words: Sequence[Word]) -> str | None:
    for word in words:
        option = word.text.startswith("-") and word.text != "-"
        if (why := _option(known, word) if option else _operand(known, word)) is not None:
            return why
    return None


def _option(known: Program, word: Word) -> str | None:
    text = word.text
    name, equals, _ = text.partition("=")
    if word.wild >= 0 and (not equals or word.wild <= len(name)):
        return f"{text!r} could become any option"
    if known.only is not None:
        return None if text in known.only else f"what the option {text!r} does is not known"
    if text.startswith(known.words) and known.words:
        return f"{text!r} runs another program or writes"
    if text.startswith("--"):
        # Long options may be cut short: `--outp` is `--output` where no other begins so.
        wrong = text != "--" and any(option.startswith(name[2:]) for option in known.names)
    else:
        wrong = any(letter in text[1:] for letter in known.letters)
    return f"the option {text!r} can run another program or write a file" if wrong else None


def _operand(known: Program, word: Word) -> str | None:
    text = word.text
    if word.wild == 0:
        return f"{text!r} could become an option"
    if known.inside and (text.startswith("/") or ".." in text.split("/") or "://" in text):
        return f"{text!r} is outside the folder"
    if any(mark in text for mark in known.marks):
        return f"{text!r} can run another program"
    return None
