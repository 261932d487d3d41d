"""Fronts of a server where the session is open in another process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.server.fronts.test_agui import check_frames, join_text, name_run, read_frames, user
from tests.server.test_two_servers import run_two

pytestmark = pytest.mark.real_time
YES = {"status": "resolved", "payload": {"approved": True}}


async def test_agui_speaks_to_a_thread_that_is_open_elsewhere(tmp_path: Path) -> None:
    """durable.md U2, U5: its run is followed and answered, and the next one started; sent again, it counts once."""
    async with run_two(tmp_path, "ask") as (_, a, b):
        history = [user("m1", "Deploy.")]
        first = await read_frames(a, {"runId": name_run(), "messages": history})
        followed = await read_frames(b, {"runId": name_run(), "messages": history})
        await read_frames(b, {"runId": name_run(), "messages": [*history, user("m2", "And more.")]}, 409)
        [interrupt] = followed[-1]["outcome"]["interrupts"]
        answer = {"resume": [{"interruptId": interrupt["id"], **YES}]}
        await read_frames(b, {"runId": name_run(), "resume": [{"interruptId": "nothing", **YES}]}, 404)
        async with a.watch("thread-1"):  # it stays open there
            answered = await read_frames(b, {"runId": name_run(), **answer})
            again = await read_frames(b, {"runId": name_run(), **answer})
            body = {"messages": [*history, user("m3", "Once more.")]}
            prompted = await read_frames(b, {"runId": name_run(), **body})
            repeated = await read_frames(b, {"runId": name_run(), **body})
    assert first[-1]["outcome"] == followed[-1]["outcome"]
    for frames in (followed, answered, again, prompted, repeated):
        check_frames(frames)
    assert join_text(answered) == "Done."
    assert answered[-1]["outcome"] == again[-1]["outcome"] == {"type": "success"}
    assert join_text(prompted) == join_text(repeated) == "Let me see. "
    [snapshot] = [frame["messages"] for frame in repeated if frame["type"] == "MESSAGES_SNAPSHOT"]
    assert [message["id"] for message in snapshot if message["role"] == "user"] == ["m1", "m3"]
