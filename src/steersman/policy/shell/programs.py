"""What is known of the options of programs: which make an ordinary one run another, write, or look elsewhere.

It is used to be careful, never to be generous: what is not known here is looked at with a general suspicion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steersman.policy.shell.runners import words_of


@dataclass(frozen=True, slots=True)
class Program:
    """The options of a program that run another one, write a file, or change where it looks.

    `letters` are short options, `names` long ones without regard to case, `words` the beginnings of whole words,
    `marks` what no operand may hold; `valued` are short options whose value may follow in the same word. With `only`,
    no other option passes (`-k:` is one with a value). From `operands` operands on, one is written to; `inside` keeps
    them in the folder, and `bare` lets no option name a file.
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
    def harmless(self) -> bool:
        """Whether no option of it matters."""
        return self == _PLAIN


_PLAIN = Program()


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


def short_options(word: str, valued: str) -> str:
    """The short options of a word, up to one that takes the rest of it for its value."""
    if not word.startswith("-") or word.startswith("--"):
        return ""
    for place, letter in enumerate(word):
        if letter in valued:
            return word[1 : place + 1]
    return word[1:]


def _git(words: Sequence[str]) -> str | None:
    """`git merge -s evil` runs the program `git-merge-evil`; elsewhere `-s` means something else."""
    if words[:1] in (["merge"], ["pull"]) and any("s" in short_options(word, "mXF") for word in words[1:]):
        return "a merge strategy can be another program"
    return None


def _kubectl(words: Sequence[str]) -> str | None:
    """`-f` names a file or an address, but for logs, which it follows."""
    if words[:1] != ["logs"] and any("f" in short_options(word, "onlcL") for word in words):
        return "the option '-f' names a file or an address"
    return None


def _curl(words: Sequence[str]) -> str | None:
    """`@` stands before the name of a file that is sent, wherever it is."""
    found = [word for word in words if "@" in word or word.strip().lower().startswith("file:")]
    return f"{found[0]!r} can send a file, or names one" if found else None


def _cargo(words: Sequence[str]) -> str | None:
    """A target in a file names its linker."""
    found = [word for word in words if word.endswith(".json")]
    return f"{found[0]!r} can name a program to run" if found else None


_TESTS = words_of("-s --silent --verbose -v --no-color --color")
_NODE = Program(only=_TESTS, inside=True)
KNOWN: dict[str, Program] = {
    **dict.fromkeys(words_of("""
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
        only=words_of("""
            -f -s -S -L -i -I -v -4 -6 -g -G -N -0 -X: -H: -A: -e: -m: -r: -z: --fail --fail-with-body --silent
            --show-error --location --include --head --verbose --ipv4 --ipv6 --globoff --get --no-buffer --request
            --header --user-agent --referer --max-time --range --time-cond --connect-timeout --compressed --retry
            --retry-delay --retry-max-time --max-redirs --max-filesize --http1.0 --http1.1 --http2 --http3
            --no-progress-meter --version -V
        """),
        check=_curl,
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
        check=_git,
    ),
    **dict.fromkeys(words_of("npm pnpm yarn jest mocha vitest ava tap playwright"), _NODE),
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
        check=_cargo,
    ),
    "go": Program(
        words=tuple(f"{dash}{name}" for dash in ("-", "--") for name in words_of("""
            o C exec toolexec vettool overlay modfile pkgdir coverprofile cpuprofile memprofile blockprofile
            mutexprofile trace ldflags gcflags asmflags fuzz test.
        """)),
        inside=True,
    ),
    **dict.fromkeys(("pytest", "py.test"), Program(
        only=words_of("""
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
        only=words_of("""
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
        check=_kubectl,
    ),
    "gh": Program(letters="w", names=("web", "hostname", "editor")),
    "hg": Program(names=("config", "config-file", "pager", "ssh", "remotecmd", "cwd", "tool", "output", "edit")),
    "jj": Program(letters="R", names=("config", "config-file", "config-toml", "repository", "tool", "editor")),
    "svn": Program(names=("config-option", "config-dir", "editor-cmd", "diff-cmd", "diff3-cmd", "merge-cmd")),
    "docker": Program(letters="H", names=("config", "host", "context", "output")),
    "podman": Program(names=("config", "url", "connection", "identity", "output")),
}  # fmt: skip
"""Programs whose options are known; the rest is looked at with `UNKNOWN`."""

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
"""What is suspicious of a program that nobody knows."""
