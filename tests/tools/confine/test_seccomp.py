"""The filter of system calls, run here by a small machine of our own, for every architecture it is written for."""

from __future__ import annotations

import struct

import pytest

from steersman.tools.confine.seccomp import INET, INET6, NETLINK, build_filter, is_supported

ALLOWED, DENIED, MISSING = 0x7FFF0000, 0x00050001, 0x00050026
X86, ARM = 0xC000003E, 0xC00000B7
I386 = 0x40000003
NAMES = (
    "read", "socket", "socketpair", "clone", "clone3", "ioctl", "unshare", "mount", "ptrace", "keyctl", "bpf", "openat",
    "execve", "kill", "connect", "prlimit64", "syslog",
)  # fmt: skip
NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": dict(
        zip(NAMES, (0, 41, 53, 56, 435, 16, 272, 165, 101, 250, 321, 257, 59, 62, 42, 302, 103), strict=True)
    ),
    "aarch64": dict(
        zip(NAMES, (63, 198, 199, 220, 435, 29, 97, 40, 117, 219, 280, 56, 221, 129, 203, 261, 116), strict=True)
    ),
}
AUDIT = {"x86_64": X86, "aarch64": ARM}


def verdict(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the kernel would answer, by the rules of classic BPF."""
    values = [value & 0xFFFFFFFFFFFFFFFF for value in (*arguments, 0, 0, 0, 0, 0, 0)][:6]
    data = struct.pack("=IIQ6Q", number, audit, 0, *values)
    steps = list(struct.iter_unpack("=HBBI", program))
    place, held = 0, 0
    while True:
        code, yes, no, value = steps[place]
        place += 1
        match code:
            case 0x20:
                [held] = struct.unpack_from("=I", data, value)
            case 0x54:
                held &= value
            case 0x15:
                place += yes if held == value else no
            case 0x35:
                place += yes if held >= value else no
            case 0x45:
                place += yes if held & value else no
            case 0x06:
                return value
            case _:
                raise AssertionError(f"No such instruction: {code:#x}")


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("name", ["read", "openat", "execve", "kill", "connect", "ptrace"])
def test_what_programs_do_every_day_is_let_through(machine: str, name: str) -> None:
    for families in ((), (INET, INET6)):
        program = build_filter(families, machine=machine)
        assert verdict(program, AUDIT[machine], NUMBERS[machine][name]) == ALLOWED


@pytest.mark.parametrize("name", ["mount", "keyctl", "bpf", "syslog"])
def test_what_reaches_into_the_kernel_is_denied(machine: str, name: str) -> None:
    program = build_filter((), machine=machine)
    assert verdict(program, AUDIT[machine], NUMBERS[machine][name]) == DENIED


@pytest.mark.parametrize("number", [425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 443, 467])
def test_newer_calls_around_the_walls_are_denied(machine: str, number: int) -> None:
    """io_uring opens sockets that no filter sees; the others mount, or take a descriptor from another process."""
    assert verdict(build_filter((), machine=machine), AUDIT[machine], number) == DENIED


def test_only_sockets_of_the_given_families_are_opened(machine: str) -> None:
    number, audit = NUMBERS[machine]["socket"], AUDIT[machine]
    none, internet = (build_filter(families, machine=machine) for families in ((), (INET, INET6, NETLINK)))
    assert [verdict(none, audit, number, family, 1) for family in range(46)] == [DENIED] * 46
    opened = [family for family in range(46) if verdict(internet, audit, number, family, 1) == ALLOWED]
    assert opened == [INET, INET6, NETLINK]
    # The upper half of the register is not looked at by the kernel either.
    assert verdict(internet, audit, number, 1 << 32 | 1, 1) == DENIED


def test_pairs_are_of_streams(machine: str) -> None:
    """A pair for datagrams could be sent to any address. The kernel makes SOCK_RAW one of these."""
    number, audit = NUMBERS[machine]["socketpair"], AUDIT[machine]
    program = build_filter((), machine=machine)
    stream, datagram, raw, packets, cloexec = 1, 2, 3, 5, 0o2000000
    assert [verdict(program, audit, number, 1, kind) for kind in (stream, packets, stream | cloexec)] == [ALLOWED] * 3
    others = [kind | flag for kind in range(16) if kind not in (stream, packets) for flag in (0, cloexec)]
    assert {datagram, raw | cloexec} < set(others)
    assert [verdict(program, audit, number, 1, kind) for kind in others] == [DENIED] * 28
    assert verdict(program, audit, number, INET, stream) == DENIED


def test_only_its_own_limits_can_be_set(machine: str) -> None:
    """docs/bash.md: other processes cannot be signalled. A limit of processor time ends one as well."""
    number, audit, program = NUMBERS[machine]["prlimit64"], AUDIT[machine], build_filter((), machine=machine)
    for new in (0x7FFF12345678, 0x7FFF00000000, 0x1000):
        assert verdict(program, audit, number, 0, 7, new) == ALLOWED
        assert [verdict(program, audit, number, pid, 7, new) for pid in (1, 4321, -1)] == [DENIED] * 3
    assert [verdict(program, audit, number, pid, 7, 0, 0x1000) for pid in (0, 1)] == [ALLOWED] * 2


@pytest.mark.parametrize(
    ("machine", "by_id", "by_kind"),
    [("x86_64", [142, 144, 203, 256, 279, 314], [141, 251]), ("aarch64", [118, 119, 122, 238, 239, 274], [140, 30])],
)
def test_only_its_own_processes_are_scheduled_otherwise(machine: str, by_id: list[int], by_kind: list[int]) -> None:
    """docs/bash.md: where other processes are seen, their priority and their processors cannot be changed."""
    audit, program = AUDIT[machine], build_filter((), alone=False, machine=machine)
    for number in by_id:
        assert [verdict(program, audit, number, pid) for pid in (0, 1, 4321, -1)] == [ALLOWED, *[DENIED] * 3]
        assert verdict(build_filter((), machine=machine), audit, number, 4321) == ALLOWED
    for number, (process, group, user) in zip(by_kind, ((0, 1, 2), (1, 2, 3)), strict=True):
        assert [verdict(program, audit, number, kind, 0) for kind in (process, group, user)] == [ALLOWED] * 2 + [DENIED]
        assert [verdict(program, audit, number, kind, 4321) for kind in (process, group, user)] == [DENIED] * 3


@pytest.mark.parametrize(
    ("machine", "numbers"),
    [
        ("x86_64", [29, 30, 31, *range(64, 67), *range(68, 72), 220, 240, 241]),
        ("aarch64", [180, 181, *range(186, 197)]),
    ],
)
def test_what_has_no_place_in_the_file_system_is_not_shared(machine: str, numbers: list[int]) -> None:
    """docs/bash.md: shared memory of other programs cannot be used; with a namespace of its own, a command may."""
    for shared, answer in ((True, ALLOWED), (False, DENIED)):
        program = build_filter((), shared=shared, machine=machine)
        assert {verdict(program, AUDIT[machine], number) for number in numbers} == {answer}


@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
def test_no_namespace_is_made(machine: str, flag: int) -> None:
    program, audit = build_filter((), machine=machine), AUDIT[machine]
    for name in ("clone", "unshare"):
        assert verdict(program, audit, NUMBERS[machine][name], flag | 0x11) == DENIED
        assert verdict(program, audit, NUMBERS[machine][name], 0x11) == ALLOWED
    # Programs use `clone` instead, whose flags can be seen.
    assert verdict(program, audit, NUMBERS[machine]["clone3"]) == MISSING


def test_nothing_is_typed_into_a_terminal(machine: str) -> None:
    program, audit, number = build_filter((), machine=machine), AUDIT[machine], NUMBERS[machine]["ioctl"]
    assert [verdict(program, audit, number, 0, request) for request in (0x5412, 0x541C, 0x5413)] == [
        DENIED,
        DENIED,
        ALLOWED,
    ]


def test_calls_of_another_architecture_are_not_there() -> None:
    """Their numbers mean something else: i386 and x32 on x86_64."""
    program = build_filter((), machine="x86_64")
    assert verdict(program, I386, 0) == MISSING
    assert verdict(program, X86, 0x40000000 | 41, INET) == MISSING


def test_an_unknown_architecture_has_no_filter() -> None:
    assert [is_supported(name) for name in ("x86_64", "aarch64", "riscv64", "vax")] == [True, True, False, False]


def test_the_filter_is_short_enough_for_the_kernel(machine: str) -> None:
    assert len(build_filter((INET, INET6, NETLINK), machine=machine)) // 8 < 4096


CREATE, TEMPORARY, NOFOLLOW = 0o100, 0o20200000, 0o400000
# The number of each call that sets a mode, and its arguments before the flags or the mode.
OPENING = {"x86_64": {2: 1, 257: 2}, "aarch64": {56: 2}}
MAKING = {"x86_64": {85: 1, 133: 1, 259: 2}, "aarch64": {33: 2}}
CHANGING = {"x86_64": {90: 1, 91: 1, 268: 2, 452: 2}, "aarch64": {52: 1, 53: 2, 452: 2}}


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755, 0o4000, 1 << 40 | 0o4755])
def test_no_file_is_made_that_gives_away_its_owners_rights(machine: str, mode: int) -> None:
    """By no call that sets a mode; the mode of `openat2` is out of sight, so that call is not there."""
    program, audit = build_filter((), machine=machine), AUDIT[machine]
    for number, before in OPENING[machine].items():
        for flags in (CREATE, CREATE | 2, TEMPORARY):
            assert verdict(program, audit, number, *[0] * before, flags, mode) == DENIED
            assert verdict(program, audit, number, *[0] * before, flags, 0o755) == ALLOWED
        # Without a file to make, the mode is what happened to be in the register.
        assert verdict(program, audit, number, *[0] * before, NOFOLLOW, mode) == ALLOWED
    for number, before in (MAKING[machine] | CHANGING[machine]).items():
        assert verdict(program, audit, number, *[0] * before, mode) == DENIED
        assert verdict(program, audit, number, *[0] * before, 0o100755) == ALLOWED
    assert verdict(program, audit, 437) == MISSING


def test_folders_that_a_group_shares_can_be_copied(machine: str) -> None:
    program, audit = build_filter((), setgid=True, machine=machine), AUDIT[machine]
    for number, before in CHANGING[machine].items():
        assert verdict(program, audit, number, *[0] * before, 0o2775) == ALLOWED
        assert verdict(program, audit, number, *[0] * before, 0o6775) == DENIED
    for number, before in MAKING[machine].items():
        assert verdict(program, audit, number, *[0] * before, 0o2775) == DENIED
