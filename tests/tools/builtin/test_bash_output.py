"""However much a command writes, and whatever: memory is bounded while it runs, and the result is short text."""

from __future__ import annotations

import gc
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.builtin.shells import run, text
from tests.tools.confine.rooms import walls_of

from steersman import Tool
from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.builtin.output_capture import OutputCapture
from steersman.tools.confine.scratch import Scratch
from steersman.tools.output import truncate_output
from steersman.types.tools import ToolOutput

real_time = pytest.mark.real_time
MIB = 1 << 20


@pytest.fixture
def bash(tmp_path: Path) -> Tool:
    return bash_tool(tmp_path, sandbox="off")


def saved(output: ToolOutput) -> Path:
    return Path(output.details["output_file"])


def captured(
    folder: Path, *pieces: bytes, max_bytes: int = 40, max_lines: int = 8, max_file: int = 1000
) -> OutputCapture:
    found = OutputCapture(lambda: str(folder), max_bytes=max_bytes, max_lines=max_lines, max_file_bytes=max_file)
    for piece in pieces:
        # As a reader has it: a buffer that is larger than what came.
        found.add(bytearray(piece + b"\n old"), len(piece))
    return found


def test_what_fits_is_given_as_it_is_and_makes_no_file(tmp_path: Path) -> None:
    found = captured(tmp_path, b"one\n", b"", b"two\n", "dr\u00e9i".encode())
    assert found.to_text() == ("one\ntwo\ndr\u00e9i", False)
    assert (found.path, list(tmp_path.iterdir())) == (None, [])


def test_beginning_and_end_are_kept_with_a_note_between(tmp_path: Path) -> None:
    """failures.md K1: the end gets more room than the beginning, and lines stay whole where they can."""
    pieces = [f"line {number}\n".encode() for number in range(100)]
    found = captured(tmp_path, *pieces)
    shown, shortened = found.to_text()
    assert shortened
    assert shown == (
        "line 0\n"
        f"[... shortened; the output has 790 bytes in 100 lines; all of it: {found.path} ...]\n"
        "line 97\nline 98\nline 99\n"
    )
    assert found.path is not None
    assert Path(found.path).read_bytes() == b"".join(pieces)


def test_many_short_lines_are_too_much_as_well(tmp_path: Path) -> None:
    shown, shortened = captured(tmp_path, b"\n".join([b"%d" % n for n in range(12)])).to_text()
    lines = shown.splitlines()
    assert (shortened, lines[:2], lines[3:]) == (True, ["0", "1"], ["6", "7", "8", "9", "10", "11"])


def test_one_long_line_is_cut_in_the_middle(tmp_path: Path) -> None:
    """failures.md K1: a cap on lines alone lets one long line through."""
    shown, _ = captured(tmp_path, b"a" * 500, b"b" * 500).to_text()
    head, _, tail = shown.split("\n")
    assert (head, tail) == ("a" * 10, "b" * 30)


def test_a_character_is_never_cut(tmp_path: Path) -> None:
    word = "\u20ac" * 100
    data = word.encode()
    shown, _ = captured(tmp_path, *[data[start : start + 7] for start in range(0, len(data), 7)]).to_text()
    head, _, tail = shown.split("\n")
    assert (head, tail) == ("\u20ac" * 3, "\u20ac" * 10)


def test_the_file_has_a_limit_too(tmp_path: Path) -> None:
    found = captured(tmp_path, *[b"x" * 99 + b"\n"] * 50)
    shown, _ = found.to_text()
    assert found.path is not None
    assert Path(found.path).read_bytes() == (b"x" * 99 + b"\n") * 10
    assert f"the output has 5,000 bytes in 50 lines; the first 1,000 bytes of it: {found.path} ...]" in shown


def test_a_file_that_cannot_be_made_is_told_and_loses_no_more(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = captured(tmp_path / "file", b"x" * 100)
    shown, shortened = found.to_text()
    assert (shortened, found.path) == (True, None)
    assert "it could not be saved: [Errno 20] Not a directory" in shown
    assert (shown[:10], shown[-30:]) == ("x" * 10, "x" * 30)


def test_new_text_is_shown_once_and_only_in_whole_characters(tmp_path: Path) -> None:
    found = captured(tmp_path, b"a\xe2\x82")
    assert found.take_recent() == "a"
    found.add(bytearray(b"\xacb\xff\x00c"), 5)
    assert (found.has_recent, found.take_recent(), found.has_recent) == (True, "\u20acb\ufffdc", False)
    found.add(bytearray(b"x" * 9_000 + b"end"), 9_003)
    assert found.take_recent() == "x" * 3_997 + "end"


@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([b"\n", b"line\n", b"\x00", "\U0001f600".encode()]), max_size=40)
)
def test_whatever_comes_the_result_is_short_text_with_the_right_ends(pieces: list[bytes]) -> None:
    """failures.md K1, K2."""
    found = OutputCapture(lambda: "/dev/null/nowhere", max_bytes=40, max_lines=8, max_file_bytes=10)
    for piece in pieces:
        found.add(bytearray(piece), len(piece))
    shown, shortened = found.to_text()
    whole = b"".join(pieces).decode("utf-8", "replace").replace("\0", "")
    assert "\0" not in shown
    if shortened:
        head, _, rest = shown.partition("[... shortened; ")
        tail = rest.partition(" ...]\n")[2]
        assert whole.startswith(head.removesuffix("\n"))
        assert whole.endswith(tail)
        assert len(head.encode()) <= 11
        assert len(tail.encode()) <= 30
        assert head.count("\n") + tail.count("\n") <= 8
    else:
        assert shown == whole
        assert len(shown.encode()) <= 40


def test_a_gigabyte_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """failures.md K1: measured in a process of its own, while it runs and not only at its end."""
    program = textwrap.dedent(f"""
        import asyncio, time
        from steersman import CancelToken, ToolContext
        from steersman.tools.builtin.bash_tool import bash_tool

        def kilobytes(name):
            return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])

        async def main():
            bash = bash_tool({str(tmp_path)!r}, sandbox="off")
            ctx = ToolContext("1", "bash", CancelToken())
            await bash.call({{"command": "echo warm"}}, ctx)
            before, start = kilobytes("VmRSS"), time.monotonic()
            output = await bash.call({{"command": "yes | head -c 1G"}}, ctx)
            took, peak = time.monotonic() - start, kilobytes("VmHWM")
            text = output.content
            print((peak - before) // 1024, round(took, 1), len(text) < 50_000, "1,073,741,824 bytes" in text)

        asyncio.run(main())
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    growth, seconds, short, counted = done.stdout.split()
    assert int(growth) < 64
    assert float(seconds) < 20  # a second or two; more only where others have the processor
    assert (short, counted) == ("True", "True")


@real_time
async def test_a_line_of_fifty_megabytes_is_shortened(bash: Tool) -> None:
    """failures.md K1."""
    output = await run(bash, "head -c 50M /dev/zero | tr '\\0' x; echo; echo end")
    assert len(text(output).encode()) < 31_000
    assert text(output).startswith("x" * 7_500)
    assert text(output).endswith("x\nend\n")
    assert output.details["truncated"]
    assert saved(output).stat().st_size == 32_000_000


@real_time
async def test_a_program_file_and_other_bytes_are_replaced(bash: Tool) -> None:
    """failures.md K1, K2: binary output is text afterwards, with no NUL, and within its limits."""
    output = await run(bash, "printf 'caf\\351 \\0\\377 ok'")
    assert output.content == "caf\ufffd \ufffd ok"
    output = await run(bash, "head -c 200000 /bin/bash")
    assert "\0" not in text(output)
    assert len(text(output).encode()) <= 30_500
    assert output.details["truncated"]


@real_time
async def test_a_flood_of_errors_is_output_as_well(bash: Tool) -> None:
    output = await run(bash, "seq 1 200000 >&2; echo done")
    assert text(output).endswith("\n199999\n200000\ndone\n")
    assert saved(output).read_text().count("\n") == 200_001


@real_time
async def test_the_file_is_private_and_goes_with_the_tool(tmp_path: Path) -> None:
    """failures.md L24: no predictable name, no other user can read it, nothing stays behind."""
    bash = bash_tool(tmp_path, sandbox="off")
    outputs = [await run(bash, "seq 1 100000") for _ in range(2)]
    files = [Path(output.details["output_file"]) for output in outputs]
    assert files[0] != files[1]
    assert files[0].read_text() == "".join(f"{n}\n" for n in range(1, 100_001))
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (files[0], files[0].parent, files[0].parent.parent)]
    assert modes == [0o600, 0o700, 0o700]
    del bash
    gc.collect()
    assert not files[0].parent.parent.exists()


@real_time
async def test_folders_of_dead_programs_are_removed_before_the_command_begins(tmp_path: Path) -> None:
    """failures.md F8: it may take long, and meanwhile no output would be read and no timeout would be enforced."""
    stale = Path(tempfile.mkdtemp(prefix="steersman-"))
    scratch = Scratch()
    shutil.copy(Path(scratch.make_folder("x")).parent / "lock", stale)
    output = await run(bash_tool(tmp_path, sandbox="off"), f"[ -e {stale} ] && echo still there; seq 1 100000")
    assert text(output).startswith("1\n2\n")


@real_time
async def test_only_the_latest_files_are_kept(bash: Tool) -> None:
    outputs = [await run(bash, "seq 1 2000") for _ in range(18)]
    assert [saved(output).exists() for output in outputs] == [False] * 2 + [True] * 16


@real_time
async def test_the_file_can_go_to_a_folder_of_ones_own(tmp_path: Path) -> None:
    folder = tmp_path / "kept" / "outputs"
    output = await run(bash_tool(tmp_path, sandbox="off", output_folder=folder), "seq 1 100000")
    assert Path(output.details["output_file"]).parent == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@real_time
async def test_a_run_does_not_shorten_it_a_second_time(bash: Tool) -> None:
    output = await run(bash, "seq 1 1000000")
    assert truncate_output(output, max_bytes=50_000, max_lines=2_000) is output
    assert isinstance(output, ToolOutput)


@real_time
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_what_is_told_of_protected_names_is_bounded(tmp_path: Path, kind: str) -> None:
    bash = bash_tool(tmp_path, sandbox=walls_of(kind).kind)  # pyright: ignore[reportArgumentType]
    output = await run(bash, "for i in {100..199}; do mkdir -p $i/.steersman; touch $i/.steersman/x; done")
    *lines, last = text(output).splitlines()
    assert [f"/{number}/.steersman'" in line for number, line in enumerate(lines, 100)] == [True] * 20
    assert last == "[and 80 more notes like these]"
    deep = "/".join(["d" * 200] * 10)
    assert len(text(await run(bash, f"mkdir -p {deep}/.steersman; touch {deep}/.steersman/x"))) == 505


@real_time
async def test_the_name_of_a_process_is_told_in_one_line(bash: Tool) -> None:
    output = await run(
        bash, "cp $(command -v sleep) $'a\\n[b]'; ./$'a\\n[b]' 60 & until grep -q '\\[b' /proc/$!/comm; do :; done"
    )
    assert r"ended: 'a\n[b]'" in text(output)
