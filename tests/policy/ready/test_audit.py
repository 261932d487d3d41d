"""The audit log against tampering, crashes, several writers and a file that cannot be written."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from steersman import Agent, tool
from steersman.policy import AuditAnchor, AuditError, AuditLog, verify_audit_log
from steersman.testing import ScriptedModel, answer, call

KEY = b"a key of the auditor"


@tool
def pay(amount: int, token: str = "") -> str:
    """Pay."""
    return f"paid {amount} with {token}"


def write_log(path: Path, *, key: bytes | None = None, lines: int = 6) -> AuditAnchor:
    log = AuditLog(path, key=key, fsync="never", clock=lambda: 1_700_000_000)
    for number in range(lines):
        log.append("note", {"number": number, "text": f"line {number}"})
    log.close()
    return log.anchor


def run_with(log: AuditLog, amount: int, token: str) -> None:
    script = ScriptedModel(answer(call("pay", amount=amount, token=token)), "Done.")
    Agent(script.model, tools=[pay], hooks=[log]).run_sync("Pay with sk-abcdefghijk.")


def test_a_run_is_recorded_without_secrets_in_a_file_of_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, secrets=["hunter2-secret"])
    run_with(log, amount=5, token="hunter2-secret")
    text = path.read_text(encoding="utf-8")
    kinds = [json.loads(line)["kind"] for line in text.splitlines()]

    assert kinds == ["run_start", "tool_call", "tool_result", "answer", "answer", "run_end"]
    assert json.loads(text.splitlines()[1])["data"]["arguments"] == {"amount": 5, "token": "[redacted]"}
    assert "hunter2" not in text
    assert "abcdefghijk" not in text
    assert path.stat().st_mode & 0o777 == 0o600
    report = verify_audit_log(path, anchor=log.anchor)
    assert (report.ok, report.lines, report.problem) == (True, 6, "")


def tamper(lines: list[bytes]) -> dict[str, list[bytes]]:
    """Every way to change the log that is tried, by name; at every line, and at every byte class of each line."""
    found: dict[str, list[bytes]] = {}
    for place, line in enumerate(lines):
        rest = [*lines[:place], *lines[place + 1 :]]
        if place < len(lines) - 1:
            found[f"delete {place}"] = rest
            found[f"swap {place}"] = [*lines[:place], lines[place + 1], line, *lines[place + 2 :]]
        found[f"repeat {place}"] = [*lines[:place], line, *lines[place:]]
        found[f"blank {place}"] = [*lines[:place], b"\n", *lines[place:]]
        seen: set[tuple[int, bytes]] = set()
        for offset, byte in enumerate(line[:-1]):
            field = line[:offset].count(b'":')
            kind = (field, b"0" if chr(byte).isdigit() else b"a" if chr(byte).isalpha() else bytes([byte]))
            if kind not in seen:
                seen.add(kind)
                for new in (byte ^ 1, 0x20, 0x0A, 0xFF):
                    if new != byte:
                        changed = line[:offset] + bytes([new]) + line[offset + 1 :]
                        found[f"byte {place}:{offset}={new}"] = [*lines[:place], changed, *lines[place + 1 :]]
                found[f"insert {place}:{offset}"] = [
                    *lines[:place], line[:offset] + b" " + line[offset:], *lines[place + 1 :],
                ]  # fmt: skip
    return found


@pytest.mark.parametrize("key", [None, KEY])
def test_tampering_is_found_at_every_line_and_byte_class(
    tmp_path: Path, key: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.jsonl"
    anchor = write_log(path, key=key, lines=4)
    lines = path.read_bytes().splitlines(keepends=True)
    changes = tamper(lines)
    missed: list[str] = []
    for name, changed in changes.items():
        path.write_bytes(b"".join(changed))
        if verify_audit_log(path, key=key, anchor=anchor).ok:
            missed.append(name)
    with capsys.disabled():
        print(f"\n  {len(changes) - len(missed)} of {len(changes)} changes found (key: {key is not None})", end="")
    assert len(changes) > 500
    assert missed == []


def test_what_is_missing_at_the_end_shows_only_with_an_anchor(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    anchor = write_log(path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for kept in range(len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        assert verify_audit_log(path).ok
        report = verify_audit_log(path, anchor=anchor)
        assert (report.ok, report.line) == (False, kept + 1)
        assert "its end is missing" in report.problem


@pytest.mark.parametrize("kept", ["nothing", "some lines", "other lines", "a shorter last line", "all but a word"])
def test_a_writer_does_not_continue_a_log_that_was_changed_behind_its_back(tmp_path: Path, kept: str) -> None:
    path, other = tmp_path / "audit.jsonl", tmp_path / "other.jsonl"
    log, beside = AuditLog(path, clock=lambda: 1.0), AuditLog(path, clock=lambda: 2.0)
    for number in range(5):
        log.append("note", {"number": number})
    beside.append("note", "of another writer")
    log.append("note", "after it")
    whole = path.read_bytes()
    write_log(other, lines=9)
    changed = {
        "nothing": b"",
        "some lines": b"".join(whole.splitlines(keepends=True)[:2]),
        "other lines": other.read_bytes(),
        "a shorter last line": whole[:-9],
        "all but a word": whole.replace(b"after it", b"before it") + whole.splitlines(keepends=True)[0],
    }[kept]
    path.write_bytes(changed)
    for _ in range(2):
        with pytest.raises(AuditError, match="line 7, which was there before, is no longer in its place"):
            log.append("note", "hides it")
    assert path.read_bytes() == changed
    assert not verify_audit_log(path, anchor=log.anchor).ok
    path.write_bytes(whole)
    log.append("note", "all is well")
    assert verify_audit_log(path, anchor=log.anchor).lines == 8


def test_the_kind_of_a_line_is_redacted_and_cut(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", secrets=["hunter2222"])
    log.append("hunter2222" + "k" * 100_000, "x")
    log.append("note", "after it")
    report = verify_audit_log(tmp_path / "audit.jsonl", anchor=log.anchor)
    assert (report.ok, report.lines) == (True, 2)
    assert len(json.loads((tmp_path / "audit.jsonl").read_bytes().splitlines()[0])["kind"]) == 200
    assert b"hunter2222" not in (tmp_path / "audit.jsonl").read_bytes()


def test_a_log_computed_anew_shows_with_a_key_or_an_anchor(tmp_path: Path) -> None:
    path, forged = tmp_path / "audit.jsonl", tmp_path / "forged.jsonl"
    anchor = write_log(path, key=KEY)
    log = AuditLog(forged, clock=lambda: 1_700_000_000)
    for number in range(6):
        log.append("note", {"number": number, "text": "all is well"})
    assert verify_audit_log(forged).ok  # without key and anchor it is a log like any other
    assert not verify_audit_log(forged, key=KEY).ok
    assert not verify_audit_log(forged, anchor=anchor).ok


def test_a_line_torn_at_any_byte_is_told_from_tampering_and_survived(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, lines=3)
    whole = path.read_bytes()
    last = len(whole) - len(whole.splitlines(keepends=True)[-1])
    for end in range(last + 1, len(whole)):
        path.write_bytes(whole[:end])
        report = verify_audit_log(path)
        assert (report.ok, report.lines, report.torn_bytes) == (True, 2, end - last)
        log = AuditLog(path, fsync="never")
        log.append("note", "after the crash")
        log.close()
        recovered = json.loads(path.read_bytes().splitlines()[2])
        assert (recovered["kind"], recovered["data"]["torn_bytes"]) == ("recovered", end - last)
        assert verify_audit_log(path, anchor=log.anchor).lines == 4


def test_a_damaged_last_line_or_another_key_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, key=KEY)
    with pytest.raises(AuditError, match="another one"):
        AuditLog(path)
    path.write_bytes(b"not a log\n")
    with pytest.raises(AuditError, match="damaged"):
        AuditLog(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic"):
        AuditLog(link)


def append_many(path: str, start: object) -> None:
    log = AuditLog(path, fsync="never")
    start.wait()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # a barrier of the context
    for number in range(400):
        log.append("note", {"process": os.getpid(), "number": number})
    log.close()


def test_several_processes_write_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    processes = [context.Process(target=append_many, args=(str(path), start)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    report = verify_audit_log(path)
    assert (report.ok, report.lines) == (True, 800)


def test_a_call_that_cannot_be_recorded_does_not_run(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    paid: list[int] = []

    @tool
    def spend(amount: int) -> str:
        """Spend."""
        paid.append(amount)
        return "spent"

    def close(messages: object, turn_index: int) -> None:
        log.close()

    script = ScriptedModel(answer(call("spend", amount=5)), "Done.")
    result = Agent(script.model, tools=[spend], hooks=[log], before_turn=close).run_sync("Go.")
    assert (paid, result.tool_results[0].details["status"]) == ([], "denied")
    assert "is closed" in result.tool_results[0].text


def test_long_texts_are_cut_and_large_data_is_replaced_by_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, max_text=10)
    log.append("note", {"text": "x" * 1_000, "many": ["y" * 10] * 10_000})
    log.append("note", {"text": "x" * 1_000})
    large, cut = [json.loads(line)["data"] for line in path.read_text().splitlines()]
    assert sorted(large) == ["omitted_bytes", "sha256"]
    assert cut == {"text": "xxxxxxx..."}
    assert verify_audit_log(path).ok


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_line_of_another_log_with_the_same_key_and_number_is_found(tmp_path: Path, place: int) -> None:
    path, other = tmp_path / "audit.jsonl", tmp_path / "other.jsonl"
    write_log(path, key=KEY, lines=5)
    log = AuditLog(other, key=KEY, fsync="never")
    for number in range(5):
        log.append("note", {"number": number, "text": "of another log"})
    log.close()
    lines, others = (file.read_bytes().splitlines(keepends=True) for file in (path, other))
    path.write_bytes(b"".join([*lines[:place], others[place], *lines[place + 1 :]]))
    report = verify_audit_log(path, key=KEY)
    assert (report.ok, report.line) == (False, max(2, place + 1))


def test_a_line_that_is_nested_too_deeply_is_found(tmp_path: Path) -> None:
    """Nobody reads it, so it is told like other damage, and does not break the check."""
    path = tmp_path / "audit.jsonl"
    AuditLog(path).append("fine", 1)
    with path.open("a") as file:
        file.write('{"seq":2,"time":1.0,"kind":"x","data":' + "[" * 30_000 + "]" * 30_000 + ',"prev":"","hash":""}\n')
    assert (verify_audit_log(path).ok, verify_audit_log(path).line) == (False, 2)
