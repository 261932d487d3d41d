"""Short names of entries: unique, the same everywhere, and never a number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steersman.cli.sessions.entry_names import shorten_ids

HEX = "0123456789abcdef"
PREFIXES = st.text(HEX, min_size=12, max_size=12)


def _make_id(kind: str, prefix: str, number: int) -> str:
    return f"{kind}_{prefix}_{number:x}"


IDS = st.builds(_make_id, st.sampled_from(["msg", "compaction"]), PREFIXES, st.integers(0, 40))


@given(st.lists(IDS | st.text(max_size=9), unique_by=lambda id: id.partition("_")[2] or id))
def test_every_entry_has_a_name_of_its_own_that_is_no_number(ids: list[str]) -> None:
    names = shorten_ids(ids)
    assert list(names) == ids
    assert len(set(names.values())) == len(ids)
    assert not any(name.isdecimal() for id, name in names.items() if not id.isdecimal())


def test_a_name_is_as_short_as_it_can_be() -> None:
    assert shorten_ids(["msg_5f0c2a9b1e44_16", "msg_5f0c2a9b1e44_1a"]) == {
        "msg_5f0c2a9b1e44_16": "5f-16",
        "msg_5f0c2a9b1e44_1a": "5f-1a",
    }
    assert [*shorten_ids(["msg_5f0c2a9b1e44_1", "msg_5f112a9b1e44_1"]).values()] == ["5f0-1", "5f1-1"]
