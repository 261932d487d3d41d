"""Processes that follow a session hear its writer, and nothing of a former one (durable.md U3, U5)."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from queue import SimpleQueue
from random import Random

import pytest
from tests.session.database import Database

from steersman.session import PostgresStore
from steersman.session.stores.postgres.connection import ServerAddress
from steersman.session.stores.postgres.follow import MOST_PARTS, Followers, PartReader, make_channel, pack_parts
from steersman.session.stores.postgres.listen import JOIN, STAY, watch_payload
from steersman.session.stores.postgres.tables import CHANNEL
from steersman.session.stores.store import FollowedHandle, FollowedStore, Store
from steersman.testing.store_checks import make_record

pytestmark = pytest.mark.real_time


class Ears:
    """What one process hears."""

    def __init__(self, store: FollowedStore) -> None:
        self.heard: SimpleQueue[bytes | None] = SimpleQueue()
        self.following = store.follow("s", self.heard.put)

    def wait_for(self, data: bytes) -> list[bytes]:
        """What was heard up to this."""
        found: list[bytes] = []
        while not found or found[-1] != data:
            heard = self.heard.get(timeout=20)
            if heard is not None:
                found.append(heard)
        return found


@pytest.fixture
def shared(stores: Store) -> FollowedStore:
    """A store whose sessions can be followed."""
    assert isinstance(stores, FollowedStore)
    return stores


# Those in memory belong to one process.
every_shared_store = pytest.mark.parametrize("stores", ["postgres", "sqlite"], indirect=True)


def watch(handle: FollowedHandle) -> threading.Semaphore:
    """Listen for those that come."""
    came = threading.Semaphore(0)
    handle.watch_queue(lambda: None)
    handle.watch_followers(came.release)
    return came


@every_shared_store
def test_what_a_writer_says_is_heard_in_order_by_all_that_follow(shared: FollowedStore) -> None:
    """durable.md U5: also what is longer than one notification, and without followers nothing is sent."""
    handle = shared.create("s")
    assert isinstance(handle, FollowedHandle)
    came = watch(handle)
    assert not handle.broadcast(b"to no one")
    both: list[Ears] = []
    for _ in range(2):
        both.append(Ears(shared))
        assert came.acquire(timeout=20)
    long = Random(1).randbytes(40_000).hex().encode()
    for data in (b"one", long, "zw\u00f6lf".encode(), b"end"):
        assert handle.broadcast(data)
    for ears in both:
        assert ears.wait_for(b"end") == [b"one", long, "zw\u00f6lf".encode(), b"end"]
    both[0].following.ask()
    assert came.acquire(timeout=20)
    for ears in both:
        ears.following.close()
    handle.close()


@every_shared_store
def test_a_writer_that_was_taken_over_is_not_heard(shared: FollowedStore) -> None:
    """durable.md U3: what it says afterwards is lost, and the new writer is heard without being told of followers."""
    former = shared.create("s")
    assert isinstance(former, FollowedHandle)
    came = watch(former)
    ears = Ears(shared)
    assert came.acquire(timeout=20)
    former.broadcast(b"before")
    assert ears.wait_for(b"before") == [b"before"]
    owner = shared.take_over("s")
    former.broadcast(b"late")
    assert isinstance(owner, FollowedHandle)
    assert watch(owner).acquire(timeout=20)
    former.broadcast(b"later")
    owner.broadcast(b"mine")
    assert ears.wait_for(b"mine") == [b"mine"]
    ears.following.close()
    former.close()
    owner.close()


@every_shared_store
def test_it_is_known_whether_a_session_has_a_writer(shared: FollowedStore) -> None:
    """durable.md U5: a run whose writer is gone does not go on."""
    handle = shared.create("s")
    assert shared.has_writer("s")
    handle.close()
    assert not shared.has_writer("s")
    first = shared.open("s")
    second = shared.take_over("s")
    assert shared.has_writer("s")
    second.close()
    assert not shared.has_writer("s")
    first.close()


def test_a_payload_fits_into_a_notification_and_comes_back_whole() -> None:
    """durable.md U5: PostgreSQL refuses payloads of 8,000 bytes; what is far too long is not sent at all."""
    data = os.urandom(100_000)
    parts = pack_parts(2**40, "f" * 20, data)
    assert max(len(part.encode()) for part in parts) < 8_000
    reader = PartReader()
    assert [reader.add(part) for part in parts] == [*[None] * (len(parts) - 1), data]
    assert pack_parts(1, "x", os.urandom(MOST_PARTS * 8_000)) == ()
    assert reader.add(pack_parts(2**40 - 1, "y", b"former")[0]) is None


@pytest.mark.parametrize("payload", ["", "x", "7 a 0 1", "7 a 0 1 %%%", "7 a 0 1 QUJD", "7 a x y z", "7 a 1 2 QUJD"])
def test_what_another_program_has_sent_is_left_out(payload: str) -> None:
    """durable.md U5: any client of the database can send notifications."""
    assert PartReader().add(payload) is None


def test_without_a_thread_the_session_is_written_and_the_next_one_listens(postgres: Database) -> None:
    """durable.md U2: a process at its limit of threads opens and writes sessions; what is queued waits."""
    store = postgres.store()
    handle = store.create("s")
    before = threading.stack_size(1 << 46)  # no thread can have so much
    try:
        handle.watch_queue(lambda: None)
        handle.watch_followers(lambda: None)
    finally:
        threading.stack_size(before)
    handle.append([make_record(1)])
    assert not handle.broadcast(b"to no one")
    woken = threading.Semaphore(0)
    handle.watch_queue(woken.release)
    assert woken.acquire(timeout=20)
    queue = store.open_queue("s")
    queue.add("k", b"x")
    assert woken.acquire(timeout=20)
    queue.close()
    handle.close()


def wait_for_the_listener(store: PostgresStore) -> None:
    """Wait until the process listens, and has sent and heard all that was to be sent and heard by now."""
    for id in ("first", "second"):  # what it hears first, it may hear before it sends
        handle, woken = store.create(id), threading.Semaphore(0)
        handle.watch_queue(woken.release)
        with closing(store.open_queue(id)) as queue:
            queue.add("k", b"x")
        assert woken.acquire(timeout=20)
        handle.close()
        store.delete(id)


def test_a_writer_greets_nobody_where_nobody_follows(postgres: Database) -> None:
    """A process that listens would have heard of them, and each greeting costs every process of the database."""
    store = postgres.store()
    stop = store.keep_ready(2)
    wait_for_the_listener(store)
    handle = store.create("s")
    watch(handle)
    handle.close()
    handle = store.open("s")
    watch(handle)
    wait_for_the_listener(store)
    handle.close()  # which keeps the connection
    assert not postgres.ask(
        "SELECT query FROM pg_stat_activity WHERE query LIKE %s AND application_name LIKE %s",
        "%pg_notify(channel%",
        f"{postgres.name} %",
    )
    stop()


def test_who_asks_before_the_writer_watches_is_heard(postgres: Database) -> None:
    """durable.md U5: the writer owns the session by then, and is about to run it."""
    store, asked = postgres.store(), threading.Semaphore(0)
    stop = store.keep_ready(2)
    wait_for_the_listener(store)
    store.create("s").close()
    ((place,),) = postgres.ask(
        "SELECT 'steersman_records'::regclass::oid || ' ' || number FROM steersman_sessions WHERE id = 's'"
    )
    handle = store.open("s")
    unwatch = watch_payload(ServerAddress(postgres.dsn, 30), f"{place} {JOIN}", lambda _: asked.release())
    ears = Ears(store)
    assert asked.acquire(timeout=20)
    unwatch()
    came = watch(handle)
    assert [ears.heard.get(timeout=20) for _ in range(2)] == [None, None], "It has begun to listen, and was greeted."
    assert came.acquire(timeout=20)
    assert handle.broadcast(b"now")
    assert ears.wait_for(b"now") == [b"now"]
    ears.following.close()
    handle.close()
    stop()


def test_those_that_follow_look_again_once_the_writer_is_gone(postgres: Database) -> None:
    """durable.md U5: the end of a short run is else seen late or never, since its last notice may be lost."""
    store = postgres.store()
    handle = store.create("s")
    ((place,),) = postgres.ask(
        "SELECT 'steersman_records'::regclass::oid || ' ' || number FROM steersman_sessions WHERE id = 's'"
    )
    came, ears = watch(handle), Ears(store)
    assert came.acquire(timeout=20)
    assert handle.broadcast(b"now")
    ears.wait_for(b"now")
    handle.close()
    for payload in pack_parts(handle.epoch, "test", b"end"):
        postgres.ask("SELECT pg_notify(%s, %s)", make_channel(place), payload)
    heard = [ears.heard.get(timeout=20)]
    while heard[-1] != b"end":
        heard.append(ears.heard.get(timeout=20))
    assert None in heard
    ears.following.close()


def test_a_writer_that_is_gone_before_those_that_follow_have_answered_tells_them(postgres: Database) -> None:
    """durable.md U5: it knows of them because they say from time to time that they are there."""
    store = postgres.store()
    stop = store.keep_ready(2)
    wait_for_the_listener(store)
    store.create("s").close()
    ((place,),) = postgres.ask(
        "SELECT 'steersman_records'::regclass::oid || ' ' || number FROM steersman_sessions WHERE id = 's'"
    )
    handle = store.open("s")
    followers = Followers(ServerAddress(postgres.dsn, 30), place, handle.epoch, lambda: None, time.monotonic())
    assert followers.make_farewell() is None
    postgres.ask("SELECT pg_notify(%s, %s)", CHANNEL, f"{place} {STAY}")
    wait_for_the_listener(store)
    followers.stop()
    assert followers.make_farewell() == (make_channel(place), f"{handle.epoch}")
    handle.close()
    stop()
