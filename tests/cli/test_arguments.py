"""What is typed becomes options, a mistake becomes exit code 2, and piped input becomes part of the prompt."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import Place, run_command, spawn
from tests.rows import each_row

from steersman.cli.arguments import Options, parse
from steersman.cli.terminal.stdin import MAX_INPUT

_SHOW = (
    "import sys; from steersman.cli.arguments import parse; o = parse(sys.argv[1:]); "
    "sys.stdout.reconfigure(encoding='utf-8'); print([o.command, o.prompt, o.print_only])"
)


def _parsed(*words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """The exit code, the options that count here, and what was said, with a pipe for standard input."""
    done = subprocess.run(
        [sys.executable, "-c", _SHOW, *words], input=stdin, capture_output=True, timeout=30, check=False
    )
    return done.returncode, done.stdout.decode().strip(), done.stderr.decode()


def test_every_flag_has_its_option() -> None:
    words = shlex.split(
        "--input-format stream-json -p --model openai:gpt-5 --thinking low --system-prompt Brief. --tools read,search "
        "--allowed-tools 'edit,bash(git:log,x)' --allowed-tools write --max-turns 3 --max-budget-usd 0.5 "
        "--max-duration 9 --output-format json --json-schema s.json -r abc --fork-session --session-dir d "
        "--mcp-config m.json --verbose"
    )
    assert parse([*words, "Do", "it."]) == Options(
        command="run",
        prompt="Do it.",
        print_only=True,
        model="openai:gpt-5",
        thinking="low",
        system_prompt="Brief.",
        tools=("read", "search"),
        allowed_tools=("edit", "bash(git:log,x)", "write"),
        max_turns=3,
        max_budget_usd=0.5,
        max_duration=9,
        output_format="json",
        input_format="stream-json",
        json_schema=Path("s.json"),
        resume="abc",
        fork_session=True,
        session_dir=Path("d"),
        mcp_config=Path("m.json"),
        verbose=True,
    )


def test_no_tools_is_not_the_usual_tools() -> None:
    assert parse(["--input-format", "stream-json", "--no-tools"]).tools == ()
    assert parse(["--input-format", "stream-json"]).tools is None


def test_words_and_flags_may_stand_in_any_order() -> None:
    found = parse(["--input-format", "stream-json", "fix", "--max-turns", "2", "this", "--", "--now"])
    assert (found.prompt, found.max_turns) == ("fix this --now", 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-c", "-r", "x", "hi"], "give only one of them"),
        (["--fork-session", "hi"], "--fork-session needs a session"),
        (["--max-turns", "0", "hi"], "a whole number of at least 1, got '0'"),
        (["--max-turns", "1.5", "hi"], "a whole number of at least 1, got '1.5'"),
        (["--max-budget-usd", "nan", "hi"], "a number above 0, got 'nan'"),
        (["--max-duration", "-1", "hi"], "a number above 0"),
        (["--thinking", "much", "hi"], "invalid choice: 'much'"),
        (["--allowed-tools", "bash(ls", "hi"], "unbalanced parentheses"),
        (["--tools", " , ", "hi"], "or use --no-tools"),
        (["--modle", "x", "hi"], "unrecognized arguments: --modle. Did you mean '--model'?\n"),
        (["--mod", "x", "hi"], "unrecognized arguments: --mod"),
        (["--a\x1b[2J\u202e", "hi"], "unrecognized arguments: --a\u241b[2J\\u{202e}\n"),
        (["--api-key=sk-secret-123456", "hi"], "unrecognized arguments: --api-key=[redacted]\n"),
        (["doctor", "\x1b]0;x\x07"], "unrecognized arguments: \u241b]0;x\u2407\n"),
        (["-p"], "no prompt: give one"),
        ([], "no prompt: give one"),
        (["--input-format", "stream-json", "-"], "reads stdin already"),
        (["--input-format", "stream-json", "--approval-timeout", "5", "x"], "add --input-format stream-json --output"),
        (["--approval-timeout", "5", "x"], "--approval-timeout is for answers over stdin"),
        (["--approval-timeout", "0", "x"], "expected a number above 0"),
    ],
)
def test_a_mistake_is_told_and_exits_with_2(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(words)
    assert left.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.real_time
def test_piped_input_is_the_prompt_or_comes_after_it() -> None:
    assert _parsed(stdin=b"  What is this?\n") == (0, "['run', 'What is this?', False]", "")
    assert _parsed("-p", "Review", "this.", stdin=b"a diff\n") == (0, r"['run', 'Review this.\n\na diff', True]", "")
    assert _parsed("Review", "-", stdin=b"a diff") == (0, r"['run', 'Review\n\na diff', False]", "")


@pytest.mark.real_time
def test_piped_input_that_is_no_text_or_too_much_is_mended_and_told() -> None:
    code, shown, said = _parsed("Look:", stdin=b"caf\xe9 \0")
    assert (code, shown) == (0, r"['run', 'Look:\n\ncaf� �', False]")
    assert said == "steersman: stdin is not valid UTF-8; invalid bytes were replaced.\n"
    code, shown, said = _parsed("Look:", stdin=b"x" * (MAX_INPUT + 5))
    assert code == 0
    assert len(shown) < MAX_INPUT + 200
    assert "[... truncated after 4,000,000 bytes ...]" in shown
    assert said == "steersman: stdin has more than 4,000,000 bytes; the rest is ignored.\n"


@pytest.mark.real_time
def test_a_closed_standard_input_is_an_empty_one() -> None:
    script = f'exec {sys.executable} -c "$0" hi <&-'
    done = subprocess.run(["bash", "-c", script, _SHOW], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"['run', 'hi', False]\n", b"")


@pytest.mark.real_time
def test_input_that_never_comes_does_not_hold_up_a_prompt(place: Place) -> None:
    with spawn(
        ["--model", "nobody:x", "hi"], place=place, stdin=subprocess.PIPE
    ) as started:  # its stdin is neither written nor closed
        done = started.wait()
    assert done.code == 2
    assert "No input on stdin for 3 s" in done.errors
    assert "No provider is named 'nobody'" in done.errors


@pytest.mark.real_time
def test_a_word_that_is_a_command_can_still_be_a_prompt() -> None:
    assert _parsed("-p", "models")[1] == "['run', 'models', True]"
    assert _parsed("--", "models")[1] == "['run', 'models', False]"
    assert _parsed("-p", "--", "--help", "me")[1] == "['run', '--help me', True]"
    assert _parsed("what", "-p", "is", "--", "-x")[1] == "['run', 'what is -x', True]"
    assert _parsed("models are what?")[1] == "['run', 'models are what?', False]"


def test_flags_that_all_commands_take_may_stand_before_the_command() -> None:
    found = parse(["--session-dir", "sessions", "--verbose", "sessions", "list"])
    assert (found.command, found.session_dir, found.verbose) == ("sessions", Path("sessions"), True)
    found = parse(["sessions", "--session-dir=d", "list"])
    assert (found.command, found.session_dir) == ("sessions", Path("d"))


@pytest.mark.real_time
def test_help_and_version_load_nothing_heavy(place: Place) -> None:
    check = (
        "import sys; from steersman.cli.main import main; code = main(sys.argv[1:]); "
        "heavy = {'aiohttp', 'asyncio', 'msgspec', 'rich', 'prompt_toolkit', 'sqlite3', 'steersman.agent.agent'}; "
        "print(code, sorted(heavy & set(sys.modules)))"
    )
    for flag in ("--help", "--version"):
        done = subprocess.run([sys.executable, "-c", check, flag], capture_output=True, timeout=30, check=True)
        assert done.stdout.splitlines()[-1] == b"0 []"
        assert (len(done.stdout.splitlines()) > 1, done.stderr) == (True, b"")
    done = run_command(["--help"], place=place)
    assert done.code == 0
    codes = (
        "exit codes: 0 done, 1 error, 2 usage, 3 limit reached, 4 refused, or ended on a denied call, 130 interrupted"
    )
    assert codes in " ".join(done.text.split())


@pytest.mark.parametrize("word", ["tools", "config", "login", "chat", "run", "resume"])
def test_a_command_that_other_programs_have_is_no_prompt(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        parse([word])
    said = " ".join(capsys.readouterr().err.split())
    assert (done.value.code, f"error: '{word}' is not a command: " in said) == (2, True)
    assert said.endswith(f"If it is a prompt: steersman -- {word}")


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("docter", "steersman doctor"),
        ("session list", "steersman sessions list"),
        ("sesions show ab12", "steersman sessions show ab12"),
        ("--model a:b model", "steersman models"),
        ("--no-tools sessions list", "steersman sessions list"),
        ("help", "steersman --help"),
        ("sessions lst", "Did you mean 'list'"),
    ],
)
def test_a_command_with_a_slip_in_it_is_no_prompt(line: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(line.split())
    assert ended.value.code == 2
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    ["session of parliament", "model me a house", "-p docter", "-- docter", "explain", "hello", "tools that are here",
     "-p tools", "-- tools", "-c continue", "Tools?"],
)  # fmt: skip
def test_words_that_only_begin_like_a_command_are_a_prompt(line: str) -> None:
    assert parse(line.split()).prompt == re.sub("^-[-pc] ", "", line)


def test_every_flag_is_documented(place: Place) -> None:
    page = (Path(__file__).parents[2] / "docs/command.md").read_text(encoding="utf-8")
    flags = set(re.findall(r"--[a-z][a-z-]+", run_command(["--help"], place=place).text))
    assert sorted(flag for flag in flags if f"`{flag}" not in page) == []


@each_row("command", ["mcp", "acp", "serve"])
@each_row("seconds", ["-1", "nan", "soon"])
def test_a_timeout_that_is_no_time_is_refused_at_the_start(command: str, seconds: str) -> None:
    """And not in each session later on."""
    with pytest.raises(SystemExit):
        parse([command, "--model", "scripted:echo", "--approval-timeout", seconds])
