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
    "execve", "kill", "connect",
)  # fmt: skip
NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": dict(zip(NAMES, (0, 41, 53, 56, 435, 16, 272, 165, 101, 250, 321, 257, 59, 62, 42), strict=True)),
    "aarch64": dict(zip(NAMES, (63, 198, 199, 220, 435, 29, 97, 40, 117, 219, 280, 56, 221, 129, 203), strict=True)),
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
    for families in ((), (INET, INET6), None):
        program = build_filter(families, machine=machine)
        assert verdict(program, AUDIT[machine], NUMBERS[machine][name]) == ALLOWED


@pytest.mark.parametrize("name", ["mount", "keyctl", "bpf"])
def test_what_reaches_into_the_kernel_is_denied(machine: str, name: str) -> None:
    program = build_filter(None, machine=machine)
    assert verdict(program, AUDIT[machine], NUMBERS[machine][name]) == DENIED


@pytest.mark.parametrize("number", [425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 443, 467])
def test_newer_calls_around_the_walls_are_denied(machine: str, number: int) -> None:
    """io_uring opens sockets that no filter sees; the others mount, or take a descriptor from another process."""
    assert verdict(build_filter((), machine=machine), AUDIT[machine], number) == DENIED


def test_only_sockets_of_the_given_families_are_opened(machine: str) -> None:
    number, audit = NUMBERS[machine]["socket"], AUDIT[machine]
    none, internet, any_ = (build_filter(families, machine=machine) for families in ((), (INET, INET6, NETLINK), None))
    assert [verdict(none, audit, number, family, 1) for family in range(46)] == [DENIED] * 46
    opened = [family for family in range(46) if verdict(internet, audit, number, family, 1) == ALLOWED]
    assert opened == [INET, INET6, NETLINK]
    # The upper half of the register is not looked at by the kernel either.
    assert verdict(internet, audit, number, 1 << 32 | 1, 1) == DENIED
    assert [verdict(any_, audit, number, family, 1) for family in range(46)] == [ALLOWED] * 46


def test_pairs_are_of_streams(machine: str) -> None:
    """A pair for datagrams could be sent to anybody's address."""
    number, audit = NUMBERS[machine]["socketpair"], AUDIT[machine]
    program = build_filter((), machine=machine)
    stream, datagram, packets, cloexec = 1, 2, 5, 0o2000000
    assert [verdict(program, audit, number, 1, kind) for kind in (stream, packets, stream | cloexec)] == [ALLOWED] * 3
    assert [verdict(program, audit, number, 1, kind) for kind in (datagram, datagram | cloexec)] == [DENIED] * 2
    assert verdict(program, audit, number, INET, stream) == DENIED


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
