"""A program that opens sessions at the same moment as others."""

from __future__ import annotations

from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from steersman import Session
from steersman.session.stores.store import SessionBusy

ROUNDS = 30


def open_again_and_again(folder: str, id: str | None, barrier: Barrier, results: Any) -> None:
    """Open the session of each round at the same moment as the others do."""
    for number in range(ROUNDS):
        path = Path(folder, f"{number}.db")
        barrier.wait()
        session = None
        try:
            session = Session.at(path) if id is None else Session.open(path, id=id, create=True)
            results.put((number, session.id))
        except SessionBusy:
            results.put((number, "busy"))
        except Exception as error:  # noqa: BLE001  # the test shows it
            results.put((number, repr(error)))
        barrier.wait()
        if session is not None:
            session.close()
