"""Tables of programs: which run other programs, and which options run another program, write a file, or read elsewhere.

They only restrict: a program that is not listed is checked against the general list of `UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


def split_words(text: str) -> frozenset[str]:
    """Split a text into a set of words."""
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
"""Programs that a prefix rule must not allow, and why."""

# These names may have a version or a build after them: `python3.12`, `python3-dbg`, `perl5.36-x86_64-linux-gnu`.
_FAMILIES = re.compile(r"(python|pypy|ipython|perl|ruby|php|lua|node|bash|dash|zsh|ksh)[-_.0-9].*")
_LINKER = re.compile(r"ld(-|\.so|.*\.so\.).*")


def explain_runner(program: str) -> str | None:
    """Explain why a prefix rule must not allow a program that runs others; `None` for a program not known to."""
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
    "git": split_words(_GIT),
    "npm": split_words(_NPM),
    "pnpm": split_words(_NPM),
    "yarn": split_words(_NPM),
    "cargo": split_words("run install bench fix publish package new init add"),
    "go": split_words("run generate tool install get env fix mod work"),
    "dotnet": split_words("run exec tool script new add"),
    "docker": split_words(_CONTAINER),
    "podman": split_words(_CONTAINER),
    "kubectl": split_words(
        "exec run cp debug edit attach apply create patch plugin port-forward proxy config kustomize"
    ),
    "gh": split_words("api alias extension codespace config auth browse"),
    "ip": split_words("netns vrf"),
    "systemctl": split_words("edit link enable"),
    "hg": split_words("config serve extdiff histedit archive init clone debugshell"),
    "jj": split_words("config util run fix git"),
    "svn": split_words("checkout co export update up switch relocate"),
}
"""Programs for which a rule must name the subcommand, with the subcommands that a prefix rule must not allow."""

SCRIPTS = frozenset(("run", "run-script", "rum", "urn"))
"""Subcommands that run a script of the project by its name."""

_NOT_TEXT = frozenset(("changes the folder in which later commands run", "writes what it loads to files"))
_CHANGES = "changes what later commands mean"
_EVALUATE = split_words(". source eval exec command builtin alias trap bind complete compgen fc enable")


def takes_commands(words: Sequence[str]) -> bool:
    """Whether a command may run a text as a command: from its arguments, or from its standard input."""
    name = words[0].rpartition("/")[2]
    why = explain_runner(name)
    if why == _CHANGES:
        return name in _EVALUATE
    if why is not None:
        return why not in _NOT_TEXT
    if any(word.startswith("!") or "=!" in word for word in words[1:]):
        return True
    return name in SUBCOMMANDS and len(words) > 1 and (words[1].startswith("-") or words[1] in SUBCOMMANDS[name])


@dataclass(frozen=True, slots=True)
class Program:
    """The options of a program that run another program, write a file, or change where it reads.

    `letters` are short options, `names` long ones in any case, `words` are prefixes of whole words, `marks` are texts
    that no operand may contain; `valued` are short options whose value may follow in the same word. With `only`, no
    other option is safe (`-k:` takes a value). With `operands` or more operands, one of them is written to. `inside`
    requires operands inside the folder, and `bare` forbids options that name a file.
    """

    letters: str = ""
    valued: str = ""
    names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    operands: int | None = None
    inside: bool = False
    bare: bool = False
    check: Callable[[Sequence[str]], str | None] | None = None

    @property
    def is_harmless(self) -> bool:
        """Whether every option is safe."""
        return self == _PLAIN


_PLAIN = Program()


_SED_PRINT = re.compile(r"[0-9]+(,([0-9]+|\$))?p|\$p")


def _check_sed(words: Sequence[str]) -> str | None:
    """Allow only printing lines: a sed script can run commands and write files."""
    options = [word for word in words if word.startswith("-")]
    rest = [word for word in words if not word.startswith("-")]
    if options == ["-n"] and rest and _SED_PRINT.fullmatch(rest[0]):
        return None
    return "only `sed -n 1,20p file` is known to do nothing but print"


def _check_ps(words: Sequence[str]) -> str | None:
    """BSD options have no dash, and `e` shows the environment variables of other processes."""
    shown = [word for word in words if "env" in word or (not word.startswith("-") and "e" in word.lower())]
    return f"{shown[0]!r} may show the environment of other processes" if shown else None


def read_short_options(word: str, valued: str) -> str:
    """Read the short options of a word, up to one whose value is the rest of the word."""
    if not word.startswith("-") or word.startswith("--"):
        return ""
    for place, letter in enumerate(word):
        if letter in valued:
            return word[1 : place + 1]
    return word[1:]


def _check_git(words: Sequence[str]) -> str | None:
    """`git merge -s evil` runs the program `git-merge-evil`; elsewhere `-s` means something else."""
    if words[:1] in (["merge"], ["pull"]) and any("s" in read_short_options(word, "mXF") for word in words[1:]):
        return "a merge strategy can be another program"
    return None


def _check_kubectl(words: Sequence[str]) -> str | None:
    """`-f` names a file or a URL, except for `logs`, where it means to follow."""
    if words[:1] != ["logs"] and any("f" in read_short_options(word, "onlcL") for word in words):
        return "the option '-f' names a file or an address"
    return None


def _check_curl(words: Sequence[str]) -> str | None:
    """`@` before a name sends that file, in any option."""
    found = [word for word in words if "@" in word or word.strip().lower().startswith("file:")]
    return f"{found[0]!r} can send a file, or names one" if found else None


def _check_cargo(words: Sequence[str]) -> str | None:
    """A target specification (a JSON file) can name a linker to run."""
    found = [word for word in words if word.endswith(".json")]
    return f"{found[0]!r} can name a program to run" if found else None


_TESTS = split_words("-s --silent --verbose -v --no-color --color")
_NODE = Program(only=_TESTS, inside=True)
KNOWN: dict[str, Program] = {
    **dict.fromkeys(split_words("""
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
    "sed": Program(check=_check_sed),
    "ps": Program(check=_check_ps),
    "find": Program(words=("-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from")),
    **dict.fromkeys(("fd", "fdfind"), Program(letters="xXl", names=("exec", "exec-batch", "list-details"))),
    "rg": Program(letters="z", names=("pre", "pre-glob", "hostname-bin", "search-zip")),
    "ag": Program(letters="z", names=("pager", "search-zip")),
    "ack": Program(names=("pager", "output", "ackrc")),
    "bat": Program(names=("pager", "paging")),
    "yq": Program(letters="is", names=("inplace", "in-place", "split-exp")),
    "curl": Program(
        only=split_words("""
            -f -s -S -L -i -I -v -4 -6 -g -G -N -0 -X: -H: -A: -e: -m: -r: -z: --fail --fail-with-body --silent
            --show-error --location --include --head --verbose --ipv4 --ipv6 --globoff --get --no-buffer --request
            --header --user-agent --referer --max-time --range --time-cond --connect-timeout --compressed --retry
            --retry-delay --retry-max-time --max-redirs --max-filesize --http1.0 --http1.1 --http2 --http3
            --no-progress-meter --version -V
        """),
        check=_check_curl,
    ),
    "git": Program(
        letters="O",
        names=(
            "output", "ext-diff", "textconv", "filters", "upload-pack", "receive-pack", "exec", "exec-path", "config",
            "config-env", "open-files-in-pager", "ext-grep", "git-dir", "work-tree", "template", "edit",
            "edit-description", "extcmd", "tool", "gpg-sign", "show-signature", "help", "interactive",
            "output-directory", "index-output", "editor", "strategy", "unsafe-paths",
        ),
        marks=("::", "://-"),  # transports of its own, such as `ext::sh -c ...`, and hosts that are options
        check=_check_git,
    ),
    **dict.fromkeys(split_words("npm pnpm yarn jest mocha vitest ava tap playwright"), _NODE),
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
        letters="ZC",
        names=("config", "manifest-path", "target-dir", "artifact-dir", "lockfile-path", "out-dir"),
        inside=True,
        check=_check_cargo,
    ),
    "go": Program(
        words=tuple(f"{dash}{name}" for dash in ("-", "--") for name in split_words("""
            o C exec toolexec vettool overlay modfile pkgdir coverprofile cpuprofile memprofile blockprofile
            mutexprofile trace ldflags gcflags asmflags fuzz test.
        """)),
        inside=True,
    ),
    **dict.fromkeys(("pytest", "py.test"), Program(
        only=split_words("""
            -q -v -x -s -l -k: -m: -r: -n: -V -h --quiet --verbose --exitfirst --showlocals --no-showlocals --capture
            --maxfail --tb --co --collect-only --lf --last-failed --ff --failed-first --nf --new-first --sw --stepwise
            --sw-skip --stepwise-skip --last-failed-no-failures --lfnf --cache-show --no-header --no-summary --color
            --code-highlight --durations --durations-min --full-trace --show-capture --disable-warnings
            --disable-pytest-warnings --strict --strict-config --strict-markers --ignore --ignore-glob --deselect
            --runxfail --markers --fixtures --fixtures-per-test --funcargs --setup-show --setup-only --setup-plan
            --keep-duplicates --noconftest --doctest-modules --doctest-continue-on-failure --doctest-glob
            --log-level --log-cli-level --log-format --log-cli-format --log-date-format --numprocesses --maxprocesses
            --dist --timeout --timeout-method --session-timeout --cov --no-cov --cov-branch --cov-fail-under
            --no-cov-on-fail --reruns --reruns-delay --count --randomly-seed --asyncio-mode --anyio-mode
            --hypothesis-seed --hypothesis-profile --hypothesis-show-statistics --benchmark-skip --benchmark-disable
            --benchmark-only --version --help
        """),
        marks=("@",),  # a file with more arguments
        inside=True,
    )),
    "tsc": Program(
        only=split_words("""
            --noEmit --pretty --strict --skipLibCheck --watch -w --version -v --listFiles --listFilesOnly --showConfig
            --explainFiles --diagnostics --extendedDiagnostics --noErrorTruncation --help -h --all
        """),
        inside=True,
    ),
    "kubectl": Program(
        letters="sk",
        valued="onlcL",
        names=(
            "kubeconfig", "cache-dir", "profile", "profile-output", "filename", "kustomize", "raw", "server", "context",
            "cluster", "user", "as", "as-group", "as-uid", "token", "username", "password", "certificate-authority",
            "client-certificate", "client-key", "insecure-skip-tls-verify", "tls-server-name",
        ),
        check=_check_kubectl,
    ),
    "gh": Program(letters="w", names=("web", "hostname", "editor")),
    "hg": Program(names=("config", "config-file", "pager", "ssh", "remotecmd", "cwd", "tool", "output", "edit")),
    "jj": Program(letters="R", names=("config", "config-file", "config-toml", "repository", "tool", "editor")),
    "svn": Program(names=("config-option", "config-dir", "editor-cmd", "diff-cmd", "diff3-cmd", "merge-cmd")),
    "docker": Program(letters="H", names=("config", "host", "context", "output")),
    "podman": Program(names=("config", "url", "connection", "identity", "output")),
}  # fmt: skip
"""Programs whose options are known; others are checked with `UNKNOWN`."""

UNKNOWN = Program(
    letters="ceoxX",
    names=(
        "exec", "execute", "eval", "command", "cmd", "shell", "script", "run", "pre", "preprocessor", "hook", "plugin",
        "plugins", "load", "load-plugins", "require", "import", "config", "config-file", "rcfile", "output",
        "output-file", "out", "outfile", "out-file", "log-file", "logfile", "write", "in-place", "inplace",
        "rsh", "rsh-command", "use-compress-program", "to-command", "editor", "pager", "init-file",
        "script-shell", "node-options", "prefix", "formatter", "format-file", "rulesdir",
        "resolve-plugins-relative-to", "save", "dump", "trace", "fix", "outdir", "out-dir", "output-dir",
        "output-directory", "chdir", "cwd", "directory", "working-directory", "module", "preload", "library",
        "extension", "interpreter", "wrapper", "launcher", "runner", "command-file", "startup-file", "ssh",
        "ssh-command", "browser", "viewer", "diff-cmd", "dest", "destination", "target-dir", "report-file", "log-dir",
        "cache-dir", "tee", "append", "backup",
    ),
    bare=True,
)  # fmt: skip
"""The options that count as unsafe for a program that is not in `KNOWN`."""
