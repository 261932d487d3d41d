"""The strict reader of commands agrees with a real shell about everything it claims to understand."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policy.shell.shells import PROGRAMS, SHELLS, Bench
from tests.rows import each_row

from steersman.policy.shell.syntax import ParsedCommand, Part, Word, list_possible_commands, parse_command


def words(*texts: str) -> Part:
    return Part(tuple(map(Word, texts)))


@each_row(
    ("command", "parts"),
    [
        ("ls", [words("ls")]),
        ("  ls\t-l  ", [words("ls", "-l")]),
        ("git log -1;ls&&cat a||echo b|wc&", [
            words("git", "log", "-1"), words("ls"), words("cat", "a"), words("echo", "b"),
            Part((Word("wc"),), piped=True),
        ]),
        ("ls |\n wc | cat && ls\nls", [
            words("ls"), Part((Word("wc"),), piped=True), Part((Word("cat"),), piped=True), words("ls"), words("ls"),
        ]),
        ("ls\n\n cat a\n", [words("ls"), words("cat", "a")]),
        ("ls &&\n\n cat a", [words("ls"), words("cat", "a")]),
        ("echo 'a  b' \"c;d\"", [Part((Word("echo"), Word("a  b", quoted=True), Word("c;d", quoted=True)))]),
        ("echo a'b'\"c\"d", [Part((Word("echo"), Word("abcd", quoted=True)))]),
        ('echo "a\\d\\|"', [Part((Word("echo"), Word("a\\d\\|", quoted=True)))]),
        ("echo ''", [Part((Word("echo"), Word("", quoted=True)))]),
        ("echo '$x `y` \\ !'", [Part((Word("echo"), Word("$x `y` \\ !", quoted=True)))]),
        ("ls a*.py '*'", [Part((Word("ls"), Word("a*.py", wild=1), Word("*", quoted=True)))]),
        ("ls 'a'*", [Part((Word("ls"), Word("a*", wild=1, quoted=True)))]),
        ("git show HEAD~2^ a=b", [words("git", "show", "HEAD~2^", "a=b")]),
        ("ls 2>&1 >/dev/null", [words("ls")]),
        ("ls > a 2>> b < c", [Part((Word("ls"),), ("a", "b"), ("c",))]),
        ("ls <e*", [Part((Word("ls"),), ("e*",))]),
        ("CI=true LC_ALL=C ls a", [Part((Word("ls"), Word("a")), variables=("CI=true", "LC_ALL=C"))]),
        ("ls | GIT_PAGER=cat git log", [
            words("ls"), Part((Word("git"), Word("log")), variables=("GIT_PAGER=cat",), piped=True),
        ]),
        ("echo $? \"is $?\"", [Part((Word("echo"), Word("$?", 0), Word("is $?", 3, quoted=True)))]),
        ("ls \\( a\\*b \\)", [Part((Word("ls"), *[Word(text, quoted=True) for text in ("(", "a*b", ")")]))]),
        ("ls a\\**", [Part((Word("ls"), Word("a**", wild=2, quoted=True)))]),
        ("ls>a b", [Part((Word("ls"), Word("b")), ("a",))]),
        ("ls a2>b", [Part((Word("ls"), Word("a2")), ("b",))]),
        ("ls &>/dev/null; ls", [words("ls"), words("ls")]),
        ("ls HEAD@{1}..x@{u}", [words("ls", "HEAD@{1}..x@{u}")]),
        ("ls 2>b", [Part((Word("ls"),), ("b",))]),
        ("echo 'caf\u00e9'", [Part((Word("echo"), Word("caf\u00e9", quoted=True)))]),
    ],
)  # fmt: skip
def test_what_is_understood(command: str, parts: list[Part]) -> None:
    assert parse_command(command) == ParsedCommand(tuple(parts))


@each_row(
    ("command", "problem"),
    [
        ("ls $x", "'$' is not understood here"),
        ("ls \\a", "'\\\\' is not understood here"),
        ("(ls)", "'(' is not understood here"),
        ("ls ~", "'~' is not understood here"),
        ("ls # x", "'#' is not understood here"),
        ("ls =x", "'=' at the start of a word is not understood"),
        ("ls 'x", "a text in ' has no end, more than one line, or something that expands in it"),
        ('ls "$x"', 'a text in " has no end, more than one line, or something that expands in it'),
        ("X=1 ls", "'X=1' is not the plain name of a program"),
        ("CI=true", "a command is missing"),
        ("CI=true; ls", "a command is missing"),
        ("CI=true\nls", "a command is missing"),
        ("CI=true >/dev/null ls", "the redirection '>' is not understood here"),
        ("'CI'=true ls", "'CI=true' is not the plain name of a program"),
        ("CI=x* ls", "'CI=x*' is not the plain name of a program"),
        ("GIT_PAGER=evil git log", "'GIT_PAGER=evil' is not the plain name of a program"),
        ("LC_ALL=../x ls", "'LC_ALL=../x' is not the plain name of a program"),
        ("PATH=. ls", "'PATH=.' is not the plain name of a program"),
        ("ls $?x$y", "'$' is not understood here"),
        ('ls "$?$y"', 'a text in " has no end, more than one line, or something that expands in it'),
        ("\\(ls", "'(ls' is not the plain name of a program"),
        ("ls \\;", "'\\\\' is not understood here"),
        ("ls \u4f60|cat", "'\u4f60' is not understood here"),
        ("ls \u00e0", "'\u00e0' is not understood here"),
        ("if ls", "'if' is not the plain name of a program"),
        ("'ls' -l", "'ls' is not the plain name of a program"),
        ("l''s", "'ls' is not the plain name of a program"),
        ("l*", "'l*' is not the plain name of a program"),
        ("ls a?", "'?' is not understood here"),
        ("ls [ab]", "'[' is not understood here"),
        ("ls a#b", "'#' is not understood here"),
        ("ls a\\?", "'\\\\' is not understood here"),
        ("ls 0<c", "the redirection '0<' is not understood here"),
        ("ls 3>&1", "the redirection '3>&1' is not understood here"),
        ("ls 2>&9", "the redirection '2>&9' is not understood here"),
        ("TERM=dumb ls", "'TERM=dumb' is not the plain name of a program"),
        ("PAGER= ls", "'PAGER=' is not the plain name of a program"),
        ("CI=yes ls", "'CI=yes' is not the plain name of a program"),
        ("ls ;; ls", "a command is missing"),
        ("ls |& cat", "a command is missing"),
        ("ls & & cat", "a command is missing"),
        ("ls &> f", "the redirection '>' is not understood here"),
        ("ls >| f", "a redirection has no file"),
        ("ls >& f", "a redirection has no file"),
        ("ls << f", "the redirection '<' is not understood here"),
        ("ls <> f", "the redirection '>' is not understood here"),
        ("ls <(f)", "'(' is not understood here"),
        ("ls;", None),
        ("ls &&", "a command is missing"),
        ("ls ; ; ls", "a command is missing"),
        ("ls >", "a redirection has no file"),
        ("ls > > f", "the redirection '>' is not understood here"),
        ("ls 12> f", "the redirection '12>' is not understood here"),
        ("ls 'a'2> f", "'2>' inside a word is not understood"),
        ("ls\u200b", "it has the invisible character '\\u200b'"),
        ("", "a command is missing"),
        ("ls " + "x" * 10_000, "it is longer than 10,000 characters"),
    ],
)
def test_what_is_not_understood_is_said(command: str, problem: str | None) -> None:
    assert parse_command(command).problem == problem


# Pieces of commands, the dangerous ones among them: whatever is made of them, the reader may give up but not be wrong.
PIECES = st.sampled_from(
    (
        "ls", "git", "cat", "evil", "status", " ", " ", " ", "  ", "\t", "\n", ";", "&&", "||", "&", ">", "<", "2>&1",
        ">/dev/null", "2>", ">&", "<<", "<<<", "|&", "$(", ")", "`", "$x", "${", "}", "{", "(", "!", "\\", "'", '"',
        "'a b'", '"c;d"', "''", "#", "~", "=", "X=", "^", "*", "?", "[", "]", "%", "@", "+", ",", "-", "--x", "a",
        "1", "22", "evil", ".", "/", ":", "\r", "\x0b", "\u00a0", "\u200b", "\u00e9", "if", "then", "time", "eval",
        "exec", "function", "\\\n", "&>", "<(", ">(", "$'", '$"', "!!", "[[", "]]", "coproc", "\\(", "\\*", "\\.",
        "CI=1 ", "LC_ALL=C ",
    )
)  # fmt: skip
WILD_COMMANDS = st.lists(PIECES, min_size=1, max_size=12).map("".join)

# Commands that are mostly understood, with one odd piece somewhere.
ARGUMENTS = st.lists(
    st.sampled_from(
        ("a", "-x", "b.c", "/d", "'e f'", '"g;h"', "''", "1", "=", "~", "#", ":", "@", "^", '"\\d"', "\u00e9", "%")
    ),
    min_size=1,
    max_size=3,
).map("".join)
SIMPLE = st.tuples(st.sampled_from(PROGRAMS), st.lists(ARGUMENTS, max_size=3)).map(
    lambda drawn: " ".join((drawn[0], *drawn[1]))
)
SEPARATORS = st.sampled_from((";", "\n", " && ", ";\n", "&&\n\n", " ;\t", " 2>&1;", " >/dev/null\n"))


@st.composite
def tame_commands(draw: st.DrawFn) -> str:
    text = draw(SIMPLE)
    for _ in range(draw(st.integers(0, 2))):
        text += draw(SEPARATORS) + draw(SIMPLE)
    if draw(st.booleans()):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(PIECES) + text[place:]
    return text


def expected(parts: Sequence[Part]) -> list[list[str]]:
    return [[word.text for word in part.words] for part in parts]


def comparable(command: str, reading: ParsedCommand) -> bool:
    """Whether every part runs, in order, once: no `||`, no pipe or `&` that let two run at the same time."""
    if reading.problem is not None or any(part.files for part in reading.parts):
        return False
    words = [word for part in reading.parts for word in part.words]
    if any(word.wild >= 0 or "$?" in word.text for word in words) or any(part.inputs for part in reading.parts):
        return False
    plain = command.replace("&&", ";").replace("2>&1", "")
    return "|" not in plain and "&" not in plain and all(part.words[0].text in PROGRAMS for part in reading.parts)


@pytest.mark.skipif(not SHELLS, reason="there is no shell to compare with")
@pytest.mark.parametrize("shell", SHELLS, ids=os.path.basename)
@given(command=tame_commands() | WILD_COMMANDS)
def test_what_is_understood_is_what_a_shell_runs(bench: Bench, shell: str, command: str) -> None:
    """failures.md L4: a reader that sees other words than the shell is a hole."""
    reading = parse_command(command)
    if comparable(command, reading):
        assert bench.ran(shell, command) == expected(reading.parts), command


@given(command=tame_commands() | WILD_COMMANDS)
def test_the_reader_never_breaks_and_never_gives_half_a_command(command: str) -> None:
    reading = parse_command(command)
    assert (reading.problem is None) == bool(reading.parts)
    assert all(part.words and not part.words[0].quoted for part in reading.parts)


@each_row(
    ("command", "found"),
    [
        ("ls $(rm -rf x)", ["rm", "-rf", "x"]),
        ("ls `rm x`", ["rm", "x"]),
        ("X=1 Y=2 rm x", ["rm", "x"]),
        ("if true; then rm x; fi", ["rm", "x"]),
        ("r\\m x", ["rm", "x"]),
        ("r''m x", ["rm", "x"]),
        ("$'rm' x", ["rm", "x"]),
        ("sh -c 'cd y && rm x'", ["rm", "x"]),
        ("cat <(rm x)", ["rm", "x"]),
        ("rm$IFS-rf", ["rm"]),
        ("{ rm x; }", ["rm", "x"]),
        ("ls\r\nrm x", ["rm", "x"]),
        ("rm \\\n x", ["rm", "x"]),
    ],
)
def test_the_loose_reader_finds_what_could_be_run(command: str, found: list[str]) -> None:
    assert found in list_possible_commands(command)
