"""The conformance checks of the queues of a store, for stores with `open_queue` and `take_over`.

def stores(name: str) -> SharedStore:
    return MyStore(...)      # as for `store_checks`

for check in queue_checks():
    check(stores)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from steersman.session.stores.store import SessionNotFound, SessionTaken, SharedHandle, SharedStore, read_records
from steersman.testing.store_checks import make_record

SharedStores: TypeAlias = Callable[[str], SharedStore]
QueueCheck: TypeAlias = Callable[[SharedStores], None]


def queue_checks() -> list[QueueCheck]:
    """Every check, in a sensible order; their names are sentences."""
    return [
        what_is_queued_has_a_number,
        a_key_is_queued_once,
        what_is_in_the_log_is_no_longer_queued,
        queues_do_not_mix,
        a_writer_is_woken,
        a_session_that_is_taken_over_refuses_its_former_owner,
    ]


def what_is_queued_has_a_number(stores: SharedStores) -> None:
    """Whether there is a writer or not; the numbers rise, and a reader of one reads all lower ones."""
    store = stores("numbers")
    _check_not_found(store, "s")
    handle = store.create("s")
    queue = stores("numbers").open_queue("s")
    found = [queue.add("a", b"1"), queue.add("b", b"2\0\xff")]
    handle.close()
    found.append(queue.add("c", b""))
    numbers = [number for number, _ in found]
    assert [is_new for _, is_new in found] == [True] * 3, f"Expected new keys, got {found!r}."
    assert numbers == sorted(set(numbers)), f"Expected rising numbers, got {numbers!r}."
    assert all(number > 0 for number in numbers), f"Expected numbers above 0, got {numbers!r}."
    assert list(queue.waiting()) == list(zip(numbers, (b"1", b"2\0\xff", b""), strict=True)), (
        "Expected what was queued."
    )
    queue.close()
    queue.close()
    handle = store.take_over("s")
    assert [number for number, _ in handle.read_queue(numbers[0])] == numbers[1:], "Expected what follows a number."
    handle.close()


def a_key_is_queued_once(stores: SharedStores) -> None:
    """However often it is queued, from however many threads, and also after it is in the log."""
    store = stores("keys")
    handle = store.create("s")
    found: list[tuple[int, bool]] = []

    def add() -> None:
        queue = stores("keys").open_queue("s")
        found.append(queue.add("key", b"x"))
        queue.close()

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handle.append([make_record(1, type="order", number=found[0][0])])
    add()
    handle.close()
    assert len({number for number, _ in found}) == 1, f"Expected one number, got {found!r}."
    assert sum(is_new for _, is_new in found) == 1, f"Expected one of them to be new, got {found!r}."


def what_is_in_the_log_is_no_longer_queued(stores: SharedStores) -> None:
    """The record that has its number takes it out of the queue, and no other record does."""
    store = stores("log")
    handle = store.create("s")
    queue = store.open_queue("s")
    first, second = queue.add("a", b"1")[0], queue.add("b", b"2")[0]
    handle.append([make_record(1, number=first), make_record(2, type="accepted", number=second)])
    left = list(queue.waiting())
    queue.close()
    handle.close()
    assert left == [(first, b"1")], f"Expected only the first to be left, got {left!r}."


def queues_do_not_mix(stores: SharedStores) -> None:
    """Each session has its own, which is deleted with it."""
    store = stores("mix")
    for name in ("a", "b"):
        store.create(name).close()
        queue = store.open_queue(name)
        queue.add("key", name.encode())
        queue.close()
    store.delete("a")
    store.create("a").close()
    for name, expected in (("a", []), ("b", [b"b"])):
        queue = store.open_queue(name)
        found = [data for _, data in queue.waiting()]
        queue.close()
        assert found == expected, f"Expected {expected!r} in {name!r}, got {found!r}."


def a_writer_is_woken(stores: SharedStores) -> None:
    """In some thread, when another one has queued something."""
    stores("wake").create("s").close()
    handle = stores("wake").take_over("s")
    woken = threading.Event()

    def look() -> None:
        if handle.read_queue():
            woken.set()

    stop = handle.watch_queue(look)
    queue = stores("wake").open_queue("s")
    queue.add("a", b"1")
    came = woken.wait(10)
    stop()
    queue.close()
    handle.close()
    assert came, "Expected the writer to be woken."


def a_session_that_is_taken_over_refuses_its_former_owner(stores: SharedStores) -> None:
    """Whatever it writes, at once and for good, also when the new owner is gone."""
    store = stores("taken")
    store.create("s").close()
    former = store.take_over("s")
    former.append([make_record(1)])
    owner = stores("taken").take_over("s")
    assert owner.epoch > former.epoch, f"Expected an epoch above {former.epoch}, got {owner.epoch}."
    _check_taken(former)
    owner.append([make_record(2, by="owner")])
    _check_taken(former)
    owner.close()
    _check_taken(former)
    former.close()
    reader = store.open("s", write=False)
    found = list(read_records(reader))
    reader.close()
    assert found == [make_record(1), make_record(2, by="owner")], f"Expected the records of the owner, got {found!r}."


def _check_taken(former: SharedHandle) -> None:
    record = make_record(2, by="former")
    for act in (lambda: former.append([record]), lambda: former.set_title("former"), former.read_queue):
        try:
            act()
        except SessionTaken:
            continue
        raise AssertionError("Expected SessionTaken, and nothing was raised.")


def _check_not_found(store: SharedStore, session_id: str) -> None:
    for act in (store.open_queue, store.take_over):
        try:
            act(session_id)
        except SessionNotFound:
            continue
        raise AssertionError(f"Expected SessionNotFound for {session_id!r}, and nothing was raised.")
