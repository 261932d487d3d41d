"""A file of sessions that was cut anywhere or damaged anyhow: it opens, says what is wrong, and never tells a lie."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.session.snapshots import NAME, WAL, Files, Snapshot, appended, contents, found, laid_out, taken

from steersman.session.records import Record
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import NewerFormat, SessionBusy, SessionDamaged, SessionNotFound
from steersman.testing.store_checks import make_record

FRAME = 4096 + 24
# The bytes of a header that SQLite needs: what it is, how it is laid out, how long it is, and the encoding of texts.
NEEDED = (*range(18), *range(20, 24), *range(28, 32), 47, 59)


@pytest.fixture
def killed(folder: Path) -> Snapshot:
    """What a killed program leaves: nearly everything is in the write-ahead log."""
    (folder / "killed").mkdir()
    return taken(folder / "killed", killed=True, groups=6)


def test_every_prefix_of_the_write_ahead_log_opens(folder: Path, killed: Snapshot) -> None:
    """failures.md H1, H2, I8: what was acknowledged before the cut is there, and what was torn is told and kept."""
    size = len(killed.files[WAL])
    near = {edge + offset for edge in range(32, size + 1, FRAME) for offset in (-1, 0, 1, 23, 24, 25)}
    _check_prefixes(folder, killed, sorted({*range(0, size, 997), *range(34), *near} & set(range(size + 1))))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_prefix_of_the_write_ahead_log_opens_byte_by_byte(folder: Path) -> None:
    """failures.md H1, I8: at each byte."""
    (folder / "short").mkdir()
    killed = taken(folder / "short", killed=True, groups=3)
    _check_prefixes(folder, killed, range(len(killed.files[WAL]) + 1), write_on=False)


def _check_prefixes(folder: Path, killed: Snapshot, cuts: Iterable[int], *, write_on: bool = True) -> None:
    log = killed.files[WAL]
    edges = [0, *(size for size, _, _ in killed.acknowledged)]
    for cut in cuts:
        store = laid_out(folder / "cut", {**killed.files, WAL: log[:cut]})
        for name, whole in killed.records.items():
            known = [count for size, session, count in killed.acknowledged if session == name and size <= cut]
            _check_prefix(store, name, whole[: max(known, default=0)], cut, write_on=write_on)
        if cut > edges[1] and cut not in edges:
            kept = store.path.with_name(f"{NAME}.torn-1").read_bytes()
            assert log[:cut].endswith(kept)
            assert 0 < len(kept) <= cut - max(edge for edge in edges if edge <= cut)


def _check_prefix(store: SqliteStore, name: str, expected: list[Record], cut: int, *, write_on: bool) -> None:
    try:
        records, _ = found(store, name)
    except SessionNotFound:
        assert expected == [], f"cut at {cut}"
        return
    assert records == expected, f"cut at {cut}"
    if write_on:
        later = appended(store, name)
        assert found(store, name) == ([*expected, later], []), f"cut at {cut}"


def test_a_torn_tail_is_told_once_to_each_session(folder: Path, killed: Snapshot) -> None:
    """failures.md H1, I8: it may have been a part of any of them; it is not told again."""
    *_, (before, _, _), (size, name, count) = killed.acknowledged
    other = "b" if name == "a" else "a"
    store = laid_out(folder / "torn", {**killed.files, WAL: killed.files[WAL][: size - 10]})
    text = (
        f"the end: {size - 10 - before} bytes that were being written when the program ended are left out; "
        f"they are kept in '{NAME}.torn-1'."
    )
    assert found(store, other) == (killed.records[other], [text])
    assert found(store, other) == (killed.records[other], [])
    fewer = [record for record in killed.records[name] if record.seq <= count - (count - _before(killed, name))]
    assert found(store, name) == (fewer, [text])
    assert found(store, name) == (fewer, [])


def _before(killed: Snapshot, name: str) -> int:
    return [count for _, session, count in killed.acknowledged if session == name][-2]


def test_a_torn_tail_is_cut_off_before_anything_is_written_over_it(folder: Path, killed: Snapshot) -> None:
    """failures.md H2, I8: a program that is killed right after it opened the file leaves nothing torn."""
    long = next(size for size, _, _ in killed.acknowledged[1:] if size - killed.acknowledged[0][0] > 10 * FRAME)
    store = laid_out(folder / "torn", {**killed.files, WAL: killed.files[WAL][: long - 10]})
    handle = store.open("a")
    left = contents(folder / "torn")
    handle.close()
    store = laid_out(folder / "again", {NAME: left[NAME], WAL: left[WAL]})
    found(store, "a")
    assert list((folder / "again").glob("*.torn*")) == []


def test_a_tail_of_nuls_is_told_to_everybody(folder: Path, killed: Snapshot) -> None:
    """failures.md H3: as a crash of the file system leaves it; its owner is not known."""
    before, _, _ = killed.acknowledged[-3]
    log = killed.files[WAL]
    store = laid_out(folder / "x", {**killed.files, WAL: log[:before] + bytes(len(log) - before)})
    for name in ("a", "b"):
        records, told = found(store, name)
        known = [count for size, session, count in killed.acknowledged if session == name and size <= before]
        assert records == killed.records[name][: max(known)]
        assert [line.partition(" bytes")[0] for line in told] == [f"the end: {len(log) - before}"]


def test_damage_in_the_middle_of_the_log_is_told_with_what_it_costs(folder: Path, killed: Snapshot) -> None:
    """failures.md H3: SQLite reads no further than to the first bad frame, and says nothing; here it is counted."""
    size, _, _ = killed.acknowledged[4]
    lost = len(killed.acknowledged) - 5
    for offset in (8, 20, 24 + 100, 24 + 4095):
        log = _changed(killed.files[WAL], size + offset)
        store = laid_out(folder / "x", {**killed.files, WAL: log})
        for name in ("a", "b"):
            records, told = found(store, name)
            known = [count for end, session, count in killed.acknowledged if session == name and end <= size]
            assert records == killed.records[name][: max(known)], f"changed at {size + offset}"
            reason = f"its write-ahead log is broken, and {lost} commits in it cannot be read"
            assert told[0].startswith(f"the file: The file was damaged ({reason})")
        assert contents(folder / "x")[f"{NAME}.damaged-1-wal"] == log


@pytest.mark.parametrize("state", ["killed", "ended"])
def test_the_header_is_needed_only_as_far_as_sqlite_needs_it(
    folder: Path, state: str, request: pytest.FixtureRequest
) -> None:
    """failures.md H3, H15: also one that says another version, another way to write, or another size."""
    snapshot: Snapshot = request.getfixturevalue(state)
    main = snapshot.files[NAME]
    for at in range(100):
        files = {**snapshot.files, NAME: _changed(main, at)}
        store = laid_out(folder / "x", files)
        if state == "killed" or at not in NEEDED:
            assert {name: found(store, name)[0] for name in ("a", "b")} == snapshot.records, f"changed at {at}"
        else:
            _check_damaged(folder / "x", snapshot, files, f"changed at {at}")


def test_a_file_that_sqlite_cannot_read_at_all_is_left_as_it_is(folder: Path, ended: Snapshot) -> None:
    """failures.md H3: its own tool may find more."""
    files = {NAME: _changed(ended.files[NAME], 3)}
    store = laid_out(folder / "x", files)
    for act in (store.create, store.open, partial(store.open, write=False)):
        with pytest.raises(SessionDamaged, match=f"It was left as it is; if it was one, try `sqlite3 {NAME} .recover`"):
            act("a")
    assert contents(folder / "x") == files


def test_a_damaged_title_is_not_shown(folder: Path, ended: Snapshot) -> None:
    """failures.md H3: the row of a session has a checksum as well."""
    store = laid_out(folder / "x", ended.files)
    handle = store.open("a")
    handle.set_title("The canary")
    handle.close()
    damaged = contents(folder / "x")[NAME].replace(b"The canary", b"The Canary")
    store = laid_out(folder / "y", {NAME: damaged})
    assert [(summary.id, summary.title) for summary in store.list() if summary.id == "a"] == [("a", "")]
    assert found(store, "a")[0] == ended.records["a"]


def test_sessions_that_vanish_from_their_table_are_missed(folder: Path, ended: Snapshot) -> None:
    """failures.md H3: a page may lose its rows without SQLite noticing, but the records are there."""
    page = _page_of_sessions(ended.files[NAME])
    store = laid_out(folder / "x", {NAME: _zeroed(ended.files[NAME], page * 4096 + 3, 2)})
    assert sorted(summary.id for summary in store.list()) == ["a", "b"]
    assert {name: found(store, name)[0] for name in ("a", "b")} == ended.records


def test_a_reader_changes_nothing(folder: Path, killed: Snapshot, ended: Snapshot) -> None:
    """failures.md I8: a torn log and a damaged file stay as they are, and are told each time."""
    torn: Files = {**killed.files, WAL: killed.files[WAL][:-10]}
    damaged: Files = {NAME: _zeroed(ended.files[NAME], 9 * 4096, 4096)}
    for files in (torn, damaged):
        store = laid_out(folder / "read", files)
        first = found(store, "a", write=False), found(store, "b", write=False), store.list()
        assert first == (found(store, "a", write=False), found(store, "b", write=False), store.list())
        assert first[0][1] != []
        assert contents(folder / "read") == files


def test_every_prefix_of_the_main_file_opens_or_says_that_nothing_is_left(folder: Path, ended: Snapshot) -> None:
    """failures.md H1, I8: what can be read is there, what is missing is told, and the second opening finds the same."""
    main = ended.files[NAME]
    near = {cut for edge in range(0, len(main) + 1, 4096) for cut in range(edge - 3, edge + 4)}
    for cut in sorted({*range(0, len(main), 1499), *near} & set(range(1, len(main)))):
        _check_damaged(folder / "cut", ended, {NAME: main[:cut]}, f"cut at {cut}")


def test_an_empty_file_has_no_sessions(folder: Path) -> None:
    """failures.md H1: a program that was killed before it could write anything leaves one."""
    store = laid_out(folder / "x", {NAME: b""})
    assert store.list() == []
    with pytest.raises(SessionNotFound, match="No session 's' in"):
        store.open("s")
    store.create("s").close()
    assert found(store, "s") == ([], [])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("state", ["killed", "ended"])
def test_no_damage_makes_a_wrong_record(folder: Path, state: str, seed: int, request: pytest.FixtureRequest) -> None:
    """failures.md H3, I8: random bytes, runs of NULs and cuts, in the file and in its log."""
    snapshot: Snapshot = request.getfixturevalue(state)
    chance = random.Random(seed)
    for number in range(40):
        name = chance.choice(sorted(snapshot.files))
        data, how = _damaged(snapshot.files[name], chance)
        _check_damaged(folder / "x", snapshot, {**snapshot.files, name: data}, f"seed {seed}, {number}: {name} {how}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("state", ["killed", "ended"])
def test_no_damage_makes_a_wrong_record_however_often(folder: Path, state: str, request: pytest.FixtureRequest) -> None:
    """failures.md H3, I8: the same with new chances."""
    for seed in range(100, 200):
        test_no_damage_makes_a_wrong_record(folder, state, seed, request)


def _damaged(data: bytes, chance: random.Random) -> tuple[bytes, str]:
    at = chance.randrange(len(data))
    match chance.randrange(4):
        case 0:
            length = chance.choice((1, 30, 600, 4096, 9000))
            return _zeroed(data, at, length), f"zeroed {length} from {at}"
        case 1:
            length = chance.choice((2, 30, 600))
            return data[:at] + chance.randbytes(length) + data[at + length :], f"garbage of {length} from {at}"
        case _:
            places = [chance.randrange(len(data)) for _ in range(chance.choice((1, 1, 3)))]
            changed = bytearray(data)
            for place in places:
                changed[place] ^= 1 << chance.randrange(8)
            return bytes(changed), f"flipped bits at {places}"


def _changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 3]) + data[at + 1 :]


def _zeroed(data: bytes, at: int, length: int) -> bytes:
    return (data[:at] + bytes(length) + data[at + length :])[: len(data)]


def _check_damaged(folder: Path, snapshot: Snapshot, files: Files, how: str) -> None:
    """Both sessions hold nothing that was not written, tell what is missing, go on, and open the same again."""
    store = laid_out(folder, files)
    for name, whole in snapshot.records.items():
        try:
            records, told = found(store, name)
        except (SessionDamaged, SessionNotFound) as error:
            if not ("damage" in str(error) or "left out" in str(error) or _told_elsewhere(store)):
                raise
            continue
        if name == "a":
            _check_kept(folder, files, how)
        assert [record for record in records if record not in whole] == [], how
        assert told or records == whole, f"{how}: {len(whole) - len(records)} records of {name} are gone without a word"
        assert found(store, name)[0] == records, how
        later = appended(store, name)
        assert found(store, name)[0] == [*records, later], how


def _check_kept(folder: Path, files: Files, how: str) -> None:
    """A damaged file is kept as it was; a tail that was torn as well is in a file of its own."""
    aside = b"".join(torn.read_bytes() for torn in folder.glob("*.torn-1"))
    for path in folder.glob("*.damaged-1*"):
        kept = files[path.name.replace(".damaged-1", "")]
        assert kept in (path.read_bytes(), path.read_bytes() + aside), how


def _told_elsewhere(store: SqliteStore) -> bool:
    """Whether the file says of another session that something is wrong."""
    return any(found(store, summary.id)[1] for summary in store.list()) or any(
        path.suffix in (".torn-1", ".damaged-1") for path in store.path.parent.iterdir()
    )


def test_damage_in_the_middle_is_told_and_what_follows_is_kept(folder: Path, ended: Snapshot) -> None:
    """failures.md H3: one page of many is gone."""
    at = ended.files[NAME].index(b'"record_9"')
    store = laid_out(folder / "x", {NAME: _zeroed(ended.files[NAME], at // 4096 * 4096, 4096)})
    lost = {name: [r.seq for r in whole if r not in found(store, name)[0]] for name, whole in ended.records.items()}
    name = max(lost, key=lambda name: len(lost[name]))
    assert 0 < len(lost[name]) < 12
    assert max(lost[name]) < len(ended.records[name])
    records, told = found(store, name)
    assert [record.seq for record in records] == [
        n for n in range(1, len(ended.records[name]) + 1) if n not in lost[name]
    ]
    assert told[0].startswith("the file: The file was damaged (")
    assert f"the damaged one is kept as '{NAME}.damaged-1'. " in told[0]
    assert told[0].endswith(f"use `sqlite3 {NAME}.damaged-1 .recover`.")
    assert told[1] == f"records {lost[name][0]} to {lost[name][-1]}: Lost when the file was damaged."


def test_lost_numbers_are_not_given_again(folder: Path, ended: Snapshot) -> None:
    """failures.md H3, I18: the number of a record never leads to another one."""
    last = ended.records["a"][-1]
    at = ended.files[NAME].index(f'"record_{last.seq}"'.encode())
    store = laid_out(folder / "x", {NAME: _zeroed(ended.files[NAME], at, 1)})
    records, told = found(store, "a")
    assert records == ended.records["a"][:-1]
    assert told[1] == f"record {last.seq}: Lost when the file was damaged."
    assert appended(store, "a").seq == last.seq + 1
    assert {summary.id: summary.records for summary in store.list()}["a"] == last.seq


def test_a_session_whose_row_is_lost_gets_its_name_from_its_first_record(folder: Path, ended: Snapshot) -> None:
    """failures.md H3, I8: the row says only what the records say too."""
    page = _page_of_sessions(ended.files[NAME])
    store = laid_out(folder / "x", {NAME: _zeroed(ended.files[NAME], page * 4096, 4096)})
    assert {name: found(store, name)[0] for name in ("a", "b")} == ended.records
    assert {summary.id: summary.records for summary in store.list()} == {
        name: len(records) for name, records in ended.records.items()
    }


def _page_of_sessions(data: bytes) -> int:
    """The page of the table of sessions, as SQLite says."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data[:18] + b"\1\1" + data[20:])
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sessions'").fetchone()
        return page - 1
    finally:
        connection.close()


def test_a_damaged_file_that_others_use_is_left_alone_until_they_are_done(folder: Path, ended: Snapshot) -> None:
    """failures.md H3, H5: no file is taken away; what can be read is read."""
    store = laid_out(folder / "x", ended.files)
    reader = store.open("b", write=False)
    page = _page_of_sessions(ended.files[NAME])
    with store.path.open("r+b") as file:
        file.seek(page * 4096)
        file.write(bytes(4096))
    with pytest.raises(SessionBusy, match=r"is damaged .* and others use it"):
        store.open("a")
    reader.close()
    assert found(store, "a")[0] == ended.records["a"]


def test_a_row_that_is_damaged_is_left_out_while_others_use_the_file(folder: Path, ended: Snapshot) -> None:
    """failures.md H3: and rescued by the next who has it alone."""
    at = ended.files[NAME].index(b'"record_5"')
    store = laid_out(folder / "x", {NAME: _zeroed(ended.files[NAME], at, 1)})
    reader = store.open("b", write=False) if b'"session":"a"' in ended.files[NAME][at : at + 200] else None
    name = "a" if reader is not None else "b"
    reader = reader or store.open("a", write=False)
    records, told = found(store, name)
    assert records == [record for record in ended.records[name] if record.seq != 5]
    assert told == ["record 5: Damaged, and left out."]
    reader.close()
    assert found(store, name)[0] == records
    assert store.path.with_name(f"{NAME}.damaged-1").exists()


@pytest.mark.parametrize("step", ["copied", "ready", "log gone"])
def test_a_rescue_that_was_interrupted_is_finished_by_the_next(folder: Path, killed: Snapshot, step: str) -> None:
    """failures.md I8: at no moment is there less than before; a log is never applied to a file that is not its own."""
    files = {**killed.files, NAME: _zeroed(killed.files[NAME], 0, 30)}
    store = laid_out(folder / "done", files)
    expected = {name: found(store, name) for name in ("a", "b")}
    assert {name: records for name, (records, _) in expected.items()} == killed.records
    fresh = contents(folder / "done")[NAME]
    left: dict[str, Files] = {
        "copied": {**files, f"{NAME}-fresh": fresh[:5000], f"{NAME}.damaged-1": files[NAME]},
        "ready": {**files, f"{NAME}-ready": fresh},
        "log gone": {NAME: files[NAME], f"{NAME}-ready": fresh},
    }
    for write in (False, True):
        store = laid_out(folder / "again", left[step])
        again = {name: found(store, name, write=write)[0] for name in ("a", "b")}
        assert again == killed.records
        assert {summary.id: summary.records for summary in store.list()} == {
            name: len(records) for name, records in killed.records.items()
        }
    assert [path.name for path in (folder / "again").iterdir() if path.name.endswith(("-ready", "-fresh"))] == []


def test_two_histories_of_a_session_are_not_mixed(folder: Path) -> None:
    """failures.md H3, I8: what another program wrote over in the log does not come back behind it."""
    store = laid_out(folder / "x", {})
    handle = store.create("s")
    handle.append([make_record(seq, own=True) for seq in range(1, 5)])
    start = contents(folder / "x")
    handle.append([make_record(5, own=False)])
    handle.append([make_record(6, own=False)])
    handle.append([make_record(7, own=False)])
    other = contents(folder / "x")[WAL]
    handle.close()
    store = laid_out(folder / "y", start)
    handle = store.open("s")
    handle.append([make_record(5, own=True)])
    own = contents(folder / "y")
    handle.close()
    assert len(own[WAL]) < len(other)
    store = laid_out(folder / "z", {**own, WAL: own[WAL] + other[len(own[WAL]) :]})
    assert found(store, "s")[0] == [make_record(seq, own=True) for seq in range(1, 6)]


def test_the_log_of_an_empty_file_is_not_thrown_away(folder: Path, killed: Snapshot) -> None:
    """failures.md H3, I8: SQLite would do so without a word."""
    files = {**killed.files, NAME: b""}
    store = laid_out(folder / "x", files)
    for act in (store.create, store.open, partial(store.open, write=False)):
        with pytest.raises(SessionDamaged, match="so damaged that nothing of it can be read"):
            act("a")
    assert contents(folder / "x") == {name: data for name, data in files.items() if data}


def test_a_deleted_session_does_not_come_back_from_a_damaged_file(folder: Path, ended: Snapshot) -> None:
    """failures.md L13: no byte of it is left in any file."""
    store = laid_out(folder / "x", ended.files)
    handle = store.open("a")
    handle.append([make_record(handle.last_seq + 1, text="canary-4711 " * 2_000)])
    handle.close()
    store.delete("a")
    assert [name for name, data in contents(folder / "x").items() if b"canary-4711" in data] == []
    data = contents(folder / "x")[NAME]
    store = laid_out(folder / "y", {NAME: _zeroed(data, _page_of_sessions(data) * 4096, 4096)})
    assert found(store, "b")[0] == ended.records["b"]
    assert [summary.id for summary in store.list()] == ["b"]


def test_a_file_of_another_program_is_refused_and_not_touched(folder: Path) -> None:
    """failures.md H8, L22: neither a text nor another program's database is made into a store."""
    path = folder / NAME
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE sessions (id TEXT)")
    connection.execute("INSERT INTO sessions VALUES ('mine')")
    connection.commit()
    connection.close()
    for data in (path.read_bytes(), b"Dear diary,\n" * 1_000, b"x", bytes(10_000), os.urandom(9_000)):
        path.write_bytes(data)
        store = SqliteStore(path)
        for act in (store.create, store.open, store.delete, partial(store.open, write=False)):
            with pytest.raises(SessionDamaged, match="no file of sessions, or so damaged that nothing"):
                act("s")
        with pytest.raises(SessionDamaged):
            store.list()
        assert path.read_bytes() == data


def test_a_file_of_a_newer_version_is_refused_with_its_version(folder: Path, ended: Snapshot) -> None:
    """failures.md H15: it stays as it is."""
    header = bytearray(ended.files[NAME])
    header[63] = header[71] = 3
    store = laid_out(folder / "x", {NAME: bytes(header)})
    for write in (True, False):
        with pytest.raises(NewerFormat, match="was written in format 3, and this version reads 2"):
            store.open("a", write=write)
    assert (folder / "x" / NAME).read_bytes() == bytes(header)


def test_damage_to_the_version_is_not_taken_for_a_newer_one(folder: Path, ended: Snapshot) -> None:
    """failures.md H3, H15: it stands in the file twice."""
    header = bytearray(ended.files[NAME])
    header[63] = 5
    store = laid_out(folder / "x", {NAME: bytes(header)})
    assert {name: found(store, name)[0] for name in ("a", "b")} == ended.records


def test_a_reader_looks_once_at_what_is_there_and_gets_nothing_damaged_since(folder: Path) -> None:
    """failures.md H2: opening it again to watch is cheap; a record that is damaged meanwhile is left out and told."""
    store = SqliteStore(folder / NAME)
    writer = store.create("a")
    writer.append([make_record(seq) for seq in range(1, 6)])
    store.open("a", write=False).close()
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("UPDATE records SET data = X'00' WHERE key = (SELECT min(key) FROM records)")
        other.commit()
    writer.append([make_record(6)])
    with closing(store.open("a", write=False)) as reader:
        assert reader.problems == []
        assert [seq for seq, _ in reader.lines()] == [2, 3, 4, 5, 6]
        assert [problem.where for problem in reader.problems] == ["record 1"]
    writer.close()
    with closing(store.open("a")) as again:
        assert [problem.where for problem in again.problems] == ["the file", "record 1"]


@pytest.mark.parametrize("key", [2**63 - 1, -(2**63)])
def test_the_key_of_a_record_that_is_the_last_possible_one_does_not_hang_the_opening(folder: Path, key: int) -> None:
    """failures.md H3: the search for the numbers of sessions ends also where they would begin anew."""
    store = SqliteStore(folder / NAME)
    with closing(store.create("a")) as writer:
        writer.append([make_record(seq) for seq in range(1, 4)])
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("UPDATE records SET key = ? WHERE key = (SELECT max(key) FROM records)", (key,))
        other.commit()
    records, problems = found(store, "a")
    assert [record.seq for record in records] == [1, 2]
    assert problems != []
