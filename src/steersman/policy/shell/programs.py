"""Programs that run other programs, and the options that count as unsafe for a program without a table."""

from __future__ import annotations

import re
from collections.abc import Sequence


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
            alembic airflow mkdocs sphinx-build latex pdflatex xelatex lualatex latexmk tex gs mlr nmap tshark act
            mysqlsh clickhouse-client sqlcmd mono original-awk goawk""",
        "is a shell": """
            sh bash dash zsh ksh mksh ash fish csh tcsh rbash busybox toybox pwsh powershell nu xonsh elvish yash posh
            sash osh ysh""",
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
            turbo lerna tap fzf sk rename prename file-rename perl-rename vidir tig lazygit gitui k9s ranger mc rclone
            aria2c yt-dlp youtube-dl tar zip unzip cpio 7z dd install logrotate split csplit gcc g++ cc c++ clang
            clang++ ld as rustc javac
            ssh-agent ssh-keygen proxychains proxychains4 torsocks torify tsocks dotenv cross-env env-cmd choom chpst
            envdir setlock softlimit setuidgid dumb-init tini catatonit ccache sccache distcc systemd-inhibit
            systemd-cat systemd-nspawn machinectl dtach abduco tmate openvt logsave multitime pexec sem grc cpulimit
            caffeinate xterm xinit startx service pm2 forever nodemon concurrently npm-run-all run-s run-p ctest cpack
            gulp grunt snakemake nextflow fastapi hypercorn doppler aws-vault chamber op sops wine git-lfs supervisord
            genv gxargs gtimeout gnice gnohup gstdbuf gtar bsdtar gsplit gcsplit gdd ginstall gchroot cpan pexpect
            busctl dmsetup debugfs mage earthly tup xmake run-mailcap runit sshuttle autossh ifne pee mispipe zrun lckdo
            xcrun launchctl gio bpftrace stap trace-cmd rr zellij byobu tmuxinator x-terminal-emulator gnome-terminal
            konsole kitty alacritty wezterm foot""",
        "can run other commands from inside": """
            rvim rview gvim gview evim vimtutor hx helix kak cscope
            vi vim nvim ex ed view vimdiff emacs emacsclient code subl nano pico joe micro
            less more most man info pager ftp lftp gpg gpg2
            openssl mail mutt lynx links w3m elinks""",
        "makes links, which lead other commands elsewhere": "ln gln",
        "changes what later commands mean": """
            . source eval exec command builtin alias unalias set unset shopt export declare typeset local readonly
            trap enable hash read mapfile readarray let getopts wait bind complete compgen compopt fc history test [
            umask ulimit caller coproc return shift""",
        "changes the folder in which later commands run": "cd pushd popd chdir",
        "writes files that its arguments name": """
            wget ffmpeg convert magick mogrify composite montage identify sox pg_dump pg_dumpall pg_restore mysqldump
            mongodump mongorestore pdftotext sponge link""",
        "has options that run programs or write files": """
            7za ack actionlint ag ava az bandit biome checkov clang-format clang-tidy codespell cppcheck doctl dotnet
            exiftool ffprobe fly flyctl gcloud getconf glab gofumpt goimports gsutil hadolint heroku hg jj ktlint
            markdownlint mediainfo mocha netlify nslookup oxlint pandoc pdfinfo pg_isready phpstan phpunit pipdeptree
            playwright psalm pydocstyle pyrefly radon rspec rubocop rustfmt rustup shasum soxi staticcheck stylelint
            supabase svn swiftlint tcpdump tflint ty typos vercel vitest vulture wrangler yamllint yq zipinfo zstd
            zstdcat""",
    }.items()
    for name in names.split()
}  # fmt: skip
"""Programs that a prefix rule must not allow, and why."""

# These names may have a version or a build after them: `python3.12`, `python3-dbg`, `perl5.36-x86_64-linux-gnu`.
_FAMILIES = re.compile(r"(python|pypy|ipython|perl|ruby|php|lua|node|bash|dash|zsh|ksh|busybox|vim|emacs)[-_.0-9].*")
_BUILD = re.compile(r"[-.]?[0-9][-.0-9]*(?:(?:a|alpha|b|beta|rc)[0-9]+)?(?:-dbg|[dmt])?")
_LINKER = re.compile(r"ld(-|\.so|.*\.so\.).*")


def explain_runner(program: str) -> str | None:
    """Explain why a prefix rule must not allow a program that runs others; `None` for a program not known to."""
    name = program.rpartition("/")[2]
    why = RUNNERS.get(name) or RUNNERS.get(name.rstrip("-.0123456789"))
    if why is None and (family := _FAMILIES.fullmatch(name)):
        why = RUNNERS[family[1]]
    return why or ("runs other commands" if _LINKER.fullmatch(name) else None)


def is_version(name: str, program: str) -> bool:
    """Whether a name is that of an interpreter or a compiler with a version behind it: `python3.12` is `python`."""
    if not name.startswith(program) or not _BUILD.fullmatch(name, len(program)):
        return False
    return program in ("go", "pytest") or explain_runner(program) is not None


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
    "docker": split_words(_CONTAINER),
    "podman": split_words(_CONTAINER),
    "kubectl": split_words(
        "exec run cp debug edit attach apply create patch plugin port-forward proxy config kustomize"
    ),
    "gh": split_words("api alias extension codespace config auth browse"),
    "ip": split_words("netns vrf"),
    "systemctl": split_words("edit link enable"),
}
"""Subcommands that can run other commands, or change what later commands do."""

SCRIPTS = frozenset(("run", "run-script", "rum", "urn"))
"""Subcommands that run a script of the project by its name."""

_FOLDER = "changes the folder in which later commands run"
_CHANGES = "changes what later commands mean"
_LINKS = "makes links, which lead other commands elsewhere"
_NOT_TEXT = frozenset((_FOLDER, _LINKS, "writes files that its arguments name"))
_EVALUATE = split_words(". source eval exec command builtin alias trap bind complete compgen fc enable")


def changes_shell(program: str) -> bool:
    """Whether a program changes what the commands after it mean, or the folder in which they run."""
    return explain_runner(program) in (_CHANGES, _FOLDER) and program not in ("test", "[")


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
    if name not in SUBCOMMANDS or len(words) < 2:
        return False
    place = 2 if words[1] == "container" else 1
    return words[1].startswith("-") or not SUBCOMMANDS[name].isdisjoint(words[place : place + 1])


_SHELL_TEXTS = split_words("env eval ssh su runuser sg script watch parallel flock tmux screen")


def runs_text(program: str) -> bool:
    """Whether a program runs a text of its arguments or of its input in a shell."""
    return program.rpartition("/")[2] in _SHELL_TEXTS or explain_runner(program) == "is a shell"


_UNSAFE_LETTERS = frozenset("ceoxX")
_UNSAFE_NAMES = split_words("""
    exec execute eval command cmd shell script run pre preprocessor hook plugin plugins load load-plugins require import
    config config-file rcfile output output-file out outfile out-file log-file logfile write in-place inplace rsh
    rsh-command use-compress-program to-command editor pager init-file script-shell node-options prefix formatter
    format-file rulesdir resolve-plugins-relative-to save dump trace fix outdir out-dir output-dir output-directory
    chdir cwd directory working-directory module preload library extension interpreter wrapper launcher runner
    command-file startup-file ssh ssh-command browser viewer diff-cmd dest destination target-dir report-file log-dir
    cache-dir tee append backup
""")


def explain_unsafe_option(text: str) -> str | None:
    """Explain why an option of a program without a table may be unsafe; `None` for one that does not look like it."""
    if "/" in text:
        return f"the option {text!r:.200} names a file"
    name = text.partition("=")[0].casefold()
    if text.startswith("--"):
        # Long options may be abbreviated: `--outp` is `--output` where no other option begins like that.
        wrong = text != "--" and any(option.startswith(name[2:]) for option in _UNSAFE_NAMES)
    else:
        wrong = name[1:] in _UNSAFE_NAMES or not _UNSAFE_LETTERS.isdisjoint(text[1:])
    return f"the option {text!r:.200} can run another program or write a file" if wrong else None
